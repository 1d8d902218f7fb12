//! The figures: runs of programs on machines, and what comes of them as points.
//!
//! * [`run`]: one table, one series. [`breakdown`]: Figure 10. [`tuples`]: Figure 11.
//!
//! A figure is points with the paper's number beside ours where the paper states one. It is the same for the same arguments, on any number of threads.

pub mod breakdown;
pub mod register;
pub mod run;
pub mod single;
pub mod tuples;

use crate::machine::{Config, ConfigError};
use crate::mix::{self, Mix};
use tidemill_flow::table::SizeError;

/// A point of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Which panel of the figure.
    pub panel: &'static str,
    /// Whose it is: `software`, `halo-blocking`, ...
    pub series: String,
    /// Where it is.
    pub x: Place,
    /// What came out.
    pub y: f64,
    /// What the paper states there.
    pub paper: Option<f64>,
}

/// Where a point is.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// At a number.
    Number(f64),
    /// At a name.
    Name(String),
}

/// What figures are made with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The machine.
    pub config: Config,
    /// Instructions of the paper's software.
    pub mix: Mix,
    /// Lookups (of tuple space: packets) that count.
    pub lookups: u64,
    /// Before them: 10,000 in the paper (5.2).
    pub warm: u64,
    /// The largest table, as a power of two.
    pub most: u32,
    /// Of keys and tables.
    pub seed: u64,
    /// Configurations at once.
    pub jobs: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            config: Config::skylake_sp(),
            mix: mix::RTE_HASH,
            lookups: 20_000,
            warm: 10_000,
            most: 24,
            seed: 1,
            jobs: 1,
        }
    }
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A table cannot be made.
    #[error("{0}")]
    Table(#[from] SizeError),
    /// The machine is none.
    #[error("{0}")]
    Config(#[from] ConfigError),
}

/// Tells how far a figure is: done, and of how many.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Does something for every item on so many threads; results are in the items' order.
pub fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    progress: Progress<'_>,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some((i, item)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?))) {
                    let result = work(item);
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((i, result));
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, items.len());
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|&(i, _)| i);
    results.into_iter().map(|(_, result)| result).collect()
}
