//! AF_XDP ports on virtual cables: frames, what is left to the kernel, checksums, queues, interfaces that go and come, and
//! the books. Needs root; every test runs in network namespaces of its own.

#![cfg(all(feature = "xdp", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "root_xdp/busy.rs"]
mod busy;
mod common;
#[path = "root_xdp/devices.rs"]
mod devices;
#[path = "common/frames.rs"]
mod frames;
#[path = "common/link.rs"]
mod link;
#[path = "common/messages.rs"]
mod messages;
#[path = "common/net.rs"]
mod net;
#[path = "root_xdp/rule.rs"]
mod rule;

use frames::{PATIENCE, assert_home, now_ns, numbered, receive, send};
use link::Link;
use messages::{message, to_nobody};
use net::{cable, inside, run};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidemill_burst::{Burst, DropReason, Memory, Pool};
use tidemill_port::spec::{Mode, OpenContext, PortSpec};
use tidemill_port::xdp::{Options, XdpPort, open};
use tidemill_port::{Ownership, Port, PortCounters, Rule, RxStatus, SpreadBy};
use tidemill_wire::verify_checksums;

const FRAMES: usize = 8192;

fn memory() -> Arc<Memory> {
    Memory::new(FRAMES, 2048).unwrap()
}

/// Small rings, so that they wrap and run full.
fn small(mode: Mode) -> Options {
    Options { mode, rx_ring: 512, tx_ring: 256, ..Options::default() }
}

/// An interface with one queue, and its rule.
fn ruled(interface: &str, memory: &Arc<Memory>, options: &Options) -> (XdpPort, Arc<dyn Rule>) {
    let mut open = open(interface, interface, 1, options, std::slice::from_ref(memory)).unwrap();
    open.notes.iter().for_each(|note| println!("{note}"));
    (open.queues.remove(0), open.rule)
}

/// An interface with one queue that is all ours.
fn port(interface: &str, memory: &Arc<Memory>, mode: Mode) -> XdpPort {
    let (port, rule) = ruled(interface, memory, &small(mode));
    rule.set(&Ownership::default()).unwrap();
    port
}

/// The fill ring is empty until the first call.
fn ready(port: &mut dyn Port, pool: &mut Pool) {
    let mut burst = Burst::new();
    port.rx(now_ns(), pool, &mut burst).unwrap();
    pool.free_all(&mut burst);
}

fn finish(ports: &mut [&mut XdpPort], pool: &mut Pool) {
    for port in ports {
        port.finish(now_ns(), pool).unwrap();
        assert_eq!((port.lent(), port.counters().tx.held), (0, 0));
    }
    assert_home(pool);
}

#[test]
fn root_xdp_frames_pass_both_ways_byte_for_byte() {
    if !inside("root_xdp_frames_pass_both_ways_byte_for_byte") {
        return;
    }
    // With busy polling the same frames pass, by our calls; without rights or a kernel for it, no port opens.
    for (mode, native, busy_poll_us) in
        [(Mode::Auto, true, 0), (Mode::Native, true, 50), (Mode::Generic, false, 50), (Mode::Native, true, 0)]
    {
        cable("left", "right");
        let memory = memory();
        let mut pool = memory.pool(FRAMES).unwrap();
        let options = Options { busy_poll_us, ..small(mode) };
        let [mut left, mut right] = ["left", "right"].map(|interface| {
            let mut open = open(interface, interface, 1, &options, std::slice::from_ref(&memory)).unwrap();
            let polls = open.notes.iter().any(|note| note.contains("busy polling for 50 us"));
            assert_eq!(polls, busy_poll_us > 0, "{:?}", open.notes);
            open.rule.set(&Ownership::default()).unwrap();
            open.queues.remove(0)
        });
        assert_eq!((left.is_native(), left.is_zero_copy()), (native, false));
        let frames: Vec<_> = (0..10_000).map(|i| numbered(i, 14 + (i as usize * 7) % 1501)).collect();
        let bytes = frames.iter().map(|f| f.len() as u64).sum();
        for round in 0..2 {
            let (from, to) = if round == 0 { (&mut left, &mut right) } else { (&mut right, &mut left) };
            for frames in frames.chunks(400) {
                ready(to, &mut pool);
                send(from, &mut pool, frames);
                assert!(receive(to, &mut pool, frames.len()) == frames, "changed, lost or out of order");
            }
            let (sent, came) = (from.counters().tx, to.counters().rx);
            assert_eq!((sent.packets, sent.bytes, sent.held, sent.dropped.total()), (10_000, bytes, 0, 0));
            assert_eq!((came.packets, came.bytes, came.made, came.dropped.total()), (10_000, bytes, 0, 0));
        }
        // What the device cannot carry is refused by name, and the next one passes; a tag does not count.
        let mut tagged = numbered(2, 1514);
        tagged.splice(12..12, [0x81, 0x00, 0x00, 0x0A]);
        send(&mut left, &mut pool, &[numbered(0, 1515), vec![0; 13], tagged.clone()]);
        assert_eq!(receive(&mut right, &mut pool, 1), [tagged]);
        assert_eq!(left.counters().tx.dropped.get(DropReason::TxFailed), 2);
        // A larger MTU is noticed.
        run("ip link set left mtu 1600");
        run("ip link set right mtu 1600");
        std::thread::sleep(Duration::from_millis(150));
        ready(&mut left, &mut pool);
        send(&mut left, &mut pool, &[numbered(3, 1614)]);
        assert_eq!(receive(&mut right, &mut pool, 1), [numbered(3, 1614)]);
        finish(&mut [&mut left, &mut right], &mut pool);
        run("ip link del left");
    }
}

