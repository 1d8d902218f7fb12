//! The writer: builds the structure, and patches it while readers look.
//!
//! A patch goes down to the smallest region of the trie that holds the changed prefix, and spreads anew over its slots what the
//! RIB says of the prefix. If the node's runs are where they were, their entries are stored in place; otherwise a
//! new node takes the old one's place in the entry above, over the same nodes below.

use super::build::{self, Draft, Slots, Space, heads, place, spread, starts};
use super::lookup::Kernel;
use super::{Entry, LARGE_HEAD, Lulea, ROOT, SLOTS, UNIT, byte, slot_region};
use crate::fib::{BuildError, Fib, FibWriter, Label, Outgrown};
use crate::prefix::Prefix;
use crate::ranges::ranges;
use crate::rib::Rib;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tidemill_lookup::mem::Table;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::{Domain, Epoch};

/// Units of a block.
const BLOCK: usize = SLOTS / UNIT;
/// Units of the largest node.
const LARGEST: usize = (LARGE_HEAD + SLOTS) / UNIT;

/// The one writer of a [`Lulea`].
pub struct Writer {
    fib: Arc<Lulea>,
    domain: Domain,
    /// Units from here on have never been used.
    fresh: usize,
    /// Free runs of units, by their number.
    free: Vec<Vec<u32>>,
    /// Runs of units unlinked by the batch under way: first and number.
    unlinked: Vec<(u32, usize)>,
    /// Those of earlier batches, until no reader can see them.
    waiting: VecDeque<(Epoch, Vec<(u32, usize)>)>,
    /// A patch was refused half-way: what is noted as unlinked may still be linked, so nothing may be used again.
    outgrown: bool,
    /// Words stored to, while a probe listens.
    stored: Option<Vec<usize>>,
}

impl Writer {
    /// Builds the structure of `rib`. Its readers must belong to `domain`.
    ///
    /// # Errors
    /// A label of more than 31 bits; no memory.
    pub fn new(rib: &Rib<u128>, domain: &Domain) -> Result<Self, BuildError> {
        let ranges = ranges(rib, Prefix::DEFAULT);
        build::check(&ranges)?;
        let mut draft = Draft::new();
        let put = |draft: &mut Draft, slot: usize, entry: Entry| draft.set(slot, entry.0);
        build::root(&mut draft, &ranges, 0..ROOT, put).map_err(|full| BuildError::TooLarge {
            structure: "lulea".into(),
            what: full.what,
            advice: "split the table".into(),
        })?;
        let fresh = draft.words.len() / UNIT;
        // Room for patches: a table grows by some per cent a month, and the units of a batch are used twice over.
        let capacity = (fresh + fresh / 4 + 8192).min(Entry::UNITS_MAX);
        let words = Table::<AtomicU32>::new(capacity * UNIT)?;
        for (to, &from) in words.iter().zip(&draft.words) {
            to.store(from, Ordering::Relaxed);
        }
        let mut free = vec![Vec::new(); LARGEST + 1];
        let mut used = fresh;
        for &(unit, units) in &draft.gaps {
            free[units].push(unit);
            used -= units;
        }
        let fib = Arc::new(Lulea { words, used: AtomicUsize::new(used), kernel: Kernel::best() });
        Ok(Writer {
            fib,
            domain: domain.clone(),
            fresh,
            free,
            unlinked: Vec::new(),
            waiting: VecDeque::new(),
            outgrown: false,
            stored: None,
        })
    }

    /// The structure, with all that its own type offers.
    pub fn lulea(&self) -> &Arc<Lulea> {
        &self.fib
    }

    fn note(&mut self, word: usize) {
        if let Some(stored) = &mut self.stored {
            stored.push(word);
        }
    }

    fn ranges(&self, rib: &Rib<u128>, region: Prefix<u128>) -> Result<Vec<(u128, Label)>, Outgrown> {
        let ranges = ranges(rib, region);
        build::check(&ranges).map_err(|error| Outgrown { what: error.to_string() })?;
        Ok(ranges)
    }

