//! `bench lpm`: lookup structures on a routing table.
//!
//! Every timed result is stored and checksummed; a checksum that is not the oracle's fails the benchmark. The runs of all
//! structures and of the machine's bound alternate, so that a drift of the machine favours nobody and ratios hold.

use super::bound::{Load, Region};
use super::drawing::check_plot;
use super::pass::{Asked, BLOCK, Order, Pass, on_huge_pages, sustained, timed_pass};
use super::report::Report;
use super::{bursts, runner, scaling, updates};
use crate::fib::OfFamily;
use crate::json::{Measurement, Params};
use crate::progress::Progress;
use crate::tables::{AlgorithmArgs, TableArgs, check_input, routes};
use crate::usage;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_feed::LoadedTable;
use tidemill_lookup::mem::Array;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::{Pattern, keys, repeated, worst};
use tidemill_lpm::{Algorithm, Change, Family, Fib, Oracle, Rib};

/// Arguments of `bench lpm`.
#[derive(Args)]
#[command(after_help = "Cases (Zec 2019, 3.6; Fu 2020, 3.5.2):\n  \
    rnd     each key once, in batches, uniform over unicast space\n  \
    seq     the same keys, each XORed with the result before: no lookup can start before the last has ended\n  \
    rep     each key 8 times, interleaved with 7 others\n  \
    adv     the table's own worst: inside the longest prefixes and the most crowded blocks\n  \
    prefix  inside random prefixes of the table\n  \
    worst   each structure's own worst: inside the prefixes where it makes the most loads, by the access probe\n\
    Updates: one by one, a thousand at a time, and as many as come within --coalesce-ms while the ones before are applied;\n  \
    stores into the structure for each that changes the table, by the access probe (20,000 of them, or as many as the time of\n  \
    all runs allows); and the lookups of a reader alone, beside a thread that\n  \
    updates another table, and on the table that is updated.\n\
    Bursts (--bursts): nanoseconds for a call with so many keys, 50th and 99th percentile, each call timed on its own.\n\
    The bound is what the machine does in a region of the structure's size: one random 4-byte load per lookup.\n\n\
    Examples:\n  tidemill bench lpm --table rib.zst\n  \
    tidemill bench lpm --table rib.zst --algorithm all --case rnd,seq --json\n  \
    tidemill bench lpm --table rib.zst --case rnd,adv --bursts 1,4,16,64,256\n  \
    tidemill bench lpm --table rib.zst --updates updates.zst --plot rates.svg\n  \
    tidemill bench lpm --table v6.zst --updates-like v4.updates.zst\n  \
    tidemill bench lpm --figure list\n  \
    tidemill bench lpm --figure zec-3.13 --table rib.zst --plot zec-3.13.svg",
    // The list of figures needs no table.
    mut_arg("files", |arg| arg.required(false).required_unless_present("figure")))]
pub(crate) struct Lpm {
    #[command(flatten)]
    pub(super) table: TableArgs,
    #[command(flatten)]
    structures: AlgorithmArgs,
    /// What is asked for
    #[arg(long = "case", value_enum, value_delimiter = ',', default_values = ["rnd", "seq", "rep", "adv", "prefix"])]
    cases: Vec<Case>,
    /// Seconds of lookups per run, case and structure
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Runs; figures are medians over them
    #[arg(long, default_value_t = 7)]
    pub(super) runs: usize,
    /// Distinct lookups per pass, in thousands of 1024: a multiple of 4
    #[arg(long, value_name = "N", default_value_t = 2048)]
    lookups_ki: usize,
    /// Keys per call in the independent cases
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(super) batch: usize,
    /// Sizes of bursts whose times are measured one by one, in the independent cases
    #[arg(long, value_name = "N", value_delimiter = ',')]
    bursts: Vec<usize>,
    /// Seed of the keys
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Measure update rates with this update file instead of withdrawing and announcing routes of the table
    #[arg(long, value_name = "FILE")]
    pub(super) updates: Option<PathBuf>,
    /// Measure update rates with the order of this update file, of either family, on routes of the table
    #[arg(long, value_name = "FILE", conflicts_with = "updates")]
    updates_like: Option<PathBuf>,
    /// Leave updates out
    #[arg(long, conflicts_with_all = ["updates", "updates_like"])]
    no_updates: bool,
    /// The case `update-coalesced`: updates that come within so many milliseconds are applied together
    #[arg(long, value_name = "N", default_value_t = 5)]
    coalesce_ms: u64,
    /// So many threads on one structure, over one thread on it, in the independent cases; and the bound's growth
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) threads: usize,
    /// One JSON object per line
    #[arg(long)]
    pub(super) json: bool,
    /// Draw the rates
    #[arg(long, value_name = "FILE.svg")]
    pub(super) plot: Option<PathBuf>,
    /// Keys from a file for `rnd`, `rep` and `seq` (format: bench/README.md)
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Answer timed passes on standard input (protocol: bench/README.md)
    #[arg(long, requires = "keys")]
    runner: bool,
    /// A figure of a paper instead of the cases, from tables that stand in for the paper's; `list` prints their names. Several
    /// tables are then several, not one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["algorithm", "cases", "bursts", "keys", "runner"])]
    pub(super) figure: Option<String>,
}

