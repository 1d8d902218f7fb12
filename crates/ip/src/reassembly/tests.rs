use super::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_burst::{Memory, Pool};

const L3: usize = 14;
const SECOND_NS: u64 = 1_000_000_000;

/// What is cut: offset, bytes, whether more follow.
#[derive(Debug, Clone, PartialEq)]
struct Cut {
    offset: usize,
    bytes: Vec<u8>,
    more: bool,
}

fn pool() -> Pool {
    Memory::new(256, 2048).unwrap().pool(256).unwrap()
}

/// `n` bytes, none like its neighbors; they begin like a UDP header, which nobody checks.
fn payload(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 256) as u8).collect()
}

fn cut(payload: &[u8], offset: usize, end: usize) -> Cut {
    Cut { offset, bytes: payload[offset..end].to_vec(), more: end < payload.len() }
}

/// The payload cut into pieces of `step` bytes.
fn cuts(payload: &[u8], step: usize) -> Vec<Cut> {
    (0..payload.len()).step_by(step).map(|at| cut(payload, at, (at + step).min(payload.len()))).collect()
}

fn packet(pool: &mut Pool, l3: usize, ip: &[u8]) -> Packet {
    let mut packet = pool.packet(&[&vec![0; l3], ip].concat()).unwrap();
    packet.l3 = l3 as u8;
    packet
}

fn header4(ident: u16, protocol: Protocol, payload_len: usize) -> ipv4::Repr {
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1));
    let mut repr = ipv4::Repr::new(src, dst, protocol, payload_len);
    (repr.ident, repr.dont_fragment) = (ident, false);
    repr
}

fn whole4(ident: u16, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0; 20];
    header4(ident, Protocol::UDP, payload.len()).emit(&mut ip).unwrap();
    ip.extend_from_slice(payload);
    ip
}

fn fragment4(pool: &mut Pool, ident: u16, cut: &Cut) -> Packet {
    of_protocol4(pool, ident, Protocol::UDP, cut)
}

fn of_protocol4(pool: &mut Pool, ident: u16, protocol: Protocol, cut: &Cut) -> Packet {
    let mut ip = vec![0; 20];
    header4(ident, protocol, cut.bytes.len()).emit(&mut ip).unwrap();
    let mut view = ipv4::Packet::new_unchecked(&mut ip[..]);
    view.set_fragment(false, cut.more, cut.offset as u16);
    view.fill_checksum();
    ip.extend_from_slice(&cut.bytes);
    ip.extend_from_slice(&[0xee; 5]); // a short frame's padding
    packet(pool, L3, &ip)
}

const HOP_BY_HOP: [u8; 8] = [44, 0, 1, 4, 0, 0, 0, 0];

fn header6(next: Protocol, payload_len: usize) -> Vec<u8> {
    let address = |n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n);
    let mut ip = vec![0; 40];
    ipv6::Repr::new(address(2), address(1), next, payload_len).emit(&mut ip).unwrap();
    ip
}

fn whole6(_: u16, payload: &[u8]) -> Vec<u8> {
    let mut ip = header6(Protocol::HOP_BY_HOP, 8 + payload.len());
    ip.extend_from_slice(&HOP_BY_HOP);
    ip[40] = Protocol::UDP.0;
    ip.extend_from_slice(payload);
    ip
}

/// Behind a hop-by-hop header, and on a VLAN.
fn fragment6(pool: &mut Pool, ident: u16, cut: &Cut) -> Packet {
    let mut ip = header6(Protocol::HOP_BY_HOP, 16 + cut.bytes.len());
    ip.extend_from_slice(&HOP_BY_HOP);
    let (offset, more) = (cut.offset as u16, cut.more);
    let repr = ipv6_ext::FragmentRepr { next_header: Protocol::UDP, offset, more, ident: ident.into() };
    let mut header = [0; 8];
    repr.emit(&mut header).unwrap();
    ip.extend_from_slice(&header);
    ip.extend_from_slice(&cut.bytes);
    ip.extend_from_slice(&[0xee; 5]);
    packet(pool, L3 + 4, &ip)
}

