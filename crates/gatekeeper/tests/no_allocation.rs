//! The gate allocates nothing: a counting allocator watches the worker while bursts go through all of its nodes, with room in the tables and
//! without. Round about it are stand-ins for the router's nodes, which this crate does not see.

#![allow(clippy::unwrap_used)]

#[path = "../../lookup/tests/common/allocations.rs"]
mod allocations;

use allocations::allocations;
use std::sync::{Arc, Mutex};
use tidemill_burst::{Burst, DropReason, Memory, Packet, Pool};
use tidemill_gatekeeper::{
    Counter, Decision, GatekeeperControl, GatekeeperSection, Host, Verdict as Says, splice,
};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_ip::{Adjacency, Interface, Interfaces, Kind, NextHops};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::table::{Algorithm, Family, Table};
use tidemill_lpm::{Label, Prefix, Rib};
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_wire::flow::Addresses;
use tidemill_wire::{EtherType, MacAddr, Protocol, ipv4, ipv6};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1000 * SECOND;
const TURNS: u64 = 400;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// Receives the same frames a millisecond later each time, sends into nothing, and notes the allocations of its thread at each call.
struct Loop {
    frames: Vec<Vec<u8>>,
    turn: u64,
    marks: Arc<Mutex<Vec<u64>>>,
    counters: PortCounters,
}

impl Port for Loop {
    fn name(&self) -> &str {
        "loop"
    }
    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        self.marks.lock().unwrap().push(allocations()); // within its capacity
        if self.turn == TURNS || self.frames.is_empty() {
            return Ok(RxStatus::Ended);
        }
        self.turn += 1;
        for frame in &self.frames {
            let mut packet = pool.packet(frame).unwrap();
            packet.set_timestamp_ns(START + self.turn * SECOND / 1000);
            self.counters.rx.count(frame.len());
            assert!(burst.push(packet).is_ok());
        }
        Ok(RxStatus::Received)
    }
    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            self.counters.tx.count(packet.len());
            pool.free(packet);
        }
        Ok(())
    }
    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Finds out what a frame is.
struct Ethernet;

impl Node for Ethernet {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            packet.l3 = 14;
            *verdict = Verdict::Next(u8::from(packet.data()[12..14] == EtherType::IPV6.0.to_be_bytes()));
        }
    }
}

/// Lets everything go on by its first output.
struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

struct End;

impl Node for End {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], verdicts: &mut [Verdict]) {
        verdicts.fill(Verdict::Drop(DropReason::NoRoute));
    }
}

/// The part of a router that the gate is put into.
fn router() -> GraphBuilder {
    let mut graph = GraphBuilder::new(["front", "back"]);
    graph.node("ethernet", ["ip4", "ip6"], |_| Box::new(Ethernet));
    graph.input("front", "ethernet").input("back", "ethernet");
    graph.node("end", [""; 0], |_| Box::new(End));
    for (family, lookup) in [("ip4", "ip4"), ("ip6", "ip6")] {
        let name = |part: &str| format!("{lookup}-{part}");
        graph.node(&name("input"), ["lookup"], |_| Box::new(Pass)).edge("ethernet", family, &name("input"));
        graph.node(&name("lookup"), ["forward", "local"], |_| Box::new(Pass));
        graph.node(&name("forward"), ["out", "error"], |_| Box::new(Pass));
        graph.node(&name("neighbor"), ["out"], |_| Box::new(Pass));
        graph.edge(&name("input"), "lookup", &name("lookup")).edge(&name("lookup"), "local", "end");
        graph.edge(&name("lookup"), "forward", &name("forward"));
        graph.edge(&name("forward"), "out", "port:back").edge(&name("forward"), "error", "end");
        graph.edge(&name("neighbor"), "out", "end");
    }
    graph
}

fn frame(ethertype: EtherType, ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend(ethertype.0.to_be_bytes());
    frame.extend(ip);
    frame
}

fn v4(source: &str, destination: &str, len: usize) -> Vec<u8> {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    let repr = ipv4::Repr { ttl: 64, ..ipv4::Repr::new(source, destination, Protocol::UDP, len) };
    let mut ip = vec![0; 20 + len];
    repr.emit(&mut ip).unwrap();
    frame(EtherType::IPV4, &ip)
}

fn v6(source: &str, destination: &str, len: usize) -> Vec<u8> {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    let repr = ipv6::Repr { hop_limit: 64, ..ipv6::Repr::new(source, destination, Protocol::UDP, len) };
    let mut ip = vec![0; 40 + len];
    repr.emit(&mut ip).unwrap();
    frame(EtherType::IPV6, &ip)
}

/// A route of everything by the back.
fn way<A: Family>(
    domain: &Domain,
    back: &Interface,
    ethertype: EtherType,
) -> (Table<A>, Publisher<NextHops>) {
    let rib: Rib<A> = [(Prefix::new(A::MIN, 0).unwrap(), Label(1))].into_iter().collect();
    let hops = vec![Adjacency::of(Kind::NoRoute), Adjacency::forward(1, back, MAC, ethertype)];
    (Table::new(domain, rib, &Algorithm::Auto).unwrap(), Publisher::new(domain, NextHops::new(hops)))
}

/// Which flow a decision is about: the n-th source of ours, of either family.
fn flows(n: u32) -> [Addresses; 2] {
    [
        Addresses::V4 { src: 0xc633_6400 + n, dst: 0xcb00_7150 },
        Addresses::V6 { src: (0x2001_0db8 << 96) + u128::from(n), dst: 0x2001_0db9 << 96 | 0x50 },
    ]
}

