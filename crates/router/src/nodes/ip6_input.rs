//! `ip6-input`: decides whether an IPv6 packet is one.
//!
//! * RFC 8200 3: `ipv6-too-short`, `ipv6-bad-version`, `ipv6-bad-length` (or `capture-truncated` if the capture lacks
//!   the rest). Ethernet's padding is cut off. Extension headers are for the destination; none is looked at here
//!   (RFC 8200 4: hop-by-hop options may be left alone by routers).
//! * A frame that came to a link-layer group is not forwarded: `broadcast`, `multicast`.
//! * RFC 4291 and RFC 6890: `martian-source`, `martian-destination`, `multicast`, `link-local`.
//!
//! Output: `lookup`.

use crate::config::Martians;
use crate::martian::Filter;
use crate::nodes::{each, ip4_input, short};
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_wire::ipv6;

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 1] = ["lookup"];

/// The node.
pub struct Ip6Input {
    filter: Filter<u128>,
}

impl Ip6Input {
    /// A node for one worker.
    pub fn new(martians: Martians) -> Self {
        Ip6Input { filter: Filter::v6(martians) }
    }

    #[inline(always)]
    fn check(&self, packet: &mut Packet) -> Verdict {
        let l3 = usize::from(packet.l3);
        let data = packet.data();
        let ip = data.get(l3..).unwrap_or_default();
        let Some(header) = ip.first_chunk::<{ ipv6::HEADER_LEN }>() else {
            return short(packet, DropReason::Ipv6TooShort);
        };
        if ipv6::version(header) != 6 {
            return Verdict::Drop(DropReason::Ipv6BadVersion);
        }
        let total = ipv6::HEADER_LEN + usize::from(ipv6::payload_len(header));
        if total > ip.len() {
            return short(packet, DropReason::Ipv6BadLength);
        }
        if data.first().is_some_and(|first| first & 1 != 0) {
            return ip4_input::group(data);
        }
        if let Some(reason) = self.filter.refuse(ipv6::src_u128(header), ipv6::dst_u128(header)) {
            return Verdict::Drop(reason);
        }
        if total < ip.len() {
            packet.set_len(l3 + total);
        }
        Verdict::Next(0)
    }
}

impl Node for Ip6Input {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        each(burst, verdicts, |packet| self.check(packet));
    }
}
