//! `ethernet-input`: takes frames off the link.
//!
//! * A frame shorter than its Ethernet header and VLAN tags: `ethernet-too-short`.
//! * A source that is a group (IEEE 802.3 3.2.3): `ethernet-bad-source`.
//! * A VLAN tag: the packet comes in by the port's sub-interface of that id, or is dropped as `vlan-unknown`. A tag with
//!   id 0 only carries a priority (802.1Q 6.9) and is read over; of several tags the others must be such.
//! * A destination that is neither our MAC address nor a group: `not-for-us`, unless the interface is promiscuous.
//! * EtherType: IPv4, IPv6 and ARP go on (ARP on ports where nobody answers it is `arp-ignored`); anything else is
//!   `ethertype-unknown`. On interfaces whose addresses are the kernel's that is the kernel's, and done with.
//!
//! Sets the packet's `l3`, and its `port` to the interface. Outputs: `ip4`, `ip6`, `arp`.

use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::nodes::{each, short};
use tidemill_ip::{Interface, Interfaces, Owner, Settings};
use tidemill_lookup::publish::View;
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, MacAddr, ethernet};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 3] = ["ip4", "ip6", "arp"];

/// The node.
pub struct EthernetInput {
    settings: View<Settings>,
}

impl EthernetInput {
    /// A node for one worker.
    pub fn new(settings: View<Settings>) -> Self {
        EthernetInput { settings }
    }
}

const IPV4: [u8; 2] = EtherType::IPV4.0.to_be_bytes();
const IPV6: [u8; 2] = EtherType::IPV6.0.to_be_bytes();

impl Node for EthernetInput {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let interfaces = &self.settings.get(cx.reader).interfaces;
        each(burst, verdicts, |packet| {
            let Some(header) = packet.data().first_chunk::<{ ethernet::HEADER_LEN }>() else {
                return short(packet, DropReason::EthernetTooShort);
            };
            if header[6] & 1 != 0 {
                return Verdict::Drop(DropReason::EthernetBadSource);
            }
            let view = ethernet::Packet::new_unchecked(header);
            let (dst, ethertype) = (view.dst(), [header[12], header[13]]);
            if ethertype != IPV4 && ethertype != IPV6 {
                return other(packet, dst, interfaces);
            }
            if !interfaces.get(packet.port).is_some_and(|interface| wanted(dst, interface)) {
                return Verdict::Drop(DropReason::NotForUs);
            }
            packet.l3 = ethernet::HEADER_LEN as u8;
            Verdict::Next((ethertype == IPV6) as u8)
        });
    }
}

#[inline(always)]
fn wanted(dst: MacAddr, interface: &Interface) -> bool {
    interface.promiscuous || dst == interface.mac || dst.is_multicast()
}

const ARP: u8 = 2;

#[cold]
fn other(packet: &mut Packet, dst: MacAddr, interfaces: &Interfaces) -> Verdict {
    let Ok(l2) = L2::parse(packet.data()) else {
        return short(packet, DropReason::EthernetTooShort);
    };
    let mut ids = l2.vlan_ids().filter(|id| *id != 0);
    let number = match (ids.next(), ids.next()) {
        (None, _) => Some(packet.port),
        (Some(id), None) => interfaces.by_vlan(packet.port, id),
        (Some(_), Some(_)) => None,
    };
    let found = number.and_then(|number| Some((number, interfaces.get(number)?)));
    let Some((number, interface)) = found else { return Verdict::Drop(DropReason::VlanUnknown) };
    if !wanted(dst, interface) {
        return Verdict::Drop(DropReason::NotForUs);
    }
    (packet.port, packet.l3) = (number, l2.l3_offset as u8);
    match l2.ethertype {
        EtherType::IPV4 => Verdict::Next(0),
        EtherType::IPV6 => Verdict::Next(1),
        EtherType::ARP if interface.resolves => Verdict::Next(ARP),
        _ if interface.owner == Owner::Kernel => Verdict::Consume,
        EtherType::ARP => Verdict::Drop(DropReason::ArpIgnored),
        _ => Verdict::Drop(DropReason::EtherTypeUnknown),
    }
}
