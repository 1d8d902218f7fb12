//! `tidemill fib`, as a user sees it.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::{Value, json};
use tidemill_lpm::Algorithm;
use tool::Folder;

const TABLE: &str =
    "10.0.0.0/8\t1\n10.1.0.0/16\t2\n10.1.2.0/24\t3\n192.0.2.0/25\t1\n2001:db8::/32\t4\n2001:db8:1::/48\t5\n";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("t.txt", TABLE);
    folder
}

/// What `--algorithm all` means: all but `auto`.
fn structures_of_both_families() -> usize {
    Algorithm::all::<u32>().len() + Algorithm::all::<u128>().len() - 2
}

#[test]
fn stats_describe_table_and_structures() {
    let folder = folder();
    let lines = folder.ok("fib stats --table t.txt --algorithm all --json").json();
    let tables: Vec<_> = lines.iter().filter(|line| line["table"] == "t.txt").collect();
    assert_eq!(tables.len(), 2, "one per family");
    assert_eq!(
        (&tables[0]["family"], &tables[0]["prefixes"], &tables[0]["nested"]),
        (&json!(4), &json!(4), &json!(2))
    );
    assert_eq!((&tables[0]["by_length"][16], &tables[0]["max_depth"]), (&json!(1), &json!(2)));
    assert_eq!(tables[1]["prefixes"], 2);
    let structures: Vec<_> = lines.iter().filter(|line| line["structure"].is_string()).collect();
    assert_eq!(structures.len(), structures_of_both_families(), "{lines:?}");
    for line in structures {
        let bytes = line["bytes"].as_u64().unwrap();
        assert!(bytes > 0 && line["build_ms"].as_f64().unwrap() > 0.0 && line["error"].is_null(), "{line}");
        let name = line["structure"].as_str().unwrap();
        let resolved = line["details"]["resolved_share"].as_f64();
        assert!(!name.starts_with("dxr") || resolved.is_some_and(|share| share > 0.9), "{line}");
        // Counts keep all their digits.
        let table = &line["details"]["descriptor_bytes"];
        assert!(name != "dxr-d18r" || table == &json!(1_048_576), "{line}");
    }
    let text = folder.ok("fib stats --table t.txt").out;
    assert!(text.contains("  prefixes      4\n") && text.contains("    /24          1  25.0 %\n"), "{text}");
}

#[test]
fn lookups_name_prefix_next_hop_and_structure() {
    let folder = folder();
    let ran = folder.run_with(
        "fib lookup --table t.txt --algorithm dxr-d18r,rangetrie-d16 10.1.2.3 -",
        "2001:db8::1\n\n8.8.8.8\n",
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(
        ran.out,
        "10.1.2.3  10.1.2.0/24  next hop 3  label 3  (dxr-d18r)\n\
         10.1.2.3  10.1.2.0/24  next hop 3  label 3  (rangetrie-d16)\n\
         2001:db8::1  2001:db8::/32  next hop 4  label 4  (rangetrie-d16)\n\
         8.8.8.8  no route  (dxr-d18r)\n\
         8.8.8.8  no route  (rangetrie-d16)\n"
    );
    let lines = folder.ok("fib lookup --table t.txt --explain --json 10.1.9.9").json();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&line["label"], &line["oracle"], &line["agree"]), (&json!(2), &json!(2), &json!(true)));
    let accesses = line["accesses"].as_array().unwrap();
    assert!(!accesses.is_empty() && accesses[0]["dependent"] == false, "{line}");
    // No addresses: lines are numbered as they come, and two runs say the same.
    let number = |access: &Value, name: &str| access[name].as_u64().unwrap();
    assert!(accesses.iter().all(|access| number(access, "byte") < 64 && number(access, "line") >= 1));
    assert_eq!(number(&accesses[0], "line"), 1);
    let last = accesses.iter().map(|access| number(access, "line")).max().unwrap();
    assert!((last..=2 * last).contains(&number(line, "cache_lines")) && number(line, "pages") <= last + 1);
    let text = folder.ok("fib lookup --table t.txt --explain --algorithm sail-l8 10.1.9.9").out;
    let loads: Vec<&str> = text.lines().skip(1).collect();
    assert!(loads[0].starts_with("  load 1: 4 bytes, independent, line 1 from byte "), "{text}");
    assert!(loads[1].starts_with("  load 2: 1 byte, dependent, line 2 from byte "), "{text}");
    assert_eq!(loads[2], "  2 loads, 1 of them dependent, in 2 cache lines and 2 pages of 4 KiB");
    // A table of one family answers for the other, too.
    folder.write("v4.txt", "10.0.0.0/8\t1\n");
    assert_eq!(folder.ok("fib lookup --table v4.txt ::1 --json").json()[0]["label"], 0);
}

