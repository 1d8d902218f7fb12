//! Runs of elements in a table, each content stored once and counted: DXR's range chunks and extension blocks, Popdir's labels,
//! asides and blocks.
//!
//! A run is named by its first unit. It is written before anybody can reach it; once nobody refers to it any more it is
//! *retired*, and its space is used again after the readers' grace period. In between it is not changed, but for a run that one
//! slot alone refers to and whose elements are answers each on its own ([`Pool::change`], [`Pool::rewrite`]). A slot that has
//! left a run for another is not gone from it before its readers are: until their grace period is over the run is not one slot's
//! alone ([`Pool::leave`], [`Pool::is_alone`]).

use hashbrown::HashTable;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// An element of a table.
pub(crate) trait Cell {
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
pub(crate) struct Run {
    /// First unit.
    pub(crate) unit: u32,
    /// Length in units.
    pub(crate) units: u32,
}

/// There is no room for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// What is known by its content.
#[derive(Debug)]
struct Known {
    hash: u32,
    run: Run,
}

/// What is known by its place.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    refs: u32,
    hash: u32,
    /// References given up whose readers may still be there.
    left: u32,
}

/// The bookkeeping of one table.
#[derive(Debug)]
pub(crate) struct Pool {
    known: HashTable<Known>,
    /// Of the run that begins at a unit.
    entries: Vec<Entry>,
    /// Runs that were left since the last [`take_left`](Self::take_left), once for each time.
    left: Vec<u32>,
    /// Space that has been used before, by length in units.
    free: BTreeMap<u32, Vec<u32>>,
    /// Units up to the end of the last run that is, or was, used.
    used: u32,
    /// Units there are.
    capacity: u32,
    unit_shift: u32,
}

impl Pool {
    /// An empty pool of `capacity` units of `1 << unit_shift` elements.
    pub(crate) fn new(capacity: u32, unit_shift: u32) -> Self {
        Pool {
            known: HashTable::new(),
            entries: Vec::new(),
            left: Vec::new(),
            free: BTreeMap::new(),
            used: 0,
            capacity,
            unit_shift,
        }
    }

    /// Elements from the beginning to the end of the last run that is, or was, used.
    pub(crate) fn used(&self) -> usize {
        (self.used as usize) << self.unit_shift
    }

    /// Units there are.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Another capacity, not below what is used.
    pub(crate) fn set_capacity(&mut self, units: u32) {
        self.capacity = units.max(self.used);
    }

    /// The run with this content (whole units), with one reference more. `true` if it is new.
    pub(crate) fn intern<C: Cell, T: Copy + Into<u64>>(
        &mut self,
        table: &[C],
        content: &[T],
    ) -> Result<(u32, bool), Full> {
        let hash = hash(content);
        match self.find(table, content, hash) {
            Some(unit) => Ok((unit, false)),
            None => Ok((self.insert(table, content, hash)?, true)),
        }
    }

    /// The run with this content, if it is there, with one reference more. `hash` is the content's [`hash`].
    pub(crate) fn find<C: Cell, T: Copy + Into<u64>>(
        &mut self,
        table: &[C],
        content: &[T],
        hash: u32,
    ) -> Option<u32> {
        let unit = self.place(table, content, hash)?;
        self.entries[unit as usize].refs += 1;
        Some(unit)
    }

    /// Where this content is, which has that hash.
    fn place<C: Cell, T: Copy + Into<u64>>(&self, table: &[C], content: &[T], hash: u32) -> Option<u32> {
        let (units, shift) = ((content.len() >> self.unit_shift) as u32, self.unit_shift);
        let same = |known: &Known| {
            let first = (known.run.unit as usize) << shift;
            let there = || table[first..first + content.len()].iter();
            let equal = || there().zip(content).all(|(a, &b)| a.get() == b.into());
            known.hash == hash && known.run.units == units && equal()
        };
        Some(self.known.find(spread(hash), same)?.run.unit)
    }

