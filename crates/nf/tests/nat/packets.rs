//! Packets for tests, made byte by byte, of both families; and a NAT to send them through.

/// One test for both families.
macro_rules! both {
    ($($(#[$doc:meta])* fn $name:ident<$a:ident>() $body:block)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            fn test<$a: Net<E, S, T>, const E: usize, const S: usize, const T: usize>() $body
            test::<u32, 1, 2, 4>();
            test::<u128, 3, 5, 5>();
        }
    )*};
}

use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_nf::nat::config::{Filtering, Pooling};
use tidemill_nf::nat::ip::Family;
use tidemill_nf::nat::settings::{Plan, Times, Whose};
use tidemill_nf::nat::{Endpoint, Fate, Nat, Now, Share, Token, Way};
use tidemill_wire::checksum::{self, Pseudo};
use tidemill_wire::{Protocol, verify_checksums};

pub(crate) const SYN: u8 = 0x02;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const FIN: u8 = 0x01;
pub(crate) const RST: u8 = 0x04;

/// A family as tests need it: addresses by number.
pub(crate) trait Net<const E: usize, const S: usize, const T: usize>:
    Family<E, S, T> + Into<u128>
{
    /// Inside address number `n`.
    fn inside(n: u8) -> Self;
    /// The pool's address number `n`.
    fn pool(n: u8) -> Self;
    /// Remote address number `n`.
    fn remote(n: u8) -> Self;
    const ICMP: Protocol;
    /// Types of echo request and reply, unreachable, time exceeded.
    const KINDS: [u8; 4];
}

impl Net<1, 2, 4> for u32 {
    fn inside(n: u8) -> u32 {
        u32::from_be_bytes([10, 0, 0, n])
    }
    fn pool(n: u8) -> u32 {
        u32::from_be_bytes([192, 0, 2, n])
    }
    fn remote(n: u8) -> u32 {
        u32::from_be_bytes([198, 51, 100, n])
    }
    const ICMP: Protocol = Protocol::ICMP;
    const KINDS: [u8; 4] = [8, 0, 3, 11];
}

impl Net<3, 5, 5> for u128 {
    fn inside(n: u8) -> u128 {
        0xfd00 << 112 | u128::from(n)
    }
    fn pool(n: u8) -> u128 {
        0x2001_0db8 << 96 | 1 << 64 | u128::from(n)
    }
    fn remote(n: u8) -> u128 {
        0x2001_0db8 << 96 | 2 << 64 | u128::from(n) << 32 | 0xffff
    }
    const ICMP: Protocol = Protocol::ICMPV6;
    const KINDS: [u8; 4] = [128, 129, 1, 3];
}

pub(crate) fn end<A>(address: A, port: u16) -> Endpoint<A> {
    Endpoint { address, port }
}

fn pseudo<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(src: A, dst: A) -> Pseudo {
    if A::V6 {
        let [src, dst] = [src, dst].map(|a| Ipv6Addr::from(a.bits()));
        Pseudo::V6 { src, dst }
    } else {
        let [src, dst] = [src, dst].map(|a| Ipv4Addr::from(a.bits() as u32));
        Pseudo::V4 { src, dst }
    }
}

/// An IP packet around a body.
pub(crate) fn ip<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    src: A,
    dst: A,
    protocol: Protocol,
    body: &[u8],
) -> Vec<u8> {
    let mut packet = if A::V6 {
        let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol.0, 64];
        header[4..6].copy_from_slice(&(body.len() as u16).to_be_bytes());
        header.resize(40, 0);
        header
    } else {
        let mut header = vec![0x45, 0, 0, 0, 0x12, 0x34, 0, 0, 64, protocol.0];
        header[2..4].copy_from_slice(&(body.len() as u16 + 20).to_be_bytes());
        header.resize(20, 0);
        header
    };
    src.write(&mut packet[A::SOURCE..]);
    dst.write(&mut packet[A::SOURCE + A::BYTES..]);
    if !A::V6 {
        let check = checksum::checksum(&packet);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
    }
    packet.extend_from_slice(body);
    packet
}

