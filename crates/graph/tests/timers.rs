//! Nodes that keep packets are called when they have asked to be: in a run on captures at exactly those times, also between
//! two bursts and after the last one; on the wall clock without anything else that wakes the worker.

#![allow(clippy::unwrap_used)] // a test may

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::*;
use tidemill_burst::{Burst, Memory, Packet, Pool};
use tidemill_graph::record::{Event, RecordReader, Recorder, VERSION};
use tidemill_graph::replay::Replayer;
use tidemill_graph::*;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus, Wake};

const STEP_NS: u64 = 1_000_000;

/// Lets one packet go every millisecond, and notes when.
#[derive(Default)]
struct Slow {
    kept: Vec<Packet>,
    next_ns: u64,
    gone: Arc<Mutex<Vec<u64>>>,
    /// Lets none go.
    holds: bool,
}

impl Node for Slow {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], verdicts: &mut [Verdict]) {
        verdicts.fill(Verdict::Keep);
    }
    fn keep(&mut self, _: &mut Context<'_>, packet: Packet) {
        self.kept.push(packet);
    }
    fn tick(&mut self, cx: &mut Context<'_>) {
        if self.holds {
            return;
        }
        if !self.kept.is_empty() && cx.now_ns >= self.next_ns {
            self.next_ns = cx.now_ns + STEP_NS;
            self.gone.lock().unwrap().push(cx.now_ns);
            cx.release(0, self.kept.remove(0));
        }
        if !self.kept.is_empty() {
            cx.wake_at(self.next_ns);
        }
    }
    fn surrender(&mut self, pool: &mut Pool) {
        self.kept.drain(..).for_each(|packet| pool.free(packet));
    }
}

/// Bursts of so many packets at a time, then the end, or nothing more.
struct Bursts {
    left: Vec<(u64, usize)>,
    ends: bool,
    sent: Sent,
    counters: PortCounters,
}

impl Port for Bursts {
    fn name(&self) -> &str {
        "a"
    }
    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.left.is_empty() {
            return Ok(if self.ends { RxStatus::Ended } else { RxStatus::Idle { next_due_ns: None } });
        }
        let (time_ns, count) = self.left.remove(0);
        for _ in 0..count {
            let mut packet = pool.packet(&[self.counters.rx.packets as u8; 64]).unwrap();
            packet.set_timestamp_ns(time_ns);
            self.counters.rx.count(64);
            burst.push(packet).unwrap();
        }
        Ok(RxStatus::Received)
    }
    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            self.counters.tx.count(64);
            self.sent.lock().unwrap().push(number(&packet));
            pool.free(packet);
        }
        Ok(())
    }
    fn counters(&self) -> PortCounters {
        self.counters
    }
    fn wake(&mut self, _: &Waker) -> Wake<'_> {
        Wake::Told
    }
}

fn slow(gone: Arc<Mutex<Vec<u64>>>) -> Graph {
    let mut g = GraphBuilder::new(["a"]);
    g.node("slow", ["out"], move |_| Box::new(Slow { gone: gone.clone(), ..Slow::default() }));
    g.input("a", "slow").edge("slow", "out", "port:a");
    g.build().unwrap()
}

/// One port, on which these bursts come.
fn port(left: &[(u64, usize)]) -> Vec<Vec<Box<dyn Port>>> {
    let left = left.to_vec();
    let port = Bursts { left, ends: true, sent: Sent::default(), counters: PortCounters::default() };
    vec![vec![Box::new(port)]]
}

#[test]
fn a_replay_repeats_what_only_time_brings_about() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.tmrec");
    let header = Event::Header {
        version: VERSION,
        config: String::new(),
        capture_clock: true,
        ports: vec!["a".into()],
        nodes: vec!["slow".into()],
        state: Vec::new(),
    };
    let recorder = Recorder::create(&path, &header).unwrap();
    let memory = Memory::new(64, 2048).unwrap();
    let ports = port(&[(10 * STEP_NS, 5), (12 * STEP_NS + 7, 1), (30 * STEP_NS, 3)]);
    let engine = Engine::new(slow(Arc::default()), 1, ports, &memory, &Domain::new(), options(64, vec![]));
    let mut engine = engine.unwrap();
    engine.observe(0, recorder.observer());
    engine.run(|_| ());
    recorder.finish().unwrap();

    let replay = |graph: Graph| {
        let mut reader = RecordReader::open(&path).unwrap();
        assert!(matches!(reader.next_event(), Ok(Some(Event::Header { .. }))));
        let mut replayer = Replayer::new(reader, Arc::default());
        let ports = vec![vec![replayer.port(0, "a")]];
        let memory = Memory::new(64, 2048).unwrap();
        let engine = Engine::new(graph, 1, ports, &memory, &Domain::new(), options(64, vec![]));
        let mut engine = engine.unwrap();
        engine.observe(0, replayer.observer());
        replayer.advance(|_| Ok(0));
        engine.run(|_| replayer.advance(|_| Ok(0)));
        replayer.finish().0
    };
    let gone = Arc::default();
    let verdicts = replay(slow(Arc::clone(&gone)));
    assert!(verdicts.complete, "{verdicts:?}");
    assert_eq!((verdicts.checked, verdicts.wrong), (9, 0), "{:?}", verdicts.examples);
    assert_eq!(gone.lock().unwrap().len(), 9);
    // A node that lets nothing go: its packets are missed, and the replay ends.
    let mut keeps = GraphBuilder::new(["a"]);
    keeps.node("slow", ["out"], |_| Box::new(Slow { holds: true, ..Slow::default() }));
    keeps.input("a", "slow").edge("slow", "out", "port:a");
    let verdicts = replay(keeps.build().unwrap());
    assert_eq!((verdicts.checked, verdicts.wrong, verdicts.complete), (9, 9, true));
}

