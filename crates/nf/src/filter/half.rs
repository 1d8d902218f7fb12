//! Connections that wait for an answer: a bounded number of them, and a bounded number of each source, in the order in which they came. Who comes when there
//! is no room has the oldest give way: its own source's oldest, if that has too many. So a flood with forged sources turns over the
//! room for those that wait and nothing else, and one from a single source turns over its own few places. Half-open connections of TCP have one such list.
//!
//! ```text
//! all:        oldest <-> ... <-> ... <-> newest        one list through every place taken
//! source A:   oldest <-> newest                        another one through those of each source
//! ```

use tidemill_flow::flowtable::{FlowTable, Outcome};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;

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
                self.sources.remove(hash, &of);
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
}
