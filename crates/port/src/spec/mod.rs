//! Ports as a configuration describes them.
//!
//! ```toml
//! [[port]]
//! name = "a"
//! kind = "pcap"
//! input = "in.pcapng.zst"
//! output = "out.pcap"
//!
//! [[port]]
//! name = "b"
//! kind = "generator"
//! packets = 1000000
//! sizes = "imix"
//! mix = { udp = 3, syn-flood = 1 }
//! fault = { seed = 7, rx = { loss = 0.01 } }
//! tap = "b.pcapng"
//! ```

mod af_packet;
mod af_xdp;
mod destinations;
mod dpdk;
mod generator;
mod null;
mod pcap;

pub use af_packet::{AfPacketSpec, Receive};
pub use af_xdp::{AfXdpSpec, Leave, Mode};
pub use destinations::Destinations;
#[cfg(feature = "dpdk")]
pub(crate) use dpdk::{AROUND, attaches_buffers, no_buffers, pci_address, room};
pub use dpdk::{DpdkSection, DpdkSpec, Station};
pub use generator::{GeneratorSpec, Mix, SizesName, SizesSpec};
pub use null::NullSpec;
pub use pcap::{PaceSpec, PcapSpec};

use crate::capture::Writer;
use crate::generator::AddressSource;
use crate::rng::mix;
use crate::rule::{Ownership, Rule};
use crate::spread::secret;
use crate::{Fault, Faults, Port, PortError, SpreadBy, Spreading, Tap, spread};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use tidemill_burst::Memory;

/// One port of a configuration. Relative paths are relative to the configuration's folder.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PortSpec {
    /// Capture files.
    Pcap(PcapSpec),
    /// An endless source and a sink, for benchmarks.
    Null(NullSpec),
    /// Made-up traffic.
    Generator(GeneratorSpec),
    /// A network interface (Linux).
    AfPacket(AfPacketSpec),
    /// A network interface whose driver hands packets over before the kernel's stack sees them (Linux; feature `xdp`).
    AfXdp(AfXdpSpec),
    /// A device of DPDK's (feature `dpdk`).
    Dpdk(DpdkSpec),
}

/// Faults of both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSpec {
    /// Decides which packets are hit.
    pub seed: u64,
    /// On the way in.
    pub rx: Faults,
    /// On the way out.
    pub tx: Faults,
}

/// Makes a source of destinations inside a table's prefixes.
pub type TableAddresses<'a> = &'a dyn Fn() -> Box<dyn AddressSource>;

/// What opening a port needs from its surroundings.
#[derive(Clone, Copy)]
pub struct OpenContext<'a> {
    /// The folder that relative paths start from.
    pub base: &'a Path,
    /// Addresses inside the prefixes of the run's table, if it has one.
    pub table: Option<TableAddresses<'a>>,
    /// The packet memory of each worker, which devices write into and read from. Ports that are no devices need none.
    pub memory: &'a [Arc<Memory>],
}

/// Evaluates an expression with the parameters of any kind as `$spec`.
macro_rules! any {
    ($port:expr, $spec:ident => $value:expr) => {
        match $port {
            PortSpec::Pcap($spec) => $value,
            PortSpec::Null($spec) => $value,
            PortSpec::Generator($spec) => $value,
            PortSpec::AfPacket($spec) => $value,
            PortSpec::AfXdp($spec) => $value,
            PortSpec::Dpdk($spec) => $value,
        }
    };
}

impl PortSpec {
    /// The port's name.
    pub fn name(&self) -> &str {
        any!(self, spec => &spec.name)
    }

