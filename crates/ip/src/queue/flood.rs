//! A request flood in virtual time: what the solicitor's queue and budget make of it, for tests and figures.
//!
//! The decisions are those of production ([`Requests`], [`Purse`]); arrivals and turns are made up. Workers run in step, each
//! with its own sources; one turn takes [`TURN_NS`], whatever comes.

use super::{Budget, Levels, Purse, Requests};
use std::sync::Arc;
use tidemill_port::rng::Rng;

/// How often a worker comes round.
pub const TURN_NS: u64 = 10_000;

/// Requests of one level that come evenly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Source {
    /// 0 to 63.
    pub level: u8,
    /// Requests per second.
    pub per_s: f64,
    /// Bytes of each on the wire.
    pub bytes: u64,
}

/// A flood.
#[derive(Debug, Clone, PartialEq)]
pub struct Flood {
    /// What comes to each worker.
    pub workers: Vec<Vec<Source>>,
    /// Requests that each worker has room for.
    pub capacity: usize,
    /// The rate that requests have together, in bits per second.
    pub bits_per_s: u64,
    /// What may go at once, in time at that rate.
    pub burst_ns: u64,
    /// For how long.
    pub seconds: f64,
}

/// Runs it. Returns each worker's counters: waits by level are in them.
pub fn simulate(flood: &Flood, seed: u64) -> Vec<Levels> {
    let budget = Arc::new(Budget::with_burst_ns(flood.bits_per_s, flood.burst_ns));
    let mut random = Rng::new(seed);
    let mut workers: Vec<_> = flood
        .workers
        .iter()
        .map(|sources| {
            // Each source begins at a time of its own.
            let due: Vec<f64> = sources.iter().map(|_| random.unit()).collect();
            (Requests::new(flood.capacity), Purse::new(budget.clone()), sources, due)
        })
        .collect();
    let mut arrivals = Vec::new();
    for turn in 0..(flood.seconds * 1e9 / TURN_NS as f64) as u64 {
        let now_ns = turn * TURN_NS;
        for (requests, purse, sources, due) in &mut workers {
            arrivals.clear();
            for (source, due) in sources.iter().zip(due) {
                *due += source.per_s * TURN_NS as f64 / 1e9;
                arrivals.extend((0..*due as u64).map(|_| (source.level, source.bytes)));
                *due = due.fract();
            }
            // In any order (Fisher and Yates).
            for last in (1..arrivals.len()).rev() {
                arrivals.swap(last, random.below(last as u64 + 1) as usize);
            }
            arrivals.retain(|(level, _)| requests.admits(*level));
            for (level, bytes) in &arrivals {
                requests.push(now_ns, *level, *bytes, ());
            }
            purse.draw(now_ns, requests.waiting_bytes());
            while purse.has_any() {
                let Some((_, bytes, ())) = requests.pop(now_ns) else { break };
                purse.spend(bytes);
            }
            purse.settle(now_ns, !requests.is_empty());
        }
    }
    workers.into_iter().map(|(requests, ..)| requests.levels().clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{ClassStats, Sum};
    use super::*;

    /// 5 % of 10 Gbps.
    fn flood(workers: Vec<Vec<Source>>) -> Flood {
        Flood { workers, capacity: 1024, bits_per_s: 500_000_000, burst_ns: 1_000_000, seconds: 0.5 }
    }

    fn source(level: u8, per_s: f64) -> Source {
        Source { level, per_s, bytes: 130 }
    }

    #[test]
    fn requests_wait_by_priority() {
        // 480,000 per second fit. An attacker's new flows at level 41, and clients that waited before they asked again.
        let mut sources = vec![source(41, 15e6)];
        sources.extend((42..=50).map(|level| source(level, 20_000.0)));
        let levels = simulate(&flood(vec![sources]), 1).remove(0);
        assert!(levels.0.iter().all(ClassStats::balances));
        let at = |level: usize| levels.0[level];
        for level in 42..=50 {
            assert_eq!(at(level).sent + at(level).waiting, at(level).arrived, "level {level}");
            assert!(at(level).longest_ns <= TURN_NS, "served in their turn: level {level}");
        }
        assert!(at(41).refused > 7_000_000);
        // 1,024 places at 300,000 per second.
        let mean = at(41).waited_ns / at(41).sent;
        assert!((2_900_000..3_700_000).contains(&mean), "{mean}");
        // The share is used up, and not more than that.
        let bytes = levels.total().sent_bytes;
        let share = 500_000_000 / 8 / 2;
        assert!((share - 2_000..=share + 62_500 + 130).contains(&bytes), "{bytes} of {share}");
    }

    #[test]
    fn when_even_the_urgent_are_too_many_the_most_urgent_go_first() {
        let sources = (40..50).map(|level| source(level, 100_000.0)).collect();
        let levels = simulate(&flood(vec![sources]), 2).remove(0);
        let part = |level: usize| levels.0[level].sent as f64 / levels.0[level].arrived as f64;
        assert!((46..50).all(|level| part(level) > 0.999), "{:?}", (40..50).map(part).collect::<Vec<_>>());
        assert!((40..45).all(|level| part(level) < 0.05), "but for the beginning");
    }

    /// One worker has nearly all requests: together they get the whole, which fixed parts would not give them.
    #[test]
    fn an_unequal_load_wastes_nothing() {
        let few = vec![source(41, 1_000.0)];
        let workers = simulate(&flood(vec![vec![source(41, 10e6)], few.clone(), few.clone(), few]), 3);
        let mut total = Levels::default();
        workers.iter().for_each(|levels| total.add(levels));
        let share = 500_000_000 / 8 / 2;
        assert!(total.total().sent_bytes >= share - 2_000);
        for levels in &workers[1..] {
            let stats = levels.0[41];
            assert_eq!(stats.refused + stats.evicted, 0, "who has few loses none");
        }
    }
}
