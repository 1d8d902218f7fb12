//! Changes: what makes the chunks of a span say what a list of ranges says, in a store that others may share, while readers
//! look up.
//!
//! A slot changes by one store: a descriptor in `DxR`, and in `DdXxR` a descriptor in a block that this slot alone refers to,
//! or else the block's number. What is replaced loses a reference after that store.

use super::Chunk;
use super::build::{Chunks, Encoder, Range, Stretch};
use super::store::{Books, Own, Store};
use crate::fib::Outgrown;
use crate::pool::{Full, Run, hash};
use crate::prefix::Prefix;
use std::sync::atomic::{AtomicU32, Ordering};
use tidemill_lookup::probe::Probe;

/// Why an edit stops. Every reference is counted then as if it had not been tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Chunks,
    Blocks,
    Count(usize),
    Label(u32),
}

impl From<Stop> for Outgrown {
    fn from(stop: Stop) -> Self {
        let what = match stop {
            Stop::Chunks => "no space for a range chunk".to_owned(),
            Stop::Blocks => "no space for an extension block".to_owned(),
            Stop::Count(count) => format!("a chunk of {count} ranges has no encoding"),
            Stop::Label(label) => format!("label {label} is wider than the labels of this table"),
        };
        Outgrown { what }
    }
}

/// Memory that edits use again and again.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    encoder: Encoder,
    /// The block under change, and its descriptors as readers see them. Where the two differ, `block` has a reference.
    block: Vec<u32>,
    was: Vec<u32>,
}

/// A structure under change. After the last [`fill`](Self::fill) or a stop comes [`finish`](Self::finish).
pub(super) struct Edit<'a, P> {
    store: &'a Store,
    own: &'a Own,
    books: &'a mut Books,
    scratch: &'a mut Scratch,
    probe: &'a P,
    /// What `own` begins with: the number of its first slot.
    base: usize,
    /// Slots are linked for the first time, in ascending order; there are no readers of `own`.
    building: bool,
    /// The slot of the direct table whose block is in `scratch`.
    open: Option<usize>,
    /// While building: the slots in front of this one are linked.
    linked: usize,
}

impl<'a, P: Probe> Edit<'a, P> {
    /// A change of a finished structure.
    pub(super) fn patch(
        store: &'a Store,
        own: &'a Own,
        books: &'a mut Books,
        scratch: &'a mut Scratch,
        probe: &'a P,
    ) -> Self {
        scratch.block.resize(1 << store.layout.x, 0);
        scratch.was.resize(1 << store.layout.x, 0);
        Edit { store, own, books, scratch, probe, base: 0, building: false, open: None, linked: 0 }
    }

    /// The first filling of `own`, whose first slot has the number `base`.
    pub(super) fn build(
        store: &'a Store,
        own: &'a Own,
        base: usize,
        books: &'a mut Books,
        scratch: &'a mut Scratch,
        probe: &'a P,
    ) -> Self {
        Edit { base, building: true, ..Self::patch(store, own, books, scratch, probe) }
    }

    /// Ends the edit: publishes what is open or, after a stop, gives back what is not linked.
    pub(super) fn finish(mut self, result: Result<(), Stop>) -> Result<(), Stop> {
        let result = result.and_then(|()| self.close());
        if let Err(stop) = result {
            self.abandon();
            if self.building {
                self.own.unlink(self.store, self.books, self.linked);
            }
            self.books.full |= matches!(stop, Stop::Chunks | Stop::Blocks);
        }
        self.books.retire();
        self.store.tell_used(self.books);
        result
    }

    /// Makes the chunks of `span`, one or a power of two of them, say what `ranges` say. The last block stays open for
    /// the next call.
    pub(super) fn fill(&mut self, span: Prefix<u32>, ranges: &[Range]) -> Result<(), Stop> {
        let layout = self.store.layout;
        for Stretch { first, count, ranges } in Chunks::new(layout.rest(), span, ranges) {
            if layout.x > 0 {
                self.fill_blocks(first..first + count, ranges)?;
                continue;
            }
            let desc = self.describe(ranges, count)?;
            // Scratch memory says 0 already, and must not be touched for it.
            if !self.building || desc != 0 {
                (first..first + count).for_each(|chunk| self.set_desc(chunk, desc));
            }
        }
        Ok(())
    }

