//! Routes as the program looks them up: 16 bits of an address at once, then 8 at each node.
//!
//! ```text
//! direct[address's first 16 bits] -> label, or node
//! node: 4 words of bits    bit b is set where place b differs from place b - 1 (and b = 0)
//!       1 word             how many bits are set in front of each of these words, 16 bits each
//!       entries            one for each bit that is set: label, or node
//! ```
//! This is DXR's first table (Zec, Rizzo, Mikuc: "DXR: Towards a Billion Routing Lookups per Second in Software", 2012) with Poptrie's leaf runs for what hangs off it (Asai,
//! Ohara: "Poptrie: A Compressed Trie with Population Count for Fast and Scalable Software IP Routing Table Lookup", 2015, section 3.3), labels and nodes alike in one list
//! behind the bits, so that a node with six entries or fewer is one line of a cache and one dependent load. An IPv4 address is found after three at most of them, or five
//! loads; searching a range's chunk, as DXR does, takes one for each halving. Both families have this one form: of IPv6, 14 nodes are the most.
//!
//! The image is written while nobody reads it, so it is changed in place. It is truth for nobody: a prefix that has changed is made anew from the RIB.

mod build;
#[cfg(test)]
mod tests;
mod update;

use super::layout::{DIRECT4, DIRECT6, HOPS, LINE, NODES, load, load_half, shift, store, store_half};
use std::sync::atomic::AtomicU64;
use tidemill_lpm::{Address, Label};

/// A label, or the line of a node.
type Entry = u32;
/// What makes an entry a node.
const NODE: Entry = 1 << 31;
/// The label of all that there is no room for.
const BEYOND: Entry = HOPS - 1;
/// Where the entries of a node begin, in halves of words.
const ENTRIES: usize = 10;
/// Halves of words in a line.
const LINE_HALVES: usize = 2 * LINE;
/// Lines of the largest node.
const LARGEST: usize = (ENTRIES + 256).div_ceil(LINE_HALVES);
/// Bits of an address that the first table takes, and each node.
const FIRST: u8 = 16;
const STRIDE: u8 = 8;

/// There is no room for the routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the routes do not fit the image")]
pub struct Full;

/// One generation's routes of both families, and which lines are free. The lines themselves are the caller's.
#[derive(Debug)]
pub struct Image {
    start: u32,
    end: u32,
    /// Behind the last line that was ever used.
    next: u32,
    /// Free runs of lines, by their length.
    free: [Vec<u32>; LARGEST + 1],
}

impl Image {
    /// The one that begins at line `start` of the memory and has so many lines.
    pub fn new(start: u32, lines: u32) -> Self {
        let end = start.saturating_add(lines);
        Image { start, end, next: start.saturating_add(NODES).min(end), free: Default::default() }
    }

    /// The first line.
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Lines in use, the fixed parts of a generation included.
    pub fn lines(&self) -> u32 {
        let free: usize = self.free.iter().enumerate().map(|(length, runs)| length * runs.len()).sum();
        self.next - self.start - free as u32
    }

    /// The label of an address's route, 0 if it has none: what the program finds.
    pub fn lookup<A: Address>(&self, words: &[AtomicU64], address: A) -> u32 {
        let mut entry = load_half(words, self.direct::<A>(slot(address)));
        let mut depth = FIRST;
        while entry & NODE != 0 && depth < A::BITS {
            let (node, place) = ((entry & !NODE) as usize * LINE, place(address, depth));
            let bits = load(words, node + place / 64) & u64::MAX >> (63 - place % 64);
            let before = load(words, node + 4) >> (16 * (place / 64)) & 0xffff;
            entry = load_half(words, 2 * node + ENTRIES + bits.count_ones() as usize + before as usize - 1);
            depth += STRIDE;
        }
        entry
    }

    /// Where in the memory, in halves of words, the entry of the first 16 bits is.
    fn direct<A: Address>(&self, slot: usize) -> usize {
        let line = if A::FAMILY == 4 { DIRECT4 } else { DIRECT6 };
        (self.start + line) as usize * LINE_HALVES + slot
    }

