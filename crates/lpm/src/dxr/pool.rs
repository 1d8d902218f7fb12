//! Runs of words in a table, each content stored once and counted: range chunks and extension blocks.
//!
//! A run is named by its first unit. It is written before anybody can reach it and never changed; once nobody refers to
//! it any more it is *retired*, and its space is used again after the readers' grace period.

use hashbrown::HashTable;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// A run that nobody refers to: its space comes back through [`Pool::recycle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// First unit.
    pub(super) unit: u32,
    /// Length in units.
    pub(super) units: u32,
}

/// There is no room for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Debug)]
struct Known {
    hash: u32,
    run: Run,
}

/// The bookkeeping of one table of words.
#[derive(Debug)]
pub(super) struct Pool {
    known: HashTable<Known>,
    /// References to the run that begins at a unit.
    refs: Vec<u32>,
    /// Space that has been used before, by length in units.
    free: BTreeMap<u32, Vec<u32>>,
    /// Units up to the end of the last run that is, or was, used.
    used: u32,
    /// Units there are.
    capacity: u32,
    unit_shift: u32,
}

impl Pool {
    /// An empty pool of `capacity` units of `1 << unit_shift` words.
    pub(super) fn new(capacity: u32, unit_shift: u32) -> Self {
        Pool {
            known: HashTable::new(),
            refs: Vec::new(),
            free: BTreeMap::new(),
            used: 0,
            capacity,
            unit_shift,
        }
    }

    /// Words from the beginning to the end of the last run that is, or was, used.
    pub(super) fn used_words(&self) -> usize {
        (self.used as usize) << self.unit_shift
    }

    /// Another capacity, not below what is used.
    pub(super) fn set_capacity(&mut self, units: u32) {
        self.capacity = units.max(self.used);
    }

    /// The run with this content (whole units), with one reference more. `true` if it is new.
    pub(super) fn intern(&mut self, table: &[AtomicU32], words: &[u32]) -> Result<(u32, bool), Full> {
        let units = (words.len() >> self.unit_shift) as u32;
        let (hash, shift) = (hash(words.iter().copied()), self.unit_shift);
        let same = |known: &Known| {
            let first = (known.run.unit as usize) << shift;
            known.hash == hash
                && known.run.units == units
                && table[first..first + words.len()]
                    .iter()
                    .zip(words)
                    .all(|(a, &b)| a.load(Ordering::Relaxed) == b)
        };
        if let Some(known) = self.known.find(u64::from(hash) * SPREAD, same) {
            let unit = known.run.unit;
            self.refs[unit as usize] += 1;
            return Ok((unit, false));
        }
        let unit = self.allocate(units)?;
        let first = (unit as usize) << shift;
        for (cell, &word) in table[first..first + words.len()].iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
        if self.refs.len() < self.used as usize {
            self.refs.resize(self.used as usize, 0);
        }
        self.refs[unit as usize] = 1;
        let known = Known { hash, run: Run { unit, units } };
        self.known.insert_unique(u64::from(hash) * SPREAD, known, |k| u64::from(k.hash) * SPREAD);
        Ok((unit, true))
    }

    /// `count` references more to a run that has one.
    pub(super) fn acquire(&mut self, unit: u32, count: usize) {
        self.refs[unit as usize] += count as u32; // as many as there are slots, at most
    }

    /// One reference less. The run, if that was the last one: it is forgotten, and its space waits.
    pub(super) fn release(&mut self, table: &[AtomicU32], run: Run) -> Option<Run> {
        let refs = &mut self.refs[run.unit as usize];
        *refs -= 1;
        if *refs > 0 {
            return None;
        }
        let first = (run.unit as usize) << self.unit_shift;
        let words = table[first..first + ((run.units as usize) << self.unit_shift)].iter();
        let hash = hash(words.map(|word| word.load(Ordering::Relaxed)));
        if let Ok(known) = self.known.find_entry(u64::from(hash) * SPREAD, |k| k.run == run) {
            known.remove();
        }
        Some(run)
    }

    /// Takes a retired run's space back.
    pub(super) fn recycle(&mut self, run: Run) {
        self.free.entry(run.units).or_default().push(run.unit);
    }

