//! Part 10, the cache in the kernel in front of memcached: the operator's contract, the randomised client, rates.

use super::{Line, Machine, Outcome, number, ratios, verdict};
use crate::tidy;
use anyhow::{Context as _, Result};
use serde_json::Value;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("the operator's contract, on a real memcached", |machine| {
        let passed =
            machine.tests(&["-p", "tidemill-kv", "--test", "root_contract", "--", "--show-output"], 40)?;
        Ok(Outcome::Pass(format!("{passed} tests: root_contract")))
    }),
    ("a randomised client, and a checker of what it saw", random),
    ("the checker finds planted faults", |machine| {
        let passed = machine.tests(&["-p", "tidemill-kv", "--test", "checker"], 9)?;
        Ok(Outcome::Pass(format!("{passed} tests: checker")))
    }),
    ("the programs on frames and on cables", |machine| {
        let passed =
            machine.tests(&["-p", "tidemill-kv", "--test", "root_kernel", "--", "--show-output"], 60)?;
        Ok(Outcome::Pass(format!("{passed} tests: root_kernel")))
    }),
    ("any frame: untouched, dropped by name, or answered as memcached would", |machine| {
        let mut test = vec!["-p", "tidemill-kv", "--release", "--test", "root_fuzz", "--", "--show-output"];
        let mut least = 11;
        if !machine.quick {
            test.push("--include-ignored");
            least = 14;
        }
        Ok(Outcome::Pass(format!("{} tests: root_fuzz", machine.tests(&test, least)?)))
    }),
    ("commands, replies, streams, misses, tokens", |machine| {
        let passed = machine.tests(&["-p", "tidemill-kv", "--lib"], 50)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-kv")))
    }),
    ("streams cut anywhere, the rules, the real memcached's words, nothing allocated", |machine| {
        let suites = ["streams", "never_stale", "root_memcached", "no_allocation"];
        let tests: Vec<&str> = ["-p", "tidemill-kv"]
            .into_iter()
            .chain(suites.iter().flat_map(|suite| ["--test", *suite]))
            .collect();
        let passed = machine.tests(&tests, 23)?;
        Ok(Outcome::Pass(format!("{passed} tests: {}", suites.join(", "))))
    }),
    ("attach, stats, top, flush, detach: the command", |machine| {
        let passed = machine.tests(&["-p", "tidemill-cli", "--test", "root_kv"], 1)?;
        Ok(Outcome::Pass(format!("{passed} test: root_kv")))
    }),
    ("any request, any reply", |machine| fuzz(machine, "kv_codec")),
    ("a stream cut anywhere", |machine| fuzz(machine, "kv_stream")),
    ("hits a second, beside memcached by UDP and TCP", |machine| {
        // Datagrams with a checksum, as clients' are.
        let (runs, seconds) = lengths(machine);
        let line = ["bench", "kv", "--case", "hits", "--checksum", "--runs", runs, "--seconds", seconds];
        let objects = machine.tidemill(&[&line[..], &["--json"]].concat())?;
        let all = ratios(&objects);
        let to = |peer: &str| {
            all.iter().find(|ratio| ratio["to"] == peer).with_context(|| format!("no ratio to {peer}"))
        };
        let (udp, _) = (to(UDP)?, to(TCP)?);
        // Of few and short runs the interval says little.
        let at_least = number(udp, if machine.quick { "value" } else { "low" });
        Ok(verdict(at_least >= 10.0, format!("{}; {}", values(&objects), compared(&objects))))
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
        Ok(verdict(is_oldest(&said, if machine.quick { 1 } else { 40 }), said))
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
const TCP: &str = "peer:memcached-tcp";

/// Rounds of pairs at most, 120 pairs each.
const ROUNDS: usize = 12;
/// Standard errors on each side of what is estimated: who looks twelve times whether it is decided is wrong once in twenty then (Pocock's bound for equal rounds), where one
/// who looks once takes 1.96.
const ERRORS: f64 = 2.6;

/// Rounds until all of the interval is on one side of the bound, each with a memcached of its own.
fn uncacheable(machine: &Machine, case: &str) -> Result<Outcome> {
    let (rounds, runs, seconds) = if machine.quick { (1, "4", "0.5") } else { (ROUNDS, "20", "1") };
    let mut pooled = Pooled::default();
    loop {
        let objects = bench_of(machine, case, runs, seconds)?;
        // The first ratio is the one to memcached with nothing before it.
        let ratio = ratios(&objects).into_iter().next().context("no ratio: give more runs")?;
        pooled.add(number(ratio, "low"), number(ratio, "high"));
        let (low, high) = pooled.interval();
        let text = format!(
            "{:.3} ({low:.3} to {high:.3}), rounds: {}; the last: {}",
            pooled.value(),
            pooled.rounds,
            compared(&objects)
        );
        if is_decided(low, high, 0.97) || pooled.rounds >= rounds {
            return Ok(within(low, high, 0.97, &text));
        }
        println!("{case}: undecided yet: {text}");
    }
}

/// What several rounds estimate together, each with its weight, the inverse of its variance. In logarithms.
#[derive(Default)]
struct Pooled {
    weights: f64,
    weighted: f64,
    rounds: usize,
}

impl Pooled {
    /// A round's interval, of 95 %.
    fn add(&mut self, low: f64, high: f64) {
        let error = (high.ln() - low.ln()) / (2.0 * 1.96);
        let weight = 1.0 / (error * error);
        self.weights += weight;
        self.weighted += weight * (high.ln() + low.ln()) / 2.0;
        self.rounds += 1;
    }

    fn value(&self) -> f64 {
        (self.weighted / self.weights).exp()
    }

    fn interval(&self) -> (f64, f64) {
        let half = ERRORS / self.weights.sqrt();
        (self.value() * (-half).exp(), self.value() * half.exp())
    }
}

/// Whether all of an interval is on one side of a bound.
fn is_decided(low: f64, high: f64, bound: f64) -> bool {
    low >= bound || high < bound
}

/// Whether all of an interval is on the right side of a bound. Where the bound lies within it nothing is shown.
fn within(low: f64, high: f64, bound: f64, text: &str) -> Outcome {
    if low < bound && high >= bound {
        return Outcome::Fail(format!("undecided, {bound} is within: give it a machine of its own; {text}"));
    }
    verdict(low >= bound, text)
}

/// Whether `cargo xtask kernels` has run so many tests on a kernel of the release that the programs stand for: what Debian's newest name stands for here may be a later one.
fn is_oldest(said: &str, least: usize) -> bool {
    let passed = |rest: &str| rest.strip_suffix(" tests passed")?.rsplit(' ').next()?.parse::<usize>().ok();
    let rest = said.trim_end().strip_prefix("kernels: ").filter(|release| release.starts_with("6.1."));
    rest.and_then(passed).is_some_and(|passed| passed >= least)
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

/// Runs, and seconds of each.
fn lengths(machine: &Machine) -> (&'static str, &'static str) {
    if machine.quick { ("4", "0.5") } else { ("11", "2") }
}

fn bench(machine: &Machine, case: &str) -> Result<Vec<Value>> {
    let (runs, seconds) = lengths(machine);
    bench_of(machine, case, runs, seconds)
}

fn bench_of(machine: &Machine, case: &str, runs: &str, seconds: &str) -> Result<Vec<Value>> {
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
    use super::{Outcome, Pooled, is_decided, is_oldest, within};

    #[test]
    fn a_later_kernel_is_not_the_oldest() {
        assert!(is_oldest("kernels: 6.1.0-50-amd64: good, 41 tests passed", 41));
        assert!(!is_oldest("kernels: 6.1.0-50-amd64: good, 41 tests passed", 42));
        assert!(!is_oldest("kernels: 6.12.48+deb13-amd64: good, 41 tests passed", 1));
        assert!(!is_oldest("", 0));
    }

    #[test]
    fn an_interval_with_the_bound_in_it_shows_nothing() {
        assert!(matches!(within(0.975, 0.99, 0.97, ""), Outcome::Pass(_)));
        assert!(matches!(within(0.96, 0.99, 0.97, ""), Outcome::Fail(text) if text.starts_with("undecided")));
        assert!(matches!(within(0.90, 0.96, 0.97, ""), Outcome::Fail(text) if text.is_empty()));
        assert!(matches!(within(f64::NAN, f64::NAN, 0.97, ""), Outcome::Fail(_)));
    }

    #[test]
    fn rounds_decide_together_what_one_does_not() {
        let mut pooled = Pooled::default();
        let mut add = || {
            pooled.add(0.969, 0.989);
            pooled.interval()
        };
        let one = add();
        // One round is believed less than it says of itself, as others may follow.
        assert!(one.0 < 0.969 && one.1 > 0.989 && !is_decided(one.0, one.1, 0.97), "{one:?}");
        let four = [(); 3].map(|()| add())[2];
        // Four halve it.
        let width = |(low, high): (f64, f64)| high.ln() - low.ln();
        assert!((width(one) / width(four) - 2.0).abs() < 1e-9, "{one:?} {four:?}");
        assert!(is_decided(four.0, four.1, 0.97) && !is_decided(four.0, four.1, 0.98), "{four:?}");
        assert!((pooled.value() - (0.969_f64 * 0.989).sqrt()).abs() < 1e-9);
        assert!(is_decided(0.9, 0.96, 0.97));
    }
}
