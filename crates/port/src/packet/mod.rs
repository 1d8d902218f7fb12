//! Ports on the kernel's network devices: AF_PACKET sockets with rings in shared memory.
//!
//! ```text
//! device -> fanout by a hash -> queue 0: receive ring -> segments, checksums, VLAN tag -> Packet
//!                               queue 1: ...
//! Packet -> transmit ring -> kernel -> device
//! ```
//! There are two receive rings, one for low latency and one for long pauses; how they compare is in `ring/mod.rs`.
//! Works on every device with Ethernet headers and needs `CAP_NET_RAW`. The host's own network stack gets a copy of
//! everything received: give the device no addresses there, or leave to the kernel what is addressed to it.
//!
//! **Offloads** may stay on. What a sender left to its card arrives unfinished (64 KB TCP packets and partial checksums on a
//! virtual link, merged packets with GRO), with a virtio-net header that says so, and is finished here ([`gso`]). A VLAN
//! tag that the kernel took off is put back.
//!
//! **Queues.** The kernel spreads packets over a device's queues (PACKET_FANOUT) by addresses and ports, the fragments of a packet
//! by addresses alone, so that they stay together and in order; or every packet by its addresses, where a role asks for that
//! (`fanout.rs`). Fragments are not reassembled for the sake of the ports: a router passes them on as they came. A group's number is one that no other process has. Groups and single queues do not disturb
//! each other: each gets everything.
//!
//! **The books.** A super-packet counts as one packet received, with its own length, and its second and further segments
//! as `made`. What the ring had no room for counts as received and as dropped (`rx-ring-full`; its bytes are unknown).
//! Packets in the transmit ring are held until the kernel is done with them.
//!
//! **Which frames arrive.** The device's own, broadcasts and, unlike an interface without us, every multicast: neighbor
//! discovery asks on solicited-node groups (RFC 4291, section 2.7.1), and only the kernel's own addresses would join
//! theirs. With `promiscuous`, all. Frames that this host sends are not received.
//!
//! **A device that is down** or has no carrier loses what is to be sent (`tx-failed`) and works again when it is up.
//!
//! **A device that goes away** (removed, renamed, moved to another namespace) is looked for by its name, ten times a second, and
//! opened anew with new rings (`line.rs`). Meanwhile nothing is received, what is to be sent is `tx-failed`, and the books
//! balance: what the rings held is read, or counted.
//!
//! **A changed MTU** is followed: the transmit ring is made anew when frames have become longer than its slots. Received frames
//! may always be longer than the receive ring's slots.

mod fanout;
pub mod gso;
mod line;
mod ring;
mod sys;

#[cfg(feature = "xdp")]
pub(crate) use sys::query;

use crate::spec::Receive;
use crate::{Port, PortCounters, PortError, RxStatus, SpreadBy, Wake, Waker};
use gso::Offload;
use line::{Line, Waiting};
use ring::{Outcome, Received};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use sys::Kick;
use tidemill_burst::{Burst, DropReason, Packet, Pool};
use tidemill_wire::segment::Segments;
use tidemill_wire::{MacAddr, ethernet, vlan};

/// What the kernel says of a network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its address.
    pub mac: MacAddr,
    /// Its longest packet in bytes, without the Ethernet header.
    pub mtu: usize,
    /// Whether it was set up.
    pub up: bool,
    /// Whether it is up and has a carrier.
    pub running: bool,
}

/// Asks the kernel about a network device in this process's network namespace. Needs no rights.
///
/// # Errors
/// There is no such device (the message lists those that there are), or it has no Ethernet headers.
pub fn device(interface: &str) -> Result<Device, PortError> {
    let query = sys::query().map_err(failed(interface, ASKING))?;
    device_by(&query, interface)
}

/// The same by a socket that is open already: a worker that is confined opens none.
pub(crate) fn device_by(fd: &OwnedFd, interface: &str) -> Result<Device, PortError> {
    let ask = || -> io::Result<Option<Device>> {
        let index = sys::index(fd, interface)?;
        let Some(mac) = sys::mac(fd, interface)? else { return Ok(None) };
        let (up, running) = sys::flags(fd, interface)?;
        let mtu = sys::mtu(fd, interface)?;
        Ok(Some(Device { name: interface.to_owned(), index, mac: MacAddr(mac), mtu, up, running }))
    };
    match ask() {
        Ok(Some(device)) => Ok(device),
        Ok(None) => Err(PortError::config(
            interface,
            "this interface has no Ethernet headers: an af_packet port needs one that has",
        )),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
            let names = sys::names();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let what = format!("there is no network interface {interface:?} (there is: {there})");
            Err(PortError::config(interface, what))
        }
        Err(source) => Err(failed(interface, ASKING)(source)),
    }
}

