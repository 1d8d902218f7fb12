//! Null, generator, channel and the wrappers: what they promise, and that nothing gets lost in them.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Seen, assert_all_home, pool, read, receive};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};
use tidemill_burst::{Burst, DropReason, Pool};
use tidemill_port::generator::{GeneratorPort, Kind, PublicV4, PublicV6, Sizes, Traffic};
use tidemill_port::{
    ChannelPort, Fault, Faults, NullPort, OpenContext, Port, PortCounters, PortError, PortSpec, Remap,
    RxStatus, Supply, pair, rewrite_destination,
};

fn faults() -> impl Strategy<Value = Faults> {
    let p = || prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64];
    (p(), p(), p(), p(), p(), 0..500u64).prop_map(|(loss, corrupt, reorder, duplicate, delay, delay_us)| {
        Faults { loss: loss * 0.5, corrupt, reorder, duplicate, delay, delay_us }
    })
}

/// A port that takes at most so many packets per call.
struct Slow(NullPort, usize);

impl Port for Slow {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn rx(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        self.0.rx(now, pool, burst)
    }
    fn tx(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let mut part = Burst::new();
        burst.drain_front(self.1).for_each(|p| part.push(p).unwrap());
        self.0.tx(now, pool, &mut part)
    }
    fn finish(&mut self, now: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.0.finish(now, pool)
    }
    fn counters(&self) -> PortCounters {
        self.0.counters()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_fault_injector_loses_nothing(
        rx in faults(),
        tx in faults(),
        seed in any::<u64>(),
        limit in 0..1500u64,
        slow in 1..300usize,
        frames in 30..700usize,
    ) {
        let mut pool = pool(frames);
        let supply = Supply::Frames(vec![vec![1; 60], vec![2; 100]].into());
        let inner = Slow(NullPort::new("n", supply, 0, Some(limit)), slow);
        let mut port = Fault::new(inner, rx, tx, seed).unwrap();
        let (mut burst, mut delivered) = (Burst::new(), 0);
        for round in 0..60 {
            let now_ns = round * 20_000;
            let before = burst.len();
            port.rx(now_ns, &mut pool, &mut burst).unwrap();
            delivered += (burst.len() - before) as u64;
            port.tx(now_ns, &mut pool, &mut burst).unwrap();
            let counters = port.counters();
            prop_assert_eq!(counters.delivered(), delivered);
            prop_assert_eq!(counters.taken(), delivered - burst.len() as u64);
            prop_assert_eq!(
                pool.stats().free as u64,
                frames as u64 - counters.rx.held - counters.tx.held - burst.len() as u64
            );
        }
        let held = port.counters().rx.held;
        pool.free_all(&mut burst);
        port.finish(60 * 20_000, &mut pool).unwrap();
        let counters = port.counters();
        prop_assert_eq!((counters.rx.held, counters.tx.held), (0, 0));
        prop_assert_eq!(counters.rx.dropped.get(DropReason::PortClosed), held);
        assert_all_home(&pool);
    }

    #[test]
    fn a_new_destination_comes_with_its_checksums_on_any_bytes(mut frame in proptest::collection::vec(any::<u8>(), 0..120), v6 in any::<bool>()) {
        if frame.len() > 14 {
            let ethertype: u16 = if v6 { 0x86DD } else { 0x0800 };
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            frame[14] = if v6 { 0x60 } else { 0x40 | frame[14] & 15 };
        }
        let before = frame.clone();
        let changed = rewrite_destination(&mut frame, |original| Some(match original {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(1, 2, 3, 4)),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        }));
        prop_assert!(changed || frame == before);
    }
}

fn traffic(kind: Kind, v6: bool, sizes: Sizes, limit: u64) -> Traffic {
    Traffic {
        seed: 11,
        limit: Some(limit),
        rate_pps: None,
        sizes,
        mix: vec![(kind, 1)],
        sources: Box::new(PublicV4),
        destinations: if v6 { Box::new(PublicV6) } else { Box::new(PublicV4) },
    }
}

