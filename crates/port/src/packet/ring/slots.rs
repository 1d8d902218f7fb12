//! Receiving in slots (TPACKET_V2).
//!
//! This module is one of the named homes of `unsafe`: it reads slots while they are ours.
//!
//! A slot is as long as the device's MTU asks for. Of a longer frame, a super-packet mostly, it holds the beginning, and the
//! kernel queues the whole at the socket (PACKET_COPY_THRESH), in the same order: one system call for 64 KB.

use super::super::sys::{self, RingRequest};
use super::{LONGEST, Mapping, Received, VNET_LEN, timestamp_ns, u16_at, u32_at, vlan};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Offsets in struct tpacket2_hdr.
mod header {
    pub(super) const STATUS: usize = 0;
    pub(super) const LEN: usize = 4;
    pub(super) const HELD: usize = 8;
    pub(super) const MAC: usize = 12;
    pub(super) const SECONDS: usize = 16;
    pub(super) const NANOSECONDS: usize = 20;
    pub(super) const VLAN_TCI: usize = 24;
    pub(super) const VLAN_TPID: usize = 26;
    /// Bytes in front of a frame: this header, the sender's address, the virtio-net header, alignment.
    pub(super) const OVERHEAD: usize = 128;
}

/// What the kernel allocates at once.
const BLOCK: usize = 64 << 10;

/// Frames from the kernel, in slots.
pub(in super::super) struct Slots {
    map: Mapping,
    slot: usize,
    slots: usize,
    /// The slot that we read, or wait for.
    at: usize,
    /// The super-packet that the current slot stands for, once it was fetched: its length with the virtio-net header.
    fetched: Option<usize>,
    large: Box<[u8]>,
}

impl Slots {
    /// A ring of this many bytes for frames of up to `longest` bytes; longer ones come by way of the socket's queue.
    pub(in super::super) fn new(fd: &OwnedFd, bytes: usize, longest: usize) -> io::Result<Self> {
        let slot = (header::OVERHEAD + longest).next_power_of_two().max(2048);
        let block = slot.max(BLOCK);
        let blocks = bytes.div_ceil(block);
        let request = RingRequest {
            block_size: block as u32,
            blocks: blocks as u32,
            frame_size: slot as u32,
            frames: (blocks * (block / slot)) as u32,
            retire_ms: 0,
            private: 0,
            features: 0,
        };
        sys::set_rx_ring(fd, &request)?;
        let map = Mapping::new(fd, blocks * block)?;
        let slots = request.frames as usize;
        Ok(Slots { map, slot, slots, at: 0, fetched: None, large: vec![0; LONGEST].into() })
    }

    fn status(&self) -> &AtomicU32 {
        self.map.word(self.at * self.slot + header::STATUS)
    }

    /// The next frame, which stays there until [`advance`](Self::advance).
    #[inline]
    pub(super) fn current(&mut self, socket: &OwnedFd) -> Option<Received<'_>> {
        // Pairs with the kernel's barrier: what it wrote before handing the slot over is visible.
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        if status & libc::TP_STATUS_COPY != 0 && self.fetched.is_none() {
            self.fetched = Some(self.fetch(socket));
        }
        // SAFETY: the slot is ours until its status is given back, which takes `self` anew; the status lies before.
        let bytes = unsafe { self.map.bytes(self.at * self.slot + 4, self.slot - 4) };
        Some(parse(status, bytes, self.fetched.map(|len| &self.large[..len])))
    }

    /// Fetches the super-packet that the current slot holds the beginning of.
    #[cold]
    fn fetch(&mut self, socket: &OwnedFd) -> usize {
        // SAFETY: as in `current`.
        let bytes = unsafe { self.map.bytes(self.at * self.slot + 4, self.slot - 4) };
        let wanted = (u32_at(bytes, header::LEN - 4) as usize).saturating_add(VNET_LEN).min(LONGEST);
        loop {
            // Should one ever have failed to be fetched, it is passed here, and the next is right again.
            let len = sys::receive(socket, &mut self.large);
            if len == wanted || len == 0 {
                return len;
            }
        }
    }

    /// Passes the frame that [`current`](Self::current) gave.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.fetched = None;
        self.at += 1;
        if self.at == self.slots {
            self.at = 0;
        }
    }
}

/// Reads a slot behind its status word. `large` is the whole frame where the slot holds only its beginning.
#[inline]
fn parse<'a>(status: u32, bytes: &'a [u8], large: Option<&'a [u8]>) -> Received<'a> {
    let mac = usize::from(u16_at(bytes, header::MAC - 4)).saturating_sub(4);
    let held = u32_at(bytes, header::HELD - 4) as usize;
    let whole = match large {
        Some(large) => Some(large),
        None => mac.checked_sub(VNET_LEN).and_then(|from| bytes.get(from..mac.checked_add(held)?)),
    };
    let parts = whole.and_then(|whole| whole.split_first_chunk::<VNET_LEN>());
    let (vnet, data) = parts.unwrap_or((&[0; VNET_LEN], &[]));
    let vlan = vlan(status, u16_at(bytes, header::VLAN_TPID - 4), u16_at(bytes, header::VLAN_TCI - 4));
    Received {
        vnet: *vnet,
        data,
        len: u32_at(bytes, header::LEN - 4) as usize,
        vlan,
        timestamp_ns: timestamp_ns(
            u32_at(bytes, header::SECONDS - 4),
            u32_at(bytes, header::NANOSECONDS - 4),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_header_is_read_within_its_slot(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            status in any::<u32>(), mac in 0..250u16, held in 0..250u32,
            large in prop::option::of(prop::collection::vec(any::<u8>(), 0..30)),
        ) {
            if bytes.len() >= 24 {
                bytes[header::HELD - 4..header::HELD].copy_from_slice(&held.to_ne_bytes());
                bytes[header::MAC - 4..header::MAC - 2].copy_from_slice(&mac.to_ne_bytes());
            }
            let received = parse(status, &bytes, large.as_deref());
            // Offsets count from the status word.
            let end = usize::from(mac) + held as usize;
            let fits = bytes.len() >= 24 && mac >= 14 && end <= bytes.len() + 4;
            let len = match &large {
                Some(large) => large.len().saturating_sub(VNET_LEN),
                None if fits => held as usize,
                None => 0,
            };
            prop_assert_eq!(received.data.len(), len);
            prop_assert_eq!(received.vlan.is_some(), status & libc::TP_STATUS_VLAN_VALID != 0);
        }
    }
}
