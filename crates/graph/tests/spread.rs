//! Devices with one queue serve two workers, both ways.

#![allow(clippy::unwrap_used)] // a test may

mod support;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use support::options;
use tidemill_burst::{Burst, Memory, Packet, Pool};
use tidemill_graph::*;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{ChannelPort, Port, PortCounters, PortError, RxStatus, Spreading, pair, spread};

const FLOWS: u8 = 40;
const EACH: u32 = 200;

/// Packet `number` of flow `flow`: UDP over IPv4.
fn frame(flow: u8, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, flow, 10, 9, 9, 9]);
    frame.extend([4, flow, 0, 53, 0, 12, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame
}

/// Feeds a port from outside, and checks what comes out of it.
struct Outside {
    port: ChannelPort,
    sent: u32,
    next: HashMap<u8, u32>,
}

impl Outside {
    fn step(&mut self, pool: &mut Pool) {
        let mut burst = Burst::new();
        while self.sent < u32::from(FLOWS) * EACH && burst.room() > 128 {
            let flow = (self.sent % u32::from(FLOWS)) as u8;
            let Some(packet) = pool.packet(&frame(flow, self.sent / u32::from(FLOWS))) else { break };
            burst.push(packet).unwrap();
            self.sent += 1;
        }
        self.port.tx(0, pool, &mut burst).unwrap();
        assert!(burst.is_empty(), "the channel has room for all");
        self.port.rx(0, pool, &mut burst).unwrap();
        for packet in burst.drain() {
            let number = u32::from_be_bytes(packet.data()[42..46].try_into().unwrap());
            let next = self.next.entry(packet.data()[29]).or_default();
            assert_eq!(number, *next, "a flow stays in order");
            *next += 1;
            pool.free(packet);
        }
    }

    fn complete(&self) -> bool {
        self.next.len() == usize::from(FLOWS) && self.next.values().all(|n| *n == EACH)
    }
}

#[test]
fn two_workers_serve_single_queue_devices_both_ways() {
    let total = u64::from(FLOWS) * u64::from(EACH);
    let memory = Memory::new(16384 + 2 * 1024, 2048).unwrap();
    let mut pool = memory.pool(16384).unwrap();
    let make = |name| {
        let (far, near) = pair("outside", name, 1 << 14);
        let options = Spreading { ring: 1 << 14, ..Spreading::default() };
        (Outside { port: far, sent: 0, next: HashMap::new() }, spread(Box::new(near), 2, options))
    };
    let ((mut left, a), (mut right, b)) = (make("a"), make("b"));
    let mut g = GraphBuilder::new(["a", "b"]);
    g.input("a", "port:b").input("b", "port:a");
    let mut options = options(1024, vec![]);
    options.clock = Clock::wall();
    let engine = Engine::new(g.build().unwrap(), 2, vec![a, b], &memory, &Domain::new(), options).unwrap();
    let handle = engine.handle();
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| engine.run(|_| ()));
        let start = Instant::now();
        while !(left.complete() && right.complete()) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", handle.snapshot().ledger());
            left.step(&mut pool);
            right.step(&mut pool);
            std::thread::yield_now();
        }
        // The devices end, so the workers do: those that follow first, then those that lead.
        left.port.finish(0, &mut pool).unwrap();
        right.port.finish(0, &mut pool).unwrap();
        run.join().unwrap()
    });
    let ledger = outcome.snapshot.ledger();
    assert!(outcome.errors.is_empty() && ledger.balances(), "{ledger:?}");
    assert_eq!((ledger.received, ledger.out, ledger.dropped_total()), (2 * total, 2 * total, 0));
    assert_eq!((ledger.made, ledger.held, outcome.snapshot.pool.unnamed), (0, 0, 0));
    for worker in handle.per_worker() {
        for port in worker.ports {
            assert!(port.rx.packets > total / 5 && port.tx.packets > total / 5, "both have their share");
        }
    }
    assert_eq!((pool.stats().free, pool.stats().unnamed), (16384, 0));
}

