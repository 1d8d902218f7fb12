//! `tidemill tune`: what this machine's memory can do, which lookup structure a table should have here, and why.

mod advice;
mod candidates;
mod memory;
mod report;
mod threads;

use crate::bench::drawing::check_plot;
use crate::bench::updates;
use crate::fib::OfFamily;
use crate::progress::Progress;
use crate::tables::{AlgorithmArgs, TableArgs, check_input};
use crate::usage;
use advice::By;
use anyhow::{Context, Result};
use candidates::{Tried, try_all};
use clap::Args;
use memory::{Effort, Memory};
use report::Report;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidemill_feed::LoadedTable;
use tidemill_lpm::{Algorithm, Rib};

/// Changes that come within this time are applied together.
const WINDOW: Duration = Duration::from_millis(5);

/// Arguments of `tune`.
#[derive(Args)]
#[command(
    after_help = "First the memory (Zec 2019, Table 2.1): what a load costs in each cache, and how many the core has in flight. Then\n\
    every structure that can hold the table: briefly all, then the best six in turn, results stored and compared with the\n\
    oracle's. At last what more threads bring (Zec 2019, Fig 2.4), and what to put into the configuration.\n\n\
    Cases: rnd, seq, rep over unicast space, prefix inside the table's prefixes; IPv6: rnd, seq, rep inside the table's prefixes.\n\
    Of structures that are equally fast within 5 %, the smallest is advised.\n\n\
    Examples:\n  tidemill tune --table rib.zst\n  \
    tidemill tune --table v4.zst --table v6.zst --quick --json\n  \
    tidemill tune --table rib.zst --by seq --updates updates.zst --plot here\n  \
    tidemill tune --table rib.zst --algorithm dxr-d16x4r,dxr-d18r,poptrie-d18"
)]
pub(crate) struct Tune {
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    structures: Candidates,
    /// What is wanted most
    #[arg(long, value_enum, default_value = "mix")]
    by: By,
    /// A few seconds: fewer sizes of memory, the registry's structures only, shorter runs, no threads
    #[arg(long)]
    quick: bool,
    /// Measure update rates with this update file instead of withdrawing and announcing routes of the table
    #[arg(long, value_name = "FILE")]
    updates: Option<PathBuf>,
    /// Leave the memory out
    #[arg(long)]
    no_memory: bool,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Draw: NAME-memory.svg, NAME-ipv4.svg, NAME-ipv6.svg, NAME-threads.svg
    #[arg(long, value_name = "NAME")]
    plot: Option<PathBuf>,
}

/// Which structures are candidates.
#[derive(Args)]
struct Candidates {
    /// Candidates, separated by commas [default: every one that fits the table, in all layouts]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    algorithm: Vec<String>,
}

/// How long, and with how many keys.
struct Pace {
    quick: bool,
    runs: usize,
    /// For each run, case and structure.
    slice: Duration,
    keys: usize,
    brief_keys: usize,
}

impl Pace {
    fn new(quick: bool) -> Self {
        match quick {
            true => {
                Pace { quick, runs: 3, slice: Duration::from_millis(20), keys: 1 << 18, brief_keys: 1 << 16 }
            }
            false => {
                Pace { quick, runs: 7, slice: Duration::from_millis(100), keys: 1 << 21, brief_keys: 1 << 18 }
            }
        }
    }
}

/// Set by Ctrl-C: looked at between two measurements.
struct Stop(Arc<AtomicBool>);

/// Ctrl-C.
#[derive(Debug)]
struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted: nothing is advised")
    }
}

impl std::error::Error for Interrupted {}

impl Stop {
    fn on_signals() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The second one ends the program whatever it does.
            signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())
                .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
                .context("cannot watch for signals")?;
        }
        Ok(Stop(flag))
    }

    fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
    }
}

