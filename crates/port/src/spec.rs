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

use crate::capture::Writer;
use crate::generator::{
    AddressSource, GeneratorPort, Kind, PublicV4, PublicV6, RFC_2544, Sizes, Traffic, Zipf,
};
use crate::rng::{Rng, mix};
use crate::{
    Fault, Faults, NullPort, Pace, PcapPort, Playback, Port, PortError, Spreading, Supply, Tap, spread,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
}

/// Receives from one capture file and sends into another.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PcapSpec {
    /// The port's name.
    pub name: String,
    /// The file to receive from: pcap or pcapng, plain or compressed (gz, xz, zst).
    #[serde(default)]
    pub input: Option<PathBuf>,
    /// The file to send into: pcapng by that ending, else pcap; compressed by a further `.gz`, `.xz`, `.zst`.
    #[serde(default)]
    pub output: Option<PathBuf>,
    /// How often the input is played; 0 is for ever.
    #[serde(default = "one")]
    pub repeat: u64,
    /// `flat` (as fast as possible) or `time` (at the capture's pace).
    #[serde(default)]
    pub pace: PaceSpec,
    /// With `pace = "time"`: how many times as fast.
    #[serde(default = "one_f64")]
    pub speed: f64,
    /// The most packets to receive.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Read the whole input into memory first.
    #[serde(default)]
    pub preload: bool,
    /// Faults to inject.
    #[serde(default)]
    pub fault: Option<FaultSpec>,
    /// A capture file to copy everything that passes into.
    #[serde(default)]
    pub tap: Option<PathBuf>,
}

/// When packets of a capture are received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PaceSpec {
    /// As fast as possible.
    #[default]
    Flat,
    /// At the capture's pace.
    Time,
}

/// Gives ready-made UDP packets as fast as possible, and swallows what it is sent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NullSpec {
    /// The port's name.
    pub name: String,
    /// Whether packets are received at all.
    #[serde(default = "yes")]
    pub receive: bool,
    /// Frame length, with the frame check sequence.
    #[serde(default = "shortest")]
    pub size: usize,
    /// Where the destinations come from.
    #[serde(default)]
    pub destinations: Destinations,
    /// How many different destinations are made before the start, and then used in turn.
    #[serde(default = "null_population")]
    pub population: usize,
    /// Seed of the destinations.
    #[serde(default = "one")]
    pub seed: u64,
    /// The most packets to receive.
    #[serde(default)]
    pub packets: Option<u64>,
    /// Faults to inject.
    #[serde(default)]
    pub fault: Option<FaultSpec>,
    /// A capture file to copy everything that passes into.
    #[serde(default)]
    pub tap: Option<PathBuf>,
}

/// Makes up traffic, and swallows what it is sent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratorSpec {
    /// The port's name.
    pub name: String,
    /// Decides everything.
    #[serde(default = "one")]
    pub seed: u64,
    /// The most packets to receive.
    #[serde(default)]
    pub packets: Option<u64>,
    /// Packets per second, over all queues; without it, as fast as possible.
    #[serde(default)]
    pub rate_pps: Option<f64>,
    /// A frame length (with the frame check sequence), a list of them, `rfc2544` or `imix`.
    #[serde(default)]
    pub sizes: SizesSpec,
    /// The kinds of traffic with their weights.
    #[serde(default = "udp_only")]
    pub mix: Mix,
    /// Where the destinations come from.
    #[serde(default)]
    pub destinations: Destinations,
    /// With `zipf`: how many destinations there are.
    #[serde(default = "zipf_population")]
    pub population: usize,
    /// With `zipf`: the exponent.
    #[serde(default = "one_f64")]
    pub exponent: f64,
    /// Faults to inject.
    #[serde(default)]
    pub fault: Option<FaultSpec>,
    /// A capture file to copy everything that passes into.
    #[serde(default)]
    pub tap: Option<PathBuf>,
}

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
    /// first worker reads the interface and spreads flows over all.
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
}

