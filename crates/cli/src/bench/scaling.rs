//! How rates grow with cores: several threads on one structure, over one thread on it, and the same of the machine's bound.
//!
//! Every thread goes over all keys, beginning elsewhere, until the time is up; results are stored, and nothing is checked here:
//! the cases have been. On two hardware threads of one core even independent loads do not double, so a structure is held to
//! the bound's growth.

use super::bound::{Load, Region};
use super::pass::BLOCK;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tidemill_lpm::{Address, Fib, Label};

/// What grows: a structure, or the bound of its size.
pub(super) enum Work<'a, A: Address> {
    Lookups { fib: &'a dyn Fib<A>, keys: &'a [A], batch: usize },
    Loads { region: &'a Region, load: Load },
}

impl<A: Address> Work<'_, A> {
    /// One thread's passes for about `slice`; M/s.
    fn rate(&self, thread: usize, threads: usize, slice: Duration) -> f64 {
        let mut labels = vec![Label::NONE; BLOCK];
        let (start, mut done) = (Instant::now(), 0);
        let mut first = true;
        while start.elapsed() < slice {
            match self {
                Work::Lookups { fib, keys, batch } => {
                    let skip = if first { keys.len() / threads * thread } else { 0 };
                    for block in keys[skip..].chunks(BLOCK) {
                        for (keys, out) in block.chunks(*batch).zip(labels.chunks_mut(*batch)) {
                            fib.lookup_batch(keys, &mut out[..keys.len()]);
                        }
                        black_box(&labels);
                    }
                    done += keys.len() - skip;
                }
                Work::Loads { region, load } => {
                    region.timed_pass(*load);
                    done += region.loads();
                }
            }
            first = false;
        }
        done as f64 / start.elapsed().as_secs_f64() / 1e6
    }

    /// The rate of `threads` threads together, over that of one.
    pub(super) fn growth(&self, threads: usize, slice: Duration) -> f64 {
        let one = self.rate(0, 1, slice);
        let barrier = Barrier::new(threads);
        let all: f64 = std::thread::scope(|scope| {
            let started = |thread| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    self.rate(thread, threads, slice)
                })
            };
            let handles: Vec<_> = (0..threads).map(started).collect();
            handles.into_iter().map(|handle| handle.join().unwrap_or(f64::NAN)).sum()
        });
        all / one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counted(AtomicUsize);

    impl Fib<u32> for Counted {
        fn lookup(&self, _: u32) -> Label {
            Label::NONE
        }
        fn lookup_batch(&self, keys: &[u32], _: &mut [Label]) {
            self.0.fetch_add(keys.len(), Ordering::Relaxed);
        }
        fn name(&self) -> String {
            "counted".into()
        }
        fn bytes(&self) -> usize {
            0
        }
    }

    #[test]
    fn every_thread_looks_up_all_keys() {
        let fib = Counted(AtomicUsize::new(0));
        let keys = vec![0_u32; 2 * BLOCK + 5];
        let work = Work::Lookups { fib: &fib, keys: &keys, batch: 32 };
        assert!(work.growth(3, Duration::from_millis(2)) > 0.0);
        assert!(fib.0.into_inner() >= keys.len() * (1 + 1 + 1) + keys.len() / 3);
    }
}
