//! One queue of a device: what DPDK has of our frames, and the way of a packet into a burst and out of one.
//!
//! This module is one of the named homes of `unsafe`: it shares packet memory and mbufs with DPDK. What it rests on:
//! * Q1. There is one mbuf per frame ([`Headers`]), and whoever has the frame has its mbuf: the queue that it is lent to
//!   (noted in its [`Lent`]), and nobody else. Its `buf_addr` never changes.
//! * Q2. A lent frame is in one place: in the stock's stack (or among its strays), or with the driver.
//! * Q3. The stock and the mbufs outlive the device, and everything that the driver has not given back.
//! * Q4. One thread at a time is at work on a queue: the worker that owns the port; whoever starts or closes the device
//!   does so when no worker is.

use super::sys::{self, Mbuf, Mempool, Said, Stock};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tidemill_burst::{Arrived, BURST, Burst, COLD, DropReason, Lent, Memory, Packet, Pool};
use tidemill_lookup::mem::Region;

/// Packets that go to and fro in one call of the driver: their mbufs stay in the first cache.
const CHUNK: usize = 64;
/// An Ethernet header.
const SHORTEST: usize = 14;

/// Frames that the stock holds between two calls: a chunk's, or what the driver has asked for in a call, if that is more. What a device has sent
/// beyond them goes home at once, so that few frames go round, whose lines stay in the first cache.
const READY: usize = CHUNK;

/// The mbufs of a region of packet memory, one per frame, shared by all queues on it.
pub(super) struct Headers {
    memory: Arc<Memory>,
    region: Region,
}

impl Headers {
    /// Those of `memory`: made once, while anybody uses them.
    pub(super) fn of(memory: &Arc<Memory>) -> io::Result<Arc<Headers>> {
        static KNOWN: Mutex<Vec<Weak<Headers>>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|headers| headers.strong_count() > 0);
        let found = known.iter().filter_map(Weak::upgrade).find(|h| Arc::ptr_eq(&h.memory, memory));
        if let Some(headers) = found {
            return Ok(headers);
        }
        let mut region = Region::new(memory.frames() * size_of::<Mbuf>())?;
        let mbufs = region.as_mut_ptr().cast::<Mbuf>();
        for frame in 0..memory.frames() {
            let data = memory.as_ptr().wrapping_add(frame * memory.frame_size() + COLD).cast_mut();
            let mbuf = Mbuf {
                buf_addr: data,
                // I/O addresses are virtual ones: DPDK is started so.
                buf_iova: data as u64,
                data_off: 0,
                refcnt: 1,
                nb_segs: 1,
                port: u16::MAX,
                ol_flags: 0,
                packet_type: 0,
                pkt_len: 0,
                data_len: 0,
                vlan_tci: 0,
                rss: 0,
                other_hash: 0,
                vlan_tci_outer: 0,
                buf_len: (memory.frame_size() - COLD) as u16,
                pool: std::ptr::null_mut(),
                second_line: [0; 8],
            };
            // SAFETY: the region has room for as many, is aligned to pages, and nobody else knows it yet.
            unsafe { mbufs.add(frame).write(mbuf) };
        }
        let headers = Arc::new(Headers { memory: memory.clone(), region });
        known.push(Arc::downgrade(&headers));
        Ok(headers)
    }

    /// The packet memory.
    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn first(&self) -> *mut Mbuf {
        self.region.as_ptr().cast::<Mbuf>().cast_mut()
    }
}

/// What a call has moved.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Of the packets (receiving), or besides them (sending): dropped for this reason.
    pub(super) dropped: Option<(DropReason, u64)>,
    /// Packets that the driver did not take.
    pub(super) refused: u64,
}

impl Moved {
    #[cold]
    fn drop_one(&mut self, reason: DropReason) {
        let count = self.dropped.map_or(0, |(_, count)| count);
        self.dropped = Some((reason, count + 1));
    }
}

/// One queue pair of a device.
pub(super) struct Queue {
    /// Leaked while the device has frames: see `Drop`.
    stock: *mut Stock,
    pool: *mut Mempool,
    mbufs: *mut Mbuf,
    lent: ManuallyDrop<Lent>,
    headers: ManuallyDrop<Arc<Headers>>,
    stacks: ManuallyDrop<[Box<[*mut Mbuf]>; 2]>,
    packets: Box<[*mut Mbuf; CHUNK]>,
    /// The longest frame that the device sends.
    longest: usize,
}

// SAFETY: the pointers are to what the queue owns together with the driver (Q1 to Q3); one thread at a time uses them (Q4).
unsafe impl Send for Queue {}

