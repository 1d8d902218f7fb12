//! The nodes in a graph, between two ports in memory: what passes goes on, fragments wait and follow, packets are handed over, and the books balance.

use crate::packets::{Body, LAN, SYN, fragments, ip, packet, segment};
use tidemill_burst::{DropReason, Memory, Packet};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Outcome, Verdict};
use tidemill_ip::nodes::error;
use tidemill_ip::{Adjacency, Interface, Interfaces, NextHops};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::filter::{Counter, FilterControl, FilterSection, Host, splice};
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort, Sent};
use tidemill_wire::{EtherType, MacAddr};

/// Stands for what is around: by family; by where a packet came in the label of a next hop; by that the port to leave by.
enum Stub {
    Sort,
    Lookup,
    Neighbor,
    Forward,
    Error,
}

impl Node for Stub {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            packet.l3 = 14;
            *verdict = match self {
                Stub::Sort => Verdict::Next(u8::from(packet.data()[12] == 0x86)),
                // 203.0.113.x: nowhere; 203.0.112.x: to neighbors whose address is not known yet.
                Stub::Lookup => match packet.data().get(30..33) {
                    Some([203, 0, 113]) => error(packet, DropReason::NoRoute, 0, 2),
                    Some([203, 0, 112]) => {
                        packet.label = 3;
                        Verdict::Next(1)
                    }
                    _ => {
                        packet.label = if packet.port == LAN { 1 } else { 2 };
                        Verdict::Next(0)
                    }
                },
                // It has answered.
                Stub::Neighbor => {
                    packet.label = 1;
                    Verdict::Next(0)
                }
                Stub::Forward => Verdict::Next(if packet.label == 1 { 1 } else { 0 }),
                // Who is told of something.
                Stub::Error => Verdict::Consume,
            };
        }
    }
}

fn frame(ip: &[u8]) -> Vec<u8> {
    let kind: &[u8] = if ip[0] >> 4 == 6 { &[0x86, 0xdd] } else { &[8, 0] };
    [&[2; 12], kind, ip].concat()
}

/// Sends these, each with its time in milliseconds, by `lan`, those of a queue to a worker of its own; what leaves by `wan`.
fn run(rules: &str, queues: Vec<Vec<(u64, Vec<u8>)>>) -> (Outcome, Vec<Vec<u8>>, FilterControl) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules");
    std::fs::write(&path, rules).unwrap();
    let domain = Domain::new();
    let list = [Interface::of_port(0, "lan"), Interface::of_port(1, "wan")];
    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
    let hops = |kind| {
        NextHops::new(vec![
            Adjacency::of(tidemill_ip::Kind::NoRoute),
            Adjacency::forward(1, &list[1], mac, kind),
            Adjacency::forward(0, &list[0], mac, kind),
            Adjacency::glean(1, &list[1]),
        ])
    };
    let (hops4, hops6) =
        (Publisher::new(&domain, hops(EtherType::IPV4)), Publisher::new(&domain, hops(EtherType::IPV6)));
    let interfaces = Interfaces::new(list.to_vec(), 2);
    let section = FilterSection {
        rules: Some(path),
        states: 5000,
        half_open: 4000,
        half_open_per_source: 3000,
        ..FilterSection::default()
    };
    let workers = queues.len();
    let control = FilterControl::with_secret(&section, &interfaces, workers, &domain, 5).unwrap();
    let names = ["lan", "wan"];
    let mut graph = GraphBuilder::new(names);
    graph.node("sort", ["ip4", "ip6"], |_| Box::new(Stub::Sort));
    for ip in ["ip4", "ip6"] {
        let (lookup, neighbor) = (format!("{ip}-lookup"), format!("{ip}-neighbor"));
        graph.node(&lookup, ["forward", "neighbor", "error"], |_| Box::new(Stub::Lookup));
        graph.node(&neighbor, ["found"], |_| Box::new(Stub::Neighbor));
        graph.node(&format!("{ip}-forward"), ["lan", "wan", "error"], |_| Box::new(Stub::Forward));
        let errors = format!("icmp{}-error", &ip[2..]);
        graph.node(&errors, [] as [&str; 0], |_| Box::new(Stub::Error));
        let forward = format!("{ip}-forward");
        graph.edge(&lookup, "neighbor", &neighbor).edge(&lookup, "error", &errors);
        graph.edge("sort", ip, &lookup).edge(&lookup, "forward", &forward).edge(&forward, "error", &errors);
        graph.edge(&forward, "lan", "port:lan").edge(&forward, "wan", "port:wan");
    }
    graph.input("lan", "sort").input("wan", "sort");
    let (view4, view6) = (hops4.view(), hops6.view());
    let host = Host { hops4: Box::new(move |_| view4.clone()), hops6: Box::new(move |_| view6.clone()) };
    splice(&mut graph, &control, host);
    for ip in ["ip4", "ip6"] {
        // What has waited is looked up again: here all of it is known by now.
        graph.edge(&format!("{ip}-neighbor"), "found", &format!("filter{}", &ip[2..]));
    }
    let (mut lan, mut wan, sent) = (Vec::new(), Vec::new(), Sent::default());
    for queue in queues {
        let frames = queue.into_iter().map(|(ms, ip)| vec![Frame::at(ms * 1_000_000, frame(&ip))]);
        lan.push(Box::new(MemoryPort::new("lan", frames)) as Box<dyn Port>);
        wan.push(Box::new(MemoryPort::new("wan", []).sending_to(&sent)) as Box<dyn Port>);
    }
    let memory = Memory::new(4096 * workers, 2048).unwrap();
    let options = Options {
        clock: if workers > 1 { Clock::wall() } else { Clock::Capture },
        frames_per_worker: 4096,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let engine =
        Engine::new(graph.build().unwrap(), workers, vec![lan, wan], &memory, &domain, options).unwrap();
    let outcome = engine.run(|_| ());
    assert!(outcome.errors.is_empty());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    let out = sent.frames().into_iter().map(|frame| frame[14..].to_vec()).collect();
    (outcome, out, control)
}

