//! `tidemill bench flow`, as a user sees it. No times are judged.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use tool::Folder;

const TABLES: [&str; 9] = [
    "linear",
    "quadratic",
    "double",
    "hopscotch",
    "chaining",
    "cuckoo",
    "keystore-cuckoo",
    "flowtable",
    "peer:hashbrown",
];

fn of<'a>(lines: &'a [Value], metric: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["metric"] == metric).collect()
}

fn names<'a>(lines: &[&'a Value], field: &str) -> BTreeSet<&'a str> {
    lines.iter().map(|line| line[field].as_str().unwrap()).collect()
}

#[test]
fn every_table_is_measured_in_every_case() {
    let folder = Folder::new();
    let lines =
        folder.ok("bench flow --entries 2^10 --load 0.5,0.8 --quick --runs 2 --json --plot p.svg").json();
    let rates: Vec<&Value> =
        of(&lines, "mlps").into_iter().filter(|l| l["case"].as_str().unwrap().contains("/load-")).collect();
    assert_eq!(rates.len(), TABLES.len() * 2 * 4, "two loads, four cases");
    assert_eq!(names(&rates, "subject"), TABLES.into());
    for rate in &rates {
        assert_eq!((&rate["v"], &rate["bench"], &rate["runs"]), (&json!(1), &json!("flow"), &json!(2)));
        let value = |name: &str| rate[name].as_f64().unwrap();
        assert!(value("min") > 0.0 && value("min") <= value("value") && value("value") <= value("max"));
        assert_eq!(rate["checksum"].as_str().unwrap().len(), 16);
        let params = &rate["params"];
        assert_eq!(
            (&params["batch"], &params["hash"], &params["key_bytes"]),
            (&json!(32), &json!("keyed"), &json!(16))
        );
    }
    // What is there gives the same answers in all ways that were full the same; what is not there, none at all.
    let sums = |load: &str, case: &str| -> BTreeSet<(u64, &str)> {
        let name = format!("2^10/16B/load-{load}/{case}");
        let some = rates.iter().filter(|rate| rate["case"] == name.as_str());
        some.map(|l| (l["params"]["flows"].as_u64().unwrap(), l["checksum"].as_str().unwrap())).collect()
    };
    assert_eq!(sums("0.5", "hit"), sums("0.5", "hit-single"));
    assert_eq!(sums("0.5", "miss").iter().map(|sum| sum.1).collect::<BTreeSet<_>>().len(), 1);
    assert_ne!(sums("0.5", "hit"), sums("0.5", "miss"));
    let flows = |sums: &BTreeSet<(u64, &str)>| sums.iter().map(|sum| sum.0).collect::<BTreeSet<_>>().len();
    assert_eq!(sums("0.8", "hit").len(), flows(&sums("0.8", "hit")), "one checksum for one number of flows");

    let updates = of(&lines, "mops");
    for case in ["insert", "remove", "find-or-insert", "find-or-insert-hit"] {
        let name = format!("2^10/16B/load-0.5/{case}");
        let some: Vec<&Value> =
            updates.iter().copied().filter(|line| line["case"] == name.as_str()).collect();
        assert_eq!(names(&some, "subject"), TABLES.into(), "{case}");
    }
    assert!(of(&lines, "bytes_per_flow").iter().all(|line| line["value"].as_f64().unwrap() >= 24.0));
    let bound: Vec<&Value> = lines.iter().filter(|line| line["subject"] == "bound").collect();
    assert!(bound.len() >= TABLES.len() * 2 && bound.iter().all(|line| line["metric"] == "mlps"));
    let full = of(&lines, "occupancy");
    assert_eq!(names(&full, "subject"), TABLES.into());
    assert!(full.iter().all(|line| (0.3..=1.0).contains(&line["value"].as_f64().unwrap())), "{full:?}");
    let ratios = of(&lines, "ratio");
    assert_eq!(ratios.len(), 2 * 3 * (TABLES.len() - 1));
    assert!(ratios.iter().all(|line| line["of"] == "flowtable" && line["pairs"] == 2));
    assert!(folder.read("p.svg").matches("<title>").count() >= rates.len());
}

#[test]
fn lines_are_counted_where_a_table_has_a_probe() {
    let folder = Folder::new();
    let line = "bench flow --entries 2^10 --key-bytes 36 --case lines --json --quick";
    let lines = folder.ok(line).json();
    for (metric, least) in [("lines_mean", 1.0), ("lines_p99", 1.0), ("lines_max", 1.0), ("moves_max", 0.0)] {
        let some = of(&lines, metric);
        assert!(names(&some, "subject").contains("flowtable"), "{metric}");
        assert!(some.iter().all(|line| line["value"].as_f64().unwrap() >= least), "{metric}");
    }
    for case in ["load-0.5/insert", "load-0.9/hit", "load-0.9/miss"] {
        let case = format!("2^10/36B/{case}");
        let value = |metric| {
            let mut some = of(&lines, metric).into_iter();
            let line = some.find(|l| l["subject"] == "flowtable" && l["case"] == case.as_str());
            line.unwrap()["value"].as_f64().unwrap()
        };
        assert!(
            value("lines_mean") <= value("lines_max") && value("lines_p99") <= value("lines_max"),
            "{case}"
        );
        // What the table states: an entry of 56 bytes lies on two lines.
        let bound = if case.ends_with("insert") { 18.0 + 64.0 + 8.0 } else { 18.0 };
        assert!(value("lines_bound") == bound && value("lines_max") <= bound, "{case}");
    }
    let moves = of(&lines, "moves_bound");
    assert!(!moves.is_empty() && moves.iter().all(|line| line["value"] == 1.0), "{moves:?}");
}

