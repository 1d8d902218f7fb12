//! Sending.
//!
//! This module is one of the named homes of `unsafe`: it writes slots while they are ours.

use super::super::sys::{self, RingRequest};
use super::{Mapping, VNET_LEN};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Offsets in struct tpacket3_hdr.
mod header {
    pub(super) const NEXT: usize = 0;
    pub(super) const LEN: usize = 16;
    pub(super) const STATUS: usize = 20;
    pub(super) const BYTES: usize = 48;
}

/// What became of a frame that was given to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Outcome {
    /// It left.
    Sent,
    /// The kernel refused it.
    Refused,
    /// We took it back.
    Cancelled,
}

/// Frames to the kernel, in slots.
pub(in super::super) struct TxRing {
    map: Mapping,
    slot: usize,
    slots: u32,
    /// Frames put since the start, and those of them that are done; both wrap.
    put: u32,
    done: u32,
    /// The length of the frame in each slot.
    lens: Box<[u32]>,
}

impl TxRing {
    /// A ring of `slots` slots (a power of two) for frames of up to `longest` bytes.
    pub(in super::super) fn new(fd: &OwnedFd, slots: u32, longest: usize) -> io::Result<Self> {
        let slot = (header::BYTES + VNET_LEN + longest).next_power_of_two().max(2048);
        let block_size = slot.max(64 << 10).min(slot * slots as usize).max(4096);
        let blocks = (slot * slots as usize).div_ceil(block_size);
        let request = RingRequest {
            block_size: block_size as u32,
            blocks: blocks as u32,
            frame_size: slot as u32,
            frames: (blocks * (block_size / slot)) as u32,
            retire_ms: 0,
            private: 0,
            features: 0,
        };
        sys::set_tx_ring(fd, &request)?;
        let map = Mapping::new(fd, blocks * block_size)?;
        let slots = request.frames;
        Ok(TxRing { map, slot, slots, put: 0, done: 0, lens: vec![0; slots as usize].into() })
    }

    /// Free slots.
    pub(in super::super) fn room(&self) -> usize {
        self.slots as usize - self.pending()
    }

    /// Frames that are not done.
    pub(in super::super) fn pending(&self) -> usize {
        self.put.wrapping_sub(self.done) as usize
    }

    /// The longest frame that fits.
    pub(in super::super) fn longest(&self) -> usize {
        self.slot - header::BYTES - VNET_LEN
    }

    fn index(&self, serial: u32) -> usize {
        (serial % self.slots) as usize
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        self.map.word(index * self.slot + header::STATUS)
    }

    /// Puts a frame. The caller has seen that there is room and that it fits.
    #[inline]
    pub(in super::super) fn put(&mut self, frame: &[u8]) {
        let index = self.index(self.put);
        assert!(self.room() > 0 && frame.len() <= self.longest());
        self.write(index, |data| data[..frame.len()].copy_from_slice(frame), frame.len());
        self.put = self.put.wrapping_add(1);
    }

    #[inline]
    fn write(&mut self, index: usize, fill: impl FnOnce(&mut [u8]), len: usize) {
        let at = index * self.slot;
        // SAFETY: the slot is ours until its status says otherwise below; the status word lies between the two parts.
        let (front, data) = unsafe {
            (
                self.map.bytes_mut(at, header::STATUS),
                self.map.bytes_mut(at + header::BYTES, self.slot - header::BYTES),
            )
        };
        front[header::NEXT..header::NEXT + 4].fill(0);
        front[header::LEN..header::LEN + 4].copy_from_slice(&((len + VNET_LEN) as u32).to_ne_bytes());
        let (vnet, data) = data.split_at_mut(VNET_LEN);
        vnet.fill(0);
        // The "header" that the kernel copies into its own memory is the whole frame: otherwise it would refer to our
        // pages, and on a virtual link copy them into fresh pages of its own.
        vnet[2..4].copy_from_slice(&(len.min(usize::from(u16::MAX)) as u16).to_ne_bytes());
        fill(data);
        self.lens[index] = len as u32;
        self.status(index).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
    }

    /// Tells of every frame that is done, in order, with its length.
    #[inline]
    pub(in super::super) fn complete(&mut self, mut tell: impl FnMut(usize, Outcome)) {
        while self.done != self.put {
            let index = self.index(self.done);
            let status = self.status(index).load(Ordering::Acquire);
            let len = self.lens[index] as usize;
            if status & libc::TP_STATUS_WRONG_FORMAT != 0 {
                tell(len, Outcome::Refused);
                self.close_gap();
            } else if status & (libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING) == 0 {
                tell(len, Outcome::Sent);
                self.done = self.done.wrapping_add(1);
            } else {
                return;
            }
        }
    }

    /// The kernel waits at the slot of a frame that it refused: the frames behind it, none of which it has looked at,
    /// move down by one.
    #[cold]
    fn close_gap(&mut self) {
        let mut to = self.done;
        while to.wrapping_add(1) != self.put {
            let (from, into) = (self.index(to.wrapping_add(1)), self.index(to));
            let len = self.lens[from] as usize;
            // SAFETY: both slots are ours: the kernel looks at the ring only in our own call, and in order.
            let data = unsafe { self.map.bytes(from * self.slot + header::BYTES + VNET_LEN, len) };
            let data = data.to_vec();
            self.write(into, |into| into[..len].copy_from_slice(&data), len);
            to = to.wrapping_add(1);
        }
        self.status(self.index(to)).store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        self.put = to;
    }

    /// Takes back what the kernel has not begun to send.
    #[cold]
    pub(in super::super) fn cancel(&mut self, mut tell: impl FnMut(usize, Outcome)) {
        self.complete(&mut tell);
        while self.put != self.done {
            let last = self.put.wrapping_sub(1);
            let status = self.status(self.index(last));
            if status.load(Ordering::Acquire) & libc::TP_STATUS_SENDING != 0 {
                break;
            }
            if status.load(Ordering::Acquire) & libc::TP_STATUS_SEND_REQUEST == 0 {
                break;
            }
            status.store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
            tell(self.lens[self.index(last)] as usize, Outcome::Cancelled);
            self.put = last;
        }
    }

    /// Gives up waiting for frames that the kernel is still sending; it has them and will.
    pub(in super::super) fn abandon(&mut self, mut tell: impl FnMut(usize, Outcome)) {
        while self.done != self.put {
            tell(self.lens[self.index(self.done)] as usize, Outcome::Sent);
            self.done = self.done.wrapping_add(1);
        }
    }

    /// Whether the kernel has frames to look at.
    pub(in super::super) fn unsent(&self) -> bool {
        self.put != self.done
            && self.status(self.index(self.put.wrapping_sub(1))).load(Ordering::Acquire)
                & libc::TP_STATUS_SEND_REQUEST
                != 0
    }
}
