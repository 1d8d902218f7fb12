//! What the writer and the readers of a [`super::Keystore`] share, and why they may.
//!
//! All shared words are atomics. The writer (one; `&mut Keystore`) does four things:
//!
//! ```text
//! fill(slot)          fence(Release); key words, value          (Relaxed; Release)
//! set(place, slot)    signature                                 (Release)
//!                     index = slot                              (Release)
//! clear(place)        index = 0                                 (Release)
//!                     version of the bucket + 1                 (Release)
//! shift(from, to)     set(to), version of `to`'s bucket + 1 (Release), clear(from)
//! ```
//!
//! and a reader looks into a bucket like this:
//!
//! ```text
//! version                                                       (Acquire)
//! signatures                                                    (Relaxed)
//! index of an entry whose signature is the key's                (Acquire)
//! key words, value of the slot                                  (Relaxed)
//! found:   fence(Acquire); version of this bucket again         (Relaxed)   another: repeat
//! missed in both buckets:
//!          fence(Acquire); version of the first bucket again    (Relaxed)   another: repeat
//! ```
//!
//! **No key or value that is not whole or not the key's own.** A reader that got `slot` from bucket b sees at least what
//! the writer filled in before it set that index (Release, Acquire). Can it see anything later, the next key's words? Before
//! the slot is filled again the writer has cleared every index that named it: the last in `take`, earlier ones in `shift`.
//! Each clear is followed by the version of its bucket, b's too, and then, by program order, by the fence of `fill`. So a
//! word of the next key that is read synchronises the fence of `fill` with the reader's fence, and the second load of b's
//! version sees the new one. The first load did not: had it, being an Acquire load of a Release store, the cleared index
//! would have been seen after it. The versions differ and the lookup is repeated. A slot may therefore be reused at once.
//!
//! **No key missed that is there all the time.** Such a key is always in one of its buckets A (which the reader looks into
//! first) and B, and for a moment in both. Who misses it in a bucket looked before it was set there or after it was cleared,
//! and in the second case has loaded the cleared index or a signature that came to its place later: both Release stores, so
//! with the reader's fence whatever the writer did before is visible to the second load of A's version.
//! If the reader saw A after the clear, this includes A's next version: the first load must have had it too, and then the
//! key was visible in B, where the reader looked later. If it saw A before the key was set there, it saw B after the clear that
//! follows (or the key was visible in B), and A had its next version before that clear: the first load cannot have had it,
//! or the key would have been visible in A. Either way, repeat.
//!
//! **Progress.** Every repetition is due to a change that the writer completed in between. There is no state in which
//! readers wait for a writer that has been interrupted: a version is one number, not a lock.
//!
//! Versions have 64 bits and do not come round.

use crate::cuckoo::moves::{self, Place};
use crate::key::Key;
use crate::table::SizeError;
use crate::words::{AtomicU64, Ordering::*, Words, fence, words};
use tidemill_lookup::drive::prefetch;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

/// Entries per bucket.
pub(super) const ENTRIES: usize = 8;
/// Words per bucket.
const BUCKET: usize = 8;
/// The first word of the indices, two in each.
const INDICES: usize = 2;
const VERSION: usize = 6;
/// Lookups of a batch that wait for memory at the same time.
const GROUP: usize = 32;

#[derive(Debug)]
pub(super) struct Shared<const W: usize> {
    buckets: Words,
    store: Words,
}

type Bucket = [AtomicU64; BUCKET];

impl<const W: usize> Shared<W> {
    /// Words per slot.
    const STRIDE: usize = (W + 1).next_power_of_two();

    pub(super) fn new(buckets: usize) -> Result<Self, SizeError> {
        let slots = buckets * ENTRIES + 1;
        Ok(Shared { buckets: words(buckets * BUCKET)?, store: words(slots * Self::STRIDE)? })
    }

