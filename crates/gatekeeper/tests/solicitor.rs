//! The solicitor in an engine: the rate that requests get, who is first, who is dropped, and that all is accounted for.

#![allow(clippy::unwrap_used)] // a test may

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tidemill_burst::{BURST, Burst, DropReason, Memory, Packet, Pool};
use tidemill_gatekeeper::Tag;
use tidemill_gatekeeper::nodes::solicitor::{self, Solicitor, SolicitorBoard};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Snapshot, Verdict};
use tidemill_ip::queue::{Budget, ClassStats, wire_bytes};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};

/// A request: level, number, bytes of the IPv4 or IPv6 packet.
#[derive(Clone, Copy)]
struct Request {
    level: u8,
    number: u32,
    v6: bool,
    len: usize,
}

/// What left: when, and what.
type Left = Arc<Mutex<Vec<(u64, u8, u32, u64)>>>;

/// When each worker's next burst comes. Captures have clocks of their own: workers on one wait for who is behind, as if by one clock.
type Next = Arc<Vec<AtomicU64>>;

/// Gives bursts at their times, and keeps what it is to send.
struct Wire {
    worker: usize,
    next: Next,
    input: VecDeque<(u64, Vec<Request>)>,
    left: Left,
    counters: PortCounters,
}

impl Port for Wire {
    fn name(&self) -> &str {
        "wire"
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let next = self.input.front().map_or(u64::MAX, |(time_ns, _)| *time_ns);
        self.next[self.worker].store(next, Ordering::Relaxed);
        while self.next.iter().any(|other| other.load(Ordering::Relaxed) < next) {
            std::thread::yield_now();
        }
        let Some((time_ns, requests)) = self.input.pop_front() else { return Ok(RxStatus::Ended) };
        for request in requests {
            let mut bytes = vec![0; 14 + request.len];
            bytes[0] = request.level;
            bytes[1..5].copy_from_slice(&request.number.to_be_bytes());
            bytes[14] = if request.v6 { 0x60 } else { 0x45 };
            let mut packet = pool.packet(&bytes).unwrap();
            packet.set_timestamp_ns(time_ns);
            self.counters.rx.count(bytes.len());
            assert!(burst.push(packet).is_ok());
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            let data = packet.data();
            let outer = if data[14] == 0x45 { 20 } else { 40 };
            let number = u32::from_be_bytes(data[1..5].try_into().unwrap());
            let bytes = wire_bytes(data.len() + outer);
            self.left.lock().unwrap().push((now_ns, data[0], number, bytes));
            self.counters.tx.count(data.len());
            pool.free(packet);
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Stands for the gate.
struct Gate;

impl Node for Gate {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        for packet in burst {
            packet.l3 = 14;
            packet.label = Tag { grantor: 3, dscp: packet.data()[0] }.label();
        }
    }
}

struct Run {
    snapshot: Snapshot,
    left: Vec<(u64, u8, u32, u64)>,
    board: Arc<SolicitorBoard>,
}

fn run(capacity: usize, budget: Arc<Budget>, workers: Vec<Vec<(u64, Vec<Request>)>>) -> Run {
    let (left, board) = (Left::default(), Arc::new(SolicitorBoard::default()));
    let count = workers.len();
    let mut graph = GraphBuilder::new(["wire"]);
    graph.node("gate", ["request"], |_| Box::new(Gate));
    let shown = board.clone();
    graph.node("solicitor", solicitor::OUTPUTS, move |_| {
        Box::new(Solicitor::new(capacity, budget.clone(), &shown))
    });
    graph.input("wire", "gate").edge("gate", "request", "solicitor");
    for output in solicitor::OUTPUTS {
        graph.edge("solicitor", output, "port:wire");
    }
    let next: Next = Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
    let port = |(worker, input): (usize, Vec<_>)| {
        let (next, left, counters) = (next.clone(), left.clone(), PortCounters::default());
        Box::new(Wire { worker, next, input: input.into(), left, counters }) as Box<dyn Port>
    };
    let ports = vec![workers.into_iter().enumerate().map(port).collect()];
    let frames = capacity + 4 * BURST;
    let memory = Memory::new(count * frames, 2048).unwrap();
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: frames,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let engine = Engine::new(graph.build().unwrap(), count, ports, &memory, &Domain::new(), options);
    let outcome = engine.unwrap().run(|_| ());
    assert!(outcome.errors.is_empty());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances() && ledger.held == 0, "{ledger:?}");
    let pool = outcome.snapshot.pool;
    assert_eq!((pool.free, pool.unnamed), (pool.frames, 0), "frames are home, and none came unnamed");
    let left = left.lock().unwrap().clone();
    let levels = board.sum();
    assert!(levels.0.iter().all(ClassStats::balances));
    let total = levels.total();
    assert_eq!((total.arrived, total.sent), (ledger.received, ledger.out));
    assert_eq!(total.refused, ledger.dropped_for(DropReason::RequestQueueFull));
    assert_eq!(total.evicted, ledger.dropped_for(DropReason::RequestEvicted));
    assert_eq!(total.sent_bytes, left.iter().map(|(.., bytes)| bytes).sum::<u64>());
    Run { snapshot: outcome.snapshot, left, board }
}

const START: u64 = 1_700_000_000_000_000_000;
const MS: u64 = 1_000_000;

/// Ten times what fits, at random levels, for 200 ms.
fn flood(seed: u64) -> Vec<(u64, Vec<Request>)> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut number = 0;
    let mut bursts = Vec::new();
    let mut now = START;
    for _ in 0..1000 {
        let count = rng.random_range(1..=BURST);
        // 5 % of 10 Gbps is 62.5 bytes per us; a request has about 200.
        now += count as u64 * 200 * 1000 / 625;
        let request = |_| {
            number += 1;
            let level = *[63, 55, 30, 3].get(rng.random_range(0..40)).unwrap_or(&41);
            Request { level, number, v6: rng.random_bool(0.3), len: rng.random_range(40..300) }
        };
        bursts.push((now, (0..count).map(request).collect()));
    }
    bursts
}

