//! Part 2, a router on a wire: what an operator expects of a router that stands between two networks.
//!
//! The wires are virtual, between network namespaces: everything here needs root.

use super::{Line, Machine, Outcome, verdict};
use crate::{fuzz, test, tidy};
use anyhow::{Context, Result, bail};

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("ping, traceroute, traceroute6", |machine| wire(machine, &["basic::"], 5)),
    ("TCP of 100 MB both ways, hashes, with and without offloads", |machine| wire(machine, &["tcp::"], 4)),
    ("path MTU discovery, fragments", |machine| wire(machine, &["path_mtu::"], 4)),
    ("100,000 routes of BIRD's under traffic", |machine| wire(machine, &["root_bird_ipv"], 2)),
    ("100,000 routes of BIRD's after an overrun", |machine| wire(machine, &["root_bird_overrun"], 2)),
    ("a neighbor disappears and returns under TCP", |machine| wire(machine, &["root_neighbor"], 2)),
    ("a route flaps 100 times a second under TCP", |machine| wire(machine, &["root_flapping"], 2)),
    ("reload, bad and good, under TCP", |machine| wire(machine, &["reload::"], 1)),
    ("a scan of 1 M addresses, ARP and ND", |machine| wire(machine, &["scan::"], 2)),
    ("1 % loss, reordering and corruption", |machine| wire(machine, &["fault::"], 2)),
    // What must exist besides.
    ("equal-cost paths, resilient", |machine| wire(machine, &["ecmp::"], 2)),
    ("VLANs and VRFs", |machine| wire(machine, &["root_vlans", "vrf::"], 3)),
    ("two workers: queues, software RSS, order", |machine| wire(machine, &["workers::"], 4)),
    ("AF_PACKET ports", |machine| file(machine, "tidemill-port", "root_af_packet", 12)),
    ("receive-side scaling in software", |machine| file(machine, "tidemill-port", "spread", 5)),
    ("the kernel's routes, ip and BIRD", |machine| file(machine, "tidemill-feed", "root_kernel", 15)),
    ("neighbors, ICMP, reassembly, local delivery", neighbors),
    ("the control socket and its verbs", control),
    ("traces and captures of a running graph", |machine| file(machine, "tidemill-graph", "watch", 3)),
    ("no allocation on the data path", |machine| file(machine, "tidemill-router", "no_allocation", 1)),
    ("the examples", examples),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
    ("fuzzing", fuzzing),
    ("TCP and ping through us and through the kernel", rates),
];

/// What reads bytes that the network or the kernel chose.
const FUZZED: &[&str] = &["feed_kernel", "gso_segment", "ip_reassembly", "wire_parse"];

/// The router between hosts: tests of root_wire by parts of their names.
fn wire(machine: &Machine, names: &[&str], least: usize) -> Result<Outcome> {
    let target = ["-p", "tidemill-cli", "--test", "root_wire", "--", "--show-output"];
    let passed = machine.tests(&[&target[..], names].concat(), least)?;
    Ok(Outcome::Pass(format!("{passed} tests: root_wire {}", names.join(" "))))
}

/// All tests of one file.
fn file(machine: &Machine, package: &str, name: &str, least: usize) -> Result<Outcome> {
    let passed = machine.tests(&["-p", package, "--test", name, "--", "--show-output"], least)?;
    Ok(Outcome::Pass(format!("{passed} tests: {package} {name}")))
}

fn neighbors(machine: &Machine) -> Result<Outcome> {
    let passed = machine.tests(&["-p", "tidemill-ip", "--", "--show-output"], 50)?;
    Ok(Outcome::Pass(format!("{passed} tests: tidemill-ip")))
}

fn control(machine: &Machine) -> Result<Outcome> {
    let mut passed = machine.tests(&["-p", "tidemill-control", "--", "--show-output"], 10)?;
    passed += machine.tests(&["-p", "tidemill-cli", "--test", "live_commands", "--", "--show-output"], 10)?;
    Ok(Outcome::Pass(format!("{passed} tests: tidemill-control, live_commands")))
}