    /// Joins free runs that touch, and gives back those at the end of what is used: for when there is no room, since runs
    /// are otherwise only ever cut.
    pub(super) fn defragment(&mut self) {
        let free = std::mem::take(&mut self.free);
        let runs =
            free.into_iter().flat_map(|(units, runs)| runs.into_iter().map(move |unit| Run { unit, units }));
        let mut runs: Vec<Run> = runs.collect();
        runs.sort_unstable_by_key(|run| run.unit);
        runs.dedup_by(|next, run| {
            let touch = run.unit + run.units == next.unit;
            run.units += if touch { next.units } else { 0 };
            touch
        });
        if let Some(run) = runs.pop_if(|run| run.unit + run.units == self.used) {
            self.used = run.unit;
        }
        runs.into_iter().for_each(|run| self.recycle(run));
    }

    fn allocate(&mut self, units: u32) -> Result<u32, Full> {
        if let Some(unit) = self.free.get_mut(&units).and_then(Vec::pop) {
            return Ok(unit);
        }
        if units <= self.capacity - self.used {
            self.used += units;
            return Ok(self.used - units);
        }
        // Cut a longer run that is free.
        let mut longer = self.free.range_mut(units + 1..);
        let (length, unit) = longer.find_map(|(&length, runs)| Some((length, runs.pop()?))).ok_or(Full)?;
        self.recycle(Run { unit: unit + units, units: length - units });
        Ok(unit)
    }

    /// Runs that are referred to, and their references.
    #[cfg(test)]
    pub(super) fn live(&self) -> impl Iterator<Item = (Run, u32)> + '_ {
        self.known.iter().map(|known| (known.run, self.refs[known.run.unit as usize]))
    }
}

/// hashbrown takes its tag from the top bits of a hash and its bucket from the low ones: fill both.
const SPREAD: u64 = 0x1_0000_0001;

/// Multiply and fold; the contents are our own, so nobody can aim at collisions that matter (a full comparison follows).
fn hash(words: impl Iterator<Item = u32>) -> u32 {
    let hash = words.fold(0x9e37_79b9_7f4a_7c15_u64, |hash, word| {
        let mixed = (hash ^ u64::from(word)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ mixed >> 32
    });
    (hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_runs_are_shared_and_space_is_used_again() {
        let table: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
        let mut pool = Pool::new(4, 1);
        assert_eq!(pool.intern(&table, &[1, 2, 3, 4]), Ok((0, true)));
        assert_eq!(pool.intern(&table, &[1, 2]), Ok((2, true)), "a prefix of another run is not that run");
        assert_eq!(pool.intern(&table, &[1, 2, 3, 4]), Ok((0, false)));
        assert_eq!(pool.intern(&table, &[9, 9, 9, 9]), Err(Full));
        let first = Run { unit: 0, units: 2 };
        assert_eq!(pool.release(&table, first), None);
        assert_eq!(pool.release(&table, first), Some(first));
        assert_eq!(pool.intern(&table, &[1, 2, 3, 4]), Err(Full), "retired: not found, and not yet free");
        assert_eq!(pool.intern(&table, &[5, 5]), Ok((3, true)));
        pool.recycle(first);
        assert_eq!(pool.intern(&table, &[6, 6]), Ok((0, true)), "cut from the longer run");
        assert_eq!(pool.intern(&table, &[7, 7]), Ok((1, true)));
        assert_eq!(pool.used_words(), 8);
        assert_eq!(pool.live().count(), 4);
        for (unit, _) in [(0, [6, 6]), (3, [5, 5]), (1, [7, 7])] {
            let run = pool.release(&table, Run { unit, units: 1 }).unwrap();
            pool.recycle(run);
        }
        assert_eq!(pool.intern(&table, &[8, 8, 8, 8]), Err(Full), "free, but in pieces");
        pool.defragment();
        assert_eq!(pool.used_words(), 6, "the end is given back");
        assert_eq!(pool.intern(&table, &[8, 8, 8, 8]), Ok((0, true)));
    }
}
