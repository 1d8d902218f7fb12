//! What a change does to nodes, whoever they belong to.
//!
//! A patch goes down to the smallest regions that hold the changed prefixes, and spreads anew over their slots what the RIB says
//! of the prefixes. On the way up each node is told which of its slots lead elsewhere now. It is changed where it is, if it is its
//! structure's alone and its runs stay where they are; otherwise a new node takes its place, over what it keeps.
//!
//! A large node that is changed where it is may have neighboring runs of one label: they become one when it is next made anew, or when all
//! of it is one label. To make it anew at once would be some 200 words for a route that goes, and as many when it comes back, as it
//! mostly does; so either is one store.

use super::build::{self, Nodes};
use super::node::Run;
use super::{Entry, SLOTS, Store, byte, slot_region};
use crate::fib::{Label, Outgrown};
use crate::prefix::Prefix;
use crate::ranges::ranges_into;
use crate::rib::Rib;
use tidemill_lookup::probe::Probe;

/// Nodes that can be changed.
pub(super) trait Patch: Nodes {
    /// Whether every node has one entry that leads to it, so that its entries may be changed.
    const ALONE: bool;
    /// What is told of loads.
    type Told: Probe;
    fn store(&self) -> &Store;
    fn told(&self) -> &Self::Told;
    /// Stores a new entry, in nodes that are alone.
    fn publish(&mut self, word: usize, old: Entry, new: Entry);
    /// Nothing leads to what is behind this entry any more, if its nodes are alone.
    fn replaced(&mut self, entry: Entry);
    /// Another node has taken the place of this one, and leads to what it led to, but for what was replaced.
    fn left(&mut self, node: Entry);
}

/// Slots of a node that lead elsewhere now.
#[derive(Clone, Copy)]
struct Edit {
    first: u8,
    last: u8,
    entry: Entry,
    /// A changed prefix covers them: what they led to is not part of what they lead to.
    whole: bool,
}

/// Room that patches use again and again.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) ranges: Vec<(u128, Label)>,
    /// Those of a node behind those of the nodes above it.
    edits: Vec<Edit>,
    old: Vec<Run>,
    new: Vec<Run>,
}

impl Scratch {
    /// What the RIB says of a region, to be given back to [`ranges`](Self::ranges).
    pub(super) fn take_ranges(
        &mut self,
        rib: &Rib<u128>,
        region: Prefix<u128>,
    ) -> Result<Vec<(u128, Label)>, Outgrown> {
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges_into(rib, region, &mut ranges);
        build::check(&ranges).map_err(|error| Outgrown { what: error.to_string() })?;
        Ok(ranges)
    }
}

/// How many of `changed`, which begin in it, lie inside `region`.
pub(super) fn inside(region: Prefix<u128>, changed: &[Prefix<u128>]) -> usize {
    changed.iter().take_while(|&&prefix| region.covers(prefix)).count()
}

/// The entry for `region`, where `entry` was, after changes of `changed`: in order, none inside another, all of them inside the region and longer.
/// A reference to what was there becomes one to what is there now.
pub(super) fn node<P: Patch>(
    nodes: &mut P,
    scratch: &mut Scratch,
    rib: &Rib<u128>,
    entry: Entry,
    region: Prefix<u128>,
    changed: &[Prefix<u128>],
) -> Result<Entry, Outgrown> {
    let base = scratch.edits.len();
    let mut rest = changed;
    while let Some((&prefix, behind)) = rest.split_first() {
        if prefix.len() <= region.len() + 8 {
            let ranges = scratch.take_ranges(rib, prefix)?;
            build::spread(nodes, &ranges, region, prefix, |_, run, entry| {
                let (first, last) = (*run.start() as u8, *run.end() as u8);
                scratch.edits.push(Edit { first, last, entry, whole: true });
            })?;
            scratch.ranges = ranges;
            rest = behind;
            continue;
        }
        let slot = byte(prefix.first(), region.len());
        let part = slot_region(region, slot.into());
        let (here, behind) = rest.split_at(inside(part, rest));
        rest = behind;
        let below = nodes.store().find(entry, slot, nodes.told()).entry;
        nodes.acquire(below);
        match node(nodes, scratch, rib, below, part, here)? {
            same if same == below => nodes.release(below),
            new => scratch.edits.push(Edit { first: slot, last: slot, entry: new, whole: false }),
        }
    }
    let done = change(nodes, scratch, entry, base);
    scratch.edits.truncate(base);
    done
}