impl Queue {
    /// A queue that holds nothing yet, with its mempool.
    pub(super) fn new(port: u16, queue: u16, headers: Arc<Headers>, longest: usize) -> Result<Queue, Said> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let memory = headers.memory.clone();
        let frames = memory.frames();
        let stack = || vec![std::ptr::null_mut(); frames].into_boxed_slice();
        let mut stacks = [stack(), stack()];
        let stock = Box::into_raw(Box::new(Stock {
            stack: stacks[0].as_mut_ptr(),
            pool: std::ptr::null_mut(),
            count: 0,
            room: frames as u32,
            port,
            queue,
            strays: AtomicU32::new(0),
            stray: stacks[1].as_mut_ptr(),
            lock: 0,
            most: 0,
            had: 0,
        }));
        let name = format!("tidemill_{}", SERIAL.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let room = (memory.frame_size() - COLD) as u16;
        let bytes = (memory.as_ptr().cast_mut(), memory.len_bytes());
        // SAFETY: stock and memory stay as long as the queue has frames out (Q3), and the pool goes before them.
        let made = unsafe { sys::control().pool_new(stock, &name, frames as u32, bytes, room) };
        if let Err(said) = made {
            // SAFETY: it came from a box, and nobody has heard of it.
            drop(unsafe { Box::from_raw(stock) });
            return Err(said);
        }
        Ok(Queue {
            // SAFETY: alive, and nobody is at work on it.
            pool: unsafe { (*stock).pool },
            stock,
            mbufs: headers.first(),
            lent: ManuallyDrop::new(Lent::new(&memory)),
            headers: ManuallyDrop::new(headers),
            stacks: ManuallyDrop::new(stacks),
            packets: Box::new([std::ptr::null_mut(); CHUNK]),
            longest,
        })
    }

    /// Where DPDK finds the stock.
    pub(super) fn stock(&self) -> *mut Stock {
        self.stock
    }

    /// The packet memory.
    pub(super) fn memory(&self) -> &Arc<Memory> {
        self.headers.memory()
    }

    /// Frames that DPDK has now.
    pub(super) fn lent(&self) -> usize {
        self.lent.count()
    }

    /// Frames in the stock, and how many it is to hold.
    #[inline]
    fn ready(&self) -> (usize, usize) {
        // SAFETY: Q3, Q4.
        let stock = unsafe { &*self.stock };
        (stock.count as usize, READY.max(stock.most as usize))
    }

    /// Lends fresh frames until the stock holds `ready`, or the pool is empty.
    #[inline]
    pub(super) fn refill(&mut self, pool: &mut Pool, ready: usize) {
        // SAFETY: Q3, Q4.
        let stock = unsafe { &mut *self.stock };
        let missing = ready.saturating_sub(stock.count as usize);
        if missing == 0 {
            return;
        }
        let (mbufs, owner) = (self.mbufs, self.pool);
        let (stack, mut count) = (stock.stack, stock.count as usize);
        self.lent.lend_fresh(pool, missing, |frame| {
            // SAFETY: the frame has just been lent to this queue, and its mbuf with it (Q1); the stack has room for all
            // frames of the region (Q2).
            unsafe {
                let mbuf = mbufs.add(frame as usize);
                (*mbuf).pool = owner;
                stack.add(count).write(mbuf);
            }
            count += 1;
        });
        stock.count = count as u32;
    }

    /// Frees what the stock holds beyond what it is to hold.
    #[inline]
    fn settle_all(&mut self, pool: &mut Pool) {
        let (ready, wanted) = self.ready();
        if ready > wanted {
            self.settle(pool, wanted);
        }
    }

    /// Frees what the stock holds beyond `ready`: what has been sent.
    #[inline]
    fn settle(&mut self, pool: &mut Pool, ready: usize) {
        // SAFETY: Q3, Q4.
        let stock = unsafe { &mut *self.stock };
        let Some(more) = (stock.count as usize).checked_sub(ready) else { return };
        // SAFETY: what lies in the stack below `count` are mbufs of ours (Q2), and nobody else is at work on it (Q4).
        let sent = unsafe { std::slice::from_raw_parts(stock.stack.add(ready), more) };
        let first = self.mbufs;
        self.lent.free_frames(sent.iter().rev().map(|mbuf| frame_of(first, *mbuf)), pool);
        stock.count = ready as u32;
    }

