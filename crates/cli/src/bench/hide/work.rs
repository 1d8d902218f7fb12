//! A filled table, and the keys that are asked for.

use super::super::pass::Checksum;
use super::drivers::Subject;
use super::{Case, Shape};
use crate::usage;
use anyhow::Result;
use std::future::Future;
use tidemill_flow::hash::{KeyHash, Keyed, mix};
use tidemill_flow::key::Key;
use tidemill_flow::table::HashTable;
use tidemill_lookup::probe::Recorder;
use tidemill_lpm::keys::Random;

/// What a lookup that finds nothing answers; no key has this value.
pub(super) const NONE: u64 = u64::MAX;
/// Keys with these numbers and greater ones are in no table.
const ABSENT: u64 = 1 << 40;
/// Of so many keys for each one that is asked for, those with the fewest and the most loads are chosen.
const CANDIDATES: usize = 4;

/// A table with the keys 0, 1, 2 and so on, each with its number as its value.
pub(super) struct Filled<const W: usize, T> {
    pub(super) table: T,
    pub(super) hash: Keyed<W>,
    keys: u64,
    shape: Shape,
    base: u64,
}

/// What a table of so many slots takes, by a small one.
///
/// # Errors
/// There is no memory for the small one either.
pub(super) fn bytes<const W: usize, T: HashTable<W>>(slots: usize) -> Result<usize> {
    const SMALL: usize = 1 << 14;
    let small =
        T::new(SMALL.min(slots)).map_err(|error| usage(format!("--entries: {}: {error}", T::NAME)))?;
    Ok((small.bytes() as f64 / small.capacity() as f64 * slots as f64) as usize)
}

impl<const W: usize, T: HashTable<W>> Filled<W, T> {
    pub(super) fn new(shape: Shape, load: f64, seed: u64) -> Result<Self> {
        let table = T::new(shape.entries)
            .map_err(|error| usage(format!("--entries: {}: {error}: give fewer", T::NAME)))?;
        let hash = Keyed::new(u128::from(mix(seed)) << 64 | u128::from(mix(!seed)));
        let keys = super::keys(shape.entries, load);
        let mut filled = Filled { table, hash, keys, shape, base: mix(seed) };
        for number in 0..keys {
            let key = filled.key(number);
            filled.table.insert(hash.hash(&key), &key, number).map_err(|error| {
                usage(format!("--load {load}: {}: {error} after {number} keys: give less", T::NAME))
            })?;
        }
        Ok(filled)
    }

    /// How many loads the lookup of a key takes.
    fn loads(&self, number: u64) -> u64 {
        let (recorder, key) = (Recorder::new(), self.key(number));
        self.table.get_probed(self.hash.hash(&key), &key, &recorder);
        recorder.counts().reads
    }
}

/// Keys that a table gets in one call.
const MOST: usize = 256;

impl<const W: usize, T: HashTable<W>> Subject for Filled<W, T> {
    type Key = Key<W>;
    type Answer = Option<u64>;

    /// Two numbers have two keys, which differ in their first words already.
    fn key(&self, number: u64) -> Key<W> {
        let first = mix(self.base ^ number);
        let mut words =
            std::array::from_fn(|i| if i == 0 { first } else { mix(first.wrapping_add(i as u64)) });
        words[W - 1] &= match self.shape.key_bytes % 8 {
            0 => u64::MAX,
            rest => u64::MAX >> (64 - 8 * rest),
        };
        Key(words)
    }

    #[inline(always)]
    fn one(&self, key: &Key<W>) -> u64 {
        self.table.get(self.hash.hash(key), key).unwrap_or(NONE)
    }

    #[inline(always)]
    fn find(&self, key: &Key<W>) -> impl Future<Output = Option<u64>> {
        self.table.find(self.hash.hash(key), key)
    }

    #[inline(always)]
    fn answer(answer: Option<u64>) -> u64 {
        answer.unwrap_or(NONE)
    }

