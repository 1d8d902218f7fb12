//! Figure 4 and Table 1: what a lookup in software executes, and what it waits for.
//!
//! **Figure 4, simulated caches** (the paper reads a real machine's counters): misses by a thousand loads, and the part of the time that they cost, of the paper's
//! cuckoo table filled to 0.95 and of a table with a single hash function (SFH). The latter is the same table with five times the slots: filled to 0.2, as the paper
//! finds such tables, all but a few of its keys lie in their first bucket, so that a lookup is one bucket and one entry, and its buckets take
//! five times the room. What misses cost is found by taking them away: the same caches, with DRAM as near as the LLC, then with both as near as the L2.
//!
//! **Table 1** is a count, made by callgrind ([`crate::mix`]).

use super::breakdown::{KINDS, lock_instructions};
use super::run::{Asking, Outcome, Series, single};
use super::{Options, Place, Point, Progress, StudyError, in_parallel};
use crate::machine::{Config, Memory};
use crate::mix::{FLOWTABLE, KEYSTORE, Mix};
use crate::workload::Filled;
use tidemill_flow::keystore::Keystore;

/// Flows.
const FLOWS: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 4_000_000];

/// A table of Figure 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Two buckets for each key.
    Cuckoo,
    /// A single hash function.
    Sfh,
}

impl Kind {
    /// As in the figure.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Cuckoo => "cuckoo",
            Kind::Sfh => "single hash function",
        }
    }

    /// Slots for so many flows.
    fn slots(self, flows: u64) -> u64 {
        match self {
            Kind::Cuckoo => flows * 100 / 95 + 8,
            Kind::Sfh => flows * 5,
        }
    }
}

/// What lookups of a table miss and wait for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Misses {
    /// By a thousand loads: loads that L2 has not, those of them that the LLC has not either. A packet's own line, which comes from the LLC, is among the former.
    pub by_thousand: [f64; 2],
    /// Percent of the time that goes to lines from the LLC, and to lines from DRAM.
    pub stalled: [f64; 2],
    /// Buckets that a lookup looks at: entries in their second bucket make it more than 1.
    pub buckets: f64,
}

/// A machine of the same caches whose DRAM is as near as its LLC; with `l2` both are one cycle behind the L2.
fn nearer(config: &Config, l2: bool) -> Config {
    let mut config = config.clone();
    if l2 {
        config.cache.slice_cycles = 1.0;
        config.cache.slice_busy_cycles = 0.1;
        config.cache.llc_cycles = config.cache.l2_cycles + 1.0;
        config.mesh.hop_cycles = 0.0;
    }
    config.dram.load_ns = config.cache.llc_cycles / config.ghz;
    config.dram.line_ns = 0.01;
    config
}

/// Runs one table.
///
/// # Errors
/// [`StudyError`].
pub fn misses(kind: Kind, flows: u64, options: &Options) -> Result<Misses, StudyError> {
    let mut memory = Memory::new(&options.config);
    let table: Filled<Keystore<2>> = Filled::new(&mut memory, kind.slots(flows), flows, options.seed)?;
    let of = |memory: Memory| -> Outcome {
        single(memory, &table, Series::Software(options.mix), options, Asking::default())
    };
    let whole = of(memory.clone());
    let without_dram = of(memory.retimed(&nearer(&options.config, false)));
    let without_llc = of(memory.retimed(&nearer(&options.config, true)));
    let loads = whole.loads.max(1) as f64;
    let thousand = |count: u64| 1e3 * count as f64 / loads;
    let percent = |ns: f64| 100.0 * ns / whole.ns();
    Ok(Misses {
        by_thousand: [thousand(whole.counts.l2_misses), thousand(whole.counts.dram)],
        stalled: [percent(without_dram.ns() - without_llc.ns()), percent(whole.ns() - without_dram.ns())],
        buckets: table.buckets(20_000),
    })
}

/// Figure 4.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    let most = 1_u64 << options.most;
    let cases: Vec<(Kind, u64)> = FLOWS
        .into_iter()
        .filter(|&flows| flows <= most)
        .flat_map(|flows| [(Kind::Cuckoo, flows), (Kind::Sfh, flows)])
        .collect();
    let case = |&(kind, flows): &(Kind, u64)| -> Result<Vec<Point>, StudyError> {
        let misses = misses(kind, flows, options)?;
        let mut points = Vec::new();
        for (i, place) in ["L2", "LLC"].into_iter().enumerate() {
            for (panel, y) in [
                ("misses by a thousand loads (simulated caches)", misses.by_thousand[i]),
                ("time lost to misses, percent (simulated)", misses.stalled[i]),
            ] {
                let (series, x) = (format!("{}, {place}", kind.name()), Place::Number(flows as f64));
                points.push(Point { panel, series, x, y, paper: None });
            }
        }
        Ok(points)
    };
    let points: Result<Vec<_>, _> = in_parallel(options.jobs, &cases, progress, case).into_iter().collect();
    Ok(points?.into_iter().flatten().collect())
}

/// A kind of lookup as it was counted: our production table finds what it has, and that it has not, in one bucket.
fn counted(
    mix: &Mix,
    (name, buckets, entries): (&'static str, f64, f64),
) -> Option<(&'static str, f64, f64)> {
    match (mix.name == FLOWTABLE.name, name) {
        (true, "other bucket") => None,
        (true, _) => Some((name, 1.0, entries)),
        _ => Some((name, buckets, entries)),
    }
}

/// Table 1: the paper's 210 instructions, 36.2 % of them loads and 11.8 % stores, are an average that it does not say more of.
pub fn instructions(options: &Options) -> Vec<Point> {
    let mut points = Vec::new();
    for mix in [options.mix, KEYSTORE, FLOWTABLE] {
        let is_papers = mix.name == options.mix.name;
        for (name, buckets, entries) in KINDS.into_iter().filter_map(|kind| counted(&mix, kind)) {
            let all = mix.instructions(buckets, entries);
            let [loads, stores] = mix.memory(buckets, entries).map(|of| 100.0 * of / all);
            for (panel, y, paper) in [
                ("instructions of a lookup (callgrind's counts)", all, 210.0),
                ("of them loads, percent", loads, 36.2),
                ("of them stores, percent", stores, 11.8),
                (
                    "of them locks, percent (the paper: of the time)",
                    lock_instructions(&mix, buckets, entries),
                    13.1,
                ),
            ] {
                let (series, x) = (mix.name.into(), Place::Name(name.into()));
                points.push(Point { panel, series, x, y, paper: is_papers.then_some(paper) });
            }
        }
    }
    points
}