type Make = fn(&mut Pool, u16, &Cut) -> Packet;
type Whole = fn(u16, &[u8]) -> Vec<u8>;
const FAMILIES: [(Make, Whole); 2] = [(fragment4, whole4), (fragment6, whole6)];

struct Bench {
    reassembler: Reassembler,
    pool: Pool,
    back: Back,
    datagram: Vec<u8>,
    given: usize,
    returned: usize,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        Bench {
            reassembler: Reassembler::new(TIMEOUT_V4_NS, limits),
            pool: pool(),
            back: Vec::new(),
            datagram: Vec::new(),
            given: 0,
            returned: 0,
        }
    }

    fn give(&mut self, now_ns: u64, packet: Packet) -> Option<Vec<u8>> {
        assert!(is_fragment(&packet.data()[usize::from(packet.l3)..]));
        self.given += 1;
        let whole = self.reassembler.insert(now_ns, 0, packet, &mut self.datagram, &mut self.back);
        whole.then(|| self.datagram.clone())
    }

    /// The fates of what has come back since, all of it accounted for.
    fn fates(&mut self) -> Vec<Fate> {
        self.returned += self.back.len();
        assert_eq!(self.given, self.returned + self.reassembler.len());
        let fates = self.back.iter().map(|(_, fate)| *fate).collect();
        self.back.drain(..).for_each(|(packet, _)| self.pool.free(packet));
        fates
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.fates();
        let rest: Vec<_> = self.reassembler.drain().collect();
        assert_eq!(self.given, self.returned + rest.len());
        rest.into_iter().for_each(|packet| self.pool.free(packet));
        let stats = self.pool.stats();
        assert_eq!((stats.free, stats.unnamed), (stats.frames, 0));
    }
}

/// All orders of `items`.
fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for i in 0..items.len() {
        let mut rest = items.to_vec();
        let first = rest.remove(i);
        all.extend(permutations(&rest).into_iter().map(|tail| [vec![first.clone()], tail].concat()));
    }
    all
}

#[test]
fn every_order_of_every_fragmentation_gives_the_datagram() {
    let payload = payload(37);
    for (make, whole) in FAMILIES {
        let mut bench = Bench::new(Limits::default());
        for places in 1..16u32 {
            let mut ends: Vec<usize> = (1..5).filter(|i| places >> (i - 1) & 1 == 1).map(|i| i * 8).collect();
            ends.push(payload.len());
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let cuts: Vec<_> = starts.zip(&ends).map(|(start, end)| cut(&payload, start, *end)).collect();
            for order in permutations(&cuts) {
                for (n, piece) in order.iter().enumerate() {
                    let packet = make(&mut bench.pool, 7, piece);
                    let expected = (n + 1 == order.len()).then(|| whole(7, &payload));
                    assert_eq!(bench.give(0, packet), expected);
                }
                assert_eq!(bench.fates(), vec![Fate::Assembled; order.len()]);
            }
        }
        assert!(bench.reassembler.is_empty());
    }
}

#[test]
fn the_longest_datagram_is_whole_and_a_longer_one_refused() {
    for (longest, (make, whole)) in [(65_515, FAMILIES[0]), (65_527, FAMILIES[1])] {
        let mut bench = Bench::new(Limits::default());
        let mut last = None;
        for cut in cuts(&payload(longest), 1400) {
            let packet = make(&mut bench.pool, 1, &cut);
            last = bench.give(0, packet);
        }
        let last = last.unwrap();
        assert!(last == whole(1, &payload(longest)));
        let read = if ipv4::version(&last) == 4 {
            ipv4::Packet::new_checked(&last[..]).unwrap().payload().to_vec()
        } else {
            ipv6::Packet::new_checked(&last[..]).unwrap().payload()[8..].to_vec()
        };
        assert!(read == payload(longest));
        assert_eq!(bench.fates(), vec![Fate::Assembled; longest.div_ceil(1400)]);
        let mut fates = Vec::new();
        for cut in cuts(&payload(longest + 1), 1400) {
            let packet = make(&mut bench.pool, 2, &cut);
            assert_eq!(bench.give(0, packet), None);
            fates.extend(bench.fates());
        }
        assert_eq!(fates, vec![Fate::Refused; longest.div_ceil(1400)]);
        let beyond = Cut { offset: 65_528, bytes: vec![1; 8], more: false };
        let packet = make(&mut bench.pool, 3, &beyond);
        assert_eq!((bench.give(0, packet), bench.fates()), (None, vec![Fate::Refused]));
        assert!(bench.reassembler.is_empty());
    }
}

