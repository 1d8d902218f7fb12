//! Packet memory: regions, pools, and the packet that owns a frame.
//!
//! This module is one of the named homes of `unsafe`. The invariants that everything rests on:
//! * I1. A frame is in exactly one place: a pool's local stack, its return ring, or one live [`Packet`]. A frame in the
//!   hands of a device is a packet too: it waits in that port's [`Lent`](crate::Lent) table and nobody else can touch it.
//! * I2. [`PoolInner`] and the region outlive every packet: a [`Pool`] dropped with frames out leaks both on purpose.
//! * I3. `start + len <= frame_size` and `start >= COLD`, so that data never overlaps the cold bytes; frame sizes stop
//!   at 32768, so that both always fit in 16 bits.
//!
//! `take` does not touch the frame: writing its cold line for every packet cost a cache line per packet that most
//! packets never need, so flags in the packet say which cold fields hold something.

use crate::burst::Burst;
use crate::lent::Arrived;
use crossbeam_queue::ArrayQueue;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tidemill_lookup::mem::{Pages, Region};
use tidemill_lookup::prefetch::prefetch_read;

/// Bytes at the start of each frame for what is seldom read: timestamp, length on the wire, trace id, size of merged segments, a way of its own.
pub const COLD: usize = 64;
/// Where received data begins: cold bytes and 192 bytes of headroom (AF_XDP wants 256 in front of the data).
pub const DATA_START: usize = 256;

/// The first bytes of a frame. A field means something only while the packet's flag for it is set.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
struct Cold {
    timestamp_ns: u64,
    trace_id: u64,
    wire_len: u32,
    merged_size: u16,
    /// 0 or not: any bytes must be a valid `Cold`.
    merged_fixed_ident: u16,
    steer: u32,
    note: u32,
}
const _: () = assert!(size_of::<Cold>() == COLD);

/// A region of packet memory cut into frames of one size.
pub struct Memory {
    region: Region,
    base: NonNull<u8>,
    frame_size: usize,
    frame_shift: u32,
    frames: usize,
    /// Of all frames.
    bytes: usize,
    carved: AtomicUsize,
}

// SAFETY: `base` points into `region`, which this struct owns; access to the bytes is governed by frame ownership (I1).
unsafe impl Send for Memory {}
// SAFETY: as above; `Memory` itself offers no access to frame bytes.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `frames` frames of `frame_size` bytes (a power of two, 2048 to 32768).
    pub fn new(frames: usize, frame_size: usize) -> io::Result<Arc<Self>> {
        if !frame_size.is_power_of_two() || !(2048..=32768).contains(&frame_size) {
            let text = format!("frame_size {frame_size} is not a power of two between 2048 and 32768");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let bytes = frames.checked_mul(frame_size).filter(|_| frames > 0 && u32::try_from(frames).is_ok());
        let bytes = bytes.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{frames} frames: not a possible number"))
        })?;
        let mut region = Region::new(bytes)?;
        let base = NonNull::new(region.as_mut_ptr()).ok_or_else(|| io::Error::other("no memory"))?;
        let frame_shift = frame_size.trailing_zeros();
        Ok(Arc::new(Memory {
            region,
            base,
            frame_size,
            frame_shift,
            frames,
            bytes,
            carved: AtomicUsize::new(0),
        }))
    }

    /// Carves the next `frames` frames off as a pool for one worker.
    pub fn pool(self: &Arc<Self>, frames: usize) -> io::Result<Pool> {
        let first = self
            .carved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |first| {
                first.checked_add(frames).filter(|end| *end <= self.frames)
            })
            .map_err(|first| {
                io::Error::other(format!(
                    "{frames} frames asked for, {} left in the region",
                    self.frames - first
                ))
            })?;
        if frames == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a pool needs at least one frame"));
        }
        let inner = Arc::new(PoolInner {
            base: self.base,
            frame_shift: self.frame_shift,
            memory: self.clone(),
            home: ArrayQueue::new(frames),
            arrived: AtomicUsize::new(0),
            unnamed: AtomicU64::new(0),
        });
        // Lowest index on top: a lightly loaded pool stays in few cache lines.
        let free = (first as u32..(first + frames) as u32).rev().collect();
        Ok(Pool { inner, free, frames, collected: 0 })
    }

    /// Size of one frame in bytes.
    pub fn frame_size(&self) -> usize {
        self.frame_size
    }

    /// Number of frames.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Start of the region, for registering it (UMEM, DPDK external memory).
    pub fn as_ptr(&self) -> *const u8 {
        self.region.as_ptr()
    }

    /// Bytes in the region.
    pub fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// What pages the kernel granted.
    pub fn pages(&self) -> Pages {
        self.region.pages()
    }
}

