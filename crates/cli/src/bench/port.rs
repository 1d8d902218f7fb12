//! `bench port`: what the engine costs without a network.
//!
//! `null`: packets from a null port straight back into one, and, with a table, through the whole router on the way.
//! `pcap`: reading a capture (decoding it on the way, and from memory), and writing one.
//! `wire`: by our router on AF_XDP, and by the kernel, between two virtual cables ([`wire`](super::wire)).
//! `dpdk`: between two of DPDK's net_null devices, as forwarders written on DPDK do ([`forward`](super::forward)).

use super::ends::warn_unbound;
use super::forward::Forwarded;
use super::report::Report;
use crate::addresses::TableAddresses;
use crate::json::{Measurement, Params, Ratio};
use crate::progress::Progress;
use crate::tables::{LoadArgs, TableArgs};
use crate::usage;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_burst::{Burst, Memory, Packet};
use tidemill_feed::LoadedTable;
use tidemill_graph::{Clock, Context, Engine, Graph, GraphBuilder, Limits, Node, Options, Outcome, Verdict};
use tidemill_ip::martian;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::Address;
use tidemill_port::capture::{Sense, Writer};
use tidemill_port::generator::{AddressSource, PublicV4};
use tidemill_port::rng::Rng;
use tidemill_port::{NullPort, PcapPort, Playback, Port, RxStatus, Supply};
use tidemill_router::{LookupStats, PortInfo, RouterConfig, RouterControl, Routes};

/// Arguments of `bench port`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tidemill bench port null --table rib.zst\n  tidemill bench port pcap --size 512 --json\n  \
    tidemill bench port dpdk --table rib.zst\n  sudo tidemill bench port wire --table rib.zst"
)]
pub(crate) struct PortBench {
    /// The ports to measure
    #[arg(value_enum)]
    kind: Kind,
    /// Frame length with frame check sequence
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    size: usize,
    /// Also route by this table between the ports: IPv4 if it has that, else IPv6 (in frames of 66 bytes at least)
    #[arg(long = "table", value_name = "FILE")]
    tables: Vec<PathBuf>,
    #[command(flatten)]
    load: LoadArgs,
    /// The router's lookup structure
    #[arg(long, value_name = "NAME", default_value = "auto")]
    algorithm: String,
    /// Seconds per run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Runs; figures are medians over them
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Packets of the capture (`pcap`), and destinations (`null`)
    #[arg(long, value_name = "N", default_value_t = 1 << 18)]
    packets: usize,
    /// Seed of the destinations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also measure so many workers together, against one (`null`)
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// `dpdk`: the most packets taken from the device at once
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=256))]
    burst: u16,
    /// `dpdk`: destinations from a file, for `--runner` (format: bench/README.md)
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// `dpdk`: answer timed passes on standard input (protocol: bench/README.md)
    #[arg(long)]
    runner: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A source and a sink in memory
    Null,
    /// Capture files
    Pcap,
    /// DPDK's net_null devices (needs a build with `--features dpdk`)
    Dpdk,
    /// Virtual cables: AF_XDP beside the kernel's own forwarding (root, two processors, ip, ethtool)
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    Wire,
}

/// Packet memory for one worker.
const FRAMES: usize = 4096;

/// A graph, and its ports' queues in the graph's order.
type Opened = (Graph, Vec<Vec<Box<dyn Port>>>);

/// A way through the engine that is measured.
struct Way<'a> {
    case: &'static str,
    workers: usize,
    open: Box<dyn Fn() -> Result<Opened> + 'a>,
    mpps: Vec<f64>,
    /// Nanoseconds per packet of each node and port: by run.
    parts: Vec<(String, Vec<f64>)>,
}

impl<'a> Way<'a> {
    fn new(case: &'static str, workers: usize, open: impl Fn() -> Result<Opened> + 'a) -> Self {
        Way { case, workers, open: Box::new(open), mpps: Vec::new(), parts: Vec::new() }
    }