#[test]
fn verification_finds_nothing_wrong() {
    let folder = folder();
    folder.write(
        "u.txt",
        "A\t10.2.0.0/16\nW\t10.1.0.0/16\nA\t2001:db8:2::/48\nW\t192.0.2.0/25\nA\t0.0.0.0/0\n",
    );
    let ran =
        folder.ok("fib verify --table t.txt --sample 20000 --algorithm all --updates u.txt --batch 1 --json");
    let lines = ran.json();
    let last = lines.last().unwrap();
    assert_eq!(last["wrong"], 0);
    let all = structures_of_both_families();
    assert!(last["seconds"].is_f64() && last["checked"].as_u64().unwrap() > 40_000 * all as u64, "{last}");
    // IPv4: five updates, of which four are of that family; IPv6: one.
    let v4 = Algorithm::all::<u32>().len() - 1;
    for (stage, count) in [("table", all), ("after 1 updates", all), ("after 4 updates", v4)] {
        let seen = lines.iter().filter(|line| line["stage"] == stage && line["wrong"] == 0).count();
        assert_eq!(seen, count, "{stage}: {}", ran.out);
    }
    let kernels: Vec<&Value> = lines.iter().filter(|line| line["structure"] == "popdir-d16x3").collect();
    assert!(kernels.iter().all(|line| line["kernels"][0] == "scalar"), "{kernels:?}");
    // Half of the table is not passed over without a word.
    let ran = folder.ok("fib verify --table t.txt --sample 10 --algorithm dxr-d18r");
    let said = "t.txt: left out its 2 IPv6 prefixes: no structure that --algorithm names is for IPv6\n";
    assert!(ran.err.ends_with(said), "{}", ran.err);
    assert!(!folder.ok("fib verify --table t.txt --sample 10").err.contains("left out"));
    let text = folder.ok("fib verify --table t.txt --sample 10").out;
    assert!(text.lines().last().unwrap().contains(" checked, 0 wrong, "), "{text}");
}

#[test]
fn the_suite_runs_for_both_families() {
    let folder = Folder::new();
    let lines = folder.ok("fib verify --suite 20 --algorithm rangetrie-d12,dxr-d16x4r --json").json();
    let structures: Vec<(u64, &str)> = (lines.iter())
        .filter_map(|line| Some((line["family"].as_u64()?, line["structure"].as_str()?)))
        .collect();
    assert_eq!(structures.len(), 3, "{structures:?}");
    assert!(structures.contains(&(4, "dxr-d16x4r")) && structures.contains(&(6, "rangetrie-d12")));
    assert!(lines[..3].iter().all(|line| line["tables"].as_u64().unwrap() >= 4 && line["failures"] == 0));
    assert_eq!(lines.last().unwrap()["wrong"], 0);
    let usual = folder.ok("fib verify --suite 1 --json").json();
    for name in ["popdir-d16x3", "popdir-d19", "dxr-d16x4r", "lulea"] {
        assert!(usual.iter().any(|line| line["structure"] == name), "{name}");
    }
    folder.fail(&[
        ("fib verify --suite 0", 2, "--suite 0: checks nothing: give at least 1"),
        ("fib verify --suite 1 --family 4 --algorithm lulea", 2, "--family: none of the structures"),
        ("fib verify --suite 1 --family 5", 2, "5"),
        // A word does not hide a name that is none.
        (
            "fib verify --suite 1 --algorithm yardsticks,sail-xx",
            2,
            "\"sail-xx\" is not an IPv4 lookup structure",
        ),
        ("fib verify --suite 1 --algorithm sail-xx", 2, "sail-xx"),
    ]);
}

