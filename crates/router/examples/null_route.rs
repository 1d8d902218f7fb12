//! The rate of the whole path: a source of minimum-size packets, the router with a full IPv4 table, a sink.
//!
//! `cargo run --release -p tidemill-router --example null_route -- [TABLE.txt] [SECONDS] [ALGORITHM] [LABEL_COUNT]`
//!
//! `TABLE.txt` has a prefix and a number per line. Without it, a random table of a million /24s is used. Destinations are
//! random over the table: a random prefix, a random address in it. Packets have 60 bytes, 64 with the frame check
//! sequence. Prints the rate per core, and the time per packet of each node and port (dispatch included). The first rate
//! counts the time that the worker had a core (Linux), the second all time: they differ on a busy machine.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_graph::{Clock, Engine, Limits, Options};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Label, Prefix, Rib};
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_router::{PortInfo, RouterConfig, RouterControl, Routes, graph};
use tidemill_wire::{EtherType, MacAddr, Protocol, ethernet, ipv4};

const CONFIG: &str = "
next_hops.ports = ['sink']
[[interface]]
port = 'source'
addresses = ['192.0.2.1/24']
[[interface]]
port = 'sink'
";

/// The length of a minimum-size packet without its frame check sequence.
const LEN: usize = 60;
/// Hands out packets from a list of headers, for ever: what a network card's ring would hold.
struct Source {
    headers: Vec<[u8; LEN]>,
    at: usize,
    counters: PortCounters,
    /// Time on the core: at the first call, and at the end.
    cpu_ns: Arc<[AtomicU64; 2]>,
}

/// How long this thread has had a core.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

impl Port for Source {
    fn name(&self) -> &str {
        "source"
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.counters.rx.packets == 0 {
            self.cpu_ns[0].store(cpu_ns(), Ordering::Relaxed);
        }
        let mut taken = 0;
        while burst.room() > 0
            && let Some(mut packet) = pool.take()
        {
            packet.set_len(LEN);
            packet.data_mut().copy_from_slice(&self.headers[self.at]);
            self.at = if self.at + 1 == self.headers.len() { 0 } else { self.at + 1 };
            taken += 1;
            if let Err(packet) = burst.push(packet) {
                pool.free(packet);
            }
        }
        self.counters.rx.packets += taken;
        self.counters.rx.bytes += taken * LEN as u64;
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.counters.tx.packets += burst.len() as u64;
        pool.free_all(burst);
        Ok(())
    }

