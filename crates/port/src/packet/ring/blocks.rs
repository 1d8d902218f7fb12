//! Receiving in blocks (TPACKET_V3).
//!
//! This module is one of the named homes of `unsafe`: it reads blocks while they are ours.

use super::super::sys::{self, RingRequest};
use super::{Mapping, Received, VNET_LEN, timestamp_ns, u16_at, u32_at, vlan};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// Longest time in milliseconds that a frame waits in a block that is not full. The least that the kernel offers.
const RETIRE_MS: u32 = 1;

/// Bytes in a block: a super-packet of 64 KiB with its headers must fit.
const BLOCK: usize = 128 << 10;

/// Offsets in struct tpacket_block_desc.
mod block {
    pub(super) const STATUS: usize = 8;
    pub(super) const PACKETS: usize = 12;
    pub(super) const FIRST: usize = 16;
    /// Behind the status word: what is ours to read while the block is.
    pub(super) const BODY: usize = 12;
}

/// Offsets in struct tpacket3_hdr.
mod header {
    pub(super) const NEXT: usize = 0;
    pub(super) const SECONDS: usize = 4;
    pub(super) const NANOSECONDS: usize = 8;
    pub(super) const HELD: usize = 12;
    pub(super) const LEN: usize = 16;
    pub(super) const STATUS: usize = 20;
    pub(super) const MAC: usize = 24;
    pub(super) const VLAN_TCI: usize = 32;
    pub(super) const VLAN_TPID: usize = 36;
}

/// Reads the frame header at the front of `bytes` (up to the end of the block): the frame and where the next one is.
/// What does not fit into the block gives a frame without data.
fn parse(bytes: &[u8]) -> (Received<'_>, usize) {
    let status = u32_at(bytes, header::STATUS);
    let mac = usize::from(u16_at(bytes, header::MAC));
    let held = u32_at(bytes, header::HELD) as usize;
    let vnet = mac.checked_sub(VNET_LEN).and_then(|at| bytes.get(at..mac)?.try_into().ok());
    let data = mac.checked_add(held).and_then(|end| bytes.get(mac..end));
    let vlan = vlan(status, u16_at(bytes, header::VLAN_TPID), u32_at(bytes, header::VLAN_TCI) as u16);
    let received = Received {
        vnet: vnet.unwrap_or_default(),
        data: data.filter(|_| vnet.is_some()).unwrap_or_default(),
        len: u32_at(bytes, header::LEN) as usize,
        vlan,
        timestamp_ns: timestamp_ns(u32_at(bytes, header::SECONDS), u32_at(bytes, header::NANOSECONDS)),
    };
    (received, u32_at(bytes, header::NEXT) as usize)
}

/// Frames from the kernel, in blocks.
pub(in super::super) struct Blocks {
    map: Mapping,
    blocks: usize,
    /// The block that we read, or wait for.
    at: usize,
    /// Frames in it that we have not passed; 0 while it is the kernel's.
    left: u32,
    /// Where the first of them begins, and from there the one behind it.
    offset: usize,
    next: usize,
}

impl Blocks {
    /// A ring of this many bytes.
    pub(in super::super) fn new(fd: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let blocks = bytes.div_ceil(BLOCK);
        let request = RingRequest {
            block_size: BLOCK as u32,
            blocks: blocks as u32,
            frame_size: BLOCK as u32,
            frames: blocks as u32,
            retire_ms: RETIRE_MS,
            private: 0,
            features: 0,
        };
        sys::set_rx_ring(fd, &request)?;
        let map = Mapping::new(fd, blocks * BLOCK)?;
        Ok(Blocks { map, blocks, at: 0, left: 0, offset: 0, next: 0 })
    }

