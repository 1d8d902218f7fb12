//! Table 4, and what becomes of it with activity: energy of a query and area, by the number of rules.
//!
//! The table's numbers are inputs ([`crate::halo::energy`]). Dynamic energy is theirs; static power is spread over the queries that a
//! core makes in the simulation, one table, LOOKUP_NB for HALO.

use super::run::{Asking, Series, single};
use super::{Options, Place, Point, Progress, StudyError};
use crate::halo::energy::{self, Cost};
use crate::halo::tcam::Kind;
use crate::machine::Memory;
use crate::workload::Filled;
use tidemill_flow::keystore::Keystore;

const RULES: [u64; 4] = [100, 1_000, 10_000, 100_000];

/// The table.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    let mut points = Vec::new();
    let mut put = |panel, series: &str, x: Place, y, paper| {
        points.push(Point { panel, series: series.into(), x, y, paper });
    };
    for (name, cost) in energy::TCAM
        .iter()
        .map(|(kib, cost)| (format!("TCAM {kib} KiB"), *cost))
        .chain([("one accelerator".to_owned(), energy::HALO)])
    {
        let x = || Place::Name(name.clone());
        put("inputs from Table 4: area, tiles", "input", x(), cost.area_tiles, Some(cost.area_tiles));
        put("inputs from Table 4: static power, mW", "input", x(), cost.static_mw, Some(cost.static_mw));
        put("inputs from Table 4: energy of a query, nJ", "input", x(), cost.query_nj, Some(cost.query_nj));
    }
    for (done, rules) in RULES.into_iter().enumerate() {
        let mut memory = Memory::new(&options.config);
        let table: Filled<Keystore<2>> = Filled::new(&mut memory, rules * 10 / 9 + 1, rules, options.seed)?;
        let slices = options.config.slices as u64;
        let nonblocking = Series::NonBlocking(options.config.halo.batch);
        let of = |series, cost: Cost| {
            let outcome = single(memory.clone(), &table, series, options, Asking::default());
            let seconds = outcome.ps as f64 / 1e12;
            (
                cost.query_nj,
                cost.energy_nj(outcome.lookups, seconds) / outcome.lookups.max(1) as f64,
                cost.area_tiles,
            )
        };
        let rows = [
            ("halo-nonblocking", of(nonblocking, energy::halo(slices))),
            ("tcam", of(Series::Tcam(Kind::Tcam), energy::tcam(rules))),
            ("sram-tcam", of(Series::Tcam(Kind::Sram), energy::sram(rules))),
        ];
        for (name, (dynamic, all, area)) in rows {
            let x = || Place::Number(rules as f64);
            put("dynamic energy of a query by rules, nJ", name, x(), dynamic, None);
            put("energy of a query by rules, static power shared, nJ", name, x(), all, None);
            put("area by rules, tiles", name, x(), area, None);
            if name == "tcam" {
                let paper = (rules == 100_000).then_some(48.2);
                put(
                    "energy relative to HALO's by rules",
                    "tcam, dynamic",
                    x(),
                    dynamic / energy::HALO.query_nj,
                    paper,
                );
                put("energy relative to HALO's by rules", "tcam, with static", x(), all / rows[0].1.1, None);
            }
        }
        progress(done + 1, RULES.len());
    }
    Ok(points)
}
