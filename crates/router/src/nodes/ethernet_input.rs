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
        // A burst is of one port.
        let usual = burst.first().and_then(|packet| Usual::on(packet.port, interfaces));
        let Some(usual) = usual else { return each(burst, verdicts, |packet| judge(packet, interfaces)) };
        each(burst, verdicts, |packet| {
            if packet.port == usual.port
                && let Some(header) = packet.data().first_chunk()
                && let Some(output) = usual.output(header)
            {
                packet.l3 = ethernet::HEADER_LEN as u8;
                return Verdict::Next(output);
            }
            judge(packet, interfaces)
        });
    }
}

/// What nearly all frames on a port are: from one station to our address, without a tag, IP. Two words of the header tell.
///
/// ```text
/// byte  0 1 2 3 4 5 6 7 8 9 10 11 12 13
///       our address . .                     the first word: its last two bytes do not count
///                   g . . . .  .  type      the last word: the source's group bit, and the EtherType
/// ```
struct Usual {
    port: u16,
    /// What counts of the first word, and what it is to be.
    mask: u64,
    ours: u64,
}

/// What counts of the last word.
const KIND: u64 = u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0xff, 0xff]);
const KIND_IPV4: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0, 0, IPV4[0], IPV4[1]]);
const KIND_IPV6: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0, 0, IPV6[0], IPV6[1]]);

impl Usual {
    fn on(port: u16, interfaces: &Interfaces) -> Option<Self> {
        let interface = interfaces.get(port)?;
        let [a, b, c, d, e, f] = if interface.promiscuous { [0; 6] } else { [0xff; 6] };
        let mask = u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]);
        let [a, b, c, d, e, f] = interface.mac.0;
        Some(Usual { port, mask, ours: u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]) & mask })
    }

    /// The output that such a frame takes.
    #[inline(always)]
    fn output(&self, header: &[u8; ethernet::HEADER_LEN]) -> Option<u8> {
        let (first, last) = (header.first_chunk::<8>()?, header.last_chunk::<8>()?);
        if u64::from_ne_bytes(*first) & self.mask != self.ours {
            return None;
        }
        match u64::from_ne_bytes(*last) & KIND {
            KIND_IPV4 => Some(0),
            KIND_IPV6 => Some(1),
            _ => None,
        }
    }
}

/// Any frame.
#[inline(never)]
fn judge(packet: &mut Packet, interfaces: &Interfaces) -> Verdict {
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

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_burst::Memory;

    #[test]
    fn usual_frames_are_those_that_the_rules_let_pass_by_their_address() {
        let mut pool = Memory::new(4, 2048).unwrap().pool(4).unwrap();
        let ours = Interface::of_port(1, "wan").mac.0;
        let other = |byte: usize| {
            let mut mac = ours;
            mac[byte] ^= 0x10;
            mac
        };
        let mut seen = [0; 2];
        for promiscuous in [false, true] {
            let wan = Interface { promiscuous, ..Interface::of_port(1, "wan") };
            let interfaces = Interfaces::new(vec![Interface::of_port(0, "lan"), wan], 2);
            let usual = Usual::on(1, &interfaces).unwrap();
            let destinations = (0..6).map(other).chain([ours, [0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6]]);
            for dst in destinations {
                for src in [[2, 9, 9, 9, 9, 9], [0xfe; 6], [3, 9, 9, 9, 9, 9], [0xff; 6], [0; 6]] {
                    for ethertype in [[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0], [0, 8], [0xdd, 0x86], [8, 1]] {
                        let frame = [&dst[..], &src, &ethertype, &[0x45; 6]].concat();
                        let mut packet = pool.packet(&frame).unwrap();
                        packet.port = 1;
                        let quick = usual.output(packet.data().first_chunk().unwrap());
                        let verdict = judge(&mut packet, &interfaces);
                        let is_ours = promiscuous || dst == ours;
                        match quick {
                            Some(output) => {
                                assert_eq!((verdict, packet.l3), (Verdict::Next(output), 14), "{frame:x?}");
                                seen[usize::from(output)] += 1;
                            }
                            // To a group, or none of those that go on.
                            None => {
                                let goes_on = matches!(verdict, Verdict::Next(0 | 1));
                                assert!(!goes_on || !is_ours && dst[0] & 1 == 1, "{frame:x?}");
                            }
                        }
                        pool.free(packet);
                    }
                }
            }
        }
        // Of each family: to us and to all ten, from three stations.
        assert_eq!(seen, [33, 33]);
    }
}
