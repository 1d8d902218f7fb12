//! Pools of keys and operations on them: the ones that have a name, and random ones of several adversarial kinds.

use super::Random;
use crate::hash::{KeyHash, Keyed};
use crate::key::Key;
use std::fmt;

/// One operation; keys by their place in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Insert, or replace.
    Insert(usize, u64),
    /// Remove.
    Remove(usize),
    /// Look up, in every form.
    Get(usize),
    /// Look up a batch: from this key on, this many, round and round.
    GetBatch(usize, usize),
    /// The next part of a round of scanning under way, with this budget.
    Scan(usize),
    /// The next part of a round of expiry, with this budget: keys whose lot with this salt is below a share of 256.
    Expire(usize, u64, u16),
    /// A whole round of expiry.
    ExpireRound(usize, u64, u16),
    /// Compare everything.
    Check,
}

/// A table, and operations on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case<const W: usize> {
    /// Seed of the case, if it is a random one.
    pub seed: u64,
    /// Slots asked for.
    pub capacity: usize,
    /// The pool: hashes and keys, the keys all different. Not empty.
    pub keys: Vec<(u64, Key<W>)>,
    /// What is done, in this order.
    pub ops: Vec<Op>,
}

impl<const W: usize> fmt::Display for Case<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, capacity {}, {} keys", self.seed, self.capacity, self.keys.len())?;
        for op in &self.ops {
            match *op {
                Op::Insert(at, _) | Op::Remove(at) | Op::Get(at) => {
                    let (hash, key) = self.key(at);
                    writeln!(f, "  {op:x?}: hash {hash:#018x}, {:x?}", key.0)?;
                }
                op => writeln!(f, "  {op:?}")?,
            }
        }
        Ok(())
    }
}

impl<const W: usize> Case<W> {
    /// The key of an operation.
    pub(super) fn key(&self, at: usize) -> (u64, Key<W>) {
        self.keys[at % self.keys.len()]
    }
}

/// Where hashes come from.
#[derive(Debug, Clone, Copy)]
enum Hashes {
    Good,
    AllEqual(u64),
    EqualHighHalf,
    EqualLowHalf,
    EqualLowByte,
    OnlyHighByte,
    Sequential,
    SequentialHigh,
    Few(usize),
    Ends,
    NearTheEnd,
}

const HASHES: [Hashes; 14] = [
    Hashes::Good,
    Hashes::Good,
    Hashes::Good,
    Hashes::AllEqual(0),
    Hashes::AllEqual(u64::MAX),
    Hashes::EqualHighHalf,
    Hashes::EqualLowHalf,
    Hashes::EqualLowByte,
    Hashes::OnlyHighByte,
    Hashes::Sequential,
    Hashes::SequentialHigh,
    Hashes::Few(3),
    Hashes::Ends,
    Hashes::NearTheEnd,
];

impl Hashes {
    /// The hash of key `i` of a pool, `good` being a good one.
    fn hash(self, i: usize, good: u64) -> u64 {
        match self {
            Hashes::Good => good,
            Hashes::AllEqual(hash) => hash,
            Hashes::EqualHighHalf => good >> 32 | 0x1234_5678 << 32,
            Hashes::EqualLowHalf => good >> 32 << 32 | 0x1234_5678,
            Hashes::EqualLowByte => good | 0xff,
            Hashes::OnlyHighByte => good >> 56 << 56,
            Hashes::Sequential => i as u64,
            Hashes::SequentialHigh => (i as u64) << 32,
            Hashes::Few(n) => good % n as u64 * (u64::MAX / n as u64),
            Hashes::Ends => [0, u64::MAX][i % 2],
            Hashes::NearTheEnd => u64::MAX - (good >> 6),
        }
    }
}

/// How the keys of a pool differ.
#[derive(Debug, Clone, Copy)]
enum Keys {
    Random,
    LastWord,
    FirstWord,
    TopBits,
}

const KEYS: [Keys; 4] = [Keys::Random, Keys::LastWord, Keys::FirstWord, Keys::TopBits];

