//! `tidemill sim kv`, as a user sees it.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::Value;
use tool::Folder;

/// Twitter's format: key 0 to 9 in turn, and every tenth request a set.
fn log(folder: &Folder) {
    let line = |i: usize| {
        let op = if i % 10 == 9 { "set" } else { "get" };
        format!("{i},key{},4,100,1,{op},0\n", i % 10)
    };
    folder.write("a.csv", (0..1000).map(line).collect::<String>());
}

fn without_rates(mut lines: Vec<Value>) -> Vec<Value> {
    for line in &mut lines {
        assert!(line.as_object_mut().unwrap().remove("mrps").unwrap().as_f64().unwrap() > 0.0);
    }
    lines
}

fn series(lines: &[Value], unit: &str, name: &str) -> Vec<f64> {
    let of = |line: &&Value| line["unit"] == unit && line["series"] == name;
    lines.iter().filter(of).map(|line| line["y"].as_f64().unwrap()).collect()
}

#[test]
fn a_log_is_run_through_all_that_is_listed() {
    let folder = Folder::new();
    log(&folder);
    let lines = folder.ok("sim kv --log a.csv --policy fifo,lru,s3fifo --entries 9,10 --json").json();
    assert_eq!(lines.len(), 6);
    // A loop larger than the cache has no hits with FIFO and LRU; one as large misses once a key.
    let hits: Vec<u64> = lines.iter().map(|line| line["hits"].as_u64().unwrap()).collect();
    assert_eq!(hits[..4], [0, 891, 0, 891]);
    assert!(hits[4] > 0 && hits[5] == 891, "{hits:?}");
    assert!(
        lines.iter().all(|line| line["gets"] == 900 && line["writes"] == 100 && line["config"]["keys"] == 10)
    );
    // The same key again and again is kept by each policy, however its sets are cut.
    folder.write("one.csv", (0..100).map(|i| format!("{i},key,4,100,1,get,0\n")).collect::<String>());
    let line = "sim kv --log one.csv --policy fifo,lru,clock,sieve,s3fifo,random --ways 1,2,4,8,16 --entries 16 --json";
    let lines = folder.ok(line).json();
    assert!(lines.len() == 30 && lines.iter().all(|line| line["hits"] == 99), "{lines:?}");
    let text = folder.ok("sim kv --log a.csv --policy lru --entries 10 --warm 50").out;
    assert!(text.contains("a.csv") && text.contains(" 450 ") && text.contains("0.00"), "{text}");
    let tiers = folder
        .ok("sim kv --log a.csv --entries 5 --l2 5 --inclusion non-inclusive --write back --json")
        .json();
    assert_eq!((tiers[0]["l1_hits"].as_u64(), tiers[0]["l2_hits"].as_u64()), (Some(0), Some(891)));
    assert!(tiers[0]["dma_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn slabs_keep_what_they_have_chunks_for() {
    let folder = Folder::new();
    log(&folder);
    let lines = folder.ok("sim kv --log a.csv --slab A,C --policy lru,fifo --json").json();
    let of = |line: &Value| (line["config"]["policy"].to_string(), line["config"]["slab"].to_string());
    let all: std::collections::BTreeSet<_> = lines.iter().map(of).collect();
    assert_eq!((lines.len(), all.len()), (4, 4), "{lines:?}");
    assert!(lines.iter().all(|line| line["hits"] == 891 && line["evictions"] == 0), "{lines:?}");
    // C has no chunk above 256 bytes.
    folder.write("a.csv", folder.read("a.csv").replace(",100,", ",300,"));
    let lines = folder.ok("sim kv --log a.csv --slab A,C --json").json();
    let hits: Vec<u64> = lines.iter().map(|line| line["hits"].as_u64().unwrap()).collect();
    assert_eq!(hits, [891, 0]);
    let text = folder.ok("sim kv --log a.csv --slab C --warm 50").out;
    assert!(text.contains("slab") && text.contains("100.00"), "{text}");
}

#[test]
fn a_sweep_goes_on_where_it_was_killed() {
    let folder = Folder::new();
    log(&folder);
    let line = "sim kv --log a.csv --model usr --keys 500 --requests 1000 --policy fifo,random,sieve --ways 1,4 --entries 4,8 --json";
    let all = folder.ok(&format!("{line} --resume whole.jsonl")).json();
    assert_eq!(all.len(), 24);
    let whole = folder.read("whole.jsonl");
    assert_eq!(whole.lines().count(), 24);
    // Killed in the middle of a line: that line is not believed, and all others are.
    let kept: usize = whole.lines().take(7).map(|line| line.len() + 1).sum();
    let in_the_eighth = [0, 1, 40, whole.lines().nth(7).unwrap().len()].map(|more| (kept, kept + more));
    for (kept, cut) in in_the_eighth.into_iter().chain([(0, 5), (0, 40)]) {
        folder.write("cut.jsonl", &whole[..cut]);
        let again = folder.ok(&format!("{line} --resume cut.jsonl")).json();
        assert_eq!(without_rates(again), without_rates(all.clone()), "cut at {cut}");
        let now = folder.read("cut.jsonl");
        assert!(now.starts_with(&whole[..kept]) && now.lines().count() == 24 && now.ends_with('\n'));
    }
    // What is done is taken from the file, whatever it says.
    folder.write("told.jsonl", whole.replace("\"gets\":900", "\"gets\":901"));
    let told = folder.ok(&format!("{line} --resume told.jsonl")).json();
    assert_eq!(told.iter().filter(|line| line["gets"] == 901).count(), 12);
    // The same on one thread.
    assert_eq!(without_rates(folder.ok(&format!("{line} --jobs 1")).json()), without_rates(all));
    // Another log of as many requests and keys, under the same name: what is kept is not of it. Nor of other keys.
    for (what, other, lines) in [(",100,", ",200,", 36), ("key", "kex", 48)] {
        folder.write("a.csv", folder.read("a.csv").replace(what, other));
        for _ in 0..2 {
            folder.ok(&format!("{line} --resume whole.jsonl"));
            assert_eq!(folder.read("whole.jsonl").lines().count(), lines, "{other}");
        }
    }
}

/// Several sources at once: what comes of each is what comes of it by itself, in the order in which they were named; and one that cannot be read is told by its own error.
#[test]
fn sources_are_worked_on_side_by_side() {
    let folder = Folder::new();
    log(&folder);
    let of = |sources: &str, jobs: u32| {
        let line = "--keys 500 --requests 1000 --policy lru --entries 8 --json";
        without_rates(folder.ok(&format!("sim kv {sources} {line} --jobs {jobs}")).json())
    };
    let alone: Vec<Value> =
        ["--log a.csv", "--model usr", "--model etc", "--model var"].map(|one| of(one, 1)).concat();
    assert_eq!(alone.len(), 4);
    for jobs in [1, 2, 4, 9] {
        assert_eq!(of("--log a.csv --model usr,etc,var", jobs), alone, "{jobs} jobs");
    }
    folder.write("b.csv", "0,a,17,213,4,fetch,0\n");
    let line = "sim kv --log b.csv --model usr,etc,var --keys 500 --requests 1000 --policy lru,fifo --jobs 4";
    folder.fail(&[(line, 1, "b.csv:1: operation \"fetch\": use get")]);
}

#[test]
fn wrong_words_get_a_line() {
    let folder = Folder::new();
    log(&folder);
    folder.write("b.csv", "0,a,17,213,4,get,0\n0,a,17,213,4,fetch,0\n");
    folder.write("c.jsonl", "{\"v\":1}\n");
    // Others' files, without a line end: they are not taken for lines that were cut.
    let others = [("d.jsonl", "notes of mine"), ("f.json", "{\"a\":1}"), ("g.txt", "\n\nnotes of mine")];
    for (name, text) in others {
        folder.write(name, text);
    }
    folder.fail(&[
        ("sim kv", 2, "give --log FILE, --model NAMES or --figure NAME"),
        ("sim kv --figure tok-9", 2, "use list"),
        ("sim kv --figure tok-3.8 --entries 7", 2, "--entries"),
        ("sim kv --figure tok-3.8 --plot absent/f.svg", 2, "give a file that can be written"),
        ("sim kv --log absent.csv", 1, "absent.csv"),
        ("sim kv --log c.jsonl", 1, "the name does not tell the format"),
        ("sim kv --log b.csv", 1, "b.csv:2: operation \"fetch\": use get"),
        ("sim kv --log a.csv --format int32", 1, "a.csv: record"),
        ("sim kv --log a.csv --policy best", 2, "no such policy: use fifo"),
        ("sim kv --log a.csv --ways 17", 2, "use 1 to 16, or full"),
        ("sim kv --log a.csv --ways 8 --entries 7", 2, "7 entries in sets of 8"),
        ("sim kv --log a.csv --slab F", 2, "F: no such type of slab: use A to E"),
        ("sim kv --log a.csv --slab A --policy sieve", 2, "--policy sieve: chunks go by lru or fifo"),
        ("sim kv --log a.csv --slab A --entries 7", 2, "--entries"),
        ("sim kv --model abc", 2, "no such model: use usr"),
        ("sim kv --model usr --exponent=-1", 2, "--exponent -1: give 0 to 10"),
        ("sim kv --log a.csv --entries 0", 2, "give 1 to 2^30"),
        ("sim kv --log /dev/zero --format int32", 1, "/dev/zero: a device or a folder, and no file"),
        ("sim kv --log a.csv --resume /dev/zero", 2, "--resume /dev/zero: is no file: give a file"),
        ("sim kv --log a.csv --resume .", 2, "--resume .: is no file: give a file"),
        ("sim kv --log a.csv --resume c.jsonl", 1, "c.jsonl:1: not a line of a sweep"),
        ("sim kv --log a.csv --resume d.jsonl", 1, "d.jsonl:1: not a line of a sweep"),
        ("sim kv --log a.csv --resume f.json", 1, "f.json:1: not a line of a sweep"),
        ("sim kv --log a.csv --resume g.txt", 1, "g.txt:3: not a line of a sweep"),
        ("sim kv --log a.csv --resume absent/e.jsonl", 2, "give a file that can be written"),
    ]);
    for (name, text) in others {
        assert_eq!(folder.read(name), text);
    }
}

#[test]
fn figures_have_the_papers_numbers_beside_them() {
    let folder = Folder::new();
    let list = folder.ok("sim kv --figure list").out;
    for name in ["tok-3.8", "tok-3.9", "tok-3.10", "tok-3.11", "tok-3.12", "tok-3.13", "tok-3.14"] {
        assert!(list.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}: {list}");
    }
    let lines = folder.ok("sim kv --figure tok-3.8 --json --plot f.svg").json();
    let needed: Vec<&Value> = lines.iter().filter(|line| line["series"] == "elements").collect();
    assert_eq!(needed.len(), 2);
    assert!(needed.iter().all(|line| line["y"] == line["paper"]), "{needed:?}");
    assert!(folder.read("f.svg").contains("processing elements"));

    let lines = folder.ok("sim kv --figure tok-3.14 --json").json();
    let (both, alone) = ("L1, L2 and memcached", "L1 and memcached");
    let (both, alone) =
        (series(&lines, "M gets/s answered", both), series(&lines, "M gets/s answered", alone));
    let fall = |of: &[f64], from: usize, to: usize| of[from] - of[to];
    assert!(fall(&both, 0, 2) < 0.1 && fall(&both, 0, 3) < 0.5, "slowly: {both:?}");
    assert!((fall(&alone, 2, 4) - fall(&alone, 4, 6)).abs() < 1e-3 && fall(&alone, 2, 4) > 1.8, "{alone:?}");
    assert!(both.iter().zip(&alone).all(|(both, alone)| both >= alone));

    // Few requests: here what is simulated is whole and draws; its shape is held to the paper's with many (`cargo xtask held 11`).
    for (figure, points) in
        [("tok-3.9", 15), ("tok-3.10", 35), ("tok-3.11", 90), ("tok-3.12", 90), ("tok-3.13", 25)]
    {
        let lines =
            folder.ok(&format!("sim kv --figure {figure} --requests 20000 --json --plot f.svg")).json();
        assert_eq!(lines.len(), points, "{figure}");
        assert!(folder.read("f.svg").contains(figure));
    }
}