    /// A new run with this content, which is not there yet, with one reference.
    pub(crate) fn insert<C: Cell, T: Copy + Into<u64>>(
        &mut self,
        table: &[C],
        content: &[T],
        hash: u32,
    ) -> Result<u32, Full> {
        let units = (content.len() >> self.unit_shift) as u32;
        let unit = self.allocate(units)?;
        let first = (unit as usize) << self.unit_shift;
        for (cell, &element) in table[first..first + content.len()].iter().zip(content) {
            cell.set(element.into());
        }
        if self.entries.len() < self.used as usize {
            self.entries.resize(self.used as usize, Entry::default());
        }
        self.entries[unit as usize] = Entry { refs: 1, hash, left: 0 };
        self.known.insert_unique(spread(hash), Known { hash, run: Run { unit, units } }, |k| spread(k.hash));
        Ok(unit)
    }

    /// Changes a run in place, element by element, if it [is one slot's alone](Self::is_alone) and no run has the new content.
    pub(crate) fn change<C: Cell, T: Copy + Into<u64>>(
        &mut self,
        table: &[C],
        unit: u32,
        content: &[T],
    ) -> bool {
        let hash = hash(content);
        if !self.is_alone(unit) || self.place(table, content, hash).is_some() {
            return false;
        }
        self.rewrite(Run { unit, units: (content.len() >> self.unit_shift) as u32 }, hash);
        let first = (unit as usize) << self.unit_shift;
        let cells = table[first..first + content.len()].iter().zip(content);
        cells.filter(|(cell, element)| cell.get() != (**element).into()).for_each(|(cell, &element)| {
            cell.set(element.into());
        });
        true
    }

    /// Whether one slot refers to the run, and no reader can be there by way of another that did before.
    pub(crate) fn is_alone(&self, unit: u32) -> bool {
        let Entry { refs, left, .. } = self.entries[unit as usize];
        refs == 1 && left == 0
    }

    /// References to a run.
    #[cfg(test)]
    pub(crate) fn refs(&self, unit: u32) -> u32 {
        self.entries[unit as usize].refs
    }

    /// The run is known by another content from now on, which is not there yet; the caller stores it.
    pub(crate) fn rewrite(&mut self, run: Run, hash: u32) {
        self.forget(run);
        self.entries[run.unit as usize].hash = hash;
        self.known.insert_unique(spread(hash), Known { hash, run }, |k| spread(k.hash));
    }

    /// `count` references more to a run that has one.
    pub(crate) fn acquire(&mut self, unit: u32, count: usize) {
        self.entries[unit as usize].refs += count as u32; // as many as there are slots, at most
    }

    /// One reference less. The run, if that was the last one: it is forgotten, and its space waits.
    pub(crate) fn release(&mut self, run: Run) -> Option<Run> {
        let refs = &mut self.entries[run.unit as usize].refs;
        *refs -= 1;
        if *refs > 0 {
            return None;
        }
        self.forget(run);
        Some(run)
    }

    /// [`release`](Self::release) of a run that may be changed in place: if it stays, its former readers are remembered.
    pub(crate) fn leave(&mut self, run: Run) -> Option<Run> {
        let gone = self.release(run);
        if gone.is_none() {
            self.entries[run.unit as usize].left += 1;
            self.left.push(run.unit);
        }
        gone
    }

    /// The runs left since the last call: for [`settle`](Self::settle) after the readers' grace period, before the runs retired
    /// with them are recycled.
    pub(crate) fn take_left(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.left)
    }

    /// The readers of those who left these runs have gone.
    pub(crate) fn settle(&mut self, left: Vec<u32>) {
        left.into_iter().for_each(|unit| self.entries[unit as usize].left -= 1);
    }

    fn forget(&mut self, run: Run) {
        let hash = self.entries[run.unit as usize].hash;
        if let Ok(known) = self.known.find_entry(spread(hash), |known| known.run == run) {
            known.remove();
        }
    }

    /// Takes a retired run's space back.
    pub(crate) fn recycle(&mut self, run: Run) {
        self.free.entry(run.units).or_default().push(run.unit);
    }

    /// Joins free runs that touch, and gives back those at the end of what is used: for when there is no room, since runs
    /// are otherwise only ever cut.
    pub(crate) fn defragment(&mut self) {
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
    pub(crate) fn live(&self) -> impl Iterator<Item = (Run, u32)> + '_ {
        self.known.iter().map(|known| (known.run, self.refs(known.run.unit)))
    }
}