    fn finish(&mut self, _: u64, _: &mut Pool) -> Result<(), PortError> {
        self.cpu_ns[1].store(cpu_ns(), Ordering::Relaxed);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Takes packets and frees them.
#[derive(Default)]
struct Sink(PortCounters);

impl Port for Sink {
    fn name(&self) -> &str {
        "sink"
    }

    fn rx(&mut self, _: u64, _: &mut Pool, _: &mut Burst) -> Result<RxStatus, PortError> {
        Ok(RxStatus::Idle { next_due_ns: None })
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.0.tx.packets += burst.len() as u64;
        self.0.tx.bytes += burst.iter().map(|packet| packet.len() as u64).sum::<u64>();
        pool.free_all(burst);
        Ok(())
    }

    fn finish(&mut self, _: u64, _: &mut Pool) -> Result<(), PortError> {
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.0
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds: f64 = arguments.get(1).map_or(Ok(3.0), |text| text.parse())?;
    let mut rng = StdRng::seed_from_u64(1);
    let list = match arguments.first().filter(|path| !path.is_empty()) {
        Some(path) => read(path)?,
        None => (0..1_000_000)
            .filter_map(|_| Some((Prefix::new(rng.random(), 24)?, Label(rng.random_range(1..=148)))))
            .collect(),
    };
    let mut config: RouterConfig = toml::from_str(CONFIG)?;
    if let Some(name) = arguments.get(2) {
        config.router.algorithm.clone_from(name);
    }
    let headers = headers(&list, &mut rng);
    let domain = Domain::new();
    let ports = [PortInfo::new("source"), PortInfo::new("sink")];
    let v4 = Routes { rib: list.into_iter().collect::<Rib<u32>>(), names: Vec::new() };
    let control = RouterControl::new(&config, &ports, v4, Routes::default(), &domain)?;
    let stats = &control.lookup_stats()[0];
    println!("{}: {} prefixes, {} KiB", stats.algorithm, stats.prefixes, stats.bytes / 1024);

    let memory = Memory::new(4096, 2048)?;
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: 4096,
        pin: true,
        limits: Limits { packets: None, duration: Some(Duration::from_secs_f64(seconds)) },
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let cpu: Arc<[AtomicU64; 2]> = Arc::default();
    let queues: Vec<Vec<Box<dyn Port>>> = vec![
        vec![Box::new(Source { headers, at: 0, counters: PortCounters::default(), cpu_ns: cpu.clone() })],
        vec![Box::new(Sink::default())],
    ];
    let built = graph(&control).build()?;
    let names = (built.node_names.clone(), built.port_names.clone());
    let outcome = Engine::new(built, 1, queues, &memory, &domain, options)?.run(|_| {});
    let snapshot = outcome.snapshot;
    let ledger = snapshot.ledger();
    println!(
        "in {} out {} dropped {:?} balances {}",
        ledger.received,
        ledger.out,
        ledger.dropped,
        ledger.balances()
    );
    let cpu_ns = cpu[1].load(Ordering::Relaxed).saturating_sub(cpu[0].load(Ordering::Relaxed));
    println!(
        "{:.2} Mpps per core ({:.2} by the wall clock)",
        ledger.received as f64 * 1e3 / cpu_ns.max(1) as f64,
        ledger.mpps
    );
    let per_packet = |ns: u64, packets: u64| ns as f64 / packets.max(1) as f64;
    for (name, ns) in names.1.iter().zip(&snapshot.port_ns) {
        let total = per_packet(ns.0 + ns.1, ledger.received);
        println!("  {:16} {total:6.2} ns/packet", format!("port:{name}"));
    }
    for (name, node) in names.0.iter().zip(&snapshot.nodes).filter(|(_, node)| node.packets > 0) {
        println!("  {name:16} {:6.2} ns/packet", per_packet(node.busy_ns, ledger.received));
    }
    Ok(())
}

fn read(path: &str) -> Result<Vec<(Prefix<u32>, Label)>, Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    let mut list = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let parsed = line
            .split_once(char::is_whitespace)
            .and_then(|(prefix, label)| Some((prefix.parse().ok()?, Label(label.trim().parse().ok()?))));
        list.push(parsed.ok_or_else(|| format!("{path}:{}: not a prefix and a number", n + 1))?);
    }
    Ok(list)
}

/// 2^18 packets to random addresses in random prefixes of the table, none of which is refused.
fn headers(list: &[(Prefix<u32>, Label)], rng: &mut StdRng) -> Vec<[u8; LEN]> {
    let mut headers = Vec::new();
    while headers.len() < 1 << 18 && !list.is_empty() {
        let prefix = list[rng.random_range(0..list.len())].0;
        let dst = rng.random_range(prefix.first()..=prefix.last());
        if matches!(dst >> 24, 0 | 127 | 224..) || dst >> 16 == 0xa9fe {
            continue;
        }
        let mut bytes = [0; LEN];
        let link = ethernet::Repr {
            dst: MacAddr([0x02, 0x49, 0, 0, 0, 0]),
            src: MacAddr([2; 6]),
            ethertype: EtherType::IPV4,
        };
        let ip = ipv4::Repr::new([10, 0, 0, 1].into(), dst.into(), Protocol::UDP, LEN - 34);
        if link.emit(&mut bytes).is_ok() && ip.emit(&mut bytes[14..]).is_ok() {
            headers.push(bytes);
        }
    }
    headers
}
