//! Finding or making the flows of many keys at once.

use super::group::{GROUP, Group};
use super::insert::{Effort, Made};
use super::store::Store;
use super::tags::bits;
use super::{FlowTable, Outcome, State};
use crate::hash::KeyHash;
use crate::key::Key;
use std::sync::Arc;
use tidemill_lookup::probe::Probe;

/// When buckets were looked at.
#[derive(Clone, Copy)]
struct Moment {
    /// So many entries had been moved.
    moves: u64,
    /// No flow lay under the hash before.
    settled: bool,
}

impl<const W: usize, S: State, H: KeyHash<W> + Clone> FlowTable<W, S, H> {
    /// For each key its flow, which is made if there is none: one pass instead of a lookup, a decision and an insertion (Fu 5.2.2).
    /// `hashes` are the keys' under [`hasher`](Self::hasher); `now` is the time in whatever the caller counts (seconds, say): the
    /// stamp that [`expire`](Self::expire) goes by. A key that comes twice is new once.
    ///
    /// The first search for room that fails is the last of this call, and ends its insertions (Fu 4.5.2). The calls after it do without
    /// searches for a while ([`LONGEST_REST`](super::LONGEST_REST)), and longer if the next fails too: then a new flow goes into one of its own two
    /// buckets or nowhere. So in a flood that fills the table a packet costs a lookup. The slices have one length; what lies beyond the shortest is not
    /// looked at. The slots in `out` are right at the end of the call, also where insertions moved flows:
    /// each move looks through those given out before, so give batches of bursts (256), not of millions.
    pub fn find_or_insert_batch(&mut self, now: u32, hashes: &[u64], keys: &[Key<W>], out: &mut [Outcome]) {
        self.find_or_insert_batch_with(now, hashes, keys, out, |_| S::new_zeroed());
    }

    /// The same, and a flow that is made begins with what `first` says, asked with the number of its key: one write of the entry instead of two.
    pub fn find_or_insert_batch_with(
        &mut self,
        now: u32,
        hashes: &[u64],
        keys: &[Key<W>],
        out: &mut [Outcome],
        first: impl Fn(usize) -> S,
    ) {
        self.batch::<true, ()>(now, hashes, keys, out, first, &());
    }

    /// As [`find_or_insert_batch`](Self::find_or_insert_batch), by its scalar form, telling a probe every access and every line that is asked
    /// for ahead of its turn.
    pub fn find_or_insert_batch_probed<P: Probe>(
        &mut self,
        now: u32,
        hashes: &[u64],
        keys: &[Key<W>],
        out: &mut [Outcome],
        probe: &P,
    ) {
        self.batch::<false, P>(now, hashes, keys, out, |_| S::new_zeroed(), probe);
    }

    /// By the kernels that this CPU has (`VECTORS`), which no probe hears of, or by what specifies them.
    #[inline(always)]
    fn batch<const VECTORS: bool, P: Probe>(
        &mut self,
        now: u32,
        hashes: &[u64],
        keys: &[Key<W>],
        out: &mut [Outcome],
        first: impl Fn(usize) -> S,
        probe: &P,
    ) {
        let count = hashes.len().min(keys.len()).min(out.len());
        let (hashes, keys, out) = (&hashes[..count], &keys[..count], &mut out[..count]);
        let mut effort = self.next_effort();
        if self.len >= self.most {
            return self.find_batch::<VECTORS, P>(now, hashes, keys, out, probe);
        }
        // What a group says of slots is as old as the beginning of the group before it.
        let mut then = Moment { moves: self.counters.moves, settled: self.old == 0 };
        let (store, search) = (self.hold(), effort == Effort::Search);
        let done = |group: &Group, start: usize| {
            let before = Moment { moves: self.counters.moves, settled: self.old == 0 };
            let keys = &keys[start..keys.len().min(start + GROUP)];
            self.settle_group(now, &store, group, start, keys, then, &mut effort, out, &first, probe);
            then = before;
        };
        if VECTORS {
            store.look::<true>(hashes, keys, search, done);
        } else {
            store.look_probed::<true, P>(hashes, keys, search, probe, done);
        }
        self.aside = Some(store);
    }

    /// As [`find_or_insert_batch_with`](Self::find_or_insert_batch_with), key by key: nothing is looked at ahead of its turn. What a batch may cost holds here too.
    pub fn find_or_insert_each_with(
        &mut self,
        now: u32,
        hashes: &[u64],
        keys: &[Key<W>],
        out: &mut [Outcome],
        first: impl Fn(usize) -> S,
    ) {
        let mut effort = self.next_effort();
        for (i, (&hash, key)) in hashes.iter().zip(keys).enumerate().take(out.len()) {
            if self.len >= self.most {
                effort = Effort::None;
            }
            let (given, rest) = out.split_at_mut(i);
            let place = self.store.place(hash);
            rest[0] = self.find_or_insert_one(now, place, key, &mut effort, given, || first(i), &());
        }
    }

    /// A hold on the store, to be put [aside](Self::aside) again.
    #[inline(always)]
    fn hold(&mut self) -> Arc<Store<W, S>> {
        self.aside.take().unwrap_or_else(|| self.store.clone())
    }

