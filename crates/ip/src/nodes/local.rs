//! `local`: packets to the router itself.
//!
//! * Echo requests (RFC 1812 4.3.3.6, RFC 4443 4.2) with a right checksum, also long ones in fragments, are answered from
//!   the address that they were sent to, with their own DSCP.
//! * UDP finds nobody: `no-listener`, port unreachable. So does TCP, and is reset (RFC 9293 3.10.7.1), no more often than
//!   ICMP errors are sent. Other protocols: `protocol-unknown` (RFC 1122 3.2.2.1, RFC 4443 3.4). Wrong ICMP, UDP
//!   and TCP checksums: `local-bad-checksum`. What wants no answer (other ICMP): `local-unhandled`.
//! * IPv6 routing headers with segments left: `ipv6-routing-header`, parameter problem (RFC 5095, RFC 8200 4.4). Options
//!   that we do not know and that say so: `ipv6-option-unknown`, with or without a parameter problem (RFC 8200 4.2).
//! * Fragments are kept until their packet is whole ([`reassembly`](crate::reassembly)), in no more than an eighth of the
//!   worker's frames for each family; `reassembly-failed`, `reassembly-timeout`.
//! * A datagram in fragments that carries a packet (protocols 4 and 41) goes back to the lookup in its first fragment's frame, if it
//!   fits there: whoever takes packets out of outer ones (a Grantor) sees it as one that came whole. Where nobody does, it comes back
//!   here, no fragment any more, and is answered.
//! * A short answer takes over the frame of the packet and is looked up like any other. A long one, which no frame would
//!   hold, is sent as fragments: as long as the MTU of the link that the question came by (IPv4, where routers may cut
//!   further), or 1,280 bytes (IPv6, where only we may cut, RFC 8200 5).
//! * An answer from or to a link-local address goes straight back to the station that sent the frame.
//!
//! Outputs: `ip4`, `ip6` (the lookups), `error4`, `error6`, and one per port, by name.

mod answer;
mod extensions;
mod send;

use crate::icmp::RateLimit;
use crate::interface::Settings;
use crate::nodes::error;
use crate::reassembly::{Back, Fate, Limits, Reassembler, TIMEOUT_V4_NS, TIMEOUT_V6_NS, is_fragment};
use answer::{Answer, Reply, answer, is_link_local};
use send::Envelope;
use std::net::IpAddr;
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_lookup::publish::View;
use tidemill_wire::{EtherType, MacAddr, Protocol, ethernet, ipv4, ipv6, ipv6_ext};

/// The outputs' names in front of the ports'.
pub const OUTPUTS: [&str; 4] = ["ip4", "ip6", "error4", "error6"];

const LOOKUP: [u8; 2] = [0, 1];
const ERROR: [u8; 2] = [2, 3];
/// The output of port 0.
const PORTS: u8 = OUTPUTS.len() as u8;

/// A family may keep this part of a worker's frames.
const SHARE: usize = 8;

/// The node.
pub struct Local {
    settings: View<Settings>,
    /// IPv4, IPv6.
    fragments: [Reassembler; 2],
    datagram: Vec<u8>,
    back: Back,
    resets: RateLimit,
    ident: u32,
}

impl Local {
    /// A node for one worker.
    pub fn new(settings: View<Settings>) -> Self {
        let waiting = |timeout_ns| Reassembler::new(timeout_ns, Limits::default());
        Local {
            settings,
            fragments: [waiting(TIMEOUT_V4_NS), waiting(TIMEOUT_V6_NS)],
            datagram: Vec::new(),
            back: Vec::new(),
            resets: RateLimit::new(0, 0), // set from the settings
            ident: 0,
        }
    }
}

/// Where a packet came from.
#[derive(Clone, Copy)]
struct Origin {
    interface: u16,
    mac: MacAddr,
}

impl Origin {
    fn of(packet: &Packet) -> Self {
        let link = ethernet::Packet::new_checked(packet.data());
        Origin { interface: packet.port, mac: link.map_or(MacAddr::ZERO, |link| link.src()) }
    }
}

/// How a reply leaves: by which output, behind which Ethernet header.
struct Way {
    output: u8,
    link: [u8; crate::interface::MAX_ETHERNET],
    link_len: usize,
}

