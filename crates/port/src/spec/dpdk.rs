//! Devices of DPDK's.

use super::{FaultSpec, OpenContext, queues_of};
use crate::{Port, PortError};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

/// Receives from and sends to a device that DPDK drives: a network card, or a virtual one.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DpdkSpec {
    /// The port's name.
    pub name: String,
    /// The device as DPDK's `--vdev` or `--allow` has it: `0000:3b:00.0`, `net_null0`, `net_pcap0,iface=eth0`.
    pub device: String,
    /// Queues: one for each worker if nothing is said. With 1 and several workers, the first worker reads the device and
    /// spreads flows over all.
    #[serde(default)]
    pub queues: Option<usize>,
    /// Faults to inject.
    #[serde(default)]
    pub fault: Option<FaultSpec>,
    /// A capture file to copy everything that passes into.
    #[serde(default)]
    pub tap: Option<PathBuf>,
}

impl DpdkSpec {
    pub(super) fn check(&self, workers: usize) -> Result<(), PortError> {
        queues_of(&self.name, self.queues, workers).map(drop)
    }

    pub(super) fn open(
        &self,
        workers: usize,
        _context: &OpenContext<'_>,
    ) -> Result<Vec<Box<dyn Port>>, PortError> {
        self.check(workers)?;
        Err(PortError::config(
            &self.name,
            "kind = \"dpdk\" is not in this build: cargo build --release --features dpdk (Debian: libdpdk-dev)",
        ))
    }
}
