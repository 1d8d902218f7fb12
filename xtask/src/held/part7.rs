//! Part 7, the amplification mitigator: in user space, in the kernel, and against the paper's figures.

use super::{Line, Machine, Outcome, number, ratios, shown, verdict};
use crate::{proc, record, tidy};
use anyhow::{Context, Result};
use serde_json::Value;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("tok-5.10, 5.12, 5.13: the real kernel as victim", |machine| {
        let figures: &[&str] =
            if machine.quick { &["completion::"] } else { &["figure_5_10", "figures_5_12"] };
        lab(machine, figures)
    }),
    ("tok-5.11: 98.8 % of an attack out of 10.1 M packets, nothing else", |machine| {
        lab(machine, if machine.quick { &["mixed::"] } else { &["figure_5_11"] })
    }),
    ("tok-5.4 by both metrics", figure_5_4),
    ("tok-5.7 and 5.8 over the real captures", icmp_of_captures),
    ("tok-5.3.3: what coarser tuples cost; 4-tuples nothing", figure_5_3_3),
    ("14.88 Mpps of DNS responses on a core", rates),
    ("XDP against user space and nftables", xdp_rates),
    ("2 M filtered flows; none replaced while it lives", |machine| {
        let passed = machine
            .tests(&["-p", "tidemill-amp", "--release", "--", "--include-ignored", "two_million"], 2)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-amp two_million")))
    }),
    ("spoofed ICMP against a conversation", |machine| {
        let passed = machine
            .tests(&["-p", "tidemill-cli", "--test", "root_amp", "--", "--show-output", "spoofed::"], 1)?;
        Ok(Outcome::Pass(format!("{passed} tests: root_amp spoofed")))
    }),
    ("truncated, fragmented, nested, lying ICMP", |machine| {
        let seconds = if machine.quick { "20" } else { "300" };
        Ok(Outcome::Pass(machine.said(&["fuzz", "--target", "amp_packet", "--seconds", seconds])?))
    }),
    // What must exist besides.
    ("the mitigator against its oracle", |machine| {
        let passed = machine.tests(&["-p", "tidemill-amp"], 20)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-amp")))
    }),
    ("the same decisions in XDP", |machine| {
        let target = ["-p", "tidemill-amp", "--features", "xdp", "--test", "root_amp_xdp"];
        let passed = machine.tests(&[&target[..], &["--", "--show-output"]].concat(), 8)?;
        Ok(Outcome::Pass(format!("{passed} tests: root_amp_xdp")))
    }),
    ("BPF objects are what their sources say", |machine| {
        Ok(Outcome::Pass(machine.said(&["bpf", "--check"])?))
    }),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

/// Tests with the real kernel, by parts of their names; those that make whole figures are ignored elsewhere.
fn lab(machine: &Machine, names: &[&str]) -> Result<Outcome> {
    let mut target = vec!["-p", "tidemill-cli", "--release", "--test", "root_amp", "--", "--show-output"];
    if !machine.quick {
        target.push("--ignored");
    }
    target.extend(names);
    let passed = machine.tests(&target, names.len())?;
    Ok(Outcome::Pass(format!("{passed} tests: root_amp {}", names.join(", "))))
}

/// 38 % of 1,000 combinations are alone in their slot of 1,024 by lookup3, and the replacement rule keeps 64 %; CRC-32 gives out.
fn figure_5_4(machine: &Machine) -> Result<Outcome> {
    let points = machine.tidemill(&["sim", "amp", "--figure", "tok-5.4", "--json"])?;
    let at = |series: &str, unit: &str, x: f64| -> Result<f64> {
        let point = points.iter().find(|point| {
            point["series"] == series && point["unit"] == unit && (number(point, "x") - x).abs() < 0.5
        });
        Ok(number(point.with_context(|| format!("tok-5.4 has no {series} at {x}"))?, "y"))
    };
    let (alone, kept) = ("percent alone in their slot", "percent with a rule that stays");
    let (one, rule) = (at("lookup3", alone, 1000.0)?, at("lookup3", kept, 1000.0)?);
    let (crc, ours) = (at("crc32", alone, 1000.0)?, at("ours", kept, 1000.0)?);
    let good = (one - 38.0).abs() < 2.0 && (rule - 64.0).abs() < 2.0 && crc < 1.0 && ours > 95.0;
    Ok(verdict(
        good,
        format!(
            "at 1,000 in 1,024: lookup3 {one:.1} % alone (paper 38), {rule:.1} % kept (64); CRC-32 {crc:.1} % (paper: none beyond \
             600); ours {ours:.1} %"
        ),
    ))
}

/// Rules about whole conversations keep nothing away that somebody asked for, and coarser ones do.
fn figure_5_3_3(machine: &Machine) -> Result<Outcome> {
    machine.data()?;
    let points = machine.tidemill(&["sim", "amp", "--figure", "tok-5.3.3", "--json"])?;
    let lost: Vec<&Value> = points.iter().filter(|point| point["unit"] == "other packets lost").collect();
    let by = |tuple: &str| {
        let of_mode = lost.iter().filter(|point| point["x"].as_str().is_some_and(|x| x.starts_with(tuple)));
        of_mode.map(|point| number(point, "y")).collect::<Vec<_>>()
    };
    let (four, one) = (by("4"), by("1"));
    let good = four.len() >= 4 && four.iter().all(|lost| *lost == 0.0) && one.iter().any(|lost| *lost > 0.0);
    let all: Vec<String> = lost
        .iter()
        .map(|point| format!("{}, {}: {}", text_of(point, "series"), text_of(point, "x"), point["y"]))
        .collect();
    Ok(verdict(good, format!("other packets lost: {}", all.join("; "))))
}

