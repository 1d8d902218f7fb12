//! `tidemill bench lpm --figure fu-...`, as a user sees it. No times are judged.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use tool::Folder;

const SHORT: &str = "--runs 1 --seconds 0.001 --lookups-ki 4";
const COMPARED: [&str; 6] = ["sail-l", "lc-trie", "tree-bitmap", "lulea-1997", "dxr-d18r", "poptrie-d18"];

/// Two tables; every 50th prefix of the first one has a longer one inside.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.ok("gen table --ipv4 4000 --ipv6 0 -o s.txt");
    folder.ok("gen table --ipv4 1000 --ipv6 0 --next-hops 7 --seed 2 -o u.txt");
    let mut text = folder.read("s.txt");
    let more: String = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .step_by(50)
        .map(|line| format!("{}/30\t9\n", line.split('/').next().unwrap()))
        .collect();
    text.push_str(&more);
    folder.write("t.txt", text);
    folder
}

fn points(folder: &Folder, figure: &str, more: &str) -> Vec<Value> {
    let lines = folder.ok(&format!("bench lpm --figure {figure} --table t.txt {SHORT} --json {more}")).json();
    for line in &lines {
        assert_eq!((&line["v"], &line["figure"]), (&json!(1), &json!(figure)));
        assert!(line["x"].is_number() || line["x"].is_string(), "{line}");
        assert!(line["y"].as_f64().unwrap() >= 0.0, "{line}");
        assert!(line["table"].as_str().unwrap().contains("; instead of "), "{line}");
    }
    lines
}

/// The points of a series in a unit: where, ours, the paper's.
fn series<'a>(lines: &'a [Value], unit: &str, name: &str) -> Vec<(&'a Value, f64, Option<f64>)> {
    lines
        .iter()
        .filter(|line| line["unit"] == unit && line["series"] == name)
        .map(|line| (&line["x"], line["y"].as_f64().unwrap(), line["paper"].as_f64()))
        .collect()
}

#[test]
fn the_list_has_them() {
    let list = Folder::new().ok("bench lpm --figure list").out;
    for (name, family) in [
        ("fu-3.2t", 4),
        ("fu-3.4t", 4),
        ("fu-3.5t", 6),
        ("fu-3.7", 4),
        ("fu-3.8", 4),
        ("fu-3.9", 4),
        ("fu-3.10", 4),
        ("fu-3.11", 4),
        ("fu-3.12", 4),
        ("fu-3.13", 4),
        ("fu-3.16", 6),
        ("fu-3.17", 6),
    ] {
        let line = list.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert!(line.contains(&format!("IPv{family}")), "{line}");
    }
}

#[test]
fn bounds_hold_and_accesses_are_counted() {
    let folder = folder();
    let lines = points(&folder, "fu-3.2t", "");
    for (unit, stated) in [
        ("on-chip loads of a lookup", [Some(25.0), Some(4.0), Some(2.0), Some(2.0), Some(2.0)]),
        ("off-chip loads of a lookup", [Some(2.0); 5]),
        ("on-chip stores of an update", [Some(1.0), Some(1.0), None, None, None]),
    ] {
        let most = series(&lines, unit, "most");
        assert_eq!(most.iter().map(|point| point.2).collect::<Vec<_>>(), stated, "{unit}");
        let names: Vec<&str> = most.iter().map(|point| point.0.as_str().unwrap()).collect();
        assert_eq!(names, ["sail-b", "sail-u", "sail-l", "sail-m", "sail-l8"]);
        let within = |(_, ours, paper): &(&Value, f64, Option<f64>)| paper.is_none_or(|paper| *ours <= paper);
        assert!(most[..4].iter().all(within), "{most:?}");
        // The number of a chunk is a load of its own where labels have 8 bits.
        assert_eq!(within(&most[4]), unit != "off-chip loads of a lookup", "{most:?}");
    }
    // One announcement of a new /24, one that changes nothing, one withdrawal: two updates of one access each.
    folder.write("n.txt", "10.0.0.0/8\t1\n10.1.2.0/24\t2\n");
    folder.write("n.upd", "A\t10.1.2.0/24\nA\t10.1.2.0/24\nW\t10.1.2.0/24\n");
    let line = format!("bench lpm --figure fu-3.11 --table n.txt {SHORT} --json --updates n.upd");
    let lines = folder.ok(&line).json();
    const OF_L: &str = "accesses per update of SAIL_L";
    let unit = "accesses per update";
    let mean = series(&lines, unit, "mean");
    assert_eq!(
        mean.iter().map(|point| point.0.as_str().unwrap()).collect::<Vec<_>>(),
        ["sail-l8", "sail-l", "sail-b", "sail-u"]
    );
    assert!(mean.iter().all(|point| point.1 <= 3.0) && mean[0].2.is_some(), "{mean:?}");
    assert_eq!(series(&lines, unit, "worst 500")[0].2, Some(7.88));
    assert_eq!(series(&lines, OF_L, "sail-l8, mean").len(), 1, "one part of a window");
    // More labels than 8 bits can tell apart.
    folder.write(
        "w.txt",
        (0..300).map(|i| format!("10.{}.{}.0/24\t{}\n", i / 200, i % 200, i + 1)).collect::<String>(),
    );
    let text = folder.ok(&format!("bench lpm --figure fu-3.11 --table w.txt {SHORT}")).out;
    assert!(text.contains("\nfor sail-l8 labels go up to 254, in turn: "), "{text}");
    let flaps = points(&folder, "fu-3.11", "");
    assert!(series(&flaps, OF_L, "sail-l, worst 500").len() > 1);
    assert!(series(&flaps, unit, "most of one, on chip")[2..].iter().all(|point| point.1 <= 1.0));
}

