//! AF_PACKET ports on virtual cables: frames, tags, offloads, queues, links that go and come, and the books.
//! Needs root; every test runs in network namespaces of its own.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "root_af_packet/addresses.rs"]
mod addresses;
mod common;
#[path = "common/frames.rs"]
mod frames;
#[path = "common/net.rs"]
mod net;

use frames::{PATIENCE, assert_home, now_ns, numbered, receive_each, send};
use net::{Host, cable, inside, run};
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_burst::{Burst, DropReason, Memory, Pool};
use tidemill_port::packet::{Options, open};
use tidemill_port::spec::{OpenContext, PortSpec, Receive};
use tidemill_port::{PacketPort, Port, PortCounters, RxStatus, device};
use tidemill_wire::verify_checksums;

fn pool(frames: usize) -> Pool {
    Memory::new(frames, 2048).unwrap().pool(frames).unwrap()
}

fn port(interface: &str) -> PacketPort {
    port_by(interface, Receive::Slots)
}

fn port_by(interface: &str, receive: Receive) -> PacketPort {
    open(interface, interface, 1, &Options { receive, ..Options::default() }).unwrap().remove(0)
}

/// Receives so many; the kernel tells when each came.
fn receive(port: &mut PacketPort, pool: &mut Pool, wanted: usize) -> Vec<Vec<u8>> {
    receive_each(port, pool, wanted, |packet| {
        let age_ns = now_ns().saturating_sub(packet.timestamp_ns());
        assert!(age_ns < 60_000_000_000, "timestamp {}", packet.timestamp_ns());
    })
}

/// Both receive rings.
const RINGS: [Receive; 2] = [Receive::Slots, Receive::Blocks];

#[test]
fn root_frames_pass_both_ways_byte_for_byte() {
    if !inside("root_frames_pass_both_ways_byte_for_byte") {
        return;
    }
    cable("left", "right");
    let (mut left, mut right, mut pool) = (port("left"), port_by("right", Receive::Blocks), pool(4096));
    let frames: Vec<_> = (0..20_000).map(|i| numbered(i, 14 + (i as usize * 7) % 1501)).collect();
    let bytes = frames.iter().map(|f| f.len() as u64).sum();
    for round in 0..2 {
        let (from, to) = if round == 0 { (&mut left, &mut right) } else { (&mut right, &mut left) };
        for frames in frames.chunks(2000) {
            send(from, &mut pool, frames);
            assert!(receive(to, &mut pool, frames.len()) == frames, "changed, lost or out of order");
        }
        let (sent, came) = (from.counters().tx, to.counters().rx);
        assert_eq!((sent.packets, sent.bytes, sent.held, sent.dropped.total()), (20_000, bytes, 0, 0));
        assert_eq!((came.packets, came.bytes, came.made, came.dropped.total()), (20_000, bytes, 0, 0));
    }
    // What the device cannot carry is refused by name, and the next one passes.
    send(&mut left, &mut pool, &[numbered(0, 1515), vec![0; 13], numbered(2, 1514)]);
    assert_eq!(receive(&mut right, &mut pool, 1), [numbered(2, 1514)]);
    assert_eq!(left.counters().tx.dropped.get(DropReason::TxFailed), 2);
    // A larger MTU is noticed.
    run("ip link set left mtu 1600");
    run("ip link set right mtu 1600");
    std::thread::sleep(Duration::from_millis(150));
    send(&mut left, &mut pool, &[numbered(3, 1614)]);
    assert_eq!(receive(&mut right, &mut pool, 1), [numbered(3, 1614)]);
    // Frames of this host do not come back, which those that pass the queueing discipline would.
    let options = Options { qdisc: true, ..Options::default() };
    let mut through = open("left", "left", 1, &options).unwrap().remove(0);
    send(&mut through, &mut pool, &frames[..100]);
    assert_eq!(receive(&mut right, &mut pool, 100), frames[..100]);
    assert!(receive(&mut left, &mut pool, 0).is_empty());
    assert_eq!(left.counters().rx.packets, 20_000);
    assert_home(&pool);
}