    /// The next frame, which stays there until [`advance`](Self::advance).
    #[inline]
    pub(super) fn current(&mut self) -> Option<Received<'_>> {
        while self.left == 0 {
            // Pairs with the kernel's barrier: what it wrote before handing the block over is visible.
            let status = self.map.word(self.at * BLOCK + block::STATUS).load(Ordering::Acquire);
            if status & libc::TP_STATUS_USER == 0 {
                return None;
            }
            let body = self.body();
            let (left, first) =
                (u32_at(body, block::PACKETS - block::BODY), u32_at(body, block::FIRST - block::BODY));
            (self.left, self.offset) = (left, first as usize);
            if self.left == 0 {
                self.release();
            }
        }
        // SAFETY: the block is ours until it is released, which takes `self` anew.
        let body = unsafe { self.map.bytes(self.at * BLOCK + block::BODY, BLOCK - block::BODY) };
        let frames = self.offset.checked_sub(block::BODY).and_then(|at| body.get(at..));
        let (received, next) = parse(frames.unwrap_or_default());
        self.next = next;
        Some(received)
    }

    /// Passes the frame that [`current`](Self::current) gave.
    #[inline]
    pub(super) fn advance(&mut self) {
        if self.left == 0 {
            return;
        }
        self.offset = self.offset.saturating_add(self.next);
        self.left -= 1;
        if self.left == 0 {
            self.release();
        }
    }

    /// The current block behind its status word; ours.
    #[inline]
    fn body(&self) -> &[u8] {
        // SAFETY: called only while the block's status says that it is ours, and before it is given back.
        unsafe { self.map.bytes(self.at * BLOCK + block::BODY, BLOCK - block::BODY) }
    }

    fn release(&mut self) {
        self.map.word(self.at * BLOCK + block::STATUS).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.at = (self.at + 1) % self.blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(bytes: &mut [u8], at: usize, value: u32) {
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// A frame header with a frame of these bytes behind it.
    fn frame(data: &[u8], next: u32) -> Vec<u8> {
        let mut bytes = vec![0; 90];
        put(&mut bytes, header::NEXT, next);
        put(&mut bytes, header::SECONDS, 5);
        put(&mut bytes, header::NANOSECONDS, 6);
        put(&mut bytes, header::HELD, data.len() as u32);
        put(&mut bytes, header::LEN, data.len() as u32 + 1);
        let status = libc::TP_STATUS_USER | libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        put(&mut bytes, header::STATUS, status);
        bytes[header::MAC..header::MAC + 2].copy_from_slice(&90u16.to_ne_bytes());
        put(&mut bytes, header::VLAN_TCI, 7);
        put(&mut bytes, header::VLAN_TPID, 0x88A8);
        bytes[80..90].fill(3);
        bytes.extend(data);
        bytes
    }

    #[test]
    fn blocks_are_read_in_order_and_given_back() {
        let map = Mapping::anonymous(2 * BLOCK);
        let mut ring = Blocks { map, blocks: 2, at: 0, left: 0, offset: 0, next: 0 };
        for round in 0..4u8 {
            assert_eq!(ring.current(), None);
            let at = usize::from(round % 2) * BLOCK;
            let frames: Vec<_> = (0..3).map(|i| vec![i; 20 + usize::from(round)]).collect();
            let mut block = vec![0; 48];
            put(&mut block, block::PACKETS, 3);
            put(&mut block, block::FIRST, 48);
            frames.iter().for_each(|data| block.extend(frame(data, 90 + data.len() as u32)));
            // SAFETY: the block is the kernel's, which we play.
            unsafe { ring.map.bytes_mut(at + block::BODY, block.len() - block::BODY) }
                .copy_from_slice(&block[block::BODY..]);
            ring.map.word(at + block::STATUS).store(libc::TP_STATUS_USER, Ordering::Release);
            for data in &frames {
                for _ in 0..2 {
                    let received = ring.current().unwrap();
                    assert_eq!((received.data, received.len), (data.as_slice(), data.len() + 1));
                    assert_eq!((received.vlan, received.timestamp_ns), (Some([0x88A8, 7]), 5_000_000_006));
                    assert_eq!(received.vnet, [3; VNET_LEN]);
                }
                assert_eq!(ring.map.word(at + block::STATUS).load(Ordering::Relaxed), libc::TP_STATUS_USER);
                ring.advance();
            }
            assert_eq!(ring.map.word(at + block::STATUS).load(Ordering::Relaxed), libc::TP_STATUS_KERNEL);
        }
    }

    proptest! {
        #[test]
        fn any_header_is_read_within_its_block(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200), mac in 0..250u16, held in 0..250u32,
        ) {
            if bytes.len() >= 28 {
                put(&mut bytes, header::HELD, held);
                bytes[header::MAC..header::MAC + 2].copy_from_slice(&mac.to_ne_bytes());
            }
            let (received, _) = parse(&bytes);
            let fits = bytes.len() >= 28 && mac >= 10 && usize::from(mac) + held as usize <= bytes.len();
            prop_assert_eq!(received.data.len(), if fits { held as usize } else { 0 });
        }
    }
}
