//! A router, and a Gatekeeper, on DPDK's devices, from a configuration file: captures in and out by `net_pcap`.

#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use pcap_file::pcap::PcapReader;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tool::{Folder, Ran};

/// Packets of the capture that is routed: no more than wait for a worker. And flows.
const PACKETS: usize = 1000;
const FLOWS: usize = 40;

const CONFIG: &str = r#"
version = 1
role = "router"
[run]
workers = WORKERS
[dpdk]
arguments = ["-m", "128", "--no-huge"]
[control]
socket = "s.sock"
[table]
path = "table.txt"
[[port]]
name = "lan"
kind = "dpdk"
device = "net_pcap0,rx_pcap=in.pcap,tx_pcap=lan.pcap"
queues = 1
[[port]]
name = "wan"
kind = "dpdk"
device = "net_pcap1,rx_pcap=empty.pcap,tx_pcap=wan.pcap"
queues = 1
[[interface]]
port = "lan"
promiscuous = true
addresses = ["198.18.0.1/24"]
[next_hops]
ports = ["wan"]
"#;

fn frames(folder: &Folder, name: &str) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(folder.path(name)).unwrap();
    let mut reader = PcapReader::new(&bytes[..]).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(packet.unwrap().data().to_vec());
    }
    frames
}

/// Where a frame has its number, at which nobody looks: the end of an IPv4 packet, the flow label of an IPv6 one.
fn number(frame: &[u8]) -> Range<usize> {
    if frame[12..14] == [8, 0] { frame.len() - 2..frame.len() } else { 16..18 }
}

/// The first packets of a capture, one of each flow, over and over, numbered.
fn numbered(capture: &[u8]) -> Vec<u8> {
    let (head, mut rest) = capture.split_at(24);
    let mut flows = Vec::new();
    while flows.len() < FLOWS {
        // Two words of time, then the packet's length, twice.
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let (record, more) = rest.split_at(16 + len);
        flows.push(record.to_vec());
        rest = more;
    }
    let mut all = head.to_vec();
    for n in 0..PACKETS {
        let record = &mut flows[n % FLOWS];
        let frame = &mut record[16..];
        let place = number(frame);
        frame[place].copy_from_slice(&(n as u16).to_be_bytes());
        all.extend_from_slice(record);
    }
    all
}

/// Each flow's packets are in order.
fn assert_in_order(frames: &[Vec<u8>]) {
    let mut flows = BTreeMap::<&[u8], Vec<u16>>::new();
    for frame in frames {
        // Addresses and ports.
        let flow = if frame[12..14] == [8, 0] { &frame[26..38] } else { &frame[22..58] };
        let number = u16::from_be_bytes(frame[number(frame)].try_into().unwrap());
        flows.entry(flow).or_default().push(number);
    }
    assert!(flows.len() > FLOWS / 2 && flows.values().all(|numbers| numbers.is_sorted()), "{flows:?}");
}

/// Routes a capture with as many workers.
fn routed(workers: usize) -> Vec<Vec<u8>> {
    let folder = Folder::new();
    folder
        .write("router.toml", CONFIG.replace("WORKERS", &workers.to_string()))
        .write("table.txt", "20.0.0.0/8\t1\n20.1.0.0/16\t2\n30.0.0.0/8\t3\n2a00::/12\t2\n");
    folder.ok("gen traffic --table table.txt --pattern prefix --packets 100 --seed 3 -o in.pcap");
    let whole = std::fs::read(folder.path("in.pcap")).unwrap();
    folder.write("empty.pcap", &whole[..24]).write("in.pcap", numbered(&whole));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(["run", "router.toml", "--duration", "5", "--json"]).current_dir(folder.path(""));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Each worker has its share.
    let (began, mut shares) = (Instant::now(), Vec::<u64>::new());
    while shares.iter().sum::<u64>() < PACKETS as u64 && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
        let ran = folder.run("show workers --json --socket s.sock");
        if ran.code == 0 {
            shares = ran.json().iter().map(|worker| worker["packets"].as_u64().unwrap()).collect();
        }
    }
    let output = child.wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    let ran = Ran { code: output.status.code().unwrap_or(-1), out, err };
    let report = ran.json().pop().unwrap();
    assert!(shares.len() == workers && shares.iter().all(|share| *share > 0), "{shares:?} {report}");
    let dropped: u64 = report["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!((&report["in"], &report["out"], dropped), (&PACKETS.into(), &PACKETS.into(), 0), "{report}");
    assert!(frames(&folder, "lan.pcap").is_empty());
    let (before, after) = (frames(&folder, "in.pcap"), frames(&folder, "wan.pcap"));
    assert_eq!((before.len(), after.len()), (PACKETS, PACKETS));
    assert_in_order(&after);
    if workers == 1 {
        for (before, after) in before.iter().zip(&after) {
            let v4 = before[12..14] == [8, 0];
            let ttl = if v4 { 22 } else { 21 };
            assert_eq!((after.len(), after[ttl]), (before.len(), before[ttl] - 1));
            // The sender is the device: its MAC address is none of those that we make up.
            assert_ne!(after[6..10], [2, 0x49, 0, 0]);
            assert_eq!(after[30..], before[30..]);
        }
    }
    after
}

