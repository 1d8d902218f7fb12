//! LC-trie: a binary trie with level and path compression over a sorted vector of prefixes. IPv4 and IPv6, to the last bit.
//!
//! Source: S. Nilsson, G. Karlsson, "IP-address lookup using LC-tries", IEEE JSAC 17(6), 1999.
//!
//! # Memory
//! ```text
//! node       | branch: 8 | skip: 8 | adr: 32 |     8 bytes with padding
//!            branch b > 0: pass over skip bits unseen, take b bits v: the next node is adr + v
//!            branch 0:     a leaf: element adr of the base vector
//! root       2^16 nodes: its branch is fixed at 16
//! base       | key | length | label | covering |      a prefix that covers no other one; 16 bytes, IPv6: 32
//! covering   | length | label | shorter |             a prefix that does: 12 bytes
//!            covering, shorter: the longest prefix around this one
//!
//! 10.0.0.0/8 -> 1, 10.1.0.0/18 -> 2, 10.1.128.0/24 -> 3, seen from the root's node for 10.1:
//!   branch 1, skip 0 --0--> leaf: 10.1.0.0/18, 2  --+
//!                    --1--> leaf: 10.1.128.0/24, 3 --+--> covering: length 8, label 1
//! ```
//! Below the root a node branches over as many bits as leave at least half of its slots with something in them (the source's fill
//! factor 0.5). A slot with nothing in it leads to the one of its two neighbors in the base vector that has the answer among
//! what covers it.
//!
//! # Cost
//! A node of 8 bytes per level, an element of the base vector, and as many of the covering prefixes as do not match, each
//! load found by the one before. The key is compared with the prefix only there, since skipped bits are not looked at on
//! the way.
//!
//! The source has 4 bytes per node and under 256 KB of trie, beside the vectors, for the tables of its time, and claims half a million
//! lookups a second on a Pentium of 133 MHz; Fu (2020, table 3.3) gives 9 loads at most for IPv4. Tables of 2026, keys
//! spread over the prefixes:
//!
//! | | nodes | bases | covering | bytes per prefix | loads | bytes loaded |
//! |---|---|---|---|---|---|---|
//! | IPv4, 1,042,325 prefixes | 1,751,320 | 960,820 | 127,731 | 29.7 | 3.5 | 36 |
//! | IPv6, 246,175 prefixes | 519,590 | 228,128 | 18,113 | 47.4 | 6.0 | 73 |
//!
//! A change of the label of what is there stores the label. A prefix of 16 bits or more that comes or goes has the whole part of
//! the trie below its /16 made anew: quick for IPv4, slow where an IPv6 /16 holds many thousands of prefixes. A
//! shorter one stores two words for each /16 that it covers.
//!
//! # Where we depart from the source
//! * Its nodes have 4 bytes: 5 bits of branch, 7 of skip, 20 of adr. A table of a million prefixes has more nodes than 20 bits count.
//! * It builds the trie for the whole table at once, in one sorted base vector, and has no updates. Here each of the root's
//!   slots has its part of each vector for itself. Of the prefixes shorter than /16 only the longest one matters to a
//!   slot, and is the last one of each of its chains.
//! * Labels stand in the vectors; the source has an index into a table of next hops there.
//!
//! # Invariants
//! 1. The covering prefixes of a root slot begin with its outer one, of fewer than 16 bits (of none: length 0, no route), which
//!    matches every key that comes here. A slot without prefixes of its own has one base element that is the same,
//!    or shares element 0, no route.
//! 2. Bases of a slot are sorted, and none covers another.
//! 3. A branch has two bases at least.

mod build;

#[cfg(test)]
mod tests;

use crate::copies::{self, Whole};
use crate::fib::{BuildError, Built, Fib, Label, Outgrown};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use crate::runs::Runs;
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// Bits of the root's branch.
const ROOT_BITS: u8 = 16;
/// Keys in flight together.
const BURST: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Node {
    adr: u32,
    branch: u8,
    skip: u8,
}

#[derive(Debug, Clone, Copy)]
struct Base<A> {
    key: A,
    label: u32,
    covering: u32,
    len: u8,
}

#[derive(Debug, Clone, Copy)]
struct Covering {
    label: u32,
    shorter: u32,
    len: u8,
}

/// Where the parts of a root slot's trie are: first elements and lengths.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    nodes: (u32, u32),
    bases: (u32, u32),
    covering: (u32, u32),
}

/// An LC-trie.
#[derive(Debug, Clone)]
pub struct LcTrie<A: Address> {
    root: Array<Node>,
    nodes: Runs<Node>,
    bases: Runs<Base<A>>,
    covering: Runs<Covering>,
    /// Of each of the root's slots; lookups do not look here.
    parts: Vec<Part>,
}

/// Builds an LC-trie of `rib`, and its writer.
///
/// # Errors
/// There are 2^32 nodes or prefixes.
pub fn writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(LcTrie::build(rib)?)
}

/// So many bits of the key behind the first `depth`.
#[inline(always)]
fn bits<A: Address>(key: A, depth: u8, count: u8) -> usize {
    (key << usize::from(depth) >> usize::from(A::BITS - count)).to_u128() as usize
}

impl<A: Address> LcTrie<A> {
    /// Builds the trie of `rib`.
    ///
    /// # Errors
    /// There are 2^32 nodes or prefixes.
    pub fn build(rib: &Rib<A>) -> Result<Self, BuildError> {
        build::whole(rib).map_err(|full| BuildError::TooLarge {
            structure: "lc-trie".into(),
            what: full.what,
            advice: "split the table".into(),
        })
    }

    /// Nodes in use, those of the root among them.
    pub fn nodes(&self) -> usize {
        self.root.len() + self.nodes.used()
    }

