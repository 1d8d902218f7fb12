//! A hash table of prefixes and their labels, in buckets of one cache line.
//!
//! ```text
//! IPv6   | key 0 | key 1 | key 2 | 3 labels | 3 lengths | over |        16 words of 32 bits
//! IPv4   | 7 keys | 7 labels | 7 lengths | over |                       length + 1; 0: the place is empty
//! ```
//! A prefix is in the bucket that its hash names (its home), or, where that is full, in the first behind it that has room. `over`
//! counts the prefixes that have gone past a bucket: a search goes on only where there are some. A deletion gives the place to
//! the nearest of those that have gone past it, and so on: there are no tombstones, and nothing decays. (At 255 the count sticks
//! until the table is next made anew; that costs loads, never an answer.) It is made half full; at three quarters a larger table
//! is made, a third full.

use super::hash::{below, hash};
use crate::prefix::{Address, Prefix};
use std::marker::PhantomData;
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

const WORDS: usize = 16;

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Bucket([u32; WORDS]);

/// The count of those gone past that does not change any more.
const STUCK: u8 = u8::MAX;

/// A hash table of prefixes and their labels of 32 bits.
#[derive(Debug, Clone)]
pub struct HashTable<A> {
    buckets: Array<Bucket>,
    len: usize,
    family: PhantomData<A>,
}

/// A place: a bucket, and which of its entries.
#[derive(Clone, Copy)]
struct Place {
    bucket: usize,
    entry: usize,
}

impl<A: Address> HashTable<A> {
    /// See [`Whole::collapse`](crate::copies::Whole::collapse).
    pub(crate) fn collapse(&self) {
        collapse(&self.buckets);
    }

    /// Words of a key.
    const KEY: usize = A::BITS as usize / 32;
    /// Entries of a bucket.
    pub const ENTRIES: usize = if A::BITS == 32 { 7 } else { 3 };
    /// The first word of the labels.
    const LABELS: usize = Self::KEY * Self::ENTRIES;

    /// An empty table, half full when it holds so many.
    pub fn with_room(entries: usize) -> Self {
        // Numbers of buckets have 32 bits, enough for 2^33 prefixes.
        let buckets = (2 * entries).div_ceil(Self::ENTRIES).clamp(1, u32::MAX as usize);
        HashTable { buckets: Array::filled(buckets, Bucket([0; WORDS])), len: 0, family: PhantomData }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that searches can touch.
    pub fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Entries by places for entries, up to 3/4.
    pub fn load(&self) -> f64 {
        self.len as f64 / (self.buckets.len() * Self::ENTRIES) as f64
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        // Another multiplier than the filters': what is crowded there is not crowded here.
        below((hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32, self.buckets.len() as u32) as usize
    }

    #[inline(always)]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }

    /// The length bytes, the first entry's lowest, and above them how many have gone past.
    #[inline(always)]
    fn meta(&self, bucket: usize) -> u64 {
        let words = &self.buckets[bucket].0;
        let last = u64::from(words[WORDS - 1]);
        if A::BITS == 32 { last << 32 | u64::from(words[WORDS - 2]) } else { last }
    }

    #[inline(always)]
    fn over(meta: u64) -> u8 {
        (meta >> (8 * Self::ENTRIES)) as u8
    }

    #[inline(always)]
    fn length(meta: u64, entry: usize) -> u8 {
        (meta >> (8 * entry)) as u8
    }

    #[inline(always)]
    fn key(&self, place: Place) -> A {
        let words = &self.buckets[place.bucket].0;
        let first = Self::KEY * place.entry;
        let mut key = u128::from(words[first]);
        for i in 1..Self::KEY {
            key |= u128::from(words[first + i]) << (32 * i);
        }
        A::from_u128(key)
    }

    /// Asks the cache for the home of a prefix.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch_read(&raw const self.buckets[self.home(hash)]);
    }

    #[inline(always)]
    fn search<P: Probe + ?Sized>(&self, hash: u64, addr: A, len: u8, probe: &P) -> Option<Place> {
        let home = self.home(hash);
        let mut bucket = home;
        loop {
            probe.read((&raw const self.buckets[bucket]).addr(), size_of::<Bucket>(), true);
            let meta = self.meta(bucket);
            for entry in 0..Self::ENTRIES {
                let place = Place { bucket, entry };
                if Self::length(meta, entry) == len + 1 && self.key(place) == addr {
                    return Some(place);
                }
            }
            bucket = self.next(bucket);
            if Self::over(meta) == 0 || bucket == home {
                return None;
            }
        }
    }

    /// The label of a prefix, whose hash is given, with its first address.
    #[inline(always)]
    pub fn get<P: Probe + ?Sized>(&self, hash: u64, addr: A, len: u8, probe: &P) -> Option<u32> {
        let place = self.search(hash, addr, len, probe)?;
        Some(self.buckets[place.bucket].0[Self::LABELS + place.entry])
    }

    /// Stores a label; true: the prefix is new.
    pub fn set<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, label: u32, probe: &P) -> bool {
        let hash = hash(prefix);
        if let Some(place) = self.search(hash, prefix.first(), prefix.len(), &()) {
            self.write(place.bucket, Self::LABELS + place.entry, label, probe);
            return false;
        }
        if 4 * (self.len + 1) > 3 * Self::ENTRIES * self.buckets.len() {
            self.grow(probe);
        }
        self.insert(prefix, hash, label, probe);
        true
    }

