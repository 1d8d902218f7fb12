//! How many cache lines an operation touches, told by the probe.

use super::keys::{ABSENT, Block, drawn};
use super::tables::Subject;
use super::work::{Filled, Plan};
use anyhow::Result;
use std::cell::RefCell;
use std::time::Duration;
use tidemill_lookup::probe::Probe;

/// Loads at which lines are counted.
pub(super) const LOADS: [f64; 3] = [0.5, 0.9, 0.95];
/// The insertions that are looked at: those on the last part of the way to the load, as a fraction of the slots.
const WINDOW: f64 = 0.01;
/// Lookups that are looked at.
const LOOKUPS: usize = 1 << 14;
/// Bytes.
const LINE: usize = 64;

/// A probe that knows which lines one operation touched.
#[derive(Default)]
pub(super) struct Lines {
    touched: RefCell<Vec<usize>>,
}

impl Lines {
    fn add(&self, address: usize, size: usize) {
        let (first, last) = (address / LINE, (address + size.max(1) - 1) / LINE);
        self.touched.borrow_mut().extend(first..=last);
    }

    /// How many different ones since the last call.
    pub(super) fn take(&self) -> u32 {
        let mut touched = self.touched.borrow_mut();
        touched.sort_unstable();
        touched.dedup();
        let lines = touched.len() as u32;
        touched.clear();
        lines
    }
}

impl Probe for Lines {
    fn read(&self, address: usize, size: usize, _: bool) {
        self.add(address, size);
    }
    fn write(&self, address: usize, size: usize) {
        self.add(address, size);
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Lines,
    /// Lines of a whole batch.
    BatchLines,
    /// Entries moved out of the way.
    Moves,
}

/// Lines, or moves, over many operations of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    pub(super) mean: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
    pub(super) operations: usize,
}

impl Summary {
    /// `None` of none.
    pub(super) fn of(mut lines: Vec<u32>) -> Option<Self> {
        lines.sort_unstable();
        let max = f64::from(*lines.last()?);
        let operations = lines.len();
        let mean = lines.iter().map(|&n| f64::from(n)).sum::<f64>() / operations as f64;
        let p99 = f64::from(lines[(operations * 99).div_ceil(100) - 1]);
        Some(Summary { mean, p99, max, operations })
    }
}

/// Of one kind of operation at one load. A table that tells the probe nothing has none.
pub(super) struct Touched {
    pub(super) load: f64,
    pub(super) case: &'static str,
    pub(super) unit: Unit,
    pub(super) counts: Summary,
}

/// Insertions, hits and misses at each of [`LOADS`] that the table reaches.
pub(super) fn touched<const W: usize, T: Subject<W>>(plan: &Plan<W>) -> Result<Vec<Touched>> {
    let mut filled = Filled { table: plan.empty::<T>()?, flows: 0, time: Duration::ZERO, full: false };
    let probe = Lines::default();
    let mut found = Vec::new();
    for load in LOADS {
        plan.fill(&mut filled, load - WINDOW)?;
        let goal = Plan::<W>::flows(filled.table.capacity(), load);
        let (mut inserts, mut moves) = (Vec::new(), Vec::new());
        while filled.flows < goal && !filled.full {
            let key = plan.keys.key(filled.flows);
            let before = filled.table.moves();
            let done = filled.table.insert_probed(plan.keys.hash(&key), &key, filled.flows + 1, &probe);
            inserts.push(probe.take());
            moves.extend(before.zip(filled.table.moves()).map(|(before, after)| (after - before) as u32));
            filled.full = done.is_err();
            filled.flows += u64::from(done.is_ok());
        }
        if filled.full {
            break;
        }
        let lookups = |shift| {
            let mut block = Block::new(&plan.keys);
            block.fill(&plan.keys, drawn(filled.flows, LOOKUPS, plan.seed).map(|i| i + shift));
            let one = |i: usize| {
                filled.table.get_probed(block.hash(i), &block.keys[i], &probe);
                probe.take()
            };
            (0..block.len()).map(one).collect::<Vec<u32>>()
        };
        let kinds = [
            ("insert", Unit::Lines, Summary::of(inserts).filter(|lines| lines.max > 0.0)),
            ("insert", Unit::Moves, Summary::of(moves)),
            ("hit", Unit::Lines, Summary::of(lookups(0)).filter(|lines| lines.max > 0.0)),
            ("miss", Unit::Lines, Summary::of(lookups(ABSENT)).filter(|lines| lines.max > 0.0)),
        ];
        let touched =
            |(case, unit, counts): (_, _, Option<_>)| Some(Touched { load, case, unit, counts: counts? });
        found.extend(kinds.into_iter().filter_map(touched));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_once() {
        let lines = Lines::default();
        lines.read(128, 16, false);
        lines.write(190, 2);
        assert_eq!(lines.take(), 1);
        lines.read(190, 3, true);
        lines.read(1000, 0, true);
        assert_eq!((lines.take(), lines.take()), (3, 0));
    }

    #[test]
    fn a_summary_has_its_p99() {
        let summary = Summary::of((1..=200).collect()).unwrap();
        assert_eq!(summary, Summary { mean: 100.5, p99: 198.0, max: 200.0, operations: 200 });
        assert_eq!(Summary::of(vec![]), None);
        assert_eq!(Summary::of(vec![3]).unwrap().p99, 3.0);
    }
}
