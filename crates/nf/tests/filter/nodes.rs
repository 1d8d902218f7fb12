//! The nodes in a graph, between two ports in memory: what passes goes on, fragments wait and follow, packets are handed over, and the books balance.

use crate::packets::*;
use tidemill_burst::{Memory, Packet};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Outcome, Verdict};
use tidemill_ip::{Adjacency, Interface, Interfaces, NextHops};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::filter::{Counter, FilterControl, FilterSection, Host, splice};
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort};
use tidemill_wire::{EtherType, MacAddr};

/// Stands for what is around: by family; by where a packet came in the label of a next hop; by that the port to leave by.
enum Stub {
    Sort,
    Lookup,
    Forward,
    Error,
}

impl Node for Stub {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            packet.l3 = 14;
            *verdict = match self {
                Stub::Sort => Verdict::Next(u8::from(packet.data()[12] == 0x86)),
                Stub::Lookup => {
                    packet.label = if packet.port == LAN { 1 } else { 2 };
                    Verdict::Next(0)
                }
                Stub::Forward => Verdict::Next(if packet.label == 1 { 1 } else { 0 }),
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
        graph.node(&format!("{ip}-lookup"), ["forward"], |_| Box::new(Stub::Lookup));
        graph.node(&format!("{ip}-forward"), ["lan", "wan", "error"], |_| Box::new(Stub::Forward));
        let errors = format!("icmp{}-error", &ip[2..]);
        graph.node(&errors, [] as [&str; 0], |_| Box::new(Stub::Error));
        let (lookup, forward) = (format!("{ip}-lookup"), format!("{ip}-forward"));
        graph.edge("sort", ip, &lookup).edge(&lookup, "forward", &forward).edge(&forward, "error", &errors);
        graph.edge(&forward, "lan", "port:lan").edge(&forward, "wan", "port:wan");
    }
    graph.input("lan", "sort").input("wan", "sort");
    let (view4, view6) = (hops4.view(), hops6.view());
    let host = Host { hops4: Box::new(move |_| view4.clone()), hops6: Box::new(move |_| view6.clone()) };
    splice(&mut graph, &control, host);
    let (mut lan, mut wan, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    for queue in queues {
        let frames = queue.into_iter().map(|(ms, ip)| vec![Frame::at(ms * 1_000_000, frame(&ip))]);
        lan.push(Box::new(MemoryPort::new("lan", frames)) as Box<dyn Port>);
        let port = MemoryPort::new("wan", []);
        sent.push(port.sent());
        wan.push(Box::new(port) as Box<dyn Port>);
    }
    let memory = Memory::new(4096 * workers, 2048).unwrap();
    let options = Options {
        clock: Clock::Capture,
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
    let out = sent.iter().flat_map(|sent| sent.frames()).map(|frame| frame[14..].to_vec()).collect();
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
    // A worker whose port has ended leaves what others hand it over then: that is held.
    let ledger = outcome.snapshot.ledger();
    assert_eq!(out.len() as u64 + ledger.held, 900, "{ledger:?}");
    let counters = control.counters();
    // Each pair of hosts is one worker's, whichever it came to.
    let handed = counters.get(Counter::HandedOver);
    assert!(handed > 300 && ledger.held < handed, "{handed} handed over, {ledger:?}");
    let flows: std::collections::HashSet<Vec<u8>> =
        out.iter().map(|ip| [&ip[12..22], &[]].concat()).collect();
    assert_eq!(counters.get(Counter::StatesMade), flows.len() as u64);
}