/// Which keys, in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Case {
    /// Uniform, independent
    Rnd,
    /// Uniform, dependent
    Seq,
    /// Each key 8 times
    Rep,
    /// Adversarial
    Adv,
    /// Inside prefixes
    Prefix,
    /// Each structure's own worst
    Worst,
}

/// Keys in their order.
type Keys<A> = (Order, Arc<Array<A>>);

impl Case {
    pub(super) fn name(self) -> &'static str {
        match self {
            Case::Rnd => "rnd",
            Case::Seq => "seq",
            Case::Rep => "rep",
            Case::Adv => "adv",
            Case::Prefix => "prefix",
            Case::Worst => "worst",
        }
    }

    fn pattern(self) -> Pattern {
        match self {
            Case::Rnd | Case::Seq | Case::Rep => Pattern::Random,
            // Without a structure: what is worst for most.
            Case::Adv | Case::Worst => Pattern::Adversarial,
            Case::Prefix => Pattern::PrefixBased,
        }
    }

    /// Its keys and their order. The cases that ask for random keys take `random`.
    pub(super) fn keys<A: Family>(
        self,
        rib: &Rib<A>,
        random: &Arc<Array<A>>,
        batch: usize,
        seed: u64,
    ) -> Keys<A> {
        let independent = Order::Independent { batch };
        match self {
            Case::Rnd => (independent, random.clone()),
            Case::Seq => (Order::Dependent, random.clone()),
            Case::Rep => (independent, on_huge_pages(repeated(random))),
            _ => (independent, on_huge_pages(keys(rib, self.pattern(), random.len(), seed))),
        }
    }
}

impl Lpm {
    pub(super) fn is_runner(&self) -> bool {
        self.runner
    }

    pub(super) fn table(&self) -> &TableArgs {
        &self.table
    }

    pub(super) fn structures(&self) -> &AlgorithmArgs {
        &self.structures
    }

    pub(super) fn keys(&self) -> Option<&Path> {
        self.keys.as_deref()
    }

    /// Lookups per pass.
    pub(super) fn lookups(&self) -> usize {
        self.lookups_ki * 1024
    }

    /// Time of one run.
    pub(super) fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    pub(super) fn check(&self) -> Result<()> {
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return Err(usage(format!("--seconds {}: give more than 0 and at most 3600", self.seconds)));
        }
        if self.runs == 0 || self.batch == 0 || self.batch > BLOCK {
            return Err(usage(format!(
                "--runs and --batch: give at least 1, and at most {BLOCK} keys per batch"
            )));
        }
        if self.bursts.iter().any(|&size| size == 0 || size > BLOCK) {
            return Err(usage(format!("--bursts: give 1 to {BLOCK} keys")));
        }
        if self.threads == 0 || self.threads > 1024 {
            return Err(usage(format!("--threads {}: give 1 to 1024", self.threads)));
        }
        if self.coalesce_ms == 0 || self.coalesce_ms > 10_000 {
            return Err(usage(format!("--coalesce-ms {}: give 1 to 10000", self.coalesce_ms)));
        }
        if self.lookups_ki == 0 || !self.lookups_ki.is_multiple_of(BLOCK / 1024) || self.lookups_ki > 1 << 20
        {
            return Err(usage(format!(
                "--lookups-ki {}: give a multiple of 4, at most 1048576",
                self.lookups_ki
            )));
        }
        check_plot(self.plot.as_deref())?;
        [&self.updates, &self.updates_like, &self.keys]
            .into_iter()
            .flatten()
            .try_for_each(|file| check_input(file))
    }
}

