//! All the real captures: counts as recorded, the same packets as another reader sees, clean errors from broken files.

#![allow(clippy::unwrap_used)]

mod common;

use common::{assert_all_home, pool, read, theirs};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tidemill_burst::Burst;
use tidemill_port::{OpenContext, PcapPort, Playback, Port, PortSpec, Remap, RxStatus};

fn data(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("TIDEMILL_DATA").map(|root| PathBuf::from(root).join("pcap"));
    if path.is_none() {
        println!("skipped: {test} (TIDEMILL_DATA is not set)");
    }
    path
}

/// Single captures and their packet counts, from PROVENANCE.md.
const COUNTS: &[(&str, usize)] = &[
    ("ddos/amp.TCP.reflection.SYNACK.pcap.zst", 8_000),
    ("ddos/amp.UDP.isakmp.pcap.zst", 3_984),
    ("ddos/amp.UDP.snmp.src161.pcapng.zst", 4_373),
    ("ddos/pkt.TCP.synflood.spoofed.pcap.zst", 37_841),
    ("dns/dnsstats-dns.pcap.xz", 1_998),
    ("dns/dnsstats-matching.pcap.xz", 43),
    ("dns/lroot-knot-live.pcap.xz", 17_493),
    ("dns/pcpp-DnsPackets.pcap.zst", 464),
    ("frag/pcpp-ip-frag.pcap.zst", 3_000),
    ("memcached/flightplan-expected_short.pcap.zst", 500),
    ("memcached/flightplan-in_short.pcap.zst", 500),
    ("mix/pcpp-example.pcap.zst", 4_631),
    ("mix/trex-imix.pcap.zst", 100),
];

/// Archives: packets and files as recorded; how many packets are of link types that we read; how many files are
/// refused, and how many of these for something else than their link type.
const ARCHIVES: &[(&str, usize, usize, usize, usize, usize)] = &[
    ("dns/zeek-dns.tar.zst", 319, 53, 308, 1, 0),
    ("frag/zeek-frag.tar.zst", 1_567, 15, 1_567, 0, 0),
    ("icmp/zeek-icmp.tar.zst", 175, 37, 175, 0, 0),
    ("malformed/libpcap-tests.tar.zst", 278, 43, 149, 22, 5),
    ("malformed/tcpdump-tests.tar.zst", 10_107, 830, 9_341, 278, 0),
    ("malformed/zeek-trunc-chksum.tar.zst", 2_818, 82, 2_817, 1, 0),
    ("memcached/packetbeat-memcache.tar.zst", 216, 18, 216, 0, 0),
    ("proto/ipfixprobe.tar.zst", 2_269, 19, 2_269, 0, 0),
    ("proto/trex-cap2-small.tar.zst", 3_694, 113, 3_694, 0, 0),
    ("proto/zeek-ntp.tar.zst", 163, 8, 163, 0, 0),
    ("proto/zeek-tunnels.tar.zst", 3_700, 51, 3_700, 0, 0),
];

/// Bare IP captures get a link header from us and none from another reader.
fn link_layer(packet: &common::Seen) -> bool {
    packet.data.get(..12) != Some(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..])
}

#[test]
fn real_captures_have_their_counts() {
    let Some(root) = data("real_captures_have_their_counts") else { return };
    for (name, count) in COUNTS {
        let path = root.join(name);
        let (packets, error) = read(&path);
        assert!(error.is_none(), "{}", error.unwrap());
        assert_eq!(packets.len(), *count, "{name}");
        let mut bytes = Vec::new();
        tidemill_archive::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
        // Bare IP captures get a link header from us and none from them.
        let link_layer =
            |p: &common::Seen| p.data.get(..12) != Some(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..]);
        if packets.iter().all(link_layer) {
            let theirs = theirs(&bytes).unwrap();
            assert!(theirs == packets, "{name}: another reader sees other packets");
        }
    }
}

#[test]
fn real_archives_have_their_counts_and_broken_files_have_clean_errors() {
    let Some(root) = data("real_archives_have_their_counts_and_broken_files_have_clean_errors") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let room = pool(1).room();
    for (name, recorded, files, readable, refused, broken) in ARCHIVES {
        let archive = tidemill_archive::open(&root.join(name)).unwrap();
        let mut archive = tar::Archive::new(archive);
        let (mut seen, mut opened, mut errors) = (0, 0, Vec::new());
        let (mut agreed, mut refused_there) = (0, 0);
        for (i, entry) in archive.entries().unwrap().enumerate() {
            let mut entry = entry.unwrap();
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let inside = entry.path().unwrap().into_owned();
            let file = inside.file_name().unwrap().to_string_lossy().into_owned();
            let path = folder.path().join(format!("{i}-{file}"));
            std::io::copy(&mut entry, &mut std::fs::File::create(&path).unwrap()).unwrap();
            let (packets, error) = read(&path);
            let mut bytes = Vec::new();
            tidemill_archive::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
            if error.is_none() && !packets.is_empty() && packets.iter().all(link_layer) {
                // It refuses what claims more than the snap length; what it reads, it must read alike.
                match theirs(&bytes) {
                    Some(mut theirs) => {
                        theirs.retain(|packet| packet.data.len() <= room);
                        assert!(theirs == packets, "{name}: {file}: another reader sees other packets");
                        agreed += 1;
                    }
                    None => refused_there += 1,
                }
            }
            opened += 1;
            seen += packets.len();
            if let Some(error) = error {
                let text = error.to_string();
                assert!(text.contains(&file) && text.contains("after packet"), "{text}");
                assert!(text.contains("byte") && !text.contains('\n'), "{text}");
                errors.push(text);
            }
            std::fs::remove_file(&path).unwrap();
        }
        let others: Vec<_> = errors.iter().filter(|e| !e.contains("link type")).collect();
        println!("{name}: {seen} of {recorded} packets, {opened} files, {} refused", errors.len());
        others.iter().for_each(|e| println!("  {e}"));
        println!("  pcap-file reads the same from {agreed} files and refuses {refused_there}");
        assert_eq!((opened, seen), (*files, *readable), "{name}");
        assert_eq!((errors.len(), others.len()), (*refused, *broken), "{name}: {others:#?}");
        assert!(errors.is_empty() == (seen == *recorded), "{name}");
    }
}

