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

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: usize = 2048;

    fn ring(slots: u32) -> TxRing {
        let map = Mapping::anonymous(SLOT * slots as usize);
        TxRing { map, slot: SLOT, slots, put: 0, done: 0, lens: vec![0; slots as usize].into() }
    }

    /// The kernel: takes frames from `head` on, until one is refused, and says what it took.
    fn take(ring: &TxRing, head: &mut u32, refuse: &[u8], leave: u32) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        loop {
            let index = ring.index(*head);
            let status = ring.status(index);
            if status.load(Ordering::Relaxed) != libc::TP_STATUS_SEND_REQUEST {
                return taken;
            }
            // SAFETY: a request makes the slot the kernel's, which we play.
            let slot = unsafe { ring.map.bytes(index * SLOT, SLOT) };
            let len = u32::from_ne_bytes(slot[16..20].try_into().unwrap()) as usize;
            assert_eq!(slot[..4], [0; 4], "a slot says nothing of the next");
            assert_eq!(u16::from_ne_bytes([slot[50], slot[51]]) as usize, len - VNET_LEN);
            let frame = slot[48 + VNET_LEN..48 + len].to_vec();
            if refuse.contains(&frame[0]) {
                status.store(libc::TP_STATUS_WRONG_FORMAT, Ordering::Relaxed);
                return taken;
            }
            status.store(leave, Ordering::Relaxed);
            taken.push(frame);
            *head = head.wrapping_add(1);
        }
    }

    fn told(ring: &mut TxRing) -> Vec<(usize, Outcome)> {
        let mut told = Vec::new();
        ring.complete(|len, outcome| told.push((len, outcome)));
        told
    }

    #[test]
    fn a_refused_frame_does_not_stop_the_others() {
        let (mut ring, mut head) = (ring(8), 0);
        for round in 0..5u8 {
            let frames: Vec<_> = (0..8).map(|i| [i, round, 0, i].repeat(5 + usize::from(i))).collect();
            frames.iter().for_each(|frame| ring.put(frame));
            assert_eq!((ring.room(), ring.pending(), ring.unsent()), (0, 8, true));
            let (mut sent, mut outcomes) = (Vec::new(), Vec::new());
            while ring.pending() > 0 {
                sent.extend(take(&ring, &mut head, &[0, 3, 4, 7], libc::TP_STATUS_AVAILABLE));
                outcomes.extend(told(&mut ring));
            }
            let expected: Vec<_> = frames
                .iter()
                .map(|frame| match frame[0] {
                    0 | 3 | 4 | 7 => (frame.len(), Outcome::Refused),
                    _ => (frame.len(), Outcome::Sent),
                })
                .collect();
            assert_eq!(outcomes, expected);
            assert_eq!(sent, [1, 2, 5, 6].map(|i| frames[i].clone()));
            assert!(!ring.unsent());
        }
    }

    #[test]
    fn what_was_not_begun_can_be_taken_back() {
        let (mut ring, mut head) = (ring(8), 0);
        (0..3).for_each(|i| ring.put(&[i; 60]));
        assert_eq!(take(&ring, &mut head, &[], libc::TP_STATUS_SENDING).len(), 3);
        (3..8).for_each(|i| ring.put(&[i; 61]));
        assert!(told(&mut ring).is_empty(), "the card is not done");
        // The first is done; then the cable is unplugged.
        ring.status(0).store(libc::TP_STATUS_AVAILABLE | libc::TP_STATUS_TS_SOFTWARE, Ordering::Relaxed);
        let mut outcomes = Vec::new();
        ring.cancel(|len, outcome| outcomes.push((len, outcome)));
        assert_eq!(outcomes[0], (60, Outcome::Sent));
        assert_eq!(outcomes[1..], [(61, Outcome::Cancelled); 5]);
        assert_eq!((ring.pending(), ring.room(), ring.unsent()), (2, 6, false));
        // It goes on where the kernel looks next.
        ring.put(&[9; 62]);
        assert_eq!(take(&ring, &mut head, &[], libc::TP_STATUS_AVAILABLE), [vec![9; 62]]);
        outcomes.clear();
        ring.abandon(|len, outcome| outcomes.push((len, outcome)));
        assert_eq!(outcomes, [(60, Outcome::Sent), (60, Outcome::Sent), (62, Outcome::Sent)]);
        assert_eq!(ring.pending(), 0);
    }
}
