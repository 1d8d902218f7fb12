//! `ip4-forward`: the last step of a routed IPv4 packet.
//!
//! * TTL of 0 or 1: `ttl-expired`, with an ICMP time exceeded (RFC 1812 5.3.1).
//! * Longer than the next link's MTU: to `ip4-fragment`, or `too-big` with an ICMP fragmentation needed that names the
//!   MTU (RFC 1191) if "don't fragment" is set.
//! * Else the TTL goes down by one, the checksum with it (RFC 1624), and the frame gets its next hop's Ethernet header.
//!   VLAN tags are the next
//!   interface's. Packets of our own keep their TTL.
//!
//! Of a packet that was merged of TCP segments ([`coalesce`]) the segments count.
//!
//! Redirects (RFC 1812 5.2.7.2) are not sent. Outputs: `fragment`, `error`, `lookup` (its next
//! hop has been replaced meanwhile), and one per port, by name.

use crate::nodes::{replaced, write_header};
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::nodes::{each, error, untag};
use tidemill_ip::{Kind, NextHops, coalesce};
use tidemill_lookup::publish::View;
use tidemill_wire::{ethernet, ipv4};

/// The outputs' names in front of the ports'.
pub const OUTPUTS: [&str; 3] = ["fragment", "error", "lookup"];

const FRAGMENT: u8 = 0;
const ERROR: u8 = 1;
const LOOKUP: u8 = 2;
/// The output of port 0.
const PORTS: u8 = OUTPUTS.len() as u8;

const HEADERS: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;

/// The node.
pub struct Ip4Forward {
    hops: View<NextHops>,
}

impl Ip4Forward {
    /// A node for one worker.
    pub fn new(hops: View<NextHops>) -> Self {
        Ip4Forward { hops }
    }
}

impl Node for Ip4Forward {
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
                return Verdict::Drop(DropReason::Ipv4TooShort);
            };
            let ip = &mut frame[ethernet::HEADER_LEN..];
            if !own && ipv4::ttl(ip) <= 1 {
                return error(packet, DropReason::TtlExpired, 0, ERROR);
            }
            if !fits && ipv4::dont_fragment(ip) {
                return error(packet, DropReason::TooBig, hop.mtu, ERROR);
            }
            if !own {
                ipv4::decrement_ttl(ip);
            }
            if !fits {
                return Verdict::Next(FRAGMENT);
            }
            if !write_header(packet, hop) {
                return Verdict::Drop(DropReason::FrameTooSmall);
            }
            Verdict::Next(PORTS + hop.port as u8)
        });
    }
}