/// How frames are received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// One by one (TPACKET_V2): each is seen at once.
    #[default]
    Slots,
    /// In blocks of 128 KiB (TPACKET_V3): seen within some milliseconds; short packets take less room, so that the ring
    /// outlasts longer pauses.
    Blocks,
}

/// How many packets of each [`Kind`], in proportion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Mix {
    /// UDP.
    pub udp: u32,
    /// TCP.
    pub tcp: u32,
    /// Echo requests.
    pub icmp: u32,
    /// SYN flood on one service.
    pub syn_flood: u32,
    /// Reflected and amplified UDP.
    pub amplification: u32,
    /// Flood of large echo requests.
    pub icmp_flood: u32,
    /// Fragments that never become whole.
    pub fragments: u32,
}

impl Mix {
    fn weights(&self) -> Vec<(Kind, u32)> {
        let Mix { udp, tcp, icmp, syn_flood, amplification, icmp_flood, fragments } = *self;
        vec![
            (Kind::Udp, udp),
            (Kind::Tcp, tcp),
            (Kind::Icmp, icmp),
            (Kind::SynFlood, syn_flood),
            (Kind::Amplification, amplification),
            (Kind::IcmpFlood, icmp_flood),
            (Kind::Fragments, fragments),
        ]
    }
}

/// Where destinations come from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Destinations {
    /// Random public IPv4 addresses.
    #[default]
    Random,
    /// Random public IPv6 addresses.
    RandomV6,
    /// Addresses inside the prefixes of the table that the run uses.
    Table,
    /// A population of random IPv4 addresses (of the table's, where there is one) by Zipf's law.
    Zipf,
    /// These addresses.
    List(Vec<IpAddr>),
}

/// Frame lengths.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SizesSpec {
    /// All the same.
    One(usize),
    /// Evenly from a list.
    List(Vec<usize>),
    /// By name.
    Named(SizesName),
}

/// Names for frame lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SizesName {
    /// 64, 128, 256, 512, 1024, 1280, 1518, evenly.
    Rfc2544,
    /// 64, 594, 1518 at 7 : 4 : 1.
    Imix,
}

impl Default for SizesSpec {
    fn default() -> Self {
        SizesSpec::One(shortest())
    }
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

fn null_population() -> usize {
    1 << 16
}

fn zipf_population() -> usize {
    100_000
}

fn rx_ring_kib() -> usize {
    8192
}

fn tx_ring_packets() -> usize {
    1024
}

fn udp_only() -> Mix {
    Mix { udp: 1, ..Mix::default() }
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
}

impl PortSpec {
    /// The port's name.
    pub fn name(&self) -> &str {
        match self {
            PortSpec::Pcap(spec) => &spec.name,
            PortSpec::Null(spec) => &spec.name,
            PortSpec::Generator(spec) => &spec.name,
            PortSpec::AfPacket(spec) => &spec.name,
        }
    }

    /// Finds what is wrong with the port's parameters without opening it.
    ///
    /// # Errors
    /// What [`open`](Self::open) would say of them.
    pub fn check(&self, workers: usize) -> Result<(), PortError> {
        let fault = match self {
            PortSpec::Pcap(spec) => spec.fault,
            PortSpec::Null(spec) => spec.fault,
            PortSpec::Generator(spec) => spec.fault,
            PortSpec::AfPacket(spec) => spec.fault,
        };
        if let Some(fault) = fault {
            fault.rx.check(self.name())?;
            fault.tx.check(self.name())?;
        }
        match self {
            #[cfg(target_os = "linux")]
            PortSpec::AfPacket(spec) => spec.options(workers).map(drop),
            _ => Ok(()),
        }
    }

