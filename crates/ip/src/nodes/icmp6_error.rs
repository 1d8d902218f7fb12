//! `icmp6-error`: tells a sender why its IPv6 packet was dropped (RFC 4443).
//!
//! The packet itself is always dropped under the reason that brought it here. If an error may be sent, one is made: from
//! our address on the interface that the packet came in by (or any of ours), quoting as much of the packet as fits
//! into 1280 bytes (RFC 4443 2.4 c), and looked up like any other packet.
//!
//! None is sent about an ICMPv6 error or redirect (or what cannot be told from one: a later fragment, a broken
//! chain of extension headers), or a packet whose source is
//! not one host (RFC 4443 2.4 e; packets to groups do not get this far), nor over `icmp_rate_per_s` (2.4 f). How many
//! were sent, suppressed and limited is in [`IcmpStats`](crate::icmp::IcmpStats), and in a packet's trace.
//!
//! Output: `lookup`.

use crate::icmp::{Cause, IcmpCounters, RateLimit, Told, own_time};
use crate::interface::Settings;
use crate::martian::is_host_v6;
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_lookup::publish::View;
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, ethernet, icmpv6, ipv6, ipv6_ext};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 1] = ["lookup"];

const HEADERS: usize = ipv6::HEADER_LEN + icmpv6::HEADER_LEN;

/// The node.
pub struct Icmp6Error {
    settings: View<Settings>,
    limit: RateLimit,
    counters: Arc<IcmpCounters>,
}

impl Icmp6Error {
    /// A node for one worker.
    pub fn new(settings: View<Settings>, counters: Arc<IcmpCounters>) -> Self {
        let limit = RateLimit::new(0, 0); // set from the settings at each burst
        Icmp6Error { settings, limit, counters }
    }
}

impl Node for Icmp6Error {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let reader = cx.reader;
        let settings = self.settings.get(reader);
        self.limit.set(settings.icmp_rate_per_s, settings.icmp_rate_per_prefix_per_s);
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            let Some((cause, mtu)) = Cause::of(packet) else {
                *verdict = Verdict::Drop(DropReason::NoRoute);
                continue;
            };
            let told = tell(settings, &mut self.limit, cx, packet, cause.v6, mtu);
            self.counters.count(told);
            told.mark(packet);
            *verdict = Verdict::Drop(cause.reason);
        }
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        Told::of(packet).map(|told| told.to_string())
    }
}

fn tell(
    settings: &Settings,
    limit: &mut RateLimit,
    cx: &mut Context<'_>,
    packet: &Packet,
    (kind, code): (u8, u8),
    mtu: u16,
) -> Told {
    let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
    let Ok(original) = ipv6::Packet::new_checked(ip) else { return Told::Suppressed };
    if !is_host_v6(u128::from(original.src())) || !may_tell(ip) {
        return Told::Suppressed;
    }
    let Some(src) = settings.interfaces.source_v6(packet.port) else { return Told::Failed };
    // /48: what one site has.
    let now_ns = own_time(cx.now_ns, packet);
    if !limit.allow(now_ns, (u128::from(original.src()) >> 80) as u64) {
        return Told::RateLimited;
    }
    let whole = ipv6::HEADER_LEN + original.payload().len();
    let quote = &ip[..whole.min(ipv6::MIN_MTU - HEADERS)];
    let Some(mut made) = cx.pool.take() else { return Told::Failed };
    made.set_len(ethernet::HEADER_LEN + HEADERS + quote.len());
    let (link, rest) = made.data_mut().split_at_mut(ethernet::HEADER_LEN);
    link.fill(0); // written by `ip6-forward`
    let (header, message) = rest.split_at_mut(ipv6::HEADER_LEN);
    message[icmpv6::HEADER_LEN..].copy_from_slice(quote);
    let told = matches!(kind, icmpv6::kind::PACKET_TOO_BIG | icmpv6::kind::PARAMETER_PROBLEM);
    let rest = if told { u32::from(mtu).to_be_bytes() } else { [0; 4] };
    let message_len = message.len();
    let dst = original.src();
    // Both fit: the buffer was cut to their length.
    let _ = icmpv6::Repr::Other { kind, code, rest }.emit(message, &Pseudo::V6 { src, dst });
    let mut repr = ipv6::Repr::new(src, dst, Protocol::ICMPV6, message_len);
    repr.hop_limit = settings.ttl;
    let _ = repr.emit(header);
    (made.l3, made.port) = (ethernet::HEADER_LEN as u8, packet.port);
    made.set_own();
    made.set_timestamp_ns(now_ns);
    cx.emit(0, made);
    Told::Sent
}

/// Whether an error may be sent about this packet as far as its extension headers tell.
fn may_tell(ip: &[u8]) -> bool {
    let Ok(walk) = ipv6_ext::walk(ip) else { return false };
    if walk.upper != Protocol::ICMPV6 {
        return true;
    }
    let later = walk.fragment.is_some_and(|fragment| fragment.offset != 0);
    match ip.get(walk.upper_offset) {
        Some(&kind) if !later => !icmpv6::is_error(kind) && kind != icmpv6::kind::REDIRECT,
        _ => false,
    }
}
