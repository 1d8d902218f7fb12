//! The writer: builds a trie, and patches it while readers look.
//!
//! A patch goes down to the node in which the changed prefix ends (or below which there is no node yet), takes the node apart into its
//! 64 slots, fills those that the prefix covers from the RIB, and writes its two arrays anew. The changed node must get into the array
//! of its parent's children: that is copied too, and the parent's `bases` then lead to the copy. This one store is the change. A
//! node that becomes a leaf, or the other way round, changes its parent's bits, so the parent is made anew in the same way, and so on upwards.

use super::build::{Routes, Slot, Space, Window, entry, node, spread, squeeze};
use super::pool::Pool;
use super::{
    Kernel, LABEL_MAX, LEAVES_MAX, LeafWidth, NODE, NODE_WORDS, NODES_MAX, Node, Poptrie, SLOTS, STRIDE, bits,
};
use crate::fib::{BuildError, Fib, FibWriter, Label, Outgrown};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tidemill_lookup::mem::Arena;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::{Domain, Epoch};

/// The one writer of a [`Poptrie`].
pub struct Writer<A: Address> {
    trie: Arc<Poptrie<A>>,
    domain: Domain,
    nodes: Pool,
    leaves: Pool,
    /// Arrays unlinked by the batch under way.
    unlinked: Vec<Array>,
    /// Arrays of earlier batches, until no reader can see them.
    waiting: VecDeque<(Epoch, Vec<Array>)>,
    /// A patch was refused half-way: arrays noted as unlinked may still be linked, so none may be used again.
    outgrown: bool,
}

/// An array that lookups can touch: its first element, and how many there are.
#[derive(Debug, Clone, Copy)]
enum Array {
    Nodes(u32, usize),
    Leaves(u32, usize),
}

/// Space for the first build: growing vectors.
#[derive(Default)]
struct Draft {
    nodes: Vec<Node>,
    leaves: Vec<Label>,
}

/// Appends, and returns the number of the first.
fn append<T: Copy>(to: &mut Vec<T>, what: &[T], most: usize, name: &str) -> Result<u32, Outgrown> {
    let first = to.len();
    if first + what.len() > most {
        return Err(Outgrown { what: format!("more than {most} {name}") });
    }
    to.extend_from_slice(what);
    Ok(first as u32)
}

impl Space for Draft {
    fn put_nodes(&mut self, nodes: &[Node]) -> Result<u32, Outgrown> {
        append(&mut self.nodes, nodes, NODES_MAX, "nodes")
    }

    fn put_leaves(&mut self, labels: &[Label]) -> Result<u32, Outgrown> {
        append(&mut self.leaves, labels, LEAVES_MAX, "leaves")
    }
}

/// Room for patches beside what is used: a table grows by some per cent a month, and what a batch replaces is there twice.
fn room(used: usize, most: usize) -> usize {
    (used + used / 4 + 8192).min(most)
}

impl<A: Address> Writer<A> {
    /// Builds a trie of `rib` with a direct table of 2^`root_bits` entries. Readers of the trie must belong to `domain`.
    ///
    /// # Errors
    /// Root bits that are not 12 to 24; a label of more than 31 bits; no memory.
    pub fn new(rib: &Rib<A>, root_bits: u8, domain: &Domain) -> Result<Self, BuildError> {
        Poptrie::<A>::check_root_bits(root_bits)?;
        let list: Vec<(Prefix<A>, Label)> = rib.iter().collect();
        let greatest = list.iter().max_by_key(|(_, label)| label.0);
        if let Some((prefix, label)) = greatest.filter(|(_, label)| label.0 > LABEL_MAX) {
            let prefix = prefix.to_string();
            return Err(BuildError::LabelTooWide { prefix, label: label.0, width_bits: 31 });
        }
        let width = LeafWidth::for_label(greatest.map_or(0, |(_, label)| label.0));
        let mut draft = Draft::default();
        let mut root = vec![0; 1 << root_bits];
        let all = Window { depth: 0, width: root_bits, first: 0 };
        spread(&mut draft, Routes { list: &list, outer: Label::NONE }, all, &mut root, entry).map_err(
            |full| BuildError::TooLarge {
                structure: format!("poptrie-d{root_bits}"),
                what: full.what,
                advice: "split the table".into(),
            },
        )?;
        Self::with(&root, &draft, root_bits, width, domain)
    }

