//! Another hash for the same flows: when the secret may be known, or the NIC gets another RSS key.
//!
//! [`FlowTable::rekey`] changes the hash at once; flows stay where the old one put them and are brought over a few at a time
//! ([`FlowTable::migrate`]), or when they are asked for by `find_or_insert`. Until the last has moved a lookup that finds nothing
//! under the new hash looks under the old one. No flow is lost: one for which there is no room under the new hash stays where it is,
//! and is tried again.

use super::insert::{Effort, New, correct};
use super::store::{GENERATION, Place};
use super::tags::{LANES, bits};
use super::{FlowTable, Outcome, State};
use crate::hash::KeyHash;
use crate::key::Key;
use crate::words::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tidemill_lookup::probe::Probe;

/// A hash that the table has had, and the way to the next one: readers follow it without a lock.
pub(super) struct Generation<H> {
    pub(super) hasher: H,
    /// The hash before this one: flows may lie under it until `settled`.
    pub(super) before: Option<H>,
    /// 1 when no flow lies under `before` any more.
    pub(super) settled: AtomicU64,
    /// 1 when there is a next one.
    replaced: AtomicU64,
    next: OnceLock<Arc<Generation<H>>>,
    parity: bool,
}

impl<H> Generation<H> {
    pub(super) fn first(hasher: H) -> Self {
        Generation {
            hasher,
            before: None,
            settled: AtomicU64::new(1),
            replaced: AtomicU64::new(0),
            next: OnceLock::new(),
            parity: false,
        }
    }

    /// The hash after this one, once there is one. The flag says so, not the lock, which the model checker and ThreadSanitizer do
    /// not see into.
    pub(super) fn next(&self) -> Option<&Arc<Self>> {
        if self.replaced.load(Ordering::Acquire) == 0 { None } else { self.next.get() }
    }
}

/// One after the other: a reader that slept through a million re-keyings has a chain as long, too long to recurse along.
impl<H> Drop for Generation<H> {
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut generation) = next.and_then(Arc::into_inner) {
            next = generation.next.take();
        }
    }
}

/// The flows of the re-keying before have not all been brought over; see [`FlowTable::migrate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{left} flows still lie under the hash before this one: migrate them first")]
pub struct Busy {
    /// How many.
    pub left: usize,
}

impl<const W: usize, S: State, H> FlowTable<W, S, H> {
    #[inline(always)]
    pub(super) fn generation_flag(&self) -> u64 {
        if self.generation.parity { GENERATION } else { 0 }
    }

    /// Flows that still lie under the hash before this one.
    pub fn left_to_migrate(&self) -> usize {
        self.old
    }
}

impl<const W: usize, S: State, H: KeyHash<W> + Clone> FlowTable<W, S, H> {
    /// From now on callers hash with `hasher`. All flows stay; [`migrate`](Self::migrate) brings them over.
    ///
    /// # Errors
    /// [`Busy`] while flows of the hash before the present one are left.
    pub fn rekey(&mut self, hasher: H) -> Result<(), Busy> {
        if self.old != 0 {
            return Err(Busy { left: self.old });
        }
        let next = Arc::new(Generation {
            hasher,
            before: Some(self.generation.hasher.clone()),
            settled: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            next: OnceLock::new(),
            parity: !self.generation.parity,
        });
        self.old = self.len;
        self.rekey_cursor = 0;
        // Ours is the only writer, so it is empty.
        self.generation.next.get_or_init(|| next.clone());
        self.generation.replaced.store(1, Ordering::Release);
        self.generation = next;
        self.settle();
        Ok(())
    }

    /// Brings over the flows of the next `buckets` buckets; returns how many are left. Call it between bursts until it says 0: after two or
    /// three rounds of the table, four at a load of 0.99. It takes room: where all slots are taken no flow comes over, and where less than one
    /// in 300 is free the last may not, until others expire or are removed. They are found all the same.
    pub fn migrate(&mut self, buckets: usize) -> usize {
        self.migrate_probed(buckets, &())
    }