#[test]
fn a_stop_in_the_midst_of_traffic_leaves_nothing_behind() {
    for _ in 0..5 {
        let memory = Memory::new(16384 + 2 * 1024, 2048).unwrap();
        let mut pool = memory.pool(16384).unwrap();
        let (far, near) = pair("outside", "a", 1 << 13);
        let mut outside = Outside { port: far, sent: 0, next: HashMap::new() };
        let a = spread(Box::new(near), 2, Spreading { ring: 64, ..Spreading::default() });
        let mut g = GraphBuilder::new(["a"]);
        g.input("a", "port:a");
        let mut options = options(1024, vec![]);
        options.clock = Clock::wall();
        let engine = Engine::new(g.build().unwrap(), 2, vec![a], &memory, &Domain::new(), options).unwrap();
        let handle = engine.handle();
        let outcome = std::thread::scope(|scope| {
            let run = scope.spawn(|| engine.run(|_| ()));
            for _ in 0..50 {
                let mut burst = Burst::new();
                for n in 0..100 {
                    burst.push(pool.packet(&frame(n, 0)).unwrap()).unwrap();
                }
                outside.port.tx(0, &mut pool, &mut burst).unwrap();
                pool.free_all(&mut burst);
            }
            handle.stop();
            run.join().unwrap()
        });
        let ledger = outcome.snapshot.ledger();
        assert!(ledger.balances() && ledger.held == 0, "{ledger:?}");
        let named = ["spread-full", "port-closed", "tx-full", "tx-failed"];
        assert!(ledger.dropped.keys().all(|name| named.contains(name)), "{ledger:?}");
        let mut burst = Burst::new();
        let mut back = 0;
        while outside.port.rx(0, &mut pool, &mut burst).unwrap() == RxStatus::Received {
            back += burst.len() as u64;
            pool.free_all(&mut burst);
        }
        assert_eq!((back, outcome.snapshot.pool.unnamed), (ledger.out, 0));
        drop(outside);
        assert_eq!(
            pool.stats().unnamed,
            5000 - ledger.received,
            "only what no device took was in the channel"
        );
    }
}

/// Packets on their way to one worker, and its waker.
#[derive(Default)]
struct Lane {
    packets: Mutex<VecDeque<Packet>>,
    waker: OnceLock<Waker>,
}

/// Hands the packets of odd flows over to the other worker's instance, which sends them.
struct Swap {
    lanes: Arc<[Lane; 2]>,
    worker: usize,
}

impl Node for Swap {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter().zip(verdicts) {
            if packet.data()[29] % 2 == 1 {
                *verdict = Verdict::Keep;
            }
        }
    }
    fn keep(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let lane = &self.lanes[1 - self.worker];
        lane.packets.lock().unwrap().push_back(packet);
        cx.hand_over();
        lane.waker.get().into_iter().for_each(Waker::wake);
    }
    fn tick(&mut self, cx: &mut Context<'_>) {
        while let Some(packet) = self.lanes[self.worker].packets.lock().unwrap().pop_front() {
            cx.take_over();
            cx.release(0, packet);
        }
    }
    fn wake_with(&mut self, waker: &Waker) {
        let _ = self.lanes[self.worker].waker.set(waker.clone());
    }
    fn is_handed_packets(&self) -> bool {
        true
    }
    fn surrender(&mut self, pool: &mut Pool) {
        self.lanes[self.worker].packets.lock().unwrap().drain(..).for_each(|packet| pool.free(packet));
    }
}

#[test]
fn a_node_hands_packets_over_to_another_workers() {
    let total = u64::from(FLOWS) * u64::from(EACH);
    let memory = Memory::new(16384 + 2 * 1024, 2048).unwrap();
    let mut pool = memory.pool(16384).unwrap();
    let (far, near) = pair("outside", "a", 1 << 14);
    let a = spread(Box::new(near), 2, Spreading { ring: 1 << 14, ..Spreading::default() });
    let mut outside = Outside { port: far, sent: 0, next: HashMap::new() };
    let lanes = Arc::<[Lane; 2]>::default();
    let mut g = GraphBuilder::new(["a"]);
    g.node("swap", ["out"], move |worker| Box::new(Swap { lanes: lanes.clone(), worker }));
    g.input("a", "swap").edge("swap", "out", "port:a");
    let mut options = options(1024, vec![]);
    options.clock = Clock::wall();
    let engine = Engine::new(g.build().unwrap(), 2, vec![a], &memory, &Domain::new(), options).unwrap();
    let handle = engine.handle();
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| engine.run(|_| ()));
        let start = Instant::now();
        while !outside.complete() {
            let ledger = handle.snapshot().ledger();
            assert!(start.elapsed() < Duration::from_secs(60), "{ledger:?}");
            outside.step(&mut pool);
            std::thread::yield_now();
        }
        outside.port.finish(0, &mut pool).unwrap();
        run.join().unwrap()
    });
    let ledger = outcome.snapshot.ledger();
    assert!(outcome.errors.is_empty() && ledger.balances(), "{ledger:?}");
    assert_eq!((ledger.received, ledger.out, ledger.held, ledger.dropped_total()), (total, total, 0, 0));
    let handed: u64 = handle.per_worker().iter().map(|worker| worker.passed).sum();
    assert_eq!((handed, outcome.snapshot.taken), (total / 2, total / 2));
    assert!(handle.per_worker().iter().all(|worker| worker.held == 0), "nobody keeps anything");
}

