//! Beyond the paper: one table on machines with other last-level caches. Where the table no longer fits, both wait for the same DRAM.

use super::run::{Asking, Series, single};
use super::{Options, Place, Point, Progress, StudyError, in_parallel};
use crate::machine::Memory;
use crate::workload::Filled;
use tidemill_flow::keystore::Keystore;

/// MiB of all slices.
const SIZES: [usize; 5] = [8, 16, 32, 64, 128];
/// Slots: 40 MiB with their keys.
const SLOTS: u64 = 1 << 20;

/// The figure: cycles of a lookup, each waiting for the one before, and what is gained.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    let slots = SLOTS.min(1 << options.most);
    let case = |&mib: &usize| -> Result<Vec<Point>, StudyError> {
        let mut options = options.clone();
        options.config.cache.llc_kib = mib << 10;
        super::check(&options.config, || format!("{mib} MiB of last-level cache"))?;
        let mut memory = Memory::new(&options.config);
        let table: Filled<Keystore<2>> = Filled::new(&mut memory, slots, slots * 9 / 10, options.seed)?;
        let asking = Asking { serial: true, ..Asking::default() };
        let series = [
            ("software", Series::Software(options.mix)),
            ("halo-blocking", Series::Blocking),
            ("halo-nonblocking", Series::NonBlocking(options.config.halo.batch)),
        ];
        let cycles = series.map(|(_, series)| {
            single(memory.clone(), &table, series, &options, asking).ns() * options.config.ghz
        });
        let mut points = Vec::new();
        for ((name, _), own) in series.into_iter().zip(cycles) {
            for (panel, y) in
                [("cycles a lookup, each waits", own), ("relative to software", cycles[0] / own)]
            {
                let x = Place::Number(mib as f64);
                points.push(Point { panel, series: name.into(), x, y, paper: None });
            }
        }
        Ok(points)
    };
    let points: Result<Vec<_>, _> = in_parallel(options.jobs, &SIZES, progress, case).into_iter().collect();
    Ok(points?.into_iter().flatten().collect())
}
