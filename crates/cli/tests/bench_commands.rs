//! `tidemill bench`, as a user and as the driver of peers see it. No times are judged.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::{Value, json};
use tool::Folder;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.ok("gen table --ipv4 3000 --ipv6 1000 -o t.txt");
    let of_family = |six: bool| -> String {
        let text = folder.read("t.txt");
        text.lines().filter(|line| line.contains(':') == six).map(|line| format!("{line}\n")).collect()
    };
    folder.write("v4.txt", of_family(false)).write("v6.txt", of_family(true));
    folder
}

#[test]
fn lpm_measures_every_case_with_the_oracles_checksum() {
    let folder = folder();
    let line = "bench lpm --table t.txt --algorithm auto,rangetrie-d12 --runs 3 --seconds 0.002 --lookups-ki 8 --bursts 1,256 --json --plot p.svg";
    let lines = folder.ok(line).json();
    let of = |family: u64, metric: &str| -> Vec<&Value> {
        lines.iter().filter(|l| l["metric"] == metric && l["params"]["family"] == family).collect()
    };
    for family in [4, 6] {
        let rates: Vec<&Value> = of(family, "mlps").into_iter().filter(|l| l["subject"] != "bound").collect();
        assert_eq!(rates.len(), 2 * 5, "two structures, five cases");
        for rate in &rates {
            assert_eq!((&rate["bench"], &rate["runs"]), (&json!("lpm"), &json!(3)));
            assert_eq!(rate["checksum"].as_str().unwrap().len(), 16);
            let value = |name: &str| rate[name].as_f64().unwrap();
            assert!(value("min") <= value("value") && value("value") <= value("max") && value("min") > 0.0);
        }
        let checksums = |case: &str| -> Vec<&Value> {
            rates.iter().filter(|rate| rate["case"] == case).map(|rate| &rate["checksum"]).collect()
        };
        for case in ["rnd", "seq", "rep", "adv", "prefix"] {
            let [a, b] = checksums(case)[..] else { panic!("{case}") };
            assert_eq!(a, b, "{case}");
        }
        assert!(of(family, "mlps").iter().filter(|l| l["subject"] == "bound").count() >= 2 * 2);
        for metric in ["build_ms", "bytes", "bytes_per_prefix"] {
            assert_eq!(of(family, metric).len(), 2, "{metric}");
        }
        let times = |metric| of(family, metric).into_iter().map(|line| line["value"].as_f64().unwrap());
        assert_eq!(times("p50_ns").count(), 2 * 4 * 2, "two structures, four cases, two sizes");
        assert!(times("p50_ns").zip(times("p99_ns")).all(|(half, most)| half <= most));
        assert_eq!(of(family, "kups").len(), 2 * 3, "one by one, in batches, coalesced");
        assert_eq!(of(family, "reader_mlps").len(), 2 * 3, "alone, beside, updated");
        let told = of(family, "stores");
        assert!(family == 6 || told.iter().any(|line| line["value"].as_f64() > Some(0.0)), "{told:?}");
    }
    let ratios: Vec<&Value> = lines.iter().filter(|l| l["metric"] == "ratio").collect();
    assert_eq!(ratios.len(), 2 * 5);
    assert!(ratios.iter().all(|l| l["pairs"] == 3 && l["low"].as_f64() <= l["high"].as_f64()));
    assert_eq!(folder.read("p.svg").matches("<title>").count(), 20);
}

#[test]
fn lpm_measures_how_rates_grow_with_threads() {
    let folder = folder();
    let line =
        "bench lpm --table v4.txt --case rnd,seq --runs 2 --seconds 0.001 --lookups-ki 4 --no-updates --json";
    let lines = folder.ok(&format!("{line} --threads 3")).json();
    let growth: Vec<&Value> = lines.iter().filter(|l| l["metric"] == "scaling").collect();
    assert!(growth.iter().all(|l| l["params"]["threads"] == 3 && l["value"].as_f64() > Some(0.0)));
    let subjects: Vec<_> = growth.iter().filter(|l| l["subject"] != "bound").map(|l| &l["case"]).collect();
    assert_eq!(subjects, ["rnd"], "what depends on itself is no matter of cores");
    assert!(growth.iter().any(|l| l["subject"] == "bound" && l["case"] == "independent"));
    assert_eq!(folder.run(&format!("{line} --threads 0")).code, 2);
}

