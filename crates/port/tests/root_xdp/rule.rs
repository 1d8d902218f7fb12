//! Whose a frame is: the program (`BPF_PROG_TEST_RUN`) beside the rule in plain Rust, on frames of any bytes, with owners
//! that change in between.

use super::*;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_port::rng::Rng;
use tidemill_port::spec::Leave;
use tidemill_port::xdp::Alone;

/// Programs, each with something else to leave.
const PROGRAMS: u64 = 20;
/// Owners that each is told.
const OWNERS: usize = 5;
/// Frames for each of these.
const EACH: usize = 2000;

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// Addresses that frames are to and that somebody may own.
struct Hosts {
    v4: Vec<[u8; 4]>,
    v6: Vec<[u8; 16]>,
}

impl Hosts {
    /// Groups, links' and others, at the edges of what is taken for one; and some at random.
    fn new(rng: &mut Rng) -> Self {
        let v4 = "10.0.0.1 10.0.0.7 10.0.0.255 192.0.2.1 224.0.0.9 239.255.255.255 240.0.0.1 \
                  255.255.255.255 169.254.0.1 169.253.0.1 0.0.0.0";
        let v6 = "fd00::1 fd00::7 2001:db8::1 ff02::1 ff00:: fe80::1 febf:ffff::1 fec0::1 fe7f::1 \
                  ::ffff:10.0.0.1 ::ffff:255.255.255.255 ::";
        let v4 = v4.split(' ').map(|text| text.parse::<Ipv4Addr>().unwrap().octets());
        let v6 = v6.split(' ').map(|text| text.parse::<Ipv6Addr>().unwrap().octets());
        let (mut v4, mut v6): (Vec<_>, Vec<_>) = (v4.collect(), v6.collect());
        v4.extend((0..100).map(|_| (rng.bits() as u32).to_be_bytes()));
        v6.extend((0..100).map(|_| (u128::from(rng.bits()) << 64 | u128::from(rng.bits())).to_be_bytes()));
        Hosts { v4, v6 }
    }

    fn all(&self) -> impl Iterator<Item = IpAddr> {
        self.v4.iter().map(|v4| IpAddr::from(*v4)).chain(self.v6.iter().map(|v6| IpAddr::from(*v6)))
    }

    /// Some of them, one in so many.
    fn some(&self, rng: &mut Rng, one_in: u64) -> BTreeSet<IpAddr> {
        self.all().filter(|_| rng.below(one_in) == 0).collect()
    }

    fn owners(&self, rng: &mut Rng) -> Ownership {
        let vlans = [0, 5, 6, 100, 4095].into_iter().filter(|_| rng.below(2) == 0).collect();
        // Now and then nearly everything, so that the filter is full.
        let one_in = pick(rng, &[1, 3, 3, 10]);
        let (kernel_hosts, own_hosts) = (self.some(rng, 2 * one_in), self.some(rng, one_in));
        Ownership { kernel: rng.below(2) == 0, vlans, kernel_hosts, own_hosts }
    }
}

fn bytes(rng: &mut Rng, count: u64) -> Vec<u8> {
    (0..count).map(|_| rng.bits() as u8).collect()
}

/// What TCP and UDP begin with, and some more.
fn ports(rng: &mut Rng) -> Vec<u8> {
    let ports = [22, 67, 68, 53, 179, 3784];
    let [from, to] = [pick(rng, &ports), pick(rng, &ports)].map(u16::to_be_bytes);
    [&from[..], &to, &bytes(rng, 8)].concat()
}

const PROTOCOLS: [u8; 8] = [1, 6, 17, 17, 58, 89, 112, 255];

/// An IPv4 packet, in which there may be an ICMP error about another.
fn packet4(rng: &mut Rng, hosts: &Hosts, is_about: bool) -> Vec<u8> {
    let words = pick(rng, &[5, 5, 5, 5, 6, 15, 4, 0]);
    let fragment = pick(rng, &[0_u16, 0, 0x4000, 0x2000, 0x2001, 0x1fff, 0x0100]).to_be_bytes();
    let protocol = pick(rng, &PROTOCOLS);
    let mut packet = vec![0x40 | words, 0, 0, 60, 0, 1, fragment[0], fragment[1], 64, protocol, 0, 0];
    packet.extend(pick(rng, &hosts.v4));
    packet.extend(pick(rng, &hosts.v4));
    packet.extend(bytes(rng, u64::from(words).saturating_sub(5) * 4));
    if protocol == 1 && !is_about {
        packet.extend([pick(rng, &[0, 3, 3, 4, 5, 11, 12, 13]), 0, 0, 0, 0, 0, 5, 0]);
        packet.extend(packet4(rng, hosts, true));
    } else {
        packet.extend(ports(rng));
    }
    packet
}

