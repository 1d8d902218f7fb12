//! The papers' figures on longest-prefix matching: with which tables each is made, and the record of those that no clock has a part in,
//! `bench/results/figures.jsonl`. `held 5` makes all of them anew and holds the latter against the record.

mod claims;

use crate::{env, proc, record};
use anyhow::{Context, Result, bail};
pub(crate) use claims::{broken, unlike_fu_4_6};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The figures that must be there.
pub(crate) const FIGURES: [&str; 35] = [
    "zec-3.1t", "zec-3.2t", "zec-3.9", "zec-3.11", "zec-3.13", "zec-3.15", "zec-3.16", "zec-3.17",
    "zec-3.18", "zec-4.2", "zec-4.3", "zec-4.4", "zec-4.5", "zec-4.6", "zec-4.7", "zec-4.8", "fu-3.2t",
    "fu-3.4t", "fu-3.5t", "fu-3.7", "fu-3.8", "fu-3.9", "fu-3.10", "fu-3.11", "fu-3.12", "fu-3.13",
    "fu-3.16", "fu-3.17", "cuvpp-1t", "cuvpp-2t", "cuvpp-3t", "cuvpp-6", "cuvpp-7", "cuvpp-10", "cuvpp-12",
];

/// Those of which all that counts, or a part, is the same on every machine: these are recorded.
pub(crate) const COUNTED: [&str; 15] = [
    "zec-3.1t", "zec-3.2t", "zec-3.9", "zec-3.11", "zec-4.2", "zec-4.3", "zec-4.4", "zec-4.5", "fu-3.4t",
    "fu-3.5t", "fu-3.10", "fu-3.11", "fu-3.16", "fu-3.17", "cuvpp-12",
];

/// These too, but of them only what is claimed is held: bounds, and what takes minutes to make.
pub(crate) const LONG_COUNTED: [&str; 5] = ["zec-3.18", "fu-3.2t", "cuvpp-2t", "cuvpp-3t", "cuvpp-10"];

/// How many numbers of the paper stand beside ours in each figure: those that its tables and its text state, or the raw data that its authors published.
/// What it only draws is not read off the drawing; of three figures it states nothing but words, which their notes quote.
const PAPERS: [(&str, usize); 35] = [
    ("zec-3.1t", 83),
    ("zec-3.2t", 20),
    ("zec-3.9", 1),
    ("zec-3.11", 21),
    ("zec-3.13", 1),
    ("zec-3.15", 1),
    ("zec-3.16", 0),
    ("zec-3.17", 0),
    ("zec-3.18", 8),
    ("zec-4.2", 1),
    ("zec-4.3", 20),
    ("zec-4.4", 9),
    ("zec-4.5", 16),
    ("zec-4.6", 5),
    ("zec-4.7", 2),
    ("zec-4.8", 0),
    ("fu-3.2t", 17),
    ("fu-3.4t", 3),
    ("fu-3.5t", 12),
    ("fu-3.7", 12),
    ("fu-3.8", 12),
    ("fu-3.9", 12),
    ("fu-3.10", 2),
    ("fu-3.11", 6),
    ("fu-3.12", 2),
    ("fu-3.13", 14),
    ("fu-3.16", 2),
    ("fu-3.17", 6),
    ("cuvpp-1t", 12),
    ("cuvpp-2t", 40),
    ("cuvpp-3t", 24),
    ("cuvpp-6", 32),
    ("cuvpp-7", 32),
    ("cuvpp-10", 72),
    ("cuvpp-12", 16),
];

/// What is wrong if a figure has so many points with a number of the paper beside them.
pub(crate) fn beside(figure: &str, found: usize) -> Option<String> {
    let stated = PAPERS.iter().find(|(name, _)| *name == figure).map(|(_, stated)| *stated);
    match stated {
        None => Some("nothing says how many numbers the paper states".into()),
        Some(stated) => {
            (found < stated).then(|| format!("{found} of the paper's {stated} numbers stand beside ours"))
        }
    }
}

/// The figure on hash tables, which `bench flow` makes and no table of routes has a part in: rates, so its record is one run's.
pub(crate) const FLOW: &str = "fu-4.7";

/// The figure on the Gatekeeper's optimisations, which `bench gate` makes: ratios of rates.
pub(crate) const GATE: &str = "fu-4.6";

const V4: &str = "ris-as3333-20260511.v4.nh148.zst";
const V6: &str = "ris-as3333-20260511.v6.nh148.zst";
/// With 1 % of prefixes longer than /24, about as many as the tables of Fu's thesis.
const LONG: &str = "rrc06-as4777-20100701.v4.nh.zst";
/// Of the time of the stream of 2013.
const OF_2014: &str = "routeviews-20140513.v4.origin.zst";
const STREAM_OF_2013: &str = "routeviews2-20130101.updates.txt.zst";