/// Runs the command; false if an answer was wrong.
pub(crate) fn tune(args: &Tune) -> Result<bool> {
    let stop = Stop::on_signals()?;
    match measured(args, &stop) {
        // The progress has been cleared by now.
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("tidemill: {error}");
            std::process::exit(130);
        }
        other => other,
    }
}

fn measured(args: &Tune, stop: &Stop) -> Result<bool> {
    args.updates.iter().try_for_each(|file| check_input(file))?;
    check_plot(args.plot.as_ref().map(|name| report::plot_file(name, "memory")).as_deref())?;
    let table = args.table.load()?;
    stop.check()?;
    if table.v4.is_empty() && table.v6.is_empty() {
        return Err(usage(format!("{}: has no prefixes: give a table with routes", args.table.name())));
    }
    let chosen = match args.structures.algorithm.is_empty() {
        true => None,
        false => {
            let named = AlgorithmArgs { algorithm: args.structures.algorithm.clone() };
            Some(named.choose(&table)?)
        }
    };
    let pace = Pace::new(args.quick);
    let mut report = Report::new(args.json, &args.table.name());
    let memory = memory(args, &pace, stop)?;
    report.memory(&memory)?;
    let named4 = chosen.as_ref().map(|chosen| &chosen.v4[..]);
    let named6 = chosen.as_ref().map(|chosen| &chosen.v6[..]);
    family(args, &table, &table.v4, named4, &memory, &pace, stop, &mut report)?;
    family(args, &table, &table.v6, named6, &memory, &pace, stop, &mut report)?;
    report.configuration()?;
    if let Some(name) = &args.plot {
        report.plot(name, &memory)?;
    }
    Ok(true)
}

fn memory(args: &Tune, pace: &Pace, stop: &Stop) -> Result<Memory> {
    let caches = memory::caches();
    let sizes = if args.no_memory { Vec::new() } else { Memory::sizes(&caches, args.quick) };
    // The larger regions cost the most, by far.
    let weight = |bytes: usize| bytes.ilog2() as u64 * 4 + (bytes >> 24) as u64;
    let progress = Progress::new("tune: memory", sizes.iter().map(|&bytes| weight(bytes)).sum());
    let effort = Effort { slice: pace.slice, runs: pace.runs.min(5), quick: pace.quick };
    Memory::measure(caches, &sizes, &effort, stop, &mut |bytes| progress.add(weight(bytes)))
}

#[allow(clippy::too_many_arguments)] // all that a family's half needs, once
fn family<A: OfFamily>(
    args: &Tune,
    table: &LoadedTable,
    rib: &Rib<A>,
    named: Option<&[Algorithm]>,
    memory: &Memory,
    pace: &Pace,
    stop: &Stop,
    report: &mut Report,
) -> Result<()> {
    if rib.is_empty() || named.is_some_and(<[_]>::is_empty) {
        return Ok(());
    }
    let changes = match &args.updates {
        Some(file) => crate::fib::read_changes::<A>(file, &table.labels, &args.table.load)?,
        None => updates::flaps(rib, 1),
    };
    let tried: Tried<A> = try_all(rib, named, &changes, args.by, pace, stop)?;
    let shown: Vec<_> = tried.finalists.iter().map(|candidate| candidate.shown()).collect();
    report.candidates(&tried, rib.len())?;
    let Some(at) = advice::choose(&shown, args.by) else {
        let (algorithm, why) = &tried.refused[0];
        return Err(anyhow::anyhow!("no structure can hold the table; {algorithm}: {why}"));
    };
    if !args.quick
        && let Some(fib) = &tried.finalists[at].fib
    {
        let progress = Progress::new(format!("tune, IPv{}: threads", A::FAMILY), 1);
        let scaling = threads::measure(fib, &tried.keys, pace, stop)?;
        drop(progress);
        report.threads(A::FAMILY, &shown[at].name, &scaling)?;
    }
    report.advice(A::FAMILY, &shown[at].name, &advice::why(&shown, at, args.by, memory))
}
