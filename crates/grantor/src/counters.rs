//! What policies have done: written by whoever runs them, read beside them.

use crate::answer::Failure;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of all engines and judges of a Grantor. They are added to once per batch, so contention does not matter.
#[derive(Debug, Default)]
pub struct Counts {
    asked: AtomicU64,
    merged: AtomicU64,
    calls: AtomicU64,
    rebuilt: AtomicU64,
    swapped: AtomicU64,
    after_deadline: AtomicU64,
    failures: [AtomicU64; Failure::ALL.len()],
}

/// [`Counts`] at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shown {
    /// Questions that came to an engine.
    pub asked: u64,
    /// Those of them that another one's answer served.
    pub merged: u64,
    /// Calls into Lua.
    pub calls: u64,
    /// States that had to be made anew after a failure.
    pub rebuilt: u64,
    /// States that a reload has put in another's place.
    pub swapped: u64,
    /// Answers that came when their questions had waited too long already.
    pub after_deadline: u64,
    failures: [u64; Failure::ALL.len()],
}

impl Shown {
    /// Questions that failed so.
    pub fn failed(&self, failure: Failure) -> u64 {
        self.failures[failure as usize]
    }

    /// All questions that failed.
    pub fn failures(&self) -> u64 {
        self.failures.iter().sum()
    }
}

impl Counts {
    /// What they are now.
    pub fn shown(&self) -> Shown {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        Shown {
            asked: get(&self.asked),
            merged: get(&self.merged),
            calls: get(&self.calls),
            rebuilt: get(&self.rebuilt),
            swapped: get(&self.swapped),
            after_deadline: get(&self.after_deadline),
            failures: std::array::from_fn(|i| get(&self.failures[i])),
        }
    }

    pub(crate) fn batch(&self, asked: usize, merged: usize, calls: u64) {
        self.asked.fetch_add(asked as u64, Relaxed);
        self.merged.fetch_add(merged as u64, Relaxed);
        self.calls.fetch_add(calls, Relaxed);
    }

    pub(crate) fn rebuilt(&self) {
        self.rebuilt.fetch_add(1, Relaxed);
    }

    pub(crate) fn swapped(&self) {
        self.swapped.fetch_add(1, Relaxed);
    }

    pub(crate) fn after_deadline(&self) {
        self.after_deadline.fetch_add(1, Relaxed);
    }

    pub(crate) fn failed(&self, failure: Failure, questions: u64) {
        self.failures[failure as usize].fetch_add(questions, Relaxed);
    }
}