#[test]
fn root_xdp_frames_run_out_and_come_back() {
    if !inside("root_xdp_frames_run_out_and_come_back") {
        return;
    }
    cable("left", "right");
    let memory = Memory::new(4096, 2048).unwrap();
    let (mut pool, mut other) = (memory.pool(2048).unwrap(), memory.pool(2048).unwrap());
    let (mut left, mut right) = (port("left", &memory, Mode::Native), port("right", &memory, Mode::Native));
    let frames: Vec<_> = (0..600).map(|i| numbered(i, 60)).collect();
    // Nobody reads: the rings hold what they were given, and the rest is counted.
    ready(&mut right, &mut pool);
    send(&mut left, &mut other, &frames);
    assert_eq!(receive(&mut right, &mut pool, 512), frames[..512]);
    std::thread::sleep(Duration::from_millis(20));
    ready(&mut right, &mut pool);
    let rx = right.counters().rx;
    assert_eq!((rx.packets, rx.dropped.get(DropReason::RxRingFull), rx.dropped.total()), (600, 88, 88));
    // Somebody keeps the worker's frames: what is left is kept for sending, and the ring runs dry.
    let mut kept: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    kept.drain(..100).for_each(|packet| pool.free(packet));
    send(&mut left, &mut other, &frames);
    let seen = receive(&mut right, &mut pool, 512);
    assert_eq!(seen, frames[..512], "what was in the ring when the frames went");
    std::thread::sleep(Duration::from_millis(20));
    send(&mut left, &mut other, &frames[..300]);
    let third = receive(&mut right, &mut pool, 0);
    std::thread::sleep(Duration::from_millis(20));
    ready(&mut right, &mut pool);
    assert!(right.counters().rx.dropped.get(DropReason::NoFrames) > 0, "{:?}", right.counters().rx);
    assert_eq!(pool.stats().free, 2048 / 8, "the last eighth is for sending");
    // They are back: so is the port.
    kept.into_iter().for_each(|packet| pool.free(packet));
    ready(&mut right, &mut pool);
    let before = right.counters().rx;
    send(&mut left, &mut other, &frames[..400]);
    assert_eq!(receive(&mut right, &mut pool, 400), frames[..400]);
    assert_eq!(right.counters().rx.packets - before.packets, 400);
    left.finish(now_ns(), &mut other).unwrap();
    right.finish(now_ns(), &mut pool).unwrap();
    assert_eq!(left.counters().delivered(), 0);
    assert_eq!(right.counters().delivered(), 512 + 512 + third.len() as u64 + 400);
    assert_home(&pool);
    assert_home(&other);
}

/// Runs a port on a thread of its own, for what it says of each frame that comes, and sends what it makes of it.
struct Worker {
    stop: Arc<AtomicBool>,
    /// Frames so far that hold `datagram`.
    datagrams: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<(Vec<Vec<u8>>, PortCounters)>,
}

