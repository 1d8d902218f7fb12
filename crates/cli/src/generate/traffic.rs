//! `gen traffic`: captures of made-up packets, and captures with destinations that a table routes.

use crate::addresses::TableAddresses;
use crate::progress::Progress;
use crate::tables::{LoadArgs, TableArgs, check_input};
use crate::usage;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use tidemill_burst::{Burst, Memory};
use tidemill_port::capture::{Sense, Writer};
use tidemill_port::generator::{AddressSource, PublicV4};
use tidemill_port::rng::Rng;
use tidemill_port::spec::{Destinations, GeneratorSpec, Mix, SizesName, SizesSpec};
use tidemill_port::{OpenContext, PcapPort, Playback, Port, PortError, PortSpec, Remap, RxStatus};

/// Arguments of `gen traffic`.
#[derive(Args)]
#[command(after_help = "Patterns:\n  \
    random         UDP to random public addresses\n  \
    prefix         UDP to random addresses inside the table's prefixes\n  \
    zipf           UDP, destinations by Zipf's law\n  \
    syn-flood      minimum-size SYNs from random sources to few victims\n  \
    amplification  large answers of DNS, NTP, memcached, CLDAP and SSDP to few victims\n  \
    icmp           a flood of large echo requests to few victims\n  \
    fragments      fragments that never become whole datagrams, to few victims\n  \
    mix            UDP, TCP and echo requests, and a tenth of each attack\n\n\
    Examples:\n  tidemill gen traffic --pattern prefix --table rib.zst --sizes imix -o imix.pcap.zst\n  \
    tidemill gen traffic --pattern syn-flood --packets 100000 -o flood.pcapng\n  \
    tidemill gen traffic --remap-of capture.pcap --table rib.zst -o routed.pcap")]
pub(crate) struct GenTraffic {
    /// Routing table to take destinations from: MRT, text or CSV; plain, gz, xz or zst
    #[arg(long = "table", value_name = "FILE")]
    tables: Vec<PathBuf>,
    #[command(flatten)]
    load: LoadArgs,
    /// What to generate
    #[arg(long, value_enum, required_unless_present = "remap_of")]
    pattern: Option<Pattern>,
    /// Rewrite this capture instead: its packets get destinations that the table routes
    #[arg(long, value_name = "CAPTURE", requires = "tables", conflicts_with_all = ["pattern", "sizes", "pps"])]
    remap_of: Option<PathBuf>,
    /// Frame length with frame check sequence: a number, `rfc2544` (64 to 1518, evenly) or `imix` (64, 594, 1518 at 7 : 4 : 1)
    #[arg(long, value_name = "SIZES", default_value = "64", value_parser = parse_sizes)]
    sizes: SizesSpec,
    /// Packets
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    packets: u64,
    /// Victims of attacks
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    victims: u32,
    /// The same seed, the same packets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Packets per second, for the timestamps
    #[arg(long, value_name = "R", default_value_t = 1_000_000.0)]
    pps: f64,
    /// The capture to write: .pcap or .pcapng; compressed by a further .gz, .xz or .zst
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pattern {
    Random,
    Prefix,
    Zipf,
    SynFlood,
    Amplification,
    Icmp,
    Fragments,
    Mix,
}

/// When generated captures begin: 2026-01-01 00:00 UTC.
const START_NS: u64 = 1_767_225_600_000_000_000;
/// The largest frames that packet memory has: room for what receive offload merges, mostly.
const FRAME_SIZE: usize = 32 << 10;
/// Frames in flight: one burst, and what the port may hold.
const FRAMES: usize = 512;

impl Pattern {
    fn mix(self) -> Mix {
        let none = Mix::default();
        match self {
            Pattern::Random | Pattern::Prefix | Pattern::Zipf => Mix { udp: 1, ..none },
            Pattern::SynFlood => Mix { syn_flood: 1, ..none },
            Pattern::Amplification => Mix { amplification: 1, ..none },
            Pattern::Icmp => Mix { icmp_flood: 1, ..none },
            Pattern::Fragments => Mix { fragments: 1, ..none },
            Pattern::Mix => Mix {
                udp: 20,
                tcp: 35,
                icmp: 5,
                syn_flood: 10,
                amplification: 10,
                icmp_flood: 10,
                fragments: 10,
            },
        }
    }

