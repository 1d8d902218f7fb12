//! The suite that every structure joins: tables and changes on one side, the linear [oracle](crate::oracle) on the other.
//!
//! A structure joins with one line in its tests, see [`lpm_suite!`](crate::lpm_suite); one that shares with another line, [`beside`]
//! another one of its store. [`run_many`] is the same for any number of tables, for `tidemill fib verify --suite`.
//!
//! After the build and after every batch of changes each answer at the first and last address of every prefix, at both
//! their neighbours, and at random addresses is compared, singly and in bursts by every kernel that the CPU has. A case
//! that fails is made smaller by leaving out parts for as long as it still fails, and printed.

mod beside;
mod cases;
mod concurrent;
mod shrink;

pub use beside::beside;
pub use cases::{Case, edge_cases, large_case, long_case, random_case};
pub use concurrent::{concurrent, concurrent_default, concurrent_growth};

use crate::fib::{BuildError, Fib, FibWriter, Label, Outgrown};
use crate::keys::Random;
use crate::oracle::Oracle;
use crate::prefix::{Address, Prefix};
use crate::rib::{Change, Rib};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tidemill_lookup::qsbr::Domain;

/// Random keys per check, beside the edges of the prefixes.
const RANDOM_KEYS: usize = 64;
/// Of a large case not the edges of all prefixes are asked for after each batch, but of so many, and of those that change.
const MANY: usize = 4096;

/// Builds the structure under test.
pub trait Make<A: Address>: Fn(&Rib<A>, &Domain) -> Result<Box<dyn FibWriter<A>>, BuildError> {}
impl<A: Address, F: Fn(&Rib<A>, &Domain) -> Result<Box<dyn FibWriter<A>>, BuildError>> Make<A> for F {}

/// What has been checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tables built.
    pub tables: usize,
    /// Announcements and withdrawals applied.
    pub changes: usize,
    /// Times that answers were compared with the oracle's after a batch of changes.
    pub states: usize,
    /// Answers compared with the oracle's.
    pub lookups: usize,
    /// Patches that the structure refused, and that were answered by a rebuild.
    pub rebuilds: usize,
    /// Tables that the structure refused for the width of their labels.
    pub refused: usize,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, more: Stats) {
        self.tables += more.tables;
        self.changes += more.changes;
        self.states += more.states;
        self.lookups += more.lookups;
        self.rebuilds += more.rebuilds;
        self.refused += more.refused;
    }
}

/// What went wrong in a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault<A> {
    /// A wrong answer.
    Wrong {
        /// Batches applied before.
        batches: usize,
        /// The address asked for.
        key: A,
        /// The oracle's answer.
        expected: Label,
        /// The structure's.
        found: Label,
        /// The kernel that it was asked for in a burst; `None`: singly.
        kernel: Option<&'static str>,
    },
    /// The structure could not be built.
    Build {
        /// Batches applied before.
        batches: usize,
        /// The error.
        error: String,
    },
    /// The structure panicked.
    Panic {
        /// The message.
        message: String,
    },
}

/// A case that fails, made as small as possible.
#[derive(Debug, Clone)]
pub struct Failure<A: Address> {
    /// What leads to it.
    pub case: Case<A>,
    /// What happens.
    pub fault: Fault<A>,
}

impl<A: Address> fmt::Display for Failure<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Wrong { batches, key, expected, found, kernel } => {
                let how =
                    kernel.map_or_else(|| "singly".to_owned(), |kernel| format!("in a burst ({kernel})"));
                let (key, expected, found) = (key.to_ip(), expected.0, found.0);
                writeln!(f, "{key}, looked up {how} after {batches} batches: {found} instead of {expected}")?;
            }
            Fault::Build { batches, error } => writeln!(f, "not built after {batches} batches: {error}")?,
            Fault::Panic { message } => writeln!(f, "panicked: {message}")?,
        }
        fmt::Display::fmt(&self.case, f)
    }
}

impl<A: Address> std::error::Error for Failure<A> {}

/// Runs one case; a failing one is made smaller first. One with labels too wide for the structure is run again with narrower ones.
///
/// # Errors
/// The smallest case found that fails.
pub fn run_case<A: Address>(case: &Case<A>, make: &impl Make<A>) -> Result<Stats, Box<Failure<A>>> {
    match try_case(case, make) {
        Ok((mut stats, Some(most))) => {
            stats += Stats { tables: 0, ..run_case(&case.narrowed(most), make)? };
            Ok(stats)
        }
        Ok((stats, None)) => Ok(stats),
        Err(fault) => Err(Box::new(shrink::shrink(case.clone(), fault, |case| try_case(case, make).err()))),
    }
}

