//! Single lookups, logs, and this machine beside its model.

use super::{Halo, Sweep};
use crate::bench::report::print_grid;
use crate::json::{self, significant};
use crate::sim::study::in_parallel;
use crate::usage;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Instant;
use tidemill_flow::keystore::Keystore;
use tidemill_sim::halo::tcam::Kind;
use tidemill_sim::log::{Fault, Log};
use tidemill_sim::machine::config::PRESETS;
use tidemill_sim::machine::{Config, Memory};
use tidemill_sim::mix::KEYSTORE;
use tidemill_sim::study::Options;
use tidemill_sim::study::calibrate;
use tidemill_sim::study::run::{Asking, Outcome, Series, replay, single};
use tidemill_sim::tape::Tape;
use tidemill_sim::workload::Filled;

/// A series' name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name(pub(super) &'static str);

const NAMES: [&str; 8] = [
    "software",
    "halo-blocking",
    "halo-blocking-window",
    "halo-nonblocking",
    "tcam",
    "sram-tcam",
    "software-keystore",
    "software-batch",
];

pub(super) fn parse_series(text: &str) -> Result<Name, String> {
    let known = NAMES.into_iter().find(|name| *name == text);
    known.map(Name).ok_or_else(|| format!("no such series: use {}", NAMES.join(", ")))
}

impl Name {
    pub(super) fn series(self, options: &Options) -> Series {
        match self.0 {
            "halo-blocking" => Series::Blocking,
            "halo-blocking-window" => Series::Window,
            "halo-nonblocking" => Series::NonBlocking(options.config.halo.batch),
            "tcam" => Series::Tcam(Kind::Tcam),
            "sram-tcam" => Series::Tcam(Kind::Sram),
            "software-keystore" => Series::Software(KEYSTORE),
            "software-batch" => Series::Batch(KEYSTORE),
            _ => Series::Software(options.mix),
        }
    }
}

/// A machine with the values of a sweep that made it.
pub(super) type Swept = (Config, Vec<(String, String)>);

pub(super) fn swept(config: &Config, sweeps: &[Sweep]) -> Result<Vec<Swept>> {
    let mut machines = vec![(config.clone(), Vec::new())];
    for (i, Sweep { key, values }) in sweeps.iter().enumerate() {
        if sweeps.iter().take(i).any(|other| other.key == *key) {
            return Err(usage(format!("--sweep {key}: twice: give all its values at once, {key}=V1,V2")));
        }
        let mut next = Vec::new();
        for (config, set) in &machines {
            let mut made: Vec<Config> = Vec::new();
            for value in values {
                let config = config.with(key, value).map_err(|error| usage(format!("--sweep {error}")))?;
                // However it is written: 3 and 3.0 are one machine.
                if made.contains(&config) {
                    return Err(usage(format!("--sweep {key}={value}: twice: give each value once")));
                }
                made.push(config.clone());
                let mut set = set.clone();
                set.push((key.clone(), value.clone()));
                next.push((config, set));
            }
        }
        machines = next;
    }
    Ok(machines)
}

/// Whether each value of a list is there once: one that is there twice would make its rows twice.
pub(super) fn once<T: PartialEq>(option: &str, values: &[T], shown: impl Fn(&T) -> String) -> Result<()> {
    for (i, value) in values.iter().enumerate() {
        if values.iter().take(i).any(|other| other == value) {
            return Err(usage(format!("{option} {}: twice: give each once", shown(value))));
        }
    }
    Ok(())
}

/// What is looked up.
enum Source<'a> {
    Table { slots: u64, load: u64 },
    Log(&'a Log),
}

