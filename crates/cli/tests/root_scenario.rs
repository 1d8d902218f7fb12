//! `tidemill scenario`: the short form of examples/ddos, at a low rate and with wide bounds of time; the real ones are `cargo xtask held 9`'s. Needs root, and a
//! program built with the feature `lua`.

#![cfg(all(target_os = "linux", feature = "lua", feature = "xdp"))]
#![allow(clippy::unwrap_used)] // a test may

#[path = "root_wire/needs.rs"]
mod needs;
mod tool;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};
use tool::Folder;

/// Waits for the machine. None if the test has to be skipped, which it never is in CI.
fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    needs::alone(test, &["ip", "sysctl", "unshare", "ethtool", "setpriv", "nsenter"])
}

const HEAD: &str = "version = 1\nfiles = [\"policy.lua\", \"after.lua\", \"sources.txt\", \"sources-after.txt\"]\n\
    [network]\nrx_ring = 8192\n\
    [gatekeeper]\nbandwidth = \"100 Mbps\"\nrequest_percent = 2\nrevocation_grace_ms = 3000\n\
    [grantor.policy]\nfile = \"policy.lua\"\nwait_ms = 2000\nparameters = { rate = 256 }\n\
    [client]\ntcp_kib_s = 32\n";

/// The example's policies, and a scenario.
fn folder(phases: &str) -> Folder {
    let (folder, example) =
        (Folder::new(), Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ddos"));
    for file in ["policy.lua", "after.lua", "sources.txt", "sources-after.txt"] {
        folder.write(file, std::fs::read(example.join(file)).unwrap());
    }
    folder.write("short.toml", format!("{HEAD}{phases}"));
    folder
}

fn one_cpu() -> bool {
    std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2)
}

#[test]
fn the_client_is_served_under_attacks_and_nothing_gets_through() {
    let test = "the_client_is_served_under_attacks_and_nothing_gets_through";
    let Some(_turn) = turn(test) else { return };
    if one_cpu() {
        println!("skipped: {test} (needs two processors)");
        return;
    }
    let folder = folder(
        "[[phase]]\nname = \"quiet\"\nseconds = 1.5\nnewcomers = 3\n\
         [[phase]]\nname = \"requests\"\nseconds = 4\nnewcomers = 5\n\
         attack = [{ shape = \"udp\", pps = 50000, sources = \"13.0.0.0/8\", count = 4096 }]\n\
         [[phase]]\nname = \"random\"\nseconds = 2\n\
         attack = [{ shape = \"udp\", pps = 30000, sources = \"64.0.0.0/3\" }, { shape = \"syn\", pps = 20000, sources = \"2001:db8:1::/64\" }]\n\
         [[phase]]\nname = \"cookies\"\nseconds = 2\n\
         attack = [{ shape = \"syn\", pps = 20000, sources = \"14.0.0.0/8\", count = 16 }, { shape = \"udp\", pps = 20000, sources = \"14.0.0.0/8\", count = 16 }]\n\
         [[phase]]\nname = \"forgery\"\nseconds = 2\n\
         attack = [{ shape = \"forgery\", pps = 20000 }, { shape = \"forgery-behind\", pps = 5000 }]\n\
         [[phase]]\nname = \"forgery, IPv6\"\nseconds = 2\n\
         attack = [{ shape = \"forgery\", v6 = true, pps = 20000 }, { shape = \"forgery-behind\", v6 = true, pps = 5000 }]\n\
         [[phase]]\nname = \"change\"\nseconds = 2\nchange = { policy = \"after.lua\", revoke = true }\n\
         [expect]\ngoodput = 0.95\ndeclined = 0\nrequest_s = 10\nchange_ms = 5000\nchange_lost = 0\n",
    );
    let ran = folder.run("scenario short.toml --json --plot short.svg");
    let lines = ran.lines();
    let all = || format!("{}{}", ran.out, ran.err);
    assert_eq!(ran.code, 0, "{}", all());
    let phase = |name: &str| {
        let is_it = |line: &&Value| line["kind"] == "phase" && line["phase"] == name;
        lines.iter().find(is_it).unwrap_or_else(|| panic!("{name}: {}", all()))
    };
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    for name in ["quiet", "requests", "random", "cookies", "forgery", "forgery, IPv6", "change"] {
        let phase = phase(name);
        assert!(number(&phase["declined"][0]) > 100.0, "{name}: somebody declined sends: {}", all());
        assert_eq!(phase["declined"][1], 0, "{name}: {}", all());
        assert_eq!(phase["granted_kib_s"], serde_json::json!([256, 256]));
    }
    // The attacks were there, and ended where they should.
    let dropped = |name: &str, reason: &str| number(&phase(name)["gatekeeper_drops_s"][reason]);
    let flood = dropped("requests", "request-queue-full") + dropped("requests", "request-evicted");
    assert!(flood > 1000.0, "{}", all());
    let random = dropped("random", "request-queue-full") + dropped("random", "request-evicted");
    assert!(random > 1000.0, "{}", all());
    // By far more than the client's own, however slow the machine is.
    let requests = phase("requests");
    assert!(number(&requests["front_mpps"]) * 1e6 > 2.0 * number(&requests["client_pps"]), "{}", all());
    assert!(dropped("cookies", "flow-declined") + dropped("cookies", "flow-over-rate") > 1000.0, "{}", all());
    for forgery in ["forgery", "forgery, IPv6"] {
        let counted = |name: &str| number(&phase(forgery)["gatekeeper_s"][name]);
        assert!(counted("decisions-refused") > 1000.0, "{}", all());
        let behind = counted("decisions-forged") + counted("decisions-unchecked");
        assert!(behind > 100.0 && counted("decisions-forged") > 0.0, "{}", all());
    }
    // Who asks is heard, also under a flood.
    for name in ["quiet", "requests"] {
        assert!(number(&phase(name)["newcomers"]["asked"]) >= 6.0, "{}", all());
        assert_eq!(phase(name)["newcomers"]["waiting"], 0, "{}", all());
        assert!(number(&phase(name)["newcomers"]["max_ms"]) > 0.0, "{}", all());
        assert!(number(&phase(name)["cpu"]["gatekeeper"]) > 0.0, "{}", all());
    }
    assert!(phase("change")["change"]["granted_ms"][1].is_number(), "{}", all());
    let last = lines.last().unwrap();
    assert_eq!((&last["kind"], &last["pass"]), (&"summary".into(), &true.into()), "{}", all());
    assert!(last["checks"].as_array().unwrap().len() >= 20, "{}", all());
    let svg = folder.read("short.svg");
    for chart in ["goodput", "newcomers wait", "What the Gatekeeper drops", "What the Grantor drops"] {
        assert!(svg.contains(chart), "{chart}");
    }
    assert!(lines.iter().filter(|line| line["kind"] == "second").count() >= 10, "{}", all());
}

