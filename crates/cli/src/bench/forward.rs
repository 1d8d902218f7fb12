//! Forwarding between two devices that cost nothing, DPDK's net_null: our side of the comparison with forwarders written on DPDK.
//! The protocol is in `bench/README.md`.
//!
//! ```text
//! net_null -> Fill (writes a packet) -> router -> net_null          route
//!                                            \--> Digest            check: what is sent is looked at
//! net_null -> Fill ----------------------------> net_null           fill
//! net_null ------------------------------------> net_null           io
//! ```
//! net_null gives frames and touches nothing, so packets have to be written: by us as by the others.

use super::ends::warn_unbound;
use super::pass::Checksum;
use super::report::Report;
use crate::json::{self, Measurement, Params};
use crate::usage;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::io::BufRead;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_graph::{Clock, Engine, GraphBuilder, Limits, Options};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::Label;
use tidemill_port::{Fields, OpenContext, Port, PortCounters, PortError, PortSpec, RxStatus, Stamp};
use tidemill_router::RouterControl;

/// Frames of the worker's pool.
const FRAMES: usize = 4096;
/// Frame length with the frame check sequence.
const SIZE: usize = 64;

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

/// Wraps the receiving device: writes a UDP packet into every frame, and ends after so many.
struct Fill<P> {
    inner: P,
    /// `None`: frames stay as they are.
    stamp: Option<Stamp>,
    destinations: Arc<[u32]>,
    at: usize,
}

impl<P: Port> Port for Fill<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.at >= self.destinations.len() {
            return Ok(RxStatus::Ended);
        }
        let before = burst.len();
        let status = self.inner.rx(now_ns, pool, burst)?;
        if let Some(stamp) = &self.stamp {
            let new = &mut burst[before..];
            let rest = &self.destinations[self.at..];
            for (packet, &dst) in new.iter_mut().zip(rest) {
                stamp.write(packet, dst);
            }
            // More than were asked for go to the first ones again.
            for (packet, &dst) in new.iter_mut().skip(rest.len()).zip(&*self.destinations) {
                stamp.write(packet, dst);
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
                let right = packet.data().get(14..34).is_some_and(|ip| {
                    ip[8] == 63
                        && tidemill_wire::checksum::fold(tidemill_wire::checksum::sum(ip).into()) == 0xFFFF
                });
                let label = if right { u32::from_be_bytes([*a, *b, *c, *d]) } else { u32::MAX };
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

/// One of the two devices.
fn device(name: &str, number: usize, burst: u16, memory: &Arc<Memory>) -> Result<Box<dyn Port>> {
    let text =
        format!("kind = 'dpdk'\nname = '{name}'\ndevice = 'net_null{number},size=60'\nburst = {burst}");
    let spec: PortSpec = toml::from_str(&text)?;
    let memory = [memory.clone()];
    let context = OpenContext { base: Path::new(""), table: None, memory: &memory };
    spec.open(1, &context)?.pop().context("the device has no queue")
}

/// What a pass came to.
pub(super) struct Passed {
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) seconds: f64,
    pub(super) checksum: String,
}

/// Forwards as many packets as there are destinations.
pub(super) fn pass(
    way: Way,
    burst: u16,
    destinations: &Arc<[u32]>,
    router: &RouterControl,
    domain: &Domain,
) -> Result<Passed> {
    let memory = Memory::new(FRAMES, 2048).context("packet memory")?;
    let (src, dst) = (Ipv4Addr::new(198, 18, 0, 1).into(), Ipv4Addr::UNSPECIFIED.into());
    let fields = Fields { src, dst, src_port: 1024, dst_port: 9, ident: 0 };
    let stamp = if way == Way::Io { None } else { Stamp::new(SIZE, &fields) };
    let input =
        Fill { inner: device("in", 0, burst, &memory)?, stamp, destinations: destinations.clone(), at: 0 };
    let seen = Arc::new(Mutex::new((0, Checksum::new())));
    let output: Box<dyn Port> = match way {
        Way::Check => {
            let counters = PortCounters::default();
            Box::new(Digest { seen: seen.clone(), counters, most: destinations.len() })
        }
        _ => Box::new(SendOnly(device("out", 1, burst, &memory)?)),
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
    let seconds = outcome.snapshot.elapsed_ns as f64 / 1e9;
    Ok(Passed { received: ledger.received, sent: ledger.out, seconds, checksum })
}

/// Answers timed passes on standard input.
pub(super) fn serve(
    burst: u16,
    routes: usize,
    build_seconds: f64,
    destinations: &Arc<[u32]>,
    router: &RouterControl,
    domain: &Domain,
) -> Result<bool> {
    let name = &format!("router-{}", router.lookup_stats()[0].algorithm);
    json::print(
        &json!({"v": json::VERSION, "ready": true, "subject": name, "routes": routes, "rejected": 0,
        "build_seconds": build_seconds, "bytes": router.lookup_stats()[0].bytes, "params": {"burst": burst}}),
    )?;
    for line in std::io::stdin().lock().lines() {
        let line = line.context("standard input")?;
        let line = line.trim();
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
            "lookups": passed.received, "sent": passed.sent, "seconds": passed.seconds,
            "checksum": passed.checksum}))?;
    }
    Ok(true)
}

/// All ways, in turn, `runs` times.
pub(super) fn run(
    burst: u16,
    runs: usize,
    destinations: &Arc<[u32]>,
    router: &RouterControl,
    domain: &Domain,
    json: bool,
) -> Result<bool> {
    let stats = &router.lookup_stats()[0];
    let mut params = Params::new();
    params.insert("algorithm".into(), stats.algorithm.clone().into());
    params.insert("prefixes".into(), stats.prefixes.into());
    params.insert("size".into(), SIZE.into());
    params.insert("burst".into(), burst.into());
    let ways = [("io", Way::Io), ("fill", Way::Fill), ("route", Way::Route)];
    let mut mpps = ways.map(|_| Vec::new());
    for _ in 0..runs {
        for ((_, way), mpps) in ways.iter().zip(&mut mpps) {
            let passed = pass(*way, burst, destinations, router, domain)?;
            mpps.push(passed.sent as f64 / passed.seconds / 1e6);
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
pub(super) fn destinations(file: Option<&Path>) -> Result<Arc<[u32]>> {
    let file = file.ok_or_else(|| usage("--runner: needs --keys FILE"))?;
    Ok(super::runner::read_keys::<u32>(file)?.into())
}