/// How a device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// One by one or in blocks.
    pub receive: Receive,
    /// Memory of each queue's receive ring in KiB; 256 at least.
    pub rx_ring_kib: usize,
    /// Packets that each queue's transmit ring holds; a power of two, 8 to 65536.
    pub tx_ring_packets: usize,
    /// Receive frames to any address.
    pub promiscuous: bool,
    /// Send through the device's queueing discipline (shaping, and `tcpdump` on this host sees what is sent) instead of
    /// straight to the driver.
    pub qdisc: bool,
    /// By what packets are spread over several queues.
    pub spread_by: SpreadBy,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            receive: Receive::Slots,
            rx_ring_kib: 8192,
            tx_ring_packets: 1024,
            promiscuous: false,
            qdisc: false,
            spread_by: SpreadBy::default(),
        }
    }
}

/// How often a queue asks the kernel for what it lost, and whether the device is still there.
const LOOK_NS: u64 = 10_000_000;
/// How often it asks which device has the name, what its MTU is, and looks for one that is away.
const SEEK_NS: u64 = 100_000_000;
const ASKING: &str = "cannot ask about the interface";

fn failed(port: &str, action: &'static str) -> impl FnOnce(io::Error) -> PortError {
    let port = port.to_owned();
    move |source| PortError::Device { port, action, source }
}

/// Opens `queues` queues of a network device: flows are spread over them by the kernel.
///
/// # Errors
/// There is no such device, the process may not open packet sockets, or the rings do not fit into memory.
pub fn open(
    name: &str,
    interface: &str,
    queues: usize,
    options: &Options,
) -> Result<Vec<PacketPort>, PortError> {
    check(name, queues, options)?;
    let device = device(interface).map_err(|error| match error {
        PortError::Config { what, .. } => PortError::config(name, what),
        other => other,
    })?;
    let waiting = Arc::new(Waiting::new(queues));
    let lines = line::open_all(name, &device, queues, options)?.into_iter().enumerate();
    lines.map(|(queue, line)| PacketPort::new(name, &device, options, queue, line, waiting.clone())).collect()
}

pub(crate) fn check(name: &str, queues: usize, options: &Options) -> Result<(), PortError> {
    let what = if !(1..=256).contains(&queues) {
        format!("queues = {queues}: give 1 to 256")
    } else if !(256..=4 << 20).contains(&options.rx_ring_kib) {
        format!("rx_ring_kib = {}: give 256 to {} (4 GiB)", options.rx_ring_kib, 4 << 20)
    } else if !options.tx_ring_packets.is_power_of_two() || !(8..=1 << 16).contains(&options.tx_ring_packets)
    {
        format!("tx_ring_packets = {}: give a power of two from 8 to 65536", options.tx_ring_packets)
    } else {
        return Ok(());
    };
    Err(PortError::config(name, what))
}

/// One queue of a network device. In cache lines of its own, as other workers' queues lie beside it.
#[repr(align(128))]
pub struct PacketPort {
    name: String,
    interface: String,
    options: Options,
    /// Which queue of the port this is, and where its line is left when another one finds the device back.
    queue: usize,
    waiting: Arc<Waiting>,
    /// `None` while the device is away, and at the end.
    line: Option<Line>,
    /// The device is no longer ours: when the receive ring has been read, the line is given up.
    leaving: bool,
    query: OwnedFd,
    /// The super-packet at the front of the receive ring, and its next segment.
    segments: Option<(Segments, usize)>,
    mtu: usize,
    /// When a frame that was too long last made us ask for the MTU.
    mtu_ns: Option<u64>,
    look_ns: Option<u64>,
    seek_ns: Option<u64>,
    finished: bool,
    freezes: u64,
    counters: PortCounters,
}

