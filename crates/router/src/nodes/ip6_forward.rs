//! `ip6-forward`: the last step of a routed IPv6 packet.
//!
//! * Hop limit of 0 or 1: `ttl-expired`, with an ICMPv6 time exceeded (RFC 8200 3, RFC 4443 3.3).
//! * Longer than the next link's MTU: `too-big`, with an ICMPv6 packet too big (RFC 4443 3.2); routers do not fragment.
//! * Else the hop limit goes down by one and the frame gets its next hop's Ethernet header. VLAN tags are the next
//!   interface's.
//!   Packets of our own keep their hop limit.
//!
//! Of a packet that was merged of TCP segments ([`coalesce`]) the segments count.
//!
//! Outputs: `error`, `lookup` (its next hop has been replaced meanwhile), and one per port, by name.

use crate::nodes::{replaced, write_header};
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::nodes::{each, error, untag};
use tidemill_ip::{Kind, NextHops, coalesce};
use tidemill_lookup::publish::View;
use tidemill_wire::{ethernet, ipv6};

/// The outputs' names in front of the ports'.
pub const OUTPUTS: [&str; 2] = ["error", "lookup"];

const ERROR: u8 = 0;
const LOOKUP: u8 = 1;
/// The output of port 0.
const PORTS: u8 = OUTPUTS.len() as u8;

const HEADERS: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN;

/// The node.
pub struct Ip6Forward {
    hops: View<NextHops>,
}

impl Ip6Forward {
    /// A node for one worker.
    pub fn new(hops: View<NextHops>) -> Self {
        Ip6Forward { hops }
    }
}

impl Node for Ip6Forward {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let hops = self.hops.get(cx.reader);
        each(burst, verdicts, |packet| {
            let hop = hops.get(packet.label);
            if hop.kind != Kind::Forward {
                return replaced(hop, LOOKUP);
            }
            untag(packet);
            let longest = ethernet::HEADER_LEN + usize::from(hop.mtu);
            let fits = packet.len() <= longest || coalesce::fits(packet, hop.mtu);
            let own = packet.is_own();
            let Some(frame) = packet.data_mut().first_chunk_mut::<HEADERS>() else {
                return Verdict::Drop(DropReason::Ipv6TooShort);
            };
            let ip = &mut frame[ethernet::HEADER_LEN..];
            if !own && ipv6::hop_limit(ip) <= 1 {
                return error(packet, DropReason::TtlExpired, 0, ERROR);
            }
            if !fits {
                // A sender may ignore less than IPv6's minimum (RFC 8201 4).
                let mtu = hop.mtu.max(ipv6::MIN_MTU as u16);
                return error(packet, DropReason::TooBig, mtu, ERROR);
            }
            if !own {
                ipv6::decrement_hop_limit(ip);
            }
            if !write_header(packet, hop) {
                return Verdict::Drop(DropReason::FrameTooSmall);
            }
            Verdict::Next(PORTS + hop.port as u8)
        });
    }
}
