//! `tidemill run` on the real tables and captures: every next hop is the oracle's, nothing crashes, the books balance.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test may

use pcap_file::pcap::PcapReader;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tidemill_burst::{Burst, Memory};
use tidemill_lpm::oracle::Oracle;
use tidemill_lpm::{Address, Label};
use tidemill_port::{Pace, PcapPort, Playback, Port, RxStatus};
use tidemill_wire::{EtherType, ipv4, ipv6, vlan};

fn data(test: &str) -> Option<PathBuf> {
    let found = std::env::var_os("TIDEMILL_DATA").map(PathBuf::from);
    if found.is_none() {
        println!("skipped: {test} (TIDEMILL_DATA is not set)");
    }
    found
}

const CONFIG: &str = r#"
version = 1
role = "router"
[memory]
frame_size = 32768
frames = 1024
[remap]
seed = 1
[[port]]
name = "a"
kind = "pcap"
input = "replaced"
[[port]]
name = "b"
kind = "pcap"
output = "replaced"
[[interface]]
port = "a"
addresses = ["10.77.1.1/24", "fd77:1::1/64"]
[[interface]]
port = "b"
mtu = 9000
[router]
martians = "off"
[next_hops]
ports = ["b"]
"#;

fn run(dir: &Path, input: &Path, output: &Path, tables: &[PathBuf]) -> Output {
    let config = dir.join("router.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.arg("run").arg(&config).arg("--json").arg("--input").arg(input).arg("--output").arg(output);
    tables.iter().for_each(|table| _ = command.arg("--table").arg(table));
    command.output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_str(line).unwrap()
}

/// The captures of a folder of the data; archives are unpacked into `dir`.
fn captures(data: &Path, folder: &str, dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(data.join("pcap").join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().ends_with(".tar.zst") {
            found.push(path);
            continue;
        }
        let mut archive = tar::Archive::new(tidemill_archive::open(&path).unwrap());
        for (n, entry) in archive.entries().unwrap().enumerate() {
            let mut entry = entry.unwrap();
            if entry.header().entry_type().is_file() {
                let name = entry.path().unwrap().file_name().unwrap().to_string_lossy().into_owned();
                let to = dir.join(format!("{folder}-{n}-{name}"));
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).unwrap();
                std::fs::write(&to, bytes).unwrap();
                found.push(to);
            }
        }
    }
    found.sort();
    found
}