#[test]
fn flows_that_were_there_are_found_in_a_flood() {
    let folder = Folder::new();
    let line = "bench flow --table flowtable --entries 2^10 --key-bytes 8 --hash given --batch 20 --case flood --quick --json";
    let lines = folder.ok(line).json();
    let case = |metric: &str, case: &str| {
        let name = format!("2^10/8B/{case}");
        of(&lines, metric).into_iter().find(|line| line["case"] == name.as_str()).cloned()
    };
    for flood in ["flood-10", "flood-50", "flood-90"] {
        let value = |metric| case(metric, flood).unwrap()["value"].as_f64().unwrap();
        assert!(value("existing_mpps") < value("mpps") && value("kept") > 0.0, "{flood}");
    }
    assert!(case("existing_mpps", "flood-100").is_none() && case("mpps", "flood-0").is_some());
    assert!(case("kept", "flood-between").unwrap()["value"].as_f64().unwrap() > 0.0);
    assert!(case("lines_max", "flood-100").unwrap()["value"].as_f64().unwrap() >= 1.0);
    // 34 buckets' tags, and here and there an entry.
    let batch = case("batch_lines_max", "flood-100").unwrap()["value"].as_f64().unwrap();
    assert!((2.0..60.0).contains(&batch), "{batch}");
    // Entries of 24 bytes may lie on two lines.
    let stated =
        ["lines_bound", "batch_lines_bound"].map(|bound| case(bound, "flood-100").unwrap()["value"].as_f64());
    assert_eq!(stated, [Some(90.0), Some(20.0 * 18.0 + 72.0)]);
    assert!(lines.iter().all(|line| line["params"]["hash"] == "given"));
}

#[test]
fn the_figure_has_the_papers_tables() {
    let folder = Folder::new();
    let lines =
        folder.ok("bench flow --figure fu-4.7 --entries 1k --quick --runs 2 --json --plot f.svg").json();
    let six = ["linear", "quadratic", "double", "hopscotch", "chaining", "cuckoo"];
    assert_eq!(names(&lines.iter().collect::<Vec<_>>(), "series"), six.into());
    for series in six {
        let points: Vec<&Value> = lines.iter().filter(|line| line["series"] == series).collect();
        let loads: Vec<f64> = points.iter().map(|line| line["x"].as_f64().unwrap()).collect();
        let all = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
        // A small table may be full before.
        assert!(loads.len() >= 5 && all.starts_with(&loads), "{series}: {loads:?}");
        assert!(points.iter().all(|line| line["y"].as_f64().unwrap() > 0.0));
    }
    assert!(lines.iter().all(|line| line["figure"] == "fu-4.7" && line["paper"] == Value::Null));
    let svg = folder.read("f.svg");
    assert_eq!(svg.matches("<title>").count(), lines.len());
    assert!(svg.contains("load: keys / slots") && svg.contains("M lookups/s") && svg.contains(">chaining<"));
    let text =
        folder.ok("bench flow --figure fu-4.7 --entries 1k --quick --runs 1 --table chaining,hopscotch").out;
    assert!(text.contains("the paper's verdict") && text.contains("this machine"), "{text}");
}

#[test]
fn it_speaks_to_people() {
    let folder = Folder::new();
    let text =
        folder.ok("bench flow --table flowtable,chaining --entries 2^10 --quick --runs 2 --load 0.9").out;
    for part in [
        "2^10/16B, batches of 32, hashing included",
        "load 0.9: M lookups/s",
        "hit-single",
        "memory",
        "bound: M random",
        "cache lines touched",
        "when the first has no room",
        "flood-90",
        "flowtable against the others",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn mistakes_get_one_line() {
    let folder = Folder::new();
    folder.fail(&[
        ("bench flow --table none", 2, "--table none: use one of linear"),
        ("bench flow --key-bytes 12", 2, "--key-bytes 12: use 8, 16, 36 or 40"),
        ("bench flow --entries 10", 2, "2^20, 1M"),
        ("bench flow --entries 2^99", 2, "2^20, 1M"),
        ("bench flow --entries 2^32 --table chaining --key-bytes 40", 2, "give fewer"),
        ("bench flow --load 1.5", 2, "--load 1.5"),
        ("bench flow --load 0", 2, "--load 0"),
        ("bench flow --load nan", 2, "--load NaN"),
        ("bench flow --entries 300 --load 0.001", 2, "--load 0.001: not one key in 300 slots"),
        ("bench flow --batch 0", 2, "--batch 0"),
        ("bench flow --batch 257", 2, "--batch 257"),
        ("bench flow --plot no/x.svg", 2, "--plot no/x.svg: No such file"),
        ("bench flow --runs 0", 2, "--runs 0"),
        ("bench flow --hash toeplitz", 2, "keyed, given"),
        ("bench flow --figure fu-9.9", 2, "fu-4.7"),
        ("bench flow --case fast", 2, "speed, lines, occupancy, flood, bound"),
        (
            "bench flow --figure fu-4.7 --quick --entries 1k --table chaining --plot none/f.svg",
            2,
            "none/f.svg: No such",
        ),
    ]);
}