#[test]
fn root_a_capture_is_routed_between_dpdk_devices() {
    let alone = routed(1);
    let mut shared = routed(2);
    // Two workers keep each flow's order; together they send the same.
    let mut sorted: Vec<_> = alone.iter().map(|frame| frame[12..].to_vec()).collect();
    let mut other: Vec<_> = shared.drain(..).map(|frame| frame[12..].to_vec()).collect();
    sorted.sort();
    other.sort();
    assert!(sorted == other, "two workers send something else than one");
}

const GATEKEEPER: &str = r#"
version = 1
role = "gatekeeper"
[dpdk]
arguments = ["-m", "128", "--no-huge"]
[[port]]
name = "front"
kind = "dpdk"
device = "net_pcap0,rx_pcap=in.pcap,tx_pcap=front.pcap"
queues = 1
[[port]]
name = "back"
kind = "dpdk"
device = "net_pcap1,rx_pcap=empty.pcap,tx_pcap=back.pcap"
queues = 1
[[interface]]
port = "front"
promiscuous = true
addresses = ["198.18.0.1/24"]
[[interface]]
port = "back"
addresses = ["10.77.2.1/24", "fd77:2::1/64"]
[[route]]
prefix = "10.77.2.8/30"
port = "back"
mac = "02:00:00:00:00:09"
[[route]]
prefix = "fd77:2::8/126"
port = "back"
mac = "02:00:00:00:00:09"
[gatekeeper]
front = ["front"]
flows = 4096
decisions = "none"
[[gatekeeper.policy]]
prefix = "0.0.0.0/0"
action = "grantor"
grantors = ["10.77.2.9"]
[[gatekeeper.policy]]
prefix = "::/0"
action = "grantor"
grantors = ["fd77:2::9"]
"#;

/// Each packet is of a flow that never was: it asks, in an outer packet to the Grantor of its family, with the first level's code point.
#[test]
fn root_a_gatekeeper_asks_from_one_dpdk_device_to_another() {
    let folder = Folder::new();
    folder
        .write("gate.toml", GATEKEEPER)
        .write("4.txt", "20.0.0.0/8\t1\n20.1.0.0/16\t2\n30.0.0.0/8\t3\n")
        .write("6.txt", "2a00::/12\t2\n");
    for family in ["4", "6"] {
        folder.ok(&format!(
            "gen traffic --table {family}.txt --pattern prefix --packets 150 --seed 3 -o {family}.pcap"
        ));
    }
    let [mut whole, other] = ["4.pcap", "6.pcap"].map(|name| std::fs::read(folder.path(name)).unwrap());
    folder.write("empty.pcap", &whole[..24]);
    whole.extend_from_slice(&other[24..]);
    folder.write("in.pcap", &whole);
    let report = folder.ok("run gate.toml --duration 1 --json").json().pop().unwrap();
    assert_eq!((&report["in"], &report["out"]), (&300.into(), &300.into()), "{report}");
    assert_eq!((&report["gate"]["requests"], &report["held"]), (&300.into(), &0.into()), "{report}");
    assert!(frames(&folder, "front.pcap").is_empty());
    // The addresses of each packet, and of what is in each outer one.
    let mut asked: Vec<Vec<u8>> = frames(&folder, "in.pcap")
        .iter()
        .map(|frame| frame[if frame[12..14] == [8, 0] { 26..34 } else { 22..54 }].to_vec())
        .collect();
    let inner = |frame: &Vec<u8>| {
        if frame[12..14] == [8, 0] {
            assert_eq!((frame[15] >> 2, frame[23], &frame[30..34]), (41, 4, &[10, 77, 2, 9][..]));
            frame[14 + 20..][12..20].to_vec()
        } else {
            let class = frame[14] << 4 | frame[15] >> 4;
            assert_eq!((class >> 2, frame[20], &frame[52..54]), (41, 41, &[0, 9][..]));
            frame[14 + 40..][8..40].to_vec()
        }
    };
    let mut outer: Vec<Vec<u8>> = frames(&folder, "back.pcap").iter().map(inner).collect();
    asked.sort();
    outer.sort();
    assert!(asked.len() == 300 && asked == outer, "{} of {}", outer.len(), asked.len());
    assert!(asked.iter().any(|key| key.len() == 8) && asked.iter().any(|key| key.len() == 32));
}

