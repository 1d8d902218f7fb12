//! Part 12, the virtual switch: rules against the oracle, HALO's traffic cases, rte_acl, a flood of megaflows.

use super::{Line, Machine, Outcome, number, ratios, shown, verdict};
use crate::tidy;
use anyhow::{Context as _, Result};
use serde_json::Value;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("rule sets and traces against the oracle and the traces' first matches", verified),
    ("no packet is decided by a stale or wrong rule: random rules, random changes", |machine| {
        let passed = machine.tests(&["-p", "tidemill-classify", "--test", "suite"], 30)?;
        Ok(Outcome::Pass(format!("{passed} tests: suite")))
    }),
    ("readers beside a writer", |machine| {
        let passed = machine.tests(&["-p", "tidemill-classify", "--test", "concurrent"], 1)?;
        Ok(Outcome::Pass(format!("{passed} tests: concurrent")))
    }),
    ("HALO's five traffic cases by layer", traffic),
    ("the caches beside HALO's baseline", |machine| {
        let objects = bench(machine, &["--case", "caches"])?;
        Ok(Outcome::Measured(of_all(&objects)))
    }),
    ("Open vSwitch on HALO's traffic cases: half its cycles of a packet, in each", open_vswitch),
    ("rte_acl on ClassBench sets: at least its lookups, ten times its changes", acl),
    ("a flood of megaflows: at most 3 times slower, bounded memory, over within a second", flood),
    // What must exist besides.
    ("several workers", |machine| {
        let passed = machine.tests(&["-p", "tidemill-switch", "--test", "switch", "workers"], 1)?;
        Ok(Outcome::Pass(format!("{passed} tests: workers")))
    }),
    ("the packet path allocates nothing", |machine| {
        let passed = machine.tests(&["-p", "tidemill-classify", "--test", "no_allocation"], 2)?;
        Ok(Outcome::Pass(format!("{passed} tests: no_allocation")))
    }),
    ("any text of rules, any packet", |machine| {
        let seconds = if machine.quick { "20" } else { "300" };
        let targets = ["classify_flows", "classify_text", "classify_packet"];
        let said: Result<Vec<String>> = targets
            .iter()
            .map(|target| machine.said(&["fuzz", "--target", target, "--seconds", seconds]))
            .collect();
        Ok(Outcome::Pass(said?.join("; ")))
    }),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

/// Sets that a quick run takes, and those that all take.
const QUICK: [&str; 3] = ["wustl-acl1", "wustl-fw1", "wustl-ipc1"];
const ALL: [&str; 6] =
    ["wustl-acl1", "wustl-fw1", "wustl-ipc1", "wustl-acl1_10K", "wustl-fw1_10K", "wustl-ipc1_10K"];

fn sets(machine: &Machine) -> Result<Vec<String>> {
    let names: &[&str] = if machine.quick { &QUICK } else { &ALL };
    let folder = machine.data()?.join("acl");
    Ok(names.iter().map(|name| folder.join(format!("{name}.rules.zst")).display().to_string()).collect())
}

fn verified(machine: &Machine) -> Result<Outcome> {
    let mut checked = 0.0;
    let mut run = |arguments: &[&str]| -> Result<f64> {
        let objects = machine.tidemill(&[&["classify", "verify", "--json"], arguments].concat())?;
        let last = objects.last().context("nothing said")?;
        checked += number(last, "checked");
        Ok(number(last, "wrong"))
    };
    let mut wrong = 0.0;
    if machine.quick {
        for rules in sets(machine)? {
            let trace = rules.replace(".rules.", ".trace.");
            wrong += run(&["--rules", &rules, "--trace", &trace])?;
        }
    } else {
        let folder = machine.data()?.join("acl").display().to_string();
        wrong += run(&["--data", &folder])?;
    }
    Ok(verdict(wrong == 0.0 && checked > 0.0, format!("{checked} checked, {wrong} wrong")))
}

fn bench(machine: &Machine, arguments: &[&str]) -> Result<Vec<Value>> {
    let extent: &[&str] = if machine.quick {
        &["--quick", "--seconds", "0.2", "--json"]
    } else {
        &["--seconds", "1", "--json"]
    };
    machine.tidemill(&[&["bench", "classify"], arguments, extent].concat())
}

fn of_all(objects: &[Value]) -> String {
    let one = |ratio: &&Value| format!("{} {}", ratio["case"].as_str().unwrap_or("?"), shown(ratio));
    ratios(objects).iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Cycles of a packet and its layers.
fn traffic(machine: &Machine) -> Result<Outcome> {
    let objects = bench(machine, &["--case", "traffic"])?;
    let of = |line: &&Value| line["subject"] == "switch" && line["metric"] == "cycles_per_packet";
    let one = |line: &Value| {
        format!("{} {:.0} cycles", line["case"].as_str().unwrap_or("?"), number(line, "value"))
    };
    let cases: Vec<String> = objects.iter().filter(of).map(one).collect();
    anyhow::ensure!(cases.len() == 5, "{} cases", cases.len());
    Ok(Outcome::Measured(cases.join(", ")))
}

fn open_vswitch(machine: &Machine) -> Result<Outcome> {
    let extent: &[&str] = if machine.quick { &["--quick"] } else { &[] };
    let objects = machine.xtask(&[&["peers", "classify", "--only", "ovs", "--json"], extent].concat())?;
    // As for rte_acl below: beyond the interval only.
    let good = ratios(&objects).into_iter().all(|ratio| number(ratio, "high") >= 2.0);
    Ok(verdict(good && ratios(&objects).len() >= 5, of_all(&objects)))
}

fn acl(machine: &Machine) -> Result<Outcome> {
    let sets = sets(machine)?.join(",");
    let extent: &[&str] = if machine.quick { &["--quick"] } else { &[] };
    let objects = machine.xtask(
        &[&["peers", "classify", "--rules", &sets, "--only", "avx512x32", "--json"], extent].concat(),
    )?;
    // On a shared machine a bound that lies within the interval is met or not by luck: only beyond it is it missed.
    let good = ratios(&objects).into_iter().all(|ratio| {
        let least =
            if ratio["case"].as_str().is_some_and(|case| case.ends_with("update")) { 10.0 } else { 1.0 };
        number(ratio, "high") >= least
    });
    Ok(verdict(good && !ratios(&objects).is_empty(), of_all(&objects)))
}

fn flood(machine: &Machine) -> Result<Outcome> {
    let objects = bench(machine, &["--case", "flood"])?;
    let value = |case: &str, metric: &str| {
        let found = objects.iter().find(|line| line["case"] == case && line["metric"] == metric);
        found.map_or(f64::NAN, |line| number(line, "value"))
    };
    let (mut good, mut said) = (true, Vec::new());
    for case in ["flood/100", "flood/50"] {
        let [slower, recovery, mib] =
            ["slower", "recovery_ms", "memory_mib"].map(|metric| value(case, metric));
        // All memory is there from the start; what a process takes otherwise is less than that.
        good &= slower <= 3.0 && recovery <= 1000.0 && mib <= 16.0;
        said.push(format!("{case}: {slower:.2} times slower, {recovery:.0} ms, {mib:.1} MiB more"));
    }
    Ok(verdict(good, said.join("; ")))
}
