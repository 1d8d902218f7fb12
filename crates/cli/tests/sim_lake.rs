//! `tidemill sim lake`, as a user sees it.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::Value;
use tool::Folder;

fn number(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap()
}

/// The points of a series, by place.
fn points<'a>(lines: &'a [Value], unit: &str, name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["unit"] == unit && line["series"] == name).collect()
}

fn at<'a>(points: &[&'a Value], x: f64) -> &'a Value {
    points.iter().find(|point| point["x"].as_f64() == Some(x)).unwrap()
}

#[test]
fn configurations_are_the_product_of_the_lists() {
    let folder = Folder::new();
    let line = "sim lake --elements 1,5 --clock-mhz 100,200 --offered 1,20 --queries 20000 --json";
    let lines = folder.ok(line).json();
    assert_eq!(lines.len(), 8);
    for line in &lines {
        let config = &line["config"];
        let (elements, clock) = (number(config, "elements"), number(config, "clock_mhz"));
        // The port, the elements, or what is offered.
        let expected = (1250.0 / 94.0_f64).min(elements * clock / 60.0).min(number(config, "offered_mqps"));
        assert!((number(line, "mqps") / expected - 1.0).abs() < 0.01, "{line}");
        let parts = ["on_chip", "dram", "host", "lost_at_elements", "lost_at_host"];
        assert_eq!(parts.map(|part| line[part].as_u64().unwrap()).iter().sum::<u64>(), 20_000);
        assert!(number(line, "watts") >= 59.0);
    }
    assert_eq!(folder.ok(&format!("{line} --jobs 1")).json(), lines, "the same on one thread");

    let with = |gaps: &str, seed: u32| {
        let line = "sim lake --on-chip 30 --dram 60 --offered 5 --queries 5000 --json";
        folder.ok(&format!("{line} --gaps {gaps} --seed {seed}")).json()
    };
    for gaps in ["random", "etc"] {
        let lines = with(gaps, 1);
        assert_eq!(lines, with(gaps, 1));
        assert_eq!(lines[0]["config"]["gaps"], gaps);
        assert_ne!(lines[0]["mean_us"], with(gaps, 2)[0]["mean_us"]);
    }
    assert_ne!(with("random", 1)[0]["mean_us"], with("etc", 1)[0]["mean_us"]);

    let text = folder.ok("sim lake --variant dram --on-chip 0 --dram 100 --queries 5000").out;
    assert!(text.contains("variant") && text.contains("dram"), "{text}");
}

#[test]
fn logs_are_asked_what_the_variants_hold() {
    let folder = Folder::new();
    // 200 keys in turn: more than 144, fewer than 512.
    let line = |i: usize| format!("{i},key{},4,8,1,get,0\n", i % 200);
    folder.write("a.csv", (0..8000).map(line).collect::<String>());
    let lines = folder.ok("sim lake --log a.csv --variant full,dram,sram,bram --offered 0.1 --json").json();
    let part = |i: usize, name: &str| lines[i][name].as_u64().unwrap();
    assert!(lines.iter().all(|line| line["queries"] == 4000), "half is warm-up: {lines:?}");
    assert_eq!((part(1, "on_chip"), part(1, "dram")), (0, 4000));
    assert_eq!((part(0, "host"), part(2, "dram"), part(3, "dram")), (0, 0, 0));
    assert!(part(3, "host") > part(2, "host") && part(3, "host") > 500, "{lines:?}");
    let lines = folder.ok("sim lake --model etc --queries 2000 --offered 0.1 --json").json();
    assert_eq!(lines[0]["queries"], 1000);
}

