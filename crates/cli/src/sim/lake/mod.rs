//! `tidemill sim lake`: LaKe, the cache in a NIC of Tokusashi's thesis (2019, chapter 4), in simulated time. What is simulated, and what of it is assumed, is in
//! `tidemill_cachesim::lake`; the figures are in [`figures`].
//!
//! Every option that takes a list multiplies the configurations; they run on all cores.

mod figures;

use super::study::{self, in_parallel, parse_count, parse_model, threads};
use crate::bench::report::print_grid;
use crate::json::{self, significant};
use crate::usage;
use anyhow::{Result, anyhow};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use tidemill_cachesim::lake::power::Power;
use tidemill_cachesim::lake::queries::{drawn, found};
use tidemill_cachesim::lake::{Config, Gaps, Load, Outcome, Query, Variant, simulate};
use tidemill_cachesim::model::Model;
use tidemill_cachesim::{Log, log};

/// Arguments of `sim lake`.
#[derive(Args)]
#[command(after_help = "Examples:\n  tidemill sim lake --elements 1,2,3,4,5 --offered 20\n  \
    tidemill sim lake --on-chip 10 --dram 80 --offered 1,4,8 --gaps random --json\n  \
    tidemill sim lake --model etc --gaps etc --variant full,sram,bram --offered 5\n  \
    tidemill sim lake --figure list\n  tidemill sim lake --figure tok-4.8 --plot tok-4.8.svg")]
pub(crate) struct Lake {
    /// A figure to make; `list` prints the names and what they show
    #[arg(long, value_name = "NAME", conflicts_with_all = ["log", "model", "elements", "clock_mhz", "variants", "offered", "on_chip", "dram", "gaps"])]
    figure: Option<String>,
    /// Processing elements
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "5")]
    elements: Vec<usize>,
    /// The core clock
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "200")]
    clock_mhz: Vec<f64>,
    /// Memories: full, dram (no shared cache), dram-list (free chunks listed in DRAM), sram (no DRAM), bram (no SRAM either)
    #[arg(long = "variant", value_name = "NAMES", value_delimiter = ',', default_value = "full", value_parser = parse_variant)]
    variants: Vec<Variant>,
    /// Queries offered, million per second; the port passes 13.3
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "20")]
    offered: Vec<f64>,
    /// Gaps between queries: even; random (exponential); etc (generalized Pareto, of the workload ETC; its own rate is 0.0527 M/s)
    #[arg(long, value_name = "NAME", default_value = "even")]
    gaps: Gaps,
    /// Percent of the queries that the shared cache answers
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0, conflicts_with_all = ["log", "model"])]
    on_chip: f64,
    /// Percent that the DRAM answers; the rest goes to memcached
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, conflicts_with_all = ["log", "model"])]
    dram: f64,
    /// A request log whose keys are looked for in caches as large as the variant's
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    log: Option<PathBuf>,
    /// A workload model instead: usr, sys, app, etc, var, ycsb-a, ycsb-b, ycsb-c, ycsb-f
    #[arg(long, value_name = "NAME", value_parser = parse_model)]
    model: Option<Model>,
    /// Queries; of a log or a model half of them are warm-up [default: 200,000; of a log all]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    queries: Option<usize>,
    /// Of what is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Also draw the figure
    #[arg(long, value_name = "FILE.svg", requires = "figure")]
    plot: Option<PathBuf>,
}

/// Queries of a run.
const QUERIES: usize = 200_000;

pub(super) fn run(args: &Lake) -> Result<bool> {
    let Some(name) = &args.figure else { return runs(args) };
    study::show(figures::FIGURES, name, args, args.json, args.plot.as_deref())
}

/// All configurations.
fn runs(args: &Lake) -> Result<bool> {
    let log = args.source()?;
    let mut cases = Vec::new();
    for &variant in &args.variants {
        for &elements in &args.elements {
            for &clock_mhz in &args.clock_mhz {
                let config = Config { elements, clock_mhz, variant, ..Config::default() };
                config.check().map_err(|error| usage(error.to_string()))?;
                cases.extend(args.offered.iter().map(|&offered_mqps| (config, offered_mqps)));
            }
        }
    }
    let queries: Vec<(Variant, Vec<Query>)> = args
        .variants
        .iter()
        .map(|variant| Ok((*variant, args.queries(variant, log.as_ref())?)))
        .collect::<Result<_>>()?;
    let one = |&(config, offered_mqps): &(Config, f64)| -> Result<Value> {
        let load = Load { offered_mqps, gaps: args.gaps, seed: args.seed };
        let of = queries.iter().find(|(variant, _)| *variant == config.variant);
        let of = of.map_or(&[][..], |(_, queries)| queries);
        let outcome = simulate(&config, load, of).map_err(|error| usage(error.to_string()))?;
        Ok(line(&config, load, &outcome))
    };
    let rows = in_parallel(threads(args.jobs), &cases, one).into_iter().collect::<Result<Vec<Value>>>()?;
    if args.json {
        rows.iter().try_for_each(json::print)?;
    } else {
        print(&rows);
    }
    Ok(true)
}

