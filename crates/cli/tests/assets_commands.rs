//! Detection of assets and export of flows, by the program: on captures, beside roles that run, and as tshark reads what the collector gets.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::Value;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tool::Folder;

fn capture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/router/capture.pcapng.zst")
}

/// A router on our capture; `more` goes to the port that receives, `sections` below.
fn router(more: &str, sections: &str) -> String {
    let input = capture().display().to_string();
    format!(
        "version = 1\nrole = \"router\"\n[[port]]\nname = \"lan\"\nkind = \"pcap\"\ninput = {input:?}\n{more}\n\
        [[port]]\nname = \"wan\"\nkind = \"pcap\"\noutput = \"wan.pcap\"\n[[interface]]\nport = \"lan\"\naddresses = [\"10.77.1.1/24\"]\n\
        [[route]]\nprefix = \"0.0.0.0/0\"\nport = \"wan\"\nmac = \"02:00:00:00:00:09\"\n{sections}"
    )
}

/// Ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn systems(assets: &[Value]) -> Vec<&str> {
    let of = |asset: &'_ Value| asset["systems"].as_array().unwrap().len();
    assert!(assets.iter().map(of).sum::<usize>() > 0);
    let systems = assets.iter().flat_map(|asset| asset["systems"].as_array().unwrap());
    systems.map(|system| system["name"].as_str().unwrap_or("unknown")).collect()
}

fn banners(assets: &[Value]) -> Vec<String> {
    let services = assets.iter().flat_map(|asset| asset["services"].as_array().unwrap());
    services
        .filter_map(|service| {
            Some(format!("{} {}", service["protocol"].as_str()?, service["banner"].as_str()?))
        })
        .collect()
}

#[test]
fn a_capture_shows_its_hosts() {
    let folder = Folder::new();
    let file = capture().display().to_string();
    let ran = folder.ok(&format!("assets {file} --json"));
    let assets = ran.json();
    let systems = systems(&assets);
    assert!(systems.contains(&"Linux 5 or 6") && !systems.contains(&"unknown"), "{systems:?}");
    assert!(
        banners(&assets).contains(&"http SimpleHTTP/0.6 Python/3.11.7".to_owned()),
        "{:?}",
        banners(&assets)
    );
    assert!(ran.err.contains("2039 packets"), "{}", ran.err);
    let text = folder.ok(&format!("assets {file}")).out;
    assert!(
        text.contains("Linux 5 or 6") && text.contains("tcp http (SimpleHTTP/0.6 Python/3.11.7)"),
        "{text}"
    );
    // A few of them; with a list that knows nobody they are said to be unknown, with what was seen.
    folder.write("none.txt", "# nobody\n");
    let address = assets[0]["address"].as_str().unwrap();
    let some = folder.ok(&format!("assets {file} --network {address} --fingerprints none.txt --json")).json();
    assert_eq!((some.len(), &some[0]["address"]), (1, &assets[0]["address"]));
    folder.write("wrong.txt", "\nsyn 64 df any any mms | x | y\n");
    folder.fail(&[
        ("assets no.pcap", 2, "no.pcap: No such file"),
        (&format!("assets {file} --network 10.0.0"), 2, "assets.networks: "),
        (&format!("assets {file} --hosts 1"), 2, "assets.hosts: 1: give 16"),
        (
            &format!("assets {file} --fingerprints wrong.txt"),
            2,
            "wrong.txt: line 2: \"mms\" is no TCP option",
        ),
        (&format!("assets {file} --fingerprints gone.txt"), 2, "gone.txt: No such file"),
    ]);
}

