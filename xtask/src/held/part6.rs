//! Part 6, wire speed: AF_XDP, DPDK, many cores.
//!
//! Of a ratio of pairs the value is judged, the geometric mean; its 95 % interval stands beside, and where the bound lies in that, so does a word. By its lower end
//! a line that holds would fail by noise now and then, and by its upper end one that does not would pass.

use super::{Line, Machine, Outcome, number, ratios, shown, verdict};
use crate::{kernels, tidy};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("forwarding on net_null beside DPDK's", |machine| forwarders(machine, V4)),
    ("forwarding of IPv6 on net_null beside DPDK's", |machine| forwarders(machine, V6)),
    ("AF_XDP over veth beside the kernel's forwarding", |machine| kernel(machine, V4)),
    ("AF_XDP over veth beside the kernel's forwarding of IPv6", |machine| kernel(machine, V6)),
    ("two workers over one, on null ports", |machine| workers(machine, V4)),
    ("two workers over one, on null ports, IPv6", |machine| workers(machine, V6)),
    ("10,000 route changes a second, show, trace, reload", |machine| churn(machine, V4)),
    ("10,000 route changes of IPv6 a second, show, trace, reload", |machine| churn(machine, V6)),
    ("the same on a wire", |machine| {
        let target = ["-p", "tidemill-cli", "--release", "--test", "root_wire", "--", "churn::"];
        let passed = machine.tests(&target, 3)?;
        Ok(Outcome::Pass(format!(
            "{passed} tests: root_wire churn::, at least 9,500 changes a second in each"
        )))
    }),
    ("interfaces that vanish, return, change MTU; out of frames", |machine| wire(machine, "devices::", 8)),
    ("a queue that somebody has (EBUSY), after a crash, too: recovered, counted, said", |machine| {
        let target = |package, name| ["-p", package, "--features", "xdp", "--test", "root_xdp", "--", name];
        let ports = machine.tests(&target("tidemill-port", "root_xdp_what_"), 2)?;
        let router = machine.tests(&target("tidemill-cli", "is_killed_and_comes_back"), 1)?;
        Ok(Outcome::Pass(format!("{ports} tests: tidemill-port root_xdp; {router}: a router on AF_XDP")))
    }),
    ("kill -9 and restart from the image: forwarding again within 2 seconds", |machine| {
        let of = |test: &str, name: &str, least| {
            let target = ["-p", "tidemill-cli", "--release", "--test", test];
            machine.tests(&[&target[..], &["--", "--show-output", name]].concat(), least)
        };
        let full = of("root_wire", "restart::", 4)?;
        let below = of("root_xdp", "two_seconds_after_a_kill", 1)?;
        Ok(Outcome::Pass(format!(
            "{full} tests: root_wire restart::, with the full table; {below}: root_xdp, on AF_XDP, likewise"
        )))
    }),
    ("the image is refused if a bit of it is wrong", |machine| {
        let states = machine.tests(&["-p", "tidemill-router", "--lib", "state::tests"], 4)?;
        let images = machine.tests(&["-p", "tidemill-lookup", "--lib", "image::tests"], 5)?;
        Ok(Outcome::Pass(format!("{states} tests: tidemill-router state; {images}: tidemill-lookup image")))
    }),
    // What must exist besides.
    ("AF_XDP ports", |machine| file(machine, "tidemill-port", "root_xdp", &["--features", "xdp"], 14)),
    ("busy polling of a veth, on a kernel that does it", polling),
    ("AF_XDP ports on one region of memory", |machine| {
        file(machine, "tidemill-port", "root_xdp_umem", &["--features", "xdp"], 2)
    }),
    ("a router on AF_XDP", |machine| file(machine, "tidemill-cli", "root_xdp", &[], 11)),
    ("DPDK ports", |machine| file(machine, "tidemill-port", "root_dpdk", &["--features", "dpdk"], 14)),
    ("a router on DPDK", |machine| file(machine, "tidemill-cli", "root_dpdk", &["--features", "dpdk"], 5)),
    ("flows stay on one worker, in order: a wire", |machine| wire(machine, "workers::", 4)),
    ("flows stay on one worker, in order: software", |machine| {
        let flows = machine.tests(&["-p", "tidemill-port", "--test", "spread"], 14)?;
        let ends = machine.tests(&["-p", "tidemill-port", "--test", "concurrent_spread"], 1)?;
        // Workers that run, wake each other and stop.
        let workers = machine.tests(&["-p", "tidemill-graph", "--test", "spread"], 3)?;
        Ok(Outcome::Pass(format!(
            "{flows} tests: tidemill-port spread; {ends}: concurrent_spread; {workers}: tidemill-graph spread"
        )))
    }),
    ("memory and copies of the workers' nodes", |machine| {
        let passed = machine.tests(&["-p", "tidemill-lookup", "--lib", "numa"], 2)?;
        let pages = machine.tests(&["-p", "tidemill-lookup", "--test", "numa"], 3)?;
        // Workers look into their node's copy, and have their packets there.
        let planes = machine.tests(&["-p", "tidemill-router", "--lib", "plane::tests"], 4)?;
        let packets = ["-p", "tidemill-cli", "--bin", "tidemill", "packet_memory_on_its_own_node"];
        let packets = machine.tests(&packets, 1)?;
        Ok(Outcome::Pass(format!(
            "{} tests: tidemill-lookup numa; {planes}: tidemill-router plane; {packets}: each worker's packet memory; on nodes that are made up",
            passed + pages
        )))
    }),
    ("placement: pipelines, sleepers, order", |machine| {
        let passed = machine.tests(&["-p", "tidemill-graph"], 20)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-graph")))
    }),
    ("TCP segments coalesced and cut again", |machine| {
        let passed = machine.tests(&["-p", "tidemill-ip", "coalesce"], 5)?;
        let router = machine.tests(&["-p", "tidemill-router", "--test", "router", "coalesce::"], 7)?;
        Ok(Outcome::Pass(format!(
            "{passed} tests: tidemill-ip coalesce; {router}: a router with and without"
        )))
    }),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

