//! DIR-24-8: a cell for every /24, and 256 cells for each /24 that has more than one label. IPv4.
//!
//! Source: P. Gupta, S. Lin, N. McKeown, "Routing lookups in hardware at memory access speeds", INFOCOM 1998. It was made for DRAM
//! that answers one access in 50 ns, and is what many software routers have used since.
//!
//! # Memory
//! ```text
//! first    2^24 cells, indexed by the bits 0..24         cell    | 0 | label: 15 |   or   | 1 | block: 15 |
//! second   blocks of 256 cells, indexed by the bits 24..32       (of 32 bits: 31 and 31)
//!
//! 10.0.0.0/8 -> 1, 10.0.0.128/25 -> 2:    first[0a0000] = block 0, first[0a0001 ..= 0affff] = 1
//!                                         second[0 ..= 127] = 1, second[128 ..= 255] = 2
//! ```
//! Cells have 16 bits, as in the source, if the labels fit into 15 and 2^15 blocks are enough, otherwise 32: 32 or 64 MB and 512 bytes
//! or 1 KB per block, whatever the number of prefixes. As [copies](crate::copies) keeps two, a router that takes
//! updates holds twice that. On huge pages, where the system has them.
//!
//! # Cost
//! One load, and a second one that depends on it where the /24 is divided: the source's figure, 2 at most. A change stores the cells
//! that have changed: one for a /24, 65,536 for a /8; it reads those that the prefix covers.
//!
//! The source claims 33 MB, whatever the table, and 20 million lookups a second with two DRAMs in a pipeline. The IPv4 table of
//! 2026 (1,042,325 prefixes, none of them beyond /24) takes 33.6 MB, 32.2 bytes per prefix, and one load for every key.
//!
//! # Where we depart from the source
//! * A /24 whose prefixes beyond /24 all say the same as what is around them needs no block.
//! * Cells of 32 bits where 16 do not do; never a truncated label.
//! * A patch that needs wider cells, or more blocks, than there are is refused: the structure is built anew.
//!
//! # Invariants
//! 1. Every block belongs to one cell, or is free.
//! 2. A block that is in use has two different cells.

#[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
mod simd;
#[cfg(test)]
mod tests;

use crate::copies::{self, Whole};
use crate::fib::{BuildError, Built, Fib, Label, Outgrown, check_labels};
use crate::prefix::Prefix;
use crate::ranges::ranges;
use crate::rib::Rib;
use tidemill_lookup::mem::{Array, Element, collapse};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// Cells of the first table.
const FIRST: usize = 1 << 24;
/// Cells of a block.
const BLOCK: usize = 256;
/// Keys whose cells are asked for together.
const BURST: usize = 32;

/// A cell's width.
pub trait Cell: Element + Copy + Eq + Send + Sync + 'static {
    /// Bits of a label or a block's number.
    const VALUE_BITS: u8;
    /// As a number.
    fn get(self) -> u32;
    /// The low bits of a number.
    fn new(value: u32) -> Self;
}

impl Cell for u16 {
    const VALUE_BITS: u8 = 15;
    #[inline(always)]
    fn get(self) -> u32 {
        self.into()
    }
    fn new(value: u32) -> Self {
        value as u16
    }
}

impl Cell for u32 {
    const VALUE_BITS: u8 = 31;
    #[inline(always)]
    fn get(self) -> u32 {
        self
    }
    fn new(value: u32) -> Self {
        value
    }
}

/// A DIR-24-8 with cells of one width.
#[derive(Clone)]
pub struct Dir24<C: Cell> {
    first: Array<C>,
    second: Array<C>,
    free: Vec<u32>,
}

/// Builds a DIR-24-8 of `rib` with cells as narrow as they can be, and its writer.
///
/// # Errors
/// A label of more than 31 bits.
pub fn writer(rib: &Rib<u32>, _: &Domain) -> Built<u32> {
    match Dir24::<u16>::build(rib) {
        Ok(narrow) => copies::writer(narrow),
        Err(_) => copies::writer(Dir24::<u32>::build(rib)?),
    }
}

impl<C: Cell> Dir24<C> {
    /// In a cell: the rest is a block's number.
    const DIVIDED: u32 = 1 << C::VALUE_BITS;

    /// Builds the structure of `rib`.
    ///
    /// # Errors
    /// A label, or the number of blocks, is too large for a cell.
    pub fn build(rib: &Rib<u32>) -> Result<Self, BuildError> {
        check_labels(rib, C::VALUE_BITS)?;
        let mut dir = Dir24 { first: Array::zeroed(FIRST), second: Array::new(), free: Vec::new() };
        match dir.paint(&ranges(rib, Prefix::DEFAULT), Prefix::DEFAULT, &()) {
            Ok(()) => Ok(dir),
            Err(full) => Err(BuildError::TooLarge {
                structure: format!("dir-24-8 with cells of {} bits", C::VALUE_BITS + 1),
                what: full.what,
                advice: "take wider cells".into(),
            }),
        }
    }

    /// Blocks in use.
    pub fn blocks(&self) -> usize {
        self.second.len() / BLOCK - self.free.len()
    }