fn with_ports(from: u16, to: u16, rest: &[u8]) -> Vec<u8> {
    [&from.to_be_bytes()[..], &to.to_be_bytes(), rest].concat()
}

pub(crate) fn udp<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    src: Endpoint<A>,
    dst: Endpoint<A>,
    payload: &[u8],
) -> Vec<u8> {
    let len = (payload.len() as u16 + 8).to_be_bytes();
    let mut body = with_ports(src.port, dst.port, &[len[0], len[1], 0, 0]);
    body.extend_from_slice(payload);
    let check = match pseudo(src.address, dst.address).checksum(Protocol::UDP, &body) {
        0 => 0xffff,
        check => check,
    };
    body[6..8].copy_from_slice(&check.to_be_bytes());
    ip(src.address, dst.address, Protocol::UDP, &body)
}

pub(crate) fn tcp<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    src: Endpoint<A>,
    dst: Endpoint<A>,
    flags: u8,
) -> Vec<u8> {
    let mut body =
        with_ports(src.port, dst.port, &[0, 0, 0, 9, 0, 0, 0, 7, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    body.extend_from_slice(b"some data");
    let check = pseudo(src.address, dst.address).checksum(Protocol::TCP, &body);
    body[16..18].copy_from_slice(&check.to_be_bytes());
    ip(src.address, dst.address, Protocol::TCP, &body)
}

pub(crate) fn icmp<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    src: A,
    dst: A,
    kind: u8,
    rest: [u8; 4],
    payload: &[u8],
) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0];
    body.extend_from_slice(&rest);
    body.extend_from_slice(payload);
    let check = match A::V6 {
        true => pseudo(src, dst).checksum(Protocol::ICMPV6, &body),
        false => checksum::checksum(&body),
    };
    body[2..4].copy_from_slice(&check.to_be_bytes());
    ip(src, dst, A::ICMP, &body)
}

/// An echo request (or reply) with this identifier.
pub(crate) fn echo<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    src: A,
    dst: A,
    ident: u16,
    reply: bool,
) -> Vec<u8> {
    let [high, low] = ident.to_be_bytes();
    icmp(src, dst, A::KINDS[usize::from(reply)], [high, low, 0, 1], b"ping")
}

/// An ICMP error about a packet.
pub(crate) fn error<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    src: A,
    dst: A,
    about: &[u8],
) -> Vec<u8> {
    icmp(src, dst, A::KINDS[2], [0; 4], about)
}

/// What a packet's ends are, and whether its checksums are right.
pub(crate) fn ends<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    packet: &[u8],
) -> (Endpoint<A>, Endpoint<A>) {
    let mut frame = vec![0; 12];
    frame.extend_from_slice(if A::V6 { &[0x86, 0xdd] } else { &[8, 0] });
    frame.extend_from_slice(packet);
    verify_checksums(&frame).unwrap_or_else(|fault| panic!("{fault:?}"));
    raw_ends(packet)
}

/// The same of a packet that is not whole.
pub(crate) fn raw_ends<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    packet: &[u8],
) -> (Endpoint<A>, Endpoint<A>) {
    let upper = if A::V6 { 40 } else { 20 };
    let protocol = if A::V6 { packet[6] } else { packet[9] };
    let (from, to) = if protocol == A::ICMP.0 { (4, 4) } else { (0, 2) };
    let port = |at: usize| u16::from_be_bytes([packet[upper + at], packet[upper + at + 1]]);
    (end(A::read(&packet[A::SOURCE..]), port(from)), end(A::read(&packet[A::SOURCE + A::BYTES..]), port(to)))
}

pub(crate) fn times() -> Times {
    Times {
        udp_ms: 300_000,
        inbound_refresh: false,
        established_ms: 7_440_000,
        transitory_ms: 240_000,
        icmp_ms: 60_000,
        fragment_ms: 15_000,
    }
}