#[test]
fn root_vlan_tags_are_kept() {
    if !inside("root_vlan_tags_are_kept") {
        return;
    }
    cable("left", "right");
    let (mut left, mut pool) = (port("left"), pool(512));
    let tagged = |tags: &[[u8; 4]], len| {
        let mut frame = numbered(7, len);
        let tags = tags.concat();
        frame.splice(12..12, tags);
        frame
    };
    let frames = [
        tagged(&[[0x81, 0x00, 0x00, 0x0A]], 60),
        tagged(&[[0x81, 0x00, 0xFF, 0xFF]], 60),
        // Priority only: VLAN 0.
        tagged(&[[0x81, 0x00, 0x60, 0x00]], 60),
        tagged(&[[0x88, 0xA8, 0x00, 0x05]], 100),
        tagged(&[[0x88, 0xA8, 0x20, 0x05], [0x81, 0x00, 0x30, 0x06]], 100),
        // A tag does not count for the MTU.
        tagged(&[[0x81, 0x00, 0x00, 0x0A]], 1514),
        numbered(8, 60),
    ];
    for ring in RINGS {
        let mut right = port_by("right", ring);
        send(&mut left, &mut pool, &frames);
        assert_eq!(receive(&mut right, &mut pool, frames.len()), frames, "{ring:?}");
        let came = right.counters().rx;
        assert_eq!(came.bytes, frames.iter().map(|f| f.len() as u64).sum::<u64>());
    }
    assert_home(&pool);
}

/// Passes everything between two ports on a thread of its own, and checks every checksum that passes.
struct Bridge {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<[PortCounters; 2]>,
}

impl Bridge {
    fn start(mut ports: [PacketPort; 2]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut pool, mut bursts) = (pool(8192), [Burst::new(), Burst::new()]);
            while !stopped.load(Ordering::Relaxed) {
                let mut idle = true;
                for (from, to) in [(0, 1), (1, 0)] {
                    let (before, burst) = (bursts[to].len(), &mut bursts[to]);
                    idle &= ports[from].rx(now_ns(), &mut pool, burst).unwrap() != RxStatus::Received;
                    for packet in burst[before..].iter() {
                        verify_checksums(packet.data()).unwrap();
                        assert!(packet.len() <= 1514, "{} bytes", packet.len());
                    }
                    ports[to].tx(now_ns(), &mut pool, &mut bursts[to]).unwrap();
                }
                if idle {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            bursts.iter_mut().for_each(|burst| pool.free_all(burst));
            for port in &mut ports {
                port.finish(now_ns(), &mut pool).unwrap();
                assert_eq!(port.counters().tx.held, 0);
            }
            assert_home(&pool);
            let counters = ports.each_ref().map(|port| port.counters());
            for (from, to) in [(0, 1), (1, 0)] {
                assert_eq!(counters[from].delivered(), counters[to].taken(), "{counters:#?}");
            }
            counters
        });
        Bridge { stop, thread }
    }

    fn end(self) -> [PortCounters; 2] {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// `host a - near-a === ports === near-b - host b`.
fn two_hosts(ring: Receive) -> (Host, Host, Bridge) {
    cable("near-a", "host-a");
    cable("near-b", "host-b");
    let a = Host::new("host-a", &["10.1.0.1/24", "fd01::1/64"]);
    let b = Host::new("host-b", &["10.1.0.2/24", "fd01::2/64"]);
    (a, b, Bridge::start([port_by("near-a", ring), port_by("near-b", ring)]))
}

/// Bytes that do not repeat within a segment.
fn stream(bytes: usize) -> impl Iterator<Item = u8> {
    let mut state = 1u64;
    (0..bytes).map(move |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    })
}

fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf29ce484222325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100000001b3))
}