/// Runs `tables` random and adversarial cases, number i that of seed `seed` + i, telling `progress` how many are done.
///
/// # Errors
/// The first case that fails, made smaller.
pub fn run_many<A: Address>(
    seed: u64,
    tables: usize,
    make: impl Make<A>,
    mut progress: impl FnMut(usize),
) -> Result<Stats, Box<Failure<A>>> {
    let mut total = Stats::default();
    for i in 0..tables {
        total += run_case(&random_case(seed.wrapping_add(i as u64)), &make)?;
        progress(i + 1);
    }
    Ok(total)
}

/// The greatest label that a structure must take whose labels have so many bits, whatever it says: 16 of them, or 8 without the last value.
fn most_label(width_bits: u8) -> u32 {
    if width_bits < 16 { 0xfe } else { 0xffff }
}

/// What was checked; and, if the structure has refused the width of labels, the greatest label that it takes.
fn try_case<A: Address>(case: &Case<A>, make: &impl Make<A>) -> Result<(Stats, Option<u32>), Fault<A>> {
    catch_unwind(AssertUnwindSafe(|| Run::new(case, make)?.finish())).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
            .unwrap_or_default();
        Err(Fault::Panic { message })
    })
}

/// A case under way.
struct Run<'a, A: Address, M> {
    case: &'a Case<A>,
    make: &'a M,
    domain: Domain,
    rib: Rib<A>,
    /// The truth, kept apart from the RIB, which is under test too.
    truth: BTreeMap<Prefix<A>, Label>,
    /// `None`: the structure refuses the table's labels.
    writer: Option<Box<dyn FibWriter<A>>>,
    /// The greatest label that it takes, once it has refused some.
    most: Option<u32>,
    random: Random,
    stats: Stats,
}

impl<'a, A: Address, M: Make<A>> Run<'a, A, M> {
    fn new(case: &'a Case<A>, make: &'a M) -> Result<Self, Fault<A>> {
        let mut run = Run {
            case,
            make,
            domain: Domain::new(),
            rib: case.table.iter().copied().collect(),
            truth: case.table.iter().copied().collect(),
            writer: None,
            most: None,
            random: Random::new(case.seed),
            stats: Stats { tables: 1, ..Stats::default() },
        };
        run.build(0)?;
        Ok(run)
    }

    fn finish(mut self) -> Result<(Stats, Option<u32>), Fault<A>> {
        self.check(0)?;
        for (i, batch) in self.case.batches.iter().enumerate() {
            self.apply(i + 1, batch)?;
            self.check(i + 1)?;
        }
        Ok((self.stats, self.most))
    }

    fn build(&mut self, batches: usize) -> Result<(), Fault<A>> {
        self.writer = match (self.make)(&self.rib, &self.domain) {
            Ok(writer) => Some(writer),
            Err(BuildError::LabelTooWide { label, width_bits, .. }) if label > most_label(width_bits) => {
                self.stats.refused = 1;
                self.most = Some(most_label(width_bits));
                None
            }
            Err(error) => return Err(Fault::Build { batches, error: error.to_string() }),
        };
        Ok(())
    }

    fn apply(&mut self, batches: usize, batch: &[Change<A>]) -> Result<(), Fault<A>> {
        self.stats.changes += batch.len();
        for change in batch {
            self.rib.apply(change);
            match *change {
                Change::Announce(prefix, label) => self.truth.insert(prefix, label),
                Change::Withdraw(prefix) => self.truth.remove(&prefix),
            };
        }
        let mut changed: Vec<Prefix<A>> = batch.iter().map(Change::prefix).collect();
        changed.sort_unstable();
        changed.dedup();
        match self.writer.as_mut().map(|writer| writer.patch(&self.rib, &changed)) {
            Some(Ok(())) => Ok(()),
            Some(Err(Outgrown { .. })) => {
                self.stats.rebuilds += 1;
                self.build(batches)
            }
            None => self.build(batches),
        }
    }

    fn check(&mut self, batches: usize) -> Result<(), Fault<A>> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let fib = writer.fib();
        let list: Vec<(Prefix<A>, Label)> = self.truth.iter().map(|(&p, &l)| (p, l)).collect();
        let oracle = Oracle::new(&list);
        let mut keys: Vec<A> = match self.case.prefixes().count().div_ceil(MANY) {
            1 => self.case.prefixes().flat_map(edges).collect(),
            step => {
                let changed = batches.checked_sub(1).and_then(|last| self.case.batches.get(last));
                let changed = changed.into_iter().flatten().map(Change::prefix);
                let some = self.case.prefixes().skip(self.random.below(step.max(1))).step_by(step.max(1));
                changed.chain(some).flat_map(edges).collect()
            }
        };
        for _ in 0..RANDOM_KEYS {
            let near = (!list.is_empty()).then(|| list[self.random.below(list.len())].0);
            keys.push(self.random.address());
            keys.extend(near.map(|prefix| self.random.within(prefix)));
        }
        self.stats.lookups += compare(&*fib, &oracle, &keys, batches)?;
        self.stats.states += usize::from(batches > 0);
        Ok(())
    }
}

