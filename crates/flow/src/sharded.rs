//! One flow table for each worker, which alone writes it; anybody reads.
//!
//! ```text
//!             +--> worker 0 -- FlowTable 0 <--+
//! packets ----+--> worker 1 -- FlowTable 1 <--+-- ShardedReader: show flows, statistics, other workers
//!  shard_of   +--> worker 2 -- FlowTable 2 <--+
//!  or RSS
//! ```
//!
//! Workers share nothing: no table knows of another. Who decides which worker a packet goes to decides where its flow lies:
//!
//! * *We dispatch*: to [`shard_of`] the hash. A reader knows the shard of a key: [`ShardedReader::get`].
//! * *The NIC dispatches* (RSS): whatever arrives at a worker is its own. A reader that does not know the NIC's ways looks in all shards:
//!   [`ShardedReader::find`].
//!
//! Dispatch goes by one hash as long as flows live, also when workers give their tables others
//! ([`rekey`](crate::flowtable::FlowTable::rekey)): a flow does not change its worker. A worker may take the dispatcher's hash for its table's
//! until it has done so; afterwards it hashes by itself ([`FlowTable::hasher`]).
//!
//! There is no count of all flows here: a worker knows its own ([`FlowTable::len`]) and can tell it with its other counters.

use crate::flowtable::{Flow, FlowReader, FlowTable, State};
use crate::hash::{KeyHash, Keyed};
use crate::key::Key;
use crate::table::SizeError;

/// The shard of a hash: its bits 31 to 16 scaled to the number of shards. Tables take places from the bits above and tags from those below,
/// so a shard's table is as good as any. Up to some hundreds of shards are equally large within 1 %.
#[inline(always)]
pub fn shard_of(hash: u64, shards: usize) -> usize {
    (usize::from((hash >> 16) as u16) * shards) >> 16
}

/// As many tables as there are workers, and a reader of all of them. Take it apart: tables move to their workers.
#[derive(Debug)]
pub struct Sharded<const W: usize, S: State = u64, H = Keyed<W>> {
    /// Shard `i` is for worker `i`.
    pub tables: Vec<FlowTable<W, S, H>>,
    /// For everybody else: clone it.
    pub reader: ShardedReader<W, S, H>,
}