#[test]
fn long_prefixes_are_counted() {
    let folder = folder();
    let lines = points(&folder, "fu-3.4t", "--table u.txt");
    let share = series(&lines, "% of the prefixes", "longer than 24 bits");
    assert!(share[0].1 > 1.9 && share[0].1 < 2.1 && share[1].1 == 0.0, "{share:?}");
    assert!(share.iter().all(|point| point.2.is_some()));
    let lines = points(&folder, "fu-3.10", "");
    assert_eq!(series(&lines, "% of the keys", "longer than 24 bits").len(), 25);
    let all = series(&lines, "% of the keys", "of all addresses")[0].1;
    assert!(all > 0.0 && all < 0.001, "{all}: 80 times four addresses");
    assert_eq!(series(&lines, "% of the keys", "most")[0].2, Some(0.025));
}

#[test]
fn algorithms_are_compared() {
    let folder = folder();
    let lines = points(&folder, "fu-3.8", "--table u.txt --plot f.svg");
    for order in ["in the table's order", "in a mixed order"] {
        for name in COMPARED {
            let rates = series(&lines, &format!("M lookups/s, {order}"), name);
            assert_eq!(rates.iter().map(|point| point.0).collect::<Vec<_>>(), ["t.txt", "u.txt"], "{name}");
            assert!(rates.iter().all(|point| point.1 > 0.0));
        }
    }
    let slowest = series(&lines, "M lookups/s", "slowest");
    assert_eq!((slowest[0].0, slowest[0].2, slowest.len()), (&json!("sail-l"), Some(589.08), 6));
    let over = series(&lines, "sail-l's rate over theirs", "most");
    let names: BTreeSet<&str> = over.iter().map(|point| point.0.as_str().unwrap()).collect();
    assert_eq!(names, COMPARED[1..].iter().copied().collect());
    assert!(over.iter().all(|point| point.1 > 0.0 && point.2.is_some()));
    assert_eq!(folder.read("f.svg").matches("<svg ").count(), 1 + 1 + 4 + 1, "title, charts, notes");
    let lines = points(&folder, "fu-3.9", "");
    let rates = series(&lines, "M lookups/s, random keys", "sail-l");
    assert_eq!(rates.iter().map(|point| point.0).collect::<Vec<_>>(), ["trace 1", "trace 2", "trace 3"]);
    let lines = points(&folder, "fu-3.7", "");
    assert_eq!(series(&lines, "M lookups/s, keys with locality", "lc-trie").len(), 1);
    assert_eq!(series(&lines, "M lookups/s", "quickest")[0].2, Some(708.71));
}

#[test]
fn fibs_are_overlaid_and_long_prefixes_added() {
    let folder = folder();
    let lines = points(&folder, "fu-3.12", "--table u.txt");
    for name in ["random", "for each prefix"] {
        let rates: Vec<_> =
            series(&lines, "M lookups/s", name).into_iter().filter(|point| point.0.is_number()).collect();
        assert_eq!(rates.len(), 12, "{name}");
        assert!(rates.iter().all(|point| point.1 > 0.0));
    }
    let bytes = |name| series(&lines, "bytes", name).into_iter().map(|point| point.1).collect::<Vec<_>>();
    assert!(bytes("all").is_sorted() && bytes("on chip").iter().all(|bytes| *bytes < 2.2e6));
    let text = folder.ok(&format!("bench lpm --figure fu-3.12 --table t.txt {SHORT}")).out;
    assert!(text.contains("the FIBs: 1 of them tables of the user's, the others derived"), "{text}");
    let lines = points(&folder, "fu-3.13", "");
    for (name, stated) in
        [("sail-l, quickest", [467.0, 380.0, 296.0]), ("poptrie-d18, quickest", [296.0, 234.0, 186.0])]
    {
        let rates = series(&lines, "M lookups/s", name);
        assert_eq!(
            rates.iter().filter_map(|point| point.0.as_f64()).collect::<Vec<_>>(),
            [0.0, 1.0, 5.0, 10.0]
        );
        assert_eq!(rates.iter().filter_map(|point| point.2).collect::<Vec<_>>(), stated);
        let mixed = series(&lines, "M lookups/s, in a mixed order", name);
        assert!(
            mixed.len() == 4 && mixed.iter().all(|point| point.1 > 0.0 && point.2.is_none()),
            "{mixed:?}"
        );
    }
    for (name, stated) in [("least", 1.47), ("most", 2.83)] {
        let over = series(&lines, "sail-l's rate over Poptrie's", name);
        let papers: Vec<_> = over.iter().filter_map(|point| Some((point.0, point.2?))).collect();
        assert_eq!((over.len(), papers), (5, vec![(&json!("1 to 10 % of long prefixes"), stated)]));
    }
}