impl Way {
    fn of(settings: &Settings, reply: &Reply, origin: Origin) -> Option<Self> {
        if !reply.stays_on_link() {
            let (output, link_len) = (LOOKUP[usize::from(reply.to.is_ipv6())], ethernet::HEADER_LEN);
            return Some(Way { output, link: Default::default(), link_len });
        }
        let interface = settings.interfaces.get(origin.interface)?;
        let (link, link_len) = interface.ethernet(origin.mac, EtherType::IPV6);
        let station = origin.mac.is_unicast();
        station.then_some(Way { output: PORTS + interface.port as u8, link, link_len })
    }

    fn link(&self) -> &[u8] {
        &self.link[..self.link_len]
    }
}

fn ip(packet: &Packet) -> &[u8] {
    packet.data().get(usize::from(packet.l3)..).unwrap_or_default()
}

/// 0 for IPv4, 1 for IPv6.
fn family(ip: &[u8]) -> usize {
    usize::from(ipv4::version(ip) != 4)
}

/// Whether a packet is from or to a link-local address, which there are no routes for.
fn is_near(ip: &[u8]) -> bool {
    ipv6::Packet::new_checked(ip).is_ok_and(|ip| {
        ip.version() == 6 && (is_link_local(ip.src().into()) || is_link_local(ip.dst().into()))
    })
}

/// The verdict on a packet whose sender is to be told. Errors follow the routes.
fn tell(packet: &mut Packet, reason: DropReason, at: u16) -> Verdict {
    let family = family(ip(packet));
    if is_near(ip(packet)) { Verdict::Drop(reason) } else { error(packet, reason, at, ERROR[family]) }
}

/// Whether a whole datagram carries a packet, and can be looked up.
fn is_outer(ip: &[u8]) -> bool {
    let carried = match ipv4::version(ip) {
        4 => Some(ipv4::protocol(ip)),
        // Behind a second fragment header there is a fragment still.
        _ => ipv6_ext::walk(ip).ok().filter(|walk| !walk.is_fragment()).map(|walk| walk.upper),
    };
    matches!(carried, Some(Protocol::IPV4 | Protocol::IPV6)) && !is_near(ip)
}

/// Puts a datagram in the place of its first fragment. False: its frame has no room for it, and it is as it was.
fn put_whole(first: &mut Packet, datagram: &[u8]) -> bool {
    let l3 = usize::from(first.l3);
    let len = l3 + datagram.len();
    if len > first.len() + first.tailroom() {
        return false;
    }
    first.set_len(len);
    first.data_mut()[l3..].copy_from_slice(datagram);
    // What a device has found of the header was the fragment's.
    first.clear_checked();
    true
}

impl Node for Local {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let settings = self.settings.get(cx.reader);
        self.resets.set(settings.icmp_rate_per_s, settings.icmp_rate_per_prefix_per_s);
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            if is_fragment(ip(packet)) {
                *verdict = Verdict::Keep;
                continue;
            }
            let l3 = usize::from(packet.l3);
            *verdict = match answer(packet.data_mut().get_mut(l3..).unwrap_or_default()) {
                Answer::Reply(reply) if !may_send(&mut self.resets, cx.now_ns, &reply) => {
                    Verdict::Drop(DropReason::NoListener)
                }
                Answer::Reply(reply) => {
                    self.ident = self.ident.wrapping_add(1);
                    turn(settings, packet, &reply, self.ident)
                        .unwrap_or(Verdict::Drop(DropReason::LocalUnhandled))
                }
                Answer::Error(reason, at) => tell(packet, reason, at),
                Answer::Drop(reason) => Verdict::Drop(reason),
            };
        }
    }

    fn keep(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let settings = self.settings.get(cx.reader);
        let origin = Origin::of(&packet);
        let vrf = settings.interfaces.get(origin.interface).map_or(0, |interface| interface.vrf);
        let waiting = &mut self.fragments[family(ip(&packet))];
        waiting.set_packets(Limits::default().packets.min(cx.pool.stats().frames / SHARE));
        let whole = waiting.insert(cx.now_ns, vrf, packet, &mut self.datagram, &mut self.back);
        let verdict = if whole { self.answer_whole(cx, origin) } else { Verdict::Consume };
        self.give_back(cx, verdict);
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        for waiting in &mut self.fragments {
            waiting.expire(cx.now_ns, &mut self.back);
        }
        if !self.back.is_empty() {
            self.give_back(cx, Verdict::Consume);
        }
    }

    fn surrender(&mut self, pool: &mut Pool) {
        for packet in self.fragments.iter_mut().flat_map(Reassembler::drain) {
            pool.free(packet);
        }
    }
}