const RULES: &str = "table <bad> { 192.0.2.66 }\nblock all\npass in on lan\npass out on wan\nblock return in quick on lan to <bad>\n";

#[test]
fn what_passes_goes_on_and_what_waits_follows() {
    let (inside, remote) = (ip("10.0.0.5"), ip("192.0.2.1"));
    let long = tidemill_nf::filter::tcp::Segment { len: 100, ..segment(SYN, 1, 0) };
    let whole = packet(inside, remote, Body::Tcp(4000, 80, long));
    let (pieces, late) = (fragments(&whole, 48, 1), fragments(&whole, 48, 2));
    let udp6 = packet(ip("2001:db8::5"), ip("2001:db8:1::1"), Body::Udp(7, 53));
    let sent = vec![
        (1, packet(inside, remote, Body::Udp(7, 53))),
        (2, udp6.clone()),
        (3, packet(inside, ip("192.0.2.66"), Body::Udp(7, 53))),
        (4, pieces[2].clone()),
        (5, pieces[1].clone()),
        (6, pieces[0].clone()),
        (7, late[1].clone()),
        // Long enough for the one that waits, and for the sweep.
        (40_000, packet(inside, remote, Body::Udp(8, 53))),
    ];
    let expected =
        [sent[0].1.clone(), udp6, pieces[0].clone(), pieces[2].clone(), pieces[1].clone(), sent[7].1.clone()];
    let (outcome, mut out, control) = run(RULES, vec![sent]);
    let mut expected = expected.to_vec();
    // In which order what waited follows the first one is the graph's.
    out.sort();
    expected.sort();
    assert_eq!(out, expected);
    let ledger = outcome.snapshot.ledger();
    let drops: Vec<String> = ledger.dropped.iter().map(|(reason, n)| format!("{reason}={n}")).collect();
    assert_eq!(drops, ["filter-fragment-timeout=1"]);
    let counters = control.counters();
    let counted = |counter| counters.get(counter);
    assert_eq!((counted(Counter::Blocked), counted(Counter::FragmentsHeld)), (1, 3));
    assert_eq!((counted(Counter::Fragments), counted(Counter::Passed)), (2, 6));
    assert_eq!(control.rules().hits(3).packets, 1);
}

#[test]
fn workers_hand_over_what_is_another_ones() {
    let mut queues = vec![Vec::new(); 3];
    for n in 0..900_u16 {
        let remote = ip(&format!("192.0.2.{}", n % 50 + 1));
        let body = Body::Udp(1000 + n / 100, 53);
        queues[usize::from(n % 3)].push((u64::from(n), packet(ip("10.0.0.5"), remote, body)));
    }
    let (outcome, out, control) = run(RULES, queues);
    let ledger = outcome.snapshot.ledger();
    assert_eq!((out.len(), ledger.held), (900, 0), "{ledger:?}");
    let counters = control.counters();
    // Each pair of hosts is one worker's, whichever it came to.
    let handed = counters.get(Counter::HandedOver);
    assert!(handed > 300, "{handed} handed over");
    let flows: std::collections::HashSet<Vec<u8>> =
        out.iter().map(|ip| [&ip[12..22], &[]].concat()).collect();
    assert_eq!(counters.get(Counter::StatesMade), flows.len() as u64);
}

