//! What the tests of ports on network interfaces share: frames sent and received, and all of them home at the end.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of this module

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidemill_burst::{Burst, Packet, Pool};
use tidemill_port::{Port, RxStatus};

pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Sends frames, in order, all of them.
pub fn send(port: &mut dyn Port, pool: &mut Pool, frames: &[Vec<u8>]) {
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

/// Receives until `wanted` packets have come and then nothing more for a few milliseconds; behind these is one more look, however long this thread was kept from it.
pub fn receive(port: &mut dyn Port, pool: &mut Pool, wanted: usize) -> Vec<Vec<u8>> {
    receive_each(port, pool, wanted, |_| ())
}

/// The same with a look at each packet.
pub fn receive_each(
    port: &mut dyn Port,
    pool: &mut Pool,
    wanted: usize,
    look: impl Fn(&Packet),
) -> Vec<Vec<u8>> {
    let (mut seen, mut burst, mut last) = (Vec::new(), Burst::new(), Instant::now());
    let quiet = Duration::from_millis(50);
    loop {
        let is_over = seen.len() >= wanted && last.elapsed() >= quiet;
        let is_new = port.rx(now_ns(), pool, &mut burst).unwrap() == RxStatus::Received;
        for packet in burst.drain() {
            look(&packet);
            seen.push(packet.data().to_vec());
            pool.free(packet);
        }
        if is_new {
            last = Instant::now();
        } else if is_over {
            return seen;
        }
        assert!(last.elapsed() < PATIENCE, "{} of {wanted}: {:?}", seen.len(), port.counters().rx);
    }
}

/// A frame of a protocol of nobody's (local experimental EtherType) that says which one it is.
pub fn numbered(serial: u32, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (serial as usize + i) as u8).collect();
    frame[..6].fill(0xFF);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    frame
}

pub fn assert_home(pool: &Pool) {
    let stats = pool.stats();
    assert_eq!((stats.free, stats.unnamed), (stats.frames, 0));
}