    /// Opens the port with one queue for each of `queues` workers. Together the queues receive what one would: a capture's
    /// flows are shared out by addresses, a generator's packets and rate are divided.
    pub fn open(&self, queues: usize, context: &OpenContext<'_>) -> Result<Vec<Box<dyn Port>>, PortError> {
        match self {
            PortSpec::Pcap(spec) => {
                let ports = spec.open(queues, context)?;
                wrap(ports, spec.fault, spec.tap.as_deref(), context)
            }
            PortSpec::Null(spec) => {
                let ports = spec.open(queues, context)?;
                wrap(ports, spec.fault, spec.tap.as_deref(), context)
            }
            PortSpec::Generator(spec) => {
                let ports = spec.open(queues, context)?;
                wrap(ports, spec.fault, spec.tap.as_deref(), context)
            }
            PortSpec::AfPacket(spec) => {
                let ports = wrap(spec.open(queues)?, spec.fault, spec.tap.as_deref(), context)?;
                Ok(match <[_; 1]>::try_from(ports) {
                    Ok([port]) => spread(port, queues, Spreading::default()),
                    Err(ports) => ports,
                })
            }
        }
    }
}

/// Faults hit what comes from outside before the tap sees it, and what goes outside after the tap has seen it: the tap
/// shows what the graph saw.
fn wrap<P: Port + 'static>(
    ports: Vec<P>,
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
            None => Box::new(port),
        };
        Ok(match &writer {
            Some(writer) => Box::new(Tap::new(port, writer.clone())) as Box<dyn Port>,
            None => port,
        })
    });
    wrapped.collect()
}

/// This queue's part of a total.
fn share(total: u64, queue: usize, queues: usize) -> u64 {
    let (queue, queues) = (queue as u64, queues as u64);
    total / queues + u64::from(queue < total % queues)
}

