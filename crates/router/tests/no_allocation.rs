//! The data path allocates nothing: a counting allocator watches the worker while bursts go through every node.

#![allow(clippy::unwrap_used)]

#[path = "../../lookup/tests/common/allocations.rs"]
mod allocations;

use allocations::allocations;
mod common;

use common::*;
use std::sync::{Arc, Mutex};
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_graph::{Clock, Engine, Limits, Options};
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{EtherType, Protocol, icmpv4, ipv4};

/// Receives the same frames again and again, sends into nothing, and notes the allocations of its thread at each call.
struct Loop {
    frames: Vec<Vec<u8>>,
    turns: u64,
    marks: Arc<Mutex<Vec<u64>>>,
    counters: PortCounters,
}

impl Port for Loop {
    fn name(&self) -> &str {
        "loop"
    }
    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let mut marks = self.marks.lock().unwrap();
        marks.push(allocations()); // within its capacity
        if self.turns == 0 {
            return Ok(RxStatus::Ended);
        }
        self.turns -= 1;
        for frame in &self.frames {
            let packet = pool.packet(frame).unwrap();
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

#[test]
fn no_node_allocates() {
    run(false, false);
    run(true, false);
    // So slow that they are full.
    run(false, true);
}

/// Twelve of each kind.
const PER_TURN: usize = 252;

fn run(coalesce: bool, queues: bool) {
    let config = "next_hops.ports = ['lan', 'wan']\nrouter.icmp_rate_per_s = 1000000\n\
                  router.icmp_rate_per_prefix_per_s = 1000000\nneighbors.rate_per_s = 1000000\n\
                  neighbors.rate_per_source_per_s = 1000000\n[[interface]]\nport = 'lan'\nmtu = 1280\nresolve = true\n\
                  addresses = ['10.0.0.1/24', '2001:470::1/64']\n[[interface]]\nport = 'wan'\nmtu = 1280\n";
    let queue = |port: &str| {
        let lengths =
            "operational_packets = 60\nrequest_packets = 20\ngranted_packets = 60\nreseed_s = 0.000001\n";
        format!("[[queue]]\nport = '{port}'\nrate = '10 Mbps'\n{lengths}")
    };
    let queues = if queues { queue("lan") + &queue("wan") } else { String::new() };
    let config = format!("router.coalesce_tcp = {coalesce}\n{config}{queues}");
    let Router { control, domain } = Router::new(
        &config,
        routes(&[("20.0.0.0/8", 1), ("30.0.0.0/8", 2)]),
        routes(&[("2001:20::/32", 1), ("2001:30::/32", 2)]),
    );
    let (a, b, a6, b6) = ("20.0.0.1", "30.0.0.1", "2001:20::1", "2001:30::1");
    let echo = icmp4(icmpv4::Repr::EchoRequest { ident: 1, seq: 1 }, b"abc");
    let segment4 = |seq| {
        let pseudo = Pseudo::V4 { src: a.parse().unwrap(), dst: b.parse().unwrap() };
        let number = |ip: &mut ipv4::Packet<&mut Vec<u8>>| ip.set_ident(seq as u16);
        frame(LAN, EtherType::IPV4, &ip4(a, b, Protocol::TCP, &tcp(pseudo, 1, seq, 0x10, b"z"), number))
    };
    let segment6 = |seq| {
        let pseudo = Pseudo::V6 { src: a6.parse().unwrap(), dst: b6.parse().unwrap() };
        frame(LAN, EtherType::IPV6, &ip6(a6, b6, Protocol::TCP, &tcp(pseudo, 1, seq, 0x10, b"z"), |_| {}))
    };
    let kinds = [
        segment4(1),
        segment4(2),
        segment6(1),
        segment6(2),
        udp4(a, b, b"x", |_| {}),
        udp4(a, b, &[0; 1400], |_| {}),
        udp4(a, b, &[0; 1400], |ip| ip.set_fragment(true, false, 0)),
        udp4(a, b, b"x", |ip| ip.set_ttl(1)),
        udp4(a, b, b"x", |ip| ip.set_dscp_ecn(1, 0)),
        frame(LAN, EtherType::IPV4, &ip4(a, b, Protocol::IPV4, b"x", |ip| ip.set_dscp_ecn(41, 0))),
        frame(LAN, EtherType::IPV4, &ip4(a, b, Protocol::IPV4, b"x", |ip| ip.set_dscp_ecn(50, 0))),
        udp4(a, "99.0.0.1", b"x", |_| {}),
        udp4(a, "127.0.0.1", b"x", |_| {}),
        frame(LAN, EtherType::IPV4, &ip4(a, "10.0.0.1", Protocol::ICMP, &echo, |_| {})),
        udp6(a6, b6, b"x", |_| {}),
        udp6(a6, b6, &[0; 1400], |_| {}),
        udp6(a6, b6, b"x", |ip| ip.set_hop_limit(1)),
        frame(LAN, EtherType::ARP, &[0; 28]),
        udp4(a, "10.0.0.77", b"x", |_| {}),
        udp6(a6, "2001:470::77", b"x", |_| {}),
        frame(
            LAN,
            EtherType::IPV6,
            &ip6("fe80::2", "ff02::1", Protocol::ICMPV6, &[135, 0, 0, 0], |ip| ip.set_hop_limit(255)),
        ),
    ];
    let frames: Vec<_> = kinds.iter().cycle().take(PER_TURN).cloned().collect();
    let marks = Arc::new(Mutex::new(Vec::with_capacity(100)));
    let ports: Vec<Vec<Box<dyn Port>>> = [(frames, 50, marks.clone()), (Vec::new(), 0, Arc::default())]
        .into_iter()
        .map(|(frames, turns, marks)| -> Vec<Box<dyn Port>> {
            vec![Box::new(Loop { frames, turns, marks, counters: PortCounters::default() })]
        })
        .collect();
    let memory = Memory::new(4096, 2048).unwrap();
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: 4096,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let built = tidemill_router::graph(&control).build().unwrap();
    let outcome = Engine::new(built, 1, ports, &memory, &domain, options).unwrap().run(|_| {});
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances() && ledger.received == (50 * PER_TURN) as u64);
    assert!(outcome.snapshot.nodes.iter().all(|node| node.packets >= 50 * 12), "every node had work");
    let merged = outcome.snapshot.nodes.iter().map(|node| node.consumed.min(node.packets / 2)).max();
    assert!(!coalesce || merged >= Some(50 * 12), "segments were merged: {merged:?}");
    let marks = marks.lock().unwrap();
    // The first turns may still fill lazily made things (thread-locals, the console).
    assert_eq!(marks[2], *marks.last().unwrap(), "allocations after each turn: {marks:?}");
}
