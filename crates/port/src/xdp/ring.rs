//! The four rings of an AF_XDP socket: single producer, single consumer, one side of each is the kernel's.
//!
//! This module is one of the named homes of `unsafe`: memory that the kernel writes too.
//!
//! ```text
//! mapping: | producer | consumer | flags | ... | desc 0 | desc 1 | ... (a power of two) |
//! ```
//! Producer and consumer count up for ever and wrap at 2^32; their difference is what lies between. Each side writes its
//! own counter once per burst ([`Ring::publish`]) and reads the other's only when it seems that there is nothing to do:
//! these are the cache lines that travel between the two.

use super::sys::RingOffset;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A ring of `T`. Our side's counter is kept here and told to the kernel by [`publish`](Self::publish).
pub(super) struct Ring<T> {
    mapping: NonNull<u8>,
    mapped: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Our counter: the producer of the fill and transmit rings, the consumer of the others.
    ours: u32,
    /// The kernel's counter when we last looked.
    theirs: u32,
    produces: bool,
}

// SAFETY: the mapping is owned; one thread at a time uses our side.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `size` entries (a power of two, as set before) at this page offset of the socket.
    pub(super) fn map(
        socket: &OwnedFd,
        page: i64,
        at: &RingOffset,
        size: u32,
        produces: bool,
    ) -> io::Result<Self> {
        let mapped = at.desc as usize + size as usize * size_of::<T>();
        // SAFETY: a new mapping wherever the kernel likes.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                page,
            )
        };
        let mapping = match NonNull::new(mapping.cast::<u8>()) {
            Some(mapping) if mapping.as_ptr().cast() != libc::MAP_FAILED => mapping,
            _ => return Err(io::Error::last_os_error()),
        };
        // SAFETY: the kernel's offsets lie in the mapping and are aligned for what is there.
        let (producer, consumer, flags, entries) = unsafe {
            (
                mapping.add(at.producer as usize).cast(),
                mapping.add(at.consumer as usize).cast(),
                mapping.add(at.flags as usize).cast(),
                mapping.add(at.desc as usize).cast(),
            )
        };
        Ok(Ring { mapping, mapped, producer, consumer, flags, entries, size, ours: 0, theirs: 0, produces })
    }

    fn counters(&self) -> (&AtomicU32, &AtomicU32) {
        // SAFETY: both are inside the mapping, which lives as long as `self`.
        let (producer, consumer) = unsafe { (self.producer.as_ref(), self.consumer.as_ref()) };
        if self.produces { (producer, consumer) } else { (consumer, producer) }
    }

    /// Entries that we can put (of a ring that we produce) or take, as last seen or, if there were none, as of now.
    #[inline]
    pub(super) fn ready(&mut self) -> u32 {
        let count = |ring: &Self| match ring.produces {
            true => ring.size - ring.ours.wrapping_sub(ring.theirs).min(ring.size),
            false => ring.theirs.wrapping_sub(ring.ours).min(ring.size),
        };
        if count(self) == 0 {
            // Pairs with the kernel's release: what it wrote before moving its counter is visible.
            self.theirs = self.counters().1.load(Ordering::Acquire);
        }
        count(self)
    }

    /// Entries of ours (of a ring that we produce) that the kernel has not taken yet, as of now.
    #[inline]
    pub(super) fn untaken(&mut self) -> u32 {
        self.theirs = self.counters().1.load(Ordering::Acquire);
        self.ours.wrapping_sub(self.theirs).min(self.size)
    }

    /// Whether the kernel wants to be called to go on with this ring (`XDP_USE_NEED_WAKEUP`).
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        const XDP_RING_NEED_WAKEUP: u32 = 1;
        // SAFETY: inside the mapping, which lives as long as `self`.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & XDP_RING_NEED_WAKEUP != 0
    }

    /// Puts an entry; the caller has seen that there is room.
    #[inline]
    pub(super) fn put(&mut self, entry: T) {
        // SAFETY: masked to the ring; the kernel does not look at entries that are not published.
        unsafe { self.entries.add((self.ours & (self.size - 1)) as usize).write(entry) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// Takes an entry; the caller has seen that there is one.
    #[inline]
    pub(super) fn take(&mut self) -> T {
        // SAFETY: masked to the ring; the kernel has published the entry, and any bits are a valid one.
        let entry = unsafe { self.entries.add((self.ours & (self.size - 1)) as usize).read() };
        self.ours = self.ours.wrapping_add(1);
        entry
    }

    /// Tells the kernel what was put or taken.
    #[inline]
    pub(super) fn publish(&self) {
        self.counters().0.store(self.ours, Ordering::Release);
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, used by nobody else.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}
