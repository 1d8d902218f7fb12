//! DXR: direct lookup, then a binary search over address ranges (IPv4).
//!
//! Source: M. Zec, "Improving performance in software Internet routers through compact lookup structures and efficient
//! datapaths" (2019), chapter 3 (`DxR`) and chapter 4 (`DdXxR`). One type is both: [`Layout`] with `x = 0` is `DxR`.
//!
//! The prefixes are flattened into sorted disjoint ranges, and neighbours with one label merge. The address space is cut
//! into 2^K chunks, K = D + X. A chunk that one label fills is that label; any other is a sorted array of ranges:
//!
//! ```text
//! 10.0.0.0/8 -> 1, 10.1.2.0/24 -> 2                          D16X4R: key 10.1.2.3 = 0x0a010203
//!
//! direct[0x0a01] = 7          AtomicU16: the extension block of the first D bits (absent in DxR)
//! descs[7 << 4 | 0x0] = ---+  AtomicU32: the descriptor that the next X bits choose in the block
//!                          |
//! ranges[base..]:  short [0x00: 1 | 0x02: 2] [0x03: 1 | pad]       the largest start <= 0x02 has label 2
//!
//! descriptor   | base or label: 31 - C bits | long: 1 | count - 1: C bits |
//! short entry  | start >> 8: 8 | label: 8 |           two in a word, the first one in its low half
//! long entry   | start: 16 | label: 16 |              label width 32: two words, start << 16 and label
//! ```
//!
//! `start` has the 32 - K bits that the chunk does not fix, and that of the first entry is 0. A chunk is short if all its
//! starts are on /24 boundaries and all its labels below 256. Equal chunks are stored once and counted, equal
//! extension blocks too.
//!
//! Where we depart from the source:
//! * A count of 1 (all low bits zero) marks a label in the descriptor, in place of a reserved base: labels then have the
//!   width of a base, 19 bits or so, not 12, and the test and the decoding are one instruction each. A label that is
//!   wider still becomes a chunk of one range, written twice. An all-zero table answers "no route".
//! * C is chosen at each build (the paper: "can be changed when rebuilding"): as many bits as a chunk of 2^(32-K)
//!   addresses can need, fewer if the table needs the bits for bases. If that is not enough, bases count in units of
//!   2, 4, ... words. A table that no split can encode is a [`BuildError`], never a wrong answer.
//! * Searches run over the whole count without early exit: no branch depends on a comparison.
//! * Widths of labels: 8, 16 and 32 bits are what a table promises to hold; a label of 8 bits is stored in 8 where starts are
//!   on /24 boundaries, and in 16 elsewhere. Entries of 24 bits would change little where memory counts: a 16-bit start with
//!   an 8-bit label saves nothing on the 2026 table with 148 labels and 0.2 to 1.3 % of the ranges on the 2023 one, which has
//!   host routes; an 8-bit start with a 16-bit label saves 17 % of D16X4R's ranges with 30,000 labels by origin (9 % of
//!   all its bytes) and 20 % (15 %) with uniform ones, for one more step per comparison; for such tables there is
//!   [`popdir`](crate::popdir).
//!
//! Cost of a lookup: one cache line (`DxR`) or two (`DdXxR`), and for the keys that are not resolved there about one or two
//! lines of ranges. Bytes: 4 * 2^K (`DxR`), or 2 * 2^D + 4 * 2^X per distinct block; 2 or 4 per range.
//!
//! Building: in parts by address on [`DxrConfig::threads`] threads, one where the structure is made by its name; the result is that of one
//! (see `load.rs`).
//!
//! Updates: [`DxrWriter`] reads a changed chunk, replaces in it what the RIB says about the changed prefixes, and writes it to
//! unused space (what whole chunks say comes from the RIB alone). Then one atomic store makes the slot point to it: a
//! descriptor in `DxR`, and in `DdXxR` the descriptor in the block if only this slot refers to the block, or else, with a copy
//! of the block, the block's number. A reader that runs meanwhile sees, for each key, the old or the new answer. Space is used
//! again after every reader has been quiescent. The path of readers has no lock, retry or fence: an acquire load is a plain
//! `mov` on x86. What has no room or no encoding (a label of more bits, a chunk of more ranges, more chunks or blocks than
//! there is space or numbers for) is [`Outgrown`](crate::fib::Outgrown): the table then builds another structure and swaps
//! the root.
//!
//! VRFs: the structures of one [`Shared`] refer to one store of blocks and chunks (`store.rs`); each has its own `direct` (in
//! `DxR`, its own descriptors). A table like another one costs 2 * 2^D bytes and the blocks and chunks that differ.
//!
//! Cost of a patch of one prefix that is longer than K and on its own, in accesses to the tables: D16X4R 17 loads (the direct
//! entry, the block) and those of the chunk, stores of the new chunk and one; DxR one load, the chunk, the same stores.
//!
//! Invariants ([`Dxr::check`]): every block number in `direct` has its block, every descriptor's chunk lies in `ranges`,
//! starts with 0 and ascends.

