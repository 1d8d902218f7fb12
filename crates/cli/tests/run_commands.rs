//! `run`, `check`, `replay`: whole runs on small files, and every way to get them wrong.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::Value;
use std::process::{Command, Stdio};
use tool::{Folder, Ran};

const CONFIG: &str = r#"
version = 1
role = "router"
[table]
path = "table.txt"
[remap]
seed = 7
[[port]]
name = "lan"
kind = "pcap"
input = "in.pcap"
output = "lan.pcap"
[[port]]
name = "wan"
kind = "pcap"
output = "wan.pcap"
[[interface]]
port = "lan"
addresses = ["198.18.0.1/24"]
[next_hops]
ports = ["wan"]
"#;

/// A folder with a configuration, a table and a capture.
fn folder() -> Folder {
    let folder = Folder::new();
    folder
        .write("router.toml", CONFIG)
        .write("table.txt", "20.0.0.0/8\t1\n20.1.0.0/16\t2\n30.0.0.0/8\t3\n2a00::/12\t2\n");
    folder.ok("gen traffic --table table.txt --pattern prefix --packets 2000 --seed 3 -o in.pcap");
    folder
}

fn books(ran: &Ran) -> Value {
    let report = ran.json().pop().unwrap();
    let n = |key: &str| report[key].as_u64().unwrap();
    let dropped: u64 = report["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(n("in") + n("made"), n("out") + dropped + n("consumed") + n("held"), "{report}");
    report
}

#[test]
fn a_capture_is_routed_and_the_same_run_gives_the_same_output() {
    let folder = folder();
    let report = books(&folder.ok("run router.toml --json"));
    assert_eq!((&report["in"], &report["out"]), (&2000.into(), &2000.into()));
    let first = std::fs::read(folder.path("wan.pcap")).unwrap();
    let text = folder.ok("run router.toml");
    assert!(
        text.out.contains("in 2000 + made 0 = out 2000 + dropped 0 + consumed 0 + held 0"),
        "{}",
        text.out
    );
    assert_eq!(std::fs::read(folder.path("wan.pcap")).unwrap(), first);
    let report = books(&folder.ok("run router.toml --json --packets 300"));
    assert_eq!(report["in"], 300);
    let report = books(&folder.ok("run router.toml --json --workers 2 --output wan=other.pcap"));
    assert_eq!(report["out"], 2000);
    assert!(folder.path("other.pcap").exists());
}

/// Packets without DSCP are operational: a slow link holds them back, and all leave after the capture's end.
#[test]
fn a_queue_holds_packets_back_the_same_way_every_time() {
    let folder = folder();
    let queue = |packets: usize| {
        format!("{CONFIG}[[queue]]\nport = \"wan\"\nrate = \"1 Mbps\"\noperational_packets = {packets}\n")
    };
    folder.write("long.toml", queue(4000)).write("short.toml", queue(100));
    for (file, full) in [("long.toml", false), ("short.toml", true)] {
        let first = books(&folder.ok(&format!("run {file} --json")));
        let dropped = first["dropped"]["operational-queue-full"].as_u64().unwrap_or(0);
        let out = first["out"].as_u64().unwrap();
        assert_eq!((out + dropped, &first["held"]), (2000, &0.into()), "{first}");
        assert!(if full { dropped > 1000 && out >= 100 } else { dropped == 0 }, "{first}");
        let bytes = std::fs::read(folder.path("wan.pcap")).unwrap();
        books(&folder.ok(&format!("run {file} --json")));
        assert_eq!(std::fs::read(folder.path("wan.pcap")).unwrap(), bytes, "{file}");
    }
    let trace = folder.ok("run long.toml --json --trace queue:wan").json();
    let notes: Vec<_> = trace.iter().filter_map(|line| line["note"].as_str()).collect();
    assert!(notes.iter().any(|note| note.starts_with("operational, ")), "{notes:?}");
}

#[test]
fn traces_follow_packets_through_the_nodes() {
    let folder = folder();
    let lines = folder.ok("run router.toml --json --trace port:lan:2 --trace ip4-lookup").json();
    let of = |id: u64| {
        lines.iter().filter(move |l| l["trace"] == true && l["id"] == id).map(|l| l["at"].as_str().unwrap())
    };
    let path = ["port:lan", "ethernet-input", "ip4-input", "ip4-lookup", "ip4-forward", "port:wan"];
    assert_eq!(of(1).collect::<Vec<_>>(), path);
    assert_eq!(of(2).count(), path.len());
    assert_eq!(of(3).next(), Some("ip4-lookup"), "eight more start where they were asked for");
    assert_eq!(lines.iter().filter(|l| l["at"] == "ip4-lookup").count(), 10);
}

#[test]
fn static_routes_win_and_have_next_hops_of_their_own() {
    let folder = folder();
    let more = "\n[[route]]\nprefix = \"30.0.0.0/8\"\nkind = \"blackhole\"\n\n[[route]]\nprefix = \"20.0.0.0/8\"\nport = \"lan\"\n";
    folder.write("router.toml", format!("{CONFIG}{more}"));
    // Not even updates take them away.
    folder.write("updates.txt", "1\tW\t30.0.0.0/8\t0\n1\tA\t20.0.0.0/8\t1\n");
    let report = books(&folder.ok("run router.toml --json --updates updates.txt --record run.tmrec"));
    let ports = report["ports"].as_array().unwrap();
    let (lan, wan) = (ports[0]["out"].as_u64().unwrap(), ports[1]["out"].as_u64().unwrap());
    let black = report["dropped"]["blackhole"].as_u64().unwrap();
    assert!(lan > 300 && wan > 300 && black > 300 && lan + wan + black == 2000, "{report}");
}

/// Before the first run: its labels give static routes their neighbors, as when it is there.
#[test]
fn a_table_that_is_to_be_made_is_checked_as_it_will_be() {
    let folder = folder();
    let route = "[[route]]\nprefix = \"198.18.0.0/15\"\nport = \"lan\"\n";
    let make = |of: &str| {
        let table = format!("path = \"made.txt\"\ngenerate = {{ {of}, seed = 1 }}");
        folder.write("router.toml", CONFIG.replacen("path = \"table.txt\"", &table, 1) + route);
    };
    make("ipv4 = 1000, ipv6 = 300, next_hops = 4000000000");
    folder.fail(&[("check router.toml", 2, "table.generate: a table needs at least one next hop")]);
    make("ipv4 = 100000000000, ipv6 = 300, next_hops = 8");
    folder.fail(&[("check router.toml", 2, "table.generate: 100000000000 IPv4 prefixes do not fit")]);
    make("ipv4 = 1000, ipv6 = 300, next_hops = 8");
    let said = folder.ok("check router.toml").out;
    assert!(said.contains("a table of 1000 + 300 prefixes will be made"), "{said}");
    assert!(!folder.path("made.txt").exists());
    books(&folder.ok("run router.toml --json"));
    let said = folder.ok("check router.toml").out;
    assert!(said.contains("1000 IPv4 and 300 IPv6 prefixes"), "{said}");
}

#[test]
fn files_that_are_read_are_never_written_over_nor_any_written_twice() {
    let folder = folder();
    std::fs::hard_link(folder.path("in.pcap"), folder.path("link.pcap")).unwrap();
    let before = std::fs::read(folder.path("in.pcap")).unwrap();
    let live = "[[port]]\nname = \"live\"\nkind = \"af_packet\"\n";
    folder.write("live.toml", format!("{CONFIG}{live}"));
    folder.fail(&[
        ("run live.toml --packets 10", 2, "--packets: port \"live\" (af_packet) gives what comes"),
        ("run router.toml --json --output wan=in.pcap", 2, "in.pcap: would be written over"),
        ("run router.toml --json --output wan=link.pcap", 2, "link.pcap: would be written over"),
        ("run router.toml --json --output wan=table.txt", 2, "table.txt: would be written over"),
        ("run router.toml --json --record router.toml", 2, "router.toml: would be written over"),
        ("run router.toml --json --output wan=lan.pcap", 2, "lan.pcap: would be written twice"),
        ("run router.toml --json --workers 0", 2, "run.workers = 0"),
        ("run router.toml --json --workers 1000", 2, "run.workers = 1000"),
        ("run router.toml --json --updates-speed 2", 2, "there are no updates"),
        ("run router.toml --json --updates table.txt --updates-speed -1", 2, "unexpected argument"),
        ("run router.toml --json --updates table.txt --updates-speed=-1", 2, "updates.speed = -1"),
    ]);
    assert_eq!(std::fs::read(folder.path("in.pcap")).unwrap(), before);
    folder.ok("run router.toml --json --duration 1e18");
}

#[test]
fn an_endless_capture_with_nothing_for_a_worker_still_stops() {
    let folder = folder();
    folder.ok("gen traffic --pattern icmp --packets 1 -o in.pcap");
    folder.write("router.toml", CONFIG.replace("input = \"in.pcap\"", "input = \"in.pcap\"\nrepeat = 0"));
    books(&folder.ok("run router.toml --json --workers 3 --duration 0.3"));
}

#[test]
fn a_recorded_run_with_route_changes_replays_fate_by_fate() {
    let folder = folder();
    folder.write(
        "updates.txt",
        "1\tA\t20.1.0.0/16\t3\n1\tW\t30.0.0.0/8\t0\n2\tA\t30.0.0.0/9\t9\n3\tA\t20.1.2.0/24\t1\n",
    );
    let report = books(&folder.ok("run router.toml --json --updates updates.txt --record run.tmrec.zst"));
    assert_eq!(report["updates"], 4);
    assert!(report["dropped"]["no-route"].as_u64().unwrap() > 100, "the withdrawal took effect: {report}");
    let replay = folder.ok("replay run.tmrec.zst --json").json().pop().unwrap();
    assert_eq!((&replay["wrong"], &replay["complete"]), (&0.into(), &true.into()));
    assert!(replay["checked"].as_u64().unwrap() >= 2000);
    // A record of one run against the routes of another is found out: cut the state's last route.
    let record = std::fs::read(folder.path("run.tmrec.zst")).unwrap();
    folder.write("cut.tmrec.zst", &record[..record.len() / 2]);
    folder.write("not.tmrec", "no record at all, but long enough");
    folder.fail(&[
        ("replay cut.tmrec.zst", 1, "cut.tmrec.zst: event "),
        ("replay not.tmrec", 1, "not.tmrec: event 0: claims"),
        ("run /dev/zero", 2, "/dev/zero: a device or a folder, and no file: give a configuration file"),
        ("check .", 2, ".: a device or a folder, and no file: give a configuration file"),
        ("replay /dev/zero", 2, "/dev/zero: is a device: give a file"),
        ("replay missing.tmrec", 2, "missing.tmrec: No such file"),
        ("run router.toml --record r --workers 2", 2, "a record is of one worker"),
    ]);
}

#[test]
fn corrupt_captures_tables_and_mrt_end_in_one_line_with_the_place() {
    let folder = folder();
    let capture = std::fs::read(folder.path("in.pcap")).unwrap();
    folder.write("cut.pcap", &capture[..capture.len() - 10]).write("text.pcap", "this is not a capture");
    folder.write("bad.txt", "20.0.0.0/8\t1\n20.0.0.1/8\t1\n").write("bad.csv", "prefix,nexthop\n1.2.3/8,7\n");
    let mut mrt = vec![0, 0, 0, 0, 0, 13, 0, 2, 0, 0, 0, 40];
    mrt.extend([7; 12]);
    folder.write("bad.mrt", &mrt).write("updates.txt", "1\tA\t20.0.0.0/8\t1\n2\tX\t20.0.0.0/8\t1\n");
    folder.fail(&[
        ("run router.toml --json --input text.pcap", 1, "text.pcap: byte 0"),
        ("run router.toml --json --table bad.txt", 1, "bad.txt:2: "),
        ("run router.toml --json --table bad.csv", 1, "bad.csv:2: "),
        ("run router.toml --json --table bad.mrt", 1, "bad.mrt: "),
        ("run router.toml --json --input missing.pcap", 2, "missing.pcap: No such file"),
        ("run router.toml --json --table missing.txt", 2, "missing.txt: No such file"),
        ("run router.toml --json --input nowhere=in.pcap", 2, "0 pcap ports"),
        ("run router.toml --json --trace nowhere:3", 2, "there is no node \"nowhere\"; there are "),
    ]);
    // A capture that breaks off: what came before has been routed, and the books are printed.
    let ran = folder.run("run router.toml --json --input cut.pcap");
    assert_eq!((ran.code, ran.err.lines().count()), (1, 1), "{}", ran.err);
    assert!(ran.err.contains("cut.pcap: byte ") && ran.err.contains("1999"), "{}", ran.err);
    assert_eq!(ran.lines().pop().unwrap()["out"], 1999);
    let ran = folder.run("run router.toml --json --updates updates.txt --record r.tmrec");
    assert_eq!((ran.code, &ran.lines().pop().unwrap()["updates"]), (1, &1.into()), "{}", ran.err);
    assert!(
        ran.err.contains("updates.txt:2: ") && ran.err.matches("updates.txt").count() == 1,
        "{}",
        ran.err
    );
    assert_eq!(ran.lines().pop().unwrap()["out"], 2000, "packets flow on");
}

#[test]
fn corrupt_configurations_are_refused_with_the_line_or_the_key() {
    let folder = folder();
    let with = |name: &str, from: &str, to: &str| {
        assert!(CONFIG.contains(from));
        folder.write(name, CONFIG.replace(from, to));
    };
    with("key.toml", "seed = 7", "sead = 7");
    with("role.toml", "\"router\"", "\"rooter\"");
    with("version.toml", "version = 1", "version = 2");
    with("kind.toml", "kind = \"pcap\"\noutput", "kind = \"pcapp\"\noutput");
    with("address.toml", "198.18.0.1/24", "198.18.0.1/33");
    with("port.toml", "ports = [\"wan\"]", "ports = [\"van\"]");
    with("iface.toml", "port = \"lan\"", "port = \"len\"");
    with("algorithm.toml", "[next_hops]", "[router]\nalgorithm = \"dxr-d99\"\n[next_hops]");
    with("route.toml", "[next_hops]", "[[route]]\nprefix = \"10.0.0.1/8\"\nport = \"lan\"\n[next_hops]");
    let twice = "[[route]]\nprefix = \"10.0.0.0/8\"\nport = \"lan\"\n";
    with("twice.toml", "[next_hops]", &format!("{twice}{twice}[next_hops]"));
    with("to.toml", "[next_hops]", &format!("{}[next_hops]", twice.replace("lan", "len")));
    with("updates.toml", "[next_hops]", "[updates]\npath = \"none.txt\"\n[next_hops]");
    let queue = "[[queue]]\nport = \"wan\"\nrate = \"1 Gbps\"\n";
    with("rate.toml", "[next_hops]", &format!("{}[next_hops]", queue.replace("1 Gbps", "fast")));
    with("frames.toml", "[next_hops]", &format!("{queue}granted_packets = 100000\n[next_hops]"));
    with("over.toml", "output = \"wan.pcap\"", "output = \"in.pcap\"");
    with("name.toml", "[next_hops]", "[[next_hop]]\nname = \"nobody\"\nport = \"lan\"\n[next_hops]");
    folder
        .write("syntax.toml", "version = 1\nrole = \"router\n")
        .write("empty.toml", "")
        .write("bytes.toml", [0xff, 0xfe]);
    // A PCI device has a short name and a long one.
    let port = |name: &str, device: &str| {
        format!("[[port]]\nname = \"{name}\"\nkind = \"dpdk\"\ndevice = \"{device}\"\n")
    };
    let ports = [port("a", "0000:3b:00.0,queues=2"), port("b", "3b:00.0")].concat();
    folder.write("device.toml", format!("version = 1\nrole = \"router\"\n{ports}"));
    for (file, message) in [
        ("key.toml", "key.toml:7: unknown field `sead`"),
        ("role.toml", "role.toml:3: unknown variant `rooter`"),
        ("version.toml", "version = 2: this program reads version 1"),
        ("kind.toml", "unknown variant `pcapp`"),
        ("address.toml", "interface[0].addresses"),
        ("port.toml", "next_hops.ports"),
        ("iface.toml", "interface[0].port"),
        ("algorithm.toml", "use one of auto, dxr"),
        ("route.toml", "route[0].prefix: 10.0.0.1/8 has host bits set: did you mean 10.0.0.0/8?"),
        ("twice.toml", "route[1].prefix: route[0] is to 10.0.0.0/8 already"),
        ("to.toml", "route[0].port: there is no interface \"len\""),
        ("updates.toml", "none.txt: No such file"),
        ("rate.toml", "queue[0].rate: \"fast\": give a number with Gbps, Mbps, kbps or bps in quotes"),
        (
            "frames.toml",
            "memory.frames = 8192: 100768 packets may wait in [[queue]]s on each worker: give at least 101792",
        ),
        ("over.toml", "in.pcap: would be written over"),
        ("device.toml", "port[1].device: \"0000:3b:00.0\" is port \"a\"'s already: give another"),
        ("name.toml", "next_hop[0].name"),
        ("syntax.toml", "syntax.toml:2: "),
        ("empty.toml", "empty.toml:1: missing field"),
        ("bytes.toml", "bytes.toml: "),
        ("missing.toml", "missing.toml: No such file"),
    ] {
        folder.fail(&[(&format!("check {file}"), 2, message), (&format!("run {file} --json"), 2, message)]);
    }
    let good = folder.ok("check router.toml");
    assert!(good.out.contains("good: a router of 2 ports (lan, wan)"), "{}", good.out);
    assert!(folder.ok("check router.toml --dot").out.starts_with("digraph tidemill {"));
    let schema: Value = serde_json::from_str(&folder.ok("check --schema").out).unwrap();
    assert!(schema["properties"]["next_hops"].is_object());
}

/// Each command has a page of the manual, and each of its options is there.
#[test]
fn the_manual_says_what_each_command_takes() {
    let folder = Folder::new();
    folder.ok("man pages");
    let page = |name: &str| folder.read(&format!("pages/tidemill-{name}.1")).replace("\\-", "-");
    let help = folder.ok("help").out;
    let lines =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What a line has no room for is further in.
    let lines = lines.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    let names: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
    let mut options = 0;
    for name in names.iter().copied().filter(|name| *name != "help") {
        let page = page(name);
        let help = folder.ok(&format!("{name} --help")).out;
        for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
            let word = line.split([' ', ',', '[', '=']).find(|word| word.starts_with("--"));
            let option = word.unwrap_or("--help").trim_end_matches('.');
            if option != "--help" {
                assert!(page.contains(option), "{name}: {option} is not in the manual: {page}");
                options += 1;
            }
        }
    }
    assert!(names.len() > 20 && options > 30, "{options} options of {names:?}");
    assert!(page("fib-stats").contains("--table"));
}

