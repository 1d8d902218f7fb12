//! The suite that every table joins: the table on one side, [`std::collections::HashMap`] on the other.
//!
//! A table joins with one line in `tests/suite.rs`, see [`flow_suite!`](crate::flow_suite). [`run_many`] is the same for any
//! number of cases, each a table of its own: a pool of keys with hashes that may be as bad as hashes can be, and
//! operations on them. Every answer is compared; now and then, after the first insertions that were refused, and at the end
//! the whole table is: every key of the pool in every form of lookup, a full round of `scan`, the counters. A case that
//! fails is made smaller by leaving out operations for as long as it still fails, and printed.

mod cases;
pub mod flows;
mod run;
mod shrink;

pub use cases::{Case, Op, edge_cases, random_case};

use crate::hash::mix;
use crate::table::HashTable;
use std::fmt;

/// What has been checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tables made.
    pub tables: usize,
    /// Operations.
    pub operations: usize,
    /// Answers compared with the model's.
    pub answers: usize,
    /// Insertions refused for want of room.
    pub refused: usize,
    /// Keys that expired.
    pub expired: usize,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, more: Stats) {
        self.tables += more.tables;
        self.operations += more.operations;
        self.answers += more.answers;
        self.refused += more.refused;
        self.expired += more.expired;
    }
}

/// What went wrong in a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Operations done before.
    pub after: usize,
    /// What the table did, and what it should have done.
    pub what: String,
}

/// A case that fails, made as small as possible.
#[derive(Debug, Clone)]
pub struct Failure<const W: usize> {
    /// The table's name.
    pub table: &'static str,
    /// What leads to it.
    pub case: Case<W>,
    /// What happens.
    pub fault: Fault,
}

impl<const W: usize> fmt::Display for Failure<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} with {W} words: after {} operations {}",
            self.table, self.fault.after, self.fault.what
        )?;
        fmt::Display::fmt(&self.case, f)
    }
}

impl<const W: usize> std::error::Error for Failure<W> {}

/// Runs one case; a failing one is made smaller first.
///
/// # Errors
/// The smallest case found that fails.
pub fn run_case<const W: usize, T: HashTable<W>>(case: &Case<W>) -> Result<Stats, Box<Failure<W>>> {
    run::run::<W, T>(case).map_err(|fault| {
        let (case, fault) = shrink::shrink(case.clone(), fault, |case| run::run::<W, T>(case).err());
        Box::new(Failure { table: T::NAME, case, fault })
    })
}

/// Runs `cases` random and adversarial cases, number i that of seed `seed` + i, telling `progress` how many are done.
///
/// # Errors
/// The first case that fails, made smaller.
pub fn run_many<const W: usize, T: HashTable<W>>(
    seed: u64,
    cases: usize,
    mut progress: impl FnMut(usize),
) -> Result<Stats, Box<Failure<W>>> {
    let mut total = Stats::default();
    for i in 0..cases {
        total += run_case::<W, T>(&random_case(seed.wrapping_add(i as u64)))?;
        progress(i + 1);
    }
    Ok(total)
}

/// Share of the `capacity` slots of a new table that keys with good hashes fill before the first is refused.
///
/// # Panics
/// If there is no memory for the table.
pub fn occupancy<const W: usize, T: HashTable<W>>(capacity: usize, seed: u64) -> f64 {
    let mut table = T::new(capacity).unwrap_or_else(|error| panic!("{}: {error}", T::NAME));
    let mut random = Random(seed);
    while table.len() < table.capacity() {
        let key = crate::key::Key(std::array::from_fn(|_| random.bits()));
        if table.insert(random.bits(), &key, 0).is_err() {
            break;
        }
    }
    table.len() as f64 / table.capacity() as f64
}

/// Numbers that are the same on every machine (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Generates the family's tests for a table, in a module `$name`, for keys of one, two and five words. The last argument:
/// the share of 4,000 slots that keys with good hashes must fill.
///
/// ```ignore
/// flow_suite!(linear, Linear, fills 1.0);
/// ```
#[macro_export]
macro_rules! flow_suite {
    ($name:ident, $table:ident, fills $share:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $crate::flow_suite!(one_word, $table, 1, $share);
            $crate::flow_suite!(two_words, $table, 2, $share);
            $crate::flow_suite!(five_words, $table, 5, $share);
        }
    };
    ($name:ident, $table:ident, $words:literal, $share:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            use $crate::table::HashTable;

            type Table = $table<$words>;

            #[test]
            fn edge_cases() {
                for (name, case) in $crate::suite::edge_cases::<$words>() {
                    $crate::suite::run_case::<$words, Table>(&case)
                        .unwrap_or_else(|failure| panic!("{name}: {failure}"));
                }
            }

            #[test]
            fn random_and_adversarial_cases() {
                let cases = if cfg!(miri) { 2 } else { 150 };
                let stats = $crate::suite::run_many::<$words, Table>(1, cases, |_| {});
                let stats = stats.unwrap_or_else(|failure| panic!("{failure}"));
                assert!(stats.answers > stats.operations && stats.expired > 0, "{stats:?}");
            }

            #[test]
            fn keys_with_good_hashes_fill_it() {
                let share = $crate::suite::occupancy::<$words, Table>(if cfg!(miri) { 64 } else { 4000 }, 1);
                assert!(cfg!(miri) || share >= $share, "refused at an occupancy of {share}");
                // The last slot is the hardest to reach, and in small tables keys have it on their paths.
                for capacity in (1..=40).filter(|_| $share >= 1.0) {
                    let share = $crate::suite::occupancy::<$words, Table>(capacity, 7);
                    assert!(share >= 1.0, "{capacity} slots: refused at an occupancy of {share}");
                }
            }

            #[test]
            fn sizes_beyond_memory_are_errors() {
                for capacity in [usize::MAX, usize::MAX / 2 + 1, 1 << 60] {
                    assert!(<Table as HashTable<$words>>::new(capacity).is_err(), "{capacity} slots");
                }
            }
        }
    };
}

#[cfg(test)]
mod tests;