const V4: &str = "ris-as3333-20260511.v4.nh30000.zst";
const V6: &str = "ris-as3333-20260511.v6.nh148.zst";

fn table(machine: &Machine, name: &str) -> Result<String> {
    Ok(machine.data()?.join("rib").join(name).to_string_lossy().into_owned())
}

/// All tests of one file.
fn file(machine: &Machine, package: &str, name: &str, features: &[&str], least: usize) -> Result<Outcome> {
    let target = ["-p", package, "--test", name];
    let passed = machine.tests(&[&target[..], features, &["--", "--show-output"]].concat(), least)?;
    Ok(Outcome::Pass(format!("{passed} tests: {package} {name}")))
}

/// The router between hosts: tests of root_wire by parts of their names.
fn wire(machine: &Machine, name: &str, least: usize) -> Result<Outcome> {
    let target = ["-p", "tidemill-cli", "--test", "root_wire", "--", "--show-output", name];
    let passed = machine.tests(&target, least)?;
    Ok(Outcome::Pass(format!("{passed} tests: root_wire {name}")))
}

/// Busy polling, which this machine's kernel may not do for a veth: in a virtual machine. Where there can be none, that is said, and nothing is shown.
fn polling(machine: &Machine) -> Result<Outcome> {
    let release = match kernels::provide() {
        Ok(release) if polls_veths(&release) => release,
        Ok(release) => {
            return Ok(Outcome::Measured(format!(
                "not run: {release} polls for no veth: cargo xtask kernels --only busy:: with the package of a kernel before 6.13"
            )));
        }
        Err(lack) => return Ok(Outcome::Measured(format!("not run: {lack:#}"))),
    };
    let said = machine.said(&["kernels", "--only", "busy::"])?;
    Ok(verdict(said.starts_with(&format!("kernels: {release}: good, ")), said))
}

/// Whether a kernel of this release polls for a veth: from 6.13 on drivers say what serves their queues, and veth's does not.
fn polls_veths(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = numbers.next().zip(numbers.next());
    version.is_some_and(|version| version < (6, 13))
}

/// A ratio that has to be at least so much, and whether it is.
fn at_least(ratio: &Value, least: f64) -> (bool, String) {
    let (value, low, high) = (number(ratio, "value"), number(ratio, "low"), number(ratio, "high"));
    let word = if low < least && least < high { ", not told apart from it" } else { "" };
    (value >= least, format!("{}, at least {least}{word}", shown(ratio)))
}