/// The same of IPv6.
fn packet6(rng: &mut Rng, hosts: &Hosts, is_about: bool) -> Vec<u8> {
    let next = pick(rng, &PROTOCOLS);
    let mut packet = vec![0x60, 0, 0, 0, 0, 40, next, 64];
    packet.extend(pick(rng, &hosts.v6));
    packet.extend(pick(rng, &hosts.v6));
    if next == 58 && !is_about {
        packet.extend([pick(rng, &[0, 1, 2, 3, 4, 5, 128, 135, 136, 137]), 0, 0, 0, 0, 0, 5, 0]);
        packet.extend(packet6(rng, hosts, true));
    } else {
        packet.extend(ports(rng));
    }
    packet
}

/// A frame, now and then changed or cut; at least the 14 bytes that the kernel wants.
fn frame(rng: &mut Rng, hosts: &Hosts) -> Vec<u8> {
    let mut frame = bytes(rng, 12);
    for _ in 0..pick(rng, &[0, 0, 0, 1, 1, 2, 3]) {
        let id = pick(rng, &[0_u16, 5, 6, 100, 4095]) | (rng.bits() as u16 & 0xf000);
        frame.extend(pick(rng, &[0x8100_u16, 0x8100, 0x88a8, 0x9100]).to_be_bytes());
        frame.extend(id.to_be_bytes());
    }
    match rng.below(8) {
        0..=2 => {
            frame.extend([0x08, 0x00]);
            frame.extend(packet4(rng, hosts, false));
        }
        3..=5 => {
            frame.extend([0x86, 0xdd]);
            frame.extend(packet6(rng, hosts, false));
        }
        6 => {
            frame.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, pick(rng, &[0, 1, 2, 3])]);
            frame.extend(bytes(rng, 20));
        }
        _ => {
            frame.extend(pick(rng, &[[0x88_u8, 0xcc], [0x88, 0x47], [0, 40]]));
            frame.extend(bytes(rng, 46));
        }
    }
    if rng.below(5) == 0 {
        let at = rng.below(frame.len() as u64) as usize;
        frame[at] = rng.bits() as u8;
    }
    if rng.below(4) == 0 {
        let len = 14 + rng.below(frame.len() as u64 - 13);
        frame.truncate(len as usize);
    }
    frame
}

/// The rule.
struct Model<'a> {
    owners: &'a Ownership,
    leave: &'a [Leave],
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// An IPv4 header's protocol, what is behind it, and whether it is a packet's first piece.
fn read4(packet: &[u8]) -> Option<(u8, &[u8], bool)> {
    let header = usize::from(packet.get(..20)?[0] & 15) * 4;
    let rest = packet.get(header..).unwrap_or_default();
    (header >= 20).then_some((packet[9], rest, be16(packet, 6)? & 0x1fff == 0))
}

