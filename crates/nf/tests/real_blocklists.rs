//! Sets of real size: IPsum's list of addresses, read as its file is, and held to a walk. `TIDEMILL_DATA` says where the data is.

#![allow(clippy::unwrap_used)] // a test may

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use tidemill_ip::{Interface, Interfaces};
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::filter::text::Network;
use tidemill_nf::filter::{Fate, Filter, FilterControl, FilterFiles, FilterSection, Ways, settings};

fn data() -> Option<PathBuf> {
    let data = std::env::var_os("TIDEMILL_DATA").map(PathBuf::from);
    if data.is_none() {
        println!("skipped: real_blocklists (TIDEMILL_DATA is not set)");
    }
    data
}

fn udp(source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    tidemill_wire::ipv4::fill_checksum(&mut bytes);
    bytes.extend([0, 7, 0, 53, 0, 8, 0, 0]);
    bytes
}

#[test]
fn every_address_of_a_real_blocklist_is_blocked_and_no_other() {
    let Some(data) = data() else { return };
    let packed = std::fs::read(data.join("acl/blocklists/ipsum-20260822.txt.zst")).unwrap();
    let text = String::from_utf8(zstd::decode_all(&packed[..]).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ipsum.txt"), &text).unwrap();
    std::fs::write(
        folder.path().join("filter.rules"),
        "table <bad> persist file \"ipsum.txt\"\ntable <worse> { 198.18.0.0/15 }\npass all no state\nblock in quick on wan from { <bad> <worse> }\n",
    )
    .unwrap();
    let listed: HashSet<u32> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').next().unwrap().parse::<Ipv4Addr>().unwrap().into())
        .collect();
    assert!(listed.len() > 120_000, "{}", listed.len());
    let (domain, ports) = (Domain::new(), ["lan", "wan"]);
    let interfaces = Interfaces::new(
        ports.iter().zip(0..).map(|(name, port)| Interface::of_port(port, name)).collect(),
        2,
    );
    let section = FilterSection {
        rules: Some(folder.path().join("filter.rules")),
        states: 1000,
        half_open: 100,
        ..FilterSection::default()
    };
    let mut control = FilterControl::new(&section, &interfaces, 1, &domain).unwrap();
    assert_eq!(control.set_list()[0].v4, listed.len());
    let (plan, _) = settings::check(&section).unwrap();
    let log = Arc::new(crossbeam_queue::ArrayQueue::new(1));
    let mut filter: Filter<u32, 2> = Filter::new(&plan, (0, 1), 5, log).unwrap();
    let ways = Ways { from: 1, to: 0 };
    let home = Ipv4Addr::new(10, 0, 0, 1);
    let (mut passed, mut blocked) = (0, 0);
    // Each address of the list, and its neighbors, which mostly are not on it.
    for address in
        listed.iter().flat_map(|address| [address.wrapping_sub(1), *address, address.wrapping_add(1)])
    {
        let source = Ipv4Addr::from(address);
        if source == home {
            continue;
        }
        let passes = filter.judge_one(1000, control.rules(), ways, &udp(source, home)) == Fate::Passes;
        let bad = listed.contains(&address) || (address >> 17) == (0xc612_0000 >> 17);
        assert_eq!(passes, !bad, "{source}");
        passed += u64::from(passes);
        blocked += u64::from(!passes);
    }
    let hits: Vec<u64> = control.rule_list().map(|(_, hits)| hits.packets).collect();
    assert_eq!(hits, [2 * passed, blocked], "who passes does so on both ways");
    assert!(blocked >= listed.len() as u64);
    // A change while packets flow.
    let first = *listed.iter().min().unwrap();
    let network = Network::V4(tidemill_lpm::Prefix::new(first, 32).unwrap());
    assert_eq!(control.delete_from_set("bad", &[network, network]).unwrap(), 1);
    assert_eq!(filter.judge_one(1000, control.rules(), ways, &udp(first.into(), home)), Fate::Passes);
    assert_eq!(control.add_to_set("bad", &[network]).unwrap(), 1);
    assert_ne!(filter.judge_one(1000, control.rules(), ways, &udp(first.into(), home)), Fate::Passes);
    let error = control.add_to_set("good", &[network]).unwrap_err().to_string();
    assert_eq!(error, "there is no table <good>: <bad>, <worse>");
    // The file again: all of it or nothing.
    std::fs::write(folder.path().join("ipsum.txt"), "192.0.2.1\n192.0.2.300\n").unwrap();
    let error = FilterFiles::read(&section).unwrap_err().to_string();
    assert!(
        error.ends_with("ipsum.txt: line 2, column 1: \"192.0.2.300\" is not an IPv4 address"),
        "{error}"
    );
    assert_eq!(control.set_list()[0].v4, listed.len());
    std::fs::write(folder.path().join("ipsum.txt"), "192.0.2.1\n").unwrap();
    control.take(FilterFiles::read(&section).unwrap(), &interfaces).unwrap();
    assert_eq!(filter.judge_one(1000, control.rules(), ways, &udp(first.into(), home)), Fate::Passes);
}
