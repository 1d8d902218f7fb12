//! Real captures through a router with the real tables: the books balance, and every packet that comes out, made here or
//! not, has the next hop that the oracle names for its destination.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use tidemill_lpm::{Address, Label, Oracle, Prefix};
use tidemill_port::memory::{Frame, capture};
use tidemill_port::rewrite_destination;
use tidemill_router::Routes;
use tidemill_wire::{ipv4, ipv6, verify_checksums};

fn data(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("TIDEMILL_DATA").map(PathBuf::from);
    if path.is_none() {
        println!("skipped: {test} (TIDEMILL_DATA is not set)");
    }
    path
}

fn table<A: Address>(path: &Path) -> Vec<(Prefix<A>, Label)> {
    let mut text = String::new();
    tidemill_archive::open(path).unwrap().read_to_string(&mut text).unwrap();
    let line = |line: &str| {
        let (prefix, label) = line.split_once('\t').unwrap();
        (prefix.parse().ok().unwrap(), Label(label.parse().unwrap()))
    };
    text.lines().map(line).collect()
}

/// A random address in a random prefix.
fn inside<A: Address>(rng: &mut StdRng, list: &[(Prefix<A>, Label)]) -> IpAddr {
    let prefix = list[rng.random_range(0..list.len())].0;
    (prefix.first() | (A::from_u128(rng.random()) & !A::mask(prefix.len()))).to_ip()
}

const CAPTURES: [&str; 11] = [
    "ddos/amp.TCP.reflection.SYNACK.pcap.zst",
    "ddos/amp.UDP.isakmp.pcap.zst",
    "ddos/amp.UDP.snmp.src161.pcapng.zst",
    "ddos/pkt.TCP.synflood.spoofed.pcap.zst",
    "dns/dnsstats-dns.pcap.xz",
    "dns/lroot-knot-live.pcap.xz",
    "dns/pcpp-DnsPackets.pcap.zst",
    "frag/pcpp-ip-frag.pcap.zst",
    "memcached/flightplan-in_short.pcap.zst",
    "mix/pcpp-example.pcap.zst",
    "mix/trex-imix.pcap.zst",
];

#[test]
fn real_captures_leave_by_the_oracles_next_hop() {
    let Some(root) = data("real_captures_leave_by_the_oracles_next_hop") else { return };
    let v4 = table::<u32>(&root.join("rib/ris-as3333-20260511.v4.nh148.zst"));
    let v6 = table::<u128>(&root.join("rib/ris-as3333-20260511.v6.nh148.zst"));
    assert_eq!((v4.len(), v6.len()), (1_042_325, 246_175));
    let (oracle4, oracle6) = (Oracle::new(&v4), Oracle::new(&v6));
    // Label 0 modulo one port: everything leaves by wan. No address of our own, so every route is the table's.
    let config = "next_hops.ports = ['wan']\nrouter.martians = 'off'\n[[interface]]\nport = 'lan'\npromiscuous = true\n\
                  [[interface]]\nport = 'wan'\nmtu = 1400\n";
    let captures = CAPTURES.iter().map(|name| capture(&root.join("pcap").join(name)).unwrap());
    let mut frames: Vec<Frame> = captures.flatten().collect();
    let received = frames.len() as u64;
    // Three of four go to addresses that are routed; the rest stays as captured.
    let mut rng = StdRng::seed_from_u64(1);
    for (_, input) in frames.iter_mut().enumerate().filter(|(i, _)| i % 4 > 0) {
        rewrite_destination(&mut input.bytes, |original| {
            Some(if original.is_ipv4() { inside(&mut rng, &v4) } else { inside(&mut rng, &v6) })
        });
    }
    let routes4 = Routes { rib: v4.into_iter().collect(), names: Vec::new() };
    let routes6 = Routes { rib: v6.into_iter().collect(), names: Vec::new() };
    let run = Router::new(config, routes4, routes6).run_with(frames, 2048, |_| {});
    let ledger = run.snapshot.ledger();
    println!("{}", line(&ledger));
    assert_eq!(ledger.received, received);
    assert!(ledger.made > 0 && ledger.out * 10 > received * 7);
    for sent in &run.sent[1] {
        let shown = Label(u32::from_be_bytes(sent[2..6].try_into().unwrap()));
        let expected = match ipv4::version(&sent[14..]) {
            4 => oracle4.lookup(ipv4::dst_u32(&sent[14..])),
            _ => oracle6.lookup(ipv6::dst_u128(&sent[14..])),
        };
        assert_eq!(shown, expected);
        assert!(sent.len() <= 14 + 1400);
        // Upper layers may have come wrong; the header that we touched is right.
        assert!(verify_checksums(sent).err().is_none_or(|fault| fault.protocol != "ipv4"));
    }
}

fn line(ledger: &tidemill_graph::Ledger) -> String {
    format!("in {} made {} out {} dropped {:?}", ledger.received, ledger.made, ledger.out, ledger.dropped)
}
