//! The paper's own table: cuckoo hashing with signatures in the buckets and the keys in a store of their own, as in DPDK's
//! `rte_hash` (Fu 4.5.2, 4.5.6; HALO 2), with one writer and lock-free readers (MemC3). Kept as a baseline.
//!
//! ```text
//! buckets   64 bytes, one line, 8 entries
//!   | signatures: 8 x u16 | indices: 8 x u32 | version u64 | unused u64 |
//!     an entry is signature i and index i; index 0: empty
//!
//! store     16 bytes (keys of 1 word), 32 (2 or 3), 64 (up to 7): a slot never crosses a line
//!   | key: W words | value | unused |            slot 0 is not used
//!
//! free      u32 each: the numbers of the free slots of the store, a stack; the writer's own
//! ```
//!
//! A key has two buckets. The first comes from the high half of the hash; the other from the first and the signature, which
//! is the low 16 bits of the hash, so that an entry can move without its key being read.
//!
//! **What a lookup touches:** the first bucket, the slot of each entry there that has the key's signature (1 in 8,192
//! buckets shows a wrong one), then the same in the other bucket. The key store costs a line per hit that tables with keys
//! in their buckets do not touch, and a copy of the key where the caller's entry has one already (Fu 4.5.6).
//!
//! **Inserting** takes an empty entry of the first bucket, then of the other, then searches for a path of moves from the
//! first, then from the other. The 1,000 of Fu 4.5.2 bounds, as in DPDK, the buckets that such a search puts into its queue:
//! it looks at no more than 124 of them, three moves deep at most. So an insertion that fails has looked at 248 buckets and
//! changed nothing.
//!
//! **Readers** run beside the writer and take no lock; see [`Reader`]. They repeat a lookup only if the writer took an
//! entry out of the bucket, or moved one into it, meanwhile.
//!
//! Where we depart from DPDK: any number of buckets, not only powers of two (the other bucket is found by a subtraction
//! instead of an exclusive or); a version per bucket instead of one counter per table; no chains of extra buckets; signatures
//! are compared four at a time in ordinary registers.

use crate::cuckoo::moves::{self, Buckets, Place, Queue};
use crate::key::Key;
use crate::table::{Full, HashTable, SizeError};
use shared::{ENTRIES, Shared};
use std::sync::Arc;
use tidemill_lookup::mem::Table;
use tidemill_lookup::probe::Probe;

mod shared;
#[cfg(test)]
mod tests;

/// The table, and its one writer. See the [module](self).
#[derive(Debug)]
pub struct Keystore<const W: usize> {
    store: Writer<W>,
    queue: Queue,
    /// The numbers of the free slots: the first `free_len`.
    free: Table<u32>,
    free_len: usize,
}

/// Reads a [`Keystore`] while its writer changes it. Clones read the same table; it lives as long as any of them.
///
/// What a lookup returns was the key's value at some moment between its beginning and its end; `None`, if the key was not in
/// the table at some moment between. A key that is there all the time is never missed, wherever it moves. What the
/// writer did before it set a value is visible to who has read that value.
#[derive(Debug, Clone)]
pub struct Reader<const W: usize> {
    shared: Arc<Shared<W>>,
}

impl<const W: usize> Reader<W> {
    /// The value of a key.
    #[inline]
    pub fn get(&self, hash: u64, key: &Key<W>) -> Option<u64> {
        self.shared.get(hash, key, &())
    }

    /// The values of many keys, each as by [`get`](Self::get) at a moment of its own. The slices have one length.
    pub fn get_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<u64>]) {
        self.shared.get_batch(hashes, keys, out);
    }
}

/// Moves entries, on behalf of the search for room.
#[derive(Debug)]
struct Writer<const W: usize>(Arc<Shared<W>>);

impl<const W: usize> Buckets for Writer<W> {
    const SLOTS: usize = ENTRIES;

    fn empty<P: Probe>(&self, bucket: usize, probe: &P) -> Option<usize> {
        self.0.empty(bucket, probe)
    }

    fn other(&self, place: Place) -> usize {
        moves::other(place.0, self.0.signature(place), self.0.len())
    }

    fn prefetch(&self, bucket: usize) {
        self.0.prefetch(bucket);
    }

    fn shift<P: Probe>(&mut self, from: Place, to: Place, probe: &P) {
        self.0.shift(from, to, probe);
    }
}

