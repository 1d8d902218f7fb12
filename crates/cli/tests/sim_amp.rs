//! `tidemill sim amp`, as a user sees it.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::{Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_port::capture::{Sense, Writer};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6, udp};
use tool::Folder;

fn points(folder: &Folder, line: &str) -> Vec<Value> {
    let lines = folder.ok(&format!("sim amp --json {line}")).json();
    assert!(lines.iter().all(|line| line["figure"].is_string() && line["unit"].is_string()), "{lines:?}");
    lines
}

/// A series in a unit: where, and how much.
fn series(lines: &[Value], unit: &str, name: &str) -> Vec<(Value, f64)> {
    let of = |line: &&Value| line["unit"] == unit && line["series"] == name;
    lines.iter().filter(of).map(|line| (line["x"].clone(), line["y"].as_f64().unwrap())).collect()
}

fn values(lines: &[Value], unit: &str, name: &str) -> Vec<f64> {
    series(lines, unit, name).into_iter().map(|(_, y)| y).collect()
}

#[test]
fn the_list_has_them() {
    let list = Folder::new().ok("sim amp --figure list").out;
    for name in ["tok-5.3.3", "tok-5.4", "tok-5.7", "tok-5.8", "tok-5.12", "tok-5.13"] {
        assert!(list.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}: {list}");
    }
}

#[test]
fn wrong_words_get_a_line() {
    let folder = Folder::new();
    folder.write("not-a-capture", "text");
    folder.fail(&[
        ("sim amp --figure tok-9", 2, "use list"),
        ("sim amp --figure tok-5.13 --pps 0", 2, "--pps 0"),
        ("sim amp --figure tok-5.13 --rtt-ms=-1", 2, "--rtt-ms"),
        ("sim amp --figure tok-5.7 --capture absent.pcap", 1, "absent.pcap"),
        ("sim amp --figure tok-5.7 --capture not-a-capture", 1, "not-a-capture"),
        (
            "sim amp --figure tok-5.4 --capture absent.pcap",
            2,
            "--capture: tok-5.4 is made of no captures: leave it out, or make one of tok-5.3.3, tok-5.7, tok-5.8",
        ),
        ("sim amp --figure tok-5.4 --plot absent/f.svg", 2, "give a file that can be written"),
        ("sim amp", 2, "--figure"),
    ]);
}

#[test]
fn tables_are_as_the_paper_says() {
    let folder = Folder::new();
    let lines = points(&folder, "--figure tok-5.4 --patterns --plot f.svg");
    let alone = "percent alone in their slot";
    let crc = series(&lines, alone, "crc32");
    assert_eq!(crc.len(), 20, "two sizes");
    for (x, y) in &crc {
        let x = x.as_f64().unwrap();
        assert_eq!(*y == 0.0, (600.0..=1000.0).contains(&x) || x > 500_000.0, "{x}: {y}");
        assert_eq!(*y == 100.0, x <= 200.0 || x == 100_000.0 || x == 200_000.0, "{x}: {y}");
    }
    let at = |unit: &str, name: &str, n: u32| {
        series(&lines, unit, name).into_iter().find(|(x, _)| x.as_f64() == Some(n.into())).unwrap().1
    };
    assert!((36.0..40.0).contains(&at(alone, "lookup3", 1000)));
    let kept = "percent with a rule that stays";
    assert!((62.0..66.0).contains(&at(kept, "lookup3", 1000)));
    assert_eq!(at(kept, "crc32", 1000), 25.6, "256 slots are reached");
    assert_eq!(at(kept, "CAM, 1024 entries", 1000), 100.0);
    assert!(
        at(kept, "ours", 1000) > 98.0 && at(kept, "ours", 200_000) > 99.9,
        "two buckets, and no moves for suspicions"
    );
    assert_eq!(at(kept, "CAM, 1024 entries", 100_000), 1.024);
    let paper = |line: &&Value| !line["paper"].is_null();
    assert!(
        lines.iter().filter(paper).any(|line| line["paper"] == json!(38.0) && line["x"] == json!(1000.0))
    );
    let patterns =
        values(&lines, "percent alone in their slot, by pattern", "crc32, source and port, little, low");
    assert_eq!(patterns, crc.iter().map(|(_, y)| *y).collect::<Vec<_>>());
    assert!(folder.read("f.svg").matches("<polyline").count() > 8);
}

