//! Any packets by the front and the back of a Gatekeeper, with decisions and new policies in between: nothing panics, the books balance, and what leaves is
//! what came. To a Grantor: a packet from the front, one hop older, in a right outer header, or its parts. Elsewhere: the packet as it was, without its
//! code point if it comes from the front; nothing from there that a Grantor would take for ours.
//!
//! Input: a byte for the configuration; then records: flags, a length of two bytes, and so many bytes. Flags: bits 0 and 1: a packet by the front, a
//! policy, a packet by the back (each from its IP header on), messages of a Grantor; bit 2: IPv6; bit 3: as it is, or by the other Grantor; bit 4: in the
//! burst before; bits 5 to 7: the time that passes. So that something is known, addresses, lengths and checksums are put right where it is not to stay as
//! it is: the last byte of an address says which.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tidemill_burst::{DropReason, Memory};
use tidemill_decision::GRANTOR_PORT;
use tidemill_decision::authenticated::Header;
use tidemill_decision::keys::{Direction, Keyring};
use tidemill_decision::replay::Stamp;
use tidemill_gatekeeper::config::PolicyConfig;
use tidemill_gatekeeper::{Counter, GatekeeperControl, Host, splice};
use tidemill_graph::{Clock, Engine, Limits, Options};
use tidemill_ip::{Interface, Interfaces};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::Prefix;
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort};
use tidemill_wire::{EtherType, Protocol, ipv4, ipv6};

#[path = "common/gate.rs"]
mod gate;
use gate::{FRONT, Left, NET4, NET6, OWN6};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
/// What passes before a burst, in milliseconds.
const PASSES: [u64; 8] = [1, 0, 5, 50, 200, 1000, 10_000, 61_000];
/// Records of a run, and of a burst.
const MOST: usize = 200;
const MOST_OF_A_BURST: usize = 32;
/// Turns after the last of them.
const AFTERWARDS: usize = 200;

/// A packet without what follows from the rest: the checksum of its header.
fn plain(ip: &[u8]) -> Vec<u8> {
    let mut ip = ip.to_vec();
    if ipv4::version(&ip) == 4 {
        ip[10..12].fill(0);
    }
    ip
}

fn older(ip: &[u8]) -> Vec<u8> {
    let mut ip = plain(ip);
    let at = if ipv4::version(&ip) == 4 { 8 } else { 7 };
    ip[at] -= 1;
    ip
}

fn cleared(ip: &[u8]) -> Vec<u8> {
    let mut ip = plain(ip);
    if ipv4::version(&ip) == 4 {
        ip[1] &= 3;
    } else {
        (ip[0], ip[1]) = (ip[0] & 0xf0, ip[1] & 0x3f);
    }
    ip
}

/// Whether this is a piece of that packet, one hop older.
fn is_part(part: &[u8], ip: &[u8]) -> bool {
    let (part, whole) = (ipv4::Packet::new_unchecked(part), ipv4::Packet::new_unchecked(ip));
    let of = |packet: &ipv4::Packet<&[u8]>| {
        (packet.src(), packet.dst(), packet.ident(), packet.protocol(), packet.dscp(), packet.ecn())
    };
    let Some(from) = part.fragment_offset().checked_sub(whole.fragment_offset()).map(usize::from) else {
        return false;
    };
    let to = from + part.payload().len();
    of(&part) == of(&whole)
        && part.ttl() + 1 == whole.ttl()
        && !whole.dont_fragment()
        && whole.payload().get(from..to) == Some(part.payload())
        && part.more_fragments() == (whole.more_fragments() || to < whole.payload().len())
}

/// Whether a Grantor would look into this packet, as far as that is seen by other code: of a packet that is read to its end.
fn is_dressed_as_ours(ip: &[u8]) -> bool {
    let (mut next, mut at, mut is_whole) = match ipv4::version(ip) {
        4 => (ip[9], ipv4::header_len(ip), !ipv4::is_fragment(ip)),
        _ => (ip[6], ipv6::HEADER_LEN, true),
    };
    while ipv4::version(ip) == 6 && [0, 43, 44, 51, 60].contains(&next) {
        let header = ip.get(at..).filter(|rest| rest.len() >= 8);
        let Some(&[after, len, high, low, ..]) = header else { return false };
        let offset = u16::from_be_bytes([high, low]);
        at += match next {
            44 => 8,
            51 => (usize::from(len) + 2) * 4,
            _ => (usize::from(len) + 1) * 8,
        };
        let is_fragment = next == 44 && offset & 0xfff9 != 0;
        is_whole &= !is_fragment;
        next = after;
        if is_fragment && offset & 0xfff8 != 0 {
            break;
        }
    }
    let port = || ip.get(at + 2..at + 4) == Some(&GRANTOR_PORT.to_be_bytes()[..]);
    [4, 41].contains(&next) || next == 17 && is_whole && port()
}

