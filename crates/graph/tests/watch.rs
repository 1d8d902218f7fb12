//! Traces and captures come and go while workers run, and leave no mark on the books.

#![allow(clippy::unwrap_used)] // a test may

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::*;
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_graph::trace::TraceRequest;
use tidemill_graph::*;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::capture::Sense;
use tidemill_port::{NullPort, Port, PortCounters, PortError, RxStatus, Supply, pair};

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Takes a few packets at each call.
struct Slow(Box<dyn Port>, usize);

impl Port for Slow {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn rx(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        self.0.rx(now, pool, burst)
    }
    fn tx(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let mut part = Burst::new();
        burst.drain_front(self.1).for_each(|p| part.push(p).unwrap());
        self.0.tx(now, pool, &mut part)
    }
    fn finish(&mut self, now: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.0.finish(now, pool)
    }
    fn counters(&self) -> PortCounters {
        self.0.counters()
    }
}

/// Two workers with 3,500 numbered packets each.
fn scripts(memory: &Arc<Memory>) -> (Engine, Vec<Sent>) {
    let mut sent = Vec::new();
    let mut port = |name, total, slow| {
        let queue = |_| {
            let (port, numbers) = script(name, total);
            sent.push(numbers);
            Box::new(Slow(port, slow)) as Box<dyn Port>
        };
        (0..2).map(queue).collect::<Vec<_>>()
    };
    let ports = vec![port("a", 3500, 256), port("b", 0, 100)];
    let engine = Engine::new(mixed_graph(50), 2, ports, memory, &Domain::new(), options(2048, vec![]));
    (engine.unwrap(), sent)
}

fn all(capture: &mut Capture) -> Vec<Captured> {
    std::iter::from_fn(|| capture.receive()).collect()
}

fn numbers(copies: &[Captured], worker: usize) -> Vec<u64> {
    let of = copies.iter().filter(|copy| copy.worker == worker);
    of.map(|copy| u64::from_be_bytes(copy.bytes[..8].try_into().unwrap())).collect()
}

#[test]
fn a_capture_sees_exactly_what_passes() {
    let memory = Memory::new(4096, 2048).unwrap();
    let (engine, sent) = scripts(&memory);
    let handle = engine.handle();
    let capture = |at, room| handle.capture(at, room).unwrap();
    let (mut node, mut tiny) = (capture("mixed", 10_000), capture("mixed", 16));
    let (mut rx, mut tx) = (capture("port:a:rx", 10_000), capture("port:b:tx", 10_000));
    let (mut both, none) = (capture("port:a", 10_000), capture("port:b:rx", 10_000));
    let outcome = engine.run(|_| ());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances() && outcome.snapshot.pool.unnamed == 0, "{ledger:?}");
    assert_eq!(outcome.snapshot.nodes[0].packets, 7000);
    assert_eq!((node.waiting(), node.missed(), node.ended()), (7000, 0, false));
    let copies = all(&mut node);
    assert!(node.ended() && copies.iter().all(|c| c.node == Some(0) && c.sense == Sense::Unknown));
    for worker in 0..2 {
        assert_eq!(numbers(&copies, worker), (0..3500).collect::<Vec<_>>());
    }
    // Nobody read this one: the first 16, and every other packet counted.
    assert_eq!((tiny.missed(), all(&mut tiny).len()), (7000 - 16, 16));
    let copies = all(&mut rx);
    assert_eq!(numbers(&copies, 1), (0..3500).collect::<Vec<_>>());
    let good = |c: &Captured| (c.port, c.sense, c.node, c.bytes.len()) == (0, Sense::Inbound, None, 64);
    assert!(copies.iter().all(good));
    let times: Vec<_> = copies.iter().filter(|c| c.worker == 0).map(|c| c.timestamp_ns).collect();
    assert_eq!(
        (times[0], times[1], times[3499]),
        (255_000, 1000, 3_499_000),
        "a packet without a time has the burst's"
    );
    // A port that takes packets bit by bit is given each once.
    let copies = all(&mut tx);
    assert!(copies.iter().all(|c| (c.port, c.sense) == (1, Sense::Outbound)));
    assert_eq!(
        (numbers(&copies, 0), numbers(&copies, 1)),
        (sent[2].lock().unwrap().clone(), sent[3].lock().unwrap().clone(),)
    );
    let copies = all(&mut both);
    assert_eq!(copies.len(), 7000 + sent[0].lock().unwrap().len() + sent[1].lock().unwrap().len());
    assert_eq!((none.waiting(), none.missed(), none.ended()), (0, 0, true));
    assert_eq!(handle.capture("mixed", 1).err().unwrap().to_string(), "the run has ended");
}