    /// The same, telling a probe every access.
    pub(super) fn migrate_probed<P: Probe>(&mut self, buckets: usize, probe: &P) -> usize {
        let all = self.store.buckets;
        for _ in 0..buckets.min(all as usize) {
            if self.old == 0 {
                break;
            }
            let bucket = self.rekey_cursor;
            self.rekey_cursor = if bucket + 1 < all { bucket + 1 } else { 0 };
            let store = &self.store;
            for lane in bits(store.tags(bucket, probe).used()) {
                let slot = bucket as usize * LANES + lane;
                let store = &self.store;
                probe.read(std::ptr::from_ref(store.head(slot)).addr(), 8, true);
                // An insertion of this loop may have moved it away.
                let there = store.tags(bucket, &()).tag(lane) != 0;
                if there && store.head(slot).load(Ordering::Relaxed) & GENERATION != self.generation_flag() {
                    probe.read(store.entry(slot).as_ptr().addr(), Self::ENTRY_BYTES, true);
                    let key = store.key(slot);
                    let place = store.place(self.generation.hasher.hash(&key));
                    self.carry(slot, place, &key, Effort::Search, &mut [], probe);
                }
            }
        }
        self.settle();
        self.old
    }

    pub(super) fn settle(&self) {
        if self.old == 0 {
            self.generation.settled.store(1, Ordering::Release);
        }
    }

    /// The slot of a key under the hash before this one.
    #[cold]
    pub(super) fn find_old<P: Probe>(&self, key: &Key<W>, probe: &P) -> Option<usize> {
        let store = &self.store;
        let before = self.generation.before.as_ref()?;
        store.find(store.place(before.hash(key)), key, probe)
    }

    /// Finds a key under the old hash and brings it over to its place under the new one, at no more effort than an insertion may take
    /// now; its slot then.
    #[cold]
    pub(super) fn bring_over<P: Probe>(
        &mut self,
        place: Place,
        key: &Key<W>,
        effort: &mut Effort,
        given: &mut [Outcome],
        probe: &P,
    ) -> Option<usize> {
        let slot = self.find_old(key, probe)?;
        let left = self.old;
        let now = self.carry(slot, place, key, *effort, given, probe);
        if self.old == left && *effort == Effort::Search {
            self.rest_after_failure(effort);
        }
        self.settle();
        Some(now)
    }

    /// Moves an entry from where the old hash put it to its place under the new one, if there is room; its slot then.
    fn carry<P: Probe>(
        &mut self,
        slot: usize,
        place: Place,
        key: &Key<W>,
        effort: Effort,
        given: &mut [Outcome],
        probe: &P,
    ) -> usize {
        let store = &self.store;
        let stamp = store.head(slot).load(Ordering::Relaxed) & u64::from(u32::MAX);
        let new = New { key, head: stamp | self.generation_flag(), state: store.state(slot) };
        // An insertion may move what it is to replace.
        let mut from = slot;
        let mut moves = 0;
        let moved = |a, b| {
            moves += 1;
            correct(given, a, b);
            if a == from {
                from = b;
            }
        };
        let to = store.insert(place, &new, effort, moved, probe);
        self.counters.moves += moves;
        let Some(to) = to else { return from };
        // A reader that did not find it under the new hash and does not find it under the old one either begins again.
        store.raise_version(place.bucket, probe);
        store.take_out(from, probe);
        correct(given, from, to);
        self.old -= 1;
        to
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::flowtable::{Flow, FlowTable};
    use crate::hash::{KeyHash, Keyed};
    use crate::key::Key;

    #[test]
    fn flows_of_a_full_table_come_over_once_some_have_gone() {
        let mut table = FlowTable::<1>::new(310, Keyed::new(0)).unwrap();
        let mut there: Vec<Key<1>> = (0..10_000).map(|i| Key([i])).collect();
        there.retain(|key| table.find_or_insert(0, table.hasher().hash(key), key).slot().is_some());
        assert_eq!((there.len(), table.slots()), (310, 310));
        table.rekey(Keyed::new(1)).unwrap();
        let rounds = |table: &mut FlowTable<1>| (0..20).map(|_| table.migrate(10)).last();
        assert_eq!(rounds(&mut table), Some(310), "there is no room for any");
        for key in there.drain(..10) {
            assert!(table.remove(table.hasher().hash(&key), &key).is_some());
        }
        assert_eq!((rounds(&mut table), table.len()), (Some(0), 300));
        assert!(there.iter().all(|key| table.find(table.hasher().hash(key), key).is_some()));
    }

    #[test]
    fn readers_may_sleep_through_many_rekeyings() {
        let mut table = FlowTable::<1>::new(31, Keyed::new(0)).unwrap();
        let (mut reader, asleep) = (table.reader(), table.reader());
        let key = Key([1]);
        table.find_or_insert(5, table.hasher().hash(&key), &key);
        for secret in 1..=100_000 {
            table.rekey(Keyed::new(secret)).unwrap();
            assert_eq!(table.migrate(1), 0);
        }
        assert_eq!(reader.get(&key), Some(Flow { stamp: 5, state: 0 }));
        drop(table);
        drop(reader);
        drop(asleep);
    }
}
