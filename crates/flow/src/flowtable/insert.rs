//! Putting flows in and taking them out.

use super::group::{Group, ask_line};
use super::store::{GENERATION, IN_ALTERNATE, Place, Store};
use super::tags::{LANES, Tags, WORDS, bits};
use super::{FlowTable, Outcome, Slot, State};
use crate::hash::KeyHash;
use crate::key::Key;
use crate::words::Ordering;
use std::hint::select_unpredictable;
use tidemill_lookup::probe::Probe;

/// Buckets that an insertion looks at, before it gives up: its own two, and the other bucket of each entry in these.
pub const SEARCH: usize = 2 + 2 * LANES;

/// Entries whose other buckets a search asks for at once: nearly always one of the first few may move, and all others' lines would be asked for in vain.
/// A key that is turned away in the end has asked for so many ([`Store::ask_search`]), and for what a move touches: with its own buckets at most
/// what a lookup may touch.
const ASKED: usize = 4;
const _: () = assert!(ASKED + 4 <= 2 * MOST_EQUAL_TAGS, "of entries of a line: two of them, two versions");
const FIRST_ASKED: u32 = (1 << ASKED) - 1;

/// Keys of one tag that a bucket holds at most; more go to their alternate or nowhere. With a hash that the attacker does not know
/// that does not happen: 31 keys, 65,535 tags.
pub const MOST_EQUAL_TAGS: usize = 4;

/// Batches that do without searches after one has failed: 1, then 3, 7 and so on as more fail in a row, up to this.
pub const LONGEST_REST: u32 = 63;

/// What an insertion may cost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// A search for an entry to move.
    Search,
    /// A look at the key's own two buckets.
    Look,
    /// Nothing: one of this batch has failed.
    None,
}

/// What goes into a slot.
pub(super) struct New<'a, const W: usize, S> {
    pub(super) key: &'a Key<W>,
    pub(super) head: u64,
    pub(super) state: S,
}

/// What a group has made so far. Counted at the end, also where that is a panic of who says what states begin with.
pub(super) struct Made<'a> {
    pub(super) bits: u32,
    pub(super) len: &'a mut usize,
    pub(super) inserted: &'a mut u64,
}

impl Drop for Made<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let count = self.bits.count_ones();
        *self.len += count as usize;
        *self.inserted += u64::from(count);
    }
}

impl<const W: usize, S: State> Store<W, S> {
    /// A free slot of a bucket for a key of this tag.
    #[inline(always)]
    fn room(bucket: u32, tags: Tags, tag: u16) -> Option<usize> {
        let free = Self::preferred(bucket, tags.free());
        (free != 0 && Self::may_join(tags, tag)).then(|| free.trailing_zeros() as usize)
    }

    #[inline(always)]
    fn may_join(tags: Tags, tag: u16) -> bool {
        tags.matches(tag).count_ones() < MOST_EQUAL_TAGS as u32
    }

    /// Writes a new entry into a free slot of one of the two buckets of its key.
    #[inline(always)]
    fn put<P: Probe>(&self, place: Place, bucket: u32, lane: usize, new: &New<W, S>, probe: &P) -> usize {
        let slot = bucket as usize * LANES + lane;
        let stray = bucket != place.bucket;
        let head = if stray { new.head | IN_ALTERNATE } else { new.head };
        self.write_entry(slot, new.key, head, &new.state, probe);
        if stray {
            self.one_more_stray(place.bucket, probe);
        }
        self.set_tag(bucket, lane, place.tag, probe);
        slot
    }

