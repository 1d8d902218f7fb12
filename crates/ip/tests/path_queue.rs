//! The path's queue in an engine, on capture time: shares under overload of any mixture, order, books.

#![allow(clippy::unwrap_used)] // a test may

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use tidemill_burst::{BURST, Burst, DropReason, Memory, Pool};
use tidemill_graph::{Clock, Engine, GraphBuilder, Ledger, Limits, Options};
use tidemill_ip::nodes::path_queue::{
    OUTPUTS, PathBoard, PathBudgets, PathQueue, PathQueueOptions, PathStats,
};
use tidemill_ip::queue::{ClassStats, GrantedOptions, RedParameters, wire_bytes};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};

/// A frame's fields that the tests look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    time_ns: u64,
    dscp: u8,
    /// Last byte of the destination.
    flow: u8,
    number: u32,
    len: usize,
}

impl Sample {
    fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0; self.len];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[15] = self.dscp << 2;
        // Requests are IP in IP.
        frame[23] = if self.dscp >= 3 { 4 } else { 17 };
        frame[30..34].copy_from_slice(&[10, 0, 0, self.flow]);
        frame[34..38].copy_from_slice(&self.number.to_be_bytes());
        frame
    }

    fn of(time_ns: u64, frame: &[u8]) -> Self {
        let number = u32::from_be_bytes(frame[34..38].try_into().unwrap());
        Sample { time_ns, dscp: frame[15] >> 2, flow: frame[33], number, len: frame.len() }
    }

    fn bytes(&self) -> u64 {
        wire_bytes(self.len)
    }
}

/// Frames that left, with their times.
type Sent = Vec<(u64, Vec<u8>)>;

struct Wire {
    input: VecDeque<(u64, Vec<Vec<u8>>)>,
    output: Arc<Mutex<Sent>>,
    counters: PortCounters,
}