/// The arguments of `tidemill` that make a figure of the tables in a folder.
pub(crate) fn arguments(figure: &str, folder: &Path) -> Vec<String> {
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let tables: &[&str] = match figure {
        // These make their own tables, of the shapes that the paper names.
        _ if figure.starts_with("cuvpp") => &[],
        "fu-3.5t" | "fu-3.16" | "fu-3.17" => &[V6],
        "fu-3.2t" | "fu-3.10" => &[LONG],
        "fu-3.4t" => &[LONG, OF_2014, V4],
        "fu-3.11" => &[OF_2014],
        "zec-3.2t" => &[V4, LONG],
        _ => &[V4],
    };
    let mut arguments: Vec<String> = ["bench", "lpm", "--figure", figure, "--json"].map(String::from).into();
    tables.iter().for_each(|table| arguments.extend(["--table".into(), file(table)]));
    if figure == "fu-3.11" {
        arguments.extend(["--updates".into(), file(STREAM_OF_2013)]);
    }
    arguments
}

/// Whether a clock has a part in what has this unit.
fn timed(unit: &str) -> bool {
    ["build ms", "s for all lookups", "ns for an insertion"].contains(&unit) || unit.contains("M lookups/s")
}

/// How far a figure may be from its record, as a part of it and in all: cuckoo moves are a median over runs.
fn tolerance(figure: &str) -> (f64, f64) {
    if figure == "cuvpp-12" { (0.25, 0.1) } else { (0.0, 0.0) }
}

/// A point as the record has it.
fn point(object: &Value) -> Value {
    let field = |name: &str| (name.to_owned(), object[name].clone());
    Value::Object(["figure", "unit", "series", "x", "y", "paper"].into_iter().map(field).collect())
}

/// The points among what a figure prints in which no clock has a part.
fn counted<'a>(figure: &'a str, objects: &'a [Value]) -> impl Iterator<Item = &'a Value> {
    let of = move |object: &&Value| {
        object["figure"] == figure && !timed(object["unit"].as_str().unwrap_or_default())
    };
    objects.iter().filter(of)
}

/// Makes the counted figures anew and writes their record.
pub(crate) fn record(quick: bool) -> Result<()> {
    let folder = env::data().context("TIDEMILL_DATA is not set: the figures need the real data")?.join("rib");
    let mut record = record::Record::start("figures", json!({}), quick)?;
    for figure in COUNTED {
        let mut command = Command::new(env::tidemill()?);
        command.args(arguments(figure, &folder)).args(["--runs", "3", "--seconds", "0.02"]);
        let mut objects = Vec::new();
        let good = proc::lines(&mut command, |line| objects.extend(serde_json::from_str::<Value>(line)))?;
        let mut points = counted(figure, &objects).peekable();
        if !good || points.peek().is_none() {
            bail!("failed: {}", proc::shown(&command));
        }
        points.for_each(|object| record.add(point(object)));
    }
    record.write()
}

/// The points of all counted figures, as recorded.
pub(crate) fn recorded() -> Result<Vec<Value>> {
    let path = record::path("figures");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("not JSON: {line}"));
    text.lines().skip(1).map(parse).collect()
}

