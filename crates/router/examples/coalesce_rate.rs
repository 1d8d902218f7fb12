//! What `coalesce_tcp` gains and costs: bursts of TCP segments through a router, with and without.
//!
//! `cargo run --release -p tidemill-router --example coalesce_rate -- [SECONDS] [CAPTURE.pcap]`
//!
//! Bursts of 256 segments, of as many flows as it takes to have 1, 4 or 16 of each in a burst, in turns; a million random /24s.
//! With a capture, what it holds instead, over and over. Prints nanoseconds per segment: of merging, cutting, of what the
//! router does besides (checks, lookup, forwarding), and of all that; ports, which are no part of it, are left out. Times are
//! those for which the worker had a core (Linux): nodes' shares of all time, of which it had so much.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_graph::{Clock, Engine, Limits, Options, Snapshot};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Label, Prefix, Rib};
use tidemill_port::{PcapPort, Playback, Port, PortCounters, PortError, RxStatus};
use tidemill_router::{PortInfo, RouterConfig, RouterControl, Routes, graph};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{EtherType, MacAddr, OptionBytes, Protocol, ethernet, ipv4, tcp};

const CONFIG: &str = "
next_hops.ports = ['sink']
router.auto_ms = 0
[[interface]]
port = 'source'
promiscuous = true
addresses = ['192.0.2.1/24']
[[interface]]
port = 'sink'
[[route]]
prefix = '0.0.0.0/0'
port = 'sink'
mac = '02:00:00:00:00:77'
[[route]]
prefix = '::/0'
port = 'sink'
mac = '02:00:00:00:00:77'
";
const FRAME: usize = 32768;

/// Receives the same frames over and over, a burst at a time; forgets what it sends.
struct Source {
    name: &'static str,
    frames: Vec<Vec<u8>>,
    at: usize,
    counters: PortCounters,
    /// When the first frame was received, and the time that the thread had had a core by then; at the end, how long both are.
    core: Arc<Mutex<(Option<Instant>, u64, f64)>>,
}

/// Nanoseconds for which this thread has had a core.
fn core_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

impl Port for Source {
    fn name(&self) -> &str {
        self.name
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.frames.is_empty() {
            return Ok(RxStatus::Idle { next_due_ns: None });
        }
        if self.at == 0
            && let Ok(mut core) = self.core.lock()
            && core.0.is_none()
        {
            *core = (Some(Instant::now()), core_ns(), 1.0);
        }
        for _ in 0..burst.room() {
            let Some(packet) = pool.packet(&self.frames[self.at]) else { break };
            self.counters.rx.count(packet.len());
            if let Err(packet) = burst.push(packet) {
                pool.free(packet);
            }
            self.at = (self.at + 1) % self.frames.len();
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            self.counters.tx.count(packet.len());
            pool.free(packet);
        }
        Ok(())
    }

    fn finish(&mut self, _: u64, _: &mut Pool) -> Result<(), PortError> {
        if let Ok(mut core) = self.core.lock()
            && let Some(begun) = core.0
        {
            core.2 = core_ns().saturating_sub(core.1) as f64 / begun.elapsed().as_nanos() as f64;
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// 16 bursts of 256 segments with `len` bytes of payload, `each` of every flow in a burst.
fn bursts(each: usize, len: usize, list: &[(Prefix<u32>, Label)]) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let (mut rng, mut frames) = (StdRng::seed_from_u64(1), Vec::new());
    for _ in 0..16 {
        let flows: Vec<_> =
            (0..256 / each).map(|_| list[rng.random_range(0..list.len())].0.first() + 1).collect();
        for n in 0..each {
            for dst in &flows {
                frames.push(segment(*dst, n, len)?);
            }
        }
    }
    Ok(frames)
}

fn segment(dst: u32, n: usize, len: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let (src, dst) = ([20, 0, 0, 1].into(), dst.into());
    let header = tcp::Repr {
        src_port: 443,
        dst_port: 50_000,
        seq: (n * len) as u32,
        ack: 1,
        flags: tcp::Flags::ACK,
        window: 512,
        urgent: 0,
        options: OptionBytes::new(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1]).unwrap_or(OptionBytes::NONE),
    };
    let upper = header.buffer_len() + len;
    let mut frame = vec![0; ethernet::HEADER_LEN + ipv4::HEADER_LEN + upper];
    let (link, rest) = frame.split_at_mut(ethernet::HEADER_LEN);
    let (ip, message) = rest.split_at_mut(ipv4::HEADER_LEN);
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    ethernet::Repr { dst: mac, src: mac, ethertype: EtherType::IPV4 }.emit(link)?;
    let mut repr = ipv4::Repr::new(src, dst, Protocol::TCP, upper);
    (repr.ident, repr.dont_fragment) = (n as u16, true);
    repr.emit(ip)?;
    header.emit(message, &Pseudo::V4 { src, dst })?;
    Ok(frame)
}

/// What a capture holds, as far as a frame has room for it.
fn capture(path: &Path) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let mut ports = PcapPort::open("capture", Some(&Playback::once(path)), None, 1)?;
    let (mut pool, mut burst, mut frames) = (Memory::new(512, FRAME)?.pool(512)?, Burst::new(), Vec::new());
    while let Some(port) = ports.first_mut() {
        let status = port.rx(0, &mut pool, &mut burst)?;
        for packet in burst.drain() {
            frames.push(packet.data().to_vec());
            pool.free(packet);
        }
        if status == RxStatus::Ended {
            break;
        }
    }
    Ok(frames)
}