#[test]
fn wrong_words_get_a_line() {
    let folder = Folder::new();
    folder.write("c.jsonl", "{\"v\":1}\n");
    folder.fail(&[
        ("sim lake --figure tok-9", 2, "use list"),
        ("sim lake --figure tok-4.8 --elements 2", 2, "--elements"),
        ("sim lake --figure tok-4.9 --plot absent/f.svg", 2, "give a file that can be written"),
        ("sim lake --elements 0", 2, "0 processing elements: use 1 to 64"),
        ("sim lake --clock-mhz 0", 2, "clock (MHz) is 0: use 1 to 10000"),
        ("sim lake --clock-mhz nan", 2, "clock (MHz) is NaN"),
        ("sim lake --offered 0", 2, "offered (M/s) is 0"),
        ("sim lake --gaps odd", 2, "odd: no such gaps: use even, random or etc"),
        ("sim lake --variant l2", 2, "no such variant: use full"),
        ("sim lake --variant dram", 2, "it has no shared cache: give --on-chip 0 --dram 100"),
        ("sim lake --variant bram --on-chip 90 --dram 10", 2, "it has no DRAM"),
        ("sim lake --on-chip 60 --dram 50", 2, "parts found, together"),
        ("sim lake --log absent.csv", 1, "absent.csv"),
        ("sim lake --log c.jsonl", 1, "the name does not tell the format"),
        ("sim lake --log c.jsonl --model etc", 2, "--model"),
    ]);
}

#[test]
fn figures_have_the_papers_numbers_beside_them() {
    let folder = Folder::new();
    let list = folder.ok("sim lake --figure list").out;
    let figures = [
        ("tok-3.5t", 6),
        ("tok-4.1t", 6),
        ("tok-4.4t", 25),
        ("tok-4.8", 36),
        ("tok-4.9", 19),
        ("tok-4.10", 22),
        ("tok-4.11", 22),
        ("tok-4.12", 20),
        ("tok-4.14", 47),
        ("tok-4.15", 61),
    ];
    assert_eq!(list.lines().count(), figures.len());
    for (figure, count) in figures {
        assert!(list.lines().any(|line| line.split_whitespace().next() == Some(figure)), "{figure}: {list}");
        let lines =
            folder.ok(&format!("sim lake --figure {figure} --queries 20000 --json --plot f.svg")).json();
        assert_eq!(lines.len(), count, "{figure}");
        assert!(folder.read("f.svg").contains(figure));
        // Each point beside which the paper has a number is as near to it as bench/figures.md says. Those that are far are named there.
        for line in lines.iter().filter(|line| !line["paper"].is_null()) {
            let (ours, paper) = (number(line, "y"), number(line, "paper"));
            let far = match (figure, line["series"].as_str().unwrap(), line["unit"].as_str().unwrap()) {
                ("tok-3.5t", ..) => 0.18,
                ("tok-4.8", "DRAM alone", _) | ("tok-4.4t", ..) => 0.37,
                ("tok-4.11", _, "M gets/s") => 0.37,
                ("tok-4.11", ..) => 0.28,
                ("tok-4.1t" | "tok-4.9", ..) => 0.14,
                ("tok-4.14", _, "kqps from which LaKe draws less") => 3.2,
                _ => 0.02,
            };
            assert!((ours / paper - 1.0).abs() <= far, "{figure}: {line}");
        }
    }
}

