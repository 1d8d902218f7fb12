use super::control::{FlowspecControl, Look, Places};
use super::meter::Meter;
use super::node::{Host, set_dscp, splice};
use super::packet::{Load, Seen, seen};
use super::redirect::MakeWays;
use super::rules::{Fate, Rule, Table, check};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use tidemill_bgp::flows::Rate;
use tidemill_bgp::flowspec::{Component, fragment, read_all};
use tidemill_bgp::{Actions, FlowSpec, Redirect, RouteTarget};
use tidemill_burst::{DropReason, Memory, Packet};
use tidemill_feed::AnyPrefix;
use tidemill_feed::bgp::{Cursor, Family};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_ip::{Adjacency, Kind, NextHops};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort, Sent};
use tidemill_wire::ipv4;

const PASS: Actions =
    Actions { bytes: None, packets: None, mark: None, goes_on: false, samples: false, redirect: None };

fn drop_all() -> Actions {
    Actions { bytes: Some(Rate::new(0.0)), ..PASS }
}

fn marks(mark: u8, goes_on: bool) -> Actions {
    Actions { mark: Some(mark), goes_on, ..PASS }
}

/// The ones in these bytes, each with its length.
fn specs(bytes: &[u8], family: Family) -> Vec<FlowSpec> {
    let (list, malformed) = read_all(Cursor::new(bytes), family).unwrap();
    assert_eq!(malformed, 0);
    list
}

fn spec(bytes: &[u8]) -> FlowSpec {
    let bytes = [&[bytes.len() as u8][..], bytes].concat();
    specs(&bytes, Family::V4).remove(0)
}

fn table(list: &[(FlowSpec, Actions)]) -> Table {
    let rule = |(spec, actions): &(FlowSpec, Actions)| {
        Rule::new(spec, actions, None, Arc::new(Meter::new(actions, 1)))
    };
    Table::new(list.iter().map(rule).collect())
}

/// An IPv4 packet; `word` is that with flags and offset.
fn packet4(source: [u8; 4], destination: [u8; 4], protocol: u8, word: u16, upper: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0xb9, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0];
    ip[2..4].copy_from_slice(&(20 + upper.len() as u16).to_be_bytes());
    ip[6..8].copy_from_slice(&word.to_be_bytes());
    ip.extend_from_slice(&source);
    ip.extend_from_slice(&destination);
    ipv4::fill_checksum(&mut ip);
    ip.extend_from_slice(upper);
    ip
}

