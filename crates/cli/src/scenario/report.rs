//! What is said of a scenario: JSON lines, lines for people, a verdict, a drawing.

use super::file::Expect;
use super::phase::Outcome;
use super::watch::Span;
use crate::json::{self, significant};
use crate::plot::{Bar, Curve, Curves, Plot, stack};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A line for a second, or for a phase.
#[derive(Serialize)]
struct Line<'a, T: Serialize> {
    v: u8,
    kind: &'static str,
    phase: &'a str,
    #[serde(flatten)]
    what: &'a T,
}

/// One bound.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Check {
    pub(super) phase: String,
    pub(super) what: &'static str,
    /// None: never.
    pub(super) value: Option<f64>,
    /// `least` or `most`.
    pub(super) bound: &'static str,
    pub(super) of: f64,
    pub(super) pass: bool,
}

/// The last line.
#[derive(Serialize)]
struct Summary<'a> {
    v: u8,
    kind: &'static str,
    pass: bool,
    checks: &'a [Check],
}

/// Collects and prints.
pub(super) struct Reporter {
    pub(super) json: bool,
    seconds: Vec<(String, Span)>,
}

fn percent(parts: [f64; 2]) -> String {
    format!("{:.1} % / {:.1} %", 100.0 * parts[0], 100.0 * parts[1])
}

/// The greatest of these, as `name number`.
fn most(counts: &BTreeMap<String, f64>) -> String {
    let mut all: Vec<_> = counts.iter().collect();
    all.sort_by(|a, b| b.1.total_cmp(a.1));
    let text: Vec<String> = all.iter().take(4).map(|(name, rate)| format!("{name} {rate:.0}/s")).collect();
    if text.is_empty() { "none".into() } else { text.join(", ") }
}

impl Reporter {
    pub(super) fn new(json: bool) -> Reporter {
        Reporter { json, seconds: Vec::new() }
    }

    /// A second is over.
    pub(super) fn second(&mut self, phase: &str, span: &Span) -> Result<()> {
        if self.json {
            json::print(&Line { v: json::VERSION, kind: "second", phase, what: span })?;
        }
        let [v4, v6] = span.goodput_kib_s;
        eprintln!(
            "{:6.1} s  {phase}: client {v4:.0} + {v6:.0} KiB/s, attack {:.2} Mpps, passed {:.0} pps, CPU gatekeeper {:.0} % grantor {:.0} % rest {:.0} %",
            span.at_s,
            span.attack_mpps,
            span.passed_pps,
            span.cpu.gatekeeper,
            span.cpu.grantor,
            span.cpu.scenario
        );
        self.seconds.push((phase.to_owned(), span.clone()));
        Ok(())
    }

