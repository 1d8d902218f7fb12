//! Forwarding between two devices that cost nothing, DPDK's net_null: our side of the comparison with forwarders written on DPDK.
//! The protocol is in `bench/README.md`.
//!
//! ```text
//! net_null -> Fill (writes a packet) -> router -> net_null          route
//!                                            \--> Digest            check: what is sent is looked at
//! net_null -> Fill ----------------------------> net_null           fill
//! net_null ------------------------------------> net_null           io
//! ```
//! net_null gives frames and touches nothing, so packets have to be written: by us as by the others. IPv4 or IPv6, as the table is.

use super::ends::warn_unbound;
use super::pass::Checksum;
use super::port::stats;
use super::report::Report;
use crate::json::{self, Measurement, Params};
use crate::usage;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tidemill_burst::{Burst, Memory, Packet, Pool};
use tidemill_feed::LoadedTable;
use tidemill_graph::{Clock, Engine, GraphBuilder, Limits, Options};
use tidemill_lookup::mem::collapse;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Label, Rib};
use tidemill_port::{Fields, OpenContext, Port, PortCounters, PortError, PortSpec, RxStatus, Stamp, StampV6};
use tidemill_router::{Routed, RouterControl};

/// Frames of the worker's pool.
const FRAMES: usize = 4096;
/// An address family whose packets are forwarded here.
pub(super) trait Forwarded: Routed {
    /// The shortest UDP frame, with the frame check sequence.
    const SIZE: usize;
    /// What writes such a frame.
    type Stamp: Send + 'static;

    fn stamp() -> Option<Self::Stamp>;
    fn write(stamp: &Self::Stamp, packet: &mut Packet, to: Self);
    /// The table's routes of this family.
    fn rib(table: &LoadedTable) -> &Rib<Self>;
}

impl Forwarded for u32 {
    const SIZE: usize = 64;
    type Stamp = Stamp;

    fn stamp() -> Option<Stamp> {
        let (src, dst) = (Ipv4Addr::new(198, 18, 0, 1).into(), Ipv4Addr::UNSPECIFIED.into());
        Stamp::new(Self::SIZE, &Fields { src, dst, src_port: 1024, dst_port: 9, ident: 0 })
    }

    #[inline(always)]
    fn write(stamp: &Stamp, packet: &mut Packet, to: u32) {
        stamp.write(packet, to);
    }

    fn rib(table: &LoadedTable) -> &Rib<u32> {
        &table.v4
    }
}

impl Forwarded for u128 {
    const SIZE: usize = 66;
    type Stamp = StampV6;

    fn stamp() -> Option<StampV6> {
        let (src, dst) = (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1).into(), Ipv6Addr::UNSPECIFIED.into());
        StampV6::new(Self::SIZE, &Fields { src, dst, src_port: 1024, dst_port: 9, ident: 0 })
    }

    #[inline(always)]
    fn write(stamp: &StampV6, packet: &mut Packet, to: u128) {
        stamp.write(packet, to);
    }

    fn rib(table: &LoadedTable) -> &Rib<u128> {
        &table.v6
    }
}

/// What is done with packets between the two devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Io,
    Fill,
    Route,
    Check,
}

impl Way {
    fn of(word: &str) -> Option<Way> {
        match word {
            "io" => Some(Way::Io),
            "fill" => Some(Way::Fill),
            "route" => Some(Way::Route),
            "check" => Some(Way::Check),
            _ => None,
        }
    }
}

/// Packets, and the time that they took.
type Timed = Arc<OnceLock<(usize, Duration)>>;

/// Wraps the receiving device: writes a UDP packet into every frame, and ends after so many.
struct Fill<P, A: Forwarded> {
    inner: P,
    /// `None`: frames stay as they are.
    stamp: Option<A::Stamp>,
    destinations: Arc<[A]>,
    at: usize,
    /// When the first turn was over, in which the devices start, and how many packets that had; the time is of the others. Devices are
    /// closed later.
    begun: Option<(usize, Instant)>,
    timed: Timed,
}