/// Makes the slots of the edits from `base` on lead where they shall.
fn change<P: Patch>(
    nodes: &mut P,
    scratch: &mut Scratch,
    entry: Entry,
    base: usize,
) -> Result<Entry, Outgrown> {
    let Scratch { edits, old, new, .. } = scratch;
    let mut left = base;
    for at in base..edits.len() {
        let edit = edits[at];
        if !in_place(nodes, entry, edit) {
            edits[left] = edit;
            left += 1;
        }
    }
    if left == base {
        return Ok(collapsed(nodes, entry));
    }
    nodes.store().runs(entry, old, nodes.told());
    splice(nodes, old, &edits[base..left], new);
    let done = build::close(nodes, new)?;
    nodes.left(entry);
    Ok(done)
}

/// The node behind `entry` as before, or its label if all runs of a large one have become that.
fn collapsed<P: Patch>(nodes: &mut P, entry: Entry) -> Entry {
    if !P::ALONE || entry.is_leaf() || !entry.is_large() {
        return entry;
    }
    let (store, told) = (nodes.store(), nodes.told());
    let (_, first, runs) = store.extent(entry, told);
    let label = store.entry_told(first, told);
    // Mostly the second one is another.
    let same = |word: usize| store.entry_told(word, told) == label;
    let is_one = label.is_leaf() && (first + 1..first + runs).all(same);
    if !is_one {
        return entry;
    }
    nodes.left(entry);
    label
}

/// Does what can be done without a new node.
fn in_place<P: Patch>(nodes: &mut P, node: Entry, edit: Edit) -> bool {
    let place = nodes.store().find(node, edit.first, nodes.told());
    if place.entry == edit.entry && edit.last <= place.last {
        nodes.release(edit.entry);
        return true;
    }
    let at = |word: usize| nodes.store().entry_told(word, nodes.told());
    let beside = |is_there: bool, word: usize| is_there && at(word) == edit.entry;
    let joins =
        || beside(edit.first > 0, place.word.wrapping_sub(1)) || beside(edit.last < u8::MAX, place.word + 1);
    let fits = P::ALONE
        && !node.is_leaf()
        && (place.first, place.last) == (edit.first, edit.last)
        && (node.is_large() || !joins());
    if fits {
        nodes.publish(place.word, place.entry, edit.entry);
        if edit.whole {
            nodes.replaced(place.entry);
        }
    }
    fits
}

/// The runs `old` with the edits, in order: what is kept is referred to once more, what edits bring belongs to the new runs.
fn splice<P: Patch>(nodes: &mut P, old: &[Run], edits: &[Edit], new: &mut Vec<Run>) {
    new.clear();
    let end = |at: usize| old.get(at + 1).map_or(SLOTS, |run| usize::from(run.start));
    let keep = |nodes: &mut P, new: &mut Vec<Run>, slot: usize, entry: Entry| {
        if new.last().is_none_or(|last| last.entry != entry) {
            nodes.acquire(entry);
            new.push(Run { start: slot as u8, entry });
        }
    };
    // The next slot, and the run that holds it.
    let (mut slot, mut at) = (0, 0);
    for edit in edits {
        let (first, behind) = (usize::from(edit.first), usize::from(edit.last) + 1);
        while slot < first {
            keep(nodes, new, slot, old[at].entry);
            slot = end(at).min(first);
            at += usize::from(slot == end(at));
        }
        let mut covered = at;
        loop {
            if edit.whole {
                nodes.replaced(old[covered].entry);
            }
            if end(covered) >= behind {
                break;
            }
            covered += 1;
        }
        at = covered + usize::from(end(covered) == behind);
        slot = behind;
        match new.last() {
            Some(last) if last.entry == edit.entry => nodes.release(edit.entry),
            _ => new.push(Run { start: edit.first, entry: edit.entry }),
        }
    }
    while slot < SLOTS {
        keep(nodes, new, slot, old[at].entry);
        slot = end(at);
        at += 1;
    }
}