/// Joins captures to one, because loading a full table for each of a hundred small ones would take minutes.
fn join(captures: &[PathBuf], to: &Path) -> u64 {
    let mut pool = Memory::new(512, 32768).unwrap().pool(512).unwrap();
    let mut writer = PcapPort::open("joined", None, Some(to), 1).unwrap().remove(0);
    let mut burst = Burst::new();
    for input in captures {
        let input =
            Playback { input: input.clone(), repeat: 1, pace: Pace::Flat, limit: None, preload: false };
        let mut reader = PcapPort::open("part", Some(&input), None, 1).unwrap().remove(0);
        loop {
            match reader.rx(0, &mut pool, &mut burst) {
                Ok(RxStatus::Ended) if burst.is_empty() => break,
                Ok(_) => writer.tx(0, &mut pool, &mut burst).unwrap(),
                // A few captures are of link types that are not Ethernet's kin: nothing to route.
                Err(error) if error.to_string().contains("link type") => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    writer.finish(0, &mut pool).unwrap();
    writer.counters().tx.packets
}

/// Checks every packet of an output capture; returns how many there were.
fn check_next_hops(path: &Path, v4: &Oracle<u32>, v6: &Oracle<u128>) -> u64 {
    let mut reader = PcapReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut packets = 0;
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        let l2 = vlan::L2::parse(packet.data()).unwrap();
        let header = &packet.data()[l2.l3_offset..];
        let (expected, destination) = match l2.ethertype {
            EtherType::IPV4 => (v4.lookup(ipv4::dst_u32(header)), ipv4::dst_u32(header).to_ip()),
            EtherType::IPV6 => (v6.lookup(ipv6::dst_u128(header)), ipv6::dst_u128(header).to_ip()),
            other => panic!("{}: sent {other:?}", path.display()),
        };
        assert_eq!(packet.data()[..2], [0x02, 0x54], "a neighbour's address that we made");
        let label = Label(u32::from_be_bytes(packet.data()[2..6].try_into().unwrap()));
        assert_eq!(label, expected, "{}: packet {packets}, to {destination}", path.display());
        if l2.ethertype == EtherType::IPV4 {
            assert!(ipv4::checksum_ok(header), "{}: packet {packets}", path.display());
        }
        packets += 1;
    }
    packets
}

#[test]
fn real_captures_are_routed_as_the_oracle_says() {
    let Some(data) = data("real_captures_are_routed_as_the_oracle_says") else { return };
    let dir = tempfile::tempdir().unwrap();
    let table = |family: &str| data.join(format!("rib/ris-as3333-20260511.{family}.nh148.zst"));
    let tables = [table("v4"), table("v6")];
    let paths: Vec<&Path> = tables.iter().map(PathBuf::as_path).collect();
    let loaded = tidemill_feed::load_all(&paths, &Default::default()).unwrap();
    assert_eq!((loaded.v4.len(), loaded.v6.len()), (1_042_325, 246_175));
    let list4: Vec<_> = loaded.v4.iter().collect();
    let list6: Vec<_> = loaded.v6.iter().collect();
    let (v4, v6) = (Oracle::new(&list4), Oracle::new(&list6));

    let mut checked = 0;
    for folder in ["mix", "dns", "ddos", "frag"] {
        let (joined, to) = (dir.path().join("joined.pcapng"), dir.path().join("out.pcap"));
        let packets = join(&captures(&data, folder, dir.path()), &joined);
        let output = run(dir.path(), &joined, &to, &tables);
        assert_eq!(output.status.code(), Some(0), "{folder}: {}", String::from_utf8_lossy(&output.stderr));
        let report = json(&output);
        let node = |name: &str, key: &str| {
            let nodes = report["nodes"].as_array().unwrap();
            nodes.iter().find(|n| n["name"] == name).unwrap()[key].as_u64().unwrap()
        };
        let made = node("icmp4-error", "made") + node("icmp6-error", "made");
        let valid = node("ip4-lookup", "packets") + node("ip6-lookup", "packets") - made;
        let routed = node("ip4-forward", "packets") + node("ip6-forward", "packets");
        let drops: BTreeMap<String, u64> = serde_json::from_value(report["dropped"].clone()).unwrap();
        let sent = check_next_hops(&to, &v4, &v6);
        println!("{folder}: in {packets}, valid {valid}, routed {routed}, sent {sent}, dropped {drops:?}");
        assert_eq!(Some(packets), report["in"].as_u64(), "{folder}");
        assert_eq!(Some(sent), report["out"].as_u64(), "{folder}");
        assert!(routed * 100 >= valid * 95, "{folder}: {routed} of {valid} routed");
        checked += sent;
    }
    println!("{checked} packets sent, every next hop the oracle's");
    assert!(checked > 50_000);
}

#[test]
fn real_malformed_captures_end_in_clean_errors_or_counted_drops() {
    let Some(data) = data("real_malformed_captures_end_in_clean_errors_or_counted_drops") else { return };
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("table.txt");
    std::fs::write(&table, "0.0.0.0/1\t1\n128.0.0.0/1\t2\n10.0.0.0/8\t3\n::/1\t4\n2000::/3\t5\n").unwrap();
    let (mut clean, mut refused, mut packets) = (0, 0, 0);
    for folder in ["malformed", "icmp"] {
        for capture in captures(&data, folder, dir.path()) {
            let output =
                run(dir.path(), &capture, &dir.path().join("out.pcap"), std::slice::from_ref(&table));
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.code() {
                Some(0) => clean += 1,
                Some(1) => {
                    refused += 1;
                    let line = error.lines().next().unwrap_or_default();
                    let named = line.contains(&*capture.to_string_lossy());
                    assert!(line.starts_with("tidemill: ") && named, "{}: {error}", capture.display());
                    assert_eq!(error.lines().count(), 1, "one line: {error}");
                }
                other => panic!("{}: ended with {other:?}: {error}", capture.display()),
            }
            if !output.stdout.is_empty() {
                let report = json(&output);
                let drops: BTreeMap<String, u64> = serde_json::from_value(report["dropped"].clone()).unwrap();
                let n = |key: &str| report[key].as_u64().unwrap();
                let ends = n("out") + n("consumed") + n("held") + drops.values().sum::<u64>();
                assert_eq!(n("in") + n("made"), ends, "{}", capture.display());
                packets += n("in");
            }
        }
    }
    println!("{clean} captures read to the end, {refused} refused with a line, {packets} packets");
    assert!(clean > 500 && refused > 10 && packets > 10_000);
}
