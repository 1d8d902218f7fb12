//! Ports on the kernel's network devices: AF_PACKET sockets with rings in shared memory.
//!
//! ```text
//! device -> fanout by flow hash -> queue 0: receive ring -> segments, checksums, VLAN tag -> Packet
//!                                  queue 1: ...
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
//! by addresses alone, so that they stay together and in order. They are not reassembled for the sake of the ports: a router passes
//! fragments on as they came. A group's number is one that no other process has. Groups and single queues do not disturb
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
//! **A device that is down** or has no carrier loses what is to be sent (`tx-failed`) and works again when it is up. One
//! that is removed is an error, once; afterwards nothing is received and everything to send is `tx-failed`.

pub mod gso;
mod ring;
mod sys;

use crate::spec::Receive;
use crate::{Port, PortCounters, PortError, RxStatus, Wake, Waker};
use gso::Offload;
use ring::{Blocks, Outcome, Received, RxRing, Slots, TxRing};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use sys::{Kick, Membership};
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
    let ask = |fd: &OwnedFd| -> io::Result<Option<Device>> {
        let index = sys::index(fd, interface)?;
        let Some(mac) = sys::mac(fd, interface)? else { return Ok(None) };
        let (up, running) = sys::flags(fd, interface)?;
        let mtu = sys::mtu(fd, interface)?;
        Ok(Some(Device { name: interface.to_owned(), index, mac: MacAddr(mac), mtu, up, running }))
    };
    match sys::query().and_then(|fd| ask(&fd)) {
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
        Err(source) => Err(failed(interface, "cannot ask about the interface")(source)),
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
}

impl Default for Options {
    fn default() -> Self {
        Options {
            receive: Receive::Slots,
            rx_ring_kib: 8192,
            tx_ring_packets: 1024,
            promiscuous: false,
            qdisc: false,
        }
    }
}

/// How often a queue asks the kernel for what it lost, and whether the device is still there.
const LOOK_NS: u64 = 10_000_000;
/// How often a frame that is too long makes a queue ask for the device's MTU again.
const MTU_NS: u64 = 100_000_000;
/// Bytes of send buffer for each slot of the transmit ring: what the kernel counts for a frame of 1500 bytes.
const SEND_BUFFER: usize = 4096;

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
    let mut ports = Vec::with_capacity(queues);
    let mut fanout = None;
    for _ in 0..queues {
        let port = PacketPort::prepare(name, &device, options)?;
        if queues > 1 {
            let joined = sys::join_fanout(&port.rx_socket, fanout);
            let id = joined.map_err(failed(name, "cannot spread packets over queues (is the device up?)"))?;
            fanout = Some(id);
        }
        ports.push(port);
    }
    // Only now that all are members does each queue get its own packets, and nothing but those.
    for port in &ports {
        sys::open_gate(&port.rx_socket).map_err(failed(name, "cannot begin to receive"))?;
    }
    Ok(ports)
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

/// One queue of a network device.
pub struct PacketPort {
    name: String,
    interface: String,
    // The rings before the sockets: what is unmapped first is freed with the socket.
    rx: RxRing,
    tx: TxRing,
    rx_socket: OwnedFd,
    tx_socket: OwnedFd,
    query: OwnedFd,
    /// The super-packet at the front of the receive ring, and its next segment.
    segments: Option<(Segments, usize)>,
    mtu: usize,
    /// When the MTU was last asked for, and the kernel's counters.
    mtu_ns: Option<u64>,
    look_ns: Option<u64>,
    /// The device was removed, or the port is finished.
    gone: bool,
    freezes: u64,
    counters: PortCounters,
}