/// `count` different keys; the key zero is the first of those that are counted.
fn pool<const W: usize>(count: usize, keys: Keys, hashes: Hashes, random: &mut Random) -> Vec<(u64, Key<W>)> {
    let keyed = Keyed::<W>::new(u128::from(random.bits()));
    (0..count.max(1))
        .map(|i| {
            let mut key = [0; W];
            match keys {
                Keys::Random => {
                    key = std::array::from_fn(|_| random.bits());
                    key[0] = key[0] >> 20 << 20 | i as u64; // all different
                }
                Keys::LastWord => key[W - 1] = i as u64,
                Keys::FirstWord => key[0] = i as u64,
                Keys::TopBits => key[W - 1] = (i as u64).reverse_bits(),
            }
            let key = Key(key);
            (hashes.hash(i, keyed.hash(&key)), key)
        })
        .collect()
}

/// The cases that have a name.
pub fn edge_cases<const W: usize>() -> Vec<(String, Case<W>)> {
    let mut all = Vec::new();
    let mut random = Random(4711);
    for hashes in HASHES {
        for (capacity, keys) in [(0, 3), (1, 3), (2, 5), (7, 9), (33, 80), (100, 130)] {
            let pool = pool(keys, Keys::LastWord, hashes, &mut random);
            let insert_all = || (0..keys).map(|i| Op::Insert(i, i as u64));
            let round = |share| [Op::ExpireRound(3, 1, share), Op::Check];
            let mut ops = vec![Op::Check, Op::Remove(0), Op::ExpireRound(1, 0, 256)];
            ops.extend(insert_all());
            ops.extend((0..keys).map(|i| Op::Insert(i, u64::MAX))); // replaced, the rest still refused
            ops.extend((0..keys).step_by(2).flat_map(|i| [Op::Remove(i), Op::Get(i), Op::Get(i + 1)]));
            ops.push(Op::Check);
            ops.extend(insert_all());
            ops.extend(round(0)); // nothing
            ops.extend(round(128));
            ops.extend(insert_all());
            ops.extend(round(256)); // everything
            // Filled and emptied many times over.
            for _ in 0..4 {
                ops.extend(insert_all());
                ops.extend((0..keys).rev().map(Op::Remove));
            }
            ops.push(Op::Check);
            let name = format!("{hashes:?}, {keys} keys for {capacity} slots");
            all.push((name, Case { seed: 4711, capacity, keys: pool, ops }));
        }
    }
    all
}

/// A random case: a table of up to some hundred slots that is filled, used and emptied.
pub fn random_case<const W: usize>(seed: u64) -> Case<W> {
    let mut random = Random(seed);
    let capacity = random.one_of(&[1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 200, 257]);
    let count = 1 + capacity * random.one_of(&[2, 5, 6, 9, 16]) / 5;
    let (keys, hashes) = (random.one_of(&KEYS), random.one_of(&HASHES));
    let keys = pool(count, keys, hashes, &mut random);
    let mut ops = Vec::new();
    for _ in 0..2 + random.below(5) {
        // A phase that fills, one that keeps the load, one that empties.
        let inserts = random.one_of(&[2, 5, 5, 9]);
        for _ in 0..capacity + random.below(2 * capacity + 8) {
            let key = random.below(count);
            ops.push(match random.below(32) {
                0 => Op::Scan(1 + random.below(9)),
                1 => Op::Expire(1 + random.below(9), random.bits(), random.one_of(&[8, 64, 200])),
                2 => Op::GetBatch(key, random.one_of(&[0, 1, 31, 32, 33, 70, 256])),
                3..=6 => Op::Get(key),
                _ if random.below(10) < inserts => {
                    let value = random.bits();
                    Op::Insert(key, random.one_of(&[0, 1, u64::MAX, value, value]))
                }
                _ => Op::Remove(key),
            });
        }
        ops.push(match random.below(3) {
            0 => Op::Check,
            _ => {
                let budget = random.one_of(&[1, 2, 3, 8, 1000]);
                Op::ExpireRound(budget, random.bits(), random.one_of(&[0, 20, 128, 230, 256]))
            }
        });
    }
    Case { seed, capacity, keys, ops }
}