    /// Makes the flows of the first among a group's keys, as long as they are new and have room in one of their buckets: the lane that was free is free still.
    /// Whoever came to that bucket meanwhile has taken that lane; so nobody did, and the key is new still. A move gives the place that it makes away at once, so a home
    /// that was full is full. `made` has the bits of those made.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn put_group<P: Probe>(
        &self,
        group: &Group,
        among: u32,
        head: u64,
        keys: &[Key<W>],
        out: &mut [Outcome],
        first: impl Fn(usize) -> S,
        made: &mut Made,
        probe: &P,
    ) {
        let (keys, out) = (&keys[..keys.len().min(out.len())], &mut out[..]);
        let buckets = self.tags.as_chunks::<WORDS>().0;
        // Up to the lowest that is neither.
        let others = among & !(group.welcome | group.guests);
        for i in bits(among & (others & others.wrapping_neg()).wrapping_sub(1)) {
            let is_guest = group.guests >> i & 1 != 0;
            let Place { bucket: home, tag } = group.place(i);
            let bucket = select_unpredictable(is_guest, group.other(i), home);
            let lane = group.lane(i);
            let tags = Tags(&buckets[bucket as usize]);
            if tags.tag(lane) != 0 {
                break;
            }
            let (slot, state) = (bucket as usize * LANES + lane, first(i));
            self.write_entry(slot, &keys[i], head | (u64::from(is_guest) * IN_ALTERNATE), &state, probe);
            if is_guest {
                self.one_more_stray(home, probe);
            }
            probe.write(std::ptr::from_ref(&tags.0[lane / 4]).addr(), 8);
            tags.set(lane, tag);
            out[i] = Outcome::New(Slot::new(slot));
            made.bits |= 1 << i;
        }
    }

    /// Moves an entry to a free slot of its other bucket.
    fn shift<P: Probe>(&self, from: (u32, usize), to: (u32, usize), probe: &P) {
        let slot = |(bucket, lane): (u32, usize)| bucket as usize * LANES + lane;
        let head = self.head(slot(from)).load(Ordering::Relaxed);
        let tag = self.tags(from.0, probe).tag(from.1);
        let stray = head & IN_ALTERNATE != 0;
        let home = if stray { to.0 } else { from.0 };
        self.copy_entry(slot(from), slot(to), head ^ IN_ALTERNATE, probe);
        self.set_tag(to.0, to.1, tag, probe);
        if !stray {
            self.one_more_stray(home, probe);
        }
        // A reader that has begun at home before the copy begins again if it does not see the original any more.
        self.raise_version(home, probe);
        self.clear(from, probe);
        if stray {
            self.one_less_stray(home, probe);
        }
    }

    /// Takes the tag of an entry away and says so. The strays of its home are the caller's.
    fn clear<P: Probe>(&self, (bucket, lane): (u32, usize), probe: &P) {
        self.set_tag(bucket, lane, 0, probe);
        self.raise_version(bucket, probe);
    }

    /// Takes an entry out.
    pub(super) fn take_out<P: Probe>(&self, slot: usize, probe: &P) {
        let (bucket, lane) = ((slot / LANES) as u32, slot % LANES);
        let tag = self.tags(bucket, probe).tag(lane);
        let stray = self.head(slot).load(Ordering::Relaxed) & IN_ALTERNATE != 0;
        self.clear((bucket, lane), probe);
        if stray {
            self.one_less_stray(self.alternate(bucket, tag), probe);
        }
    }

    /// Puts a key that is not in the table into one of its buckets, after a move if need be, of which `moved` is told. `None`:
    /// no room, and nothing has changed.
    #[inline(always)]
    pub(super) fn insert<P: Probe>(
        &self,
        place: Place,
        new: &New<W, S>,
        effort: Effort,
        moved: impl FnMut(usize, usize),
        probe: &P,
    ) -> Option<usize> {
        if let Some(lane) = Self::room(place.bucket, self.tags(place.bucket, probe), place.tag) {
            return Some(self.put(place, place.bucket, lane, new, probe));
        }
        self.insert_away(place, new, effort, moved, probe)
    }

    /// Asks for where a search for room in this full bucket begins: the other buckets of its first entries.
    pub(super) fn ask_search<P: Probe>(&self, bucket: u32, probe: &P) {
        let tags = self.tags(bucket, &());
        for lane in bits(FIRST_ASKED) {
            let other = self.alternate(bucket, tags.tag(lane));
            ask_line(self.tags.as_ptr().wrapping_add(other as usize * WORDS), probe);
        }
    }

    /// Asks for what the move touches that such a search finds, when what [`ask_search`](Self::ask_search) asks for is there.
    pub(super) fn ask_move<P: Probe>(&self, bucket: u32, probe: &P) {
        let tags = self.tags(bucket, &());
        for lane in bits(FIRST_ASKED) {
            let tag = tags.tag(lane);
            let other = self.alternate(bucket, tag);
            if let Some(free) = Self::room(other, self.tags(other, &()), tag) {
                for (bucket, lane) in [(bucket, lane), (other, free)] {
                    self.ask_entry(bucket as usize * LANES + lane, probe);
                    ask_line(&raw const self.versions[bucket as usize], probe);
                }
                return;
            }
        }
    }

    #[cold]
    fn insert_away<P: Probe>(
        &self,
        place: Place,
        new: &New<W, S>,
        effort: Effort,
        mut moved: impl FnMut(usize, usize),
        probe: &P,
    ) -> Option<usize> {
        let alternate = self.alternate(place.bucket, place.tag);
        if let Some(lane) = Self::room(alternate, self.tags(alternate, probe), place.tag) {
            return Some(self.put(place, alternate, lane, new, probe));
        }
        if effort != Effort::Search {
            return None;
        }
        for bucket in [place.bucket, alternate] {
            let tags = self.tags(bucket, probe);
            if !Self::may_join(tags, place.tag) {
                continue;
            }
            for some in (0..LANES).step_by(ASKED).map(|from| tags.used() & (FIRST_ASKED << from)) {
                for lane in bits(some) {
                    self.prefetch_tags(self.alternate(bucket, tags.tag(lane)));
                }
                for lane in bits(some) {
                    let tag = tags.tag(lane);
                    let other = self.alternate(bucket, tag);
                    if other == bucket {
                        continue;
                    }
                    if let Some(free) = Self::room(other, self.tags(other, probe), tag) {
                        self.shift((bucket, lane), (other, free), probe);
                        moved(bucket as usize * LANES + lane, other as usize * LANES + free);
                        return Some(self.put(place, bucket, lane, new, probe));
                    }
                }
            }
        }
        None
    }
}