impl PacketPort {
    /// Opens both sockets with their rings; nothing is received before the gate is opened.
    fn prepare(name: &str, device: &Device, options: &Options) -> Result<Self, PortError> {
        let socket = || {
            sys::socket().map_err(failed(
                name,
                "cannot open a packet socket (run as root, or `setcap cap_net_raw,cap_net_admin+ep` the program)",
            ))
        };
        let setup = |action| failed(name, action);
        let (rx_socket, tx_socket) = (socket()?, socket()?);
        let version = match options.receive {
            Receive::Slots => sys::TPACKET_V2,
            Receive::Blocks => sys::TPACKET_V3,
        };
        for (socket, version) in [(&rx_socket, version), (&tx_socket, sys::TPACKET_V3)] {
            sys::set_layout(socket, version)
                .map_err(setup("the kernel lacks TPACKET_V3 or PACKET_VNET_HDR"))?;
        }
        let longest = (device.mtu + ethernet::HEADER_LEN + vlan::HEADER_LEN).min(usize::from(u16::MAX));
        let bytes = options.rx_ring_kib << 10;
        let rx = match options.receive {
            Receive::Slots => {
                let queue = bytes.min(1 << 29) as i32;
                sys::copy_longer(&rx_socket, queue).map_err(setup("cannot set the receive buffer"))?;
                Slots::new(&rx_socket, bytes, longest).map(RxRing::Slots)
            }
            Receive::Blocks => Blocks::new(&rx_socket, bytes).map(RxRing::Blocks),
        }
        .map_err(setup("cannot set up the receive ring (memory? lower rx_ring_kib)"))?;
        let tx = TxRing::new(&tx_socket, options.tx_ring_packets as u32, longest)
            .map_err(setup("cannot set up the transmit ring (memory? lower tx_ring_packets)"))?;
        sys::ignore_outgoing(&rx_socket).map_err(setup("the kernel lacks PACKET_IGNORE_OUTGOING"))?;
        if !options.qdisc {
            sys::bypass_qdisc(&tx_socket).map_err(setup("cannot pass the queueing discipline by"))?;
        }
        let send_buffer = (options.tx_ring_packets * SEND_BUFFER.max(2 * longest)).min(1 << 29);
        sys::set_send_buffer(&tx_socket, send_buffer as i32).map_err(setup("cannot set the send buffer"))?;
        sys::close_gate(&rx_socket).map_err(setup("cannot attach a filter"))?;
        sys::bind(&rx_socket, device.index, true).map_err(setup("cannot bind to the interface"))?;
        sys::bind(&tx_socket, device.index, false).map_err(setup("cannot bind to the interface"))?;
        sys::join(&rx_socket, device.index, Membership::AllMulticast)
            .map_err(setup("cannot receive all multicast"))?;
        if options.promiscuous {
            sys::join(&rx_socket, device.index, Membership::Promiscuous)
                .map_err(setup("cannot receive everything (promiscuous)"))?;
        }
        Ok(PacketPort {
            name: name.to_owned(),
            interface: device.name.clone(),
            rx,
            tx,
            rx_socket,
            tx_socket,
            query: sys::query().map_err(setup("cannot open a socket"))?,
            segments: None,
            mtu: device.mtu,
            mtu_ns: None,
            look_ns: None,
            gone: false,
            freezes: 0,
            counters: PortCounters::default(),
        })
    }

    /// How often the receive ring became full.
    pub fn freezes(&self) -> u64 {
        self.freezes
    }

    /// The device was removed: once it is an error.
    fn lost(&mut self) -> Result<(), PortError> {
        if std::mem::replace(&mut self.gone, true) {
            return Ok(());
        }
        self.cancel();
        let source = io::Error::new(
            io::ErrorKind::NotFound,
            format!("network interface {:?} was removed", self.interface),
        );
        Err(PortError::Device { port: self.name.clone(), action: "the device is gone", source })
    }

    /// Reads what the kernel counted, which sets its counters back.
    fn look(&mut self) {
        let Ok(statistics) = sys::statistics(&self.rx_socket) else { return };
        let dropped = u64::from(statistics.dropped);
        self.freezes += u64::from(statistics.freezes);
        self.counters.rx.packets += dropped;
        self.counters.rx.dropped.count_many(DropReason::RxRingFull, dropped);
    }

    fn receive(&mut self, pool: &mut Pool, burst: &mut Burst) -> bool {
        let mut progress = false;
        while burst.room() > 0 {
            let Some(received) = self.rx.current(&self.rx_socket) else { break };
            progress = true;
            let mut intake = Intake { rx: &mut self.counters.rx, pool, burst, received: &received };
            match self.segments.take() {
                Some((segments, next)) => self.segments = intake.segments(segments, next),
                None => self.segments = intake.take(),
            }
            if self.segments.is_none() {
                self.rx.advance();
            }
        }
        progress
    }

