//! `tcp4-coalesce`, `tcp6-coalesce`: segments of one TCP flow become one long packet.
//!
//! What goes together is in [`coalesce`](crate::coalesce). A segment that went into another is consumed here, and made again
//! at [`tcp-segment`](super::tcp_segment): with nothing dropped in between, `consumed` here is `made` there. A long packet
//! that is dropped counts as one.
//!
//! Packets come with their headers checked (`ip4-input`, `ip6-input`). Output: `lookup`.

use crate::coalesce::Coalescer;
use tidemill_burst::Packet;
use tidemill_graph::{Context, Node, Verdict};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 1] = ["lookup"];

/// The node.
#[derive(Default)]
pub struct TcpCoalesce {
    coalescer: Coalescer,
}

impl Node for TcpCoalesce {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        // The others' verdicts are `Next(0)` already.
        self.coalescer.merge(burst, |at| verdicts[at] = Verdict::Consume);
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        packet.merged().map(|merged| format!("first of several segments of {} bytes", merged.size))
    }
}