pub(super) fn run(args: &Lpm) -> Result<bool> {
    args.check()?;
    let table = args.table.load()?;
    let chosen = args.structures.choose(&table)?;
    crate::fib::say_what_is_left_out(&args.table, &table, &chosen);
    let mut report = Report::new(args.json);
    let mut right = family(args, &table, &table.v4, &chosen.v4, &mut report)?;
    right &= family(args, &table, &table.v6, &chosen.v6, &mut report)?;
    if let Some(file) = &args.plot {
        report.plot(file, &args.table.name())?;
    }
    Ok(right)
}

/// A structure under test.
struct Subject<A: Family> {
    algorithm: Algorithm,
    fib: Arc<dyn Fib<A>>,
    name: String,
    build_ms: Vec<f64>,
    /// M lookups/s: by case, by run.
    rates: Vec<Vec<f64>>,
    region: Region,
    loads: Vec<(Load, Vec<f64>)>,
}

/// A case made ready.
struct Ready<A> {
    case: Case,
    order: Order,
    /// The same for all structures, or each one's own.
    asked: Vec<Asked<A>>,
}

impl<A> Ready<A> {
    /// What the structure with this number is asked.
    fn asked(&self, subject: usize) -> &Asked<A> {
        &self.asked[if self.asked.len() == 1 { 0 } else { subject }]
    }
}

fn family<A: OfFamily>(
    args: &Lpm,
    table: &LoadedTable,
    rib: &Rib<A>,
    algorithms: &[Algorithm],
    report: &mut Report,
) -> Result<bool> {
    if algorithms.is_empty() {
        return Ok(true);
    }
    let oracle = Oracle::new(&routes(rib));
    let mut cases = ready(args, rib, &oracle)?;
    let mut subjects = Vec::new();
    for &algorithm in algorithms {
        match build(args, rib, algorithm) {
            Ok(subject) => subjects.push(subject),
            // Asked for all, one that cannot hold the table is left out, aloud.
            Err(error) if args.structures.any() => {
                eprintln!("tidemill: left out {algorithm}: {error:#}");
            }
            Err(error) => return Err(error),
        }
    }
    if args.cases.contains(&Case::Worst) {
        cases.push(own_worst(args, rib, &oracle, &subjects));
    }
    let mut right = measure(args, &cases, &mut subjects);
    let params = |more: &[(&str, serde_json::Value)]| {
        let mut params = Params::new();
        params.insert("family".into(), A::FAMILY.into());
        params.insert("table".into(), args.table.name().into());
        params.insert("prefixes".into(), rib.len().into());
        params.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        params
    };
    for (at, subject) in subjects.iter().enumerate() {
        let Subject { name, region, .. } = subject;
        let line = |case: &str, metric, values: &[f64], params| {
            Measurement::of("lpm", name, case, metric, values, params)
        };
        for (ready, rates) in cases.iter().zip(&subject.rates) {
            let batch = match ready.order {
                Order::Independent { batch } => batch,
                Order::Dependent => 1,
            };
            let Asked { keys, expected } = ready.asked(at);
            let params = params(&[
                ("lookups", keys.len().into()),
                ("batch", batch.into()),
                ("seed", args.seed.into()),
                ("seconds", args.seconds.into()),
            ]);
            let measured = line(ready.case.name(), "mlps", rates, params);
            report.line(Measurement { checksum: Some(expected.clone()), ..measured })?;
        }
        let bytes = subject.fib.bytes() as f64;
        report.line(line("build", "build_ms", &subject.build_ms, params(&[])))?;
        report.line(line("build", "bytes", &[bytes], params(&[])))?;
        report.line(line("build", "bytes_per_prefix", &[bytes / rib.len().max(1) as f64], params(&[])))?;
        for (load, rates) in &subject.loads {
            let params = params(&[("of", name.as_str().into()), ("bytes", region.bytes().into())]);
            report.line(Measurement::of("lpm", "bound", load.case(), "mlps", rates, params))?;
        }
    }
    for (at, ready) in cases.iter().enumerate() {
        for (i, of) in subjects.iter().enumerate() {
            for to in &subjects[i + 1..] {
                report.ratio(
                    "lpm",
                    ready.case.name(),
                    (&of.name, &of.rates[at]),
                    (&to.name, &to.rates[at]),
                )?;
            }
        }
    }
    for ready in cases.iter().filter(|ready| ready.order != Order::Dependent) {
        for &size in &args.bursts {
            let all = subjects.iter().enumerate();
            let asked: Vec<(&dyn Fib<A>, &Asked<A>)> =
                all.map(|(at, subject)| (subject.fib.as_ref(), ready.asked(at))).collect();
            let (times, sound) = bursts::measure(&asked, size, args.runs);
            right &= sound;
            for (subject, times) in subjects.iter().zip(times) {
                for ((_, metric), values) in bursts::PERCENTILES.iter().zip(&times) {
                    let params = params(&[("burst", size.into()), ("seed", args.seed.into())]);
                    let case = ready.case.name();
                    report.line(Measurement::of("lpm", &subject.name, case, metric, values, params))?;
                }
            }
        }
    }
    if args.threads > 1 {
        for Growth { name, case, of, values, .. } in grow(args, &cases, &subjects) {
            let params = params(&[("threads", args.threads.into()), ("of", of.into())]);
            report.line(Measurement::of("lpm", name, case, "scaling", &values, params))?;
        }
    }
    let mut updated = true;
    if !args.no_updates {
        let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (changes, source) = match (&args.updates, &args.updates_like) {
            (Some(file), _) => {
                (crate::fib::read_changes::<A>(file, &table.labels, &args.table.load)?, name(file))
            }
            (None, Some(file)) => (updates_like(args, table, rib, file)?, format!("like {}", name(file))),
            (None, None) => (updates::flaps(rib, args.seed), "flaps".to_owned()),
        };
        // Those of a file as they come; else routes that go and come back one after the other.
        let made = args.updates.is_none() && args.updates_like.is_none();
        let alternating = made.then(|| updates::alternating(rib, args.seed));
        let probed = alternating.as_deref().unwrap_or(&changes);
        for subject in &subjects {
            let plan = updates::Plan {
                rib,
                algorithm: subject.algorithm,
                changes: &changes,
                runs: args.runs,
                slice: args.slice(),
                window: Duration::from_millis(args.coalesce_ms),
            };
            updated &= plan.report(probed, &mut |case, metric, values, more| {
                let mut params = params(&[("updates", source.as_str().into())]);
                params.extend(more);
                report.line(Measurement::of("lpm", &subject.name, case, metric, values, params))
            })?;
        }
    }
    report.tables(A::FAMILY);
    Ok(right && updated)
}

