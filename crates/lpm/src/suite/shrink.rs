//! Makes a failing case smaller: leaves out halves, quarters, ... single entries for as long as it still fails.

use super::{Case, Failure, Fault};
use crate::prefix::Address;

/// Runs at most; a case has some hundred parts.
const RUNS: usize = 4_000;
/// Parts of all cases that are run, at most: a large case takes a second.
const PARTS: usize = 20_000_000;

/// The smallest case found for which `fails` still finds a fault.
pub(super) fn shrink<A: Address>(
    case: Case<A>,
    fault: Fault<A>,
    mut fails: impl FnMut(&Case<A>) -> Option<Fault<A>>,
) -> Failure<A> {
    let mut best = Failure { case, fault };
    let (mut runs, mut run) = (0, 0);
    let mut step = parts(&best.case).next_power_of_two();
    while step > 0 && runs < RUNS && run < PARTS {
        let (mut from, mut smaller) = (0, false);
        while from < parts(&best.case) && runs < RUNS && run < PARTS {
            let candidate = without(&best.case, from, from + step);
            runs += 1;
            run += parts(&candidate);
            match fails(&candidate) {
                Some(fault) => (best, smaller) = (Failure { case: candidate, fault }, true),
                None => from += step,
            }
        }
        if !smaller {
            step /= 2;
        }
    }
    best.case.batches.retain(|batch| !batch.is_empty());
    match fails(&best.case) {
        Some(fault) => Failure { fault, ..best },
        None => best,
    }
}

/// Entries of the table and changes, counted through.
fn parts<A: Address>(case: &Case<A>) -> usize {
    case.table.len() + case.batches.iter().map(Vec::len).sum::<usize>()
}

/// The case without the parts `from..to`.
fn without<A: Address>(case: &Case<A>, from: usize, to: usize) -> Case<A> {
    let mut at = 0;
    let mut keep = || {
        at += 1;
        !(from..to).contains(&(at - 1))
    };
    let mut case = case.clone();
    case.table.retain(|_| keep());
    case.batches.iter_mut().for_each(|batch| batch.retain(|_| keep()));
    case
}