impl Lake {
    fn source(&self) -> Result<Option<Log>> {
        if let Some(path) = &self.log {
            return Ok(Some(log::load(path, None, self.queries.unwrap_or(usize::MAX))?));
        }
        let Some(model) = &self.model else { return Ok(None) };
        let log = model.log(self.queries.unwrap_or(QUERIES), self.seed);
        Ok(Some(log.ok_or_else(|| anyhow!("{}: the model cannot be made", model.name))?))
    }

    fn queries(&self, variant: &Variant, log: Option<&Log>) -> Result<Vec<Query>> {
        let queries = match log {
            Some(log) => {
                let config = Config { variant: *variant, ..Config::default() };
                found(log, &config, variant.entries(), log.requests().len() / 2, self.seed)
            }
            None if self.on_chip > 0.0 && !variant.on_chip => {
                let name = variant.name;
                return Err(usage(format!(
                    "--variant {name}: it has no shared cache: give --on-chip 0 --dram 100"
                )));
            }
            None if self.dram > 0.0 && !variant.dram => {
                return Err(usage(format!("--variant {}: it has no DRAM: give --dram 0", variant.name)));
            }
            None => {
                let count = self.queries.unwrap_or(QUERIES);
                drawn(count, self.on_chip / 100.0, self.dram / 100.0, self.seed)
            }
        };
        queries.map_err(|error| usage(error.to_string()))
    }
}

/// A run, as it is printed.
fn line(config: &Config, load: Load, outcome: &Outcome) -> Value {
    let watts = Power::with(&config.variant).lake_w(outcome.mqps, outcome.host_mqps);
    json!({
        "v": json::VERSION,
        "config": {
            "variant": config.variant.name, "elements": config.elements, "clock_mhz": config.clock_mhz,
            "offered_mqps": load.offered_mqps, "gaps": load.gaps.name(), "seed": load.seed,
        },
        "queries": outcome.queries, "on_chip": outcome.on_chip, "dram": outcome.dram, "host": outcome.host,
        "lost_at_elements": outcome.lost_at_elements, "lost_at_host": outcome.lost_at_host,
        "came_mqps": significant(outcome.offered_mqps), "mqps": significant(outcome.mqps),
        "host_mqps": significant(outcome.host_mqps),
        "mean_us": significant(outcome.mean_us), "p99_us": significant(outcome.p99_us),
        "most_us": significant(outcome.most_us), "read_ns": significant(outcome.read_ns),
        "read_most_ns": significant(outcome.read_most_ns), "busy": significant(outcome.busy),
        "watts": significant(watts), "kqps_per_watt": significant(outcome.mqps * 1e3 / watts),
    })
}

/// The same for people.
fn print(rows: &[Value]) {
    let heads = [
        "variant",
        "elements",
        "MHz",
        "offered M/s",
        "M/s",
        "by host",
        "lost",
        "mean us",
        "p99 us",
        "busy",
        "watts",
        "kqps/W",
    ];
    let mut grid = vec![heads.map(str::to_owned).to_vec()];
    for row in rows {
        let config = &row["config"];
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let lost = ["lost_at_elements", "lost_at_host"].map(|name| row[name].as_u64().unwrap_or(0));
        let mut cells: Vec<String> = ["variant", "elements", "clock_mhz", "offered_mqps"]
            .iter()
            .map(|name| word(&config[name]))
            .collect();
        cells.extend(["mqps", "host_mqps"].map(|name| word(&row[name])));
        cells.push(lost.iter().sum::<u64>().to_string());
        cells.extend(["mean_us", "p99_us", "busy", "watts", "kqps_per_watt"].map(|name| word(&row[name])));
        grid.push(cells);
    }
    print_grid(&grid);
}

fn parse_variant(text: &str) -> Result<Variant, String> {
    Variant::named(text).ok_or_else(|| {
        format!("no such variant: use {}", Variant::ALL.map(|variant| variant.name).join(", "))
    })
}