    /// What the first insertion of a batch may cost.
    #[inline(always)]
    fn next_effort(&mut self) -> Effort {
        let effort = if self.rest == 0 { Effort::Search } else { Effort::Look };
        self.rest = self.rest.saturating_sub(1);
        effort
    }

    /// What a batch does that may make no flow: nobody looks for room.
    fn find_batch<const VECTORS: bool, P: Probe>(
        &mut self,
        now: u32,
        hashes: &[u64],
        keys: &[Key<W>],
        out: &mut [Outcome],
        probe: &P,
    ) {
        // Who comes over from another hash is where no group has seen it.
        let settled = self.old == 0;
        let store = self.hold();
        let done = |group: &Group, start: usize| {
            let end = keys.len().min(start + GROUP);
            let out = &mut out[..end];
            let all = u32::MAX >> (GROUP - (end - start));
            out[start..].fill(Outcome::Full);
            let missing = all & !group.found;
            let rest = if settled { group.unsure() } else { missing };
            self.counters.skipped += u64::from((missing & !rest).count_ones());
            self.settle_found(now, group, start, out, probe);
            for i in bits(rest) {
                let (place, key) = (group.place(i), &keys[start + i]);
                let effort = &mut Effort::None;
                out[start + i] = self.find_or_insert_one(now, place, key, effort, out, S::new_zeroed, probe);
            }
        };
        if VECTORS {
            store.look::<false>(hashes, keys, false, done);
        } else {
            store.look_probed::<false, P>(hashes, keys, false, probe, done);
        }
        self.aside = Some(store);
    }

    /// Stamps and gives out the flows of a group that were found.
    #[inline(always)]
    fn settle_found<P: Probe>(&self, now: u32, group: &Group, start: usize, out: &mut [Outcome], probe: &P) {
        for i in bits(group.found) {
            out[start + i] = self.stamp_now(group.slots[i] as usize, now, probe);
        }
    }

    /// Finds or makes the flows of a group's keys, of which the first is number `start`. What was seen of them `then` holds unless an entry
    /// has moved since. (Who comes over from another hash makes room, also the last.)
    ///
    /// Flows that were found come first, and with them what is turned away without a search; then the others, in their order. Neither makes
    /// room nor takes it, so the order changes nothing, and no jump depends on whether a packet is of a flow or of a flood.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn settle_group<P: Probe>(
        &mut self,
        now: u32,
        store: &Store<W, S>,
        group: &Group,
        start: usize,
        keys: &[Key<W>],
        then: Moment,
        effort: &mut Effort,
        out: &mut [Outcome],
        first: &impl Fn(usize) -> S,
        probe: &P,
    ) {
        // All of the group's: a search may move a flow that has been given out ahead of its turn.
        let out = &mut out[..start + keys.len()];
        let mut rest = u32::MAX >> (GROUP - keys.len());
        if self.counters.moves == then.moves {
            let away = if then.settled && *effort != Effort::Search { group.hopeless } else { 0 };
            if away != 0 {
                out[start..].fill(Outcome::Full);
                self.counters.skipped += u64::from(away.count_ones());
            }
            self.settle_found(now, group, start, out, probe);
            rest &= !(group.found | away);
            if *effort == Effort::Search {
                bits(rest & group.hopeless).for_each(|i| store.ask_move(group.place(i).bucket, probe));
            }
            // Those that are new and have room, up to one that has to be looked after; so on behind it.
            while then.settled && rest != 0 && *effort != Effort::None && self.len + GROUP <= self.most {
                let head = u64::from(now) | self.generation_flag();
                let first_of = |i| first(start + i);
                let mut made = Made { bits: 0, len: &mut self.len, inserted: &mut self.counters.inserted };
                store.put_group(group, rest, head, keys, &mut out[start..], first_of, &mut made, probe);
                rest &= !made.bits;
                drop(made);
                let Some(i) = bits(rest).next() else { break };
                rest &= rest - 1;
                out[start + i] =
                    self.settle_one(now, group, start, i, &keys[i], then, effort, out, first, probe);
            }
        }
        for i in bits(rest) {
            out[start + i] = self.settle_one(now, group, start, i, &keys[i], then, effort, out, first, probe);
        }
    }

    /// Finds or makes the flow of key `i` of a group, whatever has become of what was seen.
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    fn settle_one<P: Probe>(
        &mut self,
        now: u32,
        group: &Group,
        start: usize,
        i: usize,
        key: &Key<W>,
        then: Moment,
        effort: &mut Effort,
        out: &mut [Outcome],
        first: &impl Fn(usize) -> S,
        probe: &P,
    ) -> Outcome {
        if self.len >= self.most {
            *effort = Effort::None;
        }
        let sure = self.counters.moves == then.moves && then.settled;
        let place = group.place(i);
        if sure && group.hopeless >> i & 1 != 0 {
            // Known to be new: it finds room in a search or not at all.
            if *effort == Effort::Search {
                return self.insert_new(now, place, key, effort, out, || first(start + i), probe);
            }
            self.counters.skipped += 1;
            return Outcome::Full;
        }
        self.find_or_insert_one(now, place, key, effort, out, || first(start + i), probe)
    }
}
