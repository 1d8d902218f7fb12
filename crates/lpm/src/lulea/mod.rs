//! Luleå for IPv6: a trie of bytes whose nodes keep only the places where the answer changes.
//!
//! Source: M. Degermark, A. Brodnik, S. Carlsson, S. Pink, "Small forwarding tables for fast routing lookups" (SIGCOMM 1997).
//! Its idea: expand the prefixes of a region over 2^k slots, store one entry for each *run* of equal slots, and find a
//! slot's run by counting the runs that begin up to it. A chunk of few runs lists where they are, one of many has a bitmap.
//!
//! # Memory
//! Two arrays of 32-bit words: the root, and the *store* of all nodes. An *entry* is one word: a label, or where the node is that
//! looks at the next byte.
//! ```text
//! root    2^16 entries, indexed by the bits 0..16
//! store   256 zeros, where a key looks that has its answer already; then blocks and nodes:
//! block   256 entries, indexed by the bits 16..24: below the root, where nearly every slot differs
//! small   at most 9 runs:  | last slot of run 0 .. 7: 8 bytes | entry 0 .. entry n-1 |
//!         answer: entry i, i = how many of the last slots are below x (free ones are ff, below nothing)
//! large   at most 256 runs: 8 words of 64 bits, one for 32 slots each | entry 0 .. entry n-1 |
//!         | base: 32 | bitmap: 32 |   bit j: slot j begins a run; base: word number of the run before
//!         answer: the entry at base + how many bits are set at or below x
//!
//! 2001:db8::/32 -> 1, 2001:db8:40::/48 -> 2, seen from the small node for the byte 40..48 of 2001:db8:00xx::
//!         last slots 3f 40 ff ff ff ff ff ff   entries 1 2 1
//!
//! entry   | pointer: 1 | large: 1 | place, in units of two words: 30 |   or   | 0 | label: 31 |
//! ```
//! A slot inside which ranges begin has a run of its own, whose entry points to the node for the next byte. So every length
//! up to /128 has its place, in the same kind of node.
//!
//! # Cost
//! Root and block, of which a real table touches some 100 lines; then per node two loads, of one line where the node is
//! small. Of keys spread over the prefixes of the 2026 table all visit one node, 52 % a second, 34 % a third. Bursts take all
//! keys one node further at a time, those that have their answer left out; with AVX2 8 keys at once, with AVX-512 16. A single lookup
//! leaves at the root or the block by a jump, or makes three visits without a branch that depends on the key. A patch looks at one run of each node on its way, and reads the
//! runs of those that it makes anew; in a large node, a slot that has a run of its own is one store, whatever its neighbors are. Bytes, rates and updates: the crate's README.
//!
//! # Where we depart from the source
//! * Popcount takes the place of the table of possible bitmaps; bases stand beside their bitmaps, so a word is one load.
//! * The source gives 16, 8 and 8 bits to its levels and refuses a chunk below the last. Here a flat root and a
//!   flat block are first, and then there is a level for every byte.
//! * Updates: the source builds the whole table anew. [`Writer`] replaces single nodes.
//!
//! # Invariants
//! 1. Every node has exactly one entry that points to it, or, where structures share, as many as are counted; its byte lies before
//!    the address's end.
//! 2. A published node's last slots, bitmaps and bases never change. Its entries change one at a time, by one atomic
//!    store, as do those of the root and of blocks; where structures share, those of the root only.
//! 3. A node is written before the entry that points to it is stored (release), and its words are used again only after
//!    the grace period of the batch that unlinked it.
//!
//! While there is room that was never used, a small node is put into one cache line if it fits, and a large one at the beginning of one.
//!
//! From 2 and 3: readers take no lock, never retry, and see for each key the old or the new answer of every change.

mod build;
mod lookup;
mod node;
mod patch;
mod shared;
#[cfg(target_arch = "x86_64")]
mod simd;
#[cfg(test)]
mod tests;
mod update;

pub use shared::{Shared, SharedStats};
pub use update::Writer;

/// Whether this CPU takes several keys at once: with AVX2 or AVX-512.
pub(crate) fn has_wide_kernel() -> bool {
    lookup::Kernel::best().name() != "scalar"
}

