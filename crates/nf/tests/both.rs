//! NAT and the packet filter in one graph, between interfaces in memory: the filter sees inside addresses both ways, each packet is judged where it should be and no oftener, and the
//! books balance. The interfaces' numbers are such as NAT's own notes have.

#![allow(clippy::unwrap_used)] // a test may

#[macro_use]
#[allow(dead_code)] // others need all of it
#[path = "nat/packets.rs"]
mod packets;

use packets::*;
use std::collections::HashSet;
use tidemill_burst::{Memory, Packet};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Outcome, Verdict};
use tidemill_ip::{Adjacency, Interface, Interfaces, NextHops};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::filter::{self, FilterControl, FilterSection};
use tidemill_nf::nat::{self, NatControl, NatSection};
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort, Sent};
use tidemill_wire::{EtherType, MacAddr};

const WAN: u16 = 5;
const LAN: u16 = 7;
const LINK: usize = 14;
/// In a frame's first byte: its neighbor has answered.
const FOUND: u8 = 0xee;

/// Stands for what is around. A frame's source says by which interface it comes, and its destination in the end by which it has left. Remote 200 and inside host 9 have to be asked
/// for their address; no route leads to inside host 8.
enum Stub {
    Sort,
    Input,
    Lookup,
    Neighbor,
    Forward,
    Error,
}

/// Whether its destination is inside, and the number of that.
fn place(frame: &[u8]) -> (bool, u8) {
    let ip = &frame[LINK..];
    match ip[0] >> 4 {
        6 if ip[24] == 0xfd => (true, ip[39]),
        6 => (false, ip[35]),
        _ => (ip[16] == 10, ip[19]),
    }
}

impl Node for Stub {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            *verdict = match self {
                Stub::Sort => {
                    packet.l3 = LINK as u8;
                    packet.port = packet.data()[6].into();
                    // As a device's hash: whatever a note would be.
                    packet.hash = 5;
                    Verdict::Next(u8::from(packet.data()[12] == 0x86))
                }
                Stub::Input => Verdict::Next(0),
                Stub::Lookup if place(packet.data()) == (true, 8) => {
                    packet.label = 0;
                    Verdict::Next(2)
                }
                Stub::Lookup => {
                    let (inside, number) = place(packet.data());
                    let is_asked_for = if inside { number == 9 } else { number == 200 };
                    let waits = is_asked_for && packet.data()[0] != FOUND;
                    packet.label = 1 + u32::from(inside) + 2 * u32::from(waits);
                    Verdict::Next(u8::from(waits))
                }
                Stub::Neighbor => {
                    packet.data_mut()[0] = FOUND;
                    Verdict::Next(0)
                }
                Stub::Forward => {
                    let interface = if packet.label == 1 { WAN } else { LAN };
                    packet.data_mut()[0] = interface as u8;
                    Verdict::Next(0)
                }
                Stub::Error => Verdict::Consume,
            };
        }
    }
}

/// By which interface, and the packet.
type Seen = (u16, Vec<u8>);

struct Ran {
    out: Vec<Seen>,
    outcome: Outcome,
    nat: NatControl,
    filter: FilterControl,
}

impl Ran {
    fn dropped(&self) -> Vec<String> {
        let ledger = self.outcome.snapshot.ledger();
        let mut dropped: Vec<String> =
            ledger.dropped.iter().map(|(reason, n)| format!("{reason}={n}")).collect();
        dropped.sort();
        dropped
    }
}

const NAT: &str = r#"
inside = ["lan"]
outside = ["wan"]
pool = ["192.0.2.1", "2001:db8:0:1::1"]
[[static]]
protocol = "udp"
external = "192.0.2.1:5353"
internal = "10.0.0.9:53"
[[static]]
protocol = "udp"
external = "[2001:db8:0:1::1]:5353"
internal = "[fd00::9]:53"
[[static]]
protocol = "udp"
external = "192.0.2.1:7"
internal = "10.0.0.9:7"
[[static]]
protocol = "udp"
external = "[2001:db8:0:1::1]:7"
internal = "[fd00::9]:7"
[[static]]
protocol = "udp"
external = "192.0.2.1:8"
internal = "10.0.0.8:8"
[[static]]
protocol = "udp"
external = "[2001:db8:0:1::1]:8"
internal = "[fd00::8]:8"
"#;

