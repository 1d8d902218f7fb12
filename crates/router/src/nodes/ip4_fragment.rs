//! `ip4-fragment`: cuts a packet that is too long for its link into fragments, as [`fragment`] says.
//!
//! Fragments are made, the packet is consumed. With too few frames for all of them, or an MTU that leaves no eight
//! bytes, none is sent: `fragment-failed`.
//!
//! The packet comes from `ip4-forward` with its TTL decremented. Outputs: `lookup` (its next hop has been replaced
//! meanwhile), and one per port, by name.

use crate::nodes::replaced;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::{Kind, NextHops, fragment};
use tidemill_lookup::publish::View;

/// The outputs' names in front of the ports'.
pub const OUTPUTS: [&str; 1] = ["lookup"];

const LOOKUP: u8 = 0;
/// The output of port 0.
const PORTS: u8 = OUTPUTS.len() as u8;

/// The node.
pub struct Ip4Fragment {
    hops: View<NextHops>,
}

impl Ip4Fragment {
    /// A node for one worker.
    pub fn new(hops: View<NextHops>) -> Self {
        Ip4Fragment { hops }
    }
}

impl Node for Ip4Fragment {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter().zip(verdicts) {
            let hop = *self.hops.get(cx.reader).get(packet.label);
            if hop.kind != Kind::Forward {
                *verdict = replaced(&hop, LOOKUP);
                continue;
            }
            let output = PORTS + hop.port as u8;
            *verdict = match fragment::cut(cx, packet, hop.header(), hop.mtu.into(), output, |_| true) {
                Some(()) => Verdict::Consume,
                None => Verdict::Drop(DropReason::FragmentFailed),
            };
        }
    }
}
