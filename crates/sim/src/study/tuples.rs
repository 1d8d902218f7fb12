//! Figure 11: tuple space search, a table for each of 5 to 20 tuples, 1,024 entries each, as the paper has it (a list of cuckoo tables, searched until
//! one has the key).
//!
//! A packet's key is in one of the tables. Software and LOOKUP_B ask one after the other and stop there; LOOKUP_NB asks all at once
//! (5.1), so it looks at more. Two kinds of packets: those whose table is any of them, and those whose table is the last
//! (as if it were a miss).
//!
//! How many packets a program asks for before it looks at results decides what LOOKUP_NB gains. By 5.1 a query is of eight lookups, all tuples get theirs at once, and
//! each query's results are one line: read so, eight packets are on their way, and a line holds what one tuple says to all eight. That is the series of eight.

use super::run::{Bench, Series};
use super::{Options, Place, Point, Progress, StudyError, in_parallel};
use crate::halo::tcam::{Kind, Tcam};
use crate::machine::{Memory, Time};
use crate::mix::{FLOWTABLE, LOOP};
use crate::program::{self, Lookup, Software, WHOLE};
use crate::tape::{Tape, Touch};
use crate::workload::Filled;
use tidemill_cachesim::random::Random;
use tidemill_flow::flowtable::FlowTable;
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
        let mut table = Filled::new(memory, slots, ENTRIES, options.seed.wrapping_add(i as u64))?;
        table.masked = true;
        Ok(table)
    };
    (0..tuples).map(table).collect()
}

/// Nanoseconds a packet. With LOOKUP_NB a program may ask for so many packets before it looks at results; others have one at a time.
pub fn run<T: HashTable<2>>(
    memory: Memory,
    tables: &[Filled<T>],
    series: Series,
    packets_at_once: usize,
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
    let all_at_once = matches!(series, Series::NonBlocking(_));
    let packets_at_once = if all_at_once { packets_at_once.max(1) } else { 1 };
    let tape = Tape::default();
    let mut touches: Vec<Vec<Touch>> = vec![Vec::new(); tables.len() * packets_at_once];
    let (mut n, mut from, mut counted): (u64, Time, u64) = (0, 0, 0);
    while options.goes_on(n, counted) {
        if n >= options.warm {
            if counted == 0 {
                from = bench.core.idle_at();
            }
            counted += packets_at_once as u64;
        }
        // Tables to ask, by packet and table.
        let mut asked = Vec::with_capacity(touches.len());
        for packet in 0..packets_at_once {
            let home = match keys {
                Where::Any => random.below(tables.len() as u64) as usize,
                Where::Last => tables.len() - 1,
            };
            let entry = random.below(ENTRIES);
            let of = if all_at_once { tables.len() } else { home + 1 };
            for (i, table) in tables.iter().enumerate().take(of) {
                // In other tables there is no such key.
                let other = ENTRIES + 1 + ((n + packet as u64) << 8 | i as u64);
                table.ask(if i == home { entry } else { other }, &tape);
                tape.take(&mut bench.memory, &mut touches[asked.len()]);
                asked.push((i, n + packet as u64));
            }
            let next = bench.packets.come(&mut bench.memory, n + packet as u64);
            if software.is_some() || tcam.is_some() {
                bench.core.prefetch(&mut bench.memory, next, 0);
            }
        }
        let Bench { memory, core, halo, results, packets } = &mut bench;
        let mut order: Vec<usize> = (0..asked.len()).collect();
        if packets_at_once > 1 && packets_at_once >= options.config.halo.batch {
            // A line of results for each tuple.
            order.sort_by_key(|&i| asked[i].0);
        }
        let lookups: Vec<Lookup<'_>> = order
            .into_iter()
            .map(|i| tables[asked[i].0].lookup(packets.key(asked[i].1), &touches[i]))
            .collect();
        core.work(memory, &LOOP, 0);
        match (&mut software, &mut tcam) {
            (Some(software), _) => {
                for (i, lookup) in lookups.iter().enumerate() {
                    let found = software.lookup(core, memory, lookup, 0);
                    core.branch(1, i + 1 < lookups.len(), found);
                }
            }
            (_, Some(tcam)) => {
                program::search(core, memory, tcam, &lookups[0], 0);
            }
            _ if all_at_once => {
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
        n += packets_at_once as u64;
    }
    (bench.core.idle_at() - from) as f64 / 1e3 / counted.max(1) as f64
}

/// The series; the first is what the others are relative to.
pub fn series(options: &Options) -> [(&'static str, Series, usize); 9] {
    let nonblocking = Series::NonBlocking(options.config.halo.batch);
    [
        ("software", Series::Software(options.mix), 1),
        ("halo-blocking", Series::Blocking, 1),
        ("halo-blocking-window", Series::Window, 1),
        ("halo-nonblocking", nonblocking, 1),
        ("halo-nonblocking, 2 packets at once", nonblocking, 2),
        ("halo-nonblocking, 4 packets at once", nonblocking, 4),
        ("halo-nonblocking, 8 packets at once", nonblocking, 8),
        ("tcam", Series::Tcam(Kind::Tcam), 1),
        ("sram-tcam", Series::Tcam(Kind::Sram), 1),
    ]
}

/// The same with a production table for each tuple.
fn production(options: &Options) -> [(&'static str, Series, usize); 2] {
    let nonblocking = Series::NonBlocking(options.config.halo.batch);
    [("software-flowtable", Series::Software(FLOWTABLE), 1), ("halo-nonblocking-flowtable", nonblocking, 8)]
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
        let ns = series(options)
            .map(|(_, series, at_once)| run(memory.clone(), &tables, series, at_once, keys, options));
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
            paper: (name.starts_with("halo-nonblocking") && !name.ends_with("flowtable") && tuples == 20)
                .then_some(23.4),
        };
        let mut points: Vec<Point> =
            series(options).iter().map(|(name, ..)| *name).zip(ns).map(point).collect();
        let mut memory = Memory::new(&options.config);
        let tables: Vec<Filled<FlowTable<2>>> = self::tables(&mut memory, tuples, options)?;
        for (name, series, at_once) in production(options) {
            points.push(point((name, run(memory.clone(), &tables, series, at_once, keys, options))));
        }
        Ok(points)
    };
    let points: Result<Vec<_>, _> = in_parallel(options.jobs, &cases, progress, case).into_iter().collect();
    Ok(points?.into_iter().flatten().collect())
}
