//! Set-associative caches: a key's hash names its set, and it may lie in any of the set's ways (Tokusashi 2019, 3.2.2).
//!
//! ```text
//! set = hash(key) modulo sets        4 ways, newest first: | k7 | k2 | k9 | -- |   marks 0b0010, hand 2
//! ```
//!
//! The order within a set is kept by moving its keys, which lie together: a set of up to 16 ways is one cache line. LRU moves a used
//! key to the front; CLOCK and SIEVE mark it; FIFO and random leave it; S3-FIFO counts it, and has queues and memory of what it gave up for each set ([`s3fifo`]). With one way
//! there is nothing to choose.
//!
//! Departure: the paper suggests taking the way to evict at random from the new key's hash. Here it is drawn, by a seed.

pub mod s3fifo;

use crate::Key;
use crate::policy::nodes::NONE;
use crate::policy::{Cache, Policy};
use crate::random::Random as Source;
use s3fifo::Queues;
use tidemill_lookup::prefetch::prefetch_read;

/// No set has more ways.
pub const WAYS_MAX: usize = 16;

/// What a cache cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetsError {
    /// Ways.
    #[error("{0} ways: use 1 to {WAYS_MAX}, or full associativity")]
    Ways(usize),
    /// Less than a set, or more than a set number can say.
    #[error("{capacity} entries in sets of {ways}: use {ways} to 4294967295")]
    Capacity {
        /// Entries.
        capacity: usize,
        /// Ways.
        ways: usize,
    },
}

/// A set-associative cache.
#[derive(Debug)]
pub struct Sets {
    policy: Policy,
    ways: usize,
    /// By key.
    set_of: Vec<u32>,
    /// Set by set, newest first, free places last.
    keys: Vec<Key>,
    /// By set: a bit per way.
    marks: Vec<u16>,
    /// By set: the way that SIEVE's hand rests on; `ways`: at the oldest.
    hands: Vec<u8>,
    /// By set, with S3-FIFO; else there are none.
    queues: Vec<Queues>,
    len: usize,
    source: Source,
}

impl Sets {
    /// How many sets there would be.
    ///
    /// # Errors
    /// See [`SetsError`].
    pub fn check(capacity: usize, ways: usize) -> Result<u32, SetsError> {
        if !(1..=WAYS_MAX).contains(&ways) {
            return Err(SetsError::Ways(ways));
        }
        let sets = u32::try_from(capacity / ways).unwrap_or(0);
        if sets == 0 { Err(SetsError::Capacity { capacity, ways }) } else { Ok(sets) }
    }

    /// With `capacity / ways` sets; `hashes` has one of every key.
    ///
    /// # Errors
    /// See [`SetsError`].
    pub fn new(
        hashes: &[u32],
        capacity: usize,
        ways: usize,
        policy: Policy,
        seed: u64,
    ) -> Result<Self, SetsError> {
        let sets = Self::check(capacity, ways)?;
        let queues = if policy == Policy::S3Fifo { sets as usize } else { 0 };
        Ok(Sets {
            policy,
            ways,
            set_of: hashes.iter().map(|hash| hash % sets).collect(),
            keys: vec![NONE; sets as usize * ways],
            marks: vec![0; sets as usize],
            hands: vec![ways as u8; sets as usize],
            queues: vec![Queues::default(); queues],
            len: 0,
            source: Source::new(seed),
        })
    }

    #[inline]
    fn place(&self, key: Key) -> (usize, Option<usize>) {
        let set = self.set_of[key as usize] as usize;
        let keys = &self.keys[set * self.ways..][..self.ways];
        (set, keys.iter().position(|kept| *kept == key))
    }

    fn keys(&mut self, set: usize) -> &mut [Key] {
        &mut self.keys[set * self.ways..][..self.ways]
    }

    /// As [`Cache::insert`].
    fn insert_s3fifo(&mut self, set: usize, key: Key) -> Option<Key> {
        let Sets { ways, keys, queues, len, .. } = self;
        let ways = *ways;
        let (keys, queues) = (&mut keys[set * ways..][..ways], &mut queues[set]);
        let known = queues.recall(key);
        let mut evicted = None;
        let free = match keys.iter().position(|kept| *kept == NONE) {
            Some(free) => {
                *len += 1;
                free
            }
            None => {
                let victim = queues.victim(ways, || keys.rotate_right(1));
                let gone = keys[victim];
                queues.evicted(victim, gone, ways);
                keys[victim..].rotate_left(1);
                evicted = Some(gone);
                ways - 1
            }
        };
        let place = queues.admit(known);
        keys[place..=free].rotate_right(1);
        keys[place] = key;
        evicted
    }

