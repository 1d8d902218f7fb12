//! `bench gate`: the Gatekeeper server on one core.

mod cases;
mod figure;
mod requests;
#[cfg(all(feature = "xdp", target_os = "linux"))]
mod wire;

use super::drawing::check_plot;
use super::flow::parse_entries;
use crate::usage;
use anyhow::Result;
use cases::Case;
use clap::{Args, ValueEnum};
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use tidemill_gatekeeper::config::{Driver, Order};
use tidemill_gatekeeper::yardstick::MOST;

/// Arguments of `bench gate`.
#[derive(Args)]
#[command(
    after_help = "Without --figure: the whole Gatekeeper between two ports in memory, worst/2^20, worst/2^25 (room for so many flows) and granted/10M. worst lasts for --seconds, and until twice as \
    many packets have come as there is room for flows: mpps is of all of it, mpps_filling and mpps_full of its parts.\n\
    With several orders or drivers these take turns, and all are told beside the first.\n\n\
    Figures:\n  \
    fu-4.6   the paper's optimisations in the worst case (Fu 2020, 4.6.2), one after the other, on the paper's configuration and on ours:\n           \
    every packet is of a new flow from a random source, the flow table is full, and flows expire. Ratios of packets a second\n  \
    requests  waiting time and drops of requests in floods, by priority, in simulated time (--seconds of it)\n\n\
    Examples:\n  tidemill bench gate\n  tidemill bench gate --case worst --entries 2^20 --json\n  \
    tidemill bench gate --entries 2^20 --order one-pass,flow-first --driver group,coroutine,plain\n  tidemill bench gate --family 6\n  tidemill bench gate --figure fu-4.6\n  \
    tidemill bench gate --figure fu-4.6 --entries 2^20,2^25 --json --plot fu-4.6.svg\n  \
    tidemill bench gate --figure fu-4.6 --entries 2^20 --idle-s 1\n  \
    tidemill bench gate --figure requests --plot requests.svg\n  sudo tidemill bench gate --wire"
)]
pub(crate) struct GateBench {
    /// A figure of the paper, instead of the cases
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["cases", "flows", "orders", "drivers"])]
    figure: Option<Figure>,
    /// Cases
    #[arg(long = "case", value_enum, value_name = "NAME", value_delimiter = ',', default_values = ["worst", "granted"])]
    cases: Vec<Case>,
    /// Slots of the flow tables, or room in them: numbers, 2^N, or with k or M behind them [default: 2^15,2^20 for the figure, 2^20,2^25 for worst]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_entries)]
    entries: Vec<usize>,
    /// Flows that were granted
    #[arg(long, value_name = "N", value_delimiter = ',', default_values = ["10M"], value_parser = parse_entries)]
    flows: Vec<usize>,
    /// Orders of lookups, as of `gatekeeper.order`: one-pass, flow-first
    #[arg(long = "order", value_name = "NAME", value_delimiter = ',', default_values = ["one-pass"], value_parser = parse_way::<Order>)]
    orders: Vec<Order>,
    /// Drivers of lookups, as of `gatekeeper.driver`: group, coroutine, plain
    #[arg(long = "driver", value_name = "NAME", value_delimiter = ',', default_values = ["group"], value_parser = parse_way::<Driver>)]
    drivers: Vec<Driver>,
    /// The family of the packets
    #[arg(long, value_name = "FAMILY", value_parser = ["4", "6"], default_value = "4", conflicts_with = "figure")]
    family: String,
    /// Packets of a burst [default: 32 as in the paper, 256 for ours]
    #[arg(long, value_name = "N")]
    burst: Option<usize>,
    /// Seconds without a packet after which a flow expires, at 14.88 M packets a second
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    idle_s: f64,
    /// Seconds that a variant is measured for in each run
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Runs, in each of which all variants take turns; ratios are means over them
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Seed of the sources
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A flood of 1,024 declined flows on AF_XDP between two virtual cables, with `offload = "xdp"` and without (root)
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    #[arg(long, conflicts_with_all = ["figure", "cases", "entries", "flows", "orders", "drivers", "burst", "plot", "family"])]
    wire: bool,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Draw it
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// The paper's optimisations, as ratios
    #[value(name = "fu-4.6")]
    Fu4_6,
    /// Requests in a flood, by priority
    Requests,
}

/// A name as the configuration has it.
fn parse_way<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

impl GateBench {
    /// The sizes of tables that were asked for, or these.
    fn entries(&self, default: &[usize]) -> Vec<usize> {
        if self.entries.is_empty() { default.to_vec() } else { self.entries.clone() }
    }

    fn check(&self) -> Result<()> {
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) || self.runs < 2 {
            return Err(usage(
                "--seconds, --runs: give more than 0 and at most 3600 seconds, 2 runs or more",
            ));
        }
        if !(self.idle_s >= 0.001 && self.idle_s <= 1e6) {
            return Err(usage(format!("--idle-s {}: give 0.001 to 1000000", self.idle_s)));
        }
        if let Some(burst) = self.burst.filter(|burst| !(1..=MOST).contains(burst)) {
            return Err(usage(format!("--burst {burst}: give 1 to {MOST}")));
        }
        check_plot(self.plot.as_deref())
    }
}

pub(super) fn run(args: &GateBench) -> Result<bool> {
    args.check()?;
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    if args.wire {
        wire::run(args)?;
        return Ok(true);
    }
    match args.figure {
        Some(Figure::Fu4_6) => figure::draw(args)?,
        Some(Figure::Requests) => requests::draw(args)?,
        None if args.plot.is_some() => return Err(usage("--plot: only figures are drawn: give --figure")),
        None => cases::run(args)?,
    }
    Ok(true)
}
