//! From ranges of addresses to heads, codewords and chunks.

use super::{
    CHUNK, DENSE, DENSE_HEAD, FIRST, IS_DENSE, IS_VERY_DENSE, Lulea97, PLACE, SLOTS, SPARSE, SPARSE_HEAD,
    VERY_DENSE_HEAD,
};
use crate::fib::{LABEL_31, Label, Outgrown};
use crate::prefix::Prefix;
use crate::ranges::ranges;
use crate::rib::Rib;
use tidemill_lookup::mem::Array;
use tidemill_lookup::probe::Probe;

/// Stores what is different.
pub(super) fn set<T: PartialEq, P: Probe + ?Sized>(to: &mut T, value: T, probe: &P) {
    if *to != value {
        *to = value;
        probe.write((&raw const *to).addr(), size_of::<T>());
    }
}

/// The masks that 16 slots of a complete tree can have, in order: a mask's place is its number. The first one is a single head.
#[derive(Debug, Clone)]
pub(super) struct Masks(Vec<u16>);

impl Masks {
    pub(super) fn new() -> Self {
        // A tree of some height is a leaf, or two trees of the next smaller one side by side.
        let mut masks: Vec<u16> = vec![1];
        for height in 0..4 {
            let halves = masks.clone();
            let pairs =
                halves.iter().flat_map(|&low| halves.iter().map(move |&high| high << (1 << height) | low));
            masks = std::iter::once(1).chain(pairs).collect();
        }
        masks.sort_unstable();
        Masks(masks)
    }

    /// The maptable: of each mask the number of bits set up to each slot, less one, in four bits.
    pub(super) fn rows(&self) -> Array<u64> {
        let count = |mask: u16, slot: u32| u64::from((mask << (15 - slot)).count_ones() - 1);
        let row = |&mask: &u16| (0..16).map(|slot| count(mask, slot) << (4 * slot)).sum();
        self.0.iter().map(row).collect()
    }

    /// The codewords of a bit vector of `slots` bits, and bases for four of them each; `based`: the sixes count from there.
    fn encode(&self, heads: &[u32], slots: usize, based: bool) -> (Vec<u16>, Vec<u16>) {
        let (mut codes, mut bases) = (Vec::new(), Vec::new());
        let mut rest = heads;
        for group in 0..slots as u32 / 16 {
            let before = heads.len() - rest.len();
            let here = rest.partition_point(|head| head / 16 == group);
            let mask = rest[..here].iter().fold(0, |mask: u16, head| mask | 1 << (head % 16));
            rest = &rest[here..];
            // Where no head is, the answer is that of the head before.
            let (row, first) = match mask {
                0 => (0, before - 1),
                _ => (self.0.partition_point(|&other| other < mask), before),
            };
            if group % 4 == 0 {
                bases.push(first as u16);
            }
            let base = bases.last().filter(|_| based).map_or(0, |&base| usize::from(base));
            codes.push((row << 6 | (first - base)) as u16);
        }
        (codes, bases)
    }
}

/// Where leaves and chunks begin: two neighbors that are the halves of one subtree and have the same label are one leaf.
pub(super) fn heads(slots: &[u32]) -> Vec<u32> {
    let mut leaves: Vec<(u32, u32)> = Vec::new(); // first slot, number of slots
    for slot in 0..slots.len() as u32 {
        let mut leaf = (slot, 1);
        while let Some(&(first, len)) = leaves.last() {
            let (entry, other) = (slots[first as usize], slots[leaf.0 as usize]);
            if len != leaf.1 || first % (2 * len) != 0 || entry != other || entry & CHUNK != 0 {
                break;
            }
            leaves.pop();
            leaf = (first, 2 * len);
        }
        leaves.push(leaf);
    }
    leaves.into_iter().map(|(first, _)| first).collect()
}

