//! `bench hide`: what hiding memory latency brings. The same lookups of a hash table, or of a trie, by a plain loop, in groups, as
//! coroutines, by the structure's own call for many keys.
//!
//! Every timed answer is stored and checksummed; a checksum that is not what was inserted fails the benchmark, so all drivers
//! agree. Their passes take turns, so that a drift of the machine favours nobody and ratios hold.

mod drivers;
mod tries;
mod work;

use super::drawing::check_plot;
use super::flow::{check_free, parse_entries, size_name};
use super::pass::BLOCK;
use super::report::{Report, figure, pivot};
use crate::json::{Measurement, Params};
use crate::progress::Progress;
use crate::usage;
use anyhow::Result;
use clap::{Args, ValueEnum};
use drivers::{Driver, Pass, Subject};
use std::path::PathBuf;
use tidemill_flow::chaining::Chaining;
use tidemill_flow::flowtable::FlowTable;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::table::HashTable;
use tidemill_lookup::drive::MAX_WIDTH;
use work::{Asked, Filled};

/// Arguments of `bench hide`.
#[derive(Args)]
#[command(after_help = "Drivers (Fu 2020, 2.5, 4.5.3, 4.5.4):\n  \
    plain      the structure's own lookup in a loop: no prefetch, no suspension; the CPU overlaps what its window reaches\n  \
    group      groups in lock step: all of a group load, then all compare, and so on\n  \
    coroutine  side by side; where one has ended, the next one starts\n  \
    adaptive   as many coroutines as turns out best\n  \
    batch      the structure's own call for many keys: made by hand, or one of these\n\
    Cases:\n  \
    hit    random keys that are in the table\n  \
    miss   random keys that are not\n  \
    early  half of the keys leave early (they need the fewest loads), half take long (the most)\n\
    With --routes, tries on a routing table: keys uniform over unicast space (rnd), inside random prefixes (prefix).\n\n\
    Examples:\n  tidemill bench hide\n  \
    tidemill bench hide --table flowtable,chaining --entries 2^20 --case early --batch 256\n  \
    tidemill bench hide --routes rib.zst --trie patricia --batch 256\n  \
    tidemill bench hide --entries 2^20,2^25 --case hit --json --plot hide.svg")]
pub(crate) struct Hide {
    /// The tables: chaining, keystore-cuckoo, flowtable
    #[arg(long = "table", value_name = "NAME", value_delimiter = ',', default_values = ["chaining"])]
    tables: Vec<String>,
    /// Slots of each table: a number, 2^N, or with k or M behind it
    #[arg(long, value_name = "N", value_delimiter = ',', default_values = ["2^15", "2^20", "2^25"], value_parser = parse_entries)]
    entries: Vec<usize>,
    /// Keys over slots
    #[arg(long, value_name = "LOAD", default_value_t = 0.9)]
    load: f64,
    /// Length of the keys: 8, 16, 36 or 40
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [16])]
    key_bytes: Vec<usize>,
    /// Keys per call
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [32, 64, 128, 256])]
    batch: Vec<usize>,
    /// What is asked for
    #[arg(long = "case", value_enum, value_delimiter = ',', default_values = ["hit", "miss", "early"])]
    cases: Vec<Case>,
    /// Tries on the routes of this file instead of hash tables: MRT, text or CSV; plain, gz, xz or zst
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tables", "entries", "load", "key_bytes", "cases"])]
    routes: Option<PathBuf>,
    /// With --routes, the structures: binary-trie, patricia
    #[arg(long = "trie", value_name = "NAME", value_delimiter = ',', default_values = tries::NAMES, requires = "routes")]
    tries: Vec<String>,
    /// Lookups side by side, in groups and as coroutines
    #[arg(long, value_name = "N", default_value_t = 32)]
    width: usize,
    /// Lookups per pass, in thousands of 1024
    #[arg(long, value_name = "N", default_value_t = 2048)]
    lookups_ki: usize,
    /// Passes of each driver; figures are medians over them
    #[arg(long, value_name = "N", default_value_t = 7)]
    runs: usize,
    /// Seed of the keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Draw the rates
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// Which keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Case {
    /// In the table
    Hit,
    /// Not in the table
    Miss,
    /// Half of them leave early
    Early,
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::Hit => "hit",
            Case::Miss => "miss",
            Case::Early => "early",
        }
    }
}

