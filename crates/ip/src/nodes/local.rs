//! `local`: packets to the router itself.
//!
//! Answers echo requests (RFC 1812 4.3.3.6, RFC 4443 4.2): whole, with a right checksum, to a unicast address of ours. The
//! packet turns around in place and is looked up like any other. Everything else is `local-unhandled`.
//!
//! Outputs: `ip4`, `ip6` (the lookups).

use crate::interface::Settings;
use crate::martian::{is_host_v4, is_host_v6};
use crate::nodes::untag;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_lookup::publish::View;
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 2] = ["ip4", "ip6"];

/// The node.
pub struct Local {
    settings: View<Settings>,
}

impl Local {
    /// A node for one worker.
    pub fn new(settings: View<Settings>) -> Self {
        Local { settings }
    }
}

impl Node for Local {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let ttl = self.settings.get(cx.reader).ttl;
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            untag(packet);
            let l3 = usize::from(packet.l3);
            let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
            let answered = match ipv4::version(ip) {
                4 => echo4(ip, ttl).map(|()| 0),
                _ => echo6(ip, ttl).map(|()| 1),
            };
            *verdict = match answered {
                Some(output) => {
                    packet.set_own();
                    Verdict::Next(output)
                }
                None => Verdict::Drop(DropReason::LocalUnhandled),
            };
        }
    }
}

/// Turns an echo request into its reply; `None`, and nothing changed, if it is none.
fn echo4(ip: &mut [u8], ttl: u8) -> Option<()> {
    let mut packet = ipv4::Packet::new_checked(ip).ok()?;
    let (src, dst) = (packet.src(), packet.dst());
    if packet.protocol() != Protocol::ICMP || packet.is_fragment() || !is_host_v4(u32::from(src)) {
        return None;
    }
    let request =
        icmpv4::Packet::new_checked(packet.payload()).ok().filter(|message| message.checksum_ok())?;
    let icmpv4::Repr::EchoRequest { ident, seq } = icmpv4::Repr::parse(&request).ok()? else { return None };
    icmpv4::Repr::EchoReply { ident, seq }.emit(packet.payload_mut()).ok()?;
    packet.set_src(dst);
    packet.set_dst(src);
    packet.set_ttl(ttl);
    packet.fill_checksum();
    Some(())
}

/// As [`echo4`]; requests behind extension headers are not answered.
fn echo6(ip: &mut [u8], hop_limit: u8) -> Option<()> {
    let mut packet = ipv6::Packet::new_checked(ip).ok()?;
    let (src, dst) = (packet.src(), packet.dst());
    if packet.next_header() != Protocol::ICMPV6 || !is_host_v6(u128::from(src)) {
        return None;
    }
    let pseudo = Pseudo::V6 { src, dst };
    let request = icmpv6::Packet::new_checked(packet.payload()).ok().filter(|m| m.checksum_ok(&pseudo))?;
    let icmpv6::Repr::EchoRequest { ident, seq } = icmpv6::Repr::parse(&request).ok()? else { return None };
    // The sum over both addresses does not change when they trade places.
    icmpv6::Repr::EchoReply { ident, seq }.emit(packet.payload_mut(), &pseudo).ok()?;
    packet.set_src(dst);
    packet.set_dst(src);
    packet.set_hop_limit(hop_limit);
    Some(())
}
