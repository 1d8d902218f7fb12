//! DPDK ports on virtual devices: frames and their order, books, frames that all come home, devices that go and come.
//! Every test runs in a process and a network namespace of its own: DPDK is started once in a process.

#![cfg(all(feature = "dpdk", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/net.rs"]
mod net;

use common::{Seen, assert_all_home, read};
use net::{cable, inside};
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_burst::{Burst, DropReason, Memory, Pool};
use tidemill_port::capture::Writer;
use tidemill_port::dpdk::{DpdkPort, Options, open, station};
use tidemill_port::rng::Rng;
use tidemill_port::spec::{DpdkSection, OpenContext};
use tidemill_port::{Port, PortCounters, PortSpec, RxStatus, SpreadBy};

const PATIENCE: Duration = Duration::from_secs(20);

fn memory(frames: usize) -> Arc<Memory> {
    Memory::new(frames, 2048).unwrap()
}

fn one(device: &str, memory: &Arc<Memory>) -> DpdkPort {
    let small = Options { rx_descriptors: Some(64), tx_descriptors: Some(64), ..Options::default() };
    open(device, device, &small, std::slice::from_ref(memory)).unwrap().remove(0)
}

/// Local experimental EtherType (IEEE 802), and a number.
fn numbered(serial: u64, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (serial as usize + i) as u8).collect();
    frame[..6].fill(0xFF);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    frame[14..22].copy_from_slice(&serial.to_be_bytes());
    frame
}

/// Calls until the port's device runs.
fn run_up(port: &mut DpdkPort, pool: &mut Pool, burst: &mut Burst) {
    port.rx(0, pool, burst).unwrap();
}

fn assert_balanced(counters: &PortCounters, delivered: u64, taken: u64) {
    assert_eq!((counters.delivered(), counters.taken()), (delivered, taken), "{counters:?}");
}

#[test]
fn root_null_devices_forward_and_give_all_frames_back() {
    if !inside("root_null_devices_forward_and_give_all_frames_back") {
        return;
    }
    let memory = memory(2048);
    let mut pool = memory.pool(2048).unwrap();
    // A second time: DPDK stays, devices are made anew, on memory that DPDK has forgotten (else it would refuse it).
    for round in 0..2 {
        let (mut a, mut b) = (one("net_null0", &memory), one("net_null1,size=1500", &memory));
        let mac = station("net_null0").unwrap().mac;
        assert_eq!(station("net_null0").unwrap().mtu, 1500);
        let mut burst = Burst::new();
        let (mut handed, mut taken) = ([0; 2], [0; 2]);
        for turn in 0..1000 {
            let (from, to, at) = if turn % 2 == 0 { (&mut a, &mut b, 0) } else { (&mut b, &mut a, 1) };
            from.rx(turn, &mut pool, &mut burst).unwrap();
            let len = if at == 0 { 64 } else { 1500 };
            assert!(burst.iter().all(|packet| packet.len() == len && packet.hash == 0));
            assert_eq!(burst.len(), 256);
            handed[at] += burst.len() as u64;
            to.tx(turn, &mut pool, &mut burst).unwrap();
            assert!(burst.is_empty());
            taken[1 - at] += 256;
            assert_eq!(pool.stats().free + a.lent() + b.lent(), 2048, "a frame is in two places or none");
        }
        assert_balanced(&a.counters(), handed[0], taken[0]);
        assert_balanced(&b.counters(), handed[1], taken[1]);
        assert_eq!(a.counters().tx.bytes, 500 * 256 * 1500);
        a.finish(0, &mut pool).unwrap();
        b.finish(0, &mut pool).unwrap();
        assert_eq!(a.rx(0, &mut pool, &mut burst).unwrap(), RxStatus::Ended);
        assert_eq!(station("net_null0"), None, "round {round}: closed");
        assert_all_home(&pool);
        assert_ne!(mac.0, [0; 6]);
    }
}

#[test]
fn root_what_spreads_packets_over_queues_is_said() {
    if !inside("root_what_spreads_packets_over_queues_is_said") {
        return;
    }
    let memory = [memory(2048), memory(2048)];
    let note = |spread_by, queues| {
        let options = Options { spread_by, ..Options::default() };
        open("null", "net_null0", &options, &memory[..queues]).unwrap()[0].note().to_owned()
    };
    // By what is what DPDK has configured, and without a hash there is no port. This driver's has a key that cannot be told. Which one the others get is tested beside `key`.
    for by in [SpreadBy::Sessions, SpreadBy::Flows] {
        let said = note(by, 2);
        assert!(said.contains(", 2 queues, RSS by the device's own key: the two directions"), "{said}");
    }
    let addresses = note(SpreadBy::Addresses, 2);
    assert!(addresses.ends_with(", 2 queues, RSS of addresses alone by the device's own key"), "{addresses}");
    assert_eq!(note(SpreadBy::Addresses, 1), "port null: dpdk, net_null, 1 queue");
}

