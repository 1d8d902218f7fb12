//! Bucketised cuckoo hashing: two buckets per key, with keys and values in the buckets.
//!
//! ```text
//! words of a key        1          2          5
//! bucket, bytes       128        128        256     whole lines
//! slots                 7          5          5
//! bits of a tag         9         12         12     0: this slot is empty
//!
//!   | tags: one word | slot 0: key, value | slot 1: key, value | ...
//! ```
//!
//! The first bucket comes from the high half of the hash, the other one from the first and the tag, which is the low bits of
//! the hash: so an entry can move without its key being hashed.
//!
//! **What a lookup touches:** the first line of the first bucket, for its tags; the line (or two) of each slot whose tag
//! is the key's (1 bucket in 70 to 800 shows a wrong one), which is the line of the tags for the first slots; then the same in
//! the other bucket.
//!
//! **Inserting** takes an empty slot of the first bucket, then of the other, then searches breadth first for a path of moves,
//! from the first, then from the other. A search puts 1,000 buckets into its queue at most and looks at 142 of them (7 slots;
//! paths of up to three moves) or 199 (5 slots; four). An insertion that fails has changed nothing.

use crate::key::Key;
use crate::table::{Full, HashTable, SizeError};
use moves::{Buckets, Place, Queue};
use tidemill_lookup::drive::prefetch;
use tidemill_lookup::mem::Table;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

pub(crate) mod moves;
#[cfg(test)]
mod tests;

/// Lookups of a batch that wait for memory at the same time.
const GROUP: usize = 32;
/// Words per line.
const LINE: usize = 8;

/// See the [module](self).
#[derive(Debug)]
pub struct Cuckoo<const W: usize> {
    store: Store<W>,
    queue: Queue,
    len: usize,
}

#[derive(Debug)]
struct Store<const W: usize> {
    words: Table<u64>,
    buckets: usize,
}

impl<const W: usize> Store<W> {
    /// Words per slot.
    const STRIDE: usize = W + 1;
    /// Words per bucket: as many lines, a power of two, as five slots need.
    const BUCKET: usize = (1 + 5 * Self::STRIDE).next_power_of_two().next_multiple_of(LINE);
    /// Bits per tag.
    const BITS: usize = 64 / Self::SLOTS;
    /// The lowest bit of each tag.
    const ONES: u64 = {
        let (mut ones, mut slot) = (0, 0);
        while slot < Self::SLOTS {
            ones |= 1 << (slot * Self::BITS);
            slot += 1;
        }
        ones
    };
    const TAG: u64 = (1 << Self::BITS) - 1;

    fn new(buckets: usize) -> Result<Self, SizeError> {
        let words = buckets * Self::BUCKET;
        let words = Table::new(words)
            .map_err(|source| SizeError::Memory { bytes: words.saturating_mul(8), source })?;
        Ok(Store { words, buckets })
    }

    /// The tag of a hash, and its two buckets.
    #[inline(always)]
    fn buckets_of(&self, hash: u64) -> (u64, usize, usize) {
        let tag = hash & Self::TAG;
        let tag = tag + u64::from(tag == 0);
        let first = moves::first(hash, self.buckets);
        (tag, first, moves::other(first, tag, self.buckets))
    }

    #[inline(always)]
    fn bucket(&self, bucket: usize) -> &[u64] {
        let start = bucket * Self::BUCKET;
        &self.words[start..start + Self::BUCKET]
    }

    #[inline(always)]
    fn slot(bucket: &[u64], slot: usize) -> &[u64] {
        let start = 1 + slot * Self::STRIDE;
        &bucket[start..start + Self::STRIDE]
    }

    fn slot_mut(&mut self, (bucket, slot): Place) -> &mut [u64] {
        let start = bucket * Self::BUCKET + 1 + slot * Self::STRIDE;
        &mut self.words[start..start + Self::STRIDE]
    }

    /// The slots with this tag, and perhaps one or two above one that has it. Of the empty ones (0), the first is right.
    #[inline(always)]
    fn candidates(tags: u64, tag: u64) -> impl Iterator<Item = usize> + use<W> {
        let x = tags ^ (tag * Self::ONES);
        // The highest bit of each tag that is 0 in x, and of some above.
        let mut found = x.wrapping_sub(Self::ONES) & !x & (Self::ONES << (Self::BITS - 1));
        std::iter::from_fn(move || {
            let bit = found.trailing_zeros() as usize;
            found &= found.wrapping_sub(1);
            (bit < 64).then_some(bit / Self::BITS)
        })
    }