#[test]
fn a_flood_gets_its_share_and_the_urgent_are_served() {
    let budget = solicitor::budget(10_000_000_000, solicitor::SHARE);
    assert_eq!((budget.bits_per_s(), budget.burst()), (500_000_000, 62_500));
    let input = flood(1);
    let arrived: Vec<Request> = input.iter().flat_map(|(_, requests)| requests.clone()).collect();
    let run = run(500, budget, vec![input.clone()]);
    // Over any span no more than the rate, the burst, and a packet (of at most 300 + 40 + 14 + 24 bytes); and no less than
    // the rate as long as requests come, but for the burst that a full purse cannot hold.
    let (first, last) = (input[0].0, input[input.len() - 1].0);
    let mut sums = vec![0];
    run.left.iter().for_each(|(.., bytes)| sums.push(sums[sums.len() - 1] + bytes));
    let most = |ns: u64| 62_500 + ns * 625 / 10_000 + 378 + 1;
    for (i, (from, ..)) in run.left.iter().enumerate().step_by(97) {
        for (j, (to, ..)) in run.left.iter().enumerate().skip(i) {
            assert!(sums[j + 1] - sums[i] <= most(to - from), "from {from} to {to}");
        }
    }
    let during = run.left.iter().filter(|(time, ..)| *time <= last).map(|(.., bytes)| bytes).sum::<u64>();
    assert!(during >= (last - first) * 625 / 10_000, "{during} bytes in {} ns", last - first);
    // Levels 55 and 63 are a quarter of what fits each: none is lost, and the higher waits less. All the rest is level 41's.
    let levels = run.board.sum();
    let mean = |level: usize| levels.0[level].waited_ns / levels.0[level].sent;
    for level in [55, 63] {
        let high = arrived.iter().filter(|request| request.level == level).count() as u64;
        let stats = levels.0[usize::from(level)];
        assert_eq!((stats.arrived, stats.sent), (high, high), "level {level}");
    }
    assert!(mean(63) < mean(55) && mean(55) < mean(41), "{} {} {}", mean(63), mean(55), mean(41));
    let lower = levels.0[3].sent + levels.0[30].sent;
    assert!(lower <= 500, "only while the queue filled, or in the end: {lower}");
    assert!(run.snapshot.ledger().dropped_for(DropReason::RequestEvicted) > 0);
}

