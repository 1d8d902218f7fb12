//! The timed loops, one for each driver. Each hashes the key, looks it up and stores the answer.

use super::super::pass::{BLOCK, Checksum};
use super::work::{Asked, Filled, NONE};
use std::time::{Duration, Instant};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::table::HashTable;
use tidemill_lookup::drive::{Adaptive, coroutine, group};

/// How the latency is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    Plain,
    Group,
    Coroutine,
    Adaptive,
}

impl Driver {
    pub(super) const ALL: [Driver; 4] = [Driver::Plain, Driver::Group, Driver::Coroutine, Driver::Adaptive];

    pub(super) fn name(self) -> &'static str {
        match self {
            Driver::Plain => "plain",
            Driver::Group => "group",
            Driver::Coroutine => "coroutine",
            Driver::Adaptive => "adaptive",
        }
    }
}

/// What passes over the same keys, in batches of one size, have in common.
pub(super) struct Pass<'a, const W: usize, T> {
    filled: &'a Filled<W, T>,
    asked: &'a Asked,
    batch: usize,
    width: usize,
    /// Goes on learning from pass to pass.
    adaptive: Adaptive,
    keys: Vec<Key<W>>,
    answers: Vec<u64>,
}

impl<'a, const W: usize, T: HashTable<W>> Pass<'a, W, T> {
    pub(super) fn new(filled: &'a Filled<W, T>, asked: &'a Asked, batch: usize, width: usize) -> Self {
        let (keys, answers) = (vec![Key([0; W]); BLOCK], vec![NONE; BLOCK]);
        Pass { filled, asked, batch, width, adaptive: Adaptive::new(width, batch), keys, answers }
    }

    /// Coroutines that the adaptive driver would use next.
    pub(super) fn adapted(&self) -> usize {
        self.adaptive.width()
    }

    /// Looks up every key once: M lookups/s, and the checksum of the answers. The clock stands still while a block's keys are
    /// made and its answers checksummed, so keys are in the cache, as those of packets that were just parsed.
    pub(super) fn run(&mut self, driver: Driver) -> (f64, String) {
        let Filled { table, hash, .. } = self.filled;
        let (mut time, mut checksum) = (Duration::ZERO, Checksum::new());
        for numbers in self.asked.numbers.chunks(BLOCK) {
            let (keys, answers) = (&mut self.keys[..numbers.len()], &mut self.answers[..numbers.len()]);
            for (key, &number) in keys.iter_mut().zip(numbers) {
                *key = self.filled.key(number);
            }
            let width = if driver == Driver::Adaptive { self.adaptive.width() } else { self.width };
            let start = Instant::now();
            for (keys, answers) in keys.chunks(self.batch).zip(answers.chunks_mut(self.batch)) {
                match driver {
                    Driver::Plain => one_by_one(table, hash, keys, answers),
                    Driver::Group => in_groups(table, hash, keys, answers, width),
                    Driver::Coroutine | Driver::Adaptive => as_coroutines(table, hash, keys, answers, width),
                }
            }
            let taken = start.elapsed();
            if driver == Driver::Adaptive {
                self.adaptive.ran(numbers.len(), 0, taken.as_nanos() as u64);
            }
            time += taken;
            checksum.bytes(answers.iter().flat_map(|answer| answer.to_le_bytes()));
        }
        let seconds = time.as_secs_f64().max(1e-9);
        (self.asked.numbers.len() as f64 / seconds / 1e6, checksum.text())
    }
}

#[inline(never)]
fn one_by_one<const W: usize, T: HashTable<W>>(
    table: &T,
    hash: &Keyed<W>,
    keys: &[Key<W>],
    answers: &mut [u64],
) {
    for (key, answer) in keys.iter().zip(answers) {
        *answer = table.get(hash.hash(key), key).unwrap_or(NONE);
    }
}

#[inline(never)]
fn in_groups<const W: usize, T: HashTable<W>>(
    table: &T,
    hash: &Keyed<W>,
    keys: &[Key<W>],
    answers: &mut [u64],
    width: usize,
) {
    let start = |i: usize| table.find(hash.hash(&keys[i]), &keys[i]);
    group(keys.len(), width, start, |i, value| answers[i] = value.unwrap_or(NONE));
}

#[inline(never)]
fn as_coroutines<const W: usize, T: HashTable<W>>(
    table: &T,
    hash: &Keyed<W>,
    keys: &[Key<W>],
    answers: &mut [u64],
    width: usize,
) {
    let start = |i: usize| table.find(hash.hash(&keys[i]), &keys[i]);
    coroutine(keys.len(), width, start, |i, value| answers[i] = value.unwrap_or(NONE));
}
