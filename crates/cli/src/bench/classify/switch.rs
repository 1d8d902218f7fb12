//! The whole switch between two ports in memory, on one core: a run, and the books that it has to balance.

use super::ports::{Back, Front, Measured, PORTS, Phase, Read, Slice, Watch};
use super::traffic::{Flood, Frames, LONGEST, Traffic};
use crate::bench::ends::warn_unbound;
use crate::bench::statistics::median;
use crate::json::Params;
use anyhow::{Context as _, Result, bail};
use std::sync::Arc;
use std::time::Duration;
use tidemill_burst::{Memory, Packet};
use tidemill_classify::flows::{PortNames, read_flows};
use tidemill_classify::live::Snapshot;
use tidemill_classify::pipeline::{Pipeline, PipelineOracle, PipelineSettings};
use tidemill_classify::{Grouping, packet};
use tidemill_graph::{Clock, Context, Engine, Graph, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Port;
use tidemill_switch::{Counter, Counters, SwitchControl, SwitchSection, graph, graph_timed};

/// Packet memory.
const FRAMES: usize = 4096;
const FRAME_SIZE: usize = 2048;
/// Flows whose way the oracle is asked for.
const SAMPLE: u32 = 10_000;

/// What stands between the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Switch,
    /// With a stopwatch.
    Timed,
    /// A bridge that looks at nothing.
    Bound,
}

/// What comes in, and what the switch is told.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) traffic: Traffic,
    pub(super) v6: bool,
    pub(super) phases: Vec<Phase>,
    pub(super) slice: Duration,
    /// What the packets of a flood are; its rules are there in all phases.
    pub(super) flood: Flood,
    pub(super) section: SwitchSection,
    pub(super) seed: u64,
}

impl Plan {
    pub(super) fn rules(&self) -> String {
        format!("{}{}", self.flood.text(), self.traffic.text(self.v6))
    }

    fn frames(&self) -> Result<Frames> {
        Frames::new(self.traffic, self.flood, self.v6, self.seed)
    }

    /// What is said beside each figure of a flood, whose phases last so long.
    pub(super) fn params(&self, seconds: Duration) -> Params {
        let (traffic, section) = (&self.traffic, &self.section);
        let mut params = Params::new();
        params.insert("flows".into(), traffic.flows.into());
        params.insert("rules".into(), (traffic.rules + self.flood.rules()).into());
        params.insert("seconds".into(), seconds.as_secs_f64().into());
        params.insert("slice_ms".into(), (self.slice.as_secs_f64() * 1e3).into());
        params.insert("signatures".into(), section.signatures.into());
        params.insert("exact".into(), section.exact.into());
        params.insert("megaflows".into(), section.megaflows.into());
        params.insert("most_masks".into(), section.masks.into());
        let caches: f64 = section.caches().bytes().iter().sum();
        params.insert("caches_mib".into(), (caches / 1_048_576.0).into());
        params.insert("seed".into(), self.seed.into());
        params
    }
}

/// What a run gives.
pub(super) struct Ran {
    pub(super) measured: Arc<Measured>,
    /// Of a switch.
    pub(super) counters: Counters,
}

impl Ran {
    /// M packets a second in a phase.
    pub(super) fn mpps(&self, phase: usize) -> f64 {
        let slices = self.measured.slices();
        let of = slices.iter().filter(|slice| slice.phase == phase);
        let (packets, seconds) = of.fold((0, 0.0), |(packets, seconds), slice| {
            (packets + slice.packets, seconds + slice.elapsed.as_secs_f64())
        });
        packets as f64 / seconds / 1e6
    }

    /// M packets a second in the slice of a phase that is in the middle: those that somebody else's work has hit do not count.
    pub(super) fn usual_mpps(&self, phase: usize) -> f64 {
        let slices = self.measured.slices();
        let of = slices.iter().filter(|slice| slice.phase == phase && slice.packets > 0);
        median(&of.map(Slice::mpps).collect::<Vec<f64>>())
    }

    /// What the process has taken between the ends of two phases, MiB.
    pub(super) fn grown_mib(&self, from: usize, to: usize) -> f64 {
        let resident = self.measured.resident_mib();
        let at = |phase: usize| resident.get(phase).copied().unwrap_or_default();
        (at(to) - at(from)).max(0.0)
    }