    /// Makes each of `chunks` say what `ranges` say, in `DdXxR`.
    fn fill_blocks(&mut self, mut chunks: std::ops::Range<usize>, ranges: &[Range]) -> Result<(), Stop> {
        let x = self.store.layout.x;
        while !chunks.is_empty() {
            let slot = chunks.start >> x;
            let stop = chunks.end.min((slot + 1) << x);
            let count = stop - chunks.start;
            self.open(slot)?;
            let desc = self.describe(ranges, count)?;
            let from = chunks.start & ((1 << x) - 1);
            (from..from + count).for_each(|i| self.put(i, desc));
            chunks.start = stop;
            let behind = chunks.end >> x;
            if count == 1 << x && slot + 1 < behind {
                // More whole blocks of the same: they share the first one.
                self.close()?;
                let number = self.own.direct[slot - self.base].load(Ordering::Relaxed);
                (slot + 1..behind).for_each(|slot| self.share_block(slot, number));
                chunks.start = behind << x;
            }
        }
        Ok(())
    }

    /// What a chunk says now.
    pub(super) fn read(&mut self, chunk: usize, ranges: &mut Vec<Range>) -> Result<(), Stop> {
        let layout = self.store.layout;
        let desc = match layout.x {
            0 => {
                tell_reads(self.probe, &self.own.descs, chunk - self.base, 1);
                self.own.descs[chunk - self.base].load(Ordering::Relaxed)
            }
            x => {
                self.open(chunk >> x)?;
                self.scratch.block[chunk & ((1 << x) - 1)]
            }
        };
        if let Some(chunk) = self.store.split.chunk(desc) {
            let first = (chunk.base as usize) << self.store.split.unit_shift;
            tell_reads(self.probe, &self.store.ranges, first, self.store.chunk_words(chunk));
        }
        self.store.read(desc, (chunk as u32) << layout.rest(), ranges);
        Ok(())
    }

    /// The descriptor of `count` chunks, each of which gets a reference to its ranges.
    fn describe(&mut self, ranges: &[Range], count: usize) -> Result<u32, Stop> {
        let Store { layout, split, label_bits, .. } = *self.store;
        if let Some(range) = ranges.iter().find(|range| range.label > u32::MAX >> (32 - label_bits)) {
            return Err(Stop::Label(range.label));
        }
        if let [range] = ranges
            && let Some(desc) = split.encode_label(range.label)
        {
            return Ok(desc);
        }
        let last = ranges.len().max(2) - 1;
        if last as u64 > split.count_mask().into() {
            return Err(Stop::Count(last + 1));
        }
        let long = self.scratch.encoder.encode(layout.rest(), ranges, label_bits, split.unit_shift);
        self.take_words(last as u32, long, count)
    }

    /// The same for a chunk whose words the encoder holds.
    fn take_words(&mut self, last: u32, long: bool, count: usize) -> Result<u32, Stop> {
        let (store, split) = (self.store, self.store.split);
        let words = &self.scratch.encoder.words;
        let (base, new) = match self.books.chunks.intern(&store.ranges, words) {
            Err(Full) => {
                self.books.make_room();
                self.books.chunks.intern(&store.ranges, words).map_err(|Full| Stop::Chunks)?
            }
            Ok(found) => found,
        };
        if new {
            tell_writes(self.probe, &store.ranges, (base as usize) << split.unit_shift, words.len());
        }
        // A store has no more units than a descriptor can name, and `last` has been compared.
        let chunk = Chunk { base, last, long };
        let Some(desc) = split.encode_chunk(chunk) else {
            self.books.release_chunk(store, chunk);
            return Err(Stop::Chunks);
        };
        self.books.chunks.acquire(base, count - 1);
        Ok(desc)
    }