/// All configurations.
pub(super) fn run(args: &Halo, options: &Options) -> Result<bool> {
    once("--series", &args.series, |name| name.0.to_owned())?;
    once("--entries", &args.entries, ToString::to_string)?;
    once("--load", &args.load, ToString::to_string)?;
    let log = args.log.as_deref().map(read_log).transpose()?;
    let sources: Vec<Source<'_>> = match &log {
        Some(log) => vec![Source::Log(log)],
        None => args
            .entries
            .iter()
            .flat_map(|&slots| args.load.iter().map(move |&load| Source::Table { slots: slots as u64, load }))
            .collect(),
    };
    let machines = swept(&options.config, &args.sweep)?;
    let cases: Vec<(&Swept, &Source<'_>)> =
        machines.iter().flat_map(|machine| sources.iter().map(move |source| (machine, source))).collect();
    let asking = Asking { serial: args.serial, ..Asking::default() };
    let case = |&((config, set), source): &(&Swept, &Source<'_>)| -> Result<Vec<Value>> {
        let options = Options { config: config.clone(), ..options.clone() };
        let mut memory = Memory::new(config);
        let table = match *source {
            Source::Table { slots, load } => {
                let entries = (slots * load / 100).max(1);
                Some(Filled::<Keystore<2>>::new(&mut memory, slots, entries, options.seed)?)
            }
            Source::Log(_) => None,
        };
        let mut rows = Vec::new();
        let mut first = None;
        for name in &args.series {
            let series = name.series(&options);
            let started = Instant::now();
            let outcome = match (&table, source) {
                (Some(table), _) => single(memory.clone(), table, series, &options, asking),
                (None, Source::Log(log)) => replay(memory.clone(), log, series, &options, asking),
                (None, Source::Table { .. }) => continue,
            };
            let first = *first.get_or_insert(outcome.ns());
            let mut row = line(name.0, &options, args.serial, &outcome, first);
            if args.speed {
                let lookups = (options.lookups + options.warm) as f64;
                row["simulated_per_second"] = json!(significant(lookups / started.elapsed().as_secs_f64()));
            }
            match source {
                Source::Table { slots, load } => {
                    row["config"]["slots"] = json!(slots);
                    row["config"]["load_percent"] = json!(load);
                }
                Source::Log(log) => row["config"]["log_lookups"] = json!(log.len()),
            }
            if let Series::Software(mix) | Series::Batch(mix) = series {
                row["config"]["mix"] = json!(mix.name);
            }
            for (key, value) in set {
                row["config"][key.as_str()] = json!(value);
            }
            rows.push(row);
        }
        Ok(rows)
    };
    let rows = in_parallel(options.jobs, &cases, case).into_iter().collect::<Result<Vec<_>>>()?.concat();
    if args.json {
        rows.iter().try_for_each(json::print)?;
    } else {
        print(&rows);
    }
    Ok(true)
}

/// A run, as it is printed.
fn line(name: &str, options: &Options, serial: bool, outcome: &Outcome, first_ns: f64) -> Value {
    let each = |count: u64| significant(count as f64 / outcome.lookups.max(1) as f64);
    let (counts, activity) = (&outcome.counts, &outcome.activity);
    json!({
        "v": json::VERSION,
        "config": { "machine": options.config.machine, "mix": options.mix.name, "serial": serial, "seed": options.seed },
        "series": name,
        "lookups": outcome.lookups,
        "ns": significant(outcome.ns()),
        "cycles": significant(outcome.ns() * options.config.ghz),
        "mlps": significant(1e3 / outcome.ns()),
        "relative": significant(first_ns / outcome.ns()),
        "each": {
            "instructions": significant(outcome.instructions / outcome.lookups.max(1) as f64),
            "wrong_guesses": each(outcome.mispredicted),
            "l1_misses": each(counts.l1_misses), "l2_misses": each(counts.l2_misses),
            "near": each(counts.near), "near_elsewhere": each(counts.near_elsewhere), "dram": each(counts.dram),
            "snoops": each(counts.snoops), "held_back": each(activity.held_back),
            "metadata_misses": each(activity.metadata_misses), "locks": each(activity.locks),
        },
    })
}

/// The same for people.
/// What a row is of, in words.
pub(super) fn configuration(row: &Value) -> String {
    let config = row["config"].as_object().into_iter().flatten();
    let words: Vec<String> = config
        .filter(|(key, _)| !matches!(key.as_str(), "mix" | "seed" | "serial" | "captured"))
        .map(|(key, value)| if key == "machine" { text(value) } else { format!("{key} {}", text(value)) })
        .collect();
    words.join(", ")
}