impl PacketPort {
    fn new(
        name: &str,
        device: &Device,
        options: &Options,
        queue: usize,
        line: Line,
        waiting: Arc<Waiting>,
    ) -> Result<Self, PortError> {
        Ok(PacketPort {
            name: name.to_owned(),
            interface: device.name.clone(),
            options: *options,
            queue,
            waiting,
            line: Some(line),
            leaving: false,
            query: sys::query().map_err(failed(name, "cannot open a socket"))?,
            segments: None,
            mtu: device.mtu,
            mtu_ns: None,
            look_ns: None,
            seek_ns: None,
            finished: false,
            freezes: 0,
            counters: PortCounters::default(),
        })
    }

    /// How often the receive ring became full.
    pub fn freezes(&self) -> u64 {
        self.freezes
    }

    /// Reads what the kernel counted, which sets its counters back.
    fn look(&mut self) {
        let Some(line) = &self.line else { return };
        let Ok(statistics) = sys::statistics(&line.rx_socket) else { return };
        let dropped = u64::from(statistics.dropped);
        self.freezes += u64::from(statistics.freezes);
        self.counters.rx.packets += dropped;
        self.counters.rx.dropped.count_many(DropReason::RxRingFull, dropped);
    }

    /// Looks after the device. `idle`: the receive ring is empty.
    #[cold]
    fn look_after(&mut self, now_ns: u64, idle: bool) {
        self.look();
        let due = self.seek_ns.is_none_or(|at| now_ns >= at.saturating_add(SEEK_NS));
        if due {
            self.seek_ns = Some(now_ns);
        }
        let Some(line) = &self.line else {
            if due {
                self.find();
            }
            return;
        };
        if due && !self.leaving {
            match sys::index(&self.query, &self.interface) {
                Ok(index) if index == line.index => self.follow_mtu(),
                _ => {
                    // Another device has the name, or none. What this one still receives is not ours; should that not be
                    // possible to say, it is received until the ring is found empty.
                    let _ = sys::close_gate(&line.rx_socket);
                    self.leaving = true;
                }
            }
        }
        let gone =
            idle && self.line.as_ref().is_some_and(|line| self.leaving || !sys::is_bound(&line.rx_socket));
        if gone {
            self.lose();
        }
    }

    /// Gives the line up: the device is away.
    fn lose(&mut self) {
        self.give_up();
        self.counters.lost += 1;
        // It may be back already.
        self.find();
    }

    /// Ends the line: what the rings hold is counted.
    fn give_up(&mut self) {
        self.cancel();
        self.abandon();
        self.look();
        (self.line, self.segments, self.leaving) = (None, None, false);
    }

    /// Opens the device if it is there. Where that is not possible, it is tried again.
    fn find(&mut self) {
        let Ok(device) = device(&self.interface) else { return };
        if let Ok(line) = self.waiting.take(self.queue, &self.name, &device, &self.options) {
            (self.line, self.mtu) = (Some(line), device.mtu);
            self.counters.found += 1;
        }
    }

    /// Asks for the MTU. Longer frames than the transmit ring's slots need another one.
    fn follow_mtu(&mut self) {
        let Ok(mtu) = sys::mtu(&self.query, &self.interface) else { return };
        self.mtu = mtu;
        let longest = line::longest(mtu);
        let Some(index) =
            self.line.as_ref().filter(|line| longest > line.tx.longest()).map(|line| line.index)
        else {
            return;
        };
        // Without memory for it, longer frames are dropped and counted, as before.
        if let Ok((ring, socket)) = line::sender(&self.name, index, longest, &self.options) {
            self.cancel();
            self.abandon();
            if let Some(line) = &mut self.line {
                // The ring first: it is unmapped while its socket is there.
                line.tx = ring;
                line.tx_socket = socket;
            }
        }
    }

    fn receive(&mut self, pool: &mut Pool, burst: &mut Burst) -> bool {
        let mut progress = false;
        let Some(line) = &mut self.line else { return false };
        while burst.room() > 0 {
            let Some(received) = line.rx.current(&line.rx_socket) else { break };
            progress = true;
            let mut intake = Intake { rx: &mut self.counters.rx, pool, burst, received: &received };
            match self.segments.take() {
                Some((segments, next)) => self.segments = intake.segments(segments, next),
                None => self.segments = intake.take(),
            }
            if self.segments.is_none() {
                line.rx.advance();
            }
        }
        progress
    }

