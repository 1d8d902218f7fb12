//! `tidemill gen`: what it makes can be read, is the same for the same seed, and is what was asked for.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use std::net::Ipv4Addr;
use tidemill_port::capture::Reader;
use tool::Folder;

#[test]
fn tables_repeat_and_load() {
    let folder = Folder::new();
    let ran = folder.ok("gen table --ipv4 2000 --ipv6 500 --next-hops 9 --seed 5 -o a.txt -v");
    assert!(ran.out.is_empty() && ran.err.contains("2000 IPv4 and 500 IPv6 prefixes"), "{}", ran.err);
    assert!(ran.err.contains("most frequent lengths: /24 "), "{}", ran.err);
    folder.ok("gen table --ipv4 2000 --ipv6 500 --next-hops 9 --seed 5 -o b.csv.zst");
    assert!(
        folder.ok("fib diff a.txt b.csv.zst").out.ends_with("0 added, 0 removed, 0 changed, 2500 the same\n")
    );
    folder.ok("gen table --ipv4 2000 --ipv6 500 --next-hops 9 --seed 6 -o c.txt");
    assert_eq!(folder.run("fib diff --exit-code a.txt c.txt").code, 1);
}

/// Frame lengths (without check sequence) and IPv4 destinations of a capture.
fn packets(folder: &Folder, name: &str) -> Vec<(usize, Ipv4Addr)> {
    let mut reader = Reader::open(&folder.path(name)).unwrap();
    let mut packets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        let data = record.data;
        packets.push((data.len(), Ipv4Addr::new(data[30], data[31], data[32], data[33])));
    }
    packets
}

#[test]
fn every_pattern_gives_what_it_says() {
    let folder = Folder::new();
    folder.write("t.txt", "203.0.112.0/24\t1\n9.9.0.0/16\t2\n");
    let inside = |a: &Ipv4Addr| a.octets()[..3] == [203, 0, 112] || a.octets()[..2] == [9, 9];
    for pattern in ["random", "prefix", "zipf", "syn-flood", "amplification", "icmp", "fragments", "mix"] {
        folder.ok(&format!("gen traffic --pattern {pattern} --table t.txt --packets 300 -o {pattern}.pcap"));
        let packets = packets(&folder, &format!("{pattern}.pcap"));
        assert_eq!(packets.len(), 300, "{pattern}");
        let hits = packets.iter().filter(|(_, dst)| inside(dst)).count();
        match pattern {
            "random" => assert!(hits < 5),
            _ => assert_eq!(hits, 300, "{pattern}"),
        }
        let victims: std::collections::HashSet<_> = packets.iter().map(|(_, dst)| dst).collect();
        match pattern {
            "syn-flood" | "amplification" | "icmp" | "fragments" => assert_eq!(victims.len(), 1, "{pattern}"),
            _ => assert!(victims.len() > 20, "{pattern}"),
        }
    }
    assert!(packets(&folder, "syn-flood.pcap").iter().all(|(len, _)| *len == 60));
}

#[test]
fn sizes_and_compression_are_honoured_and_seeds_repeat() {
    let folder = Folder::new();
    for (sizes, lengths) in [
        ("1518", &[1514][..]),
        ("imix", &[60, 590, 1514]),
        ("rfc2544", &[60, 124, 252, 508, 1020, 1276, 1514]),
    ] {
        folder
            .ok(&format!("gen traffic --pattern random --sizes {sizes} --packets 400 -o {sizes}.pcapng.zst"));
        let mut seen: Vec<usize> =
            packets(&folder, &format!("{sizes}.pcapng.zst")).iter().map(|(len, _)| *len).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, lengths, "{sizes}");
    }
    for name in ["a.pcap", "b.pcap"] {
        folder.ok(&format!("gen traffic --pattern mix --packets 500 --seed 7 -o {name}"));
    }
    assert_eq!(std::fs::read(folder.path("a.pcap")).unwrap(), std::fs::read(folder.path("b.pcap")).unwrap());
}

#[test]
fn a_capture_gets_destinations_that_the_table_routes() {
    let folder = Folder::new();
    folder.write("t.txt", "203.0.112.0/24\t1\n");
    folder.ok("gen traffic --pattern random --packets 200 -o a.pcap");
    let ran = folder.ok("gen traffic --remap-of a.pcap --table t.txt -o b.pcapng");
    assert!(ran.err.contains("200 packets, 200 of them with a new destination"), "{}", ran.err);
    let (before, after) = (packets(&folder, "a.pcap"), packets(&folder, "b.pcapng"));
    assert_eq!(before.len(), after.len());
    assert!(after.iter().all(|(_, dst)| dst.octets()[..3] == [203, 0, 112]));
    assert!(before.iter().zip(&after).all(|(a, b)| a.0 == b.0));
}

#[test]
fn mistakes_get_one_line() {
    let folder = Folder::new();
    folder
        .write("t.txt", "10.0.0.0/8\t1\n")
        .write("empty", "")
        .write("text.pcap", "this is no capture at all, is it?");
    folder.fail(&[
        ("gen table --ipv4 10 --next-hops 0 -o x", 2, "at least one next hop"),
        ("gen table --ipv4 4000000000 -o x", 2, "do not fit"),
        ("gen table --ipv4 10 --ipv6 0 -o no/x", 1, "no/x"),
        ("gen table", 2, "--output <FILE>"),
        ("gen traffic --pattern random -o x.bin", 2, "x.bin: end the name with .pcap"),
        ("gen traffic --pattern prefix -o x.pcap", 2, "needs --table"),
        ("gen traffic --pattern random --sizes 63 -o x.pcap", 2, "64 to 9018"),
        ("gen traffic --pattern random --pps 0 -o x.pcap", 2, "--pps 0"),
        ("gen traffic --pattern prefix --table empty -o x.pcap", 2, "no routes"),
        ("gen traffic --remap-of none --table t.txt -o x.pcap", 2, "none: No such file"),
        ("gen traffic --remap-of text.pcap --table t.txt -o x.pcap", 1, "text.pcap"),
        ("gen traffic --remap-of text.pcap -o x.pcap", 2, "--table"),
        ("gen traffic -o x.pcap", 2, "--pattern"),
    ]);
}