/// What is different between a counted figure's points and the record of them, the first thing; `None`: nothing that counts.
pub(crate) fn different(figure: &str, objects: &[Value], recorded: &[Value]) -> Option<String> {
    let (now, then) =
        (counted(figure, objects).collect::<Vec<_>>(), counted(figure, recorded).collect::<Vec<_>>());
    if then.is_empty() {
        return Some("nothing is recorded: cargo xtask record --only figures".into());
    }
    let (part, all) = tolerance(figure);
    let near = |a: &Value, b: &Value, part: f64, all: f64| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= all + part * b.abs(),
        _ => a == b,
    };
    let same = |now: &Value, then: &Value| {
        let names = ["unit", "series", "paper"].iter().all(|field| now[*field] == then[*field]);
        let at = if part > 0.0 { 0.01 } else { 0.0 };
        names && near(&now["x"], &then["x"], 0.0, at) && near(&now["y"], &then["y"], part, all)
    };
    if let Some((now, then)) = now.iter().zip(&then).find(|(now, then)| !same(now, then)) {
        return Some(format!("{} where {} is recorded", point(now), then));
    }
    // A median over runs may have one step more or less.
    let ends = now.len().abs_diff(then.len());
    (ends > usize::from(part > 0.0))
        .then(|| format!("{} points where {} are recorded", now.len(), then.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(figure: &str, unit: &str, x: f64, y: f64) -> Value {
        json!({"v": 1, "figure": figure, "unit": unit, "series": "s", "x": x, "y": y, "paper": null, "table": "t"})
    }

    #[test]
    fn every_counted_figure_is_one_that_must_be_there() {
        assert!(FIGURES.iter().all(|figure| beside(figure, usize::MAX).is_none()));
        assert_eq!(beside("zec-3.11", 20).unwrap(), "20 of the paper's 21 numbers stand beside ours");
        assert!(beside("fu-4.7", 0).is_some());
        assert!(COUNTED.iter().chain(&LONG_COUNTED).all(|figure| FIGURES.contains(figure)));
        let of = |figure: &str| arguments(figure, Path::new("/r")).join(" ");
        assert_eq!(of("cuvpp-6"), "bench lpm --figure cuvpp-6 --json");
        assert!(of("fu-3.11").ends_with("--updates /r/routeviews2-20130101.updates.txt.zst"));
    }

    #[test]
    fn a_difference_is_seen_and_a_clock_is_none() {
        let then = [line("zec-3.2t", "bytes", 1.0, 10.0), line("zec-3.2t", "build ms", 1.0, 5.0)];
        let recorded: Vec<Value> = then.iter().map(point).collect();
        let now = |bytes: f64, ms: f64| {
            different(
                "zec-3.2t",
                &[line("zec-3.2t", "bytes", 1.0, bytes), line("zec-3.2t", "build ms", 1.0, ms)],
                &recorded,
            )
        };
        assert_eq!(now(10.0, 77.0), None);
        assert!(now(11.0, 5.0).is_some_and(|text| text.contains("11.0")));
        assert!(
            different("zec-3.9", &then, &recorded).is_some_and(|text| text.contains("nothing is recorded"))
        );
        assert!(different("zec-3.2t", &then[1..], &recorded).is_some(), "a point is missing");
        let moves = [line("cuvpp-12", "moves", 0.95, 10.0)];
        let near = |y: f64| different("cuvpp-12", &[line("cuvpp-12", "moves", 0.951, y)], &moves);
        assert!(near(11.0).is_none() && near(14.0).is_some());
    }

    /// No figure passes whatever it shows: something is claimed of each, and nothing that is claimed holds of no points.
    #[test]
    fn something_is_claimed_of_every_figure() {
        for figure in FIGURES.into_iter().chain([FLOW, GATE]) {
            assert!(claims::count(figure) > 0, "{figure}");
            assert_eq!(broken(figure, &[]).len(), claims::count(figure), "{figure}");
        }
    }

    /// The numbers of bench/figures.md bear out what is claimed of them, and others do not.
    #[test]
    fn the_gates_claims_can_hold_and_fail() {
        let of = |configuration: &str, burst: u16, series: &str, ys: [f64; 2]| {
            let unit = format!("ratio of packets a second, {configuration}, bursts of {burst}");
            let points = ["2^15", "2^20"].into_iter().zip(ys);
            let point =
                |(x, y)| json!({"v": 1, "figure": GATE, "unit": unit, "series": series, "x": x, "y": y});
            points.map(point).collect::<Vec<Value>>()
        };
        let figure = |group: f64| {
            [
                of("paper", 32, "early stop", [1.08, 22.2]),
                of("paper", 32, "group", [0.96, group]),
                of("paper", 32, "coroutines", [0.83, 0.94]),
                of("paper", 32, "hand-over", [1.14, 1.01]),
                of("paper", 32, "all, coroutines", [0.98, 21.4]),
                of("ours", 256, "early stop in the paper's order", [6.6, 6.0]),
                of("ours", 256, "one pass to the paper's order", [1.28, 1.28]),
                of("ours", 256, "hand-over", [1.10, 1.20]),
                of("ours", 256, "all", [10.1, 9.7]),
            ]
            .concat()
        };
        assert_eq!(broken(GATE, &figure(0.98)), [""; 0]);
        let not_so = ["group prefetching gains", "coroutines gain", "all together gain more than 90 at 2^20"];
        assert_eq!(unlike_fu_4_6(&figure(0.98)), not_so);
        assert_eq!(broken(GATE, &figure(0.9)), ["coroutines are behind group prefetching"]);
        assert_eq!(broken(GATE, &figure(12.0)).len(), 1);
        assert_eq!(unlike_fu_4_6(&[]).len(), 6);
    }

    /// Who wins, in the record.
    #[test]
    fn the_record_is_what_the_page_says() {
        let recorded = recorded().unwrap();
        for figure in COUNTED {
            assert!(counted(figure, &recorded).next().is_some(), "{figure} is not recorded");
            assert_eq!(broken(figure, &recorded), Vec::<&str>::new(), "{figure}");
        }
    }
}
