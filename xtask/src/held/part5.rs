//! Part 5, every longest-prefix matching structure of the papers.

use super::{Line, Machine, Outcome, verdict};
use crate::tidy;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("a sample of a table of each family, every structure", |machine| {
        verified(machine, &[V4, V6], &["--sample", "1000000"])
    }),
    ("every address of an IPv4 table, every structure", |machine| {
        let extent: &[&str] =
            if machine.quick { &["--sample", "100000"] } else { &["--all", "--sample", "0"] };
        verified(machine, &[V4], extent)
    }),
    ("interleavings", interleavings),
    ("figures", figures),
    ("SAIL: accesses, bounds, virtual pushing", |machine| {
        tests(machine, "SAIL", &["-p", "tidemill-lpm", "--lib", "sail"], 10)
    }),
    ("SAIL: accesses per real update", |machine| {
        tests(machine, "real updates", &["--release", "-p", "tidemill-lpm", "--test", "real_sail"], 1)
    }),
    ("filters: false positives, nothing lost at load 0.95", |machine| {
        tests(machine, "filters", &["-p", "tidemill-lpm", "--lib", "cuvpp"], 5)
    }),
    // What must exist besides.
    ("the suite", |machine| tests(machine, "the suite", &["-p", "tidemill-lpm", "--test", "suite"], 100)),
    ("the probe, readers beside a writer", |machine| {
        let both = ["-p", "tidemill-lpm", "--test", "registry", "--test", "concurrent"];
        tests(machine, "every structure", &both, 4)
    }),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

const V4: &str = "ris-as3333-20260511.v4.nh148.zst";
const V6: &str = "ris-as3333-20260511.v6.nh148.zst";
const UPDATES: &str = "ris-as3333-20260511.v4.updates.zst";

/// The figures that must be there.
const FIGURES: [&str; 35] = [
    "zec-3.1t", "zec-3.2t", "zec-3.9", "zec-3.11", "zec-3.13", "zec-3.15", "zec-3.16", "zec-3.17",
    "zec-3.18", "zec-4.2", "zec-4.3", "zec-4.4", "zec-4.5", "zec-4.6", "zec-4.7", "zec-4.8", "fu-3.2t",
    "fu-3.4t", "fu-3.5t", "fu-3.7", "fu-3.8", "fu-3.9", "fu-3.10", "fu-3.11", "fu-3.12", "fu-3.13",
    "fu-3.16", "fu-3.17", "cuvpp-1t", "cuvpp-2t", "cuvpp-3t", "cuvpp-6", "cuvpp-7", "cuvpp-10", "cuvpp-12",
];

fn table(machine: &Machine, name: &str) -> Result<String> {
    Ok(machine.data()?.join("rib").join(name).to_string_lossy().into_owned())
}

/// The last line says how many answers were compared, and how many were wrong.
fn nothing_wrong(objects: &[Value]) -> Result<(bool, String)> {
    let last =
        objects.iter().rev().find(|object| !object["wrong"].is_null() && object["structure"].is_null());
    let last = last.context("no last line with \"wrong\"")?;
    let some = last["checked"].as_u64().is_some_and(|count| count > 0);
    Ok((some && last["wrong"].as_u64() == Some(0), last.to_string()))
}

fn verified(machine: &Machine, tables: &[&str], extent: &[&str]) -> Result<Outcome> {
    let files = tables.iter().map(|name| table(machine, name)).collect::<Result<Vec<_>>>()?;
    let mut arguments = vec!["fib", "verify", "--algorithm", "all", "--json"];
    files.iter().for_each(|file| arguments.extend(["--table", file]));
    arguments.extend(extent);
    let objects = machine.tidemill(&arguments)?;
    let structures = objects.iter().filter(|object| !object["structure"].is_null()).count();
    let (good, last) = nothing_wrong(&objects)?;
    Ok(verdict(good, format!("{structures} structures: {last}")))
}

/// Batches of changes after which answers are compared, of each structure: all, and in a quick run.
const LEAST_STATES: (u64, u64) = (100_000, 10_000);

fn interleavings(machine: &Machine) -> Result<Outcome> {
    // A table brings 6 batches, of 10 changes each, in the mean; a sixth of the tables has labels that some structures refuse. Those of DIR-24-8 and
    // SAIL are 30 to 70 MB each.
    let (tables, least) = if machine.quick { ("2500", LEAST_STATES.1) } else { ("25000", LEAST_STATES.0) };
    let objects = machine.tidemill(&["fib", "verify", "--suite", tables, "--algorithm", "all", "--json"])?;
    let structures: Vec<&Value> = objects.iter().filter(|object| !object["structure"].is_null()).collect();
    let fewest =
        |what: &str| structures.iter().map(|line| line[what].as_u64().unwrap_or(0)).min().unwrap_or(0);
    let (states, changes) = (fewest("states"), fewest("changes"));
    let (good, last) = nothing_wrong(&objects)?;
    let text = format!(
        "{} structures, each compared after {states} batches of {changes} changes at least (wanted {least}): {last}",
        structures.len()
    );
    Ok(verdict(good && states >= least, text))
}

fn figures(machine: &Machine) -> Result<Outcome> {
    let (mut good, mut text) = (true, Vec::new());
    let (v4, v6) = (table(machine, V4)?, table(machine, V6)?);
    let stream = table(machine, UPDATES)?;
    let plot = std::env::temp_dir().join(format!("tidemill-held-{}.svg", std::process::id()));
    let plot = plot.to_string_lossy().into_owned();
    for name in FIGURES {
        let mut arguments = vec!["bench", "lpm", "--figure", name, "--json"];
        match name {
            // These make their own tables, of the shapes that the paper names.
            _ if name.starts_with("cuvpp") => {}
            "fu-3.5t" | "fu-3.16" | "fu-3.17" => arguments.extend(["--table", &v6]),
            "fu-3.11" => arguments.extend(["--table", &v4, "--updates", &stream]),
            _ => arguments.extend(["--table", &v4]),
        }
        if machine.quick {
            arguments.extend(["--seconds", "0.02", "--runs", "3"]);
        }
        arguments.extend(["--plot", &plot]);
        let drawn = machine.tidemill(&arguments).and_then(|objects| {
            drawing(&plot)?;
            Ok(objects.iter().filter(|object| object["figure"] == name).count())
        });
        let points = drawn.unwrap_or_else(|error| {
            text.push(format!("{name}: {error:#}"));
            0
        });
        good &= points > 0;
        if points > 0 {
            text.push(format!("{name} {points}"));
        }
    }
    Ok(verdict(good, text.join(", ")))
}

/// The file is a whole drawing, without a place that is no number; it is taken away.
fn drawing(file: &str) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| file.to_owned())?;
    std::fs::remove_file(file).with_context(|| file.to_owned())?;
    let whole = text.starts_with("<svg ") && text.trim_end().ends_with("</svg>");
    ensure!(whole && !text.contains("NaN") && !text.contains("\"inf"), "no drawing, or not a whole one");
    Ok(())
}

fn tests(machine: &Machine, what: &str, arguments: &[&str], least: usize) -> Result<Outcome> {
    let passed = machine.tests(arguments, least)?;
    Ok(Outcome::Pass(format!("{what}: {passed} tests")))
}