mod build;
mod check;
mod edit;
mod load;
mod lookup;
mod shared;
mod simd;
mod spread;
mod store;
mod update;

#[cfg(test)]
mod tests;

pub(crate) use build::{Chunks, Range, Stretch, flatten, flatten_from};
pub use shared::{Shared, SharedStats};
pub use simd::Kernel;
pub use spread::{Entries, Spread};
pub use update::DxrWriter;

use crate::fib::{BuildError, Fib, Label};
use crate::rib::Rib;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use store::{Own, Store};
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// How many bits of the key index what: `DxR` (x = 0) or `DdXxR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    d: u8,
    x: u8,
}

impl Layout {
    /// D16X4R, a good compromise for full tables.
    pub const D16X4R: Layout = Layout { d: 16, x: 4 };
    /// D18R, without extension table.
    pub const D18R: Layout = Layout { d: 18, x: 0 };

    /// A layout with `d` bits of the key for the direct table and `x` for the extension table (0: none).
    ///
    /// # Errors
    /// If `d + x` is not 16 to 24, or `d` is not 8 to 16 where there is an extension table.
    pub fn new(d: u8, x: u8) -> Result<Self, BuildError> {
        let k = u64::from(d) + u64::from(x);
        if !(16..=24).contains(&k) {
            let expected = "the direct and extension tables index 16 to 24 bits together".into();
            return Err(BuildError::Parameter { parameter: "d + x", value: k, expected });
        }
        if x > 0 && !(8..=16).contains(&d) {
            let expected = "with an extension table, the direct table indexes 8 to 16 bits".into();
            return Err(BuildError::Parameter { parameter: "d", value: d.into(), expected });
        }
        Ok(Layout { d, x })
    }

    /// Reads a structure's name: `dxr-d18r`, `dxr-d16x4r`; `None` if it is none, or its numbers are not possible.
    pub fn parse(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("dxr-d")?.strip_suffix('r')?;
        let (d, x) = digits.split_once('x').unwrap_or((digits, "0"));
        let layout = Layout::new(d.parse().ok()?, x.parse().ok()?).ok()?;
        (layout.to_string() == name).then_some(layout)
    }

    /// Bits that index the direct table.
    pub fn d(self) -> u8 {
        self.d
    }

    /// Bits that index a block of the extension table; 0: there is none.
    pub fn x(self) -> u8 {
        self.x
    }

    /// Bits that are resolved before the range search.
    pub fn k(self) -> u8 {
        self.d + self.x
    }

    /// Bits of a range start.
    fn rest(self) -> u32 {
        32 - u32::from(self.k())
    }

    /// Descriptors in the whole address space.
    fn chunks(self) -> usize {
        1 << self.k()
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.x {
            0 => write!(f, "dxr-d{}r", self.d),
            x => write!(f, "dxr-d{}x{x}r", self.d),
        }
    }
}

