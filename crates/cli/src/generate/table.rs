//! `gen table`: a table whose lengths, nesting, clustering and next-hop locality are those of a real one.

use crate::usage;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::time::Instant;
use tidemill_feed::synth::{self, SynthError, SynthOptions};
use tidemill_feed::{SaveFormat, Shape, shape};

/// Arguments of `gen table`.
#[derive(Args)]
#[command(
    after_help = "The profiles were taken from what RIPE RIS saw from AS3333 on 2026-05-11; they hold counts, no prefixes.\n\
    A smaller table is a sample of regions of the full one.\n\n\
    Examples:\n  tidemill gen table -o table.zst\n  tidemill gen table --ipv4 50000 --ipv6 0 -o small.csv -v"
)]
pub(crate) struct GenTable {
    /// IPv4 prefixes
    #[arg(long, value_name = "N", default_value_t = SynthOptions::default().v4)]
    ipv4: usize,
    /// IPv6 prefixes
    #[arg(long, value_name = "N", default_value_t = SynthOptions::default().v6)]
    ipv6: usize,
    /// Next hops: labels 1 to N
    #[arg(long, value_name = "N", default_value_t = SynthOptions::default().next_hops)]
    next_hops: u32,
    /// The same seed, the same table
    #[arg(long, default_value_t = SynthOptions::default().seed)]
    seed: u64,
    /// The file to write: text, CSV if it ends in .csv; compressed by a further .gz, .xz or .zst
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print the table's shape
    #[arg(short, long)]
    verbose: bool,
}

pub(super) fn run(args: &GenTable) -> Result<bool> {
    let start = Instant::now();
    let options = SynthOptions { v4: args.ipv4, v6: args.ipv6, next_hops: args.next_hops, seed: args.seed };
    let table = synth::table(&options).map_err(|error| match error {
        SynthError::TooMany { .. } | SynthError::NextHops => usage(error),
        other => other.into(),
    })?;
    let name = args.output.to_string_lossy();
    let stem = [".gz", ".xz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    let format = if stem.ends_with(".csv") { SaveFormat::Csv } else { SaveFormat::Text };
    tidemill_feed::save(&args.output, &table.v4, &table.v6, &table.labels, format)?;
    eprintln!(
        "tidemill: {}: {} IPv4 and {} IPv6 prefixes, {} next hops, {:.1} s",
        args.output.display(),
        table.v4.len(),
        table.v6.len(),
        args.next_hops,
        start.elapsed().as_secs_f64()
    );
    if args.verbose {
        [shape(&table.v4), shape(&table.v6)].iter().filter(|shape| shape.prefixes > 0).for_each(describe);
    }
    Ok(true)
}

fn describe(shape: &Shape) {
    let percent = |part: u64| 100.0 * part as f64 / shape.prefixes as f64;
    eprintln!(
        "  IPv{}: {} prefixes, {:.1} % nested (depth {}), {} labels, {:.1} % as the one before, {} ranges",
        shape.family,
        shape.prefixes,
        percent(shape.nested),
        shape.max_depth,
        shape.labels,
        percent(shape.label_repeats),
        shape.ranges
    );
    let mut lengths: Vec<(usize, u64)> = shape.by_length.iter().copied().enumerate().collect();
    lengths.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let most = lengths.iter().filter(|(_, count)| *count > 0).take(6);
    let text: Vec<String> = most.map(|&(len, count)| format!("/{len} {:.1} %", percent(count))).collect();
    eprintln!("  most frequent lengths: {}", text.join(", "));
}
