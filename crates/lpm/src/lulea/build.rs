//! From a RIB to nodes: cut a region into ranges, spread them over slots, store the runs of the slots.

use super::node::{Run, encode, is_large, place, words};
use super::{Entry, NOWHERE, ROOT, SLOTS, UNIT, byte, slot_region};
use crate::fib::{BuildError, Label, Outgrown};
use crate::prefix::{Address, Prefix};

/// Where new nodes are put.
pub(super) trait Nodes {
    /// A node of these runs. What their entries lead to belongs to it from now on.
    fn node(&mut self, runs: &[Run]) -> Result<Entry, Outgrown>;
    /// A block of these entries, likewise.
    fn block(&mut self, slots: &Slots) -> Result<Entry, Outgrown>;
    /// Where nodes are shared: somebody more refers to what is behind this entry.
    fn acquire(&mut self, _: Entry) {}
    /// The other way.
    fn release(&mut self, _: Entry) {}
}

/// The entries of a block's slots.
pub(super) type Slots = [Entry; SLOTS];

/// Refuses labels that an entry cannot hold.
pub(super) fn check(ranges: &[(u128, Label)]) -> Result<(), BuildError> {
    match ranges.iter().find(|(_, label)| label.0 > Entry::LABEL_MAX) {
        None => Ok(()),
        Some(&(start, label)) => Err(BuildError::LabelTooWide {
            prefix: start.to_ip().to_string(),
            label: label.0,
            width_bits: 31,
        }),
    }
}

/// Spreads the ranges of `extent` over the slots of `region` that it covers, calling `put` with each run of slots; a slot that is
/// not of one label gets a node. The first range may begin before the extent.
pub(super) fn spread<N: Nodes + ?Sized>(
    nodes: &mut N,
    mut ranges: &[(u128, Label)],
    region: Prefix<u128>,
    extent: Prefix<u128>,
    mut put: impl FnMut(&mut N, std::ops::RangeInclusive<usize>, Entry),
) -> Result<(), Outgrown> {
    let slot_of = |addr| usize::from(byte(addr, region.len()));
    let (mut slot, last) = (slot_of(extent.first()), slot_of(extent.last()));
    while slot <= last {
        let part = slot_region(region, slot);
        while ranges.get(1).is_some_and(|&(start, _)| start <= part.first()) {
            ranges = &ranges[1..];
        }
        let next = ranges.get(1).map(|&(start, _)| start).filter(|&start| start <= extent.last());
        let end = match next {
            // The slots up to the one in which the next range begins.
            Some(start) if start > part.last() => {
                let end = slot_of(start) - 1;
                put(nodes, slot..=end, Entry::leaf(ranges[0].1));
                end
            }
            Some(_) => {
                let count = ranges.partition_point(|&(start, _)| start <= part.last());
                let entry = node(nodes, &ranges[..count], part)?;
                put(nodes, slot..=slot, entry);
                slot
            }
            None => {
                put(nodes, slot..=last, Entry::leaf(ranges[0].1));
                last
            }
        };
        slot = end + 1;
    }
    Ok(())
}

/// Adds a run to those of a node, unless it goes on the one before.
fn push<N: Nodes + ?Sized>(nodes: &mut N, runs: &mut Vec<Run>, start: u8, entry: Entry) {
    match runs.last() {
        Some(last) if last.entry == entry => nodes.release(entry),
        _ => runs.push(Run { start, entry }),
    }
}

/// The node of these runs, or the label if it is one. (Where nodes are shared all slots may lead to one node, too.)
pub(super) fn close<N: Nodes + ?Sized>(nodes: &mut N, runs: &[Run]) -> Result<Entry, Outgrown> {
    match runs {
        [run] if run.entry.is_leaf() => Ok(run.entry),
        _ => nodes.node(runs),
    }
}

