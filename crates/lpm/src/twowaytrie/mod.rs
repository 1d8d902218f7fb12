//! A two-way trie before a hash table: the trie finds the length, the table the label. IPv4 and IPv6, to the last bit.
//!
//! Source: M. Kwon, K. P. Neupane, J. Marshall and M. M. Rafique, "CuVPP: filter-based longest prefix matching in software data
//! planes": "VPP with a trie", the third of the structures that they compare with (sections V-B, V-F and V-H).
//!
//! The paper does not say what a two-way trie is. We read it from its figures: a node is two pointers and a boolean (24 bytes
//! each, 24,212,583 for a million prefixes: 581 MB), so it has two ways to go on, one for each value of the next bit, and knows
//! whether a prefix ends there; and 500,000 lookups ask the FIB 500,000 times, so the trie tells the length of the longest match
//! and no label, and the FIB, a hash table, is asked for that one length. [`crate::binarytrie`] is the same trie with labels.
//! (24 nodes for a prefix are a sign of prefixes made at random: the tables of 2026 have 2.2 for IPv4, 3.9 for IPv6.)
//!
//! # Memory
//! ```text
//! node   | child 0, and bit 31: a prefix ends here | child 1 |     two words of 32 bits; node 0 is the root and nobody's child
//!          0: none                                   0: none
//! table  (prefix, length) -> label                                 as in `hashlengths/table.rs`
//!
//! 0.0.0.0/0 -> 1, 128.0.0.0/2 -> 2:
//!     (0 *, 1) --1--> (2, 0) --0--> (0 *, 0)           table: (0.0.0.0, 0) -> 1, (128.0.0.0, 2) -> 2
//! ```
//! # Cost
//! A lookup reads a node of 8 bytes per bit of the longest path that there is for its key, each found by the one before: up to 33 or
//! 129 loads. Then it hashes what has matched and reads a bucket of 64 bytes, as a rule the one; if nothing has matched it asks for nothing.
//! A change writes one node per bit that is not shared with other prefixes, a word more, and the words of one entry.
//!
//! # Limits
//! Prefixes that are chosen to have one hash make lookups slow, not wrong: see [`hash`](crate::hashlengths::hash), whose hash is the paper's and has no key.
//!
//! # Invariants
//! 1. Every node but the root has a child or a prefix.
//! 2. A node is the child of one other, or in the list of free nodes.
//! 3. Prefixes end where the table has one, and only there.
//!
//! Where we depart from the source: 8 bytes for a node and not 24 (numbers for pointers, a bit for the boolean), nodes go when their
//! prefixes do, and the table has buckets of one line, where VPP's has pages that double.

#[cfg(test)]
mod tests;

use crate::copies::{self, Whole};
use crate::fib::{BuildError, Built, Fib, Label, Outgrown};
use crate::hashlengths::HashTable;
use crate::hashlengths::hash::{Cut, Sums, table_bytes};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// In child 0's word: a prefix ends at this node.
const PREFIX: u32 = 1 << 31;
/// Most nodes, for a number must leave that bit alone.
const NODES_MAX: usize = PREFIX as usize;
/// Bytes of a node in the paper.
const SOURCE_NODE: usize = 24;

/// Two children; see the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node([u32; 2]);

impl Node {
    #[inline(always)]
    fn child(self, side: usize) -> u32 {
        self.0[side] & !PREFIX
    }

    #[inline(always)]
    fn is_prefix(self) -> bool {
        self.0[0] & PREFIX != 0
    }
}

/// A two-way trie and its FIB.
#[derive(Debug, Clone)]
pub struct TwoWayTrie<A> {
    nodes: Array<Node>,
    free: Vec<u32>,
    table: HashTable<A>,
}

/// Builds a two-way trie of `rib`, and its writer.
///
/// # Errors
/// More than 2^31 nodes.
pub fn writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(TwoWayTrie::build(rib)?)
}

/// Bit `depth` of the key, counted from the first.
#[inline(always)]
fn bit<A: Address>(key: A, depth: u8) -> usize {
    ((key >> usize::from(A::BITS - 1 - depth)) & A::one()).to_u128() as usize
}

impl<A: Address> TwoWayTrie<A> {
    /// Builds the trie of `rib`.
    ///
    /// # Errors
    /// More than 2^31 nodes.
    pub fn build(rib: &Rib<A>) -> Result<Self, BuildError> {
        let (nodes, free) = (Array::filled(1, Node([0; 2])), Vec::new());
        let mut trie = TwoWayTrie { nodes, free, table: HashTable::with_room(rib.len()) };
        let inserted = rib.iter().try_for_each(|(prefix, label)| trie.insert(prefix, label, &()));
        inserted.map_err(|Outgrown { what }| {
            let advice = "choose a structure that skips what does not branch, patricia".into();
            BuildError::TooLarge { structure: "two-way-trie".into(), what, advice }
        })?;
        Ok(trie)
    }