#[test]
fn wrong_sections_are_named() {
    let folder = Folder::new();
    let mut lines = Vec::new();
    for (n, (section, message)) in [
        ("[assets]\nidle_s = 1\n", "assets.idle_s: 1: give 8"),
        ("[assets]\nhost = 1\n", "unknown field `host`"),
        ("[ipfix]\n", "ipfix.collector: \"\": give address and port"),
        ("[ipfix]\ncollector = \"10.0.0.1:0\"\n", "ipfix.collector: \"10.0.0.1:0\": nobody can be there"),
        ("[ipfix]\ncollector = \"255.255.255.255:4739\"\n", "nobody can be there"),
        ("[ipfix]\ncollector = \"[fe80::1]:4739\"\n", "give its number, as \"[fe80::1%2]:4739\""),
        (
            "[ipfix]\ncollector = \"10.0.0.1:4739\"\nmessage_bytes = 100\n",
            "ipfix.message_bytes: 100: give 512 to 65000",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        folder.write(&format!("{n}.toml"), router("", section));
        lines.push((format!("check {n}.toml"), 2, message));
    }
    let lines: Vec<(&str, i32, &str)> =
        lines.iter().map(|(line, code, message)| (line.as_str(), *code, *message)).collect();
    folder.fail(&lines);
    folder.write("good.toml", router("", "[assets]\n[ipfix]\ncollector = \"[2001:db8::1]:4739\"\n"));
    let said = folder.ok("check good.toml").out;
    assert!(said.contains("fingerprints, flows to [2001:db8::1]:4739"), "{said}");
}

/// A configuration may be for another machine: who checks it is told, and who runs it is refused.
#[test]
fn a_table_that_has_no_room_here_is_warned_of_and_not_begun() {
    let folder = Folder::new();
    folder.write("large.toml", router("", "[assets]\nhosts = 16777216\n"));
    let said = folder.ok("check large.toml").err;
    let asks = "large.toml: assets.hosts asks for ";
    if !said.contains(asks) {
        println!("skipped: a_table_that_has_no_room_here_is_warned_of_and_not_begun (there is room)");
        return;
    }
    assert!(
        said.contains("tidemill: warning: large.toml") && said.contains("; here `run` refuses it"),
        "{said}"
    );
    folder.fail(&[("run large.toml", 2, asks)]);
}

/// The wire file of a pcap capture with these UDP payloads, to IPFIX's port.
fn pcap(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut file =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    for payload in payloads {
        let mut frame = Vec::new();
        let step =
            etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        step.udp(5000, 4739).write(&mut frame, payload).unwrap();
        file.extend([0; 8]);
        file.extend((frame.len() as u32).to_le_bytes());
        file.extend((frame.len() as u32).to_le_bytes());
        file.extend(frame);
    }
    file
}

/// Runs `run.toml` with a collector of ours; what it has received, and the run's report.
fn collected(folder: &Folder, config: impl Fn(&str) -> String) -> (Vec<Vec<u8>>, Value) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let collector = format!("[ipfix]\ncollector = \"{}\"\n", socket.local_addr().unwrap());
    folder.write("run.toml", config(&collector));
    let report = folder.ok("run run.toml --json").json().pop().unwrap();
    let mut messages = Vec::new();
    let mut buffer = vec![0; 65_536];
    for _ in 0..report["ipfix"]["messages"].as_u64().unwrap() {
        let count = socket.recv(&mut buffer).unwrap();
        messages.push(buffer[..count].to_vec());
    }
    (messages, report)
}

/// Nobody is told, and packets flow: there is no route to a broadcast address.
#[test]
fn a_collector_that_no_route_leads_to_is_said_and_stops_nothing() {
    let folder = Folder::new();
    folder.write("run.toml", router("", "[ipfix]\ncollector = \"127.255.255.255:4739\"\n"));
    let ran = folder.ok("run run.toml --json");
    assert!(ran.err.contains("warning: ipfix.collector: 127.255.255.255:4739: "), "{}", ran.err);
    let report = ran.json().pop().unwrap();
    let counted = |key: &str| report["ipfix"][key].as_u64().unwrap();
    assert_eq!((counted("messages"), counted("records")), (0, 0));
    assert_eq!(counted("packets"), report["in"].as_u64().unwrap());
    assert!(counted("unsent-packets") > 0, "{report}");
}