#[test]
fn generated_packets_are_valid_and_repeat() {
    use etherparse::{NetSlice, SlicedPacket};
    let kinds = [
        Kind::Udp,
        Kind::Tcp,
        Kind::Icmp,
        Kind::SynFlood,
        Kind::Amplification,
        Kind::IcmpFlood,
        Kind::Fragments,
    ];
    let mut pool = pool(512);
    for kind in kinds {
        for v6 in [false, true] {
            let mut run = || {
                let mut port = GeneratorPort::new("g", traffic(kind, v6, Sizes::Imix, 300)).unwrap();
                let packets = receive(&mut port, 5, &mut pool).0;
                assert_eq!(port.counters().delivered(), 300);
                packets
            };
            let packets = run();
            assert!(packets == run() && packets.len() == 300, "{kind:?}");
            for packet in &packets {
                let sliced = SlicedPacket::from_ethernet(&packet.data).unwrap();
                if let Some(NetSlice::Ipv4(ip)) = &sliced.net {
                    let header = ip.header().to_header();
                    assert_eq!(header.header_checksum, header.calc_header_checksum());
                }
                let fragment = sliced.net.as_ref().unwrap().ip_payload_ref().unwrap().fragmented;
                assert_eq!(fragment, kind == Kind::Fragments);
            }
        }
    }
    assert_all_home(&pool);
}

#[test]
fn sizes_and_mixes_have_their_shares() {
    let mut pool = pool(512);
    let mut port = GeneratorPort::new("g", traffic(Kind::Udp, false, Sizes::Imix, 12_000)).unwrap();
    let packets = receive(&mut port, 0, &mut pool).0;
    for (len, share) in [(60, 7), (590, 4), (1514, 1)] {
        let n = packets.iter().filter(|p| p.data.len() == len).count();
        assert!(n.abs_diff(share * 1000) < 250, "{n} of {len} bytes");
    }
    let mut mixed = traffic(Kind::Udp, false, Sizes::Even(vec![64]), 10_000);
    mixed.mix.push((Kind::SynFlood, 3));
    let packets = receive(&mut GeneratorPort::new("g", mixed).unwrap(), 0, &mut pool).0;
    let tcp = packets.iter().filter(|p| p.data[23] == 6).count();
    assert!((7200..7800).contains(&tcp), "{tcp}");
    assert!(GeneratorPort::new("g", traffic(Kind::Udp, false, Sizes::Even(vec![63]), 1)).is_err());
    assert!(GeneratorPort::new("g", traffic(Kind::Udp, false, Sizes::Even(vec![]), 1)).is_err());
}

#[test]
fn a_rate_is_kept() {
    let mut pool = pool(512);
    let mut slow = traffic(Kind::Udp, false, Sizes::Even(vec![64]), 10);
    slow.rate_pps = Some(1e6);
    let mut port = GeneratorPort::new("g", slow).unwrap();
    let mut burst = Burst::new();
    let mut poll = |now_ns: u64| {
        let status = port.rx(now_ns, &mut pool, &mut burst).unwrap();
        let times: Vec<_> = burst.iter().map(|p| p.timestamp_ns()).collect();
        pool.free_all(&mut burst);
        (times, status)
    };
    assert_eq!(poll(1_000_000), (vec![1_000_000], RxStatus::Received));
    assert_eq!(poll(1_000_999), (vec![], RxStatus::Idle { next_due_ns: Some(1_001_000) }));
    assert_eq!(poll(1_003_500), (vec![1_001_000, 1_002_000, 1_003_000], RxStatus::Received));
    assert_eq!(poll(9_000_000).0.len(), 6);
    assert_eq!(poll(9_000_000), (vec![], RxStatus::Ended));
}