/// Of each figure what the paper's text says of its shape.
#[test]
fn shapes_are_the_papers() {
    let folder = Folder::new();
    let figure = |name: &str| folder.ok(&format!("sim lake --figure {name} --queries 20000 --json")).json();

    // Linear in the elements, then level.
    let lines = figure("tok-4.8");
    let shared = points(&lines, "M gets/s", "shared cache");
    let one = number(at(&shared, 1.0), "y");
    assert!((number(at(&shared, 3.0), "y") / one - 3.0).abs() < 0.02);
    assert_eq!(at(&shared, 5.0)["y"], at(&shared, 6.0)["y"]);
    let dram = points(&lines, "M gets/s", "DRAM alone");
    assert!(dram.iter().zip(&shared).all(|(dram, shared)| number(dram, "y") < 0.8 * number(shared, "y")));
    // Late by what one query takes, however many elements there are.
    let late = points(&lines, "mean latency, us", "shared cache, 10 kqps");
    assert!(late.len() == 6 && late.iter().all(|point| (number(point, "y") / 1.16 - 1.0).abs() < 0.01));

    // Linear in the rate, and some twenty times memcached's best.
    let lines = figure("tok-4.9");
    let lake = points(&lines, "kqps/W", "LaKe in a server");
    let slope = |x: f64| number(at(&lake, x), "y") / x;
    assert!((1..=12).all(|x| (slope(f64::from(x)) / slope(12.0) - 1.0).abs() < 0.06));
    let memcached = points(&lines, "kqps/W", "memcached");
    assert!(number(at(&lake, 13.12), "y") > 20.0 * number(at(&memcached, 0.962), "y"));

    // All of it from 160 MHz on.
    let lines = figure("tok-4.10");
    let rate = points(&lines, "M gets/s", "shared cache");
    let best = number(at(&rate, 200.0), "y");
    assert!(number(at(&rate, 160.0), "y") > 0.99 * best && number(at(&rate, 150.0), "y") < 0.95 * best);
    let late = points(&lines, "mean latency, us", "shared cache, 10 kqps");
    let late = |mhz: f64| number(at(&late, mhz), "y") * mhz;
    assert!((10..=20).all(|n| (late(f64::from(n) * 10.0) / late(200.0) - 1.0).abs() < 0.01));

    // Quicker and sooner with each hit in the shared cache.
    let lines = figure("tok-4.11");
    let ys = |unit: &str, name: &str| -> Vec<f64> {
        points(&lines, unit, name).iter().map(|point| number(point, "y")).collect()
    };
    let (rate, late) = (ys("M gets/s", "LaKe"), ys("mean latency, us", "LaKe, 10 kqps"));
    assert!(rate.len() == 11 && rate.windows(2).all(|two| two[1] > 0.99 * two[0]), "{rate:?}");
    assert!(rate[10] > 1.5 * rate[0], "{rate:?}");
    assert!(late.len() == 11 && late.windows(2).all(|two| two[1] < two[0]), "{late:?}");

    // Nearly linear in the hits: above a straight line, for where memcached answers much, elements bring its replies in.
    let lines = figure("tok-4.12");
    let answered: Vec<f64> = points(&lines, "M gets/s answered", "LaKe and memcached")
        .iter()
        .map(|point| number(point, "y"))
        .collect();
    let straight = |i: usize| answered[0] + (answered[9] - answered[0]) * i as f64 / 9.0;
    assert!((0..10).all(|i| (answered[i] / straight(i) - 1.0).abs() < 0.18), "{answered:?}");
    assert!(answered.windows(2).all(|two| two[1] > two[0]), "{answered:?}");

    // memcached draws less below 80 kqps, LaKe beyond, and LaKe hardly more under load than idle.
    let lines = figure("tok-4.14");
    let (memcached, lake) =
        (points(&lines, "watts", "memcached"), points(&lines, "watts", "LaKe in a server"));
    for kqps in [0.0, 20.0, 40.0, 60.0, 100.0, 200.0, 400.0, 962.0] {
        let (software, hardware) = (number(at(&memcached, kqps), "y"), number(at(&lake, kqps), "y"));
        assert_eq!(software < hardware, kqps < 80.0, "{kqps}: {software} and {hardware} W");
        assert!(hardware < 63.0, "{kqps}: {hardware} W");
    }

    // On demand: memcached's watts below, LaKe's above, each kept between the thresholds.
    let lines = figure("tok-4.15");
    let (rising, falling) =
        (points(&lines, "watts", "on demand, rising"), points(&lines, "watts", "on demand, falling"));
    let memcached = points(&lines, "watts", "memcached");
    for kqps in [0.0, 40.0, 60.0, 80.0] {
        assert_eq!(at(&rising, kqps)["y"], at(&memcached, kqps)["y"]);
    }
    assert!(number(at(&rising, 100.0), "y") < number(at(&memcached, 100.0), "y"));
    assert_eq!(at(&falling, 40.0)["y"], at(&rising, 40.0)["y"]);
    assert!(number(at(&falling, 60.0), "y") >= 59.0);
}