fn text_of<'a>(point: &'a Value, field: &str) -> &'a str {
    point[field].as_str().unwrap_or("?")
}

/// What bench/figures.md says of the real messages: 122 pairs of addresses, 9 of them about DNS; the shortest has 56 bytes and 28 of the packet, the paper's
/// numbers. The test asks for the number of messages, and how many of them tell the flow, besides.
fn icmp_of_captures(machine: &Machine) -> Result<Outcome> {
    machine.data()?;
    let points = |figure: &str| machine.tidemill(&["sim", "amp", "--figure", figure, "--json"]);
    let (pairs, lengths) = (points("tok-5.7")?, points("tok-5.8")?);
    let at = |points: &[Value], unit: &str, series: &str, x: Value| {
        let point = points.iter().find(|p| p["unit"] == unit && p["series"] == series && p["x"] == x);
        point.map_or(f64::NAN, |point| number(point, "y"))
    };
    let of = |series: &str| at(&pairs, "pairs of addresses", series, "all".into());
    let (all, dns) = (of("port unreachable"), of("about DNS"));
    let shortest = |x: &str| at(&lengths, "bytes", "IPv4", x.into());
    let (packet, embedded) = (shortest("IP packet"), shortest("embedded"));
    let good = (all, dns, packet, embedded) == (122.0, 9.0, 56.0, 28.0);
    let text = format!(
        "{all} pairs of addresses (122), {dns} of them about DNS (9); the shortest IPv4 message {packet} bytes (paper 56), {embedded} of the packet (28)"
    );
    let passed = machine.tests(&["-p", "tidemill-cli", "--test", "real_data_sim", "real_messages"], 2)?;
    Ok(verdict(good, format!("{text}; {passed} tests: real_data_sim real_messages")))
}

/// Every packet looked up: at least ten-gigabit line rate of 60-byte frames in all cases of the shortest responses, which have 60 bytes over IPv4 and 74 over
/// IPv6.
fn rates(machine: &Machine) -> Result<Outcome> {
    const LINE_RATE: f64 = 14.88;
    let mut arguments = vec!["bench", "amp", "--json", "--family", "4,6", "--case"];
    arguments.push("dns/suspected,dns/known,dns/filtered,dns/mixed");
    if machine.quick {
        arguments.extend(["--seconds", "0.2", "--runs", "3"]);
    }
    let objects = machine.tidemill(&arguments)?;
    let ours = |object: &&Value| object["metric"] == "mpps" && object["subject"] == "mitigator";
    let (mut good, mut text) = (true, Vec::new());
    for object in objects.iter().filter(ours) {
        let (case, rate) = (object["case"].as_str().unwrap_or("?"), number(object, "value"));
        good &= rate >= LINE_RATE;
        let params = &object["params"];
        text.push(format!("IPv{} {case}, {} flows: {rate:.1}", params["family"], params["flows"]));
    }
    let to_bound: Vec<String> = ratios(&objects).iter().map(|ratio| shown(ratio)).collect();
    text.push(format!("of a bridge that looks at nothing: {}", to_bound.join(", ")));
    Ok(verdict(good && text.len() > 8, text.join("; ")))
}

/// Every way of dropping has a rate, and a ratio to the program's.
fn xdp_rates(machine: &Machine) -> Result<Outcome> {
    const WAYS: usize = 6;
    let said = proc::output(&mut record::xdp_rate(machine.quick))?;
    let objects: Vec<Value> =
        said.lines().map(serde_json::from_str).collect::<Result<_, _>>().context("xdp_rate: not JSON")?;
    let sizes = if machine.quick { 1 } else { 2 };
    let rates: Vec<&Value> = objects.iter().filter(|object| object["metric"] == "mpps").collect();
    let ratios = ratios(&objects);
    let whole = |object: &&&Value| number(object, "value").is_finite() && number(object, "value") > 0.0;
    let counts = (rates.iter().filter(whole).count(), ratios.iter().filter(whole).count());
    let wanted = (sizes * WAYS, sizes * (WAYS - 1));
    let mut text: Vec<String> = rates
        .iter()
        .map(|rate| {
            format!(
                "{} {}: {:.2} M/s",
                text_of(rate, "case"),
                text_of(rate, "subject"),
                number(rate, "value")
            )
        })
        .collect();
    text.extend(ratios.iter().map(|ratio| format!("{}: xdp {}", text_of(ratio, "case"), shown(ratio))));
    if counts != wanted {
        return Ok(Outcome::Fail(format!(
            "{counts:?} rates and ratios, and {wanted:?} there should be: {}",
            text.join("; ")
        )));
    }
    Ok(Outcome::Measured(text.join("; ")))
}