#[test]
fn a_channel_carries_packets_both_ways() {
    let mut pool = pool(64);
    let (mut a, mut b): (ChannelPort, ChannelPort) = pair("a", "b", 5);
    let mut burst = Burst::new();
    for i in 0..8u8 {
        burst.push(pool.packet(&[i; 60]).unwrap()).unwrap();
    }
    a.tx(0, &mut pool, &mut burst).unwrap();
    assert_eq!((burst.len(), a.counters().tx.packets), (3, 5));
    assert_eq!(burst[0].data()[0], 5, "what has no room stays, in order");
    let (got, _) = receive(&mut b, 0, &mut pool);
    assert_eq!(got.iter().map(|p| p.data[0]).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    a.tx(0, &mut pool, &mut burst).unwrap();
    a.finish(0, &mut pool).unwrap();
    assert_eq!(b.rx(0, &mut pool, &mut burst).unwrap(), RxStatus::Received);
    pool.free_all(&mut burst);
    assert_eq!(b.rx(0, &mut pool, &mut burst).unwrap(), RxStatus::Ended);
    assert_all_home(&pool);
}

#[test]
fn each_fault_does_its_own() {
    let run = |faults: Faults| {
        let mut pool = pool(1024);
        let frames: Vec<Vec<u8>> = (0..200u8).map(|i| vec![i; 60]).collect();
        let inner = NullPort::new("n", Supply::Frames(frames.into()), 0, Some(200));
        let mut port = Fault::new(inner, faults, Faults::default(), 1).unwrap();
        let mut seen = Vec::new();
        for now_us in 0..2000 {
            let mut burst = Burst::new();
            port.rx(now_us * 1000, &mut pool, &mut burst).unwrap();
            seen.extend(burst.iter().map(Seen::of));
            pool.free_all(&mut burst);
        }
        assert_eq!(port.rx(2_000_000, &mut pool, &mut Burst::new()).unwrap(), RxStatus::Ended);
        port.finish(2_000_000, &mut pool).unwrap();
        assert_all_home(&pool);
        (seen, port.counters())
    };
    let firsts = |seen: &[Seen]| seen.iter().map(|p| p.data[0]).collect::<Vec<_>>();
    let clean: Vec<u8> = (0..200).collect();
    assert_eq!(firsts(&run(Faults::default()).0), clean);
    let (seen, counters) = run(Faults { loss: 0.5, ..Faults::default() });
    assert!((70..130).contains(&seen.len()));
    assert_eq!(counters.rx.dropped.get(DropReason::InjectedLoss) as usize, 200 - seen.len());
    let (seen, counters) = run(Faults { duplicate: 1.0, ..Faults::default() });
    assert_eq!((seen.len(), counters.rx.made), (400, 200));
    let (seen, _) = run(Faults { corrupt: 1.0, ..Faults::default() });
    for (i, packet) in seen.iter().enumerate() {
        let flipped: u32 = packet.data.iter().map(|b| (b ^ i as u8).count_ones()).sum();
        assert_eq!(flipped, 1);
    }
    for faults in [
        Faults { reorder: 0.3, ..Faults::default() },
        Faults { delay: 0.3, delay_us: 500, ..Faults::default() },
    ] {
        let mut order = firsts(&run(faults).0);
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert_eq!(order, clean);
    }
    let bad = Fault::new(
        NullPort::new("n", Supply::Nothing, 0, None),
        Faults { loss: 1.5, ..Faults::default() },
        Faults::default(),
        1,
    );
    assert_eq!(bad.err().unwrap().to_string(), "port `n`: loss = 1.5 is not a probability (0 to 1)");
}

#[test]
fn the_same_destination_is_remapped_alike() {
    let list: Vec<IpAddr> = vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into(), [10, 0, 0, 1].into()];
    let run = |seed| {
        let supply = Supply::Destinations { frame_len: 64, addresses: list.clone().into() };
        let inner = NullPort::new("n", supply, 0, Some(3));
        let choose = |_: IpAddr, hash: u64| Some(IpAddr::V4(Ipv4Addr::from_bits(hash as u32)));
        let mut port = Remap::new(inner, seed, Box::new(choose));
        let mut pool = pool(8);
        let (packets, _) = receive(&mut port, 0, &mut pool);
        assert_eq!(port.remapped(), 3);
        packets.iter().map(|p| p.data[30..34].to_vec()).collect::<Vec<_>>()
    };
    let a = run(1);
    assert!(a[0] == a[2] && a[0] != a[1]);
    assert!(a == run(1) && a != run(2));
}

fn open(config: &str, queues: usize) -> Result<Vec<Box<dyn Port>>, String> {
    let folder = tempfile::tempdir().unwrap();
    let spec: PortSpec = toml::from_str(config).map_err(|e| e.to_string())?;
    let context = OpenContext { base: folder.path(), table: Some(&|| Box::new(PublicV6)), memory: &[] };
    spec.open(queues, &context).map_err(|e| e.to_string())
}

/// What `check` finds wrong with it, where there is a table or none.
fn checked(config: &str, queues: usize, table: bool) -> Result<(), String> {
    let spec: PortSpec = toml::from_str(config).map_err(|e| e.to_string())?;
    spec.check(queues, table).map_err(|e| e.to_string())
}