#[test]
fn real_captures_survive_every_wrapper() {
    let Some(root) = data("real_captures_survive_every_wrapper") else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "kind = \"pcap\"\nname = \"a\"\ninput = {:?}\noutput = \"out.pcapng.zst\"\ntap = \"tap.pcapng\"\n\
         fault = {{ seed = 3, rx = {{ loss = 0.1, duplicate = 0.1, corrupt = 0.1, reorder = 0.1 }}, \
         tx = {{ delay = 0.5, delay_us = 100, reorder = 0.2 }} }}",
        root.join("mix/pcpp-example.pcap.zst")
    );
    let spec: PortSpec = toml::from_str(&config).unwrap();
    let context = OpenContext { base: folder.path(), table: None, memory: &[] };
    let mut pool = pool(2048);
    let mut port = spec.open(1, &context).unwrap().remove(0);
    let (mut burst, mut delivered, mut now_ns) = (Burst::new(), 0, 1);
    loop {
        let status = port.rx(now_ns, &mut pool, &mut burst).unwrap();
        delivered += burst.len() as u64;
        port.tx(now_ns, &mut pool, &mut burst).unwrap();
        assert_eq!(port.counters().delivered(), delivered);
        assert_eq!(port.counters().taken(), delivered - burst.len() as u64);
        now_ns += 10_000;
        if status == RxStatus::Ended {
            break;
        }
    }
    port.finish(now_ns, &mut pool).unwrap();
    let counters = port.counters();
    assert_eq!((counters.rx.held, counters.tx.held, counters.rx.packets), (0, 0, 4_631));
    assert_eq!(counters.tx.packets, delivered);
    assert_eq!(read(&folder.path().join("out.pcapng.zst")).0.len() as u64, delivered);
    assert_eq!(read(&folder.path().join("tap.pcapng")).0.len() as u64, 2 * delivered);
    assert_all_home(&pool);
}

/// Whether all checksums of a frame are right, as etherparse sees it; `None` if it cannot say (fragments, cut short).
fn checksums(frame: &[u8]) -> Option<bool> {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice as T};
    let sliced = SlicedPacket::from_ethernet(frame).ok()?;
    let (v4, v6) = match sliced.net.as_ref()? {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            if header.header_checksum != header.calc_header_checksum() {
                return Some(false);
            }
            (Some((header.source, header.destination)), None)
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            (None, Some((header.source(), header.destination())))
        }
        NetSlice::Arp(_) => return None,
    };
    match (sliced.transport.as_ref()?, v4, v6) {
        (T::Udp(udp), ..) if udp.checksum() == 0 => None,
        (T::Udp(udp), Some((s, d)), _) => {
            Some(udp.to_header().calc_checksum_ipv4_raw(s, d, udp.payload()).ok()? == udp.checksum())
        }
        (T::Udp(udp), _, Some((s, d))) => {
            Some(udp.to_header().calc_checksum_ipv6_raw(s, d, udp.payload()).ok()? == udp.checksum())
        }
        (T::Tcp(tcp), Some((s, d)), _) => Some(tcp.calc_checksum_ipv4(s, d).ok()? == tcp.checksum()),
        (T::Tcp(tcp), _, Some((s, d))) => Some(tcp.calc_checksum_ipv6(s, d).ok()? == tcp.checksum()),
        (T::Icmpv6(icmp), _, Some((s, d))) => Some(icmp.is_checksum_valid(s, d)),
        _ => None,
    }
}

#[test]
fn real_packets_keep_their_checksums_when_remapped() {
    let Some(root) = data("real_packets_keep_their_checksums_when_remapped") else { return };
    let target = |original: std::net::IpAddr, hash: u64| {
        Some(match original {
            std::net::IpAddr::V4(_) => std::net::Ipv4Addr::from_bits(hash as u32).into(),
            std::net::IpAddr::V6(_) => {
                std::net::Ipv6Addr::from_bits(u128::from(hash) << 64 | u128::from(!hash)).into()
            }
        })
    };
    let mut judged = [0u32; 2];
    for (name, count) in COUNTS {
        let path: &Path = &root.join(name);
        let mut pool = pool(512);
        let port = PcapPort::open("in", Some(&Playback::once(path)), None, 1).unwrap().remove(0);
        let mut port = Remap::new(port, 1, Box::new(target));
        let (remapped, error) = common::receive(&mut port, 0, &mut pool);
        assert!(error.is_none() && remapped.len() == *count);
        let (originals, _) = read(path);
        for (new, old) in remapped.iter().zip(&originals) {
            // A wrong checksum stays wrong, a right one stays right.
            let (new, old) = (checksums(&new.data), checksums(&old.data));
            assert_eq!(new, old, "{name}");
            if let Some(right) = old {
                judged[usize::from(right)] += 1;
            }
        }
    }
    println!("checksums: {} right and {} wrong ones stayed so", judged[1], judged[0]);
    assert!(judged[1] > 50_000 && judged[0] > 0, "{judged:?}");
}