/// The node for `region`, which begins at a byte, or its label if it has only one.
pub(super) fn node<N: Nodes + ?Sized>(
    nodes: &mut N,
    ranges: &[(u128, Label)],
    region: Prefix<u128>,
) -> Result<Entry, Outgrown> {
    let mut runs = Vec::with_capacity((ranges.len() + 2).min(SLOTS));
    spread(nodes, ranges, region, region, |nodes, run, entry| {
        push(nodes, &mut runs, *run.start() as u8, entry);
    })?;
    close(nodes, &runs)
}

/// The block for `region`, a /16, or its label.
pub(super) fn block<N: Nodes + ?Sized>(
    nodes: &mut N,
    ranges: &[(u128, Label)],
    region: Prefix<u128>,
) -> Result<Entry, Outgrown> {
    if let [(_, label)] = ranges {
        return Ok(Entry::leaf(*label));
    }
    let mut slots = [Entry(0); SLOTS];
    spread(nodes, ranges, region, region, |_, run, entry| slots[run].fill(entry))?;
    nodes.block(&slots)
}

/// Everything below the root: `put` gets the root's slots with their entries.
pub(super) fn root<N: Nodes + ?Sized>(
    nodes: &mut N,
    mut ranges: &[(u128, Label)],
    slots: std::ops::Range<usize>,
    mut put: impl FnMut(&mut N, usize, Entry),
) -> Result<(), Outgrown> {
    for slot in slots {
        let Some(region) = Prefix::new((slot as u128) << 112, 16) else { continue };
        while ranges.get(1).is_some_and(|&(start, _)| start <= region.first()) {
            ranges = &ranges[1..];
        }
        // Nearly all slots are of one label.
        let count = match ranges.get(1) {
            Some(&(start, _)) if start <= region.last() => {
                ranges.partition_point(|&(start, _)| start <= region.last())
            }
            _ => 1,
        };
        let entry = block(nodes, &ranges[..count], region)?;
        put(nodes, slot, entry);
    }
    Ok(())
}

/// Space for the first build: a growing vector.
pub(super) struct Draft {
    pub(super) words: Vec<u32>,
    /// Units left out so that nodes do not lie across lines: first unit and number.
    pub(super) gaps: Vec<(u32, usize)>,
}

impl Draft {
    /// All nodes of these ranges, and the root.
    pub(super) fn new(ranges: &[(u128, Label)]) -> Result<(Self, Vec<Entry>), BuildError> {
        let mut draft = Draft { words: vec![0; NOWHERE], gaps: Vec::new() };
        let mut all = vec![Entry(0); ROOT];
        root(&mut draft, ranges, 0..ROOT, |_, slot, entry| all[slot] = entry).map_err(|full| {
            BuildError::TooLarge {
                structure: "lulea".into(),
                what: full.what,
                advice: "split the table".into(),
            }
        })?;
        Ok((draft, all))
    }

    fn take(&mut self, units: usize) -> Result<u32, Outgrown> {
        let fresh = self.words.len() / UNIT;
        let unit = place(fresh, units);
        if unit + units > Entry::UNITS_MAX {
            return Err(Outgrown { what: format!("more than {} units of 8 bytes", Entry::UNITS_MAX) });
        }
        if unit > fresh {
            self.gaps.push((fresh as u32, unit - fresh));
        }
        self.words.resize((unit + units) * UNIT, 0);
        Ok(unit as u32)
    }
}

impl Nodes for Draft {
    fn node(&mut self, runs: &[Run]) -> Result<Entry, Outgrown> {
        let unit = self.take(words(runs.len()).div_ceil(UNIT))?;
        encode(runs, unit as usize * UNIT, |word, value| self.words[word] = value);
        Ok(Entry::pointer(is_large(runs.len()), unit))
    }

    fn block(&mut self, slots: &Slots) -> Result<Entry, Outgrown> {
        let unit = self.take(SLOTS / UNIT)?;
        let words = &mut self.words[unit as usize * UNIT..][..SLOTS];
        words.iter_mut().zip(slots).for_each(|(word, entry)| *word = entry.0);
        Ok(Entry::pointer(false, unit))
    }
}