/// Keys of its own, whose answers are not another one's.
#[test]
fn lpm_asks_each_structure_for_what_is_worst_for_it() {
    let folder = folder();
    let line = "bench lpm --table v4.txt --algorithm popdir-d16x3,binary-trie --case rnd,worst --runs 2 --seconds 0.001 \
                --lookups-ki 4 --bursts 32 --threads 2 --no-updates --json";
    let lines = folder.ok(line).json();
    let of = |case: &str, metric: &str| -> Vec<&Value> {
        lines.iter().filter(|l| l["case"] == case && l["metric"] == metric).collect()
    };
    let [one, other] = of("worst", "mlps")[..] else { panic!("one rate for each") };
    assert_ne!(one["checksum"], other["checksum"]);
    assert_eq!(of("rnd", "mlps")[0]["checksum"], of("rnd", "mlps")[1]["checksum"]);
    for (metric, count) in [("p50_ns", 2), ("p99_ns", 2), ("scaling", 2), ("ratio", 1)] {
        assert_eq!(of("worst", metric).len(), count, "{metric}");
    }
}

#[test]
fn lpm_speaks_to_people_and_takes_updates() {
    let folder = folder();
    folder.write("u.txt", "A\t10.2.0.0/16\nW\t10.2.0.0/16\nA\t10.3.0.0/16\n");
    let line = "bench lpm --table v4.txt --case rnd --runs 2 --seconds 0.001 --lookups-ki 4 --updates u.txt";
    let text = folder.ok(line).out;
    assert!(
        text.contains("M lookups/s") && text.contains("popdir-d16x3") && text.contains("update-batch kups"),
        "{text}"
    );
    // A stream of the other family, as far as its order goes.
    let line = "bench lpm --table v6.txt --case rnd --runs 2 --seconds 0.001 --lookups-ki 4 --json";
    let lines = folder.ok(&format!("{line} --updates-like u.txt")).json();
    let rates: Vec<&Value> = lines.iter().filter(|line| line["metric"] == "kups").collect();
    assert!(!rates.is_empty() && rates.iter().all(|line| line["params"]["updates"] == "like u.txt"));
    assert!(rates.iter().all(|line| line["value"].as_f64() > Some(0.0)));
    assert_eq!(folder.run(&format!("{line} --updates-like u.txt --updates u.txt")).code, 2);
}

