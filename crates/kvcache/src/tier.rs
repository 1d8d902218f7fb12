//! One tier: a set-associative table of descriptors, and memory for what they stand for.
//!
//! ```text
//! hash -> set -> order, newest first -> entries: hash, stamp, chunk, lengths -> chunk: VALUE key 0 3 CR LF abc CR LF
//! ```
//! What is kept is the answer as memcached writes it, without its END, so that a hit is one copy. Costs: the set's order and one entry for each way
//! that is looked at (64 bytes), then the chunk. Nothing is allocated after the start.

use crate::gate::Version;
use crate::order::Order;
use crate::slab::{Chunk, Slab};
use tidemill_cachesim::policy::Policy;
use tidemill_cachesim::random::Random;
use tidemill_cachesim::sets::s3fifo::Queues;

/// Where the key begins in an answer: behind "VALUE ".
const KEY_AT: usize = 6;

/// What an answer holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Of its key's slot, when memcached was asked.
    pub(crate) version: Version,
    /// Until when, in nanoseconds.
    pub(crate) expires_ns: u64,
    /// When memcached was asked for it last.
    pub(crate) asked_ns: u64,
}

/// An answer with all that belongs to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept<'a> {
    pub(crate) hash: u64,
    pub(crate) stamp: Stamp,
    pub(crate) key_len: u8,
    /// `VALUE key flags length CR LF value CR LF`
    pub(crate) answer: &'a [u8],
}

impl<'a> Kept<'a> {
    pub(crate) fn key(&self) -> &'a [u8] {
        &self.answer[KEY_AT..KEY_AT + usize::from(self.key_len)]
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    stamp: Stamp,
    /// `None`: free.
    chunk: Option<Chunk>,
    len: u16,
    key_len: u8,
}

/// Where an entry was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    set: usize,
    /// In the set's order.
    place: usize,
    at: usize,
}

/// A tier.
#[derive(Debug)]
pub(crate) struct Tier {
    ways: usize,
    policy: Policy,
    orders: Box<[Order]>,
    /// By set, with S3-FIFO; else there are none.
    queues: Box<[Queues]>,
    entries: Box<[Entry]>,
    slab: Slab,
    source: Random,
    len: usize,
}

impl Tier {
    /// Of `entries / ways` sets.
    pub(crate) fn new(entries: usize, ways: usize, policy: Policy, slab: Slab, seed: u64) -> Self {
        let sets = entries / ways;
        let version = Version { seq: 0, epoch: 0 };
        let stamp = Stamp { version, expires_ns: 0, asked_ns: 0 };
        let entry = Entry { hash: 0, stamp, chunk: None, len: 0, key_len: 0 };
        let queues = if policy == Policy::S3Fifo { sets } else { 0 };
        Tier {
            ways,
            policy,
            orders: vec![Order::new(ways); sets].into(),
            queues: vec![Queues::default(); queues].into(),
            entries: vec![entry; sets * ways].into(),
            slab,
            source: Random::new(seed),
            len: 0,
        }
    }

    /// Bytes that an entry takes besides its chunk.
    pub(crate) fn bytes_per_entry(ways: usize) -> usize {
        size_of::<Entry>() + size_of::<Order>().div_ceil(ways.max(1))
    }

    /// How many answers it has, void ones too.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether an answer of this length has a chunk that it fits.
    pub(crate) fn fits(&self, len: usize) -> bool {
        !self.orders.is_empty() && self.slab.class(len).is_some()
    }

    #[inline]
    fn set(&self, hash: u64) -> usize {
        // The upper half: the lower bits name the slot.
        (((hash >> 32) * self.orders.len() as u64) >> 32) as usize
    }

