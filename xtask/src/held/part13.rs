//! Part 13, network functions: NAT and the packet filter, their tables of requirements, models, real clients, rates; assets and flow export.

use super::{Line, Machine, Outcome, number, ratios, shown, verdict};
use crate::tidy;
use anyhow::{Context as _, Result, ensure};

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    (
        "real clients through NAT, the filter, and one box of both, and through a failover of each, 100 MB intact",
        |machine| {
            let short = ["-p", "tidemill-cli", "--test", "root_nat", "--", "--show-output"];
            let mut passed = machine.tests(&short, 17)?;
            if !machine.quick {
                let long = ["-p", "tidemill-cli", "--release", "--test", "root_nat", "--", "--ignored"];
                passed += machine.tests(&long, 3)?;
            }
            Ok(Outcome::Pass(format!("{passed} tests: root_nat")))
        },
    ),
    ("NAT: 10 M packets a second on 100,000 flows, one core", |machine| {
        rate(machine, "nat", &["--flows", "100k"], 10.0)
    }),
    ("NAT: a thousand, 10,000 and a million entries", |machine| {
        measured(machine, "nat", &["--flows", "1k,10k,1M"], 3)
    }),
    (
        "NAT and filter: a million entries of each family, each its own, handed over (not with --quick)",
        |machine| {
            if machine.quick {
                return Ok(Outcome::Measured("left out: --quick".into()));
            }
            let million = ["-p", "tidemill-nf", "--release", "--lib", "--", "--ignored", "a_million"];
            Ok(Outcome::Pass(format!("{} tests: a_million", machine.tests(&million, 2)?)))
        },
    ),
    ("filter with 10,000 rules: 10 M packets a second of known connections, one core", |machine| {
        rate(machine, "established", &[], 10.0)
    }),
    ("filter with 10,000 rules: 2 M new connections a second, one core", |machine| {
        rate(machine, "new", &[], 2.0)
    }),
    ("filter with 10,000 rules: known TCP connections, one core", |machine| {
        Ok(Outcome::Measured(mpps(machine, "established-tcp", &[])?.1))
    }),
    ("filter with ClassBench's 10,000 rules: new connections by their traces, one core", |machine| {
        let folder = machine.data()?.join("acl");
        let of = |set: &&str| -> Result<String> {
            let file = |kind: &str| folder.join(format!("{set}.{kind}.zst")).display().to_string();
            let said = mpps(machine, "new", &["--acl", &file("rules"), "--trace", &file("trace")])?.1;
            Ok(format!("{set} {said}"))
        };
        let sets = ["wustl-acl1_10K", "wustl-fw1_10K", "wustl-ipc1_10K"];
        Ok(Outcome::Measured(sets.iter().map(of).collect::<Result<Vec<_>>>()?.join("; ")))
    }),
    ("filter with 10,000 rules: a million known connections", |machine| {
        measured(machine, "established", &["--flows", "1M"], 1)
    }),
    ("NAT and filter against nftables on the same cables (root)", |machine| {
        measured(machine, "nat,established,new", &["--wire"], 3)
    }),
    ("NAT: RFC 4787, 5382, 5508, a model, floods, workers", |machine| {
        let passed = machine.tests(&["-p", "tidemill-nf", "--test", "nat"], 65)?;
        Ok(Outcome::Pass(format!("{passed} tests: nat")))
    }),
    ("filter: a model, cases, TCP's window, floods, workers", |machine| {
        let passed = machine.tests(&["-p", "tidemill-nf", "--test", "filter"], 34)?;
        Ok(Outcome::Pass(format!("{passed} tests: filter")))
    }),
    ("both models for long (not with --quick)", |machine| {
        if machine.quick {
            return Ok(Outcome::Measured("left out: --quick".into()));
        }
        let long = [
            "-p",
            "tidemill-nf",
            "--release",
            "--test",
            "nat",
            "--test",
            "filter",
            "--",
            "--ignored",
            "long",
        ];
        Ok(Outcome::Pass(format!("{} tests: long_random_walks", machine.tests(&long, 2)?)))
    }),
    ("any bytes: packets, rules, access lists, sessions handed over, frames, flows", |machine| {
        let seconds = if machine.quick { "10" } else { "120" };
        let targets = [
            "nat_packet",
            "nat_image",
            "filter_image",
            "filter_packet",
            "filter_rules",
            "filter_acl",
            "assets_frame",
            "assets_payload",
            "ipfix_flows",
        ];
        let one = |target| machine.said(&["fuzz", "--target", target, "--seconds", seconds]);
        let said: Vec<String> = targets.into_iter().map(one).collect::<Result<_>>()?;
        Ok(Outcome::Pass(said.join("; ")))
    }),
    // What must exist besides.
    (
        "access lists of ClassBench and of real routers, by their traces and line by line; a blocklist of 120,000",
        |machine| {
            machine.data()?;
            let target = [
                "-p",
                "tidemill-nf",
                "--test",
                "real_acl",
                "--test",
                "real_blocklists",
                "--",
                "--show-output",
            ];
            Ok(Outcome::Pass(format!("{} tests: real_acl, real_blocklists", machine.tests(&target, 3)?)))
        },
    ),
    (
        "assets and flow export: fingerprints, floods, a collector that knows templates from the wire only, tshark, every role",
        |machine| {
            let mut passed =
                machine.tests(&["-p", "tidemill-nf", "--test", "assets", "--test", "ipfix"], 21)?;
            passed += machine.tests(&["-p", "tidemill-cli", "--test", "assets_commands"], 6)?;
            Ok(Outcome::Pass(format!("{passed} tests: assets, ipfix, assets_commands")))
        },
    ),
    ("the benchmark: every packet is what its case is about", |machine| {
        let passed = machine.tests(&["-p", "tidemill-cli", "--test", "bench_nf"], 4)?;
        Ok(Outcome::Pass(format!("{passed} tests: bench_nf")))
    }),
    ("rules, settings, tables, images, fingerprints", |machine| {
        let passed = machine.tests(&["-p", "tidemill-nf", "--lib"], 95)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-nf")))
    }),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