    /// Stores what has changed. The node behind `new` was written before: this makes it visible.
    fn publish(&mut self, word: usize, old: Entry, new: Entry) {
        if new != old {
            self.fib.words[word].store(new.0, Ordering::Release);
            self.note(word);
        }
    }

    fn patch_one(&mut self, rib: &Rib<u128>, prefix: Prefix<u128>) -> Result<(), Outgrown> {
        if prefix.len() <= 16 {
            let ranges = self.ranges(rib, prefix)?;
            let slots = (prefix.first() >> 112) as usize..(prefix.last() >> 112) as usize + 1;
            return build::root(self, &ranges, slots, |writer, slot, new| {
                let old = writer.fib.entry(slot);
                writer.publish(slot, old, new);
                writer.unlink_block(old);
            });
        }
        let slot = (prefix.first() >> 112) as usize;
        let Some(region) = Prefix::new(prefix.first(), 16) else { return Ok(()) };
        let entry = self.fib.entry(slot);
        if entry.is_leaf() {
            let new = build::block(self, &self.ranges(rib, region)?, region)?;
            self.publish(slot, entry, new);
            return Ok(());
        }
        let block = entry.word();
        if prefix.len() <= 24 {
            let ranges = self.ranges(rib, prefix)?;
            spread(self, &ranges, region, prefix, |writer, run, new| {
                for slot in run {
                    let old = writer.fib.entry(block + slot);
                    writer.publish(block + slot, old, new);
                    writer.unlink(old);
                }
            })?;
        } else {
            let at = usize::from(byte(prefix.first(), 16));
            let old = self.fib.entry(block + at);
            let new = self.patch_node(rib, old, slot_region(region, at), prefix)?;
            self.publish(block + at, old, new);
        }
        let first = self.fib.entry(block);
        if first.is_leaf() && (1..SLOTS).all(|slot| self.fib.entry(block + slot) == first) {
            self.publish(slot, entry, first); // one label everywhere: no block needed
            self.unlink_block(entry);
        }
        Ok(())
    }

    /// The entry for `region`, where `entry` stood, after a change of `prefix`, which lies in it and is longer.
    fn patch_node(
        &mut self,
        rib: &Rib<u128>,
        entry: Entry,
        region: Prefix<u128>,
        prefix: Prefix<u128>,
    ) -> Result<Entry, Outgrown> {
        let (old, first) = self.slots(entry);
        let mut new = old;
        let at = usize::from(byte(prefix.first(), region.len()));
        let mut covered = at..at;
        if prefix.len() > region.len() + 8 {
            new[at] = self.patch_node(rib, old[at], slot_region(region, at), prefix)?;
        } else {
            covered.end = usize::from(byte(prefix.last(), region.len())) + 1;
            let ranges = self.ranges(rib, prefix)?;
            spread(self, &ranges, region, prefix, |_, run, entry| new[run].fill(entry))?;
        }
        let runs = heads(&new);
        let found = if entry.is_leaf() || runs != heads(&old) {
            let found = build::write(self, &new)?;
            self.unlink_node(entry);
            found
        } else {
            for (i, start) in starts(&runs).enumerate() {
                self.publish(first + i, old[start], new[start]);
            }
            entry
        };
        // A label may cover several slots; a node has one of its own.
        old[covered].iter().for_each(|&below| self.unlink(below));
        Ok(found)
    }

    /// The slots of a node, and the word of its first entry; a label is all slots.
    fn slots(&self, entry: Entry) -> (Slots, usize) {
        let mut slots = [entry; SLOTS];
        if entry.is_leaf() {
            return (slots, 0);
        }
        let (_, first, _) = self.fib.extent(entry);
        let load = |at: usize| self.fib.words[at].load(Ordering::Relaxed);
        let word = entry.word();
        let mut run = |i: usize, from: usize, to: usize| slots[from..to].fill(Entry(load(first + i)));
        if entry.is_large() {
            let heads = std::array::from_fn(|i| load(word + 2 * i));
            let all: Vec<usize> = starts(&heads).chain([SLOTS]).collect();
            all.windows(2).enumerate().for_each(|(i, ends)| run(i, ends[0], ends[1]));
        } else {
            let mut start = 0;
            let ends = [load(word), load(word + 1)].map(u32::to_le_bytes);
            for (i, &end) in ends.iter().flatten().chain([&u8::MAX]).enumerate() {
                run(i, start, usize::from(end) + 1);
                start = usize::from(end) + 1;
                if end == u8::MAX {
                    break;
                }
            }
        }
        (slots, first)
    }

