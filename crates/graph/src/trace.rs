//! Packet tracing: the path of single packets through the graph, node by node.

use crate::node::Verdict;
use serde::Serialize;
use tidemill_burst::Packet;

/// A request to trace the next `packets` packets that reach a node.
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
    /// Which packet: unique per worker.
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

/// One worker's tracing; exists only while somebody traces.
pub(crate) struct Tracer {
    /// Says in one line what a packet is; handed in, because this crate knows no protocols.
    describe: fn(&[u8]) -> String,
    pub(crate) at_node: Vec<u32>,
    pub(crate) at_port: Vec<u32>,
    next_id: u64,
    pub(crate) entries: Vec<TraceEntry>,
}

impl Tracer {
    pub(crate) fn new(nodes: usize, ports: usize, describe: fn(&[u8]) -> String) -> Self {
        let (at_node, at_port) = (vec![0; nodes], vec![0; ports]);
        Tracer { describe, at_node, at_port, next_id: 0, entries: Vec::new() }
    }

    /// Marks the first packets of a burst, as many as `left` still asks for.
    pub(crate) fn mark(left: &mut u32, next_id: &mut u64, burst: &mut [Packet]) {
        for packet in burst.iter_mut() {
            if *left == 0 {
                return;
            }
            if packet.trace().is_none() {
                *next_id += 1;
                *left -= 1;
                packet.set_trace(*next_id);
            }
        }
    }

    pub(crate) fn mark_at_node(&mut self, node: usize, burst: &mut [Packet]) {
        Self::mark(&mut self.at_node[node], &mut self.next_id, burst);
    }

    pub(crate) fn mark_at_port(&mut self, port: usize, burst: &mut [Packet]) {
        Self::mark(&mut self.at_port[port], &mut self.next_id, burst);
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
        self.entries.push(TraceEntry { id, worker, now_ns, at: at.to_owned(), verdict, packet, note });
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
