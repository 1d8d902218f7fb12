//! `tidemill bench lpm --figure`, as a user sees it. No times are judged.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tool::Folder;

/// Those for which nothing is timed that is shown, but builds.
const UNTIMED: [&str; 9] =
    ["zec-3.1t", "zec-3.2t", "zec-3.9", "zec-3.10", "zec-3.11", "zec-4.2", "zec-4.3", "zec-4.4", "zec-4.5"];
const TIMED: [&str; 11] = [
    "zec-3.13", "zec-3.14", "zec-3.15", "zec-3.16", "zec-3.17", "zec-3.18", "zec-3.19", "zec-3.20",
    "zec-4.6", "zec-4.7", "zec-4.8",
];
const SHORT: &str = "--runs 1 --seconds 0.001 --lookups-ki 4";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.ok("gen table --ipv4 5000 --ipv6 0 -o t.txt");
    folder.ok("gen table --ipv4 1000 --ipv6 0 --next-hops 7 --seed 2 -o u.txt");
    folder.write("six.txt", "2001:db8::/32\t1\n");
    folder
}

/// The points of a figure, whose lines have the form that all have.
fn points(folder: &Folder, figure: &str, more: &str) -> Vec<Value> {
    let tables = if more.contains("--table") { "" } else { "--table t.txt" };
    let lines = folder.ok(&format!("bench lpm --figure {figure} {tables} {SHORT} --json {more}")).json();
    assert!(!lines.is_empty(), "{figure}");
    for line in &lines {
        assert_eq!((&line["v"], &line["figure"]), (&json!(1), &json!(figure)));
        assert!(line["x"].is_number() || line["x"].is_string(), "{line}");
        assert!(line["y"].as_f64().unwrap() >= 0.0, "{line}");
        let line = line.as_object().unwrap();
        assert!(line["paper"].is_null() || line["paper"].is_number(), "{line:?}");
        assert!(!line["series"].as_str().unwrap().is_empty() && !line["unit"].as_str().unwrap().is_empty());
        let table = line["table"].as_str().unwrap();
        assert!(table.contains("t.txt (5000 prefixes, ") && table.contains("; instead of "), "{table}");
    }
    lines
}

/// x, y, the paper's y.
type Points = Vec<(f64, f64, Option<f64>)>;

/// Its series: points in their order.
fn series(lines: &[Value]) -> BTreeMap<&str, Points> {
    let mut series: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for line in lines {
        let point = (line["x"].as_f64().unwrap_or(-1.0), line["y"].as_f64().unwrap(), line["paper"].as_f64());
        series.entry(line["series"].as_str().unwrap()).or_default().push(point);
    }
    series
}

/// A figure of a structure as `fib stats` has it.
fn stats(folder: &Folder, structure: &str) -> Value {
    let lines = folder.ok(&format!("fib stats --table t.txt --algorithm {structure} --json")).json();
    lines.into_iter().find(|line| line["structure"] == structure).unwrap()
}

#[test]
fn the_list_says_what_each_figure_shows() {
    let folder = folder();
    let list = folder.ok("bench lpm --figure list").out;
    for name in UNTIMED.iter().chain(&TIMED) {
        let line = list.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert!(line.len() > name.len() + 20 && line.contains("IPv4"), "{line}");
    }
    let known: BTreeSet<&str> = UNTIMED.into_iter().chain(TIMED).collect();
    let zec = list.lines().filter(|line| line.starts_with("zec-")).count();
    assert_eq!(zec, known.len(), "one that this test does not know: {list}");
    for command in ["bench lpm", "sim amp", "sim halo", "sim kv", "sim lake"] {
        let text = folder.ok(&format!("{command} --figure list")).out;
        let objects = folder.ok(&format!("{command} --figure list --json")).json();
        let word = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
        let told = |line: &Value| format!("{:<10} {}", word(line, "figure"), word(line, "title"));
        assert!(objects.iter().map(told).eq(text.lines()), "{command}: {objects:?}");
    }
    folder.fail(&[
        ("bench lpm --figure zec-9.9 --table t.txt", 2, "zec-3.1t, zec-3.2t"),
        ("bench lpm --figure zec-3.1t", 2, "give one --table with IPv4 routes"),
        ("bench lpm --figure zec-3.1t --table t.txt --table u.txt", 2, "give one --table"),
        ("bench lpm --figure zec-3.2t", 2, "once or several times"),
        ("bench lpm --figure zec-3.1t --table six.txt", 2, "six.txt: no IPv4 routes"),
        ("bench lpm --figure zec-3.1t --table none.txt", 2, "none.txt"),
        ("bench lpm --figure zec-3.13 --table t.txt --algorithm auto", 2, "--algorithm"),
        ("bench lpm --figure zec-3.13 --table t.txt --runs 0", 2, "--runs"),
        ("bench lpm --figure zec-3.11 --table t.txt --plot none/f.svg", 2, "none/f.svg: No such"),
        ("bench lpm", 2, "--table"),
    ]);
}