/// Nodes' names, what they have counted, and the part of the time that the worker had a core.
type Outcome = (Vec<String>, Snapshot, f64);

fn run(on: bool, frames: Vec<Vec<u8>>, rib: Rib<u32>, seconds: f64) -> Result<Outcome, Box<dyn Error>> {
    let mut config: RouterConfig = toml::from_str(CONFIG)?;
    config.router.coalesce_tcp = on;
    let (domain, ports) = (Domain::new(), [PortInfo::new("source"), PortInfo::new("sink")]);
    let routes = Routes { rib, names: Vec::new() };
    let control = RouterControl::new(&config, &ports, routes, Routes::default(), &domain)?;
    let memory = Memory::new(1024, FRAME)?;
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: 1024,
        pin: true,
        limits: Limits { packets: None, duration: Some(Duration::from_secs_f64(seconds)) },
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let core = Arc::new(Mutex::new((None, 0, 1.0)));
    let port = |name, frames| -> Vec<Box<dyn Port>> {
        let counters = PortCounters::default();
        vec![Box::new(Source { name, frames, at: 0, counters, core: core.clone() })]
    };
    let queues = vec![port("source", frames), port("sink", Vec::new())];
    let built = graph(&control).build()?;
    let names = built.node_names.clone();
    let outcome = Engine::new(built, 1, queues, &memory, &domain, options)?.run(|_| {});
    if !outcome.snapshot.ledger().balances() {
        return Err("the books do not balance".into());
    }
    let had = core.lock().map_or(1.0, |core| core.2);
    Ok((names, outcome.snapshot, had))
}

fn print(what: &str, (names, snapshot, had): &Outcome) {
    let ledger = snapshot.ledger();
    let time = |wanted: &dyn Fn(&str) -> bool| {
        let nodes = names.iter().zip(&snapshot.nodes).filter(|(name, _)| wanted(name));
        nodes.map(|(_, node)| node.busy_ns).sum::<u64>() as f64 * had / ledger.received.max(1) as f64
    };
    let merging = |name: &str| name.ends_with("-coalesce");
    let cutting = |name: &str| name.starts_with("tcp-segment:");
    let (merge, cut) = (time(&merging), time(&cutting));
    let all = time(&|_| true);
    let merged: u64 =
        names.iter().zip(&snapshot.nodes).filter(|(n, _)| merging(n)).map(|(_, n)| n.consumed).sum();
    println!(
        "{what:<40} merged away {:>5.1} %  merge {merge:>6.1}  cut {cut:>6.1}  rest {:>6.1}  all {all:>6.1} ns/segment",
        merged as f64 * 100.0 / ledger.received.max(1) as f64,
        all - merge - cut,
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds: f64 = arguments.first().map_or(Ok(2.0), |text| text.parse())?;
    let mut rng = StdRng::seed_from_u64(2);
    let mut list: Vec<(Prefix<u32>, Label)> = Vec::new();
    while list.len() < 1_000_000 {
        let address = rng.random_range(0x0b00_0000..0x7f00_0000);
        list.extend(Prefix::new(address, 24).map(|prefix| (prefix, Label(rng.random_range(1..=148)))));
    }
    let mut cases = Vec::new();
    match arguments.get(1) {
        Some(path) => cases.push((path.clone(), capture(path.as_ref())?)),
        None => {
            for len in [100, 536, 1448] {
                for each in [1, 4, 16] {
                    cases.push((format!("{len} bytes, {each} of each flow"), bursts(each, len, &list)?));
                }
            }
        }
    }
    let rib: Rib<u32> = list.into_iter().collect();
    for (name, frames) in cases {
        for on in [false, true] {
            let outcome = run(on, frames.clone(), rib.clone(), seconds)?;
            print(&format!("{name}, {}", if on { "on" } else { "off" }), &outcome);
        }
    }
    Ok(())
}