impl Model<'_> {
    /// The kernel has an address that it answers for, whatever we say.
    fn is_kernels(&self, address: Ipv6Addr) -> bool {
        self.owners.kernel_hosts.iter().any(|host| mapped(*host) == address)
    }

    fn is_ours(&self, address: Ipv6Addr) -> bool {
        self.owners.own_hosts.iter().any(|host| mapped(*host) == address)
    }

    /// Whether `leave` names this.
    fn names(&self, protocol: u8, rest: &[u8], is_first: bool) -> bool {
        let ports = be16(rest, 0).zip(be16(rest, 2)).filter(|_| is_first);
        self.leave.iter().any(|leave| match *leave {
            Leave::Protocol(left) => left == protocol,
            Leave::Port(left, port) => {
                left == protocol && ports.is_some_and(|(from, to)| from == port || to == port)
            }
        })
    }

    /// Whether this ICMP message is an error about what `leave` names.
    fn is_about(&self, message: &[u8], v6: bool) -> bool {
        let (Some(&kind), Some(packet)) = (message.first(), message.get(8..)) else { return false };
        if v6 {
            let header = packet.get(..40);
            (1..=4).contains(&kind) && header.is_some_and(|head| self.names(head[6], &packet[40..], true))
        } else {
            let read = read4(packet);
            [3, 11, 12].contains(&kind)
                && read.is_some_and(|(protocol, rest, first)| self.names(protocol, rest, first))
        }
    }

    fn left4(&self, packet: &[u8], kernels_link: bool) -> bool {
        let Some((protocol, rest, is_first)) = read4(packet) else { return false };
        let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        // To many, or to the link.
        let is_group = to.is_multicast() || to.is_broadcast() || to.is_link_local();
        if is_group && kernels_link || self.is_kernels(to.to_ipv6_mapped()) {
            return true;
        }
        if !is_group && !self.is_ours(to.to_ipv6_mapped()) {
            // An answer of DHCP's, to an address that nobody has yet.
            let is_offer = protocol == 17 && is_first && rest.starts_with(&[0, 67, 0, 68]);
            return kernels_link && is_offer && self.leave.contains(&Leave::Port(17, 68));
        }
        let is_error = protocol == 1 && is_first && !is_group && self.is_about(rest, false);
        is_error || self.names(protocol, rest, is_first)
    }

    fn left6(&self, packet: &[u8], kernels_link: bool, is_tagged: bool) -> bool {
        let Some(header) = packet.get(..40) else { return false };
        let (next, rest) = (header[6], &packet[40..]);
        let to: [u8; 16] = header[24..].try_into().unwrap();
        let is_group = to[0] == 0xff || to[0] == 0xfe && to[1] & 0xc0 == 0x80;
        if is_group && kernels_link || self.is_kernels(to.into()) {
            return true;
        }
        // An answer of a neighbor's: both hear it.
        if !self.leave.is_empty() && !is_tagged && next == 58 && rest.first() == Some(&136) {
            return true;
        }
        if !is_group && !self.is_ours(to.into()) {
            return false;
        }
        next == 58 && !is_group && self.is_about(rest, true) || self.names(next, rest, true)
    }

    /// Whether a frame is left to the kernel.
    fn leaves(&self, frame: &[u8]) -> bool {
        let (mut at, mut tags) = (12, Vec::new());
        for _ in 0..2 {
            if ![Some(0x8100), Some(0x88a8)].contains(&be16(frame, at)) {
                break;
            }
            let (Some(tag), Some(_)) = (be16(frame, at + 2), be16(frame, at + 4)) else { return false };
            // VLAN 0 is none.
            tags.extend(Some(tag & 0xfff).filter(|id| *id != 0));
            at += 4;
        }
        let Some(kind) = be16(frame, at) else { return false };
        let is_foreign = tags.len() > 1 || tags.iter().any(|id| !self.owners.vlans.contains(id));
        if self.owners.kernel && !tags.is_empty() && is_foreign {
            return true;
        }
        let (kernels_link, rest) = (self.owners.kernel && tags.is_empty(), &frame[at + 2..]);
        match kind {
            0x0800 => self.left4(rest, kernels_link),
            0x86dd => self.left6(rest, kernels_link, !tags.is_empty()),
            _ if kernels_link => true,
            // The answer to an ARP request: both hear it.
            0x0806 => !self.leave.is_empty() && tags.is_empty() && be16(rest, 6) == Some(2),
            _ => false,
        }
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Ports and protocols; for some programs none.
fn leave(rng: &mut Rng) -> Vec<Leave> {
    let all = [
        Leave::Port(6, 22),
        Leave::Port(6, 179),
        Leave::Port(17, 68),
        Leave::Port(17, 3784),
        Leave::Protocol(1),
        Leave::Protocol(6),
        Leave::Protocol(58),
        Leave::Protocol(89),
        Leave::Protocol(255),
    ];
    let one_in = pick(rng, &[2, 2, 4, u64::MAX]);
    all.into_iter().filter(|_| rng.below(one_in) == 0).collect()
}

#[test]
fn root_xdp_any_frame_goes_where_the_rule_says() {
    if !inside("rule::root_xdp_any_frame_goes_where_the_rule_says") {
        return;
    }
    let (mut left, mut ours) = (0, 0);
    for seed in 0..PROGRAMS {
        let mut rng = Rng::new(seed);
        let (hosts, leave) = (Hosts::new(&mut rng), leave(&mut rng));
        let alone = Alone::load(&leave).unwrap();
        let rule = alone.rule();
        let mut run = |rng: &mut Rng, owners: Option<&Ownership>| {
            let frame = frame(rng, &hosts);
            // It is told nothing yet: everything is the kernel's.
            let is_left = owners.is_none_or(|owners| Model { owners, leave: &leave }.leaves(&frame));
            let before = rule.left();
            assert_eq!(alone.run(&frame).unwrap(), 2, "without a socket all passes");
            let after = rule.left();
            let grown = (after.by_rule - before.by_rule, after.unread - before.unread);
            let wanted = if is_left { (1, 0) } else { (0, 1) };
            assert_eq!(grown, wanted, "{seed}: {frame:02x?} with {leave:?} left and {owners:?}");
            if is_left {
                left += 1;
            } else {
                ours += 1;
            }
        };
        (0..100).for_each(|_| run(&mut rng, None));
        for _ in 0..OWNERS {
            let owners = hosts.owners(&mut rng);
            rule.set(&owners).unwrap();
            (0..EACH).for_each(|_| run(&mut rng, Some(&owners)));
        }
    }
    println!("{left} left to the kernel, {ours} ours");
    assert!(left > 20_000 && ours > 20_000, "{left} left, {ours} ours");
}