#[test]
fn shares_of_the_address_space_are_all_of_it() {
    let folder = folder();
    let lines = points(&folder, "zec-3.1t", "");
    let series = series(&lines);
    assert_eq!(series.len(), 9 + 1, "K from 16 to 24, and bytes");
    for (name, points) in series.iter().filter(|(name, _)| name.starts_with("dxr-")) {
        let all: f64 = points.iter().map(|point| point.1).sum();
        assert!((all - 100.0).abs() < 0.001, "{name}: {all}");
        let resolved = stats(&folder, name)["details"]["resolved_share"].as_f64().unwrap();
        assert!((points[0].1 - 100.0 * resolved).abs() < 0.001, "{name}: {points:?}");
    }
    assert_eq!(series["dxr-d16r"][0].2, Some(71.413));
    assert_eq!(series["dxr-d24r"][2].2, None, "the paper: less than a thousandth");
    assert_eq!(series["ranges"].first().unwrap().2, Some(809_308.0));
}

#[test]
fn sizes_are_those_of_the_structures() {
    let folder = folder();
    let lines = points(&folder, "zec-3.11", "--plot f.svg");
    let plain = series(&lines);
    let svg = folder.read("f.svg");
    let stated = lines.iter().filter(|line| line["paper"].is_number()).count();
    assert_eq!(svg.matches("<title>").count(), lines.len() + stated);
    assert!(svg.contains(">K<") && svg.contains(">bytes<") && svg.contains("hollow: the paper"));
    for (k, bytes, paper) in &plain["all"] {
        assert_eq!(*bytes, stats(&folder, &format!("dxr-d{k}r"))["bytes"].as_f64().unwrap());
        assert!(*paper > Some(1e6), "{paper:?}");
    }
    let ratios = points(&folder, "zec-4.2", "");
    let ratios = series(&ratios);
    assert_eq!((ratios["D12X*R"].len(), ratios["D14X*R"].len(), ratios["D16X*R"].len()), (9, 9, 8));
    for (figure, d, first) in [("zec-4.3", 12, 16), ("zec-4.4", 14, 16), ("zec-4.5", 16, 17)] {
        let parts = points(&folder, figure, "");
        let parts = series(&parts);
        let ks: Vec<f64> = parts["all"].iter().map(|point| point.0).collect();
        assert_eq!(ks, (first..=24).map(f64::from).collect::<Vec<_>>());
        for (i, (k, all, _)) in parts["all"].iter().enumerate() {
            let sum = ["direct table", "extension blocks", "ranges"].map(|part| parts[part][i].1);
            assert_eq!(sum.iter().sum::<f64>(), *all, "{figure} at {k}");
            assert_eq!(sum[0], f64::from(2 << d));
            let plain = plain["all"].iter().find(|point| point.0 == *k);
            let ratio = ratios[format!("D{d}X*R").as_str()].iter().find(|point| point.0 == *k).unwrap().1;
            assert!(
                plain.is_none_or(|plain| (ratio - all / plain.1).abs() < 1e-4),
                "{figure} at {k}: {ratio}"
            );
        }
        assert_eq!(parts.contains_key("5 prefixes"), d == 12);
    }
}

#[test]
fn sharing_saves_what_it_saves() {
    let folder = folder();
    for (figure, kind) in [("zec-3.9", "short"), ("zec-3.10", "long")] {
        let lines = points(&folder, figure, "");
        let series = series(&lines);
        let (all, shared) = (&series["each chunk by itself"], &series["equal chunks once"]);
        assert!(all.iter().zip(shared).all(|(all, shared)| all.1 >= shared.1), "{figure}");
        for (k, saved, paper) in series.get(kind).into_iter().flatten() {
            let i = all.iter().position(|point| point.0 == *k).unwrap();
            assert!((saved - 100.0 * (1.0 - shared[i].1 / all[i].1)).abs() < 0.001);
            assert_eq!(paper.is_some(), kind == "short" && *k == 22.0);
        }
    }
}

