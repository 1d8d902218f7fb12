//! `fib verify`: every answer against the linear oracle, which is made straight from the list of routes.
//!
//! Always: both ends of every interval, and of every prefix its first, last, first - 1 and last + 1 address.
//! Then, as asked: random and prefix-based samples; all 2^32 IPv4 addresses; an update file, with the checks repeated
//! on the way and at its end; many small adversarial tables under interleaved updates.

mod check;
mod suite;
mod updates;

use crate::json::{self, Verified};
use crate::tables::{AlgorithmArgs, LoadArgs, TableArgs, routes};
use crate::usage;
use anyhow::{Result, bail};
use check::{Checker, Tally};
use clap::Args;
use std::path::PathBuf;
use std::time::Instant;
use tidemill_feed::LoadedTable;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Algorithm, BuildError, Change, Oracle, Rib};
pub(crate) use updates::{OfFamily, read as read_changes};

/// Arguments of `fib verify`.
#[derive(Args)]
#[command(
    after_help = "Ends with {\"v\":1,\"checked\":N,\"wrong\":0,\"seconds\":S}; exit status 1 if an answer is wrong.\n\n\
    Examples:\n  tidemill fib verify --table rib.zst --sample 10000000\n  \
    tidemill fib verify --table rib.zst --all --algorithm all --json\n  \
    tidemill fib verify --table rib.zst --updates updates.zst\n  tidemill fib verify --suite 100000\n  \
    tidemill fib verify --suite 5000 --batches 5 --algorithm all"
)]
pub(crate) struct Verify {
    /// Routing table: MRT, text or CSV; plain, gz, xz or zst. Repeat it to join several
    #[arg(long = "table", value_name = "FILE", required_unless_present = "suite")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    structures: AlgorithmArgs,
    /// Also this many random addresses, half of them inside prefixes
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    sample: u64,
    /// All 2^32 addresses (IPv4)
    #[arg(long)]
    all: bool,
    /// Apply this update file, checking on the way and at its end
    #[arg(long, value_name = "FILE")]
    updates: Option<PathBuf>,
    /// Changes that are applied together
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "updates")]
    batch: usize,
    /// N random and adversarial small tables with interleaved updates for each structure that --algorithm names, the same N
    /// for every structure of a family, every thousandth of them with 100,000 prefixes; `auto` here is popdir-d16x3, popdir-d19, dxr-d16x4r, dxr-d18r, dxr-d16r and rangetrie-d16
    /// for IPv4, lulea and rangetrie-d16 for IPv6
    #[arg(long, value_name = "N", conflicts_with_all = ["files", "all", "updates"])]
    suite: Option<u64>,
    /// So many times as many batches of changes to each of those tables as otherwise (up to 12), but for the large ones: what takes long to be made is changed more
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000), requires = "suite")]
    batches: u16,
    /// The structures of this family alone
    #[arg(long, value_name = "FAMILY", value_parser = ["4", "6"], requires = "suite")]
    family: Option<String>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// What a check of one structure needs to know.
struct Job<'a> {
    args: &'a Verify,
    table: &'a LoadedTable,
}

pub(super) fn run(args: &Verify) -> Result<bool> {
    usage::to_the_end();
    let start = Instant::now();
    let tally = match args.suite {
        Some(count) => suite::run(args, count)?,
        None => tables(args)?,
    };
    let wrong = tally.wrong;
    let verified = Verified {
        v: json::VERSION,
        checked: tally.checked,
        wrong,
        seconds: json::significant(start.elapsed().as_secs_f64()),
    };
    if args.json {
        json::print(&verified)?;
    } else {
        println!("{} checked, {wrong} wrong, {:.1} s", verified.checked, verified.seconds);
    }
    Ok(wrong == 0)
}

fn tables(args: &Verify) -> Result<Tally> {
    if args.batch == 0 {
        return Err(usage("--batch 0: give at least 1"));
    }
    let files = TableArgs { files: args.files.clone(), load: args.load.clone() };
    let table = files.load()?;
    let chosen = args.structures.choose(&table)?;
    super::say_what_is_left_out(&files, &table, &chosen);
    if args.all && chosen.v4.is_empty() {
        return Err(usage(
            "--all: goes through IPv4 addresses, and no IPv4 structure was chosen for this table",
        ));
    }
    if table.v4.is_empty() && table.v6.is_empty() && args.updates.is_none() {
        bail!("{}: no routes in it: there is nothing to verify", files.name());
    }
    let job = Job { args, table: &table };
    // Read before anything is checked, and once for all structures.
    let (v4, v6) = (job.changes(&chosen.v4)?, job.changes(&chosen.v6)?);
    if let Some(file) = args.updates.as_ref().filter(|_| v4.is_empty() && v6.is_empty()) {
        bail!("{}: no updates in it for the structures that are to be verified", file.display());
    }
    for (family, none) in
        [(4, v4.is_empty() && !chosen.v4.is_empty()), (6, v6.is_empty() && !chosen.v6.is_empty())]
    {
        if let Some(file) = args.updates.as_ref().filter(|_| none) {
            eprintln!("tidemill: {}: no IPv{family} updates in it", file.display());
        }
    }
    let mut tally = Tally::default();
    job.family(&table.v4, &chosen.v4, &v4, &mut tally)?;
    job.family(&table.v6, &chosen.v6, &v6, &mut tally)?;
    Ok(tally)
}

impl Job<'_> {
    /// The family's changes, if there are structures of it to see them.
    fn changes<A: OfFamily>(&self, algorithms: &[Algorithm]) -> Result<Vec<Change<A>>> {
        let Some(file) = self.args.updates.as_ref().filter(|_| !algorithms.is_empty()) else {
            return Ok(Vec::new());
        };
        crate::tables::check_input(file)?;
        read_changes::<A>(file, &self.table.labels, &self.args.load)
    }

    fn family<A: OfFamily>(
        &self,
        rib: &Rib<A>,
        algorithms: &[Algorithm],
        changes: &[Change<A>],
        tally: &mut Tally,
    ) -> Result<()> {
        if algorithms.is_empty() {
            return Ok(());
        }
        let list = routes(rib);
        let oracle = Oracle::new(&list);
        for algorithm in algorithms {
            let writer = match algorithm.writer(rib, &Domain::new()) {
                Ok(writer) => writer,
                Err(error) => {
                    self.left_out(algorithm, A::FAMILY, error)?;
                    continue;
                }
            };
            let fib = writer.fib();
            let mut checker = Checker::new(fib.as_ref(), &oracle, self.args.json);
            checker.edges(&list)?;
            checker.sample(&list, self.args.sample, self.args.seed)?;
            if self.args.all && A::FAMILY == 4 {
                checker.all()?;
            }
            checker.report(A::FAMILY, "table", tally)?;
            drop(writer);
            if let Some(file) = self.args.updates.as_ref().filter(|_| !changes.is_empty()) {
                updates::run(self, (file, changes), list.clone(), algorithm, tally)?;
            }
        }
        Ok(())
    }

    /// Asked for all, one that cannot store the labels, or so large a table, is left out, aloud.
    fn left_out(&self, algorithm: &Algorithm, family: u8, error: BuildError) -> Result<()> {
        let is_its_limit = matches!(error, BuildError::LabelTooWide { .. } | BuildError::TooLarge { .. });
        if !(self.args.structures.any() && is_its_limit) {
            return Err(anyhow::Error::new(error).context(algorithm.to_string()));
        }
        eprintln!("tidemill: left out {algorithm} (IPv{family}): {error}");
        Ok(())
    }
}
