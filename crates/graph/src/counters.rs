//! What is counted, and the books that must balance.

use serde::Serialize;
use std::collections::BTreeMap;
use tidemill_burst::{DropCounts, DropReason, PoolStats};
use tidemill_port::PortCounters;

/// One node's counters on one worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeCounters {
    /// Bursts processed.
    pub calls: u64,
    /// Packets processed.
    pub packets: u64,
    /// Nanoseconds spent, dispatch included.
    pub busy_ns: u64,
    /// Packets made here.
    pub made: u64,
    /// Packets that ended here well.
    pub consumed: u64,
    /// Packets dropped here.
    pub dropped: DropCounts,
}

/// What one worker (or, [summed](Self::add), all of them) has counted.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// One entry per node of the graph.
    pub nodes: Vec<NodeCounters>,
    /// Packets that left each node by each of its outputs, those included that had no room behind it.
    pub outputs: Vec<Vec<u64>>,
    /// One entry per port.
    pub ports: Vec<PortCounters>,
    /// Nanoseconds spent in each port's receive and transmit calls.
    pub port_ns: Vec<(u64, u64)>,
    /// Drops at the graph's edge to each port (no room to send).
    pub edge_drops: Vec<DropCounts>,
    /// Packets inside: in queues, or kept by nodes.
    pub held: u64,
    /// Packets handed over to other workers.
    pub passed: u64,
    /// Packets taken over from other workers. What was passed and is not taken yet is in rings between workers.
    pub taken: u64,
    /// The pools' frames.
    pub pool: PoolStats,
    /// Nanoseconds since the worker started; the longest, when summed.
    pub elapsed_ns: u64,
    /// Nanoseconds of it spent in turns that moved packets; the rest is polling and sleep. The sum, when summed.
    pub busy_ns: u64,
    /// Nanoseconds of it spent asleep. The sum, when summed.
    pub slept_ns: u64,
    /// Bursts received.
    pub bursts: u64,
    /// Workers that have ended.
    pub ended: usize,
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        let mut copy = Snapshot::default();
        copy.clone_from(self);
        copy
    }

    /// Into lists of equal length this allocates nothing: a worker shows its counters so, in the midst of its work. The
    /// derived one would make new lists.
    fn clone_from(&mut self, other: &Self) {
        let Snapshot {
            nodes,
            outputs,
            ports,
            port_ns,
            edge_drops,
            held,
            passed,
            taken,
            pool,
            elapsed_ns,
            busy_ns,
            slept_ns,
            bursts,
            ended,
        } = other;
        self.nodes.clone_from(nodes);
        self.outputs.clone_from(outputs);
        self.ports.clone_from(ports);
        self.port_ns.clone_from(port_ns);
        self.edge_drops.clone_from(edge_drops);
        (self.held, self.pool) = (*held, *pool);
        (self.passed, self.taken) = (*passed, *taken);
        (self.elapsed_ns, self.busy_ns, self.slept_ns) = (*elapsed_ns, *busy_ns, *slept_ns);
        (self.bursts, self.ended) = (*bursts, *ended);
    }
}

impl Snapshot {
    /// Of nodes with so many outputs each.
    pub(crate) fn new(outputs: impl Iterator<Item = usize>, ports: usize) -> Self {
        let outputs: Vec<Vec<u64>> = outputs.map(|outputs| vec![0; outputs]).collect();
        Snapshot {
            nodes: vec![NodeCounters::default(); outputs.len()],
            outputs,
            ports: vec![PortCounters::default(); ports],
            port_ns: vec![(0, 0); ports],
            edge_drops: vec![DropCounts::default(); ports],
            ..Default::default()
        }
    }

    /// Adds another worker's.
    pub fn add(&mut self, other: &Snapshot) {
        for (mine, theirs) in self.nodes.iter_mut().zip(&other.nodes) {
            mine.calls += theirs.calls;
            mine.packets += theirs.packets;
            mine.busy_ns += theirs.busy_ns;
            mine.made += theirs.made;
            mine.consumed += theirs.consumed;
            mine.dropped.add(&theirs.dropped);
        }
        for (mine, theirs) in self.outputs.iter_mut().zip(&other.outputs) {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
        self.ports.iter_mut().zip(&other.ports).for_each(|(mine, theirs)| mine.add(theirs));
        self.edge_drops.iter_mut().zip(&other.edge_drops).for_each(|(mine, theirs)| mine.add(theirs));
        for (mine, theirs) in self.port_ns.iter_mut().zip(&other.port_ns) {
            *mine = (mine.0 + theirs.0, mine.1 + theirs.1);
        }
        self.held += other.held;
        self.passed += other.passed;
        self.taken += other.taken;
        self.pool.add(&other.pool);
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.busy_ns += other.busy_ns;
        self.slept_ns += other.slept_ns;
        self.bursts += other.bursts;
        self.ended += other.ended;
    }

    /// The books of this snapshot.
    pub fn ledger(&self) -> Ledger {
        let mut drops = DropCounts::default();
        let mut ledger = Ledger::default();
        for node in &self.nodes {
            ledger.made += node.made;
            ledger.consumed += node.consumed;
            drops.add(&node.dropped);
        }
        for port in &self.ports {
            ledger.received += port.rx.packets;
            ledger.out += port.tx.packets;
            ledger.made += port.rx.made + port.tx.made;
            ledger.held += port.rx.held + port.tx.held;
            drops.add(&port.rx.dropped);
            drops.add(&port.tx.dropped);
        }
        self.edge_drops.iter().for_each(|edge| drops.add(edge));
        ledger.held += self.held + self.passed.saturating_sub(self.taken);
        // Seen by the worker that took it over before the one that received it has shown its counters, or by the one alone.
        ledger.received += self.taken.saturating_sub(self.passed);
        ledger.dropped = drops.iter().map(|(reason, n)| (reason.name(), n)).collect();
        ledger.seconds = self.elapsed_ns as f64 / 1e9;
        ledger.mpps =
            if self.elapsed_ns == 0 { 0.0 } else { ledger.received as f64 * 1e3 / self.elapsed_ns as f64 };
        ledger
    }
}

/// The books: `in + made = out + dropped + consumed + held`, at any time between two bursts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Ledger {
    /// Packets received by all ports.
    #[serde(rename = "in")]
    pub received: u64,
    /// Packets made inside: ICMP errors, fragments, copies.
    pub made: u64,
    /// Packets sent by all ports.
    pub out: u64,
    /// Packets that ended inside on purpose.
    pub consumed: u64,
    /// Packets still inside.
    pub held: u64,
    /// Packets dropped, by the reason's stable name.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Seconds that the run took.
    pub seconds: f64,
    /// Million packets received per second.
    pub mpps: f64,
}

impl Ledger {
    /// Packets dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Packets dropped for one reason.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped.get(reason.name()).copied().unwrap_or(0)
    }

    /// Whether nothing has gone missing.
    pub fn balances(&self) -> bool {
        self.received + self.made == self.out + self.dropped_total() + self.consumed + self.held
    }
}