#[test]
fn tables_are_compared() {
    let folder = folder();
    let lines = points(&folder, "zec-3.2t", "--table t.txt --table u.txt --plot f.svg");
    let tables: BTreeSet<&str> = lines.iter().map(|line| line["x"].as_str().unwrap()).collect();
    assert_eq!(tables, ["t.txt", "u.txt"].into());
    assert!(lines.iter().all(|line| line["paper"].is_number()));
    let of = |series: &str, unit: &str| {
        let mut of = lines.iter().filter(|line| line["series"] == series && line["unit"] == unit);
        of.find(|line| line["x"] == "t.txt").unwrap()["y"].as_f64().unwrap()
    };
    let d16 = stats(&folder, "dxr-d16r");
    assert_eq!(of("dxr-d16r", "bytes"), d16["bytes"].as_f64().unwrap());
    for kind in ["short", "long"] {
        assert_eq!(
            of(&format!("dxr-d16r {kind}"), "ranges"),
            d16["details"][format!("{kind}_ranges")].as_f64().unwrap()
        );
    }
    // One chart below the other, the title above and the notes below.
    assert_eq!(folder.read("f.svg").matches("<svg ").count(), 1 + 1 + 5 + 1);
    let text = folder.ok("bench lpm --figure zec-3.2t --table t.txt --runs 1").out;
    for part in [
        "zec-3.2t: ",
        "t.txt (5000 prefixes",
        "dxr-d20r long",
        "  the paper",
        "beside t.txt",
        "build ms by table",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn rates_come_by_k_and_by_threads() {
    let folder = folder();
    let by_k = points(&folder, "zec-3.14", "");
    let by_k = series(&by_k);
    assert_eq!((by_k["DxR"].len(), by_k["the best"].len()), (9, 1));
    assert_eq!(by_k["the best"][0].2, Some(70.0));
    let threads = points(&folder, "zec-3.16", "--threads 2");
    let threads = series(&threads);
    assert!(threads.len() >= 4 && threads.contains_key("dxr-d21r"), "{:?}", threads.keys());
    let best = threads["the best"][0].1;
    for (name, points) in threads.iter().filter(|(name, _)| **name != "the best") {
        assert!(points.iter().all(|point| point.1 <= best));
        assert_eq!(points.iter().map(|point| point.0).collect::<Vec<_>>(), [1.0, 2.0], "{name}");
        assert!(points.iter().all(|point| point.1 > 0.0 && point.2.is_none()), "{name}");
    }
    let random = points(&folder, "zec-3.15", "--threads 2");
    let stated: Vec<_> = series(&random).into_iter().filter(|(_, points)| points[0].2.is_some()).collect();
    assert!(matches!(&stated[..], [("the best", points)] if points[0].2 == Some(2449.0)), "{stated:?}");
    let forms = points(&folder, "zec-4.7", "");
    let forms = series(&forms);
    assert_eq!(forms.keys().copied().collect::<Vec<_>>(), ["D12XxR", "D14XxR", "D16XxR", "DxR"]);
    let stated: Vec<_> = forms.values().flatten().filter_map(|point| point.2).collect();
    assert_eq!(stated, [397.0, 409.5]);
}

#[test]
fn misses_are_those_of_keys_and_answers_while_the_table_is_small() {
    let folder = folder();
    for (figure, streams) in [("zec-3.18", 6.0), ("zec-3.20", 0.75)] {
        let lines = points(&folder, figure, "");
        let misses: Vec<&Value> =
            lines.iter().filter(|line| line["unit"].as_str().unwrap().contains("misses")).collect();
        assert_eq!(misses.len(), 7, "{figure}: K from 16 to 22");
        // D16R: its lines are in the cache after so many lookups, so that a miss is a new line of keys or of answers.
        let least = misses[0]["y"].as_f64().unwrap();
        assert!(least >= 0.99 * streams / 64.0, "{figure}: {least}");
        assert!(misses.iter().all(|line| line["paper"].is_number()) || figure == "zec-3.20");
    }
}
