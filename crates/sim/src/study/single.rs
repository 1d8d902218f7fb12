//! Figure 9: lookups of one table by its size and load, throughput relative to software's.

use super::run::{Asking, Outcome, Series, single};
use super::{Options, Place, Point, Progress, StudyError, in_parallel};
use crate::halo::tcam::Kind;
use crate::machine::Memory;
use crate::mix::{FLOWTABLE, KEYSTORE, TABLE_1};
use crate::workload::Filled;
use tidemill_flow::flowtable::FlowTable;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::table::HashTable;

/// Sizes, as powers of two.
const SIZES: [u32; 12] = [3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24];
/// Loads, percent.
const LOADS: [u64; 4] = [25, 50, 75, 90];

/// One size at one load.
#[derive(Debug, Clone)]
pub struct Row {
    /// The size, as a power of two.
    pub power: u32,
    /// Percent.
    pub load: u64,
    /// The series, what each came to with lookups that overlap as they can, and with each waiting for the one before.
    pub outcomes: Vec<(String, [Outcome; 2])>,
}

/// The series of the figure; the first is what the others are relative to.
pub fn series(options: &Options) -> Vec<(String, Series)> {
    let named = |name: &str, series| (name.to_owned(), series);
    vec![
        named("software", Series::Software(options.mix)),
        named("halo-blocking", Series::Blocking),
        named("halo-blocking-window", Series::Window),
        named("halo-nonblocking", Series::NonBlocking(options.config.halo.batch)),
        named("halo-nonblocking-1", Series::NonBlocking(1)),
        named("tcam", Series::Tcam(Kind::Tcam)),
        named("sram-tcam", Series::Tcam(Kind::Sram)),
        named("software-table-1", Series::Software(TABLE_1)),
        named("software-keystore", Series::Software(KEYSTORE)),
        named("software-keystore-batch", Series::Batch(KEYSTORE)),
    ]
}

/// The same of our production table.
fn production(options: &Options) -> Vec<(String, Series)> {
    let named = |name: &str, series| (name.to_owned(), series);
    vec![
        named("software-flowtable", Series::Software(FLOWTABLE)),
        named("halo-blocking-flowtable", Series::Blocking),
        named("halo-nonblocking-flowtable", Series::NonBlocking(options.config.halo.batch)),
    ]
}

/// What each series comes to on one table.
fn outcomes<T: HashTable<2>>(
    power: u32,
    load: u64,
    series: &[(String, Series)],
    options: &Options,
) -> Result<Vec<(String, [Outcome; 2])>, StudyError> {
    let mut memory = Memory::new(&options.config);
    let slots = 1_u64 << power;
    let entries = (slots * load / 100).max(1);
    let table: Filled<T> = Filled::new(&mut memory, slots, entries, options.seed)?;
    let run = |series: &Series| {
        [false, true].map(|serial| {
            single(memory.clone(), &table, *series, options, Asking { serial, ..Asking::default() })
        })
    };
    Ok(series.iter().map(|(name, series)| (name.clone(), run(series))).collect())
}

/// All of them.
///
/// # Errors
/// [`StudyError`].
pub fn rows(options: &Options, progress: Progress<'_>) -> Result<Vec<Row>, StudyError> {
    let cases: Vec<(u32, u64)> = SIZES
        .into_iter()
        .filter(|&power| power <= options.most)
        .flat_map(|power| LOADS.map(|load| (power, load)))
        .collect();
    let (series, ours) = (series(options), production(options));
    let row = |&(power, load): &(u32, u64)| -> Result<Row, StudyError> {
        let mut all = outcomes::<Keystore<2>>(power, load, &series, options)?;
        all.extend(outcomes::<FlowTable<2>>(power, load, &ours, options)?);
        Ok(Row { power, load, outcomes: all })
    };
    in_parallel(options.jobs, &cases, progress, row).into_iter().collect()
}

/// The figure. The paper's is taken to be the one in which each lookup waits for the one before: there its text's numbers and bends are.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    let mut points = Vec::new();
    for Row { power, load, outcomes } in rows(options, progress)? {
        let software = outcomes.first().map_or([0.0; 2], |(_, both)| both.map(|outcome| outcome.ns()));
        let panels = match load {
            25 => ["overlapping lookups, load 25 %", "each waits for the last, load 25 %"],
            50 => ["overlapping lookups, load 50 %", "each waits for the last, load 50 %"],
            75 => ["overlapping lookups, load 75 %", "each waits for the last, load 75 %"],
            _ => ["overlapping lookups, load 90 %", "each waits for the last, load 90 %"],
        };
        for (name, both) in &outcomes {
            for ((panel, software), outcome) in panels.into_iter().zip(software).zip(both) {
                let x = Place::Number(f64::from(power));
                points.push(Point {
                    panel,
                    series: name.clone(),
                    x,
                    y: software / outcome.ns(),
                    paper: None,
                });
            }
        }
        if load == 90 {
            for (name, both) in &outcomes {
                for (panel, outcome) in
                    ["cycles, overlapping, load 90 %", "cycles, each waits, load 90 %"].into_iter().zip(both)
                {
                    let y = outcome.ns() * options.config.ghz;
                    points.push(Point {
                        panel,
                        series: name.clone(),
                        x: Place::Number(f64::from(power)),
                        y,
                        paper: None,
                    });
                }
            }
        }
    }
    Ok(points)
}