    /// A phase is over.
    pub(super) fn phase(&self, outcome: &Outcome) -> Result<()> {
        if self.json {
            #[derive(Serialize)]
            struct Phase<'a> {
                v: u8,
                kind: &'static str,
                #[serde(flatten)]
                what: &'a Outcome,
            }
            json::print(&Phase { v: json::VERSION, kind: "phase", what: outcome })?;
            return Ok(());
        }
        let span = &outcome.span;
        println!("{}: {:.1} s", outcome.phase, span.seconds);
        println!(
            "  client (IPv4 / IPv6): {} of its granted rate, {} lost{}",
            percent(outcome.goodput),
            outcome.lost.iter().sum::<u64>(),
            outcome.tcp.map(|parts| format!("; TCP {}", percent(parts))).unwrap_or_default()
        );
        println!("  declined: {} sent, {} got through", span.declined[0], span.declined[1]);
        let waits = &outcome.newcomers;
        if waits.asked > 0 {
            let ms = |ms: Option<f64>| ms.map_or("-".into(), |ms| format!("{ms:.0} ms"));
            println!(
                "  newcomers: {}, of which {} in vain; half of them within {}, {} within {}",
                waits.asked,
                waits.waiting,
                ms(waits.p50_ms),
                if waits.waiting > 0 { "the others" } else { "all" },
                ms(waits.max_ms)
            );
        }
        if outcome.attacked {
            println!(
                "  attack: {:.2} Mpps, {:.0} times the client's; with all others {:.2} Mpps reached the gatekeeper by the front; {:.0} packets a second passed",
                span.attack_mpps, outcome.attack_ratio, span.front_mpps, span.passed_pps
            );
        }
        if let Some(change) = &outcome.change {
            let ms = |ms: Option<f64>| ms.map_or("never".into(), |ms| format!("{ms:.1} ms"));
            println!(
                "  change: reloaded in {:.1} ms, first grant by it after {} / {}{}",
                change.reload_ms,
                ms(change.granted_ms[0]),
                ms(change.granted_ms[1]),
                change
                    .revoked_ms
                    .map(|[v4, v6]| format!(", last packet of whom it declines after {v4:.1} / {v6:.1} ms"))
                    .unwrap_or_default()
            );
        }
        println!("  drops: gatekeeper: {}", most(&span.gatekeeper_drops_s));
        println!("         grantor: {}", most(&span.grantor_drops_s));
        let busy: Vec<String> = span.cpu.busy.iter().map(|busy| format!("{busy:.0} %")).collect();
        println!(
            "  CPU: gatekeeper {:.0} %, grantor {:.0} %, attacks and clients {:.0} %; each CPU: {}",
            span.cpu.gatekeeper,
            span.cpu.grantor,
            span.cpu.scenario,
            busy.join(", ")
        );
        Ok(())
    }

    /// The end: whether all is as expected.
    pub(super) fn summary(&self, checks: &[Check]) -> Result<bool> {
        let pass = checks.iter().all(|check| check.pass);
        if self.json {
            json::print(&Summary { v: json::VERSION, kind: "summary", pass, checks })?;
            return Ok(pass);
        }
        for check in checks.iter().filter(|check| !check.pass) {
            println!(
                "not as expected: {}: {} {}, at {} {}",
                check.phase,
                check.what,
                check.value.map_or("never".into(), |value| value.to_string()),
                check.bound,
                check.of
            );
        }
        match (checks.is_empty(), pass) {
            (true, _) => println!("nothing was expected: give [expect]"),
            (_, true) => println!("as expected: {} bounds", checks.len()),
            (_, false) => {}
        }
        Ok(pass)
    }

    /// Curves by the second; how long newcomers wait, and drops, by phase.
    pub(super) fn draw(&self, path: &Path, outcomes: &[Outcome]) -> Result<()> {
        let end = |span: &Span| span.at_s + span.seconds;
        let curve = |name: &str, of: &dyn Fn(&Span) -> f64| Curve {
            name: name.to_owned(),
            points: self.seconds.iter().map(|(_, span)| (significant(end(span)), of(span))).collect(),
            marks: Vec::new(),
        };
        let chart = |title: &str, y: &str, curves: Vec<Curve>| {
            Curves { title: title.into(), x: "s".into(), y: y.into(), curves, ticks: Vec::new() }.sized_svg()
        };
        let mut charts = vec![
            chart(
                "The client's goodput",
                "KiB/s",
                vec![
                    curve("datagrams, IPv4", &|span| span.goodput_kib_s[0]),
                    curve("datagrams, IPv6", &|span| span.goodput_kib_s[1]),
                    curve("TCP, IPv4", &|span| span.tcp_kib_s[0]),
                    curve("TCP, IPv6", &|span| span.tcp_kib_s[1]),
                ],
            ),
            chart(
                "The attack",
                "Mpps",
                vec![
                    curve("made", &|span| span.attack_mpps),
                    curve("arrived at the server", &|span| span.passed_pps / 1e6),
                ],
            ),
            chart(
                "CPU",
                "% of one",
                vec![
                    curve("Gatekeeper", &|span| span.cpu.gatekeeper),
                    curve("Grantor", &|span| span.cpu.grantor),
                    curve("attacks and clients", &|span| span.cpu.scenario),
                ],
            ),
        ];
        for (title, axis, bars) in [
            ("How long newcomers wait", "ms", waits(outcomes)),
            ("What the Gatekeeper drops", "Mpps", drops(outcomes, |span| &span.gatekeeper_drops_s)),
            ("What the Grantor drops", "Mpps", drops(outcomes, |span| &span.grantor_drops_s)),
        ] {
            if !bars.is_empty() {
                charts.push(Plot { title: title.into(), axis: axis.into(), bars }.sized_svg());
            }
        }
        crate::files::write(path, stack(&charts).as_bytes()).with_context(|| path.display().to_string())
    }
}

