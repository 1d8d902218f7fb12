//! From prefixes to nodes: spread the prefixes of a region over its slots, the nodes below first, then squeeze.

use super::{NODE, Node, SLOTS, STRIDE, bits};
use crate::fib::{Label, Outgrown};
use crate::prefix::{Address, Prefix};

/// Where new nodes and leaves are put.
pub(super) trait Space {
    /// Writes an array of nodes, and returns the number of the first.
    fn put_nodes(&mut self, nodes: &[Node]) -> Result<u32, Outgrown>;
    /// Writes an array of leaves, and returns the number of the first.
    fn put_leaves(&mut self, labels: &[Label]) -> Result<u32, Outgrown>;
}

/// What a slot leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Leaf(Label),
    Below(Node),
}

/// The prefixes inside a region, sorted (a parent before its children), and the label of what covers them all.
#[derive(Clone, Copy)]
pub(super) struct Routes<'a, A> {
    pub(super) list: &'a [(Prefix<A>, Label)],
    pub(super) outer: Label,
}

/// Slots that prefixes cover: those of a region whose 2^`width` slots look at the bits behind `depth`, from `first` on.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) depth: u8,
    pub(super) width: u8,
    pub(super) first: usize,
}

impl Window {
    /// Bits before what is below the slots.
    fn end(self) -> u8 {
        self.depth + self.width
    }

    fn slot<A: Address>(self, prefix: Prefix<A>) -> usize {
        bits(prefix.first(), self.depth, self.width) - self.first
    }
}

/// Fills `slots`, which lead to `routes.outer` as yet, with what the routes say; `entry` makes what stands in a slot.
pub(super) fn spread<A: Address, S: Space, E: Copy>(
    space: &mut S,
    Routes { list, outer }: Routes<'_, A>,
    window: Window,
    slots: &mut [E],
    entry: fn(&mut S, Slot) -> Result<E, Outgrown>,
) -> Result<(), Outgrown> {
    let end = window.end();
    // The prefixes that are open at this slot, outermost first: the slot behind, and the label. One per length at most.
    let mut open = [(0, outer); 32];
    let mut nested = 0;
    let mut at = 0;
    while let Some(&(prefix, label)) = list.get(at) {
        let slot = window.slot(prefix);
        while nested > 0 && open[nested].0 <= slot {
            nested -= 1;
        }
        if prefix.len() <= end {
            let behind = slot + (1 << (end - prefix.len()));
            slots[slot..behind].fill(entry(space, Slot::Leaf(label))?);
            nested += 1;
            open[nested] = (behind, label);
            at += 1;
            continue;
        }
        let same = list[at..].iter().take_while(|(p, _)| window.slot(*p) == slot).count();
        let below = node(space, Routes { list: &list[at..at + same], outer: open[nested].1 }, end)?;
        slots[slot] = entry(space, below)?;
        at += same;
    }
    Ok(())
}

/// The node for the region that ends at `depth`, or the one label that it has.
pub(super) fn node<A: Address>(
    space: &mut impl Space,
    routes: Routes<'_, A>,
    depth: u8,
) -> Result<Slot, Outgrown> {
    let mut slots = [Slot::Leaf(routes.outer); SLOTS];
    spread(space, routes, Window { depth, width: STRIDE, first: 0 }, &mut slots, |_, slot| Ok(slot))?;
    squeeze(space, &slots)
}

/// Writes the arrays of a node.
pub(super) fn squeeze(space: &mut impl Space, slots: &[Slot; SLOTS]) -> Result<Slot, Outgrown> {
    let mut node = Node { vector: 0, leafvec: 0, base0: 0, base1: 0 };
    let (mut labels, mut children) = ([Label::NONE; SLOTS], [node; SLOTS]);
    for (v, slot) in slots.iter().enumerate() {
        match *slot {
            Slot::Below(child) => {
                children[node.children()] = child;
                node.vector |= 1 << v;
            }
            Slot::Leaf(label) => {
                let leaves = node.leaves();
                if leaves == 0 || labels[leaves - 1] != label {
                    labels[leaves] = label;
                    node.leafvec |= 1 << v;
                }
            }
        }
    }
    if node.vector == 0 && node.leaves() == 1 {
        return Ok(Slot::Leaf(labels[0]));
    }
    node.base0 = space.put_leaves(&labels[..node.leaves()])?;
    node.base1 = space.put_nodes(&children[..node.children()])?;
    Ok(Slot::Below(node))
}

/// An entry of the root.
pub(super) fn entry(space: &mut impl Space, slot: Slot) -> Result<u32, Outgrown> {
    match slot {
        Slot::Leaf(label) => Ok(label.0),
        Slot::Below(node) => Ok(NODE | space.put_nodes(&[node])?),
    }
}