/// One table of one size with keys of one length: measures all cases; false if an answer was wrong.
type Measure = fn(&Hide, Shape, &Progress, &mut Report) -> Result<bool>;

/// A kind of table.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    measure: Measure,
    /// Its size with so many slots.
    bytes: fn(usize) -> Result<usize>,
}

/// The tables for keys of `W` words.
fn tables<const W: usize>() -> [Kind; 3] {
    fn kind<const W: usize, T: HashTable<W>>() -> Kind {
        Kind { name: T::NAME, measure: measure::<W, T>, bytes: work::bytes::<W, T> }
    }
    [kind::<W, Chaining<W>>(), kind::<W, Keystore<W>>(), kind::<W, FlowTable<W>>()]
}

/// What a table is made for.
#[derive(Clone, Copy)]
struct Shape {
    entries: usize,
    key_bytes: usize,
}

/// Keys in a table of so many slots at this load.
fn keys(entries: usize, load: f64) -> u64 {
    (entries as f64 * load) as u64
}

impl Hide {
    /// Options that cannot be are named.
    fn check(&self) -> Result<()> {
        if !(self.load > 0.0 && self.load <= 1.0) {
            return Err(usage(format!("--load {}: give more than 0 and at most 1", self.load)));
        }
        if let Some(batch) = self.batch.iter().find(|&&batch| batch == 0 || batch > BLOCK) {
            return Err(usage(format!("--batch {batch}: give 1 to {BLOCK}")));
        }
        if self.width == 0 || self.width > MAX_WIDTH {
            return Err(usage(format!("--width {}: give 1 to {MAX_WIDTH}", self.width)));
        }
        // `early` chooses from four times as many, and keeps 16 bytes of each.
        if self.runs == 0 || self.lookups_ki == 0 || self.lookups_ki > 1 << 16 {
            return Err(usage("--runs and --lookups-ki: give at least 1, and at most 65536 Ki lookups"));
        }
        if let Some(entries) = self.entries.iter().find(|&&entries| keys(entries, self.load) == 0) {
            return Err(usage(format!("--load {}: not one key in {entries} slots: give more", self.load)));
        }
        check_plot(self.plot.as_deref())
    }

    /// What is to be measured of hash tables, in order.
    fn plan(&self) -> Result<Vec<(Shape, Measure)>> {
        let mut plan = Vec::new();
        for &key_bytes in &self.key_bytes {
            let tables = match key_bytes {
                8 => tables::<1>(),
                16 => tables::<2>(),
                36 | 40 => tables::<5>(),
                _ => return Err(usage(format!("--key-bytes {key_bytes}: give 8, 16, 36 or 40"))),
            };
            for name in &self.tables {
                let Some(kind) = tables.iter().find(|kind| kind.name == name) else {
                    let names: Vec<&str> = tables.iter().map(|kind| kind.name).collect();
                    return Err(usage(format!("--table {name}: use one of {}", names.join(", "))));
                };
                for &entries in &self.entries {
                    // One table at a time has to fit.
                    let bytes = (kind.bytes)(entries)?.saturating_add(Asked::bytes(self.lookups()));
                    check_free(entries, kind.name, bytes)?;
                    plan.push((Shape { entries, key_bytes }, kind.measure));
                }
            }
        }
        Ok(plan)
    }

    fn lookups(&self) -> usize {
        self.lookups_ki * 1024
    }
}

pub(super) fn run(args: &Hide) -> Result<bool> {
    args.check()?;
    let mut report = Report::new(args.json);
    let (right, title) = match &args.routes {
        Some(file) => (tries::measure(args, file, &mut report)?, "Lookups of a trie: hiding memory latency"),
        None => (of_tables(args, &mut report)?, "Lookups of a hash table: hiding memory latency"),
    };
    if !args.json {
        tables_for_people(&report);
    }
    if let Some(file) = &args.plot {
        report.plot(file, title)?;
    }
    Ok(right)
}

fn of_tables(args: &Hide, report: &mut Report) -> Result<bool> {
    let plan = args.plan()?;
    let passes = args.cases.len() * args.batch.len() * args.runs * Driver::ALL.len();
    let progress = Progress::new("bench hide", (plan.len() * passes) as u64);
    let mut right = true;
    for (shape, measure) in plan {
        right &= measure(args, shape, &progress, report)?;
    }
    Ok(right)
}