    /// One run.
    fn run(&mut self, args: &PortBench, domain: &Domain) -> Result<()> {
        let (graph, queues) = (self.open)()?;
        let names = (graph.port_names.clone(), graph.node_names.clone());
        let memory = Memory::new(FRAMES * self.workers, frame_size(args.size)).context("packet memory")?;
        let options = Options {
            clock: Clock::wall(),
            frames_per_worker: FRAMES,
            pin: true,
            limits: Limits { packets: None, duration: Some(Duration::from_secs_f64(args.seconds)) },
            traces: Vec::new(),
            describe: |_| String::new(),
        };
        let engine = Engine::new(graph, self.workers, queues, &memory, domain, options)?;
        let handle = engine.handle();
        let outcome = engine.run(|_| {});
        warn_unbound(&handle);
        self.take(&names.0, &names.1, outcome)
    }

    fn take(&mut self, ports: &[String], nodes: &[String], outcome: Outcome) -> Result<()> {
        let Outcome { snapshot, errors, .. } = outcome;
        if let Some(error) = errors.into_iter().next() {
            return Err(error.into());
        }
        let ledger = snapshot.ledger();
        if !ledger.balances() || ledger.out + ledger.dropped_total() + ledger.held == 0 {
            anyhow::bail!(
                "{}: the books do not balance: in {}, out {}",
                self.case,
                ledger.received,
                ledger.out
            );
        }
        if ledger.dropped_total() * 20 > ledger.received {
            let reasons: Vec<String> = ledger.dropped.iter().map(|(name, n)| format!("{name} {n}")).collect();
            anyhow::bail!("{}: more than 5 % of the packets were dropped: {}", self.case, reasons.join(", "));
        }
        self.mpps.push(ledger.mpps);
        let per_packet = |ns: u64| ns as f64 / ledger.received.max(1) as f64;
        let of_ports = ports
            .iter()
            .zip(&snapshot.port_ns)
            .map(|(name, ns)| (format!("port:{name}"), per_packet(ns.0 + ns.1)));
        let visited = nodes.iter().zip(&snapshot.nodes).filter(|(_, node)| node.packets > 0);
        let of_nodes = visited.map(|(name, node)| (name.clone(), per_packet(node.busy_ns)));
        for (name, ns) in of_ports.chain(of_nodes) {
            match self.parts.iter_mut().find(|(part, _)| *part == name) {
                Some((_, values)) => values.push(ns),
                None => self.parts.push((name, vec![ns])),
            }
        }
        Ok(())
    }
}

/// A frame with its headroom, and what the pool keeps for itself.
fn frame_size(size: usize) -> usize {
    (size + 512).next_power_of_two().max(2048)
}

/// The graph of no service: everything goes on.
struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

fn straight() -> Result<Graph> {
    let mut graph = GraphBuilder::new(["in", "out"]);
    graph.node("pass", ["on"], |_| Box::new(Pass)).input("in", "pass").edge("pass", "on", "port:out");
    Ok(graph.build()?)
}

pub(super) fn run(args: &PortBench) -> Result<bool> {
    if !(64..=9018).contains(&args.size) {
        return Err(usage(format!("--size {}: give 64 to 9018", args.size)));
    }
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) || args.runs == 0 || args.packets == 0 {
        return Err(usage("--seconds, --runs and --packets: give more than 0, and at most 3600 seconds"));
    }
    if !(1..=256).contains(&args.workers) || args.kind != Kind::Null && args.workers != 1 {
        return Err(usage(format!("--workers {}: give 1 to 256, with `bench port null`", args.workers)));
    }
    match args.kind {
        Kind::Null => null(args),
        Kind::Pcap => pcap(args),
        Kind::Dpdk => dpdk(args),
        #[cfg(all(feature = "xdp", target_os = "linux"))]
        Kind::Wire => {
            let Some(table) = table(args)? else { return Err(usage("bench port wire: give --table FILE")) };
            let destinations = NullArgs::of(args).destinations(Some(&table));
            let PortBench { algorithm, seconds, runs, json, .. } = args;
            let options = super::wire::Options { algorithm, seconds: *seconds, runs: *runs, json: *json };
            super::wire::run(&table, &destinations, &options, params(args))
        }
    }
}

