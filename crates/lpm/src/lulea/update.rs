//! The writer of a structure that shares with no other: builds it, and patches it while readers look.

use super::build::{self, Draft, Nodes, Slots};
use super::lookup::Kernel;
use super::node::{BLOCK, Ledger, Run, encode, is_large, tell_read, words};
use super::patch::{self, Patch, Scratch, inside};
use super::{Entry, Lulea, ROOT, SLOTS, Store, UNIT, byte, slot_region};
use crate::fib::{AfterFailure, BuildError, Fib, FibWriter, Outgrown, of_prefix};
use crate::prefix::Prefix;
use crate::ranges::{outermost, ranges};
use crate::rib::Rib;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tidemill_lookup::mem::Table;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// The one writer of a [`Lulea`].
pub struct Writer {
    fib: Arc<Lulea>,
    ledger: Ledger,
    scratch: Scratch,
    /// What the patch under way has stored to, and what was there before.
    stored: Vec<(Word, Entry)>,
    /// The nodes that it has written: the first unit, and how many words.
    taken: Vec<(u32, usize)>,
}

/// A word that readers look at.
#[derive(Clone, Copy)]
enum Word {
    Root(usize),
    Store(usize),
}

impl Writer {
    /// Builds the structure of `rib`. Its readers must belong to `domain`.
    ///
    /// # Errors
    /// A label of more than 31 bits; no memory.
    pub fn new(rib: &Rib<u128>, domain: &Domain) -> Result<Self, BuildError> {
        let ranges = ranges(rib, Prefix::DEFAULT);
        build::check(&ranges).map_err(|found| of_prefix(rib, found))?;
        let (draft, entries) = Draft::new(&ranges)?;
        let fresh = draft.words.len() / UNIT;
        // Room for patches: a table grows by some per cent a month, and the units of a batch are used twice over.
        let (store, mut ledger) = Ledger::new(fresh + fresh / 4 + 8192, domain)?;
        for (to, &from) in store.words.iter().zip(&draft.words) {
            to.store(from, Ordering::Relaxed);
        }
        ledger.fill(&store, fresh, &draft.gaps);
        let root = Table::<AtomicU32>::new(ROOT)?;
        root.iter().zip(entries).for_each(|(to, entry)| to.store(entry.0, Ordering::Relaxed));
        let fib = Arc::new(Lulea { root, store: Arc::new(store), kernel: Kernel::best() });
        let (stored, taken) = (Vec::new(), Vec::new());
        Ok(Writer { fib, ledger, scratch: Scratch::default(), stored, taken })
    }

    /// The structure, with all that its own type offers.
    pub fn lulea(&self) -> &Arc<Lulea> {
        &self.fib
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        match word {
            Word::Root(slot) => &self.fib.root[slot],
            Word::Store(word) => &self.fib.store.words[word],
        }
    }

    /// Stores what has changed. The node behind `new` was written before: this makes it visible.
    fn store_at(&mut self, word: Word, old: Entry, new: Entry) {
        if new != old {
            self.word(word).store(new.0, Ordering::Release);
            self.stored.push((word, old));
        }
    }

    /// Room for so many words.
    fn take(&mut self, words: usize) -> Result<u32, Outgrown> {
        let unit = self.ledger.take(&self.fib.store, words.div_ceil(UNIT))?;
        self.taken.push((unit, words));
        Ok(unit)
    }

    /// Makes undone what a patch that failed has done. Readers may have seen it.
    fn undo(&mut self) {
        for (word, old) in std::mem::take(&mut self.stored).into_iter().rev() {
            self.word(word).store(old.0, Ordering::Release);
        }
        // What was unlinked is linked again, and what was written is not.
        let units = |&(unit, words): &(u32, usize)| (unit, words.div_ceil(UNIT));
        self.ledger.unlinked = self.taken.iter().map(units).collect();
        self.scratch = Scratch::default();
    }

    /// Patches, with every load of what was there told to `probe`.
    fn patch_told<P: Probe>(
        &mut self,
        rib: &Rib<u128>,
        changed: &[Prefix<u128>],
        probe: &P,
    ) -> Result<(), Outgrown> {
        self.ledger.reclaim(&self.fib.store);
        self.stored.clear();
        self.taken.clear();
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut patching = Patching { writer: &mut *self, probe };
        let done = patching.change(&mut scratch, rib, &outermost(changed));
        match done {
            Ok(()) => self.scratch = scratch,
            Err(_) => self.undo(),
        }
        self.ledger.retire();
        self.ledger.reclaim(&self.fib.store);
        done
    }
}

/// A patch under way, with what is told of its loads.
struct Patching<'a, P> {
    writer: &'a mut Writer,
    probe: &'a P,
}

