//! Network interfaces through AF_XDP.

use super::{FaultSpec, OpenContext, queues_of};
use crate::{Port, PortError};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

/// Takes packets from a network interface's driver before the kernel's stack sees them, all but those that a rule leaves
/// to the kernel, and sends straight through the driver.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AfXdpSpec {
    /// The port's name.
    pub name: String,
    /// The kernel's name of the interface; without it, the port's name.
    #[serde(default)]
    pub interface: Option<String>,
    /// Queues: one for each worker if nothing is said. With 1 and several workers, the first worker reads the interface
    /// and spreads flows over all.
    #[serde(default)]
    pub queues: Option<usize>,
    /// Where in the kernel packets are taken.
    #[serde(default)]
    pub mode: Mode,
    /// Faults to inject.
    #[serde(default)]
    pub fault: Option<FaultSpec>,
    /// A capture file to copy everything that passes into.
    #[serde(default)]
    pub tap: Option<PathBuf>,
}

/// Where in the kernel packets are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The first of the others that the driver can do.
    #[default]
    Auto,
    /// In the driver, which writes into our memory itself.
    ZeroCopy,
    /// In the driver; the kernel copies.
    Native,
    /// Behind the driver: works with any, and is slower.
    Generic,
}

impl AfXdpSpec {
    /// The kernel's name of the interface.
    pub fn interface(&self) -> &str {
        self.interface.as_deref().unwrap_or(&self.name)
    }

    pub(super) fn check(&self, workers: usize) -> Result<(), PortError> {
        queues_of(&self.name, self.queues, workers).map(drop)
    }

    pub(super) fn open(
        &self,
        workers: usize,
        _context: &OpenContext<'_>,
    ) -> Result<Vec<Box<dyn Port>>, PortError> {
        self.check(workers)?;
        Err(PortError::config(&self.name, "kind = \"af_xdp\" is not in this build"))
    }
}