fn udp(source: u16, destination: u16) -> Vec<u8> {
    [source, destination, 8, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn packets_are_seen_as_they_are() {
    let (from, to) = ([10, 0, 0, 5], [192, 0, 2, 1]);
    let whole = seen::<u32>(&packet4(from, to, 17, 0x4000, &udp(7, 53)));
    let expected = Seen {
        source: 0x0a00_0005,
        destination: 0xc000_0201,
        protocol: Some(17),
        length: 28,
        dscp: 46,
        flow_label: 0,
        fragment: fragment::DONT,
        load: Load::Ports(7, 53, None),
    };
    assert_eq!(whole, expected);
    let mut tcp = vec![0; 20];
    (tcp[1], tcp[3], tcp[12], tcp[13]) = (9, 80, 0x50, 0x12);
    assert_eq!(seen::<u32>(&packet4(from, to, 6, 0, &tcp)).load, Load::Ports(9, 80, Some(0x12)));
    assert_eq!(seen::<u32>(&packet4(from, to, 1, 0, &[3, 4, 0, 0])).load, Load::Icmp(3, 4));
    // Fragments: the first, one in between, the last.
    for (word, bits, load) in [
        (0x2000, fragment::FIRST, Load::Ports(7, 53, None)),
        (0x2001, fragment::OTHER, Load::None),
        (0x0001, fragment::OTHER | fragment::LAST, Load::None),
    ] {
        let piece = seen::<u32>(&packet4(from, to, 17, word, &udp(7, 53)));
        assert_eq!((piece.fragment, piece.load, piece.protocol), (bits, load, Some(17)));
    }
    // Padding behind the packet's end is no header.
    let padded = [packet4(from, to, 17, 0, &[]), udp(7, 53)].concat();
    assert_eq!(seen::<u32>(&padded).load, Load::None);
    // IPv6: DSCP 10, a flow label, options before ICMP.
    let mut ip = vec![0x62, 0x8a, 0xbc, 0xde, 0, 12, 0, 64];
    ip.extend([7; 16]);
    ip.extend([8; 16]);
    ip.extend([58, 0, 1, 4, 0, 0, 0, 0, 128, 0, 0, 0]);
    let six = seen::<u128>(&ip);
    assert_eq!((six.dscp, six.flow_label, six.length), (10, 0xa_bcde, 52));
    assert_eq!((six.protocol, six.load, six.source as u8), (Some(58), Load::Icmp(128, 0), 7));
    // What cannot be followed has addresses all the same.
    let cut = seen::<u128>(&ip[..44]);
    assert_eq!((cut.protocol, cut.load, cut.destination as u8), (None, Load::None, 8));
}

/// RFC 8955's and RFC 8956's examples, by packets.
#[test]
fn components_mean_what_the_rfcs_say() {
    let (from, to) = ([203, 0, 113, 9], [192, 0, 2, 1]);
    let drops = |table: &Table, ip: &[u8]| table.judge(0, 0, &seen::<u32>(ip)) != Fate::Passes(None);
    let one = |bytes: &[u8]| table(&[(spec(bytes), drop_all())]);
    let ports = one(&[1, 24, 192, 0, 2, 2, 24, 203, 0, 113, 4, 0x03, 0x89, 0x45, 0x8b, 0x91, 0x1f, 0x90]);
    for (source, destination, dropped) in
        [(7, 137, true), (139, 7, true), (8080, 7, true), (7, 140, false), (136, 7, false)]
    {
        let ip = packet4(from, to, 17, 0, &udp(source, destination));
        assert_eq!(drops(&ports, &ip), dropped, "{source} {destination}");
    }
    assert!(!drops(&ports, &packet4(from, [192, 0, 3, 1], 17, 0, &udp(7, 137))));
    assert!(!drops(&ports, &packet4([203, 0, 114, 9], to, 17, 0, &udp(7, 137))));
    assert!(!drops(&ports, &packet4(from, to, 17, 1, &udp(7, 137))), "a later fragment has no ports");
    let fragments = one(&[1, 32, 192, 0, 2, 1, 12, 0x80, 5]);
    for (word, dropped) in [(0x4000, true), (0x2000, true), (0x0001, false), (0, false)] {
        assert_eq!(drops(&fragments, &packet4(from, to, 17, word, &udp(7, 53))), dropped, "{word:x}");
    }
    // SYN without ACK; lengths from 100; DSCP 46.
    let syn = one(&[3, 0x81, 6, 9, 0x01, 2, 0xc2, 0x10]);
    for (flags, dropped) in [(0x02, true), (0x12, false), (0x10, false)] {
        let mut tcp = [0; 20];
        (tcp[12], tcp[13]) = (0x50, flags);
        assert_eq!(drops(&syn, &packet4(from, to, 6, 0, &tcp)), dropped, "{flags:x}");
    }
    let long = one(&[10, 0x83, 100, 11, 0x81, 46]);
    assert!(drops(&long, &packet4(from, to, 99, 0, &[0; 80])));
    assert!(!drops(&long, &packet4(from, to, 99, 0, &[0; 79])));
    // ::1234:5678:9a00:0/64-104 to 2001:db8::/32.
    let six = [0x12, 1, 0x20, 0, 0x20, 1, 0x0d, 0xb8, 2, 0x68, 65, 0x24, 0x68, 0xac, 0xf1, 0x34, 3, 0x81, 6];
    let six = table(&[(specs(&six, Family::V6).remove(0), drop_all())]);
    let mut packet = seen::<u32>(&packet4(from, to, 6, 0, &[0; 20]));
    packet.destination = 0x2001_0db8 << 96 | 1;
    for (source, dropped) in [
        (0xfe80_0000_0000_0000_1234_5678_9a55_5555_u128, true),
        // The bit before the offset is anything, the one at it is not.
        (0xfe80_0000_0000_0000_9234_5678_9a55_5555, true),
        (0xfe80_0000_0000_0000_5234_5678_9a55_5555, false),
        (0xfe80_0000_0000_0000_1234_5678_9b55_5555, false),
    ] {
        packet.source = source;
        assert_eq!(six.judge(0, 0, &packet) != Fate::Passes(None), dropped, "{source:x}");
    }
}

/// Lists by destination say what a walk over all in order says.
#[test]
fn lists_give_the_first_that_means_a_packet() {
    let mut rng = StdRng::seed_from_u64(8955);
    let (mut hit, mut several) = (0, 0);
    for round in 0..300 {
        let mut list: Vec<(FlowSpec, Actions)> = Vec::new();
        for mark in 0..rng.random_range(0..20) {
            let mut bytes: Vec<u8> = Vec::new();
            if rng.random_range(0..6) > 0 {
                let length: u8 = [0, 8, 15, 16, 30, 32][rng.random_range(0..6)];
                let address: [u8; 4] =
                    [[10, 11][rng.random_range(0..2)], rng.random_range(0..2), 0, rng.random_range(0..4)];
                bytes.extend_from_slice(&[1, length]);
                bytes.extend_from_slice(&address[..usize::from(length).div_ceil(8)]);
            }
            if bytes.is_empty() || rng.random() {
                bytes.extend_from_slice(&[3, 0x81, rng.random_range(16..18)]);
            }
            let one = (spec(&bytes), marks(mark, rng.random_range(0..3) == 0));
            if !list.iter().any(|(other, _)| *other == one.0) {
                list.push(one);
            }
        }
        list.sort_by(|a, b| a.0.precedence(&b.0));
        let table = table(&list);
        for _ in 0..50 {
            let to: [u8; 4] =
                [[10, 11, 12][rng.random_range(0..3)], rng.random_range(0..3), 0, rng.random_range(0..5)];
            let packet = seen::<u32>(&packet4([1; 4], to, rng.random_range(16..18), 0, &[]));
            let means = |spec: &FlowSpec| {
                spec.components().all(|component| match component {
                    Component::Destination(AnyPrefix::V4(prefix), _) => {
                        prefix.contains(u32::from_be_bytes(to))
                    }
                    Component::Number(_, list) => list[0].value == u64::from(packet.protocol.unwrap()),
                    other => panic!("{other:?}"),
                })
            };
            let meaning: Vec<&Actions> =
                list.iter().filter(|(spec, _)| means(spec)).map(|(_, actions)| actions).collect();
            let expected = meaning.first().and_then(|actions| actions.mark);
            assert_eq!(table.judge(0, 0, &packet), Fate::Passes(expected), "round {round}: {to:?}");
            (hit, several) =
                (hit + usize::from(expected.is_some()), several + usize::from(meaning.len() > 1));
        }
    }
    assert!(hit > 1000 && several > 1000, "{hit} {several}");
}

/// "Terminal action": later ones apply too, until one that ends it.
#[test]
fn one_that_goes_on_leaves_the_rest_to_later_ones() {
    let (first, second, third) = (spec(&[1, 32, 10, 0, 0, 1]), spec(&[1, 8, 10]), spec(&[3, 0x81, 17]));
    let packet = seen::<u32>(&packet4([1; 4], [10, 0, 0, 1], 17, 0, &[]));
    let list = |goes_on| {
        [(first.clone(), marks(8, true)), (second.clone(), marks(9, goes_on)), (third.clone(), drop_all())]
    };
    assert_eq!(table(&list(true)).judge(0, 0, &packet), Fate::Drops(DropReason::FlowspecDrop));
    assert_eq!(table(&list(false)).judge(0, 0, &packet), Fate::Passes(Some(8)));
}

#[test]
fn rates_hold_for_bytes_and_packets() {
    let meter = |bytes: Option<f32>, packets: Option<f32>| {
        let actions = Actions { bytes: bytes.map(Rate::new), packets: packets.map(Rate::new), ..PASS };
        Meter::new(&actions, 2)
    };
    // 100,000 packets of 500 bytes in ten seconds, by two workers.
    let begin = 1_700_000_000_000_000_000;
    let passed = |meter: &Meter| {
        (0..100_000_u64).filter(|n| meter.take(begin + n * 100_000, (n % 2) as usize, 500).is_none()).count()
    };
    let slow = meter(Some(100_000.0), None);
    let count = passed(&slow);
    // 1,000,000 bytes, and a tenth of a second's more.
    assert!((2_000..=2_021).contains(&count), "{count}");
    let counts = slow.counts();
    assert_eq!((counts.packets, counts.bytes, counts.dropped), (100_000, 50_000_000, 100_000 - count as u64));
    assert_eq!(counts.dropped_bytes, counts.dropped * 500);
    let count = passed(&meter(None, Some(50.0)));
    assert!((500..=506).contains(&count), "{count}");
    let count = passed(&meter(Some(1e9), Some(50.0)));
    assert!((500..=506).contains(&count), "{count}");
    assert_eq!(passed(&meter(Some(1e12), None)), 100_000);
    assert_eq!(passed(&meter(Some(f32::INFINITY), None)), 100_000);
    assert_eq!(passed(&meter(Some(0.0), None)), 0);
    // A clock that was set back does not end it all.
    let meter = meter(None, Some(10.0));
    assert_eq!(meter.take(begin, 0, 1), None);
    assert_eq!(meter.take(begin - 3_600_000_000_000, 0, 1), None);
}

#[test]
fn a_mark_leaves_the_checksum_right_and_ecn_alone() {
    let mut ip = packet4([1; 4], [10, 0, 0, 1], 17, 0, &udp(7, 53));
    for dscp in [0, 8, 63] {
        set_dscp(&mut ip, dscp, false);
        assert_eq!((ip[0], ip[1]), (0x45, dscp << 2 | 1));
        assert!(ipv4::checksum_ok(&ip));
    }
    let mut ip = [0x6f, 0xff, 0xff, 0xff, 0, 0, 59, 64];
    set_dscp(&mut ip, 8, true);
    assert_eq!(ip, [0x62, 0x3f, 0xff, 0xff, 0, 0, 59, 64]);
}

#[test]
fn what_cannot_be_applied_is_refused_by_name() {
    let domain = Domain::new();
    let mut control = FlowspecControl::new(1, &domain);
    let (one, two) = (spec(&[1, 8, 10]), spec(&[1, 8, 11]));
    let redirect = Actions { redirect: Some(Redirect::Several), ..PASS };
    assert!(control.set([(one.clone(), redirect), (two.clone(), drop_all())]));
    assert_eq!(control.look(&one), Look::Refused("it redirects in several ways"));
    assert!(matches!(control.look(&two), Look::Applied(_)));
    assert_eq!((control.count(), control.look(&spec(&[1, 8, 12]))), ((1, 1), Look::Absent));
    assert!(!control.set([(two.clone(), drop_all())]), "the same is applied");
    assert!(control.set([(two.clone(), marks(8, false))]));
    assert!(control.set([]));
    assert_eq!(control.count(), (0, 0));
    let none = Actions { bytes: Some(Rate::new(f32::NAN)), ..PASS };
    assert_eq!(check(&one, &none), Err("its rate is no number".into()));
    let mut long: Vec<u8> = vec![4];
    (0..65_u8).for_each(|port| long.extend([if port == 64 { 0x81 } else { 1 }, port]));
    assert_eq!(check(&spec(&long), &PASS), Err("it has 65 comparisons: 64 at most".into()));
}

/// A redirect is applied where the router has a way for it, and says why where not.
#[test]
fn redirects_lead_to_what_the_router_has() {
    let domain = Domain::new();
    let mut control = FlowspecControl::new(1, &domain);
    let (near, far) = ("192.0.2.9".parse().unwrap(), "192.0.2.10".parse().unwrap());
    let (blue, red) = (RouteTarget::As(65_000, 1), RouteTarget::As(65_000, 2));
    let spared = vec![false, true];
    control.set_places(Places { vrfs: [(blue, 1)].into(), addresses: [near].into(), spared });
    let one = spec(&[1, 8, 10]);
    for (redirect, expected) in [
        (Redirect::Vrf(blue), Ok(())),
        (Redirect::Vrf(red), Err("no VRF here has the route target 65000:2: see bgp.redirect")),
        (Redirect::Address(near), Ok(())),
        (Redirect::Address(far), Err("no route leads to 192.0.2.10")),
        (Redirect::Address("::1".parse().unwrap()), Err("::1 is of the other family")),
        (Redirect::Copies, Err("no copies are made")),
        (Redirect::Nowhere, Err("it redirects to its next hop, and has none")),
    ] {
        control.set([(one.clone(), Actions { redirect: Some(redirect), ..PASS })]);
        let found = match control.look(&one) {
            Look::Applied(_) => Ok(()),
            Look::Refused(why) => Err(why),
            Look::Absent => panic!("{redirect:?}"),
        };
        assert_eq!(found, expected);
    }
    // A route is gone: so is the redirect, and packets are routed as ever.
    let to_near = [(one.clone(), Actions { redirect: Some(Redirect::Address(near)), ..PASS })];
    assert!(control.set(to_near.clone()) && !control.set(to_near.clone()));
    control.set_places(Places::default());
    assert!(control.set(to_near));
    assert_eq!(control.count(), (0, 1));
    // The first that redirects counts, and a later one may still drop.
    let rule = |bytes: &[u8], number: u32, actions: &Actions| {
        Rule::new(&spec(bytes), actions, Some(number), Arc::new(Meter::new(actions, 1)))
    };
    let goes_on = Actions { goes_on: true, ..PASS };
    let two = |last: &Actions| {
        Table::new(vec![rule(&[1, 32, 10, 0, 0, 1], 7, &goes_on), rule(&[1, 8, 10], 8, last)])
    };
    let judge = |table: &Table, last: u8| {
        table.judge(0, 0, &seen::<u32>(&packet4([1; 4], [10, 0, 0, last], 17, 0, &[])))
    };
    let (passes, drops) = (two(&marks(8, false)), two(&drop_all()));
    assert_eq!(judge(&passes, 1), Fate::Redirected(Some(8), 7));
    assert_eq!(judge(&passes, 2), Fate::Redirected(Some(8), 8));
    assert_eq!(judge(&drops, 1), Fate::Drops(DropReason::FlowspecDrop));
}

/// Stands for what is around: by family; then out.
struct Stub;

impl Node for Stub {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            packet.l3 = 14;
            *verdict = Verdict::Next(u8::from(packet.data()[12] == 0x86));
        }
    }
}

