//! The books balance whatever the nodes do, and every frame comes home.

#![allow(clippy::unwrap_used)] // a test may

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::*;
use tidemill_burst::{Burst, DropReason, Memory, Pool};
use tidemill_graph::trace::TraceRequest;
use tidemill_graph::*;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};

#[test]
fn every_packet_is_accounted_for_and_every_frame_comes_home() {
    let memory = Memory::new(8192, 2048).unwrap();
    let ((a, back), (b, sent)) = (script("a", 7000), script("b", 0));
    let trace = TraceRequest { at: "mixed".into(), packets: 4 };
    let engine = Engine::new(
        mixed_graph(100),
        1,
        vec![vec![a], vec![b]],
        &memory,
        &Domain::new(),
        options(8192, vec![trace]),
    );
    let outcome = engine.unwrap().run(|_| ());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!((ledger.received, ledger.made, ledger.consumed, ledger.held), (7000, 1000, 1000, 100));
    assert_eq!(ledger.dropped_for(DropReason::NoRoute), 1000);
    assert_eq!((outcome.snapshot.pool.unnamed, outcome.snapshot.pool.free), (0, 8192));
    let (sent, back) = (sent.lock().unwrap().clone(), back.lock().unwrap().clone());
    assert_eq!((sent.len(), back.len()), (3900, 2000));
    assert_eq!(outcome.snapshot.outputs, [[3900, 2000]]);
    let ordered: Vec<_> = sent.iter().filter(|n| *n % 7 != 2).collect();
    assert!(ordered.is_sorted(), "packets that take one path stay in order");
    // The trace of packet 3 tells the whole story.
    let steps: Vec<_> = outcome.traces.iter().filter(|t| t.id == 4).map(|t| (&*t.at, &*t.verdict)).collect();
    assert_eq!(steps, [("mixed", "next b"), ("port:b", "sent"), ("port:a", "sent")]);
    assert_eq!(outcome.traces[0].note.as_deref(), Some("number 0"));
}

#[test]
fn a_queue_that_overflows_drops_by_name() {
    let memory = Memory::new(16384, 2048).unwrap();
    let ((a, _), (b, _)) = (script("a", 256), script("b", 0));
    let mut g = GraphBuilder::new(["a", "b"]);
    g.node("multiply", ["on"], |_| Box::new(Multiply(30)));
    g.node("again", ["b"], |_| Box::new(Multiply(0)));
    g.input("a", "multiply").edge("multiply", "on", "again").edge("again", "b", "port:b");
    let engine = Engine::new(
        g.build().unwrap(),
        1,
        vec![vec![a], vec![b]],
        &memory,
        &Domain::new(),
        options(16384, vec![]),
    );
    let outcome = engine.unwrap().run(|_| ());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!(ledger.made, 256 * 30);
    // Those that the queue behind the output had no room for have taken it; copies that the node itself had no room for have not.
    let arrived = outcome.snapshot.nodes[1].packets;
    let outputs = &outcome.snapshot.outputs;
    assert_eq!((outputs[1][0], arrived + ledger.dropped_for(DropReason::QueueFull)), (arrived, 256 * 31));
    assert!((arrived + 1..256 * 31).contains(&outputs[0][0]), "{outputs:?}, {arrived}");
    assert!(ledger.dropped_for(DropReason::QueueFull) > 0);
    assert_eq!((outcome.snapshot.pool.unnamed, outcome.snapshot.pool.free), (0, 16384));
}

#[test]
fn a_port_that_fails_is_reported_and_what_came_before_is_forwarded() {
    let memory = Memory::new(1024, 2048).unwrap();
    let (b, sent) = script("b", 0);
    let counters = PortCounters::default();
    let a = Box::new(Script { name: "a", total: 999, counters, sent: Sent::default(), fail_at: Some(300) });
    let mut g = GraphBuilder::new(["a", "b"]);
    g.input("a", "port:b");
    // A port may lead straight to another: a wire.
    let graph = g.build().unwrap();
    let engine =
        Engine::new(graph, 1, vec![vec![a], vec![b]], &memory, &Domain::new(), options(1024, vec![]));
    let outcome = engine.unwrap().run(|_| ());
    assert_eq!(outcome.errors.len(), 1);
    assert_eq!(outcome.errors[0].to_string(), "port `a`: cannot receive: unplugged");
    assert_eq!(*sent.lock().unwrap(), (0..300).collect::<Vec<_>>());
    assert!(outcome.snapshot.ledger().balances());
}

