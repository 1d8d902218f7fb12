//! `bench classify`: the switch and its structures.

mod flood;
mod layers;
mod masks;
mod ports;
mod runner;
mod sets;
mod structures;
mod switch;
mod traffic;

use super::drawing::check_plot;
use super::report::{Report, figure, pivot};
use crate::json::{Measurement, Ratio, significant};
use crate::progress::Progress;
use crate::usage;
use anyhow::Result;
use clap::{Args, ValueEnum};
use ports::Phase;
use std::path::PathBuf;
use std::time::Duration;
use structures::Kind;
use switch::Plan;
use tidemill_classify::cache::Settings;
use tidemill_lookup::cycles;
use tidemill_switch::SwitchSection;
use traffic::{Flood, TRAFFIC, Traffic};

/// Arguments of `bench classify`.
#[derive(Args)]
#[command(after_help = "Cases, all by default:\n  \
    traffic   the five traffic cases of HALO's Figure 3 through the whole switch between two ports in memory, on one core: rates, and the time\n            \
    of a packet by layer (io, parse, exact, megaflow, rules, actions). few: 10,000 flows, 1 rule; many-1: 100,000 flows, 1 rule;\n            \
    many-10: a million flows, 10 rules; rules-100k and rules-1M: 20 rules\n  \
    caches    the keys of these five, by the caches alone: the switch's (cache), mask by mask (cache-plain), HALO's baseline (cuckoo)
  \
    sets      lookups of each structure on ClassBench sets and their traces (--rules, --data; without them on made-up sets)\n  \
    updates   changes of rules a second on these sets, published one by one (kups) and 64 at once (kups_64), while a reader on\n            \
    another thread looks up bursts of 256\n  \
    flood     packets of which each makes a megaflow: how much slower, what memory, how soon over; beside the traffic of few and rules-100k (20 masks),\n            \
    or of --traffic\n  \
    masks     packets of which each may want another of hundreds of masks, 80 rules: how much slower than the traffic of few by these rules, and than the\n            \
    rules without caches; then that traffic where its mask is new: what the caches miss in the first second after the flood, and in the next\n\n\
    Lookups of rule sets are held to the oracle's one by one; of traffic a sample of its flows, and every packet by the counters of its rule;\n  \
    after changes a sample. A wrong answer ends the benchmark.\n\n\
    Figures:\n  halo-3    cycles of a packet by layer, with the paper's numbers\n\n\
    Examples:\n  tidemill bench classify\n  tidemill bench classify --figure halo-3 --plot halo-3.svg\n  \
    tidemill bench classify --case traffic --traffic rules-1M --exact 0 --json\n  \
    tidemill bench classify --case sets,updates --rules acl1.rules.zst --trace acl1.trace.zst --json")]
pub(crate) struct ClassifyBench {
    /// What is asked for
    #[arg(long = "case", value_enum, value_name = "NAME", value_delimiter = ',', default_values = ["traffic", "caches", "sets", "updates", "flood", "masks"])]
    cases: Vec<Case>,
    /// A figure of the paper, instead of the cases
    #[arg(long, value_enum, value_name = "NAME", conflicts_with = "cases")]
    figure: Option<Figure>,
    /// Some of the five traffic cases
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_values = TRAFFIC.map(|traffic| traffic.name))]
    traffic: Vec<String>,
    /// 4 or 6
    #[arg(long, value_name = "FAMILY", value_delimiter = ',', default_values_t = [4_u8])]
    family: Vec<u8>,
    /// Rule set in ClassBench's format; plain, gz, xz or zst
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    rules: Option<PathBuf>,
    /// Its header trace [default: headers made from the rules]
    #[arg(long, value_name = "FILE", requires = "rules")]
    trace: Option<PathBuf>,
    /// Every NAME.rules[.zst|.gz|.xz] of a folder and those in it, with NAME.trace where there is one
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Only these structures [default: all]
    #[arg(long = "structure", value_enum, value_name = "NAME", value_delimiter = ',')]
    structures: Vec<Kind>,
    /// Exact matches that a cache has room for; 0 for none
    #[arg(long, value_name = "N", default_value_t = Settings::default().exact)]
    exact: usize,
    /// Signatures that a cache has room for; 0 for none
    #[arg(long, value_name = "N", default_value_t = Settings::default().signatures)]
    signatures: usize,
    /// Seconds of a run of traffic; a phase of a flood has twice, changes of rules half of it; what comes after one of masks has two seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Runs; figures are medians over them [default: 5, with --quick 3]
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Fewer runs, and a sixteenth of the keys for the caches alone
    #[arg(long)]
    quick: bool,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Draw the figure, or the layers of the traffic cases
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    runner: runner::RunnerArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Case {
    /// The whole switch
    Traffic,
    /// The caches alone
    Caches,
    /// Structures on rule sets
    Sets,
    /// Changes of rules
    Updates,
    /// A megaflow for each packet
    Flood,
    /// A mask for each packet
    Masks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// A packet's cycles by layer
    #[value(name = "halo-3")]
    Halo3,
}

