//! One queue of an interface, as a worker has it.
//!
//! This module is one of the named homes of `unsafe`: it says when the kernel is done with packet memory.

use super::program::Program;
use super::socket::{Place, Socket};
use super::sys::{self, Desc, Kick, Statistics};
use super::{ETHERNET, Options, check_memory, check_queues, failed, is_virtual, partial};
use crate::{Device, Port, PortCounters, PortError, RxStatus, Wake, Waker, packet};
use rustix::event::epoll;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_bpf::Attached;
use tidemill_burst::{Burst, DeviceClosed, DropReason, Lent, Memory, Packet, Pool};
use tidemill_wire::ethernet;

/// How long closing waits for packets that are being sent.
const LINGER: Duration = Duration::from_secs(1);
/// How often a queue reads the kernel's counters, and tries a device that is down, ...
const LOOK_NS: u64 = 10_000_000;
/// ... looks for its device, whether it is still the same, and at its MTU, ...
const SEARCH_NS: u64 = 100_000_000;
/// ... and listens for what was left to the kernel and concerns us too.
const HEAR_NS: u64 = 100_000;
/// The fill ring is filled when so many frames are missing.
const REFILL: usize = 64;
/// The part of the pool that receiving leaves alone.
const RESERVE: usize = 8;

/// One queue of a network interface. In cache lines of its own, as other workers' queues lie beside it.
#[repr(align(128))]
pub struct XdpPort {
    name: String,
    interface: String,
    queue: u32,
    options: Arc<Options>,
    program: Arc<Program>,
    /// `None` while the device is away, and at the end. Before the table: the kernel lets go first.
    open: Option<Open>,
    lent: Lent,
    /// Frames lent for receiving, and packets lent for sending.
    filling: usize,
    sending: usize,
    /// Packets that the device did not take, whose frames have yet to come back.
    refused: usize,
    /// The pool had no frame for the fill ring since the kernel's counters were last read.
    starved: bool,
    /// The device is down: what is to be sent is not even tried.
    down: bool,
    mtu: usize,
    look: Timer,
    search: Timer,
    /// To ask about the device with: a worker that is confined opens no socket.
    query: OwnedFd,
    retry: Timer,
    listen: Timer,
    /// Finished, or failed.
    ended: bool,
    counters: PortCounters,
}

struct Open {
    socket: Socket,
    attached: Attached,
    /// Queue 0 only: the ear, and what is readable when it or the socket is.
    ear: Option<(OwnedFd, OwnedFd)>,
    /// Senders leave checksums undone.
    partial: bool,
    /// The kernel's counters when they were last read.
    seen: Statistics,
}

/// Something that is done every so often.
#[derive(Debug, Clone, Copy, Default)]
struct Timer(Option<u64>);

impl Timer {
    #[inline]
    fn is_due(&mut self, now_ns: u64, every_ns: u64) -> bool {
        // Time that goes backwards makes it due, or a clock that was set back would stop it.
        let due = self.0.is_none_or(|at| now_ns.wrapping_sub(at) >= every_ns);
        if due {
            self.0 = Some(now_ns);
        }
        due
    }
}

impl XdpPort {
    pub(super) fn new(
        name: &str,
        interface: &str,
        queue: u32,
        options: &Arc<Options>,
        program: &Arc<Program>,
        memory: &Arc<Memory>,
    ) -> Result<Self, PortError> {
        Ok(XdpPort {
            name: name.to_owned(),
            interface: interface.to_owned(),
            queue,
            options: options.clone(),
            program: program.clone(),
            open: None,
            lent: Lent::new(memory),
            filling: 0,
            sending: 0,
            refused: 0,
            starved: false,
            down: false,
            mtu: 0,
            look: Timer::default(),
            search: Timer::default(),
            query: packet::query().map_err(failed(name, "cannot open a socket"))?,
            retry: Timer::default(),
            listen: Timer::default(),
            ended: false,
            counters: PortCounters::default(),
        })
    }

