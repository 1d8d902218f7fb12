//! hashbrown as a yardstick: what Rust's standard map is made of, given the caller's hash.

use hashbrown::HashTable as Raw;
use hashbrown::hash_table::Entry;
use std::future::Future;
use tidemill_flow::key::Key;
use tidemill_flow::table::{Full, HashTable, SizeError};
use tidemill_lookup::probe::Probe;

/// Never grows: full when hashbrown would, which is at 7/8 of its slots.
pub(super) struct Hashbrown<const W: usize> {
    /// Hash, key, value. Growing, which would need the hash, is what it never does.
    map: Raw<(Key<W>, u64)>,
    slots: usize,
}

impl<const W: usize> HashTable<W> for Hashbrown<W> {
    const NAME: &'static str = "peer:hashbrown";

    fn new(capacity: usize) -> Result<Self, SizeError> {
        let mut map = Raw::new();
        // It takes 7/8 of a power of two: as many slots as are asked for, not twice as many.
        let room = capacity - capacity / 8;
        map.try_reserve(room, |_| 0).map_err(|_| SizeError::Memory {
            bytes: room.saturating_mul(size_of::<(Key<W>, u64)>()),
            source: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        Ok(Hashbrown { slots: map.num_buckets(), map })
    }

    fn capacity(&self) -> usize {
        self.slots
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn bytes(&self) -> usize {
        self.map.allocation_size()
    }

    #[inline]
    fn get_probed<P: Probe>(&self, hash: u64, key: &Key<W>, _: &P) -> Option<u64> {
        self.map.find(hash, |(other, _)| other == key).map(|(_, value)| *value)
    }

    fn find(&self, hash: u64, key: &Key<W>) -> impl Future<Output = Option<u64>> {
        std::future::ready(self.get(hash, key))
    }

    fn get_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<u64>]) {
        for ((&hash, key), out) in hashes.iter().zip(keys).zip(out) {
            *out = self.get(hash, key);
        }
    }

    fn insert_probed<P: Probe>(
        &mut self,
        hash: u64,
        key: &Key<W>,
        value: u64,
        _: &P,
    ) -> Result<Option<u64>, Full> {
        let full = self.map.len() == self.map.capacity();
        if full {
            return match self.map.find_mut(hash, |(other, _)| other == key) {
                Some((_, old)) => Ok(Some(std::mem::replace(old, value))),
                None => Err(Full),
            };
        }
        Ok(match self.map.entry(hash, |(other, _)| other == key, |_| 0) {
            Entry::Occupied(mut entry) => Some(std::mem::replace(&mut entry.get_mut().1, value)),
            Entry::Vacant(entry) => {
                entry.insert((*key, value));
                None
            }
        })
    }

    fn remove_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, _: &P) -> Option<u64> {
        let entry = self.map.find_entry(hash, |(other, _)| other == key).ok()?;
        Some(entry.remove().0.1)
    }

    /// Not measured: visits all at once.
    fn scan(&self, _: usize, _: usize, mut visit: impl FnMut(&Key<W>, u64)) -> usize {
        self.map.iter().for_each(|(key, value)| visit(key, *value));
        0
    }

    /// Not measured: visits all at once.
    fn expire(&mut self, _: usize, _: usize, mut expired: impl FnMut(&Key<W>, u64) -> bool) -> usize {
        self.map.retain(|(key, value)| !expired(key, *value));
        0
    }
}