/// Nothing tells him from the client: what passes of both is the client's rate, and nobody else has less for it.
#[test]
fn who_sends_with_the_clients_address_takes_the_clients_rate_and_no_more() {
    let test = "who_sends_with_the_clients_address_takes_the_clients_rate_and_no_more";
    let Some(_turn) = turn(test) else { return };
    if one_cpu() {
        println!("skipped: {test} (needs two processors)");
        return;
    }
    let folder = folder(
        "[[phase]]\nname = \"own\"\nseconds = 4\nnewcomers = 3\n\
         attack = [{ shape = \"udp\", pps = 20000, sources = \"10.6.0.2/32\" }]\n\
         [expect]\ndeclined = 0\nrequest_s = 10\n",
    );
    let ran = folder.run("scenario short.toml --json");
    let lines = ran.lines();
    let all = || format!("{}{}", ran.out, ran.err);
    assert_eq!(ran.code, 0, "{}", all());
    let phase = lines.iter().find(|line| line["kind"] == "phase").unwrap();
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    // The client's over IPv4 is what he shares; over IPv6 it has all of its own.
    let goodput = [0, 1].map(|v6: usize| number(&phase["goodput"][v6]));
    assert!(goodput[0] < 0.7 && goodput[1] >= 0.9, "{goodput:?}: {}", all());
    // His packets have 46 bytes of IP: of 256 KiB/s 5,699 a second, and what the bucket of a second held when he began.
    let most = 256.0 * 1024.0 / 46.0;
    assert!(number(&phase["gatekeeper_drops_s"]["flow-over-rate"]) > 1000.0, "{}", all());
    assert!(number(&phase["passed_pps"]) < 1.5 * most, "{}", all());
}

