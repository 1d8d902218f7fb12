//! Tree bitmap: a multibit trie whose nodes keep a bitmap of the prefixes that end in them and one of their children. IPv4 and IPv6,
//! to the last bit.
//!
//! Source: W. Eatherton, G. Varghese, Z. Dittia, "Tree bitmap: hardware/software IP lookups with incremental updates", ACM CCR
//! 34(2), 2004.
//!
//! # Memory
//! A direct table takes the first 13 bits (the source's initial array), then every node takes a stride of S bits. The
//! children of a node stand side by side, and so do its results, so that a node needs one index for each.
//! ```text
//! root      2^13 entries: | the longest prefix of 13 bits or fewer: 32 | node, 0: none: 32 |
//! node      internal    bit 2^l - 1 + b: the prefix of length l below S, whose bits are b, ends here
//!           external    bit v: the S bits v lead to a child
//!           children    its first child;   results    its first label
//! results   labels of 32 bits
//!
//! v = the node's S bits of the key
//!   its longest prefix here: the highest bit of internal that is an ancestor of v; its label: results + bits below that one
//!   child: children + bits of external below v
//!
//! 10.0.0.0/8 -> 1, 10.0.0.0/14 -> 2, S = 4:   10.0.0.0/13 -> node: length 1, b = 0: internal bit 1, results 2
//!                                             10.8.0.0/13 .. 10.248.0.0/13: label 1, no node
//! ```
//! A node has 2 + 2 + 4 + 4 = 12 bytes with S = 4, and 8 + 8 + 4 + 4 = 24 with S = 6. The structure `tree-bitmap` is the one with 6,
//! which answers 7 to 25 % more keys of the tables below.
//!
//! # Cost
//! One entry of 8 bytes, then a node for each S bits of the longest path that there is for the key, and at the end one
//! label: the results on the way are remembered, not read (the source's lazy results). With S = 4 at most 7 loads for
//! IPv4 and 31 for IPv6; with S = 6 at most 6 and 22. Fu (2020, table 3.3) gives 6 for IPv4. A change moves the results or
//! the children of one node, at most 2^S of them, and creates or drops what is below.
//!
//! Tables of 2026, keys spread over the prefixes:
//!
//! | | S | nodes | bytes per prefix | loads | bytes loaded |
//! |---|---|---|---|---|---|
//! | IPv4, 1,042,325 prefixes | 4 | 318,813 | 7.7 | 4.9 | 47 |
//! | | 6 | 128,485 | 7.0 | 4.0 | 59 |
//! | IPv6, 246,175 prefixes | 4 | 177,416 | 12.9 | 9.9 | 106 |
//! | | 6 | 120,281 | 16.0 | 7.4 | 142 |
//!
//! # Where we depart from the source
//! * The source counts bits in hardware; a CPU's popcount does here. It splits large bitmaps over two nodes, which
//!   popcount of 64 bits makes superfluous, and has end nodes and segmented bitmaps against empty space; we have not.
//! * Runs of children and of results come from lists of free runs by length; the source's allocator moves memory together.
//! * The direct table's entries hold their label, and prefixes up to /13 are expanded into them.
//!
//! # Invariants
//! 1. Every node but the root's empty one has a bit set, and is the child of one entry or of one node's bit.
//! 2. Runs have exactly as many elements as the bitmap has bits.

#[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
mod simd;
mod update;

#[cfg(test)]
mod tests;

use crate::copies;
use crate::fib::{BuildError, Built, Fib, Label};
use crate::prefix::Address;
use crate::rib::Rib;
use crate::runs::Runs;
use num_traits::{PrimInt, Unsigned};
use tidemill_lookup::mem::Array;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// Bits of the direct table. With 13 and a stride of 4 the addresses of both families end with their last node.
const ROOT_BITS: u8 = 13;
/// Keys in flight together.
const BURST: usize = 32;