/// The packets that came, and which lengths fit.
struct Came<'a> {
    packets: &'a [(u16, Vec<u8>)],
    mtu: usize,
    keep_dscp: bool,
}

impl Came<'_> {
    /// Whether a packet by this port has become this one.
    fn any(&self, port: u16, mut is: impl FnMut(&[u8]) -> bool) -> bool {
        self.packets.iter().any(|(by, ip)| *by == port && is(ip))
    }

    fn is_older(&self, ip: &[u8]) -> bool {
        let plain = plain(ip);
        let one_family = |came: &[u8]| ipv4::version(came) == ipv4::version(ip);
        let hops = |came: &[u8]| came[if ipv4::version(came) == 4 { 8 } else { 7 }];
        self.any(FRONT, |came| one_family(came) && hops(came) > 1 && older(came) == plain)
    }

    /// What has not been put into another packet.
    fn check(&self, left: &Left) {
        let Left { place, port, ip, .. } = left;
        let is_cleared = *place != "errors" && *port == FRONT && !self.keep_dscp;
        let plain_ip = plain(ip);
        let known = self.any(*port, |came| plain_ip == if is_cleared { cleared(came) } else { plain(came) });
        assert!(known, "{place}: {ip:?} never came by {port}");
        let to_grantor = match ipv4::version(ip) {
            4 => NET4.grantors.contains(&ipv4::dst_u32(ip)),
            _ => NET6.grantors.contains(&ipv6::dst_u128(ip)),
        };
        let is_dressed = to_grantor && *place == "forward" && *port == FRONT && is_dressed_as_ours(ip);
        assert!(!is_dressed, "{ip:?} reaches a Grantor");
        let is_from_us = match ipv4::version(ip) {
            4 => ipv4::src_u32(ip) == NET4.ours,
            _ => ipv6::src_u128(ip) == NET6.ours,
        };
        assert!(*port != FRONT || !is_from_us, "{ip:?} by the front is none of ours");
    }

    /// An outer packet; parts of IPv6 are gathered.
    fn check_outer<'l>(&self, ip: &'l [u8], parts: &mut BTreeMap<u32, Vec<(usize, bool, &'l [u8])>>) {
        assert!(ip.len() <= self.mtu, "{} bytes", ip.len());
        if ipv4::version(ip) == 4 {
            let (outer, inner) = (ipv4::Packet::new_checked(ip).expect("a packet"), &ip[ipv4::HEADER_LEN..]);
            assert_eq!(ip[0], 0x45);
            assert_eq!(usize::from(outer.total_len()), ip.len());
            assert_eq!((ip[4], ip[5], ip[6], ip[7], ip[8], ip[9]), (0, 0, 0x40, 0, 64, 4));
            assert!(ipv4::src_u32(ip) == NET4.ours && NET4.grantors.contains(&ipv4::dst_u32(ip)));
            assert!(outer.dscp() > 0 && outer.ecn() == inner[1] & 3);
            assert!(ipv4::check(inner).is_ok() && ipv4::checksum_ok(inner));
            assert_eq!(usize::from(ipv4::total_len(inner)), inner.len());
            let known = self.is_older(inner)
                || self.any(FRONT, |came| ipv4::version(came) == 4 && is_part(inner, came));
            assert!(known, "{inner:?} never came");
            return;
        }
        let outer = ipv6::Packet::new_checked(ip).expect("a packet");
        assert_eq!(ipv6::HEADER_LEN + usize::from(outer.payload_len()), ip.len());
        assert_eq!(outer.hop_limit(), 255);
        assert!(ipv6::src_u128(ip) == NET6.ours && NET6.grantors.contains(&ipv6::dst_u128(ip)));
        assert!(outer.dscp() > 0 && outer.flow_label() > 0);
        if outer.next_header() == Protocol::FRAGMENT {
            let Some((&[next, 0, high, low, a, b, c, d], piece)) = outer_rest(ip).split_first_chunk() else {
                panic!("{ip:?}");
            };
            assert_eq!(next, 41);
            let offset = u16::from_be_bytes([high, low]);
            let part = (usize::from(offset & 0xfff8), offset & 1 != 0, piece);
            parts.entry(u32::from_be_bytes([a, b, c, d])).or_default().push(part);
            return;
        }
        let inner = outer_rest(ip);
        assert_eq!(outer.next_header(), Protocol::IPV6);
        assert_eq!(outer.ecn(), ipv6::Packet::new_checked(inner).expect("a packet").ecn());
        assert!(self.is_older(inner), "{inner:?} never came");
    }
}

