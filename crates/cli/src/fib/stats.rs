//! `fib stats`: the shape of a table, and the size of the structures built from it.

use crate::json::{self, Params, significant};
use crate::tables::{AlgorithmArgs, TableArgs};
use anyhow::Result;
use clap::Args;
use comfy_table::{CellAlignment, Table as Grid, presets};
use serde::Serialize;
use std::time::Instant;
use tidemill_feed::{Shape, shape};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Algorithm, BuildError, Family, Rib};

/// Arguments of `fib stats`.
#[derive(Args)]
#[command(after_help = "Examples:\n  tidemill fib stats --table rib.zst\n  \
    tidemill fib stats --table v4.zst --table v6.zst --algorithm all --json")]
pub(crate) struct Stats {
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    structures: AlgorithmArgs,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// A table of one family, as JSON.
#[derive(Serialize)]
struct TableLine<'a> {
    v: u8,
    table: &'a str,
    next_hops: usize,
    #[serde(flatten)]
    shape: &'a Shape,
}

/// A structure built from it.
#[derive(Serialize)]
struct StructureLine {
    v: u8,
    family: u8,
    structure: String,
    /// Null if it cannot hold the table; `error` says why.
    bytes: Option<usize>,
    bytes_per_prefix: Option<f64>,
    build_ms: Option<f64>,
    /// The structure's own figures.
    details: Params,
    error: Option<String>,
}

pub(super) fn run(args: &Stats) -> Result<bool> {
    let start = Instant::now();
    let table = args.table.load()?;
    let chosen = args.structures.choose(&table)?;
    super::say_what_is_left_out(&args.table, &table, &chosen);
    eprintln!("tidemill: {}: loaded in {:.2} s", args.table.name(), start.elapsed().as_secs_f64());
    let mut built = true;
    if !chosen.v4.is_empty() || !table.v4.is_empty() {
        built &= family(args, &table.v4, &chosen.v4, table.labels.len())?;
    }
    if !table.v6.is_empty() {
        built &= family(args, &table.v6, &chosen.v6, table.labels.len())?;
    }
    Ok(built)
}

fn family<A: Family>(args: &Stats, rib: &Rib<A>, chosen: &[Algorithm], next_hops: usize) -> Result<bool> {
    let shape = shape(rib);
    let name = args.table.name();
    if args.json {
        json::print(&TableLine { v: json::VERSION, table: &name, next_hops, shape: &shape })?;
    } else {
        print_shape(&name, &shape);
    }
    // An algorithm that cannot hold the table is a finding where all were asked for, and a failure where it was named.
    let named = !args.structures.any();
    let mut lines = Vec::new();
    for algorithm in chosen {
        let line = match build(algorithm, rib) {
            Ok(line) => line,
            Err(error) if named => return Err(error.into()),
            Err(error) => StructureLine {
                v: json::VERSION,
                family: A::FAMILY,
                structure: algorithm.to_string(),
                bytes: None,
                bytes_per_prefix: None,
                build_ms: None,
                details: Params::new(),
                error: Some(error.to_string()),
            },
        };
        if args.json {
            json::print(&line)?;
        }
        lines.push(line);
    }
    if !args.json {
        print_structures(&lines);
    }
    Ok(true)
}

fn build<A: Family>(algorithm: &Algorithm, rib: &Rib<A>) -> Result<StructureLine, BuildError> {
    let start = Instant::now();
    let writer = algorithm.writer(rib, &Domain::new())?;
    let build_ms = start.elapsed().as_secs_f64() * 1e3;
    let fib = writer.fib();
    Ok(StructureLine {
        v: json::VERSION,
        family: A::FAMILY,
        structure: fib.name(),
        bytes: Some(fib.bytes()),
        bytes_per_prefix: Some(significant(fib.bytes() as f64 / rib.len().max(1) as f64)),
        build_ms: Some(significant(build_ms)),
        details: fib.details().into_iter().map(|(name, value)| (name.into(), exact(value))).collect(),
        error: None,
    })
}

/// Counts and bytes as they are, shares to six digits.
fn exact(value: f64) -> serde_json::Value {
    if value.fract() == 0.0 && value.abs() < 2_f64.powi(53) {
        return (value as i64).into();
    }
    significant(value).into()
}

fn print_shape(name: &str, shape: &Shape) {
    let percent = |part: u64| 100.0 * part as f64 / shape.prefixes.max(1) as f64;
    println!("{name}, IPv{}", shape.family);
    println!("  prefixes      {}", shape.prefixes);
    println!(
        "  nested        {} ({:.1} %), {} deep at most, {} of them with the next hop around them",
        shape.nested,
        percent(shape.nested),
        shape.max_depth,
        shape.redundant
    );
    println!(
        "  next hops     {}; {:.1} % of the prefixes have that of the one before",
        shape.labels,
        percent(shape.label_repeats)
    );
    println!("  ranges        {} disjoint, neighbours merged", shape.ranges);
    for block in &shape.blocks {
        let mean = block.split_ranges as f64 / block.split.max(1) as f64;
        println!(
            "  in /{:<2} blocks {} used, {} with several ranges, {mean:.1} ranges in each of those",
            block.len, block.used, block.split
        );
    }
    println!("  by length");
    for (len, &count) in shape.by_length.iter().enumerate().filter(|&(_, &count)| count > 0) {
        println!("    /{len:<3} {count:>9} {:>5.1} %", percent(count));
    }
}

fn print_structures(lines: &[StructureLine]) {
    if lines.is_empty() {
        return;
    }
    let mut grid = Grid::new();
    grid.load_style(presets::NOTHING);
    grid.set_header(["structure", "bytes", "bytes/prefix", "build ms", ""]);
    for line in lines {
        grid.add_row([
            line.structure.clone(),
            line.bytes.map_or_else(String::new, |bytes| bytes.to_string()),
            line.bytes_per_prefix.map_or_else(String::new, |bytes| format!("{bytes:.2}")),
            line.build_ms.map_or_else(String::new, |ms| format!("{ms:.0}")),
            line.error.clone().unwrap_or_default(),
        ]);
    }
    for column in grid.column_iter_mut().skip(1).take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{grid}");
    for line in lines.iter().filter(|line| !line.details.is_empty()) {
        let details: Vec<String> =
            line.details.iter().map(|(name, value)| format!("{name} {value}")).collect();
        println!("  {}: {}", line.structure, details.join(", "));
    }
}
