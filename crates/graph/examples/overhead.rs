//! What the graph itself costs: packets from nowhere through N nodes that do nothing, to nowhere.
//! `cargo run --release -p tidemill-graph --example overhead -- [nodes] [seconds]`

use std::time::Duration;
use tidemill_burst::{BURST, Burst, Memory, Packet, Pool};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};

struct Nowhere(&'static str, PortCounters);

impl Port for Nowhere {
    fn name(&self) -> &str {
        self.0
    }
    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        while burst.room() > 0
            && let Some(mut packet) = pool.take()
        {
            packet.set_len(64);
            packet.set_timestamp_ns(now_ns);
            self.1.rx.count(64);
            if let Err(packet) = burst.push(packet) {
                pool.free(packet);
            }
        }
        Ok(RxStatus::Received)
    }
    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            self.1.tx.count(packet.len());
            pool.free(packet);
        }
        Ok(())
    }
    fn counters(&self) -> PortCounters {
        self.1
    }
}

struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let nodes: usize = args.next().map_or(Ok(5), |n| n.parse())?;
    let seconds: u64 = args.next().map_or(Ok(2), |n| n.parse())?;
    let names: Vec<String> = (0..nodes).map(|n| format!("n{n}")).collect();
    let mut g = GraphBuilder::new(["in", "out"]);
    for (n, name) in names.iter().enumerate() {
        g.node(name, ["on"], |_| Box::new(Pass));
        g.edge(name, "on", names.get(n + 1).map_or("port:out", |next| next));
    }
    g.input("in", names.first().map_or("port:out", |n| n));
    let memory = Memory::new(4 * BURST, 2048)?;
    let port = |name| Box::new(Nowhere(name, PortCounters::default())) as Box<dyn Port>;
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: 4 * BURST,
        pin: true,
        limits: Limits { packets: None, duration: Some(Duration::from_secs(seconds)) },
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let ports = vec![vec![port("in")], vec![port("out")]];
    let engine = Engine::new(g.build()?, 1, ports, &memory, &Domain::new(), options)?;
    let outcome = engine.run(|_| ());
    println!("{nodes} nodes: {:.1} Mpps", outcome.snapshot.ledger().mpps);
    for (name, node) in names.iter().zip(&outcome.snapshot.nodes) {
        println!("  {name}: {:.2} ns/packet", node.busy_ns as f64 / node.packets.max(1) as f64);
    }
    for (rx_ns, tx_ns) in &outcome.snapshot.port_ns {
        let packets = outcome.snapshot.ledger().received.max(1) as f64;
        println!("  port: rx {:.2} tx {:.2} ns/packet", *rx_ns as f64 / packets, *tx_ns as f64 / packets);
    }
    Ok(())
}