/// Passes all on by its only output.
struct On;

impl Node for On {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], verdicts: &mut [Verdict]) {
        verdicts.iter_mut().for_each(|verdict| *verdict = Verdict::Next(0));
    }
}

/// In a graph: dropped, over the rate, marked; each by its name, the books balanced, and counted by flow specification.
#[test]
fn nodes_drop_hold_to_a_rate_mark_and_redirect() {
    let domain = Domain::new();
    let mut control = FlowspecControl::new(1, &domain);
    let list = [1, 2, 3, 5].map(|last| spec(&[1, 32, 10, 0, 0, last]));
    let blue = RouteTarget::As(65_000, 1);
    // The second port's packets meet none of them.
    let spared = vec![false, true];
    control.set_places(Places { vrfs: [(blue, 1)].into(), spared, ..Places::default() });
    let slow = Actions { packets: Some(Rate::new(10.0)), ..PASS };
    let six = specs(&[5, 1, 16, 0, 0x20, 1], Family::V6).remove(0);
    control.set([
        (list[0].clone(), drop_all()),
        (list[1].clone(), slow),
        (list[2].clone(), marks(8, false)),
        (list[3].clone(), Actions { redirect: Some(Redirect::Vrf(blue)), ..PASS }),
        (six.clone(), drop_all()),
    ]);
    let mut graph = GraphBuilder::new(["lan", "wan"]);
    graph.node("sort", ["ip4", "ip6"], |_| Box::new(Stub));
    for name in ["ip4-input", "ip6-input"] {
        graph.node(name, ["lookup"], |_| Box::new(On));
        graph.edge(name, "lookup", "port:wan");
    }
    graph.edge("sort", "ip4", "ip4-input").edge("sort", "ip6", "ip6-input");
    graph.input("lan", "sort").input("wan", "sort");
    // A router without any table: who is redirected finds no way.
    let hops = Publisher::new(&domain, NextHops::new(vec![Adjacency::of(Kind::NoRoute)]));
    let (four, six_hops) = (hops.view(), hops.view());
    let ways4: MakeWays<u32> = Box::new(move |_| (Vec::new(), four.clone()));
    let ways6: MakeWays<u128> = Box::new(move |_| (Vec::new(), six_hops.clone()));
    splice(&mut graph, &control, Host { ways4, ways6 });
    let to = |last| packet4([1; 4], [10, 0, 0, last], 17, 0, &udp(7, 53));
    let mut to_six = vec![0x60, 0, 0, 0, 0, 0, 59, 64];
    to_six.extend([7; 16]);
    to_six.extend([0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    let frame = |ip: &[u8]| {
        let kind: [u8; 2] = if ip[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        [&[2; 12][..], &kind, ip].concat()
    };
    // A second of 1000 packets for each.
    let bursts = (0..1000_u64).map(|n| {
        let frames = [to(1), to(2), to(3), to(4), to(5), to_six.clone()]
            .map(|ip| Frame::at(n * 1_000_000, frame(&ip)));
        frames.to_vec()
    });
    let sent = Sent::default();
    let lan: Vec<Box<dyn Port>> = vec![Box::new(MemoryPort::new("lan", bursts))];
    let spared = [vec![Frame::at(0, frame(&to(1)))]];
    let wan: Vec<Box<dyn Port>> = vec![Box::new(MemoryPort::new("wan", spared).sending_to(&sent))];
    let memory = Memory::new(4096, 2048).unwrap();
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 4096,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let engine = Engine::new(graph.build().unwrap(), 1, vec![lan, wan], &memory, &domain, options).unwrap();
    let outcome = engine.run(|_| ());
    assert!(outcome.errors.is_empty());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!(ledger.dropped_for(DropReason::FlowspecDrop), 2000);
    assert_eq!(ledger.dropped_for(DropReason::FlowspecRedirect), 1000);
    let over = ledger.dropped_for(DropReason::FlowspecRate);
    assert!((988..=990).contains(&over), "{over}");
    let frames = sent.frames();
    let count =
        |last: u8, tos: u8| frames.iter().filter(|frame| frame[33] == last && frame[15] == tos).count();
    assert_eq!((count(1, 0xb9), count(3, 0x21), count(4, 0xb9), count(5, 0xb9)), (1, 1000, 1000, 0));
    assert_eq!(count(2, 0xb9) as u64, 1000 - over);
    for (spec, dropped) in [(&list[0], 1000), (&list[1], over), (&list[2], 0), (&list[3], 0), (&six, 1000)] {
        let Look::Applied(counts) = control.look(spec) else { panic!("{spec} is not applied") };
        assert_eq!((counts.packets, counts.dropped), (1000, dropped), "{spec}");
    }
}
