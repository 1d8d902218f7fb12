//! `tidemill classify`, as a user sees it.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::json;
use tool::Folder;

const RULES: &str = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF 0x1000/0x1000\n\
    @10.1.0.0/16 192.0.2.0/24 0 : 65535 1024 : 2047 0x06/0xFF\n\
    @0.0.0.0/0 192.0.2.1/32 0 : 65535 0 : 65535 0x00/0x00\n";
const TRACE: &str = "167772161 3221225985 7 80 6 0\n10.1.2.3 192.0.2.9 7 1500 6 1\n8.8.8.8 192.0.2.1 7 9 17 2\n8.8.8.8 8.8.4.4 7 9 17 -1\n";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("a.rules", RULES).write("a.trace", TRACE);
    folder
}

#[test]
fn a_set_and_its_trace_are_verified() {
    let folder = folder();
    let lines = folder.ok("classify verify --rules a.rules --trace a.trace --json").json();
    let last = lines.last().unwrap();
    assert_eq!((&last["wrong"], last["checked"].as_u64().unwrap() > 1000), (&json!(0), true), "{last}");
    let oracle = &lines[0];
    assert_eq!(
        (&oracle["structure"], &oracle["checked"], &oracle["matched"]),
        (&json!("oracle"), &json!(4), &json!(3))
    );
    let cross: Vec<_> = lines.iter().filter(|line| line["structure"] == "cross").collect();
    assert_eq!((cross.len(), &cross[0]["stage"], &cross[0]["checked"]), (2, &json!("lookup"), &json!(8)));
    for structure in ["tuple-space", "tuple-merge"] {
        for stage in ["lookup", "masks", "cached", "changes"] {
            let of = |fields: &str| {
                let is = |line: &&serde_json::Value| {
                    line["structure"] == structure && line["stage"] == stage && line["fields"] == fields
                };
                lines.iter().filter(is).count()
            };
            assert_eq!([of("five fields"), of("with flags")], [1, 1], "{structure} {stage}");
        }
    }
    let lines = folder.ok("classify verify --rules a.rules --trace a.trace --structure cross --json").json();
    let structures: Vec<&str> = lines.iter().filter_map(|line| line["structure"].as_str()).collect();
    assert_eq!(structures, ["oracle", "cross", "oracle", "cross"], "{lines:?}");
    let text = folder.ok("classify verify --data . --structure auto").out;
    assert!(text.contains("a (3 rules, five fields): oracle, trace: 4 checked, 0 wrong"), "{text}");
}

#[test]
fn why_there_is_no_cross_product_is_said() {
    let folder = folder();
    let port = |n: u32| format!("@0.0.0.0/0 0.0.0.0/0 0 : 65535 {n} : {n} 0x06/0xFF\n");
    let protocol = |n: u32| format!("@10.0.0.{n}/32 0.0.0.0/0 0 : 65535 0 : 65535 {n}/0xFF\n");
    folder.write("ports.rules", (0..129).map(port).collect::<String>());
    folder.write("protocols.rules", (0..65).map(protocol).collect::<String>());
    for (name, why) in [
        ("ports", "it has more than 128 rules without addresses"),
        ("protocols", "its rules have more than 64 conditions beside addresses and ports"),
    ] {
        let ran = folder.run(&format!("classify verify --rules {name}.rules --structure cross"));
        let said = format!("tidemill: {name}: no cross-product is made: {why}\n");
        assert_eq!((ran.code, ran.err.contains(&said)), (0, true), "{}", ran.err);
    }
}

#[test]
fn a_file_that_cannot_be_read_leaves_the_others_of_its_folder_in() {
    let folder = folder();
    folder.write("b.rules", "").write("c.rules", RULES);
    folder.write("d.rules", "@10.0.0.1/8\n").write("e.rules", RULES);
    let ran = folder.run("classify verify --data . --structure tuple-merge --headers 100 --json");
    assert_eq!(ran.code, 2, "{}", ran.err);
    let said: Vec<&str> = ran.err.lines().collect();
    assert_eq!(said.len(), 3, "{}", ran.err);
    assert!(said[0].starts_with("tidemill: ") && said[0].ends_with("b.rules: has no rules"), "{}", said[0]);
    assert!(said[1].contains("d.rules: line 1, column "), "{}", said[1]);
    assert_eq!(said[2], "tidemill: 2 of 5 rule sets could not be read; the others were verified");
    let lines = ran.lines();
    for set in ["a", "c", "e"] {
        assert!(lines.iter().any(|line| line["set"] == set), "{set}: {}", ran.out);
    }
    let last = lines.last().unwrap();
    assert_eq!((&last["wrong"], last["checked"].as_u64().unwrap() > 300), (&json!(0), true), "{last}");
    // A wrong answer beside it has the status.
    folder.write("c.trace", "10.1.2.3 192.0.2.9 7 1500 6 2\n");
    let ran = folder.run("classify verify --data . --structure tuple-merge --headers 100");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.ends_with("could not be read; the others were verified\n"), "{}", ran.err);
}

#[test]
fn a_trace_that_says_otherwise_is_reported() {
    let folder = folder();
    folder.write("b.trace", "10.1.2.3 192.0.2.9 7 1500 6 2\n");
    let ran = folder.run("classify verify --rules a.rules --trace b.trace --json");
    assert_eq!(ran.code, 1, "{}", ran.err);
    let lines = ran.lines();
    assert_eq!((&lines[0]["got"], &lines[0]["expected"]), (&json!(1), &json!(2)));
    assert_eq!(lines.last().unwrap()["wrong"], 1);
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let folder = folder();
    folder.write("bits.rules", "@10.0.0.1/8 0.0.0.0/0 0 : 1 0 : 1 0/0\n");
    folder.write("none.rules", "# nothing\n").write("none.trace", "");
    folder.write("other.trace", "1 2 3 4 5 3\n").write("short.trace", "1 2 3\n");
    folder.fail(&[
        ("classify verify", 2, "--rules <FILE>"),
        ("classify verify --rules no.rules", 2, "no.rules: No such file or directory"),
        (
            "classify verify --rules bits.rules",
            2,
            "bits.rules: line 1, column 2: source: has bits behind its length 8",
        ),
        ("classify verify --rules none.rules", 2, "none.rules: has no rules"),
        ("classify verify --rules a.rules --trace none.trace", 2, "none.trace: has no headers"),
        (
            "classify verify --rules a.rules --trace other.trace",
            2,
            "other.trace: line 1, column 11: first match: rule 3, and the set has 3",
        ),
        (
            "classify verify --rules a.rules --trace short.trace",
            2,
            "short.trace: line 1, column 6: destination port",
        ),
        ("classify verify --data a.rules", 2, "a.rules: Not a directory"),
    ]);
}
