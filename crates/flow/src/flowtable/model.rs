//! The flow table as one of the family: a state of one word is its value.

use super::{FlowTable, Swept};
use crate::hash::Keyed;
use crate::key::Key;
use crate::table::{Full, HashTable, SizeError};
use tidemill_lookup::probe::Probe;

impl<const W: usize> HashTable<W> for FlowTable<W, u64, Keyed<W>> {
    const NAME: &'static str = "flowtable";

    /// The family's callers bring any hash they like: the table's own is used by re-keying only, which they don't.
    fn new(capacity: usize) -> Result<Self, SizeError> {
        FlowTable::new(capacity, Keyed::new(0))
    }

    fn capacity(&self) -> usize {
        self.slots()
    }

    fn len(&self) -> usize {
        FlowTable::len(self)
    }

    fn bytes(&self) -> usize {
        FlowTable::bytes(self)
    }

    #[inline(always)]
    fn get_probed<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        self.find_probed(hash, key, probe).map(|slot| self.word(slot, 0))
    }

    #[inline(always)]
    async fn find(&self, hash: u64, key: &Key<W>) -> Option<u64> {
        self.find_suspended(hash, key).await.map(|slot| self.word(slot, 0))
    }

    fn get_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<u64>]) {
        const BURST: usize = 256;
        let mut slots = [None; BURST];
        for ((hashes, keys), out) in hashes.chunks(BURST).zip(keys.chunks(BURST)).zip(out.chunks_mut(BURST)) {
            self.lookup_batch(hashes, keys, &mut slots[..keys.len()]);
            for (out, slot) in out.iter_mut().zip(slots) {
                let word = self.word_or(slot, 0, 0);
                *out = slot.map(|_| word);
            }
        }
    }

    #[inline]
    fn insert_probed<P: Probe>(
        &mut self,
        hash: u64,
        key: &Key<W>,
        value: u64,
        probe: &P,
    ) -> Result<Option<u64>, Full> {
        use super::Outcome::{Found, New};
        let outcome = self.find_or_insert_probed(0, hash, key, probe);
        let slot = outcome.slot().ok_or(Full)?;
        let before = self.word(slot, 0);
        probe.write(std::ptr::from_ref(&self.store.entry(slot.index())[W + 1]).addr(), 8);
        self.set_word(slot, 0, value);
        match outcome {
            Found(_) => Ok(Some(before)),
            New(_) | super::Outcome::Full => Ok(None),
        }
    }

    fn remove_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        FlowTable::remove_probed(self, hash, key, probe)
    }

    fn scan(&self, cursor: usize, budget: usize, mut visit: impl FnMut(&Key<W>, u64)) -> usize {
        FlowTable::scan(self, cursor, budget, |key, _, value| visit(key, value))
    }

    fn expire(
        &mut self,
        cursor: usize,
        budget: usize,
        mut expired: impl FnMut(&Key<W>, u64) -> bool,
    ) -> usize {
        let visit = |key: &_, _, value| if expired(key, value) { Swept::Goes } else { Swept::Stays };
        self.sweep_from(cursor, budget, visit).0
    }
}
