//! AF_XDP ports: packets go from one network card to another through one region of memory, with no copy between.
//!
//! This module is one of the named homes of `unsafe`: it registers packet memory with the kernel and says when the
//! kernel is done with it.
//!
//! ```text
//!              Memory: one region, registered by every port
//!   port A                                            port B
//!   fill ring  <- lend - Pool::take                   fill ring ...
//!   receive ring -> adopt -> Packet ----- moves ----> lend -> transmit ring
//!                            Pool::free <- returned - completion ring
//! ```
//! Every frame in a ring waits as a packet in its port's [`Lent`] table; the kernel gives back an address, and an
//! address that was not lent is an error, never a packet.
//!
//! Whether ports register the region each for itself or share one UMEM ([`Umem`]) makes no difference to the
//! addresses, which count from the region's start either way. Copy mode, which every driver has.

mod ring;
mod sys;

use crate::{Port, PortCounters, PortError, RxStatus};
use ring::Ring;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::{Desc, Redirect};
use tidemill_burst::{Burst, DeviceClosed, DropReason, Lent, Memory, Packet, Pool};

/// How a port comes to its UMEM.
#[derive(Clone, Copy)]
pub enum Umem<'a> {
    /// It registers the region itself. Works for any number of ports and interfaces.
    Own,
    /// It uses the registration of another port on the same region (`XDP_SHARED_UMEM`; across interfaces from Linux
    /// 5.10 on).
    SharedWith(&'a XdpPort),
}

/// One queue of a network interface.
pub struct XdpPort {
    name: String,
    /// `None` once closed. Before the rings and the table: the kernel lets go first.
    open: Option<Open>,
    lent: Lent,
    /// Packets in the transmit ring or beyond it.
    sending: u64,
    counters: PortCounters,
}

struct Open {
    _redirect: Arc<Redirect>,
    socket: OwnedFd,
    fill: Ring<u64>,
    completion: Ring<u64>,
    rx: Ring<Desc>,
    tx: Ring<Desc>,
}

/// A program on an interface, from which its ports are opened.
pub struct Interface {
    name: String,
    index: u32,
    redirect: Arc<Redirect>,
}

/// How long closing waits for packets that are being sent.
const LINGER: Duration = Duration::from_secs(1);

fn device(port: &str, action: &'static str) -> impl FnOnce(io::Error) -> PortError {
    let port = port.to_owned();
    move |source| PortError::Device { port, action, source }
}

impl Interface {
    /// Attaches the redirecting program to a network interface with this many queues. Needs root.
    pub fn attach(name: &str, queues: u32) -> Result<Self, PortError> {
        let index = sys::interface_index(name).map_err(device(name, "no such interface"))?;
        let redirect = Redirect::attach(index, queues)
            .map_err(device(name, "cannot attach an XDP program (root? another program there?)"))?;
        Ok(Interface { name: name.to_owned(), index, redirect: Arc::new(redirect) })
    }

    /// Opens a queue with rings of `ring_size` entries (a power of two) on `memory`, whose frames are 2048 or 4096 bytes.
    pub fn open(
        &self,
        queue: u32,
        ring_size: u32,
        memory: &Arc<Memory>,
        umem: Umem<'_>,
    ) -> Result<XdpPort, PortError> {
        if !ring_size.is_power_of_two() || !matches!(memory.frame_size(), 2048 | 4096) {
            let what = format!(
                "rings of {ring_size} entries (a power of two), frames of {} bytes (2048 or 4096)",
                memory.frame_size()
            );
            return Err(PortError::config(&self.name, what));
        }
        let failed = |action| device(&self.name, action);
        let socket = sys::socket().map_err(failed("cannot open an AF_XDP socket"))?;
        let shared = match umem {
            Umem::Own => {
                // SAFETY: the port's `Lent` holds the region alive, and on drop keeps every lent frame from being
                // used again unless the socket was closed before (see `close`).
                unsafe {
                    sys::register_umem(&socket, memory.as_ptr(), memory.len_bytes(), memory.frame_size())
                }
                .map_err(failed("cannot register packet memory"))?;
                None
            }
            Umem::SharedWith(other) => {
                if !Arc::ptr_eq(memory, other.lent.memory()) {
                    return Err(PortError::config(&self.name, "ports that share a UMEM share their memory"));
                }
                let other = other.open.as_ref();
                let closed = || PortError::config(&self.name, "the port whose UMEM is shared is closed");
                Some(&other.ok_or_else(closed)?.socket)
            }
        };
        let open = self
            .rings(queue, ring_size, socket, shared)
            .map_err(failed("cannot set up the rings and bind (queue taken?)"))?;
        Ok(XdpPort {
            name: self.name.clone(),
            open: Some(open),
            lent: Lent::new(memory),
            sending: 0,
            counters: PortCounters::default(),
        })
    }

    fn rings(&self, queue: u32, size: u32, socket: OwnedFd, shared: Option<&OwnedFd>) -> io::Result<Open> {
        for ring in
            [sys::XDP_UMEM_FILL_RING, sys::XDP_UMEM_COMPLETION_RING, sys::XDP_RX_RING, sys::XDP_TX_RING]
        {
            sys::set_ring_size(&socket, ring, size)?;
        }
        let at = sys::mmap_offsets(&socket)?;
        let fill = Ring::map(&socket, 0x1_0000_0000, &at.fill, size, true)?;
        let completion = Ring::map(&socket, 0x1_8000_0000, &at.completion, size, false)?;
        let rx = Ring::map(&socket, 0, &at.rx, size, false)?;
        let tx = Ring::map(&socket, 0x8000_0000, &at.tx, size, true)?;
        // Flags beside "shared" are refused: the first socket has decided them.
        let flags = if shared.is_some() { 0 } else { sys::XDP_COPY };
        let started = Instant::now();
        loop {
            match sys::bind(&socket, self.index, queue, flags, shared) {
                // A queue is free a moment after its last socket was closed.
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && started.elapsed() < LINGER => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                bound => break bound?,
            }
        }
        self.redirect.insert(queue, &socket)?;
        Ok(Open { _redirect: self.redirect.clone(), socket, fill, completion, rx, tx })
    }
}