#[repr(C)]
struct PoolInner {
    // Read for every packet; the fields below the return ring (padded by itself) are written by other threads.
    base: NonNull<u8>,
    frame_shift: u32,
    memory: Arc<Memory>,
    /// Frames freed by somebody other than the owner.
    home: ArrayQueue<u32>,
    /// Pushes to `home` that are over and done: whoever pushes touches nothing of the pool after counting here.
    arrived: AtomicUsize,
    /// Packets that were dropped without having been freed by a pool: a bug in conservation, if not in memory.
    unnamed: AtomicU64,
}

// SAFETY: `base` is only dereferenced by the owner of a frame (I1); everything else in here may be shared.
unsafe impl Send for PoolInner {}
// SAFETY: as above.
unsafe impl Sync for PoolInner {}

/// One worker's frames.
pub struct Pool {
    inner: Arc<PoolInner>,
    /// Never grows: it is made with room for every frame of the pool.
    free: Vec<u32>,
    frames: usize,
    /// Frames taken out of the return ring so far.
    collected: usize,
}

/// What a pool holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Frames that the pool was carved with.
    pub frames: usize,
    /// Frames that are home (local stack and return ring).
    pub free: usize,
    /// Packets that came home by being dropped rather than freed: must be 0 in a correct graph.
    pub unnamed: u64,
}

impl PoolStats {
    /// Adds another pool's.
    pub fn add(&mut self, other: &PoolStats) {
        self.frames += other.frames;
        self.free += other.free;
        self.unnamed += other.unnamed;
    }
}

/// A packet: the only owner of one frame, and what the nodes know of it. 32 bytes; it moves from burst to burst.
pub struct Packet {
    pool: NonNull<PoolInner>,
    /// Start of the frame, so that reaching the data takes no look at the pool.
    frame: NonNull<u8>,
    start: u16,
    len: u16,
    /// RSS hash, or 0 where none was computed.
    pub hash: u32,
    /// The FIB's answer (a next-hop label), or whatever the last lookup node found.
    pub label: u32,
    /// The port that the packet came in by; behind `ethernet-input`, the interface (the port's own number, unless the
    /// frame carries the VLAN tag of a sub-interface).
    pub port: u16,
    /// Offset of the network header from the start of the data.
    pub l3: u8,
    flags: u8,
}
const _: () = assert!(size_of::<Packet>() == 32);

/// The packet is being traced, and its trace id is valid.
const TRACED: u8 = 1;
/// The timestamp is valid.
const TIMED: u8 = 2;
/// The length on the wire is valid.
const CUT: u8 = 4;
/// The packet is one of our own.
const OWN: u8 = 8;
/// The packet was merged of segments, and their size is valid.
const MERGED: u8 = 16;

/// The device has found the IPv4 header's checksum right.
const CHECKED: u8 = 32;

/// A node's note is valid.
const NOTED: u8 = 64;

/// The packet goes by a way of its own, and that way's number is valid.
const STEERED: u8 = 128;

/// How a packet that was merged of segments of one TCP flow falls into them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merged {
    /// Bytes of payload in each segment but the last, which may have fewer.
    pub size: u16,
    /// IPv4: all segments have the same identification, that of the packet; else it counts up from there.
    pub fixed_ident: bool,
}

// SAFETY: a packet owns its frame alone (I1), and the pool's return ring may be used from any thread.
unsafe impl Send for Packet {}
// SAFETY: `&Packet` only reads the frame's bytes.
unsafe impl Sync for Packet {}

impl Pool {
    /// Takes a frame: an empty packet whose data begins behind the standard headroom. `None` when all frames are out.
    #[inline]
    pub fn take(&mut self) -> Option<Packet> {
        if self.free.is_empty() {
            self.refill();
        }
        let index = self.free.pop()?;
        Some(self.inner.fresh(index))
    }

