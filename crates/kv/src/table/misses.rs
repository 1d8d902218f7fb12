//! Which key a reply belongs to: a binary GET's reply has no key, and of a reply over UDP only the request's number says whose it is.
//!
//! ```text
//!  request out   put((client, port, number, kind), key)   ->  set of 4 places      by a hash with a seed of the caller's
//!  reply in      take((client, port, number, kind))       ->  its key, what was kept with it
//! ```
//!
//! A client may have two requests with one number on their way (libraries that send opaque 0 always do). **A key is given only if it is the reply's**:
//!
//! - two keys under one number: neither is given, until every reply to that number must have come;
//! - the same key again: as many replies as requests, with what the first request kept, for its reply may be the older one;
//! - no entry makes room for another before its time. Where a set is full, its further requests are not kept, and as their replies are on their way
//!   too, the set takes no new number until these must have come.
//!
//! It holds as long as (a) every request whose reply may be looked up is `put`, before memcached has it, (b) each request has one reply at most (nothing
//! behind doubles datagrams: of a number that is in use again the second reply to its first use would be found), and (c) no reply comes later than `within_ns`
//! after its request; what comes later finds nothing or, if its number is in use again, could find that. Choose `within_ns` larger than what a reply
//! can take (memcached's longest stall and the network's), not than what it takes mostly.
//!
//! Costs: 4 places of about 350 bytes to look at, memory is taken at the start, nothing is allocated later.

use crate::codec::MAX_KEY;
use std::hash::{BuildHasher, Hash};
use std::net::SocketAddr;

/// What a reply repeats of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number {
    /// The client's address and port.
    pub client: SocketAddr,
    /// Binary: opaque. Text over UDP: the frame's id.
    pub number: u32,
    /// What tells replies to other requests of that number apart: a binary reply's opcode.
    pub kind: u8,
}

/// A key with what was kept with it.
#[derive(Debug, PartialEq, Eq)]
pub struct Miss<'a, T> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// What [`Misses::put`] was given.
    pub kept: T,
}

/// Counts, from the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests kept.
    pub kept: u64,
    /// Requests not kept: the set was full, or closed by that.
    pub full: u64,
    /// Requests with a number under which another key is on its way.
    pub ambiguous: u64,
    /// Replies that found their key.
    pub found: u64,
    /// Replies that found none.
    pub unknown: u64,
}

/// Numbers on their way, and their keys.
#[derive(Debug)]
pub struct Misses<T, S> {
    sets: Box<[Set<T>]>,
    hasher: S,
    within_ns: u64,
    counters: Counters,
}

