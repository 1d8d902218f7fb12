//! A queue's sockets and rings on a device, and how all queues of a port get theirs when the device is back.
//!
//! ```text
//! gone:  queue 0: no line      queue 1: no line, or one on the device that was
//! back:  the queue that sees it first opens lines for all, members of one new fanout group, and leaves the others theirs
//! then:  each takes its own when it looks the next time; frames wait in its ring until then, so that flows stay in order
//! ```

use super::ring::{Blocks, RxRing, Slots, TxRing};
use super::sys::{self, Membership};
use super::{Device, Options, failed, fanout};
use crate::spec::Receive;
use crate::spread::secret;
use crate::{PortError, SpreadBy};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use tidemill_wire::{ethernet, vlan};

/// Bytes of send buffer for each slot of the transmit ring: what the kernel counts for a frame of 1500 bytes.
const SEND_BUFFER: usize = 4096;

/// A queue's sockets and rings on a device.
pub(super) struct Line {
    // The rings before the sockets: what is unmapped first is freed with the socket.
    pub(super) rx: RxRing,
    pub(super) tx: TxRing,
    pub(super) rx_socket: OwnedFd,
    pub(super) tx_socket: OwnedFd,
    /// The device's number.
    pub(super) index: u32,
}

/// The longest frame of a device with this MTU.
pub(super) fn longest(mtu: usize) -> usize {
    (mtu + ethernet::HEADER_LEN + vlan::HEADER_LEN).min(usize::from(u16::MAX))
}

fn socket(name: &str) -> Result<OwnedFd, PortError> {
    sys::socket().map_err(failed(
        name,
        "cannot open a packet socket (run as root, or `setcap cap_net_raw,cap_net_admin+ep` the program)",
    ))
}

/// The sending half, for frames of this length.
pub(super) fn sender(
    name: &str,
    index: u32,
    longest: usize,
    options: &Options,
) -> Result<(TxRing, OwnedFd), PortError> {
    let setup = |action| failed(name, action);
    let socket = socket(name)?;
    sys::set_layout(&socket, sys::TPACKET_V3)
        .map_err(setup("the kernel lacks TPACKET_V3 or PACKET_VNET_HDR"))?;
    let ring = TxRing::new(&socket, options.tx_ring_packets as u32, longest)
        .map_err(setup("cannot set up the transmit ring (memory? lower tx_ring_packets)"))?;
    if !options.qdisc {
        sys::bypass_qdisc(&socket).map_err(setup("cannot pass the queueing discipline by"))?;
    }
    let send_buffer = (options.tx_ring_packets * SEND_BUFFER.max(2 * longest)).min(1 << 29);
    sys::set_send_buffer(&socket, send_buffer as i32).map_err(setup("cannot set the send buffer"))?;
    sys::bind(&socket, index, false).map_err(setup("cannot bind to the interface"))?;
    Ok((ring, socket))
}

/// The receiving half; nothing is received before the gate is opened.
fn receiver(name: &str, device: &Device, options: &Options) -> Result<(RxRing, OwnedFd), PortError> {
    let setup = |action| failed(name, action);
    let socket = socket(name)?;
    let version = match options.receive {
        Receive::Slots => sys::TPACKET_V2,
        Receive::Blocks => sys::TPACKET_V3,
    };
    sys::set_layout(&socket, version).map_err(setup("the kernel lacks TPACKET_V3 or PACKET_VNET_HDR"))?;
    let bytes = options.rx_ring_kib << 10;
    let ring = match options.receive {
        Receive::Slots => {
            let queue = bytes.min(1 << 29) as i32;
            sys::copy_longer(&socket, queue).map_err(setup("cannot set the receive buffer"))?;
            Slots::new(&socket, bytes, longest(device.mtu)).map(RxRing::Slots)
        }
        Receive::Blocks => Blocks::new(&socket, bytes).map(RxRing::Blocks),
    }
    .map_err(setup("cannot set up the receive ring (memory? lower rx_ring_kib)"))?;
    sys::ignore_outgoing(&socket).map_err(setup("the kernel lacks PACKET_IGNORE_OUTGOING"))?;
    sys::close_gate(&socket).map_err(setup("cannot attach a filter"))?;
    sys::bind(&socket, device.index, true).map_err(setup("cannot bind to the interface"))?;
    sys::join(&socket, device.index, Membership::AllMulticast)
        .map_err(setup("cannot receive all multicast"))?;
    if options.promiscuous {
        sys::join(&socket, device.index, Membership::Promiscuous)
            .map_err(setup("cannot receive everything (promiscuous)"))?;
    }
    Ok((ring, socket))
}

/// Opens the lines of all queues of a port: flows are spread over them by the kernel.
pub(super) fn open_all(
    name: &str,
    device: &Device,
    queues: usize,
    options: &Options,
) -> Result<Vec<Line>, PortError> {
    let mut lines: Vec<Line> = Vec::with_capacity(queues);
    let mut group = None;
    // The same every time: where a device comes back, its flows are where they were.
    let mut program = (options.spread_by == SpreadBy::Addresses).then(|| fanout::by_addresses(secret()));
    for _ in 0..queues {
        let (rx, rx_socket) = receiver(name, device, options)?;
        let (tx, tx_socket) = sender(name, device.index, longest(device.mtu), options)?;
        if queues > 1 {
            let joined = sys::join_fanout(&rx_socket, group, program.as_deref_mut());
            let id = joined.map_err(failed(name, "cannot spread packets over queues (is the device up?)"))?;
            group = Some(id);
        }
        lines.push(Line { rx, tx, rx_socket, tx_socket, index: device.index });
    }
    // Only now that all are members does each queue get its own packets, and nothing but those.
    for line in &lines {
        sys::open_gate(&line.rx_socket).map_err(failed(name, "cannot begin to receive"))?;
    }
    Ok(lines)
}

/// The lines that wait for the queues of a port, by queue.
pub(super) struct Waiting(Mutex<Vec<Option<Line>>>);

impl Waiting {
    pub(super) fn new(queues: usize) -> Self {
        Waiting(Mutex::new((0..queues).map(|_| None).collect()))
    }

    /// A queue's line on the device as it is now, which is opened for all queues if nobody has yet.
    pub(super) fn take(
        &self,
        queue: usize,
        name: &str,
        device: &Device,
        options: &Options,
    ) -> Result<Line, PortError> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) =
            waiting.get_mut(queue).and_then(Option::take).filter(|line| line.index == device.index)
        {
            return Ok(line);
        }
        let queues = waiting.len();
        for (place, line) in waiting.iter_mut().zip(open_all(name, device, queues, options)?) {
            *place = Some(line);
        }
        let own = waiting.get_mut(queue).and_then(Option::take);
        own.ok_or_else(|| failed(name, "this queue is none of the port's")(io::ErrorKind::NotFound.into()))
    }
}
