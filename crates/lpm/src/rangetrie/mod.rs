//! The range trie: a multibit trie whose leaves are cache lines of ranges. IPv6 first, IPv4 too.
//!
//! Our own combination of three known ideas: a direct root and wide nodes as in every multibit trie; sorted ranges
//! instead of prefixes at the bottom, as in DXR (Zec 2019, chapter 3); and a node that is exactly one cache line, so
//! that a visited node costs one memory access. Poptrie visits a node for every 6 bits and squeezes each by two
//! bitmaps; here a dense region takes 4 or 8 bits per visit, and a sparse one - most of IPv6 - 16 bits at once.
//!
//! # Memory
//! One array of 32-bit words, in 64-byte *cells*. An *entry* is one word: a label, or a pointer to a node.
//! ```text
//! root   2^D entries, indexed by the first D bits (D = 16)
//! block  16 entries (1 cell, 4 bits) or 256 entries (16 cells, 8 bits), indexed by the next bits
//! line   1 cell, for the next 16 bits x:
//!        | start 1 .. start 10 (u16, sorted) | entry 0 .. entry 10 |
//!          20 bytes                            44 bytes
//!        answer: entry i, i = how many starts are <= x (start 0 is 0, not stored)
//!
//! 2001:db8::/32 -> 1, 2001:db8:40::/48 -> 2, seen from a line for the bits 32..48:
//!        starts 0040 0041 ffff ..   entries 1 2 1 1 ..
//! ```
//! A region with at most 11 ranges becomes a line, a richer one a block. Where ranges begin or end inside one
//! 16-bit slot of a line (longer prefixes), that slot's entry points to a node for the bits behind it. So every length up to
//! the last bit has its place, and depth is bounded: 4 bits at least per visit.
//!
//! # Cost
//! One word of the root, then one cache line per visited block and one per visited line; of a line both
//! halves are used. Bytes, rates and updates: the crate's README.
//!
//! # Invariants
//! 1. A node's depth (bits before it) is less than the address width, and every node has exactly one entry that points
//!    to it.
//! 2. The starts of a line rise; behind the last range the free starts are ffff and the free entries repeat the last
//!    one, so that x = ffff counts them without harm.
//! 3. A published line never changes. A block's entries (the root's too) change one at a time, by one atomic store.
//! 4. A node is written before the entry that points to it is stored (release), and its cells are used again only after
//!    the grace period of the batch that unlinked it.
//!
//! From 3 and 4: readers take no lock, never retry, and see for each key the old or the new answer of every change.

mod build;
mod lookup;
#[cfg(target_arch = "x86_64")]
mod simd;
#[cfg(test)]
mod tests;
mod update;

pub use update::Writer;

use crate::fib::{BuildError, Label};
use crate::prefix::Address;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tidemill_lookup::mem::Table;

/// Words in a cell.
const CELL: usize = 16;
/// Bits that a line looks at.
const LINE_BITS: u8 = 16;
/// Starts stored in a line; its ranges are one more.
const STARTS: usize = 10;
/// Ranges in a line.
const RANGES: usize = STARTS + 1;
/// Words of a line before its entries.
const LINE_HEAD: usize = STARTS / 2;
/// The batch lookup keeps 64 bits of the key; nodes that look further are marked in their pointer.
const WINDOW_BITS: u8 = 64;

const _: () = assert!(LINE_HEAD + RANGES == CELL, "a line is one cell");
const _: () = assert!(LINE_BITS == 16, "starts are halfwords");

/// A range trie, as readers see it. Made and patched by a [`Writer`].
pub struct RangeTrie<A: Address> {
    cells: Table<AtomicU32>,
    root_bits: u8,
    /// Cells in use, the root's among them.
    used: AtomicUsize,
    search: lookup::Search,
    family: PhantomData<A>,
}

/// What one word says: a label (bit 31 clear), or where the next node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry(u32);

/// What an entry points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Line,
    /// A block that looks at this many bits: 4 or 8.
    Block(u8),
}

impl Entry {
    const POINTER: u32 = 1 << 31;
    /// The node looks at bits behind the batch lookup's window.
    const DEEP: u32 = 1 << 30;
    /// Bits 28 and 29: 0 for a line, else the block's bits in units of 4.
    const KIND_SHIFT: u32 = 28;
    const CELL_MASK: u32 = (1 << Self::KIND_SHIFT) - 1;
    /// Most cells of a trie, 8 GB: word numbers stay below 2^31, as the gather instruction wants them.
    const CELLS_MAX: usize = 1 << 27;
    /// The widest label that fits.
    const LABEL_MAX: u32 = Self::POINTER - 1;

    fn leaf(label: Label) -> Self {
        debug_assert!(label.0 <= Self::LABEL_MAX, "checked before building");
        Entry(label.0)
    }

    fn pointer(node: Node, cell: u32, depth: u8) -> Self {
        let deep = if depth + node.bits() > WINDOW_BITS { Self::DEEP } else { 0 };
        Entry(Self::POINTER | deep | (node.kind() << Self::KIND_SHIFT) | cell)
    }

    #[inline(always)]
    fn is_leaf(self) -> bool {
        self.0 & Self::POINTER == 0
    }

    /// The node that a pointer points to, and its first cell; `None` for a label.
    #[inline(always)]
    fn node(self) -> Option<(Node, u32)> {
        if self.is_leaf() {
            return None;
        }
        let node = match (self.0 >> Self::KIND_SHIFT) & 3 {
            0 => Node::Line,
            kind => Node::Block(kind as u8 * 4),
        };
        Some((node, self.0 & Self::CELL_MASK))
    }
}

impl Node {
    fn bits(self) -> u8 {
        match self {
            Node::Line => LINE_BITS,
            Node::Block(bits) => bits,
        }
    }

    fn kind(self) -> u32 {
        match self {
            Node::Line => 0,
            Node::Block(bits) => u32::from(bits / 4),
        }
    }

    /// Cells that the node takes.
    fn cells(self) -> u32 {
        match self {
            Node::Line => 1,
            Node::Block(bits) => (1 << bits) / CELL as u32,
        }
    }
}

/// The `count` bits of `key` behind the first `depth`; behind the last bit there are zeros. `depth < A::BITS`.
#[inline(always)]
fn bits<A: Address>(key: A, depth: u8, count: u8) -> usize {
    ((key << usize::from(depth)) >> usize::from(A::BITS - count)).to_u128() as usize
}

impl<A: Address> RangeTrie<A> {
    /// The widths of the root that can be built.
    pub const ROOT_BITS: [u8; 4] = [12, 16, 20, 24];

    /// Bits that index the root.
    pub fn root_bits(&self) -> u8 {
        self.root_bits
    }

    fn check_root_bits(root_bits: u8) -> Result<(), BuildError> {
        if Self::ROOT_BITS.contains(&root_bits) {
            return Ok(());
        }
        Err(BuildError::Parameter {
            parameter: "root bits",
            value: root_bits.into(),
            expected: "12, 16, 20 or 24".into(),
        })
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}