fn bar(outcome: &Outcome, series: &str, value: f64) -> Bar {
    Bar { group: outcome.phase.clone(), series: series.to_owned(), value, min: value, max: value }
}

/// How long newcomers have waited, by phase, in ms. Who waits still has waited for longer than any bar could say.
fn waits(outcomes: &[Outcome]) -> Vec<Bar> {
    let bars = |outcome: &Outcome| {
        let waits = &outcome.newcomers;
        let all = waits.max_ms.filter(|_| waits.waiting == 0);
        let half = waits.p50_ms.map(|ms| bar(outcome, "half of them", ms));
        half.into_iter().chain(all.map(|ms| bar(outcome, "all", ms))).collect::<Vec<_>>()
    };
    outcomes.iter().flat_map(bars).collect()
}

/// Packets dropped a second, by phase and reason, in millions.
fn drops(outcomes: &[Outcome], of: fn(&Span) -> &BTreeMap<String, f64>) -> Vec<Bar> {
    let bars = |outcome: &Outcome| {
        of(&outcome.span).iter().map(|(reason, rate)| bar(outcome, reason, rate / 1e6)).collect::<Vec<_>>()
    };
    outcomes.iter().flat_map(bars).collect()
}

/// Holds phases to what is expected.
pub(super) fn checks(expect: &Expect, outcomes: &[Outcome]) -> Vec<Check> {
    let mut all = Vec::new();
    for outcome in outcomes {
        let mut hold = |what, value: f64, bound: &'static str, of: Option<f64>| {
            let Some(of) = of else { return };
            let pass = if bound == "least" { value >= of } else { value <= of };
            let value = value.is_finite().then_some(value);
            all.push(Check { phase: outcome.phase.clone(), what, value, bound, of, pass });
        };
        let span = &outcome.span;
        hold("goodput", outcome.goodput[0].min(outcome.goodput[1]), "least", expect.goodput);
        if let Some([v4, v6]) = outcome.tcp {
            hold("tcp", v4.min(v6), "least", expect.tcp);
        }
        hold("declined", span.declined[1] as f64, "most", expect.declined.map(|most| most as f64));
        // That one is declined shows only where it sends.
        hold("declined-sent", span.declined[0] as f64, "least", expect.declined.map(|_| 1.0));
        let waits = &outcome.newcomers;
        if waits.asked > 0 {
            // Who waits still has waited for ever.
            let longest = if waits.waiting > 0 { None } else { waits.max_ms };
            let most = outcome.request_s.or(expect.request_s);
            hold("request_s", longest.map_or(f64::INFINITY, |ms| ms / 1000.0), "most", most);
        }
        if let Some(change) = &outcome.change {
            let granted = change.granted_ms.map(|ms| ms.unwrap_or(f64::INFINITY));
            hold("granted_ms", granted[0].max(granted[1]), "most", expect.change_ms);
            if let Some([v4, v6]) = change.revoked_ms {
                hold("revoked_ms", v4.max(v6), "most", expect.change_ms);
            }
            // Under an attack some are lost whether there is a change or not: that is what goodput is held to.
            if !outcome.attacked {
                let lost = outcome.lost.iter().sum::<u64>() as f64;
                hold("change_lost", lost, "most", expect.change_lost.map(|most| most as f64));
            }
        }
        if outcome.attacked {
            hold("attack_mpps", span.attack_mpps, "least", expect.attack_mpps);
            hold("attack_ratio", outcome.attack_ratio, "least", expect.attack_ratio);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::phase::{Changed, Waits};
    use crate::scenario::watch::Cpu;

    fn outcome(waits: &[Option<u64>], change: Option<Changed>) -> Outcome {
        let cpu = Cpu { gatekeeper: 0.0, grantor: 0.0, scenario: 0.0, busy: Vec::new() };
        let span = Span {
            at_s: 0.0,
            seconds: 1.0,
            goodput_kib_s: [0.0; 2],
            tcp_kib_s: [0.0; 2],
            client_pps: 1.0,
            declined: [5, 0],
            attack_mpps: 0.0,
            front_mpps: 0.0,
            passed_pps: 0.0,
            gatekeeper_drops_s: Default::default(),
            grantor_drops_s: Default::default(),
            gatekeeper_s: Default::default(),
            grantor_s: Default::default(),
            cpu,
        };
        Outcome {
            phase: "one".into(),
            granted_kib_s: [1; 2],
            goodput: [1.0; 2],
            lost: [0; 2],
            tcp: None,
            newcomers: Waits::of(waits),
            request_s: None,
            change,
            attack_ratio: 0.0,
            attacked: false,
            span,
        }
    }

    #[test]
    fn bars_are_of_waits_and_of_both_sides_drops() {
        let shown = |bars: Vec<Bar>| -> Vec<String> {
            bars.iter().map(|bar| format!("{}: {} {}", bar.group, bar.series, bar.value)).collect()
        };
        let ms = |ms: u64| Some(ms * 1_000_000);
        let heard = outcome(&[ms(5), ms(900), ms(7)], None);
        let mut vain = outcome(&[ms(5), ms(6), None], None);
        assert_eq!(
            shown(waits(&[heard.clone(), vain.clone(), outcome(&[], None)])),
            ["one: half of them 7", "one: all 900", "one: half of them 6"]
        );
        assert!(drops(&[heard], |span| &span.grantor_drops_s).is_empty());
        vain.span.grantor_drops_s.insert("policy-refused".into(), 2e6);
        assert_eq!(shown(drops(&[vain], |span| &span.grantor_drops_s)), ["one: policy-refused 2"]);
    }

    /// Who was not heard fails the bound, and half of them were not heard within any time; what is not measured is not held.
    #[test]
    fn who_waits_in_vain_waits_longest() {
        let expect = Expect { request_s: Some(1.0), change_ms: Some(100.0), ..Expect::default() };
        let changed = Changed { reload_ms: 1.0, granted_ms: [Some(2.0), Some(3.0)], revoked_ms: None };
        let (ms, names) = (
            |ms: u64| Some(ms * 1_000_000),
            |all: &[Check]| all.iter().map(|check| (check.what, check.value, check.pass)).collect::<Vec<_>>(),
        );
        let heard = outcome(&[ms(5), ms(900), ms(7)], None);
        assert_eq!((heard.newcomers.p50_ms, heard.newcomers.max_ms), (Some(7.0), Some(900.0)));
        assert_eq!(names(&checks(&expect, &[heard])), [("request_s", Some(0.9), true)]);
        // A phase may have a bound of its own.
        for (of, pass) in [(0.8, false), (5.0, true)] {
            let slow = Outcome { request_s: Some(of), ..outcome(&[ms(900)], None) };
            assert_eq!(names(&checks(&expect, &[slow])), [("request_s", Some(0.9), pass)]);
        }
        let slow = Outcome { request_s: Some(5.0), ..outcome(&[ms(4200)], None) };
        assert_eq!(names(&checks(&expect, &[slow])), [("request_s", Some(4.2), true)]);
        let vain = outcome(&[ms(5), None, None], Some(changed.clone()));
        assert_eq!((vain.newcomers.waiting, vain.newcomers.p50_ms), (2, None));
        assert_eq!(
            names(&checks(&expect, &[vain])),
            [("request_s", None, false), ("granted_ms", Some(3.0), true)]
        );
        let taken = Changed { revoked_ms: Some([4.0, 101.0]), ..changed };
        assert_eq!(
            names(&checks(&expect, &[outcome(&[], Some(taken))])),
            [("granted_ms", Some(3.0), true), ("revoked_ms", Some(101.0), false)]
        );
    }
}
