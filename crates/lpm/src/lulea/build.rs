//! From a RIB to nodes: cut a region into ranges, spread them over slots, store the runs of the slots.

use super::{
    Entry, LARGE_HEAD, LINE_UNITS, NOWHERE, ROOT, SLOTS, SMALL_HEAD, SMALL_RUNS, UNIT, byte, slot_region,
};
use crate::fib::{BuildError, Label, Outgrown};
use crate::prefix::{Address, Prefix};

/// Where new nodes are put.
pub(super) trait Space {
    /// Room for so many units in a row, as invariant 4 wants them: the first.
    fn take(&mut self, units: usize) -> Result<u32, Outgrown>;
    /// Writes a word of a node that is not published yet.
    fn set(&mut self, word: usize, value: u32);
}

/// The entries of a region's slots.
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
pub(super) fn spread<S: Space + ?Sized>(
    space: &mut S,
    mut ranges: &[(u128, Label)],
    region: Prefix<u128>,
    extent: Prefix<u128>,
    mut put: impl FnMut(&mut S, std::ops::RangeInclusive<usize>, Entry),
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
                put(space, slot..=end, Entry::leaf(ranges[0].1));
                end
            }
            Some(_) => {
                let count = ranges.partition_point(|&(start, _)| start <= part.last());
                let entry = node(space, &ranges[..count], part)?;
                put(space, slot..=slot, entry);
                slot
            }
            None => {
                put(space, slot..=last, Entry::leaf(ranges[0].1));
                last
            }
        };
        slot = end + 1;
    }
    Ok(())
}

/// The node for `region`, which begins at a byte, or its label if it has only one.
pub(super) fn node<S: Space + ?Sized>(
    space: &mut S,
    ranges: &[(u128, Label)],
    region: Prefix<u128>,
) -> Result<Entry, Outgrown> {
    let mut slots = [Entry(0); SLOTS];
    spread(space, ranges, region, region, |_, run, entry| slots[run].fill(entry))?;
    write(space, &slots)
}

/// The block for `region`, a /16, or its label.
pub(super) fn block<S: Space + ?Sized>(
    space: &mut S,
    ranges: &[(u128, Label)],
    region: Prefix<u128>,
) -> Result<Entry, Outgrown> {
    if let [(_, label)] = ranges {
        return Ok(Entry::leaf(*label));
    }
    let unit = space.take(SLOTS / UNIT)?;
    let word = unit as usize * UNIT;
    let put = |space: &mut S, run: std::ops::RangeInclusive<usize>, entry: Entry| {
        run.for_each(|slot| space.set(word + slot, entry.0));
    };
    spread(space, ranges, region, region, put)?;
    Ok(Entry::pointer(false, unit))
}

/// Everything below the root: `put` gets the root's slots with their entries.
pub(super) fn root<S: Space + ?Sized>(
    space: &mut S,
    mut ranges: &[(u128, Label)],
    slots: std::ops::Range<usize>,
    mut put: impl FnMut(&mut S, usize, Entry),
) -> Result<(), Outgrown> {
    for slot in slots {
        let Some(region) = Prefix::new((slot as u128) << 112, 16) else { continue };
        while ranges.get(1).is_some_and(|&(start, _)| start <= region.first()) {
            ranges = &ranges[1..];
        }
        let count = ranges.partition_point(|&(start, _)| start <= region.last());
        let entry = block(space, &ranges[..count], region)?;
        put(space, slot, entry);
    }
    Ok(())
}

/// Bit i: slot i begins a run. That slot 0 does goes without saying.
pub(super) fn heads(slots: &Slots) -> [u32; 8] {
    let mut heads = [0; 8];
    for (i, pair) in slots.windows(2).enumerate() {
        heads[(i + 1) / 32] |= u32::from(pair[0] != pair[1]) << ((i + 1) % 32);
    }
    heads
}

/// The first slots of the runs.
pub(super) fn starts(heads: &[u32; 8]) -> impl Iterator<Item = usize> {
    std::iter::once(0).chain(heads.iter().enumerate().flat_map(|(i, &word)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let bit = rest.trailing_zeros() as usize;
            rest &= rest.checked_sub(1)?;
            Some(32 * i + bit)
        })
    }))
}

/// Writes a node, unless its slots are of one label.
pub(super) fn write(space: &mut (impl Space + ?Sized), slots: &Slots) -> Result<Entry, Outgrown> {
    let heads = heads(slots);
    let runs = 1 + heads.iter().map(|word| word.count_ones()).sum::<u32>() as usize;
    if runs == 1 {
        return Ok(slots[0]);
    }
    let large = runs > SMALL_RUNS;
    let head = if large { LARGE_HEAD } else { SMALL_HEAD };
    let unit = space.take((head + runs).div_ceil(UNIT))?;
    let word = unit as usize * UNIT;
    if large {
        let mut base = (word + head) as u32;
        for (i, &bitmap) in heads.iter().enumerate() {
            space.set(word + 2 * i, bitmap);
            space.set(word + 2 * i + 1, base);
            base += bitmap.count_ones();
        }
    } else {
        let mut ends = [u8::MAX; 8];
        for (end, start) in ends.iter_mut().zip(starts(&heads).skip(1)) {
            *end = (start - 1) as u8;
        }
        let ends = u64::from_le_bytes(ends);
        space.set(word, ends as u32);
        space.set(word + 1, (ends >> 32) as u32);
    }
    for (i, start) in starts(&heads).enumerate() {
        space.set(word + head + i, slots[start].0);
    }
    Ok(Entry::pointer(large, unit))
}

/// Where the next run of `units` goes when `fresh` units are taken, and the unit behind it: invariant 4.
pub(super) fn place(fresh: usize, units: usize) -> usize {
    let in_line = fresh % LINE_UNITS;
    if in_line > 0 && in_line + units > LINE_UNITS { fresh + LINE_UNITS - in_line } else { fresh }
}

/// Space for the first build: a growing vector, with the root and its zeros in front.
pub(super) struct Draft {
    pub(super) words: Vec<u32>,
    /// Units left out to keep invariant 4: first unit and number.
    pub(super) gaps: Vec<(u32, usize)>,
}

impl Draft {
    pub(super) fn new() -> Self {
        Draft { words: vec![0; ROOT + NOWHERE], gaps: Vec::new() }
    }
}

impl Space for Draft {
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

    fn set(&mut self, word: usize, value: u32) {
        self.words[word] = value;
    }
}