/// The order of a file's changes, of the family that it has, on routes of the table.
fn updates_like<A: OfFamily>(
    args: &Lpm,
    table: &LoadedTable,
    rib: &Rib<A>,
    file: &Path,
) -> Result<Vec<Change<A>>> {
    let (labels, load) = (&table.labels, &args.table.load);
    let four = crate::fib::read_changes::<u32>(file, labels, load)?;
    if !four.is_empty() {
        return Ok(updates::like(rib, &four));
    }
    Ok(updates::like(rib, &crate::fib::read_changes::<u128>(file, labels, load)?))
}

/// Keys and right checksums of every case.
fn ready<A: Family>(args: &Lpm, rib: &Rib<A>, oracle: &Oracle<A>) -> Result<Vec<Ready<A>>> {
    let count = args.lookups();
    let random = on_huge_pages(match &args.keys {
        Some(file) => runner::read_keys(file)?,
        None => keys(rib, Pattern::Random, count, args.seed),
    });
    let mut cases: Vec<Case> = Vec::new();
    args.cases.iter().for_each(|&case| {
        // That one's keys come from the structures.
        if case != Case::Worst && !cases.contains(&case) {
            cases.push(case)
        }
    });
    let plan: Vec<_> =
        cases.into_iter().map(|case| (case, case.keys(rib, &random, args.batch, args.seed))).collect();
    // The oracle takes a fraction of a second per case: the cases share the cores.
    std::thread::scope(|scope| {
        let threads: Vec<_> = (plan.into_iter())
            .map(|(case, (order, keys))| {
                scope.spawn(move || Ready { case, order, asked: vec![Asked::new(oracle, keys, order)] })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.collect::<Result<_, _>>().map_err(|_| anyhow::anyhow!("the oracle's thread failed"))
    })
}

/// What is worst for each structure.
fn own_worst<A: Family>(args: &Lpm, rib: &Rib<A>, oracle: &Oracle<A>, subjects: &[Subject<A>]) -> Ready<A> {
    let order = Order::Independent { batch: args.batch };
    let asked = |subject: &Subject<A>| {
        let keys = worst(rib, subject.fib.as_ref(), args.lookups(), args.seed);
        Asked::new(oracle, on_huge_pages(keys), order)
    };
    Ready { case: Case::Worst, order, asked: subjects.iter().map(asked).collect() }
}

fn build<A: Family>(args: &Lpm, rib: &Rib<A>, algorithm: Algorithm) -> Result<Subject<A>> {
    let mut build_ms = Vec::new();
    let fib = loop {
        let start = Instant::now();
        let writer = algorithm.writer(rib, &Domain::new()).with_context(|| algorithm.to_string())?;
        build_ms.push(start.elapsed().as_secs_f64() * 1e3);
        if build_ms.len() >= args.runs {
            break writer.fib();
        }
    };
    let region = Region::new(fib.bytes(), args.lookups(), args.seed)?;
    let loads = Load::all().into_iter().map(|load| (load, Vec::new())).collect();
    Ok(Subject { algorithm, name: fib.name(), fib, build_ms, rates: Vec::new(), region, loads })
}

/// All runs, in turn; false if a checksum was wrong.
fn measure<A: Family>(args: &Lpm, cases: &[Ready<A>], subjects: &mut [Subject<A>]) -> bool {
    let steps = args.runs * subjects.len() * (cases.len() + Load::all().len());
    let progress = Progress::new(format!("bench lpm, IPv{}", A::FAMILY), steps as u64);
    let slice = args.slice();
    let mut right = true;
    subjects.iter_mut().for_each(|subject| subject.rates = vec![Vec::new(); cases.len()]);
    for run in 0..args.runs {
        for (at, ready) in cases.iter().enumerate() {
            // Who goes first changes from run to run.
            for i in 0..subjects.len() {
                let turn = (i + run) % subjects.len();
                let subject = &mut subjects[turn];
                progress.message(format!("{} {}", subject.name, ready.case.name()));
                let Subject { fib, name, rates, .. } = subject;
                let Asked { keys, expected } = ready.asked(turn);
                let rate = sustained(slice, keys.len(), || {
                    let Pass { time, checksum } = timed_pass(fib.as_ref(), keys, ready.order);
                    if checksum != *expected {
                        if right {
                            let case = ready.case.name();
                            eprintln!(
                                "tidemill: WRONG: {name} {case}: checksum {checksum}, the oracle's is {expected}: run `fib verify`"
                            );
                        }
                        right = false;
                    }
                    time
                });
                rates[at].push(rate);
                progress.add(1);
            }
        }
        for subject in subjects.iter_mut() {
            progress.message(format!("bound of {}", subject.name));
            let Subject { region, loads, .. } = subject;
            for (load, rates) in loads {
                rates.push(sustained(slice, region.loads(), || region.timed_pass(*load)));
                progress.add(1);
            }
        }
    }
    right
}

/// How a structure's rate, or that of the bound `of` its size, grows with threads.
struct Growth<'a, A: Family> {
    name: &'a str,
    case: &'a str,
    of: &'a str,
    work: scaling::Work<'a, A>,
    /// By run.
    values: Vec<f64>,
}

/// Structures and bounds in turn.
fn grow<'a, A: Family>(args: &Lpm, cases: &'a [Ready<A>], subjects: &'a [Subject<A>]) -> Vec<Growth<'a, A>> {
    let loads: Vec<Load> = Load::all().into_iter().filter(|load| *load != Load::Dependent).collect();
    let mut all = Vec::new();
    for (at, Subject { name, fib, region, .. }) in subjects.iter().enumerate() {
        for ready in cases {
            if let Order::Independent { batch } = ready.order {
                let work = scaling::Work::Lookups { fib: fib.as_ref(), keys: &ready.asked(at).keys, batch };
                all.push(Growth { name, case: ready.case.name(), of: "", work, values: Vec::new() });
            }
        }
        for &load in &loads {
            let work = scaling::Work::Loads { region, load };
            all.push(Growth { name: "bound", case: load.case(), of: name, work, values: Vec::new() });
        }
    }
    let progress = Progress::new(format!("{} threads", args.threads), (args.runs * all.len()) as u64);
    for _ in 0..args.runs {
        for Growth { work, values, .. } in &mut all {
            values.push(work.growth(args.threads, args.slice()));
            progress.add(1);
        }
    }
    all
}
