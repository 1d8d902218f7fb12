//! The proof that the packet memory rests on: two AF_XDP ports on two interfaces use one region, and a packet that came
//! in by one leaves by the other without being copied. Needs root; runs in its own network namespace.

#![cfg(all(feature = "xdp", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

#[path = "common/net.rs"]
mod net;

use net::{cable, inside};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_port::xdp::{Options, XdpPort, open};
use tidemill_port::{Ownership, Port, RxStatus};

const PACKETS: u32 = 100_000;
const RING: usize = 256;
const WINDOW: u32 = 128;

/// `outside-l <-> left` and `right <-> outside-r`.
fn cables() {
    cable("left", "outside-l");
    cable("right", "outside-r");
}

fn frame(serial: u32) -> [u8; 64] {
    let mut frame = [0; 64];
    frame[..6].fill(0xFF);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    // Local experimental EtherType (IEEE 802).
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    frame[14..18].copy_from_slice(&serial.to_be_bytes());
    frame
}

/// An interface that is all ours.
fn port(interface: &str, memory: &Arc<Memory>, share: bool) -> XdpPort {
    let options = Options { rx_ring: RING, tx_ring: RING, share, ..Options::default() };
    let mut open = open(interface, interface, 1, &options, std::slice::from_ref(memory)).unwrap();
    open.rule.set(&Ownership::default()).unwrap();
    open.queues.remove(0)
}

fn forward(shared: bool) {
    cables();
    // The engine: one region, one pool, two ports.
    let memory = Memory::new(2048, 2048).unwrap();
    let mut pool = memory.pool(2048).unwrap();
    let (mut a, mut b) = (port("left", &memory, shared), port("right", &memory, shared));
    assert_eq!((a.shares(), b.shares()), (false, shared));
    // The outside: another region.
    let elsewhere = Memory::new(2048, 2048).unwrap();
    let mut outside_pool = elsewhere.pool(2048).unwrap();
    let (mut source, mut sink) = (port("outside-l", &elsewhere, true), port("outside-r", &elsewhere, true));

    let (mut burst, mut outside_burst) = (Burst::new(), Burst::new());
    let (mut sent, mut seen, mut passed) = (0u32, 0u32, 0u32);
    let region = memory.as_ptr() as usize..memory.as_ptr() as usize + memory.len_bytes();
    let home = |pool: &Pool| pool.stats().free;
    // The kernel needs the fill rings before the first packet.
    a.rx(0, &mut pool, &mut burst).unwrap();
    b.rx(0, &mut pool, &mut burst).unwrap();
    sink.rx(0, &mut outside_pool, &mut outside_burst).unwrap();
    let mut progress = Instant::now();
    while seen < PACKETS {
        assert!(progress.elapsed() < Duration::from_secs(20), "sent {sent}, passed {passed}, seen {seen}");
        while sent < PACKETS && sent - seen < WINDOW && outside_burst.room() > 0 {
            let Some(packet) = outside_pool.packet(&frame(sent)) else { break };
            outside_burst.push(packet).unwrap();
            sent += 1;
        }
        source.tx(0, &mut outside_pool, &mut outside_burst).unwrap();

        let status = a.rx(1, &mut pool, &mut burst).unwrap();
        if status == RxStatus::Received {
            let before: Vec<_> = burst.iter().map(|p| p.data_ptr()).collect();
            assert!(before.iter().all(|at| region.contains(&(*at as usize))), "not in the region");
            for packet in burst.iter() {
                assert_eq!(packet.data(), frame(passed));
                passed += 1;
            }
            let (free, lent) = (home(&pool), a.lent() + b.lent());
            assert_eq!(free + lent + burst.len(), 2048, "a frame is in two places or none");
        }
        b.tx(1, &mut pool, &mut burst).unwrap();
        assert_eq!(home(&pool) + a.lent() + b.lent() + burst.len(), 2048);

        let mut arrived = Burst::new();
        sink.rx(2, &mut outside_pool, &mut arrived).unwrap();
        for packet in arrived.drain() {
            assert_eq!(packet.data(), frame(seen), "out of order or changed");
            seen += 1;
            progress = Instant::now();
            outside_pool.free(packet);
        }
    }
    a.finish(3, &mut pool).unwrap();
    b.finish(3, &mut pool).unwrap();
    let (ca, cb) = (a.counters(), b.counters());
    assert_eq!((ca.rx.packets, ca.rx.dropped.total()), (PACKETS.into(), 0));
    assert_eq!((cb.tx.packets, cb.tx.held), (PACKETS.into(), 0));
    assert_eq!((a.lent(), b.lent(), pool.stats().free, pool.stats().unnamed), (0, 0, 2048, 0));
    source.finish(3, &mut outside_pool).unwrap();
    sink.finish(3, &mut outside_pool).unwrap();
    assert_eq!(outside_pool.stats().free, 2048);
    println!("{PACKETS} packets through rings of {RING}, shared UMEM: {shared}; every frame is home");
}

#[test]
fn root_two_ports_register_one_region_each() {
    if inside("root_two_ports_register_one_region_each") {
        forward(false);
    }
}

#[test]
fn root_two_ports_share_one_umem() {
    if inside("root_two_ports_share_one_umem") {
        forward(true);
    }
}
