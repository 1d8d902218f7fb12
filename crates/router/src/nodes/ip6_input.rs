//! `ip6-input`: decides whether an IPv6 packet is one.
//!
//! * RFC 8200 3: `ipv6-too-short`, `ipv6-bad-version`, `ipv6-bad-length` (or `capture-truncated` if the capture lacks
//!   the rest). Ethernet's padding is cut off. Extension headers are for the destination; none is looked at here
//!   (RFC 8200 4: hop-by-hop options may be left alone by routers).
//! * A frame that came to a link-layer group is not forwarded: `broadcast`, `multicast`.
//! * Neighbor and router discovery that is on its own link (RFC 4861) goes to `nd`, what else is sent to a link-local
//!   address of ours to `local`.
//! * RFC 4291 and RFC 6890: `martian-source`, `martian-destination`, `multicast`, `link-local`. On an interface whose
//!   addresses are the kernel's, what stays on the link is the kernel's, and done with.
//!
//! Outputs: `lookup`, `nd`, `local`.

use crate::nodes::ip4_input;
use std::net::{IpAddr, Ipv6Addr};
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::martian::Filter;
use tidemill_ip::nodes::nd_input::is_neighbor_discovery;
use tidemill_ip::nodes::{each, short};
use tidemill_ip::{Martians, Owner, Settings};
use tidemill_lookup::publish::View;
use tidemill_wire::{Protocol, ipv6};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 3] = ["lookup", "nd", "local"];

const ND: u8 = 1;
const LOCAL: u8 = 2;

/// The node.
pub struct Ip6Input {
    settings: View<Settings>,
    martians: Martians,
    filter: Filter<u128>,
}

impl Ip6Input {
    /// A node for one worker.
    pub fn new(settings: View<Settings>) -> Self {
        let martians = Martians::default();
        Ip6Input { settings, martians, filter: Filter::v6(martians) }
    }

    #[inline(always)]
    fn check(&self, settings: &Settings, packet: &mut Packet) -> Verdict {
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
        if total < ip.len() {
            packet.set_len(l3 + total);
        }
        let (data, header) = (packet.data(), packet.data().get(l3..).unwrap_or_default());
        if ipv6::next_header(header) == Protocol::ICMPV6 && is_discovery(settings, packet) {
            return Verdict::Next(ND);
        }
        if data.first().is_some_and(|first| first & 1 != 0) {
            return ip4_input::group(data);
        }
        if let Some(reason) = self.filter.refuse(ipv6::src_u128(header), ipv6::dst_u128(header)) {
            return Verdict::Drop(reason);
        }
        Verdict::Next(0)
    }
}

impl Node for Ip6Input {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let settings = self.settings.get(cx.reader);
        if self.martians != settings.martians {
            self.martians = settings.martians;
            self.filter = Filter::v6(self.martians);
        }
        each(burst, verdicts, |packet| match self.check(settings, packet) {
            Verdict::Drop(DropReason::LinkLocal) if is_ours(settings, packet) => Verdict::Next(LOCAL),
            Verdict::Drop(reason) => ip4_input::refused(settings, packet, reason),
            verdict => verdict,
        });
    }
}

/// Whether an ICMPv6 packet is a message of RFC 4861 to somebody on its own link: routers do not forward these. On a link
/// where nobody resolves it is a packet as any other.
#[cold]
fn is_discovery(settings: &Settings, packet: &Packet) -> bool {
    let resolves = settings.interfaces.get(packet.port).is_some_and(|interface| interface.resolves);
    let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
    let here = Ipv6Addr::from(ipv6::dst_u128(ip)).is_multicast() || ipv6::hop_limit(ip) == 255;
    resolves && here && is_neighbor_discovery(ip)
}

/// Whether a packet on its own link is for a link-local address of ours.
#[cold]
fn is_ours(settings: &Settings, packet: &Packet) -> bool {
    let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
    let dst = IpAddr::V6(Ipv6Addr::from(ipv6::dst_u128(ip)));
    let ours = settings.interfaces.get(packet.port).filter(|i| i.owner == Owner::Us);
    ours.is_some_and(|interface| interface.has(dst))
}
