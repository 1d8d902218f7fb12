//! Part 10, the cache in the kernel in front of memcached: the operator's contract, the randomised client, rates.

use super::{Line, Machine, Outcome, number, ratios, verdict};
use crate::tidy;
use anyhow::{Context as _, Result};
use serde_json::Value;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("the operator's contract, on a real memcached", |machine| {
        let passed =
            machine.tests(&["-p", "tidemill-kv", "--test", "root_contract", "--", "--show-output"], 30)?;
        Ok(Outcome::Pass(format!("{passed} tests: root_contract")))
    }),
    ("a randomised client, and a checker of what it saw", random),
    ("the checker finds planted faults", |machine| {
        let passed = machine.tests(&["-p", "tidemill-kv", "--test", "checker"], 6)?;
        Ok(Outcome::Pass(format!("{passed} tests: checker")))
    }),
    ("the programs on frames and on cables", |machine| {
        let passed =
            machine.tests(&["-p", "tidemill-kv", "--test", "root_kernel", "--", "--show-output"], 3)?;
        Ok(Outcome::Pass(format!("{passed} tests: root_kernel")))
    }),
    ("any frame: untouched, dropped by name, or answered as memcached would", |machine| {
        let mut test = vec!["-p", "tidemill-kv", "--release", "--test", "root_fuzz", "--", "--show-output"];
        let mut least = 4;
        if !machine.quick {
            test.push("--include-ignored");
            least = 6;
        }
        Ok(Outcome::Pass(format!("{} tests: root_fuzz", machine.tests(&test, least)?)))
    }),
    ("commands, replies, streams, misses, tokens", |machine| {
        let passed = machine.tests(&["-p", "tidemill-kv", "--lib"], 20)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-kv")))
    }),
    ("any request, any reply", |machine| fuzz(machine, "kv_codec")),
    ("a stream cut anywhere", |machine| fuzz(machine, "kv_stream")),
    ("hits a second, beside memcached by UDP and TCP", |machine| {
        let objects = bench(machine, "hits")?;
        let all = ratios(&objects);
        let ratio = all.iter().find(|ratio| ratio["to"] == UDP).context("no ratio to memcached over UDP")?;
        Ok(verdict(number(ratio, "value") >= 10.0, format!("{}; {}", values(&objects), compared(&objects))))
    }),
    ("residence at low load is half of memcached's round trip at most", |machine| {
        let objects = bench(machine, "latency")?;
        let at = |subject: &str, metric: &str| -> Result<f64> {
            let found = objects.iter().find(|line| line["subject"] == subject && line["metric"] == metric);
            Ok(number(found.with_context(|| format!("no {metric} of {subject}"))?, "value"))
        };
        let mut good = true;
        for percentile in ["p50", "p99"] {
            let own = at("l2-xdp", &format!("residence_{percentile}_ns"))?;
            good &= own > 0.0 && own <= 0.5 * at(UDP, &format!("{percentile}_ns"))?;
        }
        Ok(verdict(good, values(&objects)))
    }),
    ("nothing cacheable costs less than 3 %, over UDP", |machine| uncacheable(machine, "uncacheable")),
    ("nothing cacheable costs less than 3 %, over TCP", |machine| uncacheable(machine, "uncacheable-tcp")),
    ("Zipf 0.99 over a million keys", |machine| {
        let objects = bench(machine, "zipf")?;
        Ok(Outcome::Measured(format!("{}; {}", values(&objects), compared(&objects))))
    }),
    ("the programs on Debian's kernel, the oldest that they are for", |machine| {
        let only: &[&str] = if machine.quick { &["--only", "until_its_key"] } else { &[] };
        let said = machine.said(&[&["kernels"], only].concat())?;
        Ok(verdict(is_oldest(&said), said))
    }),
    // What must exist besides.
    ("shipped programs are what their sources say", |machine| {
        Ok(Outcome::Pass(machine.said(&["bpf", "--check"])?))
    }),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

