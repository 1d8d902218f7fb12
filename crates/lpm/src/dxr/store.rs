//! What the structures of several VRFs can have in common: chunks and extension blocks, with the books that say who
//! refers to what.
//!
//! ```text
//! Dxr "red"   direct 7 7 9 ... ----+        Store   blocks  |0|...|7|..|9|     read by all
//! Dxr "blue"  direct 7 8 9 ... ----+------>         ranges  |chunk|chunk|...
//!                                                   books   references, free space; locked by writers only
//! ```
//!
//! A structure on its own has a store on its own. Readers never lock: they read `blocks` and `ranges`, whose words are stored
//! once before anybody can reach them, or, for a descriptor, at once.

use super::build::Range;
use super::{Chunk, Layout, MAX_RANGE_WORDS, RANGES_PAD, Split};
use crate::pool::{Pool, Run};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidemill_lookup::mem::{Arena, Table};
use tidemill_lookup::qsbr::{Domain, Epoch};

/// Chunks and extension blocks.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) layout: Layout,
    pub(super) split: Split,
    pub(super) label_bits: u8,
    /// Extension blocks, 2^X descriptors each; empty in `DxR`.
    pub(super) blocks: Table<AtomicU32>,
    /// Chunks, and at least one word behind them: SIMD loads of a short entry take two bytes more.
    pub(super) ranges: Table<AtomicU32>,
    /// Words of `blocks` and `ranges` in use, from their beginning; only writers store here.
    pub(super) used_blocks: AtomicUsize,
    pub(super) used_ranges: AtomicUsize,
    /// On a line of its own, so that locking does not disturb readers.
    books: Box<Mutex<Books>>,
}

/// How a store lays out its words, and how many there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) layout: Layout,
    pub(super) split: Split,
    pub(super) label_bits: u8,
    /// Extension blocks that there is room for.
    pub(super) blocks: usize,
    /// Units of chunks that there is room for.
    pub(super) units: usize,
}

impl Shape {
    /// Words of `ranges`.
    fn range_words(&self) -> usize {
        (self.units << self.split.unit_shift) + RANGES_PAD
    }

    /// Words of `blocks`.
    fn block_words(&self) -> usize {
        if self.layout.x == 0 { 0 } else { self.blocks << self.layout.x }
    }

    /// The most units that descriptors and SIMD kernels can address.
    pub(super) fn most_units(split: Split) -> u64 {
        split.values().min((MAX_RANGE_WORDS >> split.unit_shift) as u64)
    }
}

/// The tables of one structure.
#[derive(Debug)]
pub(super) struct Own {
    /// Block numbers, 2^D of them; empty in `DxR`.
    pub(super) direct: Table<AtomicU16>,
    /// Descriptors of `DxR`, 2^D of them; empty in `DdXxR`.
    pub(super) descs: Table<AtomicU32>,
}

impl Own {
    /// Elements of `direct` and `descs`.
    fn lens(layout: Layout, slots: usize) -> (usize, usize) {
        if layout.x == 0 { (0, slots) } else { (slots, 0) }
    }

    fn bytes(layout: Layout, slots: usize) -> usize {
        let (direct, descs) = Self::lens(layout, slots);
        Arena::bytes_for::<AtomicU16>(direct) + Arena::bytes_for::<AtomicU32>(descs)
    }

    fn cut(layout: Layout, slots: usize, arena: &mut Arena) -> std::io::Result<Self> {
        let (direct, descs) = Self::lens(layout, slots);
        Ok(Own { direct: arena.table(direct)?, descs: arena.table(descs)? })
    }

    /// The tables of a structure that joins a store.
    pub(super) fn new(layout: Layout) -> std::io::Result<Self> {
        let slots = 1 << layout.d;
        Self::cut(layout, slots, &mut Arena::new(Self::bytes(layout, slots))?)
    }
}

impl Store {
    /// A store with the tables of its first structure, which share their memory pages.
    pub(super) fn new(shape: Shape, domain: &Domain) -> std::io::Result<(Self, Own)> {
        Self::with(shape, 1 << shape.layout.d, domain, Arena::new)
    }