/// What to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DxrConfig {
    /// Bits per stage.
    pub layout: Layout,
    /// Width of the labels in range chunks, 8, 16 or 32 bits: wider labels are refused. `None`: 16, or 32 if the table
    /// needs it.
    pub label_bits: Option<u8>,
    /// Which code answers batches; `None`: the widest that this CPU has.
    pub kernel: Option<Kernel>,
    /// Threads that build it; the result is the same with any number. One, unless asked otherwise: a rebuild while packets
    /// flow must not take the workers' CPUs.
    pub threads: NonZeroUsize,
}

impl DxrConfig {
    /// A layout, and the rest as it comes.
    pub fn new(layout: Layout) -> Self {
        DxrConfig { layout, label_bits: None, kernel: None, threads: NonZeroUsize::MIN }
    }
}

impl Default for DxrConfig {
    fn default() -> Self {
        Self::new(Layout::D16X4R)
    }
}

/// How a descriptor's 32 bits are split; see the module's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Split {
    /// C: bits of the field that holds count - 1.
    count_bits: u32,
    /// Bases count in units of `1 << unit_shift` words.
    unit_shift: u32,
}

/// Where a chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunk {
    /// In units.
    base: u32,
    /// Entries - 1, at least 1.
    last: u32,
    long: bool,
}

impl Split {
    #[inline(always)]
    fn count_mask(self) -> u32 {
        (1 << self.count_bits) - 1
    }

    /// The bit that says "long".
    #[inline(always)]
    fn long_bit(self) -> u32 {
        1 << self.count_bits
    }

    /// Bits below the base or label.
    #[inline(always)]
    fn value_shift(self) -> u32 {
        self.count_bits + 1
    }

    /// The number of bases, and of labels that fit into a descriptor.
    fn values(self) -> u64 {
        1 << (31 - self.count_bits)
    }

    /// `None` if the label is too wide for a descriptor.
    fn encode_label(self, label: u32) -> Option<u32> {
        (u64::from(label) < self.values()).then(|| label << self.value_shift())
    }

    /// `None` if the base or the count is too wide.
    fn encode_chunk(self, chunk: Chunk) -> Option<u32> {
        let fits = u64::from(chunk.base) < self.values() && chunk.last <= self.count_mask();
        let long = if chunk.long { self.long_bit() } else { 0 };
        (fits && chunk.last > 0).then(|| chunk.base << self.value_shift() | long | chunk.last)
    }

    /// The chunk of a descriptor; `None` if it is a label.
    #[inline(always)]
    fn chunk(self, desc: u32) -> Option<Chunk> {
        let (base, long) = (desc >> self.value_shift(), desc & self.long_bit() != 0);
        let last = desc & self.count_mask();
        (last > 0).then_some(Chunk { base, last, long })
    }
}

/// Words behind the last chunk.
const RANGES_PAD: usize = 1;
/// SIMD kernels address `ranges` with signed 32-bit byte offsets.
const MAX_RANGE_WORDS: usize = (i32::MAX as usize >> 2) - RANGES_PAD;

/// The structure that readers use; see the module's page. Made by [`DxrWriter::new`].
#[derive(Debug)]
pub struct Dxr {
    layout: Layout,
    split: Split,
    label_bits: u8,
    kernel: Kernel,
    own: Own,
    store: Arc<Store>,
}