    /// There is room: see [`set`](Self::set).
    fn insert<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, hash: u64, label: u32, probe: &P) {
        let mut bucket = self.home(hash);
        loop {
            let meta = self.meta(bucket);
            if let Some(entry) = (0..Self::ENTRIES).find(|&entry| Self::length(meta, entry) == 0) {
                let key = prefix.first().to_u128();
                for i in 0..Self::KEY {
                    self.write(bucket, Self::KEY * entry + i, (key >> (32 * i)) as u32, probe);
                }
                self.write(bucket, Self::LABELS + entry, label, probe);
                self.write_meta(bucket, entry, prefix.len() + 1, probe);
                self.len += 1;
                return;
            }
            self.write_meta(bucket, Self::ENTRIES, Self::over(meta).saturating_add(1), probe);
            bucket = self.next(bucket);
        }
    }

    /// Removes a prefix; false: it is not there.
    pub fn remove<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, probe: &P) -> bool {
        let hash = hash(prefix);
        let Some(mut hole) = self.search(hash, prefix.first(), prefix.len(), &()) else { return false };
        self.write_meta(hole.bucket, hole.entry, 0, probe);
        self.len -= 1;
        self.count_down(self.home(hash), hole.bucket, probe);
        while let Some(from) = self.gone_past(hole.bucket) {
            let len = Self::length(self.meta(from.bucket), from.entry);
            for i in 0..Self::KEY {
                let word = self.buckets[from.bucket].0[Self::KEY * from.entry + i];
                self.write(hole.bucket, Self::KEY * hole.entry + i, word, probe);
            }
            let label = self.buckets[from.bucket].0[Self::LABELS + from.entry];
            self.write(hole.bucket, Self::LABELS + hole.entry, label, probe);
            self.write_meta(hole.bucket, hole.entry, len, probe);
            self.write_meta(from.bucket, from.entry, 0, probe);
            self.count_down(hole.bucket, from.bucket, probe);
            hole = from;
        }
        true
    }

    /// One less has gone past the buckets from one to another, without the latter.
    fn count_down<P: Probe + ?Sized>(&mut self, mut bucket: usize, end: usize, probe: &P) {
        while bucket != end {
            let over = Self::over(self.meta(bucket));
            if over != STUCK {
                self.write_meta(bucket, Self::ENTRIES, over - 1, probe);
            }
            bucket = self.next(bucket);
        }
    }

    /// The nearest of those that have gone past a bucket.
    fn gone_past(&self, bucket: usize) -> Option<Place> {
        let distance =
            |from: usize, to: usize| if to >= from { to - from } else { to + self.buckets.len() - from };
        let mut at = bucket;
        loop {
            let passed = Self::over(self.meta(at)) > 0;
            at = self.next(at);
            if !passed || at == bucket {
                return None;
            }
            for entry in 0..Self::ENTRIES {
                let place = Place { bucket: at, entry };
                let Some(len) = Self::length(self.meta(at), entry).checked_sub(1) else { continue };
                let home = Prefix::new(self.key(place), len).map_or(at, |prefix| self.home(hash(prefix)));
                if distance(home, at) >= distance(bucket, at) {
                    return Some(place);
                }
            }
        }
    }

    /// The entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, u32)> + '_ {
        let places = (0..self.buckets.len() * Self::ENTRIES)
            .map(|i| Place { bucket: i / Self::ENTRIES, entry: i % Self::ENTRIES });
        places.filter_map(|place| {
            let len = Self::length(self.meta(place.bucket), place.entry).checked_sub(1)?;
            Some((
                Prefix::new(self.key(place), len)?,
                self.buckets[place.bucket].0[Self::LABELS + place.entry],
            ))
        })
    }

    fn grow<P: Probe + ?Sized>(&mut self, probe: &P) {
        let mut larger = Self::with_room(self.len + self.len / 2 + 4);
        self.iter().for_each(|(prefix, label)| larger.insert(prefix, hash(prefix), label, probe));
        *self = larger;
    }

    fn write<P: Probe + ?Sized>(&mut self, bucket: usize, word: usize, value: u32, probe: &P) {
        let word = &mut self.buckets[bucket].0[word];
        *word = value;
        probe.write((&raw const *word).addr(), 4);
    }

    /// One byte behind the labels: a length, or the last one, the count.
    fn write_meta<P: Probe + ?Sized>(&mut self, bucket: usize, byte: usize, value: u8, probe: &P) {
        let word = WORDS - (Self::ENTRIES + 1) / 4 + byte / 4;
        let shift = 8 * (byte % 4);
        let old = self.buckets[bucket].0[word];
        self.write(bucket, word, old & !(0xff << shift) | u32::from(value) << shift, probe);
    }

    /// Panics where an invariant of the page is broken.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut over = vec![0_u64; self.buckets.len()];
        let mut seen = std::collections::HashSet::new();
        for bucket in 0..self.buckets.len() {
            for entry in 0..Self::ENTRIES {
                let place = Place { bucket, entry };
                let Some(len) = Self::length(self.meta(bucket), entry).checked_sub(1) else { continue };
                let prefix = Prefix::new(self.key(place), len).unwrap();
                assert_eq!(prefix.first(), self.key(place), "canonical");
                assert!(seen.insert(prefix), "{prefix} twice");
                let mut at = self.home(hash(prefix));
                while at != bucket {
                    over[at] += 1;
                    at = self.next(at);
                }
            }
        }
        assert_eq!(seen.len(), self.len);
        for (bucket, &count) in over.iter().enumerate() {
            let said = Self::over(self.meta(bucket));
            assert!(said == STUCK || u64::from(said) == count, "bucket {bucket}: {said} for {count}");
        }
    }
}