fn measure<const W: usize, T: HashTable<W>>(
    args: &Hide,
    shape: Shape,
    progress: &Progress,
    report: &mut Report,
) -> Result<bool> {
    let size = size_name(shape.entries);
    progress.message(format!("{} {size}: filling", T::NAME));
    let filled = Filled::<W, T>::new(shape, args.load, args.seed)?;
    let mut params = Params::new();
    params.insert("load".into(), args.load.into());
    params.insert("bytes".into(), filled.table.bytes().into());
    let mut right = true;
    for &case in &args.cases {
        progress.message(format!("{} {size} {}: choosing keys", T::NAME, case.name()));
        let asked = Asked::new(&filled, case, args.lookups(), args.seed);
        for &batch in &args.batch {
            let case = format!("{size}/{}B/batch-{batch}/{}", shape.key_bytes, case.name());
            let about = About { name: T::NAME, case, batch, params: &params };
            right &= passes(args, &filled, &asked, &about, progress, report)?;
        }
    }
    Ok(right)
}

/// What is measured.
struct About<'a> {
    name: &'a str,
    case: String,
    /// Keys per call.
    batch: usize,
    /// What records say of the structure.
    params: &'a Params,
}

/// All drivers on the same keys; false if an answer was wrong.
fn passes<S: Subject>(
    args: &Hide,
    subject: &S,
    asked: &Asked,
    about: &About<'_>,
    progress: &Progress,
    report: &mut Report,
) -> Result<bool> {
    let About { name: structure, case, batch, params } = about;
    progress.message(format!("{structure} {case}"));
    let mut right = true;
    let mut pass = Pass::new(subject, asked, *batch, args.width);
    let mut rates = Driver::ALL.map(|_| Vec::new());
    for run in 0..args.runs {
        // Who goes first changes from run to run.
        for i in 0..rates.len() {
            let at = (i + run) % rates.len();
            let (rate, checksum) = pass.run(Driver::ALL[at]);
            rates[at].push(rate);
            if checksum != asked.expected && std::mem::replace(&mut right, false) {
                let (driver, wanted) = (Driver::ALL[at].name(), &asked.expected);
                eprintln!(
                    "tidemill: WRONG: {structure}/{driver} {case}: checksum {checksum}, that of the right answers is {wanted}"
                );
            }
            progress.add(1);
        }
    }
    let subject = |driver: Driver| format!("{structure}/{}", driver.name());
    for (driver, rates) in Driver::ALL.into_iter().zip(&rates) {
        let mut params = Params::clone(params);
        let width = match driver {
            Driver::Plain => Some(1),
            Driver::Group | Driver::Coroutine => Some(args.width.min(*batch)),
            Driver::Adaptive => Some(pass.adapted()),
            // The structure's own business.
            Driver::Batch => None,
        };
        params.extend(width.map(|width| ("width".into(), width.into())));
        params.insert("lookups".into(), args.lookups().into());
        params.insert("loads".into(), asked.loads.into());
        params.insert("seed".into(), args.seed.into());
        let line = Measurement::of("hide", &subject(driver), case, "mlps", rates, params);
        report.line(Measurement { checksum: Some(asked.expected.clone()), ..line })?;
    }
    let [plain, group, coroutine, adaptive, batched] = &rates;
    for (of, a, to, b) in [
        (Driver::Group, group, Driver::Plain, plain),
        (Driver::Coroutine, coroutine, Driver::Plain, plain),
        (Driver::Adaptive, adaptive, Driver::Plain, plain),
        (Driver::Coroutine, coroutine, Driver::Group, group),
        (Driver::Batch, batched, Driver::Plain, plain),
    ] {
        report.ratio("hide", case, (&subject(of), a), (&subject(to), b))?;
    }
    Ok(right)
}

/// Rates and ratios as tables.
fn tables_for_people(report: &Report) {
    println!("M lookups/s, median (least to greatest)");
    let lines: Vec<&Measurement> = report.lines().iter().collect();
    let range =
        |line: &Measurement| format!("{} ({} to {})", figure(line.value), figure(line.min), figure(line.max));
    pivot(&lines, |line| line.case.clone(), |line| line.subject.clone(), range);
    println!("\nratios, with 95 % intervals");
    for ratio in report.ratios() {
        println!(
            "  {:<28} {} to {}: {:.2} ({:.2} to {:.2}, {} pairs)",
            ratio.case, ratio.of, ratio.to, ratio.value, ratio.low, ratio.high, ratio.pairs
        );
    }
}