    #[inline(always)]
    fn holds(slot: &[u64], key: &Key<W>) -> bool {
        (0..W).fold(0, |differs, i| differs | (slot[i] ^ key.0[i])) == 0
    }

    #[inline(always)]
    fn locate<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<Place> {
        let (tag, first, second) = self.buckets_of(hash);
        for number in [first, second] {
            let bucket = self.bucket(number);
            probe.step();
            probe.read(address(&bucket[0]), 8, false);
            for at in Self::candidates(bucket[0], tag) {
                let slot = Self::slot(bucket, at);
                probe.read(address(&slot[0]), 8 * Self::STRIDE, true);
                // A candidate that has another tag after all may be an empty slot with an old key in it.
                if Self::holds(slot, key) && self.tag((number, at)) == tag {
                    return Some((number, at));
                }
            }
        }
        None
    }

    #[inline(always)]
    fn tag(&self, (bucket, slot): Place) -> u64 {
        self.bucket(bucket)[0] >> (slot * Self::BITS) & Self::TAG
    }

    fn set_tag<P: Probe>(&mut self, (bucket, slot): Place, tag: u64, probe: &P) {
        let tags = &mut self.words[bucket * Self::BUCKET];
        probe.write(address(tags), 8);
        *tags = *tags & !(Self::TAG << (slot * Self::BITS)) | tag << (slot * Self::BITS);
    }

    fn read(&self, (bucket, slot): Place) -> (Key<W>, u64) {
        let slot = Self::slot(self.bucket(bucket), slot);
        (Key(std::array::from_fn(|i| slot[i])), slot[W])
    }

    fn fill<P: Probe>(&mut self, place: Place, tag: u64, (key, value): (&Key<W>, u64), probe: &P) {
        let slot = self.slot_mut(place);
        probe.write(address(&slot[0]), 8 * Self::STRIDE);
        slot[..W].copy_from_slice(&key.0);
        slot[W] = value;
        self.set_tag(place, tag, probe);
    }

    /// Asks for the first slot with this tag, if there is one.
    #[inline(always)]
    fn prefetch_slot(&self, bucket: usize, tag: u64) -> bool {
        let bucket = self.bucket(bucket);
        let Some(slot) = Self::candidates(bucket[0], tag).next() else { return false };
        let slot = Self::slot(bucket, slot);
        prefetch_read(&raw const slot[0]);
        prefetch_read(&raw const slot[W]);
        true
    }
}

impl<const W: usize> Buckets for Store<W> {
    /// As many as the bucket holds beside the tags, at most 8.
    const SLOTS: usize = {
        let slots = (Self::BUCKET - 1) / Self::STRIDE;
        if slots < 8 { slots } else { 8 }
    };

    fn empty<P: Probe>(&self, bucket: usize, probe: &P) -> Option<usize> {
        let tags = &self.bucket(bucket)[0];
        probe.step();
        probe.read(address(tags), 8, false);
        Self::candidates(*tags, 0).next()
    }

    fn other(&self, place: Place) -> usize {
        moves::other(place.0, self.tag(place), self.buckets)
    }

    #[inline(always)]
    fn prefetch(&self, bucket: usize) {
        prefetch_read(&raw const self.bucket(bucket)[0]);
    }

    fn shift<P: Probe>(&mut self, from: Place, to: Place, probe: &P) {
        let ((key, value), tag) = (self.read(from), self.tag(from));
        self.fill(to, tag, (&key, value), probe);
        self.set_tag(from, 0, probe);
    }
}

impl<const W: usize> HashTable<W> for Cuckoo<W> {
    const NAME: &'static str = "cuckoo";

    fn new(capacity: usize) -> Result<Self, SizeError> {
        let buckets = capacity.div_ceil(Store::<W>::SLOTS).max(1);
        let most = u32::MAX as usize;
        if buckets > most {
            return Err(SizeError::TooMany { asked: capacity, most: most.saturating_mul(Store::<W>::SLOTS) });
        }
        Ok(Cuckoo { store: Store::new(buckets)?, queue: Queue::new(), len: 0 })
    }