/// One that cannot store the table's labels: an error if it is named; left out, aloud, if all were asked for.
#[test]
fn a_structure_of_few_labels_is_never_another_one() {
    let folder = Folder::new();
    let lines = |from: u32, to: u32| -> String {
        (from..to).map(|i| format!("10.{0}.{1}.0/24\t192.0.{0}.{1}\n", i / 256, i % 256)).collect()
    };
    folder.write("few.txt", lines(0, 200));
    folder.write("many.txt", lines(0, 300));
    let verify = "fib verify --sample 10 --json --table";
    let of = |ran: &tool::Ran| -> Vec<String> {
        ran.json().iter().filter_map(|line| Some(line["structure"].as_str()?.to_owned())).collect()
    };
    assert_eq!(of(&folder.ok(&format!("{verify} few.txt --algorithm sail-l8"))), ["sail-l8"]);
    let ran = folder.ok(&format!("{verify} many.txt --algorithm all"));
    assert_eq!(of(&ran).len(), Algorithm::all::<u32>().len() - 2);
    assert!(
        ran.err.contains("left out sail-l8 (IPv4): label 255 of 10.0.254.0/24 does not fit into 8 bits"),
        "{}",
        ran.err
    );
    folder.fail(&[
        ("fib verify --sample 10 --table many.txt --algorithm sail-l8", 1, "does not fit into 8 bits"),
        ("fib lookup --table many.txt --algorithm sail-l8 10.0.0.1", 1, "does not fit into 8 bits"),
    ]);
    let ran = folder.ok("fib lookup --table many.txt --algorithm yardsticks 10.0.0.1");
    assert!(ran.err.contains("left out sail-l8") && ran.out.contains("(sail-l)"), "{}", ran.err);
    // Updates that bring more next hops.
    let changes: String =
        (0..300).map(|i| format!("1\tA\t1\t10.9.{}.0/24\t192.0.2.{}\n", i % 256, i % 256)).collect();
    folder.write("u.txt", changes);
    let ran = folder.ok(&format!("{verify} few.txt --algorithm sail-l,sail-b,yardsticks --updates u.txt"));
    assert!(ran.err.contains("left out sail-l8"), "{}", ran.err);
    // More chunks than it has numbers for: those after it are verified all the same.
    let wide: String =
        (0..65_600).map(|i| format!("{}.{}.{}.0/26 1\n", 10 + (i >> 16), i >> 8 & 255, i & 255)).collect();
    folder.write("wide.txt", wide);
    let ran = folder.ok("fib verify --sample 10 --table wide.txt --algorithm all --json");
    let left_out = |name: &str| ran.err.contains(&format!("left out {name} (IPv4): the table does not fit"));
    assert!(left_out("sail-l8"), "{}", ran.err);
    let lines = ran.json();
    let last = lines.iter().rev().find(|line| !line["structure"].is_null()).unwrap();
    assert_eq!(last["structure"], "cuvpp-lengths");
    assert_eq!(lines.last().unwrap()["wrong"], 0);
}

#[test]
fn conversions_keep_every_route() {
    let folder = folder();
    folder.ok("fib convert --table t.txt --to csv t.csv.gz");
    folder.ok("fib convert --table t.csv.gz --to text back.txt");
    assert_eq!(folder.read("back.txt"), TABLE);
}