fn bench(machine: &Machine, case: &str, more: &[&str]) -> Result<Vec<serde_json::Value>> {
    let (runs, seconds) = if machine.quick { ("3", "0.3") } else { ("11", "1") };
    let arguments = ["bench", "nf", "--case", case, "--runs", runs, "--seconds", seconds, "--json"];
    machine.tidemill(&[&arguments, more].concat())
}

/// Each case's ratio, to whatever it is compared with. A run in which a packet was not what the case is about is an error of the bench's.
fn measured(machine: &Machine, cases: &str, more: &[&str], count: usize) -> Result<Outcome> {
    let objects = bench(machine, cases, more)?;
    let said: Vec<String> = ratios(&objects)
        .into_iter()
        .map(|ratio| format!("{} {}", ratio["case"].as_str().unwrap_or("?"), shown(ratio)))
        .collect();
    ensure!(said.len() == count, "{} ratios of {cases}, not {count}", said.len());
    Ok(Outcome::Measured(said.join("; ")))
}

/// The median of a case's runs, M packets a second, and what there is to say of it.
fn mpps(machine: &Machine, case: &str, more: &[&str]) -> Result<(f64, String)> {
    let objects = bench(machine, case, more)?;
    let line = objects
        .iter()
        .find(|line| line["metric"] == "mpps" && line["subject"] != "bound")
        .context("no rate")?;
    let (mpps, low) = (number(line, "value"), number(line, "min"));
    let ratios: Vec<String> = ratios(&objects).iter().map(|ratio| shown(ratio)).collect();
    Ok((mpps, format!("{mpps:.2} M/s (least {low:.2}); {}", ratios.join("; "))))
}

/// The same, at least `least`.
fn rate(machine: &Machine, case: &str, more: &[&str], least: f64) -> Result<Outcome> {
    let (mpps, said) = mpps(machine, case, more)?;
    Ok(verdict(mpps >= least, said))
}