/// Takes a few packets in each call.
struct Narrow {
    inner: Box<dyn Port>,
    rest: Burst,
    /// Calls that left some.
    full: Arc<AtomicU64>,
}

impl Port for Narrow {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        self.inner.rx(now_ns, pool, burst)
    }
    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain_front(100) {
            self.rest.push(packet).unwrap();
        }
        self.full.fetch_add(u64::from(!burst.is_empty()), Ordering::Relaxed);
        self.inner.tx(now_ns, pool, &mut self.rest)
    }
    fn counters(&self) -> PortCounters {
        self.inner.counters()
    }
}

/// Bursts, whole ones and a last one that is not, go straight on as they came; behind what the port has not taken yet they wait.
#[test]
fn a_wire_keeps_order_whatever_the_port_takes() {
    let memory = Memory::new(1024, 2048).unwrap();
    let ((a, _), (inner, sent)) = (script("a", 5000), script("b", 0));
    let full = Arc::new(AtomicU64::new(0));
    let b: Box<dyn Port> = Box::new(Narrow { inner, rest: Burst::new(), full: full.clone() });
    let mut g = GraphBuilder::new(["a", "b"]);
    g.input("a", "port:b");
    let graph = g.build().unwrap();
    let engine =
        Engine::new(graph, 1, vec![vec![a], vec![b]], &memory, &Domain::new(), options(1024, vec![]));
    let outcome = engine.unwrap().run(|_| ());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances() && full.load(Ordering::Relaxed) > 10, "{ledger:?}");
    assert_eq!((ledger.received, ledger.out, ledger.dropped_total()), (5000, 5000, 0));
    assert_eq!(*sent.lock().unwrap(), (0..5000).collect::<Vec<_>>());
    assert_eq!((outcome.snapshot.pool.unnamed, outcome.snapshot.pool.free), (0, 1024));
}

#[test]
fn two_workers_share_nothing_and_add_up() {
    let memory = Memory::new(4096, 2048).unwrap();
    let (ports, _sent): (Vec<_>, Vec<_>) = [("a", 5000), ("b", 0)]
        .map(|(name, total)| {
            let ((one, s1), (two, s2)) = (script(name, total), script(name, total));
            (vec![one, two], [s1, s2])
        })
        .into_iter()
        .unzip();
    let engine =
        Engine::new(mixed_graph(100), 2, ports, &memory, &Domain::new(), options(2048, vec![])).unwrap();
    let (handle, boundaries) = (engine.handle(), Arc::new(AtomicU64::new(0)));
    let count = boundaries.clone();
    let outcome = engine.run(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!((ledger.received, ledger.held), (10_000, 200));
    assert_eq!(outcome.snapshot.outputs[0].iter().sum::<u64>(), ledger.out);
    assert!(boundaries.load(Ordering::Relaxed) > 10);
    assert_eq!(handle.snapshot().ended, 2);
    assert_eq!(handle.snapshot().ledger(), ledger);
}

#[test]
fn wrong_requests_are_refused_with_what_would_be_right() {
    let memory = Memory::new(64, 2048).unwrap();
    let new = |ports, frames, traces| {
        Engine::new(mixed_graph(100), 2, ports, &memory, &Domain::new(), options(frames, traces))
            .err()
            .unwrap()
            .to_string()
    };
    let three = || vec![vec![script("a", 0).0, script("a", 0).0, script("a", 0).0], vec![script("b", 0).0]];
    assert_eq!(
        new(three(), 1, vec![]),
        "port a: 3 queues for 2 workers: give it one queue per worker, or one in all"
    );
    let one = || vec![vec![script("a", 0).0], vec![script("b", 0).0]];
    let trace = TraceRequest { at: "mixt".into(), packets: 1 };
    assert_eq!(
        new(one(), 1, vec![trace]),
        "trace: there is no node \"mixt\"; there are mixed, port:a, port:b"
    );
    assert!(new(one(), 100, vec![]).starts_with("packet memory: 100 frames asked for"));
}
