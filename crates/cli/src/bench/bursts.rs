//! How long one burst takes, for bursts of any size: what a packet waits for at most, where rates say what all of them take.
//!
//! Every call is timed on its own, so no burst overlaps the next; what the clock itself takes is taken off. The 50th and the
//! 99th percentile are over all calls of a run, the figures over the runs. Small bursts show a lookup's latency; the largest
//! ones what the structure makes of keys that it can take together.

use super::pass::{Asked, Checksum};
use std::time::{Duration, Instant};
use tidemill_lpm::{Address, Fib, Label};

/// The percentiles that are reported, with the names of their metrics.
pub(super) const PERCENTILES: [(usize, &str); 2] = [(50, "p50_ns"), (99, "p99_ns")];

/// What the bursts of one size took: nanoseconds at each of [`PERCENTILES`], and the labels' checksum.
struct Bursts {
    at: [f64; PERCENTILES.len()],
    checksum: String,
}

/// Looks up every key once, in bursts of `size`.
fn timed_bursts<A: Address>(fib: &dyn Fib<A>, keys: &[A], size: usize) -> Bursts {
    let mut labels = vec![Label::NONE; size];
    let mut took = Vec::with_capacity(keys.len().div_ceil(size));
    let mut checksum = Checksum::new();
    for keys in keys.chunks(size) {
        let labels = &mut labels[..keys.len()];
        let start = Instant::now();
        fib.lookup_batch(keys, labels);
        took.push(start.elapsed());
        checksum.add(labels);
    }
    let clock = clock();
    took.sort_unstable();
    let ns = |percent| (percentile(&took, percent).saturating_sub(clock)).as_nanos() as f64;
    Bursts { at: PERCENTILES.map(|(percent, _)| ns(percent)), checksum: checksum.text() }
}

/// The times of several structures over some runs, in turn: for each structure, by percentile, by run; false if a checksum was not
/// the one expected.
pub(super) fn measure<A: Address>(
    subjects: &[(&dyn Fib<A>, &Asked<A>)],
    size: usize,
    runs: usize,
) -> (Vec<[Vec<f64>; PERCENTILES.len()]>, bool) {
    let mut times = vec![<[Vec<f64>; PERCENTILES.len()]>::default(); subjects.len()];
    let mut right = true;
    for run in 0..runs {
        for i in 0..subjects.len() {
            let turn = (i + run) % subjects.len();
            let (fib, Asked { keys, expected }) = subjects[turn];
            let Bursts { at, checksum } = timed_bursts(fib, keys, size);
            times[turn].iter_mut().zip(at).for_each(|(times, at)| times.push(at));
            if checksum != *expected && right {
                let name = fib.name();
                eprintln!(
                    "tidemill: WRONG: {name} in bursts of {size}: checksum {checksum}, the oracle's is {expected}"
                );
                right = false;
            }
        }
    }
    (times, right)
}

/// What it takes to look at the clock twice.
fn clock() -> Duration {
    let mut took: Vec<Duration> = (0..1000).map(|_| Instant::now().elapsed()).collect();
    took.sort_unstable();
    percentile(&took, 50)
}

/// Of sorted values; the nearest one.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len().saturating_sub(1) * percent + 50) / 100;
    sorted.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_values() {
        let values: Vec<Duration> = (1..=101).map(Duration::from_nanos).collect();
        assert_eq!([0, 50, 99, 100].map(|p| percentile(&values, p).as_nanos()), [1, 51, 100, 101]);
        assert_eq!(percentile(&values[..1], 99), Duration::from_nanos(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