    fn with(
        root: &[u32],
        draft: &Draft,
        root_bits: u8,
        width: LeafWidth,
        domain: &Domain,
    ) -> Result<Self, BuildError> {
        let used = [draft.nodes.len(), draft.leaves.len()];
        let (nodes, leaves) = (room(used[0], NODES_MAX), room(used[1], LEAVES_MAX));
        let (node_words, leaf_words) = (nodes * NODE_WORDS, leaves.div_ceil(1 << width.shift));
        let mut arena = Arena::new(
            Arena::bytes_for::<AtomicU32>(root.len())
                + Arena::bytes_for::<AtomicU64>(node_words)
                + Arena::bytes_for::<AtomicU32>(leaf_words),
        )?;
        let trie = Poptrie {
            root: arena.table::<AtomicU32>(root.len())?,
            nodes: arena.table(node_words)?,
            leaves: arena.table(leaf_words)?,
            root_bits,
            width,
            kernel: Kernel::best(),
            used: used.map(AtomicUsize::new),
            family: PhantomData,
        };
        trie.write_nodes(0, &draft.nodes);
        trie.write_leaves(0, &draft.leaves);
        for (to, &from) in trie.root.iter().zip(root) {
            to.store(from, Ordering::Relaxed);
        }
        Ok(Writer {
            trie: Arc::new(trie),
            domain: domain.clone(),
            nodes: Pool::new("nodes", used[0], nodes),
            leaves: Pool::new("leaves", used[1], leaves),
            unlinked: Vec::new(),
            waiting: VecDeque::new(),
            outgrown: false,
        })
    }

    /// The trie, with all that its own type offers.
    pub fn trie(&self) -> &Arc<Poptrie<A>> {
        &self.trie
    }

    /// Takes back the arrays that no reader can see any more.
    fn reclaim(&mut self) {
        while self.waiting.front().is_some_and(|(epoch, _)| self.domain.passed(*epoch)) {
            let Some((_, arrays)) = self.waiting.pop_front() else { break };
            for array in arrays {
                let (pool, used, first, count) = match array {
                    Array::Nodes(first, count) => (&mut self.nodes, &self.trie.used[0], first, count),
                    Array::Leaves(first, count) => (&mut self.leaves, &self.trie.used[1], first, count),
                };
                pool.give(first, count);
                used.fetch_sub(count, Ordering::Relaxed);
            }
        }
    }
}

/// A batch of changes under way.
struct Patch<'a, A: Address, P> {
    writer: &'a mut Writer<A>,
    rib: &'a Rib<A>,
    probe: &'a P,
}