pub(crate) fn plan<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    addresses: u8,
) -> Plan<A> {
    Plan {
        pool: (1..=addresses).map(A::pool).collect(),
        ports: 1..=u16::MAX,
        filtering: Filtering::AddressDependent,
        pooling: Pooling::Paired,
        host_mappings: 4096,
        host_sessions: u32::MAX,
        network_mappings: usize::MAX,
        network_sessions: usize::MAX,
        source_sessions: u32::MAX,
        mappings: 1000,
        sessions: 2000,
        fragments: 64,
        fixed: Vec::new(),
        whole: Vec::new(),
        deterministic: None,
    }
}

/// A NAT with its clock.
pub(crate) struct Lab<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize> {
    pub(crate) nat: Nat<A, E, S, T>,
    pub(crate) ms: u64,
    pub(crate) times: Times,
    pub(crate) owners: Vec<Whose>,
    /// Who cannot come from outside.
    pub(crate) near: Vec<(u128, bool)>,
    sent: u32,
    /// The packets before.
    before: Vec<(Way, Vec<u8>)>,
}

impl<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize> Lab<A, E, S, T> {
    pub(crate) fn new(plan: Plan<A>) -> Self {
        let owners = vec![Whose::Pool; plan.pool.len()];
        let nat = Nat::new(plan, Share { worker: 0, workers: 1 }, 0x1234_5678_9abc).unwrap();
        let (near, before) = (Vec::new(), Vec::new());
        Lab { nat, ms: 1_000_000, times: times(), owners, near, sent: 0, before }
    }

    /// With a changed plan.
    pub(crate) fn with(change: impl FnOnce(&mut Plan<A>)) -> Self {
        let mut plan = plan(1);
        change(&mut plan);
        Lab::new(plan)
    }

    /// Sends a packet; what became of it, and of its bytes.
    pub(crate) fn send(&mut self, way: Way, packet: &[u8]) -> (Fate, Vec<u8>) {
        // All that is over is forgotten: as exactly as a model has it.
        self.nat.reclaim(self.ms, usize::MAX);
        let mut packet = packet.to_vec();
        let now = Now { ms: self.ms, times: &self.times, owners: &self.owners, near: &self.near };
        let before = packet.clone();
        // Looked at ahead among others, or not: that must make no difference.
        self.sent += 1;
        let fate = if self.sent.is_multiple_of(3) {
            self.nat.translate(&now, way, &mut packet)
        } else {
            let others = self.sent as usize % 7;
            let mut burst: Vec<(Way, &[u8])> = self.before.iter().map(|(way, ip)| (*way, &ip[..])).collect();
            burst.truncate(others);
            let place = burst.len();
            burst.push((way, &before));
            self.nat.look_ahead(burst.into_iter());
            self.nat.translate_next(place, &now, way, &mut packet)
        };
        self.before.insert(0, (way, before.clone()));
        self.before.truncate(8);
        if matches!(fate, Fate::Drop(_) | Fate::Tell(_) | Fate::Passed | Fate::Waits(_)) {
            assert_eq!(before, packet, "what is not translated stays as it is");
        }
        (fate, packet)
    }

    /// A fragment that has waited.
    pub(crate) fn resume(&mut self, way: Way, token: Token, packet: &mut [u8]) -> Fate {
        let now = Now { ms: self.ms, times: &self.times, owners: &self.owners, near: &self.near };
        self.nat.resume(&now, way, token, packet)
    }

    /// A datagram from inside: what it looks like outside.
    pub(crate) fn out(&mut self, inside: Endpoint<A>, remote: Endpoint<A>) -> Endpoint<A> {
        let (fate, packet) = self.send(Way::Leaving, &udp(inside, remote, b"out"));
        assert_eq!(fate, Fate::Translated);
        let (source, destination) = ends::<A, E, S, T>(&packet);
        assert_eq!(destination, remote);
        source
    }

    /// A datagram from outside: whom it reaches, if it passes.
    pub(crate) fn back(&mut self, remote: Endpoint<A>, outside: Endpoint<A>) -> Result<Endpoint<A>, Fate> {
        self.come(&udp(remote, outside, b"in"))
    }