/// The bitmaps of a node, and so its stride.
pub trait Bitmap: PrimInt + Unsigned + std::fmt::Debug + Send + Sync + 'static {
    /// Bits of the key that a node looks at; the bitmap has 2^STRIDE.
    const STRIDE: u8;
    /// As in configurations.
    const NAME: &'static str;
    /// One bit.
    fn bit(at: u32) -> Self;
}

impl Bitmap for u16 {
    const STRIDE: u8 = 4;
    const NAME: &'static str = "tree-bitmap-s4";
    #[inline(always)]
    fn bit(at: u32) -> Self {
        1 << at
    }
}

impl Bitmap for u64 {
    const STRIDE: u8 = 6;
    const NAME: &'static str = "tree-bitmap";
    #[inline(always)]
    fn bit(at: u32) -> Self {
        1 << at
    }
}

/// How many bits are set below `at`.
#[inline(always)]
fn below<B: Bitmap>(bitmap: B, at: u32) -> u32 {
    (bitmap & (B::bit(at) - B::one())).count_ones()
}

#[derive(Debug, Clone, Copy)]
struct Node<B> {
    internal: B,
    external: B,
    children: u32,
    results: u32,
}

impl<B: Bitmap> Node<B> {
    fn empty() -> Self {
        Node { internal: B::zero(), external: B::zero(), children: 0, results: 0 }
    }

    fn is_empty(&self) -> bool {
        self.internal | self.external == B::zero()
    }

    /// The result of the longest prefix here that covers `v`.
    #[inline(always)]
    fn result(&self, v: u32) -> Option<u32> {
        // v with a one before it, and its ancestors: the numbers of a binary tree's nodes, the root being 1.
        let number = v | 1 << B::STRIDE;
        let mut path = B::zero();
        for up in 1..=B::STRIDE {
            path = path | B::bit((number >> up) - 1);
        }
        let there = self.internal & path;
        if there == B::zero() {
            return None;
        }
        let last = (1 << B::STRIDE) - 1 - there.leading_zeros();
        Some(self.results + below(self.internal, last))
    }

    #[inline(always)]
    fn child(&self, v: u32) -> Option<u32> {
        (self.external & B::bit(v) != B::zero()).then(|| self.children + below(self.external, v))
    }
}

/// An entry of the direct table.
#[derive(Debug, Clone, Copy)]
struct Entry {
    label: u32,
    node: u32,
}

/// A tree bitmap; `B` says its stride.
#[derive(Debug, Clone)]
pub struct TreeBitmap<B: Bitmap> {
    root: Array<Entry>,
    nodes: Runs<Node<B>>,
    results: Runs<u32>,
    /// Whether the CPU counts bits by instructions.
    popcnt: bool,
}

fn has_popcnt() -> bool {
    #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
    return simd::has_popcnt();
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, scalar)))))]
    false
}

/// Builds a tree bitmap of `rib` with strides of 6 bits, and its writer.
///
/// # Errors
/// There are 2^32 nodes or results.
pub fn writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(TreeBitmap::<u64>::build(rib)?)
}

/// The entry of the direct table for a key.
#[inline(always)]
fn slot<A: Address>(key: A) -> usize {
    (key >> usize::from(A::BITS - ROOT_BITS)).to_u128() as usize
}

/// The bits of the key from `depth` on that a node looks at; zeros behind the key's end.
#[inline(always)]
fn bits<A: Address, B: Bitmap>(key: A, depth: u8) -> u32 {
    let aligned = key << usize::from(depth) >> usize::from(A::BITS - B::STRIDE);
    aligned.to_u128() as u32
}

impl<B: Bitmap> TreeBitmap<B> {
    /// Builds the structure of `rib`.
    ///
    /// # Errors
    /// There are 2^32 nodes or results.
    pub fn build<A: Address>(rib: &Rib<A>) -> Result<Self, BuildError> {
        update::build(rib).map_err(|full| BuildError::TooLarge {
            structure: B::NAME.into(),
            what: full.what,
            advice: "split the table".into(),
        })
    }

