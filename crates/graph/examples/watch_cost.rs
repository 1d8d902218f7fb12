//! What watching costs, on one core: `cargo run --release -p tidemill-graph --example watch_cost`. Packets go from a null
//! port through a row of nodes that do next to nothing, so that every branch of the worker shows. The time is the
//! worker's own account of its turns; the best of several runs, because other programs only ever add to it.

use std::error::Error;
use tidemill_burst::{Memory, Packet};
use tidemill_graph::trace::TraceRequest;
use tidemill_graph::{
    Capture, Clock, Context, Engine, EngineError, GraphBuilder, Handle, Limits, Node, Options, Verdict,
};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{NullPort, Supply};

const NODES: usize = 6;
const PACKETS: u64 = 20_000_000;

struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        burst.iter_mut().for_each(|packet| packet.label += 1);
    }
}

/// Nanoseconds per packet of one run, during which what `watch` gives is kept.
fn run(watch: impl FnOnce(&Handle) -> Result<Option<Capture>, EngineError>) -> Result<f64, Box<dyn Error>> {
    let mut g = GraphBuilder::new(["in", "out"]);
    for n in 0..NODES {
        g.node(&format!("n{n}"), ["on"], |_| Box::new(Pass));
        let to = if n + 1 < NODES { format!("n{}", n + 1) } else { "port:out".into() };
        g.edge(&format!("n{n}"), "on", &to);
    }
    g.input("in", "n0");
    let frames = Supply::Frames(vec![vec![7; 60]; 256].into());
    let ports: Vec<Vec<Box<dyn tidemill_port::Port>>> = vec![
        vec![Box::new(NullPort::new("in", frames, 0, Some(PACKETS)))],
        vec![Box::new(NullPort::new("out", Supply::Nothing, 0, None))],
    ];
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: 1024,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let engine = Engine::new(g.build()?, 1, ports, &Memory::new(1024, 2048)?, &Domain::new(), options)?;
    let _watching = watch(&engine.handle())?;
    Ok(engine.run(|_| {}).snapshot.busy_ns as f64 / PACKETS as f64)
}

fn report(
    what: &str,
    watch: impl Fn(&Handle) -> Result<Option<Capture>, EngineError>,
) -> Result<(), Box<dyn Error>> {
    let mut ns = (0..9).map(|_| run(&watch)).collect::<Result<Vec<_>, _>>()?;
    ns.sort_by(f64::total_cmp);
    println!("{what:<44} {:6.2} ns per packet (best of 9; median {:.2})", ns[0], ns[4]);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    report("nothing watched", |_| Ok(None))?;
    report("100 packets traced, then nothing", |handle| {
        handle.trace(&TraceRequest { at: "n0".into(), packets: 100 }).map(|()| None)
    })?;
    report("a capture where no packet comes", |handle| handle.capture("port:out:rx", 1).map(Some))?;
    report("a capture at a node, full: all missed", |handle| handle.capture("n3", 1).map(Some))
}
