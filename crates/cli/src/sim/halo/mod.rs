//! `tidemill sim halo`: HALO's near-cache accelerator (ISCA 2019), simulated with real tables. The machine, the programs and the figures are
//! `tidemill_sim`; here they are chosen and shown.
//!
//! Without `--figure` it runs single lookups: every option that takes a list multiplies the configurations, as does `--sweep`.

mod replay;
mod runs;

use super::study::{parse_count, threads};
use crate::bench::catalogue::{Named, pick};
use crate::bench::drawing::{self, Drawing, Panel, X, check_plot};
use crate::files;
use crate::progress::Progress;
use crate::usage;
use anyhow::Result;
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidemill_sim::machine::Config;
use tidemill_sim::machine::config::PRESETS;
use tidemill_sim::mix::{self, Mix};
use tidemill_sim::study::traffic::MOST_TUPLES;
use tidemill_sim::study::{FIGURES, Figure, Options, Place, Point, StudyError};

/// Bytes of a machine in TOML: more than a thousand times what --show-config prints.
const MOST_CONFIG: u64 = 1 << 20;

// Each mode takes some of the options; one that it would not look at is an error (`each_mode_takes_its_options` has all pairs). A pair that does not go together
// is named by one of the two. What an option requires clap forgets where that conflicts with something that is there, so both are said.
/// What goes with no figure.
const NOT_FIGURES: [&str; 11] = [
    "entries",
    "load",
    "sweep",
    "series",
    "serial",
    "speed",
    "log",
    "write_log",
    "captures",
    "tuples",
    "show_config",
];
/// What goes with no capture, besides figures.
const NOT_CAPTURES: [&str; 7] = ["entries", "load", "serial", "speed", "log", "write_log", "show_config"];

/// Arguments of `sim halo`.
#[derive(Args)]
#[command(
    group(ArgGroup::new("limited").args(["figure", "calibrate"])),
    after_help = "Examples:\n  tidemill sim halo --figure list\n  tidemill sim halo --figure halo-11 --plot halo-11.svg\n  \
    tidemill sim halo --entries 2^10,2^16,2^20 --series software,halo-nonblocking --json\n  \
    tidemill sim halo --sweep halo.scoreboard=1,2,5,10,20 --series halo-nonblocking\n  \
    tidemill sim halo --write-log dpdk-like.log --entries 2^16 && tidemill sim halo --log dpdk-like.log\n  \
    tidemill sim halo --capture uplink.pcap.zst --tuples 10 --json\n  \
    tidemill sim halo --config machine.toml --show-config\n  tidemill sim halo --machine zen-4 --calibrate"
)]
pub(crate) struct Halo {
    /// A figure to make; `list` prints the names and what they show
    #[arg(long, value_name = "NAME", conflicts_with_all = NOT_FIGURES)]
    figure: Option<String>,
    /// The machine: skylake-sp (HALO's), zen-4, zen-3
    #[arg(long, value_name = "NAME", value_parser = parse_machine, conflicts_with = "config")]
    machine: Option<Config>,
    /// A machine in TOML: `machine = "skylake-sp"`, and keys that differ, as --show-config prints them
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// Print the machine as TOML and where its numbers come from, and do nothing
    #[arg(long, conflicts_with_all = ["entries", "load", "sweep", "series", "serial", "speed", "log", "write_log", "calibrate", "mix", "lookups", "warm", "seed", "jobs", "json"])]
    show_config: bool,
    /// A key of the configuration and values for it; repeat it for several keys
    #[arg(long, value_name = "KEY=V1,V2", value_parser = parse_sweep)]
    sweep: Vec<Sweep>,
    /// Slots of the table
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2^16", value_parser = parse_count)]
    entries: Vec<usize>,
    /// How full it is, percent
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "90", value_parser = clap::value_parser!(u64).range(1..=95))]
    load: Vec<u64>,
    /// Who looks up: software, halo-blocking, halo-blocking-window, halo-nonblocking, tcam, sram-tcam, software-keystore, software-batch;
    /// `relative` is to the first of them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "software,halo-blocking,halo-nonblocking,tcam,sram-tcam", value_parser = runs::parse_series)]
    series: Vec<runs::Name>,
    /// Each lookup waits for the one before: latencies
    #[arg(long)]
    serial: bool,
    /// Also say how many lookups a second are simulated (of the wall's clock; the rest is the same in every run)
    #[arg(long)]
    speed: bool,
    /// An access log to run instead of a table; how it is written is said in crates/sim/src/log.rs
    #[arg(long, value_name = "FILE", conflicts_with_all = ["entries", "load", "seed"])]
    log: Option<PathBuf>,
    /// Write what lookups of one table touch as an access log, in addresses of the simulated memory, and do nothing else
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "config", "sweep", "series", "serial", "speed", "log", "mix", "warm", "jobs", "json"])]
    write_log: Option<PathBuf>,
    /// Replay the IP packets of a capture through a whole classifier, exact matches and tuples; repeat it for several. How rules are
    /// made up is said in crates/sim/src/study/traffic.rs
    #[arg(long = "capture", value_name = "FILE", conflicts_with_all = NOT_CAPTURES)]
    captures: Vec<PathBuf>,
    /// Tuples of that classifier
    #[arg(long, value_name = "N", requires = "captures", conflicts_with_all = NOT_CAPTURES, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=MOST_TUPLES as u64))]
    tuples: u64,
    /// Really look up on this machine, and show it beside the simulation of --machine
    #[arg(long, conflicts_with_all = ["figure", "entries", "load", "sweep", "series", "serial", "speed", "log", "write_log", "captures", "tuples", "mix", "jobs", "plot"])]
    calibrate: bool,
    /// Instructions of the paper's software: rte_hash (DPDK's, measured), table-1 (the paper's 210), keystore-cuckoo, flowtable (ours, measured)
    #[arg(long, value_name = "NAME", default_value = "rte_hash", value_parser = parse_mix)]
    mix: Mix,
    /// Lookups that count
    #[arg(long, value_name = "N", default_value = "20000", value_parser = parse_count)]
    lookups: usize,
    /// Lookups before them
    #[arg(long, value_name = "N", default_value = "10000", value_parser = parse_count)]
    warm: usize,
    /// halo-4, halo-9, halo-llc, halo-structures and --calibrate: no table larger than 2^N slots (halo-4: flows); sizes of other figures are given
    #[arg(long, value_name = "N", requires = "limited", conflicts_with_all = NOT_FIGURES, default_value_t = 24, value_parser = clap::value_parser!(u32).range(3..=26))]
    most: u32,
    /// Of keys and tables
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Also draw the figure
    #[arg(long, value_name = "FILE.svg", requires = "figure", conflicts_with_all = NOT_FIGURES)]
    plot: Option<PathBuf>,
}