/// Ends what is left of a scenario if the test does not.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something is so.
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not so after a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The processes that a process has started.
fn children(of: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// Nothing is left behind, however it ends.
#[test]
fn an_end_before_its_time_leaves_nothing() {
    let test = "an_end_before_its_time_leaves_nothing";
    let Some(_turn) = turn(test) else { return };
    if one_cpu() {
        println!("skipped: {test} (needs two processors)");
        return;
    }
    let folder = folder("[[phase]]\nname = \"long\"\nseconds = 600\n");
    let place = |process: u32| PathBuf::from(format!("/tmp/tidemill-scenario-{process}"));
    let start = || {
        let child = Command::new(env!("CARGO_BIN_EXE_tidemill"))
            .args(["scenario", "short.toml", "--json"])
            .current_dir(folder.path(""))
            .env("TMPDIR", "/tmp")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut own = Running(child);
        let process = own.0.id();
        wait("both run", || {
            assert!(own.0.try_wait().unwrap().is_none(), "it has ended");
            let is_up = |name: &str| place(process).join(format!("{name}.sock")).exists();
            is_up("gatekeeper") && is_up("grantor")
        });
        let children = children(process);
        assert!(children.len() >= 2, "{children:?}");
        (own, process, children)
    };
    let gone = |process: &u32| !Path::new(&format!("/proc/{process}")).exists();

    // Told to end, it undoes all; also when its terminal is closed.
    for signal in [Signal::TERM, Signal::HUP] {
        let (mut own, process, children) = start();
        kill_process(Pid::from_child(&own.0), signal).unwrap();
        wait("it ends", || own.0.try_wait().unwrap().is_some());
        assert!(!own.0.wait().unwrap().success());
        assert!(children.iter().all(gone) && !place(process).exists(), "{signal:?}");
    }

    // Killed, it takes both along; its folder goes with the next.
    let (mut own, process, children) = start();
    own.0.kill().unwrap();
    own.0.wait().unwrap();
    wait("its processes end", || children.iter().all(gone));
    assert!(place(process).exists());
    let (mut next, _, _) = start();
    assert!(!place(process).exists());
    kill_process(Pid::from_child(&next.0), Signal::INT).unwrap();
    wait("it ends", || next.0.try_wait().unwrap().is_some());
}

/// What it found is its exit status, and all is undone, though nobody reads the output (`| head -1`).
#[test]
fn a_verdict_needs_no_reader_and_leaves_nothing() {
    let test = "a_verdict_needs_no_reader_and_leaves_nothing";
    let Some(_turn) = turn(test) else { return };
    if one_cpu() {
        println!("skipped: {test} (needs two processors)");
        return;
    }
    // Nobody is answered in no time.
    let folder = folder("[[phase]]\nname = \"a\"\nseconds = 2\nnewcomers = 3\n[expect]\nrequest_s = 0\n");
    for json in [&["--json"][..], &[]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = Command::new(env!("CARGO_BIN_EXE_tidemill"))
            .args(["scenario", "short.toml"])
            .args(json)
            .current_dir(folder.path(""))
            .env("TMPDIR", "/tmp")
            .stdout(writer)
            .stderr(std::fs::File::create(folder.path("said")).unwrap())
            .spawn()
            .unwrap();
        let mut own = Running(child);
        let place = PathBuf::from(format!("/tmp/tidemill-scenario-{}", own.0.id()));
        wait("it ends", || own.0.try_wait().unwrap().is_some());
        assert_eq!(own.0.wait().unwrap().code(), Some(1), "{json:?}: {}", folder.read("said"));
        assert!(!place.exists(), "{json:?}");
    }
}

/// While namespaces are made Ctrl-C ends the commands that make them, too: that is nothing to tell of.
#[test]
fn an_end_at_the_beginning_is_told_as_one() {
    let test = "an_end_at_the_beginning_is_told_as_one";
    let Some(_turn) = turn(test) else { return };
    if one_cpu() {
        println!("skipped: {test} (needs two processors)");
        return;
    }
    let folder = folder("[[phase]]\nname = \"long\"\nseconds = 600\n");
    for round in 0..8 {
        let child = Command::new(env!("CARGO_BIN_EXE_tidemill"))
            .args(["scenario", "short.toml", "--json"])
            .current_dir(folder.path(""))
            .env("TMPDIR", "/tmp")
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.path("said")).unwrap())
            .spawn()
            .unwrap();
        let mut own = Running(child);
        let place = PathBuf::from(format!("/tmp/tidemill-scenario-{}", own.0.id()));
        wait("it begins", || {
            assert!(own.0.try_wait().unwrap().is_none(), "it has ended: {}", folder.read("said"));
            place.exists()
        });
        std::thread::sleep(Duration::from_millis(60 * round));
        kill_process_group(Pid::from_child(&own.0), Signal::INT).unwrap();
        wait("it ends", || own.0.try_wait().unwrap().is_some());
        assert_eq!(folder.read("said"), "tidemill: interrupted\n", "round {round}");
        assert!(!place.exists());
    }
}

