//! Rings of frames in memory that is shared with the kernel (TPACKET_V3).
//!
//! This module is one of the named homes of `unsafe`: memory that the kernel writes too. A block (receiving) or slot
//! (sending) is the kernel's or ours; one word in it says whose, and the other side does not touch it.
//!
//! ```text
//! receiving: | block header | frame header, sockaddr, vnet header, frame | frame header, ... |      a block: 128 KiB
//! sending:   | frame header (48 bytes) | vnet header (10) | frame ...      |                         a slot
//! ```

use super::sys::{self, RingRequest};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of the virtio-net header in front of each frame.
pub(super) const VNET_LEN: usize = 10;

/// What the kernel has written into one mapping, page-aligned.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned; who may touch which part is decided by the words in it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping wherever the kernel likes.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Mapping { start, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A status word at a multiple of 4 bytes.
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len);
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned; both sides access it as one word.
        unsafe { self.start.add(at).cast::<AtomicU32>().as_ref() }
    }

    /// # Safety
    /// These bytes are ours while the slice lives, and none of them is a status word.
    unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: inside the mapping; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(at).as_ptr(), len) }
    }

    /// # Safety
    /// As for [`bytes`](Self::bytes), and nobody else reads or writes them.
    #[allow(clippy::mut_from_ref)] // memory that is shared anyway; the caller has it alone
    unsafe fn bytes_mut(&self, at: usize, len: usize) -> &mut [u8] {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: inside the mapping; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at).as_ptr(), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, used by nobody else.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Bytes in a block: a super-packet of 64 KiB with its headers must fit.
pub(super) const BLOCK: usize = 128 << 10;

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
    pub(super) const BYTES: usize = 48;
}

/// A frame as the kernel handed it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Received<'a> {
    /// The virtio-net header.
    pub(super) vnet: [u8; VNET_LEN],
    /// The frame, from the destination address on, without the tag that the kernel took off.
    pub(super) data: &'a [u8],
    /// Its length before it was cut to what the ring holds.
    pub(super) len: usize,
    /// The outermost VLAN tag: type and control information.
    pub(super) vlan: Option<[u16; 2]>,
    /// Nanoseconds since the epoch.
    pub(super) timestamp_ns: u64,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at.saturating_add(4)).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at.saturating_add(2)).and_then(|b| b.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

/// Reads the frame header at the front of `bytes` (up to the end of the block): the frame and where the next one is.
/// What does not fit into the block gives a frame without data.
fn parse(bytes: &[u8]) -> (Received<'_>, usize) {
    let status = u32_at(bytes, header::STATUS);
    let mac = usize::from(u16_at(bytes, header::MAC));
    let held = u32_at(bytes, header::HELD) as usize;
    let vnet = mac.checked_sub(VNET_LEN).and_then(|at| bytes.get(at..mac)?.try_into().ok());
    let data = mac.checked_add(held).and_then(|end| bytes.get(mac..end));
    let vlan = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
        let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
            u16_at(bytes, header::VLAN_TPID)
        } else {
            0x8100
        };
        [tpid, u32_at(bytes, header::VLAN_TCI) as u16]
    });
    let seconds = u64::from(u32_at(bytes, header::SECONDS));
    let received = Received {
        vnet: vnet.unwrap_or_default(),
        data: data.filter(|_| vnet.is_some()).unwrap_or_default(),
        len: u32_at(bytes, header::LEN) as usize,
        vlan,
        timestamp_ns: seconds * 1_000_000_000 + u64::from(u32_at(bytes, header::NANOSECONDS)),
    };
    (received, u32_at(bytes, header::NEXT) as usize)
}

/// Frames from the kernel, in blocks.
pub(super) struct RxRing {
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

impl RxRing {
    /// A ring of `blocks` blocks; the kernel hands over a block when it is full or `retire_ms` old.
    pub(super) fn new(fd: &OwnedFd, blocks: usize, retire_ms: u32) -> io::Result<Self> {
        let request = RingRequest {
            block_size: BLOCK as u32,
            blocks: blocks as u32,
            frame_size: BLOCK as u32,
            frames: blocks as u32,
            retire_ms,
            private: 0,
            features: 0,
        };
        sys::set_rx_ring(fd, &request)?;
        let map = Mapping::new(fd, blocks * BLOCK)?;
        Ok(RxRing { map, blocks, at: 0, left: 0, offset: 0, next: 0 })
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

/// What became of a frame that was given to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It left.
    Sent,
    /// The kernel refused it.
    Refused,
    /// We took it back.
    Cancelled,
}

/// Frames to the kernel, in slots.
pub(super) struct TxRing {
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
    pub(super) fn new(fd: &OwnedFd, slots: u32, longest: usize) -> io::Result<Self> {
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
    pub(super) fn room(&self) -> usize {
        self.slots as usize - self.pending()
    }

    /// Frames that are not done.
    pub(super) fn pending(&self) -> usize {
        self.put.wrapping_sub(self.done) as usize
    }

    /// The longest frame that fits.
    pub(super) fn longest(&self) -> usize {
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
    pub(super) fn put(&mut self, frame: &[u8]) {
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
    pub(super) fn complete(&mut self, mut tell: impl FnMut(usize, Outcome)) {
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
    pub(super) fn cancel(&mut self, mut tell: impl FnMut(usize, Outcome)) {
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
    pub(super) fn abandon(&mut self, mut tell: impl FnMut(usize, Outcome)) {
        while self.done != self.put {
            tell(self.lens[self.index(self.done)] as usize, Outcome::Sent);
            self.done = self.done.wrapping_add(1);
        }
    }

    /// Whether the kernel has frames to look at.
    pub(super) fn unsent(&self) -> bool {
        self.put != self.done
            && self.status(self.index(self.put.wrapping_sub(1))).load(Ordering::Acquire)
                & libc::TP_STATUS_SEND_REQUEST
                != 0
    }
}