#[test]
fn root_tcp_and_udp_pass_with_offloads_on() {
    if inside("root_tcp_and_udp_pass_with_offloads_on") {
        offloads(Receive::Slots);
    }
}

#[test]
fn root_tcp_and_udp_pass_with_offloads_on_in_blocks() {
    if inside("root_tcp_and_udp_pass_with_offloads_on_in_blocks") {
        offloads(Receive::Blocks);
    }
}

fn offloads(ring: Receive) {
    const BYTES: usize = 8 << 20;
    let (a, b, bridge) = two_hosts(ring);
    // What the sockets are told of links that were down a moment ago is not mistaken for a super-packet's fate.
    for card in ["near-a", "near-b"] {
        run(&format!("ip link set {card} down"));
        run(&format!("ip link set {card} up"));
    }
    transfer(&a, &b, "10.1.0.2:5000", BYTES);
    transfer(&b, &a, "[fd01::1]:5001", BYTES);
    // Datagrams, each whole: their checksums are left to the card too. Then 30 of them as one super-packet.
    for (ip, port) in [("10.1.0.2", 6000), ("fd01::2", 6001)] {
        let at = SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port);
        let (ready, waiting) = std::sync::mpsc::channel();
        let server = b.spawn(move || {
            let socket = UdpSocket::bind(at).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            ready.send(()).unwrap();
            let mut buffer = [0; 2000];
            (0..31)
                .map(|_| socket.recv(&mut buffer).map(|n| buffer[..n].to_vec()).unwrap())
                .collect::<Vec<_>>()
        });
        waiting.recv().unwrap();
        let datagrams: Vec<Vec<u8>> =
            (0..31).map(|i| vec![i as u8; if i == 30 { 17 } else { 1200 }]).collect();
        let (first, rest) = (datagrams[0].clone(), datagrams[1..].concat());
        let client = a.spawn(move || {
            let socket = UdpSocket::bind(if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
            socket.connect(at).unwrap();
            socket.send(&first).unwrap();
            segment_sends(&socket, 1200);
            assert_eq!(socket.send(&rest).unwrap(), rest.len());
        });
        client.join().unwrap();
        assert_eq!(server.join().unwrap(), datagrams);
    }
    let counters = bridge.end();
    println!("a: {:?}\nb: {:?}", counters[0], counters[1]);
    for (side, counters) in counters.iter().enumerate() {
        // What a host tells its groups when its link comes up, the other side's link may still be too far down to take.
        let failed = counters.tx.dropped.get(DropReason::TxFailed);
        assert_eq!((counters.rx.dropped.total(), counters.tx.dropped.total()), (0, failed), "side {side}");
        assert!(failed < 10, "side {side}: {failed}");
        // 8 MiB in segments of 1448 bytes are 5793 packets; most of them came within others.
        assert!(counters.rx.made > 4000, "side {side}: {} segments made", counters.rx.made);
    }
}

/// Sends a stream from one host to the other, and compares.
fn transfer(client: &Host, server: &Host, at: &str, bytes: usize) {
    let at: SocketAddr = at.parse().unwrap();
    let (ready, waiting) = std::sync::mpsc::channel();
    let server = server.spawn(move || {
        let listener = TcpListener::bind(at).unwrap();
        ready.send(()).unwrap();
        let mut stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        (all.len(), hash(all.into_iter()))
    });
    waiting.recv().unwrap();
    let client = client.spawn(move || {
        let mut tcp = TcpStream::connect_timeout(&at, PATIENCE).unwrap();
        tcp.set_write_timeout(Some(PATIENCE)).unwrap();
        tcp.write_all(&stream(bytes).collect::<Vec<_>>()).unwrap();
    });
    client.join().unwrap();
    assert_eq!(server.join().unwrap(), (bytes, hash(stream(bytes))));
}