    /// Writes the ranges of `region`, which is a /24 or shorter, into its cells.
    fn paint<P: Probe + ?Sized>(
        &mut self,
        mut ranges: &[(u32, Label)],
        region: Prefix<u32>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let (mut at, last) = (region.first() >> 8, region.last() >> 8);
        while at <= last {
            // The ranges from the one at the cell's first address on.
            while ranges.get(1).is_some_and(|&(start, _)| start <= at << 8) {
                ranges = &ranges[1..];
            }
            let next = ranges.get(1).map_or(last + 1, |&(start, _)| start >> 8);
            if next == at {
                self.divide(at, ranges, probe)?;
                at += 1;
            } else {
                self.fill(at..next, C::new(ranges[0].1.0), probe);
                at = next;
            }
        }
        Ok(())
    }

    /// One label for all these cells.
    fn fill<P: Probe + ?Sized>(&mut self, cells: std::ops::Range<u32>, label: C, probe: &P) {
        for cell in &mut self.first[cells.start as usize..cells.end as usize] {
            if *cell != label {
                if cell.get() & Self::DIVIDED != 0 {
                    self.free.push(cell.get() & !Self::DIVIDED);
                }
                *cell = label;
                probe.write((&raw const *cell).addr(), size_of::<C>());
            }
        }
    }

    /// A block for a cell in which ranges begin.
    fn divide<P: Probe + ?Sized>(
        &mut self,
        at: u32,
        mut ranges: &[(u32, Label)],
        probe: &P,
    ) -> Result<(), Outgrown> {
        let old = self.first[at as usize].get();
        let block = if old & Self::DIVIDED != 0 {
            old & !Self::DIVIDED
        } else if let Some(block) = self.free.pop() {
            block
        } else {
            let block = (self.second.len() / BLOCK) as u32;
            if block == Self::DIVIDED {
                return Err(Outgrown { what: format!("all {block} blocks are in use") });
            }
            self.second.resize(self.second.len() + BLOCK, C::new(0));
            block
        };
        for (key, cell) in (at << 8..=at << 8 | 0xff).zip(&mut self.second[block as usize * BLOCK..][..BLOCK])
        {
            while ranges.get(1).is_some_and(|&(start, _)| start <= key) {
                ranges = &ranges[1..];
            }
            let label = C::new(ranges[0].1.0);
            if *cell != label {
                *cell = label;
                probe.write((&raw const *cell).addr(), size_of::<C>());
            }
        }
        let cell = &mut self.first[at as usize];
        if cell.get() != Self::DIVIDED | block {
            *cell = C::new(Self::DIVIDED | block);
            probe.write((&raw const *cell).addr(), size_of::<C>());
        }
        Ok(())
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized>(&self, key: u32, probe: &P) -> Label {
        let cell = &self.first[(key >> 8) as usize];
        probe.read((&raw const *cell).addr(), size_of::<C>(), false);
        let value = cell.get();
        if value & Self::DIVIDED == 0 {
            return Label(value);
        }
        let cell = &self.second[((value & !Self::DIVIDED) << 8 | key & 0xff) as usize];
        probe.read((&raw const *cell).addr(), size_of::<C>(), true);
        Label(cell.get())
    }
}

impl<C: Cell> Dir24<C> {
    /// The cells of the keys to come are asked for while those that have come are read.
    fn burst(&self, keys: &[u32], out: &mut [Label]) {
        let ask = |keys: &[u32]| {
            keys.iter().for_each(|&key| prefetch_read(&raw const self.first[(key >> 8) as usize]));
        };
        ask(&keys[..keys.len().min(BURST)]);
        for (at, out) in out.chunks_mut(BURST).enumerate() {
            let rest = &keys[at * BURST..];
            let (now, next) = rest.split_at(rest.len().min(BURST));
            ask(&next[..next.len().min(BURST)]);
            for (out, &key) in out.iter_mut().zip(now) {
                *out = self.find(key, &());
            }
        }
    }
}

impl<C: Cell> Fib<u32> for Dir24<C> {
    fn lookup(&self, key: u32) -> Label {
        self.find(key, &())
    }

    fn lookup_batch(&self, keys: &[u32], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
        if simd::has_avx512() {
            return simd::burst(self, keys, out);
        }
        self.burst(keys, out);
    }

    fn lookup_batch_each(&self, keys: &[u32], each: &mut dyn FnMut(&'static str, &[Label])) {
        let mut out = vec![Label(u32::MAX); keys.len()];
        self.burst(keys, &mut out);
        each("scalar", &out);
        #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
        if simd::has_avx512() {
            out.fill(Label(u32::MAX));
            simd::burst(self, keys, &mut out);
            each("avx512", &out);
        }
    }

    fn name(&self) -> String {
        "dir-24-8".into()
    }

    fn bytes(&self) -> usize {
        (FIRST + self.blocks() * BLOCK) * size_of::<C>()
    }

    fn lookup_probed(&self, key: u32, probe: &dyn Probe) -> Label {
        self.find(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        vec![("cell_bytes", size_of::<C>() as f64), ("blocks", self.blocks() as f64)]
    }
}

impl<C: Cell> Whole<u32> for Dir24<C> {
    fn collapse(&self) {
        collapse(&self.first);
        collapse(&self.second);
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u32>,
        prefix: Prefix<u32>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let region = Prefix::new(prefix.first(), prefix.len().min(24)).unwrap_or(prefix);
        let ranges = ranges(rib, region);
        match ranges.iter().find(|(_, label)| label.0 >= Self::DIVIDED) {
            Some(&(_, label)) => Err(Outgrown::label(prefix, label, C::VALUE_BITS)),
            None => self.paint(&ranges, region, probe),
        }
    }
}