    /// The kind's name in a configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            PortSpec::Pcap(_) => "pcap",
            PortSpec::Null(_) => "null",
            PortSpec::Generator(_) => "generator",
            PortSpec::AfPacket(_) => "af_packet",
            PortSpec::AfXdp(_) => "af_xdp",
            PortSpec::Dpdk(_) => "dpdk",
        }
    }

    /// The kernel's name of the network interface that this port is on, if it is on one.
    pub fn interface(&self) -> Option<&str> {
        match self {
            PortSpec::AfPacket(spec) => Some(spec.interface()),
            PortSpec::AfXdp(spec) => Some(spec.interface()),
            _ => None,
        }
    }

    /// DPDK's name of the device that this port is on, if it is on one: a PCI address in full, whatever the configuration has.
    pub fn device(&self) -> Option<String> {
        match self {
            PortSpec::Dpdk(spec) => Some(spec.device_name()),
            _ => None,
        }
    }

    /// What the port's device is called on the wire, if it is open and none of the kernel's.
    pub fn station(&self) -> Option<Station> {
        match self {
            PortSpec::Dpdk(spec) => spec.station(),
            _ => None,
        }
    }

    /// Has a program stand on the interface in front of the port's own, from when the port is opened; false for a port
    /// that has none there: then whoever has the program attaches it.
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    pub fn set_front(&mut self, front: std::sync::Arc<tidemill_bpf::Front>) -> bool {
        let PortSpec::AfXdp(spec) = self else { return false };
        spec.front = Some(front);
        true
    }

    /// Whether the kernel's stack gets a copy of all that the port receives, and would act on it as well.
    pub fn is_copied_to_kernel(&self) -> bool {
        matches!(self, PortSpec::AfPacket(_))
    }

    /// The capture file to copy everything that passes into.
    pub fn tap(&self) -> Option<&Path> {
        any!(self, spec => spec.tap.as_deref())
    }

    /// Whether faults are injected.
    pub fn is_faulty(&self) -> bool {
        any!(self, spec => spec.fault.is_some())
    }

    /// Whether anything is received.
    pub fn receives(&self) -> bool {
        match self {
            PortSpec::Pcap(spec) => spec.input.is_some(),
            PortSpec::Null(spec) => spec.receive,
            _ => true,
        }
    }

    /// Receives `packets` at most, all queues together, or what was said before if that is less. Returns false for a device, which gives what comes: it has no limit.
    #[must_use]
    pub fn limit(&mut self, packets: u64) -> bool {
        let limit = match self {
            PortSpec::Pcap(spec) => &mut spec.limit,
            PortSpec::Null(spec) => &mut spec.packets,
            PortSpec::Generator(spec) => &mut spec.packets,
            PortSpec::AfPacket(_) | PortSpec::AfXdp(_) | PortSpec::Dpdk(_) => return false,
        };
        *limit = Some(limit.map_or(packets, |n| n.min(packets)));
        true
    }

    /// Receives every frame that there is, whomever it is for, as a bridge has to.
    pub fn see_everything(&mut self) {
        match self {
            PortSpec::AfPacket(spec) => spec.promiscuous = true,
            PortSpec::AfXdp(spec) => spec.promiscuous = true,
            PortSpec::Dpdk(spec) => spec.promiscuous = true,
            PortSpec::Pcap(_) | PortSpec::Null(_) | PortSpec::Generator(_) => {}
        }
    }

    /// Has packets spread over the queues by this. A capture's always go by their addresses, and what is made up by its number.
    pub fn spread_by(&mut self, by: SpreadBy) {
        match self {
            PortSpec::AfPacket(spec) => spec.spread_by = by,
            PortSpec::AfXdp(spec) => spec.spread_by = by,
            PortSpec::Dpdk(spec) => spec.spread_by = by,
            PortSpec::Pcap(_) | PortSpec::Null(_) | PortSpec::Generator(_) => {}
        }
    }

    /// By what packets are to be spread over the queues.
    fn spreads_by(&self) -> SpreadBy {
        match self {
            PortSpec::AfPacket(spec) => spec.spread_by,
            PortSpec::AfXdp(spec) => spec.spread_by,
            PortSpec::Dpdk(spec) => spec.spread_by,
            PortSpec::Pcap(_) | PortSpec::Null(_) | PortSpec::Generator(_) => SpreadBy::default(),
        }
    }

    /// Finds what is wrong with the port's parameters without opening it, nor any file. `table`: whether the run has one.
    ///
    /// # Errors
    /// What [`open`](Self::open) would say of them.
    pub fn check(&self, workers: usize, table: bool) -> Result<(), PortError> {
        if let Some(fault) = any!(self, spec => spec.fault) {
            fault.rx.check(self.name())?;
            fault.tx.check(self.name())?;
        }
        match self {
            PortSpec::Pcap(spec) => spec.check(),
            PortSpec::Null(spec) => spec.check(table),
            PortSpec::Generator(spec) => spec.check(workers, table),
            PortSpec::AfPacket(spec) => spec.check(workers),
            PortSpec::AfXdp(spec) => spec.check(workers),
            PortSpec::Dpdk(spec) => spec.check(workers),
        }
    }

    /// What the operator should know of the port's device as it is now, a line each. Whoever opens it finds this among the notes.
    pub fn remarks(&self, workers: usize) -> Vec<String> {
        match self {
            PortSpec::AfXdp(spec) => spec.remarks(workers),
            _ => Vec::new(),
        }
    }

    /// Opens the port with one queue for each of `queues` workers. Together the queues receive what one would: a capture's
    /// flows are shared out by addresses, a generator's packets and rate are divided. A device that has a single queue is
    /// read by the first worker, which spreads flows over all. Nothing that arrives is left to the kernel, unless the
    /// port's own parameters say so.
    pub fn open(&self, queues: usize, context: &OpenContext<'_>) -> Result<Vec<Box<dyn Port>>, PortError> {
        let open = self.open_beside_kernel(queues, context)?;
        if let Some(rule) = &open.rule {
            rule.set(&Ownership::default())?;
        }
        Ok(open.queues)
    }

    /// As [`open`](Self::open), for somebody who goes on to tell the port's rule what is the kernel's. A port with such a
    /// rule receives nothing before.
    pub fn open_beside_kernel(&self, queues: usize, context: &OpenContext<'_>) -> Result<Opened, PortError> {
        let quiet = |queues| Opened { queues, ..Opened::default() };
        let (open, device) = match self {
            PortSpec::Pcap(spec) => (quiet(boxed(spec.open(queues, context)?)), false),
            PortSpec::Null(spec) => (quiet(boxed(spec.open(queues, context)?)), false),
            PortSpec::Generator(spec) => (quiet(boxed(spec.open(queues, context)?)), false),
            PortSpec::AfPacket(spec) => (quiet(boxed(spec.open(queues)?)), true),
            PortSpec::AfXdp(spec) => (spec.open(queues, context)?, true),
            PortSpec::Dpdk(spec) => (spec.open(queues, context)?, true),
        };
        let (fault, tap) = any!(self, spec => (spec.fault, spec.tap.as_deref()));
        let ports = wrap(open.queues, fault, tap, context)?;
        let queues = match <[_; 1]>::try_from(ports) {
            Ok([port]) if device => {
                let spreading = Spreading { seed: secret(), by: self.spreads_by(), ..Spreading::default() };
                spread(port, queues, spreading)
            }
            Ok(port) => port.into(),
            Err(ports) => ports,
        };
        Ok(Opened { queues, ..open })
    }
}