    /// Opens the queue on a device: program, socket, ear. What somebody else has is waited for at most so long.
    pub(super) fn open(&mut self, device: &Device, patience: Duration) -> Result<(), PortError> {
        let attached = self.program.attach(device.index, patience)?;
        let place = Place {
            port: &self.name,
            interface: &self.interface,
            index: device.index,
            queue: self.queue,
            native: attached.native,
            options: &self.options,
            memory: self.lent.memory(),
            patience,
            taken: Cell::new(0),
        };
        let opened = place.open();
        self.counters.taken_by_others += place.taken.get();
        let socket = opened?;
        let ear = match self.queue {
            0 => Some(sys::ear(device.index, self.options.promiscuous).and_then(|ear| {
                let both = either(&socket.fd, &ear)?;
                Ok((ear, both))
            })),
            _ => None,
        };
        let ear = ear
            .transpose()
            .map_err(failed(&self.name, "cannot open a packet socket for ARP and discovery"))?;
        self.program.insert(self.queue, &socket.fd)?;
        let partial = is_virtual(&self.interface);
        self.mtu = device.mtu;
        self.down = false;
        self.open = Some(Open { socket, attached, ear, partial, seen: Statistics::default() });
        Ok(())
    }

    /// Whether the program runs in the driver.
    pub fn is_native(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.attached.native)
    }

    /// Whether the device writes into packet memory itself.
    pub fn is_zero_copy(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.socket.zero_copy)
    }

    /// Whether the registration of packet memory is another socket's.
    pub fn shares(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.socket.shares)
    }

    /// Whether busy polling finds a driver to run. Before Linux 6.13 that is known when a packet has come.
    pub(super) fn is_polled(&self) -> bool {
        self.open.as_ref().is_some_and(|open| sys::is_polled(&open.socket.fd))
    }

    /// For how many microseconds a call polls, as the kernel has it.
    pub(super) fn busy_poll_us(&self) -> u32 {
        self.open.as_ref().map_or(0, |open| sys::busy_poll_us(&open.socket.fd))
    }

    /// Frames that the kernel has now.
    pub fn lent(&self) -> usize {
        self.lent.count()
    }

    /// Fills the fill ring up, in one go.
    #[inline]
    fn refill(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        let missing = self.options.rx_ring - self.filling;
        if missing < REFILL.min(self.options.rx_ring / 2) {
            return Ok(());
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let stats = pool.stats();
        let spare = stats.free.saturating_sub(stats.frames / RESERVE);
        self.starved |= spare < missing;
        let count = missing.min(spare).min(open.socket.fill.ready() as usize);
        let fill = &mut open.socket.fill;
        let shift = pool.memory().frame_size().trailing_zeros();
        let lent = self.lent.lend_fresh(pool, count, |frame| fill.put(u64::from(frame) << shift));
        if lent < count && !Arc::ptr_eq(pool.memory(), self.lent.memory()) {
            return Err(PortError::config(&self.name, "the worker's pool is of another memory"));
        }
        self.filling += lent;
        open.socket.fill.publish();
        Ok(())
    }

    /// Frees what has been sent.
    #[inline]
    fn complete(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let count = open.socket.completion.ready();
        if count == 0 {
            return Ok(());
        }
        for _ in 0..count {
            let address = open.socket.completion.take();
            let packet = if self.sending > 0 { self.lent.returned(address) } else { None };
            let Some(packet) = packet else { return Err(unknown(&self.name, address)) };
            self.sending -= 1;
            if self.refused > 0 {
                self.refused -= 1;
                self.counters.tx.dropped.count(DropReason::TxFailed);
            } else {
                self.counters.tx.count(packet.len());
            }
            pool.free(packet);
        }
        open.socket.completion.publish();
        Ok(())
    }

    fn receive(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<bool, PortError> {
        self.refill(pool)?;
        let Some(open) = &mut self.open else { return Ok(false) };
        let socket = &mut open.socket;
        let count = socket.rx.ready().min(burst.room() as u32);
        let rx = &mut self.counters.rx;
        for _ in 0..count {
            let Desc { address, len, .. } = socket.rx.take();
            let packet = if self.filling > 0 { self.lent.adopt(address, len as usize) } else { None };
            let Some(mut packet) = packet else { return Err(unknown(&self.name, address)) };
            self.filling -= 1;
            rx.count(packet.len());
            if open.partial {
                partial::complete(packet.data_mut());
            }
            if let Err(packet) = burst.push(packet) {
                rx.dropped.count(DropReason::QueueFull);
                pool.free(packet);
            }
        }
        if count > 0 {
            socket.rx.publish();
        } else if self.options.busy_poll_us > 0 || socket.fill.needs_wakeup() {
            // What it says of the device is found out in other ways as well.
            sys::wake(&socket.fd);
        }
        let heard = self.listen(now_ns, pool, burst);
        Ok(count > 0 || heard)
    }

    /// Takes what was left to the kernel and is for us too.
    fn listen(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> bool {
        let Some((ear, _)) = self.open.as_ref().and_then(|open| open.ear.as_ref()) else { return false };
        if !self.listen.is_due(now_ns, HEAR_NS) {
            return false;
        }
        let (rx, mut heard) = (&mut self.counters.rx, false);
        while burst.room() > 0 {
            let Some(mut packet) = pool.take() else { break };
            packet.set_len(pool.room());
            let Some(len) = sys::hear(ear, packet.data_mut()) else {
                pool.free(packet);
                break;
            };
            heard = true;
            rx.count(len);
            if len > packet.len() {
                rx.dropped.count(DropReason::FrameTooSmall);
                pool.free(packet);
                continue;
            }
            packet.set_len(len);
            if let Err(packet) = burst.push(packet) {
                rx.dropped.count(DropReason::QueueFull);
                pool.free(packet);
            }
        }
        heard
    }

    /// Reads what the kernel could not deliver.
    fn look(&mut self) {
        let Some(open) = &mut self.open else { return };
        let Ok(now) = sys::statistics(&open.socket.fd) else { return };
        let before = std::mem::replace(&mut open.seen, now);
        let rx = &mut self.counters.rx;
        let dropped = now.rx_dropped.saturating_sub(before.rx_dropped);
        let empty = now.rx_fill_ring_empty.saturating_sub(before.rx_fill_ring_empty);
        let full = now.rx_ring_full.saturating_sub(before.rx_ring_full);
        // In copy mode every packet without a frame counts as both; the rest did not fit into one.
        let too_long = if open.socket.zero_copy { 0 } else { dropped.saturating_sub(empty) };
        rx.packets += dropped + full;
        rx.dropped.count_many(DropReason::FrameTooSmall, too_long);
        rx.dropped.count_many(DropReason::RxRingFull, full);
        let reason = if self.starved { DropReason::NoFrames } else { DropReason::RxRingFull };
        rx.dropped.count_many(reason, dropped - too_long);
        self.starved = false;
    }

    /// Whether the device can send a frame of this length.
    #[inline]
    fn fits(mtu: usize, packet: &Packet) -> bool {
        let len = packet.len();
        if len < ethernet::HEADER_LEN {
            return false;
        }
        len <= mtu + ethernet::HEADER_LEN
            || len <= mtu + ETHERNET && matches!(packet.data()[12..14], [0x81, 0x00] | [0x88, 0xA8])
    }

    fn send(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.complete(pool)?;
        let Some(open) = &mut self.open else {
            self.refuse(pool, burst);
            return Ok(());
        };
        if self.down && !self.retry.is_due(now_ns, LOOK_NS) {
            self.refuse(pool, burst);
            return Ok(());
        }
        if burst.is_empty() && self.sending == 0 {
            return Ok(());
        }
        let (socket, tx) = (&mut open.socket, &mut self.counters.tx);
        // The completion ring is as long as the transmit ring: it must have room for all that is under way.
        let room =
            (socket.tx.ready() as usize).min(self.options.tx_ring - self.sending.min(self.options.tx_ring));
        for packet in burst.drain_front(room) {
            if !Self::fits(self.mtu, &packet) {
                tx.dropped.count(DropReason::TxFailed);
                pool.free(packet);
                continue;
            }
            let len = packet.len() as u32;
            // A packet of another region is copied: the one place where packets of two regions meet.
            let lent = self.lent.lend(packet).or_else(|foreign: Packet| {
                let copy = foreign.duplicate(pool);
                pool.free(foreign);
                copy.map_or(Err(None), |copy| self.lent.lend(copy).map_err(Some))
            });
            match lent {
                Ok(address) => {
                    socket.tx.put(Desc { address, len, options: 0 });
                    self.sending += 1;
                }
                Err(packet) => {
                    tx.dropped.count(if packet.is_none() {
                        DropReason::NoFrames
                    } else {
                        DropReason::TxFailed
                    });
                    packet.into_iter().for_each(|packet| pool.free(packet));
                }
            }
        }
        socket.tx.publish();
        self.kick(pool)?;
        self.complete(pool)
    }

    /// Has the kernel send what is in the transmit ring.
    fn kick(&mut self, pool: &mut Pool) -> Result<(), PortError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let socket = &mut open.socket;
        let mut left = socket.tx.untaken();
        // Every call takes something, or is the last: a kernel before 6.17 takes 32 packets in one.
        while left > 0 && socket.tx.needs_wakeup() {
            let kick = sys::kick(&socket.fd);
            let before = std::mem::replace(&mut left, socket.tx.untaken());
            self.down = kick == Kick::Down;
            match kick {
                Kick::Gone => {
                    self.lose(pool);
                    return Ok(());
                }
                Kick::Refused if !socket.zero_copy => self.refused += 1,
                Kick::Down => break,
                Kick::Failed(code) => {
                    let source = io::Error::from_raw_os_error(code);
                    return Err(failed(&self.name, "cannot send")(source));
                }
                _ if left >= before => break,
                _ => {}
            }
        }
        Ok(())
    }

    /// There is no device to send by.
    #[cold]
    fn refuse(&mut self, pool: &mut Pool, burst: &mut Burst) {
        self.counters.tx.dropped.count_many(DropReason::TxFailed, burst.len() as u64);
        pool.free_all(burst);
    }

    /// The device is gone: everything comes back.
    #[cold]
    fn lose(&mut self, pool: &mut Pool) {
        self.counters.lost += 1;
        self.close(pool, true);
    }

    /// Every so often: is it still there, or is it there again?
    #[cold]
    fn search(&mut self, pool: &mut Pool) {
        let found = packet::device_by(&self.query, &self.interface).ok();
        match (&self.open, found) {
            (Some(open), Some(device))
                if open.attached.index == device.index && !sys::has_lost_device(&open.socket.fd) =>
            {
                self.mtu = device.mtu;
            }
            (Some(_), _) => self.lose(pool),
            (None, Some(device)) => {
                // What is in the way now (half of it is made, somebody else is faster) may not be the next time.
                let opened = self.reopen(&device);
                self.counters.found += u64::from(opened.is_ok());
                self.program.hinder(self.queue, opened.err());
            }
            (None, None) => self.program.hinder(self.queue, None),
        }
    }

    /// Opens the queue on a device that is back, if it could have been opened on that one in the first place.
    fn reopen(&mut self, device: &Device) -> Result<(), PortError> {
        check_memory(&self.name, device, self.lent.memory())?;
        check_queues(&self.name, &self.interface, self.program.queues())?;
        self.open(device, Duration::ZERO)
    }

    /// Closes the socket and takes frames back. Of a device that is `gone` nothing is under way any more.
    fn close(&mut self, pool: &mut Pool, gone: bool) {
        self.look();
        // What the rings still say is heard; a ring that says nonsense has no more to say.
        let _ = self.complete(pool);
        let Some(mut open) = self.open.take() else { return };
        for _ in 0..open.socket.rx.ready() {
            let Desc { len, .. } = open.socket.rx.take();
            self.counters.rx.count(len as usize);
            self.counters.rx.dropped.count(DropReason::PortClosed);
        }
        // What the kernel has not begun to send it never will.
        let unsent = (open.socket.tx.untaken() as usize).min(self.sending);
        drop(open);
        let under_way = if gone { 0 } else { self.sending - unsent };
        self.counters.tx.dropped.count_many(DropReason::TxFailed, (self.sending - under_way) as u64);
        (self.filling, self.sending, self.refused) = (0, under_way, 0);
        if under_way > 0 {
            // The device may still read them: those frames stay out, with all others of the table, and count as held.
            return;
        }
        // SAFETY: the socket and the rings are closed, and closing a socket waits until the kernel has left the queue: it
        // receives into no frame. What it was given to send it has given back, or never took, or had taken from it with the
        // device, whose driver frees what it has when it goes down.
        let closed = unsafe { DeviceClosed::assume() };
        self.lent.reclaim(closed).for_each(|packet| pool.free(packet));
    }

    /// A ring that has failed once is not used again: the socket is closed, the frames stay out. The program stays on the interface until the worker ends:
    /// other queues go on, and the kernel has what comes by this one.
    fn or_shut<T>(&mut self, result: Result<T, PortError>) -> Result<T, PortError> {
        if result.is_err() {
            self.open = None;
            self.ended = true;
        }
        result
    }
}

/// What is readable when one of two descriptors is.
fn either(a: &OwnedFd, b: &OwnedFd) -> io::Result<OwnedFd> {
    let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in [a, b] {
        epoll::add(&both, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(both)
}

fn unknown(port: &str, address: u64) -> PortError {
    let source = io::Error::new(io::ErrorKind::InvalidData, format!("address {address:#x} was not lent"));
    PortError::Device { port: port.to_owned(), action: "the kernel's ring", source }
}

impl Port for XdpPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.ended {
            return Ok(RxStatus::Ended);
        }
        let received = self.receive(now_ns, pool, burst);
        let received = self.or_shut(received)?;
        if self.look.is_due(now_ns, LOOK_NS) {
            self.look();
        }
        if self.search.is_due(now_ns, SEARCH_NS) {
            self.search(pool);
        }
        Ok(if received { RxStatus::Received } else { RxStatus::Idle { next_due_ns: None } })
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let sent = self.send(now_ns, pool, burst);
        self.or_shut(sent)
    }

    fn finish(&mut self, _now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        let (started, mut result) = (Instant::now(), Ok(()));
        while self.sending > 0 && !self.down && started.elapsed() < LINGER && result.is_ok() {
            result = self.kick(pool).and_then(|()| self.complete(pool));
        }
        self.close(pool, false);
        self.ended = true;
        self.program.leave();
        result
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.counters;
        counters.tx.held = self.sending as u64;
        counters
    }

    fn wake(&mut self, _waker: &Waker) -> Wake<'_> {
        let Some(open) = &self.open else { return Wake::Poll };
        // Where interrupts are put off the descriptor is readable when the kernel's timer has had the driver run: our own look comes sooner.
        if self.options.busy_poll_us > 0 && sys::is_polled(&open.socket.fd) {
            return Wake::Poll;
        }
        Wake::Readable(match &open.ear {
            Some((_, both)) => both.as_fd(),
            None => open.socket.fd.as_fd(),
        })
    }
}
