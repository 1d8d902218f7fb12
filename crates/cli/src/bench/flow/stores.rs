//! The tables of the runner: ours by their primary calls, hashbrown as a Rust program would use it.

use anyhow::Result;
use hashbrown::hash_map::Entry;
use std::hash::{Hash, Hasher};
use tidemill_flow::flowtable::{FlowTable, Outcome};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::table::HashTable;

/// Any secret will do here: these keys are nobody's attack.
const SECRET: u128 = 0x5eed;

/// A table from keys to values from 1 up. Value 0 is "not there".
pub(super) trait Store<const W: usize>: Sized {
    /// An empty table of so many slots, or a few more.
    fn new(slots: usize) -> Result<Self>;

    fn capacity(&self) -> usize;

    /// Bytes occupied.
    fn bytes(&self) -> usize;

    /// What the other calls want to be given with the key.
    fn hash(&self, key: &Key<W>) -> u64;

    /// The same of many keys.
    fn hash_batch(&self, keys: &[Key<W>], out: &mut [u64]);

    /// What lies beside the key of this number, where nothing is hashed in the timed part: its hash as a NIC would give it, or where it is.
    fn given(&self, _number: usize, key: &Key<W>) -> u64 {
        self.hash(key)
    }

    /// Adds a new key; whether there was room.
    fn insert(&mut self, hash: u64, key: &Key<W>, value: u64) -> bool;

    /// Adds those keys that are not there, the first with this value, the others counting on.
    fn find_or_insert(&mut self, hashes: &[u64], keys: &[Key<W>], first: u64);

    fn lookup_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [u64]);

    fn lookup(&self, hash: u64, key: &Key<W>) -> u64;
}

/// Keys that a call gets at most.
pub(super) const MOST: usize = 64;

/// The flow table by its primary calls: values are its state.
pub(super) struct Flows<const W: usize>(FlowTable<W, u64, Keyed<W>>);

impl<const W: usize> Store<W> for Flows<W> {
    fn new(slots: usize) -> Result<Self> {
        Ok(Flows(FlowTable::new(slots, Keyed::new(SECRET))?))
    }

    fn capacity(&self) -> usize {
        self.0.slots()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    #[inline(always)]
    fn hash(&self, key: &Key<W>) -> u64 {
        self.0.hasher().hash(key)
    }

    #[inline(always)]
    fn hash_batch(&self, keys: &[Key<W>], out: &mut [u64]) {
        self.0.hasher().hash_batch(keys, out);
    }

    #[inline]
    fn insert(&mut self, hash: u64, key: &Key<W>, value: u64) -> bool {
        let slot = self.0.find_or_insert(0, hash, key).slot();
        if let Some(slot) = slot {
            self.0.set_state(slot, value);
        }
        slot.is_some()
    }

    #[inline]
    fn find_or_insert(&mut self, hashes: &[u64], keys: &[Key<W>], first: u64) {
        let mut outcomes = [Outcome::Full; MOST];
        let outcomes = &mut outcomes[..keys.len()];
        self.0.find_or_insert_batch_with(0, hashes, keys, outcomes, |i| first + i as u64);
    }

    #[inline]
    fn lookup_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [u64]) {
        let mut slots = [None; MOST];
        let slots = &mut slots[..keys.len()];
        self.0.lookup_batch(hashes, keys, slots);
        for (out, slot) in out.iter_mut().zip(slots) {
            *out = self.0.word_or(*slot, 0, 0);
        }
    }

    #[inline(always)]
    fn lookup(&self, hash: u64, key: &Key<W>) -> u64 {
        self.0.find(hash, key).map_or(0, |slot| self.0.state(slot))
    }
}

/// Another table of the family.
pub(super) struct Plain<T, const W: usize> {
    table: T,
    hash: Keyed<W>,
}

impl<const W: usize, T: HashTable<W>> Store<W> for Plain<T, W> {
    fn new(slots: usize) -> Result<Self> {
        Ok(Plain { table: T::new(slots)?, hash: Keyed::new(SECRET) })
    }

    fn capacity(&self) -> usize {
        self.table.capacity()
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
    }

    #[inline(always)]
    fn hash(&self, key: &Key<W>) -> u64 {
        self.hash.hash(key)
    }

    #[inline(always)]
    fn hash_batch(&self, keys: &[Key<W>], out: &mut [u64]) {
        self.hash.hash_batch(keys, out);
    }

    #[inline]
    fn insert(&mut self, hash: u64, key: &Key<W>, value: u64) -> bool {
        self.table.insert(hash, key, value).is_ok()
    }

    #[inline]
    fn find_or_insert(&mut self, hashes: &[u64], keys: &[Key<W>], first: u64) {
        let mut found = [None; MOST];
        let found = &mut found[..keys.len()];
        self.table.get_batch(hashes, keys, found);
        for (i, _) in found.iter().enumerate().filter(|(_, found)| found.is_none()) {
            // One that has no room is missed when the answers are summed.
            let _ = self.table.insert(hashes[i], &keys[i], first + i as u64);
        }
    }

    #[inline]
    fn lookup_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [u64]) {
        let mut found = [None; MOST];
        let found = &mut found[..keys.len()];
        self.table.get_batch(hashes, keys, found);
        for (out, found) in out.iter_mut().zip(found) {
            *out = found.unwrap_or(0);
        }
    }

    #[inline]
    fn lookup(&self, hash: u64, key: &Key<W>) -> u64 {
        self.table.get(hash, key).unwrap_or(0)
    }
}

/// A key as a map wants it: hashed word by word, without the length that slices put in front.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Words<const W: usize>([u64; W]);

impl<const W: usize> Hash for Words<W> {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        for word in self.0 {
            state.write_u64(word);
        }
    }
}

/// hashbrown with foldhash, which hashes by itself and knows no batches.
pub(super) struct Map<const W: usize> {
    map: hashbrown::HashMap<Words<W>, u64, foldhash::fast::FixedState>,
    slots: usize,
}

impl<const W: usize> Store<W> for Map<W> {
    fn new(slots: usize) -> Result<Self> {
        // It grows at 7/8 of a power of two.
        let room = slots - slots / 8;
        Ok(Map { map: hashbrown::HashMap::with_capacity_and_hasher(room, Default::default()), slots })
    }

    fn capacity(&self) -> usize {
        self.slots
    }

    fn bytes(&self) -> usize {
        self.map.allocation_size()
    }

    #[inline(always)]
    fn hash(&self, _: &Key<W>) -> u64 {
        0
    }

    #[inline(always)]
    fn hash_batch(&self, _: &[Key<W>], _: &mut [u64]) {}

    #[inline]
    fn insert(&mut self, _: u64, key: &Key<W>, value: u64) -> bool {
        self.map.insert(Words(key.0), value);
        true
    }

    #[inline]
    fn find_or_insert(&mut self, _: &[u64], keys: &[Key<W>], first: u64) {
        for (key, value) in keys.iter().zip(first..) {
            if let Entry::Vacant(entry) = self.map.entry(Words(key.0)) {
                entry.insert(value);
            }
        }
    }

    #[inline]
    fn lookup_batch(&self, _: &[u64], keys: &[Key<W>], out: &mut [u64]) {
        for (key, out) in keys.iter().zip(out) {
            *out = self.lookup(0, key);
        }
    }

    #[inline]
    fn lookup(&self, _: u64, key: &Key<W>) -> u64 {
        self.map.get(&Words(key.0)).copied().unwrap_or(0)
    }
}