#[test]
fn among_those_that_wait_the_highest_goes_first_and_equals_in_order() {
    let budget = Arc::new(Budget::new(8_000_000, 3_000)); // a byte per us
    let request = |number: u32, level| Request { level, number, v6: false, len: 100 };
    let levels = [5, 5, 9, 41, 5, 41, 63, 9, 3];
    let burst: Vec<_> = levels.iter().enumerate().map(|(n, level)| request(n as u32, *level)).collect();
    // An earlier one of the lowest level that has the link to itself, then a burst that waits.
    let first: Vec<_> = (100..122).map(|n| request(n, 7)).collect();
    let run = run(100, budget, vec![vec![(START, first), (START + 1, burst), (START + 100 * MS, vec![])]]);
    let order: Vec<_> =
        run.left.iter().map(|(_, level, number, _)| (*level, *number)).filter(|(_, n)| *n < 100).collect();
    assert_eq!(order, [(63, 6), (41, 3), (41, 5), (9, 2), (9, 7), (5, 0), (5, 1), (5, 4), (3, 8)]);
    // 158 bytes each on the wire: 14 + 20 + 100 + 24. The 19th began while something of 3,000 was left.
    assert!(run.left.iter().all(|(.., bytes)| *bytes == 158));
    assert_eq!(run.left.iter().filter(|(time, ..)| *time == START).count(), 19);
    let last = run.left[run.left.len() - 1].0;
    // 31 packets; the last one starts when all before it have been paid for and one byte more.
    assert_eq!(last, START + (30 * 158 - 3_000 + 1) * 1_000);
}

/// Over any span all of them together send no more than the rate, what may go at once, and a packet each; and no less than the rate as long as one has enough that waits.
fn workers_share(workers: Vec<Vec<(u64, Vec<Request>)>>) -> Run {
    // 62.5 bytes per us, of which 10,000 may go at once: fewer than a turn can send.
    const BURST_BYTES: u64 = 10_000;
    let budget = Arc::new(Budget::new(500_000_000, BURST_BYTES));
    let (count, last) = (workers.len() as u64, workers[0][workers[0].len() - 1].0);
    let mut run = run(500, budget, workers);
    run.left.sort_unstable();
    let mut sums = vec![0];
    run.left.iter().for_each(|(.., bytes)| sums.push(sums[sums.len() - 1] + bytes));
    let most = |ns: u64| BURST_BYTES + ns * 625 / 10_000 + count * 378 + 1;
    for (i, (from, ..)) in run.left.iter().enumerate().step_by(97) {
        for (j, (to, ..)) in run.left.iter().enumerate().skip(i) {
            assert!(sums[j + 1] - sums[i] <= most(to - from), "from {from} to {to}");
        }
    }
    let during = run.left.iter().filter(|(time, ..)| *time <= last).map(|(.., bytes)| bytes).sum::<u64>();
    assert!(during + BURST_BYTES >= (last - START) * 625 / 10_000, "{during} bytes in {} ns", last - START);
    run
}

#[test]
fn several_workers_share_one_rate() {
    // Each alone has ten times what fits.
    let begins = |seed| -> Vec<_> { flood(seed).into_iter().take(300).collect() };
    for count in [2, 3] {
        let run = workers_share((0..count).map(begins).collect());
        assert!(run.snapshot.ledger().dropped_for(DropReason::RequestEvicted) > 0);
    }
}

/// Who has little leaves the rest to who has much: nobody has a part of his own. And all of the little goes.
#[test]
fn a_worker_with_little_leaves_the_rest_to_another() {
    let few = |number| Request { level: 3, number: number | 1 << 24, v6: false, len: 100 };
    // A hundredth of the rate, for as long as the flood lasts.
    let flood: Vec<_> = flood(1).into_iter().take(300).collect();
    let last = flood[flood.len() - 1].0;
    let steps = (last - START) / 250_000;
    let little: Vec<_> = (0..=steps).map(|n| (START + n * 250_000, vec![few(n as u32)])).collect();
    let sent = little.len();
    let run = workers_share(vec![flood, little]);
    let of_little = run.left.iter().filter(|(_, _, number, _)| number >> 24 == 1).count();
    assert_eq!(of_little, sent, "none was refused, and none is left");
}
