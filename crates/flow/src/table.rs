//! What every hash table of the family offers.

use crate::key::Key;
use std::future::Future;
use tidemill_lookup::probe::Probe;

/// An insertion that the table has no room for. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the table has no room for this key")]
pub struct Full;

/// Why a table cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SizeError {
    /// More than the table's own numbering can address.
    #[error("{asked} entries: at most {most}")]
    TooMany {
        /// What was asked for.
        asked: usize,
        /// What there can be.
        most: usize,
    },
    /// No memory.
    #[error("no memory for {bytes} bytes: {source}")]
    Memory {
        /// How many were asked for.
        bytes: usize,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A hash table from keys of `W` words to 64-bit values, with a fixed capacity, for one thread.
///
/// The caller brings the hash: always the same for one key, all 64 bits good (see [`crate::hash`]). Operations come
/// twice: `..._probed`, which tells a [`Probe`] every load, store and step (one step: one slot or bucket looked at), and the same with the probe `()`.
pub trait HashTable<const W: usize>: Sized {
    /// As in results and on the command line.
    const NAME: &'static str;

    /// An empty table with at least `capacity` slots, its memory there already (prefaulted).
    ///
    /// # Errors
    /// See [`SizeError`].
    fn new(capacity: usize) -> Result<Self, SizeError>;

    /// Slots: what the load factor is relative to.
    fn capacity(&self) -> usize;

    /// Keys in the table.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the table occupies.
    fn bytes(&self) -> usize;

    /// The value of a key.
    fn get_probed<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64>;

    /// The value of a key.
    #[inline]
    fn get(&self, hash: u64, key: &Key<W>) -> Option<u64> {
        self.get_probed(hash, key, &())
    }

    /// The same lookup as a coroutine: it awaits [`tidemill_lookup::drive::prefetch`] before each load that may miss.
    fn find(&self, hash: u64, key: &Key<W>) -> impl Future<Output = Option<u64>>;

    /// The values of many keys, by whatever hides memory latency best for this table. The slices have one length.
    fn get_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<u64>]);

    /// Sets the value of a key; returns the one that it had.
    ///
    /// # Errors
    /// [`Full`] if the key is new and there is no room for it: then nothing has changed.
    fn insert_probed<P: Probe>(
        &mut self,
        hash: u64,
        key: &Key<W>,
        value: u64,
        probe: &P,
    ) -> Result<Option<u64>, Full>;

    /// Sets the value of a key; returns the one that it had.
    ///
    /// # Errors
    /// As [`insert_probed`](Self::insert_probed).
    #[inline]
    fn insert(&mut self, hash: u64, key: &Key<W>, value: u64) -> Result<Option<u64>, Full> {
        self.insert_probed(hash, key, value, &())
    }

    /// Takes a key out; returns its value.
    fn remove_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64>;

    /// Takes a key out; returns its value.
    #[inline]
    fn remove(&mut self, hash: u64, key: &Key<W>) -> Option<u64> {
        self.remove_probed(hash, key, &())
    }

    /// Visits the keys at the next `budget` positions (slots or buckets) from `cursor` on, and returns the cursor for the
    /// next call: 0 to begin with, 0 again when all have been visited. Every key that is in the table during a whole round and
    /// that no insertion or removal moved is visited once.
    fn scan(&self, cursor: usize, budget: usize, visit: impl FnMut(&Key<W>, u64)) -> usize;

    /// As [`scan`](Self::scan), and takes out the keys for which `expired` is true: the work of one call is bounded by
    /// the budget. No key is skipped in a round without insertions.
    fn expire(&mut self, cursor: usize, budget: usize, expired: impl FnMut(&Key<W>, u64) -> bool) -> usize;
}
