//! Connections that wait for an answer: a bounded number of them, and a bounded number of each source, in the order in which they came. Who comes when there
//! is no room has the oldest give way: its own source's oldest, if that has too many. So a flood with forged sources turns over the
//! room for those that wait and nothing else, and one from a single source turns over its own few places. Half-open connections of TCP have one such list.
//!
//! ```text
//! all:        oldest <-> ... <-> ... <-> newest        one list through every place taken
//! source A:   oldest <-> newest                        another one through those of each source
//! ```

use tidemill_flow::flowtable::{FlowTable, Outcome, Slot};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;
use tidemill_lookup::prefetch::prefetch_read;

/// Connections that are [asked for ahead](HalfOpen::ask_ahead) at a time: what that brings should be there still when it is their turn.
pub(crate) const AHEAD: usize = 32;

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
}

const LOOSE: Link = Link { older: NONE, newer: NONE };

#[derive(Clone, Copy)]
struct Place<const W: usize> {
    key: Key<W>,
    source: u128,
    all: Link,
    own: Link,
}

/// See the [module](self). Keys are connections'.
pub(crate) struct HalfOpen<const W: usize> {
    places: Box<[Place<W>]>,
    /// Places that are free.
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    /// Who gives way some time after those that the last look ahead told: a place that has been asked for.
    next: u32,
    /// Of each source: how many, and its oldest and newest.
    sources: FlowTable<2, [u64; 2]>,
    of_source: u32,
}

impl<const W: usize> HalfOpen<W> {
    /// Bytes of memory for each that there is room for.
    pub(crate) const BYTES_PER_PLACE: f64 =
        size_of::<Place<W>>() as f64 + 4.0 + 2.0 * FlowTable::<2, [u64; 2]>::BYTES_PER_SLOT;