impl PcapSpec {
    fn open(&self, queues: usize, context: &OpenContext<'_>) -> Result<Vec<PcapPort>, PortError> {
        if self.input.is_none() && self.output.is_none() {
            return Err(PortError::config(&self.name, "a pcap port needs an input, an output or both"));
        }
        let input = self.input.as_ref().map(|input| Playback {
            input: context.base.join(input),
            repeat: self.repeat,
            pace: match self.pace {
                PaceSpec::Flat => Pace::Flat,
                PaceSpec::Time => Pace::Time { speed: self.speed },
            },
            limit: self.limit,
            preload: self.preload,
        });
        let output = self.output.as_ref().map(|output| context.base.join(output));
        if let (Some(input), Some(output)) = (&input, &output)
            && same_file(&input.input, output)
        {
            return Err(PortError::config(&self.name, "input and output are the same file"));
        }
        PcapPort::open(&self.name, input.as_ref(), output.as_deref(), queues)
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

impl NullSpec {
    fn open(&self, queues: usize, context: &OpenContext<'_>) -> Result<Vec<NullPort>, PortError> {
        if !(64..=9018).contains(&self.size) {
            return Err(PortError::config(&self.name, format!("size = {} (64 to 9018)", self.size)));
        }
        check_population(&self.name, self.population)?;
        let supply = if self.receive {
            let mut rng = Rng::new(self.seed);
            let addresses: Arc<[IpAddr]> = match &self.destinations {
                Destinations::List(list) => list.as_slice().into(),
                pattern => {
                    let mut source = pattern.source(&self.name, context, self.population, 1.0, self.seed)?;
                    (0..self.population).map(|_| source.next(&mut rng)).collect()
                }
            };
            if addresses.is_empty() {
                return Err(PortError::config(&self.name, "destinations or population is empty"));
            }
            Supply::Destinations { frame_len: self.size, addresses }
        } else {
            Supply::Nothing
        };
        let port = |queue| {
            let limit = self.packets.map(|n| share(n, queue, queues));
            NullPort::new(&self.name, supply.clone(), queue * self.population / queues.max(1), limit)
        };
        Ok((0..queues).map(port).collect())
    }
}

/// Addresses are kept in memory: 16 million of them are 256 MB.
fn check_population(port: &str, population: usize) -> Result<(), PortError> {
    if population <= 1 << 24 {
        return Ok(());
    }
    Err(PortError::config(port, format!("population = {population}: give 1 to {}", 1 << 24)))
}

impl GeneratorSpec {
    fn open(&self, queues: usize, context: &OpenContext<'_>) -> Result<Vec<GeneratorPort>, PortError> {
        check_population(&self.name, self.population)?;
        let sizes = match &self.sizes {
            SizesSpec::One(len) => Sizes::Even(vec![*len]),
            SizesSpec::List(lens) => Sizes::Even(lens.clone()),
            SizesSpec::Named(SizesName::Rfc2544) => Sizes::Even(RFC_2544.to_vec()),
            SizesSpec::Named(SizesName::Imix) => Sizes::Imix,
        };
        let port = |queue: usize| {
            let destinations =
                self.destinations.source(&self.name, context, self.population, self.exponent, self.seed)?;
            let traffic = Traffic {
                seed: if queue == 0 { self.seed } else { mix(self.seed) ^ mix(queue as u64) },
                limit: self.packets.map(|n| share(n, queue, queues)),
                rate_pps: self.rate_pps.map(|rate| rate / queues as f64),
                sizes: sizes.clone(),
                mix: self.mix.weights(),
                sources: Box::new(PublicV4),
                destinations,
            };
            GeneratorPort::new(&self.name, traffic)
        };
        (0..queues).map(port).collect()
    }
}

impl AfPacketSpec {
    /// The kernel's name of the interface.
    pub fn interface(&self) -> &str {
        self.interface.as_deref().unwrap_or(&self.name)
    }

    /// How many queues there are to be, and how.
    #[cfg(target_os = "linux")]
    fn options(&self, workers: usize) -> Result<(usize, crate::packet::Options), PortError> {
        let queues = self.queues.unwrap_or(workers);
        if queues != workers && queues != 1 {
            let what = match workers {
                1 => format!("queues = {queues} with one worker: give 1, or leave it out"),
                _ => format!("queues = {queues} with {workers} workers: give 1 or {workers}"),
            };
            return Err(PortError::config(&self.name, what));
        }
        let options = crate::packet::Options {
            receive: self.receive,
            rx_ring_kib: self.rx_ring_kib,
            tx_ring_packets: self.tx_ring_packets,
            promiscuous: self.promiscuous,
            qdisc: self.qdisc,
        };
        crate::packet::check(&self.name, queues, &options)?;
        Ok((queues, options))
    }

    #[cfg(target_os = "linux")]
    fn open(&self, workers: usize) -> Result<Vec<crate::PacketPort>, PortError> {
        let (queues, options) = self.options(workers)?;
        crate::packet::open(&self.name, self.interface(), queues, &options)
    }

    #[cfg(not(target_os = "linux"))]
    fn open(&self, _workers: usize) -> Result<Vec<NullPort>, PortError> {
        Err(PortError::config(&self.name, "kind = \"af_packet\" needs Linux"))
    }
}

impl Destinations {
    fn source(
        &self,
        port: &str,
        context: &OpenContext<'_>,
        population: usize,
        exponent: f64,
        seed: u64,
    ) -> Result<Box<dyn AddressSource>, PortError> {
        let from_table = || match context.table {
            Some(table) => Ok(table()),
            None => Err(PortError::config(port, "destinations = \"table\", and this run has no table")),
        };
        Ok(match self {
            Destinations::Random => Box::new(PublicV4),
            Destinations::RandomV6 => Box::new(PublicV6),
            Destinations::Table => from_table()?,
            Destinations::Zipf => {
                let mut rng = Rng::new(mix(seed));
                let mut of = context.table.map_or_else(|| Box::new(PublicV4) as _, |table| table());
                let addresses: Vec<IpAddr> = (0..population).map(|_| of.next(&mut rng)).collect();
                let zipf = Zipf::new(addresses, exponent);
                let bad = || PortError::config(port, "zipf needs a population and an exponent from 0");
                Box::new(zipf.ok_or_else(bad)?)
            }
            Destinations::List(list) => {
                let uniform = crate::generator::Uniform::new(list.as_slice());
                Box::new(uniform.ok_or_else(|| PortError::config(port, "destinations is an empty list"))?)
            }
        })
    }
}