/// Gives so many packets of as many flows, later; counts what is sent.
struct Late {
    from: Instant,
    left: u64,
    counters: PortCounters,
}

impl Port for Late {
    fn name(&self) -> &str {
        "late"
    }
    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.left == 0 {
            return Ok(RxStatus::Ended);
        }
        if Instant::now() < self.from {
            return Ok(RxStatus::Idle { next_due_ns: None });
        }
        for _ in 0..self.left.min(16) {
            let Some(packet) = pool.packet(&frame(self.left as u8, 0)) else { break };
            self.counters.rx.count(packet.len());
            burst.push(packet).unwrap();
            self.left -= 1;
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

/// Runs two workers that hand packets over to each other; what each receives, and when they are stopped.
fn hand_over(packets: [u64; 2], limits: Limits, stop_after: Option<Duration>) -> Ledger {
    let memory = Memory::new(2 * 4096, 2048).unwrap();
    let lanes = Arc::<[Lane; 2]>::default();
    let mut g = GraphBuilder::new(["late"]);
    g.node("swap", ["out"], move |worker| Box::new(Swap { lanes: lanes.clone(), worker }));
    g.input("late", "swap").edge("swap", "out", "port:late");
    let from = Instant::now() + Duration::from_millis(50);
    let late = |left| Late { from, left, counters: PortCounters::default() };
    let queues = packets.map(|left| Box::new(late(left)) as Box<dyn Port>);
    let mut options = options(4096, vec![]);
    (options.clock, options.limits) = (Clock::wall(), limits);
    let ports = vec![Vec::from(queues)];
    let engine = Engine::new(g.build().unwrap(), 2, ports, &memory, &Domain::new(), options).unwrap();
    let handle = engine.handle();
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| engine.run(|_| ()));
        if let Some(after) = stop_after {
            std::thread::sleep(after);
            handle.stop();
        }
        run.join().unwrap()
    });
    let ledger = outcome.snapshot.ledger();
    assert!(outcome.errors.is_empty() && ledger.balances(), "{ledger:?}");
    assert_eq!(outcome.snapshot.passed, outcome.snapshot.taken);
    assert_eq!((outcome.snapshot.pool.unnamed, outcome.snapshot.ended), (0, 2));
    ledger
}

/// One has nothing to receive from the beginning: it is there for what the other hands over to it.
#[test]
fn a_worker_whose_ports_have_ended_takes_what_others_hand_over() {
    for packets in [[3000, 0], [0, 3000], [1500, 3000]] {
        let ledger = hand_over(packets, Limits::default(), None);
        let all = packets.iter().sum::<u64>();
        assert_eq!((ledger.received, ledger.out, ledger.held), (all, all, 0), "{packets:?}");
    }
}

#[test]
fn nothing_is_on_its_way_when_all_have_been_stopped() {
    let after = Duration::from_millis(100);
    for _ in 0..5 {
        let ledger = hand_over([u64::MAX; 2], Limits::default(), Some(after));
        assert!(ledger.received > 0 && ledger.out == ledger.received, "{ledger:?}");
        let ledger = hand_over([u64::MAX; 2], Limits { duration: Some(after), ..Limits::default() }, None);
        assert!(ledger.received > 0 && ledger.out == ledger.received, "{ledger:?}");
        let ledger = hand_over([u64::MAX; 2], Limits { packets: Some(1000), ..Limits::default() }, None);
        assert!(ledger.received >= 2000 && ledger.out == ledger.received, "{ledger:?}");
    }
}
