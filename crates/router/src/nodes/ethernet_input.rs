//! `ethernet-input`: takes frames off the link.
//!
//! * A frame shorter than its Ethernet header and VLAN tags: `ethernet-too-short`.
//! * A VLAN tag with an id: `vlan-unknown`. A tag with id 0 only carries a priority (802.1Q 6.9) and is read over.
//! * A destination that is neither our MAC address nor a group: `not-for-us`, unless the interface is promiscuous.
//! * EtherType: IPv4 and IPv6 go on; ARP is `arp-ignored`; anything else is `ethertype-unknown`.
//!
//! Sets the packet's `l3`. Outputs: `ip4`, `ip6`.

use crate::nodes::{each, short};
use crate::settings::Settings;
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, MacAddr, ethernet};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 2] = ["ip4", "ip6"];

/// The node.
pub struct EthernetInput {
    settings: Arc<Settings>,
}

impl EthernetInput {
    /// A node for one worker.
    pub fn new(settings: Arc<Settings>) -> Self {
        EthernetInput { settings }
    }
}

const IPV4: [u8; 2] = EtherType::IPV4.0.to_be_bytes();
const IPV6: [u8; 2] = EtherType::IPV6.0.to_be_bytes();

impl Node for EthernetInput {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let interfaces = &self.settings.interfaces[..];
        each(burst, verdicts, |packet| {
            let Some(header) = packet.data().first_chunk::<{ ethernet::HEADER_LEN }>() else {
                return short(packet, DropReason::EthernetTooShort);
            };
            let view = ethernet::Packet::new_unchecked(header);
            let (dst, ethertype) = (view.dst(), [header[12], header[13]]);
            if !wanted(dst, interfaces.get(usize::from(packet.port))) {
                return Verdict::Drop(DropReason::NotForUs);
            }
            packet.l3 = ethernet::HEADER_LEN as u8;
            match ethertype {
                IPV4 => Verdict::Next(0),
                IPV6 => Verdict::Next(1),
                _ => other(packet),
            }
        });
    }
}

#[inline(always)]
fn wanted(dst: MacAddr, interface: Option<&crate::settings::Interface>) -> bool {
    interface.is_some_and(|interface| interface.promiscuous || dst == interface.mac || dst.is_multicast())
}

#[cold]
fn other(packet: &mut Packet) -> Verdict {
    let Ok(l2) = L2::parse(packet.data()) else {
        return short(packet, DropReason::EthernetTooShort);
    };
    if l2.vlan_ids().any(|id| id != 0) {
        return Verdict::Drop(DropReason::VlanUnknown);
    }
    packet.l3 = l2.l3_offset as u8;
    match l2.ethertype {
        EtherType::IPV4 => Verdict::Next(0),
        EtherType::IPV6 => Verdict::Next(1),
        EtherType::ARP => Verdict::Drop(DropReason::ArpIgnored),
        _ => Verdict::Drop(DropReason::EtherTypeUnknown),
    }
}