    /// The same in memory that need not be there yet, and without readers, for `slots` slots of a structure.
    pub(super) fn scratch(shape: Shape, slots: usize) -> std::io::Result<(Self, Own)> {
        Self::with(shape, slots, &Domain::new(), Arena::untouched)
    }

    fn with(
        shape: Shape,
        slots: usize,
        domain: &Domain,
        arena: impl Fn(usize) -> std::io::Result<Arena>,
    ) -> std::io::Result<(Self, Own)> {
        let Shape { layout, split, label_bits, .. } = shape;
        let (blocks, ranges) = (shape.block_words(), shape.range_words());
        let bytes = Own::bytes(layout, slots)
            + Arena::bytes_for::<AtomicU32>(blocks)
            + Arena::bytes_for::<AtomicU32>(ranges);
        let mut arena = arena(bytes)?;
        let own = Own::cut(layout, slots, &mut arena)?;
        let books = Books {
            chunks: Pool::new(shape.units as u32, split.unit_shift),
            blocks: Pool::new(shape.blocks as u32, layout.x.into()),
            retired: Retired::default(),
            waiting: VecDeque::new(),
            domain: domain.clone(),
            tables: 0,
            full: false,
        };
        let store = Store {
            layout,
            split,
            label_bits,
            blocks: arena.table(blocks)?,
            ranges: arena.table(ranges)?,
            used_blocks: AtomicUsize::new(0),
            used_ranges: AtomicUsize::new(0),
            books: Box::new(Mutex::new(books)),
        };
        Ok((store, own))
    }

    /// The books. For the control side: readers must not wait.
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the content of another one, which must fit; the readers waited for stay those of this one.
    pub(super) fn take(&mut self, from: Store) {
        copy(&self.blocks, &from.blocks, from.used_blocks.load(Ordering::Relaxed));
        copy(&self.ranges, &from.ranges, from.used_ranges.load(Ordering::Relaxed));
        self.used_blocks = from.used_blocks;
        self.used_ranges = from.used_ranges;
        let books = self.books.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut old = from.books.into_inner().unwrap_or_else(PoisonError::into_inner);
        old.chunks.set_capacity(books.chunks.capacity());
        old.blocks.set_capacity(books.blocks.capacity());
        old.domain = books.domain.clone();
        *books = old;
    }

    /// Words of one long entry.
    #[inline(always)]
    pub(super) fn long_words(&self) -> usize {
        if self.label_bits == 32 { 2 } else { 1 }
    }

    /// Words of a chunk's entries, without what fills the last unit.
    pub(super) fn chunk_words(&self, chunk: Chunk) -> usize {
        let count = chunk.last as usize + 1;
        if chunk.long { count * self.long_words() } else { count.div_ceil(2) }
    }

    /// The run of a chunk.
    pub(super) fn chunk_run(&self, chunk: Chunk) -> Run {
        let units = (self.chunk_words(chunk).div_ceil(1 << self.split.unit_shift)) as u32;
        Run { unit: chunk.base, units }
    }

    /// What a descriptor says of the chunk that begins at `first`.
    pub(super) fn read(&self, desc: u32, first: u32, ranges: &mut Vec<Range>) {
        ranges.clear();
        let Some(chunk) = self.split.chunk(desc) else {
            ranges.push(Range { start: first, label: desc >> self.split.value_shift() });
            return;
        };
        let at = (chunk.base as usize) << self.split.unit_shift;
        let words = &self.ranges[at..at + self.chunk_words(chunk)];
        let word = |i: usize| words[i].load(Ordering::Relaxed);
        let entries = 0..=chunk.last as usize;
        let range = |(start, label)| Range { start: first | start, label };
        match (chunk.long, self.label_bits) {
            (false, _) => ranges.extend(entries.map(|i| {
                let entry = word(i / 2) >> (i % 2 * 16);
                range((entry & 0xff00, entry & 0xff))
            })),
            (true, 32) => ranges.extend(entries.map(|i| range((word(2 * i) >> 16, word(2 * i + 1))))),
            (true, _) => ranges.extend(entries.map(|i| range((word(i) >> 16, word(i) & 0xffff)))),
        }
        // One range is written twice.
        ranges.dedup_by_key(|range| range.start);
    }