/// A key of the configuration and values for it.
#[derive(Debug, Clone, PartialEq)]
struct Sweep {
    key: String,
    values: Vec<String>,
}

pub(super) fn run(args: &Halo) -> Result<bool> {
    files::end_on_signals()?;
    let options = args.options()?;
    if args.show_config {
        return runs::show_config(&options.config);
    }
    if let Some(name) = &args.figure {
        return figure(args, &options, name);
    }
    if args.calibrate {
        return runs::calibrate(args, &options);
    }
    if let Some(path) = &args.write_log {
        return runs::write_log(args, &options, path);
    }
    if !args.captures.is_empty() {
        return replay::run(args, &options);
    }
    runs::run(args, &options)
}

impl Halo {
    fn options(&self) -> Result<Options> {
        let config = match (&self.config, &self.machine) {
            (Some(path), _) => {
                let text =
                    files::text(path, MOST_CONFIG, "give a machine in TOML, as --show-config prints it")?;
                Config::from_toml(&text).map_err(|error| usage(format!("{}: {error}", path.display())))?
            }
            (None, Some(machine)) => machine.clone(),
            (None, None) => Config::skylake_sp(),
        };
        Ok(Options {
            config,
            mix: self.mix,
            lookups: self.lookups as u64,
            warm: self.warm as u64,
            most: self.most,
            seed: self.seed,
            jobs: threads(self.jobs),
        })
    }
}

/// A figure under its name.
struct Listed(Figure);

impl Named for Listed {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn title(&self) -> String {
        self.0.title.into()
    }
}

fn figure(args: &Halo, options: &Options, name: &str) -> Result<bool> {
    if name == "list" && args.plot.is_some() {
        return Err(usage("--plot: the list is not drawn: give the name of a figure"));
    }
    let all = FIGURES.map(Listed);
    let Some(Listed(figure)) = pick(all.iter(), name, args.json)? else { return Ok(true) };
    check_plot(args.plot.as_deref())?;
    let bar = Progress::new(figure.name, 100);
    let shown = AtomicUsize::new(0);
    let progress = |done: usize, of: usize| {
        let percent = 100 * done / of.max(1);
        let before = shown.fetch_max(percent, Ordering::Relaxed);
        bar.add(percent.saturating_sub(before) as u64);
    };
    let points = (figure.make)(options, &progress).map_err(|error| match error {
        StudyError::Machine { .. } => usage(format!("--figure {name}: {error}: give another machine")),
        other => other.into(),
    })?;
    drop(bar);
    if points.is_empty() {
        let most = options.most;
        return Err(usage(format!("--most {most}: --figure {name} has nothing so small: give more")));
    }
    // That one makes machines of its own.
    let cores = match options.config.cores {
        _ if figure.name == "halo-cores" => "16 to 64 cores".to_owned(),
        1 => "1 core".to_owned(),
        cores => format!("{cores} cores"),
    };
    let notes = vec![
        format!(
            "simulated: {}, {cores}; software: {} ({:.0} instructions for a hit in the first bucket); {} lookups after {}; seed {}",
            options.config.machine,
            options.mix.name,
            options.mix.instructions(1.0, 1.0),
            options.lookups,
            options.warm,
            options.seed
        ),
        "what differs from the paper, and why: bench/figures.md".into(),
    ];
    let drawing = Drawing {
        figure: figure.name,
        title: figure.title.to_owned(),
        table: None,
        panels: panels(figure, points),
        notes,
    };
    drawing.show(args.json, args.plot.as_deref())?;
    Ok(true)
}

