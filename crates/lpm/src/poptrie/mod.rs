//! Poptrie: a multibit trie whose nodes are squeezed by counting bits. IPv4 and IPv6, to the last bit.
//!
//! Source: H. Asai, Y. Ohara, "Poptrie: a compressed trie with population count for fast and scalable software IP routing
//! table lookup", SIGCOMM 2015. Written from the paper's idea, as a yardstick: the field knows its rates.
//!
//! # Memory
//! A direct table takes the first K bits (18 in the paper), then every node takes 6. Of its 64 slots a node stores only those that
//! matter: an array of child nodes, and an array of leaves in which equal neighbors are one.
//! ```text
//! root     2^K entries of 32 bits: a label, or bit 31 and the number of a node
//! node     three words of 64 bits
//!            vector   bit v: the slot of v leads to a node
//!            leafvec  bit v: the slot of v is a leaf, and not the same as the leaf before it
//!            bases    low half base0: its first leaf; high half base1: its first child
//! leaves   labels of 8, 16 or 32 bits, packed into 32-bit words
//!
//! v = the node's 6 bits of the key, n(x) = how many of the bits 0 ..= v of x are set
//!   vector has v:  the child is node base1 + n(vector) - 1
//!   else:          the answer is leaf base0 + n(leafvec) - 1
//!
//! 10.0.0.0/8 -> 1, 10.0.32.0/22 -> 2, K = 18: the node of 10.0.0.0/18, whose slots are its 64 /24s
//!   vector 0   leafvec bits 0, 32, 36   leaves 1, 2, 1
//! ```
//! # Cost
//! One entry of the root, then 24 bytes for every 6 bits, then one leaf.
//!
//! # Invariants
//! 1. A node has at least two different slots: what has one label everywhere is a leaf of its parent (or an entry of the root).
//! 2. Bit 0 of `vector | leafvec` is set, and the arrays have exactly as many elements as the bits say.
//! 3. Published nodes and leaves never change, but for one word: `bases`, when the children move to a new array of as many.
//!    Entries of the root change one at a time. Both by one atomic store.
//! 4. Arrays are written before the word that leads to them is stored (release), and used again only after the grace period of the
//!    patch that unlinked them.
//!
//! So readers take no lock, never retry, and see for each key the old or the new answer of every change.
//!
//! Where we depart from the source: the label width is chosen at each build (the paper: 16 bits); leaves are compressed and the
//! direct table is there always; arrays come from lists of free runs by length, not from a buddy system; an update replaces the
//! array of children that holds the changed node, as above, whatever lies between; bursts go in lock step.

mod build;
mod lookup;
mod pool;
#[cfg(target_arch = "x86_64")]
mod simd;
#[cfg(test)]
mod tests;
mod update;

pub use lookup::Kernel;
pub use update::Writer;

use crate::fib::{BuildError, Label};
use crate::prefix::Address;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tidemill_lookup::mem::Table;

/// Bits that a node looks at.
const STRIDE: u8 = 6;
/// Slots of a node.
const SLOTS: usize = 1 << STRIDE;
/// Words of a node: vector, leafvec, bases.
const NODE_WORDS: usize = 3;
/// In an entry of the root: the rest is a node's number. Else it is a label.
const NODE: u32 = 1 << 31;
/// The widest label: an entry of the root must hold it.
const LABEL_MAX: u32 = NODE - 1;
/// Most nodes, and most leaves: numbers of words stay below 2^31, as gather instructions want them.
const NODES_MAX: usize = (1 << 31) / NODE_WORDS;
const LEAVES_MAX: usize = 1 << 31;