    /// Takes up to `want` frames: empty packets at the end of a burst, as many as there are frames and places. Returns them; their first
    /// lines are on their way. Cheaper than [`take`](Self::take): made where they stay, packets are not moved while they are
    /// still being written, which would wait for every store before.
    #[inline]
    pub fn take_into<'b>(&mut self, want: usize, burst: &'b mut Burst) -> &'b mut [Packet] {
        let (before, want) = (burst.len(), want.min(burst.room()));
        if self.free.len() < want {
            self.refill();
        }
        let (inner, packets) = (&*self.inner, burst.vec());
        let kept = self.free.len().saturating_sub(want);
        packets.extend(self.free.drain(kept..).rev().map(|index| inner.fresh(index)));
        packets[before..].iter().for_each(|packet| prefetch_read(packet.data_ptr()));
        &mut packets[before..]
    }

    /// A new packet that holds `data`, or `None` if there is no frame or not enough room in one.
    pub fn packet(&mut self, data: &[u8]) -> Option<Packet> {
        if data.len() > self.room() {
            return None;
        }
        let mut packet = self.take()?;
        packet.set_len(data.len());
        packet.data_mut().copy_from_slice(data);
        Some(packet)
    }

    /// The longest packet that a fresh frame holds.
    pub fn room(&self) -> usize {
        self.inner.frame_size() - DATA_START
    }

    #[cold]
    fn refill(&mut self) {
        while let Some(index) = self.inner.home.pop() {
            self.free.push(index);
            self.collected += 1;
        }
    }

    /// Gives a packet's frame back: to the local stack if it is ours, else to its own pool's return ring.
    #[inline]
    pub fn free(&mut self, packet: Packet) {
        let packet = ManuallyDrop::new(packet);
        let index = packet.index();
        if std::ptr::eq(packet.pool.as_ptr(), Arc::as_ptr(&self.inner)) {
            self.free.push(index);
        } else {
            packet.send_home(index);
        }
    }

    /// Takes up to `most` frames for a device, without making packets of them first, as long as `lend` says that it has the loan. Returns how many.
    #[inline]
    pub(crate) fn loans(&mut self, most: usize, mut lend: impl FnMut(Loan) -> bool) -> usize {
        if self.free.len() < most {
            self.refill();
        }
        // Not in the pool meanwhile: if `lend` panics, frames stay out, and none is in two places (I1).
        let mut free = std::mem::take(&mut self.free);
        let pool = NonNull::from(&*self.inner);
        let loan = |&frame: &u32| Loan { pool, frame, start: DATA_START as u16, len: 0 };
        let lent = free.iter().rev().take(most).map(loan).map(&mut lend).take_while(|has| *has).count();
        free.truncate(free.len() - lent);
        self.free = free;
        lent
    }

    /// Takes back frames that a device had. Returns how many.
    #[inline]
    pub(crate) fn repay(&mut self, loans: impl Iterator<Item = Loan>) -> usize {
        let mut repaid = 0;
        for loan in loans {
            if std::ptr::eq(loan.pool.as_ptr(), Arc::as_ptr(&self.inner)) {
                self.free.push(loan.frame);
            } else {
                self.free(loan.packet());
            }
            repaid += 1;
        }
        repaid
    }

    /// Gives back the frames of all packets of a burst.
    #[inline]
    pub fn free_all(&mut self, burst: &mut Burst) {
        burst.drain().for_each(|packet| self.free(packet));
    }

    /// What is where.
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            frames: self.frames,
            free: self.free.len() + self.inner.home.len(),
            unnamed: self.inner.unnamed.load(Ordering::Relaxed),
        }
    }

    /// The memory that this pool was carved from.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.inner.memory
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.refill();
        // All frames here: nobody will begin another push. All pushes counted: nobody is still inside one.
        let quiet = self.inner.arrived.load(Ordering::Acquire) == self.collected;
        if self.free.len() != self.frames || !quiet {
            // I2: packets are still out, or on their way; keep what they point to for ever.
            std::mem::forget(self.inner.clone());
        }
    }
}

impl PoolInner {
    #[inline]
    fn frame_size(&self) -> usize {
        1 << self.frame_shift
    }

    /// The packet that owns frame `index`, which the caller has just taken off the free stack (I1).
    #[inline]
    fn fresh(&self, index: u32) -> Packet {
        // SAFETY: `index` is below the region's number of frames, so the result lies in the region.
        let frame = unsafe { self.base.add((index as usize) << self.frame_shift) };
        Packet {
            pool: NonNull::from(self),
            frame,
            start: DATA_START as u16,
            len: 0,
            hash: 0,
            label: 0,
            port: 0,
            l3: 0,
            flags: 0,
        }
    }
}

