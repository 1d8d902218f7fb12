//! Popdir: a direct table of bitmaps, and labels found by counting bits (IPv4). No search, and no branch that depends on the key.
//!
//! The address space is cut into 2^19 chunks of 32 /24s. A chunk's descriptor has a bit for every /24 whose label differs from
//! that of the /24 before; the labels of its runs lie together, and the number of set bits up to a key's /24 says which one is
//! the key's:
//!
//! ```text
//! 10.0.0.0/8 -> 1, 10.1.2.0/24 -> 2                              popdir-d16x3: key 10.1.2.3 = 0x0a010203
//!
//! direct[0x0a01] = 7             AtomicU16: the block of the first 16 bits
//! descs[7 << 3 | 0b000] = ---+   AtomicU64: a block is 8 descriptors, one cache line
//!                            |
//! descriptor | /24 number 1, 2, .. 31 differs from the one before: 31 bits, from the top | aside: 1 | base: 32 |
//!            | 0 1 1 0 0 0 0 ...                                                           | 0        | 4       |
//!                            |
//! labels  ... [1 2 1] ...    labels[base + set bits among the first 2] = labels[4 + 1] = 2
//!              4 5 6
//! ```
//!
//! * No bit set: one label fills the chunk, and it is the descriptor's low half itself.
//! * Aside: prefixes longer than /24 cut the chunk. Its ranges are a sorted array in `asides`, from word `base` on: their
//!   number, then start and label of each. Few tables have more than some hundred such chunks, so they are searched in
//!   plain code.
//! * `labels` has elements of 1, 2 or 4 bytes, by the table's widest label; a wider one that comes later means a rebuild.
//! * `popdir-d19` has one descriptor per chunk and no `direct`: 4 MB of descriptors, and one load less.
//!
//! Equal runs, asides and blocks are stored once and counted. An all-zero table answers "no route".
//!
//! Cost of a lookup: a 2-byte load of 128 KB, a line of descriptors, and, where the chunk has several labels, a line of labels:
//! with a full table all of that stays in a second-level cache of 2 MB. Bytes: 2 * 2^D + 64 per distinct block (D = 16), or 2^22
//! (D = 19); a label per run.
//!
//! Updates: [`Writer`] writes the runs and blocks of what changes into unused space, then makes each slot point to them with one
//! atomic store. A reader that runs meanwhile sees, for each key, the old or the new answer. Space is used again after every
//! reader has been quiescent. The path of readers has no lock, retry or fence.
//!
//! Invariants ([`Popdir::check`]): every block number has its block, every run and aside lies inside its table, and asides begin with
//! offset 0 and ascend.
//!
//! Source: the extension blocks are those of M. Zec's DXR (2019, chapter 4; see [`crate::dxr`]). Bitmaps whose set bits are
//! counted to index an array are as old as M. Degermark et al., "Small forwarding tables for fast routing lookups" (SIGCOMM 1997);
//! that a change bitmap suits ranges is Poptrie's leafvec (H. Asai and Y. Ohara, SIGCOMM 2015). Ours: one level of them
//! behind a direct table, the count beside the base in one word, and the flag that keeps long prefixes out of the way.

mod lookup;
mod simd;
mod update;

#[cfg(test)]
mod tests;

pub use crate::dxr::Kernel;
pub use update::Writer;

use crate::fib::{BuildError, Fib, Label};
use crate::pool::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tidemill_lookup::mem::{Arena, Table};
use tidemill_lookup::probe::Probe;

/// Bits of a key that say which chunk it is in: the bitmap is for the 5 bits behind them.
const K: u8 = 19;
/// Address bits behind a chunk's number.
const REST: u32 = 32 - K as u32;
/// /24s of a chunk.
const RUNS: u32 = 32;

/// How many bits of the key index what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    d: u8,
}

impl Layout {
    /// Blocks of one cache line behind a table of 2^16: the smallest, and mostly the fastest.
    pub const D16X3: Layout = Layout { d: 16 };
    /// A flat table of descriptors.
    pub const D19: Layout = Layout { d: 19 };

    /// A layout with `d` bits of the key for the direct table and `x` for the blocks behind it (0: there are none).
    ///
    /// # Errors
    /// If `d + x` is not 19, or `d` is not 8 to 16 or 19.
    pub fn new(d: u8, x: u8) -> Result<Self, BuildError> {
        let k = u64::from(d) + u64::from(x);
        if k != u64::from(K) {
            let expected = "the direct table and the blocks index 19 bits together".into();
            return Err(BuildError::Parameter { parameter: "d + x", value: k, expected });
        }
        if !matches!(d, 8..=16 | K) {
            let expected = "the direct table indexes 8 to 16 bits, or 19 without blocks".into();
            return Err(BuildError::Parameter { parameter: "d", value: d.into(), expected });
        }
        Ok(Layout { d })
    }

    /// Reads a structure's name: `popdir-d16x3`, `popdir-d19`; `None` if it is none, or its numbers are not possible.
    pub fn parse(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("popdir-d")?;
        let (d, x) = digits.split_once('x').unwrap_or((digits, "0"));
        let layout = Layout::new(d.parse().ok()?, x.parse().ok()?).ok()?;
        (layout.to_string() == name).then_some(layout)
    }