    /// Nodes in use.
    pub fn nodes(&self) -> usize {
        self.nodes.used() - 1
    }

    /// Labels in use, those of the direct table not among them.
    pub fn results(&self) -> usize {
        self.results.used()
    }

    #[inline(always)]
    fn find<A: Address, P: Probe + ?Sized>(&self, key: A, probe: &P) -> Label {
        let entry = &self.root[slot(key)];
        probe.read((&raw const *entry).addr(), size_of::<Entry>(), false);
        let (mut at, mut depth, mut best) = (entry.node, ROOT_BITS, None);
        while at != 0 {
            let node = &self.nodes[at as usize];
            probe.step();
            probe.read((&raw const *node).addr(), size_of::<Node<B>>(), true);
            let v = bits::<A, B>(key, depth);
            best = node.result(v).or(best);
            at = node.child(v).unwrap_or(0);
            depth += B::STRIDE;
        }
        self.answer(entry, best, probe)
    }

    #[inline(always)]
    fn answer<P: Probe + ?Sized>(&self, entry: &Entry, best: Option<u32>, probe: &P) -> Label {
        let Some(result) = best else { return Label(entry.label) };
        let label = &self.results[result as usize];
        probe.read((&raw const *label).addr(), 4, true);
        Label(*label)
    }
}

impl<B: Bitmap> TreeBitmap<B> {
    /// A burst: each round takes the keys that have not come to their end one node further, and asks for the next.
    #[inline(always)]
    fn lock_step<A: Address>(&self, keys: &[A], out: &mut [Label]) {
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            let mut at = [0_u32; BURST];
            let mut best = [None; BURST];
            let mut waiting = [0_u8; BURST];
            let mut count = 0;
            for (i, &key) in keys.iter().enumerate() {
                at[i] = self.root[slot(key)].node;
                prefetch_read(self.nodes.as_ptr().wrapping_add(at[i] as usize));
                waiting[count] = i as u8;
                count += usize::from(at[i] != 0);
            }
            let mut depth = ROOT_BITS;
            while count > 0 {
                let round = std::mem::take(&mut count);
                for turn in 0..round {
                    let i = usize::from(waiting[turn]);
                    let node = &self.nodes[at[i] as usize];
                    let v = bits::<A, B>(keys[i], depth);
                    best[i] = node.result(v).or(best[i]);
                    at[i] = node.child(v).unwrap_or(0);
                    prefetch_read(self.nodes.as_ptr().wrapping_add(at[i] as usize));
                    waiting[count] = i as u8;
                    count += usize::from(at[i] != 0);
                }
                depth += B::STRIDE;
            }
            for ((out, &key), best) in out.iter_mut().zip(keys).zip(best) {
                *out = self.answer(&self.root[slot(key)], best, &());
            }
        }
    }
}

impl<A: Address, B: Bitmap> Fib<A> for TreeBitmap<B> {
    fn lookup(&self, key: A) -> Label {
        #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
        if self.popcnt {
            return simd::one(self, key);
        }
        self.find(key, &())
    }

    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
        if self.popcnt {
            return simd::burst(self, keys, out);
        }
        self.lock_step(keys, out);
    }

    fn lookup_batch_each(&self, keys: &[A], each: &mut dyn FnMut(&'static str, &[Label])) {
        let mut out = vec![Label(u32::MAX); keys.len()];
        self.lock_step(keys, &mut out);
        each("scalar", &out);
        if self.popcnt {
            out.fill(Label(u32::MAX));
            self.lookup_batch(keys, &mut out);
            each("popcnt", &out);
        }
    }

    fn name(&self) -> String {
        B::NAME.into()
    }

    fn bytes(&self) -> usize {
        self.root.len() * size_of::<Entry>() + self.nodes() * size_of::<Node<B>>() + 4 * self.results()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        self.find(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        vec![("nodes", self.nodes() as f64), ("results", self.results() as f64)]
    }
}
