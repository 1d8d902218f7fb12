//! `bench flow`: hash tables and the flow table.
//!
//! Every table is made anew for each run, and the runs of all tables take turns, so that a drift of the machine favours
//! nobody and one table at a time needs memory. Every timed answer is stored and held to what was inserted; a wrong one
//! ends the benchmark.

mod bound;
mod figure;
mod flood;
mod hashbrown;
mod keys;
mod lines;
mod output;
mod round;
mod runner;
mod stores;
mod tables;
mod work;

use super::bound::{Load, Region};
use super::drawing::check_plot;
use super::report::Report;
use crate::json::Params;
use crate::progress::Progress;
use crate::usage;
use anyhow::Result;
use clap::{Args, ValueEnum};
use keys::Keys;
use output::Sheet;
use round::Round;
use std::path::PathBuf;
use std::time::Duration;
use tables::{Measures, subjects};
use tidemill_flow::table::SizeError;
use work::{MOST, Plan, rate};

/// Arguments of `bench flow`.
#[derive(Args)]
#[command(after_help = "Cases, all by default:\n  \
    speed      lookups of random keys that are there (hit) or not (miss), in batches and one by one (single); insertions\n             \
    from nothing to the load, removal of all; find-or-insert from nothing (batches), and of keys that are there\n  \
    lines      cache lines touched by an insertion, a hit, a miss: mean, 99th percentile, greatest, stated bound\n  \
    occupancy  how full the table is when the first key has no room\n  \
    flood      a full table, 10 to 100 % of the packets from new flows\n  \
    bound      random 4-byte loads in a region of the table's size, independent and dependent: what memory allows\n\n\
    Examples:\n  tidemill bench flow --table flowtable,hopscotch,chaining\n  \
    tidemill bench flow --entries 2^24 --load 0.9 --key-bytes 36 --json\n  \
    tidemill bench flow --figure fu-4.7 --plot fu-4.7.svg\n  \
    tidemill bench flow --table flowtable --case flood --quick")]