impl<P: Port, A: Forwarded> Port for Fill<P, A> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.begun.is_none() && self.at > 0 {
            self.begun = Some((self.at, Instant::now()));
        }
        if self.at >= self.destinations.len() {
            // What came before has been sent, and it is so the first time that we come here.
            if let Some((first, begun)) = self.begun {
                self.timed.get_or_init(|| (self.at - first, begun.elapsed()));
            }
            return Ok(RxStatus::Ended);
        }
        let before = burst.len();
        let status = self.inner.rx(now_ns, pool, burst)?;
        if let Some(stamp) = &self.stamp {
            let new = &mut burst[before..];
            let rest = &self.destinations[self.at..];
            for (packet, &dst) in new.iter_mut().zip(rest) {
                A::write(stamp, packet, dst);
            }
            // More than were asked for go to the first ones again.
            for (packet, &dst) in new.iter_mut().skip(rest.len()).zip(&*self.destinations) {
                A::write(stamp, packet, dst);
            }
        }
        self.at += burst.len() - before;
        Ok(status)
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.inner.tx(now_ns, pool, burst)
    }

    fn finish(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.inner.finish(now_ns, pool)
    }

    fn counters(&self) -> PortCounters {
        self.inner.counters()
    }
}

/// Wraps the sending device: nothing is received from it.
pub(super) struct SendOnly<P>(pub(super) P);

impl<P: Port> Port for SendOnly<P> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn rx(&mut self, _: u64, _: &mut Pool, _: &mut Burst) -> Result<RxStatus, PortError> {
        Ok(RxStatus::Ended)
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.0.tx(now_ns, pool, burst)
    }

    fn finish(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.0.finish(now_ns, pool)
    }

    fn counters(&self) -> PortCounters {
        self.0.counters()
    }
}

/// Stands for the sending device: looks at what would be sent. The label that a packet was routed by is in its
/// destination's MAC address.
pub(super) struct Digest {
    /// How many packets, and the digest of their labels.
    pub(super) seen: Arc<Mutex<(usize, Checksum)>>,
    pub(super) counters: PortCounters,
    /// Packets beyond these are not looked at.
    pub(super) most: usize,
}

impl Port for Digest {
    fn name(&self) -> &str {
        "out"
    }

    fn rx(&mut self, _: u64, _: &mut Pool, _: &mut Burst) -> Result<RxStatus, PortError> {
        Ok(RxStatus::Ended)
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in burst.iter() {
            self.counters.tx.count(packet.len());
            if let (true, [2, 0x54, a, b, c, d, ..]) = (seen.0 < self.most, packet.data()) {
                let label =
                    if is_right(packet.data()) { u32::from_be_bytes([*a, *b, *c, *d]) } else { u32::MAX };
                seen.0 += 1;
                seen.1.add(&[Label(label)]);
            }
        }
        pool.free_all(burst);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Whether a frame is a packet that was forwarded once: its time to live, and the checksum of its header, or in IPv6 of all.
fn is_right(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x86, 0xDD]) => frame.get(21) == Some(&63) && tidemill_wire::verify_checksums(frame).is_ok(),
        _ => frame.get(14..34).is_some_and(|ip| {
            ip[8] == 63 && tidemill_wire::checksum::fold(tidemill_wire::checksum::sum(ip).into()) == 0xFFFF
        }),
    }
}

/// One of the two devices, for frames of this length.
fn device(name: &str, number: usize, len: usize, burst: u16, memory: &Arc<Memory>) -> Result<Box<dyn Port>> {
    let text =
        format!("kind = 'dpdk'\nname = '{name}'\ndevice = 'net_null{number},size={len}'\nburst = {burst}");
    let spec: PortSpec = toml::from_str(&text)?;
    let memory = [memory.clone()];
    let context = OpenContext { base: Path::new(""), table: None, memory: &memory };
    spec.open(1, &context)?.pop().context("the device has no queue")
}

/// What a pass came to.
pub(super) struct Passed {
    pub(super) received: u64,
    pub(super) sent: u64,
    /// Packets that took so many seconds: all but those of the first turn.
    pub(super) timed: u64,
    pub(super) seconds: f64,
    pub(super) checksum: String,
}