fn outer_rest(ip: &[u8]) -> &[u8] {
    &ip[ipv6::HEADER_LEN..]
}

/// What happens at once, and the policy that there is afterwards.
#[derive(Default)]
struct Turn {
    front: Vec<Frame>,
    back: Vec<Frame>,
    policy: Option<PolicyConfig>,
}

/// The turns of an input, and the packets that come in them, each by which port.
fn turns(how: u8, mut rest: &[u8]) -> (Vec<Turn>, Vec<(u16, Vec<u8>)>) {
    let keys = (how & 1 == 0).then(|| Keyring::single(1, &[7; 32]));
    let (mut turns, mut came): (Vec<Turn>, Vec<(u16, Vec<u8>)>) = (Vec::new(), Vec::new());
    // Probes begin in the second after that of the first turn.
    let (mut now_ns, mut first_ns, mut round_ns) = (START, None, 0);
    while let Some((&[flags, high, low], bytes)) = rest.split_first_chunk()
        && came.len() < MOST
    {
        let len = usize::from(u16::from_be_bytes([high, low]));
        let (bytes, next) = bytes.split_at(len.min(bytes.len()));
        rest = next;
        let (kind, v6, other) = (flags & 3, flags & 4 != 0, flags & 8 != 0);
        if kind == 1 {
            if let (Some(turn), Some(how)) = (turns.last_mut(), bytes.first()) {
                turn.policy = Some(gate::policy(v6, *how));
            }
            continue;
        }
        let is_full = |turn: &Turn| turn.front.len() + turn.back.len() >= MOST_OF_A_BURST;
        let joins = flags & 16 != 0 && turns.last().is_some_and(|turn| !is_full(turn));
        let at_ns = now_ns + if joins { 0 } else { PASSES[usize::from(flags >> 5)] * 1_000_000 };
        let mut ip = bytes[..bytes.len().min(1500)].to_vec();
        let port = u16::from(kind != 0);
        if kind == 3 {
            let stamp = Stamp { epoch_s: (START / SECOND) as u32, sequence: came.len() as u32 };
            let direction = Direction::ToGatekeeper;
            let header = Header { direction, key: 1, stamp, policy_version: 1, time_ns: at_ns };
            ip = gate::told(bytes, v6, usize::from(other), keys.as_ref(), header, round_ns);
        } else if !other {
            gate::put_right(&mut ip, v6, port == FRONT);
        }
        if !gate::checked(&mut ip, v6) {
            continue;
        }
        now_ns = at_ns;
        if *first_ns.get_or_insert(now_ns) / SECOND < now_ns / SECOND && round_ns == 0 {
            round_ns = now_ns;
        }
        if !joins {
            turns.push(Turn::default());
        }
        let kind = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let frame = Frame::at(now_ns, [&[2; 12][..], &kind.0.to_be_bytes(), &ip].concat());
        if let Some(turn) = turns.last_mut() {
            if port == FRONT { turn.front.push(frame) } else { turn.back.push(frame) }
        }
        came.push((port, ip));
    }
    (turns, came)
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, rest)) = data.split_first() else { return };
    let (turns, packets) = turns(how, rest);
    if turns.is_empty() {
        return;
    }
    let mtu = [1500, 1300, 600, 120][usize::from(how >> 5 & 3)];
    let domain = Domain::new();
    let mut back = Interface { mtu, ..Interface::of_port(1, "back") };
    back.v4.push((NET4.ours.into(), Prefix::new(0x0a00_0000, 24).expect("a prefix")));
    back.v6.push((NET6.ours.into(), Prefix::new(OWN6, 64).expect("a prefix")));
    let interfaces = Interfaces::new(vec![Interface::of_port(0, "front"), back.clone()], 2);
    let section = gate::section(how);
    let mut control =
        GatekeeperControl::with_secret(&section, &interfaces, 1, &domain, 9).expect("a configuration");
    let (left, routed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
    let mut graph = gate::router(&left, &routed);
    let (table4, hops4) = gate::way::<u32>(&domain, &back, EtherType::IPV4);
    let (table6, hops6) = gate::way::<u128>(&domain, &back, EtherType::IPV6);
    let (views4, views6) = ((table4.view(), hops4.view()), (table6.view(), hops6.view()));
    let host = Host { ways4: Box::new(move |_| views4.clone()), ways6: Box::new(move |_| views6.clone()) };
    splice(&mut graph, &control, host);

    let (mut front, mut behind, mut policies) = (Vec::new(), Vec::new(), Vec::new());
    for turn in turns {
        front.push(turn.front);
        behind.push(turn.back);
        policies.push(turn.policy);
    }
    let port = |name, bursts: Vec<Vec<Frame>>| vec![Box::new(MemoryPort::new(name, bursts)) as Box<dyn Port>];
    let memory = Memory::new(512, 2048).expect("memory");
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 512,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let ports = vec![port("front", front), port("back", behind)];
    let graph = graph.build().expect("a graph");
    let engine = Engine::new(graph, 1, ports, &memory, &domain, options).expect("an engine");
    let (handle, mut policies, mut after) = (engine.handle(), policies.into_iter(), 0);
    let outcome = engine.run(|_| {
        match policies.next() {
            // It may be too many at once.
            Some(Some(policy)) => _ = control.set_policy(&policy),
            Some(None) => {}
            // For a while requests that wait leave, and probes go out.
            None => after += 1,
        }
        if after == AFTERWARDS {
            handle.stop();
        }
        control.poll();
    });

    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    let (ledger, pool) = (outcome.snapshot.ledger(), outcome.snapshot.pool);
    assert!(ledger.balances() && ledger.received == packets.len() as u64, "{ledger:?}");
    assert_eq!((pool.free, pool.unnamed), (pool.frames, 0), "all frames are home");
    let counters = control.counters();
    let count = |counter| counters.get(counter);
    for (reason, counter) in [
        (DropReason::PolicyDrop, Counter::PolicyDropped),
        (DropReason::TunnelForged, Counter::TunnelForged),
        (DropReason::MartianSource, Counter::SourceOurs),
        (DropReason::FlowDeclined, Counter::Declined),
        (DropReason::FlowOverRate, Counter::OverRate),
    ] {
        assert_eq!(ledger.dropped_for(reason), count(counter), "{reason:?}");
    }
    let by_the_front = packets.iter().filter(|(port, _)| *port == FRONT).count() as u64;
    assert_eq!(count(Counter::Front), by_the_front);
    assert_eq!(count(Counter::Bypassed) + count(Counter::GrantedDirect), routed.load(Ordering::Relaxed));
    // Each is counted once.
    let asked = [Counter::Requests, Counter::Granted, Counter::Declined, Counter::OverRate];
    let judged = asked.into_iter().chain([Counter::PolicyDropped, Counter::Bypassed]).map(count).sum::<u64>();
    assert_eq!(judged + count(Counter::TunnelForged) + count(Counter::SourceOurs), by_the_front);

    let came = Came { packets: &packets, mtu: mtu.into(), keep_dscp: section.keep_dscp };
    let left = left.lock().expect("nobody panicked");
    let mut parts = BTreeMap::new();
    for left in left.iter() {
        assert!(ipv4::version(&left.ip) == 6 || ipv4::checksum_ok(&left.ip), "{:?}", left.ip);
        match (left.place, left.is_own) {
            ("forward", true) => came.check_outer(&left.ip, &mut parts),
            ("forward" | "local" | "errors", false) => came.check(left),
            // A probe.
            ("ours", true) => {
                assert!(ipv4::version(&left.ip) == 6 || ipv4::protocol(&left.ip) == Protocol::UDP);
            }
            (place, own) => panic!("at {place}, own: {own}"),
        }
    }
    for mut parts in parts.into_values() {
        parts.sort_unstable();
        let mut inner = Vec::new();
        let last = parts.len() - 1;
        for (n, (offset, more, piece)) in parts.into_iter().enumerate() {
            assert!(offset == inner.len() && more == (n < last));
            inner.extend_from_slice(piece);
        }
        assert!(came.is_older(&inner), "{inner:?} never came");
    }
});
