//! Reading beside the writer.

use super::rekey::Generation;
use super::store::{Place, Store};
use super::tags::{LANES, bits};
use super::{FlowTable, State};
use crate::hash::{KeyHash, Keyed};
use crate::key::Key;
use crate::words::{Ordering, fence, pause};
use std::sync::Arc;

/// What a reader sees of a flow. A new flow has a state of zeros until its worker has set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow<S> {
    /// See [`FlowTable::stamp`]. Read on its own: of another moment than the state perhaps.
    pub stamp: u32,
    /// Its state, of one moment. With several words that the writer changes one by one ([`FlowTable::set_word`]): each whole, of
    /// different moments perhaps.
    pub state: S,
}

/// A way to read a [`FlowTable`] that another thread writes, without locks: a lookup begins again only if the writer has
/// taken something out of, moved something in, or changed a state of several words in just those buckets meanwhile.
pub struct FlowReader<const W: usize, S: State = u64, H = Keyed<W>> {
    store: Arc<Store<W, S>>,
    generation: Arc<Generation<H>>,
    /// Generations that it has gone through.
    moves: u64,
}

impl<const W: usize, S: State, H> Clone for FlowReader<W, S, H> {
    fn clone(&self) -> Self {
        FlowReader { store: self.store.clone(), generation: self.generation.clone(), moves: self.moves }
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
        FlowReader { store: self.store.clone(), generation: self.generation.clone(), moves: 0 }
    }
}

/// The writer has changed what a lookup looked at.
struct Changed;

impl<const W: usize, S: State, H: KeyHash<W>> FlowReader<W, S, H> {
    /// The flow of a key. Hashes by itself: the hash may change at any time.
    pub fn get(&mut self, key: &Key<W>) -> Option<Flow<S>> {
        self.get_hashed(self.hash(key), key)
    }

    #[inline(always)]
    fn hash(&self, key: &Key<W>) -> u64 {
        self.generation.hasher.hash(key)
    }

    /// The flow of a key with its hash of the generation that this reader is at.
    #[inline(always)]
    fn get_hashed(&mut self, mut hash: u64, key: &Key<W>) -> Option<Flow<S>> {
        loop {
            while let Some(next) = self.generation.next().cloned() {
                self.generation = next;
                self.moves += 1;
                hash = self.hash(key);
            }
            let Generation { before, settled, .. } = &*self.generation;
            let store = &self.store;
            let place = store.place(hash);
            let before = before.as_ref().filter(|_| settled.load(Ordering::Acquire) == 0);
            let before = before.map(|hasher| store.place(hasher.hash(key)));
            match store.read(place, before, key) {
                Ok(Some(flow)) => return Some(flow),
                // Whoever brought the flow over to a newer hash set that first.
                Ok(None) if self.generation.next().is_none() => return None,
                Ok(None) => {}
                Err(Changed) => pause(),
            }
        }
    }

    /// Asks for the line that a lookup of this key begins with.
    #[inline(always)]
    pub(crate) fn prefetch(&self, key: &Key<W>) {
        let store = &self.store;
        store.prefetch_tags(store.place(self.hash(key)).bucket);
    }

    /// The flows of many keys. The slices have one length.
    pub fn get_batch(&mut self, keys: &[Key<W>], out: &mut [Option<Flow<S>>]) {
        let mut hashes = [0; 32];
        for (keys, out) in keys.chunks(32).zip(out.chunks_mut(32)) {
            self.generation.hasher.hash_batch(keys, &mut hashes);
            for &hash in &hashes[..keys.len()] {
                self.store.prefetch_tags(self.store.place(hash).bucket);
            }
            let moves = self.moves;
            for ((key, out), &hash) in keys.iter().zip(out).zip(&hashes) {
                let hash = if self.moves == moves { hash } else { self.hash(key) };
                *out = self.get_hashed(hash, key);
            }
        }
    }
}

impl<const W: usize, S: State, H> FlowReader<W, S, H> {
    /// Visits the flows of the next `buckets` buckets from `cursor` on, while the writer writes; returns the cursor for the next call: 0
    /// to begin with, 0 again when all have been visited. For lists and statistics from another thread.
    ///
    /// * Every flow visited was in the table, with this key and state (see [`Flow`]), at some moment of the call.
    /// * A flow that is in the table during the whole round is visited exactly once, unless an insertion or a re-keying moves it
    ///   meanwhile: then once, twice or not at all.
    /// * The whole is no picture of one moment: what comes or goes during the round may be seen or not.
    ///
    /// It begins again at a flow only if something left that flow's bucket, or a state there changed, in the few loads that reading it takes.
    pub fn scan(&self, cursor: usize, buckets: usize, mut visit: impl FnMut(&Key<W>, Flow<S>)) -> usize {
        let store = &self.store;
        let all = self.buckets();
        let end = all.min(cursor.saturating_add(buckets.max(1)));
        for bucket in cursor..end {
            for lane in bits(store.tags(bucket as u32, &()).used()) {
                let read = loop {
                    match store.read_slot(bucket as u32, lane) {
                        Ok(read) => break read,
                        Err(Changed) => pause(),
                    }
                };
                if let Some((key, flow)) = read {
                    visit(&key, flow);
                }
            }
        }
        if end >= all { 0 } else { end }
    }

    /// Buckets of the table: what [`scan`](Self::scan) counts in.
    pub fn buckets(&self) -> usize {
        self.store.buckets as usize
    }
}

impl<const W: usize, S: State> Store<W, S> {
    /// One attempt at reading what lies in a slot.
    fn read_slot(&self, bucket: u32, lane: usize) -> Result<Option<(Key<W>, Flow<S>)>, Changed> {
        let version = self.version(bucket);
        // After the version: a tag seen before may be of an entry that has left since, and the version of after that.
        if self.tags(bucket, &()).tag(lane) == 0 {
            return Ok(None);
        }
        let slot = bucket as usize * LANES + lane;
        let key = self.key(slot);
        let (stamp, state) = self.read_state(slot).ok_or(Changed)?;
        let flow = Flow { stamp, state };
        let unchanged = self.versions[bucket as usize].load(Ordering::Relaxed) == version;
        if unchanged { Ok(Some((key, flow))) } else { Err(Changed) }
    }

    /// One attempt at reading a key from its place, and from that under the hash before.
    fn read(&self, place: Place, before: Option<Place>, key: &Key<W>) -> Result<Option<Flow<S>>, Changed> {
        let old = before.unwrap_or(place);
        let buckets = [place, old].map(|Place { bucket, tag }| [bucket, self.alternate(bucket, tag)]);
        let versions = buckets.map(|pair| pair.map(|bucket| self.version(bucket)));
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
                        let (stamp, state) = self.read_state(slot).ok_or(Changed)?;
                        let flow = Flow { stamp, state };
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
