//! What nodes share that stand in front of a graph, look at packets, and send each on as it came.

use tidemill_burst::Packet;
use tidemill_graph::Verdict;

/// Which output each port's packets go on by.
#[derive(Debug, Clone)]
pub(crate) struct Ways(Vec<u8>);

impl Ways {
    /// From what [`GraphBuilder::front`](tidemill_graph::GraphBuilder::front) says.
    pub(crate) fn new(ways: &[u8]) -> Self {
        Ways(ways.to_vec())
    }

    /// Sends each packet on.
    pub(crate) fn send_on(&self, burst: &[Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter().zip(verdicts) {
            *verdict = Verdict::Next(self.0.get(usize::from(packet.port)).copied().unwrap_or(0));
        }
    }
}