    fn unlink_block(&mut self, entry: Entry) {
        if !entry.is_leaf() {
            let block = entry.word();
            (block..block + SLOTS).for_each(|slot| self.unlink(self.fib.entry(slot)));
            self.unlinked.push(((block / UNIT) as u32, BLOCK));
        }
    }

    /// Notes the node behind `entry` as unlinked, not those below.
    fn unlink_node(&mut self, entry: Entry) {
        if !entry.is_leaf() {
            let (units, ..) = self.fib.extent(entry);
            self.unlinked.push(((entry.word() / UNIT) as u32, units));
        }
    }

    /// Notes the node behind `entry` and all below it as unlinked.
    fn unlink(&mut self, entry: Entry) {
        if entry.is_leaf() {
            return;
        }
        let (units, first, runs) = self.fib.extent(entry);
        (first..first + runs).for_each(|at| self.unlink(self.fib.entry(at)));
        self.unlinked.push(((entry.word() / UNIT) as u32, units));
    }

    /// Takes back the units that no reader can see any more.
    fn reclaim(&mut self) {
        while self.waiting.front().is_some_and(|(epoch, _)| self.domain.passed(*epoch)) {
            let Some((_, all)) = self.waiting.pop_front() else { break };
            for (unit, units) in all {
                self.fib.used.fetch_sub(units, Ordering::Relaxed);
                self.free[units].push(unit);
            }
        }
    }
}

impl Space for Writer {
    fn take(&mut self, units: usize) -> Result<u32, Outgrown> {
        let unit = match self.free[units].pop() {
            Some(unit) => unit,
            None => {
                let unit = place(self.fresh, units);
                let capacity = self.fib.words.len() / UNIT;
                if unit + units > capacity {
                    return Err(Outgrown { what: format!("all {capacity} units are in use") });
                }
                if unit > self.fresh {
                    self.free[unit - self.fresh].push(self.fresh as u32);
                }
                self.fresh = unit + units;
                unit as u32
            }
        };
        self.fib.used.fetch_add(units, Ordering::Relaxed);
        Ok(unit)
    }

    fn set(&mut self, word: usize, value: u32) {
        self.fib.words[word].store(value, Ordering::Relaxed);
        self.note(word);
    }
}

impl FibWriter<u128> for Writer {
    fn fib(&self) -> Arc<dyn Fib<u128>> {
        self.fib.clone()
    }

    fn patch(&mut self, rib: &Rib<u128>, changed: &[Prefix<u128>]) -> Result<(), Outgrown> {
        if self.outgrown {
            return Err(Outgrown { what: "an earlier patch was refused".into() });
        }
        self.reclaim();
        for &prefix in changed {
            let done = self.patch_one(rib, prefix);
            self.outgrown = done.is_err();
            done?;
        }
        if !self.unlinked.is_empty() {
            self.waiting.push_back((self.domain.advance(), std::mem::take(&mut self.unlinked)));
            self.reclaim();
        }
        Ok(())
    }

    fn patch_probed(
        &mut self,
        rib: &Rib<u128>,
        changed: &[Prefix<u128>],
        probe: &dyn Probe,
    ) -> Result<(), Outgrown> {
        self.stored = Some(Vec::new());
        let done = self.patch(rib, changed);
        for word in self.stored.take().unwrap_or_default() {
            probe.write(std::ptr::from_ref(&self.fib.words[word]).addr(), size_of::<AtomicU32>());
        }
        done
    }
}