#[test]
fn tshark_reads_what_the_collector_gets() {
    if Command::new("tshark").arg("-v").output().is_err() {
        println!("skipped: tshark_reads_what_the_collector_gets (tshark is not installed)");
        return;
    }
    let folder = Folder::new();
    let (messages, report) = collected(&folder, |collector| router("", &format!("[assets]\n{collector}")));
    let counted = |key: &str| report["ipfix"][key].as_u64().unwrap();
    assert_eq!(counted("packets"), report["in"].as_u64().unwrap());
    assert_eq!(
        counted("record-packets") + counted("not-ip") + counted("malformed"),
        counted("packets"),
        "{report}"
    );
    assert_eq!((counted("flows-full"), counted("unsent"), counted("flows")), (0, 0, 0));
    assert_eq!(report["assets"]["packets"], report["in"]);
    folder.write("ipfix.pcap", pcap(&messages));
    let tshark = |arguments: &[&str]| {
        let mut command = Command::new("tshark");
        command.args(["-n", "-r"]).arg(folder.path("ipfix.pcap")).args(arguments);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let sum = |field: &str| -> u64 {
        let text = tshark(&["-T", "fields", "-e", field]);
        text.split([',', '\n']).filter(|word| !word.is_empty()).map(|word| word.parse::<u64>().unwrap()).sum()
    };
    assert_eq!(sum("cflow.packets"), counted("record-packets"));
    assert_eq!(sum("cflow.octets"), counted("record-bytes"));
    assert_eq!(
        tshark(&["-Y", "_ws.malformed or _ws.expert.severity >= \"Warning\" or cflow.no_template_found"]),
        ""
    );
    // What the capture itself says: every IP packet's length.
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "zstd -dcq \"$1\" | tshark -n -r - -o ip.defragment:FALSE -T fields -e ip.len -e ipv6.plen",
        "sh",
    ]);
    let output = command.arg(capture()).stdin(Stdio::null()).output().unwrap();
    if !output.status.success() || output.stdout.is_empty() {
        println!("skipped: the lengths of the capture's packets (zstd is not installed)");
        return;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    // Of a packet that quotes another the first length is its own.
    let first = |text: &str| text.split(',').next().and_then(|word| word.parse::<u64>().ok());
    let length = |line: &str| {
        let (v4, v6) = line.split_once('\t').unwrap_or((line, ""));
        match (first(v4), first(v6)) {
            (_, Some(v6)) if !v4.contains(',') && first(v4).is_none() => v6 + 40,
            (Some(v4), _) => v4,
            _ => 0,
        }
    };
    assert_eq!(text.lines().map(length).sum::<u64>(), counted("record-bytes"));
}

/// Beside another role, whose packets are as they are without.
#[test]
fn a_switch_is_looked_at_too_and_does_what_it_did() {
    let folder = Folder::new();
    let input = capture().display().to_string();
    let switch = |sections: &str| {
        format!(
            "version = 1\nrole = \"switch\"\n[[port]]\nname = \"a\"\nkind = \"pcap\"\ninput = {input:?}\n\
            [[port]]\nname = \"b\"\nkind = \"pcap\"\noutput = \"b.pcap\"\n{sections}"
        )
    };
    folder.write("plain.toml", switch(""));
    folder.ok("run plain.toml");
    let before = std::fs::read(folder.path("b.pcap")).unwrap();
    let (messages, report) = collected(&folder, |collector| switch(&format!("[assets]\n{collector}")));
    assert!(std::fs::read(folder.path("b.pcap")).unwrap() == before && before.len() > 1_000_000);
    assert!(!messages.is_empty() && report["assets"]["known-hosts"].as_u64().unwrap() > 0, "{report}");
}

/// An example's configuration, with the capture where it is and the files that it names beside it.
fn example(folder: &Folder, role: &str, files: &[&str]) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(role);
    for file in files {
        std::fs::copy(from.join(file), folder.path(file)).unwrap();
    }
    let text = std::fs::read_to_string(from.join(format!("{role}.toml"))).unwrap();
    text.replace("\"../router/capture.pcapng.zst\"", &format!("{:?}", capture().display().to_string()))
}