impl<A: Address, P: Probe> Patch<'_, A, P> {
    /// Makes the trie right for what `prefix` covers.
    fn one(&mut self, prefix: Prefix<A>) -> Result<(), Outgrown> {
        let root_bits = self.writer.trie.root_bits;
        if prefix.len() > root_bits {
            let slot = bits(prefix.first(), 0, root_bits);
            let old = self.writer.trie.root[slot].load(Ordering::Relaxed);
            let new = if old & NODE == 0 {
                let region = Prefix::new(prefix.first(), root_bits).unwrap_or(prefix);
                let list = self.inside(region)?;
                Some(node(self, Routes { list: &list, outer: self.outer(region) }, root_bits)?)
            } else {
                self.patch_node(old & !NODE, root_bits, prefix)?
            };
            if let Some(new) = new {
                let new = entry(self, new)?;
                self.publish(slot, new);
                if old & NODE != 0 {
                    self.writer.unlinked.push(Array::Nodes(old & !NODE, 1));
                }
            }
            return Ok(());
        }
        let first = bits(prefix.first(), 0, root_bits);
        let (list, outer) = (self.inside(prefix)?, self.outer(prefix));
        let mut slots = vec![outer.0; 1 << (root_bits - prefix.len())];
        let covered = Window { depth: 0, width: root_bits, first };
        spread(self, Routes { list: &list, outer }, covered, &mut slots, entry)?;
        for (slot, new) in (first..).zip(slots) {
            let old = self.writer.trie.root[slot].load(Ordering::Relaxed);
            if new != old {
                self.publish(slot, new);
                if old & NODE != 0 {
                    let node = self.writer.trie.node(old & !NODE);
                    self.unlink(node);
                    self.writer.unlinked.push(Array::Nodes(old & !NODE, 1));
                }
            }
        }
        Ok(())
    }

    /// Makes the node right, which lies behind the first `depth` bits: by itself (`None`), or by what is to stand in its place.
    fn patch_node(&mut self, number: u32, depth: u8, prefix: Prefix<A>) -> Result<Option<Slot>, Outgrown> {
        let old = self.writer.trie.node(number);
        let (first, end) = (bits(prefix.first(), depth, STRIDE), depth + STRIDE);
        let at = (old.vector & ((1 << first) - 1)).count_ones();
        if prefix.len() > end && old.vector >> first & 1 == 1 {
            return match self.patch_node(old.base1 + at, end, prefix)? {
                None => Ok(None),
                Some(Slot::Below(child)) => {
                    let count = old.children();
                    let mut children = [child; SLOTS];
                    for i in (0..count).filter(|&i| i != at as usize) {
                        children[i] = self.writer.trie.node(old.base1 + i as u32);
                    }
                    let base1 = self.put_nodes(&children[..count])?;
                    let bases = &self.writer.trie.nodes[number as usize * NODE_WORDS + 2];
                    bases.store(Node { base1, ..old }.bases(), Ordering::Release);
                    self.probe.write(std::ptr::from_ref(bases).addr(), 8);
                    self.writer.unlinked.push(Array::Nodes(old.base1, count));
                    Ok(None)
                }
                Some(leaf) => {
                    let mut slots = self.take_apart(old);
                    slots[first] = leaf;
                    Ok(Some(squeeze(self, &slots)?))
                }
            };
        }
        let mut slots = self.take_apart(old);
        let region = Prefix::new(prefix.first(), prefix.len().min(end)).unwrap_or(prefix);
        let covered = &mut slots[first..first + (1 << (end - region.len()))];
        for slot in covered.iter() {
            if let Slot::Below(node) = *slot {
                self.unlink(node);
            }
        }
        let (list, outer) = (self.inside(region)?, self.outer(region));
        covered.fill(Slot::Leaf(outer));
        let window = Window { depth, width: STRIDE, first };
        spread(self, Routes { list: &list, outer }, window, covered, |_, slot| Ok(slot))?;
        Ok(Some(squeeze(self, &slots)?))
    }

    /// The slots of a node; its two arrays will not be needed any more.
    fn take_apart(&mut self, node: Node) -> [Slot; SLOTS] {
        let (mut leaf, mut child) = (node.base0, node.base1);
        let mut label = Label::NONE;
        let slots = std::array::from_fn(|v| {
            if node.vector >> v & 1 == 1 {
                child += 1;
                return Slot::Below(self.writer.trie.node(child - 1));
            }
            if node.leafvec >> v & 1 == 1 {
                label = self.writer.trie.leaf(leaf as usize);
                leaf += 1;
            }
            Slot::Leaf(label)
        });
        self.unlink_arrays(node);
        slots
    }

    fn unlink_arrays(&mut self, node: Node) {
        self.writer.unlinked.push(Array::Leaves(node.base0, node.leaves()));
        self.writer.unlinked.push(Array::Nodes(node.base1, node.children()));
    }

    /// Notes all that is below a node as unlinked.
    fn unlink(&mut self, node: Node) {
        self.unlink_arrays(node);
        for i in 0..node.children() as u32 {
            let child = self.writer.trie.node(node.base1 + i);
            self.unlink(child);
        }
    }

    /// The routes inside a region, if the trie can hold their labels.
    fn inside(&self, region: Prefix<A>) -> Result<Vec<(Prefix<A>, Label)>, Outgrown> {
        let (list, bits) = (self.rib.inside(region).collect::<Vec<_>>(), self.writer.trie.width.bits());
        let covering = self.rib.covering(region).into_iter();
        // An entry of the root has no room for 32 bits.
        let greatest = self.writer.trie.width.mask().min(LABEL_MAX);
        match list.iter().copied().chain(covering).find(|(_, label)| label.0 > greatest) {
            None => Ok(list),
            Some((prefix, label)) => Err(Outgrown {
                what: format!("label {} of {prefix} does not fit leaves of {bits} bits", label.0),
            }),
        }
    }

    /// The label of the longest prefix that covers the region.
    fn outer(&self, region: Prefix<A>) -> Label {
        self.rib.covering(region).map_or(Label::NONE, |(_, label)| label)
    }

    /// Makes what was written visible.
    fn publish(&self, slot: usize, entry: u32) {
        let word = &self.writer.trie.root[slot];
        word.store(entry, Ordering::Release);
        self.probe.write(std::ptr::from_ref(word).addr(), 4);
    }
}

