//! The rate of the whole path: a source of minimum-size packets, the router with a full IPv4 table, a sink.
//!
//! `cargo run --release -p tidemill-router --example null_route -- [TABLE.txt] [SECONDS] [ALGORITHM]`
//!
//! `TABLE.txt` has a prefix and a number per line. Without it, a random table of a million /24s is used. Destinations are
//! random over the table: a random prefix, a random address in it. Packets have 60 bytes, 64 with the frame check
//! sequence. Prints the rate per core, and the time per packet of each node and port (dispatch included). The first rate
//! counts the time that the worker had a core (Linux), the second all time: they differ on a busy machine.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_graph::{Clock, Engine, Limits, Options};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Label, Prefix, Rib};

use tidemill_port::{NullPort, Port, PortCounters, PortError, RxStatus, Supply};
use tidemill_router::{PortInfo, RouterConfig, RouterControl, Routes, graph};

const CONFIG: &str = "
next_hops.ports = ['sink']
[[interface]]
port = 'source'
promiscuous = true
addresses = ['192.0.2.1/24']
[[interface]]
port = 'sink'
";

/// The source, which also notes how long its thread has had a core: at the first call, and at the end.
struct Timed(NullPort, Arc<[AtomicU64; 2]>);

fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

impl Port for Timed {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.1[0].load(Ordering::Relaxed) == 0 {
            self.1[0].store(cpu_ns(), Ordering::Relaxed);
        }
        self.0.rx(now_ns, pool, burst)
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.0.tx(now_ns, pool, burst)
    }

    fn finish(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.1[1].store(cpu_ns(), Ordering::Relaxed);
        self.0.finish(now_ns, pool)
    }

    fn counters(&self) -> PortCounters {
        self.0.counters()
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
    let addresses = destinations(&list, &mut rng);
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
    let source = NullPort::new("source", Supply::Destinations { frame_len: 64, addresses }, 0, None);
    let sink = NullPort::new("sink", Supply::Nothing, 0, None);
    let queues: Vec<Vec<Box<dyn Port>>> =
        vec![vec![Box::new(Timed(source, cpu.clone()))], vec![Box::new(sink)]];
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

type List = Vec<(Prefix<u32>, Label)>;

fn read(path: &str) -> Result<List, Box<dyn Error>> {
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

/// 2^18 random addresses in random prefixes of the table, none of which is refused.
fn destinations(list: &[(Prefix<u32>, Label)], rng: &mut StdRng) -> Arc<[IpAddr]> {
    let mut addresses = Vec::new();
    while addresses.len() < 1 << 18 && !list.is_empty() {
        let prefix = list[rng.random_range(0..list.len())].0;
        let dst = rng.random_range(prefix.first()..=prefix.last());
        if !matches!(dst >> 24, 0 | 127 | 224..) && dst >> 16 != 0xa9fe {
            addresses.push(Ipv4Addr::from(dst).into());
        }
    }
    addresses.into()
}