/// Mistakes are told with their place; none of these needs root.
#[test]
fn mistakes_in_a_scenario_are_told_with_their_place() {
    if one_cpu() {
        println!("skipped: mistakes_in_a_scenario_are_told_with_their_place (needs two processors)");
        return;
    }
    let folder = folder("[[phase]]\nname = \"a\"\nseconds = 1\n");
    let good = folder.read("short.toml");
    folder.write("no-phase.toml", HEAD).write("typo.toml", good.replace("seconds", "second"));
    folder.write("version.toml", good.replace("version = 1", "version = 2"));
    folder.write("keys.toml", good.replace("[gatekeeper]\n", "[gatekeeper]\nfront = [\"x\"]\n"));
    folder.write("gate.toml", good.replace("bandwidth =", "bandwith ="));
    folder.write("file.toml", good.replace("\"after.lua\"", "\"behind.lua\""));
    std::fs::create_dir(folder.path("sub")).unwrap();
    for name in ["policy.lua", "grantor.toml"] {
        folder.write(&format!("sub/{name}"), "");
    }
    folder.write("twice.toml", good.replace("\"after.lua\"", "\"sub/policy.lua\""));
    folder.write("own.toml", good.replace("\"after.lua\"", "\"sub/grantor.toml\""));
    folder.write("net.toml", good.replace("rx_ring = 8192", "client = [\"10.6.0.0/8\", \"fd00::/64\"]"));
    let attack = |text: &str| format!("{good}attack = [{{ {text} }}]\n");
    folder.write("count.toml", attack("shape = \"udp\", pps = 1, sources = \"11.0.0.0/8\", count = 3"));
    folder.write("pps.toml", attack("shape = \"forgery\", pps = 18446744073709551615"));
    folder.write("name.toml", good.replace("\"a\"", "\"\""));
    folder.write("fewer.toml", attack("shape = \"udp\", pps = 1, sources = \"11.0.0.0/24\", count = 512"));
    folder.write("sources.toml", attack("shape = \"udp\", pps = 1"));
    folder.write("family.toml", attack("shape = \"udp\", pps = 1, sources = \"11.0.0.0/8\", v6 = true"));
    folder.write("waits.toml", format!("{good}request_s = nan\n"));
    folder.write("policy.toml", format!("{good}change = {{ policy = \"other.lua\" }}\n"));
    let change = |name: &str| {
        format!("[[phase]]\nname = \"{name}\"\nseconds = 2\nchange = {{ policy = \"after.lua\" }}\n")
    };
    folder.write("changes.toml", format!("{good}{}{}", change("b"), change("c")));
    folder.fail(&[
        (
            "scenario changes.toml --phase a --phase c",
            2,
            "--phase \"c\": it begins with the policy that the phase \"b\" brings",
        ),
        ("scenario none.toml", 2, "none.toml"),
        ("scenario no-phase.toml", 2, "missing field `phase`"),
        ("scenario typo.toml", 2, "typo.toml:17: unknown field `second`"),
        ("scenario version.toml", 2, "reads version 1"),
        ("scenario keys.toml", 2, "gatekeeper.front: the scenario sets it"),
        ("scenario gate.toml", 2, "unknown field `bandwith`"),
        ("scenario file.toml", 2, "behind.lua: there is no such file"),
        ("scenario twice.toml", 2, "sub/policy.lua: there is one with this name already"),
        ("scenario own.toml", 2, "sub/grantor.toml: there is one with this name already"),
        ("scenario net.toml", 2, "give a prefix"),
        ("scenario count.toml", 2, "count.toml:18: phase[0].attack[0].count: give a power of two"),
        ("scenario fewer.toml", 2, ":18: phase[0].attack[0].count = 512: 11.0.0.0/24 has fewer addresses"),
        ("scenario sources.toml", 2, "phase[0].attack[0].sources"),
        ("scenario family.toml", 2, "phase[0].attack[0].v6: of forgeries only"),
        ("scenario waits.toml", 2, "waits.toml:18: phase[0].request_s = NaN: give a number"),
        ("scenario policy.toml", 2, "\"other.lua\": it is none of `files`"),
        ("scenario short.toml --phase b", 2, "has no such phase"),
        ("check count.toml", 2, "give a power of two"),
        ("check pps.toml", 2, "pps.toml:18: attack.pps = 18446744073709551615: give 1 to 100000000"),
        ("check name.toml", 2, "name.toml:16: phase.name: is empty: give one"),
        ("check /dev/zero", 2, "/dev/zero: a device or a folder, and no file: give a configuration file"),
        ("scenario /dev/zero", 2, "/dev/zero: a device or a folder, and no file: give a scenario's file"),
    ]);
    assert!(folder.ok("check short.toml").out.contains("a scenario of 1 phases, 1 seconds"));
}