    /// A packet from outside: whom it reaches, if it passes.
    pub(crate) fn come(&mut self, packet: &[u8]) -> Result<Endpoint<A>, Fate> {
        let (source, _) = ends::<A, E, S, T>(packet);
        match self.send(Way::ToPool, packet) {
            (Fate::Translated, packet) => {
                let (from, to) = ends::<A, E, S, T>(&packet);
                assert_eq!(from.address, source.address);
                Ok(to)
            }
            (fate, _) => Err(fate),
        }
    }

    /// A TCP segment from inside: what it looks like outside, if it passes.
    pub(crate) fn tcp_out(
        &mut self,
        inside: Endpoint<A>,
        remote: Endpoint<A>,
        flags: u8,
    ) -> Result<Endpoint<A>, Fate> {
        match self.send(Way::Leaving, &tcp(inside, remote, flags)) {
            (Fate::Translated, packet) => Ok(ends::<A, E, S, T>(&packet).0),
            (fate, _) => Err(fate),
        }
    }

    /// A TCP segment from outside: whom it reaches, if it passes.
    pub(crate) fn tcp_in(
        &mut self,
        remote: Endpoint<A>,
        outside: Endpoint<A>,
        flags: u8,
    ) -> Result<Endpoint<A>, Fate> {
        self.come(&tcp(remote, outside, flags))
    }
}

/// Fragments of an IP packet: pieces of `size` bytes of what is behind its header.
pub(crate) fn fragments<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    packet: &[u8],
    size: usize,
    ident: u16,
) -> Vec<Vec<u8>> {
    let header = if A::V6 { 40 } else { 20 };
    let body = &packet[header..];
    let pieces = body.chunks(size).enumerate().map(|(i, piece)| {
        let (offset, more) = ((i * size) as u16, (i + 1) * size < body.len());
        let mut made = packet[..header].to_vec();
        if A::V6 {
            let next = std::mem::replace(&mut made[6], 44);
            made[4..6].copy_from_slice(&(piece.len() as u16 + 8).to_be_bytes());
            let place = (offset | u16::from(more)).to_be_bytes();
            made.extend_from_slice(&[next, 0, place[0], place[1], 0, 0]);
            made.extend_from_slice(&ident.to_be_bytes());
        } else {
            made[2..4].copy_from_slice(&(piece.len() as u16 + 20).to_be_bytes());
            made[4..6].copy_from_slice(&ident.to_be_bytes());
            made[6..8].copy_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
            made[10..12].fill(0);
            let check = checksum::checksum(&made);
            made[10..12].copy_from_slice(&check.to_be_bytes());
        }
        made.extend_from_slice(piece);
        made
    });
    pieces.collect()
}

/// The packet that its fragments are: in any order, none missing.
pub(crate) fn joined<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    fragments: &[Vec<u8>],
) -> Vec<u8> {
    let mut body = Vec::new();
    let mut sorted: Vec<(u16, &Vec<u8>)> = fragments
        .iter()
        .map(|fragment| {
            let offset = if A::V6 {
                u16::from_be_bytes([fragment[42], fragment[43]]) & !7
            } else {
                assert!(checksum::is_valid(&fragment[..20]));
                (u16::from_be_bytes([fragment[6], fragment[7]]) & 0x1fff) * 8
            };
            (offset, fragment)
        })
        .collect();
    sorted.sort();
    for (_, fragment) in &sorted {
        body.extend_from_slice(&fragment[if A::V6 { 48 } else { 20 }..]);
    }
    let first = sorted[0].1;
    let protocol = Protocol(if A::V6 { first[40] } else { first[9] });
    for (_, fragment) in &sorted {
        assert_eq!(fragment[A::SOURCE..A::SOURCE + 2 * A::BYTES], first[A::SOURCE..A::SOURCE + 2 * A::BYTES]);
    }
    ip(A::read(&first[A::SOURCE..]), A::read(&first[A::SOURCE + A::BYTES..]), protocol, &body)
}