    /// Puts a frame into the transmit ring, if the device can send it. There is room.
    #[inline]
    fn put(&mut self, now_ns: u64, frame: &[u8]) -> bool {
        let Some(line) = &mut self.line else { return false };
        if fits(frame, self.mtu, line.tx.longest()) {
            line.tx.put(frame);
            return true;
        }
        self.put_longer(now_ns, frame)
    }

    /// The same for one that was too long when the MTU was last asked for.
    #[cold]
    fn put_longer(&mut self, now_ns: u64, frame: &[u8]) -> bool {
        if self.mtu_ns.is_some_and(|at| now_ns < at.saturating_add(SEEK_NS)) {
            return false;
        }
        self.mtu_ns = Some(now_ns);
        self.follow_mtu();
        let Some(line) = self.line.as_mut().filter(|line| fits(frame, self.mtu, line.tx.longest())) else {
            return false;
        };
        line.tx.put(frame);
        true
    }

    fn complete(&mut self) {
        let (tx, line) = (&mut self.counters.tx, &mut self.line);
        line.iter_mut().for_each(|line| line.tx.complete(|len, outcome| note(tx, len, outcome)));
    }

    #[cold]
    fn cancel(&mut self) {
        let (tx, line) = (&mut self.counters.tx, &mut self.line);
        line.iter_mut().for_each(|line| line.tx.cancel(|len, outcome| note(tx, len, outcome)));
    }

    #[cold]
    fn abandon(&mut self) {
        let (tx, line) = (&mut self.counters.tx, &mut self.line);
        line.iter_mut().for_each(|line| line.tx.abandon(|len, outcome| note(tx, len, outcome)));
    }

    /// Frames in the transmit ring.
    fn pending(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.tx.pending())
    }

    fn kick(&mut self) {
        let before = self.pending();
        let Some(line) = &self.line else { return };
        let kick = sys::kick(&line.tx_socket);
        self.complete();
        let stuck = self.pending() == before;
        match kick {
            // The receiving side sees that too, and does what is to be done.
            Kick::Gone | Kick::Down => self.cancel(),
            // A driver that is busy, or, said in the same way, a cable that is not plugged in.
            Kick::Later if stuck && !self.is_running() => self.cancel(),
            // Not a frame's fault, and nobody knows whose: what waits is given up, and the next burst tries again.
            Kick::Refused if stuck => self.cancel(),
            Kick::Sent | Kick::Later | Kick::Refused => {}
        }
    }

    #[cold]
    fn is_running(&self) -> bool {
        sys::flags(&self.query, &self.interface).is_ok_and(|(_, running)| running)
    }
}

/// Whether a frame of this length is one for a device with this MTU, and for slots of this length.
#[inline]
fn fits(frame: &[u8], mtu: usize, longest: usize) -> bool {
    if frame.len() < ethernet::HEADER_LEN || frame.len() > longest {
        return false;
    }
    let tagged = matches!(frame[12..14], [0x81, 0x00] | [0x88, 0xA8]);
    let overhead = ethernet::HEADER_LEN + if tagged { vlan::HEADER_LEN } else { 0 };
    frame.len() <= mtu + overhead
}

fn note(tx: &mut crate::Direction, len: usize, outcome: Outcome) {
    match outcome {
        Outcome::Sent => tx.count(len),
        Outcome::Refused | Outcome::Cancelled => tx.dropped.count(DropReason::TxFailed),
    }
}

/// A frame on its way from the ring into packets.
struct Intake<'a> {
    rx: &'a mut crate::Direction,
    pool: &'a mut Pool,
    burst: &'a mut Burst,
    received: &'a Received<'a>,
}