/// What was found out about the machine.
struct Machine {
    /// Of the time stamp counter.
    ticks_per_ns: f64,
}

/// How long the time stamp counter is compared with the clock.
const CALIBRATION: Duration = Duration::from_millis(20);

impl ClassifyBench {
    fn runs(&self) -> usize {
        self.runs.unwrap_or(if self.quick { 3 } else { 5 })
    }

    fn settings(&self) -> Settings {
        Settings { exact: self.exact, signatures: self.signatures, ..Settings::default() }
    }

    fn section(&self) -> SwitchSection {
        SwitchSection { exact: self.exact, signatures: self.signatures, ..SwitchSection::default() }
    }

    /// Checks arguments; the traffic cases that were asked for.
    fn check(&self) -> Result<Vec<Traffic>> {
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) || self.runs() == 0 {
            return Err(usage("--seconds, --runs: give more than 0, and at most 3600 seconds"));
        }
        if let Some(wrong) = self.family.iter().find(|family| ![4, 6].contains(*family)) {
            return Err(usage(format!("--family {wrong}: give 4 or 6")));
        }
        for (name, most) in [("--exact", self.exact), ("--signatures", self.signatures)] {
            if most > 1 << 24 {
                return Err(usage(format!("{name} {most}: give at most 2^24")));
            }
        }
        check_plot(self.plot.as_deref())?;
        let find = |name: &String| {
            let names = TRAFFIC.map(|traffic| traffic.name).join(", ");
            let found = TRAFFIC.into_iter().find(|traffic| traffic.name == name);
            found.ok_or_else(|| usage(format!("--traffic {name}: give some of {names}")))
        };
        let traffic: Vec<Traffic> = self.traffic.iter().map(find).collect::<Result<_>>()?;
        if self.plot.is_some() && !self.asks(Case::Traffic) {
            return Err(usage("--plot: only traffic is drawn: give --case traffic or --figure halo-3"));
        }
        Ok(traffic)
    }

    fn asks(&self, case: Case) -> bool {
        match self.figure {
            Some(Figure::Halo3) => case == Case::Traffic,
            None => self.cases.contains(&case),
        }
    }

    fn kinds(&self) -> Vec<Kind> {
        if self.structures.is_empty() { Kind::ALL.to_vec() } else { self.structures.clone() }
    }
}

pub(super) fn run(args: &ClassifyBench) -> Result<bool> {
    let traffic = args.check()?;
    if args.runner.runner {
        return runner::run(args);
    }
    let machine = Machine { ticks_per_ns: significant(cycles::per_ns(CALIBRATION)) };
    let mut report = Report::new(args.json);
    if args.asks(Case::Traffic) {
        splits(args, &machine, &traffic, &mut report)?;
    }
    if args.asks(Case::Caches) {
        caches(args, &traffic, &mut report)?;
    }
    if args.asks(Case::Sets) || args.asks(Case::Updates) {
        sets(args, &mut report)?;
    }
    if args.asks(Case::Flood) {
        // All five are those that nobody has asked for.
        let asked = traffic.len() < TRAFFIC.len();
        let usual = |traffic: &Traffic| asked || flood::USUAL.contains(&traffic.name);
        let traffic: Vec<Traffic> = traffic.iter().copied().filter(usual).collect();
        let steps = traffic.len() * flood::RUNS * args.runs();
        let progress = Progress::new("bench classify, flood", steps as u64);
        flood::measure(args, &traffic, &progress, &mut report)?;
    }
    if args.asks(Case::Masks) {
        let progress = Progress::new("bench classify, masks", (masks::RUNS * args.runs()) as u64);
        masks::measure(args, &progress, &mut report)?;
    }
    Ok(true)
}

