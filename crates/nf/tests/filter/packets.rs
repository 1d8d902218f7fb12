//! Packets, and a filter to send them through.

use crossbeam_queue::ArrayQueue;
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::filter::settings::{Plan, Times};
use tidemill_nf::filter::tcp::Segment;
use tidemill_nf::filter::text::{Ruleset, read_rules};
use tidemill_nf::filter::{AddressSet, Fate, Filter, Frame, LogLine, Net, Rules, Ways};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{icmpv4, icmpv6, ipv4};

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

/// Interfaces by their numbers.
pub(crate) const INTERFACES: [&str; 3] = ["lan", "wan", "dmz"];
/// And their VRFs, with a fourth that has no name.
pub(crate) const VRFS: [u16; 4] = [0, 0, 0, 1];
pub(crate) const LAN: u16 = 0;
pub(crate) const WAN: u16 = 1;
/// In by `lan` and out by `wan`.
pub(crate) const OUTWARD: Ways = Ways { from: LAN, to: WAN };
/// The other way.
pub(crate) const INWARD: Ways = Ways { from: WAN, to: LAN };

/// What a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Tcp(u16, u16, Segment),
    Udp(u16, u16),
    /// Identifier, and whether it asks.
    Echo(u16, bool),
    /// Type and code.
    Icmp(u8, u8),
    Other(u8),
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn upper(source: IpAddr, destination: IpAddr, body: Body) -> (u8, Vec<u8>) {
    let mut bytes = Vec::new();
    let is_v6 = source.is_ipv6();
    let protocol = match body {
        Body::Tcp(from, to, segment) => {
            bytes.extend(from.to_be_bytes());
            bytes.extend(to.to_be_bytes());
            bytes.extend(segment.seq.to_be_bytes());
            bytes.extend(segment.ack.to_be_bytes());
            let options = segment.scale.map_or(Vec::new(), |scale| vec![1, 3, 3, scale]);
            bytes.push(((20 + options.len()) as u8 / 4) << 4);
            bytes.push(segment.flags);
            bytes.extend(segment.window.to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(options);
            bytes.extend(vec![7; segment.len as usize]);
            6
        }
        Body::Udp(from, to) => {
            for word in [from, to, 12, 0] {
                bytes.extend(word.to_be_bytes());
            }
            bytes.extend(b"data");
            17
        }
        Body::Echo(ident, asks) => {
            let kind = match (is_v6, asks) {
                (false, true) => 8,
                (false, false) => 0,
                (true, true) => 128,
                (true, false) => 129,
            };
            bytes.extend([kind, 0, 0, 0]);
            bytes.extend(ident.to_be_bytes());
            bytes.extend([0, 1, 9, 9]);
            if is_v6 { 58 } else { 1 }
        }
        Body::Icmp(kind, code) => {
            bytes.extend([kind, code, 0, 0, 0, 0, 0, 0]);
            if is_v6 { 58 } else { 1 }
        }
        Body::Other(protocol) => {
            bytes.extend([1, 2, 3, 4]);
            protocol
        }
    };
    fill(source, destination, protocol, &mut bytes);
    (protocol, bytes)
}

fn fill(source: IpAddr, destination: IpAddr, protocol: u8, bytes: &mut [u8]) {
    match (protocol, source, destination) {
        (1, ..) => icmpv4::fill_checksum(bytes),
        (58, IpAddr::V6(src), IpAddr::V6(dst)) => icmpv6::fill_checksum(bytes, &Pseudo::V6 { src, dst }),
        _ => {}
    }
}

/// A packet from its IP header on.
pub(crate) fn packet(source: IpAddr, destination: IpAddr, body: Body) -> Vec<u8> {
    let (protocol, bytes) = upper(source, destination, body);
    wrap(source, destination, protocol, &bytes)
}

/// An IP header in front of something.
pub(crate) fn wrap(source: IpAddr, destination: IpAddr, protocol: u8, bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            all.extend([0x45, 0]);
            all.extend((20 + bytes.len() as u16).to_be_bytes());
            all.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            all.extend(source.octets());
            all.extend(destination.octets());
            ipv4::fill_checksum(&mut all);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            all.extend([0x60, 0, 0, 0]);
            all.extend((bytes.len() as u16).to_be_bytes());
            all.extend([protocol, 64]);
            all.extend(source.octets());
            all.extend(destination.octets());
        }
        _ => panic!("two families"),
    }
    all.extend(bytes);
    all
}

/// An ICMP error about a packet: unreachable.
pub(crate) fn error(source: IpAddr, destination: IpAddr, about: &[u8]) -> Vec<u8> {
    quoting(if source.is_ipv6() { 1 } else { 3 }, source, destination, about)
}

/// An ICMP message of this type that quotes a packet.
pub(crate) fn quoting(kind: u8, source: IpAddr, destination: IpAddr, about: &[u8]) -> Vec<u8> {
    let protocol = if source.is_ipv6() { 58 } else { 1 };
    let mut bytes = vec![kind, 1, 0, 0, 0, 0, 0, 0];
    bytes.extend(about);
    fill(source, destination, protocol, &mut bytes);
    wrap(source, destination, protocol, &bytes)
}