/// Resets are limited as errors are; other replies are not.
fn may_send(resets: &mut RateLimit, now_ns: u64, reply: &Reply) -> bool {
    let prefix = match reply.to {
        IpAddr::V4(to) => u64::from(u32::from(to) >> 8),
        IpAddr::V6(to) => (u128::from(to) >> 80) as u64,
    };
    reply.protocol != Protocol::TCP || resets.allow(now_ns, prefix)
}

/// Sends a reply in the frame of the packet in which it stands.
fn turn(settings: &Settings, packet: &mut Packet, reply: &Reply, ident: u32) -> Option<Verdict> {
    let way = Way::of(settings, reply, Origin::of(packet))?;
    let envelope = Envelope { link: way.link(), ttl: settings.ttl, ident };
    send::in_place(packet, reply, &envelope).map(|()| Verdict::Next(way.output))
}

impl Local {
    /// Answers the datagram that has just become whole, or sends it on; the verdict is on its fragments.
    fn answer_whole(&mut self, cx: &mut Context<'_>, origin: Origin) -> Verdict {
        if is_outer(&self.datagram)
            && let Some((first, _)) = self.back.iter_mut().find(|(_, fate)| *fate == Fate::Assembled)
            && put_whole(first, &self.datagram)
        {
            return Verdict::Next(LOOKUP[family(&self.datagram)]);
        }
        let reply = match answer(&mut self.datagram) {
            Answer::Reply(reply) => reply,
            Answer::Error(reason, at) => {
                // The first fragment stands for the whole: an error quotes only the packet's beginning.
                let Some((first, _)) = self.back.iter_mut().find(|(_, fate)| *fate == Fate::Assembled) else {
                    return Verdict::Drop(reason);
                };
                let at = extensions::fault_in_first(ip(first)).unwrap_or(at);
                return tell(first, reason, at);
            }
            Answer::Drop(reason) => return Verdict::Drop(reason),
        };
        if !may_send(&mut self.resets, cx.now_ns, &reply) {
            return Verdict::Drop(DropReason::NoListener);
        }
        let settings = self.settings.get(cx.reader);
        self.ident = self.ident.wrapping_add(1);
        let (ident, ttl) = (self.ident, settings.ttl);
        let send = |way: Way| {
            let envelope = Envelope { link: way.link(), ttl, ident };
            let message = self.datagram.get(reply.at..reply.at + reply.len)?;
            let interface = settings.interfaces.get(origin.interface);
            let mtu = match reply.to {
                IpAddr::V4(_) => interface.map_or(ipv6::MIN_MTU, |interface| interface.mtu.into()),
                IpAddr::V6(_) => ipv6::MIN_MTU,
            };
            let parts = send::in_parts(cx.pool, &reply, message, &envelope, mtu)?;
            for mut packet in parts {
                packet.port = origin.interface;
                packet.set_timestamp_ns(cx.now_ns);
                cx.emit(way.output, packet);
            }
            Some(Verdict::Consume)
        };
        Way::of(settings, &reply, origin).and_then(send).unwrap_or(Verdict::Drop(DropReason::FragmentFailed))
    }

    /// Parts with fragments that are done with; `verdict` is on those of the datagram that became whole.
    fn give_back(&mut self, cx: &mut Context<'_>, verdict: Verdict) {
        let mut first_of_whole = true;
        for (mut packet, fate) in self.back.drain(..) {
            let verdict = match fate {
                Fate::Assembled => match verdict {
                    // Only the first one tells the sender, or is the whole.
                    Verdict::Next(_) if !std::mem::take(&mut first_of_whole) => Verdict::Consume,
                    verdict => verdict,
                },
                Fate::Refused => Verdict::Drop(DropReason::ReassemblyFailed),
                Fate::TimedOut { first: true } => tell(&mut packet, DropReason::ReassemblyTimeout, 0),
                Fate::TimedOut { first: false } => Verdict::Drop(DropReason::ReassemblyTimeout),
            };
            match verdict {
                Verdict::Next(output) => cx.release(output, packet),
                Verdict::Drop(reason) => cx.discard(reason, packet),
                Verdict::Consume | Verdict::Keep => cx.consume(packet),
            }
        }
    }
}