    /// What is in the caches at the end.
    pub(super) fn count(&self, counter: Counter) -> f64 {
        self.counters.get(counter) as f64
    }

    /// What was counted in a phase, for each of its packets.
    pub(super) fn share(&self, phase: usize, counter: Counter) -> f64 {
        self.measured.counted(phase, counter) as f64 / self.measured.packets(phase).max(1) as f64
    }
}

/// The bridge.
struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

fn bridge() -> GraphBuilder {
    let mut graph = GraphBuilder::new(PORTS);
    graph.node("on", ["on"], |_| Box::new(Pass)).input(PORTS[0], "on").input(PORTS[1], "on");
    graph.edge("on", "on", "port:out");
    graph
}

fn book(plan: &Plan, grouping: Grouping) -> Result<Pipeline> {
    let ports = PortNames(PORTS.map(str::to_owned).to_vec());
    let mut book = Pipeline::new(&Domain::new(), PipelineSettings { tables: 1, rules: 256, grouping });
    book.load(read_flows(plan.rules().as_bytes(), &ports)?, true, 0)?;
    book.commit();
    Ok(book)
}

/// The oracle's way for some flows, and for some packets of the flood: each has to be its rule's. What the counters say of all packets then follows.
pub(super) fn check_rules(plan: &Plan) -> Result<()> {
    let book = book(plan, Grouping::Exact)?;
    let (oracle, snapshot): (PipelineOracle, &Snapshot) = (book.oracle(), book.snapshot());
    let (frames, mut bytes) = (plan.frames()?, [0; LONGEST]);
    let bytes = &mut bytes[..frames.len()];
    let check = |bytes: &[u8], (what, number): (&str, u32), rule: u32| -> Result<()> {
        let key = packet::key(bytes, 1).context("a frame without a key")?;
        let (way, expected) = (snapshot.walk(&key, |_| {}).0, oracle.way(&key));
        if way != expected || expected.rules().next().map(|id| id.0) != Some(rule) {
            bail!("WRONG: {what} {number}: {way:?}, the oracle says {expected:?}, not rule {rule}");
        }
        Ok(())
    };
    for flow in 0..SAMPLE.min(plan.traffic.flows) {
        frames.write(flow, bytes);
        check(bytes, ("flow", flow), frames.rule(flow))?;
    }
    let flooded = if plan.flood == Flood::None { 0 } else { SAMPLE };
    for number in 0..flooded {
        let rule = frames.write_flood(number.into(), bytes);
        check(bytes, ("packet of the flood", number), rule)?;
    }
    Ok(())
}

/// One run.
pub(super) fn run_once(subject: Subject, plan: &Plan) -> Result<Ran> {
    let domain = Domain::new();
    let measured = Arc::new(Measured::default());
    let mut control = None;
    let mut read: Read = Box::new(Counters::default);
    let graph: Graph = if subject == Subject::Bound {
        bridge().build()?
    } else {
        let names = PORTS.map(str::to_owned);
        let secret = u128::from(plan.seed) << 64 | 0x5eed;
        let mut switch = SwitchControl::new(&plan.section, &names, 1, &domain, secret)?;
        switch.load(plan.rules().as_bytes(), "the rules", true)?;
        let switch = control.insert(switch);
        read = Box::new(switch.counter_reader());
        let for_watch = measured.clone();
        match subject {
            Subject::Timed => graph_timed(switch, move |_| Watch::new(for_watch.clone())),
            _ => graph(switch),
        }
        .build()?
    };
    let front = Front::new(
        (plan.frames()?, plan.traffic.flows),
        plan.phases.clone(),
        plan.slice,
        plan.seed,
        (measured.clone(), read),
    );
    let memory = Memory::new(FRAMES, FRAME_SIZE).context("packet memory")?;
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: FRAMES,
        pin: true,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let queues: Vec<Vec<Box<dyn Port>>> = vec![vec![Box::new(front)], vec![Box::<Back>::default()]];
    let engine = Engine::new(graph, 1, queues, &memory, &domain, options)?;
    let handle = engine.handle();
    let outcome = engine.run(|_| {});
    warn_unbound(&handle);
    if let Some(error) = outcome.errors.into_iter().next() {
        return Err(error.into());
    }
    let ledger = outcome.snapshot.ledger();
    let sent = measured.sent();
    let all: u64 = sent.iter().sum();
    if !ledger.balances() || all == 0 || ledger.received != all || ledger.out != all {
        bail!(
            "WRONG: the books do not balance: sent {all}, in {}, out {}, dropped {:?}",
            ledger.received,
            ledger.out,
            ledger.dropped
        );
    }
    let counters = match &mut control {
        Some(switch) => {
            check_hits(switch, &sent)?;
            switch.counters()
        }
        None => Counters::default(),
    };
    if control.is_some() {
        check_phases(plan, &measured)?;
    }
    Ok(Ran { measured, counters })
}