    /// Nodes in use.
    pub fn nodes(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    fn insert<P: Probe + ?Sized>(
        &mut self,
        prefix: Prefix<A>,
        label: Label,
        probe: &P,
    ) -> Result<(), Outgrown> {
        if !self.table.set(prefix, label.0, probe) {
            return Ok(());
        }
        let mut at = 0;
        for depth in 0..prefix.len() {
            let side = bit(prefix.first(), depth);
            let child = match self.nodes[at].child(side) {
                0 => self.add(at, side, probe)?,
                child => child,
            };
            at = child as usize;
        }
        self.write(at, 0, self.nodes[at].0[0] | PREFIX, probe);
        Ok(())
    }

    /// A new child of a node.
    fn add<P: Probe + ?Sized>(&mut self, at: usize, side: usize, probe: &P) -> Result<u32, Outgrown> {
        let new = match self.free.pop() {
            Some(free) => free,
            None if self.nodes.len() == NODES_MAX => {
                return Err(Outgrown { what: format!("more than {NODES_MAX} nodes") });
            }
            None => {
                self.nodes.push(Node([0; 2]));
                self.nodes.len() as u32 - 1
            }
        };
        self.nodes[new as usize] = Node([0; 2]);
        probe.write((&raw const self.nodes[new as usize]).addr(), size_of::<Node>());
        self.write(at, side, self.nodes[at].0[side] | new, probe);
        Ok(new)
    }

    fn remove<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, probe: &P) {
        if !self.table.remove(prefix, probe) {
            return;
        }
        // Where to cut if the node goes: below the last one that is needed for something else. The path is there: invariant 3.
        let (mut at, mut cut) = (0, (0, 0));
        for depth in 0..prefix.len() {
            let side = bit(prefix.first(), depth);
            let node = self.nodes[at];
            if depth == 0 || node.is_prefix() || node.child(1 - side) != 0 {
                cut = (at, side);
            }
            at = node.child(side) as usize;
        }
        self.write(at, 0, self.nodes[at].0[0] & !PREFIX, probe);
        if at == 0 || self.nodes[at] != Node([0; 2]) {
            return;
        }
        let mut next = self.nodes[cut.0].child(cut.1);
        self.write(cut.0, cut.1, self.nodes[cut.0].0[cut.1] & PREFIX, probe);
        while next != 0 {
            self.free.push(next);
            let node = self.nodes[next as usize];
            next = node.child(0) | node.child(1); // one of them at most
        }
    }

    fn write<P: Probe + ?Sized>(&mut self, at: usize, side: usize, word: u32, probe: &P) {
        self.nodes[at].0[side] = word;
        probe.write((&raw const self.nodes[at].0[side]).addr(), 4);
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized>(&self, key: A, probe: &P) -> Label {
        let (mut at, mut depth, mut longest) = (0, 0, None);
        loop {
            let node = &self.nodes[at];
            probe.step();
            probe.read((&raw const *node).addr(), size_of::<Node>(), depth > 0);
            if node.is_prefix() {
                longest = Some(depth);
            }
            if depth == A::BITS {
                break;
            }
            match node.child(bit(key, depth)) {
                0 => break,
                child => (at, depth) = (child as usize, depth + 1),
            }
        }
        let Some(len) = longest else { return Label::NONE };
        let cut = Cut::new(len);
        let hash = Sums::new(key, cut.bytes(), probe).at::<A, P>(cut, probe);
        // Always there: invariant 3.
        self.table.get(hash, key & A::mask(len), len, probe).map_or(Label::NONE, Label)
    }
}

impl<A: Address> Fib<A> for TwoWayTrie<A> {
    fn lookup(&self, key: A) -> Label {
        self.find(key, &())
    }

    fn name(&self) -> String {
        "two-way-trie".into()
    }

    fn bytes(&self) -> usize {
        self.nodes() * size_of::<Node>() + self.table.bytes() + table_bytes::<A>()
    }

    fn shared_bytes(&self) -> usize {
        table_bytes::<A>()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        self.find(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("nodes", self.nodes() as f64),
            ("nodes_per_prefix", self.nodes() as f64 / self.table.len().max(1) as f64),
            ("trie_bytes", (self.nodes() * size_of::<Node>()) as f64),
            ("trie_bytes_of_the_source", (self.nodes() * SOURCE_NODE) as f64),
            ("table_bytes", self.table.bytes() as f64),
        ]
    }
}

impl<A: Address> Whole<A> for TwoWayTrie<A> {
    fn collapse(&self) {
        collapse(&self.nodes);
        self.table.collapse();
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        prefix: Prefix<A>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        match rib.get(prefix) {
            Some(label) => self.insert(prefix, label, probe),
            None => {
                self.remove(prefix, probe);
                Ok(())
            }
        }
    }
}
