//! Figure 11: tuple space search, a table for each of 5 to 20 tuples, 1,024 entries each, as the paper has it (a list of cuckoo tables, searched until
//! one has the key).
//!
//! A packet's key is in one of the tables. Software and LOOKUP_B ask one after the other and stop there; LOOKUP_NB asks all at once
//! (5.1), so it looks at more. Two kinds of packets: those whose table is any of them, and those whose table is the last
//! (as if it were a miss).

use super::run::{Bench, Series};
use super::{Options, Place, Point, Progress, StudyError, in_parallel};
use crate::halo::tcam::{Kind, Tcam};
use crate::machine::{Memory, Time};
use crate::mix::LOOP;
use crate::program::{self, Software, WHOLE};
use crate::tape::{Tape, Touch};
use crate::workload::Filled;
use tidemill_cachesim::random::Random;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::table::HashTable;

/// Entries of a tuple's table.
pub const ENTRIES: u64 = 1024;
const TUPLES: [usize; 4] = [5, 10, 15, 20];

/// In which table keys are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// In any, equally likely.
    Any,
    /// In the last one.
    Last,
}

/// Tables of so many tuples.
///
/// # Errors
/// [`StudyError`].
pub fn tables<T: HashTable<2>>(
    memory: &mut Memory,
    tuples: usize,
    options: &Options,
) -> Result<Vec<Filled<T>>, StudyError> {
    let table = |i: usize| -> Result<Filled<T>, StudyError> {
        let slots = ENTRIES * 10 / 9;
        let mut table = Filled::new(memory, slots, ENTRIES, options.seed + i as u64)?;
        table.masked = true;
        Ok(table)
    };
    (0..tuples).map(table).collect()
}

/// Nanoseconds a packet.
pub fn run<T: HashTable<2>>(
    memory: Memory,
    tables: &[Filled<T>],
    series: Series,
    keys: Where,
    options: &Options,
) -> f64 {
    let mut bench = Bench::new(memory);
    let mut random = Random::new(options.seed);
    let mut software = match series {
        Series::Software(mix) => Some(Software::new(mix, WHOLE)),
        _ => None,
    };
    let mut tcam = match series {
        Series::Tcam(kind) => Some(Tcam::new(bench.memory.config(), kind)),
        _ => None,
    };
    let tape = Tape::default();
    let mut touches: Vec<Vec<Touch>> = vec![Vec::new(); tables.len()];
    let mut from: Time = 0;
    for n in 0..options.warm + options.lookups {
        if n == options.warm {
            from = bench.core.idle_at();
        }
        let home = match keys {
            Where::Any => random.below(tables.len() as u64) as usize,
            Where::Last => tables.len() - 1,
        };
        let entry = random.below(ENTRIES);
        // All tables are asked by LOOKUP_NB, those up to the key's by others.
        let asked = if matches!(series, Series::NonBlocking(_)) { tables.len() } else { home + 1 };
        for (i, (table, touches)) in tables.iter().zip(&mut touches).enumerate().take(asked) {
            // In other tables there is no such key.
            let entry = if i == home { entry } else { ENTRIES + 1 + (n << 8 | i as u64) };
            table.ask(entry, &tape);
            tape.take(&mut bench.memory, touches);
        }
        let next = bench.packets.come(&mut bench.memory, n);
        let Bench { memory, core, halo, results, packets } = &mut bench;
        let lookups: Vec<_> = tables
            .iter()
            .zip(&touches)
            .take(asked)
            .map(|(table, touches)| table.lookup(packets.key(n), touches))
            .collect();
        core.work(memory, &LOOP, 0);
        if software.is_some() || tcam.is_some() {
            core.prefetch(memory, next, 0);
        }
        match (&mut software, &mut tcam, series) {
            (Some(software), ..) => {
                for (i, lookup) in lookups.iter().enumerate() {
                    let found = software.lookup(core, memory, lookup, 0);
                    core.branch(1, i + 1 < lookups.len(), found);
                }
            }
            (_, Some(tcam), _) => {
                program::search(core, memory, tcam, &lookups[0], 0);
            }
            (.., Series::NonBlocking(_)) => {
                for _ in 0..lookups.len() {
                    core.work(memory, &LOOP, 0);
                }
                program::nonblocking(core, memory, halo, results, &lookups, 0);
            }
            _ => {
                for (i, lookup) in lookups.iter().enumerate() {
                    core.work(memory, &LOOP, 0);
                    let found = program::blocking(core, memory, halo, lookup, 0, series == Series::Blocking);
                    core.branch(1, i + 1 < lookups.len(), found);
                }
            }
        }
    }
    (bench.core.idle_at() - from) as f64 / 1e3 / options.lookups.max(1) as f64
}

/// The series; the first is what the others are relative to.
pub fn series(options: &Options) -> [(&'static str, Series); 6] {
    [
        ("software", Series::Software(options.mix)),
        ("halo-blocking", Series::Blocking),
        ("halo-blocking-window", Series::Window),
        ("halo-nonblocking", Series::NonBlocking(options.config.halo.batch)),
        ("tcam", Series::Tcam(Kind::Tcam)),
        ("sram-tcam", Series::Tcam(Kind::Sram)),
    ]
}

/// The figure.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    let cases: Vec<(usize, Where)> =
        [Where::Any, Where::Last].into_iter().flat_map(|keys| TUPLES.map(|tuples| (tuples, keys))).collect();
    let case = |&(tuples, keys): &(usize, Where)| -> Result<Vec<Point>, StudyError> {
        let mut memory = Memory::new(&options.config);
        let tables: Vec<Filled<Keystore<2>>> = tables(&mut memory, tuples, options)?;
        let ns = series(options).map(|(_, series)| run(memory.clone(), &tables, series, keys, options));
        let panel = match keys {
            Where::Any => "keys in any tuple",
            Where::Last => "keys in the last tuple",
        };
        let point = |(name, ns_of): (&str, f64)| Point {
            panel,
            series: name.into(),
            x: Place::Number(tuples as f64),
            y: ns[0] / ns_of,
            // "By up to": the paper's most.
            paper: (name == "halo-nonblocking" && tuples == 20).then_some(23.4),
        };
        Ok(series(options).iter().map(|(name, _)| *name).zip(ns).map(point).collect())
    };
    let points: Result<Vec<_>, _> = in_parallel(options.jobs, &cases, progress, case).into_iter().collect();
    Ok(points?.into_iter().flatten().collect())
}