use crate::fib::Label;
use crate::prefix::Prefix;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tidemill_lookup::mem::Table;

/// Entries of the root, which is indexed by the first 16 bits.
const ROOT: usize = 1 << 16;
/// Slots of a block and of a node.
const SLOTS: usize = 256;
/// Words of zeros that begin a store. A key that has its answer looks here where another one in step with it looks at a block or a node.
const NOWHERE: usize = SLOTS;
/// Words are handed out in units of so many, a pair.
const UNIT: usize = 2;
/// Units of a cache line.
const LINE_UNITS: usize = 8;
/// Most runs of a small node.
const SMALL_RUNS: usize = 9;
/// Words of a small node before its entries.
const SMALL_HEAD: usize = 2;
/// Words of a large node before its entries.
const LARGE_HEAD: usize = 16;

/// The structure that readers use; see the module's page. Made and patched by a [`Writer`], or by a [`Shared`]'s.
pub struct Lulea {
    root: Table<AtomicU32>,
    store: Arc<Store>,
    kernel: lookup::Kernel,
}

/// Blocks and nodes, of one structure or of several.
struct Store {
    words: Table<AtomicU32>,
    /// Units in use, the zeros among them.
    used: AtomicUsize,
    /// Who refers to what, if structures share the store.
    books: Option<shared::Books>,
}

/// What one word says: a label (bit 31 clear), or where the next node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry(u32);

impl Entry {
    const POINTER: u32 = 1 << 31;
    const LARGE: u32 = 1 << 30;
    /// The unit in which the node begins.
    const PLACE: u32 = Self::LARGE - 1;
    /// Most units of a table, 8 GB: word numbers stay below 2^31, as the gather instruction wants them.
    const UNITS_MAX: usize = 1 << 30;
    /// The unit of the zeros.
    const NOWHERE: u32 = 0;
    /// The widest label that fits.
    const LABEL_MAX: u32 = Self::POINTER - 1;

    fn leaf(label: Label) -> Self {
        debug_assert!(label.0 <= Self::LABEL_MAX, "checked before building");
        Entry(label.0)
    }

    /// To the block, small or large node that begins in this unit.
    fn pointer(large: bool, unit: u32) -> Self {
        let kind = if large { Self::LARGE } else { 0 };
        Entry(Self::POINTER | kind | unit)
    }

    #[inline(always)]
    fn is_leaf(self) -> bool {
        self.0 & Self::POINTER == 0
    }

    #[inline(always)]
    fn is_large(self) -> bool {
        self.0 & Self::LARGE != 0
    }

    /// The unit in which the node behind a pointer begins.
    #[inline(always)]
    fn unit(self) -> u32 {
        self.0 & Self::PLACE
    }

    /// Its first word.
    #[inline(always)]
    fn word(self) -> usize {
        self.unit() as usize * UNIT
    }
}

/// The byte of `key` behind the first `depth` bits, a multiple of 8 below 128.
#[inline(always)]
fn byte(key: u128, depth: u8) -> u8 {
    (key >> (120 - u32::from(depth))) as u8
}

/// The region of a slot of `region`.
fn slot_region(region: Prefix<u128>, slot: usize) -> Prefix<u128> {
    let len = region.len() + 8;
    let addr = region.first() | (slot as u128) << (128 - u32::from(len));
    Prefix::new(addr, len).unwrap_or(region) // never: a region ends 8 bits before the address at least
}

impl Lulea {
    /// The entry of a root's slot.
    #[inline(always)]
    fn root(&self, slot: usize) -> Entry {
        Entry(self.root[slot].load(Ordering::Acquire))
    }

    /// Bytes that this structure does not share, whatever others do: its root.
    pub fn own_bytes(&self) -> usize {
        size_of_val(&*self.root)
    }
}

impl Store {
    /// The entry at a word of a block or a node.
    #[inline(always)]
    fn entry(&self, word: usize) -> Entry {
        Entry(self.words[word].load(Ordering::Acquire))
    }

    /// Bytes in use.
    fn bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed) * UNIT * size_of::<u32>()
    }
}