    /// Whether the device can send a frame of this length.
    #[inline]
    fn fits(&mut self, now_ns: u64, frame: &[u8]) -> bool {
        if frame.len() < ethernet::HEADER_LEN || frame.len() > self.tx.longest() {
            return false;
        }
        let tagged = matches!(frame[12..14], [0x81, 0x00] | [0x88, 0xA8]);
        let overhead = ethernet::HEADER_LEN + if tagged { vlan::HEADER_LEN } else { 0 };
        if frame.len() <= self.mtu + overhead {
            return true;
        }
        if self.mtu_ns.is_none_or(|at| now_ns >= at.saturating_add(MTU_NS)) {
            self.mtu_ns = Some(now_ns);
            self.mtu = sys::mtu(&self.query, &self.interface).unwrap_or(self.mtu);
        }
        frame.len() <= self.mtu + overhead
    }

    fn complete(&mut self) {
        let tx = &mut self.counters.tx;
        self.tx.complete(|len, outcome| note(tx, len, outcome));
    }

    #[cold]
    fn cancel(&mut self) {
        let tx = &mut self.counters.tx;
        self.tx.cancel(|len, outcome| note(tx, len, outcome));
    }

    fn kick(&mut self) -> Result<(), PortError> {
        let before = self.tx.pending();
        let kick = sys::kick(&self.tx_socket);
        self.complete();
        let stuck = self.tx.pending() == before;
        match kick {
            Kick::Gone => return self.lost(),
            Kick::Down => self.cancel(),
            // A driver that is busy, or, said in the same way, a cable that is not plugged in.
            Kick::Later if stuck && !self.is_running() => self.cancel(),
            // Not a frame's fault, and nobody knows whose: what waits is given up, and the next burst tries again.
            Kick::Refused if stuck => self.cancel(),
            Kick::Sent | Kick::Later | Kick::Refused => {}
        }
        Ok(())
    }

    #[cold]
    fn is_running(&self) -> bool {
        sys::flags(&self.query, &self.interface).is_ok_and(|(_, running)| running)
    }
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
        if self.look_ns.is_none_or(|at| now_ns >= at.saturating_add(LOOK_NS)) {
            self.look_ns = Some(now_ns);
            self.look();
            if !progress && !self.gone && !sys::is_bound(&self.rx_socket) {
                self.lost()?;
            }
        }
        Ok(match (progress, self.gone) {
            (true, _) => RxStatus::Received,
            (false, true) => RxStatus::Ended,
            (false, false) => RxStatus::Idle { next_due_ns: None },
        })
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        if burst.is_empty() && self.tx.pending() == 0 {
            return Ok(());
        }
        self.complete();
        if self.gone {
            self.counters.tx.dropped.count_many(DropReason::TxFailed, burst.len() as u64);
            pool.free_all(burst);
            return Ok(());
        }
        let room = self.tx.room();
        for packet in burst.drain_front(room) {
            if self.fits(now_ns, packet.data()) {
                self.tx.put(packet.data());
            } else {
                self.counters.tx.dropped.count(DropReason::TxFailed);
            }
            pool.free(packet);
        }
        if self.tx.unsent() { self.kick() } else { Ok(()) }
    }

    fn finish(&mut self, _now_ns: u64, _pool: &mut Pool) -> Result<(), PortError> {
        // Packets were copied into the ring, so a device that is slow to finish holds none of the pool's frames.
        for _ in 0..1000 {
            if self.gone || self.tx.pending() == 0 {
                break;
            }
            self.kick()?;
            if self.tx.pending() > 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        self.cancel();
        let tx = &mut self.counters.tx;
        self.tx.abandon(|len, outcome| note(tx, len, outcome));
        self.look();
        self.gone = true;
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.counters;
        counters.tx.held = self.tx.pending() as u64;
        counters
    }

    fn wake(&mut self, _waker: &Waker) -> Wake<'_> {
        Wake::Readable(self.rx_socket.as_fd())
    }
}
