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
            self.fetched = Some(sys::receive(socket, &mut self.large));
        }
        // SAFETY: the slot is ours until its status is given back, which takes `self` anew; the status lies before.
        let bytes = unsafe { self.map.bytes(self.at * self.slot + 4, self.slot - 4) };
        Some(parse(status, bytes, self.fetched.map(|len| &self.large[..len])))
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
