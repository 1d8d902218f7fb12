//! What tshark finds in a capture of encapsulated packets: no malformed one, no bad checksum, the fields of the wire facts, and
//! whole packets where we have cut them. Needs the package tshark, not root.

#![allow(clippy::unwrap_used)]

mod tunnel;

use std::path::{Path, PathBuf};
use std::process::Command;
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, ipv4, ipv6};
use tunnel::frames::{self, GRANTOR4, GRANTOR6, SOURCE4, SOURCE6};
use tunnel::{Input, Setup};

/// A capture in pcap's classic format.
fn capture(name: &str, frames: &[Vec<u8>]) -> PathBuf {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0002_0004_u32.rotate_left(16), 0, 0, 65535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (n, frame) in frames.iter().enumerate() {
        for word in [1_700_000_000, n as u32, frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// The lines that tshark prints of the packets that the filter takes.
fn tshark(capture: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut tshark = Command::new("tshark");
    for protocol in ["ip", "udp"] {
        tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    tshark.arg("-n").arg("-r").arg(capture).args(["-T", "fields", "-E", "separator=;"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    if !filter.is_empty() {
        tshark.args(["-Y", filter]);
    }
    let output = tshark.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Malformed packets, errors of any dissector, wrong checksums.
fn faults(capture: &Path) -> Vec<String> {
    let faults = "_ws.malformed || _ws.expert.severity == error || ip.checksum.status == 0 || \
                  udp.checksum.status == 0";
    tshark(capture, faults, &["frame.number", "_ws.col.Info"])
}

fn finds_no_fault(capture: &Path) {
    assert_eq!(faults(capture), Vec::<String>::new(), "{}", capture.display());
}

/// It does find faults: of the outer and the inner checksum, and of the datagram's.
fn finds_faults(frame: &[u8]) {
    for at in [24, 44, 60] {
        let mut broken = frame.to_vec();
        broken[at] ^= 0x40;
        assert_eq!(faults(&capture("broken4.pcap", &[broken])).len(), 1, "byte {at} is wrong");
    }
}

/// Whether a test can run. Says so if it has to be skipped, which it never is in CI.
fn has_tshark(test: &str) -> bool {
    let has = Command::new("tshark").arg("-v").output().is_ok();
    if !has {
        assert!(
            std::env::var_os("CI").is_none(),
            "{test} must not be skipped in CI: tshark is not installed"
        );
        println!("skipped: {test} (tshark is not installed)");
    }
    has
}

/// A whole UDP datagram of `len` bytes below this pseudo header.
fn udp(pseudo: Pseudo, len: usize) -> Vec<u8> {
    let mut bytes = [[0x9c, 0x40, 0, 80], [(len >> 8) as u8, len as u8, 0, 0]].concat();
    bytes.extend((8..len).map(|n| (n % 251) as u8));
    let check = pseudo.checksum(Protocol::UDP, &bytes);
    bytes[6..8].copy_from_slice(&check.to_be_bytes());
    bytes
}

fn inner4(len: usize) -> Vec<u8> {
    let (src, dst) = ("198.51.100.7".parse().unwrap(), "203.0.113.80".parse().unwrap());
    let header =
        ipv4::Repr { dont_fragment: false, ident: 99, ..ipv4::Repr::new(src, dst, Protocol::UDP, len - 20) };
    let mut bytes = vec![0; 20];
    header.emit(&mut bytes).unwrap();
    bytes.extend(udp(Pseudo::V4 { src, dst }, len - 20));
    bytes
}

fn inner6(len: usize) -> Vec<u8> {
    let (src, dst) = ("2001:db8:a::7".parse().unwrap(), "2001:db8:b::80".parse().unwrap());
    let mut bytes = vec![0; 40];
    ipv6::Repr::new(src, dst, Protocol::UDP, len - 40).emit(&mut bytes).unwrap();
    bytes.extend(udp(Pseudo::V6 { src, dst }, len - 40));
    bytes
}

#[test]
fn tshark_reads_the_wire_facts() {
    if !has_tshark("tshark_reads_the_wire_facts") {
        return;
    }
    let (goldens4, goldens6) = frames::all();
    let inputs = goldens4.iter().map(|(dscp, before, _)| Input::new::<u32>(before, 1, 0, *dscp));
    let sent = Setup::<u32>::new(SOURCE4, GRANTOR4).run(inputs.collect()).forward;
    let path = capture("tunnel4.pcap", &sent);
    finds_no_fault(&path);
    finds_faults(&sent[0]);
    let fields = ["ip.src", "ip.dst", "ip.proto", "ip.ttl", "ip.id", "ip.flags.df", "ip.hdr_len", "ip.len"];
    let more = ["ip.dsfield.dscp", "ip.dsfield.ecn", "ip.checksum.status"];
    let lines = tshark(&path, "", &[&fields[..], &more[..]].concat());
    assert_eq!(lines.len(), goldens4.len());
    for (line, (dscp, before, _)) in lines.iter().zip(&goldens4) {
        // Each field of the outer header, then of the inner one.
        let values: Vec<Vec<&str>> = line.split(';').map(|field| field.split(',').collect()).collect();
        let outer: Vec<&str> = values.iter().map(|values| values[0]).collect();
        let (len, dscp, ecn) =
            ((before.len() + 20).to_string(), dscp.to_string(), (before[1] & 3).to_string());
        let [src, dst, proto, ttl, id, df, header, total, code, congestion, check] = outer[..] else {
            panic!("{line}")
        };
        assert_eq!((src, dst, proto, ttl), (SOURCE4, GRANTOR4, "4", "64"), "{line}");
        assert_eq!((id, header, total), ("0x0000", "20", &*len), "{line}");
        assert!(["1", "True"].contains(&df) && ["1", "Good"].contains(&check), "{line}");
        assert_eq!((code, congestion), (&*dscp, &*ecn), "{line}");
        assert_eq!((values[3][1], values[9][1]), (&*(before[8] - 1).to_string(), &*ecn), "{line}");
        assert!(["1", "Good"].contains(&values[10][1]), "{line}");
    }

    let inputs = goldens6.iter().map(|(dscp, before, _)| Input::new::<u128>(before, 1, 0, *dscp));
    let sent = Setup::<u128>::new(SOURCE6, GRANTOR6).run(inputs.collect()).forward;
    let path = capture("tunnel6.pcap", &sent);
    finds_no_fault(&path);
    let fields = ["ipv6.src", "ipv6.dst", "ipv6.nxt", "ipv6.hlim", "ipv6.plen", "ipv6.flow"];
    let more = ["ipv6.tclass.dscp", "ipv6.tclass.ecn"];
    let lines = tshark(&path, "", &[&fields[..], &more[..]].concat());
    assert_eq!(lines.len(), goldens6.len());
    for (line, (dscp, before, _)) in lines.iter().zip(&goldens6) {
        let values: Vec<Vec<&str>> = line.split(';').map(|field| field.split(',').collect()).collect();
        let outer: Vec<&str> = values.iter().map(|values| values[0]).collect();
        let (len, dscp, ecn) = (before.len().to_string(), dscp.to_string(), (before[1] >> 4 & 3).to_string());
        let [src, dst, next, hops, payload, flow, code, congestion] = outer[..] else { panic!("{line}") };
        assert_eq!((src, dst, next, hops, payload), (SOURCE6, GRANTOR6, "41", "255", &*len), "{line}");
        let flow = u32::from_str_radix(flow.trim_start_matches("0x"), 16).unwrap();
        assert_eq!((flow, code, congestion), (0x967f8, &*dscp, &*ecn), "{line}");
        assert_eq!(values[3][1], (before[7] - 1).to_string(), "{line}");
    }
}

/// What was cut comes together again, with the datagram's own checksum: the inner packet of IPv4, the outer one of IPv6.
#[test]
fn tshark_puts_together_what_was_cut() {
    if !has_tshark("tshark_puts_together_what_was_cut") {
        return;
    }
    let setup = Setup { mtu: 1500, ..Setup::<u32>::new(SOURCE4, GRANTOR4) };
    let sent = setup.run(vec![Input::new::<u32>(&inner4(4000), 0, 0, 41)]).forward;
    assert_eq!(sent.len(), 3);
    let path = capture("cut4.pcap", &sent);
    finds_no_fault(&path);
    let whole = tshark(&path, "udp", &["udp.length", "udp.checksum.status"]);
    assert!(["3980;1", "3980;Good"].contains(&&*whole[0]) && whole.len() == 1, "{whole:?}");

    let setup = Setup { mtu: 1280, ..Setup::<u128>::new(SOURCE6, GRANTOR6) };
    let inputs = [1280, 1250].map(|len| Input::new::<u128>(&inner6(len), 0, 0, 41));
    let sent = setup.run(inputs.to_vec()).forward;
    assert_eq!(sent.len(), 4);
    let path = capture("cut6.pcap", &sent);
    finds_no_fault(&path);
    let whole = tshark(&path, "udp", &["udp.length", "udp.checksum.status"]);
    assert!(["1240;1", "1240;Good"].contains(&&*whole[0]), "{whole:?}");
    assert!(["1210;1", "1210;Good"].contains(&&*whole[1]) && whole.len() == 2, "{whole:?}");
}