#[test]
fn ports_open_as_configured() {
    let mut pool = pool(512);
    let mut packets = |config: &str, queues| -> Vec<Seen> {
        checked(config, queues, true).unwrap();
        let mut ports = open(config, queues).unwrap();
        assert_eq!(ports.len(), queues);
        ports.iter_mut().flat_map(|port| receive(port, 0, &mut pool).0).collect()
    };
    let generator = "kind = \"generator\"\nname = \"g\"\npackets = 1001\n";
    for queues in [1, 3] {
        assert_eq!(packets(generator, queues).len(), 1001);
        let null = packets("kind = \"null\"\nname = \"n\"\npackets = 100\npopulation = 10", queues);
        assert_eq!(null.len(), 100);
    }
    let imix = format!(
        "{generator}sizes = \"imix\"\nmix = {{ udp = 1, syn-flood = 2 }}\ndestinations = \"zipf\"\npopulation = 50"
    );
    assert_eq!(packets(&imix, 1).len(), 1001);
    let table = format!("{generator}destinations = \"table\"\nsizes = [64, 128]");
    assert!(packets(&table, 1).iter().all(|p| p.data[12..14] == [0x86, 0xDD]));
    let list = format!("{generator}destinations = {{ list = [\"192.0.2.1\"] }}\nsizes = 100");
    assert!(packets(&list, 1).iter().all(|p| p.data[30..34] == [192, 0, 2, 1] && p.data.len() == 96));
}

#[test]
fn the_configuration_has_a_schema() {
    let schema = serde_json::to_string(&schemars::schema_for!(PortSpec)).unwrap();
    for key in ["pcap", "null", "generator", "repeat", "rfc2544", "syn-flood", "delay_us", "random-v6"] {
        assert!(schema.contains(&format!("\"{key}\"")), "{key} is not in {schema}");
    }
}

#[test]
fn a_wrong_configuration_is_refused_by_name() {
    let cases = [
        ("kind = \"pcap\"\nname = \"a\"", "needs an input, an output or both"),
        ("kind = \"pcap\"\nname = \"a\"\ninput = \"nowhere.pcap\"", "nowhere.pcap"),
        ("kind = \"pcap\"\nname = \"a\"\ninputs = \"x\"", "inputs"),
        ("kind = \"pcap\"\nname = \"a\"\ninput = \"x\"\npace = \"time\"\nspeed = 0", "speed 0 is not"),
        ("kind = \"warp\"\nname = \"a\"", "warp"),
        ("kind = \"null\"", "name"),
        ("kind = \"null\"\nname = \"a\"\nsize = 20", "size = 20 (64 to 9018)"),
        ("kind = \"null\"\nname = \"a\"\npopulation = 0", "population = 0: give 1 or more"),
        (
            "kind = \"null\"\nname = \"a\"\nreceive = false\npopulation = 99999999",
            "population = 99999999: give",
        ),
        ("kind = \"null\"\nname = \"a\"\ndestinations = { list = [] }", "destinations is an empty list"),
        ("kind = \"generator\"\nname = \"a\"\ndestinations = { list = [] }", "destinations is an empty list"),
        (
            "kind = \"generator\"\nname = \"a\"\ndestinations = \"zipf\"\nexponent = -1.0",
            "an exponent from 0",
        ),
        (
            "kind = \"generator\"\nname = \"a\"\ndestinations = \"zipf\"\npopulation = 0",
            "zipf needs a population",
        ),
        ("kind = \"generator\"\nname = \"a\"\nsizes = [64, 63]", "a frame length of 63"),
        ("kind = \"generator\"\nname = \"a\"\nsizes = []", "sizes and mix need"),
        ("kind = \"generator\"\nname = \"a\"\nmix = { udp = 0 }", "mix"),
        ("kind = \"generator\"\nname = \"a\"\nrate_pps = -1.0", "rate_pps = -1"),
        ("kind = \"generator\"\nname = \"a\"\nrate_pps = -1e300", "rate_pps = -1e300 is"),
        ("kind = \"generator\"\nname = \"a\"\nfault = { rx = { loss = 2 } }", "loss = 2"),
        ("kind = \"generator\"\nname = \"a\"\nfault = { rx = { lost = 0.1 } }", "lost"),
    ];
    for (config, text) in cases {
        let error = open(config, 1).err().unwrap_or_default();
        assert!(error.contains(text), "{config}\n{error}");
        // Whatever needs no look at a file is found without one.
        if text != "nowhere.pcap" {
            assert_eq!(checked(config, 1, true), Err(error), "{config}");
        }
    }
    for kind in ["null", "generator"] {
        let config = format!("kind = \"{kind}\"\nname = \"a\"\ndestinations = \"table\"");
        let spec: PortSpec = toml::from_str(&config).unwrap();
        let context = OpenContext { base: std::path::Path::new(""), table: None, memory: &[] };
        let error = spec.open(1, &context).err().unwrap().to_string();
        assert!(error.contains("this run has no table"), "{error}");
        assert_eq!(checked(&config, 1, false), Err(error));
    }
    // Of a rate each queue has its part, which is none here.
    let slow = "kind = \"generator\"\nname = \"a\"\nrate_pps = 5e-324";
    assert_eq!(checked(slow, 2, true), Err(open(slow, 2).err().unwrap()));
    // What is not received need not be possible.
    checked("kind = \"null\"\nname = \"a\"\nreceive = false\npopulation = 0", 1, false).unwrap();
    checked("kind = \"pcap\"\nname = \"a\"\noutput = \"x\"\npace = \"time\"\nspeed = 0", 1, false).unwrap();
}