    /// Bits that index the direct table.
    pub fn d(self) -> u8 {
        self.d
    }

    /// Bits that index a block; 0: there are none.
    pub fn x(self) -> u8 {
        K - self.d
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.x() {
            0 => write!(f, "popdir-d{}", self.d),
            x => write!(f, "popdir-d{}x{x}", self.d),
        }
    }
}

/// A descriptor, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Desc {
    /// One label in the whole chunk.
    Label(u32),
    /// Labels from `base` on; the bits of `map` as in the descriptor's upper half.
    Run { map: u32, base: u32 },
    /// Ranges from word `base` of `asides` on.
    Aside { base: u32 },
}

/// The descriptor's upper half of an aside.
const ASIDE: u32 = 1;

impl Desc {
    fn encode(self) -> u64 {
        let (map, base) = match self {
            Desc::Label(label) => (0, label),
            Desc::Run { map, base } => (map, base),
            Desc::Aside { base } => (ASIDE, base),
        };
        u64::from(map) << 32 | u64::from(base)
    }

    #[inline(always)]
    fn decode(desc: u64) -> Self {
        let base = desc as u32;
        match (desc >> 32) as u32 {
            0 => Desc::Label(base),
            ASIDE => Desc::Aside { base },
            map => Desc::Run { map, base },
        }
    }
}

/// The bit that says that /24 number `i` of a chunk, 1 to 31, differs from the one before.
fn change_bit(i: u32) -> u32 {
    1 << (RUNS - i)
}

/// Which label of its run a key has: the changes up to its /24.
#[inline(always)]
fn place(map: u32, key: u32) -> u32 {
    let slash_24 = key >> 8 & (RUNS - 1);
    // 64 bits: of /24 number 0 nothing is left.
    (u64::from(map) >> (RUNS - slash_24)).count_ones()
}

/// Labels in as few bytes as the widest one needs.
#[derive(Debug)]
enum Labels {
    One(Table<AtomicU8>),
    Two(Table<AtomicU16>),
    Four(Table<AtomicU32>),
}

/// Elements behind the last label: SIMD loads are 4 bytes wide.
const LABELS_PAD: usize = 4;
/// SIMD kernels have signed 32-bit indices.
const MAX_LABELS: usize = i32::MAX as usize - LABELS_PAD;

impl Labels {
    /// A table of `len` labels of `width` bytes.
    fn new(arena: &mut Arena, width: u8, len: usize) -> std::io::Result<Self> {
        let len = len + LABELS_PAD;
        Ok(match width {
            1 => Labels::One(arena.table(len)?),
            2 => Labels::Two(arena.table(len)?),
            _ => Labels::Four(arena.table(len)?),
        })
    }

    fn bytes_for(width: u8, len: usize) -> usize {
        Arena::bytes_for::<AtomicU8>((len + LABELS_PAD).saturating_mul(width.into()))
    }

    /// Bytes of a label.
    #[inline(always)]
    fn width(&self) -> u8 {
        match self {
            Labels::One(_) => 1,
            Labels::Two(_) => 2,
            Labels::Four(_) => 4,
        }
    }

    /// Labels that there is room for, and the padding.
    fn len(&self) -> usize {
        match self {
            Labels::One(table) => table.len(),
            Labels::Two(table) => table.len(),
            Labels::Four(table) => table.len(),
        }
    }

    /// Label number `index`. Relaxed loads: labels are not stored to while a reader can reach them.
    #[inline(always)]
    fn get<P: Probe>(&self, index: usize, probe: &P) -> u32 {
        let (address, label) = match self {
            Labels::One(table) => (address(&table[index]), table[index].load(Ordering::Relaxed).into()),
            Labels::Two(table) => (address(&table[index]), table[index].load(Ordering::Relaxed).into()),
            Labels::Four(table) => (address(&table[index]), table[index].load(Ordering::Relaxed)),
        };
        probe.read(address, self.width().into(), true);
        label
    }

    fn as_ptr(&self) -> *const u8 {
        match self {
            Labels::One(table) => table.as_ptr().cast(),
            Labels::Two(table) => table.as_ptr().cast(),
            Labels::Four(table) => table.as_ptr().cast(),
        }
    }
}

fn address<T>(element: &T) -> usize {
    std::ptr::from_ref(element).addr()
}

/// The arrays, which one arena holds.
#[derive(Debug)]
struct Tables {
    /// Block numbers, 2^D of them and one more, since SIMD loads are 4 bytes wide; empty without blocks.
    direct: Table<AtomicU16>,
    /// Descriptors: blocks of 2^X, or 2^19 of them.
    descs: Table<AtomicU64>,
    labels: Labels,
    asides: Table<AtomicU32>,
}

/// How many elements the tables have.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    descs: usize,
    labels: usize,
    asides: usize,
}

