//! Real packets: captures through the whole classifier.

use super::Halo;
use super::runs::{Swept, configuration, once, swept, text};
use crate::bench::report::print_grid;
use crate::json::{self, significant};
use crate::sim::captures::Captures;
use crate::sim::study::in_parallel;
use crate::usage;
use anyhow::Result;
use serde_json::{Value, json};
use tidemill_sim::study::run::Series;
use tidemill_sim::study::traffic::{BURST, Packet, Replayed, replay};
use tidemill_sim::study::{Options, StudyError};
use tidemill_wire::flow::{Addresses, flow_key};

/// Packets that are kept at most: what is read may have no end.
const MOST_PACKETS: u64 = 1 << 26;

pub(super) fn run(args: &Halo, options: &Options) -> Result<bool> {
    once("--series", &args.series, |name| name.0.to_owned())?;
    if args.series.iter().any(|name| name.0 == "software-batch") {
        return Err(usage("--series software-batch: lookups of captures are not batched: leave it out"));
    }
    if options.lookups < BURST as u64 {
        let asked = options.lookups;
        return Err(usage(format!(
            "--lookups {asked}: packets of captures come in bursts: give {BURST} or more"
        )));
    }
    let mut packets = Vec::new();
    Captures::find(&args.captures, "halo")?
        .at_most(MOST_PACKETS)
        .read(|_, captured| packets.extend(packet(captured.ip)))?;
    if packets.is_empty() {
        return Err(usage("--capture: no IP packet that has a flow: give a capture with some"));
    }
    let machines = swept(&options.config, &args.sweep)?;
    let case = |(config, set): &Swept| -> Result<Vec<Value>, StudyError> {
        let options = Options { config: config.clone(), ..options.clone() };
        let mut rows = Vec::new();
        let mut first = None;
        for name in &args.series {
            let series = name.series(&options);
            let replayed = replay(&packets, args.tuples as usize, series, &options)?;
            let first = *first.get_or_insert(replayed.ns);
            let mut row = line(name.0, &options, &replayed, first);
            row["config"]["tuples"] = json!(args.tuples);
            row["config"]["captured"] = json!(packets.len());
            if let Series::Software(mix) = series {
                row["config"]["mix"] = json!(mix.name);
            }
            for (key, value) in set {
                row["config"][key.as_str()] = json!(value);
            }
            rows.push(row);
        }
        Ok(rows)
    };
    let rows =
        in_parallel(options.jobs, &machines, case).into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    if args.json {
        rows.iter().try_for_each(json::print)?;
    } else {
        print(&rows);
    }
    Ok(true)
}

/// What is looked up of an IP packet.
fn packet(ip: &[u8]) -> Option<Packet> {
    let flow = flow_key(ip, 0)?;
    let (source, destination) = match flow.addresses {
        Addresses::V4 { src, dst } => (src, dst),
        Addresses::V6 { src, dst } => (Packet::folded(src), Packet::folded(dst)),
    };
    let ports = flow.ports.unwrap_or_default();
    Some(Packet { source, destination, ports, protocol: flow.protocol.0 })
}

fn line(name: &str, options: &Options, replayed: &Replayed, first_ns: f64) -> Value {
    let Replayed { packets, ns, exact, unknown, lookups, retries, activity } = *replayed;
    let each = |count: u64| significant(count as f64 / packets.max(1) as f64);
    json!({
        "v": json::VERSION,
        "config": { "machine": options.config.machine, "mix": options.mix.name, "seed": options.seed },
        "series": name,
        "packets": packets,
        "ns": significant(ns),
        "cycles": significant(ns * options.config.ghz),
        "mpps": significant(1e3 / ns),
        "relative": significant(first_ns / ns),
        "each": {
            "lookups": each(lookups), "exact": each(exact), "unknown": each(unknown), "retries": each(retries),
            "held_back": each(activity.held_back), "metadata_misses": each(activity.metadata_misses),
        },
    })
}

fn print(rows: &[Value]) {
    let heads = [
        "configuration",
        "series",
        "cycles a packet",
        "M packets/s",
        "relative",
        "lookups",
        "in the EMC",
        "in no tuple",
        "held back",
    ];
    let mut grid = vec![heads.map(str::to_owned).to_vec()];
    for row in rows {
        let mut cells = vec![configuration(row), text(&row["series"])];
        cells.extend(["cycles", "mpps", "relative"].map(|name| text(&row[name])));
        cells.extend(["lookups", "exact", "unknown", "held_back"].map(|name| text(&row["each"][name])));
        grid.push(cells);
    }
    print_grid(&grid);
}
