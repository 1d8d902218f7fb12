//! `role = "grantor"` on files: that a run is repeatable, what goes on and what does not, what is said of a wrong configuration.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use tool::Folder;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/grantor/");

/// The example, with its files beside it.
fn example(folder: &Folder) -> String {
    for file in ["outer.pcapng.zst", "deny.txt"] {
        std::fs::copy(format!("{EXAMPLE}{file}"), folder.path(file)).unwrap();
    }
    let text = std::fs::read_to_string(format!("{EXAMPLE}grantor.toml")).unwrap();
    folder.write("grantor.toml", &text);
    text
}

#[cfg(feature = "lua")]
#[test]
fn a_run_on_captures_is_repeated_to_the_byte() {
    let mut sent = Vec::new();
    for _ in 0..2 {
        let folder = Folder::new();
        example(&folder);
        let said = folder.ok("run grantor.toml --json").json();
        let said = said.last().unwrap();
        let count = |name: &str| said["grantor"][name].as_u64().unwrap();
        assert_eq!(
            (count("requests"), count("forwarded"), count("policy-dropped")),
            (2010, 1170, 840),
            "{said}"
        );
        assert_eq!((&said["held"], &said["dropped"]["policy-refused"]), (&0.into(), &840.into()), "{said}");
        // One question for each pair of addresses and turn, and one datagram for each address of ours that was asked.
        assert!(
            count("policy-merged") > 1900 && count("decisions") < 60 && count("datagrams") < 30,
            "{said}"
        );
        sent.push(["out.up.pcapng", "out.down.pcapng"].map(|file| std::fs::read(folder.path(file)).unwrap()));
    }
    assert!(sent[0][1].len() > 1_000_000 && sent[0] == sent[1]);
}

#[cfg(feature = "lua")]
#[test]
fn a_wrong_section_is_one_line_with_its_place() {
    let folder = Folder::new();
    let text = example(&folder);
    folder.write("bad.lua", "function decide(q)\n  return granted { rate = }\nend\n");
    folder.write("strange.txt", "192.0.2.0/24\nnonsense\n");
    let list = text.lines().find(|line| line.starts_with("keys = [")).unwrap();
    let list = list.split_inclusive(']').next().unwrap();
    let key = list.trim_start_matches("keys = [").trim_end_matches(']');
    let (one, name) = (format!("keys = {key}"), format!("{key} = 1"));
    for (from, to, line) in [
        (
            "gatekeepers = [\"10.77.2.1/32\"",
            "gatekeepers = [\"10.77.2.1/24\"",
            "grantor.gatekeepers[0]: \"10.77.2.1/24\" has bits behind its length",
        ),
        ("keys = [\"1 5d", "keys = [\"1 xx", "grantor.keys: line 1: no secret"),
        (list, one.as_str(), "keys: one string: give a list of strings"),
        (list, name.as_str(), "unknown field `1 (not shown)`"),
        ("name = \"deny-list\"", "name = \"deny\"", "grantor.policy.name: there is no policy \"deny\""),
        ("name = \"deny-list\"", "file = \"bad.lua\"", "bad.lua:2:"),
        ("name = \"deny-list\"", "file = \"gone.lua\"", "gone.lua: "),
        ("deny.txt", "strange.txt", "strange.txt:2"),
        ("rate = 1024 ", "rat = 1024 ", "rat"),
        ("fail_safe = { action = \"nothing\" }", "queue = 0", "grantor.policy.queue: 0: give 1 to 65536"),
        ("fail_safe = { action = \"nothing\" }", "queue = 60000", "memory.frames = 8192: 0 packets may wait"),
        ("role = \"grantor\"", "role = \"router\"", "[grantor]: a router has no such section"),
    ] {
        assert!(text.contains(from), "{from}");
        folder.write("grantor.toml", text.replace(from, to));
        folder.fail(&[("check grantor.toml", 2, line), ("run grantor.toml", 2, line)]);
    }
    folder.write("grantor.toml", &text);
    let line = "--record: a grantor's policy and its tables are in no record";
    folder.fail(&[("run grantor.toml --record r.tmrec", 2, line)]);
}

/// Rates and a ratio for a policy that hangs, beside one that does not. That no granted packet is lost meanwhile, and that it does hang, the bench sees to itself.
#[cfg(feature = "lua")]
#[test]
fn a_policy_that_hangs_is_measured_beside_one_that_does_not() {
    let folder = Folder::new();
    let lines = folder.ok("bench grantor --policy loop --place shared --seconds 0.01 --runs 2 --json").json();
    let of = |subject: &str, metric: &str| {
        let is = |line: &&serde_json::Value| line["subject"] == subject && line["metric"] == metric;
        lines.iter().find(is).map(|line| line["value"].as_f64().unwrap()).unwrap()
    };
    assert!(lines.iter().all(|line| line["bench"] == "grantor" && line["case"] == "granted/shared"));
    assert!(
        of("quiet", "mpps") > 0.0 && of("loop", "mpps") > 0.0 && of("loop", "failed") >= 1.0,
        "{lines:?}"
    );
    let ratio = lines.iter().find(|line| line["metric"] == "ratio").unwrap();
    assert_eq!((&ratio["of"], &ratio["to"], &ratio["pairs"]), (&"loop".into(), &"quiet".into(), &2.into()));
    folder.fail(&[
        ("bench grantor --runs 1", 2, "2 runs or more"),
        ("bench grantor --seconds 0", 2, "--seconds"),
        ("bench grantor --policy sleep", 2, "pattern"),
    ]);
}

#[cfg(not(feature = "lua"))]
#[test]
fn without_lua_it_says_what_to_do() {
    let folder = Folder::new();
    example(&folder);
    let line = "cargo build --release --features lua";
    folder.fail(&[
        ("check grantor.toml", 2, line),
        ("run grantor.toml", 2, line),
        ("bench grantor --place shared", 2, line),
    ]);
}