impl Tables {
    /// `scratch`: memory that need not be there yet.
    fn new(layout: Layout, width: u8, sizes: Sizes, scratch: bool) -> std::io::Result<Self> {
        let direct = if layout.x() > 0 { (1 << layout.d) + 1 } else { 0 };
        let bytes = Arena::bytes_for::<AtomicU16>(direct)
            + Arena::bytes_for::<AtomicU64>(sizes.descs)
            + Labels::bytes_for(width, sizes.labels)
            + Arena::bytes_for::<AtomicU32>(sizes.asides);
        let mut arena = if scratch { Arena::untouched(bytes)? } else { Arena::new(bytes)? };
        Ok(Tables {
            direct: arena.table(direct)?,
            descs: arena.table(sizes.descs)?,
            labels: Labels::new(&mut arena, width, sizes.labels)?,
            asides: arena.table(sizes.asides)?,
        })
    }

    /// The block numbers.
    fn slots(&self) -> &[AtomicU16] {
        self.direct.split_last().map_or(&[], |(_, slots)| slots)
    }
}

/// The structure that readers use; see the module's page. Made by [`Writer::new`].
#[derive(Debug)]
pub struct Popdir {
    layout: Layout,
    kernel: Kernel,
    tables: Tables,
    /// Elements in use, from the beginning of each table; only the writer stores here.
    used_descs: AtomicUsize,
    used_labels: AtomicUsize,
    used_asides: AtomicUsize,
}

impl Popdir {
    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The code that answers batches.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Bytes of a label.
    pub fn label_width(&self) -> u8 {
        self.tables.labels.width()
    }

    /// Elements in use, of descriptors, labels and asides.
    fn used(&self) -> Sizes {
        let load = |used: &AtomicUsize| used.load(Ordering::Relaxed);
        Sizes {
            descs: load(&self.used_descs),
            labels: load(&self.used_labels),
            asides: load(&self.used_asides),
        }
    }

    /// Checks the invariants of the module's page: what they promise is what lookups rely on. The error says what is wrong.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let Tables { descs, labels, asides, .. } = &self.tables;
        let x = self.layout.x();
        for (slot, block) in self.tables.slots().iter().enumerate() {
            let block = usize::from(block.load(Ordering::Acquire));
            if (block + 1) << x > descs.len() {
                return Err(format!("slot {slot} names block {block}, which is not there"));
            }
        }
        // A block that nobody names may still hold what has been reused elsewhere.
        let mut blocks: Vec<usize> =
            self.tables.slots().iter().map(|block| block.load(Ordering::Acquire).into()).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let linked = blocks.iter().flat_map(|&block| block << x..(block + 1) << x);
        let linked = linked.chain(0..if x == 0 { descs.len() } else { 0 });
        for i in linked {
            let desc = &descs[i];
            match Desc::decode(desc.load(Ordering::Acquire)) {
                Desc::Label(_) => {}
                Desc::Run { map, base } => {
                    if map & ASIDE != 0
                        || base as usize + place(map, u32::MAX) as usize + LABELS_PAD >= labels.len()
                    {
                        return Err(format!("descriptor {i} has its labels outside the table"));
                    }
                }
                Desc::Aside { base } => {
                    let words = asides.get(base as usize..).unwrap_or_default();
                    let count = words.first().map_or(0, |count| count.load(Ordering::Relaxed)) as usize;
                    let ranges = words.get(1..1 + 2 * count).unwrap_or_default();
                    let starts: Vec<u64> = ranges.chunks(2).map(|range| range[0].get()).collect();
                    if starts.first() != Some(&0) || !starts.is_sorted_by(|a, b| a < b) {
                        return Err(format!(
                            "descriptor {i} has its ranges outside the table, or in no order"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Fib<u32> for Popdir {
    fn lookup(&self, key: u32) -> Label {
        simd::lookup(self, key)
    }

    fn lookup_batch(&self, keys: &[u32], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "one result per key");
        simd::lookup_batch(self.kernel, self, keys, out);
    }

    fn lookup_batch_each(&self, keys: &[u32], each: &mut dyn FnMut(&'static str, &[Label])) {
        for kernel in Kernel::ALL.into_iter().filter(|&kernel| simd::is_supported(kernel)) {
            let mut out = vec![Label(u32::MAX); keys.len()];
            simd::lookup_batch(kernel, self, keys, &mut out);
            each(kernel.name(), &out);
        }
    }

    fn name(&self) -> String {
        self.layout.to_string()
    }

    fn bytes(&self) -> usize {
        let used = self.used();
        let labels = used.labels * usize::from(self.label_width());
        self.tables.slots().len() * 2 + used.descs * 8 + labels + used.asides * 4
    }

    fn lookup_probed(&self, key: u32, probe: &dyn Probe) -> Label {
        self.lookup_probed(key, &probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let used = self.used();
        vec![
            ("direct_bytes", self.tables.slots().len() as f64 * 2.0),
            ("descriptor_bytes", used.descs as f64 * 8.0),
            ("label_bytes", used.labels as f64 * f64::from(self.label_width())),
            ("aside_bytes", used.asides as f64 * 4.0),
            ("label_width", self.label_width().into()),
        ]
    }
}