    /// Room for so many, and for so many of one source.
    pub(crate) fn new(room: usize, of_source: u32, secret: u128) -> Result<Self, SizeError> {
        let room = room.clamp(1, NONE as usize - 1);
        let empty = Place { key: Key([0; W]), source: 0, all: LOOSE, own: LOOSE };
        Ok(HalfOpen {
            places: vec![empty; room].into(),
            free: (0..room as u32).rev().collect(),
            oldest: NONE,
            newest: NONE,
            next: NONE,
            // Up to half of its slots are taken: every source finds one.
            sources: FlowTable::new(2 * room, Keyed::new(secret))?,
            of_source: of_source.max(1),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.places.len() * (size_of::<Place<W>>() + 4) + self.sources.bytes()
    }

    /// Who has to give way before another one of this source can come: its own oldest, or the oldest of all.
    pub(crate) fn in_the_way(&self, source: u128) -> Option<Key<W>> {
        let key = key_of(source);
        if let Some(slot) = self.sources.find(self.sources.hasher().hash(&key), &key) {
            let [count, ends] = self.sources.state(slot);
            if count >= u64::from(self.of_source) {
                return self.places.get((ends >> 32) as usize).map(|place| place.key);
            }
        }
        if self.free.is_empty() { self.oldest() } else { None }
    }

    /// The oldest of all.
    pub(crate) fn oldest(&self) -> Option<Key<W>> {
        self.places.get(self.oldest as usize).map(|place| place.key)
    }

    /// Asks the cache for what [`add`](Self::add) will touch for new ones of these sources, [`AHEAD`] at most, and tells `gives_way` who has to go for them, each
    /// with its source: for the first `spare` nobody, unless their source has too many. What comes between may make it others.
    pub(crate) fn ask_ahead(
        &mut self,
        new: &[Key<2>],
        spare: usize,
        mut gives_way: impl FnMut(Key<W>, Key<2>),
    ) {
        let new = &new[..new.len().min(AHEAD)];
        let (mut hashes, mut slots) = ([0_u64; AHEAD], [None; AHEAD]);
        self.sources.hasher().hash_batch(new, &mut hashes);
        self.sources.lookup_batch(&hashes, new, &mut slots);
        let (spare, most) = (spare.min(self.free.len()), u64::from(self.of_source));
        let (mut taken, mut oldest) = (0, self.oldest);
        // The last source that had too many, and who of it goes after the one that was told.
        let mut own: (Option<Slot>, u32) = (None, NONE);
        for (hash, slot) in hashes.iter().zip(slots).take(new.len()) {
            let known = slot.map(|slot| self.sources.state(slot));
            if let Some([_, ends]) = known {
                self.prefetch(ends as u32);
            } else {
                self.sources.prefetch_insert(*hash);
            }
            let full = known.filter(|[count, _]| *count >= most);
            let number = match full {
                Some(_) if own.0 == slot => own.1,
                Some([_, ends]) => (ends >> 32) as u32,
                None if taken < spare => {
                    taken += 1;
                    self.prefetch(self.free[self.free.len() - taken]);
                    continue;
                }
                None => oldest,
            };
            let Some(place) = self.places.get(number as usize) else { continue };
            if full.is_some() {
                own = (slot, place.own.newer);
            } else {
                oldest = place.all.newer;
            }
            self.prefetch(place.own.newer);
            gives_way(place.key, key_of(place.source));
        }
        if oldest != self.oldest {
            self.next = oldest;
            self.prefetch(oldest);
        }
    }

    /// The same of [`take`](Self::take), by sources of those that will go, [`AHEAD`] at most.
    pub(crate) fn ask_sources(&self, of: &[Key<2>]) {
        let of = &of[..of.len().min(AHEAD)];
        let (mut hashes, mut slots) = ([0_u64; AHEAD], [None; AHEAD]);
        self.sources.hasher().hash_batch(of, &mut hashes);
        self.sources.lookup_batch(&hashes, of, &mut slots);
        slots.into_iter().flatten().for_each(|slot| self.sources.prefetch_remove(slot));
    }

    /// Asks for a place, which may lie on two lines.
    fn prefetch(&self, number: u32) {
        if let Some(place) = self.places.get(number as usize) {
            let place = std::ptr::from_ref(place);
            prefetch_read(place);
            prefetch_read(place.wrapping_add(1).cast::<u8>().wrapping_sub(1));
        }
    }

    /// A new one; its place, or [`NONE`] if there is none: ask [`in_the_way`](Self::in_the_way) before.
    pub(crate) fn add(&mut self, key: Key<W>, source: u128) -> u32 {
        let Some(&number) = self.free.last() else { return NONE };
        let of = key_of(source);
        let hash = self.sources.hasher().hash(&of);
        let slot = match self.sources.find_or_insert(0, hash, &of) {
            Outcome::Full => return NONE,
            Outcome::New(slot) => {
                self.sources.set_state(slot, [0, u64::from(NONE) << 32 | u64::from(NONE)]);
                slot
            }
            Outcome::Found(slot) => slot,
        };
        self.free.pop();
        let [count, ends] = self.sources.state(slot);
        let (first, last) = ((ends >> 32) as u32, ends as u32);
        self.places[number as usize] = Place {
            key,
            source,
            all: Link { older: self.newest, newer: NONE },
            own: Link { older: last, newer: NONE },
        };
        if let Some(before) = self.places.get_mut(self.newest as usize) {
            before.all.newer = number;
        } else {
            self.oldest = number;
        }
        self.newest = number;
        let first = if let Some(before) = self.places.get_mut(last as usize) {
            before.own.newer = number;
            first
        } else {
            number
        };
        self.sources.set_state(slot, [count + 1, u64::from(first) << 32 | u64::from(number)]);
        number
    }

    /// It waits no longer.
    pub(crate) fn take(&mut self, number: u32) {
        let Some(&Place { source, all, own, .. }) = self.places.get(number as usize) else { return };
        // A step for each that goes: by the next look ahead they are here, without a wait from each to the next.
        if let Some(next) = self.places.get(self.next as usize) {
            // Not to the one that goes.
            self.next = if next.all.newer == number { all.newer } else { next.all.newer };
            self.prefetch(self.next);
        }
        match self.places.get_mut(all.older as usize) {
            Some(older) => older.all.newer = all.newer,
            None => self.oldest = all.newer,
        }
        match self.places.get_mut(all.newer as usize) {
            Some(newer) => newer.all.older = all.older,
            None => self.newest = all.older,
        }
        let of = key_of(source);
        let hash = self.sources.hasher().hash(&of);
        if let Some(slot) = self.sources.find(hash, &of) {
            let [count, ends] = self.sources.state(slot);
            let (mut first, mut last) = ((ends >> 32) as u32, ends as u32);
            match self.places.get_mut(own.older as usize) {
                Some(older) => older.own.newer = own.newer,
                None => first = own.newer,
            }
            match self.places.get_mut(own.newer as usize) {
                Some(newer) => newer.own.older = own.older,
                None => last = own.older,
            }
            if count <= 1 {
                self.sources.discard_at(slot);
            } else {
                self.sources.set_state(slot, [count - 1, u64::from(first) << 32 | u64::from(last)]);
            }
        }
        self.places[number as usize].all = LOOSE;
        self.free.push(number);
    }
}

/// What a source is counted by.
pub(crate) fn key_of(source: u128) -> Key<2> {
    Key([(source >> 64) as u64, source as u64])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn as_a_list_that_is_walked_from_end_to_end() {
        let mut random = StdRng::seed_from_u64(1);
        for (room, of_source) in [(1, 1), (5, 2), (40, 7), (40, 100)] {
            let mut half = HalfOpen::<1>::new(room, of_source, 9).unwrap();
            // Oldest first: key, source, place.
            let mut list: Vec<(u64, u128, u32)> = Vec::new();
            for key in 0..4000 {
                if random.random_bool(0.3) && !list.is_empty() {
                    let (_, _, place) = list.remove(random.random_range(0..list.len()));
                    half.take(place);
                }
                let source = random.random_range(0..9) * if random.random_bool(0.1) { 1 << 90 } else { 1 };
                let own: Vec<usize> = (0..list.len()).filter(|at| list[*at].1 == source).collect();
                let gone = match () {
                    () if own.len() >= of_source as usize => Some(own[0]),
                    () if list.len() >= room => Some(0),
                    () => None,
                };
                let in_the_way = gone.map(|at| Key([list[at].0]));
                assert_eq!(half.in_the_way(source), in_the_way, "{key}");
                if let Some(at) = gone {
                    half.take(list.remove(at).2);
                }
                let place = half.add(Key([key]), source);
                assert_ne!(place, NONE);
                list.push((key, source, place));
                assert_eq!(half.len(), list.len());
                assert_eq!(half.oldest(), list.first().map(|(key, ..)| Key([*key])));
                assert!(half.bytes() > 0);
            }
        }
    }

    /// Those of whom it is said that they will give way do, in this order.
    #[test]
    fn who_gives_way_is_known_ahead() {
        let mut random = StdRng::seed_from_u64(2);
        // Many sources with room of their own, and one that has as many as it may have.
        for (of_source, sources) in [(1000, 5), (35, 1)] {
            let mut half = HalfOpen::<1>::new(40, of_source, 9).unwrap();
            // Key, source, place.
            let mut list: Vec<(Key<1>, Key<2>, u32)> = Vec::new();
            let (mut said_of, mut gone_of, mut next) = (0, 0, 0);
            for _ in 0..500 {
                if random.random_bool(0.3) {
                    for _ in 0..random.random_range(0..list.len().max(1)) {
                        half.take(list.swap_remove(random.random_range(0..list.len())).2);
                    }
                }
                let new: Vec<u128> =
                    (0..random.random_range(1..=AHEAD)).map(|_| random.random_range(0..sources)).collect();
                let keys: Vec<Key<2>> = new.iter().map(|source| key_of(*source)).collect();
                let (mut said, mut gone) = (Vec::new(), Vec::new());
                half.ask_ahead(&keys, usize::MAX, |key, source| said.push((key, source)));
                for source in new {
                    if let Some(oldest) = half.in_the_way(source) {
                        let at = list.iter().position(|(key, ..)| *key == oldest).unwrap();
                        let (key, of, place) = list.swap_remove(at);
                        half.take(place);
                        gone.push((key, of));
                    }
                    next += 1;
                    list.push((Key([next]), key_of(source), half.add(Key([next]), source)));
                }
                assert!(gone.starts_with(&said), "said: {said:?}, gone: {gone:?}");
                (said_of, gone_of) = (said_of + said.len(), gone_of + gone.len());
            }
            assert!(said_of > 1000 && said_of * 2 > gone_of, "{said_of} of {gone_of}");
        }
    }
}
