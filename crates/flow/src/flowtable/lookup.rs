//! Finding flows: one, many, as a coroutine.

use super::group::GROUP;
use super::store::{Place, Store};
use super::tags::{LANES, WORDS, bits};
use super::{FlowTable, Slot, State};
use crate::hash::KeyHash;
use crate::key::Key;
use tidemill_lookup::drive::prefetch;
use tidemill_lookup::probe::Probe;

impl<const W: usize, S: State> Store<W, S> {
    /// The slot of a key among these lanes of a bucket.
    #[inline(always)]
    fn among<P: Probe>(&self, bucket: u32, lanes: u32, key: &Key<W>, probe: &P) -> Option<usize> {
        bits(lanes).map(|lane| bucket as usize * LANES + lane).find(|&slot| self.key_is(slot, key, probe))
    }

    /// The slot of a key. Nearly every key is the first at home with its tag, or home says that it is nowhere. The rest is out of the way: the fewer
    /// instructions a lookup is, the more of those that follow one another wait for memory together.
    #[inline(always)]
    pub(super) fn find<P: Probe>(&self, place: Place, key: &Key<W>, probe: &P) -> Option<usize> {
        let tags = self.tags(place.bucket, probe);
        let matches = tags.matches(place.tag);
        if matches != 0 {
            let slot = place.bucket as usize * LANES + matches.trailing_zeros() as usize;
            if self.key_is(slot, key, probe) {
                return Some(slot);
            }
        } else if tags.strays() == 0 {
            return None;
        }
        self.find_further(place, matches & matches.wrapping_sub(1), key, probe)
    }

    /// The slot of a key among these lanes of its home, or in its other bucket.
    #[inline(never)]
    fn find_further<P: Probe>(&self, place: Place, lanes: u32, key: &Key<W>, probe: &P) -> Option<usize> {
        let Place { bucket, tag } = place;
        let found = self.among(bucket, lanes, key, probe);
        if found.is_some() || self.tags(bucket, &()).strays() == 0 {
            return found;
        }
        let alternate = self.alternate(bucket, tag);
        self.among(alternate, self.tags(alternate, probe).matches(tag), key, probe)
    }

    #[cold]
    #[inline(never)]
    fn find_again(&self, place: Place, key: &Key<W>) -> Option<Slot> {
        self.find(place, key, &()).map(Slot::new)
    }

    /// As [`find`](Self::find), suspended before each line that may miss the cache.
    pub(super) async fn find_suspended(&self, place: Place, key: &Key<W>) -> Option<usize> {
        let Place { mut bucket, tag } = place;
        let mut home = true;
        loop {
            prefetch(self.tags.as_ptr().wrapping_add(bucket as usize * WORDS)).await;
            let tags = self.tags(bucket, &());
            let mut matches = tags.matches(tag);
            while matches != 0 {
                let slot = bucket as usize * LANES + matches.trailing_zeros() as usize;
                prefetch(self.entry(slot).as_ptr()).await;
                if self.key_is(slot, key, &()) {
                    return Some(slot);
                }
                matches &= matches - 1;
            }
            if !home || tags.strays() == 0 {
                return None;
            }
            (home, bucket) = (false, self.alternate(bucket, tag));
        }
    }
}

impl<const W: usize, S: State, H: KeyHash<W> + Clone> FlowTable<W, S, H> {
    /// The slot of a flow.
    #[inline(always)]
    pub fn find(&self, hash: u64, key: &Key<W>) -> Option<Slot> {
        self.find_probed(hash, key, &())
    }

    /// As [`find`](Self::find), telling a probe every access.
    #[inline(always)]
    pub fn find_probed<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<Slot> {
        let store = &self.store;
        let found = store.find(store.place(hash), key, probe);
        if found.is_none() && self.old != 0 {
            return self.find_old(key, probe).map(Slot::new);
        }
        found.map(Slot::new)
    }

    /// The slots of many flows, at once: the misses of 32 lookups overlap, and in longer batches those of one
    /// group with the work of the others. The slices have one length; what lies beyond the
    /// shortest is not looked at.
    pub fn lookup_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<Slot>]) {
        let store = &self.store;
        let n = hashes.len().min(keys.len()).min(out.len());
        let (hashes, keys, out) = (&hashes[..n], &keys[..n], &mut out[..n]);
        store.look::<false>(hashes, keys, false, |group, start| {
            let out = &mut out[start..n.min(start + GROUP)];
            // Without a look at whether there is an i-th slot, so that vectors do all of them.
            for ((i, out), &slot) in out.iter_mut().enumerate().zip(group.slots.iter()) {
                *out = Slot::new_if(group.found >> i & 1 != 0, slot);
            }
            for i in bits(group.unsure()) {
                out[i] = store.find_again(group.place(i), &keys[start + i]);
            }
        });
        if self.old != 0 {
            for (key, out) in keys.iter().zip(out).filter(|(_, out)| out.is_none()) {
                *out = self.find_old(key, &()).map(Slot::new);
            }
        }
    }

    /// The slot of a flow, as a coroutine: see [`tidemill_lookup::drive`].
    #[inline]
    pub async fn find_suspended(&self, hash: u64, key: &Key<W>) -> Option<Slot> {
        let store = &self.store;
        let found = store.find_suspended(store.place(hash), key).await;
        if found.is_none() && self.old != 0 {
            return self.find_old(key, &()).map(Slot::new);
        }
        found.map(Slot::new)
    }
}
