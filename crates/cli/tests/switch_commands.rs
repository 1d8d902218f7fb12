//! `role = "switch"` on files and over its control socket: what a run says, what rules do while packets flow, what is said of mistakes.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tool::Folder;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/");

/// The example, with its files beside it.
fn example(folder: &Folder) -> String {
    std::fs::copy(format!("{EXAMPLE}router/capture.pcapng.zst"), folder.path("capture.pcapng.zst")).unwrap();
    std::fs::copy(format!("{EXAMPLE}switch/switch.flows"), folder.path("switch.flows")).unwrap();
    let text = std::fs::read_to_string(format!("{EXAMPLE}switch/switch.toml")).unwrap();
    let text = text.replace("../router/capture", "capture");
    folder.write("switch.toml", &text);
    text
}

#[test]
fn a_run_on_captures_is_repeated_to_the_byte() {
    let mut sent = Vec::new();
    for _ in 0..2 {
        let folder = Folder::new();
        example(&folder);
        let said = folder.ok("run switch.toml --json").json();
        let said = said.last().unwrap();
        let dropped: u64 = said["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        let count = |name: &str| said[name].as_u64().unwrap();
        assert_eq!(
            count("in") + count("made"),
            count("out") + dropped + count("consumed") + count("held"),
            "{said}"
        );
        let counter = |name: &str| said["switch"][name].as_u64().unwrap();
        assert_eq!(
            counter("exact-hits") + counter("megaflow-hits") + counter("misses"),
            count("in"),
            "{said}"
        );
        assert!(counter("megaflow-hits") > 0 && counter("misses") * 4 < count("in"), "{said}");
        sent.push(["out.wan.pcapng", "out.dmz.pcapng"].map(|file| std::fs::read(folder.path(file)).unwrap()));
    }
    assert!(sent[0][0].len() > 100_000 && sent[0] == sent[1]);
    let folder = Folder::new();
    example(&folder);
    let checked = folder.ok("check switch.toml");
    assert!(
        format!("{}{}", checked.out, checked.err).contains("3 ports, 11 rules in 8 tables"),
        "{}",
        checked.out
    );
}

#[test]
fn mistakes_are_one_line_with_their_place() {
    let folder = Folder::new();
    let text = example(&folder);
    let flows = folder.read("switch.flows");
    for (from, to, line) in [
        (
            "tp_dst=53",
            "tp_dst=dns",
            "switch.flows: line 14, column 32: tp_dst: \"dns\": give a number from 0 to 65535",
        ),
        (
            "actions=group:7",
            "actions=group:8",
            "switch.flows: line 15, column 32: group 8: there is no such group: add it first",
        ),
        (
            "meter:1,goto_table:1     #",
            "goto_table:9     #",
            "switch.flows: line 6, column 53: table 9: there are only the tables 0 to 7",
        ),
        (
            "mod_nw_tos:184,dmz",
            "mod_nw_tos:184,dnz",
            "port \"dnz\": give a port's number from 1 on, or its name (lan, wan, dmz)",
        ),
    ] {
        assert!(flows.contains(from), "{from}");
        folder.write("switch.flows", flows.replacen(from, to, 1));
        folder.fail(&[("check switch.toml", 2, line), ("run switch.toml", 2, line)]);
    }
    folder.write("switch.flows", &flows);
    folder.fail(&[
        (
            "switch add --file /dev/zero",
            2,
            "/dev/zero: a device or a folder, and no file: give a file of rules",
        ),
        ("switch add --file .", 2, ".: a device or a folder, and no file: give a file of rules"),
        ("switch add --file gone", 2, "gone: No such file or directory (os error 2): give a file of rules"),
    ]);
    for (from, to, line) in [
        ("access = 10 ", "access = 5000 ", "switch.toml: switch.vlans.dmz: 5000: VLANs go from 1 to 4094"),
        (
            "[switch.vlans.dmz]",
            "[switch.vlans.office]",
            "switch.vlans.office: there is no port \"office\": there are lan, wan, dmz",
        ),
        ("flows = \"switch.flows\"", "flows = \"gone.flows\"", "gone.flows: No such file or directory"),
        ("flows = \"switch.flows\"", "flows = \"/dev/zero\"", "/dev/zero: a device or a folder, and no file"),
        ("flows = \"switch.flows\"", "flows = \".\"", "is a folder: give a file"),
        (
            "flows = \"switch.flows\"",
            "flows = \"switch.flows\"\nrules = 5",
            "switch.flows: line 10, column 1: no room for another rule: there can be 5: take one of them out",
        ),
        ("flows = \"switch.flows\"", "tables = 0", "switch.tables: give 1 to 255"),
        ("flows = \"switch.flows\"", "signatures = 268435457", "switch.signatures: give 0 to 268435456"),
        (
            "flows = \"switch.flows\"",
            "exact = 4294967293",
            "switch.exact: 4294967293 entries: at most 4294967292",
        ),
        ("flows = \"switch.flows\"", "flow = 1", "unknown field `flow`"),
        ("role = \"switch\"", "role = \"router\"", "[switch]: a router has no such section"),
    ] {
        assert!(text.contains(from), "{from}");
        folder.write("switch.toml", text.replace(from, to));
        folder.fail(&[("check switch.toml", 2, line)]);
    }
    // As large as a table can be: more than is made for a check.
    for key in ["exact", "megaflows"] {
        let large = text.replace("flows = \"switch.flows\"", &format!("{key} = 4294967292"));
        folder.write("switch.toml", large);
        let checked = folder.ok("check switch.toml");
        assert!(format!("{}{}", checked.out, checked.err).contains("1 rules in"), "{key}: {}", checked.err);
    }
    folder.write("switch.toml", &text);
    folder.fail(&[("run switch.toml --record r.tmrec", 2, "--record: a switch's rules are in no record")]);
}

/// A switch that runs, and ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A switch whose capture comes again and again.
fn running(folder: &Folder) -> Running {
    let text = example(folder);
    let text = text
        .replace(
            "input = \"capture.pcapng.zst\"",
            "input = \"capture.pcapng.zst\"\nrepeat = 1000000000\npreload = true",
        )
        .replace("kind = \"pcap\"\noutput = \"out.wan.pcapng\"", "kind = \"null\"\nreceive = false")
        .replace("kind = \"pcap\"\noutput = \"out.dmz.pcapng\"", "kind = \"null\"\nreceive = false");
    folder.write("switch.toml", format!("{text}\n[control]\nsocket = \"s.sock\"\n"));
    let child = Command::new(env!("CARGO_BIN_EXE_tidemill"))
        .args(["run", "switch.toml"])
        .current_dir(folder.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let running = Running(child);
    let patience = Instant::now() + Duration::from_secs(20);
    while folder.run("show flows --socket s.sock").code != 0 {
        assert!(Instant::now() < patience, "the switch does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}

#[test]
fn rules_change_while_packets_flow() {
    let folder = Folder::new();
    let _running = running(&folder);
    let ask = |line: &str| folder.ok(&format!("{line} --socket s.sock"));
    let flows = |filter: &str| ask(&format!("show flows {filter} --json")).json();
    assert_eq!((flows("").len(), flows("table=1").len()), (11, 3));
    assert!(ask("show flows arp").out.contains("table=0,priority=10,arp actions=normal"));

    // A packet's way, table by table, and then another one.
    let packet = "in_port=lan,udp,nw_src=198.18.1.1,nw_dst=198.18.0.9,tp_dst=53";
    let traced = ask(&format!("switch trace {packet}")).out;
    assert!(traced.contains("table 0: table=0,priority=10,ip actions=goto_table:1"), "{traced}");
    assert!(
        traced.contains("table 1: table=1,priority=20,udp,tp_dst=53") && traced.contains("\nsent\n"),
        "{traced}"
    );
    folder.write("more.flows", "priority=300,udp,tp_dst=53 actions=drop\n");
    assert!(ask("switch add --file more.flows").err.contains("1 rules new, 0 as they were, 0 gone"));
    assert!(ask(&format!("switch trace {packet}")).out.contains("dropped: rule-drop"));
    assert_eq!(ask("switch delete --strict priority=300,udp,tp_dst=53").err.trim(), "tidemill: 1 rules gone");

    // All or nothing, and rules that stay as they are keep their counters.
    // By falling priority: the last one is `priority=10,ipv6`.
    let count = || flows("table=0,ipv6").last().map(|flow| flow["packets"].as_u64().unwrap());
    let patience = Instant::now() + Duration::from_secs(20);
    while count().unwrap_or(0) == 0 {
        assert!(Instant::now() < patience, "nothing is counted");
    }
    let before = count().unwrap();
    folder.write("wrong.flows", "priority=1 actions=lan\npriority=2 actions=goto_table:99\n");
    folder.fail(&[
        ("switch add --file wrong.flows --socket s.sock", 2, "the rules: line 2, column 20: table 99"),
        (
            "switch add --replace --socket s.sock",
            2,
            "switch add: give a rule, a group or a meter, or --file FILE",
        ),
        ("switch add actions=fly --socket s.sock", 2, "the rules: line 1, column 9: port \"fly\""),
        ("switch trace tcp,tp_dst=1-2 --socket s.sock", 2, "a packet has one value for each field"),
        ("show flows nothing --socket s.sock", 2, "the filter: line 1, column 1"),
        ("switch delete priority=10 --socket s.sock", 2, "priority: rules of every priority are wanted"),
        ("amp rules --socket s.sock", 2, "the role mitigator"),
    ]);
    assert!(
        ask("switch add --file switch.flows --replace").err.contains("0 rules new, 11 as they were, 0 gone")
    );
    assert!(ask("reload").err.lines().count() > 0);
    assert!(count().unwrap() >= before);
    assert!(ask("switch groups").out.contains("group_id=7,type=select,bucket=weight:2"));
    let counters = ask("switch counters").out;
    assert!(counters.contains("megaflow-hits") && counters.contains("tuple-space"), "{counters}");

    // Rules of many masks: the first table gets a cross-product.
    assert!(!counters.contains("cross-product"), "{counters}");
    let mut nested = String::new();
    for n in 0..150 {
        let (source, destination) = (17 + n % 16, 17 + n / 16);
        let addresses = format!("nw_src=10.170.170.170/{source},nw_dst=10.85.85.85/{destination}");
        nested.push_str(&format!("priority={},ip,{addresses} actions=drop\n", 1000 + n));
    }
    folder.write("nested.flows", nested);
    assert!(ask("switch add --file nested.flows").err.contains("150 rules new"));
    let counters = ask("switch counters").out;
    assert!(counters.contains("cross-product") && counters.contains("of table 0"), "{counters}");
    assert!(ask("switch delete ip,nw_src=10.170.0.0/16,nw_dst=10.85.0.0/16").err.contains("150 rules gone"));

    // A file of more than a mebibyte: what a body is elsewhere.
    let mut large = String::new();
    for n in 0..12_000 {
        let (high, low) = (n / 250, n % 250);
        large.push_str(&format!("table=2,priority={n},tcp,nw_src=10.{high}.{low}.0/24,nw_dst=192.0.2.0/24,tp_dst=443 actions=drop\n"));
    }
    assert!(large.len() > 1 << 20, "{}", large.len());
    folder.write("large.flows", large);
    assert!(ask("switch add --file large.flows").err.contains("12000 rules new"));
    assert!(ask("switch delete table=2").err.contains("12000 rules gone"));

    // Groups and meters go live, and take the rules along that use them.
    assert!(ask("switch add group_id=9,type=all,bucket=wan").err.contains("0 rules new"));
    ask("switch add table=7,priority=3,actions=group:9");
    assert!(ask("switch delete-group 9").err.contains("group 9 gone, with 1 rules that used it"));
    ask("switch add meter=9,pktps,band=type=drop,rate=5");
    assert!(ask("switch delete-meter 9").err.contains("meter 9 gone, with 0 rules that used it"));
    assert_eq!(flows("table=7").len(), 0);
    folder.fail(&[
        ("switch delete-group 9 --socket s.sock", 2, "group 9: there is none"),
        ("switch delete-meter 9 --socket s.sock", 2, "meter 9: there is none"),
        (
            "switch add actions=controller --socket s.sock",
            2,
            "column 9: controller: there is no controller here",
        ),
    ]);
    let stations = ask("switch stations --json").json();
    assert!(stations.iter().all(|station| station["port"] == "lan") && !stations.is_empty(), "{stations:?}");
    ask("stop");
}

#[test]
fn a_pipe_of_rules_holds_up_the_reload_alone() {
    let folder = Folder::new();
    let _running = running(&folder);
    let (text, pipe) = (folder.read("switch.flows"), folder.path("switch.flows"));
    std::fs::remove_file(&pipe).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut reload = Running(
        Command::new(env!("CARGO_BIN_EXE_tidemill"))
            .args(["reload", "--socket", "s.sock"])
            .current_dir(folder.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    std::thread::sleep(Duration::from_millis(500));
    assert!(reload.0.try_wait().unwrap().is_none(), "it waits for who writes");
    let rules = || folder.ok("show flows --json --socket s.sock").json().len();
    assert_eq!(rules(), 11);
    assert!(folder.ok("switch counters --socket s.sock").out.contains("cut-short"));
    folder.write("switch.flows", format!("{text}table=1,priority=1 actions=drop\n"));
    assert!(reload.0.wait().unwrap().success());
    assert_eq!(rules(), 12);
}