/// The configuration with packets that are made up, by whose pace it says (`more`), and go nowhere: a run that does not end.
fn endless(more: &str) -> String {
    let ports = CONFIG.replace(
        "kind = \"pcap\"\ninput = \"in.pcap\"\noutput = \"lan.pcap\"",
        &format!("kind = \"generator\"\ndestinations = \"table\"\n{more}"),
    );
    ports.replace("kind = \"pcap\"\noutput = \"wan.pcap\"", "kind = \"null\"\nreceive = false")
}

/// What `run.idle_us` says reaches the worker: between a few packets it sleeps at once, or polls until the next one comes.
#[test]
fn a_worker_at_rest_sleeps_or_polls_as_the_configuration_says() {
    let folder = folder();
    for (name, idle_us, sleeps) in
        [("at-once", "0", true), ("late", "10000000", false), ("never", "\"never\"", false)]
    {
        let ports = endless("rate_pps = 20.0");
        let more =
            format!("[control]\nsocket = \"{name}.sock\"\n[run]\nidle_us = {idle_us}\nnap_us = 1000\n");
        folder.write("router.toml", format!("{ports}{more}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(["run", "router.toml", "--json"]).current_dir(folder.path(""));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let began = std::time::Instant::now();
        let asleep = loop {
            let ran = folder.run(&format!("show workers --json --socket {name}.sock"));
            let workers = if ran.code == 0 { ran.json() } else { Vec::new() };
            if let Some(worker) = workers.first() {
                let asleep = worker["asleep_percent"].as_f64().unwrap();
                // A second that began with the run has its start in it.
                if worker["packets"].as_u64() >= Some(3) && (!sleeps || asleep > 50.0) {
                    break asleep;
                }
            }
            if began.elapsed().as_secs() >= 60 || child.try_wait().unwrap().is_some() {
                let _ = child.kill();
                panic!("{name}: {workers:?} {}{}", ran.out, ran.err);
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(sleeps || asleep == 0.0, "{name}: {asleep} % asleep");
    }
}

#[test]
fn an_interrupted_run_ends_in_good_order() {
    let folder = folder();
    let ports = endless("");
    folder.write("router.toml", format!("{ports}[control]\nsocket = \"s.sock\"\n"));
    let run = || {
        Command::new(env!("CARGO_BIN_EXE_tidemill"))
            .args(["run", "router.toml", "--json"])
            .current_dir(folder.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut child = run();
    // Signals are watched for before packets flow.
    let began = std::time::Instant::now();
    loop {
        let ran = folder.run("show ports --json --socket s.sock");
        let flows = |port: &Value| port["rx"]["packets"].as_u64().is_some_and(|packets| packets > 1000);
        if ran.code == 0 && ran.json().iter().any(flows) {
            break;
        }
        if began.elapsed().as_secs() >= 60 || child.try_wait().unwrap().is_some() {
            let _ = child.kill();
            panic!("nothing flows: {}{}", ran.out, ran.err);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let killed = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let report = books(&Ran { code: output.status.code().unwrap_or(-1), out, err });
    assert!(report["in"].as_u64().unwrap() > 1000 && report["held"] == 0, "{report}");
}

#[test]
fn workers_are_placed_as_the_configuration_says() {
    let folder = folder();
    let alone = books(&folder.ok("run router.toml --json"));
    for run in [
        "workers = 2\nstages = [[\"ip4-lookup\", \"ip6-lookup\"]]",
        "workers = 6\nstages = [[\"ip4-input\"], [\"ip4-forward\"]]\npin = false",
        "idle_us = \"never\"\nnuma = false",
        "idle_us = 0\nnap_us = 1",
    ] {
        folder.write("placed.toml", format!("{CONFIG}\n[run]\n{run}\n"));
        let ran = folder.ok("run placed.toml --json");
        for said in [&ran.err, &folder.ok("check placed.toml").err] {
            assert_eq!(said.contains("not the same every time"), run.contains("stages"), "{run}: {said}");
        }
        let placed = books(&ran);
        for figure in ["in", "out", "dropped", "consumed"] {
            assert_eq!(placed[figure], alone[figure], "{run}");
        }
    }
    for (run, what) in [
        (
            "workers = 3\nstages = [[\"ip4-lookup\"]]",
            "run.workers = 3: with 1 run.stages a packet goes through 2",
        ),
        ("workers = 2\nstages = [[\"ip4-lockup\"]]", "run.stages: there is no node \"ip4-lockup\""),
        ("workers = 2\nstages = [[]]", "run.stages: one has no node"),
        ("cpus = \"5-2\"", "run.cpus = \"5-2\": \"5-2\": give the lower CPU first"),
        ("cpus = [0, 1]", "run.cpus: 2 CPUs for 1 workers"),
        ("workers = 2\ncpus = [0, 0]", "run.cpus: CPU 0 is named twice"),
        ("cpus = [0]\npin = false", "run.cpus: needs run.pin = true"),
        ("cpus = [4095]", "run.cpus: CPU 4095 is not ours to use"),
        ("idle_us = \"often\"", "idle_us"),
        ("nap_us = 0", "run.nap_us = 0: give 1 to 1000000"),
    ] {
        folder.write("wrong.toml", format!("{CONFIG}\n[run]\n{run}\n"));
        folder.fail(&[("check wrong.toml", 2, what), ("run wrong.toml --json", 2, what)]);
    }
}

#[test]
fn a_nat_on_files_adds_up_replays_and_says_what_is_wrong_with_it() {
    let folder = Folder::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/");
    let example = std::fs::read_to_string(format!("{root}nat/nat.toml")).unwrap();
    let example = example.replace("../router/", &format!("{root}router/"));
    folder.write("nat.toml", &example);
    let said = folder.ok("check nat.toml");
    assert!(said.out.contains("inside: lan; pool: 2 IPv4 and 1 IPv6 addresses"), "{}", said.out);
    assert!(!said.err.contains("nat."), "nothing to remark: {}", said.err);
    let report = books(&folder.ok("run nat.toml --json --record nat.tmrec.zst"));
    let counter = |name: &str| report["nat"][name].as_u64().unwrap();
    // Everything leaves by the outside: what goes out was translated, but for errors of our own that tell nothing of an inside host.
    assert!(counter("out") > 1000 && counter("fragments") > 0 && counter("sessions6") > 0, "{report}");
    let (translated, made) = (counter("out") + counter("fragments"), report["made"].as_u64().unwrap());
    let out = report["out"].as_u64().unwrap();
    assert!((translated..=translated + made).contains(&out), "{report}");
    assert!(folder.ok("replay nat.tmrec.zst").out.contains("0 wrong"));
    // Without a record it is the same: its clock is the capture's, and what a box hands over is no business of its.
    folder.write("box.image", "");
    let beside = example.replacen("[nat]", "[nat]\nhandover = \"box.image\"", 1);
    folder.write("beside.toml", &beside);
    let alone = "nat.handover: a run that is recorded, or on captures or by their clock, takes nothing over";
    let said = folder.ok("run beside.toml --json");
    assert!(said.err.contains(alone), "{}", said.err);
    assert_eq!(books(&said)["nat"], report["nat"]);
    // Nor is it where the clock is the wall's.
    folder.write("beside.toml", beside.replacen("[nat]", "[run]\nclock = \"wall\"\n[nat]", 1));
    let said = folder.ok("run beside.toml --json");
    assert!(said.err.contains(alone), "{}", said.err);
    assert_eq!(std::fs::metadata(folder.path("box.image")).unwrap().len(), 0);
    folder.write("notes", "mine");
    for (from, to, message) in [
        (
            "inside = [\"lan\"]",
            "inside = [\"len\"]",
            "nat.inside[0]: there is no interface \"len\"; there are \"lan\", \"wan\"",
        ),
        ("host_mappings = 1000", "host_mapings = 1000", "unknown field `host_mapings`"),
        ("host_mappings = 1000", "mappings = 268435457", "nat.mappings: 268435457: give 1 to 2^28"),
        ("host_mappings = 1000", "sessions = 1073741825", "nat.sessions: 1073741825: give 1 to 2^30"),
        ("host_mappings = 1000", "udp_s = 30", "nat.udp_s: 30: give 120 (RFC 4787, REQ-5)"),
        ("host_mappings = 1000", "fragments = 8000", "memory.frames = 8192: nat.fragments = 8000 may wait"),
        ("\"192.0.2.1:8080\"", "\"192.0.2.9:8080\"", "nat.static[0].external: 192.0.2.9: is not in nat.pool"),
        (
            "host_mappings = 1000",
            "handover = \"notes\"",
            "notes: is there already and was not written for this: give another name, or remove it",
        ),
        ("host_mappings = 1000", "handover = \".\"", "is a folder: name a file in it"),
        (
            "[nat]",
            "[state]\npath = \"./new\"\n[nat]\nhandover = \"new\"",
            "new: would be written twice: it is nat.handover and state.path: give each its own file",
        ),
        (
            "[nat]",
            "[state]\npath = \"new.old\"\n[nat]\nhandover = \"new\"",
            "new.old: would be written twice: it is nat.handover's .old and state.path: give each its own file",
        ),
        (
            "host_mappings = 1000",
            "handover = \"out.wan.pcapng\"",
            "out.wan.pcapng: would be written twice: it is port[1].output and nat.handover: give each its own",
        ),
        (
            "host_mappings = 1000",
            "handover = \"wrong.toml\"",
            "wrong.toml: would be written over: it is nat.handover, and is read as the configuration: give",
        ),
        ("role = \"nat\"", "role = \"filter\"", "filter: is missing: name the file of rules in [filter]"),
        (
            "role = \"nat\"",
            "role = \"router\"\n[router]\noffload = \"xdp\"",
            "what it forwards would pass by what [nat] says: leave it or [nat] out",
        ),
        (
            "[nat]",
            "[run]\nworkers = 2\nstages = [[\"nat4\"]]\n[nat]",
            "run.stages: a NAT's workers hand packets over",
        ),
        ("[nat]", "[run]\nworkers = 2\n[nat]", "and a capture is read faster than any cable and ends"),
        (
            "[nat]",
            "[state]\npath = \"notes\"\n[nat]",
            "state.path: notes: is there already and was not written for this",
        ),
    ] {
        assert!(example.contains(from), "{from}");
        folder.write("wrong.toml", example.replacen(from, to, 1));
        folder.fail(&[("check wrong.toml", 2, message)]);
    }
}

#[test]
fn a_filter_on_files_adds_up_and_says_what_is_wrong_with_it() {
    let folder = Folder::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/");
    let example = std::fs::read_to_string(format!("{root}filter/filter.toml")).unwrap();
    let example = example.replace("../router/", &format!("{root}router/"));
    folder.write("filter.toml", &example);
    for file in ["filter.rules", "bad.txt"] {
        folder.write(file, std::fs::read_to_string(format!("{root}filter/{file}")).unwrap());
    }
    let said = folder.ok("check filter.toml");
    assert!(said.out.contains("9 rules (") && said.out.contains("2 tables of 7 addresses"), "{}", said.out);
    let report = books(&folder.ok("run filter.toml --json"));
    let counter = |name: &str| report["filter"][name].as_u64().unwrap();
    assert!(counter("passed") > 1000 && counter("states-made") > 0 && counter("by-state") > 0, "{report}");
    // What a loss of power leaves of a file is a file of rules, too.
    folder.write("empty.rules", "# nothing yet\n");
    folder.write("empty.toml", example.replacen("\"filter.rules\"", "\"empty.rules\"", 1));
    let said = folder.ok("check empty.toml").err;
    assert!(said.contains("filter.rules: has no rules: everything passes"), "{said}");
    assert!(!folder.ok("check filter.toml").err.contains("everything passes"));
    // An empty list is no image that was lost.
    folder.write("list.txt", "");
    let list = example.replacen("\"filter.rules\"", "\"list.rules\"", 1);
    for (from, to, key) in [
        ("[filter]", "[state]\npath = \"list.txt\"\n[filter]", "state.path"),
        ("[filter]", "[filter]\nhandover = \"list.txt\"", "filter.handover"),
        // A capture begins with emptying its file.
        ("output = \"out.wan.pcapng\"", "output = \"list.txt\"", "port[1].output"),
    ] {
        assert!(list.contains(from), "{from}");
        folder.write("list.toml", list.replacen(from, to, 1));
        let reads = format!("{key}: list.txt: the filter reads its rules, or a table, from that");
        for rules in [
            "table <bad> file \"list.txt\"\nblock all\n",
            "load \"list.txt\" format classbench block\nblock all\n",
        ] {
            folder.write("list.rules", rules);
            folder.fail(&[("check list.toml", 2, &reads)]);
            let ran = folder.run("run list.toml");
            assert!(ran.code == 2 && ran.err.contains(&reads), "{}: {}", ran.code, ran.err);
            assert_eq!(folder.read("list.txt"), "");
        }
    }
    folder.write("wrong.rules", "block all\npass in on len\n").write("none.rules", "");
    for (from, to, message) in [
        ("\"filter.rules\"", "\"no.rules\"", "no.rules: No such file or directory"),
        (
            "\"filter.rules\"",
            "\"wrong.rules\"",
            "wrong.rules: line 2, column 12: there is no interface \"len\"",
        ),
        ("states = 100000", "states = 5", "filter.half_open: 10000: half-open connections are connections"),
        ("states = 100000", "stats = 5", "unknown field `stats`"),
        (
            "rules = \"filter.rules\"",
            "rules = \"none.rules\"\nhandover = \"none.rules\"",
            "none.rules: would be written over: it is filter.handover, and is read as filter.rules: give another",
        ),
        (
            "[filter]",
            "[state]\npath = \"new\"\n[filter]\nhandover = \"new\"",
            "new: would be written twice: it is filter.handover and state.path: give each its own file",
        ),
        ("log_per_s = 50", "fragments = 8000", "memory.frames = 8192: filter.fragments = 8000 may wait"),
        ("role = \"filter\"", "role = \"nat\"", "nat: is missing: say in [nat] who is inside"),
        (
            "[filter]",
            "[state]\npath = \"bad.txt\"\n[filter]",
            "bad.txt: is there already and was not written for this",
        ),
    ] {
        assert!(example.contains(from), "{from}");
        folder.write("wrong.toml", example.replacen(from, to, 1));
        folder.fail(&[("check wrong.toml", 2, message)]);
    }
}

/// NAT with the filter in front of it, as either role and beside others: rules name inside addresses, and what they block is not translated.
#[test]
fn nat_and_the_filter_are_one_box() {
    let folder = Folder::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/");
    let example = std::fs::read_to_string(format!("{root}nat/nat.toml")).unwrap();
    let example = example.replace("../router/", &format!("{root}router/"));
    folder.write("nat.toml", &example);
    let alone = books(&folder.ok("run nat.toml --json"));
    let both = example.replacen("[nat]", "[filter]\nrules = \"f.rules\"\n[nat]", 1);
    folder.write("both.toml", &both);
    folder.write("f.rules", "pass all\n");
    let said = folder.ok("check both.toml").out;
    assert!(said.contains("pool: 2 IPv4 and 1 IPv6 addresses; 1 rules ("), "{said}");
    let open = books(&folder.ok("run both.toml --json"));
    let of = |report: &Value, part: &str, name: &str| report[part][name].as_u64().unwrap();
    // What passes is translated as it was.
    let (open_out, alone_out) = (of(&open, "nat", "out"), of(&alone, "nat", "out"));
    assert!(open_out <= alone_out && 10 * open_out >= 9 * alone_out, "{open} {alone}");
    assert!(of(&open, "filter", "by-state") > 0 && of(&open, "filter", "blocked") == 0, "{open}");
    // It sees no address of the pool, and what it blocks has no session.
    folder.write("f.rules", "block all\npass inet all\nblock from { 192.0.2.1, 192.0.2.2 } to any\n");
    let some = books(&folder.ok("run both.toml --json"));
    assert!(of(&some, "nat", "out") > 100 && of(&some, "nat", "sessions6") == 0, "{some}");
    let blocked = some["dropped"]["filter-blocked"].as_u64().unwrap();
    assert!(blocked > 0 && blocked == of(&some, "filter", "blocked"), "{some}");
    let same = |toml: &str| {
        folder.write("other.toml", toml);
        let other = books(&folder.ok("run other.toml --json"));
        for part in ["nat", "filter", "dropped", "out"] {
            assert_eq!(other[part], some[part], "{toml}");
        }
    };
    for role in ["filter", "router"] {
        same(&both.replacen("role = \"nat\"", &format!("role = \"{role}\""), 1));
    }
    // Nothing comes from the front of this gate.
    let gate = "role = \"gatekeeper\"\n[gatekeeper]\nfront = [\"wan\"]\nflows = 1000\ndecisions = \"none\"\n";
    let gated = both.replacen("role = \"nat\"\n", gate, 1);
    same(&gated);
    let checked = folder.ok("check other.toml");
    let deaf = "192.0.2.1 is an interface's, too: decisions and probes that come to it are dropped";
    assert!(
        checked.err.contains(deaf) && !folder.ok("check both.toml").err.contains(deaf),
        "{}",
        checked.err
    );
    let said = checked.out;
    assert!(
        said.contains("pool: 2 IPv4") && said.contains(" rules (") && said.contains("in front: wan"),
        "{said}"
    );

    let ran = folder.run("run both.toml --record r.tmrec.zst");
    assert!(
        ran.code == 2 && ran.err.contains("a filter's rules are in no record"),
        "{}: {}",
        ran.code,
        ran.err
    );
    for (from, to, message) in [
        (
            "rules = ",
            "fragments = 4000\nrules = ",
            "memory.frames = 8192: nat.fragments = 256 and filter.fragments = 4000 may wait",
        ),
        ("rules = ", "half_open = 9000000\nrules = ", "filter.half_open"),
        ("inside = [\"lan\"]", "inside = [\"len\"]", "nat.inside[0]: there is no interface"),
    ] {
        assert!(both.contains(from), "{from}");
        folder.write("wrong.toml", both.replacen(from, to, 1));
        folder.fail(&[("check wrong.toml", 2, message)]);
    }
    let twice = both.replacen("rules = ", "handover = \"one\"\nrules = ", 1);
    folder.write("wrong.toml", twice.replacen("[nat]", "[nat]\nhandover = \"one\"", 1));
    let twice = "one: would be written twice: it is filter.handover and nat.handover: give each its own file";
    folder.fail(&[("check wrong.toml", 2, twice)]);
    folder.write("wrong.toml", both.replacen("[nat]", "[nat]\nhandover = \"f.rules\"", 1));
    let over =
        "f.rules: would be written over: it is nat.handover, and is read as filter.rules: give another";
    folder.fail(&[("check wrong.toml", 2, over)]);
    let ports = "[[port]]\nname = \"a\"\nkind = \"null\"\n[[port]]\nname = \"b\"\nkind = \"null\"\n";
    for role in ["switch", "mitigator", "kvcache"] {
        for section in ["nat", "filter"] {
            folder.write("wrong.toml", format!("version = 1\nrole = \"{role}\"\n{ports}[{section}]\n"));
            let why = format!(
                "[{section}]: a {role} routes nothing, and this is about what is routed: leave it out"
            );
            folder.fail(&[("check wrong.toml", 2, why.as_str())]);
        }
    }
}

/// What happens in a run is told to who listens: its beginning, drops beyond the rate, reloads that were taken and refused, its end.
#[cfg(target_os = "linux")]
#[test]
fn what_happens_in_a_run_is_an_event() {
    use std::io::BufRead as _;
    struct Ends(std::process::Child);
    impl Drop for Ends {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let folder = Folder::new();
    let config = "version = 1\nrole = \"router\"\n[control]\nsocket = \"s.sock\"\nalarm_drops_pps = 100\n\
        [[port]]\nname = \"a\"\nkind = \"null\"\nreceive = false\n[[port]]\nname = \"b\"\nkind = \"generator\"\nrate_pps = 1000\n";
    folder.write("router.toml", config);
    let command = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(line.split_whitespace()).current_dir(folder.path(".")).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        Ends(command.spawn().unwrap())
    };
    let _run = command("run router.toml");
    let began = std::time::Instant::now();
    while folder.run("events --once --socket s.sock").code != 0 {
        assert!(began.elapsed().as_secs() < 60);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let first = folder.ok("events --once --json --kind run --socket s.sock").json().remove(0);
    assert_eq!(
        (&first["seq"], &first["about"], &first["message"]),
        (&1.into(), &"router.toml".into(), &"a router begins".into())
    );
    let text = folder.ok("events --once --kind run --socket s.sock").out;
    assert!(text.ends_with("Z info    run      router.toml: a router begins\n"), "{text}");
    // One who listens from the beginning, and hears of all in order.
    let mut listener = command("events --last 1000 --kind drops,reload,run --json --socket s.sock");
    let mut heard = std::io::BufReader::new(listener.0.stdout.take().unwrap()).lines();
    let mut next = || {
        let line: Value = serde_json::from_str(&heard.next().unwrap().unwrap()).unwrap();
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        (text("kind"), text("severity"), text("about"), text("message"), line["values"].clone())
    };
    assert_eq!(next().0, "run");
    let (kind, severity, about, message, values) = next();
    assert_eq!((&*kind, &*severity, &*about), ("drops", "warning", "not-for-us"));
    assert!(message.ends_with("packets are dropped a second, most of them at ethernet-input"), "{message}");
    assert!(values["packets_per_s"].as_f64().unwrap() > 100.0, "{values}");
    folder.ok("reload --socket s.sock");
    let (kind, severity, _, message, _) = next();
    assert_eq!((&*kind, &*severity, &*message), ("reload", "info", "router.toml: reloaded (number 1)"));
    folder.write("router.toml", config.replace("null", "nill"));
    assert_eq!(folder.run("reload --socket s.sock").code, 1);
    let (kind, severity, _, message, _) = next();
    assert_eq!((&*kind, &*severity), ("reload", "warning"));
    assert!(message.starts_with("refused, nothing has changed: router.toml:"), "{message}");
    let tables = folder.ok("show tables --json --socket s.sock").json();
    assert_eq!((&tables[0]["name"], &tables[0]["generation"]), (&"IPv4 routes".into(), &1.into()));
    folder.fail(&[(
        "events --kind drops,rain --socket s.sock",
        2,
        "there are no events \"rain\": give some of run, reload, table, port, drops, worker, trouble, certificate, bgp, router, alive, lost",
    )]);
    folder.ok("stop --socket s.sock");
    assert_eq!(next().3, "stops: it was asked to");
    // The answer ends with the service, and so does who listens, in good order.
    assert_eq!(listener.0.wait().unwrap().code(), Some(0));
}
