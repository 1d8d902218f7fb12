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
use tidemill_burst::{BURST, Burst, COLD, DropReason, Lent, Memory, Packet, Pool};
use tidemill_lookup::mem::Region;

/// Packets that go to and fro in one call of the driver: their mbufs stay in the first cache.
const CHUNK: usize = 64;
/// An Ethernet header.
const SHORTEST: usize = 14;

/// The stock is filled up to `READY` frames when it holds fewer than `LOW`: a driver takes a chunk's worth in a call, and
/// some, after a drought, a ring's. Beyond `HIGH` it is cut down to `READY`: in between, the frames of what has been sent
/// are received into again, without a way through the pool.
const LOW: usize = 2 * CHUNK;
const READY: usize = BURST;
const HIGH: usize = 2 * BURST + CHUNK;

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

    /// Frames in the stock.
    #[inline]
    fn ready(&self) -> usize {
        // SAFETY: Q3, Q4.
        unsafe { (*self.stock).count as usize }
    }

    /// The number of the frame whose mbuf this is. Only for mbufs of `self.mbufs`.
    #[inline]
    fn frame(&self, mbuf: *mut Mbuf) -> u32 {
        ((mbuf as usize - self.mbufs as usize) / size_of::<Mbuf>()) as u32
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
        self.lent.lend_fresh(pool, missing, |frame| {
            // SAFETY: the frame has just been lent to this queue, and its mbuf with it (Q1); the stack has room for all
            // frames of the region (Q2).
            unsafe {
                let mbuf = mbufs.add(frame as usize);
                (*mbuf).pool = owner;
                stock.stack.add(stock.count as usize).write(mbuf);
            }
            stock.count += 1;
        });
    }

    /// Frees what the stock holds beyond `ready`: what has been sent.
    #[inline]
    fn settle(&mut self, pool: &mut Pool, ready: usize) {
        // SAFETY: Q3, Q4.
        let stock = unsafe { &mut *self.stock };
        while stock.count as usize > ready {
            stock.count -= 1;
            // SAFETY: what lies in the stack below `count` is an mbuf of ours (Q2).
            let mbuf = unsafe { stock.stack.add(stock.count as usize).read() };
            let frame = ((mbuf as usize - self.mbufs as usize) / size_of::<Mbuf>()) as u32;
            self.lent.free_frame(frame, pool);
        }
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
            if self.ready() < LOW {
                self.refill(pool, READY);
            }
            // SAFETY: the device runs (the caller's stage says so), Q4; `packets` has room for CHUNK.
            let got = unsafe { sys::tm_rx(self.stock, self.packets.as_mut_ptr(), want as u16) } as usize;
            for at in 0..got.min(CHUNK) {
                let mbuf = self.packets[at];
                // SAFETY: the driver has given the mbuf to us.
                let head = unsafe { &*mbuf };
                moved.packets += 1;
                if head.pool != self.pool || head.nb_segs != 1 {
                    self.copy(mbuf, pool, burst, &mut moved);
                    continue;
                }
                let (start, len) = (usize::from(head.data_off) + COLD, usize::from(head.data_len));
                let hash = if head.ol_flags & sys::RSS_HASH != 0 { head.rss } else { 0 };
                let checked = head.ol_flags & sys::IP_CHECKSUM == sys::IP_CHECKSUM_GOOD;
                let frame = self.frame(mbuf);
                if self.lent.adopt_into(burst, frame, (start, len), (hash, checked)) {
                    moved.bytes += len as u64;
                } else {
                    moved.drop_one(DropReason::RxError);
                }
            }
            if got < want {
                return moved;
            }
        }
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
            while count < CHUNK
                && let Some(packet) = rest.next()
            {
                let (start, len) = (packet.start(), packet.len());
                // Cards hang on frames without a header, and drivers lose long ones without a word.
                if len < SHORTEST || len > self.longest {
                    moved.drop_one(DropReason::TxFailed);
                    pool.free(packet);
                    continue;
                }
                let frame = match self.lent.lend_frame(packet) {
                    Ok(frame) => Some((frame, start)),
                    Err(foreign) => self.adopt_foreign(foreign, pool),
                };
                let Some((frame, start)) = frame else {
                    moved.drop_one(DropReason::TxFailed);
                    continue;
                };
                // SAFETY: the frame is lent to this queue, and its mbuf with it (Q1).
                unsafe {
                    let mbuf = self.mbufs.add(frame as usize);
                    (*mbuf).data_off = start - COLD as u16;
                    (*mbuf).refcnt = 1;
                    (*mbuf).nb_segs = 1;
                    (*mbuf).port = u16::MAX;
                    (*mbuf).ol_flags = 0;
                    (*mbuf).packet_type = 0;
                    (*mbuf).pkt_len = len as u32;
                    (*mbuf).data_len = len as u16;
                    (*mbuf).pool = self.pool;
                    self.packets[count] = mbuf;
                }
                bytes += len as u64;
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
                    let frame = self.frame(mbuf);
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
            if self.ready() > HIGH {
                self.settle(pool, READY);
            }
        }
        rest.for_each(|packet| burst.push(packet).unwrap_or_else(|packet| pool.free(packet)));
        if self.ready() > HIGH {
            self.settle(pool, READY);
        }
        moved
    }

    /// A packet of another region is copied: the one place where packets of two regions meet.
    #[cold]
    fn adopt_foreign(&mut self, foreign: Packet, pool: &mut Pool) -> Option<(u32, u16)> {
        let copy = foreign.duplicate(pool);
        pool.free(foreign);
        let copy = copy?;
        let start = copy.start();
        match self.lent.lend_frame(copy) {
            Ok(frame) => Some((frame, start)),
            Err(copy) => {
                pool.free(copy);
                None
            }
        }
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
