//! Walking the table: a few buckets at a time.

use super::tags::{LANES, bits};
use super::{FlowTable, Slot, State};
use crate::key::Key;
use crate::words::Ordering;

/// What becomes of a flow that a [sweep](FlowTable::sweep) visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept<S> {
    /// It stays as it is.
    Stays,
    /// It stays with this state.
    Becomes(S),
    /// It is taken out.
    Goes,
}

impl<const W: usize, S: State, H> FlowTable<W, S, H> {
    /// Visits the flows of the next `buckets` buckets from `cursor` on with key, stamp and state; returns the cursor for the next call: 0 to begin
    /// with, 0 again when all have been visited. A flow that an insertion moves during a round may be visited twice or not at all.
    pub fn scan(&self, cursor: usize, buckets: usize, mut visit: impl FnMut(&Key<W>, u32, S)) -> usize {
        let store = &self.store;
        let all = store.buckets as usize;
        let end = all.min(cursor.saturating_add(buckets.max(1)));
        for bucket in cursor..end {
            for lane in bits(store.tags(bucket as u32, &()).used()) {
                let slot = bucket * LANES + lane;
                let stamp = store.head(slot).load(Ordering::Relaxed) as u32;
                visit(&store.key(slot), stamp, store.state(slot));
            }
        }
        if end >= all { 0 } else { end }
    }
}

impl<const W: usize, S: State, H: crate::hash::KeyHash<W> + Clone> FlowTable<W, S, H> {
    /// Takes out those flows of the next `buckets` buckets for which `expired` is true of key, stamp and state; returns how many. Call it a few
    /// buckets at a time, between bursts: it goes round and round on its own. A few per burst keep up with any flood if they
    /// are at least the insertions of a burst.
    pub fn expire(&mut self, buckets: usize, mut expired: impl FnMut(&Key<W>, u32, S) -> bool) -> usize {
        self.sweep(buckets, |key, stamp, state| match expired(key, stamp, state) {
            true => Swept::Goes,
            false => Swept::Stays,
        })
    }

    /// The same, and flows may get other states; returns how many were taken out. It shares its place with [`expire`](Self::expire).
    pub fn sweep(&mut self, buckets: usize, visit: impl FnMut(&Key<W>, u32, S) -> Swept<S>) -> usize {
        let cursor = self.expire_cursor as usize;
        let (next, gone) = self.sweep_from(cursor, buckets, visit);
        let end = if next == 0 { self.store.buckets as usize } else { next };
        self.counters.swept += end.saturating_sub(cursor) as u64;
        self.expire_cursor = next as u32;
        gone
    }

    /// The same from a cursor of the caller's, as in [`scan`](Self::scan): the next cursor, and how many were taken out.
    pub(super) fn sweep_from(
        &mut self,
        cursor: usize,
        buckets: usize,
        mut visit: impl FnMut(&Key<W>, u32, S) -> Swept<S>,
    ) -> (usize, usize) {
        let all = self.store.buckets as usize;
        let end = all.min(cursor.saturating_add(buckets.max(1)));
        let mut gone = 0;
        for bucket in cursor..end {
            for lane in bits(self.store.tags(bucket as u32, &()).used()) {
                let slot = bucket * LANES + lane;
                let store = &self.store;
                let stamp = store.head(slot).load(Ordering::Relaxed) as u32;
                match visit(&store.key(slot), stamp, store.state(slot)) {
                    Swept::Stays => {}
                    Swept::Becomes(state) => self.set_state(Slot::new(slot), state),
                    Swept::Goes => {
                        self.forget(slot, &());
                        gone += 1;
                    }
                }
            }
        }
        (if end >= all { 0 } else { end }, gone)
    }
}
