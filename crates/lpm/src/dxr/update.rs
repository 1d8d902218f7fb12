//! The writer: builds the tables, and patches them while readers look up.
//!
//! Building is patching an empty structure with everything, in scratch memory, and then moving the result to memory of
//! the right size.

use super::build::{Chunks, Encoder, Range, Stretch, choose_split, flatten, with_headroom};
use super::pool::{Full, Pool, Run};
use super::{Chunk, Desc, Dxr, DxrConfig, Kernel, MAX_RANGE_WORDS, Tables};
use crate::fib::{BuildError, Fib, FibWriter, Label, Outgrown};
use crate::prefix::Prefix;
use crate::rib::Rib;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::{Domain, Epoch};

/// Runs that are no longer linked, and may still be seen.
#[derive(Debug, Default)]
struct Retired {
    chunks: Vec<Run>,
    blocks: Vec<Run>,
}

/// The control side of a [`Dxr`].
#[derive(Debug)]
pub struct DxrWriter {
    fib: Arc<Dxr>,
    domain: Domain,
    chunks: Pool,
    /// Extension blocks; unused in `DxR`.
    blocks: Pool,
    /// No slot of the direct table is linked yet, and there are no readers.
    building: bool,
    /// The slot of the direct table whose block is being changed, in `block`.
    open: Option<usize>,
    block: Vec<u32>,
    /// Retired by the patch under way.
    retired: Retired,
    /// Retired by earlier patches, waiting for their grace period.
    waiting: VecDeque<(Epoch, Retired)>,
    /// Why no patch is possible any more.
    outgrown: Option<Outgrown>,
    encoder: Encoder,
    ranges: Vec<Range>,
}

/// Why a patch stops.
enum Stop {
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

impl DxrWriter {
    /// Builds a structure from a RIB. `domain` is that of the workers who will read it.
    ///
    /// # Errors
    /// If a label is wider than configured, no split of the descriptor can encode the table, or memory is short.
    pub fn new(rib: &Rib<u32>, config: &DxrConfig, domain: &Domain) -> Result<Self, BuildError> {
        let layout = config.layout;
        let mut ranges = Vec::with_capacity(rib.len() + rib.len() / 2);
        flatten(Prefix::DEFAULT, Label::NONE, rib.iter(), &mut ranges);
        let label_bits = label_bits(rib, &ranges, config.label_bits)?;
        let (split, census) = choose_split(layout, &ranges, label_bits)?;

        let units = census.units(split.unit_shift) as u32;
        let tables = Tables::new(layout, layout.chunks(), (units as usize) << split.unit_shift, true)?;
        let mut writer = DxrWriter {
            fib: Arc::new(Dxr {
                layout,
                split,
                label_bits,
                kernel: config.kernel.unwrap_or_else(Kernel::best).or_scalar(),
                tables,
                used_descs: AtomicUsize::new(0),
                used_ranges: AtomicUsize::new(0),
            }),
            domain: domain.clone(),
            chunks: Pool::new(units, split.unit_shift),
            blocks: Pool::new(1 << layout.d, layout.x.into()),
            building: true,
            open: None,
            block: vec![0; 1 << layout.x],
            retired: Retired::default(),
            waiting: VecDeque::new(),
            outgrown: None,
            encoder: Encoder::default(),
            ranges: Vec::new(),
        };
        // No chunk is larger, and no label wider, than the census has seen, so this does not stop.
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
        let Dxr { layout, split, label_bits, kernel, .. } = *self.fib;
        let range_words = self.chunks.used_words();
        let most = split.values().min((MAX_RANGE_WORDS >> split.unit_shift) as u64);
        let units = with_headroom((range_words >> split.unit_shift) as u64, 1 << 12).min(most);
        self.chunks.set_capacity(units as u32);
        let blocks = with_headroom((self.blocks.used_words() >> layout.x) as u64, 64).min(1 << 16);
        self.blocks.set_capacity(blocks as u32);
        let used_descs = self.used_descs();
        let descs = if layout.x == 0 { used_descs } else { (blocks as usize) << layout.x };
        let tables = Tables::new(layout, descs, (units as usize) << split.unit_shift, false)?;
        let old = &self.fib.tables;
        for (to, from) in tables.direct.iter().zip(old.direct.iter()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        copy(&tables.descs, &old.descs[..used_descs]);
        copy(&tables.ranges, &old.ranges[..range_words]);
        let (used_descs, used_ranges) = (AtomicUsize::new(used_descs), AtomicUsize::new(range_words));
        self.fib = Arc::new(Dxr { layout, split, label_bits, kernel, tables, used_descs, used_ranges });
        Ok(())
    }

    /// The structure that readers use.
    pub fn dxr(&self) -> &Arc<Dxr> {
        &self.fib
    }

    fn used_descs(&self) -> usize {
        if self.fib.layout.x == 0 { self.fib.layout.chunks() } else { self.blocks.used_words() }
    }

    /// [`FibWriter::patch`], with every store to the tables told to `probe`.
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
        let result = spans(self.fib.layout.k(), changed).into_iter().try_for_each(|span| {
            let outer = rib.covering(span).map_or(Label::NONE, |(_, label)| label);
            flatten(span, outer, rib.inside(span), &mut ranges);
            self.fill(span, &ranges, probe)
        });
        let result = result.and_then(|()| self.close(probe)).map_err(Outgrown::from);
        self.ranges = ranges;
        self.retire();
        self.fib.used_descs.store(self.used_descs(), Ordering::Relaxed);
        self.fib.used_ranges.store(self.chunks.used_words(), Ordering::Relaxed);
        // References are no longer counted right after a stop: take no patch from then on.
        self.outgrown = result.as_ref().err().cloned();
        result
    }