    fn capacity(&self) -> usize {
        self.store.buckets * Store::<W>::SLOTS
    }

    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.store.words)
    }

    #[inline]
    fn get_probed<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        let (bucket, slot) = self.store.locate(hash, key, probe)?;
        Some(Store::<W>::slot(self.store.bucket(bucket), slot)[W])
    }

    #[inline]
    async fn find(&self, hash: u64, key: &Key<W>) -> Option<u64> {
        let (tag, first, second) = self.store.buckets_of(hash);
        for bucket in [first, second] {
            let words = self.store.bucket(bucket);
            prefetch(&raw const words[0]).await;
            if let Some(slot) = Store::<W>::candidates(words[0], tag).next() {
                let slot = Store::<W>::slot(words, slot);
                prefetch_read(&raw const slot[0]);
                prefetch(&raw const slot[W]).await;
                break;
            }
        }
        self.get(hash, key)
    }

    /// In groups of 32: the first buckets; their slots, or the other buckets; the slots of those; then the lookups, which
    /// find everything there.
    fn get_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<u64>]) {
        let groups = hashes.chunks(GROUP).zip(keys.chunks(GROUP)).zip(out.chunks_mut(GROUP));
        for ((hashes, keys), out) in groups {
            for &hash in hashes {
                self.store.prefetch(self.store.buckets_of(hash).1);
            }
            let mut others = [(0, 0); GROUP];
            let mut left = 0;
            for &hash in hashes {
                let (tag, first, second) = self.store.buckets_of(hash);
                if !self.store.prefetch_slot(first, tag) {
                    self.store.prefetch(second);
                    others[left] = (second, tag);
                    left += 1;
                }
            }
            for &(second, tag) in &others[..left] {
                self.store.prefetch_slot(second, tag);
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
        let store = &mut self.store;
        if let Some(place) = store.locate(hash, key, probe) {
            let known = &mut store.slot_mut(place)[W];
            probe.write(address(known), 8);
            return Ok(Some(std::mem::replace(known, value)));
        }
        let (tag, first, second) = store.buckets_of(hash);
        let mut place = None;
        for bucket in [first, second] {
            place = place.or_else(|| store.empty(bucket, probe).map(|slot| (bucket, slot)));
        }
        for root in [first, second] {
            place = place.or_else(|| self.queue.make_room(store, root, probe));
        }
        store.fill(place.ok_or(Full)?, tag, (key, value), probe);
        self.len += 1;
        Ok(None)
    }

    fn remove_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        let place = self.store.locate(hash, key, probe)?;
        self.store.set_tag(place, 0, probe);
        self.len -= 1;
        Some(self.store.read(place).1)
    }

    /// By buckets.
    fn scan(&self, cursor: usize, budget: usize, mut visit: impl FnMut(&Key<W>, u64)) -> usize {
        let end = cursor.saturating_add(budget).min(self.store.buckets);
        for place in places::<W>(cursor, end).filter(|&place| self.store.tag(place) != 0) {
            let (key, value) = self.store.read(place);
            visit(&key, value);
        }
        if end == self.store.buckets { 0 } else { end }
    }

    fn expire(
        &mut self,
        cursor: usize,
        budget: usize,
        mut expired: impl FnMut(&Key<W>, u64) -> bool,
    ) -> usize {
        let end = cursor.saturating_add(budget).min(self.store.buckets);
        for place in places::<W>(cursor, end) {
            if self.store.tag(place) != 0 {
                let (key, value) = self.store.read(place);
                if expired(&key, value) {
                    self.store.set_tag(place, 0, &());
                    self.len -= 1;
                }
            }
        }
        if end == self.store.buckets { 0 } else { end }
    }
}

/// All slots of some buckets.
fn places<const W: usize>(from: usize, to: usize) -> impl Iterator<Item = Place> {
    (from..to).flat_map(|bucket| (0..Store::<W>::SLOTS).map(move |slot| (bucket, slot)))
}

fn address<T>(element: &T) -> usize {
    std::ptr::from_ref(element).addr()
}