fn run(flows_room: usize, order: &str) {
    let domain = Domain::new();
    let mut back = Interface::of_port(1, "back");
    back.v4.push(("10.0.0.1".parse().unwrap(), "10.0.0.0/24".parse().unwrap()));
    back.v6.push(("fd00::1".parse().unwrap(), "fd00::/64".parse().unwrap()));
    let interfaces = Interfaces::new(vec![Interface::of_port(0, "front"), back.clone()], 2);
    let text = format!(
        "front = ['front']\nbandwidth = '1 Gbps'\nrequest_queue = 64\nflows = {flows_room}\norder = '{order}'\n\
         policy = [{{ prefix = '203.0.113.0/24', action = 'grantor', grantors = ['10.0.0.9', '10.0.0.8'] }},\
         {{ prefix = '2001:db9::/32', action = 'grantor', grantors = ['fd00::9'] }},\
         {{ prefix = '192.0.2.0/24', action = 'drop' }}, {{ prefix = '2001:dba::/32', action = 'drop' }}]"
    );
    let section: GatekeeperSection = toml::from_str(&text).unwrap();
    let mut control = GatekeeperControl::new(&section, &interfaces, 1, &domain).unwrap();
    // Of the first four sources: granted, granted little, granted past the Grantor, declined. The others ask.
    let granted =
        |rate_kib_s, direct| Says::Granted { rate_kib_s, expire_s: 600, renew_ms: 100, step_ms: 50, direct };
    let says = [
        granted(1 << 20, false),
        granted(1, false),
        granted(1 << 20, true),
        Says::Declined { expire_s: 600 },
    ];
    let decisions = (0..).zip(says).flat_map(|(n, verdict)| flows(n).map(|flow| Decision { flow, verdict }));
    assert_eq!(control.decide_before_start(0, START, decisions), 8);

    let mut graph = router();
    let (table4, hops4) = way::<u32>(&domain, &back, EtherType::IPV4);
    let (table6, hops6) = way::<u128>(&domain, &back, EtherType::IPV6);
    let (views4, views6) = ((table4.view(), hops4.view()), (table6.view(), hops6.view()));
    let host = Host { ways4: Box::new(move |_| views4.clone()), ways6: Box::new(move |_| views6.clone()) };
    splice(&mut graph, &control, host);

    let mut frames = Vec::new();
    for n in 0..60 {
        let (source4, source6) = (format!("198.51.100.{n}"), format!("2001:db8::{n:x}"));
        frames.push(v4(&source4, "203.0.113.80", 100));
        frames.push(v6(&source6, "2001:db9::50", 100));
        // Cut: its outer packet is too long.
        if n == 0 {
            frames.push(v4(&source4, "203.0.113.80", 1475));
            frames.push(v6(&source6, "2001:db9::50", 1240));
        }
        if n % 10 == 0 {
            frames.push(v4(&source4, "192.0.2.1", 10));
            frames.push(v6(&source6, "2001:dba::1", 10));
            frames.push(v4(&source4, "8.8.8.8", 10));
        }
    }
    let marks = Arc::new(Mutex::new(Vec::with_capacity(2 * TURNS as usize)));
    let port = |frames: Vec<Vec<u8>>, marks: Arc<Mutex<Vec<u64>>>| -> Vec<Box<dyn Port>> {
        vec![Box::new(Loop { frames, turn: 0, marks, counters: PortCounters::default() })]
    };
    let turn = frames.len() as u64;
    let ports = vec![port(frames, marks.clone()), port(Vec::new(), Arc::default())];
    let memory = Memory::new(4096, 2048).unwrap();
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 4096,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let graph = graph.build().unwrap();
    let gate = ["gate4", "gate6", "solicitor", "encapsulate4", "encapsulate6"];
    let gate = gate.map(|name| (name, graph.node(name).unwrap()));
    let engine = Engine::new(graph, 1, ports, &memory, &domain, options).unwrap();
    let outcome = engine.run(|_| {});
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances() && ledger.received == TURNS * turn, "{ledger:?}");
    // Everything that the gate can do was done.
    let counters = control.counters();
    let happened = [
        Counter::Requests,
        Counter::Granted,
        Counter::GrantedDirect,
        Counter::Renewals,
        Counter::OverRate,
        Counter::Declined,
        Counter::PolicyDropped,
        Counter::Bypassed,
        Counter::FlowsMade,
    ];
    for counter in happened {
        assert!(counters.get(counter) > 0, "{counter:?}: {:?}", counters.nonzero().collect::<Vec<_>>());
    }
    assert_eq!(counters.get(Counter::RequestsUntracked) > 0, flows_room < 60, "{flows_room}");
    for (name, at) in gate {
        let node = &outcome.snapshot.nodes[at];
        assert!(node.packets >= TURNS, "{name}: {node:?}");
    }
    let marks = marks.lock().unwrap();
    // The first turns may still fill lazily made things (thread-locals, the console).
    assert_eq!(
        marks[2],
        *marks.last().unwrap(),
        "{flows_room}, {order}: allocations after each turn: {marks:?}"
    );
}

#[test]
fn the_gate_allocates_nothing() {
    for order in ["one-pass", "flow-first"] {
        run(1000, order);
        // So full that most flows find no room.
        run(20, order);
    }
}