    /// Receives into the burst: as much as it has room for, `most` at most.
    pub(super) fn receive(&mut self, pool: &mut Pool, burst: &mut Burst, most: usize) -> Moved {
        let mut moved = Moved::default();
        let mut left = burst.room().min(most);
        loop {
            let want = left.min(CHUNK);
            if want == 0 {
                return moved;
            }
            left -= want;
            let (ready, wanted) = self.ready();
            if ready < wanted {
                self.refill(pool, wanted);
            }
            // SAFETY: the device runs (the caller's stage says so), Q4; `packets` has room for CHUNK.
            let got = unsafe { sys::tm_rx(self.stock, self.packets.as_mut_ptr(), want as u16) } as usize;
            let got_here = got.min(CHUNK);
            let mut at = 0;
            while at < got_here {
                let ours = self.adopt(at, got_here, burst, &mut moved);
                at += ours;
                if at < got_here {
                    self.copy(self.packets[at], pool, burst, &mut moved);
                    at += 1;
                }
            }
            moved.packets += got_here as u64;
            if got < want {
                return moved;
            }
        }
    }

    /// Adopts the received packets from `at` on, up to the first one that is not in a frame of ours. Returns how many those were.
    #[inline]
    fn adopt(&mut self, at: usize, end: usize, burst: &mut Burst, moved: &mut Moved) -> usize {
        let (first, pool) = (self.mbufs, self.pool);
        // SAFETY: the driver has given the mbufs to us.
        let head = |mbuf: &*mut Mbuf| unsafe { &**mbuf };
        let packets = &self.packets[at..end];
        let ours = packets.iter().map(head).take_while(|head| head.pool == pool && head.nb_segs == 1).count();
        let arrived = packets[..ours].iter().map(|mbuf| {
            let head = head(mbuf);
            Arrived {
                frame: frame_of(first, *mbuf),
                start: usize::from(head.data_off) + COLD,
                len: usize::from(head.data_len),
                hash: if head.ol_flags & sys::RSS_HASH != 0 { head.rss } else { 0 },
                checked: head.ol_flags & sys::IP_CHECKSUM == sys::IP_CHECKSUM_GOOD,
            }
        });
        let before = burst.len();
        let adopted = self.lent.adopt_into(burst, arrived);
        moved.bytes += burst[before..].iter().map(|packet| packet.len() as u64).sum::<u64>();
        (adopted..ours).for_each(|_| moved.drop_one(DropReason::RxError));
        ours
    }

    /// A packet that lies in memory of somebody else's: the driver's own, or another queue's (`net_ring`).
    #[cold]
    fn copy(&mut self, mbuf: *mut Mbuf, pool: &mut Pool, burst: &mut Burst, moved: &mut Moved) {
        let mut packet = pool.take();
        let (to, room) = match &mut packet {
            Some(packet) => {
                packet.set_len(packet.tailroom());
                (packet.data_mut().as_mut_ptr(), packet.len())
            }
            None => (std::ptr::NonNull::dangling().as_ptr(), 0),
        };
        // SAFETY: the mbuf has just been received; `to` is the packet's data.
        let len = unsafe { sys::tm_copy(self.stock, mbuf, to, room as u32) } as usize;
        let Some(mut packet) = packet else { return moved.drop_one(DropReason::NoFrames) };
        if len > room {
            moved.drop_one(DropReason::FrameTooSmall);
            return pool.free(packet);
        }
        packet.set_len(len);
        match burst.push(packet) {
            Ok(()) => moved.bytes += len as u64,
            Err(packet) => {
                moved.drop_one(DropReason::QueueFull);
                pool.free(packet);
            }
        }
    }

