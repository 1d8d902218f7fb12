//! Keys by number: the same ones for the same seed on every machine, without keeping 2^25 of them.

use tidemill_flow::hash::{KeyHash, Keyed, mix};
use tidemill_flow::key::Key;
use tidemill_lpm::keys::Random;

/// Keys from here on are in no table: what misses ask for.
pub(super) const ABSENT: u64 = 1 << 40;
/// Keys from here on are those of a flood.
pub(super) const FLOOD: u64 = 1 << 41;

/// All keys, and their hashes.
#[derive(Clone)]
pub(super) struct Keys<const W: usize> {
    base: u64,
    /// What the last word keeps: keys of 36 bytes end in the middle of a word.
    last: u64,
    hash: Keyed<W>,
    /// Whether hashing is part of the timed work.
    keyed: bool,
}

impl<const W: usize> Keys<W> {
    pub(super) fn new(key_bytes: usize, seed: u64, keyed: bool) -> Self {
        let last = if key_bytes.is_multiple_of(8) { u64::MAX } else { u64::MAX >> (64 - key_bytes % 8 * 8) };
        let secret = u128::from(mix(!seed)) << 64 | u128::from(seed);
        Keys { base: mix(seed), last, hash: Keyed::new(secret), keyed }
    }

    /// Key number `i`; two numbers have two keys.
    #[inline]
    pub(super) fn key(&self, i: u64) -> Key<W> {
        // A bijection of the number: the first word alone tells keys apart.
        let first = mix(self.base ^ i);
        let mut words =
            std::array::from_fn(|w| if w == 0 { first } else { mix(first.wrapping_add(w as u64)) });
        if W > 1 {
            words[W - 1] &= self.last;
        }
        Key(words)
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &Key<W>) -> u64 {
        self.hash.hash(key)
    }
}

/// Keys that are asked for, in order, with their numbers.
pub(super) struct Block<const W: usize> {
    pub(super) keys: Vec<Key<W>>,
    numbers: Vec<u64>,
    hashes: Vec<u64>,
    hash: Option<Keyed<W>>,
}

impl<const W: usize> Block<W> {
    pub(super) fn new(keys: &Keys<W>) -> Self {
        let hash = keys.keyed.then_some(keys.hash);
        Block { keys: Vec::new(), numbers: Vec::new(), hashes: Vec::new(), hash }
    }

    /// Other keys: those of these numbers.
    pub(super) fn fill(&mut self, keys: &Keys<W>, numbers: impl Iterator<Item = u64>) {
        self.numbers.clear();
        self.numbers.extend(numbers);
        self.keys.clear();
        self.keys.extend(self.numbers.iter().map(|&i| keys.key(i)));
        self.hashes.clear();
        // The hash that a packet brings with it.
        if !keys.keyed {
            self.hashes.extend(self.keys.iter().map(|key| keys.hash(key)));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The value that key number `i` is inserted with: never 0.
    pub(super) fn value(&self, i: usize) -> u64 {
        self.numbers[i] + 1
    }

    /// The hash of one key: computed, or given.
    #[inline(always)]
    pub(super) fn hash(&self, i: usize) -> u64 {
        match &self.hash {
            Some(hash) => hash.hash(&self.keys[i]),
            None => self.hashes[i],
        }
    }

    /// The hashes of the keys at `from`, as many as `room` holds: computed into it, or given.
    #[inline(always)]
    pub(super) fn hashes<'a>(&'a self, from: usize, room: &'a mut [u64]) -> &'a [u64] {
        match &self.hash {
            Some(hash) => {
                hash.hash_batch(&self.keys[from..from + room.len()], room);
                room
            }
            None => &self.hashes[from..from + room.len()],
        }
    }
}

/// The numbers below `n`, each once, in an order that jumps about.
pub(super) fn scattered(n: u64) -> impl Iterator<Item = u64> {
    // Odd and near the golden section, until it shares no factor with `n`.
    let mut step = (n as f64 * 0.618_034) as u64 | 1;
    while n > 1 && gcd(step, n) != 1 {
        step += 2;
    }
    let mut at = 0;
    (0..n).map(move |_| {
        at = (at + step) % n;
        at
    })
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// `count` random numbers below `n`.
pub(super) fn drawn(n: u64, count: usize, seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::new(seed);
    (0..count).map(move |_| random.below(n as usize) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_differ_and_have_their_length() {
        let keys = Keys::<5>::new(36, 7, true);
        let all: HashSet<[u64; 5]> = (0..1000).chain(ABSENT..ABSENT + 1000).map(|i| keys.key(i).0).collect();
        assert_eq!(all.len(), 2000);
        assert!(all.iter().all(|words| words[4] >> 32 == 0));
        assert!((0..100).any(|i| Keys::<5>::new(40, 7, true).key(i).0[4] >> 32 != 0));
        assert_ne!(Keys::<1>::new(8, 7, true).key(0), Keys::<1>::new(8, 8, true).key(0));
    }

    #[test]
    fn hashes_are_the_same_computed_and_given() {
        let (computed, given) = (Keys::<2>::new(16, 3, true), Keys::<2>::new(16, 3, false));
        let (mut a, mut b) = (Block::new(&computed), Block::new(&given));
        a.fill(&computed, 5..9);
        b.fill(&given, 5..9);
        let (mut room, mut none) = ([0; 4], [0; 4]);
        assert_eq!(a.hashes(0, &mut room), b.hashes(0, &mut none));
        assert_eq!((a.hash(2), a.value(2), a.len()), (b.hash(2), 8, 4));
        assert_eq!(none, [0; 4]);
    }

    #[test]
    fn scattered_visits_all_once() {
        for n in [0, 1, 2, 3, 921, 1024, 1_000_003] {
            let mut seen = vec![false; n as usize];
            scattered(n).for_each(|i| assert!(!std::mem::replace(&mut seen[i as usize], true), "{i} of {n}"));
            assert!(seen.into_iter().all(|seen| seen), "{n}");
        }
    }
}
