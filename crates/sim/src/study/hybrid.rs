//! The hybrid mode (4.6): a flow register of 32 bits decides after each window whether the core or the accelerator looks up, by the flows there were.
//! Few flows are in the core's L1, and software is quicker; the paper changes over at 64.

use super::run::Bench;
use super::{Options, Place, Point, Progress, StudyError, in_parallel};
use crate::halo::register::{Hybrid, Mode};
use crate::machine::{Memory, Time};
use crate::mix::LOOP;
use crate::program::{self, Software, WHOLE};
use crate::tape::Tape;
use crate::workload::Filled;
use tidemill_cachesim::random::Random;
use tidemill_flow::keystore::Keystore;

const FLOWS: [u64; 9] = [4, 8, 16, 32, 64, 128, 256, 1024, 16_384];
/// Queries of a window.
const WINDOW: u64 = 256;

/// Who looks up: always the one, always the other, or as the register says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Always this one.
    Always(Mode),
    /// The register's.
    Hybrid,
}

/// Nanoseconds a lookup, each waiting for the one before; and the part of them in software.
///
/// # Errors
/// [`StudyError`].
pub fn run(policy: Policy, flows: u64, options: &Options) -> Result<(f64, f64), StudyError> {
    let mut memory = Memory::new(&options.config);
    let table: Filled<Keystore<2>> = Filled::new(&mut memory, 1 << 16, 1 << 15, options.seed)?;
    let mut bench = Bench::new(memory);
    let mut hybrid = Hybrid::new(32, WINDOW, 64.0);
    let mut software = Software::new(options.mix, WHOLE);
    let mut random = Random::new(options.seed);
    let (tape, mut touches) = (Tape::default(), Vec::new());
    let (mut last, mut from, mut by_core): (Time, Time, u64) = (0, 0, 0);
    for n in 0..options.warm + options.lookups {
        if n == options.warm {
            (from, by_core) = (bench.core.idle_at(), 0);
        }
        let entry = random.below(flows.min(table.len));
        table.ask(entry, &tape);
        tape.take(&mut bench.memory, &mut touches);
        let next = bench.packets.come(&mut bench.memory, n);
        let mode = match policy {
            Policy::Always(mode) => mode,
            Policy::Hybrid => hybrid.next(table.hash_of(entry)),
        };
        let Bench { memory, core, halo, packets, .. } = &mut bench;
        let lookup = table.lookup(packets.key(n), &touches);
        core.work(memory, &LOOP, 0);
        last = match mode {
            Mode::Software => {
                by_core += 1;
                core.prefetch(memory, next, 0);
                software.lookup(core, memory, &lookup, last)
            }
            Mode::Halo => program::blocking(core, memory, halo, &lookup, last, true),
        };
    }
    let lookups = options.lookups.max(1) as f64;
    Ok(((bench.core.idle_at() - from) as f64 / 1e3 / lookups, by_core as f64 / lookups))
}

/// The figure.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    let policies = [
        ("software", Policy::Always(Mode::Software)),
        ("halo-blocking", Policy::Always(Mode::Halo)),
        ("hybrid", Policy::Hybrid),
    ];
    let case = |&flows: &u64| -> Result<Vec<Point>, StudyError> {
        let mut points = Vec::new();
        for (name, policy) in policies {
            let (ns, software) = run(policy, flows, options)?;
            let mut put = |panel, y| {
                let x = Place::Number(flows as f64);
                points.push(Point { panel, series: name.into(), x, y, paper: None });
            };
            put("cycles a lookup by flows", ns * options.config.ghz);
            if policy == Policy::Hybrid {
                put("lookups in software, percent", 100.0 * software);
            }
        }
        Ok(points)
    };
    let points: Result<Vec<_>, _> = in_parallel(options.jobs, &FLOWS, progress, case).into_iter().collect();
    Ok(points?.into_iter().flatten().collect())
}
