//! `--suite`: many small tables under updates, by the suite that every structure has to pass.

use super::Verify;
use super::check::Tally;
use crate::json;
use crate::progress::Progress;
use crate::tables::every;
use crate::usage;
use anyhow::Result;
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::suite::{Stats, run_many};
use tidemill_lpm::{Algorithm, Family, Rib};

/// Tables per piece of work.
const PIECE: usize = 50;
/// A structure whose empty table takes more than this gets as many fewer tables: all of it is written for each build.
const LIGHT_BYTES: usize = 256 << 10;
/// The fewest tables that a structure gets, if there are so many.
const LEAST: usize = 4;

/// What was found about one structure, as JSON.
#[derive(Serialize)]
struct SuiteLine {
    v: u8,
    family: u8,
    structure: String,
    tables: usize,
    changes: usize,
    lookups: usize,
    rebuilds: usize,
    /// Tables with labels wider than the structure's.
    refused: usize,
    failures: usize,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failure: Option<String>,
}

pub(super) fn run(args: &Verify, tables: u64) -> Result<Tally> {
    let tables = usize::try_from(tables).map_err(|_| usage(format!("--suite {tables}: too many")))?;
    let mut tally = Tally::default();
    family::<u32>(args, tables.div_ceil(2), &mut tally)?;
    family::<u128>(args, tables.div_ceil(2), &mut tally)?;
    Ok(tally)
}

/// The structures that `--algorithm` names; without it, all.
fn chosen<A: Family>(args: &Verify) -> Result<Vec<Algorithm>> {
    let names = &args.structures.algorithm;
    if names.iter().any(|name| name == "all" || name == "auto") {
        return Ok(every::<A>());
    }
    for name in names {
        if let (Err(error), Err(_)) = (Algorithm::parse::<u32>(name), Algorithm::parse::<u128>(name)) {
            return Err(usage(format!("--algorithm: {error}")));
        }
    }
    Ok(names.iter().filter_map(|name| Algorithm::parse::<A>(name).ok()).collect())
}

fn family<A: Family>(args: &Verify, tables: usize, tally: &mut Tally) -> Result<()> {
    let mut shares = Vec::new();
    for algorithm in chosen::<A>(args)? {
        let empty = algorithm.writer(&Rib::<A>::new(), &Domain::new())?.fib();
        shares.push((algorithm, empty.name(), 1.0 / empty.bytes().max(LIGHT_BYTES) as f64));
    }
    let all: f64 = shares.iter().map(|(.., share)| share).sum();
    let mut first = args.seed;
    for (algorithm, name, share) in shares {
        let count = ((tables as f64 * share / all).ceil() as usize).max(tables.min(LEAST));
        let line = structure::<A>(algorithm, name, count, first);
        // No two structures see the same tables: there are more different ones so.
        first = first.wrapping_add(count as u64);
        tally.checked += line.lookups as u64;
        tally.wrong += line.failures as u64;
        if args.json {
            json::print(&line)?;
            continue;
        }
        println!(
            "{} (IPv{}): {} tables, {} changes, {} answers compared, {} rebuilds, {} refused, {} failures, {:.1} s",
            line.structure,
            line.family,
            line.tables,
            line.changes,
            line.lookups,
            line.rebuilds,
            line.refused,
            line.failures,
            line.seconds
        );
        if let Some(failure) = line.first_failure {
            println!("WRONG {}: {failure}", line.structure);
        }
    }
    Ok(())
}

/// Runs the suite on all cores; every piece has its own seeds, so that threads do not matter to the result.
fn structure<A: Family>(algorithm: Algorithm, name: String, tables: usize, seed: u64) -> SuiteLine {
    let start = Instant::now();
    let progress = Progress::new(format!("suite, {name} (IPv{})", A::FAMILY), tables as u64);
    let next = AtomicUsize::new(0);
    let sum: Mutex<(Stats, usize, Option<String>)> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let from = next.fetch_add(PIECE, Ordering::Relaxed);
                    if from >= tables {
                        return;
                    }
                    let count = PIECE.min(tables - from);
                    let make = |rib: &Rib<A>, domain: &Domain| algorithm.writer(rib, domain);
                    let result = run_many(seed.wrapping_add(from as u64), count, make, |_| progress.add(1));
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    match result {
                        Ok(stats) => {
                            sum.0.tables += stats.tables;
                            sum.0.changes += stats.changes;
                            sum.0.lookups += stats.lookups;
                            sum.0.rebuilds += stats.rebuilds;
                            sum.0.refused += stats.refused;
                        }
                        Err(failure) => {
                            sum.1 += 1;
                            sum.2.get_or_insert_with(|| failure.to_string());
                        }
                    }
                }
            });
        }
    });
    let (stats, failures, first_failure) = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    SuiteLine {
        v: json::VERSION,
        family: A::FAMILY,
        structure: name,
        tables: stats.tables,
        changes: stats.changes,
        lookups: stats.lookups,
        rebuilds: stats.rebuilds,
        refused: stats.refused,
        failures,
        seconds: json::significant(start.elapsed().as_secs_f64()),
        first_failure,
    }
}
