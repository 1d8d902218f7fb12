//! The writer: builds the tables, and patches them while readers look up.
//!
//! Building is patching an empty structure with everything, in scratch memory, and then moving the result to memory of
//! the right size.

use super::{
    Desc, K, Kernel, Labels, Layout, MAX_LABELS, Popdir, REST, RUNS, Sizes, Tables, change_bit, place, simd,
};
use crate::dxr::{Chunks, Range, Stretch, flatten, flatten_from};
use crate::fib::{BuildError, Fib, FibWriter, Label, Outgrown};
use crate::pool::{Cell, Full, Pool, Run};
use crate::prefix::Prefix;
use crate::rib::Rib;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::{Domain, Epoch};

/// Runs that are no longer linked, and may still be seen.
#[derive(Debug, Default)]
struct Retired {
    labels: Vec<Run>,
    asides: Vec<Run>,
    blocks: Vec<Run>,
    /// Blocks that a slot has left, and that others still have.
    left: Vec<u32>,
}

/// The control side of a [`Popdir`].
#[derive(Debug)]
pub struct Writer {
    fib: Arc<Popdir>,
    domain: Domain,
    labels: Pool,
    asides: Pool,
    /// Blocks of descriptors; unused without them.
    blocks: Pool,
    /// No slot of the direct table is linked yet, and there are no readers.
    building: bool,
    /// The slot of the direct table whose block is being changed, its content as published and as it shall be, and which
    /// descriptors have been set: those own a reference to what they describe, the others do not.
    open: Option<usize>,
    published: Vec<u64>,
    block: Vec<u64>,
    set: Vec<bool>,
    /// Retired by the patch under way.
    retired: Retired,
    /// Retired by earlier patches, waiting for their grace period.
    waiting: VecDeque<(Epoch, Retired)>,
    /// Why no patch is possible any more.
    outgrown: Option<Outgrown>,
    ranges: Vec<Range>,
    /// The content of the run that is looked for.
    run: Vec<u32>,
}

/// Why a patch stops.
enum Stop {
    Labels,
    Asides,
    Blocks,
    Label(u32, u8),
}

impl From<Stop> for Outgrown {
    fn from(stop: Stop) -> Self {
        let what = match stop {
            Stop::Labels => "no space for the labels of a chunk".to_owned(),
            Stop::Asides => "no space for the ranges of a chunk with prefixes longer than /24".to_owned(),
            Stop::Blocks => "no space for a block of descriptors".to_owned(),
            Stop::Label(label, width) => {
                format!("label {label} is wider than this table's {width} bytes")
            }
        };
        Outgrown { what }
    }
}

impl Writer {
    /// Builds a structure from a RIB. `domain` is that of the workers who will read it.
    ///
    /// # Errors
    /// If there are more labels than indices, or memory is short.
    pub fn new(rib: &Rib<u32>, layout: Layout, domain: &Domain) -> Result<Self, BuildError> {
        Self::with_kernel(rib, layout, simd::best(), domain)
    }