    /// Where a key's answer is, valid or not.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<Place> {
        let set = self.set(hash);
        let order = self.orders.get(set)?;
        order.ways().iter().enumerate().find_map(|(place, &way)| {
            let at = set * self.ways + usize::from(way);
            let there = self.entries[at].hash == hash && self.kept(at).is_some_and(|kept| kept.key() == key);
            there.then_some(Place { set, place, at })
        })
    }

    fn kept(&self, at: usize) -> Option<Kept<'_>> {
        let Entry { hash, stamp, chunk, len, key_len } = self.entries[at];
        Some(Kept { hash, stamp, key_len, answer: self.slab.bytes(chunk?, len.into()) })
    }

    /// What is there.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<Kept<'_>> {
        self.kept(place.at)
    }

    /// It is given to somebody.
    #[inline]
    pub(crate) fn used(&mut self, place: Place) {
        self.orders[place.set].used(place.place, self.policy);
        if let Some(queues) = self.queues.get_mut(place.set) {
            queues.used(place.place);
        }
    }

    /// memcached is asked for it now.
    pub(crate) fn asked(&mut self, hash: u64, key: &[u8], now_ns: u64) {
        if let Some(place) = self.find(hash, key) {
            self.entries[place.at].stamp.asked_ns = now_ns;
        }
    }

    /// Lets go of it.
    pub(crate) fn remove(&mut self, place: Place) {
        if let Some(queues) = self.queues.get_mut(place.set) {
            queues.removed(place.place);
        }
        self.free(place);
    }

    fn free(&mut self, place: Place) {
        self.orders[place.set].remove(place.place);
        if let Some(chunk) = self.entries[place.at].chunk.take() {
            self.slab.free(chunk);
        }
        self.len -= 1;
    }

    /// Lets go of a key's answer, if there is one.
    pub(crate) fn forget(&mut self, hash: u64, key: &[u8]) {
        if let Some(place) = self.find(hash, key) {
            self.remove(place);
        }
    }

    fn evict(&mut self, set: usize, place: usize, evicted: &mut impl FnMut(Kept<'_>)) {
        let at = set * self.ways + usize::from(self.orders[set].ways()[place]);
        self.kept(at).into_iter().for_each(evicted);
        if let Some(queues) = self.queues.get_mut(set) {
            queues.evicted(place, self.entries[at].hash as u32, self.ways);
        }
        self.free(Place { set, place, at });
    }

    /// The place whose answer has to go, of a full set.
    fn victim(&mut self, set: usize) -> usize {
        let order = &mut self.orders[set];
        match self.queues.get_mut(set) {
            Some(queues) => queues.victim(self.ways, || order.again()),
            None => order.victim(self.policy, &mut self.source),
        }
    }

    /// Keeps an answer whose key is not here; `evicted` is given what has to go. Whether there is a chunk for it.
    pub(crate) fn insert(&mut self, kept: &Kept<'_>, mut evicted: impl FnMut(Kept<'_>)) -> bool {
        let class = self.slab.class(kept.answer.len()).filter(|_| !self.orders.is_empty());
        let Some(class) = class else { return false };
        let set = self.set(kept.hash);
        let known = self.queues.get_mut(set).is_some_and(|queues| queues.recall(kept.hash as u32));
        if self.orders[set].is_full() {
            let victim = self.victim(set);
            self.evict(set, victim, &mut evicted);
        }
        let chunk = match self.slab.take(class) {
            Some(chunk) => chunk,
            None => {
                let owner = self.slab.victim(class) as usize;
                let (set, way) = (owner / self.ways, (owner % self.ways) as u8);
                let place = self.orders[set].ways().iter().position(|&there| there == way);
                place.into_iter().for_each(|place| self.evict(set, place, &mut evicted));
                let Some(chunk) = self.slab.take(class) else { return false };
                chunk
            }
        };
        let order = &mut self.orders[set];
        let way = match self.queues.get_mut(set) {
            Some(queues) => order.insert_at(queues.admit(known)),
            None => order.insert(),
        };
        let at = set * self.ways + way;
        self.slab.own(chunk, at as u32);
        self.slab.write(chunk, kept.answer);
        let (len, key_len) = (kept.answer.len() as u16, kept.key_len);
        self.entries[at] = Entry { hash: kept.hash, stamp: kept.stamp, chunk: Some(chunk), len, key_len };
        self.len += 1;
        true
    }

    /// All answers, in no order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Kept<'_>> {
        (0..self.entries.len()).filter_map(|at| self.kept(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_cachesim::policy::Cache;
    use tidemill_cachesim::random::mix;
    use tidemill_cachesim::sets::Sets;

    /// One set of so many ways, beside the simulator's: the same hits, the same evictions.
    #[test]
    fn as_the_simulator_has_it() {
        let stamp = Stamp { version: Version { seq: 0, epoch: 0 }, expires_ns: 0, asked_ns: 0 };
        for policy in Policy::ALL {
            for ways in [1, 2, 3, 4, 8, 16] {
                let keys = 3 * ways as u64;
                let mut simulated = Sets::new(&vec![0; keys as usize], ways, ways, policy, 5).unwrap();
                let mut tier = Tier::new(ways, ways, policy, Slab::new([(64, ways)]), 5);
                let (mut draw, mut hits, mut evictions) = (Random::new(9 + ways as u64), 0, 0);
                for _ in 0..5000 {
                    let (key, removes) = (draw.below(keys).min(draw.below(keys)), draw.below(10) == 0);
                    let (hash, text) = (mix(key), format!("{key:04}"));
                    let there = tier.find(hash, text.as_bytes());
                    if removes && let Some(place) = there {
                        assert!(simulated.remove(key as u32), "{policy} {ways}");
                        tier.remove(place);
                        continue;
                    }
                    assert_eq!(simulated.get(key as u32), there.is_some(), "{policy} {ways}");
                    if let Some(place) = there {
                        tier.used(place);
                        hits += 1;
                        continue;
                    }
                    let (answer, mut gone) = (format!("VALUE {text} 0 1\r\nv\r\n"), None);
                    let kept = Kept { hash, stamp, key_len: 4, answer: answer.as_bytes() };
                    assert!(tier.insert(&kept, |evicted| gone = Some(evicted.key().to_vec())));
                    let evicted = simulated.insert(key as u32).map(|key| format!("{key:04}").into_bytes());
                    evictions += u32::from(evicted.is_some());
                    assert_eq!(gone, evicted, "{policy} {ways}");
                }
                assert!(hits > 500 && evictions > 500, "{policy} {ways}: {hits} hits, {evictions} evictions");
            }
        }
    }
}