/// The protocol of bench/README.md.
#[test]
fn the_runner_answers_the_protocol() {
    let folder = Folder::new();
    folder.write("t", "10.0.0.0/8\t7\n10.1.0.0/16\t300\n").write("t6", "2001:db8::/32\t9\n");
    let keys: Vec<u8> = (0..4096_u32).flat_map(|i| (0x0a00_0000 + i * 64).to_le_bytes()).collect();
    folder
        .write("keys", &keys)
        .write("keys6", [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].repeat(4096));
    let ran = folder.run_with(
        "bench lpm --runner --table t --keys keys --structure rangetrie-d16",
        "run rnd\nrun seq\nrun rep\nrun fast\nrun rnd\nquit\n",
    );
    let lines = ran.json();
    assert_eq!(lines.len(), 6, "{}", ran.out);
    let ready = &lines[0];
    assert_eq!(
        (&ready["ready"], &ready["subject"], &ready["routes"]),
        (&json!(true), &json!("rangetrie-d16"), &json!(2))
    );
    assert_eq!(ready["rejected"], 0);
    // No whole huge page is inside so few.
    assert_eq!(ready["params"], json!({"batch": 256, "key_pages": "4 KB"}));
    // 1,024 keys of 10.0/16 and 3,072 behind them: computed here, by the definition.
    let label = |key: u32| -> u32 {
        match key {
            0x0a01_0000..=0x0a01_ffff => 300,
            0x0a00_0000..=0x0aff_ffff => 7,
            _ => 0,
        }
    };
    let checksum = |labels: &mut dyn Iterator<Item = u32>| {
        let step = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        format!("{:016x}", labels.flat_map(u32::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, step))
    };
    let key = |j: u32| 0x0a00_0000 + j * 64;
    let mut previous = 0;
    let mut chain = (0..4096).map(|j| {
        previous = label(key(j) ^ previous);
        previous
    });
    let expected = [
        ("rnd", checksum(&mut (0..4096).map(|j| label(key(j))))),
        ("seq", checksum(&mut chain)),
        ("rep", checksum(&mut (0..4096).map(|j| label(key(j / 8 + j % 8))))),
    ];
    for (line, (case, checksum)) in lines[1..4].iter().zip(&expected) {
        assert_eq!((&line["case"], &line["checksum"]), (&json!(case), &json!(checksum)));
        assert_eq!((&line["bench"], &line["lookups"]), (&json!("lpm"), &json!(4096)));
        assert!(line["seconds"].as_f64().unwrap() > 0.0);
    }
    assert!(lines[4]["error"].as_str().unwrap().contains("run fast"));
    assert_eq!(lines[5]["checksum"], json!(expected[0].1));
    // The end of the input ends it, too; IPv6 keys are in network order.
    let ran = folder.run_with("bench lpm --runner --table t6 --keys keys6", "run rnd\n");
    assert_eq!(ran.json()[1]["checksum"], json!(checksum(&mut [9; 4096].into_iter())));
}