    /// A run of free lines.
    fn take(&mut self, length: usize) -> Result<u32, Full> {
        if let Some(line) = self.free[length].pop() {
            return Ok(line);
        }
        if (self.end - self.next) as usize >= length {
            let line = self.next;
            self.next += length as u32;
            return Ok(line);
        }
        // The rest of a longer one serves for something else.
        let longer = (length + 1..=LARGEST).find(|length| !self.free[*length].is_empty()).ok_or(Full)?;
        let line = self.free[longer].pop().ok_or(Full)?;
        self.free[longer - length].push(line + length as u32);
        Ok(line)
    }

    /// The entry for 256 places: a node, or a label if all have the same.
    fn put(&mut self, words: &[AtomicU64], places: &[Entry; 256]) -> Result<Entry, Full> {
        let (mut bits, mut entries, mut count) = ([0_u64; 4], [0; 256], 0);
        for (place, entry) in places.iter().enumerate() {
            if count == 0 || entries[count - 1] != *entry {
                bits[place / 64] |= 1 << (place % 64);
                entries[count] = *entry;
                count += 1;
            }
        }
        if count == 1 && entries[0] & NODE == 0 {
            return Ok(entries[0]);
        }
        let line = self.take(lines_of(count))?;
        let at = line as usize * LINE;
        let (mut before, mut sum) = (0, 0);
        for (number, word) in bits.iter().enumerate() {
            store(words, at + number, *word);
            before |= sum << (16 * number);
            sum += u64::from(word.count_ones());
        }
        store(words, at + 4, before);
        for (number, pair) in entries[..count].chunks(2).enumerate() {
            let half = |which: usize| u64::from(pair.get(which).copied().unwrap_or(0)) << shift(which);
            store(words, at + ENTRIES / 2 + number, half(0) | half(1));
        }
        Ok(NODE | line)
    }

    /// What an entry says of 256 places.
    fn get(&self, words: &[AtomicU64], entry: Entry) -> [Entry; 256] {
        let mut places = [entry; 256];
        if entry & NODE == 0 {
            return places;
        }
        let node = (entry & !NODE) as usize * LINE;
        let mut next = 2 * node + ENTRIES;
        let mut current = 0;
        for (number, places) in places.as_chunks_mut::<64>().0.iter_mut().enumerate() {
            let bits = load(words, node + number);
            for (bit, place) in places.iter_mut().enumerate() {
                if bits >> bit & 1 == 1 {
                    current = load_half(words, next);
                    next += 1;
                }
                *place = current;
            }
        }
        places
    }

    /// Gives back the lines of a node, without those that hang off it.
    fn give_back(&mut self, words: &[AtomicU64], entry: Entry) {
        if entry & NODE != 0 {
            let line = entry & !NODE;
            let count: u32 = (0..4).map(|word| load(words, line as usize * LINE + word).count_ones()).sum();
            self.free[lines_of(count as usize)].push(line);
        }
    }

    /// Gives back all that hangs off an entry.
    fn give_back_all(&mut self, words: &[AtomicU64], entry: Entry) {
        if entry & NODE == 0 {
            return;
        }
        let mut before = 0;
        for place in self.get(words, entry) {
            // A label may have several places, a node has one.
            if place != before {
                self.give_back_all(words, place);
            }
            before = place;
        }
        self.give_back(words, entry);
    }

    fn set_direct<A: Address>(&self, words: &[AtomicU64], slot: usize, entry: Entry) {
        store_half(words, self.direct::<A>(slot), entry);
    }
}

fn lines_of(entries: usize) -> usize {
    (ENTRIES + entries).div_ceil(LINE_HALVES)
}

/// The first 16 bits.
fn slot<A: Address>(address: A) -> usize {
    (address >> usize::from(A::BITS - FIRST)).to_u128() as usize
}

/// The 8 bits behind the first `depth`.
fn place<A: Address>(address: A, depth: u8) -> usize {
    (address >> usize::from(A::BITS - depth - STRIDE)).to_u128() as usize & 0xff
}

/// The entry of a label.
fn leaf(label: Label) -> Entry {
    label.0.min(BEYOND)
}
