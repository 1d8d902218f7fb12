//! Hopscotch hashing (Herlihy, Shavit and Tzafrir, "Hopscotch Hashing", DISC 2008; Fu 4.5.6): a key lies within 32 slots of its
//! place, and the place has a map of where.
//!
//! ```text
//! slot        h       h+1     h+2     h+3   ...                  h+31
//!           | note  | note  | note  | note  | ...              | note  |
//! map of h    1       0       0       1       0 ...              0           h's keys lie in slots h and h+3
//!
//! note      | map of the keys whose place this slot is, 32 | taken, 1 | its key's distance from its place, 5 | tag, 26 |
//! ```
//!
//! Slots are described in `open::slots`; the map and the tag share the note, so a lookup's first line says which slots to look
//! at, and mostly holds one of them. The tag is from the low bits of the hash.
//!
//! - A new key goes into the first free slot from its place on. If that is more than 31 away, some key before the free slot that may lie
//!   there hops into it and leaves its own, nearer slot free; and so on.
//! - **Bound**: the free slot is looked for among [`RANGE`] slots, and every hop brings it nearer by one at least, by about 30
//!   mostly, after looking at 31 maps at most. [`Full`] means: no free slot in this range, or no key that could
//!   hop (also: 32 keys of one place and no room for another one). Keys that have hopped by then stay where they are, each
//!   still to be found.
//! - Any number of slots. With good hashes the first insertion fails at a load of about 0.98 in 2^10 slots, 0.87 in 2^16, 0.81 in
//!   2^20: no order of keys helps where the queue that linear probing would have there is longer than 31, and the chance
//!   of that falls with e^(-31 t), t = a (e^t - 1), at each slot. At load 0.9, one insertion of 10,000 is refused;
//!   others go on to succeed.
//! - A lookup looks at the keys of its place only, about 1 + a/2 slots for a key that is there, `a` for another.
//! - A removal clears a bit and a slot; nothing is left behind and nothing moves.

use crate::key::Key;
use crate::open::slots::Slots;
use crate::table::{Full, HashTable, SizeError};
use tidemill_lookup::drive::prefetch;
use tidemill_lookup::probe::Probe;

/// A table with hopscotch hashing; see the [module](self).
#[derive(Debug)]
pub struct Hopscotch<const W: usize> {
    slots: Slots<W>,
    len: usize,
}

/// Slots among which a free one is looked for.
pub const RANGE: usize = 1024;

/// Slots in which a key may lie (Herlihy's H).
const NEAR: usize = 32;
/// Keys under way in a batch.
const GROUP: usize = 32;

const TAG: u64 = (1 << 26) - 1;
const DISTANCE_SHIFT: u32 = 26;
const TAKEN: u64 = 1 << 31;
const MAP_SHIFT: u32 = 32;
/// All but the map: what belongs to the key in the slot.
const OWN: u64 = (1 << MAP_SHIFT) - 1;

#[inline(always)]
fn distance(note: u64) -> usize {
    (note >> DISTANCE_SHIFT) as usize % NEAR
}

impl<const W: usize> Hopscotch<W> {
    /// The slot `by` further on, round the end. At most the number of slots.
    #[inline(always)]
    fn on(&self, from: usize, by: usize) -> usize {
        let at = from + by;
        if at >= self.slots.len() { at - self.slots.len() } else { at }
    }

    /// The slot `by` before, round the end.
    #[inline(always)]
    fn back(&self, from: usize, by: usize) -> usize {
        if from >= by { from - by } else { from + self.slots.len() - by }
    }

    /// Where a key is, and its value.
    #[inline(always)]
    fn seek<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<(usize, u64)> {
        if self.len == 0 {
            return None;
        }
        let place = self.slots.place(hash);
        let mut map = self.slots.note(place, probe, false) >> MAP_SHIFT;
        while map != 0 {
            let at = self.on(place, map.trailing_zeros() as usize);
            map &= map - 1;
            let note = self.slots.note(at, probe, true);
            if (note ^ hash) & TAG == 0
                && let Some(value) = self.slots.value_of(at, key, probe)
            {
                return Some((at, value));
            }
        }
        None
    }

    /// The first free slot from a place on, as a distance.
    fn free<P: Probe>(&self, place: usize, probe: &P) -> Option<usize> {
        (0..self.slots.len().min(RANGE))
            .find(|&by| self.slots.note(self.on(place, by), probe, by > 0) & TAKEN == 0)
    }

