//! `--suite`: many small tables under updates, by the suite that every structure has to pass.

use super::Verify;
use super::check::Tally;
use crate::json;
use crate::progress::Progress;
use crate::usage;
use anyhow::Result;
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::suite::{Stats, large_case, long_case, run_case};
use tidemill_lpm::{Algorithm, Family, Rib};

/// Structures that are tested if none are named: those that `auto` chooses from, each pattern of code once or more.
const USUAL_V4: [&str; 6] =
    ["popdir-d16x3", "popdir-d19", "dxr-d16x4r", "dxr-d18r", "dxr-d16r", "rangetrie-d16"];
const USUAL_V6: [&str; 2] = ["lulea", "rangetrie-d16"];
/// Every table of so many is a large one: 100,000 prefixes.
const LARGE_EVERY: usize = 1000;
/// A structure with so many failures gets no more tables: each is made small, which takes seconds.
const MOST_FAILURES: usize = 8;

/// What was found about one structure, as JSON.
#[derive(Serialize)]
struct SuiteLine {
    v: u8,
    family: u8,
    structure: String,
    /// Tables that this structure was given, the first with this seed, the next with the next.
    tables: usize,
    /// Those of them that have 100,000 prefixes.
    large: usize,
    first_seed: u64,
    changes: usize,
    /// Batches of changes after which answers were compared.
    states: usize,
    /// Answers compared with the oracle's: single ones, and those of every kernel's bursts.
    lookups: usize,
    kernels: Vec<&'static str>,
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
    if tables == 0 {
        return Err(usage("--suite 0: checks nothing: give at least 1"));
    }
    let mut tally = Tally::default();
    family::<u32>(args, &USUAL_V4, tables, &mut tally)?;
    family::<u128>(args, &USUAL_V6, tables, &mut tally)?;
    if tally.checked == 0 {
        return Err(usage("--family: none of the structures that --algorithm names is of it"));
    }
    Ok(tally)
}

/// The structures that `--algorithm` names.
fn chosen<A: Family>(args: &Verify, usual: &[&str]) -> Result<Vec<Algorithm>> {
    let mut names: Vec<&str> = args.structures.names().collect();
    for name in &names {
        if let (Err(error), Err(_)) = (Algorithm::parse::<u32>(name), Algorithm::parse::<u128>(name)) {
            return Err(usage(format!("--algorithm: {error}")));
        }
    }
    if args.structures.any() {
        return Ok(args.structures.of_family::<A>());
    }
    if names.contains(&"auto") {
        names = usual.to_vec();
    }
    Ok(names.iter().filter_map(|name| Algorithm::parse::<A>(name).ok()).collect())
}

fn family<A: Family>(args: &Verify, usual: &[&str], tables: usize, tally: &mut Tally) -> Result<()> {
    if args.family.as_ref().is_some_and(|family| *family != A::FAMILY.to_string()) {
        return Ok(());
    }
    for algorithm in chosen::<A>(args, usual)? {
        let line = structure::<A>(algorithm, tables, args)?;
        tally.checked += line.lookups as u64;
        tally.wrong += line.failures as u64;
        if args.json {
            json::print(&line)?;
            continue;
        }
        println!(
            "{} (IPv{}): {} tables, {} of them large, {} changes in {} batches, {} answers compared (singly, {}), {} rebuilds, {} refused, {} failures, {:.1} s",
            line.structure,
            line.family,
            line.tables,
            line.large,
            line.changes,
            line.states,
            line.lookups,
            line.kernels.join(", "),
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

/// Runs the suite on all cores. Each table has its own seed, so that threads do not matter to the result.
fn structure<A: Family>(algorithm: Algorithm, tables: usize, args: &Verify) -> Result<SuiteLine> {
    let (seed, batches) = (args.seed, usize::from(args.batches));
    let start = Instant::now();
    let empty = algorithm.writer(&Rib::<A>::new(), &Domain::new())?.fib();
    let mut kernels = Vec::new();
    empty.lookup_batch_each(&[], &mut |kernel, _| kernels.push(kernel));
    let progress = Progress::new(format!("suite, {} (IPv{})", empty.name(), A::FAMILY), tables as u64);
    let make = |rib: &Rib<A>, domain: &Domain| algorithm.writer(rib, domain);
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let sum: Mutex<(Stats, Option<String>)> = Mutex::default();
    let work = || {
        let mut stats = Stats::default();
        while failed.load(Ordering::Relaxed) < MOST_FAILURES {
            let table = next.fetch_add(1, Ordering::Relaxed);
            if table >= tables {
                break;
            }
            let seed = seed.wrapping_add(table as u64);
            let large = table % LARGE_EVERY == LARGE_EVERY - 1;
            match run_case(&if large { large_case(seed) } else { long_case(seed, batches) }, &make) {
                Ok(of_case) => stats += of_case,
                Err(failure) => {
                    stats.tables += 1;
                    failed.fetch_add(1, Ordering::Relaxed);
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    sum.1.get_or_insert_with(|| failure.to_string());
                }
            }
            progress.add(1);
        }
        sum.lock().unwrap_or_else(PoisonError::into_inner).0 += stats;
    };
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (stats, first_failure) = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(SuiteLine {
        v: json::VERSION,
        family: A::FAMILY,
        structure: empty.name(),
        tables: stats.tables,
        large: stats.tables / LARGE_EVERY,
        first_seed: seed,
        changes: stats.changes,
        states: stats.states,
        lookups: stats.lookups,
        kernels,
        rebuilds: stats.rebuilds,
        refused: stats.refused,
        failures: failed.into_inner(),
        seconds: json::significant(start.elapsed().as_secs_f64()),
        first_failure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a router may be given without being asked is tested without being asked.
    #[test]
    fn what_auto_chooses_from_is_tested() {
        fn check<A: Family>(usual: &[&str]) {
            for algorithm in A::likely() {
                let name = algorithm.to_string();
                // One width of a range trie is the code of all.
                let tested = usual.iter().any(|usual| name == *usual);
                assert!(tested || name.starts_with("rangetrie-"), "{name}");
            }
        }
        check::<u32>(&USUAL_V4);
        check::<u128>(&USUAL_V6);
    }
}