#[test]
fn an_overlap_condemns_the_datagram_and_what_comes_later() {
    let payload = payload(64);
    for (make, whole) in FAMILIES {
        let mut bench = Bench::new(Limits::default());
        let give = |bench: &mut Bench, now_ns, cut: &Cut| {
            let packet = make(&mut bench.pool, 9, cut);
            (bench.give(now_ns, packet), bench.fates())
        };
        let first = cut(&payload, 0, 32);
        let (waiting, refused) = ((None, vec![]), (None, vec![Fate::Refused]));
        assert_eq!(give(&mut bench, 0, &first), waiting);
        assert_eq!(give(&mut bench, 0, &first), refused, "a copy is dropped alone");
        let mut forged = first.clone();
        forged.bytes[20] ^= 1;
        assert_eq!(
            give(&mut bench, 0, &forged),
            (None, vec![Fate::Refused; 2]),
            "the same place, other bytes"
        );
        for piece in cuts(&payload, 32) {
            assert_eq!(give(&mut bench, 1, &piece), refused);
        }
        bench.reassembler.expire(TIMEOUT_V4_NS, &mut bench.back);
        assert_eq!(bench.fates(), []);
        assert_eq!(give(&mut bench, TIMEOUT_V4_NS, &first), waiting);
        let rest = give(&mut bench, TIMEOUT_V4_NS, &cut(&payload, 32, 64));
        assert_eq!(rest, (Some(whole(9, &payload)), vec![Fate::Assembled; 2]));
    }
}

#[test]
fn the_last_fragment_again_but_with_more_to_follow_is_an_overlap() {
    let payload = payload(64);
    let mut bench = Bench::new(Limits::default());
    let last = cut(&payload, 32, 64);
    for (piece, refused) in [(&last, 0), (&last, 1), (&Cut { more: true, ..last.clone() }, 2)] {
        let packet = fragment4(&mut bench.pool, 1, piece);
        assert_eq!((bench.give(0, packet), bench.fates().len()), (None, refused));
    }
}

#[test]
fn unsound_fragments_are_refused_alone() {
    let payload = payload(64);
    let odd = Cut { offset: 8, bytes: vec![0; 12], more: true };
    let empty = Cut { offset: 32, bytes: vec![], more: true };
    let tiny = Cut { offset: 0, bytes: vec![0; 16], more: true };
    for (make, whole) in FAMILIES {
        let mut bench = Bench::new(Limits::default());
        let first = make(&mut bench.pool, 1, &cut(&payload, 0, 32));
        assert_eq!(bench.give(0, first), None);
        for wrong in [&odd, &empty, &Cut { more: false, ..empty.clone() }] {
            let packet = make(&mut bench.pool, 1, wrong);
            assert_eq!((bench.give(0, packet), bench.fates()), (None, vec![Fate::Refused]), "{wrong:?}");
        }
        let last = make(&mut bench.pool, 1, &cut(&payload, 32, 64));
        assert_eq!(bench.give(0, last), Some(whole(1, &payload)));
    }
    let mut bench = Bench::new(Limits::default());
    for cut in [tiny, Cut { offset: 8, bytes: vec![0; 32], more: false }] {
        let packet = of_protocol4(&mut bench.pool, 1, Protocol::TCP, &cut);
        assert_eq!((bench.give(0, packet), bench.fates()), (None, vec![Fate::Refused]));
    }
    // A destination options header that reaches into the next fragment.
    let mut first = fragment6(&mut bench.pool, 1, &cut(&payload, 0, 32));
    first.data_mut()[L3 + 4 + 48] = Protocol::DEST_OPTIONS.0;
    first.data_mut()[L3 + 4 + 57] = 9;
    let ip = first.data()[L3 + 4..].to_vec();
    assert!(!is_fragment(&ip), "broken: not ours to wait for");
    let mut back = Vec::new();
    assert!(!bench.reassembler.insert(0, 0, first, &mut Vec::new(), &mut back));
    let (packet, fate) = back.pop().unwrap();
    assert_eq!(fate, Fate::Refused);
    bench.pool.free(packet);
}

