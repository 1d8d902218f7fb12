//! One cache and a log.

use crate::log::{Log, Op};
use crate::policy::{Cache, Clock, Fifo, Lru, Policy, Random, S3Fifo, Sieve};
use crate::sets::{Sets, SetsError};
use std::fmt;
use std::str::FromStr;
use tidemill_lookup::hash::{crc32, lookup3};

/// Requests between asking for a key's node and reading it: long enough for main memory, short enough for the first-level cache.
const AHEAD: usize = 16;

/// Which of a key's hashes names its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HashName {
    /// Ethernet's CRC-32.
    #[default]
    Crc32,
    /// lookup3.
    Lookup3,
}

impl HashName {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            HashName::Crc32 => "crc32",
            HashName::Lookup3 => "lookup3",
        }
    }

    /// Of a key's text.
    pub fn of_text(self, text: &[u8]) -> u32 {
        match self {
            HashName::Crc32 => crc32(text),
            HashName::Lookup3 => lookup3(text, 0),
        }
    }

    /// Of every key of a log.
    pub fn of(self, log: &Log) -> Vec<u32> {
        let hash = |key: &crate::log::KeyInfo| match self {
            HashName::Crc32 => key.crc32,
            HashName::Lookup3 => key.lookup3,
        };
        log.keys().iter().map(hash).collect()
    }
}

impl FromStr for HashName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [HashName::Crc32, HashName::Lookup3]
            .into_iter()
            .find(|hash| hash.name() == text)
            .ok_or_else(|| format!("{text}: no such hash: use crc32 or lookup3"))
    }
}

/// In how many places a key may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ways {
    /// Anywhere.
    Full,
    /// In so many.
    Sets(usize),
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ways::Full => f.pad("full"),
            Ways::Sets(ways) => ways.fmt(f),
        }
    }
}

impl FromStr for Ways {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "full" {
            return Ok(Ways::Full);
        }
        let ways = text.parse().ok().filter(|ways| (1..=crate::sets::WAYS_MAX).contains(ways));
        ways.map(Ways::Sets).ok_or_else(|| format!("{text}: no such associativity: use 1 to 16, or full"))
    }
}

/// A cache to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// Which key goes.
    pub policy: Policy,
    /// Where a key may lie.
    pub ways: Ways,
    /// Entries.
    pub capacity: usize,
    /// Which hash names sets.
    pub hash: HashName,
    /// Of what is random.
    pub seed: u64,
}

/// What a log's requests came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Gets.
    pub gets: u64,
    /// Of them, those whose key was kept.
    pub hits: u64,
    /// Writes: [`Op::Set`] and [`Op::Change`].
    pub writes: u64,
    /// Deletes.
    pub deletes: u64,
    /// Keys that had to go for others.
    pub evictions: u64,
}

impl Counts {
    /// Of the gets, how many found nothing, 0 to 1; 0 if there were no gets.
    pub fn miss_ratio(&self) -> f64 {
        if self.gets == 0 { 0.0 } else { (self.gets - self.hits) as f64 / self.gets as f64 }
    }
}

impl Run {
    /// Whether there is such a cache.
    ///
    /// # Errors
    /// See [`SetsError`].
    pub fn check(&self) -> Result<(), SetsError> {
        match self.ways {
            Ways::Full => Ok(()),
            Ways::Sets(ways) => Sets::check(self.capacity, ways).map(|_| ()),
        }
    }

    /// The cache, for a log's keys.
    ///
    /// # Errors
    /// See [`SetsError`].
    pub fn cache(&self, log: &Log) -> Result<Box<dyn Cache>, SetsError> {
        let (keys, capacity) = (log.keys().len(), self.capacity);
        Ok(match (self.ways, self.policy) {
            (Ways::Sets(ways), policy) => {
                Box::new(Sets::new(&self.hash.of(log), capacity, ways, policy, self.seed)?)
            }
            (Ways::Full, Policy::Fifo) => Box::new(Fifo::new(keys, capacity)),
            (Ways::Full, Policy::Lru) => Box::new(Lru::new(keys, capacity)),
            (Ways::Full, Policy::Clock) => Box::new(Clock::new(keys, capacity)),
            (Ways::Full, Policy::Sieve) => Box::new(Sieve::new(keys, capacity)),
            (Ways::Full, Policy::S3Fifo) => Box::new(S3Fifo::new(keys, capacity)),
            (Ways::Full, Policy::Random) => Box::new(Random::new(keys, capacity, self.seed)),
        })
    }

    /// Runs the log through the cache; the first `warm` requests are not counted.
    ///
    /// # Errors
    /// See [`SetsError`].
    pub fn run(&self, log: &Log, warm: usize) -> Result<Counts, SetsError> {
        let (keys, capacity) = (log.keys().len(), self.capacity);
        // A loop for each type: what a policy does to a hit is inlined in it.
        Ok(match (self.ways, self.policy) {
            (Ways::Sets(ways), policy) => {
                let cache = Sets::new(&self.hash.of(log), capacity, ways, policy, self.seed)?;
                warmed(log, warm, cache)
            }
            (Ways::Full, Policy::Fifo) => warmed(log, warm, Fifo::new(keys, capacity)),
            (Ways::Full, Policy::Lru) => warmed(log, warm, Lru::new(keys, capacity)),
            (Ways::Full, Policy::Clock) => warmed(log, warm, Clock::new(keys, capacity)),
            (Ways::Full, Policy::Sieve) => warmed(log, warm, Sieve::new(keys, capacity)),
            (Ways::Full, Policy::S3Fifo) => warmed(log, warm, S3Fifo::new(keys, capacity)),
            (Ways::Full, Policy::Random) => warmed(log, warm, Random::new(keys, capacity, self.seed)),
        })
    }
}

fn warmed(log: &Log, warm: usize, mut cache: impl Cache) -> Counts {
    let (before, counted) = log.requests().split_at(warm.min(log.requests().len()));
    pass(before, &mut cache);
    pass(counted, &mut cache)
}

/// Runs requests through a cache, and counts. A get or a set of a key that is not kept brings it in.
pub fn pass(requests: &[crate::Request], cache: &mut impl Cache) -> Counts {
    let mut counts = Counts::default();
    for (i, request) in requests.iter().enumerate() {
        if let Some(later) = requests.get(i + AHEAD) {
            cache.prefetch(later.key);
        }
        match request.op() {
            Op::Get => {
                let found = cache.get(request.key);
                counts.gets += 1;
                counts.hits += u64::from(found);
                if !found {
                    counts.evictions += u64::from(cache.insert(request.key).is_some());
                }
            }
            Op::Set => {
                counts.writes += 1;
                if !cache.get(request.key) {
                    counts.evictions += u64::from(cache.insert(request.key).is_some());
                }
            }
            Op::Change => {
                counts.writes += 1;
                cache.get(request.key);
            }
            Op::Delete => {
                counts.deletes += 1;
                cache.remove(request.key);
            }
        }
    }
    counts
}
