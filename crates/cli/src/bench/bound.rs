//! The machine's bound: how many random loads of 4 bytes it can do in a region as large as a structure.
//!
//! No structure that has to load something for each key can be faster, so its rate over the bound says how much of it is
//! the memory's and how much its own. Independent loads, plain and by gather instructions; and dependent ones.

use super::pass::{BLOCK, on_huge_pages};
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_lookup::gather::Gather;
use tidemill_lookup::mem::{Array, Table};
use tidemill_lpm::keys::Random;

/// How a load is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Scalar,
    Gather(Gather),
    Dependent,
}

impl Load {
    /// What this CPU can do.
    pub(crate) fn all() -> Vec<Load> {
        let gather = Gather::new().map(Load::Gather);
        [Some(Load::Scalar), gather, Some(Load::Dependent)].into_iter().flatten().collect()
    }

    /// The case's name.
    pub(crate) fn case(self) -> &'static str {
        match self {
            Load::Scalar => "independent",
            Load::Gather(_) => "independent-gather",
            Load::Dependent => "dependent",
        }
    }
}

/// A region with random content, and random places in it.
pub(crate) struct Region {
    words: Table<u32>,
    keys: Arc<Array<u32>>,
}

impl Region {
    pub(crate) fn new(bytes: usize, keys: usize, seed: u64) -> io::Result<Self> {
        let mut words = Table::new((bytes / size_of::<u32>()).max(16))?;
        let mut random = Random::new(seed);
        words.iter_mut().for_each(|word| *word = random.bits() as u32);
        let keys = on_huge_pages((0..keys).map(|_| random.bits() as u32).collect());
        Ok(Region { words, keys })
    }

    /// The region's size.
    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * size_of::<u32>()
    }

    /// One load for each key, its place being `key * words / 2^32`; results are stored, as in a pass of lookups.
    pub(crate) fn timed_pass(&self, load: Load) -> Duration {
        let (words, len) = (&self.words[..], self.words.len() as u64);
        let place = |key: u32| ((u64::from(key) * len) >> 32) as usize;
        let mut out = vec![0_u32; BLOCK];
        let (mut time, mut previous) = (Duration::ZERO, 0_u32);
        for block in self.keys.chunks(BLOCK) {
            let out = &mut out[..block.len()];
            let start = Instant::now();
            match load {
                Load::Scalar => {
                    for (&key, out) in block.iter().zip(out.iter_mut()) {
                        *out = words[place(key)];
                    }
                }
                Load::Gather(gather) => gather.run(words, block, out),
                Load::Dependent => {
                    for (&key, out) in block.iter().zip(out.iter_mut()) {
                        previous = words[place(key ^ previous)];
                        *out = previous;
                    }
                }
            }
            time += start.elapsed();
            black_box(&*out);
        }
        time
    }

    /// Loads in a pass.
    pub(crate) fn loads(&self) -> usize {
        self.keys.len()
    }
}
