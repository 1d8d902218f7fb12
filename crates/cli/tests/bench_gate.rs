//! `tidemill bench gate`, as a user sees it. No times are judged.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use tool::Folder;

const SHORT: &str = "--seconds 0.002 --runs 2 --idle-s 0.01";

#[test]
fn the_figure_has_both_configurations_and_the_papers_numbers() {
    let folder = Folder::new();
    let lines = folder
        .ok(&format!("bench gate --figure fu-4.6 --entries 1k,2^15 {SHORT} --burst 48 --json --plot f.svg"))
        .json();
    let (points, others): (Vec<&Value>, Vec<&Value>) =
        lines.iter().partition(|line| line["figure"] == "fu-4.6");
    let of = |unit: &str| -> Vec<&&Value> {
        let found: Vec<_> = points.iter().filter(|line| line["unit"] == unit).collect();
        assert!(found.iter().all(|line| line["y"].as_f64().unwrap() > 0.0), "{unit}");
        let sizes: BTreeSet<_> = found.iter().map(|line| line["x"].as_str().unwrap()).collect();
        assert_eq!(sizes, ["1000", "2^15"].into(), "{unit}");
        found
    };
    let mut count = 0;
    for (configuration, steps, variants) in [("paper", 8, 7), ("ours", 8, 7)] {
        for (unit, series) in [
            ("ratio of packets a second", steps),
            ("ratio with the solicitor on the same core", steps),
            ("M packets/s", variants),
        ] {
            let found = of(&format!("{unit}, {configuration}, bursts of 48"));
            assert_eq!(found.len(), 2 * series, "{unit}, {configuration}");
            count += found.len();
        }
    }
    // The title, six charts, the notes.
    assert_eq!((count, folder.read("f.svg").matches("<svg ").count()), (points.len(), 1 + 1 + 6 + 1));
    // What the paper states, for its sizes only.
    let stated: Vec<_> = points
        .iter()
        .filter(|line| !line["paper"].is_null())
        .map(|line| {
            (line["series"].as_str().unwrap(), line["x"].as_str().unwrap(), line["paper"].as_f64().unwrap())
        })
        .collect();
    assert_eq!(
        stated,
        [
            ("early stop", "2^15", 1.2),
            ("group", "2^15", 1.4),
            ("coroutines", "2^15", 1.1),
            ("hand-over", "2^15", 1.8)
        ]
    );
    // Rates and shares of every variant, and ratios with their intervals.
    for line in &others {
        assert_eq!((&line["bench"], &line["v"]), (&json!("gate"), &json!(1)));
    }
    let metric = |name: &str| others.iter().filter(|line| line["metric"] == name).collect::<Vec<_>>();
    for name in ["mpps", "mpps_both", "kept"] {
        let found = metric(name);
        assert_eq!(found.len(), 2 * (7 + 7), "{name}");
        assert!(found.iter().all(|line| line["runs"] == 2 && line["params"]["burst"] == 48), "{name}");
    }
    assert!(metric("kept").iter().all(|line| (0.0..1.0).contains(&line["value"].as_f64().unwrap())));
    assert!(
        metric("ratio")
            .iter()
            .all(|line| line["pairs"] == 2 && line["low"].as_f64() <= line["value"].as_f64())
    );
    assert_eq!(metric("ratio").len(), 2 * (8 + 8));
}

/// However short: the table gets full, and what was measured until then and from then on is told apart.
#[test]
fn the_worst_case_fills_its_table() {
    let folder = Folder::new();
    let lines = folder.ok("bench gate --case worst --entries 2^14 --seconds 0.0001 --runs 2 --json").json();
    let of = |subject: &str, metric: &str| {
        lines.iter().find(|line| line["subject"] == subject && line["metric"] == metric)
    };
    let bound = |line: &Value, name: &str| line[name].as_f64().unwrap();
    let [all, filling, full] =
        ["mpps", "mpps_filling", "mpps_full"].map(|metric| of("gatekeeper", metric).unwrap());
    assert!(lines.iter().filter(|line| line["bench"] == "gate").all(|line| line["case"] == "worst/2^14"));
    // A whole is between its parts.
    let least = bound(filling, "min").min(bound(full, "min"));
    let most = bound(filling, "max").max(bound(full, "max"));
    assert!((least..=most).contains(&bound(all, "value")), "{lines:?}");
    assert!(of("bound", "mpps").is_some() && of("bound", "mpps_full").is_none());
    // What its tables lie on is the machine's affair; the bound has none.
    let pages = |subject: &str| of(subject, "mpps").unwrap()["params"]["pages"].as_str();
    let known = ["4 KB", "2 MB", "2 MB, transparent", "unknown"];
    assert!(pages("gatekeeper").unwrap().split(" or ").all(|pages| known.contains(&pages)), "{all}");
    assert_eq!(pages("bound"), None);
    let text = folder.ok("bench gate --case worst --entries 2^10 --seconds 0.0001 --runs 2").out;
    assert!(text.contains("while it fills: ") && text.contains("when it is full: "), "{text}");
    assert!(text.contains(" Mpps, tables on "), "{text}");
}