impl Port for Wire {
    fn name(&self) -> &str {
        "wire"
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let Some((time_ns, frames)) = self.input.pop_front() else { return Ok(RxStatus::Ended) };
        for frame in frames {
            let mut packet = pool.packet(&frame).unwrap();
            packet.set_timestamp_ns(time_ns);
            self.counters.rx.count(frame.len());
            assert!(burst.push(packet).is_ok());
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            self.counters.tx.count(packet.len());
            self.output.lock().unwrap().push((now_ns, packet.data().to_vec()));
            pool.free(packet);
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

struct Run {
    sent: Sent,
    stats: PathStats,
    ledger: Ledger,
}

/// Runs one worker's queue; what waits in the end leaves too.
fn run(options: &PathQueueOptions, seed: u64, bursts: Vec<(u64, Vec<Vec<u8>>)>) -> Run {
    let (output, board) = (Arc::default(), Arc::new(PathBoard::default()));
    let (budgets, shown, what) = (PathBudgets::new(options), board.clone(), *options);
    let mut graph = GraphBuilder::new(["wire"]);
    graph.node("queue", OUTPUTS, move |_| Box::new(PathQueue::new(&what, &budgets, &shown, seed)));
    graph.input("wire", "queue").edge("queue", "out", "port:wire");
    let wire = Wire { input: bursts.into(), output: Arc::clone(&output), counters: PortCounters::default() };
    // What waits, a burst received, one to be sent, and one between.
    let frames = options.packets() + 3 * BURST;
    let memory = Memory::new(frames, 2048).unwrap();
    let engine_options = Options {
        clock: Clock::Capture,
        frames_per_worker: frames,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let ports: Vec<Vec<Box<dyn Port>>> = vec![vec![Box::new(wire)]];
    let engine = Engine::new(graph.build().unwrap(), 1, ports, &memory, &Domain::new(), engine_options);
    let outcome = engine.unwrap().run(|_| ());
    assert!(outcome.errors.is_empty());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances() && ledger.held == 0, "{ledger:?}");
    let pool = outcome.snapshot.pool;
    assert_eq!((pool.free, pool.unnamed), (pool.frames, 0), "frames are home, and none came unnamed");
    let stats = board.sum();
    let requests = stats.requests.total();
    let classes = [&stats.operational, &requests, &stats.granted];
    assert!(
        classes.iter().all(|class| class.balances()) && stats.requests.0.iter().all(ClassStats::balances)
    );
    let sum = |of: fn(&ClassStats) -> u64| classes.iter().map(|class| of(class)).sum::<u64>();
    assert_eq!((sum(|class| class.arrived), sum(|class| class.sent)), (ledger.received, ledger.out));
    for (count, reason) in [
        (stats.operational.refused, DropReason::OperationalQueueFull),
        (requests.refused, DropReason::RequestQueueFull),
        (requests.evicted, DropReason::RequestEvicted),
        (stats.granted.refused, DropReason::GrantedQueueFull),
        (stats.granted.early, DropReason::RedDrop),
    ] {
        assert_eq!(count, ledger.dropped_for(reason), "{reason:?}");
    }
    let sent = std::mem::take(&mut *output.lock().unwrap());
    assert_eq!(
        sum(|class| class.sent_bytes),
        sent.iter().map(|(_, frame)| wire_bytes(frame.len())).sum::<u64>()
    );
    Run { sent, stats, ledger }
}

const START: u64 = 1_700_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn options(bits_per_s: u64) -> PathQueueOptions {
    let red = RedParameters { min: 16.0, max: 48.0, max_p: 0.1, weight: 0.002, packet_ns: 100_000.0 };
    PathQueueOptions {
        bits_per_s,
        operational_share: 0.05,
        request_share: 0.05,
        operational: 256,
        requests: 512,
        granted: GrantedOptions { capacity: 1024, queues: 16, red, reseed_ns: 50_000_000 },
    }
}

/// Frames of a class that come in at `bits_per_s`, as (time, sample), each class numbered for itself.
fn arrivals(rng: &mut StdRng, class: usize, bits_per_s: f64, end_ns: u64) -> Vec<Sample> {
    let (mut samples, mut now, mut number) = (Vec::new(), START as f64, 0);
    if bits_per_s == 0.0 {
        return samples;
    }
    loop {
        let len = rng.random_range(60..1515);
        now += wire_bytes(len) as f64 * 8e9 / bits_per_s;
        if now >= end_ns as f64 {
            return samples;
        }
        let dscp = match class {
            0 => 0,
            1 => rng.random_range(3..64),
            _ => rng.random_range(1..3),
        };
        samples.push(Sample { time_ns: now as u64, dscp, flow: rng.random_range(0..40), number, len });
        number += 1;
    }
}

/// Bursts of what comes within half a millisecond.
fn bursts(samples: &mut [Sample]) -> Vec<(u64, Vec<Vec<u8>>)> {
    samples.sort_by_key(|sample| sample.time_ns);
    let mut bursts: Vec<(u64, Vec<Vec<u8>>)> = Vec::new();
    for sample in samples.iter_mut() {
        sample.time_ns = sample.time_ns.next_multiple_of(500_000);
        match bursts.last_mut() {
            Some((time, frames)) if *time == sample.time_ns && frames.len() < BURST => {
                frames.push(sample.frame())
            }
            _ => bursts.push((sample.time_ns, vec![sample.frame()])),
        }
    }
    bursts
}

fn class(dscp: u8) -> usize {
    match dscp {
        0 => 0,
        1 | 2 => 2,
        _ => 1,
    }
}

/// Order, as the manual page promises it. `arrived` has the time of each (class, number).
fn check_order(sent: &[Sample], arrived: &HashMap<(usize, u32), u64>) {
    let mut last: HashMap<(usize, u8), u32> = HashMap::new();
    for sample in sent {
        // Operational packets are one flow, requests of a level too, granted ones one for each destination.
        let flow = match class(sample.dscp) {
            0 => 0,
            1 => sample.dscp,
            _ => sample.flow,
        };
        let before = last.insert((class(sample.dscp), flow), sample.number);
        assert!(before.is_none_or(|before| before < sample.number), "{sample:?} behind {before:?}");
    }
    // Of those that leave later, the earliest arrival at each level.
    let mut earliest = [u64::MAX; 64];
    for sample in sent.iter().rev().filter(|sample| class(sample.dscp) == 1) {
        let higher = &earliest[usize::from(sample.dscp) + 1..];
        assert!(
            higher.iter().all(|time| *time > sample.time_ns),
            "{sample:?} overtook a higher one that waited"
        );
        let arrival = arrived[&(1, sample.number)];
        earliest[usize::from(sample.dscp)] = arrival.min(earliest[usize::from(sample.dscp)]);
    }
}

fn samples(run: &Run) -> Vec<Sample> {
    run.sent.iter().map(|(time, frame)| Sample::of(*time, frame)).collect()
}

fn times(samples: &[Sample]) -> HashMap<(usize, u32), u64> {
    samples.iter().map(|sample| ((class(sample.dscp), sample.number), sample.time_ns)).collect()
}

#[test]
fn shares_hold_over_any_second_under_any_mixture() {
    const RATE: u64 = 20_000_000;
    const BYTES: i64 = RATE as i64 / 8;
    // Bursts of the three budgets, all at their least, and the longest packet; times are whole nanoseconds and bytes whole
    // bytes: a byte for each budget.
    const BURSTS: [i64; 3] = [3076, 3076, 3076];
    const LONGEST: i64 = 1538;
    let end = START + 23 * SECOND / 10;
    for mixture in 1..27 {
        let loads = [mixture % 3, mixture / 3 % 3, mixture / 9];
        let mut rng = StdRng::seed_from_u64(mixture);
        let mut input = Vec::new();
        for (number, load) in loads.into_iter().enumerate() {
            let share = [0.05, 0.05, 0.85][number];
            // None, half of its share, three times the link.
            let bits = [0.0, share / 2.0, 3.0][load as usize] * RATE as f64;
            input.extend(arrivals(&mut rng, number, bits, end));
        }
        let bursts = bursts(&mut input);
        let run = run(&options(RATE), mixture, bursts);
        let sent = samples(&run);
        check_order(&sent, &times(&input));
        let light = |number: usize| loads[number] == 1;
        let requests = run.stats.requests.total();
        assert!(!light(0) || run.stats.operational.refused == 0, "{loads:?}: {:?}", run.stats.operational);
        assert!(!light(1) || requests.sent == requests.arrived, "{loads:?}: {requests:?}");
        let flooded = |number: usize| loads[number] == 2;
        // What has left up to each packet, by class; only while packets come, after a beginning.
        let begin = START + SECOND / 10;
        let during: Vec<_> = sent.iter().filter(|s| s.time_ns >= begin && s.time_ns < end).collect();
        let mut sums = vec![[0i64; 3]];
        for sample in &during {
            let mut sum = *sums.last().unwrap();
            sum[class(sample.dscp)] += sample.bytes() as i64;
            sums.push(sum);
        }
        let mut windows = 0;
        for i in (0..during.len()).step_by(29) {
            let first = during.partition_point(|s| s.time_ns < during[i].time_ns + SECOND);
            for j in (first..during.len()).step_by(31) {
                // Everything after the departure at i, up to and with the one at j: all of a moment or none of it.
                let from = during.partition_point(|s| s.time_ns <= during[i].time_ns);
                let to = during.partition_point(|s| s.time_ns <= during[j].time_ns);
                let ns = (during[j].time_ns - during[i].time_ns) as i64;
                let bytes = [0, 1, 2].map(|class| sums[to][class] - sums[from][class]);
                let [operational, requests, granted] = bytes;
                let (whole, share) = (BYTES * (ns / 1000) / 1_000_000, BYTES * (ns / 1000) / 20_000_000);
                let what = format!("{loads:?}: {bytes:?} in {ns} ns");
                assert!(requests <= share + BURSTS[1] + LONGEST + 1, "{what}");
                assert!(
                    bytes.iter().sum::<i64>() <= whole + BURSTS.iter().sum::<i64>() + 2 * LONGEST + 3,
                    "{what}"
                );
                if flooded(0) {
                    assert!(operational >= share - LONGEST - 2, "{what}");
                }
                if flooded(1) {
                    assert!(requests >= share - LONGEST - 2, "{what}");
                }
                if flooded(0) || flooded(2) {
                    // Nothing is left unused, but for what was ahead in the beginning.
                    let unused = BURSTS[0] + BURSTS[1] + 2 * LONGEST + 3;
                    assert!(bytes.iter().sum::<i64>() >= whole - unused, "{what}");
                }
                if flooded(2) {
                    // Operational packets have no more than their share then.
                    assert!(operational <= share + BURSTS[0] + LONGEST + 1, "{what}");
                    assert!(
                        granted >= whole - 2 * share - 2 * (BURSTS[0] + BURSTS[1]) - 4 * LONGEST - 6,
                        "{what}"
                    );
                }
                windows += 1;
            }
        }
        assert!(windows > 100 || during.len() < 1000, "{loads:?}: {windows} windows");
    }
}

#[test]
fn books_and_order_hold_whatever_comes() {
    let mut dropped = HashMap::<String, u64>::new();
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(1000 + seed);
        let rate = *[1_000_000, 20_000_000, 1_000_000_000].get(rng.random_range(0..3)).unwrap();
        let small = [1, 3, 20, 100];
        let mut size = || small[rng.random_range(0..4)];
        let mut options = options(rate);
        (options.operational, options.requests, options.granted.capacity) = (size(), size(), size());
        options.granted.queues = size();
        options.granted.red.packet_ns = 8e9 * 500.0 / rate as f64;
        options.granted.red.weight = 0.05;
        options.granted.reseed_ns = SECOND * 100_000 / rate;
        let end = START + SECOND * 5_000_000 / rate;
        let mut input = Vec::new();
        for number in 0..3 {
            let load = rng.random_range(0.0..1.5);
            input.extend(arrivals(&mut rng, number, load * rate as f64, end));
        }
        let bursts = bursts(&mut input);
        let run = run(&options, seed, bursts);
        check_order(&samples(&run), &times(&input));
        for (reason, count) in &run.ledger.dropped {
            *dropped.entry(reason.to_string()).or_default() += count;
        }
    }
    assert_eq!(dropped.len(), 5, "each reason occurred: {dropped:?}");
}

#[test]
fn an_idle_link_is_passed_at_once() {
    // A tenth of a link, in bursts that it takes at once.
    let mut input = Vec::new();
    let mut rng = StdRng::seed_from_u64(5);
    for class in [0, 2] {
        input.extend(arrivals(&mut rng, class, 5e8, START + SECOND / 100));
    }
    let bursts = bursts(&mut input);
    let frames: Vec<_> = bursts.iter().flat_map(|(_, frames)| frames.clone()).collect();
    let run = run(&options(10_000_000_000), 1, bursts);
    assert!(frames.len() > 1000);
    assert!(run.sent.iter().map(|(_, frame)| frame).eq(&frames), "as they came, classes mixed");
    for stats in [run.stats.operational, run.stats.granted] {
        assert_eq!((stats.sent, stats.longest_ns, stats.waits[0]), (stats.arrived, 0, stats.arrived));
    }
}

/// What is known by other things than its DSCP, and where the header is.
#[test]
fn frames_fall_into_classes() {
    let v4 = |dscp: u8, protocol: u8| {
        let mut frame = vec![0; 60];
        frame[12..16].copy_from_slice(&[8, 0, 0x45, dscp << 2 | 1]);
        frame[23] = protocol;
        frame
    };
    let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    let v6 = |dscp: u8, next: u8, hops: u8, kind: u8| {
        let mut frame = vec![0; 80];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14..16].copy_from_slice(&[0x60 | dscp >> 2, dscp << 6]);
        (frame[20], frame[21], frame[54]) = (next, hops, kind);
        frame
    };
    let mut arp = vec![0; 60];
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut lldp = arp.clone();
    lldp[12..14].copy_from_slice(&[0x88, 0xcc]);
    let operational = [
        v4(0, 6),
        v4(0, 4),
        tagged(&v4(0, 6)),
        // What else has a request's code point: voice, routing protocols, ICMP errors, decisions; another family in an outer packet.
        v4(46, 17),
        v4(48, 1),
        v4(48, 89),
        tagged(&v4(41, 17)),
        v4(41, 41),
        // Our ICMPv6 errors have none; they are of the class of our ICMPv4 ones.
        v6(0, 58, 64, 3),
        v6(46, 17, 9, 135),
        v6(48, 58, 255, 128),
        v6(41, 44, 64, 17),
        v6(41, 4, 64, 0),
        v6(0, 6, 64, 0),
        v6(48, 58, 255, 135),
        v6(1, 58, 255, 133),
        arp,
        lldp,
        v4(9, 4)[..20].into(),
    ];
    let granted = [v4(1, 4), v4(2, 4), tagged(&v4(2, 6)), v6(1, 41, 255, 0), v6(2, 58, 64, 135)];
    let requests = [
        (3, v4(3, 4)),
        (63, v4(63, 4)),
        (41, tagged(&v4(41, 4))),
        (46, v6(46, 41, 9, 0)),
        // A fragment of one, the first or a later one.
        (48, v6(48, 44, 255, 41)),
    ];
    let all = operational.iter().chain(&granted).chain(requests.iter().map(|(_, frame)| frame)).cloned();
    let run = run(&options(1_000_000_000), 1, vec![(START, all.collect())]);
    assert_eq!(run.stats.operational.arrived, operational.len() as u64);
    assert_eq!(run.stats.granted.arrived, granted.len() as u64);
    for (level, _) in &requests {
        assert_eq!(run.stats.requests.0[*level].sent, 1, "level {level}");
    }
}
