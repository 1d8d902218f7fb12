//! `icmp4-error`: tells a sender why its IPv4 packet was dropped (RFC 792, RFC 1812 4.3).
//!
//! The packet itself is always dropped under the reason that brought it here. If an error may be sent, one is made: from
//! our address on the interface that the packet came in by (or any of ours), with precedence 6 (RFC 1812 4.3.2.5),
//! quoting as much of the packet as fits into 576 bytes (RFC 1812 4.3.2.3), and looked up like any other packet.
//!
//! None is sent about an ICMP error (or ICMP that cannot be told from one), a fragment but the first, or a packet whose
//! source is not one host (RFC 1812 4.3.2.7; packets to groups do not get this far), nor over `icmp_rate_per_s`. How
//! many were sent, suppressed and limited is in [`IcmpStats`](crate::icmp::IcmpStats), and in a packet's trace.
//!
//! Output: `lookup`.

use crate::icmp::{Cause, IcmpCounters, RateLimit, Told, own_time};
use crate::interface::Settings;
use crate::martian::is_host_v4;
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_lookup::publish::View;
use tidemill_wire::{Protocol, ethernet, icmpv4, ipv4};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 1] = ["lookup"];

/// The longest ICMP error.
const MAX_LEN: usize = 576;
const HEADERS: usize = ipv4::HEADER_LEN + icmpv4::HEADER_LEN;
/// Internetwork control, precedence 6.
const DSCP: u8 = 6 << 3;

/// The node.
pub struct Icmp4Error {
    settings: View<Settings>,
    limit: RateLimit,
    counters: Arc<IcmpCounters>,
    ident: u16,
}

impl Icmp4Error {
    /// A node for one worker.
    pub fn new(settings: View<Settings>, counters: Arc<IcmpCounters>) -> Self {
        let limit = RateLimit::new(0, 0); // set from the settings at each burst
        Icmp4Error { settings, limit, counters, ident: 0 }
    }
}

impl Node for Icmp4Error {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let reader = cx.reader;
        let settings = self.settings.get(reader);
        self.limit.set(settings.icmp_rate_per_s, settings.icmp_rate_per_prefix_per_s);
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            let Some((cause, mtu)) = Cause::of(packet) else {
                *verdict = Verdict::Drop(DropReason::NoRoute);
                continue;
            };
            let told = tell(settings, &mut self.limit, &mut self.ident, cx, packet, cause.v4, mtu);
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
    ident: &mut u16,
    cx: &mut Context<'_>,
    packet: &Packet,
    (kind, code): (u8, u8),
    mtu: u16,
) -> Told {
    let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
    let Ok(original) = ipv4::Packet::new_checked(ip) else { return Told::Suppressed };
    if !may_tell(&original) {
        return Told::Suppressed;
    }
    let Some(src) = settings.interfaces.source_v4(packet.port) else { return Told::Failed };
    let now_ns = own_time(cx.now_ns, packet);
    if !limit.allow(now_ns, u64::from(u32::from(original.src()) >> 8)) {
        return Told::RateLimited;
    }
    let quote = &ip[..usize::from(original.total_len()).min(MAX_LEN - HEADERS)];
    let Some(mut made) = cx.pool.take() else { return Told::Failed };
    made.set_len(ethernet::HEADER_LEN + HEADERS + quote.len());
    let (link, rest) = made.data_mut().split_at_mut(ethernet::HEADER_LEN);
    link.fill(0); // written by `ip4-forward`
    let (header, message) = rest.split_at_mut(ipv4::HEADER_LEN);
    message[icmpv4::HEADER_LEN..].copy_from_slice(quote);
    let [high, low] = mtu.to_be_bytes();
    let rest =
        if code == icmpv4::code::UNREACHABLE_FRAGMENTATION_NEEDED { [0, 0, high, low] } else { [0; 4] };
    let message_len = message.len();
    // Both fit: the buffer was cut to their length.
    let _ = icmpv4::Repr::Other { kind, code, rest }.emit(message);
    *ident = ident.wrapping_add(1);
    let mut repr = ipv4::Repr::new(src, original.src(), Protocol::ICMP, message_len);
    (repr.ttl, repr.dscp, repr.ident) = (settings.ttl, DSCP, *ident);
    let _ = repr.emit(header);
    (made.l3, made.port) = (ethernet::HEADER_LEN as u8, packet.port);
    made.set_own();
    made.set_timestamp_ns(now_ns);
    cx.emit(0, made);
    Told::Sent
}

fn may_tell(original: &ipv4::Packet<&[u8]>) -> bool {
    let error = || match original.payload().first() {
        Some(&kind) => icmpv4::is_error(kind),
        None => true,
    };
    original.fragment_offset() == 0
        && is_host_v4(u32::from(original.src()))
        && !(original.protocol() == Protocol::ICMP && error())
}