/// hashbrown takes its tag from the top bits of a hash and its bucket from the low ones: fill both.
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash) * 0x1_0000_0001
}

/// Multiply and fold, without a key. Contents follow from routes, so whoever may announce them can make runs of one hash: a full comparison
/// follows, so that answers stay right, but changes then search through all of those. No lookup hashes.
pub(crate) fn hash<T: Copy + Into<u64>>(content: &[T]) -> u32 {
    hash_each(content.iter().map(|&element| element.into()))
}

/// The same of elements that come one by one.
pub(crate) fn hash_each(content: impl Iterator<Item = u64>) -> u32 {
    let hash = content.fold(0x9e37_79b9_7f4a_7c15_u64, |hash, element| {
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
        let table: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
        let mut pool = Pool::new(4, 1);
        assert_eq!(pool.intern(&table, &[1_u32, 2, 3, 4]), Ok((0, true)));
        assert_eq!(
            pool.intern(&table, &[1_u32, 2]),
            Ok((2, true)),
            "a prefix of another run is not that run"
        );
        assert_eq!(pool.intern(&table, &[1_u32, 2, 3, 4]), Ok((0, false)));
        assert_eq!(pool.intern(&table, &[9_u32, 9, 9, 9]), Err(Full));
        let first = Run { unit: 0, units: 2 };
        assert_eq!(pool.release(first), None);
        assert_eq!(pool.release(first), Some(first));
        assert_eq!(pool.intern(&table, &[1_u32, 2, 3, 4]), Err(Full), "retired: not found, and not yet free");
        assert_eq!(pool.intern(&table, &[5_u32, 5]), Ok((3, true)));
        pool.recycle(first);
        assert_eq!(pool.intern(&table, &[6_u32, 6]), Ok((0, true)), "cut from the longer run");
        assert_eq!(pool.intern(&table, &[7_u32, 7]), Ok((1, true)));
        assert_eq!(pool.used(), 8);
        assert_eq!(pool.live().count(), 4);
        for (unit, _) in [(0, [6, 6]), (3, [5, 5]), (1, [7, 7])] {
            let run = pool.release(Run { unit, units: 1 }).unwrap();
            pool.recycle(run);
        }
        assert_eq!(pool.intern(&table, &[8_u32, 8, 8, 8]), Err(Full), "free, but in pieces");
        pool.defragment();
        assert_eq!(pool.used(), 6, "the end is given back");
        assert_eq!(pool.intern(&table, &[8_u32, 8, 8, 8]), Ok((0, true)));
    }

    #[test]
    fn a_rewritten_run_is_found_by_its_new_content_only() {
        let table: Vec<AtomicU32> = (0..4).map(|_| AtomicU32::new(0)).collect();
        let mut pool = Pool::new(2, 1);
        assert_eq!(pool.intern(&table, &[1_u32, 2]), Ok((0, true)));
        pool.rewrite(Run { unit: 0, units: 1 }, hash(&[1_u32, 3]));
        table[1].store(3, Ordering::Relaxed);
        assert_eq!(pool.intern(&table, &[1_u32, 2]), Ok((1, true)));
        assert_eq!(pool.intern(&table, &[1_u32, 3]), Ok((0, false)));
        assert_eq!((pool.refs(0), pool.refs(1)), (2, 1));
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
    fn a_run_that_was_shared_is_not_changed_while_somebody_may_look() {
        let table: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
        let mut pool = Pool::new(2, 1);
        pool.intern(&table, &[1_u64, 2]).unwrap();
        pool.intern(&table, &[1_u64, 2]).unwrap();
        assert_eq!(pool.leave(Run { unit: 0, units: 1 }), None, "another slot has it");
        assert!(!pool.change(&table, 0, &[1_u64, 5]), "readers who came by way of the first slot");
        assert_eq!(table[1].get(), 2);
        let left = pool.take_left();
        assert!(!pool.change(&table, 0, &[1_u64, 5]), "their grace period has only begun");
        pool.settle(left);
        assert!(pool.change(&table, 0, &[1_u64, 5]));
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
