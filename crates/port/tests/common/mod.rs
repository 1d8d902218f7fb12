//! What the integration tests share.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::path::Path;
use tidemill_burst::{Burst, Memory, Packet, Pool};
use tidemill_port::{PcapPort, Playback, Port, PortError, RxStatus};

/// A pool of `frames` frames of 32 KB, so that nothing is too long.
pub fn pool(frames: usize) -> Pool {
    Memory::new(frames, 32768).unwrap().pool(frames).unwrap()
}

/// Every frame is home, and none came by being dropped.
pub fn assert_all_home(pool: &Pool) {
    let stats = pool.stats();
    assert_eq!((stats.free, stats.unnamed), (stats.frames, 0));
}

/// What is told apart of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub timestamp_ns: u64,
    pub wire_len: u32,
    pub data: Vec<u8>,
}

impl Seen {
    pub fn of(packet: &Packet) -> Self {
        Seen {
            timestamp_ns: packet.timestamp_ns(),
            wire_len: packet.wire_len(),
            data: packet.data().to_vec(),
        }
    }
}

/// Receives until the end or an error, at time `now_ns`.
pub fn receive(port: &mut dyn Port, now_ns: u64, pool: &mut Pool) -> (Vec<Seen>, Option<PortError>) {
    let (mut seen, mut burst) = (Vec::new(), Burst::new());
    loop {
        let status = port.rx(now_ns, pool, &mut burst);
        for packet in burst.drain() {
            seen.push(Seen::of(&packet));
            pool.free(packet);
        }
        match status {
            Ok(RxStatus::Received) => {}
            Ok(RxStatus::Idle { .. } | RxStatus::Ended) => return (seen, None),
            Err(error) => return (seen, Some(error)),
        }
    }
}

/// All packets of a capture, and what ended it.
pub fn read(path: &Path) -> (Vec<Seen>, Option<PortError>) {
    let mut pool = pool(64);
    let mut port = match PcapPort::open("in", Some(&Playback::once(path)), None, 1) {
        Ok(mut ports) => ports.remove(0),
        Err(error) => return (Vec::new(), Some(error)),
    };
    let result = receive(&mut port, 0, &mut pool);
    assert_eq!(port.rx(0, &mut pool, &mut Burst::new()).unwrap(), RxStatus::Ended, "an end is an end");
    port.finish(0, &mut pool).unwrap();
    let counters = port.counters();
    assert_eq!(counters.delivered(), result.0.len() as u64);
    assert_all_home(&pool);
    result
}

/// What the pcap-file crate reads.
pub fn theirs(bytes: &[u8]) -> Option<Vec<Seen>> {
    let mut seen = Vec::new();
    let cut = |len: usize, wire: u32| if wire as usize > len { wire } else { 0 };
    if bytes.starts_with(&[0x0A, 0x0D, 0x0D, 0x0A]) {
        let mut reader = pcap_file::pcapng::PcapNgReader::new(bytes).ok()?;
        while let Some(block) = reader.next_block() {
            if let Ok((pcap_file::pcapng::Block::EnhancedPacket(packet), _)) = block {
                seen.push(Seen {
                    timestamp_ns: packet.timestamp.as_nanos() as u64,
                    wire_len: cut(packet.data.len(), packet.original_len),
                    data: packet.data.to_vec(),
                });
            }
        }
    } else {
        let mut reader = pcap_file::pcap::PcapReader::new(bytes).ok()?;
        while let Some(packet) = reader.next_packet() {
            let packet = packet.ok()?;
            seen.push(Seen {
                timestamp_ns: packet.timestamp().as_nanos() as u64,
                wire_len: cut(packet.data().len(), packet.orig_len()),
                data: packet.data().to_vec(),
            });
        }
    }
    Some(seen)
}