    fn batch(&self, keys: &[Key<W>], answers: &mut [u64]) {
        let (mut hashes, mut found) = ([0; MOST], [None; MOST]);
        for (keys, answers) in keys.chunks(MOST).zip(answers.chunks_mut(MOST)) {
            let (hashes, found) = (&mut hashes[..keys.len()], &mut found[..keys.len()]);
            self.hash.hash_batch(keys, hashes);
            self.table.get_batch(hashes, keys, found);
            for (answer, found) in answers.iter_mut().zip(found) {
                *answer = found.unwrap_or(NONE);
            }
        }
    }
}

/// The numbers of the keys that are asked for, in order.
pub(super) struct Asked {
    pub(super) numbers: Vec<u64>,
    /// The checksum of the right answers.
    pub(super) expected: String,
    /// Loads per lookup of the plain loop, by the access probe: the mean over the first ones.
    pub(super) loads: f64,
}

impl Asked {
    /// What choosing so many takes at most.
    pub(super) fn bytes(lookups: usize) -> usize {
        lookups.saturating_mul((CANDIDATES + 1) * 16)
    }

    pub(super) fn new<const W: usize, T: HashTable<W>>(
        filled: &Filled<W, T>,
        case: Case,
        lookups: usize,
        seed: u64,
    ) -> Self {
        let mut random = Random::new(seed);
        let hit = |random: &mut Random| random.below(filled.keys.max(1) as usize) as u64;
        let miss = |random: &mut Random| ABSENT + (random.bits() >> 32);
        let numbers: Vec<u64> = match case {
            Case::Hit => (0..lookups).map(|_| hit(&mut random)).collect(),
            Case::Miss => (0..lookups).map(|_| miss(&mut random)).collect(),
            Case::Early => {
                let candidate = |i: usize| {
                    let number = if i.is_multiple_of(2) { hit(&mut random) } else { miss(&mut random) };
                    (filled.loads(number), number)
                };
                let mut by_loads: Vec<(u64, u64)> = (0..CANDIDATES * lookups).map(candidate).collect();
                by_loads.sort_unstable_by_key(|&(loads, _)| loads);
                let long = by_loads.len() - lookups.div_ceil(2);
                let chosen = by_loads[..lookups / 2].iter().chain(&by_loads[long..]);
                let mut numbers: Vec<u64> = chosen.map(|&(_, number)| number).collect();
                (1..numbers.len()).rev().for_each(|i| numbers.swap(i, random.below(i + 1)));
                numbers
            }
        };
        let answer = |&number: &u64| if number < filled.keys { number } else { NONE };
        let mut checksum = Checksum::new();
        checksum.bytes(numbers.iter().map(answer).flat_map(u64::to_le_bytes));
        let sample = &numbers[..numbers.len().min(1 << 16)];
        let loads: u64 = sample.iter().map(|&number| filled.loads(number)).sum();
        Asked { expected: checksum.text(), loads: loads as f64 / sample.len() as f64, numbers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_flow::chaining::Chaining;

    #[test]
    fn half_of_the_early_ones_leave_early_and_half_take_long() {
        let shape = Shape { entries: 1 << 12, key_bytes: 36 };
        let filled = Filled::<5, Chaining<5>>::new(shape, 0.9, 7).unwrap();
        assert!(filled.key(3).0[4] >> 32 == 0 && filled.key(3) != filled.key(4));
        let asked = Asked::new(&filled, Case::Early, 4096, 7);
        let loads: Vec<u64> = asked.numbers.iter().map(|&number| filled.loads(number)).collect();
        let (short, long): (Vec<u64>, Vec<u64>) = loads.iter().partition(|&&loads| loads <= 2);
        assert_eq!((short.len(), long.len()), (2048, 2048));
        // A chain's head is one load; half of the short and of the long ones are in each half of the order.
        assert!(short.iter().all(|&loads| loads == 1), "an empty chain");
        let early = loads[..2048].iter().filter(|&&loads| loads <= 2).count();
        assert!((900..1150).contains(&early), "{early}");
    }
}