/// What only a run could find out once is found by `check`.
#[test]
fn what_cannot_run_is_not_good() {
    if one_cpu() {
        println!("skipped: what_cannot_run_is_not_good (needs two processors)");
        return;
    }
    let folder = folder("[[phase]]\nname = \"a\"\nseconds = 1\n");
    folder.write("broken.lua", "local a = 1\nfunction decide(q\n");
    let good = folder.read("short.toml");
    let ring = "rx_ring = 8192";
    let wrong = [
        ("rx_ring = 8192", "rx_ring = 0", ":4: network.rx_ring = 0: give a power of two from 64 to 32768"),
        (ring, "rx_ring = 4611686018427387904", ":4: network.rx_ring = 4611686018427387904: give"),
        (ring, "client = [\"224.1.0.0/16\", \"fd00:6::/64\"]", ":4: network.client: in 224.1.0.0/16 are"),
        (ring, "client = [\"10.6.0.0/16\", \"ff02::/64\"]", "addresses of ff00::/8"),
        (ring, "back = [\"127.8.0.0/24\", \"fd00:8::/64\"]", "addresses of 127.0.0.0/8"),
        (ring, "server = [\"10.6.9.0/24\", \"fd00:9::/64\"]", "10.6.9.0/24 has addresses of network.client"),
        (ring, "server = [\"10.9.0.0/24\", \"fd00:8::/64\"]", "fd00:8::/64 has addresses of network.back"),
        ("[network]", "[cpus]\ngatekeeper = 9999\n[network]", ":4: cpus.gatekeeper = 9999: not ours to use"),
        ("\"100 Mbps\"", "\"0 bps\"", ":6: gatekeeper.bandwidth: "),
        (
            "request_percent = 2",
            "program = [{ number = 9, file = \"none.o\" }]",
            ":7: gatekeeper.program[0].file: none.o: No such file",
        ),
        ("request_percent = 2", "request_percent = 0", ":7: gatekeeper.request_percent: 0: give 1 to 100"),
        (
            "request_percent = 2",
            "decisions = \"interoperable\"",
            ":7: gatekeeper.decisions: a scenario's are",
        ),
        ("wait_ms = 2000", "batch = 9999", ":11: grantor.policy.batch: 9999: give 1 to 256"),
        (
            "file = \"policy.lua\"",
            "file = \"other.lua\"",
            ":10: grantor.policy.file = \"other.lua\": it is none",
        ),
        ("file = \"policy.lua\"", "", ":9: grantor.policy: give either a name or a file"),
        ("policy.lua", "broken.lua", "wrong.toml: broken.lua:"),
        ("[client]", "[expect]\ngoodput = nan\n[client]", ":14: expect.goodput = NaN: give a number"),
    ];
    for (from, to, line) in wrong {
        assert!(good.contains(from), "{from}");
        folder.write("wrong.toml", good.replace(from, to));
        folder.fail(&[("check wrong.toml", 2, line), ("scenario wrong.toml", 2, line)]);
    }
    // A policy that comes later.
    let text = good.replace("after.lua", "broken.lua");
    folder.write("wrong.toml", text + "change = { policy = \"broken.lua\" }\n");
    folder.fail(&[("check wrong.toml", 2, "broken.lua:")]);
}
