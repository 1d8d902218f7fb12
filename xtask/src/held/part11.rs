//! Part 11, the multi-layer cache: the role, its rates, the simulators.

use super::{Line, Machine, Outcome, number, ratios, shown, verdict};
use crate::tidy;
use anyhow::{Context as _, Result};
use serde_json::Value;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("L0 and L1 over AF_XDP: five times memcached's gets over UDP on one core", role),
    ("the contract, clients that do anything, all tiers at once, a real memcached", |machine| {
        let target = ["-p", "tidemill-cli", "--test", "root_kvcache", "--", "--show-output"];
        let mut passed = machine.tests(&target, 23)?;
        if !machine.quick {
            let long = [
                "-p",
                "tidemill-cli",
                "--release",
                "--test",
                "root_kvcache",
                "--",
                "--show-output",
                "--ignored",
                "ten_million_commands",
            ];
            passed += machine.tests(&long, 1)?;
        }
        Ok(Outcome::Pass(format!("{passed} tests: root_kvcache")))
    }),
    ("the contract with every combination of tiers: L0, L1, both with the kernel's behind", |machine| {
        combinations(machine, "every_combination_whole")
    }),
    ("no answer past its time, with every combination of tiers", |machine| {
        combinations(machine, "every_combination_in_time")
    }),
    ("commands cut anywhere, segments lost and again, with every combination of tiers", |machine| {
        combinations(machine, "every_combination_cut_anywhere")
    }),
    ("never stale, in worlds that are made up; planted faults are found", |machine| {
        Ok(Outcome::Pass(format!(
            "{} tests: tidemill-kvcache",
            machine.tests(&["-p", "tidemill-kvcache"], 66)?
        )))
    }),
    ("on demand, network-side and host-side: windows, both sources, flapping", |machine| {
        let mut passed = machine.tests(&["-p", "tidemill-kvcache", "--test", "never_stale", "flaps"], 2)?;
        passed += machine.tests(&["-p", "tidemill-kvcache", "--lib", "shift::"], 4)?;
        passed += machine.tests(&["-p", "tidemill-kvcache", "--lib", "host"], 19)?;
        passed += machine.tests(&["-p", "tidemill-cli", "--bin", "tidemill", "by_the_host"], 1)?;
        Ok(Outcome::Pass(format!("{passed} tests: shift, host, never_stale")))
    }),
    ("20 M requests a second and core, simple policies", simulated),
    ("figures of chapter 4, with the paper's numbers", |machine| {
        let passed = machine.tests(&["-p", "tidemill-cli", "--test", "sim_lake", "--test", "sim_kv"], 9)?;
        Ok(Outcome::Pass(format!("{passed} tests: sim_lake, sim_kv")))
    }),
    ("3.12 at full size: fewer misses with more ways, but for ETC", eviction),
    ("hits as libCacheSim counts them", |machine| {
        let target = ["-p", "tidemill-cachesim", "--test", "real_libcachesim", "--", "--show-output"];
        Ok(Outcome::Pass(format!("{} tests: real_libcachesim", machine.tests(&target, 3)?)))
    }),
    (
        "in front of Redis: every answer is Redis' own; beside Redis alone, what is kept and what is not",
        redis,
    ),
    // What must exist besides.
    ("the simulators by themselves", |machine| {
        // Without libCacheSim, which has its own line, and needs a Python.
        let target = ["--lib", "--test", "tiers", "--test", "oracle", "--test", "lake", "--test", "logs"];
        let target = [&["-p", "tidemill-cachesim"][..], &target].concat();
        Ok(Outcome::Pass(format!("{} tests: tidemill-cachesim", machine.tests(&target, 30)?)))
    }),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

/// One of the suites that are run with each combination.
fn combinations(machine: &Machine, test: &str) -> Result<Outcome> {
    let target = ["-p", "tidemill-cli", "--test", "root_kvcache", "--", "--show-output", "--ignored", test];
    Ok(Outcome::Pass(format!("{} test: root_kvcache, {test}", machine.tests(&target, 1)?)))
}

