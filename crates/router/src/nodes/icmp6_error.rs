//! `icmp6-error`: tells a sender why its IPv6 packet was dropped (RFC 4443).
//!
//! The packet itself is always dropped under the reason that brought it here. If an error may be sent, one is made: from
//! our address on the interface that the packet came in by (or any of ours), quoting as much of the packet as fits
//! into 1280 bytes (RFC 4443 2.4 c), and looked up like any other packet.
//!
//! None is sent about an ICMPv6 error or redirect (or ICMPv6 that cannot be told from one), or a packet whose source is
//! not one host (RFC 4443 2.4 e; packets to groups do not get this far), nor over `icmp_rate_per_s` (2.4 f). How many
//! were sent, suppressed and limited is in [`IcmpStats`](crate::icmp::IcmpStats), and in a packet's trace.
//!
//! Output: `lookup`.

use crate::icmp::{Cause, IcmpCounters, LOCAL_PORT, RateLimit, Told};
use crate::martian::is_host_v6;
use crate::settings::Settings;
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, ethernet, icmpv6, ipv6};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 1] = ["lookup"];

const HEADERS: usize = ipv6::HEADER_LEN + icmpv6::HEADER_LEN;

/// The node.
pub struct Icmp6Error {
    settings: Arc<Settings>,
    limit: RateLimit,
    counters: Arc<IcmpCounters>,
    last: Told,
}

impl Icmp6Error {
    pub(crate) fn new(settings: Arc<Settings>, counters: Arc<IcmpCounters>) -> Self {
        let limit = RateLimit::new(settings.icmp_rate_per_s, settings.icmp_rate_per_prefix_per_s);
        Icmp6Error { settings, limit, counters, last: Told::Sent }
    }
}

impl Node for Icmp6Error {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter().zip(verdicts) {
            let Some((cause, mtu)) = Cause::of(packet) else {
                *verdict = Verdict::Drop(DropReason::NoRoute);
                continue;
            };
            self.last = self.tell(cx, packet, cause.v6, mtu);
            self.counters.count(self.last);
            *verdict = Verdict::Drop(cause.reason);
        }
    }

    fn explain(&self, _: &Packet) -> Option<String> {
        Some(self.last.to_string())
    }
}

impl Icmp6Error {
    fn tell(&mut self, cx: &mut Context<'_>, packet: &Packet, (kind, code): (u8, u8), mtu: u16) -> Told {
        let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
        let Ok(original) = ipv6::Packet::new_checked(ip) else { return Told::Suppressed };
        if !is_host_v6(u128::from(original.src())) || !may_tell(original.next_header(), original.payload()) {
            return Told::Suppressed;
        }
        let Some(src) = self.settings.source_v6(usize::from(packet.port)) else { return Told::Failed };
        // /48: what one site has.
        if !self.limit.allow(cx.now_ns, (u128::from(original.src()) >> 80) as u64) {
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
        let rest = if kind == icmpv6::kind::PACKET_TOO_BIG { u32::from(mtu).to_be_bytes() } else { [0; 4] };
        let message_len = message.len();
        let dst = original.src();
        // Both fit: the buffer was cut to their length.
        let _ = icmpv6::Repr::Other { kind, code, rest }.emit(message, &Pseudo::V6 { src, dst });
        let mut repr = ipv6::Repr::new(src, dst, Protocol::ICMPV6, message_len);
        repr.hop_limit = self.settings.ttl;
        let _ = repr.emit(header);
        (made.l3, made.port) = (ethernet::HEADER_LEN as u8, LOCAL_PORT);
        made.set_timestamp_ns(cx.now_ns);
        cx.emit(0, made);
        Told::Sent
    }
}

/// Whether an error may be sent about a packet with this first next header and payload: walks its extension headers
/// to see whether it is an ICMPv6 error itself. What cannot be walked is taken for one only if it is ICMPv6.
fn may_tell(mut next: Protocol, payload: &[u8]) -> bool {
    let mut rest = payload;
    let mut first_fragment = true;
    loop {
        let size = match next {
            Protocol::ICMPV6 => {
                let Some(&kind) = rest.first().filter(|_| first_fragment) else { return false };
                return !icmpv6::is_error(kind) && kind != icmpv6::kind::REDIRECT;
            }
            Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::DEST_OPTIONS => {
                rest.get(1).map(|&units| (usize::from(units) + 1) * 8)
            }
            Protocol::FRAGMENT => {
                first_fragment &= rest.get(2..4).is_none_or(|field| field[0] == 0 && field[1] & 0xf8 == 0);
                Some(8)
            }
            Protocol::AH => rest.get(1).map(|&units| (usize::from(units) + 2) * 4),
            _ => return true,
        };
        let (Some(&following), Some(behind)) = (rest.first(), size.and_then(|size| rest.get(size..))) else {
            return true;
        };
        // Of a later fragment only the next header field means something.
        (next, rest) = (Protocol(following), if first_fragment { behind } else { &[] });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icmp_errors_are_found_behind_extension_headers() {
        let icmp = |kind: u8| [kind, 0, 0, 0, 0, 0, 0, 0];
        assert!(may_tell(Protocol::UDP, &[]) && may_tell(Protocol::ICMPV6, &icmp(128)));
        assert!(!may_tell(Protocol::ICMPV6, &icmp(1)) && !may_tell(Protocol::ICMPV6, &icmp(137)));
        assert!(!may_tell(Protocol::ICMPV6, &[]), "cannot be told from an error");
        let hop_by_hop = |next: Protocol, kind| [&[next.0, 0, 1, 4, 0, 0, 0, 0], &icmp(kind)[..]].concat();
        assert!(!may_tell(Protocol::HOP_BY_HOP, &hop_by_hop(Protocol::ICMPV6, 3)));
        assert!(may_tell(Protocol::DEST_OPTIONS, &hop_by_hop(Protocol::ICMPV6, 128)));
        let fragment =
            |offset: u8| [&[Protocol::ICMPV6.0, 0, 0, offset, 0, 0, 0, 9], &icmp(128)[..]].concat();
        assert!(may_tell(Protocol::FRAGMENT, &fragment(1)), "the first fragment");
        assert!(!may_tell(Protocol::FRAGMENT, &fragment(8)), "a later one could be of an error");
        for len in 0..8 {
            may_tell(Protocol::FRAGMENT, &fragment(0)[..len]);
            may_tell(Protocol::AH, &[255; 8][..len]);
        }
    }
}
