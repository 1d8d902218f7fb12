//! What a packet of a request flood costs: the solicitor with its queue full, against a node that drops everything (and so
//! frees every frame), in engines of their own that run in turn.
//!
//! `cargo run --release -p tidemill-gatekeeper --example solicitor_flood [MILLION PACKETS]`

use std::sync::Arc;
use tidemill_burst::{Burst, DropReason, Memory, Packet, Pool};
use tidemill_gatekeeper::Tag;
use tidemill_gatekeeper::nodes::solicitor::{self, Solicitor, SolicitorBoard};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};

/// Gives new frames as long as there are any, up to `left`.
struct Source {
    left: u64,
    counters: PortCounters,
}

impl Port for Source {
    fn name(&self) -> &str {
        "wire"
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.left == 0 {
            return Ok(RxStatus::Ended);
        }
        while self.left > 0 && burst.room() > 0 {
            let Some(mut packet) = pool.take() else { break };
            packet.set_len(60);
            packet.l3 = 14;
            self.counters.rx.count(60);
            self.left -= 1;
            let _ = burst.push(packet);
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        burst.iter().for_each(|packet| self.counters.tx.count(packet.len()));
        pool.free_all(burst);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Stands for the gate: all are new flows, or of levels around that.
struct Gate {
    mixed: bool,
    number: u32,
}

impl Node for Gate {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        for packet in burst {
            self.number = self.number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let dscp = if self.mixed { 30 + (self.number >> 28) as u8 } else { 41 };
            packet.label = Tag { grantor: 0, dscp }.label();
        }
    }
}

/// The frame is freed, and nothing else.
struct DropAll;

impl Node for DropAll {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], verdicts: &mut [Verdict]) {
        verdicts.fill(Verdict::Drop(DropReason::RequestQueueFull));
    }
}

/// ns per packet at the last node, and how many packets left.
fn run(
    packets: u64,
    mixed: bool,
    node: impl Fn() -> Box<dyn Node> + Send + Sync + 'static,
) -> Result<(f64, u64), Box<dyn std::error::Error>> {
    let mut graph = GraphBuilder::new(["wire"]);
    graph.node("gate", ["request"], move |_| Box::new(Gate { mixed, number: 1 }));
    graph.node("solicitor", solicitor::OUTPUTS, move |_| node());
    graph.input("wire", "gate").edge("gate", "request", "solicitor");
    for output in solicitor::OUTPUTS {
        graph.edge("solicitor", output, "port:wire");
    }
    let memory = Memory::new(8192, 2048)?;
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: 8192,
        pin: true,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let source: Box<dyn Port> = Box::new(Source { left: packets, counters: PortCounters::default() });
    let engine = Engine::new(graph.build()?, 1, vec![vec![source]], &memory, &Domain::new(), options)?;
    let outcome = engine.run(|_| ());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    let counters = &outcome.snapshot.nodes[1];
    Ok((counters.busy_ns as f64 / counters.packets as f64, ledger.out))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let million = std::env::args().nth(1).map_or(Ok(20), |text| text.parse::<u64>())?;
    for mixed in [false, true] {
        let mut rounds = Vec::new();
        for _ in 0..7 {
            let (base, _) = run(million * 1_000_000, mixed, || Box::new(DropAll))?;
            let budget = solicitor::budget(10_000_000_000, solicitor::SHARE);
            let board = Arc::new(SolicitorBoard::default());
            let make = move || -> Box<dyn Node> { Box::new(Solicitor::new(4096, budget.clone(), &board)) };
            let (flood, out) = run(million * 1_000_000, mixed, make)?;
            rounds.push((flood - base, base, flood, out));
        }
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (more, base, flood, out) = rounds[rounds.len() / 2];
        let what = if mixed { "16 levels" } else { "one level" };
        println!(
            "{what}: {flood:.2} ns per packet, {base:.2} ns without the solicitor: {more:.2} ns more (medians of 7; {out} of \
             {} requests left)",
            million * 1_000_000
        );
    }
    Ok(())
}