    /// Publishes a descriptor in `DxR`.
    fn set_desc(&mut self, chunk: usize, desc: u32) {
        let place = chunk - self.base;
        let slot = &self.own.descs[place];
        let old = slot.load(Ordering::Relaxed);
        if old != desc {
            // Release: whoever finds the descriptor here finds its chunk's content.
            slot.store(desc, Ordering::Release);
            tell_writes(self.probe, &self.own.descs, place, 1);
        }
        self.books.release_desc(self.store, old);
    }

    /// Opens the block behind a slot of the direct table for changes.
    fn open(&mut self, slot: usize) -> Result<(), Stop> {
        if self.open == Some(slot) {
            return Ok(());
        }
        self.close()?;
        self.open = Some(slot);
        let Scratch { block, was, .. } = &mut *self.scratch;
        if self.building {
            was.fill(0);
        } else {
            let cell = &self.own.direct[slot - self.base];
            self.probe.read(std::ptr::from_ref(cell).addr(), 2, false);
            let number = cell.load(Ordering::Relaxed);
            tell_reads(self.probe, self.store.block(number), 0, was.len());
            for (was, desc) in was.iter_mut().zip(self.store.block(number)) {
                *was = desc.load(Ordering::Relaxed);
            }
        }
        block.copy_from_slice(was);
        Ok(())
    }

    /// Replaces a descriptor in the open block by one that has a reference.
    #[inline]
    fn put(&mut self, place: usize, desc: u32) {
        let was = self.scratch.was[place];
        let old = std::mem::replace(&mut self.scratch.block[place], desc);
        if old != was {
            self.books.release_desc(self.store, old);
        }
        if desc == was {
            // The published block has a reference, so this is not the last one.
            self.books.release_desc(self.store, desc);
        }
    }

    /// Publishes the open block.
    fn close(&mut self) -> Result<(), Stop> {
        let Some(slot) = self.open else { return Ok(()) };
        let store = self.store;
        if !self.building && self.scratch.block == self.scratch.was {
            self.open = None;
            return Ok(());
        }
        let hash = hash(&self.scratch.block);
        if let Some(number) = self.books.blocks.find(&store.blocks, &self.scratch.block, hash) {
            // The block that is there already has its references.
            self.abandon();
            self.set_block(slot, number as u16);
            return Ok(());
        }
        if !self.building {
            let number = self.own.direct[slot - self.base].load(Ordering::Relaxed);
            if self.books.blocks.is_alone(number.into()) {
                self.open = None;
                self.rewrite_block(number, hash);
                return Ok(());
            }
        }
        let blocks = &mut self.books.blocks;
        let number = match blocks.insert(&store.blocks, &self.scratch.block, hash) {
            Err(Full) => {
                self.books.make_room();
                let blocks = &mut self.books.blocks;
                blocks.insert(&store.blocks, &self.scratch.block, hash).map_err(|Full| Stop::Blocks)?
            }
            Ok(number) => number,
        };
        self.open = None;
        let Scratch { block, was, .. } = &*self.scratch;
        for (&desc, _) in block.iter().zip(was).filter(|(desc, was)| desc == was) {
            if let Some(chunk) = store.split.chunk(desc) {
                self.books.chunks.acquire(chunk.base, 1);
            }
        }
        tell_writes(self.probe, &store.blocks, (number as usize) << store.layout.x, block.len());
        self.set_block(slot, number as u16);
        Ok(())
    }

    /// Changes a block that one slot alone refers to, in place.
    fn rewrite_block(&mut self, number: u16, hash: u32) {
        self.books.blocks.rewrite(Run { unit: number.into(), units: 1 }, hash);
        let first = usize::from(number) << self.store.layout.x;
        for place in 0..self.scratch.block.len() {
            let (desc, was) = (self.scratch.block[place], self.scratch.was[place]);
            if desc != was {
                // Release: whoever finds the descriptor here finds its chunk's content.
                self.store.blocks[first + place].store(desc, Ordering::Release);
                tell_writes(self.probe, &self.store.blocks, first + place, 1);
                self.books.release_desc(self.store, was);
            }
        }
    }

    /// Forgets the open block, and with it the references that it has.
    fn abandon(&mut self) {
        if self.open.take().is_some() {
            for place in 0..self.scratch.block.len() {
                let desc = self.scratch.block[place];
                if desc != self.scratch.was[place] {
                    self.books.release_desc(self.store, desc);
                }
            }
        }
    }