    /// The way whose key has to go; S3-FIFO has its queues.
    fn victim(&mut self, set: usize) -> usize {
        let last = self.ways - 1;
        match self.policy {
            Policy::Fifo | Policy::Lru | Policy::S3Fifo => last,
            Policy::Random => self.source.below(self.ways as u64) as usize,
            Policy::Clock => {
                while self.marks[set] >> last & 1 == 1 {
                    self.keys(set).rotate_right(1);
                    // The one in front is unmarked; what was shifted out was the last one's mark.
                    self.marks[set] = (u32::from(self.marks[set]) << 1) as u16 & mask(self.ways) & !1;
                }
                last
            }
            Policy::Sieve => {
                let mut at = usize::from(self.hands[set]).min(last);
                while self.marks[set] >> at & 1 == 1 {
                    self.marks[set] &= !(1 << at);
                    at = if at == 0 { last } else { at - 1 };
                }
                // The next newer key comes to lie where this one was; behind the newest it is the oldest's turn.
                self.hands[set] = if at == 0 { self.ways as u8 } else { at as u8 };
                at
            }
        }
    }
}

/// As many ones as there are ways.
fn mask(ways: usize) -> u16 {
    ((1_u32 << ways) - 1) as u16
}

impl Cache for Sets {
    #[inline]
    fn prefetch(&self, key: Key) {
        // The set's number is read in order of keys rather than of requests: it may miss the cache itself.
        let set = self.set_of[key as usize] as usize;
        prefetch_read(self.keys.as_ptr().wrapping_add(set * self.ways));
    }

    #[inline]
    fn get(&mut self, key: Key) -> bool {
        let (set, place) = self.place(key);
        let Some(place) = place else { return false };
        match self.policy {
            Policy::Lru if place > 0 => self.keys(set)[..=place].rotate_right(1),
            Policy::Clock | Policy::Sieve => self.marks[set] |= 1 << place,
            Policy::S3Fifo => self.queues[set].used(place),
            _ => {}
        }
        true
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.place(key).1.is_some()
    }

    #[inline]
    fn insert(&mut self, key: Key) -> Option<Key> {
        let set = self.set_of[key as usize] as usize;
        if self.policy == Policy::S3Fifo {
            return self.insert_s3fifo(set, key);
        }
        let free = self.keys(set).iter().position(|kept| *kept == NONE);
        let place = match free {
            Some(free) => {
                self.len += 1;
                // All keys move back by one, and the hand with its own.
                if usize::from(self.hands[set]) < self.ways {
                    self.hands[set] += 1;
                }
                free
            }
            None => self.victim(set),
        };
        let keys = self.keys(set);
        let evicted = keys[place];
        keys[..=place].rotate_right(1);
        keys[0] = key;
        // Marks of newer keys move with them; the one at `place` goes.
        let (marks, newer) = (u32::from(self.marks[set]), (1_u32 << place) - 1);
        self.marks[set] = ((marks & newer) << 1 | marks & !(newer << 1 | 1)) as u16;
        free.is_none().then_some(evicted)
    }

    fn remove(&mut self, key: Key) -> bool {
        let (set, place) = self.place(key);
        let Some(place) = place else {
            // A key that was deleted is new.
            if let Some(queues) = self.queues.get_mut(set) {
                queues.recall(key);
            }
            return false;
        };
        if let Some(queues) = self.queues.get_mut(set) {
            queues.removed(place);
        }
        let keys = self.keys(set);
        keys[place..].rotate_left(1);
        keys[keys.len() - 1] = NONE;
        let (marks, newer) = (u32::from(self.marks[set]), (1_u32 << place) - 1);
        self.marks[set] = (marks & newer | marks >> 1 & !newer) as u16;
        let hand = usize::from(self.hands[set]);
        if hand == place {
            self.hands[set] = if place == 0 { self.ways as u8 } else { place as u8 - 1 };
        } else if hand > place && hand < self.ways {
            self.hands[set] -= 1;
        }
        self.len -= 1;
        true
    }

    fn len(&self) -> usize {
        self.len
    }

    fn capacity(&self) -> usize {
        self.keys.len()
    }
}