const UDP: &str = "peer:memcached-udp";

/// The first ratio is the one to memcached with nothing before it.
fn uncacheable(machine: &Machine, case: &str) -> Result<Outcome> {
    let objects = bench(machine, case)?;
    let ratio = ratios(&objects).into_iter().next().context("no ratio: give more runs")?;
    Ok(within(number(ratio, "low"), number(ratio, "high"), 0.97, &compared(&objects)))
}

/// Whether all of an interval is on the right side of a bound. Where the bound lies within it nothing is shown.
fn within(low: f64, high: f64, bound: f64, text: &str) -> Outcome {
    if low < bound && high >= bound {
        return Outcome::Fail(format!(
            "not decided, {bound} is within: give it a machine of its own; {text}"
        ));
    }
    verdict(low >= bound, text)
}

/// Whether `cargo xtask kernels` has run the tests on a kernel of the release that the programs stand for: what Debian's newest name stands for here may be a later one.
fn is_oldest(said: &str) -> bool {
    said.strip_prefix("kernels: ").is_some_and(|release| release.starts_with("6.1."))
}

fn fuzz(machine: &Machine, target: &str) -> Result<Outcome> {
    let seconds = if machine.quick { "20" } else { "300" };
    Ok(Outcome::Pass(machine.said(&["fuzz", "--target", target, "--seconds", seconds])?))
}

/// A hundred thousand commands, and ten million unless it has to be quick.
fn random(machine: &Machine) -> Result<Outcome> {
    let short = ["-p", "tidemill-kv", "--test", "root_random", "--", "--show-output"];
    let (mut passed, mut text) = machine.tests_said(&short, 3)?;
    if !machine.quick {
        let long = ["-p", "tidemill-kv", "--release", "--test", "root_random", "--", "--ignored"];
        let (more, said) = machine.tests_said(&long, 1)?;
        passed += more;
        text += &said;
    }
    // What each run did: `Ran { commands: ..., hits: ... }`.
    let ran: Vec<&str> = text.lines().filter(|line| line.starts_with("Ran {")).collect();
    Ok(Outcome::Pass(format!("{passed} tests: root_random; {}", ran.join("; "))))
}

fn bench(machine: &Machine, case: &str) -> Result<Vec<Value>> {
    let (runs, seconds) = if machine.quick { ("4", "0.5") } else { ("11", "2") };
    machine.tidemill(&["bench", "kv", "--case", case, "--runs", runs, "--seconds", seconds, "--json"])
}

/// `SUBJECT METRIC VALUE`, one after the other.
fn values(objects: &[Value]) -> String {
    let lines = objects.iter().filter(|object| object["metric"] != "ratio").map(|object| {
        let text = |name: &str| object[name].as_str().unwrap_or("?");
        format!("{} {} {}", text("subject"), text("metric"), number(object, "value"))
    });
    lines.collect::<Vec<_>>().join(", ")
}

fn compared(objects: &[Value]) -> String {
    ratios(objects).into_iter().map(super::shown).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::{Outcome, is_oldest, within};

    #[test]
    fn a_later_kernel_is_not_the_oldest() {
        assert!(is_oldest("kernels: 6.1.0-50-amd64: good, 41 tests passed"));
        assert!(!is_oldest("kernels: 6.12.48+deb13-amd64: good, 41 tests passed"));
        assert!(!is_oldest(""));
    }

    #[test]
    fn an_interval_with_the_bound_in_it_shows_nothing() {
        assert!(matches!(within(0.975, 0.99, 0.97, ""), Outcome::Pass(_)));
        assert!(
            matches!(within(0.96, 0.99, 0.97, ""), Outcome::Fail(text) if text.starts_with("not decided"))
        );
        assert!(matches!(within(0.90, 0.96, 0.97, ""), Outcome::Fail(text) if text.is_empty()));
        assert!(matches!(within(f64::NAN, f64::NAN, 0.97, ""), Outcome::Fail(_)));
    }
}