impl Packet {
    #[inline]
    fn pool(&self) -> &PoolInner {
        // SAFETY: I2.
        unsafe { self.pool.as_ref() }
    }

    /// The frame's number in its region.
    #[inline]
    fn index(&self) -> u32 {
        let pool = self.pool();
        ((self.frame.as_ptr() as usize - pool.base.as_ptr() as usize) >> pool.frame_shift) as u32
    }

    #[inline]
    fn frame(&self) -> *mut u8 {
        self.frame.as_ptr()
    }

    #[inline]
    fn cold(&self) -> &Cold {
        // SAFETY: the first `COLD` bytes of our frame, aligned (frames are 2048-aligned), ours (I1); any bytes are a
        // valid `Cold`, and region memory is always initialised.
        unsafe { &*self.frame().cast::<Cold>() }
    }

    #[inline]
    fn cold_mut(&mut self) -> &mut Cold {
        // SAFETY: as in `cold`.
        unsafe { &mut *self.frame().cast::<Cold>() }
    }

    /// The packet's bytes, from the link-layer header on.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: I1 and I3; region memory is always initialised.
        unsafe { std::slice::from_raw_parts(self.frame().add(self.start as usize), self.len as usize) }
    }

    /// The packet's bytes, writable.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: I1 and I3.
        unsafe { std::slice::from_raw_parts_mut(self.frame().add(self.start as usize), self.len as usize) }
    }

    /// Length in bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // a length on the wire, not a container's
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes free in front of the data.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.start as usize - COLD
    }

    /// Bytes free behind the data.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.pool().frame_size() - self.start as usize - self.len as usize
    }

    /// Sets the length, keeping the start. New bytes are whatever the frame held.
    ///
    /// # Panics
    /// If the frame does not have the room; see [`tailroom`](Self::tailroom).
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let room = self.pool().frame_size() - self.start as usize;
        assert!(len <= room, "no room for {len} bytes");
        self.len = len as u16;
    }

    /// Grows the packet by `bytes` at the front (to push a header), if the headroom allows.
    #[inline]
    #[must_use]
    pub fn grow_front(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.headroom();
        if fits {
            self.start -= bytes as u16;
            self.len += bytes as u16;
        }
        fits
    }

    /// Cuts `bytes` off the front (to pop a header), if there are so many.
    #[inline]
    #[must_use]
    pub fn cut_front(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.len as usize;
        if fits {
            self.start += bytes as u16;
            self.len -= bytes as u16;
        }
        fits
    }

    /// Address of the data, for prefetching.
    #[inline]
    pub fn data_ptr(&self) -> *const u8 {
        // SAFETY: `start` is at most the frame size, so this is inside or one past the frame.
        unsafe { self.frame().add(self.start as usize) }
    }

    /// When the packet was received or captured, in nanoseconds since the epoch; 0 if nobody said.
    #[inline]
    pub fn timestamp_ns(&self) -> u64 {
        if self.flags & TIMED != 0 { self.cold().timestamp_ns } else { 0 }
    }

    /// Sets the time of reception.
    #[inline]
    pub fn set_timestamp_ns(&mut self, ns: u64) {
        self.flags |= TIMED;
        self.cold_mut().timestamp_ns = ns;
    }

    /// Length on the wire where the capture was cut short, else 0.
    #[inline]
    pub fn wire_len(&self) -> u32 {
        if self.flags & CUT != 0 { self.cold().wire_len } else { 0 }
    }

    /// Sets the length on the wire of a packet that was cut short; 0 says that it is whole.
    pub fn set_wire_len(&mut self, len: u32) {
        self.flags |= CUT;
        self.cold_mut().wire_len = len;
    }

    /// Says that this machine itself sends the packet (a reply, an ICMP error): it leaves with the TTL that it has, and
    /// causes no errors.
    pub fn set_own(&mut self) {
        self.flags |= OWN;
    }

    /// Whether this machine itself sends the packet.
    #[inline]
    pub fn is_own(&self) -> bool {
        self.flags & OWN != 0
    }

    /// Says that the packet was merged of segments.
    pub fn set_merged(&mut self, merged: Merged) {
        self.flags |= MERGED;
        let cold = self.cold_mut();
        (cold.merged_size, cold.merged_fixed_ident) = (merged.size, merged.fixed_ident.into());
    }

    /// What segments the packet was merged of; `None` if of none.
    #[inline]
    pub fn merged(&self) -> Option<Merged> {
        (self.flags & MERGED != 0).then(|| {
            let cold = self.cold();
            Merged { size: cold.merged_size, fixed_ident: cold.merged_fixed_ident != 0 }
        })
    }

    /// Says that the packet is one segment (again).
    pub fn clear_merged(&mut self) {
        self.flags &= !MERGED;
    }

    /// Takes over what is known of `other`, of which this packet is a part: hash, label, port, where the network header
    /// begins, time, whose it is. Not its trace: that stays with the other.
    pub fn copy_notes(&mut self, other: &Packet) {
        (self.hash, self.label, self.port, self.l3) = (other.hash, other.label, other.port, other.l3);
        self.flags |= other.flags & OWN;
        if other.flags & TIMED != 0 {
            self.set_timestamp_ns(other.timestamp_ns());
        }
    }

    /// Whether the device that received the packet has found its IPv4 header's checksum right (the outermost header's).
    #[inline]
    pub fn is_checked(&self) -> bool {
        self.flags & CHECKED != 0
    }

    /// Says that the device's word on the checksum is no longer worth anything: the bytes were changed.
    pub fn clear_checked(&mut self) {
        self.flags &= !CHECKED;
    }

    /// Puts a node's note there: for that node itself, to which the packet comes back. Its hash is another's.
    #[inline]
    pub fn set_note(&mut self, note: u32) {
        self.flags |= NOTED;
        self.cold_mut().note = note;
    }

    /// The note.
    #[inline]
    pub fn note(&self) -> Option<u32> {
        (self.flags & NOTED != 0).then(|| self.cold().note)
    }

    /// Says that the packet goes by the way of this number instead of by its interface's routes: for who gives out such numbers, and meets it again.
    pub fn set_steer(&mut self, number: u32) {
        self.flags |= STEERED;
        self.cold_mut().steer = number;
    }

    /// The number of the way that it goes by, if that is one of its own.
    #[inline]
    pub fn steer(&self) -> Option<u32> {
        (self.flags & STEERED != 0).then(|| self.cold().steer)
    }

    /// Has it go by its interface's routes again.
    pub fn clear_steer(&mut self) {
        self.flags &= !STEERED;
    }

    /// Marks the packet for tracing under `id`.
    pub fn set_trace(&mut self, id: u64) {
        self.flags |= TRACED;
        self.cold_mut().trace_id = id;
    }

    /// The trace id, if the packet is traced.
    #[inline]
    pub fn trace(&self) -> Option<u64> {
        (self.flags & TRACED != 0).then(|| self.cold().trace_id)
    }

    /// Where in the frame the data begins, from [`COLD`] on.
    #[inline]
    pub fn start(&self) -> u16 {
        self.start
    }

    /// The number of its frame in `memory`, if it is there.
    #[inline]
    pub(crate) fn frame_in(&self, memory: &Memory) -> Option<u32> {
        let offset = (self.frame.as_ptr() as usize).wrapping_sub(memory.base.as_ptr() as usize);
        (offset < memory.bytes).then_some((offset >> memory.frame_shift) as u32)
    }

    /// Lends the frame, of this number, to a device: what is known of the packet is forgotten.
    #[inline]
    pub(crate) fn into_loan_of(self, frame: u32) -> Loan {
        let packet = ManuallyDrop::new(self);
        Loan { pool: packet.pool, frame, start: packet.start, len: packet.len }
    }

    /// Lends the frame to a device: what is known of the packet is forgotten. Gives it back if its frame is not in
    /// `memory`.
    #[inline]
    pub(crate) fn into_loan(self, memory: &Memory) -> Result<Loan, Packet> {
        match self.frame_in(memory) {
            Some(frame) => Ok(self.into_loan_of(frame)),
            None => Err(self),
        }
    }

    /// Copies everything but the frame itself into a packet of `pool` (flood, copies between pools, ICMP quotes).
    pub fn duplicate(&self, pool: &mut Pool) -> Option<Packet> {
        let mut copy = pool.packet(self.data())?;
        if self.flags != 0 {
            *copy.cold_mut() = *self.cold();
        }
        (copy.hash, copy.label, copy.port, copy.l3, copy.flags) =
            (self.hash, self.label, self.port, self.l3, self.flags);
        Some(copy)
    }

    #[inline]
    fn send_home(&self, index: u32) {
        let pool = self.pool();
        // The ring has room for every frame of the pool, so the push cannot fail (I1).
        let _ = pool.home.push(index);
        // The last touch: from here on the pool may be gone.
        pool.arrived.fetch_add(1, Ordering::Release);
    }
}

