//! Part 1, the spine: forward a real capture by a real full table.

use super::{Line, Machine, Outcome, verdict};
use crate::{fuzz, record, test, tidy};
use anyhow::{Context, Result};
use serde_json::Value;
use std::time::Instant;

pub(crate) const LINES: &[Line] = &[
    ("the README's first command", readme),
    ("real captures, malformed packets", captures),
    ("real tables", tables),
    ("fib verify, all of IPv4", all),
    ("fib verify, IPv6", |machine| sample(machine, V6, "4000000")),
    ("small tables with interleaved updates", small_tables),
    ("bench lpm, IPv4", |machine| bench_lpm(machine, V4)),
    ("bench lpm, IPv6", |machine| bench_lpm(machine, V6)),
    ("DXR against rte_fib with 2-byte next hops", ratio),
    ("null - route - null", port),
    ("no allocation on the data path", allocation),
    ("corrupt files", corrupt),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
    ("fuzzing", fuzzing),
];

const V4: &str = record::TABLES[0];
const V6: &str = record::TABLES[1];

/// Null to route to null, 64-byte packets, full table, one core.
const LEAST_MPPS: f64 = 15.0;

/// All of IPv4 on two cores.
const MOST_VERIFY_SECONDS: f64 = 300.0;

/// Random and adversarial tables, each with interleaved updates.
const SMALL_TABLES: &str = "100000";

/// The path of a table of the real data.
fn table(machine: &Machine, name: &str) -> Result<String> {
    Ok(machine.data()?.join("rib").join(name).to_string_lossy().into_owned())
}

fn readme(_: &Machine) -> Result<Outcome> {
    let totals = test::examples_tier()?;
    Ok(verdict(totals.failed + totals.skipped == 0, totals.to_string()))
}

/// Real captures through `tidemill run`, each next hop against the oracle.
fn captures(machine: &Machine) -> Result<Outcome> {
    machine.data()?;
    let passed = machine
        .tests(&["--release", "-p", "tidemill-cli", "--test", "real_data_run", "--", "--show-output"], 2)?;
    Ok(Outcome::Pass(format!("{passed} tests")))
}

/// The counts of every table, capture and update file of the data.
fn tables(machine: &Machine) -> Result<Outcome> {
    machine.data()?;
    let totals = test::real_tier()?;
    Ok(verdict(totals.failed + totals.skipped == 0 && totals.passed > 0, totals.to_string()))
}

/// Both ends of every interval, which are always checked, and random addresses.
fn sample(machine: &Machine, name: &str, count: &str) -> Result<Outcome> {
    let file = table(machine, name)?;
    verification(&machine.tidemill(&["fib", "verify", "--table", &file, "--sample", count, "--json"])?)
}

fn all(machine: &Machine) -> Result<Outcome> {
    if machine.quick {
        return Ok(match sample(machine, V4, "4000000")? {
            Outcome::Pass(text) => Outcome::Measured(format!("a sample only (--quick), right: {text}")),
            other => other,
        });
    }
    let file = table(machine, V4)?;
    let start = Instant::now();
    let objects = machine.tidemill(&["fib", "verify", "--table", &file, "--all", "--json"])?;
    let seconds = start.elapsed().as_secs_f64();
    match verification(&objects)? {
        Outcome::Pass(text) => {
            Ok(verdict(seconds <= MOST_VERIFY_SECONDS, format!("{text}, {seconds:.0} s in all")))
        }
        other => Ok(other),
    }
}

/// Judges the last line of a verification.
fn verification(objects: &[Value]) -> Result<Outcome> {
    let last = objects
        .iter()
        .rev()
        .find(|object| !object["checked"].is_null())
        .context("no line with \"checked\"")?;
    let (checked, wrong) = (last["checked"].as_u64().unwrap_or(0), last["wrong"].as_u64());
    Ok(verdict(checked > 0 && wrong == Some(0), last.to_string()))
}