/// At least the forwarders' rate with the full table; without lookups, 0.8 of testpmd's. The bounds are of `rte_fib` and `rte_lpm`, for IPv4:
/// beside `rte_fib6` and `rte_lpm6` it is measured.
fn forwarders(machine: &Machine, name: &str) -> Result<Outcome> {
    let table = table(machine, name)?;
    let mut arguments = vec!["port", "--table", &table, "--json"];
    arguments.extend(machine.quick.then_some("--quick"));
    let objects = machine.peers(&arguments)?;
    ensure!(
        objects.iter().any(|line| line["params"]["pages"].is_string()),
        "no peer says what its pages are"
    );
    let (mut good, mut text, mut seen) = (true, Vec::new(), 0);
    for ratio in ratios(&objects) {
        let (case, to) = (ratio["case"].as_str().unwrap_or(""), ratio["to"].as_str().unwrap_or(""));
        let least = match (case, to) {
            ("route", to) if to.starts_with("peer:dpdk-fwd") => 1.0,
            ("io", "peer:testpmd-io") => 0.8,
            _ => continue,
        };
        seen += 1;
        // A peer that could not take the whole table has not looked it up.
        let rejected = number(ratio, "rejected");
        let rest = if rejected == 0.0 { String::new() } else { format!(", {rejected} routes rejected") };
        let (is_enough, said) = at_least(ratio, least);
        good &= is_enough && rejected == 0.0;
        text.push(format!("{case} {said}{rest}"));
    }
    let wanted = if machine.quick { 2 } else { 3 };
    ensure!(seen >= wanted, "{seen} ratios, {wanted} wanted: is dpdk-testpmd there (dpdk-dev)?");
    let text = text.join("; ");
    Ok(if name == V4 { verdict(good, text) } else { Outcome::Measured(text) })
}

/// At least the kernel's own rate with the same routes; of both the processor is the bound, and not who sends or counts.
fn kernel(machine: &Machine, name: &str) -> Result<Outcome> {
    let table = table(machine, name)?;
    let mut arguments = vec!["bench", "port", "wire", "--table", &table, "--json"];
    arguments.extend(if machine.quick {
        ["--seconds", "1", "--runs", "3"]
    } else {
        ["--seconds", "2", "--runs", "11"]
    });
    let objects = machine.tidemill(&arguments)?;
    let is_ours = |ratio: &&Value| ratio["of"] == "af_xdp" && ratio["to"] == "peer:kernel-forward";
    let ratio = ratios(&objects).into_iter().find(is_ours).context("no ratio of af_xdp to the kernel")?;
    let (mut good, said) = at_least(ratio, 1.0);
    let mut rates = Vec::new();
    for rate in objects.iter().filter(|object| object["metric"] == "mpps") {
        let subject = rate["subject"].as_str().unwrap_or("?");
        let is_its = |object: &&Value| object["metric"] == "busy" && object["subject"] == rate["subject"];
        let busy = objects.iter().find(is_its).map_or(f64::NAN, |object| number(object, "value"));
        let is_compared = ["af_xdp", "peer:kernel-forward"].contains(&subject);
        good &= !is_compared || busy >= BUSY;
        rates.push(format!("{subject} {:.3} Mpps, busy {busy:.2}", number(rate, "value")));
    }
    Ok(verdict(good, format!("{}; {said}; busy at least {BUSY} wanted of both", rates.join("; "))))
}

/// The share of the time in which a processor has something to do that is measured: the rest is a flood's beginning, in which nothing is sent yet.
const BUSY: f64 = 0.95;

/// At least 1.8 of one worker's rate: straight on, and routed.
fn workers(machine: &Machine, name: &str) -> Result<Outcome> {
    let table = table(machine, name)?;
    let mut arguments = vec!["bench", "port", "null", "--workers", "2", "--table", &table, "--json"];
    arguments.extend(if machine.quick {
        ["--seconds", "0.3", "--runs", "5"]
    } else {
        ["--seconds", "1", "--runs", "21"]
    });
    let objects = machine.tidemill(&arguments)?;
    let ratios = ratios(&objects);
    let (mut good, mut text) = (ratios.len() == 2, Vec::new());
    for ratio in &ratios {
        let (is_enough, said) = at_least(ratio, 1.8);
        good &= is_enough;
        text.push(format!("{} {said}", ratio["case"].as_str().unwrap_or("?")));
    }
    Ok(verdict(good, text.join("; ")))
}

/// The slow-down by churn at most, percent.
const SLOWER: f64 = 3.0;

