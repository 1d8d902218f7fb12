//! Runs of elements in a table, each content stored once and counted: labels, asides and blocks of descriptors.
//!
//! A run is named by its first unit. It is written before anybody can reach it and never changed; once nobody refers to
//! it any more it is *retired*, and its space is used again after the readers' grace period. As [`crate::dxr`]'s, for elements of any
//! width. One thing may be [changed](Pool::change) in place: a run whose elements are answers each on its own.

use hashbrown::HashTable;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// An element of a table.
pub(super) trait Cell {
    fn get(&self) -> u64;
    /// The low bits of `value`, as many as there are; the caller knows that these are all. Release: whoever finds a value
    /// in a run that has been changed in place finds what it refers to.
    fn set(&self, value: u64);
}

macro_rules! cells {
    ($($atomic:ty, $int:ty;)*) => { $(
        impl Cell for $atomic {
            #[inline(always)]
            fn get(&self) -> u64 {
                self.load(Ordering::Relaxed).into()
            }
            #[inline(always)]
            fn set(&self, value: u64) {
                self.store(value as $int, Ordering::Release);
            }
        }
    )* };
}
cells!(AtomicU8, u8; AtomicU16, u16; AtomicU32, u32; AtomicU64, u64;);

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

/// The bookkeeping of one table.
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
    unit_shift: u8,
}

impl Pool {
    /// An empty pool of `capacity` units of `1 << unit_shift` elements.
    pub(super) fn new(capacity: u32, unit_shift: u8) -> Self {
        let (known, refs, free) = (HashTable::new(), Vec::new(), BTreeMap::new());
        Pool { known, refs, free, used: 0, capacity, unit_shift }
    }

    /// Elements from the beginning to the end of the last run that is, or was, used.
    pub(super) fn used(&self) -> usize {
        (self.used as usize) << self.unit_shift
    }

    /// Another capacity in units, not below what is used.
    pub(super) fn set_capacity(&mut self, units: u32) {
        self.capacity = units.max(self.used);
    }

    /// The run with this content (whole units), with one reference more. `true` if it is new.
    #[inline]
    pub(super) fn intern<C: Cell, T: Copy + Into<u64>>(
        &mut self,
        table: &[C],
        content: &[T],
    ) -> Result<(u32, bool), Full> {
        let hash = hash(content.iter().map(|&element| element.into()));
        if let Some(unit) = self.find(table, content, hash) {
            self.refs[unit as usize] += 1;
            return Ok((unit, false));
        }
        let units = (content.len() >> self.unit_shift) as u32;
        let unit = self.allocate(units)?;
        let first = (unit as usize) << self.unit_shift;
        for (cell, &element) in table[first..first + content.len()].iter().zip(content) {
            cell.set(element.into());
        }
        if self.refs.len() < self.used as usize {
            self.refs.resize(self.used as usize, 0);
        }
        self.refs[unit as usize] = 1;
        self.learn(Known { hash, run: Run { unit, units } });
        Ok((unit, true))
    }

    /// Changes a run in place, element by element, if it has one reference and no run has the new content.
    pub(super) fn change<C: Cell, T: Copy + Into<u64>>(
        &mut self,
        table: &[C],
        unit: u32,
        content: &[T],
    ) -> bool {
        let hash = hash(content.iter().map(|&element| element.into()));
        if self.refs[unit as usize] != 1 || self.find(table, content, hash).is_some() {
            return false;
        }
        let run = Run { unit, units: (content.len() >> self.unit_shift) as u32 };
        self.forget(table, run);
        let first = (unit as usize) << self.unit_shift;
        let cells = table[first..first + content.len()].iter().zip(content);
        cells.filter(|(cell, element)| cell.get() != (**element).into()).for_each(|(cell, &element)| {
            cell.set(element.into());
        });
        self.learn(Known { hash, run });
        true
    }

    /// The run with this content, which has that hash.
    fn find<C: Cell, T: Copy + Into<u64>>(&self, table: &[C], content: &[T], hash: u32) -> Option<u32> {
        let same = |known: &Known| {
            let first = (known.run.unit as usize) << self.unit_shift;
            known.hash == hash
                && (known.run.units as usize) << self.unit_shift == content.len()
                && table[first..first + content.len()].iter().zip(content).all(|(a, &b)| a.get() == b.into())
        };
        self.known.find(u64::from(hash) * SPREAD, same).map(|known| known.run.unit)
    }