    /// Publishes a block once more.
    fn share_block(&mut self, slot: usize, number: u16) {
        self.books.blocks.acquire(number.into(), 1);
        self.set_block(slot, number);
    }

    /// Publishes a block, with a reference that has been counted.
    fn set_block(&mut self, slot: usize, number: u16) {
        let cell = &self.own.direct[slot - self.base];
        let old = cell.load(Ordering::Relaxed);
        if old != number {
            // Release: whoever finds the block here finds its content, and that of its chunks.
            cell.store(number, Ordering::Release);
            self.probe.write(std::ptr::from_ref(cell).addr(), 2);
        }
        if self.building {
            self.linked = slot + 1 - self.base;
        } else {
            self.books.release_block(self.store, old);
        }
    }

    /// Takes over what was built elsewhere with the same split, as if it had been built here.
    pub(super) fn absorb(&mut self, from: &Store, own: &Own, base: usize) -> Result<(), Stop> {
        let mut taken = vec![0; from.used_ranges.load(Ordering::Relaxed) >> from.split.unit_shift];
        for (slot, desc) in (base..).zip(own.descs.iter()) {
            match desc.load(Ordering::Relaxed) {
                0 => {}
                desc => {
                    let desc = self.take_desc(from, desc, &mut taken)?;
                    self.set_desc(slot, desc);
                }
            }
        }
        let mut numbers = vec![None; from.used_blocks.load(Ordering::Relaxed) >> from.layout.x];
        for (slot, number) in (base..).zip(own.direct.iter()) {
            let number = number.load(Ordering::Relaxed);
            if let Some(number) = numbers[usize::from(number)] {
                self.share_block(slot, number);
                continue;
            }
            self.open(slot)?;
            for (place, desc) in from.block(number).iter().enumerate() {
                let desc = self.take_desc(from, desc.load(Ordering::Relaxed), &mut taken)?;
                self.put(place, desc);
            }
            self.close()?;
            numbers[usize::from(number)] = Some(self.own.direct[slot - self.base].load(Ordering::Relaxed));
        }
        Ok(())
    }

    /// Our descriptor for another store's, with a reference. `taken`: those found before, by base.
    fn take_desc(&mut self, from: &Store, desc: u32, taken: &mut [u32]) -> Result<u32, Stop> {
        let Some(chunk) = from.split.chunk(desc) else { return Ok(desc) };
        let base = chunk.base as usize;
        let known = taken[base];
        if let Some(chunk) = self.store.split.chunk(known) {
            self.books.chunks.acquire(chunk.base, 1);
            return Ok(known);
        }
        let run = from.chunk_run(chunk);
        let first = base << from.split.unit_shift;
        let words = &from.ranges[first..first + ((run.units as usize) << from.split.unit_shift)];
        self.scratch.encoder.words.clear();
        self.scratch.encoder.words.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
        taken[base] = self.take_words(chunk.last, chunk.long, 1)?;
        Ok(taken[base])
    }
}

impl Own {
    /// Gives back the references of a structure that nobody looks into any more, or of its first `slots` extension blocks.
    pub(super) fn unlink(&self, store: &Store, books: &mut Books, slots: usize) {
        for number in self.direct.iter().take(slots) {
            books.release_block(store, number.load(Ordering::Relaxed));
        }
        // What is not linked yet says 0.
        for desc in self.descs.iter() {
            books.release_desc(store, desc.load(Ordering::Relaxed));
        }
        books.retire();
    }
}

#[inline(always)]
fn tell_reads<P: Probe>(probe: &P, table: &[AtomicU32], first: usize, count: usize) {
    for word in table.iter().skip(first).take(count) {
        probe.read(std::ptr::from_ref(word).addr(), 4, true);
    }
}

#[inline(always)]
fn tell_writes<P: Probe>(probe: &P, table: &[AtomicU32], first: usize, count: usize) {
    for word in table.iter().skip(first).take(count) {
        probe.write(std::ptr::from_ref(word).addr(), 4);
    }
}