/// Points by panel and series, in the order in which they come.
fn panels(figure: &Figure, points: Vec<Point>) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for Point { panel, series, x, y, paper } in points {
        let at = panels.iter().position(|known| known.y == panel).unwrap_or_else(|| {
            panels.push(Panel::new(figure.axis(panel), panel, Vec::new()));
            panels.len() - 1
        });
        let known = &mut panels[at].series;
        let at = known.iter().position(|other| other.name == series).unwrap_or_else(|| {
            known.push(drawing::Series { name: series, points: Vec::new() });
            known.len() - 1
        });
        let x = match x {
            Place::Number(x) => X::Number(x),
            Place::Name(name) => X::Name(name),
        };
        known[at].points.push(drawing::Point { x, y, paper });
    }
    panels
}

fn parse_machine(text: &str) -> Result<Config, String> {
    Config::named(text)
        .ok_or_else(|| format!("no such machine: use {}", PRESETS.map(|(name, _)| name).join(", ")))
}

fn parse_mix(text: &str) -> Result<Mix, String> {
    Mix::named(text).ok_or_else(|| format!("no such mix: use {}", mix::ALL.map(|mix| mix.name).join(", ")))
}

fn parse_sweep(text: &str) -> Result<Sweep, String> {
    let form = || "give KEY=V1,V2, such as halo.scoreboard=5,10,20".to_owned();
    let (key, values) = text.split_once('=').ok_or_else(form)?;
    let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    if key.is_empty() || values.iter().any(String::is_empty) {
        return Err(form());
    }
    Ok(Sweep { key: key.into(), values })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a mode looks at is taken, and all else refused.
    #[test]
    fn each_mode_takes_its_options() {
        let all = [
            "--figure halo-9",
            "--show-config",
            "--calibrate",
            "--write-log a",
            "--capture a",
            "--log a",
            "--entries 8",
            "--machine zen-4",
            "--config a",
            "--sweep cores=4",
            "--load 50",
            "--series tcam",
            "--serial",
            "--speed",
            "--tuples 5",
            "--mix table-1",
            "--lookups 8",
            "--warm 8",
            "--most 8",
            "--seed 2",
            "--jobs 1",
            "--json",
            "--plot a.svg",
        ];
        let modes = [
            ("--figure halo-9", "machine config mix lookups warm most seed jobs json plot"),
            ("--show-config", "machine config"),
            ("--calibrate", "machine config lookups warm most seed json"),
            ("--write-log a", "entries load lookups seed"),
            ("--capture a", "machine config sweep series tuples mix lookups warm seed jobs json"),
            ("--log a", "machine config sweep series serial speed mix lookups warm jobs json"),
            (
                "--entries 8",
                "write-log machine config sweep load series serial speed mix lookups warm seed jobs json",
            ),
        ];
        let command = Halo::augment_args(clap::Command::new("halo"));
        for (mode, taken) in modes {
            for option in all.into_iter().filter(|option| *option != mode) {
                let words = ["halo", mode, option].into_iter().flat_map(str::split_whitespace);
                let parsed = command.clone().try_get_matches_from(words).map(|_| ());
                let name = option.split_whitespace().next().unwrap_or_default().trim_start_matches('-');
                let takes = taken.split(' ').any(|other| other == name);
                assert_eq!(parsed.is_ok(), takes, "{mode} {option}: {parsed:?}");
            }
        }
    }

    /// Functions lie by entries in one panel, by instructions in another.
    #[test]
    fn panels_have_their_own_axes() {
        use tidemill_sim::study::functions::BY_INSTRUCTIONS;
        let of = |panel| Point { panel, series: "a".into(), x: Place::Number(1.0), y: 1.0, paper: None };
        let figure = FIGURES.into_iter().find(|figure| figure.name == "halo-13").unwrap();
        let panels = panels(&figure, vec![of("by entries"), of(BY_INSTRUCTIONS)]);
        let axes: Vec<_> = panels.iter().map(|panel| panel.x.as_str()).collect();
        assert_eq!(axes, ["function, entries", "instructions beside lookups"]);
    }

    #[test]
    fn sweeps_are_a_key_and_values() {
        let sweep = Sweep { key: "halo.scoreboard".into(), values: vec!["5".into(), "10".into()] };
        assert_eq!(parse_sweep("halo.scoreboard=5, 10"), Ok(sweep));
        for wrong in ["halo.scoreboard", "=5", "a=", "a=1,,2"] {
            assert!(parse_sweep(wrong).is_err(), "{wrong}");
        }
    }
}