/// Forwards as many packets as there are destinations.
pub(super) fn pass<A: Forwarded>(
    way: Way,
    burst: u16,
    destinations: &Arc<[A]>,
    router: &RouterControl,
    domain: &Domain,
) -> Result<Passed> {
    let memory = Memory::new(FRAMES, 2048).context("packet memory")?;
    let stamp = if way == Way::Io { None } else { A::stamp() };
    let inner = device("in", 0, A::SIZE - 4, burst, &memory)?;
    let (timed, all) = (Timed::default(), destinations.clone());
    let input = Fill { inner, stamp, destinations: all, at: 0, begun: None, timed: timed.clone() };
    let seen = Arc::new(Mutex::new((0, Checksum::new())));
    let output: Box<dyn Port> = match way {
        Way::Check => {
            let counters = PortCounters::default();
            Box::new(Digest { seen: seen.clone(), counters, most: destinations.len() })
        }
        _ => Box::new(SendOnly(device("out", 1, A::SIZE - 4, burst, &memory)?)),
    };
    let graph = match way {
        Way::Route | Way::Check => tidemill_router::graph(router).build()?,
        Way::Io | Way::Fill => {
            let mut graph = GraphBuilder::new(["in", "out"]);
            graph.input("in", "port:out");
            graph.build()?
        }
    };
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: FRAMES,
        pin: true,
        limits: Limits { packets: None, duration: None },
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let ports: Vec<Vec<Box<dyn Port>>> = vec![vec![Box::new(input)], vec![output]];
    let engine = Engine::new(graph, 1, ports, &memory, domain, options)?;
    let handle = engine.handle();
    let outcome = engine.run(|_| {});
    warn_unbound(&handle);
    if let Some(error) = outcome.errors.into_iter().next() {
        return Err(error.into());
    }
    let ledger = outcome.snapshot.ledger();
    if !ledger.balances() {
        bail!("the books do not balance: in {}, out {}", ledger.received, ledger.out);
    }
    let checksum = seen.lock().unwrap_or_else(PoisonError::into_inner).1.text();
    let (timed, seconds) = match timed.get() {
        Some(&(packets, took)) if packets > 0 => (packets as u64, took.as_secs_f64()),
        // The first turn was all.
        _ => (ledger.received, outcome.snapshot.elapsed_ns as f64 / 1e9),
    };
    Ok(Passed { received: ledger.received, sent: ledger.out, timed, seconds, checksum })
}

/// Answers timed passes on standard input.
pub(super) fn serve<A: Forwarded>(
    burst: u16,
    routes: usize,
    build_seconds: f64,
    destinations: &Arc<[A]>,
    router: &RouterControl,
    domain: &Domain,
) -> Result<bool> {
    let stats = stats(router, A::FAMILY)?;
    let name = &format!("router-{}", stats.algorithm);
    json::print(
        &json!({"v": json::VERSION, "ready": true, "subject": name, "routes": routes, "rejected": 0,
        "build_seconds": build_seconds, "bytes": stats.bytes, "params": {"burst": burst}}),
    )?;
    for line in crate::files::lines(std::io::stdin().lock()) {
        let line = line.context("standard input")?;
        if line == "quit" {
            return Ok(true);
        }
        let Some(way) = line.strip_prefix("run ").and_then(Way::of) else {
            let error: Value =
                format!("unknown command {line:?}: use run io|fill|route|check or quit").into();
            json::print(&json!({"v": json::VERSION, "error": error}))?;
            continue;
        };
        let passed = pass(way, burst, destinations, router, domain)?;
        json::print(&json!({"v": json::VERSION, "bench": "port", "subject": name, "case": line[4..],
            "lookups": passed.timed, "seconds": passed.seconds, "received": passed.received, "sent": passed.sent,
            "checksum": passed.checksum}))?;
    }
    Ok(true)
}

/// All ways, in turn, `runs` times.
pub(super) fn run<A: Forwarded>(
    burst: u16,
    runs: usize,
    destinations: &Arc<[A]>,
    router: &RouterControl,
    domain: &Domain,
    json: bool,
) -> Result<bool> {
    let stats = stats(router, A::FAMILY)?;
    let mut params = Params::new();
    params.insert("algorithm".into(), stats.algorithm.clone().into());
    params.insert("prefixes".into(), stats.prefixes.into());
    params.insert("size".into(), A::SIZE.into());
    params.insert("burst".into(), burst.into());
    let ways = [("io", Way::Io), ("fill", Way::Fill), ("route", Way::Route)];
    let mut mpps = ways.map(|_| Vec::new());
    for _ in 0..runs {
        for ((_, way), mpps) in ways.iter().zip(&mut mpps) {
            let passed = pass(*way, burst, destinations, router, domain)?;
            let share = passed.sent as f64 / passed.received.max(1) as f64;
            mpps.push(share * passed.timed as f64 / passed.seconds / 1e6);
        }
    }
    let mut report = Report::new(json);
    for ((case, _), mpps) in ways.iter().zip(&mpps) {
        report.line(Measurement::of("port", "dpdk", case, "mpps", mpps, params.clone()))?;
        if !json {
            println!("{case}: {:.2} Mpps on one core", super::statistics::median(mpps));
        }
    }
    Ok(true)
}

/// Reads the destinations of a runner's key file.
pub(super) fn destinations<A: Forwarded>(file: Option<&Path>) -> Result<Arc<[A]>> {
    let file = file.ok_or_else(|| usage("--runner: needs --keys FILE"))?;
    let keys: Arc<[A]> = super::runner::read_keys::<A>(file)?.into();
    // As the other side's.
    collapse(&keys);
    Ok(keys)
}
