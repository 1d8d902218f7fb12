//! Patricia: a binary trie without the nodes at which nothing is decided. IPv4 and IPv6, to the last bit.
//!
//! Sources: D. R. Morrison, "PATRICIA: practical algorithm to retrieve information coded in alphanumeric", JACM 15 (1968);
//! K. Sklower, "A tree-based packet routing table for Berkeley Unix", USENIX Winter 1991: the routing table of the BSD kernels,
//! against which the papers compare.
//!
//! # Memory
//! ```text
//! node   | first | child 0 | child 1 | label | len |     the first `len` bits of `first` lead here; bit `len` of the key chooses the child
//!                  0: none             UNSET: no prefix ends here
//!
//! 10.0.0.0/8 -> 1, 10.32.0.0/11 -> 2, 10.48.7.0/24 -> 3, 10.64.0.0/10 -> 4:
//!
//! 0.0.0.0/0 UNSET --0--> 10.0.0.0/8 1 --0--> 10.0.0.0/9 UNSET --0--> 10.32.0.0/11 2 --1--> 10.48.7.0/24 3
//!                                                             --1--> 10.64.0.0/10 4
//! ```
//! A node is 20 bytes for IPv4 and 32 for IPv6. There are two at most for each prefix, and the root.
//!
//! # Cost
//! A lookup reads a node, and one more for each time that the table's prefixes part on the key's way: as many as the binary trie in
//! the worst case (33, 129), mostly fewer than the logarithm of the number of prefixes suggests, since the tree is not balanced
//! but the table is bushy at its short prefixes. Each load needs the one before; bursts go as coroutines
//! ([`crate::chain`]), which wait for several such chains at once. A change makes two nodes at most, or takes two away, and
//! stores one link; to find the place it reads what a lookup reads.
//!
//! # Invariants
//! 1. Every node but the root has a label or two children.
//! 2. A child's prefix lies inside its parent's, on the side that its number says, and is longer.
//! 3. A node is the child of one other, or in the list of free nodes.
//!
//! Where we depart from the sources: a node holds the bits that were skipped, and a lookup that does not match them stops there, with
//! the last label that it passed. Morrison's and Sklower's nodes hold the number of the next bit only; their lookups go down to a leaf
//! unchecked, compare it there, and go back up for a shorter prefix. And there are no masks that are not contiguous.

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
struct Node<A> {
    first: A,
    children: [u32; 2],
    label: u32,
    len: u8,
}

impl<A: Address> Node<A> {
    fn new(prefix: Prefix<A>, label: u32) -> Self {
        Node { first: prefix.first(), children: [0; 2], label, len: prefix.len() }
    }

    #[inline(always)]
    fn contains(&self, key: A) -> bool {
        (key ^ self.first) & A::mask(self.len) == A::MIN
    }

    /// Which child a longer prefix belongs to: the bit behind the node's own.
    #[inline(always)]
    fn side(&self, key: A) -> usize {
        ((key >> usize::from(A::BITS - 1 - self.len)) & A::one()).to_u128() as usize
    }
}

/// A path-compressed trie.
#[derive(Debug, Clone)]
pub struct Patricia<A: Address> {
    nodes: Array<Node<A>>,
    free: Vec<u32>,
}

/// Builds a path-compressed trie of `rib`, and its writer.
///
/// # Errors
/// A label of more than 31 bits.
pub fn writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(Patricia::build(rib)?)
}

impl<A: Address> Patricia<A> {
    /// Builds the trie of `rib`.
    ///
    /// # Errors
    /// A label of more than 31 bits.
    pub fn build(rib: &Rib<A>) -> Result<Self, BuildError> {
        check_labels(rib, 31)?;
        let root = Node::new(Prefix::DEFAULT, UNSET);
        let mut trie = Patricia { nodes: Array::filled(1, root), free: Vec::new() };
        rib.iter().for_each(|(prefix, label)| trie.insert(prefix, label, &()));
        Ok(trie)
    }

    /// Nodes in use.
    pub fn nodes(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    fn insert<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, label: Label, probe: &P) {
        let mut at = 0;
        loop {
            // The node at `at` covers the prefix.
            if self.nodes[at].len == prefix.len() {
                self.nodes[at].label = label.0;
                return probe.write((&raw const self.nodes[at].label).addr(), 4);
            }
            let side = self.nodes[at].side(prefix.first());
            let child = self.nodes[at].children[side];
            if child == 0 {
                let leaf = self.add(Node::new(prefix, label.0), probe);
                return self.link(at, side, leaf, probe);
            }
            let below = self.nodes[child as usize];
            let same = (below.first ^ prefix.first()).leading_zeros() as u8;
            let same = same.min(below.len).min(prefix.len());
            if same == below.len {
                at = child as usize;
                continue;
            }
            // The child's way and the prefix's part behind `same` bits: a node between, which may be the prefix's own.
            let mut fork = Node { first: prefix.first() & A::mask(same), len: same, ..below };
            fork.children = [0; 2];
            fork.children[fork.side(below.first)] = child;
            fork.label = label.0;
            if same < prefix.len() {
                fork.label = UNSET;
                fork.children[fork.side(prefix.first())] = self.add(Node::new(prefix, label.0), probe);
            }
            let fork = self.add(fork, probe);
            return self.link(at, side, fork, probe);
        }
    }