const WAYS: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Set<T> {
    places: [Option<Entry<T>>; WAYS],
    /// No new number before this time.
    closed_until_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry<T> {
    number: Number,
    /// Replies that may come. 0: of two keys, none is given.
    replies: u32,
    until_ns: u64,
    kept: T,
    key_len: u8,
    key: [u8; MAX_KEY],
}

impl<T: Copy, S: BuildHasher> Misses<T, S> {
    /// With room for about `most` numbers at a time, at least 4. `hasher`: with a seed that nobody outside knows.
    pub fn new(most: usize, within_ns: u64, hasher: S) -> Self {
        let sets = most.div_ceil(WAYS).max(1).next_power_of_two();
        let set = Set { places: [None; WAYS], closed_until_ns: 0 };
        Misses { sets: vec![set; sets].into(), hasher, within_ns, counters: Counters::default() }
    }

    fn set(&mut self, number: &Number) -> &mut Set<T> {
        let at = self.hasher.hash_one(number) as usize & (self.sets.len() - 1);
        &mut self.sets[at]
    }

    /// A request for `key` goes to memcached. Keys of another length than 1 to 250 bytes are kept as one that is never given. Whether the reply can
    /// find it.
    pub fn put(&mut self, number: Number, key: &[u8], kept: T, now_ns: u64) -> bool {
        let until_ns = now_ns.saturating_add(self.within_ns);
        let set = self.set(&number);
        for place in &mut set.places {
            if place.is_some_and(|entry| entry.until_ns <= now_ns) {
                *place = None;
            }
        }
        if let Some(entry) = set.places.iter_mut().flatten().find(|entry| entry.number == number) {
            entry.until_ns = until_ns;
            entry.replies = match entry.replies {
                0 | u32::MAX => 0,
                replies if entry.key() == key => replies + 1,
                _ => 0,
            };
            let found = entry.replies > 0;
            self.counters.kept += u64::from(found);
            self.counters.ambiguous += u64::from(!found);
            return found;
        }
        let free = set.places.iter_mut().find(|place| place.is_none());
        let (true, Some(place)) = (set.closed_until_ns <= now_ns, free) else {
            set.closed_until_ns = until_ns;
            self.counters.full += 1;
            return false;
        };
        let mut bytes = [0; MAX_KEY];
        let fits = match bytes.get_mut(..key.len()) {
            Some(start) if !key.is_empty() => {
                start.copy_from_slice(key);
                true
            }
            _ => false,
        };
        let key_len = if fits { key.len() as u8 } else { 0 };
        *place = Some(Entry { number, replies: u32::from(fits), until_ns, kept, key_len, key: bytes });
        self.counters.kept += u64::from(fits);
        fits
    }

    /// A reply has come: the key of its request, if that is sure.
    pub fn take(&mut self, number: Number, now_ns: u64) -> Option<Miss<'_, T>> {
        let at = self.hasher.hash_one(number) as usize & (self.sets.len() - 1);
        let place = self.sets[at].places.iter_mut().flatten().find(|entry| entry.number == number);
        let entry = place.filter(|entry| entry.until_ns > now_ns && entry.replies > 0);
        let Some(entry) = entry else {
            self.counters.unknown += 1;
            return None;
        };
        self.counters.found += 1;
        entry.replies -= 1;
        if entry.replies == 0 {
            // The place is free for a new request; its bytes are still there for this one.
            entry.until_ns = 0;
        }
        Some(Miss { key: entry.key(), kept: entry.kept })
    }

    /// Counts, from the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

impl<T> Entry<T> {
    fn key(&self) -> &[u8] {
        &self.key[..self.key_len.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, VecDeque};
    use std::hash::{BuildHasherDefault, DefaultHasher};

    const WITHIN: u64 = 100;

    fn misses(most: usize) -> Misses<u32, BuildHasherDefault<DefaultHasher>> {
        Misses::new(most, WITHIN, BuildHasherDefault::default())
    }

    fn number(number: u32) -> Number {
        Number { client: SocketAddr::from(([10, 0, 0, 1], 4000)), number, kind: 0 }
    }

    fn key(
        misses: &mut Misses<u32, BuildHasherDefault<DefaultHasher>>,
        of: u32,
        now_ns: u64,
    ) -> Option<(Vec<u8>, u32)> {
        misses.take(number(of), now_ns).map(|miss| (miss.key.to_vec(), miss.kept))
    }

    #[test]
    fn a_reply_finds_its_key_once() {
        let mut misses = misses(16);
        assert!(misses.put(number(1), b"a", 7, 0));
        assert_eq!(key(&mut misses, 2, 0), None);
        assert_eq!(key(&mut misses, 1, 99), Some((b"a".to_vec(), 7)));
        assert_eq!(key(&mut misses, 1, 99), None);
        assert!(misses.put(number(1), b"b", 8, 0));
        assert_eq!(key(&mut misses, 1, 100), None, "too late");
        let expected = Counters { kept: 2, found: 1, unknown: 3, ..Counters::default() };
        assert_eq!(misses.counters(), expected);
    }

    #[test]
    fn client_port_and_kind_count() {
        let mut misses = misses(16);
        let other = Number { client: SocketAddr::from(([10, 0, 0, 1], 4001)), ..number(1) };
        let kind = Number { kind: 0x0c, ..number(1) };
        for (number, bytes) in [(number(1), b"a"), (other, b"b"), (kind, b"c")] {
            assert!(misses.put(number, bytes, 0, 0));
        }
        assert_eq!(misses.take(kind, 1).unwrap().key, b"c");
        assert_eq!(misses.take(other, 1).unwrap().key, b"b");
        assert_eq!(misses.take(number(1), 1).unwrap().key, b"a");
    }

    #[test]
    fn two_keys_under_a_number_give_none() {
        let mut misses = misses(16);
        assert!(misses.put(number(1), b"a", 0, 0));
        assert!(!misses.put(number(1), b"b", 1, 50));
        assert_eq!(key(&mut misses, 1, 60), None);
        assert!(!misses.put(number(1), b"b", 2, 149), "the replies of both may still come");
        assert!(misses.put(number(1), b"b", 3, 249));
        assert_eq!(key(&mut misses, 1, 250), Some((b"b".to_vec(), 3)));
    }

    #[test]
    fn the_same_key_twice_gives_two_with_the_older_token() {
        let mut misses = misses(16);
        assert!(misses.put(number(1), b"a", 5, 0));
        assert!(misses.put(number(1), b"a", 6, 1));
        assert_eq!(key(&mut misses, 1, 2), Some((b"a".to_vec(), 5)));
        assert!(!misses.put(number(1), b"b", 7, 3), "one reply of a is on its way");
    }

    #[test]
    fn a_full_set_takes_nothing_until_all_has_come() {
        let mut misses = misses(4);
        for of in 0..4 {
            assert!(misses.put(number(of), b"a", 0, 0));
        }
        assert!(!misses.put(number(9), b"a", 0, 10));
        assert_eq!(key(&mut misses, 0, 20), Some((b"a".to_vec(), 0)));
        // There is a place now, but the reply to the first 9 may still come.
        assert!(!misses.put(number(9), b"b", 0, 20));
        assert!(misses.put(number(9), b"b", 0, 120));
        assert!(!misses.put(number(10), &[b'k'; 251], 0, 121), "no such key");
    }

    /// What happens next: a request is sent, a reply comes, time passes.
    #[derive(Debug, Clone)]
    enum Step {
        Send { number: u32, key: u8 },
        Reply { which: usize },
        Lose { which: usize },
        Pass { ns: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u32..8, 0_u8..3).prop_map(|(number, key)| Step::Send { number, key }),
            3 => (0_usize..8).prop_map(|which| Step::Reply { which }),
            1 => (0_usize..8).prop_map(|which| Step::Lose { which }),
            1 => (1_u64..90).prop_map(|ns| Step::Pass { ns }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        /// A network with requests on their way: replies come in any order, or not at all, but none later than `WITHIN`. Whatever is found is the reply's
        /// own key, and was kept no later than by the reply's own request.
        #[test]
        fn never_a_wrong_key(steps in proptest::collection::vec(step(), 1..120)) {
            let mut misses = misses(4);
            let mut on_the_way: VecDeque<(u32, u8, u64, u32)> = VecDeque::new();
            let (mut now, mut sent) = (0, 0);
            let mut found: HashMap<bool, u32> = HashMap::new();
            for step in steps {
                on_the_way.retain(|&(_, _, at, _)| now - at < WITHIN);
                match step {
                    Step::Send { number: of, key } => {
                        misses.put(number(of), &[key], sent, now);
                        on_the_way.push_back((of, key, now, sent));
                        sent += 1;
                    }
                    Step::Reply { which } if which < on_the_way.len() => {
                        let Some((of, key, _, token)) = on_the_way.remove(which) else { continue };
                        let miss = misses.take(number(of), now);
                        *found.entry(miss.is_some()).or_default() += 1;
                        if let Some(miss) = miss {
                            prop_assert_eq!(miss.key, &[key]);
                            prop_assert!(miss.kept <= token);
                        }
                    }
                    Step::Lose { which } if which < on_the_way.len() => {
                        on_the_way.remove(which);
                    }
                    Step::Pass { ns } => now += ns,
                    _ => {}
                }
            }
        }
    }
}