impl<const W: usize, S: State, H: KeyHash<W> + Clone> FlowTable<W, S, H> {
    /// Makes the flow of a key that is new in a free lane of its home.
    #[inline(always)]
    pub(super) fn make<P: Probe>(
        &mut self,
        now: u32,
        place: Place,
        key: &Key<W>,
        lane: usize,
        state: S,
        probe: &P,
    ) -> Outcome {
        let new = New { key, head: u64::from(now) | self.generation_flag(), state };
        let slot = self.store.put(place, place.bucket, lane, &new, probe);
        self.len += 1;
        self.counters.inserted += 1;
        Outcome::New(Slot::new(slot))
    }

    #[inline(always)]
    pub(super) fn stamp_now<P: Probe>(&self, slot: usize, now: u32, probe: &P) -> Outcome {
        self.store.stamp(slot, now, probe);
        Outcome::Found(Slot::new(slot))
    }

    /// [`find_or_insert_batch`](Self::find_or_insert_batch) for one key, which always searches for room: for the control side, and where
    /// flows come one by one. On a data path that may be flooded use the batch.
    #[inline]
    pub fn find_or_insert(&mut self, now: u32, hash: u64, key: &Key<W>) -> Outcome {
        self.find_or_insert_probed(now, hash, key, &())
    }

