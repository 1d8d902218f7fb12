//! The figures: runs of programs on machines, and what comes of them as points.
//!
//! * [`run`]: one table, one series. [`misses`]: Figure 4, Table 1. [`register`]: Figure 8b. [`single`]: 9. [`breakdown`]: 10. [`tuples`]: 11. [`smt`]: 12. [`functions`]: 13. [`table4`].
//! * [`headlines`]: the numbers that the paper states, ours, and what makes the difference.
//! * Beyond the paper: [`hybrid`], [`scale`], [`llc`], [`structures`]; [`traffic`]: real packets. [`calibrate`]: this machine beside its model.
//!
//! A figure is points with the paper's number beside ours where the paper states one. It is the same for the same arguments, on any number of threads.

pub mod breakdown;
pub mod calibrate;
pub mod functions;
pub mod headlines;
pub mod hybrid;
pub mod llc;
pub mod misses;
pub mod register;
pub mod run;
pub mod scale;
pub mod single;
pub mod smt;
pub mod structures;
pub mod table4;
pub mod traffic;
pub mod tuples;

use crate::machine::{Config, ConfigError};
use crate::mix::{self, Mix};
use tidemill_flow::table::SizeError;
use tidemill_lpm::BuildError;
use tidemill_lpm::algorithm::AlgorithmError;

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

impl Options {
    /// Whether one more group of lookups (packets) is run, the first of which is number `n`, while so many count: until all have been that were asked for, and
    /// some count, however few they are.
    fn goes_on(&self, n: u64, counted: u64) -> bool {
        n < self.warm + self.lookups || counted == 0
    }
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A table cannot be made.
    #[error("{0}")]
    Table(#[from] SizeError),
    /// A structure for routes cannot be made.
    #[error("{0}")]
    Routes(#[from] BuildError),
    /// There is no such structure.
    #[error("{0}")]
    Structure(#[from] AlgorithmError),
    /// What a figure makes of the machine that it was given is none.
    #[error("{changed}: this machine cannot be that: {error}")]
    Machine {
        /// What the figure has changed.
        changed: String,
        /// What is wrong then.
        error: ConfigError,
    },
}

/// Whether a machine still is one after a figure has changed it; `changed` says how, for who gave the machine does not know the new numbers.
fn check(config: &Config, changed: impl FnOnce() -> String) -> Result<(), StudyError> {
    config.check().map_err(|error| StudyError::Machine { changed: changed(), error })
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
                while let Some((i, item)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?)))
                {
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

/// How a figure is made.
pub type Make = fn(&Options, Progress<'_>) -> Result<Vec<Point>, StudyError>;

/// A figure's name, what it shows, how it is made.
#[derive(Clone, Copy)]
pub struct Figure {
    /// As in `--figure`.
    pub name: &'static str,
    /// What it shows, and which of the paper's it is.
    pub title: &'static str,
    /// What the horizontal axis of its panels is; see [`axis`](Self::axis).
    pub x: &'static str,
    /// Makes it.
    pub make: Make,
}

impl Figure {
    /// What the horizontal axis of a panel is.
    pub fn axis(&self, panel: &str) -> &'static str {
        if panel == functions::BY_INSTRUCTIONS { "instructions beside lookups" } else { self.x }
    }
}

/// All of them.
pub const FIGURES: [Figure; 14] = [
    Figure {
        name: "halo-4",
        title: "What lookups in software miss and wait for, simulated (HALO, Figure 4)",
        x: "flows",
        make: misses::figure,
    },
    Figure {
        name: "halo-table1",
        title: "What lookups in software execute, counted by callgrind (HALO, Table 1)",
        x: "where the key is",
        make: |options, _| Ok(misses::instructions(options)),
    },
    Figure {
        name: "halo-8b",
        title: "Flows that a flow register counts (HALO, Figure 8b)",
        x: "flows",
        make: |options, _| Ok(register::figure(options)),
    },
    Figure {
        name: "halo-9",
        title: "Single lookups by table size and load (HALO, Figure 9)",
        x: "slots, as a power of two",
        make: single::figure,
    },
    Figure {
        name: "halo-10",
        title: "What a lookup is made of (HALO, Figure 10)",
        x: "who, and where the table's lines are",
        make: breakdown::figure,
    },
    Figure {
        name: "halo-11",
        title: "Tuple space search (HALO, Figure 11)",
        x: "tuples",
        make: tuples::figure,
    },
    Figure {
        name: "halo-12",
        title: "Functions on the switch's core (HALO, Figure 12)",
        x: "function, flows of the switch",
        make: smt::figure,
    },
    Figure {
        name: "halo-13",
        title: "Network functions on the accelerator (HALO, Figure 13)",
        x: "function, entries",
        make: functions::figure,
    },
    Figure {
        name: "halo-table4",
        title: "Energy and area (HALO, Table 4, whose numbers are inputs)",
        x: "solution, or rules",
        make: table4::figure,
    },
    Figure {
        name: "halo-headlines",
        title: "What the paper states, ours, and ours without what makes the difference",
        x: "of what",
        make: headlines::figure,
    },
    Figure {
        name: "halo-hybrid",
        title: "The hybrid mode by flows (HALO, section 4.6; no figure of the paper)",
        x: "flows",
        make: hybrid::figure,
    },
    Figure {
        name: "halo-cores",
        title: "Many cores, one table or one each, three distributors (beyond HALO)",
        x: "cores",
        make: scale::figure,
    },
    Figure {
        name: "halo-llc",
        title: "One table, other last-level caches (beyond HALO)",
        x: "MiB of all slices",
        make: llc::figure,
    },
    Figure {
        name: "halo-structures",
        title: "Other structures on the accelerator (beyond HALO)",
        x: "structure",
        make: structures::figure,
    },
];
