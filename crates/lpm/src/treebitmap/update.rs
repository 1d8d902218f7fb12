//! From a RIB to nodes, and one prefix more or less.

use super::{Bitmap, Entry, Node, ROOT_BITS, TreeBitmap, below, bits, has_popcnt, slot};
use crate::copies::Whole;
use crate::fib::{Label, Outgrown};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use crate::runs::Runs;
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::probe::Probe;

/// The bit of `internal` for a prefix that ends in the node at `depth`.
fn internal_bit<A: Address, B: Bitmap>(prefix: Prefix<A>, depth: u8) -> u32 {
    let len = prefix.len() - depth;
    (1 << len) - 1 + (bits::<A, B>(prefix.first(), depth) >> (B::STRIDE - len))
}

/// Builds the structure of `rib`: parents before children, each node's children side by side.
pub(super) fn build<A: Address, B: Bitmap>(rib: &Rib<A>) -> Result<TreeBitmap<B>, Outgrown> {
    let mut tree = TreeBitmap {
        root: Array::filled(1 << ROOT_BITS, Entry { label: Label::NONE.0, node: 0 }),
        nodes: Runs::new(),
        results: Runs::new(),
        popcnt: has_popcnt(),
    };
    tree.nodes.take(1, Node::empty())?; // number 0 is no node
    let all: Vec<(Prefix<A>, Label)> = rib.iter().collect();
    let mut rest = &all[..];
    while let Some(&(prefix, label)) = rest.first() {
        let at = slot(prefix.first());
        if prefix.len() <= ROOT_BITS {
            // A parent comes before its children: they write over it.
            tree.root[at..=slot(prefix.last())].iter_mut().for_each(|entry| entry.label = label.0);
            rest = &rest[1..];
        } else {
            let count = rest.partition_point(|(prefix, _)| slot(prefix.first()) == at);
            let node = tree.nodes.take(1, Node::empty())?;
            tree.root[at].node = node;
            tree.grow(node, ROOT_BITS, &rest[..count])?;
            rest = &rest[count..];
        }
    }
    Ok(tree)
}

impl<B: Bitmap> TreeBitmap<B> {
    /// Fills an empty node with `prefixes`, all of them inside.
    fn grow<A: Address>(
        &mut self,
        node: u32,
        depth: u8,
        prefixes: &[(Prefix<A>, Label)],
    ) -> Result<(), Outgrown> {
        let is_internal = |prefix: Prefix<A>| prefix.len() < depth + B::STRIDE;
        let v = |prefix: Prefix<A>| bits::<A, B>(prefix.first(), depth);
        let mut new = Node::<B>::empty();
        for &(prefix, _) in prefixes {
            if is_internal(prefix) {
                new.internal = new.internal | B::bit(internal_bit::<A, B>(prefix, depth));
            } else {
                new.external = new.external | B::bit(v(prefix));
            }
        }
        new.results = self.results.take(new.internal.count_ones() as usize, 0)?;
        new.children = self.nodes.take(new.external.count_ones() as usize, Node::empty())?;
        self.nodes[node as usize] = new;
        let mut rest = prefixes;
        let mut child = new.children;
        while let Some(&(prefix, label)) = rest.first() {
            let mut count = 1;
            if is_internal(prefix) {
                let at = below(new.internal, internal_bit::<A, B>(prefix, depth));
                self.results[(new.results + at) as usize] = label.0;
            } else {
                // A child's prefixes stand together: those that end in this node come before them or behind them.
                count = rest.iter().take_while(|&&(p, _)| !is_internal(p) && v(p) == v(prefix)).count();
                self.grow(child, depth + B::STRIDE, &rest[..count])?;
                child += 1;
            }
            rest = &rest[count..];
        }
        Ok(())
    }

    fn store<P: Probe + ?Sized>(&mut self, at: u32, node: Node<B>, probe: &P) {
        self.nodes[at as usize] = node;
        probe.write((&raw const self.nodes[at as usize]).addr(), size_of::<Node<B>>());
    }

    fn insert<A: Address, P: Probe + ?Sized>(
        &mut self,
        prefix: Prefix<A>,
        label: Label,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let (key, slot) = (prefix.first(), slot(prefix.first()));
        if self.root[slot].node == 0 {
            self.root[slot].node = self.nodes.take(1, Node::empty())?;
            probe.write((&raw const self.root[slot].node).addr(), 4);
        }
        let (mut at, mut depth) = (self.root[slot].node, ROOT_BITS);
        while prefix.len() >= depth + B::STRIDE {
            let v = bits::<A, B>(key, depth);
            at = match self.nodes[at as usize].child(v) {
                Some(child) => child,
                None => self.insert_child(at, v, probe)?,
            };
            depth += B::STRIDE;
        }
        let mut node = self.nodes[at as usize];
        let bit = internal_bit::<A, B>(prefix, depth);
        let index = below(node.internal, bit);
        if node.internal & B::bit(bit) == B::zero() {
            let run = Run { first: node.results, len: node.internal.count_ones() };
            node.results = insert(&mut self.results, run, index, label.0, probe)?;
            node.internal = node.internal | B::bit(bit);
            self.store(at, node, probe);
        } else {
            let result = &mut self.results[(node.results + index) as usize];
            *result = label.0;
            probe.write((&raw const *result).addr(), 4);
        }
        Ok(())
    }

