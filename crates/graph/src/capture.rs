//! Captures: copies of the packets that pass a port or a node, while the workers run.
//!
//! Workers never wait for whoever reads. A capture has room for so many copies, of so many bytes; when it is full, the next copy is not
//! made but counted as missed.

use crate::watch::{Mailbox, Place};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tidemill_burst::Packet;
use tidemill_port::capture::Sense;

/// The most copies that may wait in one capture.
pub const MAX_ROOM: usize = 65_536;

/// Bytes of packets that may wait in one capture, whatever its room: many readers that do not read keep little memory.
pub const MAX_BYTES: usize = 16 << 20;

/// A copy of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Nanoseconds since the epoch: when it was received, if the port says so, else the time of the burst.
    pub timestamp_ns: u64,
    /// The worker that it was with.
    pub worker: usize,
    /// Received or sent by a port; unknown at a node.
    pub sense: Sense,
    /// The port that it was sent by; else the port (behind `ethernet-input`, the interface) that it came in by.
    pub port: u16,
    /// The node, by number, if it was copied at one: as it entered.
    pub node: Option<usize>,
    /// Offset of the network header, if that is known. A packet made inside may have no link-layer header yet: 0.
    pub l3: u8,
    /// The length that it had on the wire, if it was cut short before it came here, else 0.
    pub wire_len: u32,
    /// The packet's bytes.
    pub bytes: Box<[u8]>,
}

/// The control side's end of a capture. Dropping it switches the capture off.
pub struct Capture {
    channel: Arc<Channel>,
    mailboxes: Arc<[Mailbox]>,
}

impl Capture {
    pub(crate) fn new(place: Place, room: usize, mailboxes: Arc<[Mailbox]>) -> Self {
        let channel = Channel {
            place,
            copies: ArrayQueue::new(room.clamp(1, MAX_ROOM)),
            bytes: AtomicUsize::new(0),
            missed: AtomicU64::new(0),
            off: AtomicBool::new(false),
        };
        Capture { channel: Arc::new(channel), mailboxes }
    }

    pub(crate) fn channel(&self) -> Arc<Channel> {
        self.channel.clone()
    }

    /// The next copy, if one waits. Copies of one worker come in order.
    pub fn receive(&mut self) -> Option<Captured> {
        let copy = self.channel.copies.pop()?;
        self.channel.bytes.fetch_sub(copy.bytes.len(), Ordering::Relaxed);
        Some(copy)
    }

    /// Copies that wait to be received.
    pub fn waiting(&self) -> usize {
        self.channel.copies.len()
    }

    /// Packets that passed and were not copied, because the capture had no room.
    pub fn missed(&self) -> u64 {
        self.channel.missed.load(Ordering::Relaxed)
    }

    /// Whether nothing will ever come: every worker has ended, and all copies have been received.
    pub fn ended(&self) -> bool {
        self.mailboxes.iter().all(Mailbox::closed) && self.channel.copies.is_empty()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.channel.off.store(true, Ordering::Release);
        // What waits is freed here, and not by the worker that is the last to let go.
        while self.channel.copies.pop().is_some() {}
    }
}

/// What a capture and the workers share.
pub(crate) struct Channel {
    place: Place,
    copies: ArrayQueue<Captured>,
    /// Of the packets that wait. Each worker adds before it puts one there, so there is never more than is counted.
    bytes: AtomicUsize,
    missed: AtomicU64,
    off: AtomicBool,
}

impl Channel {
    pub(crate) fn off(&self) -> bool {
        self.off.load(Ordering::Acquire)
    }

    /// Copies packets that port `p` has received (or is about to send), if that is what is asked for.
    pub(crate) fn at_port(&self, worker: usize, now_ns: u64, p: usize, sense: Sense, packets: &[Packet]) {
        let Place::Port { port, rx, tx } = self.place else { return };
        if port == p && (if sense == Sense::Inbound { rx } else { tx }) {
            for packet in packets {
                let timestamp_ns = match packet.timestamp_ns() {
                    ns if ns > 0 && sense == Sense::Inbound => ns,
                    _ => now_ns,
                };
                self.copy(worker, timestamp_ns, sense, p as u16, None, packet);
            }
        }
    }

    /// Copies packets that enter node `n`, if that is what is asked for.
    pub(crate) fn at_node(&self, worker: usize, now_ns: u64, n: usize, packets: &[Packet]) {
        if self.place == Place::Node(n) {
            for packet in packets {
                self.copy(worker, now_ns, Sense::Unknown, packet.port, Some(n), packet);
            }
        }
    }

    fn copy(
        &self,
        worker: usize,
        timestamp_ns: u64,
        sense: Sense,
        port: u16,
        node: Option<usize>,
        packet: &Packet,
    ) {
        let length = packet.data().len();
        let miss = || {
            self.bytes.fetch_sub(length, Ordering::Relaxed);
            self.missed.fetch_add(1, Ordering::Relaxed);
        };
        let waiting = self.bytes.fetch_add(length, Ordering::Relaxed);
        if waiting + length > MAX_BYTES || self.copies.is_full() {
            return miss();
        }
        let copy = Captured {
            timestamp_ns,
            worker,
            sense,
            port,
            node,
            l3: packet.l3,
            wire_len: packet.wire_len(),
            bytes: packet.data().into(),
        };
        // Another worker may have taken the last place.
        if self.copies.push(copy).is_err() {
            miss();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_burst::Memory;

    /// Large packets fill a capture before its places are taken; what is received makes room.
    #[test]
    fn what_nobody_receives_is_bounded_in_bytes() {
        const LENGTH: usize = 9000;
        let memory = Memory::new(16, 16_384).unwrap();
        let mut pool = memory.pool(16).unwrap();
        let mut packet = pool.take().unwrap();
        packet.set_len(LENGTH);
        let mut capture = Capture::new(Place::Node(3), MAX_ROOM, Vec::new().into());
        let channel = capture.channel();
        let packets = [packet];
        let most = MAX_BYTES / LENGTH;
        (0..most + 5).for_each(|_| channel.at_node(0, 1, 3, &packets));
        assert_eq!((capture.waiting(), capture.missed()), (most, 5));
        assert_eq!(capture.receive().map(|copy| copy.bytes.len()), Some(LENGTH));
        (0..2).for_each(|_| channel.at_node(0, 1, 3, &packets));
        assert_eq!((capture.waiting(), capture.missed()), (most, 6));
        drop(capture);
        let [packet] = packets;
        pool.free(packet);
    }
}