#[test]
fn atomic_fragments_are_whole_packets() {
    let mut pool = pool();
    let atomic = fragment6(&mut pool, 1, &Cut { offset: 0, bytes: payload(16), more: false });
    assert!(!is_fragment(&atomic.data()[L3 + 4..]));
    pool.free(atomic);
}

#[test]
fn what_never_becomes_whole_times_out_with_its_first_fragment_named() {
    let payload = payload(64);
    let mut bench = Bench::new(Limits::default());
    for (ident, at_ns, (start, end)) in [(1, 0, (0, 32)), (1, 5, (48, 64)), (2, SECOND_NS, (32, 64))] {
        let packet = fragment4(&mut bench.pool, ident, &cut(&payload, start, end));
        assert_eq!(bench.give(at_ns, packet), None);
    }
    bench.reassembler.expire(TIMEOUT_V4_NS - 1, &mut bench.back);
    assert_eq!(bench.fates(), []);
    bench.reassembler.expire(TIMEOUT_V4_NS, &mut bench.back);
    assert_eq!(bench.fates(), [Fate::TimedOut { first: true }, Fate::TimedOut { first: false }]);
    bench.reassembler.expire(u64::MAX, &mut bench.back);
    assert_eq!(bench.fates(), [Fate::TimedOut { first: false }]);
}

#[test]
fn what_makes_a_datagram_another() {
    let payload = payload(64);
    let (first, last) = (cut(&payload, 0, 32), cut(&payload, 32, 64));
    let mut bench = Bench::new(Limits::default());
    let one = fragment4(&mut bench.pool, 1, &first);
    assert_eq!(bench.give(0, one), None);
    let other_ident = fragment4(&mut bench.pool, 2, &last);
    assert_eq!(bench.give(0, other_ident), None);
    let other_protocol = of_protocol4(&mut bench.pool, 1, Protocol::TCP, &last);
    assert_eq!(bench.give(0, other_protocol), None);
    let other_vrf = fragment4(&mut bench.pool, 1, &last);
    bench.given += 1;
    assert!(!bench.reassembler.insert(0, 5, other_vrf, &mut Vec::new(), &mut bench.back));
    let mut other_source = fragment4(&mut bench.pool, 1, &last);
    ipv4::Packet::new_unchecked(&mut other_source.data_mut()[L3..]).set_src(Ipv4Addr::new(10, 0, 0, 3));
    assert_eq!(bench.give(0, other_source), None);
    let right = fragment4(&mut bench.pool, 1, &last);
    assert_eq!(bench.give(0, right), Some(whole4(1, &payload)));
}

#[test]
fn floods_stay_within_the_limits_and_an_honest_datagram_gets_through() {
    let limits = Limits { datagrams: 16, fragments: 8, packets: 40 };
    let mut bench = Bench::new(limits);
    let payload = payload(64);
    let mut rng = StdRng::seed_from_u64(1);
    for n in 0..3000u16 {
        let honest = fragment4(&mut bench.pool, n, &cut(&payload, 0, 32));
        assert_eq!(bench.give(n.into(), honest), None);
        for _ in 0..8 {
            let offset = 8 * rng.random_range(1..40);
            let forged = Cut { offset, bytes: vec![0; 8], more: true };
            let packet = fragment4(&mut bench.pool, 10_000 + rng.random_range(0..500), &forged);
            assert_eq!(bench.give(n.into(), packet), None);
        }
        let honest = fragment4(&mut bench.pool, n, &cut(&payload, 32, 64));
        assert_eq!(bench.give(n.into(), honest), Some(whole4(n, &payload)));
        bench.fates();
        let (waiting, datagrams) = (bench.reassembler.len(), bench.reassembler.datagrams.len());
        assert!(waiting <= limits.packets && datagrams <= limits.datagrams, "{waiting} {datagrams}");
        assert_eq!(datagrams, bench.reassembler.order.len());
    }
    // One datagram of ever more fragments is condemned; alone, it cannot take more than its share either.
    for n in 0..100 {
        let packet = fragment4(&mut bench.pool, 1, &Cut { offset: 16 * n, bytes: vec![0; 8], more: true });
        assert_eq!(bench.give(0, packet), None);
    }
    bench.reassembler.set_packets(2);
    for n in 0..5 {
        let packet = fragment4(&mut bench.pool, 2, &Cut { offset: 16 * n, bytes: vec![0; 8], more: true });
        assert_eq!(bench.give(0, packet), None);
        assert!(bench.reassembler.len() <= 2);
    }
}