#[test]
fn root_tunnels_pass_with_offloads_on() {
    if !inside("root_tunnels_pass_with_offloads_on") {
        return;
    }
    const BYTES: usize = 4 << 20;
    let (a, b, bridge) = two_hosts(Receive::Slots);
    // VXLAN over IPv4 with and without a checksum, and over IPv6.
    for (id, [ours, theirs], options) in [
        (5, ["10.1.0.1", "10.1.0.2"], "udpcsum"),
        (6, ["10.1.0.1", "10.1.0.2"], "noudpcsum"),
        (7, ["fd01::1", "fd01::2"], ""),
    ] {
        for (host, card, local, remote, last) in
            [(&a, "host-a", ours, theirs, 1), (&b, "host-b", theirs, ours, 2)]
        {
            let ends = format!("local {local} remote {remote} dev {card} dstport 4789 {options}");
            host.run(&format!("ip link add vx{id} type vxlan id {id} {ends}"));
            host.run(&format!("ip addr add 10.{id}.5.{last}/24 dev vx{id}"));
            host.run(&format!("ip addr add fd0{id}:5::{last}/64 dev vx{id} nodad"));
            host.run(&format!("ip link set vx{id} up"));
        }
        transfer(&a, &b, &format!("10.{id}.5.2:5000"), BYTES);
        transfer(&b, &a, &format!("[fd0{id}:5::1]:5000"), BYTES);
    }
    for (side, counters) in bridge.end().iter().enumerate() {
        assert_eq!((counters.rx.dropped.total(), counters.tx.dropped.total()), (0, 0), "side {side}");
        assert!(counters.rx.made > 6000, "side {side}: {} segments made", counters.rx.made);
    }
}