    /// The descriptors of a block.
    #[inline(always)]
    pub(super) fn block(&self, number: u16) -> &[AtomicU32] {
        let first = usize::from(number) << self.layout.x;
        &self.blocks[first..first + (1 << self.layout.x)]
    }

    /// Tells readers of statistics how much is in use.
    pub(super) fn tell_used(&self, books: &Books) {
        self.used_blocks.store(books.blocks.used(), Ordering::Relaxed);
        self.used_ranges.store(books.chunks.used(), Ordering::Relaxed);
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        4 * (self.used_blocks.load(Ordering::Relaxed) + self.used_ranges.load(Ordering::Relaxed))
    }
}

fn copy(to: &[AtomicU32], from: &[AtomicU32], count: usize) {
    for (to, from) in to.iter().zip(&from[..count]) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Copies a structure's own tables.
pub(super) fn copy_own(to: &Own, from: &Own) {
    for (to, from) in to.direct.iter().zip(from.direct.iter()) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    copy(&to.descs, &from.descs, from.descs.len());
}

/// Runs that are no longer linked, and may still be seen.
#[derive(Debug, Default)]
pub(super) struct Retired {
    chunks: Vec<Run>,
    blocks: Vec<Run>,
    /// Blocks that a slot has left, and that others still have.
    left: Vec<u32>,
}

/// Who refers to what in a [`Store`], and what is free.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) chunks: Pool,
    /// Extension blocks; unused in `DxR`.
    pub(super) blocks: Pool,
    /// Retired since the last [`retire`](Self::retire).
    pub(super) retired: Retired,
    /// Retired before, waiting for their grace period.
    waiting: VecDeque<(Epoch, Retired)>,
    domain: Domain,
    /// Structures that refer to the store.
    pub(super) tables: usize,
    /// A structure has found no room: new ones had better go elsewhere.
    pub(super) full: bool,
}

impl Books {
    /// One reference less to a chunk.
    #[inline]
    pub(super) fn release_chunk(&mut self, store: &Store, chunk: Chunk) {
        self.retired.chunks.extend(self.chunks.release(store.chunk_run(chunk)));
    }

    /// One reference less to what a descriptor says.
    #[inline]
    pub(super) fn release_desc(&mut self, store: &Store, desc: u32) {
        if let Some(chunk) = store.split.chunk(desc) {
            self.release_chunk(store, chunk);
        }
    }

    /// One reference less to an extension block.
    pub(super) fn release_block(&mut self, store: &Store, number: u16) {
        let run = Run { unit: number.into(), units: 1 };
        if let Some(run) = self.blocks.leave(run) {
            self.retired.blocks.push(run);
            for desc in store.block(number) {
                self.release_desc(store, desc.load(Ordering::Relaxed));
            }
        }
    }

    /// Starts the grace period of what has been unlinked so far.
    pub(super) fn retire(&mut self) {
        let retired = Retired { left: self.blocks.take_left(), ..std::mem::take(&mut self.retired) };
        if !retired.chunks.is_empty() || !retired.blocks.is_empty() || !retired.left.is_empty() {
            self.waiting.push_back((self.domain.advance(), retired));
        }
    }

    /// Takes back the space whose grace period is over.
    pub(super) fn reclaim(&mut self) {
        let domain = &self.domain;
        while let Some((_, retired)) = self.waiting.pop_front_if(|(epoch, _)| domain.passed(*epoch)) {
            retired.chunks.into_iter().for_each(|run| self.chunks.recycle(run));
            self.blocks.settle(retired.left);
            retired.blocks.into_iter().for_each(|run| self.blocks.recycle(run));
        }
    }

    /// The last resort when there is no room: what readers have already left, in as large pieces as possible.
    pub(super) fn make_room(&mut self) {
        self.retire();
        self.reclaim();
        self.chunks.defragment();
        self.blocks.defragment();
    }
}
