//! `fib diff`: the differences from one table to another, by address.

use crate::json;
use crate::tables::LoadArgs;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use tidemill_feed::{Difference, Labels, LoadedTable, NextHopName};
use tidemill_lpm::{Address, Label, Rib};

/// Arguments of `fib diff`.
#[derive(Args)]
#[command(
    after_help = "Output: `+ prefix name` (only B has it), `- prefix name` (only A), `~ prefix old -> new`.\n\
    Next hops are compared by name.\n\n\
    Examples:\n  tidemill fib diff yesterday.zst today.zst\n  tidemill fib diff --exit-code a.txt b.txt"
)]
pub(crate) struct Diff {
    /// The first table
    a: PathBuf,
    /// The second table
    b: PathBuf,
    /// One JSON object per difference, then the counts
    #[arg(long)]
    json: bool,
    /// Exit with 1 if the tables differ
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    load: LoadArgs,
}

#[derive(Default, Serialize)]
struct Summary {
    v: u8,
    added: u64,
    removed: u64,
    changed: u64,
    same: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    v: u8,
    difference: &'static str,
    prefix: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<&'a str>,
}

pub(super) fn run(args: &Diff) -> Result<bool> {
    if args.exit_code {
        crate::usage::to_the_end();
    }
    let (a, b) = (args.load.load(&args.a)?, args.load.load(&args.b)?);
    let mut out = BufWriter::new(crate::usage::out());
    let mut summary = Summary { v: json::VERSION, ..Summary::default() };
    compare(args, (&a, &a.v4), (&b, &b.v4), &mut summary, &mut out)?;
    compare(args, (&a, &a.v6), (&b, &b.v6), &mut summary, &mut out)?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&summary)?)?;
    } else {
        let Summary { added, removed, changed, same, .. } = summary;
        writeln!(out, "{added} added, {removed} removed, {changed} changed, {same} the same")?;
    }
    out.flush()?;
    let differ = summary.added + summary.removed + summary.changed > 0;
    Ok(!(args.exit_code && differ))
}

fn compare<A: Address>(
    args: &Diff,
    (a, a_rib): (&LoadedTable, &Rib<A>),
    (b, b_rib): (&LoadedTable, &Rib<A>),
    summary: &mut Summary,
    out: &mut impl Write,
) -> Result<()> {
    let name = |labels: &Labels, label: Label| {
        labels.name(label).map_or_else(|| label.0.to_string(), NextHopName::to_string)
    };
    let same = |x: Label, y: Label| match (a.labels.name(x), b.labels.name(y)) {
        (Some(x), Some(y)) => x == y,
        _ => x == y,
    };
    let mut of_a = 0;
    for difference in tidemill_feed::diff(a_rib, b_rib, same) {
        let (kind, sign, prefix, old, new) = match difference {
            Difference::Added(prefix, new) => ("added", '+', prefix, None, Some(name(&b.labels, new))),
            Difference::Removed(prefix, old) => ("removed", '-', prefix, Some(name(&a.labels, old)), None),
            Difference::Changed(prefix, old, new) => {
                ("changed", '~', prefix, Some(name(&a.labels, old)), Some(name(&b.labels, new)))
            }
        };
        match kind {
            "added" => summary.added += 1,
            "removed" => summary.removed += 1,
            _ => summary.changed += 1,
        }
        of_a += u64::from(old.is_some());
        if args.json {
            let prefix = prefix.to_string();
            let line =
                Line { v: json::VERSION, difference: kind, prefix, old: old.as_deref(), new: new.as_deref() };
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
            continue;
        }
        match (old, new) {
            (Some(old), Some(new)) => writeln!(out, "{sign} {prefix} {old} -> {new}")?,
            (Some(one), None) | (None, Some(one)) => writeln!(out, "{sign} {prefix} {one}")?,
            (None, None) => {}
        }
    }
    summary.same += a_rib.len() as u64 - of_a;
    Ok(())
}