impl<const W: usize> Keystore<W> {
    /// A reader, for another thread.
    pub fn reader(&self) -> Reader<W> {
        Reader { shared: self.store.0.clone() }
    }

    /// Takes out the entry at `place` and frees its slot.
    fn take<P: Probe>(&mut self, place: Place, slot: u32, probe: &P) {
        self.store.0.clear(place, probe);
        self.free[self.free_len] = slot;
        self.free_len += 1;
    }
}

impl<const W: usize> HashTable<W> for Keystore<W> {
    const NAME: &'static str = "keystore-cuckoo";

    fn new(capacity: usize) -> Result<Self, SizeError> {
        let buckets = capacity.div_ceil(ENTRIES).max(1);
        let slots = buckets.saturating_mul(ENTRIES);
        if slots >= u32::MAX as usize {
            return Err(SizeError::TooMany { asked: capacity, most: u32::MAX as usize / ENTRIES * ENTRIES });
        }
        let shared = Shared::new(buckets)?;
        let memory = |source| SizeError::Memory { bytes: slots * 4, source };
        let mut free = Table::new(slots).map_err(memory)?;
        // The lowest numbers are taken first.
        for (i, slot) in free.iter_mut().rev().enumerate() {
            *slot = i as u32 + 1;
        }
        Ok(Keystore { store: Writer(Arc::new(shared)), queue: Queue::new(), free, free_len: slots })
    }

    fn capacity(&self) -> usize {
        self.free.len()
    }

    fn len(&self) -> usize {
        self.free.len() - self.free_len
    }

    fn bytes(&self) -> usize {
        self.store.0.bytes() + size_of_val(&*self.free)
    }

    #[inline]
    fn get_probed<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        self.store.0.get(hash, key, probe)
    }

    #[inline]
    fn find(&self, hash: u64, key: &Key<W>) -> impl Future<Output = Option<u64>> {
        self.store.0.find(hash, key)
    }

    fn get_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<u64>]) {
        self.store.0.get_batch(hashes, keys, out);
    }

    fn insert_probed<P: Probe>(
        &mut self,
        hash: u64,
        key: &Key<W>,
        value: u64,
        probe: &P,
    ) -> Result<Option<u64>, Full> {
        let shared = &self.store.0;
        if let Some((_, slot)) = shared.locate(hash, key, probe) {
            return Ok(Some(shared.set_value(slot, value, probe)));
        }
        if self.free_len == 0 {
            return Err(Full);
        }
        let (signature, first, second) = shared.buckets_of(hash);
        let mut place = None;
        for bucket in [first, second] {
            place = place.or_else(|| shared.empty(bucket, probe).map(|entry| (bucket, entry)));
        }
        for root in [first, second] {
            place = place.or_else(|| self.queue.make_room(&mut self.store, root, probe));
        }
        let place = place.ok_or(Full)?;
        self.free_len -= 1;
        let slot = self.free[self.free_len];
        self.store.0.fill(slot, key, value, probe);
        self.store.0.set(place, signature, slot, probe);
        Ok(None)
    }

    fn remove_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        let (place, slot) = self.store.0.locate(hash, key, probe)?;
        let (_, value) = self.store.0.read(slot);
        self.take(place, slot, probe);
        Some(value)
    }

    /// By buckets.
    fn scan(&self, cursor: usize, budget: usize, mut visit: impl FnMut(&Key<W>, u64)) -> usize {
        let shared = &self.store.0;
        let end = cursor.saturating_add(budget).min(shared.len());
        for bucket in cursor..end {
            for slot in (0..ENTRIES).map(|entry| shared.index((bucket, entry))).filter(|&slot| slot != 0) {
                let (key, value) = shared.read(slot);
                visit(&key, value);
            }
        }
        if end == shared.len() { 0 } else { end }
    }

    fn expire(
        &mut self,
        cursor: usize,
        budget: usize,
        mut expired: impl FnMut(&Key<W>, u64) -> bool,
    ) -> usize {
        let len = self.store.0.len();
        let end = cursor.saturating_add(budget).min(len);
        for place in (cursor..end).flat_map(|bucket| (0..ENTRIES).map(move |entry| (bucket, entry))) {
            let slot = self.store.0.index(place);
            if slot == 0 {
                continue;
            }
            let (key, value) = self.store.0.read(slot);
            if expired(&key, value) {
                self.take(place, slot, &());
            }
        }
        if end == len { 0 } else { end }
    }
}
