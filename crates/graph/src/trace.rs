//! Packet tracing: the path of single packets through the graph, node by node.

use crate::node::Verdict;
use serde::Serialize;
use std::collections::VecDeque;
use tidemill_burst::Packet;

/// A request to trace the next `packets` packets that reach a node, on each worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceRequest {
    /// The node's name, or `port:NAME` for the packets received there.
    pub at: String,
    /// How many packets.
    pub packets: u32,
}

/// One traced packet at one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceEntry {
    /// The entry's number in this run, counted from 0 over all workers.
    pub seq: u64,
    /// Which packet. It keeps this number when another worker takes it over.
    pub id: u64,
    /// The worker.
    pub worker: usize,
    /// The time of the burst, ns since the epoch.
    pub now_ns: u64,
    /// The node, or `port:NAME`.
    pub at: String,
    /// What became of it there.
    pub verdict: String,
    /// The packet as the node left it.
    pub packet: String,
    /// What the node has to say about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The entries of all workers, the newest ones: the oldest give way.
#[derive(Debug)]
pub(crate) struct Store {
    entries: VecDeque<TraceEntry>,
    limit: usize,
    next_seq: u64,
}

impl Store {
    pub(crate) fn new(limit: usize) -> Self {
        Store { entries: VecDeque::new(), limit, next_seq: 0 }
    }

    /// Takes a worker's entries and numbers them.
    pub(crate) fn add(&mut self, entries: &mut Vec<TraceEntry>) {
        for mut entry in entries.drain(..) {
            if self.entries.len() >= self.limit {
                self.entries.pop_front();
            }
            entry.seq = self.next_seq;
            self.next_seq += 1;
            self.entries.push_back(entry);
        }
    }

    /// The entries from number `since` on.
    pub(crate) fn since(&self, since: u64) -> Vec<TraceEntry> {
        let first = self.entries.partition_point(|entry| entry.seq < since);
        self.entries.range(first..).cloned().collect()
    }
}

/// One worker's tracing.
pub(crate) struct Tracer {
    /// Says in one line what a packet is; handed in, because this crate knows no protocols.
    describe: fn(&[u8]) -> String,
    pub(crate) at_node: Vec<u32>,
    pub(crate) at_port: Vec<u32>,
    last_id: u64,
    /// Distance of this worker's numbers: no other has the same ones.
    step: u64,
    pub(crate) entries: Vec<TraceEntry>,
}

impl Tracer {
    /// For worker `worker` of `workers`: its packets get the numbers `worker + 1`, `worker + 1 + workers` and so on.
    pub(crate) fn new(
        nodes: usize,
        ports: usize,
        (worker, workers): (u64, u64),
        describe: fn(&[u8]) -> String,
    ) -> Self {
        let (at_node, at_port) = (vec![0; nodes], vec![0; ports]);
        let last_id = (worker + 1).wrapping_sub(workers);
        Tracer { describe, at_node, at_port, last_id, step: workers, entries: Vec::new() }
    }

    /// Whether packets are still to be marked.
    pub(crate) fn wants_more(&self) -> bool {
        self.at_node.iter().chain(&self.at_port).any(|left| *left > 0)
    }

    /// Marks the first packets of a burst, as many as `left` still asks for.
    fn mark(left: &mut u32, (last_id, step): (&mut u64, u64), burst: &mut [Packet]) {
        for packet in burst.iter_mut() {
            if *left == 0 {
                return;
            }
            if packet.trace().is_none() {
                *last_id = last_id.wrapping_add(step);
                *left -= 1;
                packet.set_trace(*last_id);
            }
        }
    }

    pub(crate) fn mark_at_node(&mut self, node: usize, burst: &mut [Packet]) {
        Self::mark(&mut self.at_node[node], (&mut self.last_id, self.step), burst);
    }

    pub(crate) fn mark_at_port(&mut self, port: usize, burst: &mut [Packet]) {
        Self::mark(&mut self.at_port[port], (&mut self.last_id, self.step), burst);
    }

    pub(crate) fn note(
        &mut self,
        worker: usize,
        now_ns: u64,
        at: &str,
        packet: &Packet,
        verdict: String,
        note: Option<String>,
    ) {
        let Some(id) = packet.trace() else { return };
        let packet = (self.describe)(packet.data());
        self.entries.push(TraceEntry {
            seq: 0,
            id,
            worker,
            now_ns,
            at: at.to_owned(),
            verdict,
            packet,
            note,
        });
    }
}

/// The verdict in words, with the output's name.
pub(crate) fn verdict_text(verdict: Verdict, outputs: &[(String, crate::graph::Target)]) -> String {
    match verdict {
        Verdict::Next(n) => {
            outputs.get(n as usize).map_or_else(|| format!("next {n}"), |(name, _)| format!("next {name}"))
        }
        Verdict::Drop(reason) => format!("drop {}", reason.name()),
        Verdict::Consume => "consume".into(),
        Verdict::Keep => "keep".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_entries_give_way_and_numbers_go_on() {
        let entry = |id| TraceEntry {
            seq: 0,
            id,
            worker: 0,
            now_ns: 0,
            at: "n".into(),
            verdict: "keep".into(),
            packet: String::new(),
            note: None,
        };
        let mut store = Store::new(3);
        store.add(&mut (0..2).map(entry).collect());
        assert_eq!(store.since(0).len(), 2);
        store.add(&mut (2..5).map(entry).collect());
        let kept: Vec<_> = store.since(0).iter().map(|e| (e.seq, e.id)).collect();
        assert_eq!(kept, [(2, 2), (3, 3), (4, 4)]);
        assert_eq!(store.since(4).len(), 1);
        assert!(store.since(5).is_empty() && store.since(u64::MAX).is_empty());
    }
}