fn examples(_: &Machine) -> Result<Outcome> {
    let totals = test::examples_tier()?;
    Ok(verdict(totals.failed + totals.skipped == 0, totals.to_string()))
}

fn fuzzing(machine: &Machine) -> Result<Outcome> {
    let seconds = if machine.quick { 10 } else { 300 };
    let totals = fuzz::some(FUZZED, seconds)?;
    Ok(verdict(totals.failed == 0 && totals.passed == FUZZED.len(), format!("{totals}, {seconds} s each")))
}

/// What one run of the demonstration measured: name, value, unit.
type Figures = Vec<(String, f64, &'static str)>;

/// Turn about: each pair of runs sees the same machine, whatever else it does.
fn rates(machine: &Machine) -> Result<Outcome> {
    let pairs = if machine.quick { 1 } else { 5 };
    let runs = (0..pairs)
        .map(|_| Ok((figures(&test::wire_demo("tidemill")?)?, figures(&test::wire_demo("kernel")?)?)))
        .collect::<Result<Vec<(Figures, Figures)>>>()?;
    let (first, _) = runs.first().context("nothing was measured")?;
    let mut shown = Vec::new();
    for (at, (name, _, unit)) in first.iter().enumerate() {
        let pair = |(ours, theirs): &(Figures, Figures)| Some((ours.get(at)?.1, theirs.get(at)?.1));
        let pairs: Vec<(f64, f64)> = runs.iter().filter_map(pair).collect();
        let ours = median(pairs.iter().map(|(ours, _)| *ours).collect());
        let theirs = median(pairs.iter().map(|(_, theirs)| *theirs).collect());
        let ratio = median(pairs.iter().map(|(ours, theirs)| ours / theirs).collect());
        shown.push(format!("{name} {ours:.2} {unit} to the kernel's {theirs:.2} ({ratio:.2})"));
    }
    Ok(Outcome::Measured(format!("{}; medians of {} pairs", shown.join("; "), runs.len())))
}

/// Reads what the demonstration says: the median of each ping, the rate of each transfer.
fn figures(said: &str) -> Result<Figures> {
    let mut figures = Figures::new();
    let mut times = Vec::new();
    for line in said.lines() {
        if let Some((_, time)) = line.rsplit_once(" time=") {
            times.push(time.trim_end_matches(" ms").parse().with_context(|| line.to_owned())?);
        } else if line.contains(" packets transmitted, ") && !times.is_empty() {
            let family = if figures.is_empty() { 4 } else { 6 };
            figures.push((format!("ping IPv{family}"), median(std::mem::take(&mut times)), "ms"));
        } else if let Some((name, rate)) = line.strip_prefix("TCP, ").and_then(|rest| rest.split_once(": ")) {
            let rate = rate.rsplit_once(", ").and_then(|(_, rate)| rate.strip_suffix(" Mb/s"));
            let rate: f64 =
                rate.and_then(|rate| rate.parse().ok()).with_context(|| format!("no rate: {line}"))?;
            figures.push((format!("TCP, {name}"), rate / 1000.0, "Gb/s"));
        }
    }
    if figures.len() < 3 {
        bail!("{} figures: is perl installed?\n{said}", figures.len());
    }
    Ok(figures)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let ping = "64 bytes from 10.2.0.2: icmp_seq=1 ttl=63 time=0.3 ms\n64 bytes: time=0.1 ms\n64 bytes: time=0.2 ms\n\
                    3 packets transmitted, 3 received, 0% packet loss, time 942ms\n";
        let flood = "20000 packets transmitted, 20000 received, 0% packet loss, time 119ms\n";
        let tcp = "TCP, offloads on: 200 MB in 456 ms, 3502 Mb/s\n";
        let figures = figures(&[ping, ping, flood, tcp].concat()).unwrap();
        let values: Vec<_> = figures.iter().map(|(name, value, _)| (name.as_str(), *value)).collect();
        assert_eq!(values, [("ping IPv4", 0.2), ("ping IPv6", 0.2), ("TCP, offloads on", 3.502)]);
        assert!(super::figures(ping).is_err());
    }
}