impl Dxr {
    /// Builds a structure and its writer: [`DxrWriter::new`].
    ///
    /// # Errors
    /// As there.
    pub fn writer(rib: &Rib<u32>, config: &DxrConfig, domain: &Domain) -> Result<DxrWriter, BuildError> {
        DxrWriter::new(rib, config, domain)
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The code that answers batches.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Width of the labels that chunks can hold.
    pub fn label_bits(&self) -> u8 {
        self.label_bits
    }

    /// The descriptors: extension blocks, or those of `DxR`.
    #[inline(always)]
    fn descs(&self) -> &[AtomicU32] {
        if self.layout.x == 0 { &self.own.descs } else { &self.store.blocks }
    }

    /// Descriptors in use, from the first one.
    fn used_descs(&self) -> usize {
        if self.layout.x == 0 { self.own.descs.len() } else { self.store.used_blocks.load(Ordering::Relaxed) }
    }

    /// Bytes that are this structure's alone. The rest of [`bytes`](Fib::bytes) may be shared: see [`Shared`].
    pub fn own_bytes(&self) -> usize {
        self.own.direct.len() * 2 + self.own.descs.len() * 4
    }

    /// What the structure consists of, for statistics.
    pub fn stats(&self) -> DxrStats {
        DxrStats {
            direct_bytes: self.own.direct.len() * 2,
            desc_bytes: self.used_descs() * 4,
            range_bytes: self.store.used_ranges.load(Ordering::Relaxed) * 4,
            count_bits: self.split.count_bits as u8,
            unit_words: 1 << self.split.unit_shift,
            resolved: self.resolved(),
        }
    }

    /// The share of the address space that no range search is needed for, 0 to 1.
    fn resolved(&self) -> f64 {
        let of = |desc: &AtomicU32| u64::from(self.split.chunk(desc.load(Ordering::Relaxed)).is_none());
        let count: u64 = match self.layout.x {
            0 => self.own.descs.iter().map(of).sum(),
            x => {
                let per_block: Vec<u64> =
                    self.store.blocks.chunks(1 << x).map(|block| block.iter().map(of).sum()).collect();
                self.own.direct.iter().map(|b| per_block[usize::from(b.load(Ordering::Relaxed))]).sum()
            }
        };
        count as f64 / self.layout.chunks() as f64
    }
}

impl Drop for Dxr {
    fn drop(&mut self) {
        // Others look into the store: what only this structure referred to must be free for them. Their readers may
        // have seen it, so it waits like all else.
        if Arc::strong_count(&self.store) > 1 {
            let mut books = self.store.books();
            books.tables = books.tables.saturating_sub(1);
            self.own.unlink(&self.store, &mut books, self.own.direct.len());
        }
    }
}

/// Sizes of a [`Dxr`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DxrStats {
    /// The direct table of `DdXxR`; 0 in `DxR`, whose direct table holds descriptors.
    pub direct_bytes: usize,
    /// Descriptors: extension blocks, or the direct table of `DxR`.
    pub desc_bytes: usize,
    /// Range chunks.
    pub range_bytes: usize,
    /// The split: bits for a chunk's count.
    pub count_bits: u8,
    /// The split: words that a chunk's base counts in.
    pub unit_words: usize,
    /// The share of the address space resolved without a range search.
    pub resolved: f64,
}

impl Fib<u32> for Dxr {
    fn lookup(&self, key: u32) -> Label {
        self.lookup_probed(key, &())
    }

    fn lookup_batch(&self, keys: &[u32], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "one result per key");
        simd::lookup_batch(self, keys, out);
    }

    fn lookup_batch_each(&self, keys: &[u32], each: &mut dyn FnMut(&'static str, &[Label])) {
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
            let mut out = vec![Label(u32::MAX); keys.len()];
            simd::lookup_batch_with(kernel, self, keys, &mut out);
            each(kernel.name(), &out);
        }
    }

    fn name(&self) -> String {
        self.layout.to_string()
    }

    fn bytes(&self) -> usize {
        // All of the store: what of it is others' alone would take a walk to find out.
        self.own_bytes() + self.store.bytes()
    }

    fn shared_bytes(&self) -> usize {
        if self.store.books().tables > 1 { self.store.bytes() } else { 0 }
    }

    fn lookup_probed(&self, key: u32, probe: &dyn Probe) -> Label {
        self.lookup_probed(key, &probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let stats = self.stats();
        let mut details = vec![
            ("own_bytes", self.own_bytes() as f64),
            ("shared_by", self.store.books().tables as f64),
            ("direct_bytes", stats.direct_bytes as f64),
            ("descriptor_bytes", stats.desc_bytes as f64),
            ("range_bytes", stats.range_bytes as f64),
            ("count_bits", f64::from(stats.count_bits)),
            ("unit_words", stats.unit_words as f64),
            ("resolved_share", stats.resolved),
        ];
        details.extend(self.spread().details());
        details
    }
}