/// The table of `--table`; `None` without one.
fn table(args: &PortBench) -> Result<Option<LoadedTable>> {
    if args.tables.is_empty() {
        return Ok(None);
    }
    let table = TableArgs { files: args.tables.clone(), load: args.load.clone() }.load()?;
    if table.v4.is_empty() && table.v6.is_empty() {
        return Err(usage("--table: has no routes: give one that has"));
    }
    Ok(Some(table))
}

/// The family that is routed: IPv4 if the table has any of that, else IPv6.
pub(super) fn family(table: &LoadedTable) -> u8 {
    if table.v4.is_empty() { 6 } else { 4 }
}

/// What lookups of this family run on.
pub(super) fn stats(router: &RouterControl, family: u8) -> Result<LookupStats> {
    let all = router.lookup_stats();
    all.into_iter().find(|stats| stats.family == family).context("the router has no such table")
}

/// The addresses of this family among these.
pub(super) fn of_family<A: Address>(addresses: &[IpAddr]) -> Vec<A> {
    let own = |address: &IpAddr| match address {
        IpAddr::V4(v4) => (A::FAMILY == 4).then(|| A::from_u128(v4.to_bits().into())),
        IpAddr::V6(v6) => (A::FAMILY == 6).then(|| A::from_u128(v6.to_bits())),
    };
    addresses.iter().filter_map(own).collect()
}

/// What packets between null ports are sent to.
pub(super) struct NullArgs {
    /// So many destinations.
    pub(super) packets: usize,
    pub(super) seed: u64,
}

impl NullArgs {
    fn of(args: &PortBench) -> NullArgs {
        NullArgs { packets: args.packets, seed: args.seed }
    }

    /// Destinations inside the table's prefixes, or any public ones.
    pub(super) fn destinations(&self, table: Option<&LoadedTable>) -> Vec<IpAddr> {
        let mut rng = Rng::new(self.seed);
        let mut source: Box<dyn AddressSource> = match table {
            Some(table) => TableAddresses::of(table).source(),
            None => Box::new(PublicV4),
        };
        let mut addresses = Vec::new();
        for _ in 0..self.packets.saturating_mul(20) {
            let address = source.next(&mut rng);
            // Destinations that a router refuses whatever the table says are not what is measured.
            if martian::sort_of(address).is_none() {
                addresses.push(address);
            }
            if addresses.len() == self.packets {
                break;
            }
        }
        addresses
    }
}

fn dpdk(args: &PortBench) -> Result<bool> {
    let Some(table) = table(args)? else { return Err(usage("bench port dpdk: give --table FILE")) };
    if family(&table) == 4 { dpdk_of::<u32>(args, table) } else { dpdk_of::<u128>(args, table) }
}

fn dpdk_of<A: Forwarded>(args: &PortBench, table: LoadedTable) -> Result<bool> {
    let destinations: Arc<[A]> = match &args.keys {
        Some(_) => super::forward::destinations(args.keys.as_deref())?,
        None if args.runner => return Err(usage("--runner: needs --keys FILE")),
        None => of_family(&NullArgs::of(args).destinations(Some(&table))).into(),
    };
    let (domain, start) = (Domain::new(), Instant::now());
    let routes = A::rib(&table).len();
    let router = router(&args.algorithm, table, &domain)?.0;
    let build_seconds = start.elapsed().as_secs_f64();
    if args.runner {
        return super::forward::serve(args.burst, routes, build_seconds, &destinations, &router, &domain);
    }
    super::forward::run(args.burst, args.runs, &destinations, &router, &domain, args.json)
}

