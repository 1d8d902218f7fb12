//! Makes a failing case smaller: leaves out halves, quarters, ... single operations for as long as it still fails.

use super::{Case, Fault};

/// Runs at most.
const RUNS: usize = 2_000;

/// The smallest case found for which `fails` still finds a fault.
pub(super) fn shrink<const W: usize>(
    mut best: Case<W>,
    mut fault: Fault,
    mut fails: impl FnMut(&Case<W>) -> Option<Fault>,
) -> (Case<W>, Fault) {
    best.ops.truncate(fault.after + 1);
    let mut runs = 0;
    let mut step = best.ops.len().next_power_of_two();
    while step > 0 && runs < RUNS {
        let (mut from, mut smaller) = (0, false);
        while from < best.ops.len() && runs < RUNS {
            let mut candidate = best.clone();
            candidate.ops.drain(from..best.ops.len().min(from + step));
            runs += 1;
            match fails(&candidate) {
                Some(found) => (best, fault, smaller) = (candidate, found, true),
                None => from += step,
            }
        }
        if !smaller {
            step /= 2;
        }
    }
    (best, fault)
}