    /// Makes a free slot nearer to the front: moves into it a key that may lie there; returns the slots between the two. For
    /// tables of more than [`NEAR`] slots: others need no hops.
    fn hop<P: Probe>(&mut self, free: usize, probe: &P) -> Option<usize> {
        // The keys furthest away first.
        for back in (1..NEAR).rev() {
            let place = self.back(free, back);
            let note = self.slots.note(place, probe, true);
            let first = (note >> MAP_SHIFT).trailing_zeros() as usize;
            if first < back {
                let from = self.on(place, first);
                self.slots.set_note(place, note ^ (1 << first | 1 << back) << MAP_SHIFT, probe);
                let (there, here) = (self.slots.note(from, probe, true), self.slots.note(free, probe, true));
                let own = there & TAG | TAKEN | (back as u64) << DISTANCE_SHIFT;
                self.slots.copy(from, free, here & !OWN | own, probe);
                self.slots.set_note(from, there & !OWN, probe);
                return Some(back - first);
            }
        }
        None
    }

    /// Empties a slot.
    fn clear<P: Probe>(&mut self, at: usize, probe: &P) {
        let note = self.slots.note(at, probe, true);
        self.slots.set_note(at, note & !OWN, probe);
        let place = self.back(at, distance(note));
        let map = self.slots.note(place, probe, true);
        self.slots.set_note(place, map & !(1 << distance(note) << MAP_SHIFT), probe);
        self.len -= 1;
    }
}

impl<const W: usize> HashTable<W> for Hopscotch<W> {
    const NAME: &'static str = "hopscotch";

    fn new(capacity: usize) -> Result<Self, SizeError> {
        Ok(Hopscotch { slots: Slots::new(capacity)?, len: 0 })
    }

    fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    #[inline]
    fn get_probed<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        self.seek(hash, key, probe).map(|(_, value)| value)
    }

    async fn find(&self, hash: u64, key: &Key<W>) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let place = self.slots.place(hash);
        let mut line = Slots::<W>::line(place);
        prefetch(self.slots.prefetch(place)).await;
        let mut map = self.slots.note(place, &(), false) >> MAP_SHIFT;
        while map != 0 {
            let at = self.on(place, map.trailing_zeros() as usize);
            map &= map - 1;
            if line != Slots::<W>::line(at) {
                line = Slots::<W>::line(at);
                prefetch(self.slots.prefetch(at)).await;
            }
            if (self.slots.note(at, &(), true) ^ hash) & TAG == 0
                && let Some(value) = self.slots.value_of(at, key, &())
            {
                return Some(value);
            }
        }
        None
    }

    /// Group prefetching of the places alone: most keys are on their place's line or the next, and the CPU runs ahead to the
    /// others. A second stage for the slots that the maps name gains up to 1.2 times for keys that are there at load 0.9,
    /// and costs as much elsewhere.
    fn get_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<u64>]) {
        let groups = hashes.chunks(GROUP).zip(keys.chunks(GROUP)).zip(out.chunks_mut(GROUP));
        for ((hashes, keys), out) in groups {
            for &hash in hashes {
                self.slots.prefetch(self.slots.place(hash));
            }
            for ((&hash, key), out) in hashes.iter().zip(keys).zip(out) {
                *out = self.get(hash, key);
            }
        }
    }

    fn insert_probed<P: Probe>(
        &mut self,
        hash: u64,
        key: &Key<W>,
        value: u64,
        probe: &P,
    ) -> Result<Option<u64>, Full> {
        if let Some((at, old)) = self.seek(hash, key, probe) {
            self.slots.set_value(at, value, probe);
            return Ok(Some(old));
        }
        if self.len == self.slots.len() {
            return Err(Full);
        }
        let place = self.slots.place(hash);
        let mut by = self.free(place, probe).ok_or(Full)?;
        while by >= NEAR {
            by -= self.hop(self.on(place, by), probe).ok_or(Full)?;
        }
        let at = self.on(place, by);
        let own = hash & TAG | TAKEN | (by as u64) << DISTANCE_SHIFT;
        let there = self.slots.note(at, probe, true);
        self.slots.put(at, there & !OWN | own, key, value, probe);
        let note = self.slots.note(place, probe, true);
        self.slots.set_note(place, note | 1 << by << MAP_SHIFT, probe);
        self.len += 1;
        Ok(None)
    }

    fn remove_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        let (at, value) = self.seek(hash, key, probe)?;
        self.clear(at, probe);
        Some(value)
    }

    fn scan(&self, cursor: usize, budget: usize, visit: impl FnMut(&Key<W>, u64)) -> usize {
        self.slots.scan(cursor, budget, TAKEN, visit)
    }

    fn expire(
        &mut self,
        cursor: usize,
        budget: usize,
        mut expired: impl FnMut(&Key<W>, u64) -> bool,
    ) -> usize {
        let end = cursor.saturating_add(budget).min(self.slots.len());
        for at in cursor..end {
            let (key, value) = self.slots.key_value(at);
            if self.slots.note(at, &(), false) & TAKEN != 0 && expired(&key, value) {
                self.clear(at, &());
            }
        }
        if end == self.slots.len() { 0 } else { end }
    }
}

#[cfg(test)]
mod tests;