impl Lulea97 {
    /// Makes the slots of `region`, a /16 or shorter, anew: whether the heads of level 1 and the labels there are still the same.
    pub(super) fn set_slots<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u32>,
        region: Prefix<u32>,
        probe: &P,
    ) -> Result<bool, Outgrown> {
        let all = ranges(rib, region);
        if let Some((_, label)) = all.iter().find(|(_, label)| label.0 > LABEL_31) {
            return Err(Outgrown::label(region, *label, 31));
        }
        let (mut ranges, mut same) = (&all[..], true);
        for slot in region.first() >> 16..=region.last() >> 16 {
            let old = self.slots[slot as usize];
            self.free(old);
            let new = self.entry(&mut ranges, slot << 16, 16, probe)?;
            self.slots[slot as usize] = new;
            same &= old == new || old & new & CHUNK != 0;
        }
        Ok(same)
    }

    /// The label of the slot that begins at `first` and is `depth` bits deep, or its chunk. Goes on to the range at `first`.
    fn entry<P: Probe + ?Sized>(
        &mut self,
        ranges: &mut &[(u32, Label)],
        first: u32,
        depth: u32,
        probe: &P,
    ) -> Result<u32, Outgrown> {
        while ranges.get(1).is_some_and(|&(start, _)| start <= first) {
            *ranges = &ranges[1..];
        }
        match ranges.get(1) {
            Some(&(start, _)) if start - first <= u32::MAX >> (depth - 1) >> 1 => {}
            _ => return Ok(ranges[0].1.0),
        }
        let mut slots = [0; SLOTS];
        for (x, slot) in slots.iter_mut().enumerate() {
            *slot = self.entry(ranges, first + ((x as u32) << (24 - depth)), depth + 8, probe)?;
        }
        self.chunk(&slots, probe)
    }

    /// A chunk, unless its slots are of one label.
    fn chunk<P: Probe + ?Sized>(&mut self, slots: &[u32; SLOTS], probe: &P) -> Result<u32, Outgrown> {
        let heads = heads(slots);
        if heads.len() == 1 {
            return Ok(slots[0]);
        }
        let pairs = |halves: &[u16]| -> Vec<u32> {
            halves
                .as_chunks::<2>()
                .0
                .iter()
                .map(|&[low, high]| u32::from(high) << 16 | u32::from(low))
                .collect()
        };
        let (kind, mut words) = if heads.len() <= SPARSE {
            let mut bytes = [u8::MAX; 8];
            bytes.iter_mut().zip(&heads).for_each(|(byte, &head)| *byte = head as u8);
            bytes[0] = heads.len() as u8;
            let bytes = u64::from_le_bytes(bytes);
            (0, vec![bytes as u32, (bytes >> 32) as u32])
        } else {
            let dense = heads.len() <= DENSE;
            let (codes, bases) = self.masks.encode(&heads, SLOTS, !dense);
            let bases = if dense { Vec::new() } else { pairs(&bases) };
            (if dense { 1 } else { 2 }, [pairs(&codes), bases].concat())
        };
        words.extend(heads.iter().map(|&head| slots[head as usize]));
        let place = self.chunks.take(words.len(), 0)?;
        if place as usize + words.len() > PLACE as usize {
            return Err(Outgrown { what: format!("{place} words of chunks are in use") });
        }
        self.chunks[place as usize..][..words.len()].copy_from_slice(&words);
        probe.write(self.chunks[place as usize..].as_ptr().addr(), 4 * words.len());
        self.kinds[kind as usize] += 1;
        Ok(CHUNK | kind << IS_DENSE.trailing_zeros() | place)
    }

    /// Takes back a chunk and those below.
    fn free(&mut self, entry: u32) {
        if entry & CHUNK == 0 {
            return;
        }
        let (kind, head) = match entry & (IS_DENSE | IS_VERY_DENSE) {
            0 => (0, SPARSE_HEAD),
            IS_DENSE => (1, DENSE_HEAD),
            _ => (2, VERY_DENSE_HEAD),
        };
        let (first, last) = ((entry & PLACE) as usize, self.place(entry, u8::MAX, &()));
        (first + head..=last).for_each(|at| self.free(self.chunks[at]));
        self.chunks.give(first as u32, last + 1 - first);
        self.kinds[kind] -= 1;
    }

    /// Makes level 1 of the slots.
    pub(super) fn make_first<P: Probe + ?Sized>(&mut self, probe: &P) {
        let heads = heads(&self.slots);
        let (codes, bases) = self.masks.encode(&heads, FIRST, true);
        self.codes.resize(codes.len(), u16::MAX);
        self.bases.resize(bases.len(), u16::MAX);
        self.pointers.resize(heads.len(), u32::MAX);
        self.codes.iter_mut().zip(codes).for_each(|(to, code)| set(to, code, probe));
        self.bases.iter_mut().zip(bases).for_each(|(to, base)| set(to, base, probe));
        let entries = heads.iter().map(|&head| self.slots[head as usize]);
        self.pointers.iter_mut().zip(entries).for_each(|(to, entry)| set(to, entry, probe));
    }
}
