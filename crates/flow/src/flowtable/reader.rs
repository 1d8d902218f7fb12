//! Reading beside the writer.

use super::rekey::Generation;
use super::store::{Place, Store};
use super::tags::{LANES, bits};
use super::{FlowTable, Shared, State};
use crate::hash::KeyHash;
use crate::key::Key;
use crate::words::{Ordering, fence, pause};
use std::sync::Arc;

/// What a reader sees of a flow: of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow<S> {
    /// See [`FlowTable::stamp`].
    pub stamp: u32,
    /// Its state. With several words that the writer changes one by one ([`FlowTable::set_word`]): each whole, of
    /// different moments perhaps.
    pub state: S,
}

/// A way to read a [`FlowTable`] that another thread writes, without locks: a lookup begins again only if the writer has
/// taken something out of, or moved something in, just those buckets meanwhile.
pub struct FlowReader<const W: usize, S: State, H> {
    shared: Arc<Shared<W, S>>,
    generation: Arc<Generation<H>>,
}

impl<const W: usize, S: State, H> Clone for FlowReader<W, S, H> {
    fn clone(&self) -> Self {
        FlowReader { shared: self.shared.clone(), generation: self.generation.clone() }
    }
}

impl<const W: usize, S: State, H> std::fmt::Debug for FlowReader<W, S, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowReader").finish_non_exhaustive()
    }
}

impl<const W: usize, S: State, H> FlowTable<W, S, H> {
    /// A reader for another thread.
    pub fn reader(&self) -> FlowReader<W, S, H> {
        FlowReader { shared: self.shared.clone(), generation: self.generation.clone() }
    }
}

/// The writer has changed what a lookup looked at.
struct Changed;

impl<const W: usize, S: State, H: KeyHash<W>> FlowReader<W, S, H> {
    /// The flow of a key. Hashes by itself: the hash may change at any time.
    pub fn get(&mut self, key: &Key<W>) -> Option<Flow<S>> {
        loop {
            while let Some(next) = self.generation.next.get() {
                self.generation = next.clone();
            }
            let Generation { hasher, before, settled, next, .. } = &*self.generation;
            let store = &self.shared.store;
            let place = store.place(hasher.hash(key));
            let before = before.as_ref().filter(|_| settled.load(Ordering::Acquire) == 0);
            let before = before.map(|hasher| store.place(hasher.hash(key)));
            match store.read(place, before, key) {
                Ok(Some(flow)) => return Some(flow),
                // Whoever brought the flow over to a newer hash set that first.
                Ok(None) if next.get().is_none() => return None,
                Ok(None) => {}
                Err(Changed) => pause(),
            }
        }
    }

    /// The flows of many keys. The slices have one length.
    pub fn get_batch(&mut self, keys: &[Key<W>], out: &mut [Option<Flow<S>>]) {
        for (keys, out) in keys.chunks(32).zip(out.chunks_mut(32)) {
            for key in keys {
                let store = &self.shared.store;
                store.prefetch_tags(store.place(self.generation.hasher.hash(key)).bucket);
            }
            for (key, out) in keys.iter().zip(out) {
                *out = self.get(key);
            }
        }
    }
}

impl<const W: usize, S: State> Store<W, S> {
    /// One attempt at reading a key from its place, and from that under the hash before.
    fn read(&self, place: Place, before: Option<Place>, key: &Key<W>) -> Result<Option<Flow<S>>, Changed> {
        let old = before.unwrap_or(place);
        let buckets = [place, old].map(|Place { bucket, tag }| [bucket, self.alternate(bucket, tag)]);
        let versions = buckets.map(|pair| pair.map(|bucket| self.version(bucket)));
        if versions.as_flattened().iter().any(|version| version % 2 == 1) {
            return Err(Changed);
        }
        let same =
            |bucket: u32, version: u64| self.versions[bucket as usize].load(Ordering::Relaxed) == version;
        let hashes = 1 + usize::from(before.is_some());
        for (pair, (versions, tag)) in
            buckets.iter().zip(versions.iter().zip([place.tag, old.tag])).take(hashes)
        {
            for (&bucket, &version) in pair.iter().zip(versions) {
                let tags = self.tags(bucket, &());
                for lane in bits(tags.matches(tag)) {
                    let slot = bucket as usize * LANES + lane;
                    if self.key_is(slot, key, &()) {
                        let stamp = self.head(slot).load(Ordering::Relaxed) as u32;
                        let flow = Flow { stamp, state: self.state(slot) };
                        fence(Ordering::Acquire);
                        return if same(bucket, version) { Ok(Some(flow)) } else { Err(Changed) };
                    }
                }
                if tags.strays() == 0 {
                    break;
                }
            }
        }
        fence(Ordering::Acquire);
        let all = buckets.as_flattened().iter().zip(versions.as_flattened());
        if all.into_iter().all(|(&bucket, &version)| same(bucket, version)) { Ok(None) } else { Err(Changed) }
    }
}
