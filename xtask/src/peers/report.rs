//! What a comparison prints, for machines or for people, and keeps; the alternating passes that it is made of.

use super::runner::Runner;
use super::stats;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Prints what is measured, and keeps it if asked to.
pub(crate) struct Report {
    /// `bench` in every line.
    pub(crate) bench: &'static str,
    /// What rates are called: millions of lookups or packets per second.
    pub(crate) metric: &'static str,
    pub(crate) json: bool,
    pub(crate) record: Option<Record>,
}

/// What is asked of both sides, and how often.
pub(crate) struct Case<'a> {
    /// In the lines.
    pub(crate) name: &'a str,
    /// As runners know it.
    pub(crate) asked: &'static str,
    pub(crate) rounds: usize,
    /// Whether each pass comes after one that is not counted and brings the table back into the caches.
    pub(crate) warm: bool,
}

impl Report {
    /// One measurement.
    fn line(&mut self, object: Value, text: &str) {
        if self.json {
            println!("{object}");
        } else if !text.is_empty() {
            println!("{text}");
        }
        if let Some(record) = &mut self.record {
            record.add(object);
        }
    }

    /// What a runner said when its table stood. `things` are what it holds.
    pub(crate) fn built(&mut self, runner: &Runner, case: &str, things: &str) {
        let Runner { subject, held, rejected, build_seconds: seconds, bytes, params, .. } = runner;
        let megabytes = *bytes as f64 / 1e6;
        let text = format!(
            "{subject}: {held} {things}, {rejected} rejected, built in {seconds:.3} s, {megabytes:.1} MB"
        );
        let object = |metric: &str, value: Value| {
            json!({"v": 1, "bench": self.bench, "subject": subject, "case": case, "metric": metric,
                "value": value, things: held, "rejected": rejected, "params": params})
        };
        let (seconds, bytes) = (object("build_seconds", json!(seconds)), object("bytes", json!(bytes)));
        self.line(seconds, &text);
        self.line(bytes, "");
    }

    /// Alternating passes of one case, and their lines: one of theirs and one of each of ours, round after round.
    pub(crate) fn compare(
        &mut self,
        ours: &mut [Runner],
        theirs: &mut Runner,
        case: &Case<'_>,
    ) -> Result<()> {
        let mut rates = vec![Vec::new(); ours.len() + 1];
        for round in 0..case.rounds {
            // Who goes first alternates, so that a drift of the machine favours nobody.
            for turn in 0..rates.len() {
                let at = (turn + round) % rates.len();
                let runner = ours.get_mut(at).unwrap_or(&mut *theirs);
                rates[at].push(runner.pass(case)?);
            }
        }
        for (at, rates) in rates.iter().enumerate() {
            let runner = ours.get(at).unwrap_or(&*theirs);
            self.rates(runner, case, rates);
        }
        let (case, to) = (case.name, &theirs.subject);
        for (our, rates_of) in ours.iter().zip(&rates) {
            let pairs: Vec<(f64, f64)> =
                rates_of.iter().copied().zip(rates[ours.len()].iter().copied()).collect();
            let stats::Ratio { value, low, high, pairs } =
                stats::ratio(&pairs).context("too few pairs for a ratio")?;
            let of = &our.subject;
            let object = json!({"v": 1, "bench": self.bench, "case": case, "metric": "ratio", "of": of, "to": to,
                "value": value, "low": low, "high": high, "pairs": pairs, "rejected": theirs.rejected});
            let text = format!("  {case} {of} to {to}: {value:.2} ({low:.2} to {high:.2}, {pairs} pairs)");
            self.line(object, &text);
        }
        Ok(())
    }

    /// A case whose pass is, for them, the build that they were timed at when they started: too long to be done again. So there is one pair,
    /// our median and that build, and no interval.
    pub(crate) fn beside_build(
        &mut self,
        ours: &mut [Runner],
        theirs: &Runner,
        case: &Case<'_>,
    ) -> Result<()> {
        let Runner { subject: to, build_seconds, rejected, .. } = theirs;
        ensure!(*build_seconds > 0.0, "{to}: a build that took no time");
        let their_rate = 1.0 / build_seconds / 1e6;
        self.rates(theirs, case, &[their_rate]);
        for our in ours {
            let rates: Vec<f64> = (0..case.rounds).map(|_| our.pass(case)).collect::<Result<_>>()?;
            self.rates(our, case, &rates);
            let (value, of, case) = (stats::median(&rates) / their_rate, &our.subject, case.name);
            let object = json!({"v": 1, "bench": self.bench, "case": case, "metric": "ratio", "of": of, "to": to,
                "value": value, "low": value, "high": value, "pairs": 1, "rejected": rejected});
            self.line(object, &format!("  {case} {of} to {to}: {value:.0} (one build of theirs)"));
        }
        Ok(())
    }

    fn rates(&mut self, runner: &Runner, case: &Case<'_>, rates: &[f64]) {
        let (least, most) =
            (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
        let (median, name, subject) = (stats::median(rates), case.name, &runner.subject);
        let object = json!({"v": 1, "bench": self.bench, "subject": subject, "case": name, "metric": self.metric,
            "value": median, "min": least, "max": most, "runs": rates.len(),
            "checksum": runner.expected(case.asked), "params": runner.params});
        let text = format!("  {name} {subject}: {median:.1} M/s ({least:.1} to {most:.1})");
        self.line(object, &text);
    }
}

/// One pass of each case by every runner, for the checksums only.
pub(crate) fn check(runners: &mut [Runner], cases: &[&'static str], things: &str) -> Result<bool> {
    for runner in runners {
        for case in cases {
            runner.pass_once(case)?;
        }
        println!("agrees: {} ({} {things}, {} rejected)", runner.subject, runner.held, runner.rejected);
    }
    Ok(true)
}