impl Worker {
    fn start(mut port: XdpPort, memory: &Arc<Memory>, answer: fn(&[u8]) -> Option<Vec<u8>>) -> Self {
        let (stop, datagrams) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted, memory) = (stop.clone(), datagrams.clone(), memory.clone());
        let thread = std::thread::spawn(move || {
            let mut pool = memory.pool(FRAMES / 2).unwrap();
            let (mut seen, mut burst, mut out) = (Vec::new(), Burst::new(), Burst::new());
            loop {
                // What is in the ring when it is told to stop is taken all the same.
                let is_told = stopped.load(Ordering::Relaxed);
                let status = port.rx(now_ns(), &mut pool, &mut burst).unwrap();
                for packet in burst.drain() {
                    if let Some(packet) = answer(packet.data()).and_then(|frame| pool.packet(&frame)) {
                        out.push(packet).unwrap();
                    }
                    seen.push(packet.data().to_vec());
                    pool.free(packet);
                    let new = holding(&seen[seen.len() - 1..], b"datagram").count();
                    counted.fetch_add(new, Ordering::Relaxed);
                }
                port.tx(now_ns(), &mut pool, &mut out).unwrap();
                if status != RxStatus::Received {
                    if is_told {
                        break;
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            pool.free_all(&mut out);
            port.finish(now_ns(), &mut pool).unwrap();
            assert_home(&pool);
            (seen, port.counters())
        });
        Worker { stop, datagrams, thread }
    }

    /// Waits until so many frames that hold `datagram` have come.
    fn until(&self, datagrams: usize) {
        let started = Instant::now();
        while self.datagrams.load(Ordering::Relaxed) < datagrams {
            assert!(started.elapsed() < PATIENCE, "{:?} of {datagrams} datagrams", self.datagrams);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(self) -> (Vec<Vec<u8>>, PortCounters) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Frames that hold these bytes.
fn holding<'a>(frames: &'a [Vec<u8>], text: &'a [u8]) -> impl Iterator<Item = &'a Vec<u8>> {
    frames.iter().filter(move |frame| frame.windows(text.len()).any(|window| window == text))
}

#[test]
fn root_xdp_leaves_the_kernel_what_is_its_own() {
    if !inside("root_xdp_leaves_the_kernel_what_is_its_own") {
        return;
    }
    let link = Link::new();
    let memory = memory();
    let (port, rule) = ruled("near", &memory, &small(Mode::Native));
    let worker = Worker::start(port, &memory, |_| None);
    // Untold, everything is the kernel's.
    assert!(link.pings("10.0.0.1"));
    let kernel_hosts = ["10.0.0.1", "10.0.0.255", "fd00::1"].map(|a| a.parse().unwrap());
    let own_hosts = ["10.0.0.7", "fd00::7"].map(|a| a.parse().unwrap());
    let ownership = Ownership {
        kernel: true,
        vlans: [5].into(),
        kernel_hosts: kernel_hosts.into(),
        own_hosts: own_hosts.into(),
    };
    rule.set(&ownership).unwrap();
    let before = rule.left();
    // ARP and neighbor discovery from the beginning, ping, TCP.
    link.far.run("ip neigh flush all");
    assert!(link.pings("10.0.0.1") && link.pings("fd00::1"));
    for to in ["10.0.0.1:22", "10.0.0.1:179", "[fd00::1]:22", "[fd00::1]:179"] {
        link.talks(to);
    }
    assert!(rule.left().by_rule > before.by_rule + 100);
    assert_eq!(rule.left().unread, 0);
    // Transit is ours, whatever its ports; so is what is sent to us.
    link.far.run("ip route add default via 10.0.0.1");
    link.far.run("ip -6 route add default via fd00::1");
    link.datagram(22, "192.0.2.1:22");
    link.datagram(179, "[2001:db8::1]:179");
    link.far.run("ip route add 10.0.0.7 via 10.0.0.1");
    link.far.run("ip -6 route add fd00::7 via fd00::1");
    link.datagram(22, "10.0.0.7:22");
    link.datagram(22, "[fd00::7]:22");
    // Groups are the kernel's.
    link.datagram(520, "224.0.0.9:520");
    worker.until(4);
    // It changes while packets flow.
    rule.set(&Ownership { kernel_hosts: Default::default(), ..ownership.clone() }).unwrap();
    link.datagram(4000, "10.0.0.1:4000");
    worker.until(5);
    rule.set(&ownership).unwrap();
    assert!(link.pings("10.0.0.1"));
    let (seen, counters) = worker.stop();
    assert_eq!(
        holding(&seen, b"datagram").count(),
        5,
        "four to others, one to an address that the kernel had lost"
    );
    for frame in holding(&seen, b"datagram") {
        verify_checksums(frame).unwrap();
    }
    // ARP and discovery were heard, beside the kernel; nothing else of what was its own.
    let heard =
        |frame: &Vec<u8>| frame[12..14] == [0x08, 0x06] || frame[12..14] == [0x86, 0xDD] && frame[20] == 58;
    assert!(seen.iter().any(|frame| frame[12..14] == [0x08, 0x06]), "no ARP was heard");
    assert!(seen.iter().any(|frame| frame[12..14] == [0x86, 0xDD] && (133..138).contains(&frame[54])));
    let others: Vec<_> = seen.iter().filter(|frame| !heard(frame)).collect();
    assert_eq!(others.len(), 5, "{others:x?}");
    assert_eq!(counters.rx.packets, seen.len() as u64);
    // Stopped, everything is the kernel's again.
    assert!(link.pings("10.0.0.1"));
    link.talks("10.0.0.1:4000");
}

#[test]
fn root_xdp_leaves_what_the_operator_names() {
    if !inside("root_xdp_leaves_what_the_operator_names") {
        return;
    }
    let link = Link::new();
    let memory = memory();
    let leave = ["tcp/22", "udp/3784", "proto/89"].map(|text| text.parse().unwrap()).to_vec();
    let (port, rule) = ruled("near", &memory, &Options { leave, ..small(Mode::Generic) });
    // We answer ARP and discovery for both: here by hand, far knows.
    let worker = Worker::start(port, &memory, |_| None);
    let own_hosts = ["10.0.0.1", "fd00::1"].map(|a| a.parse().unwrap());
    link.talks("10.0.0.1:80");
    rule.set(&Ownership { own_hosts: own_hosts.into(), ..Ownership::default() }).unwrap();
    let near = near_mac();
    link.far.run(&format!("ip neigh replace 10.0.0.1 lladdr {near} dev far nud permanent"));
    link.far.run(&format!("ip neigh replace fd00::1 lladdr {near} dev far nud permanent"));
    // The kernel finds its neighbor by itself: answers are left to it.
    run("ip neigh flush all");
    link.talks("10.0.0.1:22");
    link.talks("[fd00::1]:22");
    assert!(!link.connects("10.0.0.1:23") && !link.connects("[fd00::1]:179"), "these are ours");
    assert!(!link.pings("10.0.0.1"));
    // Either end's port counts: the kernel's own connections out work.
    let listener = link.far.spawn(|| TcpListener::bind("10.0.0.2:22").unwrap()).join().unwrap();
    let server = std::thread::spawn(move || {
        listener.accept().unwrap().0.write_all(b"there").unwrap();
    });
    let mut text = String::new();
    TcpStream::connect_timeout(&"10.0.0.2:22".parse().unwrap(), PATIENCE)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    server.join().unwrap();
    assert_eq!(text, "there");
    // Not to this host: ours.
    link.far.run("ip route add default via 10.0.0.1");
    link.datagram(3784, "192.0.2.1:3784");
    let before = rule.left().by_rule;
    link.datagram(1000, "10.0.0.1:3784");
    link.datagram(3784, "10.0.0.1:1000");
    let started = Instant::now();
    while rule.left().by_rule < before + 2 {
        assert!(started.elapsed() < PATIENCE, "{:?} after {before}", rule.left());
        std::thread::sleep(Duration::from_millis(1));
    }
    let (seen, _) = worker.stop();
    assert_eq!(holding(&seen, b"datagram").count(), 1);
    assert!(seen.iter().all(|frame| frame.len() < 38 || frame[23] != 6 || frame[36..38] != [0, 22]));
}

fn near_mac() -> String {
    tidemill_port::device("near").unwrap().mac.to_string()
}

/// A frame with VLAN tags and an IPv4 packet to `to` inside.
fn tagged(tags: &[u16], to: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0xFF; 12];
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    tags.iter().for_each(|id| frame.extend([0x81, 0x00, (id >> 8) as u8, *id as u8]));
    frame.extend([0x08, 0x00]);
    let mut builder = Vec::new();
    etherparse::PacketBuilder::ipv4([10, 0, 0, 2], to, 9).udp(7, 7).write(&mut builder, b"datagram").unwrap();
    frame.extend(builder);
    frame
}

#[test]
fn root_xdp_tags_and_malformed_frames() {
    if !inside("root_xdp_tags_and_malformed_frames") {
        return;
    }
    cable("near", "outside");
    for kernel in [false, true] {
        let memory = memory();
        let mut pool = memory.pool(FRAMES).unwrap();
        let (mut near, rule) = ruled("near", &memory, &small(Mode::Native));
        let mut outside = port("outside", &memory, Mode::Native);
        let host = [10, 0, 0, 1];
        let kernel_hosts = [IpAddr::from(host)].into();
        rule.set(&Ownership { kernel, vlans: [5, 6].into(), kernel_hosts, ..Ownership::default() }).unwrap();
        ready(&mut near, &mut pool);
        let other = [192, 0, 2, 1];
        // Ours in any case: other hosts in VLANs of ours, without a tag, and with a mere priority; what is malformed.
        let cut = |len: usize| tagged(&[], other)[..len].to_vec();
        let mut ours =
            vec![tagged(&[5], other), tagged(&[], other), tagged(&[0], other), tagged(&[6], other)];
        ours.extend([cut(20), cut(30), tagged(&[5], host)[..30].to_vec()]);
        let mut headless = tagged(&[], host);
        headless[14] = 0x44;
        ours.push(headless);
        // The kernel's in any case: its address, in any VLAN.
        let kernels = [tagged(&[], host), tagged(&[5], host), tagged(&[0], host)];
        // Depends on whose link it is: no IP, groups, unknown VLANs, two tags.
        let depends = [
            numbered(0, 60),
            tagged(&[], [224, 0, 0, 5]),
            tagged(&[], [255; 4]),
            tagged(&[7], other),
            tagged(&[5, 6], other),
        ];
        let before = rule.left().by_rule;
        for frames in [&ours[..], &kernels[..], &depends[..]] {
            send(&mut outside, &mut pool, frames);
        }
        let expected: Vec<_> = if kernel { ours.clone() } else { [&ours[..], &depends[..]].concat() };
        assert_eq!(receive(&mut near, &mut pool, expected.len()), expected, "kernel: {kernel}");
        let left = kernels.len() + if kernel { depends.len() } else { 0 };
        assert_eq!(rule.left().by_rule - before, left as u64);
        finish(&mut [&mut near, &mut outside], &mut pool);
    }
}

#[test]
fn root_xdp_leaves_errors_about_what_it_leaves() {
    if !inside("root_xdp_leaves_errors_about_what_it_leaves") {
        return;
    }
    cable("near", "outside");
    let memory = memory();
    let mut pool = memory.pool(FRAMES).unwrap();
    let leave = ["tcp/22", "proto/89", "udp/68"].map(|text| text.parse().unwrap()).to_vec();
    let (mut near, rule) = ruled("near", &memory, &Options { leave, ..small(Mode::Native) });
    let mut outside = port("outside", &memory, Mode::Native);
    let own_hosts = ["10.0.0.1", "fd00::1"].map(|a| a.parse().unwrap()).into();
    rule.set(&Ownership { own_hosts, ..Ownership::default() }).unwrap();
    ready(&mut near, &mut pool);
    for (v6, errors, others) in
        [(false, &[3, 11, 12][..], &[0, 5, 8][..]), (true, &[1, 2, 3, 4][..], &[0, 5, 128][..])]
    {
        let (mut left, mut ours) = (Vec::new(), Vec::new());
        for &kind in errors {
            let about = |protocol, ports| message(v6, kind, protocol, ports);
            left.extend([about(6, [22, 9]), about(6, [9, 22]), about(89, [0, 0])]);
            ours.extend([about(6, [23, 9]), about(17, [22, 22])]);
        }
        // What is no error, and one that ends in the midst of the ports.
        ours.extend(others.iter().map(|&kind| message(v6, kind, 6, [22, 9])));
        let mut cut = message(v6, errors[0], 6, [22, 9]);
        cut.truncate(cut.len() - 6);
        ours.push(cut);
        let before = rule.left().by_rule;
        send(&mut outside, &mut pool, &left);
        send(&mut outside, &mut pool, &ours);
        assert_eq!(receive(&mut near, &mut pool, ours.len()), ours, "IPv6: {v6}");
        assert_eq!(rule.left().by_rule - before, left.len() as u64, "IPv6: {v6}");
    }
    // DHCP's answers to who has no address yet: transit, but for a link of the kernel's.
    for kernel in [false, true] {
        rule.set(&Ownership { kernel, ..Ownership::default() }).unwrap();
        let (before, frames) = (rule.left().by_rule, [[67, 68], [68, 67], [53, 68]].map(to_nobody));
        send(&mut outside, &mut pool, &frames);
        let ours = &frames[usize::from(kernel)..];
        assert_eq!(receive(&mut near, &mut pool, ours.len()), ours, "kernel: {kernel}");
        assert_eq!(rule.left().by_rule - before, u64::from(kernel));
    }
    finish(&mut [&mut near, &mut outside], &mut pool);
}

#[test]
fn root_xdp_checksums_of_local_senders() {
    if !inside("root_xdp_checksums_of_local_senders") {
        return;
    }
    for mode in [Mode::Native, Mode::Generic] {
        let link = Link::new();
        let memory = memory();
        let (port, rule) = ruled("near", &memory, &small(mode));
        let worker = Worker::start(port, &memory, |_| None);
        let kernel_hosts = ["10.0.0.1", "fd00::1"].map(|a| a.parse().unwrap()).into();
        rule.set(&Ownership { kernel: true, kernel_hosts, ..Ownership::default() }).unwrap();
        link.far.run("ip route add default via 10.0.0.1");
        link.far.run("ip -6 route add default via fd00::1");
        for port in 1000..1050 {
            link.datagram(port, "192.0.2.1:9");
            link.datagram(port, "[2001:db8::1]:9");
        }
        link.connects_nowhere();
        let (seen, _) = worker.stop();
        let transit = |frame: &&Vec<u8>| frame.len() > 60 && frame[20] != 58 || frame[12..14] == [0x08, 0x00];
        let mut counts = [0; 2];
        for frame in seen.iter().filter(transit) {
            verify_checksums(frame).unwrap_or_else(|error| panic!("{mode:?}: {error}: {frame:x?}"));
            let protocol = if frame[12..14] == [0x08, 0x00] { frame[23] } else { frame[20] };
            match protocol {
                6 => counts[0] += 1,
                17 => counts[1] += 1,
                _ => {}
            }
        }
        assert!(counts[0] >= 2 && counts[1] == 100, "{mode:?}: TCP, UDP: {counts:?}");
        run("ip link del near");
    }
}

/// Looks at all queues of both ends until something is so of each.
fn each_is(
    near: &mut [Box<dyn Port>],
    far: &mut [Box<dyn Port>],
    pools: &mut [Pool],
    what: &str,
    is_so: impl Fn(&PortCounters) -> bool,
) {
    let started = Instant::now();
    while !near.iter().chain(far.iter()).all(|port| is_so(&port.counters())) {
        for ((near, far), pool) in near.iter_mut().zip(far.iter_mut()).zip(pools.iter_mut()) {
            ready(&mut **near, pool);
            ready(&mut **far, pool);
        }
        assert!(started.elapsed() < PATIENCE, "not {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn root_xdp_several_queues() {
    if !inside("root_xdp_several_queues") {
        return;
    }
    run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
    let devices =
        "ip link add name qa numrxqueues 2 numtxqueues 2 type veth peer name qb numrxqueues 2 numtxqueues 2";
    run(devices);
    run("ip link set qa up");
    run("ip link set qb up");
    let memory = memory();
    let regions = vec![memory.clone(); 2];
    let refused = |queues: usize| {
        let regions = vec![memory.clone(); queues];
        open("qa", "qa", queues, &small(Mode::Native), &regions).err().unwrap().to_string()
    };
    let (fewer, more) = (refused(1), refused(4));
    assert!(fewer.contains("qa has 2 queues and 1 would be read: ethtool -L qa"), "{fewer}");
    assert!(more.contains("qa has 2 queues, not 4: set queues = 1"), "{more}");
    // By their configuration: two workers, a queue each.
    let spec = |text: &str| toml::from_str::<PortSpec>(&format!("kind = \"af_xdp\"\n{text}")).unwrap();
    let context = OpenContext { base: Path::new("."), table: None, memory: &regions };
    let mut pools = [memory.pool(FRAMES / 2).unwrap(), memory.pool(FRAMES / 2).unwrap()];
    let mut spec_near = spec("name = \"qa\"\nrx_ring = 256\nmode = \"native\"");
    assert!(spec_near.remarks(2).is_empty());
    // Where queues are to be chosen by addresses alone, a device that does not say how it chooses is told of, before and after.
    spec_near.spread_by(SpreadBy::Addresses);
    let remarks = spec_near.remarks(2);
    let says = "port qa: warning: qa does not say by what it spreads packets over its queues";
    assert!(remarks.len() == 1 && remarks[0].starts_with(says), "{remarks:?}");
    assert!(spec_near.remarks(1).is_empty());
    let opened = spec_near.open_beside_kernel(2, &context).unwrap();
    assert!(opened.notes.contains(&remarks[0]), "{:?}", opened.notes);
    opened.rule.unwrap().set(&Ownership::default()).unwrap();
    let mut near = opened.queues;
    let mut far = spec("name = \"far\"\ninterface = \"qb\"\nrx_ring = 256").open(2, &context).unwrap();
    for round in 0..3 {
        if round > 0 {
            // Both queues of both ends miss their device, and each finds the one of its name again.
            let index = tidemill_port::device("qa").unwrap().index;
            run("ip link del qa");
            if round == 1 {
                each_is(&mut near, &mut far, &mut pools, "missed", |counters| counters.away() == 1);
                pools.iter().for_each(assert_home);
                run(devices);
            } else {
                // That is there before they look, and has its number: the first to look puts the program there, and the other one looks after its socket all the same.
                run(&devices.replace("name qa", &format!("name qa index {index}")));
            }
            run("ip link set qa up");
            run("ip link set qb up");
            each_is(&mut near, &mut far, &mut pools, "found", |counters| counters.found == round);
        }
        for queue in 0..2 {
            ready(&mut *far[queue], &mut pools[queue]);
        }
        // A queue of one end is the same queue of the other.
        for queue in 0..2 {
            let frames: Vec<_> = (0..200).map(|i| numbered(i + 1000 * queue as u32, 60)).collect();
            send(&mut *near[queue], &mut pools[queue], &frames);
            assert_eq!(receive(&mut *far[queue], &mut pools[queue], 200), frames, "{round}");
        }
    }
    for (queue, pool) in pools.iter_mut().enumerate() {
        near[queue].finish(now_ns(), pool).unwrap();
        far[queue].finish(now_ns(), pool).unwrap();
        assert_eq!((near[queue].counters().tx.packets, far[queue].counters().rx.packets), (600, 600));
        assert_home(pool);
    }
}

#[test]
fn root_xdp_interfaces_go_and_come() {
    if !inside("root_xdp_interfaces_go_and_come") {
        return;
    }
    cable("left", "right");
    let memory = memory();
    let mut pool = memory.pool(FRAMES).unwrap();
    let (mut left, mut right) = (port("left", &memory, Mode::Auto), port("right", &memory, Mode::Auto));
    let passes = |left: &mut XdpPort, right: &mut XdpPort, pool: &mut Pool| {
        let frames: Vec<_> = (0..300).map(|i| numbered(i, 200)).collect();
        ready(right, pool);
        send(left, pool, &frames);
        assert_eq!(receive(right, pool, 300), frames);
    };
    passes(&mut left, &mut right, &mut pool);
    for round in 1..=3 {
        // Packets are in the receive ring when the device goes.
        ready(&mut right, &mut pool);
        send(&mut left, &mut pool, &[numbered(1, 60), numbered(2, 60)]);
        run("ip link del left");
        let started = Instant::now();
        while left.counters().away() + right.counters().away() < 2 {
            for port in [&mut left, &mut right] {
                let mut burst = Burst::new();
                burst.push(pool.packet(&numbered(3, 60)).unwrap()).unwrap();
                port.tx(now_ns(), &mut pool, &mut burst).unwrap();
                ready(port, &mut pool);
            }
            assert!(started.elapsed() < PATIENCE);
        }
        assert_eq!((left.counters().lost, left.lent(), right.lent()), (round, 0, 0), "frames are back");
        assert_home(&pool);
        std::thread::sleep(Duration::from_millis(100));
        ready(&mut left, &mut pool);
        assert_eq!(left.counters().found, round - 1);
        // What is to be sent meanwhile is dropped by name.
        let before = left.counters().tx;
        send(&mut left, &mut pool, &[numbered(4, 60)]);
        assert_eq!(
            left.counters().tx.dropped.get(DropReason::TxFailed),
            before.dropped.get(DropReason::TxFailed) + 1
        );
        cable("left", "right");
        let started = Instant::now();
        while left.counters().away() + right.counters().away() > 0 {
            ready(&mut left, &mut pool);
            ready(&mut right, &mut pool);
            assert!(started.elapsed() < PATIENCE, "not found again");
            std::thread::sleep(Duration::from_millis(5));
        }
        passes(&mut left, &mut right, &mut pool);
    }
    // Down and up.
    run("ip link set left down");
    let frames = [numbered(1, 60), numbered(2, 60), numbered(3, 60)];
    let mut burst = Burst::new();
    for frame in &frames {
        burst.push(pool.packet(frame).unwrap()).unwrap();
        left.tx(now_ns(), &mut pool, &mut burst).unwrap();
        assert!(burst.is_empty());
    }
    let tx = left.counters().tx;
    assert!(tx.held <= 3 && left.counters().away() == 0, "{tx:?}");
    run("ip link set left up");
    std::thread::sleep(Duration::from_millis(50));
    send(&mut left, &mut pool, &[]);
    // What waited is sent now.
    assert_eq!(receive(&mut right, &mut pool, tx.held as usize).len() as u64, tx.held);
    passes(&mut left, &mut right, &mut pool);
    // No carrier: the other end is down.
    run("ip link set right down");
    let before = left.counters().tx.dropped.get(DropReason::TxFailed);
    send(&mut left, &mut pool, &frames);
    assert_eq!(left.counters().tx.dropped.get(DropReason::TxFailed), before + 3);
    run("ip link set right up");
    passes(&mut left, &mut right, &mut pool);
    for counters in [left.counters(), right.counters()] {
        assert_eq!((counters.lost, counters.found, counters.tx.held), (3, 3, 0));
    }
    finish(&mut [&mut left, &mut right], &mut pool);
}

#[test]
fn root_xdp_what_is_in_the_way_is_said() {
    if !inside("root_xdp_what_is_in_the_way_is_said") {
        return;
    }
    cable("left", "right");
    let memory = memory();
    let refused = |interface: &str, options: &Options, memory: &Arc<Memory>| {
        open("p", interface, 1, options, std::slice::from_ref(memory)).err().unwrap().to_string()
    };
    let options = small(Mode::Native);
    let error = refused("nowhere", &options, &memory);
    assert!(error.contains("there is no network interface \"nowhere\""), "{error}");
    let error = refused("left", &options, &Memory::new(64, 8192).unwrap());
    assert!(error.contains("memory.frame_size = 8192: AF_XDP takes frames of 2048 or 4096"), "{error}");
    let error = refused("left", &Options { rx_ring: 8192, ..options.clone() }, &memory);
    assert!(error.contains("set memory.frames = 16384 or more"), "{error}");
    let error = refused("left", &Options { mode: Mode::ZeroCopy, ..options.clone() }, &memory);
    assert!(error.contains("no zero-copy"), "{error}");
    run("ip link set left mtu 3000");
    run("ip link set right mtu 3000");
    let error = refused("left", &options, &memory);
    assert!(error.contains("set memory.frame_size = 4096, or ip link set dev left mtu 1774"), "{error}");
    run("ip link set left mtu 1500");
    run("ip link set right mtu 1500");
    // Somebody else's program and queue are waited for, and then named: two seconds.
    let (first, _rule) = ruled("left", &memory, &options);
    let error = refused("left", &options, &memory);
    assert!(error.contains("another XDP program is on left: remove it"), "{error}");
    // One that goes away in time is no obstacle.
    let going = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(first);
    });
    drop(_rule);
    let (mut second, rule) = ruled("left", &memory, &options);
    going.join().unwrap();
    rule.set(&Ownership::default()).unwrap();
    let (mut right, mut pool) = (port("right", &memory, Mode::Native), memory.pool(FRAMES).unwrap());
    ready(&mut second, &mut pool);
    send(&mut right, &mut pool, &[numbered(1, 60)]);
    assert_eq!(receive(&mut second, &mut pool, 1), [numbered(1, 60)]);
    finish(&mut [&mut second, &mut right], &mut pool);
}