    /// As [`find_or_insert`](Self::find_or_insert), telling a probe every access.
    pub fn find_or_insert_probed<P: Probe>(
        &mut self,
        now: u32,
        hash: u64,
        key: &Key<W>,
        probe: &P,
    ) -> Outcome {
        let place = self.store.place(hash);
        self.find_or_insert_one(now, place, key, &mut Effort::Search, &mut [], S::new_zeroed, probe)
    }

    /// One of a batch, which has given out slots before. A flow that is made begins with what `first` says.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn find_or_insert_one<P: Probe>(
        &mut self,
        now: u32,
        place: Place,
        key: &Key<W>,
        effort: &mut Effort,
        given: &mut [Outcome],
        first: impl Fn() -> S,
        probe: &P,
    ) -> Outcome {
        let store = &self.store;
        // Most new keys go home: one look at its tags tells that they are new and that there is room.
        let tags = store.tags(place.bucket, probe);
        let matches = tags.matches(place.tag);
        if (matches == 0) & (tags.strays() == 0) & (self.old == 0) && *effort != Effort::None {
            let free = Store::<W, S>::preferred(place.bucket, tags.free());
            if free != 0 {
                return self.make(now, place, key, free.trailing_zeros() as usize, first(), probe);
            }
        }
        let mut found = store.find(place, key, probe);
        if found.is_none() && self.old != 0 {
            found = self.bring_over(place, key, effort, given, probe);
        }
        if let Some(slot) = found {
            return self.stamp_now(slot, now, probe);
        }
        if *effort == Effort::None {
            self.counters.skipped += 1;
            return Outcome::Full;
        }
        self.insert_new(now, place, key, effort, given, first, probe)
    }

    /// The same for a key that is not in the table, where flows may be made.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn insert_new<P: Probe>(
        &mut self,
        now: u32,
        place: Place,
        key: &Key<W>,
        effort: &mut Effort,
        given: &mut [Outcome],
        first: impl Fn() -> S,
        probe: &P,
    ) -> Outcome {
        let new = New { key, head: u64::from(now) | self.generation_flag(), state: first() };
        let mut moves = 0;
        let moved = |from, to| {
            moves += 1;
            correct(given, from, to);
        };
        let slot = self.store.insert(place, &new, *effort, moved, probe);
        self.counters.moves += moves;
        match slot {
            Some(slot) => {
                self.len += 1;
                self.counters.inserted += 1;
                if moves != 0 {
                    self.failures = 0;
                }
                Outcome::New(Slot::new(slot))
            }
            None if *effort == Effort::Look => {
                self.counters.skipped += 1;
                Outcome::Full
            }
            None => {
                self.counters.failed += 1;
                self.rest_after_failure(effort);
                Outcome::Full
            }
        }
    }

    /// A search has failed: the last for a while.
    pub(super) fn rest_after_failure(&mut self, effort: &mut Effort) {
        *effort = Effort::None;
        self.rest = (2 << self.failures) - 1;
        self.failures = (self.failures + 1).min(LONGEST_REST.ilog2());
    }

    /// Asks the cache for the entry that the next new key with this hash gets, where it gets one at home: that slot. `None`: home has no room, and
    /// nothing is asked for. It looks at home's tags, so ask when a [`lookup_batch`](Self::lookup_batch) has brought them.
    #[inline]
    pub fn prefetch_insert(&self, hash: u64) -> Option<Slot> {
        let (store, Place { bucket, tag }) = (&self.store, self.store.place(hash));
        let lane = Store::<W, S>::room(bucket, store.tags(bucket, &()), tag)?;
        let slot = bucket as usize * LANES + lane;
        store.prefetch_entry(slot);
        Some(Slot::new(slot))
    }

    /// As [`find_or_insert`](Self::find_or_insert), for tables that are full of flows of different worth: where the two buckets of a new
    /// key have no room, the first of their flows for which `may_go` is true of key, stamp and state is taken out, and the new one has its
    /// slot. Nothing moves. `may_go` is asked at most `2 * 31` times, from a place on that the hash chooses, and not again
    /// once it has said yes; where it never does, nothing changes.
    pub fn find_or_replace(
        &mut self,
        now: u32,
        hash: u64,
        key: &Key<W>,
        mut may_go: impl FnMut(&Key<W>, u32, S) -> bool,
    ) -> Outcome {
        let place = self.store.place(hash);
        let outcome =
            self.find_or_insert_one(now, place, key, &mut Effort::Look, &mut [], S::new_zeroed, &());
        if outcome != Outcome::Full {
            return outcome;
        }
        let store = &self.store;
        // Of one tag a bucket takes no more than so many: then one of these must go.
        let candidates = |bucket: u32| {
            let tags = store.tags(bucket, &());
            let all = Store::<W, S>::may_join(tags, place.tag);
            let mask = if all { tags.used() } else { tags.matches(place.tag) };
            // Those from some lane on, then those before it.
            let before = (1 << (((hash >> 16) as u32 & 0xffff) % LANES as u32)) - 1;
            bits(mask & !before).chain(bits(mask & before)).map(move |lane| (bucket, lane))
        };
        let alternate = store.alternate(place.bucket, place.tag);
        let other = (alternate != place.bucket).then_some(alternate);
        let gives_way =
            [Some(place.bucket), other].into_iter().flatten().flat_map(candidates).find(|&(bucket, lane)| {
                let slot = bucket as usize * LANES + lane;
                let stamp = store.head(slot).load(Ordering::Relaxed) as u32;
                may_go(&store.key(slot), stamp, store.state(slot))
            });
        let Some((bucket, lane)) = gives_way else { return Outcome::Full };
        self.forget(bucket as usize * LANES + lane, &());
        let new = New { key, head: u64::from(now) | self.generation_flag(), state: S::new_zeroed() };
        let slot = self.store.put(place, bucket, lane, &new, &());
        self.len += 1;
        // It was counted as turned away.
        self.counters.skipped -= 1;
        self.counters.inserted += 1;
        self.counters.replaced += 1;
        Outcome::New(Slot::new(slot))
    }

    /// Takes a flow out; returns its last state.
    pub fn remove(&mut self, hash: u64, key: &Key<W>) -> Option<S> {
        self.remove_probed(hash, key, &())
    }

    /// As [`remove`](Self::remove), telling a probe every access.
    pub fn remove_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, probe: &P) -> Option<S> {
        let slot = self.find_probed(hash, key, probe)?.index();
        let state = self.store.state(slot);
        self.forget(slot, probe);
        Some(state)
    }

    /// Takes out the flow of a slot that is good still; returns its last state.
    pub fn remove_at(&mut self, slot: Slot) -> S {
        let state = self.state(slot);
        self.discard_at(slot);
        state
    }

    /// The same for who has no use for the state, or has read the words that it wants.
    pub fn discard_at(&mut self, slot: Slot) {
        let slot = slot.index();
        let tag = self.store.tags((slot / LANES) as u32, &()).tag(slot % LANES);
        debug_assert_ne!(tag, 0, "no flow is in slot {slot}");
        self.forget(slot, &());
    }

    /// Takes out what is in a slot, and counts.
    pub(super) fn forget<P: Probe>(&mut self, slot: usize, probe: &P) {
        let store = &self.store;
        let generation = store.head(slot).load(Ordering::Relaxed) & GENERATION;
        store.take_out(slot, probe);
        self.len -= 1;
        if generation != self.generation_flag() {
            self.old -= 1;
            self.settle();
        }
    }
}

/// Follows a move in the slots that a batch has given out.
pub(super) fn correct(given: &mut [Outcome], from: usize, to: usize) {
    let (from, to) = (Slot::new(from), Slot::new(to));
    for outcome in given {
        if let Outcome::Found(slot) | Outcome::New(slot) = outcome
            && *slot == from
        {
            *slot = to;
        }
    }
}