/// No reason to drop that a quiet run has not (else the command fails), and at most 3 % slower by the median of at least 20 pairs.
fn churn(machine: &Machine, name: &str) -> Result<Outcome> {
    let table = table(machine, name)?;
    let mut arguments = vec!["bench", "churn", "--table", &table, "--pairs", "20", "--json"];
    if machine.quick {
        arguments.extend(["--seconds", "0.3"]);
    }
    let objects = machine.tidemill(&arguments)?;
    let slower = |line: &&Value| line["metric"] == "slower_percent";
    let slower = objects.iter().find(slower).context("no line with slower_percent")?;
    let percent = number(slower, "value");
    let (low, high) = (number(&slower["params"], "low"), number(&slower["params"], "high"));
    ensure!(number(slower, "runs") >= 20.0 && low <= high, "no interval of 20 pairs: {slower}");
    // At capacity, and at a share of it.
    let changes = objects.iter().filter(|line| line["metric"] == "updates_per_s");
    let changes: Vec<f64> = changes.map(|line| number(line, "value")).collect();
    ensure!(changes.len() == 2, "{} lines with updates_per_s, 2 wanted", changes.len());
    let changes = changes.into_iter().fold(f64::INFINITY, f64::min);
    let reloads = objects.iter().filter(|line| line["metric"] == "reloads");
    let reloads = reloads.map(|line| number(line, "min")).fold(f64::INFINITY, f64::min);
    ensure!((1.0..f64::INFINITY).contains(&reloads), "a run with churn without a reload");
    let word = if low <= SLOWER && SLOWER < high { ", not told apart from it" } else { "" };
    Ok(verdict(
        percent <= SLOWER && changes >= 9_500.0,
        format!(
            "{percent:.1} % slower ({low:.1} to {high:.1}), at most {SLOWER}{word}, with {changes:.0} changes a second and {reloads:.0} reloads a run; at a share of the capacity no reason to drop beyond a quiet run's: {}",
            dropped(&objects)
        ),
    ))
}

/// What `bench churn` says of packets dropped at a share of the capacity: by reason, all runs together, with a quiet control side and with churn.
fn dropped(objects: &[Value]) -> String {
    let mut counts: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for line in objects.iter().filter(|line| line["metric"] == "dropped") {
        let count = number(&line["params"], "all_runs");
        let busy = usize::from(line["case"] == "share-churn");
        counts.entry(line["params"]["reason"].as_str().unwrap_or("?")).or_default()[busy] += count;
    }
    let text =
        counts.iter().map(|(reason, [quiet, churn])| format!("{reason} {quiet} quiet, {churn} with churn"));
    let text = text.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "nothing dropped".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bound_is_held_by_a_ratios_value_and_doubt_is_told() {
        let ratio =
            |value: f64, low: f64, high: f64| json!({"to": "x", "value": value, "low": low, "high": high});
        let of = |value, low, high| at_least(&ratio(value, low, high), 1.0);
        assert_eq!(of(1.02, 1.01, 1.03), (true, "to x 1.02 (1.01 to 1.03), at least 1".to_owned()));
        assert_eq!(
            of(1.02, 0.98, 1.06),
            (true, "to x 1.02 (0.98 to 1.06), at least 1, not told apart from it".to_owned())
        );
        assert_eq!(
            of(0.98, 0.96, 1.01),
            (false, "to x 0.98 (0.96 to 1.01), at least 1, not told apart from it".to_owned())
        );
        assert!(!at_least(&json!({}), 1.0).0);
    }

    #[test]
    fn kernels_that_poll_veths_are_told_by_their_release() {
        for (release, polls) in [
            ("6.1.0-50-amd64", true),
            ("6.12.48+deb13-amd64", true),
            ("6.13.0-amd64", false),
            ("7.0-amd64", false),
            ("amd64", false),
        ] {
            assert_eq!(polls_veths(release), polls, "{release}");
        }
    }

    #[test]
    fn what_churn_drops_is_told_beside_what_a_quiet_side_does() {
        let line = |case: &str, reason: &str, count: u64| json!({"metric": "dropped", "case": case, "params": {"reason": reason, "all_runs": count}});
        let lines = [
            line("share-quiet", "rx-ring-full", 7),
            line("share-churn", "rx-ring-full", 9),
            line("share-quiet", "no-route", 1),
        ];
        assert_eq!(dropped(&lines), "no-route 1 quiet, 0 with churn, rx-ring-full 7 quiet, 9 with churn");
        assert_eq!(dropped(&[]), "nothing dropped");
    }
}