    fn is_attack(self) -> bool {
        matches!(self, Pattern::SynFlood | Pattern::Amplification | Pattern::Icmp | Pattern::Fragments)
    }
}

fn parse_sizes(text: &str) -> Result<SizesSpec, String> {
    match text {
        "rfc2544" => Ok(SizesSpec::Named(SizesName::Rfc2544)),
        "imix" => Ok(SizesSpec::Named(SizesName::Imix)),
        number => match number.parse() {
            Ok(size) if (64..=9018).contains(&size) => Ok(SizesSpec::One(size)),
            _ => Err("give a frame length of 64 to 9018, rfc2544 or imix".into()),
        },
    }
}

pub(super) fn run(args: &GenTraffic) -> Result<bool> {
    check_output(&args.output)?;
    let addresses = if args.tables.is_empty() {
        None
    } else {
        let table = TableArgs { files: args.tables.clone(), load: args.load.clone() }.load()?;
        let addresses = TableAddresses::of(&table);
        if addresses.is_empty() {
            return Err(usage("--table: has no routes: give one that has"));
        }
        Some(addresses)
    };
    match (&args.remap_of, &addresses, args.pattern) {
        (Some(capture), Some(addresses), _) => remap(args, capture, addresses),
        (None, addresses, Some(pattern)) => make(args, pattern, addresses.as_ref()),
        _ => Err(usage("give --pattern, or --remap-of with --table")),
    }
}

fn check_output(output: &Path) -> Result<()> {
    let name = output.to_string_lossy();
    let stem = [".gz", ".xz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    if stem.ends_with(".pcap") || stem.ends_with(".pcapng") {
        return Ok(());
    }
    Err(usage(format!("{name}: end the name with .pcap or .pcapng, with or without .gz, .xz or .zst")))
}

/// Destinations of a pattern.
fn destinations(args: &GenTraffic, pattern: Pattern, table: Option<&TableAddresses>) -> Result<Destinations> {
    Ok(match pattern {
        pattern if pattern.is_attack() => {
            let mut rng = Rng::new(args.seed ^ 0x7663_7469_6d73);
            let mut source =
                table.map_or_else(|| Box::new(PublicV4) as Box<dyn AddressSource>, TableAddresses::source);
            Destinations::List((0..args.victims).map(|_| source.next(&mut rng)).collect::<Vec<IpAddr>>())
        }
        Pattern::Zipf => Destinations::Zipf,
        Pattern::Prefix if table.is_none() => return Err(usage("--pattern prefix: needs --table")),
        Pattern::Random => Destinations::Random,
        _ if table.is_some() => Destinations::Table,
        _ => Destinations::Random,
    })
}

fn make(args: &GenTraffic, pattern: Pattern, table: Option<&TableAddresses>) -> Result<bool> {
    if !(args.pps.is_finite() && args.pps > 0.0) {
        return Err(usage(format!("--pps {}: give a number above 0", args.pps)));
    }
    let spec = PortSpec::Generator(GeneratorSpec {
        name: "gen".into(),
        seed: args.seed,
        packets: Some(args.packets),
        rate_pps: Some(args.pps),
        sizes: args.sizes.clone(),
        mix: pattern.mix(),
        destinations: destinations(args, pattern, table)?,
        population: 100_000,
        exponent: 1.0,
        fault: None,
        tap: None,
    });
    let source = table.map(|table| || table.source());
    let context =
        OpenContext { base: Path::new(""), table: source.as_ref().map(|source| source as _), memory: &[] };
    let mut queues = spec.open(1, &context)?;
    let Some(port) = queues.pop() else { return Err(usage("--pattern: nothing to generate")) };
    let written = copy(port, args, "gen traffic")?;
    eprintln!("tidemill: {}: {written} packets", args.output.display());
    Ok(true)
}

fn remap(args: &GenTraffic, capture: &Path, table: &TableAddresses) -> Result<bool> {
    check_input(capture)?;
    if let (Ok(from), Ok(to)) = (capture.canonicalize(), args.output.canonicalize())
        && from == to
    {
        return Err(usage(format!("{}: is input and output: give another output", capture.display())));
    }
    let mut queues = PcapPort::open("capture", Some(&Playback::once(capture)), None, 1)?;
    let Some(port) = queues.pop() else { return Err(usage("--remap-of: nothing to read")) };
    let mut port = Remap::new(port, args.seed, table.choose());
    let written = copy(&mut Borrowed(&mut port), args, "remap")?;
    eprintln!(
        "tidemill: {}: {written} packets, {} of them with a new destination",
        args.output.display(),
        port.remapped()
    );
    let dropped: u64 = port.counters().rx.dropped.iter().map(|(_, count)| count).sum();
    if dropped > 0 {
        eprintln!(
            "tidemill: {}: {dropped} packets were left out: not whole Ethernet or IP frames",
            capture.display()
        );
    }
    Ok(true)
}

/// A port that stays its owner's.
struct Borrowed<'a, P>(&'a mut P);