impl<A: Address> Poptrie<A> {
    fn write_nodes(&self, first: u32, nodes: &[Node]) {
        let words = nodes.iter().flat_map(|node| [node.vector, node.leafvec, node.bases()]);
        for (to, word) in self.nodes[first as usize * NODE_WORDS..].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    /// A word may hold leaves that readers look at; their bits stay as they are.
    fn write_leaves(&self, first: u32, labels: &[Label]) {
        for (leaf, label) in (first as usize..).zip(labels) {
            let (word, shift) = self.width.place(leaf);
            let old = self.leaves[word].load(Ordering::Relaxed) & !(self.width.mask() << shift);
            self.leaves[word].store(old | label.0 << shift, Ordering::Relaxed);
        }
    }
}

impl<A: Address, P: Probe> Space for Patch<'_, A, P> {
    fn put_nodes(&mut self, nodes: &[Node]) -> Result<u32, Outgrown> {
        let Writer { trie, nodes: pool, .. } = &mut *self.writer;
        let first = pool.take(nodes.len())?;
        trie.write_nodes(first, nodes);
        trie.used[0].fetch_add(nodes.len(), Ordering::Relaxed);
        for number in first..first + nodes.len() as u32 {
            self.probe.write(trie.node_at(number).addr(), 8 * NODE_WORDS);
        }
        Ok(first)
    }

    fn put_leaves(&mut self, labels: &[Label]) -> Result<u32, Outgrown> {
        let Writer { trie, leaves: pool, .. } = &mut *self.writer;
        let first = pool.take(labels.len())?;
        trie.write_leaves(first, labels);
        trie.used[1].fetch_add(labels.len(), Ordering::Relaxed);
        for leaf in first..first + labels.len() as u32 {
            self.probe.write(trie.leaf_at(leaf).addr(), 4);
        }
        Ok(first)
    }
}

impl<A: Address> Writer<A> {
    /// [`FibWriter::patch`], telling `probe` every store to what lookups can touch.
    ///
    /// # Errors
    /// As there.
    pub fn patch_probed<P: Probe>(
        &mut self,
        rib: &Rib<A>,
        changed: &[Prefix<A>],
        probe: &P,
    ) -> Result<(), Outgrown> {
        if self.outgrown {
            return Err(Outgrown { what: "an earlier patch was refused".into() });
        }
        self.reclaim();
        let mut patch = Patch { writer: self, rib, probe };
        let done = changed.iter().try_for_each(|&prefix| patch.one(prefix));
        self.outgrown = done.is_err();
        done?;
        if !self.unlinked.is_empty() {
            self.waiting.push_back((self.domain.advance(), std::mem::take(&mut self.unlinked)));
            self.reclaim();
        }
        Ok(())
    }
}

impl<A: Address> FibWriter<A> for Writer<A> {
    fn fib(&self) -> Arc<dyn Fib<A>> {
        self.trie.clone()
    }

    fn patch(&mut self, rib: &Rib<A>, changed: &[Prefix<A>]) -> Result<(), Outgrown> {
        self.patch_probed(rib, changed, &())
    }

    fn patch_probed(
        &mut self,
        rib: &Rib<A>,
        changed: &[Prefix<A>],
        probe: &dyn Probe,
    ) -> Result<(), Outgrown> {
        Writer::patch_probed(self, rib, changed, &probe)
    }
}