/// Alice may begin anything, and everybody may ask the server: by inside addresses.
const RULES: &str = "\
block all
pass in on lan from { 10.0.0.1, fd00::1 } to any
pass out on wan from { 10.0.0.1, fd00::1 } to any
pass in on wan proto udp from any to { 10.0.0.9, fd00::9 } port 53
pass out on lan proto udp from any to { 10.0.0.9, fd00::9 } port 53
";

/// Sends these, each a burst of its own, those of a queue to a worker of its own.
fn run(rules: &str, queues: Vec<Vec<Seen>>) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules");
    std::fs::write(&path, rules).unwrap();
    let domain = Domain::new();
    let name = |number| match number {
        WAN => "wan".to_owned(),
        LAN => "lan".to_owned(),
        _ => format!("if{number}"),
    };
    let list: Vec<Interface> = (0..8).map(|number| Interface::of_port(number, &name(number))).collect();
    let (wan, lan) = (&list[usize::from(WAN)], &list[usize::from(LAN)]);
    let hops = |kind| {
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        NextHops::new(vec![
            Adjacency::of(tidemill_ip::Kind::NoRoute),
            Adjacency::forward(WAN, wan, mac, kind),
            Adjacency::forward(LAN, lan, mac, kind),
            Adjacency::glean(WAN, wan),
            Adjacency::glean(LAN, lan),
        ])
    };
    let (hops4, hops6) =
        (Publisher::new(&domain, hops(EtherType::IPV4)), Publisher::new(&domain, hops(EtherType::IPV6)));
    let interfaces = Interfaces::new(list.clone(), 8);
    let workers = queues.len();
    let section: NatSection = toml::from_str(NAT).unwrap();
    let nat = NatControl::with_secret(&section, &interfaces, workers, &domain, 3).unwrap();
    let section = FilterSection { rules: Some(path), ..FilterSection::default() };
    let filter = FilterControl::with_secret(&section, &interfaces, workers, &domain, 5).unwrap();

    let mut graph = GraphBuilder::new(["trunk"]);
    graph.node("sort", ["ip4", "ip6"], |_| Box::new(Stub::Sort));
    for ip in ["ip4", "ip6"] {
        let [input, lookup, neighbor, forward] =
            ["input", "lookup", "neighbor", "forward"].map(|node| format!("{ip}-{node}"));
        let errors = format!("icmp{}-error", &ip[2..]);
        graph.node(&input, ["lookup"], |_| Box::new(Stub::Input));
        graph.node(&lookup, ["forward", "neighbor", "error"], |_| Box::new(Stub::Lookup));
        graph.node(&neighbor, ["lookup"], |_| Box::new(Stub::Neighbor));
        graph.node(&forward, ["out", "error"], |_| Box::new(Stub::Forward));
        graph.node(&errors, ["lookup"], |_| Box::new(Stub::Error));
        graph.edge("sort", ip, &input).edge(&input, "lookup", &lookup);
        graph.edge(&lookup, "forward", &forward).edge(&lookup, "neighbor", &neighbor);
        graph.edge(&lookup, "error", &errors).edge(&neighbor, "lookup", &lookup);
        graph.edge(&forward, "out", "port:trunk").edge(&forward, "error", &errors);
        graph.edge(&errors, "lookup", &lookup);
    }
    graph.input("trunk", "sort");
    let (view4, view6) = (hops4.view(), hops6.view());
    let host = nat::Host { hops4: Box::new(move |_| view4.clone()), hops6: Box::new(move |_| view6.clone()) };
    nat::splice(&mut graph, &nat, host);
    let (view4, view6) = (hops4.view(), hops6.view());
    let host =
        filter::Host { hops4: Box::new(move |_| view4.clone()), hops6: Box::new(move |_| view6.clone()) };
    filter::splice(&mut graph, &filter, host);

    let sent = Sent::default();
    let port = |queue: Vec<Seen>| {
        let frame = |(at, (interface, ip)): (u64, Seen)| {
            let kind: &[u8] = if ip[0] >> 4 == 6 { &[0x86, 0xdd] } else { &[8, 0] };
            let link = [&[2; 6][..], &[interface as u8, 0, 0, 0, 0, 0], kind].concat();
            vec![Frame::at(1_000_000 * at, [link, ip].concat())]
        };
        let frames: Vec<_> = (1..).zip(queue).map(frame).collect();
        Box::new(MemoryPort::new("trunk", frames).sending_to(&sent)) as Box<dyn Port>
    };
    let ports = vec![queues.into_iter().map(port).collect()];
    let memory = Memory::new(4096 * workers, 2048).unwrap();
    let options = Options {
        clock: if workers > 1 { Clock::wall() } else { Clock::Capture },
        frames_per_worker: 4096,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let engine = Engine::new(graph.build().unwrap(), workers, ports, &memory, &domain, options).unwrap();
    let outcome = engine.run(|_| ());
    assert!(outcome.errors.is_empty());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!(ledger.held, 0, "{ledger:?}");
    let out = sent.frames().into_iter().map(|frame| (frame[0].into(), frame[LINK..].to_vec())).collect();
    Ran { out, outcome, nat, filter }
}

