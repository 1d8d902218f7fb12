//! Network interfaces through the kernel's packet sockets.

use super::FaultSpec;
#[cfg(target_os = "linux")]
use super::queues_of;
use crate::{PortError, SpreadBy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Receives from and sends to a network interface through the kernel's packet sockets.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AfPacketSpec {
    /// The port's name.
    pub name: String,
    /// The kernel's name of the interface; without it, the port's name.
    #[serde(default)]
    pub interface: Option<String>,
    /// Queues, over which the kernel spreads flows: one for each worker if nothing is said. With 1 and several workers, the
    /// first worker reads the interface and spreads flows over all. For a gatekeeper both go by addresses alone.
    #[serde(default)]
    pub queues: Option<usize>,
    /// `slots` (each packet is seen at once) or `blocks` (within some milliseconds; the ring holds more short packets).
    #[serde(default)]
    pub receive: Receive,
    /// Memory of each queue's receive ring in KiB, 256 at least.
    #[serde(default = "rx_ring_kib")]
    pub rx_ring_kib: usize,
    /// Packets that each queue's transmit ring holds; a power of two.
    #[serde(default = "tx_ring_packets")]
    pub tx_ring_packets: usize,
    /// Receive frames to any address, not only the interface's own, broadcasts and multicasts.
    #[serde(default)]
    pub promiscuous: bool,
    /// Send through the kernel's queueing discipline (shaping; `tcpdump` sees it) instead of straight to the driver.
    #[serde(default)]
    pub qdisc: bool,
    /// Faults to inject.
    #[serde(default)]
    pub fault: Option<FaultSpec>,
    /// A capture file to copy everything that passes into.
    #[serde(default)]
    pub tap: Option<PathBuf>,
    /// By what packets are spread over the queues: no configuration has it, a role may ask for it.
    #[serde(skip)]
    pub(super) spread_by: SpreadBy,
}

/// How frames are received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// One by one (TPACKET_V2): each is seen at once.
    #[default]
    Slots,
    /// In blocks of 128 KiB (TPACKET_V3): seen within some milliseconds; short packets take less room, so that the ring
    /// outlasts longer pauses.
    Blocks,
}

impl AfPacketSpec {
    /// The kernel's name of the interface.
    pub fn interface(&self) -> &str {
        self.interface.as_deref().unwrap_or(&self.name)
    }

    /// How many queues there are to be, and how.
    #[cfg(target_os = "linux")]
    fn options(&self, workers: usize) -> Result<(usize, crate::packet::Options), PortError> {
        let queues = queues_of(&self.name, self.queues, workers)?;
        let options = crate::packet::Options {
            receive: self.receive,
            rx_ring_kib: self.rx_ring_kib,
            tx_ring_packets: self.tx_ring_packets,
            promiscuous: self.promiscuous,
            qdisc: self.qdisc,
            spread_by: self.spread_by,
        };
        crate::packet::check(&self.name, queues, &options)?;
        Ok((queues, options))
    }

    #[cfg(target_os = "linux")]
    pub(super) fn check(&self, workers: usize) -> Result<(), PortError> {
        self.options(workers).map(drop)
    }

    #[cfg(target_os = "linux")]
    pub(super) fn open(&self, workers: usize) -> Result<Vec<crate::PacketPort>, PortError> {
        let (queues, options) = self.options(workers)?;
        crate::packet::open(&self.name, self.interface(), queues, &options)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn check(&self, _workers: usize) -> Result<(), PortError> {
        Err(PortError::config(&self.name, "kind = \"af_packet\" needs Linux"))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn open(&self, workers: usize) -> Result<Vec<crate::NullPort>, PortError> {
        self.check(workers).map(|()| Vec::new())
    }
}

fn rx_ring_kib() -> usize {
    8192
}

fn tx_ring_packets() -> usize {
    1024
}