/// First, last, and the addresses beside them (round the end of the space).
pub fn edges<A: Address>(prefix: Prefix<A>) -> [A; 4] {
    let (first, last) = (prefix.first(), prefix.last());
    let before = if first == A::MIN { A::MAX } else { first - A::one() };
    let after = if last == A::MAX { A::MIN } else { last + A::one() };
    [first, last, before, after]
}

/// Compares single lookups and every kernel's bursts with the oracle; returns the number of answers.
fn compare<A: Address>(
    fib: &dyn Fib<A>,
    oracle: &Oracle<A>,
    keys: &[A],
    batches: usize,
) -> Result<usize, Fault<A>> {
    let expected: Vec<Label> = keys.iter().map(|&key| oracle.lookup(key)).collect();
    let (mut answers, mut fault) = (0, None);
    let mut check = |kernel, found: &[Label]| {
        answers += found.len();
        let pairs = keys.iter().zip(&expected).zip(found);
        for ((&key, &expected), &found) in pairs.filter(|((_, expected), found)| expected != found) {
            fault.get_or_insert(Fault::Wrong { batches, key, expected, found, kernel });
        }
    };
    check(None, &keys.iter().map(|&key| fib.lookup(key)).collect::<Vec<_>>());
    fib.lookup_batch_each(keys, &mut |kernel, found| check(Some(kernel), found));
    fault.map_or(Ok(answers), Err)
}

/// Compares bursts of 0 to 257 keys with single lookups, and sees that nothing behind the burst is written.
///
/// # Panics
/// At a difference.
pub fn burst_lengths<A: Address>(make: impl Make<A>) {
    let mut case = random_case::<A>(4711);
    let build = |case: &Case<A>| make(&case.table.iter().copied().collect(), &Domain::new());
    let writer = build(&case).or_else(|error| match error {
        BuildError::LabelTooWide { width_bits, .. } => {
            case = case.narrowed(most_label(width_bits));
            build(&case)
        }
        error => Err(error),
    });
    let writer = writer.unwrap_or_else(|error| panic!("{error}"));
    let fib = writer.fib();
    let mut random = Random::new(4711);
    let near: Vec<A> = case.prefixes().flat_map(edges).collect();
    let keys: Vec<A> = (0..257)
        .map(|_| if random.below(3) == 0 { random.address() } else { near[random.below(near.len())] })
        .collect();
    // Of the lengths some where each instruction is interpreted: around groups of 16 and 8, and not.
    for len in (0..=keys.len()).step_by(if cfg!(miri) { 43 } else { 1 }) {
        let mut labels = vec![Label(u32::MAX); len + 1];
        fib.lookup_batch(&keys[..len], &mut labels[..len]);
        for (&key, &label) in keys[..len].iter().zip(&labels) {
            assert_eq!(label, fib.lookup(key), "{} in a burst of {len}", key.to_ip());
        }
        assert_eq!(labels[len], Label(u32::MAX), "written behind a burst of {len}");
    }
}

/// Generates the family's tests for a structure, in a module `$name`:
///
/// ```ignore
/// lpm_suite!(rangetrie_v6, u128, |rib: &Rib<u128>, domain: &Domain| {
///     Ok(Box::new(rangetrie::Writer::new(rib, 16, domain)?))
/// });
/// ```
#[macro_export]
macro_rules! lpm_suite {
    ($name:ident, $address:ty, $make:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn make(
                rib: &$crate::Rib<$address>,
                domain: &::tidemill_lookup::qsbr::Domain,
            ) -> Result<Box<dyn $crate::FibWriter<$address>>, $crate::BuildError> {
                ($make)(rib, domain)
            }

            #[test]
            fn edge_cases() {
                // Of every fourth case the first batches where each instruction is interpreted.
                let (step, most) = if cfg!(miri) { (4, 3) } else { (1, usize::MAX) };
                for (name, mut case) in $crate::suite::edge_cases::<$address>().into_iter().step_by(step) {
                    case.batches.truncate(most);
                    $crate::suite::run_case(&case, &make)
                        .unwrap_or_else(|failure| panic!("{name}: {failure}"));
                }
            }

            #[test]
            fn random_and_adversarial_tables() {
                let tables = if cfg!(miri) { 2 } else { 60 };
                let stats = $crate::suite::run_many(1, tables, make, |_| {});
                let stats = stats.unwrap_or_else(|failure| panic!("{failure}"));
                assert!(stats.lookups > 0 && stats.refused < tables, "{stats:?}");
            }

            #[test]
            fn bursts_of_any_length_answer_as_single_lookups_do() {
                $crate::suite::burst_lengths::<$address>(make);
            }

            #[test]
            fn readers_see_the_old_or_the_new_label() {
                $crate::suite::concurrent::<$address>(1, if cfg!(miri) { 3 } else { 250 }, make);
            }
        }
    };
}

#[cfg(test)]
mod tests;
