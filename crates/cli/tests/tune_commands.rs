//! `tidemill tune`, as a user sees it. No times are judged.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use tool::Folder;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.ok("gen table --ipv4 3000 --ipv6 1000 -o t.txt");
    folder
}

#[test]
fn both_families_get_advice_with_reasons_from_right_answers() {
    let folder = folder();
    let line = "tune --table t.txt --quick --algorithm dxr-d16x4r,dxr-d18r,rangetrie-d16,rangetrie-d12 --json --plot p";
    let lines = folder.ok(line).json();
    let of = |subject: &str, metric: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["subject"] == subject && line["metric"] == metric).collect()
    };
    assert!(of("memory", "ns").len() >= 5 && of("memory", "mlps").len() >= 5);
    assert!(of("memory", "ns").iter().all(|line| line["value"].as_f64() > Some(0.0)));
    let rates = |family: u64, case: &str| -> Vec<&Value> {
        let of = |line: &&Value| line["params"]["family"] == family && line["case"] == case;
        lines.iter().filter(|line| line["metric"] == "mlps" && of(line)).collect()
    };
    for (family, structures, cases) in
        [(4, 4, &["rnd", "seq", "rep", "prefix"][..]), (6, 2, &["rnd", "seq", "rep"])]
    {
        for case in cases {
            let rates = rates(family, case);
            assert_eq!(rates.len(), structures, "IPv{family} {case}");
            assert!(rates.iter().all(|line| line["checksum"] == rates[0]["checksum"] && line["runs"] == 3));
        }
        let [advice] = lines.iter().filter(|line| line["family"] == family).collect::<Vec<_>>()[..] else {
            panic!("one piece of advice for IPv{family}")
        };
        let name = advice["advice"].as_str().unwrap();
        assert!(rates(family, "rnd").iter().any(|line| line["subject"] == name), "{name}");
        let key = if family == 4 { "algorithm" } else { "algorithm6" };
        assert_eq!(advice["configuration"], format!("{key} = \"{name}\""));
        let why: Vec<&str> = advice["why"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
        assert!(why[1].contains("rnd ") && why.iter().any(|why| why.contains("updates/s")), "{why:?}");
        assert_eq!(of(name, "kups").iter().filter(|l| l["params"]["family"] == family).count(), 2);
    }
    for (file, series) in [("p-memory.svg", 2), ("p-ipv4.svg", 4), ("p-ipv6.svg", 2)] {
        assert!(folder.read(file).matches("<title>").count() >= series * 3, "{file}");
    }
}

#[test]
fn people_get_what_to_paste_which_the_router_takes() {
    let folder = folder();
    folder.write("u.txt", "A\t10.2.0.0/16\nW\t10.2.0.0/16\nA\t10.3.0.0/16\n");
    let text = folder.ok("tune --table t.txt --quick --no-memory --by bytes --updates u.txt").out;
    assert!(text.contains("use ") && text.contains("a first look only"), "{text}");
    let (_, section) = text.split_once("\n[router]\n").unwrap();
    assert_eq!(section.lines().count(), 2, "{section}");
    let ports = "[[port]]\nname = \"a\"\nkind = \"null\"\npackets = 1\n";
    folder.write("c.toml", format!("version = 1\nrole = \"router\"\n{ports}\n[router]\n{section}"));
    folder.ok("check c.toml");
}

#[test]
fn mistakes_get_one_line() {
    let folder = folder();
    folder.write("empty", "# nothing\n").write("bad", "10.0.0.0/33 1\n").write("v4", "10.0.0.0/8 1\n");
    folder.fail(&[
        ("tune", 2, "--table"),
        ("tune --table none", 2, "none: No such file"),
        ("tune --table empty", 2, "empty: has no prefixes"),
        ("tune --table bad", 1, "bad:1"),
        ("tune --table v4 --algorithm fast", 2, "use one of auto"),
        ("tune --table v4 --by heart", 2, "mix, rnd, seq, rep, prefix, bytes"),
        ("tune --table v4 --updates none", 2, "none: No such file"),
    ]);
}

#[test]
fn ctrl_c_ends_it_in_good_order() {
    let folder = folder();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidemill"))
        .args(["tune", "--table", "t.txt", "--quick", "--json"])
        .current_dir(folder.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // With its first line it is through the memory and at the candidates.
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("\"memory\""), "{line}");
    let killed = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "tidemill: interrupted: nothing is advised\n");
    assert!(!rest.contains("advice"), "{rest}");
}
