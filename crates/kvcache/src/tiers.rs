//! L0 in front of L1 (Tokusashi 2019, 3.2 and 4.2).
//!
//! | | a fill is kept in | a hit in L1 | L0 evicts | L1 evicts |
//! |---|---|---|---|---|
//! | inclusive, write-through | both | is copied to L0 | nothing more | L0 lets go of it too |
//! | non-inclusive, write-through | both | is copied to L0 | nothing more | nothing more |
//! | non-inclusive, write-back | L0 | is moved to L0 | is moved to L1 | nothing more |
//!
//! Nothing here is dirty: memcached has every write before its client has the answer (the contract), so what the paper's write-back defers is
//! only the copy in L1. With one tier alone, which may be either, a fill is kept there and nothing moves. Inclusive and write-back contradict each other: there would be answers in L0 that L1 has not. What is too large for a chunk of L0 is kept in
//! L1 alone. A hit in L0 is no use in L1.

use crate::tier::{Kept, Stamp, Tier};

/// What L1 holds, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// All that L0 has, but for what L0 alone has room for.
    pub(crate) inclusive: bool,
    /// A fill goes to L1 at once.
    pub(crate) through: bool,
}

/// Which tier had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    L0,
    L1,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) level: Level,
    /// When memcached was asked for it last.
    pub(crate) asked_ns: u64,
}

/// The two.
#[derive(Debug)]
pub(crate) struct Tiers {
    l0: Tier,
    l1: Tier,
    rules: Rules,
    /// An answer on its way from one to the other.
    moved: Moved,
}

/// An answer between two tiers: memory of its own, taken at the start.
#[derive(Debug)]
struct Moved {
    hash: u64,
    stamp: Option<Stamp>,
    key_len: u8,
    answer: Vec<u8>,
}

impl Moved {
    fn set(&mut self, kept: Kept<'_>) {
        (self.hash, self.stamp, self.key_len) = (kept.hash, Some(kept.stamp), kept.key_len);
        self.answer.clear();
        self.answer.extend_from_slice(kept.answer);
    }

    fn take(&mut self) -> Option<Kept<'_>> {
        let stamp = self.stamp.take()?;
        Some(Kept { hash: self.hash, stamp, key_len: self.key_len, answer: &self.answer })
    }
}

/// The longest answer.
pub(crate) const ANSWER_MAX: usize = 1387;

impl Tiers {
    pub(crate) fn new(l0: Tier, l1: Tier, rules: Rules) -> Self {
        let moved = Moved { hash: 0, stamp: None, key_len: 0, answer: Vec::with_capacity(ANSWER_MAX) };
        Tiers { l0, l1, rules, moved }
    }