/// They are measured in turns, and each is told beside the first; the usual one has the name that it has alone.
#[test]
fn every_order_and_driver_is_measured() {
    let ways = "--order one-pass,flow-first --driver group,coroutine,plain";
    let sizes = "--entries 2^12 --flows 4k --seconds 0.0001 --runs 2";
    let lines = Folder::new().ok(&format!("bench gate {sizes} {ways} --json")).json();
    for case in ["worst/2^12", "granted/4000"] {
        let of_case = || lines.iter().filter(move |line| line["case"] == case);
        let rates = of_case().filter(|line| line["metric"] == "mpps");
        let subjects: Vec<&str> = rates.map(|line| line["subject"].as_str().unwrap()).collect();
        assert_eq!(
            subjects,
            [
                "gatekeeper",
                "gatekeeper/one-pass/coroutine",
                "gatekeeper/one-pass/plain",
                "gatekeeper/flow-first/group",
                "gatekeeper/flow-first/coroutine",
                "gatekeeper/flow-first/plain",
                "bound"
            ],
            "{case}"
        );
        let ratios = |to: &str| of_case().filter(|line| line["to"] == to).count();
        assert_eq!((ratios("bound"), ratios("gatekeeper")), (6, 5), "{case}");
    }
}

/// Of IPv6, too: every packet is of a new flow, or of one that was granted, or the run is refused.
#[test]
fn packets_may_be_of_ipv6() {
    let folder = Folder::new();
    let how = "--family 6 --entries 2^12 --flows 5000 --seconds 0.001 --runs 2 --json";
    let lines = folder.ok(&format!("bench gate {how}")).json();
    let mpps: Vec<_> = lines.iter().filter(|line| line["metric"] == "mpps").collect();
    let cases: BTreeSet<_> = mpps.iter().map(|line| line["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["worst-v6/2^12", "granted-v6/5000"].into());
    assert!(mpps.iter().all(|line| line["params"]["family"] == 6 && line["params"]["frame"] == 62));
    assert!(mpps.iter().all(|line| line["value"].as_f64().unwrap() > 0.0));
}

#[test]
fn it_speaks_to_people() {
    let text = Folder::new().ok(&format!("bench gate --figure fu-4.6 --entries 1k {SHORT}")).out;
    for words in [
        "fu-4.6: The worst case",
        "paper, bursts of 32 by slots",
        "ours, bursts of 256 by slots",
        "stop+coroutines+batch to baseline: ",
        "assumed: flows expire after 0.01 s",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn mistakes_get_one_line() {
    Folder::new().fail(&[
        ("bench gate --figure fu-9.9", 2, "fu-4.6"),
        ("bench gate --order two-pass", 2, "`one-pass` or `flow-first`"),
        ("bench gate --driver groups", 2, "`plain`, `group`, `coroutine`"),
        ("bench gate --figure fu-4.6 --driver plain", 2, "--driver"),
        ("bench gate --figure fu-4.6 --entries 3", 2, "2^20, 1M"),
        ("bench gate --figure fu-4.6 --entries 2^32", 2, "give fewer"),
        ("bench gate --figure fu-4.6 --burst 257", 2, "--burst 257: give 1 to 256"),
        ("bench gate --figure fu-4.6 --burst 0", 2, "--burst 0"),
        ("bench gate --figure fu-4.6 --runs 1", 2, "2 runs or more"),
        ("bench gate --figure fu-4.6 --seconds 0", 2, "--seconds"),
        ("bench gate --figure fu-4.6 --idle-s nan", 2, "--idle-s NaN"),
        ("bench gate --family 5", 2, "--family"),
        ("bench gate --figure fu-4.6 --family 6", 2, "--family"),
        ("bench gate --figure fu-4.6 --plot no/x.svg", 2, "--plot no/x.svg: No such file"),
    ]);
}