#[test]
fn traces_and_captures_start_and_stop_while_two_workers_run() {
    let memory = Memory::new(2048, 2048).unwrap();
    let frames: Arc<[Vec<u8>]> = (0..100u64).map(|n| [n.to_be_bytes(), [0; 8]].concat()).collect();
    let supply = Supply::Frames(frames);
    let port = |name, supply: &Supply| -> Vec<Box<dyn Port>> {
        (0..2).map(|_| Box::new(NullPort::new(name, supply.clone(), 0, None)) as Box<dyn Port>).collect()
    };
    let ports = vec![port("a", &supply), port("b", &Supply::Nothing)];
    let mut options = options(1024, vec![]);
    options.clock = Clock::wall();
    let engine = Engine::new(mixed_graph(50), 2, ports, &memory, &Domain::new(), options).unwrap();
    let handle = engine.handle();
    assert_eq!(
        (handle.node_names(), handle.port_names()),
        (&["mixed".into()][..], &["a".into(), "b".into()][..])
    );
    let ended = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let outcome = engine.run(|_| ());
            ended.store(true, Ordering::Release);
            outcome
        });
        wait_for("packets", || handle.snapshot().ports[0].rx.packets > 1000);
        for round in 0..20 {
            let mut capture = handle.capture(["mixed", "port:a", "port:b:tx"][round % 3], 64).unwrap();
            let mut seen = 0;
            wait_for("copies", || {
                seen += all(&mut capture).len();
                seen > 500
            });
            let before = handle.traces(0).last().map_or(0, |entry| entry.seq + 1);
            handle.trace(&TraceRequest { at: "mixed".into(), packets: 3 }).unwrap();
            // Three packets of each worker, at the node alone or at the port behind it too.
            wait_for("traces", || handle.traces(before).iter().filter(|e| e.at == "mixed").count() == 6);
        }
        assert!(!ended.load(Ordering::Acquire), "all this happened while they ran");
        let entries = handle.traces(0);
        assert!(entries.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq));
        assert!(entries.iter().any(|e| e.at == "port:b" && e.verdict == "sent"));
        assert!(
            (0..2)
                .all(|worker| entries.iter().filter(|e| e.worker == worker && e.at == "mixed").count() == 60)
        );
        handle.stop();
        run.join().unwrap()
    });
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!((outcome.snapshot.pool.unnamed, outcome.snapshot.pool.free), (0, 2048));
    assert!(outcome.traces.is_sorted_by_key(|entry| entry.worker));
}

#[test]
fn a_sleeping_worker_takes_orders_and_is_not_busy() {
    let memory = Memory::new(4096, 2048).unwrap();
    let mut feed = memory.pool(1000).unwrap();
    let ((mut far, a0), (_far1, a1)) = (pair("far", "a", 512), pair("far", "a", 512));
    let ((_b, b0), (_b1, b1)) = (pair("far", "b", 512), pair("far", "b", 512));
    let ports: Vec<Vec<Box<dyn Port>>> =
        vec![vec![Box::new(a0), Box::new(a1)], vec![Box::new(b0), Box::new(b1)]];
    let mut g = GraphBuilder::new(["a", "b"]);
    g.input("a", "port:b").input("b", "port:a");
    let mut options = options(1024, vec![]);
    options.clock = Clock::wall();
    let engine = Engine::new(g.build().unwrap(), 2, ports, &memory, &Domain::new(), options).unwrap();
    let handle = engine.handle();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| engine.run(|_| ()));
        wait_for("sleep", || handle.per_worker().iter().all(|worker| worker.elapsed_ns > 20_000_000));
        assert!(handle.per_worker().iter().all(|worker| worker.busy_ns == 0));
        let mut capture = handle.capture("port:a", 100).unwrap();
        handle.trace(&TraceRequest { at: "port:a".into(), packets: 1 }).unwrap();
        // Counters are shown twice a turn at most: behind the third time is a turn that has begun since, and has taken both.
        for _ in 0..3 {
            let before: Vec<u64> = handle.per_worker().iter().map(|worker| worker.elapsed_ns).collect();
            wait_for("a turn", || {
                let workers = handle.per_worker();
                workers.iter().zip(&before).all(|(worker, before)| worker.elapsed_ns > *before)
            });
        }
        let mut burst = Burst::new();
        (0..50u64).for_each(|n| burst.push(feed.packet(&n.to_be_bytes()).unwrap()).unwrap());
        far.tx(0, &mut feed, &mut burst).unwrap();
        let mut copies = Vec::new();
        wait_for("copies", || {
            copies.extend(all(&mut capture));
            copies.len() == 50
        });
        assert_eq!(numbers(&copies, 0), (0..50).collect::<Vec<_>>());
        wait_for("traces", || handle.traces(0).len() == 2);
        wait_for("counters", || handle.per_worker()[0].busy_ns > 0);
        handle.stop();
        let outcome = run.join().unwrap();
        let workers = handle.per_worker();
        assert_eq!((workers[1].busy_ns, outcome.snapshot.busy_ns), (0, workers[0].busy_ns));
        assert!(workers[0].busy_ns < workers[0].elapsed_ns);
    });
}

#[test]
fn wrong_places_are_refused_with_what_there_is() {
    let memory = Memory::new(4096, 2048).unwrap();
    let (engine, _) = scripts(&memory);
    let handle = engine.handle();
    let trace =
        |at: &str| handle.trace(&TraceRequest { at: at.into(), packets: 1 }).err().unwrap().to_string();
    assert_eq!(trace("port:b:tx"), "trace: there is no node \"port:b:tx\"; there are mixed, port:a, port:b");
    assert_eq!(
        handle.capture("port:c", 1).err().unwrap().to_string(),
        "capture: there is no node \"port:c\"; there are mixed, port:a, port:b (also port:NAME:rx and port:NAME:tx)"
    );
    for _ in 0..64 {
        handle.trace(&TraceRequest { at: "port:a:rx".into(), packets: 1 }).unwrap();
    }
    // Nobody runs yet to take them.
    assert_eq!(trace("mixed"), "worker 0 is behind with earlier requests to trace or capture: try again");
}