    fn learn(&mut self, known: Known) {
        self.known.insert_unique(u64::from(known.hash) * SPREAD, known, |k| u64::from(k.hash) * SPREAD);
    }

    /// Forgets a run, which still has its content.
    fn forget<C: Cell>(&mut self, table: &[C], run: Run) {
        let first = (run.unit as usize) << self.unit_shift;
        let cells = &table[first..first + ((run.units as usize) << self.unit_shift)];
        let hash = hash(cells.iter().map(Cell::get));
        if let Ok(known) = self.known.find_entry(u64::from(hash) * SPREAD, |k| k.run == run) {
            known.remove();
        }
    }

    /// `count` references more to a run that has one.
    pub(super) fn acquire(&mut self, unit: u32, count: usize) {
        self.refs[unit as usize] += count as u32; // as many as there are slots, at most
    }

    /// One reference less. The run, if that was the last one: it is forgotten, and its space waits.
    pub(super) fn release<C: Cell>(&mut self, table: &[C], run: Run) -> Option<Run> {
        let refs = &mut self.refs[run.unit as usize];
        *refs -= 1;
        if *refs > 0 {
            return None;
        }
        self.forget(table, run);
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
fn hash(elements: impl Iterator<Item = u64>) -> u32 {
    let hash = elements.fold(0x9e37_79b9_7f4a_7c15_u64, |hash, element| {
        let mixed = (hash ^ element).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ mixed >> 32
    });
    (hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_runs_are_shared_and_space_is_used_again() {
        let table: Vec<AtomicU8> = (0..6).map(|_| AtomicU8::new(0)).collect();
        let mut pool = Pool::new(6, 0);
        assert_eq!(pool.intern(&table, &[1_u32, 2, 3]), Ok((0, true)));
        assert_eq!(
            pool.intern(&table, &[1_u32, 2]),
            Ok((3, true)),
            "the beginning of another run is not that run"
        );
        assert_eq!(pool.intern(&table, &[1_u32, 2, 3]), Ok((0, false)));
        assert_eq!(pool.intern(&table, &[9_u32, 9]), Err(Full));
        let first = Run { unit: 0, units: 3 };
        assert_eq!(pool.release(&table, first), None);
        assert_eq!(pool.release(&table, first), Some(first));
        assert_eq!(pool.intern(&table, &[1_u32, 2, 3]), Err(Full), "retired: not found, and not yet free");
        pool.recycle(first);
        assert_eq!(pool.intern(&table, &[6_u32]), Ok((5, true)));
        assert_eq!(pool.intern(&table, &[7_u32]), Ok((0, true)), "cut from the longer run");
        assert_eq!((pool.used(), pool.live().count()), (6, 3));
        for run in [Run { unit: 0, units: 1 }, Run { unit: 5, units: 1 }] {
            let run = pool.release(&table, run).unwrap();
            pool.recycle(run);
        }
        assert_eq!(pool.intern(&table, &[8_u32, 8, 8]), Err(Full), "free, but in pieces");
        pool.defragment();
        assert_eq!(pool.used(), 5, "the end is given back");
        assert_eq!(pool.intern(&table, &[8_u32, 8, 8]), Ok((0, true)));
    }

    #[test]
    fn a_run_of_one_owner_changes_in_place() {
        let table: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let mut pool = Pool::new(2, 1);
        pool.intern(&table, &[1_u64, 2]).unwrap();
        pool.intern(&table, &[3_u64, 4]).unwrap();
        assert!(!pool.change(&table, 0, &[3_u64, 4]), "another run has that content");
        assert!(pool.change(&table, 0, &[1_u64, 5]));
        assert_eq!((table[0].get(), table[1].get()), (1, 5));
        assert_eq!(pool.intern(&table, &[1_u64, 5]), Ok((0, false)), "found as what it is now");
        assert_eq!(pool.intern(&table, &[1_u64, 2]), Err(Full), "and not as what it was");
        assert!(!pool.change(&table, 0, &[1_u64, 6]), "it has two owners");
    }

    #[test]
    fn units_of_several_elements() {
        let table: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        let mut pool = Pool::new(2, 2);
        assert_eq!(pool.intern(&table, &[u64::MAX, 2, 3, 4]), Ok((0, true)));
        assert_eq!(pool.intern(&table, &[u64::MAX, 2, 3, 5]), Ok((1, true)));
        assert_eq!(pool.intern(&table, &[u64::MAX, 2, 3, 4]), Ok((0, false)));
        assert_eq!((pool.used(), table[7].get()), (8, 5));
    }
}