/// Fragments of an IPv4 packet, its data cut every `size` bytes.
pub(crate) fn fragments(packet: &[u8], size: usize, ident: u16) -> Vec<Vec<u8>> {
    let (header, data) = packet.split_at(20);
    let last = data.len().div_ceil(size) - 1;
    let piece = |(number, data): (usize, &[u8])| {
        let mut piece = [header, data].concat();
        piece[2..4].copy_from_slice(&((20 + data.len()) as u16).to_be_bytes());
        piece[4..6].copy_from_slice(&ident.to_be_bytes());
        let more = if number < last { 0x2000 } else { 0 };
        piece[6..8].copy_from_slice(&((number * size / 8) as u16 | more).to_be_bytes());
        ipv4::fill_checksum(&mut piece[..20]);
        piece
    };
    data.chunks(size).enumerate().map(piece).collect()
}

pub(crate) fn times() -> Times {
    Times {
        tcp_opening_ms: 30_000,
        tcp_established_ms: 86_400_000,
        tcp_closing_ms: 900_000,
        tcp_closed_ms: 90_000,
        udp_first_ms: 31_000,
        udp_ms: 120_000,
        icmp_ms: 20_000,
        other_ms: 60_000,
        fragment_ms: 15_000,
    }
}

pub(crate) fn plan() -> Plan {
    Plan {
        states: 1000,
        states_per_source: 1000,
        half_open: 500,
        half_open_per_source: 400,
        unanswered: 1000,
        unanswered_per_source: 1000,
        fragments: 64,
    }
}

/// A filter of both families with its rules.
pub(crate) struct Lab {
    pub(crate) v4: Filter<u32, 2>,
    pub(crate) v6: Filter<u128, 5>,
    pub(crate) rules: Rules,
    pub(crate) file: Ruleset,
    pub(crate) sets: Vec<AddressSet>,
    pub(crate) domain: Domain,
    pub(crate) ms: u64,
    pub(crate) log: Arc<ArrayQueue<LogLine>>,
    recheck: bool,
}

pub(crate) fn sets_of(file: &Ruleset) -> Vec<AddressSet> {
    file.sets.iter().map(|set| AddressSet::of(&set.networks)).collect()
}

pub(crate) fn interface(name: &str) -> Option<u16> {
    INTERFACES.iter().position(|known| *known == name).map(|at| at as u16)
}

pub(crate) fn make(
    file: &Ruleset,
    sets: &[AddressSet],
    domain: &Domain,
    recheck: bool,
    version: u32,
) -> Rules {
    let vrfs = &VRFS;
    let (times, log_per_s) = (times(), 100);
    let frame = Frame { interface: &interface, vrfs, workers: 1, domain, times, recheck, log_per_s };
    Rules::new(file, sets, &frame, version).unwrap()
}

impl Lab {
    pub(crate) fn new(text: &str) -> Self {
        Lab::with(text, plan(), true)
    }

    pub(crate) fn with(text: &str, plan: Plan, recheck: bool) -> Self {
        let domain = Domain::new();
        let file = read_rules(text).unwrap();
        let (sets, log) = (sets_of(&file), Arc::new(ArrayQueue::new(1000)));
        Lab {
            v4: Filter::new(&plan, (0, 1), 7, log.clone()).unwrap(),
            v6: Filter::new(&plan, (0, 1), 8, log.clone()).unwrap(),
            rules: make(&file, &sets, &domain, recheck, 1),
            file,
            sets,
            domain,
            ms: 1_000_000,
            log,
            recheck,
        }
    }

    /// Other rules.
    pub(crate) fn load(&mut self, text: &str) {
        self.file = read_rules(text).unwrap();
        self.sets = sets_of(&self.file);
        self.remake();
    }

    /// The same rules, or sets that have changed, as another version.
    pub(crate) fn remake(&mut self) {
        let version = self.rules.version() + 1;
        self.rules = make(&self.file, &self.sets, &self.domain, self.recheck, version);
    }

    pub(crate) fn send(&mut self, ways: Ways, bytes: &[u8]) -> Fate {
        match bytes[0] >> 4 {
            6 => self.v6.judge_one(self.ms, &self.rules, ways, bytes),
            _ => self.v4.judge_one(self.ms, &self.rules, ways, bytes),
        }
    }

    pub(crate) fn passes(&mut self, ways: Ways, source: &str, destination: &str, body: Body) -> bool {
        self.send(ways, &packet(ip(source), ip(destination), body)) == Fate::Passes
    }
}

/// A segment without data.
pub(crate) fn segment(flags: u8, seq: u32, ack: u32) -> Segment {
    Segment { seq, ack, window: 1000, flags, ..Segment::default() }
}

/// Sends a burst as a worker does, and says what became of each packet.
pub(crate) fn burst<A: Net<W>, const W: usize>(
    filter: &mut Filter<A, W>,
    rules: &Rules,
    ms: u64,
    packets: &[(Ways, Vec<u8>)],
) -> Vec<Fate> {
    filter.read(rules, packets.iter().map(|(ways, ip)| (*ways, &ip[..])));
    filter.look_up(rules);
    packets.iter().enumerate().map(|(place, (_, ip))| filter.judge(place, ms, rules, ip)).collect()
}