    /// Sends the burst; what the driver does not take stays in it, in order. `sending` is empty before and after.
    pub(super) fn send(&mut self, pool: &mut Pool, burst: &mut Burst, sending: &mut Burst) -> Moved {
        let mut moved = Moved::default();
        std::mem::swap(sending, burst);
        let mut rest = sending.drain();
        loop {
            let (mut count, mut bytes) = (0, 0);
            loop {
                // Cards hang on frames without a header, and drivers lose long ones without a word.
                let (longest, mbufs, owner) = (self.longest, self.mbufs, self.pool);
                let fits = |len: usize| (SHORTEST..=longest).contains(&len);
                let mut places = self.packets[count..].iter_mut();
                let mut put = |frame: u32, start: u16, len: usize| {
                    // SAFETY: the frame has just been lent to this queue, and its mbuf with it (Q1).
                    let mbuf = unsafe { write(mbufs.add(frame as usize), start, len, owner) };
                    places.next().into_iter().for_each(|place| *place = mbuf);
                    bytes += len as u64;
                };
                count += self.lent.lend_front(&mut rest, CHUNK - count, fits, &mut put);
                if count == CHUNK {
                    break;
                }
                let Some(packet) = rest.next() else { break };
                if !fits(packet.len()) {
                    moved.drop_one(DropReason::TxFailed);
                    pool.free(packet);
                    continue;
                }
                let len = packet.len();
                let Some((frame, start)) = adopt_foreign(&mut self.lent, packet, pool) else {
                    moved.drop_one(DropReason::TxFailed);
                    continue;
                };
                put(frame, start, len);
                count += 1;
            }
            if count == 0 {
                break;
            }
            // SAFETY: the device runs, Q4; the first `count` are packets of ours that are lent to this queue.
            let sent = unsafe { sys::tm_tx(self.stock, self.packets.as_mut_ptr(), count as u16) } as usize;
            moved.packets += sent as u64;
            moved.bytes += bytes;
            if sent < count {
                moved.refused += (count - sent) as u64;
                for at in sent..count {
                    let mbuf = self.packets[at];
                    // SAFETY: the driver has not taken it.
                    let (start, len) = unsafe { ((*mbuf).data_off, (*mbuf).data_len) };
                    let frame = frame_of(self.mbufs, mbuf);
                    if let Some(packet) =
                        self.lent.adopt_frame(frame, usize::from(start) + COLD, usize::from(len))
                    {
                        moved.bytes -= u64::from(len);
                        // There is room: all of these came out of it.
                        burst.push(packet).unwrap_or_else(|packet| pool.free(packet));
                    }
                }
                break;
            }
            self.settle_all(pool);
        }
        rest.for_each(|packet| burst.push(packet).unwrap_or_else(|packet| pool.free(packet)));
        self.settle_all(pool);
        moved
    }

    /// Takes what the device still has for us, unread, so that the frames come home: `most` packets at most.
    pub(super) fn drain(&mut self, pool: &mut Pool, most: usize) {
        let mut burst = Burst::new();
        let mut drained = 0;
        while drained < most {
            let got = self.receive(pool, &mut burst, BURST).packets as usize;
            pool.free_all(&mut burst);
            drained += got;
            if got == 0 {
                break;
            }
        }
    }

    /// Frees every frame that DPDK has given back. The device is closed.
    pub(super) fn home(&mut self, pool: &mut Pool) {
        // SAFETY: nobody is at work on the stock any more.
        unsafe { sys::tm_gather(self.stock) };
        self.settle(pool, 0);
    }
}

/// The number of the frame whose mbuf this is. Only for mbufs that lie behind `first`.
#[inline]
fn frame_of(first: *mut Mbuf, mbuf: *mut Mbuf) -> u32 {
    ((mbuf as usize - first as usize) / size_of::<Mbuf>()) as u32
}

/// Says in the mbuf what is to be sent: all of its fields that drivers look at.
///
/// # Safety
/// The mbuf is the caller's.
#[inline]
unsafe fn write(mbuf: *mut Mbuf, start: u16, len: usize, pool: *mut Mempool) -> *mut Mbuf {
    // SAFETY: the caller's.
    let head = unsafe { &mut *mbuf };
    (head.data_off, head.refcnt, head.nb_segs, head.port) = (start - COLD as u16, 1, 1, u16::MAX);
    (head.ol_flags, head.packet_type) = (0, 0);
    (head.pkt_len, head.data_len) = (len as u32, len as u16);
    head.pool = pool;
    mbuf
}

/// A packet of another region is copied: the one place where packets of two regions meet.
#[cold]
fn adopt_foreign(lent: &mut Lent, foreign: Packet, pool: &mut Pool) -> Option<(u32, u16)> {
    let copy = foreign.duplicate(pool);
    pool.free(foreign);
    let copy = copy?;
    let start = copy.start();
    match lent.lend_frame(copy) {
        Ok(frame) => Some((frame, start)),
        Err(copy) => {
            pool.free(copy);
            None
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.lent.count() > 0 {
            // Somebody may still write into those frames, or free their mbufs: table, mbufs, stock and pool stay for
            // ever (Q3).
            return;
        }
        // SAFETY: no frame is out, so the driver has none and nobody will come back to the pool; each is dropped once.
        unsafe {
            sys::control().pool_free(self.stock);
            drop(Box::from_raw(self.stock));
            ManuallyDrop::drop(&mut self.lent);
            ManuallyDrop::drop(&mut self.headers);
            ManuallyDrop::drop(&mut self.stacks);
        }
    }
}