/// Whichever order they have left in.
fn sorted(mut packets: Vec<Seen>) -> Vec<Seen> {
    packets.sort();
    packets
}

both! {
    fn what_is_judged_has_inside_addresses<A>() {
        let (alice, server) = (A::inside(1), A::inside(9));
        let (remote, other, slow, public) = (A::remote(1), A::remote(2), A::remote(200), A::pool(1));
        let question = udp(end(alice, 4000), end(remote, 53), b"question");
        let asked = udp(end(public, 4000), end(remote, 53), b"question");
        let long = |source| {
            let whole = udp(end(source, 4002), end(remote, 53), &[7; 1000]);
            fragments::<A, E, S, T>(&whole, 400, 9)
        };
        let mut pieces = long(alice);
        pieces.reverse();
        let come = |packet| (WAN, packet);
        let leave = |packet| (LAN, packet);
        let mut script = vec![
            // A question and its answer; one from him who was not asked.
            leave(question.clone()),
            come(udp(end(remote, 53), end(public, 4000), b"answer")),
            come(udp(end(other, 53), end(public, 4000), b"nobody's")),
            // To the server, which may answer, and to a port of it that no rule opens.
            come(udp(end(other, 9), end(public, 5353), b"who")),
            leave(udp(end(server, 53), end(other, 9), b"me")),
            come(udp(end(other, 9), end(public, 7), b"echo")),
            // The server begins nothing.
            leave(udp(end(server, 1000), end(remote, 53), b"no")),
            // Whose neighbor has to be asked for his address.
            leave(udp(end(alice, 4003), end(slow, 53), b"slow")),
            leave(echo(alice, remote, 77, false)),
            come(echo(remote, public, 77, true)),
            // Errors about what has left: of who was asked, and of nobody's packet.
            come(error(A::remote(3), public, &asked)),
            come(error(A::remote(3), public, &udp(end(public, 4999), end(remote, 53), b"never"))),
        ];
        script.extend(pieces.into_iter().map(leave));
        let ran = run(RULES, vec![script]);
        let mut expected = vec![
            (WAN, asked),
            (LAN, udp(end(remote, 53), end(alice, 4000), b"answer")),
            (LAN, udp(end(other, 9), end(server, 53), b"who")),
            (WAN, udp(end(public, 5353), end(other, 9), b"me")),
            (WAN, udp(end(public, 4003), end(slow, 53), b"slow")),
            (WAN, echo(public, remote, 77, false)),
            (LAN, echo(remote, alice, 77, true)),
            (LAN, error(A::remote(3), alice, &question)),
        ];
        expected.extend(long(public).into_iter().map(|piece| (WAN, piece)));
        assert_eq!(sorted(ran.out.clone()), sorted(expected));
        assert_eq!(ran.dropped(), ["filter-blocked=2", "nat-error-unmatched=1", "nat-filtered=1"]);
        let counters = ran.filter.counters();
        let counted = |counter| counters.get(counter);
        // Nobody was judged twice: a connection for each of them, and one rule asked for what began it.
        assert_eq!(counted(filter::Counter::StatesMade), 5);
        assert_eq!((counted(filter::Counter::Blocked), counted(filter::Counter::ErrorsPassed)), (2, 1));
        assert_eq!(counted(filter::Counter::FragmentsHeld), 2);
        assert_eq!(ran.nat.counters().get(nat::Counter::ErrorsIn), 1);
    }

    /// A hairpin is what it looks like at both of its ends: Alice talks to the pool, and the pool to the server, which begins nothing itself.
    fn a_hairpin_is_judged_at_both_of_its_ends<A>() {
        let (alice, mallory, server, public) = (A::inside(1), A::inside(2), A::inside(9), A::pool(1));
        let answer = udp(end(public, 5353), end(alice, 4001), b"me");
        let script = vec![
            (LAN, udp(end(alice, 4001), end(public, 5353), b"who")),
            (LAN, udp(end(server, 53), end(public, 4001), b"me")),
            // Who gets the answer says that nobody listens; the server hears of it.
            (LAN, error(alice, public, &answer)),
            // No rule lets him begin anything, and none lets anybody reach that port.
            (LAN, udp(end(mallory, 4001), end(public, 5353), b"who")),
            (LAN, udp(end(alice, 4001), end(public, 7), b"echo")),
        ];
        let ran = run(RULES, vec![script.clone()]);
        let expected = vec![
            (LAN, udp(end(public, 4001), end(server, 53), b"who")),
            (LAN, answer),
            (LAN, error(public, server, &udp(end(server, 53), end(public, 4001), b"me"))),
        ];
        assert_eq!(sorted(ran.out.clone()), sorted(expected));
        assert_eq!(ran.dropped(), ["filter-blocked=2"]);
        let counters = ran.filter.counters();
        // Two halves of one, and the first half of one.
        assert_eq!(counters.get(filter::Counter::StatesMade), 3);
        assert_eq!(counters.get(filter::Counter::ErrorsPassed), 2);
        assert_eq!(ran.nat.counters().get(nat::Counter::Hairpin), 4);
        // Without a rule for those from outside the server is not reached from inside by its public address either.
        let without: Vec<&str> = RULES.lines().filter(|line| !line.contains("in on wan")).collect();
        let ran = run(&(without.join("\n") + "\n"), vec![script[..1].to_vec()]);
        assert_eq!((ran.out.len(), ran.dropped()), (0, vec!["filter-blocked=1".to_owned()]));
    }

    /// The same of one that no route leads on: only who could reach the host hears that it is not there.
    fn a_hairpin_without_a_route_is_judged_at_both_of_its_ends<A>() {
        let script = vec![(LAN, udp(end(A::inside(1), 4001), end(A::pool(1), 8), b"who"))];
        for (rule, dropped) in [
            ("", vec!["filter-blocked=1".to_owned()]),
            ("pass in on lan proto udp from any to { 10.0.0.8, fd00::8 }\n", vec!["filter-blocked=1".to_owned()]),
            ("pass in on wan proto udp from any to { 10.0.0.8, fd00::8 }\n", Vec::new()),
        ] {
            let ran = run(&format!("{RULES}{rule}"), vec![script.clone()]);
            let told = ran.outcome.snapshot.ledger().consumed;
            assert_eq!((ran.out.len(), ran.dropped(), told), (0, dropped.clone(), u64::from(dropped.is_empty())));
        }
    }
}