impl<const W: usize, S: State, H: KeyHash<W> + Clone> Sharded<W, S, H> {
    /// `shards` empty tables (at least one) of at least `slots_each` slots, which all begin with `hasher`. Dispatch is by `hasher` for good.
    ///
    /// # Errors
    /// As [`FlowTable::new`].
    pub fn new(shards: usize, slots_each: usize, hasher: H) -> Result<Self, SizeError> {
        let tables = (0..shards.max(1))
            .map(|_| FlowTable::new(slots_each, hasher.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        let shards = tables.iter().map(FlowTable::reader).collect();
        Ok(Sharded { tables, reader: ShardedReader { shards, dispatch: hasher } })
    }
}

/// Reads all shards while their workers write them. It never makes a worker wait.
#[derive(Debug, Clone)]
pub struct ShardedReader<const W: usize, S: State = u64, H = Keyed<W>> {
    shards: Vec<FlowReader<W, S, H>>,
    dispatch: H,
}

impl<const W: usize, S: State, H: KeyHash<W>> ShardedReader<W, S, H> {
    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The shard that a key is dispatched to, where we dispatch.
    #[inline]
    pub fn shard(&self, key: &Key<W>) -> usize {
        shard_of(self.dispatch.hash(key), self.shards.len())
    }

    /// The flow of a key, where we dispatch.
    pub fn get(&mut self, key: &Key<W>) -> Option<Flow<S>> {
        let shard = self.shard(key);
        self.shards[shard].get(key)
    }

    /// The flows of many keys, where we dispatch. The slices have one length.
    pub fn get_batch(&mut self, keys: &[Key<W>], out: &mut [Option<Flow<S>>]) {
        let mut shards = [0; 32];
        for (keys, out) in keys.chunks(32).zip(out.chunks_mut(32)) {
            for (key, shard) in keys.iter().zip(&mut shards) {
                *shard = self.shard(key);
                self.shards[*shard].prefetch(key);
            }
            for ((key, shard), out) in keys.iter().zip(shards).zip(out) {
                *out = self.shards[shard].get(key);
            }
        }
    }

    /// The flow of a key in whichever shard, with the shard's number. More than one if the NIC has changed its ways: then the worker
    /// that had the flow before keeps it until it expires.
    pub fn find(&mut self, key: &Key<W>) -> impl Iterator<Item = (usize, Flow<S>)> {
        self.shards.iter_mut().enumerate().filter_map(|(i, shard)| Some((i, shard.get(key)?)))
    }

    /// Visits the flows of the next `buckets` buckets from `cursor` on, shard by shard, each with the shard's number; returns the cursor for the next
    /// call: 0 to begin with, 0 again when all have been visited. A call may visit fewer buckets, for it ends with a shard. What it
    /// promises is what [`FlowReader::scan`] does.
    pub fn scan(
        &self,
        cursor: usize,
        buckets: usize,
        mut visit: impl FnMut(usize, &Key<W>, Flow<S>),
    ) -> usize {
        // All shards have the same number of buckets.
        let each = self.shards[0].buckets();
        let (i, at) = (cursor / each, cursor % each);
        let Some(shard) = self.shards.get(i) else { return 0 };
        let next = match shard.scan(at, buckets, |key, flow| visit(i, key, flow)) {
            0 => (i + 1) * each,
            next => i * each + next,
        };
        if next == self.shards.len() * each { 0 } else { next }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shards_are_even_and_leave_places_and_tags_alone() {
        for shards in [1, 2, 3, 7, 16, 100] {
            let mut counts = vec![0_usize; shards];
            for bits in 0..1 << 16 {
                let hash = bits << 16;
                counts[shard_of(hash, shards)] += 1;
                assert_eq!(shard_of(hash, shards), shard_of(hash | 0xffff_ffff_0000_ffff, shards));
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 1, "{shards} shards: {least} to {most}");
        }
    }

    #[test]
    fn what_the_workers_have_the_reader_finds_by_shard_anywhere_and_in_a_scan() {
        let hash = Keyed::<2>::new(1);
        let Sharded { mut tables, mut reader } = Sharded::<2>::new(3, 200, hash).unwrap();
        let key = |i: u64| Key([i, i]);
        for i in 0..300 {
            let hash = hash.hash(&key(i));
            let table = &mut tables[shard_of(hash, 3)];
            let slot = table.find_or_insert(0, hash, &key(i)).slot().unwrap();
            table.set_state(slot, i);
        }
        let mut out = vec![None; 301];
        reader.get_batch(&(0..301).map(key).collect::<Vec<_>>(), &mut out);
        for i in 0..300 {
            let flow = Flow { stamp: 0, state: i };
            assert_eq!((reader.get(&key(i)), out[i as usize]), (Some(flow), Some(flow)));
            let shard = reader.shard(&key(i));
            assert_eq!(reader.find(&key(i)).collect::<Vec<_>>(), [(shard, flow)]);
        }
        assert_eq!((reader.get(&key(300)), out[300], reader.find(&key(300)).next()), (None, None, None));

        for buckets in [0, 1, 5, usize::MAX] {
            let (mut cursor, mut calls, mut seen) = (0, 0, vec![0; 300]);
            loop {
                cursor = reader.scan(cursor, buckets, |shard, key, flow| {
                    assert_eq!((key.0, shard), ([flow.state; 2], reader.shard(key)));
                    seen[flow.state as usize] += 1;
                });
                calls += 1;
                if cursor == 0 {
                    break;
                }
            }
            assert!(seen.iter().all(|&times| times == 1));
            // 200 slots are 7 buckets.
            assert_eq!(calls, 3 * 7_usize.div_ceil(buckets.clamp(1, 7)));
        }
        assert_eq!(reader.scan(1000, 1, |_, _, _| panic!("beyond the end")), 0);
    }

    #[test]
    fn a_flow_that_the_nic_has_sent_elsewhere_is_found_in_both_shards() {
        let hash = Keyed::<1>::new(1);
        let Sharded { mut tables, mut reader } = Sharded::<1>::new(0, 1, hash).unwrap();
        assert_eq!((tables.len(), reader.shards()), (1, 1));
        assert_eq!(reader.find(&Key([1])).next(), None);
        tables[0].find_or_insert(1, hash.hash(&Key([1])), &Key([1]));
        assert_eq!(reader.get(&Key([1])), Some(Flow { stamp: 1, state: 0 }));

        let Sharded { mut tables, mut reader } = Sharded::<1>::new(2, 1, hash).unwrap();
        for (now, table) in tables.iter_mut().enumerate() {
            table.find_or_insert(now as u32, hash.hash(&Key([1])), &Key([1]));
        }
        let found: Vec<_> = reader.find(&Key([1])).map(|(shard, flow)| (shard, flow.stamp)).collect();
        assert_eq!(found, [(0, 0), (1, 1)]);
    }

    #[test]
    fn tables_and_readers_go_to_other_threads() {
        fn send<T: Send>() {}
        send::<FlowTable<2, [u64; 4]>>();
        send::<ShardedReader<2, [u64; 4]>>();
    }
}