    /// Whether one of them has a chunk for an answer of this length.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.l0.fits(len) || self.l1.fits(len)
    }

    /// How many answers each has, void ones too.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.l0.len(), self.l1.len())
    }

    /// The answer for a key, appended to `to`, if `holds` says that it may be given. One that may not goes.
    #[inline]
    pub(crate) fn get(
        &mut self,
        hash: u64,
        key: &[u8],
        holds: impl Fn(&Stamp) -> bool,
        to: &mut Vec<u8>,
    ) -> Option<Hit> {
        if let Some(place) = self.l0.find(hash, key)
            && let Some(kept) = self.l0.at(place)
        {
            if holds(&kept.stamp) {
                let asked_ns = kept.stamp.asked_ns;
                to.extend_from_slice(kept.answer);
                self.l0.used(place);
                return Some(Hit { level: Level::L0, asked_ns });
            }
            self.l0.remove(place);
        }
        let place = self.l1.find(hash, key)?;
        let kept = self.l1.at(place)?;
        if !holds(&kept.stamp) {
            self.l1.remove(place);
            return None;
        }
        to.extend_from_slice(kept.answer);
        let asked_ns = kept.stamp.asked_ns;
        let rises = self.l0.fits(kept.answer.len());
        self.l1.used(place);
        if rises {
            self.rise(hash, key);
        }
        Some(Hit { level: Level::L1, asked_ns })
    }

    /// memcached is asked for a key now, whoever has it.
    pub(crate) fn asked(&mut self, hash: u64, key: &[u8], now_ns: u64) {
        self.l0.asked(hash, key, now_ns);
        self.l1.asked(hash, key, now_ns);
    }

    /// Lets go of a key's answer, whoever has it.
    pub(crate) fn forget(&mut self, hash: u64, key: &[u8]) {
        self.l0.forget(hash, key);
        self.l1.forget(hash, key);
    }

    /// What was hit in L1 goes to L0.
    fn rise(&mut self, hash: u64, key: &[u8]) {
        let Tiers { l0, l1, rules, moved } = self;
        let Some(place) = l1.find(hash, key) else { return };
        let Some(kept) = l1.at(place) else { return };
        if rules.through {
            l0.insert(&kept, |_| ());
            return;
        }
        // L0's victim goes the other way.
        l0.insert(&kept, |evicted| moved.set(evicted));
        l1.remove(place);
        self.sink();
    }

    /// What L0 has let go of is kept in L1.
    fn sink(&mut self) {
        if let Some(kept) = self.moved.take() {
            self.l1.forget(kept.hash, kept.key());
            self.l1.insert(&kept, |_| ());
        }
    }

    /// Keeps an answer; whether there is a place for it.
    pub(crate) fn admit(&mut self, kept: &Kept<'_>) -> bool {
        let Tiers { l0, l1, rules, moved } = self;
        l0.forget(kept.hash, kept.key());
        l1.forget(kept.hash, kept.key());
        if !rules.through {
            if !l0.fits(kept.answer.len()) {
                return l1.insert(kept, |_| ());
            }
            let done = l0.insert(kept, |evicted| moved.set(evicted));
            self.sink();
            return done;
        }
        let lets_go = |evicted: Kept<'_>| {
            if rules.inclusive {
                l0.forget(evicted.hash, evicted.key());
            }
        };
        let done = l1.insert(kept, lets_go);
        if done && l0.fits(kept.answer.len()) {
            l0.insert(kept, |_| ());
        }
        done
    }

    #[cfg(test)]
    pub(crate) fn keys(&self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let keys = |tier: &Tier| {
            let mut keys: Vec<Vec<u8>> = tier.iter().map(|kept| kept.key().to_vec()).collect();
            keys.sort();
            keys
        };
        (keys(&self.l0), keys(&self.l1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Version;
    use crate::slab::Slab;
    use std::collections::BTreeSet;
    use tidemill_cachesim::policy::Policy;
    use tidemill_cachesim::random::{Random, mix};

    const VERSION: Version = Version { seq: 3, epoch: 4 };

    fn answer(key: u64, value: u64, long: bool) -> Vec<u8> {
        let value = format!("{value}{}", if long { "-".repeat(100) } else { String::new() });
        format!("VALUE {key:04} 0 {}\r\n{value}\r\n", value.len()).into_bytes()
    }

    fn tiers(policy: Policy, rules: Rules) -> Tiers {
        let l0 = Tier::new(4, 2, policy, Slab::new([(64, 4)]), 1);
        // Fewer chunks than places: some go for their chunk's sake.
        let l1 = Tier::new(16, 4, policy, Slab::new([(64, 12), (128, 0), (256, 3)]), 2);
        Tiers::new(l0, l1, rules)
    }

    /// What is got is what was kept last, tiers include each other or do not, and nothing leaks a chunk.
    #[test]
    fn what_the_table_says() {
        for policy in Policy::ALL {
            for (inclusive, through) in [(true, true), (false, true), (false, false)] {
                let (mut tiers, mut draw) = (tiers(policy, Rules { inclusive, through }), Random::new(7));
                let (mut last, mut hits, mut void) = ([0; 40], [0, 0], 0);
                for round in 1..20_000_u64 {
                    let key = draw.below(40).min(draw.below(40));
                    let (hash, text) = (mix(key), format!("{key:04}"));
                    let long = key % 7 == 0;
                    if draw.below(3) == 0 {
                        last[key as usize] = round;
                        let stamp = Stamp { version: VERSION, expires_ns: round, asked_ns: 0 };
                        let answer = answer(key, round, long);
                        let kept = Kept { hash, stamp, key_len: 4, answer: &answer };
                        assert!(tiers.admit(&kept), "{policy:?}");
                    } else {
                        // A tenth of what is there may not be given, and goes.
                        let is_void = draw.below(10) == 0;
                        let mut to = Vec::new();
                        let hit = tiers.get(hash, text.as_bytes(), |_| !is_void, &mut to);
                        assert!(hit.is_none() || !is_void);
                        if let Some(hit) = hit {
                            assert_eq!(to, answer(key, last[key as usize], long));
                            hits[usize::from(hit.level == Level::L1)] += 1;
                        }
                        void += u64::from(is_void);
                    }
                    let (l0, l1) = tiers.keys();
                    assert_eq!(tiers.len(), (l0.len(), l1.len()));
                    let sets = [&l0, &l1].map(|keys| keys.iter().cloned().collect::<BTreeSet<_>>());
                    assert_eq!((sets[0].len(), sets[1].len()), (l0.len(), l1.len()), "a key is there once");
                    assert!(!l0.contains(&b"0007".to_vec()), "too large for L0");
                    match (inclusive, through) {
                        (true, _) => assert!(sets[0].is_subset(&sets[1]), "{policy:?}"),
                        (_, false) => assert!(sets[0].is_disjoint(&sets[1]), "{policy:?}"),
                        _ => {}
                    }
                }
                assert!(hits[0] > 500 && hits[1] > 500 && void > 500, "{policy:?} {hits:?}");
            }
        }
    }

    /// Either may be alone: what was kept last is got from it, the other has nothing, and what it has no chunk for is not kept.
    #[test]
    fn one_tier_alone() {
        let cases = [
            (Level::L0, false, false),
            (Level::L1, true, true),
            (Level::L1, false, true),
            (Level::L1, false, false),
        ];
        for (alone, inclusive, through) in cases {
            let tier = |level: Level, seed| {
                let entries = if level == alone { 16 } else { 0 };
                Tier::new(entries, 4, Policy::Lru, Slab::new([(64, entries)]), seed)
            };
            let mut tiers = Tiers::new(tier(Level::L0, 1), tier(Level::L1, 2), Rules { inclusive, through });
            let (mut draw, mut last, mut hits) = (Random::new(7), [0; 40], 0);
            for round in 1..5000_u64 {
                let key = draw.below(40);
                let (hash, text) = (mix(key), format!("{key:04}"));
                let stamp = Stamp { version: VERSION, expires_ns: round, asked_ns: 0 };
                if draw.below(3) == 0 {
                    last[key as usize] = round;
                    let answer = answer(key, round, false);
                    assert!(tiers.admit(&Kept { hash, stamp, key_len: 4, answer: &answer }), "{alone:?}");
                } else {
                    let mut to = Vec::new();
                    if let Some(hit) = tiers.get(hash, text.as_bytes(), |_| true, &mut to) {
                        assert_eq!((hit.level, &to), (alone, &answer(key, last[key as usize], false)));
                        hits += 1;
                    }
                }
                let (l0, l1) = tiers.len();
                assert_eq!(if alone == Level::L0 { l1 } else { l0 }, 0);
            }
            assert!(hits > 500, "{alone:?}: {hits}");
            let (long, stamp) = (answer(7, 1, true), Stamp { version: VERSION, expires_ns: 1, asked_ns: 0 });
            assert!(!tiers.fits(long.len()) && tiers.fits(64));
            assert!(!tiers.admit(&Kept { hash: mix(7), stamp, key_len: 4, answer: &long }));
        }
    }
}
