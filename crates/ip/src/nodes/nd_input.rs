//! `nd-input`: answers neighbor solicitations for our addresses, and learns from what neighbors say (RFC 4861, RFC 4862).
//!
//! * Everything is checked as RFC 4861 6.1 and 7.1 say: hop limit 255 (so no router forwarded it), checksum, code 0,
//!   lengths, options, and what each message may not have: `nd-invalid`. So is what comes from our own addresses,
//!   another station's claim to one of them, and what says that our own MAC address is somebody else's.
//! * A solicitation for an address of ours turns around in place, VLAN tags and all, as an advertisement, and leaves by
//!   its port; where the kernel owns the addresses, the kernel answers. To duplicate address detection (no source) the
//!   answer goes to all nodes.
//! * Solicitations and advertisements go to the control side. Of router solicitations only their sender is learnt; router
//!   advertisements and redirects are for hosts, and we are a router: consumed.
//!
//! Outputs: one per port, by name.

use crate::interface::{Interface, Owner, Settings};
use crate::martian::is_host_v6;
use crate::neighbor::{Event, How, Key, Link};
use crate::nodes::arp_input::turn;
use std::net::Ipv6Addr;
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_lookup::publish::View;
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::icmpv6::{self, kind};
use tidemill_wire::ndisc::{self, Message, NdOption};
use tidemill_wire::{MacAddr, Protocol, ethernet, ipv6};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const OPTION_LEN: usize = 8;
/// An advertisement with its option.
const ADVERT_LEN: usize = 24 + OPTION_LEN;

/// Whether an IPv6 packet is for this node: neighbor discovery, straight behind the IPv6 header (in fragments it is
/// forbidden, RFC 6980, and nobody puts other extension headers before it).
pub fn is_neighbor_discovery(ip: &[u8]) -> bool {
    const BOTH: usize = ipv6::HEADER_LEN;
    ip.get(6) == Some(&Protocol::ICMPV6.0)
        && ip.get(BOTH).is_some_and(|kind| (kind::ROUTER_SOLICIT..=kind::REDIRECT).contains(kind))
}

/// The node.
pub struct NdInput {
    settings: View<Settings>,
    link: Arc<Link>,
}

impl NdInput {
    /// A node for one worker.
    pub fn new(settings: View<Settings>, link: Arc<Link>) -> Self {
        NdInput { settings, link }
    }
}

impl Node for NdInput {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let settings = self.settings.get(cx.reader);
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            let interface = settings.interfaces.get(packet.port).filter(|interface| interface.resolves);
            *verdict = interface
                .and_then(|interface| self.hear(interface, packet))
                .unwrap_or(Verdict::Drop(DropReason::NdInvalid));
        }
    }
}

/// What a message is about, once it is found right.
struct Heard {
    src: Ipv6Addr,
    dst: Ipv6Addr,
    message: Message,
    /// The source's MAC address, where it says so.
    source_mac: Option<MacAddr>,
    /// The target's.
    target_mac: Option<MacAddr>,
}

/// Reads a message; `None` for what is to be discarded (RFC 4861 6.1.1, 6.1.2, 7.1.1, 7.1.2, 8.1).
fn read(ip: &[u8]) -> Option<Heard> {
    let packet = ipv6::Packet::new_checked(ip).ok()?;
    let (src, dst) = (packet.src(), packet.dst());
    if packet.next_header() != Protocol::ICMPV6 || packet.hop_limit() != ndisc::HOP_LIMIT {
        return None;
    }
    let icmp = icmpv6::Packet::new_checked(packet.payload()).ok()?;
    let view = ndisc::Packet::new_checked(packet.payload()).ok()?;
    let message = icmp.checksum_ok(&Pseudo::V6 { src, dst }).then(|| view.message())?;
    let (mut source_mac, mut target_mac) = (None, None);
    for option in view.options() {
        match option.ok()? {
            NdOption::SourceLinkLayer(mac) => source_mac = Some(mac),
            NdOption::TargetLinkLayer(mac) => target_mac = Some(mac),
            _ => {}
        }
    }
    if source_mac.into_iter().chain(target_mac).any(|mac| !mac.is_unicast()) {
        return None;
    }
    let from_nobody = src.is_unspecified();
    let right = match message {
        Message::NeighborSolicit { target } => {
            let group = dst.octets().starts_with(&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff]);
            is_host(target) && (!from_nobody || (group && source_mac.is_none()))
        }
        Message::NeighborAdvert { target, solicited, .. } => {
            is_host(target) && !from_nobody && !(solicited && dst.is_multicast())
        }
        Message::RouterSolicit => !from_nobody || source_mac.is_none(),
        Message::RouterAdvert { .. } => src.is_unicast_link_local(),
        Message::Redirect { dst: redirected, .. } => {
            src.is_unicast_link_local() && !redirected.is_multicast()
        }
    };
    (right && (from_nobody || is_host(src))).then_some(Heard { src, dst, message, source_mac, target_mac })
}