fn small_tables(machine: &Machine) -> Result<Outcome> {
    let count = if machine.quick { "2000" } else { SMALL_TABLES };
    Ok(match verification(&machine.tidemill(&["fib", "verify", "--suite", count, "--json"])?)? {
        Outcome::Pass(text) => Outcome::Pass(format!("{count} tables: {text}")),
        other => other,
    })
}

fn bench_lpm(machine: &Machine, name: &str) -> Result<Outcome> {
    let file = table(machine, name)?;
    let objects = machine.tidemill(&["bench", "lpm", "--table", &file, "--json"])?;
    let shown: Vec<String> = objects.iter().filter_map(measurement).collect();
    if shown.is_empty() {
        return Ok(Outcome::Fail("no measurement was printed".to_owned()));
    }
    Ok(Outcome::Measured(shown.join("; ")))
}

/// `subject case metric value`.
fn measurement(object: &Value) -> Option<String> {
    let value = object["value"].as_f64()?;
    let text = |field: &str| object[field].as_str().unwrap_or("-").to_owned();
    Some(format!("{} {} {} {value:.4}", text("subject"), text("case"), text("metric")))
}

fn ratio(machine: &Machine) -> Result<Outcome> {
    let file = table(machine, V4)?;
    let mut arguments = vec!["lpm", "--table", &file, "--json", "--only", "rte_fib-2b"];
    if machine.quick {
        arguments.push("--quick");
    }
    let objects = machine.peers(&arguments)?;
    let ratios: Vec<&Value> =
        objects.iter().filter(|o| o["metric"] == "ratio" && o["case"] == "rnd").collect();
    let shown: Vec<String> = ratios
        .iter()
        .map(|r| {
            let number = |field: &str| r[field].as_f64().unwrap_or(0.0);
            let (value, low, high) = (number("value"), number("low"), number("high"));
            format!("{} to {}: {value:.2} ({low:.2} to {high:.2})", r["of"], r["to"])
        })
        .collect();
    let ahead = ratios.iter().all(|ratio| ratio["low"].as_f64().is_some_and(|low| low > 1.0));
    Ok(verdict(ahead && !ratios.is_empty(), shown.join("; ")))
}

fn port(machine: &Machine) -> Result<Outcome> {
    let file = table(machine, V4)?;
    let objects = machine.tidemill(&["bench", "port", "null", "--table", &file, "--size", "64", "--json"])?;
    let rates = objects.iter().filter(|object| object["metric"] == "mpps" && object["case"] == "route");
    let best = rates.filter_map(|object| object["value"].as_f64()).fold(0.0, f64::max);
    Ok(verdict(best >= LEAST_MPPS, format!("{best:.1} Mpps on one core, at least {LEAST_MPPS}")))
}

fn allocation(machine: &Machine) -> Result<Outcome> {
    let passed = machine.tests(&["-p", "tidemill-router", "--test", "no_allocation"], 1)?;
    Ok(Outcome::Pass(format!("{passed} tests with a counting allocator")))
}

/// Where corrupt files are handed in: package, test file, part of the tests' names (empty: all of them), how many there
/// are at least.
const CORRUPT: &[(&str, &str, &str, usize)] = &[
    ("tidemill-cli", "run_commands", "corrupt", 2),
    ("tidemill-feed", "wrong_input", "", 5),
    ("tidemill-archive", "archive", "corrupt", 1),
    ("tidemill-port", "captures", "cut", 2),
    ("tidemill-port", "captures", "faults", 1),
];

fn corrupt(machine: &Machine) -> Result<Outcome> {
    let mut passed = 0;
    for (package, file, filter, least) in CORRUPT {
        passed += machine.tests(&["-p", package, "--test", file, "--", filter], *least)?;
    }
    Ok(Outcome::Pass(format!("{passed} tests on corrupt captures, tables, MRT files, configurations")))
}

fn fuzzing(machine: &Machine) -> Result<Outcome> {
    let seconds = if machine.quick { 10 } else { 300 };
    let totals = fuzz::all(seconds)?;
    Ok(verdict(totals.failed == 0 && totals.passed > 0, format!("{totals}, {seconds} s per target")))
}