#[test]
fn differences_are_listed_and_counted() {
    let folder = folder();
    folder.write(
        "b.txt",
        "10.0.0.0/8\t1\n10.1.0.0/16\t9\n172.16.0.0/12\t2\n192.0.2.0/25\t1\n2001:db8:1::/48\t5\n",
    );
    let ran = folder.ok("fib diff t.txt b.txt");
    assert_eq!(
        ran.out,
        "~ 10.1.0.0/16 2 -> 9\n- 10.1.2.0/24 3\n+ 172.16.0.0/12 2\n- 2001:db8::/32 4\n\
         1 added, 2 removed, 1 changed, 3 the same\n"
    );
    assert_eq!(folder.run("fib diff --exit-code t.txt b.txt").code, 1);
    assert_eq!(folder.run("fib diff --exit-code t.txt t.txt").code, 0);
    let lines = folder.ok("fib diff t.txt b.txt --json").json();
    assert_eq!(
        lines[0],
        json!({"v": 1, "difference": "changed", "prefix": "10.1.0.0/16", "old": "2", "new": "9"})
    );
    assert_eq!(lines.last().unwrap(), &json!({"v": 1, "added": 1, "removed": 2, "changed": 1, "same": 3}));
}

#[test]
fn mistakes_get_one_line_with_the_place() {
    let folder = folder();
    folder.write("bad.txt", "10.0.0.0/8\t1\n10.0.0.1/8\t2\n").write("v6.txt", "::/0\t1\n").write("empty", "");
    folder.write("empty.txt", "# nothing\n");
    folder.write("four.txt", "10.0.0.0/8 1\n");
    folder.write("u6.txt", "1\tA\t1\t2001:db8::/32\t2001:db8::1\n");
    folder.fail(&[
        ("fib verify --table empty.txt", 1, "empty.txt: no routes in it"),
        ("fib verify --table four.txt --updates u6.txt", 1, "u6.txt: no updates in it"),
        ("fib stats --table none.txt", 2, "none.txt: No such file"),
        ("fib stats --table .", 2, ".: is a folder"),
        ("fib stats --table /dev/zero", 2, "/dev/zero: is a device: give a file"),
        ("fib stats --table bad.txt", 1, "bad.txt:2: 10.0.0.1/8 has host bits set: did you mean 10.0.0.0/8?"),
        ("fib stats --table t.txt --algorithm fast", 2, "use one of auto, dxr-d16x4r"),
        ("fib stats --table v6.txt --algorithm dxr-d16x4r", 2, "not an IPv6 lookup structure"),
        ("fib stats --table t.txt --peer x", 2, "--peer x"),
        ("fib lookup --table t.txt 10.0.0", 2, "\"10.0.0\" is not an IPv4 or IPv6 address"),
        ("fib lookup --table t.txt", 2, "ADDRESS"),
        ("fib verify", 2, "--table <FILE>"),
        ("fib verify --table v6.txt --all", 2, "--all"),
        ("fib verify --table t.txt --updates none", 2, "none: No such file"),
        (
            "fib verify --table t.txt --updates t.txt",
            1,
            "t.txt:1: \"10.0.0.0/8\" is neither A (announce) nor W",
        ),
        ("fib convert --table t.txt --to image x", 2, "possible values: text, csv"),
        ("fib convert --table t.txt --to text no/x", 1, "no/x"),
        ("fib diff t.txt", 2, "<B>"),
    ]);
    // What is typed on standard input has a place too.
    let ran = folder.run_with("fib lookup --table t.txt -", "10.0.0.1\nx\n");
    assert_eq!((ran.code, ran.err.contains("standard input:2: \"x\"")), (2, true), "{}", ran.err);
    // An empty file is an empty table.
    assert_eq!(folder.ok("fib lookup --table empty 10.0.0.1 --json").json()[0]["label"], 0);
}