/// As many IPv6 packets are sent as were received, each to the next hop of its longest prefix, once forwarded and with its checksum right.
#[test]
fn root_ipv6_between_devices_that_cost_nothing() {
    let folder = Folder::new();
    let key = |n: u16| {
        let [high, low] = n.to_be_bytes();
        [0x20, 0x01, 0x0d, 0xb8, 0, (n % 3) as u8, 0, 0, 0, 0, 0, 0, 0, 0, high, low]
    };
    folder.write("v6.txt", "2001:db8::/32\t7\n2001:db8:1::/48\t300\n");
    folder.write("keys6", (0..4096).flat_map(key).collect::<Vec<u8>>());
    let labels = (0..4096).map(|n| if n % 3 == 1 { 300_u32 } else { 7 });
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let expected = labels.flat_map(u32::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, step);
    let line = "bench port dpdk --runner --table v6.txt --keys keys6";
    let lines = folder.run_with(line, "run check\nrun route\nrun io\nquit\n").json();
    assert_eq!((lines.len(), &lines[0]["routes"]), (4, &2.into()));
    assert_eq!(lines[1]["checksum"], format!("{expected:016x}"));
    for line in &lines[1..] {
        assert!(line["sent"].as_u64() >= Some(4096) && line["sent"] == line["received"], "{line}");
        // All but the first burst's are timed, and the packets of a burst are 256 at most.
        let (all, timed) = (line["received"].as_u64().unwrap(), line["lookups"].as_u64().unwrap());
        assert!((1..=256).contains(&(all - timed)) && line["seconds"].as_f64() > Some(0.0), "{line}");
    }
}

/// Neither starts DPDK for it.
#[test]
fn root_check_finds_what_run_would_refuse() {
    let folder = Folder::new();
    for (text, said) in [
        (
            "[dpdk]\narguments = ['--help']\n",
            "port `a`: [dpdk] arguments: --help: DPDK would print its manual",
        ),
        (
            "[dpdk]\narguments = ['--proc-type', 'secondary']\n",
            "port `a`: [dpdk] arguments: --proc-type=secondary: nothing is shared",
        ),
        (
            "[dpdk]\narguments = ['-a', '3b:00.0,mprq_en=1']\n",
            "port `a`: [dpdk] arguments: mprq_en=1 has the driver receive into buffers of its own",
        ),
        ("mtu = 3000\n", "port `a`: frames of 2048 bytes do not hold packets of mtu = 3000"),
    ] {
        let port = "[[port]]\nname = 'a'\nkind = 'dpdk'\ndevice = 'net_null0'\n";
        folder.write("a.toml", format!("version = 1\nrole = 'router'\n{port}{text}"));
        folder.fail(&[("check a.toml", 2, said), ("run a.toml --duration 1", 2, said)]);
    }
    // Who has no such port never starts it.
    let port = "[[port]]\nname = 'a'\nkind = 'null'\n";
    folder.write("a.toml", format!("version = 1\nrole = 'router'\n{port}[dpdk]\narguments = ['--help']\n"));
    folder.ok("check a.toml");
}

#[test]
fn root_a_build_without_such_a_device_says_so() {
    let folder = Folder::new();
    folder.write(
        "router.toml",
        "version = 1\nrole = 'router'\n[[port]]\nname = 'a'\nkind = 'dpdk'\ndevice = 'net_nothing0'\n",
    );
    let ran = folder.run("run router.toml --duration 1");
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("port `a`: DPDK has no device \"net_nothing0\""), "{}", ran.err);
    assert_eq!(ran.err.trim().lines().count(), 1, "{}", ran.err);
}