impl<P: Probe> Patching<'_, P> {
    fn root(&self, slot: usize) -> Entry {
        tell_read(&self.writer.fib.root[slot], self.probe);
        self.writer.fib.root(slot)
    }

    fn entry(&self, word: usize) -> Entry {
        self.store().entry_told(word, self.probe)
    }

    /// Brings the structure up to date for `changed`, in order and none inside another.
    fn change(
        &mut self,
        scratch: &mut Scratch,
        rib: &Rib<u128>,
        changed: &[Prefix<u128>],
    ) -> Result<(), Outgrown> {
        let mut rest = changed;
        while let Some((&prefix, behind)) = rest.split_first() {
            let slot = (prefix.first() >> 112) as usize;
            let Some(region) = Prefix::new(prefix.first(), 16).filter(|region| prefix.len() > region.len())
            else {
                if prefix == Prefix::DEFAULT && !self.writer.ledger.has_room(self.store()) {
                    // Found out before anything is written.
                    return Err(Outgrown { what: "the default route changes all nodes".into() });
                }
                let ranges = scratch.take_ranges(rib, prefix)?;
                let slots = slot..(prefix.last() >> 112) as usize + 1;
                build::root(self, &ranges, slots, |patching, slot, new| {
                    let old = patching.root(slot);
                    patching.writer.store_at(Word::Root(slot), old, new);
                    patching.unlink_block(old);
                })?;
                scratch.ranges = ranges;
                rest = behind;
                continue;
            };
            let (here, behind) = rest.split_at(inside(region, rest));
            rest = behind;
            let entry = self.root(slot);
            if entry.is_leaf() {
                let ranges = scratch.take_ranges(rib, region)?;
                let new = build::block(self, &ranges, region)?;
                scratch.ranges = ranges;
                self.writer.store_at(Word::Root(slot), entry, new);
            } else {
                self.change_block(scratch, rib, (slot, entry), region, here)?;
            }
        }
        Ok(())
    }

    /// The same for the block of a root's slot and its entry, in which all of `changed` lie.
    fn change_block(
        &mut self,
        scratch: &mut Scratch,
        rib: &Rib<u128>,
        (slot, entry): (usize, Entry),
        region: Prefix<u128>,
        changed: &[Prefix<u128>],
    ) -> Result<(), Outgrown> {
        let block = entry.word();
        let mut rest = changed;
        while let Some((&prefix, behind)) = rest.split_first() {
            if prefix.len() <= 24 {
                let ranges = scratch.take_ranges(rib, prefix)?;
                build::spread(self, &ranges, region, prefix, |patching, run, new| {
                    for slot in run {
                        let old = patching.entry(block + slot);
                        patching.publish(block + slot, old, new);
                        patching.replaced(old);
                    }
                })?;
                scratch.ranges = ranges;
                rest = behind;
                continue;
            }
            let at = usize::from(byte(prefix.first(), 16));
            let part = slot_region(region, at);
            let (here, behind) = rest.split_at(inside(part, rest));
            rest = behind;
            let old = self.entry(block + at);
            let new = patch::node(self, scratch, rib, old, part, here)?;
            self.publish(block + at, old, new);
        }
        let first = self.entry(block);
        if first.is_leaf() && (1..SLOTS).all(|slot| self.entry(block + slot) == first) {
            self.writer.store_at(Word::Root(slot), entry, first); // one label everywhere: no block needed
            self.unlink_block(entry);
        }
        Ok(())
    }

    fn unlink_block(&mut self, entry: Entry) {
        if !entry.is_leaf() {
            let block = entry.word();
            (block..block + SLOTS).for_each(|word| self.replaced(self.entry(word)));
            self.writer.ledger.unlinked.push((entry.unit(), BLOCK));
        }
    }
}

impl<P: Probe> Nodes for Patching<'_, P> {
    fn node(&mut self, runs: &[Run]) -> Result<Entry, Outgrown> {
        let unit = self.writer.take(words(runs.len()))?;
        encode(runs, unit as usize * UNIT, |word, value| {
            self.store().words[word].store(value, Ordering::Relaxed);
        });
        Ok(Entry::pointer(is_large(runs.len()), unit))
    }

    fn block(&mut self, slots: &Slots) -> Result<Entry, Outgrown> {
        let unit = self.writer.take(SLOTS)?;
        let words = &self.store().words[unit as usize * UNIT..];
        words.iter().zip(slots).for_each(|(word, entry)| word.store(entry.0, Ordering::Relaxed));
        Ok(Entry::pointer(false, unit))
    }
}

impl<P: Probe> Patch for Patching<'_, P> {
    const ALONE: bool = true;
    type Told = P;

    fn store(&self) -> &Store {
        &self.writer.fib.store
    }

    fn told(&self) -> &P {
        self.probe
    }

    fn publish(&mut self, word: usize, old: Entry, new: Entry) {
        self.writer.store_at(Word::Store(word), old, new);
    }

    fn replaced(&mut self, entry: Entry) {
        if entry.is_leaf() {
            return;
        }
        let (units, first, runs) = self.store().extent(entry, self.probe);
        (first..first + runs).for_each(|word| self.replaced(self.entry(word)));
        self.writer.ledger.unlinked.push((entry.unit(), units));
    }

    fn left(&mut self, node: Entry) {
        if !node.is_leaf() {
            let (units, ..) = self.store().extent(node, self.probe);
            self.writer.ledger.unlinked.push((node.unit(), units));
        }
    }
}

impl FibWriter<u128> for Writer {
    fn fib(&self) -> Arc<dyn Fib<u128>> {
        self.fib.clone()
    }

    fn patch(&mut self, rib: &Rib<u128>, changed: &[Prefix<u128>]) -> Result<(), Outgrown> {
        self.patch_told(rib, changed, &())
    }

    fn after_failure(&self) -> AfterFailure {
        AfterFailure::Restored
    }

    fn patch_probed(
        &mut self,
        rib: &Rib<u128>,
        changed: &[Prefix<u128>],
        probe: &dyn Probe,
    ) -> Result<(), Outgrown> {
        self.patch_told(rib, changed, &probe)?;
        let tell = |word: &AtomicU32| probe.write(std::ptr::from_ref(word).addr(), size_of::<AtomicU32>());
        // What nodes were made of, then what made them visible.
        for &(unit, words) in &self.taken {
            self.fib.store.words[unit as usize * UNIT..][..words].iter().for_each(tell);
        }
        self.stored.iter().for_each(|&(word, _)| tell(self.word(word)));
        Ok(())
    }
}