/// The rules, byte by byte.
#[derive(Default)]
struct Oracle {
    seen: Vec<Cut>,
    dead: bool,
}

impl Oracle {
    /// What becomes of this datagram's fragments with `cut`: how many are refused, and the datagram.
    fn give(&mut self, cut: &Cut, most: usize) -> (usize, Option<Vec<u8>>) {
        let end = cut.offset + cut.bytes.len();
        if cut.bytes.is_empty() || end > 65_535 || (cut.more && !end.is_multiple_of(8)) {
            return (1, None);
        }
        if (cut.offset == 0 && cut.bytes.len() < 8) || self.dead || self.seen.contains(cut) {
            return (1, None);
        }
        self.seen.push(cut.clone());
        let mut bytes = std::collections::BTreeMap::new();
        let written: usize = self.seen.iter().map(|cut| cut.bytes.len()).sum();
        for cut in &self.seen {
            bytes.extend(cut.bytes.iter().enumerate().map(|(i, byte)| (cut.offset + i, *byte)));
        }
        let ends: Vec<_> = self.seen.iter().filter(|c| !c.more).map(|c| c.offset + c.bytes.len()).collect();
        let beyond = ends.first().is_some_and(|end| bytes.range(end..).next().is_some());
        if bytes.len() < written || ends.len() > 1 || beyond || self.seen.len() > most {
            self.dead = true;
            return (self.seen.drain(..).count(), None);
        }
        if ends.first() == Some(&bytes.len()) {
            self.seen.clear();
            return (0, Some(bytes.into_values().collect()));
        }
        (0, None)
    }
}

#[test]
fn random_fragments_fare_as_the_rules_say() {
    let mut rng = StdRng::seed_from_u64(7);
    let (mut wholes, mut refusals) = (0, 0);
    for round in 0..3000 {
        let (make, whole) = FAMILIES[round % 2];
        let limits = Limits { fragments: 6, ..Limits::default() };
        let mut bench = Bench::new(limits);
        let mut oracles: [Oracle; 2] = Default::default();
        let payload = payload(rng.random_range(1..100));
        let mut all: Vec<(u16, Cut)> = Vec::new();
        for ident in 0..2u16 {
            let step = 8 * rng.random_range(1..6);
            all.extend(cuts(&payload, step).into_iter().map(|cut| (ident, cut)));
            for _ in 0..rng.random_range(0..3) {
                let offset = 8 * rng.random_range(0..14);
                let bytes = vec![rng.random(); rng.random_range(0..20)];
                all.push((ident, Cut { offset, bytes, more: rng.random() }));
            }
            if rng.random_bool(0.3) {
                all.push(all[rng.random_range(0..all.len())].clone());
            }
        }
        all.retain(|(_, cut)| cut.more || cut.offset > 0); // not whole packets
        all.shuffle(&mut rng);
        for (ident, cut) in &all {
            let packet = make(&mut bench.pool, *ident, cut);
            bench.given += 1;
            let is_whole = bench.reassembler.insert(0, 0, packet, &mut bench.datagram, &mut bench.back);
            let (refused, datagram) = oracles[usize::from(*ident)].give(cut, limits.fragments);
            let expected = datagram.map(|bytes| whole(*ident, &bytes));
            assert_eq!(is_whole.then(|| bench.datagram.clone()), expected, "round {round}: {all:?}");
            let fates = bench.fates();
            let refusals_now = fates.iter().filter(|fate| **fate == Fate::Refused).count();
            assert_eq!(refusals_now, refused, "round {round}: {cut:?} of {all:?}");
            wholes += usize::from(is_whole);
            refusals += refused;
        }
    }
    assert!(wholes > 1000 && refusals > 1000, "{wholes} {refusals}");
}