    /// Makes the chunks of `span`, one or a power of two of them, say what `ranges` say. The last block stays open for
    /// the next call.
    fn fill<P: Probe>(&mut self, span: Prefix<u32>, ranges: &[Range], probe: &P) -> Result<(), Stop> {
        let layout = self.fib.layout;
        for Stretch { first, count, ranges } in Chunks::new(layout, span, ranges) {
            if layout.x > 0 {
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

    /// Makes each of `chunks` say what `ranges` say, in `DdXxR`.
    fn fill_blocks<P: Probe>(
        &mut self,
        mut chunks: std::ops::Range<usize>,
        ranges: &[Range],
        probe: &P,
    ) -> Result<(), Stop> {
        let x = self.fib.layout.x;
        while !chunks.is_empty() {
            let slot = chunks.start >> x;
            let stop = chunks.end.min((slot + 1) << x);
            let count = stop - chunks.start;
            self.open(slot, probe)?;
            let desc = self.describe(ranges, count, probe)?;
            let from = chunks.start & ((1 << x) - 1);
            for i in from..from + count {
                let old = std::mem::replace(&mut self.block[i], desc);
                // The published block still refers to it, so this is not its end.
                self.release_chunk(old);
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

    /// The descriptor of `count` chunks, each of which owns a reference to its ranges.
    fn describe<P: Probe>(&mut self, ranges: &[Range], count: usize, probe: &P) -> Result<u32, Stop> {
        let Dxr { layout, split, label_bits, .. } = *self.fib;
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
        let long = self.encoder.encode(layout.rest(), ranges, label_bits, split.unit_shift);
        let (base, new) = match self.chunks.intern(&self.fib.tables.ranges, &self.encoder.words) {
            Err(Full) => {
                self.retire();
                self.reclaim();
                self.chunks
                    .intern(&self.fib.tables.ranges, &self.encoder.words)
                    .map_err(|Full| Stop::Chunks)?
            }
            Ok(found) => found,
        };
        self.chunks.acquire(base, count - 1);
        if new {
            tell_writes(
                probe,
                &self.fib.tables.ranges,
                (base as usize) << split.unit_shift,
                self.encoder.words.len(),
            );
        }
        split.encode_chunk(Chunk { base, last: last as u32, long }).ok_or(Stop::Chunks)
    }

    /// Publishes a descriptor in `DxR`.
    fn set_desc<P: Probe>(&mut self, chunk: usize, desc: u32, probe: &P) {
        let slot = &self.fib.tables.descs[chunk];
        let old = slot.load(Ordering::Relaxed);
        if old != desc {
            // Release: whoever finds the descriptor here finds its chunk's content.
            slot.store(desc, Ordering::Release);
            tell_writes(probe, &self.fib.tables.descs, chunk, 1);
        }
        self.release_chunk(old);
    }

    /// Opens the block behind a slot of the direct table for changes: `block` becomes a copy with references of its own.
    fn open<P: Probe>(&mut self, slot: usize, probe: &P) -> Result<(), Stop> {
        if self.open == Some(slot) {
            return Ok(());
        }
        self.close(probe)?;
        self.open = Some(slot);
        if self.building {
            self.block.fill(0);
            return Ok(());
        }
        let Tables { direct, descs, .. } = &self.fib.tables;
        let first = usize::from(direct[slot].load(Ordering::Relaxed)) << self.fib.layout.x;
        for (copy, desc) in self.block.iter_mut().zip(&descs[first..]) {
            *copy = desc.load(Ordering::Relaxed);
            if let Desc::Chunk(chunk) = self.fib.split.decode(*copy) {
                self.chunks.acquire(chunk.base, 1);
            }
        }
        Ok(())
    }

    /// Publishes the open block.
    fn close<P: Probe>(&mut self, probe: &P) -> Result<(), Stop> {
        let Some(slot) = self.open.take() else { return Ok(()) };
        let fib = self.fib.clone();
        let (number, new) = match self.blocks.intern(&fib.tables.descs, &self.block) {
            Err(Full) => {
                self.make_room();
                self.blocks.intern(&fib.tables.descs, &self.block).map_err(|Full| Stop::Blocks)?
            }
            Ok(found) => found,
        };
        if new {
            tell_writes(probe, &fib.tables.descs, (number as usize) << fib.layout.x, self.block.len());
        } else {
            // The block that is there already has its references.
            for i in 0..self.block.len() {
                self.release_chunk(self.block[i]);
            }
        }
        self.set_block(slot, number as u16, probe);
        Ok(())
    }

    /// Publishes a block, with a reference that has been counted.
    fn set_block<P: Probe>(&mut self, slot: usize, number: u16, probe: &P) {
        let cell = &self.fib.tables.direct[slot];
        let old = cell.load(Ordering::Relaxed);
        if old != number {
            // Release: whoever finds the block here finds its content, and that of its chunks.
            cell.store(number, Ordering::Release);
            probe.write(std::ptr::from_ref(cell).addr(), 2);
        }
        if !self.building {
            self.release_block(old.into());
        }
    }

    fn release_chunk(&mut self, desc: u32) {
        if let Desc::Chunk(chunk) = self.fib.split.decode(desc) {
            let run = Run { unit: chunk.base, units: self.fib.chunk_units(chunk) };
            self.retired.chunks.extend(self.chunks.release(&self.fib.tables.ranges, run));
        }
    }

    fn release_block(&mut self, block: u32) {
        let run = Run { unit: block, units: 1 };
        if let Some(run) = self.blocks.release(&self.fib.tables.descs, run) {
            self.retired.blocks.push(run);
            let fib = self.fib.clone();
            let first = (block as usize) << fib.layout.x;
            for desc in &fib.tables.descs[first..first + (1 << fib.layout.x)] {
                self.release_chunk(desc.load(Ordering::Relaxed));
            }
        }
    }

    /// Starts the grace period of what has been unlinked so far.
    fn retire(&mut self) {
        let retired = std::mem::take(&mut self.retired);
        if !retired.chunks.is_empty() || !retired.blocks.is_empty() {
            self.waiting.push_back((self.domain.advance(), retired));
        }
    }

    /// Takes back the space whose grace period is over.
    fn reclaim(&mut self) {
        let domain = &self.domain;
        while let Some((_, retired)) = self.waiting.pop_front_if(|(epoch, _)| domain.passed(*epoch)) {
            retired.chunks.into_iter().for_each(|run| self.chunks.recycle(run));
            retired.blocks.into_iter().for_each(|run| self.blocks.recycle(run));
        }
    }

    /// The last resort when there is no room: what readers have already left, in as large pieces as possible.
    fn make_room(&mut self) {
        self.retire();
        self.reclaim();
        self.chunks.defragment();
        self.blocks.defragment();
    }

    /// Compares the references with what is really linked.
    #[cfg(test)]
    pub(super) fn check_references(&self) {
        use std::collections::BTreeMap;
        let Tables { direct, descs, .. } = &self.fib.tables;
        let (mut chunks, mut blocks) = (BTreeMap::new(), BTreeMap::new());
        let mut linked = |first: usize, count: usize| {
            for desc in &descs[first..first + count] {
                if let Desc::Chunk(chunk) = self.fib.split.decode(desc.load(Ordering::Relaxed)) {
                    *chunks.entry((chunk.base, self.fib.chunk_units(chunk))).or_insert(0) += 1;
                }
            }
        };
        for number in direct.iter() {
            *blocks.entry((u32::from(number.load(Ordering::Relaxed)), 1)).or_insert(0) += 1;
        }
        match self.fib.layout.x {
            0 => linked(0, self.fib.layout.chunks()),
            x => blocks.keys().for_each(|&(block, _)| linked((block as usize) << x, 1 << x)),
        }
        let live = |pool: &Pool| pool.live().map(|(run, refs)| ((run.unit, run.units), refs)).collect();
        assert_eq!(chunks, live(&self.chunks), "references to chunks");
        assert_eq!(blocks, live(&self.blocks), "references to blocks");
    }
}

impl FibWriter<u32> for DxrWriter {
    fn fib(&self) -> Arc<dyn Fib<u32>> {
        self.fib.clone()
    }

    fn patch(&mut self, rib: &Rib<u32>, changed: &[Prefix<u32>]) -> Result<(), Outgrown> {
        self.patch_probed(rib, changed, &())
    }
}

fn copy(to: &[AtomicU32], from: &[AtomicU32]) {
    for (to, from) in to.iter().zip(from) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[inline(always)]
fn tell_writes<P: Probe>(probe: &P, table: &[AtomicU32], first: usize, count: usize) {
    for word in table.iter().skip(first).take(count) {
        probe.write(std::ptr::from_ref(word).addr(), 4);
    }
}

/// The prefixes' chunks: each prefix cut to at most `k` bits, without those inside others.
fn spans(k: u8, changed: &[Prefix<u32>]) -> Vec<Prefix<u32>> {
    let mut spans: Vec<_> = changed.iter().filter_map(|p| Prefix::new(p.first(), p.len().min(k))).collect();
    // By address and then length: what covers comes before what is covered.
    spans.sort_unstable();
    spans.dedup_by(|next, kept| kept.covers(*next));
    spans
}

/// The width of labels: as asked for, if all fit.
fn label_bits(rib: &Rib<u32>, ranges: &[Range], asked: Option<u8>) -> Result<u8, BuildError> {
    let widest = ranges.iter().map(|range| range.label).max().unwrap_or(0);
    match asked {
        None => Ok(if widest > 0xffff { 32 } else { 16 }),
        Some(bits @ (8 | 16 | 32)) if widest <= u32::MAX >> (32 - bits) => Ok(bits),
        Some(width_bits @ (8 | 16)) => {
            let culprit = rib.iter().find(|(_, label)| label.0 == widest);
            let prefix = culprit.map_or_else(String::new, |(prefix, _)| prefix.to_string());
            Err(BuildError::LabelTooWide { prefix, label: widest, width_bits })
        }
        Some(bits) => Err(BuildError::Parameter {
            parameter: "label_bits",
            value: bits.into(),
            expected: "labels are 8, 16 or 32 bits wide".into(),
        }),
    }
}