fn is_host(address: Ipv6Addr) -> bool {
    is_host_v6(u128::from(address))
}

impl NdInput {
    /// `None`: invalid.
    fn hear(&self, interface: &Interface, packet: &mut Packet) -> Option<Verdict> {
        let heard = read(packet.data().get(usize::from(packet.l3)..)?)?;
        let Heard { src, dst, message, source_mac, target_mac } = heard;
        let ours = Some(interface.mac);
        if interface.has(src.into()) || source_mac == ours || target_mac == ours {
            return None;
        }
        let tell = |address: Ipv6Addr, mac, how| {
            let key = Key { interface: packet.port, address: address.into() };
            self.link.tell(Event::Heard { key, mac, how });
        };
        match message {
            Message::NeighborSolicit { target } if interface.has(target.into()) => {
                if source_mac.is_some() {
                    tell(src, source_mac, How::Request);
                }
                if interface.owner == Owner::Us {
                    return answer(interface, packet, src, target, source_mac);
                }
            }
            Message::NeighborAdvert { target, solicited, replace, .. } => {
                if interface.has(target.into()) {
                    return None;
                }
                // To a group it answers nobody's question.
                let solicited = solicited && !dst.is_multicast();
                tell(target, target_mac, How::Reply { solicited, overrides: replace });
            }
            Message::RouterSolicit if source_mac.is_some() => tell(src, source_mac, How::Request),
            _ => {}
        }
        Some(Verdict::Consume)
    }
}

/// Makes the solicitation in `packet` the advertisement that answers it (RFC 4861 7.2.4). Without the asker's MAC address
/// in the message, the frame's is good.
fn answer(
    interface: &Interface,
    packet: &mut Packet,
    src: Ipv6Addr,
    target: Ipv6Addr,
    source_mac: Option<MacAddr>,
) -> Option<Verdict> {
    let solicited = !src.is_unspecified();
    let dst = if solicited { src } else { ALL_NODES };
    let l3 = usize::from(packet.l3);
    let asker = ethernet::Packet::new_checked(packet.data()).ok()?.src();
    let to = if solicited { source_mac.unwrap_or(asker) } else { MacAddr::from_multicast_v6(dst) };
    let len = l3 + ipv6::HEADER_LEN + ADVERT_LEN;
    // The only group that we answer to is all nodes.
    if (solicited && !to.is_unicast()) || len > packet.len() + packet.tailroom() {
        return None;
    }
    packet.set_len(len);
    let (link, ip) = packet.data_mut().split_at_mut_checked(l3)?;
    let (header, message) = ip.split_at_mut_checked(ipv6::HEADER_LEN)?;
    let mut options = [0; OPTION_LEN];
    NdOption::TargetLinkLayer(interface.mac).emit(&mut options).ok()?;
    let advert = Message::NeighborAdvert { target, router: true, solicited, replace: true };
    let repr = ndisc::Repr { message: advert, options: &options };
    repr.emit(message, &Pseudo::V6 { src: target, dst }).ok()?;
    let mut repr = ipv6::Repr::new(target, dst, Protocol::ICMPV6, ADVERT_LEN);
    repr.hop_limit = ndisc::HOP_LIMIT;
    repr.emit(header).ok()?;
    if !turn(link, to, interface.mac) {
        return None;
    }
    packet.set_own();
    Some(Verdict::Next(interface.port as u8))
}