impl Intake<'_> {
    /// Takes a frame, or the first part of a super-packet's segments: then the answer says which is next.
    #[inline]
    fn take(&mut self) -> Option<(Segments, usize)> {
        let received = self.received;
        let tag = if received.vlan.is_some() { vlan::HEADER_LEN } else { 0 };
        self.rx.count(received.len + tag);
        if received.data.len() < received.len || received.data.is_empty() {
            let too_long = received.len > ring::LONGEST - gso::HEADER_LEN;
            self.rx.dropped.count(if too_long { DropReason::FrameTooSmall } else { DropReason::RxRingFull });
            return None;
        }
        let offload = Offload::parse(&received.vnet);
        if !offload.is_super() {
            let data = received.data;
            self.packet(data.len(), |out| {
                out.copy_from_slice(data);
                offload.finish(out).is_ok()
            });
            return None;
        }
        match offload.plan(received.data) {
            Ok(segments) => self.segments(segments, 0),
            Err(_) => {
                self.rx.dropped.count(DropReason::OffloadInvalid);
                None
            }
        }
    }

    /// Takes segments from `next` on while there is room.
    fn segments(&mut self, segments: Segments, next: usize) -> Option<(Segments, usize)> {
        let data = self.received.data;
        for index in next..segments.count() {
            if self.burst.room() == 0 {
                return Some((segments, index));
            }
            self.rx.made += u64::from(index > 0);
            self.packet(segments.len(index), |out| segments.write(data, index, out));
        }
        None
    }

    /// Takes one packet, which `fill` writes.
    #[inline]
    fn packet(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> bool) {
        let dropped = &mut self.rx.dropped;
        if len > self.pool.room() {
            return dropped.count(DropReason::FrameTooSmall);
        }
        let Some(mut packet) = self.pool.take() else { return dropped.count(DropReason::NoFrames) };
        packet.set_len(len);
        if !fill(packet.data_mut()) {
            dropped.count(DropReason::OffloadInvalid);
            return self.pool.free(packet);
        }
        if let Some(tag) = self.received.vlan
            && !put_tag(&mut packet, tag)
        {
            dropped.count(DropReason::FrameTooSmall);
            return self.pool.free(packet);
        }
        packet.set_timestamp_ns(self.received.timestamp_ns);
        if let Err(packet) = self.burst.push(packet) {
            dropped.count(DropReason::QueueFull);
            self.pool.free(packet);
        }
    }
}

/// Puts a VLAN tag behind the addresses.
fn put_tag(packet: &mut Packet, [tpid, tci]: [u16; 2]) -> bool {
    const ADDRESSES: usize = 12;
    if packet.len() < ADDRESSES || !packet.grow_front(vlan::HEADER_LEN) {
        return false;
    }
    let data = packet.data_mut();
    data.copy_within(vlan::HEADER_LEN..vlan::HEADER_LEN + ADDRESSES, 0);
    data[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tpid.to_be_bytes());
    data[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&tci.to_be_bytes());
    true
}

impl Port for PacketPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let progress = self.receive(pool, burst);
        if !self.finished && self.look_ns.is_none_or(|at| now_ns >= at.saturating_add(LOOK_NS)) {
            self.look_ns = Some(now_ns);
            self.look_after(now_ns, !progress);
        }
        Ok(match (progress, self.finished) {
            (true, _) => RxStatus::Received,
            (false, true) => RxStatus::Ended,
            (false, false) => RxStatus::Idle { next_due_ns: None },
        })
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        if burst.is_empty() && self.pending() == 0 {
            return Ok(());
        }
        self.complete();
        let Some(line) = &mut self.line else {
            self.counters.tx.dropped.count_many(DropReason::TxFailed, burst.len() as u64);
            pool.free_all(burst);
            return Ok(());
        };
        for packet in burst.drain_front(line.tx.room()) {
            if !self.put(now_ns, packet.data()) {
                self.counters.tx.dropped.count(DropReason::TxFailed);
            }
            pool.free(packet);
        }
        if self.line.as_ref().is_some_and(|line| line.tx.unsent()) {
            self.kick();
        }
        Ok(())
    }

    fn finish(&mut self, _now_ns: u64, _pool: &mut Pool) -> Result<(), PortError> {
        // Packets were copied into the ring, so a device that is slow to finish holds none of the pool's frames.
        for _ in 0..1000 {
            if self.pending() == 0 {
                break;
            }
            self.kick();
            if self.pending() > 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        self.give_up();
        self.finished = true;
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.counters;
        counters.tx.held = self.pending() as u64;
        counters
    }

    fn wake(&mut self, _waker: &Waker) -> Wake<'_> {
        match &self.line {
            Some(line) => Wake::Readable(line.rx_socket.as_fd()),
            None => Wake::Poll,
        }
    }
}