fn print(rows: &[Value]) {
    let heads = [
        "configuration",
        "series",
        "cycles",
        "ns",
        "M/s",
        "relative",
        "instructions",
        "wrong",
        "L2 misses",
        "near",
        "DRAM",
        "held back",
    ];
    let mut grid = vec![heads.map(str::to_owned).to_vec()];
    for row in rows {
        let mut cells = vec![configuration(row), text(&row["series"])];
        cells.extend(["cycles", "ns", "mlps", "relative"].map(|name| text(&row[name])));
        cells.extend(
            ["instructions", "wrong_guesses", "l2_misses", "near", "dram", "held_back"]
                .map(|name| text(&row["each"][name])),
        );
        grid.push(cells);
    }
    print_grid(&grid);
    for row in rows.iter().filter(|row| !row["simulated_per_second"].is_null()) {
        let speed = text(&row["simulated_per_second"]);
        crate::usage::say(format_args!("{}: {speed} lookups simulated a second\n", text(&row["series"])));
    }
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn read_log(path: &Path) -> Result<Log> {
    let file = File::open(path)
        .with_context(|| format!("{}: cannot be read: give an access log", path.display()))?;
    Log::read(BufReader::new(file)).map_err(|error| {
        let said = format!("{}: {error}", path.display());
        // A log that is wrong is bad usage; what the system does not give is not.
        match error.fault {
            Fault::Read(_) => anyhow::Error::msg(said),
            _ => usage(said),
        }
    })
}

/// Writes what random lookups of a table touch, in addresses of the simulated memory: those of the process are others in every run.
pub(super) fn write_log(args: &Halo, options: &Options, path: &Path) -> Result<bool> {
    let (&[slots], &[load]) = (&args.entries[..], &args.load[..]) else {
        return Err(usage(
            "--write-log: a log is of one table: give one value of --entries and one of --load",
        ));
    };
    let mut memory = Memory::new(&options.config);
    let entries = (slots as u64 * load / 100).max(1);
    let table: Filled<Keystore<2>> = Filled::new(&mut memory, slots as u64, entries, options.seed)?;
    let (mut log, tape, mut touches) = (Log::default(), Tape::default(), Vec::new());
    let mut random = tidemill_cachesim::random::Random::new(options.seed);
    for _ in 0..options.lookups {
        table.ask(random.below(table.len), &tape);
        tape.take(&mut memory, &mut touches);
        log.push(1, &touches);
    }
    crate::files::write(path, log.text().as_bytes())
        .with_context(|| format!("{}: give a file that can be written", path.display()))?;
    crate::usage::complain(format_args!("{}: {} lookups written", path.display(), log.len()));
    Ok(true)
}

/// The machine as TOML, with where its numbers come from as comments.
pub(super) fn show_config(config: &Config) -> Result<bool> {
    crate::usage::say(format_args!("{}", config.to_toml()));
    let (first, _) = PRESETS[0];
    crate::usage::say(format_args!(
        "# Where the numbers of {first} come from; those of others are public or yours:\n"
    ));
    for (what, from) in Config::origins() {
        crate::usage::say(format_args!("# {what}: {from}\n"));
    }
    Ok(true)
}

/// This machine beside its model.
pub(super) fn calibrate(args: &Halo, options: &Options) -> Result<bool> {
    let start = Instant::now();
    let rows = calibrate::rows(options, &|| start.elapsed().as_secs_f64())?;
    if args.json {
        for row in &rows {
            json::print(&json!({
                "v": json::VERSION, "calibration": row.what, "bytes": row.bytes, "machine": options.config.machine,
                "measured_ns": significant(row.measured_ns), "simulated_ns": significant(row.simulated_ns),
                "ratio": significant(row.simulated_ns / row.measured_ns),
            }))?;
        }
        return Ok(true);
    }
    let mut grid =
        vec![["what", "bytes", "measured ns", "simulated ns", "ratio"].map(str::to_owned).to_vec()];
    for row in &rows {
        let numbers = [row.measured_ns, row.simulated_ns, row.simulated_ns / row.measured_ns];
        let mut cells = vec![row.what.clone(), row.bytes.to_string()];
        cells.extend(numbers.map(|number| significant(number).to_string()));
        grid.push(cells);
    }
    print_grid(&grid);
    Ok(true)
}
