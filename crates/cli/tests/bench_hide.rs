//! `tidemill bench hide`, as a user sees it. No times are judged.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::{Value, json};
use tool::Folder;

const DRIVERS: [&str; 5] = ["plain", "group", "coroutine", "adaptive", "batch"];

#[test]
fn every_driver_measures_every_case_with_the_same_answers() {
    let folder = Folder::new();
    let line = "bench hide --table chaining,keystore-cuckoo,flowtable --entries 2^10 --key-bytes 8,36 --batch 1,100 --width 7 \
                --lookups-ki 6 --runs 3 --load 0.8 --json --plot p.svg";
    let lines = folder.ok(line).json();
    let (rates, ratios): (Vec<&Value>, Vec<&Value>) = lines.iter().partition(|line| line["metric"] == "mlps");
    for table in ["chaining", "keystore-cuckoo", "flowtable"] {
        for key in ["8B", "36B"] {
            for (batch, case) in [1, 100].iter().flat_map(|b| ["hit", "miss", "early"].map(|case| (b, case)))
            {
                let name = format!("2^10/{key}/batch-{batch}/{case}");
                let of = |driver: &str| -> &Value {
                    let subject = format!("{table}/{driver}");
                    let mut found =
                        rates.iter().filter(|line| line["subject"] == subject && line["case"] == name);
                    let line = found.next().unwrap_or_else(|| panic!("{subject} {name}"));
                    assert!(found.next().is_none(), "{subject} {name} twice");
                    line
                };
                for driver in DRIVERS {
                    let line = of(driver);
                    assert_eq!(
                        (&line["v"], &line["bench"], &line["runs"]),
                        (&json!(1), &json!("hide"), &json!(3))
                    );
                    assert_eq!(line["checksum"], of("plain")["checksum"], "{driver} {name}");
                    assert_eq!(
                        (&line["params"]["lookups"], &line["params"]["load"]),
                        (&json!(6144), &json!(0.8))
                    );
                    let value = |name: &str| line[name].as_f64().unwrap();
                    assert!(
                        0.0 < value("min")
                            && value("min") <= value("value")
                            && value("value") <= value("max")
                    );
                }
                assert_eq!(of("coroutine")["params"]["width"], json!(7.min(*batch)));
                let pairs: Vec<(&Value, &Value)> = (ratios.iter())
                    .filter(|line| line["case"] == name && line["of"].as_str().unwrap().starts_with(table))
                    .map(|line| (&line["of"], &line["to"]))
                    .collect();
                let pair =
                    |of: &str, to: &str| (json!(format!("{table}/{of}")), json!(format!("{table}/{to}")));
                let wanted = [
                    pair("group", "plain"),
                    pair("coroutine", "plain"),
                    pair("adaptive", "plain"),
                    pair("coroutine", "group"),
                    pair("batch", "plain"),
                ];
                assert_eq!(pairs, wanted.iter().map(|(of, to)| (of, to)).collect::<Vec<_>>());
            }
        }
    }
    assert_eq!((rates.len(), ratios.len()), (3 * 2 * 6 * 5, 3 * 2 * 6 * 5));
    assert_eq!(folder.read("p.svg").matches("<title>").count(), rates.len());
}

/// Every driver of both tries answers as the oracle does: what is wrong fails the command.
#[test]
fn tries_are_looked_up_by_every_driver() {
    let folder = Folder::new();
    folder.ok("gen table --ipv4 2000 --ipv6 500 -o r.txt");
    let lines =
        folder.ok("bench hide --routes r.txt --batch 1,100 --width 5 --lookups-ki 6 --runs 2 --json").json();
    let rates: Vec<&Value> = lines.iter().filter(|line| line["metric"] == "mlps").collect();
    for trie in ["binary-trie", "patricia"] {
        for (family, prefixes) in [("v4", 2000), ("v6", 500)] {
            for case in ["batch-1/rnd", "batch-1/prefix", "batch-100/rnd", "batch-100/prefix"] {
                for driver in DRIVERS {
                    let (subject, case) = (format!("{trie}/{driver}"), format!("{family}/{case}"));
                    let of = |line: &&&Value| line["subject"] == subject && line["case"] == case;
                    let line = rates.iter().find(of).unwrap_or_else(|| panic!("{subject} {case}"));
                    let params = &line["params"];
                    assert_eq!((&params["table"], &params["lookups"]), (&json!("r.txt"), &json!(6144)));
                    assert!(params["prefixes"] == json!(prefixes) && line["value"].as_f64().unwrap() > 0.0);
                    assert!(params["loads"].as_f64().unwrap() >= 1.0);
                }
            }
        }
    }
    assert_eq!((rates.len(), lines.len()), (2 * 2 * 4 * 5, 2 * 2 * 2 * 4 * 5));
    let of_one =
        folder.ok("bench hide --routes r.txt --trie patricia --batch 32 --lookups-ki 1 --runs 2").out;
    assert!(of_one.contains("patricia/batch to patricia/plain: ") && !of_one.contains("binary"), "{of_one}");
}

#[test]
fn it_speaks_to_people() {
    let folder = Folder::new();
    let ran = folder.ok("bench hide --entries 300 --batch 32 --case hit --lookups-ki 1 --runs 2");
    for words in
        ["M lookups/s", "chaining/adaptive", "300/16B/batch-32/hit", "chaining/coroutine to chaining/plain: "]
    {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
}

#[test]
fn mistakes_get_one_line() {
    Folder::new().fail(&[
        ("bench hide --table flow", 2, "--table flow: use one of chaining, keystore-cuckoo, flowtable"),
        ("bench hide --routes none.txt", 2, "none.txt: No such file"),
        ("bench hide --routes . --table chaining", 2, "--table"),
        ("bench hide --routes . --trie lulea", 2, "--trie lulea: use one of binary-trie, patricia"),
        ("bench hide --trie patricia", 2, "--routes"),
        ("bench hide --entries 2^70", 2, "--entries"),
        ("bench hide --entries 2^20,2^32 --key-bytes 40", 2, "give fewer"),
        ("bench hide --load 1.5", 2, "--load 1.5"),
        ("bench hide --entries 256 --load 0.001", 2, "--load 0.001: not one key in 256 slots"),
        ("bench hide --key-bytes 17", 2, "--key-bytes 17: give 8, 16, 36 or 40"),
        ("bench hide --batch 0", 2, "--batch 0"),
        ("bench hide --batch 4097", 2, "--batch 4097"),
        ("bench hide --width 65", 2, "--width 65: give 1 to 64"),
        ("bench hide --plot no/x.svg", 2, "--plot no/x.svg: No such file"),
        ("bench hide --runs 0", 2, "--runs"),
        ("bench hide --lookups-ki 0", 2, "--lookups-ki"),
        ("bench hide --lookups-ki 65537", 2, "65536 Ki"),
        ("bench hide --case fast", 2, "hit, miss, early"),
    ]);
}