#[test]
fn root_queues_of_two_regions_run_on_two_threads() {
    if !inside("root_queues_of_two_regions_run_on_two_threads") {
        return;
    }
    let regions = [memory(2048), memory(2048)];
    let queues = open("null", "net_null0", &Options::default(), &regions).unwrap();
    // What spreads flows over the queues is said; how long its key is, is the driver's.
    let note = queues[0].note();
    assert!(note.starts_with("port null: dpdk, net_null, 2 queues, RSS by "), "{note}");
    let mut other = regions[1].pool(512).unwrap();
    let pools: Vec<Pool> = std::thread::scope(|scope| {
        let threads: Vec<_> = queues
            .into_iter()
            .zip(&regions)
            .map(|(mut port, memory)| {
                scope.spawn(move || {
                    let (mut pool, mut burst) = (memory.pool(1024).unwrap(), Burst::new());
                    let (started, mut seen) = (Instant::now(), 0);
                    // The device runs when both have come.
                    while seen < 50_000 {
                        port.rx(seen, &mut pool, &mut burst).unwrap();
                        seen += burst.len() as u64;
                        port.tx(seen, &mut pool, &mut burst).unwrap();
                        assert!(burst.is_empty() && started.elapsed() < PATIENCE);
                    }
                    assert_balanced(&port.counters(), seen, seen);
                    port.finish(0, &mut pool).unwrap();
                    pool
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // Whoever closed the device has sent the other's frames home.
    pools.iter().for_each(assert_all_home);
    // A packet of another region is copied into one of ours.
    let mut port = one("net_null1", &regions[0]);
    let mut pool = regions[0].pool(1024).unwrap();
    let mut burst = Burst::new();
    run_up(&mut port, &mut pool, &mut burst);
    pool.free_all(&mut burst);
    burst.push(other.packet(&numbered(1, 60)).unwrap()).unwrap();
    port.tx(0, &mut pool, &mut burst).unwrap();
    assert_eq!((port.counters().tx.packets, port.counters().tx.bytes), (1, 60));
    assert_eq!(port.counters().tx.dropped.total(), 0);
    port.finish(0, &mut pool).unwrap();
    assert_all_home(&pool);
    assert_all_home(&other);
}

/// Sends and receives at random until all has come back in order.
fn shuffle(port: &mut DpdkPort, pool: &mut Pool, seed: u64, packets: u64) {
    let mut rng = Rng::new(seed);
    let (mut sending, mut receiving) = (Burst::new(), Burst::new());
    let (mut sent, mut seen, mut expected) = (0, 0, VecDeque::new());
    let started = Instant::now();
    run_up(port, pool, &mut receiving);
    while seen < packets {
        assert!(started.elapsed() < PATIENCE, "sent {sent}, seen {seen}: {:?}", port.counters());
        for _ in 0..rng.below(300) {
            if sent == packets || sending.room() == 0 {
                break;
            }
            let frame = numbered(sent, 60 + rng.below(1400) as usize);
            // A pool that has run dry fills up again as packets come.
            let Some(packet) = pool.packet(&frame) else { break };
            sending.push(packet).unwrap();
            expected.push_back(frame);
            sent += 1;
        }
        port.tx(sent, pool, &mut sending).unwrap();
        if rng.chance(0.7) {
            port.rx(sent, pool, &mut receiving).unwrap();
            for packet in receiving.drain() {
                assert!(expected.pop_front().unwrap() == packet.data(), "changed, lost or out of order");
                seen += 1;
                pool.free(packet);
            }
        }
        let places = pool.stats().free + port.lent() + sending.len();
        assert_eq!(places, pool.stats().frames, "a frame is in two places or none");
    }
    assert_eq!((sent, sending.len()), (packets, 0));
}

#[test]
fn root_a_ring_keeps_frames_and_order() {
    if !inside("root_a_ring_keeps_frames_and_order") {
        return;
    }
    // One pool holds more than the ring, the other less: the ring fills up, or the pool runs dry.
    for (seed, frames) in [(1, 8192), (2, 600)] {
        let memory = memory(frames);
        let mut pool = memory.pool(frames).unwrap();
        let mut port = one("net_ring0", &memory);
        shuffle(&mut port, &mut pool, seed, 60_000);
        let counters = port.counters();
        assert_eq!((counters.rx.packets, counters.tx.packets), (60_000, 60_000));
        assert_eq!((counters.rx.dropped.total(), counters.tx.dropped.total()), (0, 0));
        // What lies in the ring at the end comes home too.
        let mut burst = Burst::new();
        for serial in 0..50 {
            burst.push(pool.packet(&numbered(serial, 60)).unwrap()).unwrap();
        }
        port.tx(1 << 40, &mut pool, &mut burst).unwrap();
        port.finish(0, &mut pool).unwrap();
        assert_all_home(&pool);
    }
}

#[test]
fn root_captures_are_read_and_written_as_by_the_pcap_port() {
    if !inside("root_captures_are_read_and_written_as_by_the_pcap_port") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let memory = memory(2048);
    let mut pool = memory.pool(2048).unwrap();
    let writer = Writer::create(&path("in.pcap")).unwrap();
    let frames: Vec<_> = (0..3000).map(|i| numbered(i, 60 + (i as usize * 37) % 1455)).collect();
    for (at, frame) in frames.iter().enumerate() {
        let mut packet = pool.packet(frame).unwrap();
        packet.set_timestamp_ns(1_700_000_000_000_000_000 + at as u64 * 1000);
        let tap = std::slice::from_ref(&packet);
        write(&writer, tap);
        pool.free(packet);
    }
    writer.finish().unwrap();
    let (input, output) = (path("in.pcap"), path("out.pcap"));
    let device = format!("net_pcap0,rx_pcap={},tx_pcap={}", input.display(), output.display());
    let mut port = one(&device, &memory);
    let (mut burst, mut seen) = (Burst::new(), Vec::new());
    loop {
        let status = port.rx(0, &mut pool, &mut burst).unwrap();
        seen.extend(burst.iter().map(|packet| packet.data().to_vec()));
        port.tx(0, &mut pool, &mut burst).unwrap();
        assert!(burst.is_empty());
        if status != RxStatus::Received {
            break;
        }
    }
    assert!(seen == frames, "{} of {}", seen.len(), frames.len());
    port.finish(0, &mut pool).unwrap();
    let data = |path: &Path| read(path).0.into_iter().map(|seen: Seen| seen.data).collect::<Vec<_>>();
    assert!(data(&output) == data(&input), "what was written is not what was read");
    assert_all_home(&pool);
}

fn write(writer: &Writer, packets: &[tidemill_burst::Packet]) {
    use tidemill_port::capture::Sense;
    for packet in packets {
        writer.write(packet.timestamp_ns(), Sense::Inbound, packet.data(), packet.wire_len()).unwrap();
    }
}

#[test]
fn root_memif_peers_come_and_go() {
    if !inside("root_memif_peers_come_and_go") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("memif.sock");
    let device = |n: u8, role: &str| {
        format!("net_memif{n},role={role},id=0,socket={},socket-abstract=no", socket.display())
    };
    let (left, right) = (memory(2048), memory(2048));
    let mut pools = [left.pool(2048).unwrap(), right.pool(2048).unwrap()];
    let (mut burst, mut now_ns) = (Burst::new(), 0);
    let mut a = one(&device(0, "server"), &left);
    run_up(&mut a, &mut pools[0], &mut burst);
    for round in 1..=2 {
        let mut b = one(&device(1, "client"), &right);
        run_up(&mut b, &mut pools[1], &mut burst);
        // Nobody is connected for a moment; then numbers get through.
        let started = Instant::now();
        let mut seen = BTreeSet::new();
        while seen.len() < 1000 {
            assert!(started.elapsed() < PATIENCE, "{:?} {:?}", a.counters(), b.counters());
            now_ns += 50_000_000;
            if burst.is_empty() {
                for serial in 0..64 {
                    let serial = now_ns + serial;
                    burst.push(pools[1].packet(&numbered(serial, 100)).unwrap()).unwrap();
                }
            }
            b.tx(now_ns, &mut pools[1], &mut burst).unwrap();
            let mut arrived = Burst::new();
            a.rx(now_ns, &mut pools[0], &mut arrived).unwrap();
            for packet in arrived.drain() {
                let serial = u64::from_be_bytes(packet.data()[14..22].try_into().unwrap());
                assert!(seen.last().is_none_or(|last| *last < serial), "out of order");
                assert!(packet.data() == numbered(serial, 100));
                seen.insert(serial);
                pools[0].free(packet);
            }
        }
        pools[1].free_all(&mut burst);
        b.finish(0, &mut pools[1]).unwrap();
        let gone = Instant::now();
        while a.counters().lost < round {
            assert!(gone.elapsed() < PATIENCE, "{:?}", a.counters());
            now_ns += 200_000_000;
            a.rx(now_ns, &mut pools[0], &mut burst).unwrap();
            pools[0].free_all(&mut burst);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!((a.counters().found, a.counters().away()), (round - 1, 1));
        let before = a.counters().tx.dropped.get(DropReason::TxFailed);
        burst.push(pools[0].packet(&numbered(0, 60)).unwrap()).unwrap();
        a.tx(now_ns, &mut pools[0], &mut burst).unwrap();
        assert_eq!(a.counters().tx.dropped.get(DropReason::TxFailed), before + 1);
    }
    a.finish(0, &mut pools[0]).unwrap();
    pools.iter().for_each(assert_all_home);
}

/// A device on `left`, our own packet socket on `right`: frames pass both ways.
fn over_a_cable(device: &str) {
    cable("left", "right");
    // net_af_packet wants room for frames of 2016 bytes.
    let memory = Memory::new(8192, 4096).unwrap();
    let mut pool = memory.pool(8192).unwrap();
    let options = tidemill_port::packet::Options::default();
    let mut outside = tidemill_port::packet::open("right", "right", 1, &options).unwrap().remove(0);
    let options = Options { promiscuous: true, ..Options::default() };
    let mut port = open("left", device, &options, std::slice::from_ref(&memory)).unwrap().remove(0);
    let mut burst = Burst::new();
    run_up(&mut port, &mut pool, &mut burst);
    pool.free_all(&mut burst);
    let frames: Vec<_> = (0..2000).map(|i| numbered(i, 60 + (i as usize * 31) % 1400)).collect();
    let ours = |frame: &[u8]| frame[12..14] == [0x88, 0xB5];
    for outward in [true, false] {
        let (from, to): (&mut dyn Port, &mut dyn Port) =
            if outward { (&mut port, &mut outside) } else { (&mut outside, &mut port) };
        let (mut next, mut seen, mut progress) = (0, 0, Instant::now());
        let mut now_ns = 0;
        while seen < frames.len() {
            now_ns += 1_000_000;
            assert!(
                progress.elapsed() < PATIENCE,
                "{device}, outward {outward}: {seen} of {next}: {:?} {:?}",
                from.counters(),
                to.counters()
            );
            // No more on the way than the smallest ring holds.
            while next < frames.len() && next - seen < 64 && burst.room() > 0 {
                burst.push(pool.packet(&frames[next]).unwrap()).unwrap();
                next += 1;
            }
            from.tx(now_ns, &mut pool, &mut burst).unwrap();
            let mut arrived = Burst::new();
            to.rx(now_ns, &mut pool, &mut arrived).unwrap();
            for packet in arrived.drain() {
                if ours(packet.data()) {
                    assert!(packet.data() == frames[seen], "changed, lost or out of order");
                    (seen, progress) = (seen + 1, Instant::now());
                }
                pool.free(packet);
            }
        }
    }
    // What it cannot send is refused by name: a driver would lose it without a word.
    burst.push(pool.packet(&[0; 13]).unwrap()).unwrap();
    burst.push(pool.packet(&numbered(0, 1523)).unwrap()).unwrap();
    port.tx(0, &mut pool, &mut burst).unwrap();
    assert_eq!(port.counters().tx.dropped.get(DropReason::TxFailed), 2);
    assert_eq!(port.counters().tx.packets, 2000);
    assert!(port.counters().rx.packets >= 2000);
    outside.finish(0, &mut pool).unwrap();
    port.finish(0, &mut pool).unwrap();
    assert_all_home(&pool);
}

#[test]
fn root_af_packet_device_on_a_cable() {
    if inside("root_af_packet_device_on_a_cable") {
        over_a_cable("net_af_packet0,iface=left");
    }
}

#[test]
fn root_af_xdp_device_on_a_cable() {
    if inside("root_af_xdp_device_on_a_cable") {
        over_a_cable("net_af_xdp0,iface=left");
    }
}

/// An IPv4 packet in a frame, with a right header checksum or a wrong one.
fn ipv4(right: bool) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..14].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 253, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    let sum: u32 =
        frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xFFFF) + (sum >> 16)) as u16 ^ u16::from(!right);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn root_a_device_that_checks_checksums_is_believed() {
    if !inside("root_a_device_that_checks_checksums_is_believed") {
        return;
    }
    net::run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
    let memory = memory(4096);
    let mut pool = memory.pool(4096).unwrap();
    let mut port = one("net_tap0,iface=tapped", &memory);
    let mut burst = Burst::new();
    run_up(&mut port, &mut pool, &mut burst);
    let options = tidemill_port::packet::Options::default();
    let mut outside = tidemill_port::packet::open("tapped", "tapped", 1, &options).unwrap().remove(0);
    for frame in [ipv4(true), ipv4(false), ipv4(true)] {
        burst.push(pool.packet(&frame).unwrap()).unwrap();
    }
    outside.tx(0, &mut pool, &mut burst).unwrap();
    let (started, mut seen) = (Instant::now(), Vec::new());
    while seen.len() < 3 {
        assert!(started.elapsed() < PATIENCE, "{:?} {:?}", outside.counters(), port.counters());
        outside.tx(0, &mut pool, &mut Burst::new()).unwrap();
        port.rx(0, &mut pool, &mut burst).unwrap();
        for packet in burst.drain() {
            if packet.data()[12..14] == [8, 0] {
                seen.push((packet.data().to_vec(), packet.is_checked()));
            }
            pool.free(packet);
        }
    }
    assert_eq!(seen, [(ipv4(true), true), (ipv4(false), false), (ipv4(true), true)]);
    outside.finish(0, &mut pool).unwrap();
    port.finish(0, &mut pool).unwrap();
    assert_all_home(&pool);
}

fn spec(text: &str) -> PortSpec {
    toml::from_str(&format!("name = 'p'\nkind = 'dpdk'\n{text}")).unwrap()
}

fn refused(text: &str, workers: usize) -> String {
    let memory = vec![memory(1024); workers];
    let context = OpenContext { base: Path::new("."), table: None, memory: &memory };
    match spec(text).open(workers, &context) {
        Ok(_) => panic!("{text} was opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn root_mistakes_are_one_line_with_the_way_out() {
    if !inside("root_mistakes_are_one_line_with_the_way_out") {
        return;
    }
    for (text, workers, parts) in [
        ("device = 'net_nonsense0'", 1, &["DPDK has no device \"net_nonsense0\"", "net_nonsense0"][..]),
        ("device = 'net_pcap0,rx_pcap=/nowhere.pcap,tx_pcap=/nowhere/x'", 1, &["DPDK has no device"]),
        ("device = 'net_ring0'", 2, &["net_ring", "2 queues", "queues = 1"]),
        ("device = 'net_null0'\nmtu = 3000", 1, &["raise memory.frame_size"]),
        ("device = ''", 1, &["device is empty"]),
        ("device = '0000:3b:00.0'", 1, &["DPDK runs without PCI devices already"]),
        ("device = 'net_null0'\nqueues = 3", 2, &["queues = 3 with 2 workers: give 1 or 2"]),
    ] {
        let error = refused(text, workers);
        assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        assert!(error.starts_with("port `p`: ") && !error.contains('\n'), "{text}: {error}");
    }
    // After all of that, a good one: one queue, spread over two workers.
    let memory = vec![memory(2048); 2];
    let context = OpenContext { base: Path::new("."), table: None, memory: &memory };
    let mut ports = spec("device = 'net_ring0'\nqueues = 1").open(2, &context).unwrap();
    // Nobody else gets its device, which goes on.
    let error = refused("device = 'net_ring0'", 1);
    assert!(error.contains("device \"net_ring0\" is port \"p\"'s already: give another"), "{error}");
    let mut pools = [memory[0].pool(1024).unwrap(), memory[0].pool(1024).unwrap()];
    let mut burst = Burst::new();
    let started = Instant::now();
    for serial in 0..100 {
        burst.push(pools[1].packet(&numbered(serial, 60)).unwrap()).unwrap();
    }
    let mut seen = 0;
    while seen < 100 {
        assert!(started.elapsed() < PATIENCE);
        ports[1].tx(0, &mut pools[1], &mut burst).unwrap();
        let mut none = Burst::new();
        ports[0].tx(0, &mut pools[0], &mut none).unwrap();
        let mut arrived = Burst::new();
        // What is not IP belongs to the first worker.
        ports[0].rx(0, &mut pools[0], &mut arrived).unwrap();
        seen += arrived.len();
        pools[0].free_all(&mut arrived);
    }
    ports[1].finish(0, &mut pools[1]).unwrap();
    ports[0].finish(0, &mut pools[0]).unwrap();
    pools.iter().for_each(assert_all_home);
}

/// A worker that leaves before all have come takes the device with it: the others end, and keep no packets.
#[test]
fn root_a_device_that_a_worker_leaves_before_it_runs_is_over() {
    if !inside("root_a_device_that_a_worker_leaves_before_it_runs_is_over") {
        return;
    }
    let regions = [memory(1024), memory(1024)];
    let mut queues = open("null", "net_null0", &Options::default(), &regions).unwrap();
    let (mut second, mut first) = (queues.pop().unwrap(), queues.pop().unwrap());
    let mut pools = [regions[0].pool(1024).unwrap(), regions[1].pool(1024).unwrap()];
    let mut burst = Burst::new();
    let waits = RxStatus::Idle { next_due_ns: None };
    assert_eq!(second.rx(0, &mut pools[1], &mut burst).unwrap(), waits);
    first.finish(0, &mut pools[0]).unwrap();
    assert_eq!(second.rx(0, &mut pools[1], &mut burst).unwrap(), RxStatus::Ended);
    burst.push(pools[1].packet(&numbered(0, 60)).unwrap()).unwrap();
    second.tx(0, &mut pools[1], &mut burst).unwrap();
    assert!(burst.is_empty());
    assert_eq!(second.counters().tx.dropped.get(DropReason::TxFailed), 1);
    second.finish(0, &mut pools[1]).unwrap();
    pools.iter().for_each(assert_all_home);
}

#[test]
fn root_an_mtu_that_the_driver_cannot_set_is_said() {
    if !inside("root_an_mtu_that_the_driver_cannot_set_is_said") {
        return;
    }
    let memory = memory(2048);
    let options = Options { mtu: Some(1400), ..Options::default() };
    let note = |device: &str| {
        let port = open("p", device, &options, std::slice::from_ref(&memory)).unwrap().remove(0);
        port.note().to_owned()
    };
    assert_eq!(
        note("net_ring0"),
        "port p: dpdk, net_ring, 1 queue, MTU 1400 here only: the driver cannot set it"
    );
    assert_eq!(note("net_null0"), "port p: dpdk, net_null, 1 queue");
}

#[test]
fn root_bad_arguments_are_said() {
    if !inside("root_bad_arguments_are_said") {
        return;
    }
    DpdkSection { arguments: vec!["--help".into()] }.prepare(&[]);
    let error = refused("device = 'net_null0'", 1);
    assert!(error.contains("--help: DPDK would print its manual and end this process"), "{error}");
    DpdkSection { arguments: vec!["--proc-type=secondary".into()] }.prepare(&[]);
    let error = refused("device = 'net_null0'", 1);
    assert!(error.contains("--proc-type=secondary: nothing is shared with another process"), "{error}");
    DpdkSection { arguments: vec!["--nonsense".into()] }.prepare(&[]);
    // DPDK tries once.
    for _ in 0..2 {
        let error = refused("device = 'net_null0'", 1);
        assert!(error.contains("cannot start DPDK: ") && error.contains("--nonsense"), "{error}");
        assert!(error.contains("Invalid 'command line' arguments") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn root_a_pool_that_is_too_small_says_so() {
    if !inside("root_a_pool_that_is_too_small_says_so") {
        return;
    }
    // net_tap takes frames for its ring when it is started.
    let memory = memory(128);
    let mut pool = memory.pool(128).unwrap();
    let options = Options { rx_descriptors: Some(256), ..Options::default() };
    let mut port =
        open("tap", "net_tap0,iface=tapped", &options, std::slice::from_ref(&memory)).unwrap().remove(0);
    let error = port.rx(0, &mut pool, &mut Burst::new()).unwrap_err().to_string();
    assert!(error.contains("cannot start the device") && error.contains("memory.frames"), "{error}");
    let mut burst = Burst::new();
    assert_eq!(port.rx(0, &mut pool, &mut burst).unwrap(), RxStatus::Ended);
    if let Some(packet) = pool.packet(&numbered(0, 60)) {
        burst.push(packet).unwrap();
        port.tx(0, &mut pool, &mut burst).unwrap();
        assert_eq!(port.counters().tx.dropped.get(DropReason::TxFailed), 1);
    }
    port.finish(0, &mut pool).unwrap();
    assert_all_home(&pool);
}