/// Something that packets are received from.
trait Receive {
    fn rx(
        &mut self,
        now_ns: u64,
        pool: &mut tidemill_burst::Pool,
        burst: &mut Burst,
    ) -> Result<RxStatus, PortError>;
}

impl<P: Port> Receive for &mut Borrowed<'_, P> {
    fn rx(
        &mut self,
        now_ns: u64,
        pool: &mut tidemill_burst::Pool,
        burst: &mut Burst,
    ) -> Result<RxStatus, PortError> {
        self.0.rx(now_ns, pool, burst)
    }
}

impl Receive for Box<dyn Port> {
    fn rx(
        &mut self,
        now_ns: u64,
        pool: &mut tidemill_burst::Pool,
        burst: &mut Burst,
    ) -> Result<RxStatus, PortError> {
        Port::rx(self, now_ns, pool, burst)
    }
}

/// Receives until the port ends and writes every packet to the output, at its timestamp. Time is made up: it jumps to
/// when the next packet is due.
fn copy(mut port: impl Receive, args: &GenTraffic, what: &str) -> Result<u64> {
    let memory = Memory::new(FRAMES, FRAME_SIZE).context("packet memory")?;
    let mut pool = memory.pool(FRAMES).context("packet memory")?;
    let mut burst = Burst::new();
    let writer = Writer::create(&args.output)?;
    let progress = Progress::new(what, args.packets);
    let (mut now_ns, mut written) = (START_NS, 0);
    // Time for a burst's worth of packets, so that a call brings many.
    let stride_ns = (256.0 * 1e9 / args.pps).clamp(1.0, 1e12) as u64;
    while args.remap_of.is_none() || written < args.packets {
        match port.rx(now_ns, &mut pool, &mut burst)? {
            RxStatus::Ended => break,
            RxStatus::Idle { next_due_ns } => {
                now_ns = next_due_ns.unwrap_or(now_ns + stride_ns).max(now_ns + 1)
            }
            RxStatus::Received => now_ns += stride_ns,
        }
        let mut file = writer.lock();
        for packet in burst.iter() {
            file.write(packet.timestamp_ns(), Sense::Unknown, packet.data(), packet.wire_len())?;
        }
        drop(file);
        written += burst.len() as u64;
        progress.add(burst.len() as u64);
        pool.free_all(&mut burst);
    }
    writer.finish()?;
    Ok(written)
}