/// Beside the other roles, too: all that comes in is seen, and what becomes of it stays what it was.
#[test]
fn every_role_is_looked_at_and_does_what_it_did() {
    let input = capture().display().to_string();
    let mitigator = format!(
        "version = 1\nrole = \"mitigator\"\n[[port]]\nname = \"outside\"\nkind = \"pcap\"\ninput = {input:?}\n\
        [[port]]\nname = \"inside\"\nkind = \"pcap\"\noutput = \"out.pcap\"\n[mitigator]\noutside = \"outside\"\ninside = \"inside\"\n"
    );
    let roles: &[(&str, &[&str])] =
        &[("nat", &[]), ("filter", &["filter.rules", "bad.txt"]), ("gatekeeper", &[]), ("mitigator", &[])];
    for &(role, files) in roles {
        let folder = Folder::new();
        let text = if role == "mitigator" { mitigator.clone() } else { example(&folder, role, files) };
        folder.write("plain.toml", &text);
        let plain = folder.ok("run plain.toml --json").json().pop().unwrap();
        let (messages, report) = collected(&folder, |collector| format!("{text}\n[assets]\n{collector}"));
        for key in ["in", "made", "out", "consumed", "dropped"] {
            assert_eq!(report[key], plain[key], "{role}: {key}");
        }
        let seen = [&report["ipfix"]["packets"], &report["assets"]["packets"]];
        assert!(seen.iter().all(|packets| **packets == report["in"]), "{role}: {report}");
        assert!(!messages.is_empty() && report["in"].as_u64() > Some(2000), "{role}: {report}");
    }
    // Those that need interfaces, or a language for policies.
    let roles: &[(&str, &[&str])] = match cfg!(feature = "lua") {
        true => &[("kvcache", &[]), ("grantor", &["deny.txt", "outer.pcapng.zst"])],
        false => &[("kvcache", &[])],
    };
    for &(role, files) in roles {
        let folder = Folder::new();
        let text = example(&folder, role, files);
        folder.write("run.toml", format!("{text}\n[assets]\n[ipfix]\ncollector = \"192.0.2.9:4739\"\n"));
        let said = folder.ok("check run.toml").out;
        assert!(said.contains("fingerprints, flows to 192.0.2.9:4739"), "{role}: {said}");
    }
}

#[test]
fn what_runs_is_asked() {
    let folder = Folder::new();
    let sections = "[control]\nsocket = \"s.sock\"\n[assets]\n[ipfix]\ncollector = \"127.0.0.1:9\"\n";
    let again = "pace = \"time\"\nspeed = 20.0\nrepeat = 0\npreload = true";
    folder.write("run.toml", router(again, sections));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(["run", "run.toml"]).current_dir(folder.path(".")).stdin(Stdio::null());
    let _running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    let assets = loop {
        assert!(began.elapsed() < Duration::from_secs(30), "nothing is seen");
        std::thread::sleep(Duration::from_millis(50));
        let ran = folder.run("show assets --json --socket s.sock");
        let assets = if ran.code == 0 { ran.json() } else { Vec::new() };
        if !banners(&assets).is_empty() {
            break assets;
        }
    };
    assert!(systems(&assets).contains(&"Linux 5 or 6"), "{assets:?}");
    let named = assets.iter().find(|asset| !asset["services"].as_array().unwrap().is_empty()).unwrap();
    let address = named["address"].as_str().unwrap();
    let one = folder.ok(&format!("show assets {address} --socket s.sock")).out;
    assert!(one.contains(address) && one.lines().count() == 2, "{one}");
    let limited = folder.ok("show assets --limit 1 --json --socket s.sock").json();
    assert_eq!(limited.len(), 1);
    let counters = folder.ok("show assets --counters --json --socket s.sock").json().pop().unwrap();
    assert!(counters["counters"]["packets"].as_u64().unwrap() > 0);
    let counters = folder.ok("show ipfix --json --socket s.sock").json().pop().unwrap();
    assert!(counters["counters"]["packets"].as_u64().unwrap() > 0);
    let tables = folder.ok("show tables --json --socket s.sock").json();
    assert!(tables.iter().any(|table| table["name"] == "assets"), "{tables:?}");
    folder.write("run.toml", router(again, &sections.replace("[assets]", "[assets]\nhosts = 100")));
    folder.fail(&[("reload --socket s.sock", 1, "assets: cannot change while it runs")]);
}
