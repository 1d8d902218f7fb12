//! AF_XDP ports on virtual cables: frames, what is left to the kernel, checksums, queues, interfaces that go and come, and
//! the books. Needs root; every test runs in network namespaces of its own.

#![cfg(all(feature = "xdp", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/net.rs"]
mod net;

use net::{Host, cable, inside, run};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidemill_burst::{Burst, DropReason, Memory, Pool};
use tidemill_port::spec::{Mode, OpenContext, PortSpec};
use tidemill_port::xdp::{Options, XdpPort, open};
use tidemill_port::{Ownership, Port, PortCounters, Rule, RxStatus};
use tidemill_wire::verify_checksums;

const PATIENCE: Duration = Duration::from_secs(20);
const FRAMES: usize = 8192;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

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

/// Sends frames, in order, all of them.
fn send(port: &mut dyn Port, pool: &mut Pool, frames: &[Vec<u8>]) {
    let (mut burst, mut frames, started) = (Burst::new(), frames.iter().peekable(), Instant::now());
    while frames.peek().is_some() || !burst.is_empty() || port.counters().tx.held > 0 {
        while burst.room() > 0
            && let Some(frame) = frames.next()
        {
            burst.push(pool.packet(frame).unwrap()).unwrap();
        }
        port.tx(now_ns(), pool, &mut burst).unwrap();
        assert!(started.elapsed() < PATIENCE, "{:?}", port.counters().tx);
    }
}

/// Receives until `wanted` packets have come and then nothing more for a few milliseconds.
fn receive(port: &mut dyn Port, pool: &mut Pool, wanted: usize) -> Vec<Vec<u8>> {
    let (mut seen, mut burst, mut last) = (Vec::new(), Burst::new(), Instant::now());
    let quiet = Duration::from_millis(50);
    while seen.len() < wanted || last.elapsed() < quiet {
        if port.rx(now_ns(), pool, &mut burst).unwrap() == RxStatus::Received {
            last = Instant::now();
        }
        for packet in burst.drain() {
            seen.push(packet.data().to_vec());
            pool.free(packet);
        }
        assert!(last.elapsed() < PATIENCE, "{} of {wanted}: {:?}", seen.len(), port.counters().rx);
    }
    seen
}

/// A frame of a protocol of nobody's (local experimental EtherType) that says which one it is.
fn numbered(serial: u32, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (serial as usize + i) as u8).collect();
    frame[..6].fill(0xFF);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    frame
}

fn assert_home(pool: &Pool) {
    let stats = pool.stats();
    assert_eq!((stats.free, stats.unnamed), (stats.frames, 0));
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
    for (mode, native) in [(Mode::Auto, true), (Mode::Native, true), (Mode::Generic, false)] {
        cable("left", "right");
        let memory = memory();
        let mut pool = memory.pool(FRAMES).unwrap();
        let (mut left, mut right) = (port("left", &memory, mode), port("right", &memory, mode));
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
    let _ = receive(&mut right, &mut pool, 0);
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
    assert_eq!(right.counters().delivered(), 512 + 512 + 400);
    assert_home(&pool);
    assert_home(&other);
}

/// Runs a port on a thread of its own, for what it says of each frame that comes, and sends what it makes of it.
struct Worker {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(Vec<Vec<u8>>, PortCounters)>,
}

impl Worker {
    fn start(mut port: XdpPort, memory: &Arc<Memory>, answer: fn(&[u8]) -> Option<Vec<u8>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, memory) = (stop.clone(), memory.clone());
        let thread = std::thread::spawn(move || {
            let mut pool = memory.pool(FRAMES / 2).unwrap();
            let (mut seen, mut burst, mut out) = (Vec::new(), Burst::new(), Burst::new());
            while !stopped.load(Ordering::Relaxed) {
                let status = port.rx(now_ns(), &mut pool, &mut burst).unwrap();
                for packet in burst.drain() {
                    if let Some(packet) = answer(packet.data()).and_then(|frame| pool.packet(&frame)) {
                        out.push(packet).unwrap();
                    }
                    seen.push(packet.data().to_vec());
                    pool.free(packet);
                }
                port.tx(now_ns(), &mut pool, &mut out).unwrap();
                if status != RxStatus::Received {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            pool.free_all(&mut out);
            port.finish(now_ns(), &mut pool).unwrap();
            assert_home(&pool);
            (seen, port.counters())
        });
        Worker { stop, thread }
    }

    fn stop(self) -> (Vec<Vec<u8>>, PortCounters) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