fn splits(args: &ClassifyBench, machine: &Machine, traffic: &[Traffic], report: &mut Report) -> Result<()> {
    let steps = traffic.len() * args.family.len() * args.runs() * 3;
    let progress = Progress::new("bench classify, traffic", steps as u64);
    let seconds = Duration::from_secs_f64(args.seconds);
    let mut splits = Vec::new();
    for &family in &args.family {
        for &traffic in traffic {
            let plan = Plan {
                traffic,
                v6: family == 6,
                // The caches fill before the clock starts.
                phases: vec![
                    Phase { duration: seconds / 4, flood: 0, timed: false },
                    Phase { duration: seconds, flood: 0, timed: true },
                ],
                slice: seconds,
                flood: Flood::None,
                section: args.section(),
                seed: args.seed,
            };
            splits.push(layers::measure(args, machine, &plan, &progress, report)?);
        }
    }
    drop(progress);
    if args.figure.is_some() {
        return layers::drawing(&splits).show(args.json, args.plot.as_deref());
    }
    if !args.json {
        layers::print(&splits);
        show_ratios(report.ratios());
    }
    layers::drawing(&splits).plot(args.plot.as_deref())
}

/// What the caches alone make of the traffic cases.
fn caches(args: &ClassifyBench, traffic: &[Traffic], report: &mut Report) -> Result<()> {
    let kinds = [Kind::Cache, Kind::CachePlain, Kind::Cuckoo];
    let progress =
        Progress::new("bench classify, caches", (traffic.len() * args.runs() * kinds.len()) as u64);
    let (lines, ratios) = (report.lines().len(), report.ratios().len());
    for &traffic in traffic {
        let set = sets::of_traffic(args, traffic)?;
        sets::lookups(args, &set, &kinds, &progress, report)?;
    }
    if !args.json {
        println!("\nThe caches alone: M lookups/s");
        let lines: Vec<&Measurement> =
            report.lines()[lines..].iter().filter(|line| line.metric == "mlps").collect();
        pivot(&lines, |line| line.subject.clone(), |line| line.case.clone(), |line| figure(line.value));
        show_ratios(&report.ratios()[ratios..]);
    }
    Ok(())
}

fn show_ratios(ratios: &[Ratio]) {
    for Ratio { case, of, to, value, low, high, pairs, .. } in ratios {
        println!("  {case}: {of} to {to}: {value:.2} ({low:.2} to {high:.2}, {pairs} pairs)");
    }
}

fn sets(args: &ClassifyBench, report: &mut Report) -> Result<()> {
    let (sets, kinds) = (sets::sets(args)?, args.kinds());
    let lookups = if args.asks(Case::Sets) { kinds.len() } else { 0 };
    let updates = if args.asks(Case::Updates) { 2 * sets::CHANGED.len() } else { 0 };
    let steps = sets.len() * args.runs() * (lookups + updates);
    let progress = Progress::new("bench classify, sets", steps as u64);
    for set in &sets {
        let (before, ratios) = (report.lines().len(), report.ratios().len());
        if args.asks(Case::Sets) {
            sets::lookups(args, set, &kinds, &progress, report)?;
        }
        if args.asks(Case::Updates) {
            sets::updates(args, set, &progress, report)?;
        }
        if !args.json {
            println!(
                "\n{}: M lookups/s (mlps), thousands of changes/s one by one and 64 at once (kups)",
                set.name
            );
            let lines: Vec<&Measurement> = report.lines()[before..].iter().collect();
            let cell = |line: &Measurement| figure(line.value);
            pivot(&lines, |line| line.subject.clone(), |line| line.metric.to_owned(), cell);
            show_ratios(&report.ratios()[ratios..]);
        }
    }
    Ok(())
}
