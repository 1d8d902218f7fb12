//! Ports: where packets come from and go to.
//!
//! A port has one or more queue pairs; a [`Port`] is one of them and belongs to one worker. Everything a port needs
//! - time, packet memory - is handed in with each call, so that a run can be repeated.
//!
//! Conservation: every port counts what passes its outer edge and everything that it drops, makes or holds itself;
//! [`PortCounters`] states the two equations that always hold.

pub mod capture;
mod channel;
mod counters;
#[cfg(all(feature = "dpdk", target_os = "linux"))]
pub mod dpdk;
mod error;
mod fault;
pub mod generator;
mod headers;
pub mod memory;
mod null;
#[cfg(target_os = "linux")]
pub mod packet;
mod pcap;
mod remap;
pub mod rng;
pub mod rule;
pub mod spec;
mod spread;
mod tap;
mod template;
mod wake;
#[cfg(all(feature = "xdp", target_os = "linux"))]
pub mod xdp;

pub use channel::{ChannelPort, pair};
pub use counters::{Direction, PortCounters};
pub use error::{PortError, number};
pub use fault::{Fault, Faults};
pub use headers::rewrite_destination;
pub use null::{NullPort, Supply};
#[cfg(target_os = "linux")]
pub use packet::{Device, PacketPort, device};
pub use pcap::{Pace, PcapPort, Playback};
pub use remap::{Choose, Remap};
pub use rule::{Left, Ownership, Rule};
pub use spec::{OpenContext, Opened, PortSpec};
pub use spread::{SpreadBy, Spreading, address_hash, flow_hash, spread};
pub use tap::Tap;
pub use template::{Fields, Payload, Stamp, StampV6, Template};
pub use wake::{DESCRIPTORS, Wake, Waker};

use tidemill_burst::{Burst, Pool};

/// What a call of [`Port::rx`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RxStatus {
    /// The port made progress (packets were added, or received and dropped): call again soon.
    Received,
    /// Nothing now.
    Idle {
        /// When the next packet is due (paced captures and generators, delays), in the clock of `now_ns`.
        next_due_ns: Option<u64>,
    },
    /// Nothing ever again; what was received before has been handed over.
    Ended,
}

/// One queue pair of a port, owned by one worker.
pub trait Port: Send {
    /// The port's name in the configuration.
    fn name(&self) -> &str;

    /// Adds received packets to `burst`, at most its room, each with its timestamp if it has one; the
    /// packet's port index stays 0, the graph sets it. `now_ns` never goes backwards between calls.
    ///
    /// Ports that can wait (captures, generators, null) never drop for want of frames or room: they stop and go on
    /// at the next call. A network device cannot wait and counts [`NoFrames`](tidemill_burst::DropReason::NoFrames).
    ///
    /// A device that goes away is no error: the port is idle, looks for it now and then, and opens it anew when it is
    /// back ([`PortCounters::lost`], [`found`](PortCounters::found)).
    ///
    /// # Errors
    /// Reported once; packets added before the fault are good. After an error the port is [`RxStatus::Ended`].
    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError>;

    /// Sends the burst's packets in order and frees each into `pool`; what the port can't take now stays in the
    /// burst, in order. Call it with an empty burst now and then: ports that hold packets send those that are due.
    ///
    /// # Errors
    /// Reported once; afterwards the port counts every packet as
    /// [`TxFailed`](tidemill_burst::DropReason::TxFailed) and frees it, so that a run can end in good order.
    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError>;

    /// Ends a clean run: sends what is held for sending, frees what is held for receiving (counted as
    /// [`PortClosed`](tidemill_burst::DropReason::PortClosed)), flushes and closes files. Nothing is held afterwards. A port
    /// that never holds anything has nothing to do.
    ///
    /// # Errors
    /// What went wrong on closing (a full disk shows here at the latest).
    fn finish(&mut self, _now_ns: u64, _pool: &mut Pool) -> Result<(), PortError> {
        Ok(())
    }

    /// What this queue pair has counted.
    fn counters(&self) -> PortCounters;

    /// How the worker, which is about to sleep, will learn that there is something to receive, or something of other
    /// workers' to send. `waker` is the worker's own: a queue that others fill keeps a clone. What the port has said to be
    /// due ([`RxStatus::Idle`]) wakes the worker anyway.
    fn wake(&mut self, _waker: &Waker) -> Wake<'_> {
        Wake::Poll
    }

    /// Whether nothing is received any more, though the port is [`Idle`](RxStatus::Idle) as long as other workers send by it.
    fn has_ended(&self) -> bool {
        false
    }
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        (**self).rx(now_ns, pool, burst)
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        (**self).tx(now_ns, pool, burst)
    }

    fn finish(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        (**self).finish(now_ns, pool)
    }

    fn counters(&self) -> PortCounters {
        (**self).counters()
    }

    fn wake(&mut self, waker: &Waker) -> Wake<'_> {
        (**self).wake(waker)
    }

    fn has_ended(&self) -> bool {
        (**self).has_ended()
    }
}