/// A frame in the hands of a device, who owns it as a [`Packet`] does (I1). Dropped, it stays out for ever.
pub(crate) struct Loan {
    pool: NonNull<PoolInner>,
    frame: u32,
    /// Where in the frame the data lies; at least [`COLD`].
    start: u16,
    len: u16,
}
const _: () = assert!(size_of::<Option<Loan>>() == 16);

// SAFETY: as for `Packet`.
unsafe impl Send for Loan {}
// SAFETY: as for `Packet`; a `&Loan` gives its numbers away, nothing else.
unsafe impl Sync for Loan {}

impl Loan {
    /// The frame's number in its region.
    pub(crate) fn frame(&self) -> u32 {
        self.frame
    }

    /// Where in the frame the data lay when it was lent.
    pub(crate) fn start(&self) -> u16 {
        self.start
    }

    /// The packet again, as it was lent.
    #[inline]
    pub(crate) fn packet(self) -> Packet {
        // SAFETY: I2.
        let mut packet = unsafe { self.pool.as_ref() }.fresh(self.frame);
        (packet.start, packet.len) = (self.start, self.len);
        packet
    }
}

/// Takes a loan out of its place, with the data where the device says. `None`, and nothing changed, if that breaks I3.
#[inline]
pub(crate) fn adopt(slot: &mut Option<Loan>, start: usize, len: usize, frame_size: usize) -> Option<Packet> {
    let fits = start >= COLD && start.checked_add(len).is_some_and(|end| end <= frame_size);
    if !fits {
        return None;
    }
    let mut packet = slot.take()?.packet();
    (packet.start, packet.len) = (start as u16, len as u16);
    Some(packet)
}