/// A Poptrie, as readers see it. Made and patched by a [`Writer`].
///
/// ```
/// use tidemill_lpm::{Domain, FibWriter, Label, Rib, poptrie::Writer};
///
/// let mut rib = Rib::<u32>::new();
/// rib.insert("10.0.0.0/8".parse().unwrap(), Label(1));
/// let mut writer = Writer::new(&rib, 18, &Domain::new()).unwrap();
/// let fib = writer.fib();
/// let prefix = "10.1.2.0/24".parse().unwrap();
/// rib.insert(prefix, Label(2));
/// writer.patch(&rib, &[prefix]).unwrap();
/// assert_eq!((fib.lookup(0x0a01_0203), fib.lookup(0x0a01_0303)), (Label(2), Label(1)));
/// ```
pub struct Poptrie<A: Address> {
    root: Table<AtomicU32>,
    nodes: Table<AtomicU64>,
    leaves: Table<AtomicU32>,
    root_bits: u8,
    width: LeafWidth,
    kernel: Kernel,
    /// Nodes and leaves in use; only the writer stores here.
    used: [AtomicUsize; 2],
    family: PhantomData<A>,
}

/// How wide a leaf is: 32 bits, or an n-th of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LeafWidth {
    /// A word holds `1 << shift` leaves: 0, 1 or 2.
    shift: u32,
}

impl LeafWidth {
    /// The narrowest for labels up to this one.
    fn for_label(greatest: u32) -> Self {
        LeafWidth { shift: if greatest <= 0xff { 2 } else { u32::from(greatest <= 0xffff) } }
    }

    /// Bits of a leaf.
    #[inline(always)]
    fn bits(self) -> u32 {
        32 >> self.shift
    }

    /// The widest label that fits.
    #[inline(always)]
    fn mask(self) -> u32 {
        u32::MAX >> (32 - self.bits())
    }

    /// The word of a leaf, and where it begins in it.
    #[inline(always)]
    fn place(self, leaf: usize) -> (usize, u32) {
        (leaf >> self.shift, (leaf as u32 & ((1 << self.shift) - 1)) * self.bits())
    }
}

/// The three words of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    vector: u64,
    leafvec: u64,
    base0: u32,
    base1: u32,
}

impl Node {
    fn bases(self) -> u64 {
        u64::from(self.base1) << 32 | u64::from(self.base0)
    }

    fn children(self) -> usize {
        self.vector.count_ones() as usize
    }

    fn leaves(self) -> usize {
        self.leafvec.count_ones() as usize
    }
}

/// The `count` bits of `key` behind the first `depth`; behind the last bit there are zeros. `depth < A::BITS`.
#[inline(always)]
fn bits<A: Address>(key: A, depth: u8, count: u8) -> usize {
    ((key << usize::from(depth)) >> usize::from(A::BITS - count)).to_u128() as usize
}

impl<A: Address> Poptrie<A> {
    /// The widths of the direct table that can be built.
    pub const ROOT_BITS: std::ops::RangeInclusive<u8> = 12..=24;

    /// K: bits that index the direct table.
    pub fn root_bits(&self) -> u8 {
        self.root_bits
    }

    /// Bits of a leaf's label: 8, 16 or 32.
    pub fn leaf_bits(&self) -> u8 {
        self.width.bits() as u8
    }

    /// Nodes in use.
    pub fn nodes(&self) -> usize {
        self.used[0].load(Ordering::Relaxed)
    }

    /// Leaves in use.
    pub fn leaves(&self) -> usize {
        self.used[1].load(Ordering::Relaxed)
    }

    fn check_root_bits(root_bits: u8) -> Result<(), BuildError> {
        if Self::ROOT_BITS.contains(&root_bits) {
            return Ok(());
        }
        let (value, expected) = (root_bits.into(), "12 to 24".into());
        Err(BuildError::Parameter { parameter: "root bits", value, expected })
    }

    /// For the one writer, which needs no order.
    fn node(&self, number: u32) -> Node {
        let word = |i: usize| self.nodes[number as usize * NODE_WORDS + i].load(Ordering::Relaxed);
        let bases = word(2);
        Node { vector: word(0), leafvec: word(1), base0: bases as u32, base1: (bases >> 32) as u32 }
    }

    /// As above.
    fn leaf(&self, leaf: usize) -> Label {
        let (word, shift) = self.width.place(leaf);
        Label(self.leaves[word].load(Ordering::Relaxed) >> shift & self.width.mask())
    }
}