fn role(machine: &Machine) -> Result<Outcome> {
    let (runs, seconds) = if machine.quick { ("4", "0.5") } else { ("11", "2") };
    let objects = machine.tidemill(&[
        "bench",
        "kv",
        "--case",
        "role",
        "--runs",
        runs,
        "--seconds",
        seconds,
        "--json",
    ])?;
    let all = ratios(&objects);
    let ratio = all
        .iter()
        .find(|ratio| ratio["to"] == "peer:memcached-udp")
        .context("no ratio to memcached over UDP")?;
    let text: Vec<String> = all.iter().map(|ratio| shown(ratio)).collect();
    Ok(verdict(number(ratio, "value") >= 5.0, text.join("; ")))
}

/// Strings, hashes, sets, lists and sorted sets with Redis behind. No factor is named for them; a wrong answer ends the benchmark, and so do too few hits of what is kept.
fn redis(machine: &Machine) -> Result<Outcome> {
    let (runs, seconds, keys) = if machine.quick { ("3", "0.2", "100000") } else { ("7", "1", "1000000") };
    let more = ["--runs", runs, "--seconds", seconds, "--keys", keys, "--json"];
    let objects = machine.tidemill(&[&["bench", "redis"][..], &more].concat())?;
    let all = ratios(&objects);
    let text = ["single", "pipelined", "latency"].map(|case| {
        let of_case = |ratio: &&Value| {
            let ask = ratio["case"].as_str()?.strip_prefix(case)?.strip_prefix('/')?;
            Some(format!("{ask} {:.2}", number(ratio, "value")))
        };
        format!("{case}: {}", all.iter().filter_map(of_case).collect::<Vec<_>>().join(", "))
    });
    let (text, asked) = (text.join("; "), 7 * 3);
    Ok(match all.len() {
        there if there == asked => Outcome::Measured(format!("to Redis alone, {text}")),
        there => Outcome::Fail(format!("{there} ratios of {asked}: {text}")),
    })
}

/// Figure 3.12 with as many requests as `bench/figures.md` has for the others: of each policy no more misses with eight ways than with two, which is what the paper sees in all but ETC.
fn eviction(machine: &Machine) -> Result<Outcome> {
    let requests = if machine.quick { "400k" } else { "4M" };
    let points =
        machine.tidemill(&["sim", "kv", "--figure", "tok-3.12", "--requests", requests, "--json"])?;
    let of = |model: &str, policy: &str, ways: f64| {
        let unit = format!("percent of gets that L1 misses, {model}");
        let is = |point: &&Value| {
            point["unit"] == *unit && point["series"] == policy && number(point, "x") == ways
        };
        points.iter().find(is).map_or(f64::NAN, |point| number(point, "y"))
    };
    let (mut good, mut text) = (points.len() == 75, Vec::new());
    for model in ["USR", "SYS", "APP", "ETC", "VAR"] {
        for policy in ["random", "lru", "fifo", "clock", "sieve"] {
            let [two, eight] = [2.0, 8.0].map(|ways| of(model, policy, ways));
            good &= if model == "ETC" { eight.is_finite() } else { eight <= two };
            if matches!(policy, "random" | "lru") {
                text.push(format!("{model} {policy} {two:.1} to {eight:.1} %"));
            }
        }
    }
    Ok(verdict(good, text.join(", ")))
}

/// One thread, by a made-up log of the ETC pool's shape.
fn simulated(machine: &Machine) -> Result<Outcome> {
    let requests = if machine.quick { "2000000" } else { "20000000" };
    let objects = machine.tidemill(&[
        "sim",
        "kv",
        "--model",
        "etc",
        "--policy",
        "fifo,clock,random",
        "--entries",
        "2^16",
        "--requests",
        requests,
        "--jobs",
        "1",
        "--json",
    ])?;
    let (mut good, mut text) = (true, Vec::new());
    for policy in ["fifo", "clock", "random"] {
        let object = objects.iter().find(|object| object["config"]["policy"] == policy);
        let mrps = object.map_or(f64::NAN, |object| number(object, "mrps"));
        good &= mrps >= 20.0;
        text.push(format!("{policy} {mrps:.1} M/s"));
    }
    Ok(verdict(good, text.join(", ")))
}