/// A capture with three ICMP messages, one of them not of this kind, and a UDP packet.
fn capture(folder: &Folder) {
    let (a, b) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 9));
    let (c, d): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let datagram = |port, v6: bool| {
        let mut bytes = vec![0; 8 + 20];
        let pseudo = if v6 { Pseudo::V6 { src: c, dst: d } } else { Pseudo::V4 { src: a, dst: b } };
        udp::Repr { src_port: port, dst_port: 4000, payload_len: 20 }.emit(&mut bytes, &pseudo).unwrap();
        bytes
    };
    let v4 = |src, dst, protocol, payload: &[u8]| {
        let mut bytes = vec![0; 20];
        ipv4::Repr::new(src, dst, protocol, payload.len()).emit(&mut bytes).unwrap();
        [&bytes[..], payload].concat()
    };
    let v6 = |src, dst, protocol, payload: &[u8]| {
        let mut bytes = vec![0; 40];
        ipv6::Repr::new(src, dst, protocol, payload.len()).emit(&mut bytes).unwrap();
        [&bytes[..], payload].concat()
    };
    let message = |code, quoted: &[u8]| {
        let mut bytes = [&[0; 8], quoted].concat();
        icmpv4::Repr::DestUnreachable { code }.emit(&mut bytes).unwrap();
        bytes
    };
    let response = v4(a, b, Protocol::UDP, &datagram(53, false));
    let other = v4(a, b, Protocol::UDP, &datagram(4321, false));
    let response6 = v6(c, d, Protocol::UDP, &datagram(53, true));
    let mut message6 = [&[0; 8], &response6[..]].concat();
    icmpv6::Repr::DestUnreachable { code: 4 }.emit(&mut message6, &Pseudo::V6 { src: d, dst: c }).unwrap();
    let packets = [
        response.clone(),
        // The least that the standard asks for, and all of it.
        v4(b, a, Protocol::ICMP, &message(3, &response[..28])),
        v4(b, a, Protocol::ICMP, &message(3, &response)),
        v4(b, a, Protocol::ICMP, &message(3, &other)),
        // Host unreachable.
        v4(b, a, Protocol::ICMP, &message(1, &response)),
        v6(d, c, Protocol::ICMPV6, &message6),
    ];
    let writer = Writer::create(&folder.path("c.pcap")).unwrap();
    for packet in packets {
        let ethertype: u16 = if packet[0] >> 4 == 6 { 0x86dd } else { 0x0800 };
        let frame = [&[2; 12], &ethertype.to_be_bytes()[..], &packet].concat();
        writer.write(1_000_000_000, Sense::Unknown, &frame, 0).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn messages_of_a_capture_are_counted() {
    let folder = Folder::new();
    capture(&folder);
    let lines = points(&folder, "--figure tok-5.7 --capture c.pcap");
    for name in ["c.pcap", "all"] {
        let at = |series_name| {
            series(&lines, "pairs of addresses", series_name).into_iter().find(|(x, _)| x == name).unwrap().1
        };
        assert_eq!((at("port unreachable"), at("about DNS")), (2.0, 2.0), "a pair of each family");
    }
    assert!(lines[0]["table"].as_str().unwrap().starts_with("6 packets of 1 captures (0 of them"));
    let text = folder.ok("sim amp --figure tok-5.7 --capture c.pcap --capture c.pcap").out;
    assert!(
        text.contains(
            "messages: 8 (2 of them IPv6); about DNS: 6; with enough of the packet to tell its flow: 8"
        ),
        "{text}"
    );

    let lines = points(&folder, "--figure tok-5.8 --capture c.pcap");
    assert_eq!(values(&lines, "bytes", "IPv4"), [56.0, 28.0]);
    assert_eq!(values(&lines, "bytes", "IPv6"), [116.0, 68.0]);
    let percent = series(&lines, "percent of the messages", "IPv4");
    let at = |len: f64| percent.iter().find(|(x, _)| x.as_f64() == Some(len)).unwrap().1;
    assert_eq!((at(55.0), at(56.0), at(72.0), at(80.0)), (0.0, 33.3333, 33.3333, 100.0));
}

#[test]
fn an_attack_is_over_when_every_amplifier_has_its_rule() {
    let folder = Folder::new();
    let lines = points(&folder, "--figure tok-5.13 --pps 50000 --rtt-ms 2");
    let seconds = "seconds until all are filtered";
    // One victim, one that is careful with each amplifier too, many victims: by amplifiers.
    for name in ["table of 262144 entries, crc32", "the mitigator"] {
        let times = values(&lines, seconds, name);
        assert_eq!(times.len(), 3 * 7, "{name}");
        let (one, many) = (&times[..7], &times[14..]);
        for (i, amplifiers) in
            [512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0].into_iter().enumerate()
        {
            let least = (amplifiers - 50.0) / 1000.0;
            assert!((least..least + 0.7).contains(&one[i]), "{name}, {amplifiers}: {}", one[i]);
            let least = (amplifiers - 1.0) / 50_000.0;
            assert!((least..least + 0.003).contains(&many[i]), "{name}, {amplifiers}: {}", many[i]);
        }
    }
    let cam = series(&lines, seconds, "CAM of 1024 entries");
    assert!(cam.iter().all(|(x, _)| x.as_f64().unwrap() <= 1024.0), "never done with more: {cam:?}");
    assert_eq!(cam.len(), 3 * 2);
}

#[test]
fn what_passes_becomes_less() {
    let folder = Folder::new();
    let lines = points(&folder, "--figure tok-5.12 --pps 20000");
    let rates = values(&lines, "thousand packets/s that pass", "8192 amplifiers");
    // One and many victims, three tables, twenty points each.
    assert_eq!(rates.len(), 2 * 3 * 20);
    let (table, cam) = (&rates[..20], &rates[20..40]);
    assert!(
        table[0] > 10.0 && table[19] == 0.0 && table.windows(2).all(|two| two[1] <= two[0] + 1.0),
        "{table:?}"
    );
    assert!(cam[19] > 10.0, "most of 8192 are not in 1024 entries: {cam:?}");
}