fn null(args: &PortBench) -> Result<bool> {
    let table = table(args)?;
    let addresses = NullArgs::of(args).destinations(table.as_ref());
    let count = addresses.len();
    let supply = Supply::Destinations { frame_len: args.size, addresses: addresses.into() };
    // Every worker goes over all destinations, beginning elsewhere.
    let nulls = &|workers: usize| -> Vec<Vec<Box<dyn Port>>> {
        let port = |name, supply: &Supply, start| {
            Box::new(NullPort::new(name, supply.clone(), start, None)) as Box<dyn Port>
        };
        vec![
            (0..workers).map(|worker| port("in", &supply, count / workers * worker)).collect(),
            (0..workers).map(|_| port("out", &Supply::Nothing, 0)).collect(),
        ]
    };
    let domain = Domain::new();
    let family = table.as_ref().map_or(4, family);
    let router =
        table.map(|table| Ok::<_, anyhow::Error>(router(&args.algorithm, table, &domain)?.0)).transpose()?;
    let mut ways = Vec::new();
    // One worker and several take turns.
    let counts = if args.workers == 1 { vec![1] } else { vec![1, args.workers] };
    for &workers in &counts {
        ways.push(Way::new("null", workers, move || Ok((straight()?, nulls(workers)))));
    }
    if let Some(router) = &router {
        for &workers in &counts {
            let open = move || Ok((tidemill_router::graph(router).build()?, nulls(workers)));
            ways.push(Way::new("route", workers, open));
        }
    }
    measure(args, &mut ways, &domain)?;
    let mut params = params(args);
    if let Some(router) = &router {
        let stats = stats(router, family)?;
        params.insert("algorithm".into(), stats.algorithm.into());
        params.insert("prefixes".into(), stats.prefixes.into());
    }
    if family == 6 {
        params.insert("family".into(), family.into());
    }
    report(args, "null", &ways, &params)
}

/// A router between the ports `in` and `out`, all of whose next hops are behind `out`, with the table's routes of its [`family`]; and its
/// configuration.
pub(super) fn router(
    algorithm: &str,
    table: LoadedTable,
    domain: &Domain,
) -> Result<(RouterControl, RouterConfig)> {
    const CONFIG: &str = "
        next_hops.ports = ['out']
        [[interface]]
        port = 'in'
        addresses = ['192.0.2.1/24']
        mtu = 9000
        promiscuous = true
        [[interface]]
        port = 'out'
        mtu = 9000
    ";
    let mut config: RouterConfig = toml::from_str(CONFIG)?;
    let ports = [PortInfo::new("in"), PortInfo::new("out")];
    let (mut v4, mut v6) = (Routes::default(), Routes::default());
    if family(&table) == 4 {
        config.router.algorithm = algorithm.into();
        v4.rib = table.v4;
    } else {
        config.router.algorithm6 = algorithm.into();
        v6.rib = table.v6;
    }
    let control = RouterControl::new(&config, &ports, v4, v6, domain);
    let control = control.map_err(|error| match error {
        tidemill_router::RouterError::Config(error) => usage(error),
        other => other.into(),
    })?;
    Ok((control, config))
}

fn pcap(args: &PortBench) -> Result<bool> {
    if !args.tables.is_empty() {
        return Err(usage("--table: goes with `bench port null`"));
    }
    let folder = Scratch::new()?;
    let (input, output) = (folder.0.join("in.pcap"), folder.0.join("out.pcap"));
    capture(args, &input)?;
    let domain = Domain::new();
    let sink = || vec![Box::new(NullPort::new("out", Supply::Nothing, 0, None)) as Box<dyn Port>];
    let read = |preload: bool| -> Result<Opened> {
        let playback = Playback { repeat: 0, preload, ..Playback::once(&input) };
        let mut queues = PcapPort::open("in", Some(&playback), None, 1)?;
        let port = queues.pop().context("the capture port has no queue")?;
        Ok((straight()?, vec![vec![Box::new(port)], sink()]))
    };
    let write = || -> Result<Opened> {
        let addresses: Arc<[IpAddr]> = [IpAddr::from([198, 51, 100, 1])].into();
        let supply = Supply::Destinations { frame_len: args.size, addresses };
        // A limit, so that a run does not fill the disk.
        let source = NullPort::new("in", supply, 0, Some(16 * args.packets as u64));
        let mut queues = PcapPort::open("out", None, Some(&output), 1)?;
        let port = queues.pop().context("the capture port has no queue")?;
        Ok((straight()?, vec![vec![Box::new(source)], vec![Box::new(port)]]))
    };
    let mut ways = [
        Way::new("pcap-read", 1, || read(false)),
        Way::new("pcap-read-preloaded", 1, || read(true)),
        Way::new("pcap-write", 1, write),
    ];
    measure(args, &mut ways, &domain)?;
    report(args, "pcap", &ways, &params(args))
}

