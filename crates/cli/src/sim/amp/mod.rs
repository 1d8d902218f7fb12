//! `tidemill sim amp`: chapter 5 of Tokusashi's thesis (2019) as far as it needs no wire: its tables and hashes, what ICMP messages
//! tell, what coarser tuples cost, how long an attack goes on. The decisions are `tidemill_amp`'s own.

mod answer;
mod completion;
mod icmp;
mod real;
mod tables;
mod tuples;
mod victim;

use crate::bench::catalogue::{Named, pick};
use crate::bench::drawing::{Drawing, Point, Series, X, check_plot};
use crate::usage;
pub(crate) use answer::port_unreachable;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `sim amp`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tidemill sim amp --figure list\n  tidemill sim amp --figure tok-5.4 --plot tok-5.4.svg\n  \
    tidemill sim amp --figure tok-5.7 --capture backbone.pcap.zst --json\n  tidemill sim amp --figure tok-5.13 --rtt-ms 20"
)]
pub(crate) struct Amp {
    /// The figure to make; `list` prints the names and what they show
    #[arg(long, value_name = "NAME")]
    figure: String,
    /// A capture to study; repeat it for several [default: all below $TIDEMILL_DATA/pcap]
    #[arg(long = "capture", value_name = "FILE")]
    captures: Vec<PathBuf>,
    /// tok-5.4: also all ways to count up, to lay out the key, to take bits of the hash
    #[arg(long)]
    patterns: bool,
    /// Packets per second of the attack
    #[arg(long, value_name = "N", default_value_t = 250_000)]
    pps: u64,
    /// Between a packet that passes the mitigator and the victim's ICMP message there
    #[arg(long, value_name = "MS", default_value_t = 1.0)]
    rtt_ms: f64,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Also draw it
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// A figure of the chapter.
struct Figure {
    name: &'static str,
    title: &'static str,
    /// Whether it is made of captures.
    captures: bool,
    make: fn(&Amp, &'static Figure) -> Result<Drawing>,
}

const FIGURES: &[Figure] = &[
    Figure {
        name: "tok-5.3.3",
        title: "Rules about fewer parts of a flow: entries, learning, false positives (Tokusashi 2019, section 5.3.3)",
        captures: true,
        make: tuples::figure,
    },
    Figure {
        name: "tok-5.4",
        title: "Direct-mapped tables against the number of combinations (Tokusashi 2019, Figure 5.4)",
        captures: false,
        make: tables::figure,
    },
    Figure {
        name: "tok-5.7",
        title: "Pairs of addresses with ICMP port-unreachable messages (Tokusashi 2019, Figure 5.7)",
        captures: true,
        make: icmp::pairs,
    },
    Figure {
        name: "tok-5.8",
        title: "Lengths of ICMP port-unreachable messages (Tokusashi 2019, Figure 5.8)",
        captures: true,
        make: icmp::lengths,
    },
    Figure {
        name: "tok-5.12",
        title: "What passes while rules are learnt (Tokusashi 2019, Figure 5.12)",
        captures: false,
        make: completion::course,
    },
    Figure {
        name: "tok-5.13",
        title: "Time until an attack is over, by amplifiers (Tokusashi 2019, Figure 5.13)",
        captures: false,
        make: completion::times,
    },
];

impl Named for Figure {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> String {
        self.title.into()
    }
}

impl Figure {
    fn drawing(&self) -> Drawing {
        Drawing {
            figure: self.name,
            title: self.title.to_owned(),
            table: None,
            panels: Vec::new(),
            notes: Vec::new(),
        }
    }
}

pub(super) fn run(args: &Amp) -> Result<bool> {
    let Some(figure) = pick(FIGURES.iter(), &args.figure, args.json)? else { return Ok(true) };
    if !args.captures.is_empty() && !figure.captures {
        let of: Vec<&str> =
            FIGURES.iter().filter(|figure| figure.captures).map(|figure| figure.name).collect();
        return Err(usage(format!(
            "--capture: {} is made of no captures: leave it out, or make one of {}",
            args.figure,
            of.join(", ")
        )));
    }
    if !(100..=10_000_000).contains(&args.pps) {
        return Err(usage(format!("--pps {}: give 100 to 10000000", args.pps)));
    }
    if !(0.0..=10_000.0).contains(&args.rtt_ms) {
        return Err(usage(format!("--rtt-ms {}: give 0 to 10000", args.rtt_ms)));
    }
    check_plot(args.plot.as_deref())?;
    (figure.make)(args, figure)?.show(args.json, args.plot.as_deref())?;
    Ok(true)
}

/// Points at names: ours, and the paper's where it has one.
fn named_points<'a>(
    name: impl Into<String>,
    points: impl IntoIterator<Item = (&'a str, f64, Option<f64>)>,
) -> Series {
    let point = |(x, y, paper): (&str, f64, Option<f64>)| Point { x: X::Name(x.to_owned()), y, paper };
    Series { name: name.into(), points: points.into_iter().map(point).collect() }
}