/// Whoever is blocked is told nothing and has nobody asked, wherever his packets go.
#[test]
fn what_is_blocked_is_so_before_anything_is_done_for_it() {
    let (inside, told, asked) = (ip("10.0.0.5"), ip("203.0.113.1"), ip("203.0.112.1"));
    let body = |n: u16| Body::Udp(n, 53);
    let good: Vec<(u64, Vec<u8>)> =
        (1..=3).map(|n| (n.into(), packet(inside, if n == 1 { told } else { asked }, body(n)))).collect();
    let (outcome, out, control) = run(RULES, vec![good.clone()]);
    // What waits for an address is judged once, and goes on.
    assert_eq!(out, [good[1].1.clone(), good[2].1.clone()]);
    let ledger = outcome.snapshot.ledger();
    assert_eq!((ledger.consumed, ledger.dropped_total()), (1, 0), "who may send is told: no route");
    let counters = control.counters();
    assert_eq!((counters.get(Counter::Passed), counters.get(Counter::StatesMade)), (3, 2));
    let rules = format!("{RULES}block quick from 10.0.0.5\n");
    let (outcome, out, control) = run(&rules, vec![good]);
    let ledger = outcome.snapshot.ledger();
    assert_eq!((out.len(), ledger.consumed, control.counters().get(Counter::Blocked)), (0, 0, 3));
    assert_eq!(ledger.dropped_for(DropReason::FilterBlocked), 3);
}

/// Fragments that wait for their neighbor are looked up again, and are no overlap.
#[test]
fn fragments_pass_while_a_neighbor_is_asked_for() {
    let long = tidemill_nf::filter::tcp::Segment { len: 100, ..segment(SYN, 1, 0) };
    let pieces = fragments(&packet(ip("10.0.0.5"), ip("203.0.112.1"), Body::Tcp(4000, 80, long)), 48, 1);
    let sent = pieces.iter().enumerate().map(|(at, piece)| (1 + at as u64, piece.clone())).collect();
    let (_, out, _) = run(RULES, vec![sent]);
    assert_eq!(out, pieces);
}

/// A first fragment that overlaps refuses its packet: those that wait for it go at once, and not when their time is over.
#[test]
fn what_waits_for_a_packet_that_is_refused_is_dropped_with_it() {
    let long = tidemill_nf::filter::tcp::Segment { len: 100, ..segment(SYN, 1, 0) };
    let whole = packet(ip("10.0.0.5"), ip("192.0.2.1"), Body::Tcp(4000, 80, long));
    let (pieces, larger) = (fragments(&whole, 48, 1), fragments(&whole, 56, 1));
    let sent = vec![(1, pieces[1].clone()), (2, pieces[2].clone()), (3, larger[0].clone())];
    let (outcome, out, control) = run(RULES, vec![sent]);
    let ledger = outcome.snapshot.ledger();
    assert_eq!((out.len(), ledger.held), (0, 0), "{ledger:?}");
    assert_eq!(ledger.dropped_for(DropReason::FilterFragmentRefused), 3, "{ledger:?}");
    assert_eq!(control.counters().get(Counter::FragmentsHeld), 2);
}

/// One host's lone fragments push out each other, and nobody else's that come before their first one.
#[test]
fn fragments_that_wait_pass_in_a_flood_of_lone_ones() {
    let (inside, remote) = (ip("10.0.0.5"), ip("192.0.2.1"));
    let long = tidemill_nf::filter::tcp::Segment { len: 100, ..segment(SYN, 1, 0) };
    let pieces = fragments(&packet(inside, remote, Body::Tcp(4000, 80, long)), 48, 1);
    let noise = packet(ip("10.0.0.9"), remote, Body::Tcp(4000, 80, long));
    let lone = |n: u16| fragments(&noise, 48, 1000 + n).swap_remove(1);
    let mut all: Vec<Vec<u8>> = (0..600).map(lone).collect();
    for (at, piece) in [(400, 2), (450, 1), (500, 0)] {
        all.insert(at, pieces[piece].clone());
    }
    let sent = (1..).zip(all).collect();
    let (outcome, mut out, control) = run(RULES, vec![sent]);
    out.sort();
    let mut expected = pieces;
    expected.sort();
    assert_eq!(out, expected);
    let ledger = outcome.snapshot.ledger();
    assert_eq!(ledger.dropped_for(DropReason::FilterFragmentRefused), 0, "nobody is refused for others wait");
    // A source has half of the room: 128.
    assert!(ledger.dropped_for(DropReason::FilterFragmentTimeout) >= 600 - 128, "{ledger:?}");
    assert_eq!(control.counters().get(Counter::FragmentsHeld), 602);
}