/// Finds what of the ports does not fit the workers' packet memory, without opening any: worker w is to have `frames[w]` frames of `frame_size` bytes.
///
/// # Errors
/// What [`open`](PortSpec::open) would say of it, with the ports opened in their order.
pub fn check_memory(ports: &[PortSpec], frames: &[usize], frame_size: usize) -> Result<(), PortError> {
    let mut held = vec![0; frames.len()];
    ports.iter().try_for_each(|port| match port {
        PortSpec::AfXdp(spec) => spec.check_memory(frames, frame_size, &mut held),
        PortSpec::Dpdk(spec) => spec.check_memory(frame_size),
        _ => Ok(()),
    })
}

/// A port that is open.
#[derive(Default)]
pub struct Opened {
    /// A queue for each worker.
    pub queues: Vec<Box<dyn Port>>,
    /// A line or more for the operator: how it was opened, what to set otherwise.
    pub notes: Vec<String>,
    /// What decides between us and the kernel, if the port takes packets away from that.
    pub rule: Option<Arc<dyn Rule>>,
}

fn boxed<P: Port + 'static>(ports: Vec<P>) -> Vec<Box<dyn Port>> {
    ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect()
}

/// Faults hit what comes from outside before the tap sees it, and what goes outside after the tap has seen it: the tap
/// shows what the graph saw.
fn wrap(
    ports: Vec<Box<dyn Port>>,
    fault: Option<FaultSpec>,
    tap: Option<&Path>,
    context: &OpenContext<'_>,
) -> Result<Vec<Box<dyn Port>>, PortError> {
    let writer = tap.map(|path| Writer::create(&context.base.join(path))).transpose()?;
    let wrapped = ports.into_iter().enumerate().map(|(queue, port)| {
        let port: Box<dyn Port> = match fault {
            Some(fault) => {
                Box::new(Fault::new(port, fault.rx, fault.tx, mix(fault.seed) ^ mix(queue as u64))?)
            }
            None => port,
        };
        Ok(match &writer {
            Some(writer) => Box::new(Tap::new(port, writer.clone())) as Box<dyn Port>,
            None => port,
        })
    });
    wrapped.collect()
}

/// Checks how many queues a device is to have: one for each worker, or one that is read by the first.
fn queues_of(port: &str, queues: Option<usize>, workers: usize) -> Result<usize, PortError> {
    let queues = queues.unwrap_or(workers);
    if queues == workers || queues == 1 {
        return Ok(queues);
    }
    let what = match workers {
        1 => format!("queues = {queues} with one worker: give 1, or leave it out"),
        _ => format!("queues = {queues} with {workers} workers: give 1 or {workers}"),
    };
    Err(PortError::config(port, what))
}

/// This queue's part of a total.
fn share(total: u64, queue: usize, queues: usize) -> u64 {
    let (queue, queues) = (queue as u64, queues as u64);
    total / queues + u64::from(queue < total % queues)
}

fn one() -> u64 {
    1
}

fn one_f64() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn shortest() -> usize {
    64
}