    fn remove<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, probe: &P) {
        // The node at `at`, and the links that lead to it and to its parent.
        let (mut at, mut link, mut above) = (0, (0, 0), (0, 0));
        while self.nodes[at].len < prefix.len() {
            let side = self.nodes[at].side(prefix.first());
            let child = self.nodes[at].children[side];
            if child == 0 || !self.nodes[child as usize].contains(prefix.first()) {
                return;
            }
            above = std::mem::replace(&mut link, (at, side));
            at = child as usize;
        }
        if self.nodes[at].len != prefix.len() {
            return;
        }
        self.nodes[at].label = UNSET;
        probe.write((&raw const self.nodes[at].label).addr(), 4);
        self.shorten(at, link, probe);
        // Without that child the parent may be of no use either.
        self.shorten(link.0, above, probe);
    }

    /// Takes out the node at `at`, to which `link` leads, if nothing ends there and nothing is decided there.
    fn shorten<P: Probe + ?Sized>(&mut self, at: usize, link: (usize, usize), probe: &P) {
        let Node { children: [zero, one], label, .. } = self.nodes[at];
        if at != 0 && label == UNSET && (zero == 0 || one == 0) {
            self.link(link.0, link.1, zero | one, probe);
            self.free.push(at as u32);
        }
    }

    fn add<P: Probe + ?Sized>(&mut self, node: Node<A>, probe: &P) -> u32 {
        let at = self.free.pop().unwrap_or(self.nodes.len() as u32);
        match self.nodes.get_mut(at as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        probe.write((&raw const self.nodes[at as usize]).addr(), size_of::<Node<A>>());
        at
    }

    fn link<P: Probe + ?Sized>(&mut self, at: usize, side: usize, child: u32, probe: &P) {
        self.nodes[at].children[side] = child;
        probe.write((&raw const self.nodes[at].children[side]).addr(), 4);
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized>(&self, key: A, probe: &P) -> Label {
        let (mut at, mut best) = (0, Label::NONE);
        loop {
            let node = &self.nodes[at];
            probe.step();
            probe.read((&raw const *node).addr(), size_of::<Node<A>>(), at > 0);
            if !node.contains(key) {
                return best;
            }
            if node.label != UNSET {
                best = Label(node.label);
            }
            if node.len == A::BITS {
                return best;
            }
            match node.children[node.side(key)] {
                0 => return best,
                child => at = child as usize,
            }
        }
    }
}

impl<A: Address> Chain<A> for Patricia<A> {
    #[inline(always)]
    async fn find_suspended(&self, key: A) -> Label {
        // How deep the node at `at` is at least.
        let (mut at, mut depth, mut best) = (0, 0, Label::NONE);
        loop {
            if depth > IN_CACHE {
                ask(self.nodes.as_ptr().wrapping_add(at)).await;
            }
            let node = &self.nodes[at];
            if !node.contains(key) {
                return best;
            }
            if node.label != UNSET {
                best = Label(node.label);
            }
            if node.len == A::BITS {
                return best;
            }
            match node.children[node.side(key)] {
                0 => return best,
                child => (at, depth) = (child as usize, node.len + 1),
            }
        }
    }
}

impl<A: Address> Fib<A> for Patricia<A> {
    fn lookup(&self, key: A) -> Label {
        self.find(key, &())
    }

    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        chain::lookup_batch(self, keys, out);
    }

    fn name(&self) -> String {
        "patricia".into()
    }

    fn bytes(&self) -> usize {
        self.nodes() * size_of::<Node<A>>()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        self.find(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        vec![("nodes", self.nodes() as f64), ("bytes per node", size_of::<Node<A>>() as f64)]
    }
}

impl<A: Address> Whole<A> for Patricia<A> {
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
            Some(label) if label.0 > LABEL_31 => return Err(Outgrown::label(prefix, label, 31)),
            Some(label) => self.insert(prefix, label, probe),
            None => self.remove(prefix, probe),
        }
        Ok(())
    }
}