    /// The same, with batches answered by `kernel`; by plain code if the CPU does not have it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_kernel(
        rib: &Rib<u32>,
        layout: Layout,
        kernel: Kernel,
        domain: &Domain,
    ) -> Result<Self, BuildError> {
        let mut ranges = Vec::with_capacity(rib.len() + rib.len() / 2);
        flatten(Prefix::DEFAULT, Label::NONE, rib.iter(), &mut ranges);
        let width = match ranges.iter().map(|range| range.label).max().unwrap_or(0) {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 4,
        };
        // A chunk of several labels has a range's start inside for each label but one.
        let sizes = Sizes { descs: 1 << K, labels: 2 * ranges.len(), asides: 5 * ranges.len() };
        if sizes.labels > MAX_LABELS {
            return Err(BuildError::TooLarge {
                structure: layout.to_string(),
                what: format!("{} address ranges are more than labels can be numbered", ranges.len()),
                advice: "choose another structure".into(),
            });
        }
        let kernel = if simd::is_supported(kernel) { kernel } else { Kernel::Scalar };
        let mut writer = Writer {
            fib: Arc::new(Popdir {
                layout,
                kernel,
                tables: Tables::new(layout, width, sizes, true)?,
                used_descs: AtomicUsize::new(0),
                used_labels: AtomicUsize::new(0),
                used_asides: AtomicUsize::new(0),
            }),
            domain: domain.clone(),
            labels: Pool::new(sizes.labels as u32, 0),
            asides: Pool::new(sizes.asides as u32, 0),
            blocks: Pool::new(1 << layout.d, layout.x().into()),
            building: true,
            open: None,
            published: vec![0; 1 << layout.x()],
            block: vec![0; 1 << layout.x()],
            set: vec![false; 1 << layout.x()],
            retired: Retired::default(),
            waiting: VecDeque::new(),
            outgrown: None,
            ranges: Vec::new(),
            run: Vec::new(),
        };
        // There is room for every run, and every label fits, so this does not stop.
        let filled = writer.fill(Prefix::DEFAULT, &ranges, &()).and_then(|()| writer.close(&()));
        if let Err(stop) = filled {
            let what = Outgrown::from(stop).what;
            let advice = "this is a fault of the program: please report it".into();
            return Err(BuildError::TooLarge { structure: layout.to_string(), what, advice });
        }
        writer.building = false;
        writer.move_in()?;
        Ok(writer)
    }

    /// Moves the tables from scratch memory to memory of the size that they need, with room for updates.
    fn move_in(&mut self) -> Result<(), BuildError> {
        let Popdir { layout, kernel, ref tables, .. } = *self.fib;
        // As much again, and some: lookups do not touch it.
        let roomy = |used: usize, least: usize| used + used.max(least);
        let used = self.used();
        let blocks = roomy(self.blocks.used() >> layout.x(), 64).min(1 << 16);
        let sizes = Sizes {
            descs: if layout.x() == 0 { used.descs } else { blocks << layout.x() },
            labels: roomy(used.labels, 1 << 14).min(MAX_LABELS),
            asides: roomy(used.asides, 1 << 12),
        };
        self.labels.set_capacity(sizes.labels as u32);
        self.asides.set_capacity(sizes.asides as u32);
        self.blocks.set_capacity(blocks as u32);
        let moved = Tables::new(layout, tables.labels.width(), sizes, false)?;
        copy(&moved.direct, &tables.direct);
        copy(&moved.descs, &tables.descs[..used.descs]);
        copy(&moved.asides, &tables.asides[..used.asides]);
        match (&moved.labels, &tables.labels) {
            (Labels::One(to), Labels::One(from)) => copy(to, &from[..used.labels]),
            (Labels::Two(to), Labels::Two(from)) => copy(to, &from[..used.labels]),
            (Labels::Four(to), Labels::Four(from)) => copy(to, &from[..used.labels]),
            _ => {} // both were made with the same width
        }
        self.fib = Arc::new(Popdir {
            layout,
            kernel,
            tables: moved,
            used_descs: AtomicUsize::new(used.descs),
            used_labels: AtomicUsize::new(used.labels),
            used_asides: AtomicUsize::new(used.asides),
        });
        Ok(())
    }

    /// The structure that readers use.
    pub fn popdir(&self) -> &Arc<Popdir> {
        &self.fib
    }

    fn used(&self) -> Sizes {
        let descs = if self.fib.layout.x() == 0 { 1 << K } else { self.blocks.used() };
        Sizes { descs, labels: self.labels.used(), asides: self.asides.used() }
    }

    /// [`FibWriter::patch`], with every store to the tables told to `probe`, and the loads of what was there: a cell of the direct table, the
    /// block behind it, the labels of a run.
    ///
    /// # Errors
    /// As [`FibWriter::patch`].
    pub fn patch_probed<P: Probe>(
        &mut self,
        rib: &Rib<u32>,
        changed: &[Prefix<u32>],
        probe: &P,
    ) -> Result<(), Outgrown> {
        if let Some(outgrown) = &self.outgrown {
            return Err(outgrown.clone());
        }
        self.reclaim();
        let mut ranges = std::mem::take(&mut self.ranges);
        let spans = spans(changed);
        // Prefixes that share a chunk change it together.
        let same_chunk = |a: &Prefix<u32>, b: &Prefix<u32>| a.first() >> REST == b.first() >> REST;
        let result =
            spans.chunk_by(same_chunk).try_for_each(|spans| self.mend(rib, spans, &mut ranges, probe));
        let result = result.and_then(|()| self.close(probe)).map_err(Outgrown::from);
        self.ranges = ranges;
        self.retire();
        let Sizes { descs, labels, asides } = self.used();
        self.fib.used_descs.store(descs, Ordering::Relaxed);
        self.fib.used_labels.store(labels, Ordering::Relaxed);
        self.fib.used_asides.store(asides, Ordering::Relaxed);
        // References are no longer counted right after a stop: take no patch from then on.
        self.outgrown = result.as_ref().err().cloned();
        result
    }

    /// Brings `spans`, which begin in one chunk, up to date.
    fn mend<P: Probe>(
        &mut self,
        rib: &Rib<u32>,
        spans: &[Prefix<u32>],
        ranges: &mut Vec<Range>,
        probe: &P,
    ) -> Result<(), Stop> {
        let Some(&first) = spans.first() else {
            return Ok(());
        };
        // What is at least a chunk covers all other spans that begin there.
        let whole = Prefix::new(first.first(), first.len().min(K)).unwrap_or(first);
        let chunk = (first.first() >> REST) as usize;
        let mut labels = [0; RUNS as usize];
        if first.len() > K && self.read_chunk(chunk, &mut labels, probe)? {
            let aside = spans.iter().any(|&span| {
                flatten_from(rib, span, ranges);
                let ends =
                    ranges.iter().skip(1).map(|range| range.start).chain([span.last().wrapping_add(1)]);
                for (range, end) in ranges.iter().zip(ends) {
                    let (from, to) = (range.start >> 8 & (RUNS - 1), end.wrapping_sub(1) >> 8 & (RUNS - 1));
                    labels[from as usize..=to as usize].fill(range.label);
                }
                ranges.iter().any(|range| range.start & 0xff != 0)
            });
            if !aside {
                ranges.clear();
                for (i, &label) in labels.iter().enumerate() {
                    if ranges.last().is_none_or(|last| last.label != label) {
                        ranges.push(Range { start: whole.first() + ((i as u32) << 8), label });
                    }
                }
                return self.fill(whole, ranges, probe);
            }
        }
        flatten_from(rib, whole, ranges);
        self.fill(whole, ranges, probe)
    }

    /// The labels of a chunk's /24s; `false` if it is an aside.
    fn read_chunk<P: Probe>(
        &mut self,
        chunk: usize,
        labels: &mut [u32; RUNS as usize],
        probe: &P,
    ) -> Result<bool, Stop> {
        let x = self.fib.layout.x();
        let desc = if x > 0 {
            self.open(chunk >> x, probe)?;
            self.block[chunk & ((1 << x) - 1)]
        } else {
            tell_reads(probe, &self.fib.tables.descs, chunk, 1, false);
            self.fib.tables.descs[chunk].load(Ordering::Relaxed)
        };
        match Desc::decode(desc) {
            Desc::Label(label) => labels.fill(label),
            Desc::Run { map, base } => {
                let mut index = base as usize;
                for (i, label) in (0..).zip(labels) {
                    index += usize::from(i > 0 && map & change_bit(i) != 0);
                    *label = self.fib.tables.labels.get(index, &());
                }
                let (first, count) = (base as usize, index + 1 - base as usize);
                match &self.fib.tables.labels {
                    Labels::One(table) => tell_reads(probe, table, first, count, true),
                    Labels::Two(table) => tell_reads(probe, table, first, count, true),
                    Labels::Four(table) => tell_reads(probe, table, first, count, true),
                }
            }
            Desc::Aside { .. } => return Ok(false),
        }
        Ok(true)
    }

    /// Makes the chunks of `span`, one or a power of two of them, say what `ranges` say. The last block stays open for
    /// the next call.
    fn fill<P: Probe>(&mut self, span: Prefix<u32>, ranges: &[Range], probe: &P) -> Result<(), Stop> {
        let x = self.fib.layout.x();
        for Stretch { first, count, ranges } in Chunks::new(REST, span, ranges) {
            if x > 0 {
                self.fill_blocks(first..first + count, ranges, probe)?;
                continue;
            }
            let desc = self.describe(ranges, count, probe)?;
            // Scratch memory says 0 already, and must not be touched for it.
            if !self.building || desc != 0 {
                (first..first + count).for_each(|chunk| self.set_desc(chunk, desc, probe));
            }
        }
        Ok(())
    }

    /// Makes each of `chunks` say what `ranges` say, where there are blocks.
    fn fill_blocks<P: Probe>(
        &mut self,
        mut chunks: std::ops::Range<usize>,
        ranges: &[Range],
        probe: &P,
    ) -> Result<(), Stop> {
        let x = self.fib.layout.x();
        while !chunks.is_empty() {
            let slot = chunks.start >> x;
            let stop = chunks.end.min((slot + 1) << x);
            let count = stop - chunks.start;
            self.open(slot, probe)?;
            let desc = self.describe(ranges, count, probe)?;
            let from = chunks.start & ((1 << x) - 1);
            for i in from..from + count {
                let old = std::mem::replace(&mut self.block[i], desc);
                if std::mem::replace(&mut self.set[i], true) {
                    self.release(old);
                }
            }
            chunks.start = stop;
            let behind = chunks.end >> x;
            if count == 1 << x && slot + 1 < behind {
                // More whole blocks of the same: they share the first one.
                self.close(probe)?;
                let number = self.fib.tables.direct[slot].load(Ordering::Relaxed);
                self.blocks.acquire(number.into(), behind - (slot + 1));
                (slot + 1..behind).for_each(|slot| self.set_block(slot, number, probe));
                chunks.start = behind << x;
            }
        }
        Ok(())
    }

    /// The descriptor of `count` chunks, each of which owns a reference to its run.
    fn describe<P: Probe>(&mut self, ranges: &[Range], count: usize, probe: &P) -> Result<u64, Stop> {
        if let [range] = ranges {
            return Ok(Desc::Label(range.label).encode());
        }
        let fib = self.fib.clone();
        let mut run = std::mem::take(&mut self.run);
        run.clear();
        let inner = ranges.get(1..).unwrap_or_default();
        let desc = if inner.iter().any(|range| range.start & 0xff != 0) {
            run.push(ranges.len() as u32); // at most 2^13
            for (i, range) in ranges.iter().enumerate() {
                run.extend([if i == 0 { 0 } else { range.start & (u32::MAX >> K) }, range.label]);
            }
            let found =
                self.intern(|writer| writer.asides.intern(&fib.tables.asides, &run)).ok_or(Stop::Asides);
            found.map(|(base, new)| {
                self.asides.acquire(base, count - 1);
                tell_writes(probe, &fib.tables.asides, base, if new { run.len() } else { 0 });
                Desc::Aside { base }
            })
        } else {
            run.extend(ranges.iter().map(|range| range.label));
            let width = fib.tables.labels.width();
            let wide = run.iter().find(|&&label| u64::from(label) >> (8 * width) != 0);
            match wide {
                Some(&label) => Err(Stop::Label(label, width)),
                None => {
                    let found = self.intern(|writer| match &fib.tables.labels {
                        Labels::One(table) => writer.labels.intern(table, &run),
                        Labels::Two(table) => writer.labels.intern(table, &run),
                        Labels::Four(table) => writer.labels.intern(table, &run),
                    });
                    found.ok_or(Stop::Labels).map(|(base, new)| {
                        self.labels.acquire(base, count - 1);
                        let written = if new { run.len() } else { 0 };
                        match &fib.tables.labels {
                            Labels::One(table) => tell_writes(probe, table, base, written),
                            Labels::Two(table) => tell_writes(probe, table, base, written),
                            Labels::Four(table) => tell_writes(probe, table, base, written),
                        }
                        let bits = inner.iter().map(|range| change_bit(range.start >> 8 & (RUNS - 1)));
                        Desc::Run { map: bits.fold(0, |map, bit| map | bit), base }
                    })
                }
            }
        };
        self.run = run;
        Ok(desc?.encode())
    }

    /// Finds or stores a run; if there is no room, with what readers have already left, in as large pieces as possible.
    fn intern(
        &mut self,
        mut intern: impl FnMut(&mut Self) -> Result<(u32, bool), Full>,
    ) -> Option<(u32, bool)> {
        intern(self).ok().or_else(|| {
            self.retire();
            self.reclaim();
            self.labels.defragment();
            self.asides.defragment();
            self.blocks.defragment();
            intern(self).ok()
        })
    }

    /// Publishes a descriptor where there are no blocks.
    fn set_desc<P: Probe>(&mut self, chunk: usize, desc: u64, probe: &P) {
        let slot = &self.fib.tables.descs[chunk];
        let old = slot.load(Ordering::Relaxed);
        if old != desc {
            // Release: whoever finds the descriptor here finds its run's content.
            slot.store(desc, Ordering::Release);
            tell_writes(probe, &self.fib.tables.descs, chunk as u32, 1);
        }
        self.release(old);
    }

    /// Opens the block behind a slot of the direct table for changes.
    fn open<P: Probe>(&mut self, slot: usize, probe: &P) -> Result<(), Stop> {
        if self.open == Some(slot) {
            return Ok(());
        }
        self.close(probe)?;
        self.open = Some(slot);
        if !self.building {
            let Tables { direct, descs, .. } = &self.fib.tables;
            let first = usize::from(direct[slot].load(Ordering::Relaxed)) << self.fib.layout.x();
            tell_reads(probe, direct, slot, 1, false);
            tell_reads(probe, descs, first, self.published.len(), true);
            self.published.iter_mut().zip(&descs[first..]).for_each(|(copy, desc)| *copy = desc.get());
        }
        self.block.copy_from_slice(&self.published);
        self.set.fill(false);
        Ok(())
    }

    /// Publishes the open block: in place if nobody else has it and none is like it.
    fn close<P: Probe>(&mut self, probe: &P) -> Result<(), Stop> {
        let Some(slot) = self.open.take() else { return Ok(()) };
        let fib = self.fib.clone();
        let Tables { direct, descs, .. } = &fib.tables;
        let mut number = direct[slot].load(Ordering::Relaxed);
        let mut new = false;
        let changed = self.building || self.block != self.published;
        if changed && !self.building && self.blocks.change(descs, number.into(), &self.block) {
            for i in 0..self.block.len() {
                if !self.set[i] {
                    continue;
                }
                let place = (usize::from(number) << fib.layout.x()) + i;
                tell_writes(probe, descs, place as u32, usize::from(self.block[i] != self.published[i]));
                self.release(self.published[i]);
            }
            return Ok(());
        }
        if changed {
            let block = std::mem::take(&mut self.block);
            let found = self.intern(|writer| writer.blocks.intern(descs, &block));
            self.block = block;
            let found = found.ok_or(Stop::Blocks)?;
            (number, new) = (found.0 as u16, found.1);
        }
        for i in 0..self.block.len() {
            // A new block has a reference to all that it describes; the one that is there has its own already.
            match (new, self.set[i]) {
                (true, false) => self.acquire(self.block[i]),
                (false, true) => self.release(self.block[i]),
                _ => {}
            }
        }
        if changed {
            let written = if new { self.block.len() } else { 0 };
            tell_writes(probe, descs, u32::from(number) << fib.layout.x(), written);
            self.set_block(slot, number, probe);
        }
        Ok(())
    }

    /// Publishes a block, with a reference that has been counted.
    fn set_block<P: Probe>(&mut self, slot: usize, number: u16, probe: &P) {
        let cell = &self.fib.tables.direct[slot];
        let old = cell.load(Ordering::Relaxed);
        if old != number {
            // Release: whoever finds the block here finds its content, and that of its runs.
            cell.store(number, Ordering::Release);
            tell_writes(probe, &self.fib.tables.direct, slot as u32, 1);
        }
        if !self.building {
            self.release_block(old.into());
        }
    }

    /// One reference more to what a descriptor refers to.
    fn acquire(&mut self, desc: u64) {
        match Desc::decode(desc) {
            Desc::Label(_) => {}
            Desc::Run { base, .. } => self.labels.acquire(base, 1),
            Desc::Aside { base } => self.asides.acquire(base, 1),
        }
    }

    /// One reference less to what a descriptor refers to.
    fn release(&mut self, desc: u64) {
        let tables = &self.fib.tables;
        match Desc::decode(desc) {
            Desc::Label(_) => {}
            Desc::Run { map, base } => {
                let run = Run { unit: base, units: place(map, u32::MAX) + 1 };
                self.retired.labels.extend(self.labels.release(run));
            }
            Desc::Aside { base } => {
                let units = 1 + 2 * tables.asides[base as usize].load(Ordering::Relaxed);
                let run = Run { unit: base, units };
                self.retired.asides.extend(self.asides.release(run));
            }
        }
    }

    fn release_block(&mut self, block: u32) {
        let fib = self.fib.clone();
        if let Some(run) = self.blocks.leave(Run { unit: block, units: 1 }) {
            self.retired.blocks.push(run);
            let first = (block as usize) << fib.layout.x();
            for desc in &fib.tables.descs[first..first + (1 << fib.layout.x())] {
                self.release(desc.load(Ordering::Relaxed));
            }
        }
    }

    /// Starts the grace period of what has been unlinked so far.
    fn retire(&mut self) {
        let retired = Retired { left: self.blocks.take_left(), ..std::mem::take(&mut self.retired) };
        let Retired { labels, asides, blocks, left } = &retired;
        if !labels.is_empty() || !asides.is_empty() || !blocks.is_empty() || !left.is_empty() {
            self.waiting.push_back((self.domain.advance(), retired));
        }
    }

    /// Takes back the space whose grace period is over.
    fn reclaim(&mut self) {
        let domain = &self.domain;
        while let Some((_, retired)) = self.waiting.pop_front_if(|(epoch, _)| domain.passed(*epoch)) {
            retired.labels.into_iter().for_each(|run| self.labels.recycle(run));
            retired.asides.into_iter().for_each(|run| self.asides.recycle(run));
            self.blocks.settle(retired.left);
            retired.blocks.into_iter().for_each(|run| self.blocks.recycle(run));
        }
    }

    /// Compares the references with what is really linked.
    #[cfg(test)]
    pub(super) fn check_references(&self) {
        use std::collections::BTreeMap;
        let Tables { descs, asides, .. } = &self.fib.tables;
        let (mut runs, mut aside_runs, mut blocks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut linked = |first: usize, count: usize| {
            for desc in &descs[first..first + count] {
                match Desc::decode(desc.load(Ordering::Relaxed)) {
                    Desc::Label(_) => {}
                    Desc::Run { map, base } => *runs.entry((base, map.count_ones() + 1)).or_insert(0) += 1,
                    Desc::Aside { base } => {
                        let count = asides[base as usize].load(Ordering::Relaxed);
                        *aside_runs.entry((base, 1 + 2 * count)).or_insert(0) += 1;
                    }
                }
            }
        };
        for number in self.fib.tables.slots() {
            *blocks.entry((u32::from(number.load(Ordering::Relaxed)), 1)).or_insert(0) += 1;
        }
        match self.fib.layout.x() {
            0 => linked(0, 1 << K),
            x => blocks.keys().for_each(|&(block, _)| linked((block as usize) << x, 1 << x)),
        }
        let live = |pool: &Pool| pool.live().map(|(run, refs)| ((run.unit, run.units), refs)).collect();
        assert_eq!(runs, live(&self.labels), "references to labels");
        assert_eq!(aside_runs, live(&self.asides), "references to asides");
        assert_eq!(blocks, live(&self.blocks), "references to blocks");
    }
}