    /// Buckets.
    pub(super) fn len(&self) -> usize {
        self.buckets.len() / BUCKET
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets) + size_of_val(&*self.store)
    }

    /// The signature of a hash, and its two buckets.
    #[inline(always)]
    pub(super) fn buckets_of(&self, hash: u64) -> (u64, usize, usize) {
        let (signature, first) = (hash & 0xffff, moves::first(hash, self.len()));
        (signature, first, moves::other(first, signature, self.len()))
    }

    #[inline(always)]
    fn bucket(&self, bucket: usize) -> &Bucket {
        &self.buckets.as_chunks::<BUCKET>().0[bucket]
    }

    #[inline(always)]
    fn slot(&self, slot: u32) -> &[AtomicU64] {
        let start = slot as usize * Self::STRIDE;
        &self.store[start..start + Self::STRIDE]
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, bucket: usize) {
        prefetch_read(self.bucket(bucket));
    }

    // Reading.

    /// A place for each entry that has the signature, and perhaps for one or two that have not.
    #[inline(always)]
    fn candidates(bucket: &Bucket, signature: u64) -> impl Iterator<Item = usize> + use<W> {
        const ONES: u64 = 0x0001_0001_0001_0001;
        // The highest bit of each lane that is 0, and of some lanes above one that is.
        let zeros = |x: u64| x.wrapping_sub(ONES) & !x & (ONES << 15);
        let wanted = signature * ONES;
        let (low, high) = (zeros(bucket[0].load(Relaxed) ^ wanted), zeros(bucket[1].load(Relaxed) ^ wanted));
        // Entry 0 at bit 15, entry 4 at bit 7, entry 1 at bit 31, ...
        let mut found = low | high >> 8;
        std::iter::from_fn(move || {
            let bit = found.trailing_zeros() as usize;
            found &= found.wrapping_sub(1);
            (bit < 64).then_some(bit / 16 + if bit & 8 == 0 { 4 } else { 0 })
        })
    }

    #[inline(always)]
    fn index_in(bucket: &Bucket, entry: usize) -> u32 {
        // Acquire: with the index comes what the writer put into the slot before.
        (bucket[INDICES + entry / 2].load(Acquire) >> (32 * (entry % 2))) as u32
    }

    #[inline(always)]
    fn holds(slot: &[AtomicU64], key: &Key<W>) -> bool {
        (0..W).fold(0, |differs, i| differs | (slot[i].load(Relaxed) ^ key.0[i])) == 0
    }

    /// The entry of a key in one bucket, and its slot.
    #[inline(always)]
    fn search<P: Probe>(
        &self,
        bucket: &Bucket,
        signature: u64,
        key: &Key<W>,
        probe: &P,
    ) -> Option<(usize, u32)> {
        probe.step();
        probe.read(address(&bucket[0]), 64, false);
        for entry in Self::candidates(bucket, signature) {
            let number = Self::index_in(bucket, entry);
            if number != 0 {
                let slot = self.slot(number);
                probe.read(address(&slot[0]), 8 * (W + 1), true);
                if Self::holds(slot, key) {
                    return Some((entry, number));
                }
            }
        }
        None
    }

    /// The value of a key, beside the writer.
    #[inline(always)]
    pub(super) fn get<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        let (signature, first, second) = self.buckets_of(hash);
        let (first, second) = (self.bucket(first), self.bucket(second));
        'again: loop {
            let mut version_of_first = 0;
            for (i, bucket) in [first, second].into_iter().enumerate() {
                let version = bucket[VERSION].load(Acquire);
                if i == 0 {
                    version_of_first = version;
                }
                if let Some((_, slot)) = self.search(bucket, signature, key, probe) {
                    let value = self.slot(slot)[W].load(Relaxed);
                    fence(Acquire);
                    if bucket[VERSION].load(Relaxed) != version {
                        continue 'again;
                    }
                    return Some(value);
                }
            }
            fence(Acquire);
            if first[VERSION].load(Relaxed) == version_of_first {
                return None;
            }
        }
    }

    /// The slot that a lookup in this bucket reads first, asked for.
    #[inline(always)]
    fn first_candidate(&self, bucket: &Bucket, signature: u64) -> Option<&AtomicU64> {
        let entry = Self::candidates(bucket, signature).next()?;
        Some(&self.slot(Self::index_in(bucket, entry))[0])
    }

    /// Waits for what [`get`](Self::get) will read, then does it.
    #[inline]
    pub(super) async fn find(&self, hash: u64, key: &Key<W>) -> Option<u64> {
        let (signature, first, second) = self.buckets_of(hash);
        // Both at once, as DPDK does: most misses look at both.
        self.prefetch(second);
        prefetch(self.bucket(first)).await;
        let slot = self.first_candidate(self.bucket(first), signature);
        if let Some(slot) = slot.or_else(|| self.first_candidate(self.bucket(second), signature)) {
            prefetch(slot).await;
        }
        self.get(hash, key, &())
    }

    /// In groups of 32: both buckets, then the slots, then the lookups, which find everything there.
    pub(super) fn get_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<u64>]) {
        let groups = hashes.chunks(GROUP).zip(keys.chunks(GROUP)).zip(out.chunks_mut(GROUP));
        for ((hashes, keys), out) in groups {
            for &hash in hashes {
                let (_, first, second) = self.buckets_of(hash);
                self.prefetch(first);
                self.prefetch(second);
            }
            for &hash in hashes {
                let (signature, first, second) = self.buckets_of(hash);
                let slot = self.first_candidate(self.bucket(first), signature);
                if let Some(slot) = slot.or_else(|| self.first_candidate(self.bucket(second), signature)) {
                    prefetch_read(slot);
                }
            }
            for ((&hash, key), out) in hashes.iter().zip(keys).zip(out) {
                *out = self.get(hash, key, &());
            }
        }
    }

    // What follows is the writer's: it alone stores, so its loads see what it stored.

    /// The entry of a key, and its slot.
    pub(super) fn locate<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<(Place, u32)> {
        let (signature, first, second) = self.buckets_of(hash);
        [first, second].into_iter().find_map(|bucket| {
            let (entry, slot) = self.search(self.bucket(bucket), signature, key, probe)?;
            Some(((bucket, entry), slot))
        })
    }

    pub(super) fn read(&self, slot: u32) -> (Key<W>, u64) {
        let slot = self.slot(slot);
        (Key(std::array::from_fn(|i| slot[i].load(Relaxed))), slot[W].load(Relaxed))
    }

    pub(super) fn index(&self, (bucket, entry): Place) -> u32 {
        Self::index_in(self.bucket(bucket), entry)
    }

    pub(super) fn signature(&self, (bucket, entry): Place) -> u64 {
        self.bucket(bucket)[entry / 4].load(Relaxed) >> (16 * (entry % 4)) & 0xffff
    }

    pub(super) fn empty<P: Probe>(&self, bucket: usize, probe: &P) -> Option<usize> {
        let words = self.bucket(bucket);
        probe.step();
        probe.read(address(&words[0]), 64, false);
        (0..ENTRIES).find(|&entry| Self::index_in(words, entry) == 0)
    }

    /// Sets the value of a slot in use; returns the one that it had.
    pub(super) fn set_value<P: Probe>(&self, slot: u32, value: u64, probe: &P) -> u64 {
        let word = &self.slot(slot)[W];
        probe.write(address(word), 8);
        let old = word.load(Relaxed);
        word.store(value, Release);
        old
    }

    /// Puts a key and its value into a free slot.
    pub(super) fn fill<P: Probe>(&self, slot: u32, key: &Key<W>, value: u64, probe: &P) {
        let slot = self.slot(slot);
        probe.write(address(&slot[0]), 8 * (W + 1));
        fence(Release);
        for (word, &value) in slot.iter().zip(&key.0) {
            word.store(value, Relaxed);
        }
        slot[W].store(value, Release);
    }

    /// Makes an empty entry name a slot.
    pub(super) fn set<P: Probe>(&self, (bucket, entry): Place, signature: u64, slot: u32, probe: &P) {
        let words = self.bucket(bucket);
        let (word, shift) = (&words[entry / 4], 16 * (entry % 4));
        probe.write(address(word), 2);
        word.store(word.load(Relaxed) & !(0xffff << shift) | signature << shift, Release);
        Self::set_index(words, entry, slot, probe);
    }

    fn set_index<P: Probe>(bucket: &Bucket, entry: usize, slot: u32, probe: &P) {
        let (word, shift) = (&bucket[INDICES + entry / 2], 32 * (entry % 2));
        probe.write(address(word), 4);
        word.store(word.load(Relaxed) & !(0xffff_ffff << shift) | u64::from(slot) << shift, Release);
    }

    fn next_version<P: Probe>(bucket: &Bucket, probe: &P) {
        probe.write(address(&bucket[VERSION]), 8);
        bucket[VERSION].store(bucket[VERSION].load(Relaxed) + 1, Release);
    }

    /// Empties an entry.
    pub(super) fn clear<P: Probe>(&self, (bucket, entry): Place, probe: &P) {
        let words = self.bucket(bucket);
        Self::set_index(words, entry, 0, probe);
        Self::next_version(words, probe);
    }

    /// Moves an entry to an empty one of its other bucket.
    pub(super) fn shift<P: Probe>(&self, from: Place, to: Place, probe: &P) {
        self.set(to, self.signature(from), self.index(from), probe);
        Self::next_version(self.bucket(to.0), probe);
        self.clear(from, probe);
    }
}

fn address<T>(element: &T) -> usize {
    std::ptr::from_ref(element).addr()
}