    /// Elements of the base vector, and covering prefixes.
    pub fn prefixes(&self) -> (usize, usize) {
        (self.bases.used(), self.covering.used())
    }

    /// The element of the base vector to which the key's bits lead.
    #[inline(always)]
    fn leaf<P: Probe + ?Sized>(&self, key: A, probe: &P) -> u32 {
        let mut node = &self.root[bits(key, 0, ROOT_BITS)];
        probe.step();
        probe.read((&raw const *node).addr(), size_of::<Node>(), false);
        let mut depth = ROOT_BITS;
        while node.branch > 0 {
            let from = depth + node.skip;
            depth = from + node.branch;
            node = &self.nodes[node.adr as usize + bits(key, from, node.branch)];
            probe.step();
            probe.read((&raw const *node).addr(), size_of::<Node>(), true);
        }
        node.adr
    }

    /// The label of what matches the key, of a base and what covers it.
    #[inline(always)]
    fn answer<P: Probe + ?Sized>(&self, key: A, base: u32, probe: &P) -> Label {
        let base = &self.bases[base as usize];
        probe.read((&raw const *base).addr(), size_of::<Base<A>>(), true);
        let differs = base.key ^ key;
        if differs & A::mask(base.len) == A::MIN {
            return Label(base.label);
        }
        let mut at = base.covering;
        loop {
            let covering = &self.covering[at as usize];
            probe.read((&raw const *covering).addr(), size_of::<Covering>(), true);
            // The outer one matches at last.
            if differs & A::mask(covering.len) == A::MIN {
                return Label(covering.label);
            }
            at = covering.shorter;
        }
    }

    /// Stores the label of a prefix that is there: whether it is.
    fn relabel<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, label: Label, probe: &P) -> bool {
        if self.parts[bits(prefix.first(), 0, ROOT_BITS)].covering.1 == 0 {
            return false; // the slot has no prefix of its own
        }
        let leaf = self.leaf(prefix.first(), &());
        let base = &mut self.bases[leaf as usize];
        let store = |to: &mut u32| {
            *to = label.0;
            probe.write((&raw const *to).addr(), 4);
        };
        if prefix.contains(base.key) && base.len == prefix.len() {
            store(&mut base.label);
            return true;
        }
        // From the longest to the outer one, which is shorter than any prefix that is looked for here.
        let (inside, mut at) = (prefix.contains(base.key), base.covering);
        while inside && self.covering[at as usize].len >= prefix.len() {
            let covering = &mut self.covering[at as usize];
            if covering.len == prefix.len() {
                store(&mut covering.label);
                return true;
            }
            at = covering.shorter;
        }
        false
    }
}

impl<A: Address> Fib<A> for LcTrie<A> {
    fn lookup(&self, key: A) -> Label {
        self.answer(key, self.leaf(key, &()), &())
    }

    /// In lock step: each round takes the keys that are not at a leaf one node further, and asks for the next.
    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            let mut at = [0_u32; BURST];
            let mut waiting = [(0_u8, 0_u8); BURST]; // a key, and how many of its bits have been used
            let mut count = 0;
            // What a node says of a key: the place of the next node, or its base.
            let mut visit = |i: usize, node: Node, depth: u8, waiting: &mut [(u8, u8)], count: &mut usize| {
                if node.branch == 0 {
                    at[i] = node.adr;
                    prefetch_read(self.bases.as_ptr().wrapping_add(node.adr as usize));
                } else {
                    let from = depth + node.skip;
                    at[i] = node.adr + bits(keys[i], from, node.branch) as u32;
                    prefetch_read(self.nodes.as_ptr().wrapping_add(at[i] as usize));
                    waiting[*count] = (i as u8, from + node.branch);
                    *count += 1;
                }
                at[i]
            };
            let mut place = [0_u32; BURST];
            for (i, &key) in keys.iter().enumerate() {
                let node = self.root[bits(key, 0, ROOT_BITS)];
                place[i] = visit(i, node, ROOT_BITS, &mut waiting, &mut count);
            }
            while count > 0 {
                let round = std::mem::take(&mut count);
                for turn in 0..round {
                    // What waits on is written at or before the place that has just been read.
                    let (i, depth) = waiting[turn];
                    let i = usize::from(i);
                    place[i] = visit(i, self.nodes[place[i] as usize], depth, &mut waiting, &mut count);
                }
            }
            for ((out, &key), base) in out.iter_mut().zip(keys).zip(place) {
                *out = self.answer(key, base, &());
            }
        }
    }

    fn name(&self) -> String {
        "lc-trie".into()
    }

    fn bytes(&self) -> usize {
        self.nodes() * size_of::<Node>()
            + self.bases.used() * size_of::<Base<A>>()
            + self.covering.used() * size_of::<Covering>()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        self.answer(key, self.leaf(key, probe), probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let (bases, covering) = self.prefixes();
        vec![("nodes", self.nodes() as f64), ("bases", bases as f64), ("covering", covering as f64)]
    }
}

impl<A: Address> Whole<A> for LcTrie<A> {
    fn collapse(&self) {
        collapse(&self.nodes);
        collapse(&self.bases);
        collapse(&self.covering);
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        prefix: Prefix<A>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let slot = bits(prefix.first(), 0, ROOT_BITS);
        if prefix.len() < ROOT_BITS {
            let last = bits(prefix.last(), 0, ROOT_BITS);
            return (slot..=last).try_for_each(|slot| self.set_outer(rib, slot, probe));
        }
        match rib.get(prefix) {
            Some(label) if self.relabel(prefix, label, probe) => Ok(()),
            _ => self.make_slot(rib, slot, probe),
        }
    }
}