impl XdpPort {
    /// Frames that the kernel has now.
    pub fn lent(&self) -> usize {
        self.lent.count()
    }

    fn refill(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let room = open.fill.ready();
        for _ in 0..room {
            let Some(packet) = pool.take() else { break };
            match self.lent.lend(packet) {
                Ok(address) => open.fill.put(address),
                Err(packet) => {
                    pool.free(packet);
                    return Err(PortError::config(&self.name, "the worker's pool is of another memory"));
                }
            }
        }
        open.fill.publish();
        Ok(())
    }

    /// Frees what has been sent.
    fn complete(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        for _ in 0..open.completion.ready() {
            let address = open.completion.take();
            let Some(packet) = self.lent.returned(address) else {
                return Err(unknown(&self.name, address));
            };
            self.sending -= 1;
            self.counters.tx.count(packet.len());
            pool.free(packet);
        }
        open.completion.publish();
        Ok(())
    }

    /// Closes the socket and takes every frame back.
    fn close(&mut self, pool: &mut Pool) {
        if self.open.take().is_none() || self.sending > 0 {
            // What is still being sent may still be read: those frames stay out (and are counted as held).
            return;
        }
        // SAFETY: the socket and the rings are closed, so the kernel has left the queue and receives into no frame;
        // and every packet that was given to it to send has been completed.
        let closed = unsafe { DeviceClosed::assume() };
        self.lent.reclaim(closed).for_each(|packet| pool.free(packet));
    }
}

fn unknown(port: &str, address: u64) -> PortError {
    let source = io::Error::new(io::ErrorKind::InvalidData, format!("address {address:#x} was not lent"));
    PortError::Device { port: port.to_owned(), action: "the kernel's ring", source }
}

impl XdpPort {
    fn receive(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        self.refill(pool)?;
        let Some(open) = &mut self.open else { return Ok(RxStatus::Ended) };
        let count = open.rx.ready().min(burst.room() as u32);
        for _ in 0..count {
            let Desc { address, len, .. } = open.rx.take();
            let Some(mut packet) = self.lent.adopt(address, len as usize) else {
                return Err(unknown(&self.name, address));
            };
            packet.set_timestamp_ns(now_ns);
            self.counters.rx.count(packet.len());
            if let Err(packet) = burst.push(packet) {
                self.counters.rx.dropped.count(DropReason::QueueFull);
                pool.free(packet);
            }
        }
        open.rx.publish();
        Ok(if count > 0 { RxStatus::Received } else { RxStatus::Idle { next_due_ns: None } })
    }

    fn send(&mut self, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.complete(pool)?;
        let Some(open) = &mut self.open else {
            self.counters.tx.dropped.count_many(DropReason::TxFailed, burst.len() as u64);
            pool.free_all(burst);
            return Ok(());
        };
        let room = open.tx.ready() as usize;
        for packet in burst.drain_front(room) {
            let len = packet.len() as u32;
            // A packet of another region is copied: the one place where packets of two regions meet.
            let lent = self.lent.lend(packet).or_else(|foreign: Packet| {
                let copy = foreign.duplicate(pool);
                pool.free(foreign);
                copy.map_or(Err(None), |copy| self.lent.lend(copy).map_err(Some))
            });
            match lent {
                Ok(address) => {
                    open.tx.put(Desc { address, len, options: 0 });
                    self.sending += 1;
                }
                Err(packet) => {
                    self.counters.tx.dropped.count(DropReason::TxFailed);
                    packet.into_iter().for_each(|packet| pool.free(packet));
                }
            }
        }
        open.tx.publish();
        if self.sending > 0 {
            sys::kick(&open.socket).map_err(device(&self.name, "cannot send"))?;
        }
        self.complete(pool)
    }

    /// A ring that has failed once is not used again: the socket is closed, the frames stay out.
    fn or_shut<T>(&mut self, result: Result<T, PortError>) -> Result<T, PortError> {
        if result.is_err() {
            self.open = None;
        }
        result
    }
}

impl Port for XdpPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let received = self.receive(now_ns, pool, burst);
        self.or_shut(received)
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let sent = self.send(pool, burst);
        self.or_shut(sent)
    }

    fn finish(&mut self, _now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        let (started, mut result) = (Instant::now(), Ok(()));
        while self.sending > 0 && started.elapsed() < LINGER && result.is_ok() {
            if let Some(open) = &self.open {
                result = sys::kick(&open.socket).map(|_| ()).map_err(device(&self.name, "cannot send"));
            }
            result = result.and_then(|()| self.complete(pool));
        }
        self.close(pool);
        result
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.counters;
        counters.tx.held = self.sending;
        // What the kernel dropped for want of frames or room in the ring was received too.
        let statistics = self.open.as_ref().and_then(|open| sys::statistics(&open.socket).ok());
        if let Some(statistics) = statistics {
            let dropped = statistics.rx_dropped + statistics.rx_ring_full;
            counters.rx.packets += dropped;
            counters.rx.dropped.count_many(DropReason::NoFrames, dropped);
        }
        counters
    }
}