/// As [`adopt`], with the packets made at the end of a vector, as long as that has room: one that is made elsewhere and then moved
/// stalls, as it is read in larger pieces than it was written in (5 ns). Returns how many.
#[inline]
pub(crate) fn adopt_into(
    slots: &mut [Option<Loan>],
    memory: &Memory,
    arrived: impl Iterator<Item = Arrived>,
    packets: &mut Vec<Packet>,
) -> usize {
    let before = packets.len();
    let mut room = packets.spare_capacity_mut().iter_mut();
    let mut adopted = 0;
    for Arrived { frame, start, len, hash, checked } in arrived {
        let fits = start >= COLD && start.checked_add(len).is_some_and(|end| end <= memory.frame_size);
        let Some(slot) = slots.get_mut(frame as usize).filter(|slot| fits && slot.is_some()) else {
            continue;
        };
        let Some(place) = room.next() else { break };
        let Some(Loan { pool, frame, .. }) = slot.take() else { break };
        let (start, len, flags) = (start as u16, len as u16, if checked { CHECKED } else { 0 });
        // SAFETY: a lent frame is one of the region's, as a packet's is.
        let frame = unsafe { memory.base.add((frame as usize) << memory.frame_shift) };
        place.write(Packet { pool, frame, start, len, hash, label: 0, port: 0, l3: 0, flags });
        adopted += 1;
    }
    // SAFETY: so many were written behind the others, one after another.
    unsafe { packets.set_len(before + adopted) };
    adopted
}

/// Proof that a device that was lent frames no longer touches them; see [`Lent::reclaim`](crate::Lent::reclaim).
#[derive(Debug)]
pub struct DeviceClosed(());

impl DeviceClosed {
    /// Says that the device is closed.
    ///
    /// # Safety
    /// No device (kernel ring, DMA) reads or writes any frame of the table that this is used on, from now on.
    pub unsafe fn assume() -> Self {
        DeviceClosed(())
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        self.pool().unnamed.fetch_add(1, Ordering::Relaxed);
        self.send_home(self.index());
    }
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Packet(frame {}, {} bytes, port {}, label {})",
            self.index(),
            self.len,
            self.port,
            self.label
        )
    }
}

#[cfg(test)]
mod tests;
