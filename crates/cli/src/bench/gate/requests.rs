//! `--figure requests`: how requests wait in a flood, by their priority (Fu 2020, 4.3.2 and Figure 4.2: requests have 5 % of the link).
//!
//! Simulated time: the solicitor's queue and budget are those of production ([`tidemill_ip::queue::flood`]), arrivals and turns are made up, so it is the same on
//! every machine. Clients that waited before they asked again come at levels 42 to 50, evenly; attackers send as fast as a 10 Gbit/s front takes: flows that
//! never were ask at level 41; attackers that each wait as long as a client of level 45 ask at 45, and are fewer by that.
//!
//! ```text
//!  clients, 42 ... 50  --+
//!                        +--> [ 1,024 places, 64 levels ] --500 Mbit/s--> Grantor
//!  attackers, 41 or 45 --+
//! ```

use super::GateBench;
use crate::bench::drawing::{Drawing, Panel, Series};
use crate::bench::report::Report;
use crate::bench::statistics;
use crate::json::{Measurement, Params};
use anyhow::{Result, ensure};
use tidemill_gatekeeper::nodes::solicitor::SHARE;
use tidemill_ip::queue::flood::{Flood, Source, simulate};
use tidemill_ip::queue::{ClassStats, Levels, wire_bytes};

const LINK_BITS_PER_S: u64 = 10_000_000_000;
/// The shortest frame's packet, behind an Ethernet header and an outer one.
const BYTES: u64 = wire_bytes(14 + 20 + 46);
const CLIENTS: std::ops::RangeInclusive<u8> = 42..=50;
/// Requests a second of the clients of each level.
const CLIENT_PER_S: f64 = 20_000.0;
const CAPACITY: usize = 1024;
const BURST_NS: u64 = 1_000_000;

/// Attackers: their level, and M requests a second.
const ATTACKS: [(&str, u8, f64); 5] = [
    ("none", 41, 0.0),
    ("1 M/s at 41", 41, 1.0),
    ("14.7 M/s at 41", 41, 14.7),
    ("0.5 M/s at 45", 45, 0.5),
    ("5 M/s at 45", 45, 5.0),
];

/// The requests of one flood, by level.
fn flood(args: &GateBench, (level, millions): (u8, f64), run: usize) -> Levels {
    let source = |level, per_s| Source { level, per_s, bytes: BYTES };
    let mut sources: Vec<Source> = CLIENTS.map(|level| source(level, CLIENT_PER_S)).collect();
    if millions > 0.0 {
        sources.push(source(level, millions * 1e6));
    }
    let flood = Flood {
        workers: vec![sources],
        capacity: CAPACITY,
        bits_per_s: (LINK_BITS_PER_S as f64 * SHARE) as u64,
        burst_ns: BURST_NS,
        seconds: args.seconds,
    };
    simulate(&flood, args.seed + run as u64).pop().unwrap_or_default()
}

/// What the figure shows of a level.
struct Metric {
    name: &'static str,
    y: &'static str,
    of: fn(&ClassStats) -> Option<f64>,
}

const METRICS: [Metric; 3] = [
    Metric {
        name: "waited_us",
        y: "waiting time, mean of those that went (microseconds)",
        of: |level| level.mean_wait_ns().map(|ns| ns as f64 / 1e3),
    },
    Metric {
        name: "longest_us",
        y: "waiting time, the longest (microseconds)",
        of: |level| (level.sent > 0).then_some(level.longest_ns as f64 / 1e3),
    },
    Metric {
        name: "dropped",
        y: "dropped (percent of those that came)",
        of: |level| {
            let dropped = level.refused + level.evicted;
            (level.arrived > 0).then(|| dropped as f64 * 100.0 / level.arrived as f64)
        },
    },
];

pub(super) fn draw(args: &GateBench) -> Result<()> {
    let mut report = Report::new(args.json);
    let mut panels: Vec<Panel> =
        METRICS.iter().map(|metric| Panel::new("priority (DSCP)", metric.y, Vec::new())).collect();
    let mut notes = vec![format!(
        "simulated: {} s, {} runs; a request takes {BYTES} bytes of the link, so {:.0} k/s fit into {:.0} % of 10 Gbit/s; {:.0} k/s are clients'",
        args.seconds,
        args.runs,
        LINK_BITS_PER_S as f64 * SHARE / 8.0 / BYTES as f64 / 1e3,
        SHARE * 100.0,
        CLIENTS.count() as f64 * CLIENT_PER_S / 1e3,
    )];
    for (name, level, millions) in ATTACKS {
        let runs: Vec<Levels> = (0..args.runs).map(|run| flood(args, (level, millions), run)).collect();
        ensure!(
            runs.iter().all(|levels| levels.0.iter().all(ClassStats::balances)),
            "WRONG: requests are missing"
        );
        let params = || {
            let mut params = Params::new();
            params.insert("level".into(), level.into());
            params.insert("per_s".into(), (millions * 1e6).into());
            params.insert("seconds".into(), args.seconds.into());
            params.insert("seed".into(), args.seed.into());
            params
        };
        for (metric, panel) in METRICS.iter().zip(&mut panels) {
            let mut points = Vec::new();
            for level in *CLIENTS.start() - 1..=*CLIENTS.end() {
                let values: Vec<f64> =
                    runs.iter().filter_map(|levels| (metric.of)(&levels.0[usize::from(level)])).collect();
                if values.is_empty() {
                    continue;
                }
                let case = format!("requests/{level}");
                report.line(Measurement::of("gate", name, &case, metric.name, &values, params()))?;
                points.push((level.into(), statistics::median(&values), None));
            }
            panel.series.push(Series::new(name, points));
        }
        let share = LINK_BITS_PER_S as f64 * SHARE / 8.0 * args.seconds;
        let used: Vec<f64> =
            runs.iter().map(|levels| levels.total().sent_bytes as f64 * 100.0 / share).collect();
        report.line(Measurement::of("gate", name, "requests/all", "share", &used, params()))?;
        notes.push(format!("{name}: {:.1} % of the requests' share was used", statistics::median(&used)));
    }
    let drawing = Drawing {
        figure: "requests",
        title: "Requests in a flood, by priority (Fu 2020, 4.3.2)".into(),
        table: None,
        panels,
        notes,
    };
    drawing.show(args.json, args.plot.as_deref())
}