/// UDP_SEGMENT: what is sent at once leaves as datagrams of this size.
fn segment_sends(socket: &UdpSocket, size: i32) {
    use std::os::fd::AsRawFd;
    let (value, len) = (std::ptr::from_ref(&size).cast(), size_of::<i32>() as libc::socklen_t);
    // SAFETY: `value` is `len` readable bytes.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, len) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// A UDP packet of a flow, with a serial number.
fn datagram(flow: u16, serial: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
        .ipv4([10, 0, (flow >> 8) as u8, flow as u8], [10, 9, 9, 9], 64)
        .udp(1000 + flow, 53)
        .write(&mut frame, &[&flow.to_be_bytes()[..], &serial.to_be_bytes(), &[0; 20]].concat())
        .unwrap();
    frame
}

#[test]
fn root_fanout_keeps_flows_whole() {
    if !inside("root_fanout_keeps_flows_whole") {
        return;
    }
    cable("left", "right");
    let (mut left, mut pool) = (port("left"), pool(4096));
    let mut queues = open("right", "right", 2, &Options::default()).unwrap();
    // Another port on the same device: a group of its own, which gets everything as well.
    let mut other = open("other", "right", 2, &Options::default()).unwrap();
    let (mut home, mut next) = (HashMap::new(), HashMap::new());
    for round in 0..8u32 {
        let frames: Vec<_> =
            (0..40).flat_map(|i| (0..20).map(move |flow| datagram(flow, round * 40 + i))).collect();
        send(&mut left, &mut pool, &frames);
        let came: Vec<_> = queues.iter_mut().map(|queue| receive(queue, &mut pool, 0)).collect();
        assert_eq!(came.iter().map(Vec::len).sum::<usize>(), frames.len(), "lost or twice");
        for (queue, came) in came.iter().enumerate() {
            for packet in came {
                let flow = u16::from_be_bytes([packet[42], packet[43]]);
                let serial = u32::from_be_bytes(packet[44..48].try_into().unwrap());
                assert_eq!(*home.entry(flow).or_insert(queue), queue, "flow {flow} changed its queue");
                let next = next.entry(flow).or_insert(0);
                assert_eq!(serial, *next, "flow {flow} is out of order");
                *next += 1;
            }
        }
        assert_eq!(
            other.iter_mut().map(|queue| receive(queue, &mut pool, 0).len()).sum::<usize>(),
            frames.len()
        );
    }
    assert_eq!(home.values().copied().collect::<HashSet<_>>(), HashSet::from([0, 1]), "a queue got nothing");
    // What this host sends by the same device comes back to no queue.
    let mut through =
        open("right", "right", 1, &Options { qdisc: true, ..Options::default() }).unwrap().remove(0);
    send(&mut through, &mut pool, &[datagram(0, 0), datagram(1, 0)]);
    assert!(queues.iter_mut().all(|queue| receive(queue, &mut pool, 0).is_empty()));
    // Fragments of one packet meet in one queue, as they came.
    let mut whole = datagram(3, 0);
    whole[20] = 0x20;
    let mut rest = whole.clone();
    (rest[20], rest[21]) = (0, 4);
    let fragments: Vec<_> = (0..50).flat_map(|_| [whole.clone(), rest.clone()]).collect();
    send(&mut left, &mut pool, &fragments);
    let came: Vec<_> = queues.iter_mut().map(|queue| receive(queue, &mut pool, 0)).collect();
    assert!(came.contains(&fragments) && came.contains(&Vec::new()), "reassembled or torn apart");
    assert_home(&pool);
}

#[test]
fn root_links_go_down_and_come_back() {
    if !inside("root_links_go_down_and_come_back") {
        return;
    }
    cable("left", "right");
    let (mut left, mut pool) = (port("left"), pool(4096));
    let mut queues = open("right", "right", 2, &Options::default()).unwrap();
    let frames: Vec<_> = (0..100).map(|i| numbered(i, 100)).collect();
    let mut total = |left: &mut PacketPort, pool: &mut Pool| {
        send(left, pool, &frames);
        queues.iter_mut().map(|queue| receive(queue, pool, 0).len()).sum::<usize>()
    };
    assert_eq!(total(&mut left, &mut pool), 100);
    for round in 1..=3 {
        run("ip link set left down");
        assert_eq!(total(&mut left, &mut pool), 0);
        assert_eq!(left.counters().tx.dropped.get(DropReason::TxFailed), 200 * round - 100);
        run("ip link set left up");
        assert_eq!(total(&mut left, &mut pool), 100, "nothing stale, nothing lost");
        run("ip link set right down");
        assert_eq!(total(&mut left, &mut pool), 0);
        assert_eq!(left.counters().tx.dropped.get(DropReason::TxFailed), 200 * round, "no carrier");
        run("ip link set right up");
        assert_eq!(total(&mut left, &mut pool), 100);
    }
    // Opened while it is down.
    run("ip link set left down");
    drop(left);
    let mut left = port("left");
    run("ip link set left up");
    assert_eq!(total(&mut left, &mut pool), 100);
    assert_eq!(left.counters().lost, 0, "a link that is down is not gone");
    assert_home(&pool);
}

/// Calls both directions until something is so.
fn until(
    what: &str,
    ports: &mut [PacketPort],
    pool: &mut Pool,
    mut is_so: impl FnMut(&[PacketPort]) -> bool,
) {
    let (mut burst, started) = (Burst::new(), Instant::now());
    while !is_so(ports) {
        for port in &mut *ports {
            let status = port.rx(now_ns(), pool, &mut burst).unwrap();
            assert_ne!(status, RxStatus::Ended, "a device that is away is no end");
            pool.free_all(&mut burst);
        }
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn root_devices_go_away_and_come_back() {
    if !inside("root_devices_go_away_and_come_back") {
        return;
    }
    for (queues, receive) in [(1, Receive::Slots), (1, Receive::Blocks), (2, Receive::Slots)] {
        cable("left", "right");
        let mut pool = pool(4096);
        let options = Options { receive, ..Options::default() };
        let mut left = open("left", "left", 1, &options).unwrap();
        let mut right = open("right", "right", queues, &options).unwrap();
        let frames: Vec<_> = (0..100).map(|i| datagram(i, 0)).collect();
        let all = |right: &mut [PacketPort], pool: &mut Pool| {
            right.iter_mut().map(|queue| receive_all(queue, pool)).sum::<usize>()
        };
        let mut came = 0;
        for round in 1..=3 {
            send(&mut left[0], &mut pool, &frames);
            came += 100;
            let started = Instant::now();
            let mut got = 0;
            while got < 100 {
                got += all(&mut right, &mut pool);
                assert!(started.elapsed() < PATIENCE, "{got}");
            }
            // What the ring holds when the device goes is read all the same.
            send(&mut left[0], &mut pool, &frames[..10]);
            came += 10;
            std::thread::sleep(Duration::from_millis(100));
            run("ip link del left");
            until("gone", &mut right, &mut pool, |ports| {
                ports.iter().all(|port| port.counters().lost == round)
            });
            until("gone", &mut left, &mut pool, |ports| ports[0].counters().lost == round);
            let received: u64 = right.iter().map(|port| port.counters().rx.packets).sum();
            assert_eq!(received, came, "{queues} {receive:?}");
            // Nothing to send by, and that is counted.
            let before = left[0].counters().tx.dropped.get(DropReason::TxFailed);
            send(&mut left[0], &mut pool, &frames[..7]);
            assert_eq!(left[0].counters().tx.dropped.get(DropReason::TxFailed), before + 7);
            assert_eq!((left[0].counters().away(), left[0].counters().tx.held), (1, 0));
            cable("left", "right");
            until("back", &mut right, &mut pool, |ports| {
                ports.iter().all(|port| port.counters().found == round)
            });
            until("back", &mut left, &mut pool, |ports| ports[0].counters().found == round);
        }
        for port in left.iter_mut().chain(&mut right) {
            let counters = port.counters();
            assert_eq!((counters.away(), counters.delivered()), (0, counters.rx.packets));
            port.finish(now_ns(), &mut pool).unwrap();
            assert_eq!(port.rx(now_ns(), &mut pool, &mut Burst::new()).unwrap(), RxStatus::Ended);
        }
        assert_home(&pool);
        run("ip link del left");
    }
}

/// Receives what there is.
fn receive_all(port: &mut PacketPort, pool: &mut Pool) -> usize {
    let mut burst = Burst::new();
    port.rx(now_ns(), pool, &mut burst).unwrap();
    let count = burst.len();
    pool.free_all(&mut burst);
    count
}

#[test]
fn root_a_device_of_another_name_is_another() {
    if !inside("root_a_device_of_another_name_is_another") {
        return;
    }
    cable("left", "right");
    let mut pool = pool(4096);
    let mut ports = vec![port("left"), port("right")];
    run("ip link set right down");
    run("ip link set right name other");
    run("ip link set other up");
    until("gone", &mut ports, &mut pool, |ports| ports[1].counters().lost == 1);
    // It has a new life as somebody else's; frames to it are none of ours.
    send(&mut ports[0], &mut pool, &[numbered(1, 100), numbered(2, 100)]);
    assert_eq!((receive_all(&mut ports[1], &mut pool), ports[1].counters().rx.packets), (0, 0));
    run("ip link set other down");
    run("ip link set other name right");
    run("ip link set right up");
    until("back", &mut ports, &mut pool, |ports| ports[1].counters().found == 1);
    assert_eq!(ports[0].counters().lost, 0);
    send(&mut ports[0], &mut pool, &[numbered(3, 100)]);
    assert_eq!(receive(&mut ports[1], &mut pool, 1), [numbered(3, 100)]);
    // A longer MTU than the rings were made for.
    run("ip link set left mtu 4000");
    run("ip link set right mtu 4000");
    until("a while", &mut ports, &mut pool, {
        let started = Instant::now();
        move |_| started.elapsed() > Duration::from_millis(300)
    });
    let mut large = Memory::new(64, 8192).unwrap().pool(64).unwrap();
    send(&mut ports[0], &mut large, &[numbered(4, 3900)]);
    assert_eq!(receive(&mut ports[1], &mut large, 1), [numbered(4, 3900)]);
    assert_eq!(ports[0].counters().lost, 0, "a longer MTU is no other device");
    assert_home(&pool);
}

#[test]
fn root_what_the_ring_loses_is_counted() {
    if !inside("root_what_the_ring_loses_is_counted") {
        return;
    }
    cable("left", "right");
    let (mut left, mut pool) = (port("left"), pool(1024));
    for ring in RINGS {
        lose(ring, &mut left, &mut pool);
    }
    assert_home(&pool);
}

fn lose(ring: Receive, left: &mut PacketPort, pool: &mut Pool) {
    let options = Options { receive: ring, rx_ring_kib: 256, ..Options::default() };
    let mut right = open("right", "right", 1, &options).unwrap().remove(0);
    let frames: Vec<_> = (0..10_000).map(|i| numbered(i, 100)).collect();
    send(left, pool, &frames);
    let came = receive(&mut right, pool, 1);
    assert!(frames.starts_with(&came), "what came is the beginning");
    let rx = right.counters().rx;
    assert!((64..9_000).contains(&came.len()), "{} came", came.len());
    assert_eq!(rx.packets, 10_000, "every packet is in the books");
    assert_eq!(rx.dropped.get(DropReason::RxRingFull), 10_000 - came.len() as u64);
    assert_eq!(right.counters().delivered(), came.len() as u64);
    assert!(right.freezes() > 0 || ring == Receive::Slots);
    // And it goes on; frames are short of a pool, and that has a name too.
    let mut small = Memory::new(10, 2048).unwrap().pool(10).unwrap();
    send(left, pool, &frames[..50]);
    let (mut burst, started) = (Burst::new(), Instant::now());
    while right.counters().rx.packets < 10_050 {
        right.rx(now_ns(), &mut small, &mut burst).unwrap();
        assert!(started.elapsed() < PATIENCE);
    }
    assert_eq!((burst.len(), right.counters().rx.dropped.get(DropReason::NoFrames)), (10, 40));
    small.free_all(&mut burst);
    // Too long for the pool's frames.
    run("ip link set left mtu 3000");
    run("ip link set right mtu 3000");
    let mut long = port("left");
    let mut large = Memory::new(4, 4096).unwrap().pool(4).unwrap();
    send(&mut long, &mut large, &[numbered(0, 3000), numbered(1, 1792)]);
    assert_eq!(receive(&mut right, &mut small, 1), [numbered(1, 1792)]);
    assert_eq!(right.counters().rx.dropped.get(DropReason::FrameTooSmall), 1);
    assert_home(&small);
    assert_home(&large);
    run("ip link set left mtu 1500");
    run("ip link set right mtu 1500");
}

#[test]
fn root_devices_are_told_apart() {
    if !inside("root_devices_are_told_apart") {
        return;
    }
    if std::env::var_os("TIDEMILL_WITHOUT_RIGHTS").is_some() {
        let error = open("left", "left", 1, &Options::default()).err().unwrap().to_string();
        assert!(error.contains("run as root, or `setcap cap_net_raw,cap_net_admin+ep`"), "{error}");
        return println!("{error}");
    }
    cable("left", "right");
    run("ip link set left address 02:00:00:00:00:17 mtu 1400");
    let left = device("left").unwrap();
    assert_eq!((left.mac.to_string().as_str(), left.mtu, left.up), ("02:00:00:00:00:17", 1400, true));
    assert!(left.running && left.index > 1 && left.name == "left");
    run("ip link set right down");
    // The other end hears of it a moment later.
    let state = |name: &str| device(name).map(|device| (device.up, device.running)).unwrap();
    let start = Instant::now();
    while state("left") != (true, false) && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((state("left"), state("right")), ((true, false), (false, false)));
    let error = open("wan", "wlan7", 1, &Options::default()).err().unwrap().to_string();
    assert_eq!(error, "port `wan`: there is no network interface \"wlan7\" (there is: lo, right, left)");
    for name in ["", "a name that is far too long", "a\0b"] {
        assert!(device(name).unwrap_err().to_string().contains("there is no network interface"), "{name:?}");
    }
    let wrong = Options { tx_ring_packets: 100, ..Options::default() };
    let error = open("wan", "left", 1, &wrong).err().unwrap().to_string();
    assert_eq!(error, "port `wan`: tx_ring_packets = 100: give a power of two from 8 to 65536");

    // Multicast of every group is let in while a port is open, other stations' frames only by request.
    let counts = || {
        let output = std::process::Command::new("ip").args(["-d", "link", "show", "left"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let after = |word: &str| {
            let number = text.split(word).nth(1).and_then(|rest| rest.split_whitespace().next());
            number.unwrap().parse::<u32>().unwrap()
        };
        (after("promiscuity "), after("allmulti "))
    };
    assert_eq!(counts(), (0, 0));
    let plain = port("left");
    assert_eq!(counts(), (0, 1));
    let options = Options { promiscuous: true, qdisc: true, ..Options::default() };
    let both = open("left", "left", 1, &options).unwrap();
    assert_eq!(counts(), (1, 2));
    drop((plain, both));
    assert_eq!(counts(), (0, 0));

    // Without the right to: said how to get it.
    let status = std::process::Command::new("setpriv")
        .args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "root_devices_are_told_apart", "--nocapture"])
        .env("TIDEMILL_WITHOUT_RIGHTS", "1")
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn root_a_configuration_opens_a_queue_for_each_worker() {
    if !inside("root_a_configuration_opens_a_queue_for_each_worker") {
        return;
    }
    cable("left", "right");
    let context = OpenContext { base: Path::new("."), table: None, memory: &[] };
    let spec = |text: &str| toml::from_str::<PortSpec>(&format!("kind = \"af_packet\"\n{text}")).unwrap();
    let (mut left, mut pool) = (port("left"), pool(2048));
    let frames: Vec<_> = (0..256).map(|i| datagram(i % 64, u32::from(i))).collect();
    for text in [
        "name = \"right\"",
        "name = \"wan\"\ninterface = \"right\"\nqueues = 1\nreceive = \"blocks\"",
        "name = \"wan\"\ninterface = \"right\"\nfault = { rx = { loss = 0.0 } }\npromiscuous = true\nrx_ring_kib = 1024",
    ] {
        let spec = spec(text);
        let mut queues = spec.open(2, &context).unwrap();
        assert_eq!((queues.len(), queues[0].name(), queues[1].name()), (2, spec.name(), spec.name()));
        send(&mut left, &mut pool, &frames);
        let (mut burst, mut came, started) = (Burst::new(), [0, 0], Instant::now());
        while came.iter().sum::<usize>() < frames.len() {
            for (queue, came) in queues.iter_mut().zip(&mut came) {
                queue.rx(now_ns(), &mut pool, &mut burst).unwrap();
                *came += burst.len();
                pool.free_all(&mut burst);
            }
            assert!(started.elapsed() < PATIENCE, "{came:?} of {text}");
        }
        assert!(came.iter().all(|n| *n > 0), "{came:?} of {text}");
        // In any order: who reads the device waits for the others.
        for queue in queues.iter_mut().rev() {
            queue.finish(now_ns(), &mut pool).unwrap();
        }
    }
    let error = spec("name = \"right\"\nqueues = 3").open(2, &context).err().unwrap().to_string();
    assert_eq!(error, "port `right`: queues = 3 with 2 workers: give 1 or 2");
    assert!(toml::from_str::<PortSpec>("kind = \"af_packet\"\nname = \"a\"\nspeed = 1").is_err());
    assert_home(&pool);
}