#[test]
fn ports_are_measured_with_and_without_a_router() {
    let folder = folder();
    let lines =
        folder.ok("bench port null --table v4.txt --seconds 0.03 --runs 2 --packets 1000 --json").json();
    let rates: Vec<&Value> = lines.iter().filter(|l| l["metric"] == "mpps").collect();
    assert_eq!(rates.iter().map(|l| l["case"].as_str().unwrap()).collect::<Vec<_>>(), ["null", "route"]);
    assert!(rates.iter().all(|l| l["value"].as_f64().unwrap() > 0.0));
    let parts: Vec<&str> = (lines.iter())
        .filter(|l| l["case"] == "route" && l["metric"] == "ns_per_packet")
        .map(|l| l["params"]["part"].as_str().unwrap())
        .collect();
    assert!(parts.contains(&"ip4-lookup") && parts.contains(&"port:out"), "{parts:?}");
    let lines =
        folder.ok("bench port null --table v6.txt --seconds 0.03 --runs 1 --packets 1000 --json").json();
    let of = |part: &str| lines.iter().find(|l| l["params"]["part"] == part).map(|l| &l["params"]["family"]);
    assert_eq!((of("ip6-forward"), of("ip4-lookup")), (Some(&json!(6)), None));
    let lines = folder.ok("bench port null --workers 2 --seconds 0.03 --runs 2 --packets 1000 --json").json();
    let ratio: Vec<&Value> = lines.iter().filter(|l| l["metric"] == "ratio").collect();
    assert_eq!((ratio.len(), &ratio[0]["of"], &ratio[0]["to"]), (1, &json!("2 cores"), &json!("one core")));
    let rates = lines.iter().filter(|l| l["metric"] == "mpps").map(|l| &l["params"]["workers"]);
    assert_eq!(rates.collect::<Vec<_>>(), [&json!(1), &json!(2)]);
    let lines = folder.ok("bench port pcap --seconds 0.02 --runs 1 --packets 1000 --size 128 --json").json();
    let cases: Vec<&str> =
        lines.iter().filter(|l| l["metric"] == "mpps").map(|l| l["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["pcap-read", "pcap-read-preloaded", "pcap-write"]);
}

#[test]
fn churn_of_ipv6_leaves_every_packet_its_next_hop() {
    let folder = folder();
    let line =
        "bench churn --table v6.txt --pairs 6 --seconds 0.1 --packets 1000 --rate 2000 --ring 65536 --json";
    // It ends with 1 where packets were dropped, which is the machine's affair, and without a line where one went elsewhere.
    let lines = folder.run(line).lines();
    let rates: Vec<&Value> = lines.iter().filter(|l| l["metric"] == "mpps").collect();
    let cases: Vec<&str> = rates.iter().map(|l| l["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["quiet", "churn", "share-quiet", "share-churn"]);
    assert!(rates.iter().all(|l| l["params"]["family"] == 6 && l["value"].as_f64() > Some(0.0)));
    let runs: Vec<u64> = rates.iter().map(|l| l["runs"].as_u64().unwrap()).collect();
    assert_eq!(runs, [6, 6, 3, 3]);
    let changes: Vec<&Value> = lines.iter().filter(|l| l["metric"] == "updates_per_s").collect();
    let cases: Vec<&str> = changes.iter().map(|l| l["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["churn", "share-churn"]);
    assert!(changes.iter().all(|l| l["value"].as_f64() > Some(0.0)), "{changes:?}");
    // And every run with churn has had its configuration changed.
    let reloads: Vec<&Value> = lines.iter().filter(|l| l["metric"] == "reloads").collect();
    let cases: Vec<&str> = reloads.iter().map(|l| l["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["churn", "share-churn"]);
    assert!(reloads.iter().all(|l| l["min"].as_f64() >= Some(1.0)), "{reloads:?}");
    // Of six pairs the interval is from the least to the greatest.
    let slower = lines.iter().find(|l| l["metric"] == "slower_percent").unwrap();
    assert_eq!(slower["runs"], 6);
    assert_eq!((&slower["params"]["low"], &slower["params"]["high"]), (&slower["min"], &slower["max"]));
}

#[test]
fn mistakes_get_one_line() {
    let folder = folder();
    folder.write("odd", [0; 17]);
    folder.fail(&[
        ("bench lpm --table none", 2, "none: No such file"),
        ("bench lpm --table v4.txt --bursts 1,0", 2, "--bursts: give 1 to 4096 keys"),
        ("bench lpm --table v4.txt --algorithm dxr-d9", 2, "use one of auto"),
        ("bench lpm --table v4.txt --seconds 0", 2, "--seconds 0"),
        ("bench lpm --table v4.txt --runs 0", 2, "--runs"),
        ("bench lpm --table v4.txt --batch 5000", 2, "--batch"),
        ("bench lpm --table v4.txt --lookups-ki 3", 2, "--lookups-ki 3"),
        (
            "bench lpm --table v4.txt --plot no/x.svg",
            2,
            "--plot no/x.svg: No such file or directory (os error 2): give",
        ),
        ("bench lpm --figure zec-3.13 --table v4.txt --plot p.png", 2, "--plot p.png: plots are SVG"),
        ("bench lpm --table v4.txt --case fast", 2, "rnd, seq, rep, adv, prefix"),
        ("bench lpm --table v4.txt --runner", 2, "--keys"),
        ("bench lpm --table v4.txt --runner --keys odd", 2, "odd: 17 bytes are not a multiple of 4096 keys"),
        ("bench lpm --table t.txt --runner --keys t.txt", 2, "one family"),
        ("bench port null --size 63", 2, "--size 63"),
        ("bench port null --workers 0", 2, "--workers 0"),
        ("bench port pcap --workers 2", 2, "--workers 2"),
        ("bench port null --table v4.txt --algorithm x", 2, "router.algorithm"),
        ("bench port ring", 2, "null, pcap"),
    ]);
}

/// Every packet is held to its rule by its counter: a wrong one ends the benchmark.
#[test]
fn a_flood_of_masks_is_compared_with_the_rules_alone() {
    let folder = Folder::new();
    let lines = folder.ok("bench classify --case masks --seconds 0.01 --runs 2 --json").json();
    let values = |subject: &str, case: &str, metric: &str| -> Vec<f64> {
        let is =
            |line: &&Value| line["subject"] == subject && line["case"] == case && line["metric"] == metric;
        lines.iter().filter(is).map(|line| line["value"].as_f64().unwrap()).collect()
    };
    for (subject, metric) in
        [("switch", "before_mpps"), ("switch", "flood_mpps"), ("rules-alone", "flood_mpps")]
    {
        let found = values(subject, "flood/masks", metric);
        assert!(found.len() == 1 && found[0] > 0.0, "{subject} {metric}: {found:?}");
    }
    for metric in ["missed_first_share", "missed_next_share", "after_mpps", "kept"] {
        assert_eq!(values("switch", "flood/masks-recovery", metric).len(), 1, "{metric}");
    }
    let ratios: Vec<&Value> = lines.iter().filter(|line| line["metric"] == "ratio").collect();
    assert!(ratios.len() == 1 && ratios[0]["to"] == "rules-alone", "{ratios:?}");
}

#[test]
fn the_switch_by_layer_and_its_sets() {
    let folder = Folder::new();
    let short = "--seconds 0.01 --runs 2 --json";
    let lines = folder
        .ok(&format!("bench classify --case traffic --traffic few,rules-1M --family 4,6 {short}"))
        .json();
    let value = |case: &str, subject: &str, metric: &str| {
        let is =
            |line: &&Value| line["case"] == case && line["subject"] == subject && line["metric"] == metric;
        let mut found = lines.iter().filter(is);
        let (line, more) = (found.next().unwrap_or_else(|| panic!("{case} {metric}")), found.next());
        assert!(more.is_none() && line["bench"] == "classify" && line["runs"] == 2);
        line["value"].as_f64().unwrap()
    };
    for case in ["few/v4", "few/v6", "rules-1M/v4", "rules-1M/v6"] {
        for subject in ["switch", "switch-timed", "bound"] {
            assert!(value(case, subject, "mpps") > 0.0 && value(case, subject, "cycles_per_packet") > 0.0);
        }
        for layer in ["io", "parse", "exact", "megaflow", "actions"] {
            assert!(value(case, "switch", &format!("{layer}_ns")) > 0.0, "{case} {layer}");
            assert!(value(case, "switch", &format!("{layer}_cycles")) > 0.0, "{case} {layer}");
        }
        let all = value(case, "switch", "exact_share") + value(case, "switch", "megaflow_share");
        // Each is rounded to six digits.
        assert!(all > 0.5 && all <= 1.00001, "{case}: {all}");
        let rules = if case.starts_with("few") { 1.0 } else { 20.0 };
        assert_eq!(value(case, "switch", "masks"), rules, "{case}");
        assert_eq!(value(case, "switch", "megaflows_held"), rules, "{case}");
    }
    let figure = folder
        .ok("bench classify --figure halo-3 --traffic rules-1M --seconds 0.01 --runs 2 --json --plot h.svg")
        .json();
    let of_paper: Vec<&Value> = figure.iter().filter(|line| line["paper"] == 993.0).collect();
    assert!(of_paper.len() == 1 && of_paper[0]["figure"] == "halo-3" && of_paper[0]["series"] == "all");
    assert!(folder.read("h.svg").contains("cycles per packet"));

    // Structures on a set of a file, and changes.
    let rules: String = (0..40)
        .map(|i| format!("@10.{i}.0.0/16 0.0.0.0/0 0 : 65535 {i} : {} 0x06/0xFF\n", 100 + i))
        .collect();
    folder
        .write("a.rules", rules)
        .write("a.trace", "10.1.2.3 192.0.2.9 7 80 6 1\n8.8.8.8 8.8.4.4 7 9 17 -1\n");
    let lines = folder
        .ok(&format!("bench classify --case sets,updates --rules a.rules --trace a.trace {short}"))
        .json();
    let of = |metric: &str| -> Vec<&Value> { lines.iter().filter(|l| l["metric"] == metric).collect() };
    let sums: Vec<&Value> = of("mlps").into_iter().map(|line| &line["checksum"]).collect();
    assert_eq!(
        (sums.iter().filter(|sum| **sum == sums[0]).count(), &sums[0].as_str().map(str::len)),
        (sums.len() - 1, &Some(16))
    );
    assert_eq!([of("kups").len(), of("kups_64").len()], [2, 2]);
    let compared: Vec<&Value> = lines.iter().filter(|line| line["metric"] == "ratio").collect();
    assert_eq!(
        compared.len(),
        7,
        "vectors with the scalar form, the caches with theirs, the cross-product with tuples"
    );

    // The five cases by the caches alone, HALO's baseline beside them.
    let lines =
        folder.ok(&format!("bench classify --case caches --traffic rules-100k --quick {short}")).json();
    let rates = lines.iter().filter(|line| line["metric"] == "mlps" && line["case"] == "caches/rules-100k");
    let subjects: Vec<&str> = rates.map(|line| line["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["cache", "cache-plain", "cuckoo"]);

    // As a runner: the answers of the trace, before and after changes.
    let said = folder.run_with(
        "bench classify --runner --rules a.rules --trace a.trace --changes 10",
        "run lookup\nrun update\nrun away\nquit\n",
    );
    let said = said.json();
    assert_eq!((&said[0]["subject"], &said[0]["entries"]), (&json!("tuple-space"), &json!(40)));
    // FNV-1a of the labels 2 and 0.
    let sum = [2_u8, 0, 0, 0, 0, 0, 0, 0]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    for (line, case, count) in [(&said[1], "lookup", 2), (&said[2], "update", 10)] {
        assert_eq!((&line["case"], &line["lookups"]), (&json!(case), &json!(count)));
        assert_eq!(line["checksum"], format!("{sum:016x}"), "{case}");
    }
    assert!(said[3]["error"].as_str().unwrap().contains("use run lookup|update or quit"));
    // Without a set: the traffic cases by the whole switch.
    let said = folder.run_with("bench classify --runner --seconds 0.01", "run few\nrun away\nquit\n").json();
    assert_eq!((&said[0]["subject"], &said[1]["checksum"]), (&json!("switch"), &json!("10000/1")));
    assert!(said[1]["lookups"].as_f64().unwrap() > 0.0 && said[1]["seconds"].as_f64().unwrap() > 0.0);
    assert!(said[2]["error"].as_str().unwrap().contains("use run few|many-1|"));
    let made = folder.ok("bench classify --case sets --structure tuple-merge --seconds 0.01 --runs 1").out;
    assert!(made.contains("made-acl: M lookups/s") && made.contains("tuple-merge"), "{made}");

    // A flood.
    let lines = folder.ok(&format!("bench classify --case flood {short}")).json();
    let of = |metric: &str| lines.iter().filter(|line| line["metric"] == metric).count();
    let metrics = ["before_mpps", "flood_mpps", "after_mpps", "slower", "recovery_ms", "memory_mib", "masks"];
    for metric in metrics.into_iter().chain(["turned_away_share", "spared_share"]) {
        assert_eq!(of(metric), 4, "{metric}");
    }
    let of_many = folder.ok(&format!("bench classify --case flood --traffic many-10 {short}")).json();
    assert!(of_many.iter().all(|line| line["case"].as_str().unwrap().ends_with("/many-10")), "{of_many:?}");
    folder.fail(&[
        ("bench classify --runner --rules a.rules", 2, "needs --rules FILE and --trace FILE, or neither"),
        ("bench classify --traffic none", 2, "--traffic none: give some of few, many-1"),
        ("bench classify --seconds 0", 2, "--seconds, --runs"),
        ("bench classify --family 5", 2, "--family 5: give 4 or 6"),
        ("bench classify --exact 99999999", 2, "--exact 99999999: give at most 2^24"),
        ("bench classify --case sets --plot p.svg", 2, "--plot: only traffic is drawn"),
        ("bench classify --case sets --rules none", 2, "none: No such file"),
    ]);
}
