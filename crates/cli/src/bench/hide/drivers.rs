//! The timed loops, one for each driver. Each looks a key up (a table hashes it first) and stores the answer.

use super::super::pass::{BLOCK, Checksum};
use super::work::Asked;
use std::future::Future;
use std::time::{Duration, Instant};
use tidemill_lookup::drive::{Adaptive, coroutine, group};

/// How the latency is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    Plain,
    Group,
    Coroutine,
    Adaptive,
    Batch,
}

impl Driver {
    pub(super) const ALL: [Driver; 5] =
        [Driver::Plain, Driver::Group, Driver::Coroutine, Driver::Adaptive, Driver::Batch];

    pub(super) fn name(self) -> &'static str {
        match self {
            Driver::Plain => "plain",
            Driver::Group => "group",
            Driver::Coroutine => "coroutine",
            Driver::Adaptive => "adaptive",
            Driver::Batch => "batch",
        }
    }
}

/// What is looked up in: a hash table, a trie.
pub(super) trait Subject {
    type Key: Copy;
    /// What a coroutine answers.
    type Answer;

    /// The key of a number.
    fn key(&self, number: u64) -> Self::Key;

    /// The structure's own lookup of one key.
    fn one(&self, key: &Self::Key) -> u64;

    /// The same as a coroutine.
    fn find(&self, key: &Self::Key) -> impl Future<Output = Self::Answer>;

    /// As [`one`](Self::one) would have said it.
    fn answer(answer: Self::Answer) -> u64;

    /// The structure's own lookup of many keys.
    fn batch(&self, keys: &[Self::Key], answers: &mut [u64]);
}

/// What passes over the same keys, in batches of one size, have in common.
pub(super) struct Pass<'a, S: Subject> {
    subject: &'a S,
    asked: &'a Asked,
    batch: usize,
    width: usize,
    /// Goes on learning from pass to pass.
    adaptive: Adaptive,
    keys: Vec<S::Key>,
    answers: Vec<u64>,
}

impl<'a, S: Subject> Pass<'a, S> {
    pub(super) fn new(subject: &'a S, asked: &'a Asked, batch: usize, width: usize) -> Self {
        let first = asked.numbers.first().copied().unwrap_or(0);
        let (keys, answers) = (vec![subject.key(first); BLOCK], vec![0; BLOCK]);
        Pass { subject, asked, batch, width, adaptive: Adaptive::new(width, batch), keys, answers }
    }

    /// Coroutines that the adaptive driver would use next.
    pub(super) fn adapted(&self) -> usize {
        self.adaptive.width()
    }

    /// Looks up every key once: M lookups/s, and the checksum of the answers. The clock stands still while a block's keys are
    /// made and its answers checksummed, so keys are in the cache, as those of packets that were just parsed.
    pub(super) fn run(&mut self, driver: Driver) -> (f64, String) {
        let subject = self.subject;
        let (mut time, mut checksum) = (Duration::ZERO, Checksum::new());
        for numbers in self.asked.numbers.chunks(BLOCK) {
            let (keys, answers) = (&mut self.keys[..numbers.len()], &mut self.answers[..numbers.len()]);
            for (key, &number) in keys.iter_mut().zip(numbers) {
                *key = subject.key(number);
            }
            let width = if driver == Driver::Adaptive { self.adaptive.width() } else { self.width };
            let start = Instant::now();
            for (keys, answers) in keys.chunks(self.batch).zip(answers.chunks_mut(self.batch)) {
                match driver {
                    Driver::Plain => one_by_one(subject, keys, answers),
                    Driver::Group => in_groups(subject, keys, answers, width),
                    Driver::Coroutine | Driver::Adaptive => as_coroutines(subject, keys, answers, width),
                    Driver::Batch => subject.batch(keys, answers),
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
fn one_by_one<S: Subject>(subject: &S, keys: &[S::Key], answers: &mut [u64]) {
    for (key, answer) in keys.iter().zip(answers) {
        *answer = subject.one(key);
    }
}

#[inline(never)]
fn in_groups<S: Subject>(subject: &S, keys: &[S::Key], answers: &mut [u64], width: usize) {
    group(keys.len(), width, |i| subject.find(&keys[i]), |i, answer| answers[i] = S::answer(answer));
}

#[inline(never)]
fn as_coroutines<S: Subject>(subject: &S, keys: &[S::Key], answers: &mut [u64], width: usize) {
    coroutine(keys.len(), width, |i| subject.find(&keys[i]), |i, answer| answers[i] = S::answer(answer));
}