pub(crate) struct Flow {
    /// The tables [default: all; for the figure, the paper's six]
    #[arg(long = "table", value_name = "NAME", value_delimiter = ',')]
    tables: Vec<String>,
    /// Slots of each table: a number, 2^N, or with k or M behind it
    #[arg(long, value_name = "N", default_value = "2^20", value_parser = parse_entries)]
    entries: usize,
    /// Length of the keys: 8, 16, 36 or 40
    #[arg(long, value_name = "BYTES", default_value_t = 16)]
    key_bytes: usize,
    /// Keys over slots
    #[arg(long = "load", value_name = "LOAD", value_delimiter = ',', default_values_t = [0.5, 0.9])]
    loads: Vec<f64>,
    /// Keys per call
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch: usize,
    /// What is asked for
    #[arg(long = "case", value_enum, value_delimiter = ',', default_values = ["speed", "lines", "occupancy", "flood", "bound"])]
    cases: Vec<Case>,
    /// Whether hashing is part of the timed work
    #[arg(long, value_enum, default_value = "keyed")]
    hash: Hash,
    /// Runs; figures are medians over them [default: 5, with --quick 3]
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Seed of the keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Fewer runs, and an eighth of the lookups
    #[arg(long)]
    quick: bool,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Draw the lookup rates, or the figure
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// A figure of the paper instead of the cases
    #[arg(long, value_enum, value_name = "NAME")]
    figure: Option<Figure>,
    #[command(flatten)]
    runner: runner::RunnerArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Case {
    /// Lookups, insertions, removals, find-or-insert
    Speed,
    /// Cache lines per operation
    Lines,
    /// At the first failure
    Occupancy,
    /// New flows in a full table
    Flood,
    /// The machine
    Bound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Hash {
    /// Computed from the key, with a secret
    Keyed,
    /// Comes with the key, as a NIC's does
    Given,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Lookup speed of six hash tables against load
    #[value(name = "fu-4.7")]
    Fu4_7,
}

/// Lookups per pass.
const LOOKUPS: usize = 1 << 20;
/// A small table needs no more lookups than this for each of its slots.
const PER_SLOT: usize = 64;
/// Slots of the table that is filled to its first failure: a table without bound takes ever longer to find the last.
const OCCUPANCY: usize = 1 << 20;
/// What can be asked for.
const ENTRIES: std::ops::RangeInclusive<usize> = 256..=1 << 32;

pub(super) fn parse_entries(text: &str) -> Result<usize, String> {
    let number = |digits: &str| digits.parse::<usize>().ok();
    let entries = if let Some(power) = text.strip_prefix("2^") {
        number(power).and_then(|power| 1_usize.checked_shl(u32::try_from(power).ok()?))
    } else if let Some(millions) = text.strip_suffix('M') {
        number(millions).and_then(|n| n.checked_mul(1_000_000))
    } else if let Some(thousands) = text.strip_suffix('k') {
        number(thousands).and_then(|n| n.checked_mul(1_000))
    } else {
        number(text)
    };
    entries.filter(|n| ENTRIES.contains(n)).ok_or_else(|| "give 256 to 2^32, such as 2^20, 1M, 50000".into())
}

/// `2^20`, or the number.
pub(super) fn size_name(entries: usize) -> String {
    if entries.is_power_of_two() { format!("2^{}", entries.trailing_zeros()) } else { entries.to_string() }
}

/// A table that cannot be made.
fn no_table(name: &str, error: &SizeError) -> anyhow::Error {
    usage(format!("--entries: {name}: {error}: give fewer"))
}

impl Flow {
    fn runs(&self) -> usize {
        self.runs.unwrap_or(if self.quick { 3 } else { 5 })
    }

    fn check(&self) -> Result<()> {
        if self.batch == 0 || self.batch > MOST {
            return Err(usage(format!("--batch {}: give 1 to {MOST}", self.batch)));
        }
        if self.runs() == 0 {
            return Err(usage("--runs 0: give at least 1"));
        }
        check_plot(self.plot.as_deref())?;
        if let Some(load) = self.loads.iter().find(|load| !(**load > 0.0 && **load <= 1.0)) {
            return Err(usage(format!("--load {load}: give more than 0 and at most 1")));
        }
        if let Some(load) = self.loads.iter().find(|load| Plan::<1>::flows(self.entries, **load) == 0) {
            return Err(usage(format!("--load {load}: not one key in {} slots: give more", self.entries)));
        }
        Ok(())
    }

    /// The tables that were asked for, in the order in which they were.
    fn chosen<const W: usize>(&self) -> Result<Vec<Measures<W>>> {
        let mut all = subjects::<W>();
        if self.tables.is_empty() && self.figure.is_some() {
            all.retain(|table| tables::SIX.contains(&table.name));
        }
        if self.tables.is_empty() {
            return Ok(all);
        }
        let mut chosen: Vec<Measures<W>> = Vec::new();
        for name in &self.tables {
            if chosen.iter().any(|table| table.name == name) {
                continue;
            }
            let Some(at) = all.iter().position(|table| table.name == name) else {
                let names = tables::names().join(", ");
                return Err(usage(format!("--table {name}: use one of {names}")));
            };
            chosen.push(all.swap_remove(at));
        }
        Ok(chosen)
    }

    fn plan<const W: usize>(&self) -> Plan<W> {
        let lookups = if self.quick { LOOKUPS / 8 } else { LOOKUPS };
        Plan {
            entries: self.entries,
            keys: Keys::new(self.key_bytes, self.seed, self.hash == Hash::Keyed),
            batch: self.batch,
            lookups: lookups.min(self.entries * PER_SLOT),
            seed: self.seed,
        }
    }

    fn size(&self) -> String {
        format!("{}/{}B", size_name(self.entries), self.key_bytes)
    }

    fn params(&self) -> Params {
        let hash = if self.hash == Hash::Keyed { "keyed" } else { "given" };
        let params: [(&str, serde_json::Value); 5] = [
            ("entries", self.entries.into()),
            ("key_bytes", self.key_bytes.into()),
            ("batch", self.batch.into()),
            ("hash", hash.into()),
            ("seed", self.seed.into()),
        ];
        params.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

pub(super) fn run(args: &Flow) -> Result<bool> {
    args.check()?;
    match args.key_bytes {
        8 => measure::<1>(args),
        16 => measure::<2>(args),
        36 | 40 => measure::<5>(args),
        other => Err(usage(format!("--key-bytes {other}: use 8, 16, 36 or 40"))),
    }
}

fn measure<const W: usize>(args: &Flow) -> Result<bool> {
    if args.runner.runner {
        let keyed = args.hash == Hash::Keyed;
        let Flow { key_bytes, batch, seed, .. } = *args;
        return runner::run::<W>(&args.runner, runner::Common { key_bytes, batch, seed, keyed });
    }
    let tables = args.chosen::<W>()?;
    check_memory(args, &tables)?;
    let plan = args.plan::<W>();
    if args.figure == Some(Figure::Fu4_7) {
        draw(args, &plan, &tables)?;
        return Ok(true);
    }
    let wants = |case| args.cases.contains(&case);
    let mut sheet = Sheet::new(Report::new(args.json), args.size(), args.params());
    if wants(Case::Speed) {
        speed(args, &plan, &tables, &mut sheet)?;
    }
    if wants(Case::Bound) {
        bound(args, &plan, &tables, &mut sheet)?;
    }
    if wants(Case::Lines) {
        let progress = Progress::new("bench flow, lines", tables.len() as u64);
        for table in &tables {
            progress.message(table.name);
            sheet.lines(table.name, &(table.touched)(&plan)?, table.bounds)?;
            progress.add(1);
        }
    }
    if wants(Case::Occupancy) {
        occupancy(args, &tables, &mut sheet)?;
    }
    if wants(Case::Flood) {
        flooded(args, &plan, &tables, &mut sheet)?;
    }
    if !args.json {
        sheet.print(args.batch, args.hash == Hash::Keyed);
    }
    if let Some(file) = &args.plot {
        sheet.report.plot(file, &format!("Hash tables, {}", args.size()))?;
    }
    Ok(true)
}

/// One table at a time has to fit, with what is asked of it.
fn check_memory<const W: usize>(args: &Flow, tables: &[Measures<W>]) -> Result<()> {
    let queries = LOOKUPS * 8 * (W + 4);
    tables.iter().try_for_each(|table| {
        let bytes = (table.bytes)(args.entries)?;
        check_free(args.entries, table.name, bytes.saturating_add(queries))
    })
}

/// Whether so many bytes are free for a table of so many slots, and what is asked of it.
///
/// # Errors
/// Bad usage: they are not.
pub(super) fn check_free(entries: usize, name: &str, bytes: usize) -> Result<()> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let Some(kib) = free.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok()) else {
        return Ok(());
    };
    let mib = bytes >> 20;
    if mib > kib >> 10 {
        let entries = size_name(entries);
        return Err(usage(format!(
            "--entries {entries}: {name} needs {mib} MiB, {} MiB are free: give fewer",
            kib >> 10
        )));
    }
    Ok(())
}

/// Runs in turn: who goes first changes from run to run.
fn in_turn<const W: usize>(
    tables: &[Measures<W>],
    run: usize,
) -> impl Iterator<Item = (usize, &Measures<W>)> {
    (0..tables.len()).map(move |i| (i + run) % tables.len()).map(|i| (i, &tables[i]))
}

fn speed<const W: usize>(
    args: &Flow,
    plan: &Plan<W>,
    tables: &[Measures<W>],
    sheet: &mut Sheet,
) -> Result<()> {
    let steps = args.runs() * args.loads.len() * tables.len();
    let progress = Progress::new("bench flow, speed", steps as u64);
    // By load, by table.
    let mut rounds: Vec<Vec<Vec<Round>>> =
        args.loads.iter().map(|_| tables.iter().map(|_| Vec::new()).collect()).collect();
    for run in 0..args.runs() {
        for (&load, rounds) in args.loads.iter().zip(&mut rounds) {
            for (i, table) in in_turn(tables, run) {
                progress.message(format!("{} at load {load}", table.name));
                rounds[i].push((table.round)(plan, load, run)?);
                progress.add(1);
            }
        }
    }
    for (load, rounds) in args.loads.iter().zip(&rounds) {
        let of_load: Vec<(&str, &[Round])> =
            tables.iter().zip(rounds).map(|(table, rounds)| (table.name, &rounds[..])).collect();
        sheet.speed(*load, &of_load, plan.lookups)?;
    }
    Ok(())
}

fn bound<const W: usize>(
    args: &Flow,
    plan: &Plan<W>,
    tables: &[Measures<W>],
    sheet: &mut Sheet,
) -> Result<()> {
    let progress = Progress::new("bench flow, bound", tables.len() as u64);
    for table in tables {
        progress.message(table.name);
        let bytes = (table.bytes)(args.entries)?;
        let region = Region::new(bytes, plan.lookups, args.seed)?;
        for load in Load::all() {
            let once = |_| rate(region.loads() as u64, region.timed_pass(load).max(Duration::from_nanos(1)));
            let rates: Vec<f64> = (0..args.runs()).map(once).collect();
            sheet.bound(table.name, load.case(), region.bytes(), &rates)?;
        }
        progress.add(1);
    }
    Ok(())
}

fn occupancy<const W: usize>(args: &Flow, tables: &[Measures<W>], sheet: &mut Sheet) -> Result<()> {
    let entries = args.entries.min(OCCUPANCY);
    let progress = Progress::new("bench flow, occupancy", (args.runs() * tables.len()) as u64);
    for table in tables {
        progress.message(table.name);
        let mut values = Vec::new();
        for run in 0..args.runs() as u64 {
            // Other keys and another secret each time.
            let keys = Keys::new(args.key_bytes, args.seed.wrapping_add(run), args.hash == Hash::Keyed);
            values.push((table.occupancy)(&Plan { entries, keys, ..args.plan() })?);
            progress.add(1);
        }
        sheet.occupancy(table.name, entries, &values)?;
    }
    Ok(())
}

fn flooded<const W: usize>(
    args: &Flow,
    plan: &Plan<W>,
    tables: &[Measures<W>],
    sheet: &mut Sheet,
) -> Result<()> {
    let floods: Vec<_> =
        tables.iter().filter_map(|table| Some((table.name, table.flood?, table.bounds))).collect();
    let progress = Progress::new("bench flow, flood", (args.runs() * floods.len()) as u64);
    let mut runs: Vec<Vec<flood::Flooded>> = floods.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.runs() {
        for ((name, flood, _), runs) in floods.iter().zip(&mut runs) {
            progress.message(*name);
            runs.push(flood(plan)?);
            progress.add(1);
        }
    }
    for ((name, _, bounds), runs) in floods.iter().zip(&runs) {
        sheet.flood(name, runs, *bounds)?;
    }
    Ok(())
}

fn draw<const W: usize>(args: &Flow, plan: &Plan<W>, tables: &[Measures<W>]) -> Result<()> {
    let progress = Progress::new("bench flow, fu-4.7", (args.runs() * tables.len()) as u64);
    let mut series: Vec<_> = tables.iter().map(|table| figure::Series::new(table.name)).collect();
    for run in 0..args.runs() {
        for (i, table) in in_turn(tables, run) {
            progress.message(table.name);
            series[i].add((table.climb)(plan, &figure::LOADS)?);
            progress.add(1);
        }
    }
    drop(progress);
    figure::drawing(&series, &args.size()).show(args.json, args.plot.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_people_write_them() {
        for (text, entries) in [("2^20", 1 << 20), ("1M", 1_000_000), ("50k", 50_000), ("1000", 1000)] {
            assert_eq!(parse_entries(text), Ok(entries));
        }
        for text in ["", "2^", "2^64", "2^99999999999", "0", "255", "1G", "-1", "99999999999999999M", "2^33"]
        {
            assert!(parse_entries(text).is_err(), "{text}");
        }
        assert_eq!((size_name(1 << 20), size_name(1_000_000)), ("2^20".into(), "1000000".into()));
    }
}