#[test]
fn a_tap_sees_what_the_graph_sees() {
    let folder = tempfile::tempdir().unwrap();
    let spec: PortSpec =
        toml::from_str("kind = \"null\"\nname = \"n\"\npackets = 500\ntap = \"tap.pcapng\"").unwrap();
    let mut ports = spec.open(2, &OpenContext { base: folder.path(), table: None, memory: &[] }).unwrap();
    let mut pool = pool(512);
    let mut burst = Burst::new();
    for port in &mut ports {
        while port.rx(7, &mut pool, &mut burst).unwrap() == RxStatus::Received {
            pool.free_all(&mut burst);
            burst.push(pool.packet(&[9; 70]).unwrap()).unwrap();
            port.tx(7, &mut pool, &mut burst).unwrap();
        }
        port.finish(8, &mut pool).unwrap();
    }
    let (packets, error) = read(&folder.path().join("tap.pcapng"));
    assert!(error.is_none());
    let sent = packets.iter().filter(|p| p.data.len() == 70).count();
    assert_eq!(packets.len() - sent, 500);
    assert_eq!(sent as u64, ports.iter().map(|p| p.counters().tx.packets).sum::<u64>());
    assert_all_home(&pool);
}

#[test]
fn tshark_finds_no_fault_in_what_is_generated_and_written() {
    if std::process::Command::new("tshark").arg("-v").output().is_err() {
        println!("skipped: tshark_finds_no_fault_in_what_is_generated_and_written (tshark is not installed)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let kinds =
        "{ udp = 1, tcp = 1, icmp = 1, syn-flood = 1, amplification = 1, icmp-flood = 1, fragments = 1 }";
    let mut pool = pool(512);
    for (destinations, output) in [("random", "a.pcap"), ("random-v6", "b.pcapng")] {
        let config = format!(
            "kind = \"generator\"\nname = \"g\"\npackets = 2000\nsizes = \"rfc2544\"\nmix = {kinds}\n\
             destinations = \"{destinations}\"\ntap = \"{output}\""
        );
        let spec: PortSpec = toml::from_str(&config).unwrap();
        let mut port =
            spec.open(1, &OpenContext { base: folder.path(), table: None, memory: &[] }).unwrap().remove(0);
        assert_eq!(receive(&mut port, 1_700_000_000_000_000_000, &mut pool).0.len(), 2000);
        port.finish(0, &mut pool).unwrap();
        let mut tshark = std::process::Command::new("tshark");
        tshark.arg("-r").arg(folder.path().join(output)).args(["-T", "fields", "-e", "frame.number"]);
        for check in ["ip", "udp", "tcp"] {
            tshark.args(["-o", &format!("{check}.check_checksum:TRUE")]);
        }
        // The first fragments of datagrams that never come whole have checksums that nobody can judge.
        let bad = "ip.checksum.status == \"Bad\" or udp.checksum.status == \"Bad\" or \
                   tcp.checksum.status == \"Bad\" or icmp.checksum.status == \"Bad\" or \
                   icmpv6.checksum.status == \"Bad\" or _ws.malformed";
        let all = tshark.output().unwrap();
        assert!(
            all.status.success() && all.stderr.is_empty()
                || String::from_utf8_lossy(&all.stderr).contains("Running as"),
            "{all:?}"
        );
        assert_eq!(String::from_utf8_lossy(&all.stdout).lines().count(), 2000);
        let faults = tshark.args(["-Y", bad]).output().unwrap();
        assert!(faults.status.success(), "{faults:?}");
        assert_eq!(String::from_utf8_lossy(&faults.stdout), "", "{output}: frames with faults");
    }
}