/// In each phase as many packets were decided as it had: what is told of a phase is of no other's packets.
fn check_phases(plan: &Plan, measured: &Measured) -> Result<()> {
    for phase in 0..plan.phases.len() {
        let decided: u64 = LAYERS.into_iter().map(|layer| measured.counted(phase, layer)).sum();
        let packets = measured.packets(phase);
        if decided != packets {
            bail!("WRONG: {packets} packets in phase {phase}, and {decided} were decided");
        }
    }
    Ok(())
}

/// The layers, each of which decides some of a phase's packets, and together all.
pub(super) const LAYERS: [Counter; 3] = [Counter::ExactHits, Counter::MegaflowHits, Counter::Misses];

/// Every packet has met its rule, and each was decided by a layer.
fn check_hits(switch: &mut SwitchControl, sent: &[u64]) -> Result<()> {
    // By falling priority: the flood's come first.
    let shown = switch.flows("")?;
    let hits: Vec<u64> = shown.iter().map(|flow| flow.hits.packets).collect();
    let counters = switch.counters();
    let decided: u64 = LAYERS.into_iter().map(|layer| counters.get(layer)).sum();
    if hits != sent || decided != sent.iter().sum::<u64>() {
        bail!("WRONG: of each rule {sent:?} were sent, its counters say {hits:?}; {decided} decided");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::traffic::TRAFFIC;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_flood_of_masks_wants_many_and_the_traffic_beside_it_one() {
        let plan = Plan {
            traffic: TRAFFIC[0],
            v6: false,
            phases: Vec::new(),
            slice: Duration::ZERO,
            flood: Flood::Masks,
            section: SwitchSection::default(),
            seed: 7,
        };
        assert_eq!(plan.rules().lines().count(), 80);
        check_rules(&plan).unwrap();
        for grouping in [Grouping::Exact, Grouping::Merged] {
            let book = book(&plan, grouping).unwrap();
            let frames = plan.frames().unwrap();
            let mut bytes = [0; LONGEST];
            let bytes = &mut bytes[..frames.len()];
            let [mut traffic, mut flood] = [HashSet::new(), HashSet::new()];
            for number in 0..SAMPLE.min(plan.traffic.flows) {
                frames.write(number, bytes);
                traffic.insert(book.snapshot().walk(&packet::key(bytes, 1).unwrap(), |_| {}).1);
                frames.write_flood(number.into(), bytes);
                flood.insert(book.snapshot().walk(&packet::key(bytes, 1).unwrap(), |_| {}).1);
            }
            assert_eq!(traffic.len(), 1, "{grouping:?}");
            assert!(flood.len() > plan.section.masks, "{} masks, {grouping:?}", flood.len());
        }
    }

    #[test]
    fn each_packet_of_a_flood_makes_a_megaflow() {
        for traffic in [TRAFFIC[0], TRAFFIC[3]] {
            let plan = Plan {
                traffic,
                v6: false,
                phases: Vec::new(),
                slice: Duration::ZERO,
                flood: Flood::Megaflows,
                section: SwitchSection::default(),
                seed: 7,
            };
            check_rules(&plan).unwrap();
            let (frames, mut bytes) = (plan.frames().unwrap(), [0; LONGEST]);
            let bytes = &mut bytes[..frames.len()];
            for grouping in [Grouping::Exact, Grouping::Merged] {
                let book = book(&plan, grouping).unwrap();
                let mut megaflows = HashSet::new();
                for number in 0..SAMPLE {
                    frames.write_flood(number.into(), bytes);
                    let key = packet::key(bytes, 1).unwrap();
                    let mask = book.snapshot().walk(&key, |_| {}).1;
                    megaflows.insert((mask, key.masked(&mask)));
                }
                assert_eq!(megaflows.len(), SAMPLE as usize, "{}, {grouping:?}", traffic.name);
            }
        }
    }
}