#[test]
fn capture_time_stops_where_nodes_asked() {
    let (gone, memory) = (Arc::default(), Memory::new(64, 2048).unwrap());
    let ports = port(&[(10 * STEP_NS, 5), (12 * STEP_NS + 7, 1), (30 * STEP_NS, 3)]);
    let graph = slow(Arc::clone(&gone));
    let engine = Engine::new(graph, 1, ports, &memory, &Domain::new(), options(64, vec![]));
    let outcome = engine.unwrap().run(|_| ());
    // Five from 10 ms on, the sixth behind them, three from 30 ms on although nothing comes any more.
    let expected: Vec<u64> = [10, 11, 12, 13, 14, 15, 30, 31, 32].iter().map(|ms| ms * STEP_NS).collect();
    assert_eq!(*gone.lock().unwrap(), expected);
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances() && ledger.held == 0 && ledger.out == 9, "{ledger:?}");
    assert_eq!((outcome.snapshot.pool.unnamed, outcome.snapshot.pool.free), (0, 64));
}

/// Wants to be called every millisecond until it has seen all packets, and notes where its time is another than theirs or than that
/// it has asked for.
struct Clockwork {
    seen: usize,
    all: usize,
    due_ns: Option<u64>,
    wrong: Arc<Mutex<Vec<[u64; 2]>>>,
}

impl Node for Clockwork {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        self.seen += burst.len();
        let latest_ns = burst.iter().map(Packet::timestamp_ns).max().unwrap();
        if cx.now_ns != latest_ns {
            self.wrong.lock().unwrap().push([cx.now_ns, latest_ns]);
        }
    }
    fn tick(&mut self, cx: &mut Context<'_>) {
        if let Some(due_ns) = self.due_ns.take_if(|due_ns| cx.now_ns >= *due_ns)
            && cx.now_ns > due_ns
        {
            self.wrong.lock().unwrap().push([cx.now_ns, due_ns]);
        }
        if (1..self.all).contains(&self.seen) {
            cx.wake_at(*self.due_ns.get_or_insert(cx.now_ns + STEP_NS));
        }
    }
}

/// Takes its time over each burst.
struct Late;

impl Node for Late {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Who follows another worker waits for what that one still has: its time is no later, however long nothing comes.
#[test]
fn capture_time_is_that_of_the_packets_behind_another_worker_too() {
    for stages in [vec![], vec![vec!["clockwork".to_owned()]]] {
        let wrong: Arc<Mutex<Vec<[u64; 2]>>> = Arc::default();
        let left: Vec<(u64, usize)> = (1..=10).map(|n| (n * 10 * STEP_NS + n, 3)).collect();
        let mut g = GraphBuilder::new(["a"]);
        let noted = Arc::clone(&wrong);
        g.node("late", ["out"], |_| Box::new(Late));
        g.node("clockwork", ["out"], move |_| {
            Box::new(Clockwork { seen: 0, all: 30, due_ns: None, wrong: noted.clone() })
        });
        g.input("a", "late").edge("late", "out", "clockwork").edge("clockwork", "out", "port:a");
        let workers = stages.len() + 1;
        let memory = Memory::new(64 * workers, 2048).unwrap();
        let placement = Placement { stages, ..Placement::simple(workers, &memory) };
        let (graph, ports) = (g.build().unwrap(), port(&left));
        let engine = Engine::placed(graph, ports, placement, &Domain::new(), options(64, vec![]));
        let ledger = engine.unwrap().run(|_| ()).snapshot.ledger();
        assert!(ledger.balances() && ledger.out == 30, "{ledger:?}");
        assert_eq!(*wrong.lock().unwrap(), Vec::<[u64; 2]>::new(), "{workers} workers");
    }
}

#[test]
fn a_sleeping_worker_wakes_when_a_node_asked() {
    let (gone, memory) = (Arc::default(), Memory::new(64, 2048).unwrap());
    let sent = Sent::default();
    let left = vec![(1, 20)];
    let port = Bursts { left, ends: false, sent: sent.clone(), counters: PortCounters::default() };
    let long = Duration::from_secs(3600);
    let idle = Idle { poll: Some(Duration::ZERO), nap: long, sleep: long };
    let placement = Placement { idle, ..Placement::simple(1, &memory) };
    let mut options = options(64, vec![]);
    options.clock = Clock::wall();
    let ports = vec![vec![Box::new(port) as Box<dyn Port>]];
    let engine = Engine::placed(slow(gone), ports, placement, &Domain::new(), options).unwrap();
    let handle = engine.handle();
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| engine.run(|_| ()));
        let start = std::time::Instant::now();
        while sent.lock().unwrap().len() < 20 {
            assert!(start.elapsed() < Duration::from_secs(120), "nobody woke the worker");
            std::thread::sleep(Duration::from_micros(100));
        }
        handle.stop();
        run.join().unwrap()
    });
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances() && ledger.held == 0, "{ledger:?}");
}
