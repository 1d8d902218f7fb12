//! A binary trie: one node per bit of every prefix. IPv4 and IPv6, to the last bit.
//!
//! The structure that everybody draws first, and the slowest here: a yardstick for what the others save.
//!
//! # Memory
//! ```text
//! node   | child 0 | child 1 | label |     three words of 32 bits; node 0 is the root and nobody's child
//!          0: none             UNSET: no prefix ends here
//!
//! 0.0.0.0/0 -> 1, 128.0.0.0/2 -> 2:    (0, 1, 1) --1--> (2, 0, UNSET) --0--> (0, 0, 2)
//! ```
//! # Cost
//! A lookup reads a node of 12 bytes per bit of the longest path that there is for its key, each found by the one before: up to 33
//! or 129 loads. Bursts go as coroutines ([`crate::chain`]), which wait for several such chains at once. A change writes one node per bit that is not shared with other prefixes, and one more.
//!
//! # Invariants
//! 1. Every node but the root has a child or a label.
//! 2. A node is the child of one other, or in the list of free nodes.

#[cfg(test)]
mod tests;

use crate::chain::{self, Chain, IN_CACHE, ask};
use crate::copies::{self, Whole};
use crate::fib::{BuildError, Built, Fib, LABEL_31, Label, Outgrown, check_labels};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// In place of a label: no prefix ends at this node.
const UNSET: u32 = LABEL_31 + 1;

#[derive(Debug, Clone, Copy)]
struct Node {
    children: [u32; 2],
    label: u32,
}

const EMPTY: Node = Node { children: [0; 2], label: UNSET };

/// A binary trie.
#[derive(Debug, Clone)]
pub struct BinaryTrie {
    nodes: Array<Node>,
    free: Vec<u32>,
}

/// Builds a binary trie of `rib`, and its writer.
///
/// # Errors
/// A label of more than 31 bits.
pub fn writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(BinaryTrie::build(rib)?)
}

/// Bit `depth` of the key, counted from the first.
#[inline(always)]
fn bit<A: Address>(key: A, depth: u8) -> usize {
    ((key >> usize::from(A::BITS - 1 - depth)) & A::one()).to_u128() as usize
}

impl BinaryTrie {
    /// Builds the trie of `rib`.
    ///
    /// # Errors
    /// A label of more than 31 bits.
    pub fn build<A: Address>(rib: &Rib<A>) -> Result<Self, BuildError> {
        check_labels(rib, 31)?;
        let mut trie = BinaryTrie { nodes: Array::filled(1, EMPTY), free: Vec::new() };
        rib.iter().for_each(|(prefix, label)| trie.insert(prefix, label, &()));
        Ok(trie)
    }

    /// Nodes in use.
    pub fn nodes(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    fn insert<A: Address, P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, label: Label, probe: &P) {
        let mut at = 0;
        for depth in 0..prefix.len() {
            let side = bit(prefix.first(), depth);
            if self.nodes[at].children[side] == 0 {
                let new = self.free.pop().unwrap_or(self.nodes.len() as u32);
                if new as usize == self.nodes.len() {
                    self.nodes.push(EMPTY);
                }
                self.write(new as usize, EMPTY, probe);
                let children = &mut self.nodes[at].children;
                children[side] = new;
                probe.write((&raw const children[side]).addr(), 4);
            }
            at = self.nodes[at].children[side] as usize;
        }
        self.nodes[at].label = label.0;
        probe.write((&raw const self.nodes[at].label).addr(), 4);
    }

    fn remove<A: Address, P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, probe: &P) {
        // Where to cut if the node goes: below the last one that is needed for something else.
        let (mut at, mut cut) = (0, (0, 0));
        for depth in 0..prefix.len() {
            let side = bit(prefix.first(), depth);
            let Node { children, label } = self.nodes[at];
            if depth == 0 || label != UNSET || children[1 - side] != 0 {
                cut = (at, side);
            }
            match children[side] {
                0 => return,
                child => at = child as usize,
            }
        }
        self.nodes[at].label = UNSET;
        probe.write((&raw const self.nodes[at].label).addr(), 4);
        if at == 0 || self.nodes[at].children != [0; 2] {
            return;
        }
        let link = &mut self.nodes[cut.0].children[cut.1];
        let mut next = std::mem::take(link);
        probe.write((&raw const *link).addr(), 4);
        while next != 0 {
            self.free.push(next);
            let [zero, one] = self.nodes[next as usize].children;
            next = zero | one; // one of them at most
        }
    }

    fn write<P: Probe + ?Sized>(&mut self, at: usize, node: Node, probe: &P) {
        self.nodes[at] = node;
        probe.write((&raw const self.nodes[at]).addr(), size_of::<Node>());
    }

    #[inline(always)]
    fn find<A: Address, P: Probe + ?Sized>(&self, key: A, probe: &P) -> Label {
        let (mut at, mut depth, mut best) = (0, 0, Label::NONE);
        loop {
            let node = &self.nodes[at];
            probe.step();
            probe.read((&raw const *node).addr(), size_of::<Node>(), depth > 0);
            if node.label != UNSET {
                best = Label(node.label);
            }
            if depth == A::BITS {
                return best;
            }
            match node.children[bit(key, depth)] {
                0 => return best,
                child => (at, depth) = (child as usize, depth + 1),
            }
        }
    }
}

impl<A: Address> Chain<A> for BinaryTrie {
    #[inline(always)]
    async fn find_suspended(&self, key: A) -> Label {
        let (mut at, mut depth, mut best) = (0, 0, Label::NONE);
        loop {
            if depth > IN_CACHE {
                ask(self.nodes.as_ptr().wrapping_add(at)).await;
            }
            let node = &self.nodes[at];
            if node.label != UNSET {
                best = Label(node.label);
            }
            if depth == A::BITS {
                return best;
            }
            match node.children[bit(key, depth)] {
                0 => return best,
                child => (at, depth) = (child as usize, depth + 1),
            }
        }
    }
}

impl<A: Address> Fib<A> for BinaryTrie {
    fn lookup(&self, key: A) -> Label {
        self.find(key, &())
    }

    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        chain::lookup_batch(self, keys, out);
    }

    fn name(&self) -> String {
        "binary-trie".into()
    }

    fn bytes(&self) -> usize {
        self.nodes() * size_of::<Node>()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        self.find(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        vec![("nodes", self.nodes() as f64)]
    }
}

impl<A: Address> Whole<A> for BinaryTrie {
    fn collapse(&self) {
        collapse(&self.nodes);
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        prefix: Prefix<A>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        match rib.get(prefix) {
            Some(label) if label.0 > LABEL_31 => Err(Outgrown::label(prefix, label, 31)),
            Some(label) => {
                self.insert(prefix, label, probe);
                Ok(())
            }
            None => {
                self.remove(prefix, probe);
                Ok(())
            }
        }
    }
}
