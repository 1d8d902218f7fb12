//! Run to completion against a pipeline: packets from nowhere through two nodes that work for so long, by one worker, by two,
//! and by two in a row, in turns.
//! `cargo run --release -p tidemill-graph --example placement -- [ns of work per node and packet] [runs]`

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tidemill_burst::{Memory, Packet};
use tidemill_graph::{
    Clock, Context, Engine, Graph, GraphBuilder, Limits, Node, Options, Placement, Verdict,
};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{NullPort, Port, Supply};

const FRAMES: usize = 4096;

/// Reads the packet and multiplies, about so many times a nanosecond each.
struct Work(u32);

impl Node for Work {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        for packet in burst {
            let mut sum = u64::from(packet.data()[30]);
            for _ in 0..self.0 {
                sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
            black_box(sum);
        }
    }
}

fn graph(work: u32) -> Result<Graph, Box<dyn std::error::Error>> {
    let mut g = GraphBuilder::new(["in", "out"]);
    g.node("first", ["on"], move |_| Box::new(Work(work)));
    g.node("second", ["on"], move |_| Box::new(Work(work)));
    g.input("in", "first").edge("first", "on", "second").edge("second", "on", "port:out");
    Ok(g.build()?)
}

fn run(work: u32, workers: usize, stages: &[&str]) -> Result<f64, Box<dyn std::error::Error>> {
    let memory = Memory::new(FRAMES * workers, 2048)?;
    let addresses: Arc<[IpAddr]> = [IpAddr::from([198, 51, 100, 1])].into();
    let port = |name, supply| Box::new(NullPort::new(name, supply, 0, None)) as Box<dyn Port>;
    let supply = || Supply::Destinations { frame_len: 64, addresses: addresses.clone() };
    let queues = workers / (stages.len() + 1);
    let ports = vec![
        (0..queues).map(|_| port("in", supply())).collect(),
        (0..queues).map(|_| port("out", Supply::Nothing)).collect(),
    ];
    let placement = Placement {
        stages: stages.iter().map(|node| vec![(*node).to_owned()]).collect(),
        ..Placement::simple(workers, &memory)
    };
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: FRAMES,
        pin: true,
        limits: Limits { packets: None, duration: Some(Duration::from_millis(300)) },
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let outcome = Engine::placed(graph(work)?, ports, placement, &Domain::new(), options)?.run(|_| ());
    let ledger = outcome.snapshot.ledger();
    if !ledger.balances() || ledger.dropped_total() > 0 {
        return Err(format!("the books: {ledger:?}").into());
    }
    Ok(ledger.mpps)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let work: u32 = args.next().map_or(Ok(20), |n| n.parse())?;
    let runs: usize = args.next().map_or(Ok(7), |n| n.parse())?;
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..runs.max(1) {
        for (rates, (workers, stages)) in rates.iter_mut().zip([(1, &[][..]), (2, &[]), (2, &["second"])]) {
            rates.push(run(work, workers, stages)?);
        }
    }
    for (what, mut rates) in ["one worker", "two workers", "two in a row"].into_iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        println!("{what}: {:.2} Mpps ({:.2} to {:.2})", rates[runs / 2], rates[0], rates[rates.len() - 1]);
    }
    Ok(())
}
