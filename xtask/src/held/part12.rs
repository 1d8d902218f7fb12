//! Part 12, the virtual switch: rules against the oracle, HALO's traffic cases, rte_acl, a flood of megaflows.

use super::{Line, Machine, Outcome, number, ratios, shown, verdict};
use crate::peers::classify::SETS;
use crate::tidy;
use anyhow::{Context as _, Result};
use serde_json::Value;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("rule sets and traces against the oracle and the traces' first matches", verified),
    ("no packet is decided by a stale or wrong rule: random rules, random changes", |machine| {
        let passed = machine.tests(&["-p", "tidemill-classify", "--test", "suite"], 40)?;
        Ok(Outcome::Pass(format!("{passed} tests: suite")))
    }),
    (
        "the same by seeds that nobody has chosen: 5 minutes, with --quick 20 seconds; TIDEMILL_SEED=N begins with that one",
        |machine| {
            let name = if machine.quick { "random_for_seconds" } else { "random_for_minutes" };
            let suite = ["-p", "tidemill-classify", "--release", "--test", "suite", "--", "--ignored", name];
            let (_, said) = machine.tests_said(&suite, 1)?;
            let cases = said.lines().find(|line| line.contains(" cases from seed ")).context("no cases")?;
            Ok(Outcome::Pass(cases.to_owned()))
        },
    ),
    ("readers beside a writer", |machine| {
        let passed = machine.tests(&["-p", "tidemill-classify", "--test", "concurrent"], 1)?;
        Ok(Outcome::Pass(format!("{passed} tests: concurrent")))
    }),
    ("HALO's five traffic cases by layer", traffic),
    ("the caches beside HALO's baseline", |machine| {
        let objects = bench(machine, &["--case", "caches"])?;
        Ok(Outcome::Measured(of_all(&objects)))
    }),
    ("HALO's Table 1 by callgrind", |machine| {
        let objects = machine.xtask(&["callgrind", "--json"])?;
        let of = |line: &&Value| line["subject"] == "tidemill";
        let one = |line: &Value| {
            let memory = number(line, "loads_percent") + number(line, "stores_percent");
            let instructions = number(line, "instructions");
            format!("{} {instructions:.0} ({memory:.0} % memory)", line["case"].as_str().unwrap_or("?"))
        };
        let kinds: Vec<String> = objects.iter().filter(of).map(one).collect();
        anyhow::ensure!(kinds.len() == 9, "{} kinds", kinds.len());
        Ok(Outcome::Measured(format!(
            "instructions of a lookup (the paper: 210, 48 %): {}",
            kinds.join(", ")
        )))
    }),
    ("Open vSwitch on HALO's traffic cases: half its cycles of a packet, in each", open_vswitch),
    ("rte_acl on ClassBench sets: at least its lookups, ten times its changes", |machine| {
        acl(machine, false)
    }),
    (
        "rte_acl on sets of 100,000 rules: at least its lookups, ten times its changes (not with --quick)",
        |machine| acl(machine, true),
    ),
    ("a flood of megaflows: at most 3 times slower, bounded memory, over within a second", flood),
    // What must exist besides.
    ("several workers", |machine| {
        let passed = machine.tests(&["-p", "tidemill-switch", "--test", "switch", "workers"], 1)?;
        Ok(Outcome::Pass(format!("{passed} tests: workers")))
    }),
    (
        "the role: bridge, VLANs, stations; rules live, mistakes by line and column, packets traced; the commands",
        |machine| {
            let mut passed = machine.tests(&["-p", "tidemill-switch"], 25)?;
            let commands = ["-p", "tidemill-cli", "--test", "switch_commands", "--test", "classify_commands"];
            passed += machine.tests(&commands, 6)?;
            Ok(Outcome::Pass(format!("{passed} tests: tidemill-switch, switch_commands, classify_commands")))
        },
    ),
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

/// Of the sets in their order: those that a quick run takes, and those before the ones of 100,000 rules.
const QUICK: usize = 3;
const SMALL: usize = 6;

fn sets(machine: &Machine, large: bool) -> Result<Vec<String>> {
    let names = match (large, machine.quick) {
        (true, _) => &SETS[SMALL..],
        (false, true) => &SETS[..QUICK],
        (false, false) => &SETS[..SMALL],
    };
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
        for rules in sets(machine, false)? {
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
    // What was measured counts; how sure that is, the interval beside it says.
    let good = ratios(&objects).into_iter().all(|ratio| number(ratio, "value") >= 2.0);
    let cases =
        ["traffic/few", "traffic/many-1", "traffic/many-10", "traffic/rules-100k", "traffic/rules-1M"];
    let all = cases.into_iter().all(|case| ratios(&objects).into_iter().any(|ratio| ratio["case"] == case));
    Ok(verdict(good && all, of_all(&objects)))
}

/// By whichever of its methods this CPU has: every one of them has to be met.
fn acl(machine: &Machine, large: bool) -> Result<Outcome> {
    if large && machine.quick {
        return Ok(Outcome::Measured("not with --quick".into()));
    }
    let sets = sets(machine, large)?.join(",");
    let extent: &[&str] = if machine.quick { &["--quick"] } else { &[] };
    let objects = machine
        .xtask(&[&["peers", "classify", "--rules", &sets, "--only", "rte_acl", "--json"], extent].concat())?;
    let good = ratios(&objects).into_iter().all(|ratio| {
        let least =
            if ratio["case"].as_str().is_some_and(|case| case.ends_with("update")) { 10.0 } else { 1.0 };
        number(ratio, "value") >= least
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
    for case in ["flood/100", "flood/50", "flood/100/rules-100k", "flood/50/rules-100k"] {
        let [slower, recovery, mib] =
            ["slower", "recovery_ms", "memory_mib"].map(|metric| value(case, metric));
        // All memory is there from the start; what a process takes otherwise is less than that.
        good &= slower <= 3.0 && recovery <= 1000.0 && mib <= 16.0;
        said.push(format!("{case}: {slower:.2} times slower, {recovery:.0} ms, {mib:.1} MiB more"));
    }
    Ok(verdict(good, said.join("; ")))
}
