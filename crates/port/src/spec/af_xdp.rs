//! Network interfaces through AF_XDP.

use super::{FaultSpec, OpenContext, Opened, queues_of};
use crate::{PortError, SpreadBy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

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
    /// and spreads flows over all. The interface must have as many, and it spreads packets over them: for a gatekeeper by addresses alone, if it is told
    /// to (`ethtool -N DEV rx-flow-hash udp4 sd`; `check` says what it takes).
    #[serde(default)]
    pub queues: Option<usize>,
    /// Where in the kernel packets are taken.
    #[serde(default)]
    pub mode: Mode,
    /// Frames that wait in each queue for packets to arrive: a power of two. They come out of the worker's memory.frames.
    #[serde(default = "ring")]
    pub rx_ring: usize,
    /// Packets that wait in each queue to be sent: a power of two.
    #[serde(default = "ring")]
    pub tx_ring: usize,
    /// The worker's calls do the driver's work, for so many microseconds each, instead of its interrupts; 0 is off.
    #[serde(default)]
    pub busy_poll_us: u32,
    /// What is left to the kernel of what is sent to addresses of this host and to groups, besides the kernel's own:
    /// `tcp/22`, `udp/3784` (as source or destination port), `proto/89`.
    #[serde(default)]
    pub leave: Vec<Leave>,
    /// Receive frames to any address, not only the interface's own, broadcasts and multicasts.
    #[serde(default)]
    pub promiscuous: bool,
    /// Faults to inject.
    #[serde(default)]
    pub fault: Option<FaultSpec>,
    /// A capture file to copy everything that passes into.
    #[serde(default)]
    pub tap: Option<PathBuf>,
    /// By what packets are spread over the queues: no configuration has it, a role may ask for it.
    #[serde(skip)]
    pub(super) spread_by: SpreadBy,
    /// A program that stands in front of the port's: no configuration has it, a role may put it there.
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    #[serde(skip)]
    pub(super) front: Option<std::sync::Arc<tidemill_bpf::Front>>,
}

/// Where in the kernel packets are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// Something that is left to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub enum Leave {
    /// An IP protocol, by its number.
    Protocol(u8),
    /// A source or destination port of one (TCP, UDP).
    Port(u8, u16),
}

impl FromStr for Leave {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("leave: {text:?}: give tcp/PORT, udp/PORT or proto/NUMBER, as in \"tcp/22\"");
        let (kind, number) = text.split_once('/').ok_or_else(bad)?;
        let port =
            |protocol| number.parse().ok().filter(|port| *port > 0).map(|port| Leave::Port(protocol, port));
        let leave = match kind {
            "tcp" => port(6),
            "udp" => port(17),
            "proto" => number.parse().ok().map(Leave::Protocol),
            _ => None,
        };
        leave.ok_or_else(bad)
    }
}

impl TryFrom<String> for Leave {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl AfXdpSpec {
    /// The kernel's name of the interface.
    pub fn interface(&self) -> &str {
        self.interface.as_deref().unwrap_or(&self.name)
    }

    #[cfg(all(feature = "xdp", target_os = "linux"))]
    fn options(&self, workers: usize) -> Result<(usize, crate::xdp::Options), PortError> {
        let queues = queues_of(&self.name, self.queues, workers)?;
        let options = crate::xdp::Options {
            mode: self.mode,
            rx_ring: self.rx_ring,
            tx_ring: self.tx_ring,
            busy_poll_us: self.busy_poll_us,
            leave: self.leave.clone(),
            promiscuous: self.promiscuous,
            share: true,
            spread_by: self.spread_by,
            front: self.front.clone(),
        };
        crate::xdp::check(&self.name, queues, &options)?;
        Ok((queues, options))
    }

    #[cfg(all(feature = "xdp", target_os = "linux"))]
    pub(super) fn check(&self, workers: usize) -> Result<(), PortError> {
        self.options(workers).map(drop)
    }

    /// `held`: what the receive rings of the ports before it hold of each worker's frames; its own are added.
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    pub(super) fn check_memory(
        &self,
        frames: &[usize],
        frame_size: usize,
        held: &mut [usize],
    ) -> Result<(), PortError> {
        let (queues, options) = self.options(frames.len())?;
        let held = held.get_mut(..queues).unwrap_or_default();
        crate::xdp::check_frames(&self.name, &options, frames, frame_size, held)
    }

    #[cfg(not(all(feature = "xdp", target_os = "linux")))]
    pub(super) fn check_memory(&self, frames: &[usize], _: usize, _: &mut [usize]) -> Result<(), PortError> {
        self.check(frames.len())
    }

    #[cfg(all(feature = "xdp", target_os = "linux"))]
    pub(super) fn open(&self, workers: usize, context: &OpenContext<'_>) -> Result<Opened, PortError> {
        let (queues, options) = self.options(workers)?;
        let open = crate::xdp::open(&self.name, self.interface(), queues, &options, context.memory)?;
        Ok(Opened { queues: super::boxed(open.queues), notes: open.notes, rule: Some(open.rule) })
    }

    /// What to know of the interface as it is now.
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    pub(super) fn remarks(&self, workers: usize) -> Vec<String> {
        let queues = self.queues.unwrap_or(workers);
        crate::xdp::remark(&self.name, self.interface(), queues, self.spread_by).into_iter().collect()
    }

    #[cfg(not(all(feature = "xdp", target_os = "linux")))]
    pub(super) fn remarks(&self, _workers: usize) -> Vec<String> {
        Vec::new()
    }

    #[cfg(not(all(feature = "xdp", target_os = "linux")))]
    pub(super) fn check(&self, workers: usize) -> Result<(), PortError> {
        queues_of(&self.name, self.queues, workers)?;
        let what = if cfg!(target_os = "linux") {
            "kind = \"af_xdp\" is not in this build: cargo build --release --features xdp"
        } else {
            "kind = \"af_xdp\" needs Linux"
        };
        Err(PortError::config(&self.name, what))
    }

    #[cfg(not(all(feature = "xdp", target_os = "linux")))]
    pub(super) fn open(&self, workers: usize, _context: &OpenContext<'_>) -> Result<Opened, PortError> {
        self.check(workers).map(|()| Opened::default())
    }
}

fn ring() -> usize {
    2048
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_said_in_words() {
        assert_eq!("tcp/22".parse(), Ok(Leave::Port(6, 22)));
        assert_eq!("udp/3784".parse(), Ok(Leave::Port(17, 3784)));
        assert_eq!("proto/89".parse(), Ok(Leave::Protocol(89)));
        for wrong in ["", "tcp", "tcp/", "tcp/0", "tcp/65536", "proto/256", "proto/-1", "sctp/22", "22/tcp"] {
            let error = wrong.parse::<Leave>().unwrap_err();
            assert!(error.contains("tcp/PORT") && error.contains(&format!("{wrong:?}")), "{error}");
        }
    }
}
