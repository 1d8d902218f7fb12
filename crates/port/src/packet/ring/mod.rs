//! Rings of frames in memory that is shared with the kernel.
//!
//! This module is one of the named homes of `unsafe`: memory that the kernel writes too. A slot or a block of slots is
//! the kernel's or ours; one word in it says whose, and the other side does not touch the rest.
//!
//! ```text
//! receiving, slots:  | header | sender | vnet header | frame        | header | ...      one frame in 2048 bytes
//! receiving, blocks: | block header | header | sender | vnet header | frame | header    as many as fit in 128 KiB
//! sending:           | header | vnet header | frame                 | header | ...
//! ```
//! **Which receive ring.** In slots (TPACKET_V2) a frame is seen as soon as it is written. A block (TPACKET_V3) is handed
//! over when it is full or a timer of at least 1 ms has run out, but holds many more small packets in the same memory, which
//! outlasts longer pauses. Measured through a bridge of two ports on two veth pairs (Xeon guest of 2 busy cores, Linux 6.18,
//! 2026-11): ping takes 0.17 to 0.29 ms with slots, 1.3 to 2.9 ms with blocks; rates and TCP throughput (3 to 5 Gb/s) do not
//! differ. Kernels that count this timer in ticks (250 a second are common) make it worse. So slots are the default.

mod blocks;
mod slots;
mod transmit;

pub(super) use blocks::Blocks;
pub(super) use slots::Slots;
pub(super) use transmit::{Outcome, TxRing};

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// Bytes of the virtio-net header in front of each frame.
const VNET_LEN: usize = super::gso::HEADER_LEN;

/// The longest super-packet, with its virtio-net header and tags. Longer ones (BIG TCP), which a host sends only when told
/// to, are cut and dropped.
pub(super) const LONGEST: usize = (64 << 10) + 256;

/// One of the two receive rings.
pub(super) enum RxRing {
    Slots(Slots),
    Blocks(Blocks),
}

impl RxRing {
    /// The next frame, which stays there until [`advance`](Self::advance).
    #[inline]
    pub(super) fn current(&mut self, socket: &OwnedFd) -> Option<Received<'_>> {
        match self {
            RxRing::Slots(ring) => ring.current(socket),
            RxRing::Blocks(ring) => ring.current(),
        }
    }

    /// Passes the frame that [`current`](Self::current) gave.
    #[inline]
    pub(super) fn advance(&mut self) {
        match self {
            RxRing::Slots(ring) => ring.advance(),
            RxRing::Blocks(ring) => ring.advance(),
        }
    }
}

/// A ring's memory, from the start of a page.
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

    /// Memory of this process alone, in which a test plays the kernel.
    #[cfg(test)]
    fn anonymous(len: usize) -> Self {
        // SAFETY: a new mapping wherever the kernel likes.
        let start = unsafe {
            let (access, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        NonNull::new(start.cast()).map(|start| Mapping { start, len }).unwrap()
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

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at.saturating_add(4)).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at.saturating_add(2)).and_then(|b| b.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

fn timestamp_ns(seconds: u32, nanoseconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds)
}

/// The tag that the kernel took off, if it did. Kernels before 3.14 do not tell its type.
fn vlan(status: u32, tpid: u16, tci: u16) -> Option<[u16; 2]> {
    let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { tpid } else { 0x8100 };
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some([tpid, tci])
}