    /// A child for `v`, which has none: its number.
    fn insert_child<P: Probe + ?Sized>(&mut self, at: u32, v: u32, probe: &P) -> Result<u32, Outgrown> {
        let mut node = self.nodes[at as usize];
        let index = below(node.external, v);
        let run = Run { first: node.children, len: node.external.count_ones() };
        node.children = insert(&mut self.nodes, run, index, Node::empty(), probe)?;
        node.external = node.external | B::bit(v);
        self.store(at, node, probe);
        Ok(node.children + index)
    }

    fn remove<A: Address, P: Probe + ?Sized>(
        &mut self,
        prefix: Prefix<A>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let (key, slot) = (prefix.first(), slot(prefix.first()));
        let (mut at, mut depth) = (self.root[slot].node, ROOT_BITS);
        let mut path: Vec<(u32, u32)> = Vec::new();
        while at != 0 && prefix.len() >= depth + B::STRIDE {
            let v = bits::<A, B>(key, depth);
            path.push((at, v));
            at = self.nodes[at as usize].child(v).unwrap_or(0);
            depth += B::STRIDE;
        }
        if at == 0 {
            return Ok(());
        }
        let (mut node, bit) = (self.nodes[at as usize], internal_bit::<A, B>(prefix, depth));
        if node.internal & B::bit(bit) == B::zero() {
            return Ok(());
        }
        let run = Run { first: node.results, len: node.internal.count_ones() };
        node.results = remove(&mut self.results, run, below(node.internal, bit), probe)?;
        node.internal = node.internal & !B::bit(bit);
        // What has become empty goes, with those above that have only it.
        while node.is_empty() {
            let Some((above, v)) = path.pop() else {
                self.root[slot].node = 0;
                probe.write((&raw const self.root[slot].node).addr(), 4);
                self.nodes.give(at, 1);
                return Ok(());
            };
            (at, node) = (above, self.nodes[above as usize]);
            let run = Run { first: node.children, len: node.external.count_ones() };
            node.children = remove(&mut self.nodes, run, below(node.external, v), probe)?;
            node.external = node.external & !B::bit(v);
        }
        self.store(at, node, probe);
        Ok(())
    }
}

struct Run {
    first: u32,
    len: u32,
}

/// The run with one element more, in another place.
fn insert<T: Copy, P: Probe + ?Sized>(
    runs: &mut Runs<T>,
    run: Run,
    index: u32,
    item: T,
    probe: &P,
) -> Result<u32, Outgrown> {
    let (old, len, index) = (run.first as usize, run.len as usize, index as usize);
    let first = runs.take(len + 1, item)?;
    let new = first as usize;
    runs.copy_within(old..old + index, new);
    runs.copy_within(old + index..old + len, new + index + 1);
    runs.give(run.first, len);
    probe.write(runs[new..].as_ptr().addr(), (len + 1) * size_of::<T>());
    Ok(first)
}

/// The run without one of its elements, in another place.
fn remove<T: Copy, P: Probe + ?Sized>(
    runs: &mut Runs<T>,
    run: Run,
    index: u32,
    probe: &P,
) -> Result<u32, Outgrown> {
    let (old, len, index) = (run.first as usize, run.len as usize, index as usize);
    let first = runs.take(len - 1, runs[old])?;
    let new = first as usize;
    runs.copy_within(old..old + index, new);
    runs.copy_within(old + index + 1..old + len, new + index);
    runs.give(run.first, len);
    if len > 1 {
        probe.write(runs[new..].as_ptr().addr(), (len - 1) * size_of::<T>());
    }
    Ok(first)
}

impl<A: Address, B: Bitmap> Whole<A> for TreeBitmap<B> {
    fn collapse(&self) {
        collapse(&self.root);
        collapse(&self.nodes);
        collapse(&self.results);
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        prefix: Prefix<A>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        if prefix.len() > ROOT_BITS {
            return match rib.get(prefix) {
                Some(label) => self.insert(prefix, label, probe),
                None => self.remove(prefix, probe),
            };
        }
        for at in slot(prefix.first())..=slot(prefix.last()) {
            let region = Prefix::new(A::from_u128(at as u128) << usize::from(A::BITS - ROOT_BITS), ROOT_BITS);
            let covering = region.and_then(|region| rib.covering(region));
            let (label, entry) = (covering.map_or(Label::NONE, |(_, label)| label), &mut self.root[at]);
            if entry.label != label.0 {
                entry.label = label.0;
                probe.write((&raw const entry.label).addr(), 4);
            }
        }
        Ok(())
    }
}