/// Each connection is judged once, at its worker, and translated at its host's: what NAT hands over does not come before the filter again with the pool's address.
#[test]
fn workers_hand_over_what_is_another_ones() {
    let mut queues = vec![Vec::new(); 2];
    let mut flows = HashSet::new();
    for n in 0..600_u16 {
        let (host, remote, port) = (n % 40 + 1, n % 30 + 1, 2000 + n / 200);
        flows.insert((host, remote, port));
        let packet =
            udp(end(u32::inside(host as u8), port), end(u32::remote(remote as u8), 53), &n.to_be_bytes());
        queues[usize::from(n / 3 % 2)].push((LAN, packet));
    }
    let rules =
        "block all\npass in on lan from 10.0.0.0/24 to any\npass out on wan from 10.0.0.0/24 to any\n";
    let ran = run(rules, queues);
    assert_eq!((ran.out.len(), ran.dropped()), (600, Vec::new()));
    for (interface, ip) in &ran.out {
        let (from, to) = ends::<u32, 1, 2, 4>(ip);
        assert_eq!((*interface, from.address, to.port), (WAN, u32::pool(1), 53));
    }
    let (filter, nat) = (ran.filter.counters(), ran.nat.counters());
    assert_eq!(filter.get(filter::Counter::StatesMade), flows.len() as u64);
    assert_eq!(filter.get(filter::Counter::Passed), 600);
    assert_eq!(nat.get(nat::Counter::Out), 600);
    let handed = (filter.get(filter::Counter::HandedOver), nat.get(nat::Counter::HandedOver));
    assert!(handed.0 > 100 && handed.1 > 100, "{handed:?} handed over");
}