impl FibWriter<u32> for Writer {
    fn fib(&self) -> Arc<dyn Fib<u32>> {
        self.fib.clone()
    }

    fn patch(&mut self, rib: &Rib<u32>, changed: &[Prefix<u32>]) -> Result<(), Outgrown> {
        self.patch_probed(rib, changed, &())
    }

    fn patch_probed(
        &mut self,
        rib: &Rib<u32>,
        changed: &[Prefix<u32>],
        probe: &dyn Probe,
    ) -> Result<(), Outgrown> {
        self.patch_probed(rib, changed, &probe)
    }
}

fn copy<C: Cell>(to: &[C], from: &[C]) {
    to.iter().zip(from).for_each(|(to, from)| to.set(from.get()));
}

#[inline(always)]
fn tell_reads<P: Probe, C>(probe: &P, table: &[C], first: usize, count: usize, dependent: bool) {
    for cell in table.iter().skip(first).take(count) {
        probe.read(std::ptr::from_ref(cell).addr(), size_of::<C>(), dependent);
    }
}

#[inline(always)]
fn tell_writes<P: Probe, C>(probe: &P, table: &[C], first: u32, count: usize) {
    for cell in table.iter().skip(first as usize).take(count) {
        probe.write(std::ptr::from_ref(cell).addr(), size_of::<C>());
    }
}

/// The prefixes, each cut to at most 24 bits, in order and without those inside others.
fn spans(changed: &[Prefix<u32>]) -> Vec<Prefix<u32>> {
    let mut spans: Vec<_> = changed.iter().filter_map(|p| Prefix::new(p.first(), p.len().min(24))).collect();
    // By address and then length: what covers comes before what is covered.
    spans.sort_unstable();
    spans.dedup_by(|next, kept| kept.covers(*next));
    spans
}