/// A folder that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("tidemill-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed from a temporary folder is nobody's concern.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes a capture of null packets.
fn capture(args: &PortBench, file: &Path) -> Result<()> {
    let memory = Memory::new(512, frame_size(args.size)).context("packet memory")?;
    let mut pool = memory.pool(512).context("packet memory")?;
    let mut rng = Rng::new(args.seed);
    let addresses: Vec<IpAddr> = (0..args.packets.min(1 << 16)).map(|_| PublicV4.next(&mut rng)).collect();
    let supply = Supply::Destinations { frame_len: args.size, addresses: addresses.into() };
    let mut port = NullPort::new("source", supply, 0, Some(args.packets as u64));
    let (mut burst, writer, mut at_ns) = (Burst::new(), Writer::create(file)?, 0);
    while port.rx(at_ns, &mut pool, &mut burst)? != RxStatus::Ended {
        for packet in burst.iter() {
            at_ns += 1000;
            writer.write(at_ns, Sense::Unknown, packet.data(), 0)?;
        }
        pool.free_all(&mut burst);
    }
    Ok(writer.finish()?)
}

fn measure(args: &PortBench, ways: &mut [Way], domain: &Domain) -> Result<()> {
    let progress = Progress::new("bench port", (args.runs * ways.len()) as u64);
    for _ in 0..args.runs {
        for way in ways.iter_mut() {
            progress.message(way.case);
            way.run(args, domain)?;
            progress.add(1);
        }
    }
    Ok(())
}

fn params(args: &PortBench) -> Params {
    let mut params = Params::new();
    params.insert("size".into(), args.size.into());
    params.insert("seconds".into(), args.seconds.into());
    params.insert("seed".into(), args.seed.into());
    params
}

fn report(args: &PortBench, subject: &str, ways: &[Way], params: &Params) -> Result<bool> {
    let mut report = Report::new(args.json);
    for way in ways {
        let mut params = params.clone();
        params.insert("workers".into(), way.workers.into());
        report.line(Measurement::of("port", subject, way.case, "mpps", &way.mpps, params.clone()))?;
        if !args.json {
            println!(
                "{}: {:.2} Mpps on {}",
                way.case,
                super::statistics::median(&way.mpps),
                cores(way.workers)
            );
        }
        for (part, values) in &way.parts {
            let mut params = params.clone();
            params.insert("part".into(), part.as_str().into());
            if !args.json {
                println!("  {part:<20} {:7.2} ns/packet", super::statistics::median(values));
            }
            report.line(Measurement::of("port", subject, way.case, "ns_per_packet", values, params))?;
        }
    }
    for one in ways.iter().filter(|way| way.workers == 1) {
        for more in ways.iter().filter(|way| way.case == one.case && way.workers > 1) {
            let (of, to) = (cores(more.workers), cores(1));
            report.ratio("port", one.case, (&of, &more.mpps), (&to, &one.mpps))?;
        }
    }
    if !args.json && !report.ratios().is_empty() {
        println!("ratios of Mpps, with 95 % intervals");
        for Ratio { case, of, to, value, low, high, pairs, .. } in report.ratios() {
            println!("  {case:<7} {of} to {to}: {value:.2} ({low:.2} to {high:.2}, {pairs} pairs)");
        }
    }
    Ok(true)
}

fn cores(workers: usize) -> String {
    if workers == 1 { "one core".to_owned() } else { format!("{workers} cores") }
}
