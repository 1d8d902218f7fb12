//! The frames that ask for a neighbor: ARP requests (RFC 826) and neighbor solicitations (RFC 4861 4.3).

use crate::interface::Interface;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidemill_burst::{Packet, Pool};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::ndisc::{Message, NdOption};
use tidemill_wire::{EtherType, MacAddr, Protocol, arp, ipv6, ndisc};

/// Neighbor discovery is from the link itself: routers would have lowered this (RFC 4861 7.1).
const HOP_LIMIT: u8 = 255;

/// A frame that asks for `target` on `interface`: everybody, or `to`. `None` without a frame, or without an address of
/// ours that could ask.
pub fn solicit(
    pool: &mut Pool,
    interface: &Interface,
    target: IpAddr,
    to: Option<MacAddr>,
) -> Option<Packet> {
    match (target, interface.source_for(target)) {
        (IpAddr::V4(target), source) => {
            // Without an address of our own this is a probe (RFC 5227 2.1.1), which is answered too.
            let source = match source {
                Some(IpAddr::V4(source)) => source,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            arp_request(pool, interface, source, target, to)
        }
        (IpAddr::V6(target), Some(IpAddr::V6(source))) => solicitation(pool, interface, source, target, to),
        _ => None,
    }
}

fn frame(
    pool: &mut Pool,
    interface: &Interface,
    to: MacAddr,
    ethertype: EtherType,
    len: usize,
) -> Option<Packet> {
    let (header, header_len) = interface.ethernet(to, ethertype);
    let mut packet = pool.take()?;
    packet.set_len(header_len + len);
    packet.data_mut().fill(0);
    packet.data_mut()[..header_len].copy_from_slice(&header[..header_len]);
    packet.l3 = header_len as u8;
    packet.set_own();
    Some(packet)
}

fn arp_request(
    pool: &mut Pool,
    interface: &Interface,
    source: Ipv4Addr,
    target: Ipv4Addr,
    to: Option<MacAddr>,
) -> Option<Packet> {
    let repr = arp::Repr {
        operation: arp::Operation::Request,
        sender_mac: interface.mac,
        sender_ip: source,
        target_mac: MacAddr::ZERO,
        target_ip: target,
    };
    let mac = to.unwrap_or(MacAddr::BROADCAST);
    let mut packet = frame(pool, interface, mac, EtherType::ARP, repr.buffer_len())?;
    let l3 = usize::from(packet.l3);
    // It fits: the packet was cut to its length.
    let _ = repr.emit(&mut packet.data_mut()[l3..]);
    Some(packet)
}

/// The solicited-node group of an address (RFC 4291 2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]))
}

fn solicitation(
    pool: &mut Pool,
    interface: &Interface,
    source: Ipv6Addr,
    target: Ipv6Addr,
    to: Option<MacAddr>,
) -> Option<Packet> {
    let group = solicited_node(target);
    let (mac, dst) = to.map_or((MacAddr::from_multicast_v6(group), group), |mac| (mac, target));
    let mut option = [0; 8];
    let _ = NdOption::SourceLinkLayer(interface.mac).emit(&mut option);
    let message = ndisc::Repr { message: Message::NeighborSolicit { target }, options: &option };
    let len = message.buffer_len();
    let mut packet = frame(pool, interface, mac, EtherType::IPV6, ipv6::HEADER_LEN + len)?;
    let l3 = usize::from(packet.l3);
    let (header, body) = packet.data_mut()[l3..].split_at_mut(ipv6::HEADER_LEN);
    let mut repr = ipv6::Repr::new(source, dst, Protocol::ICMPV6, len);
    repr.hop_limit = HOP_LIMIT;
    // Both fit: the packet was cut to their length.
    let _ = repr.emit(header);
    let _ = message.emit(body, &Pseudo::V6 { src: source, dst });
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_burst::Memory;
    use tidemill_wire::{Summary, icmpv6};

    fn text(interface: &Interface, target: &str, to: Option<MacAddr>) -> Option<String> {
        let mut pool = Memory::new(1, 2048).unwrap().pool(1).unwrap();
        let packet = solicit(&mut pool, interface, target.parse().unwrap(), to)?;
        let text = format!("{} {}", MacAddr(packet.data()[..6].try_into().unwrap()), Summary(packet.data()));
        pool.free(packet);
        Some(text)
    }

    #[test]
    fn everybody_or_one_is_asked() {
        let mut lan = Interface::of_port(0, "lan");
        assert!(text(&lan, "192.0.2.9", None).unwrap().contains("192.0.2.9"), "a probe needs no address");
        assert_eq!(text(&lan, "fe80::9", None), None);
        lan.v4.push(("192.0.2.1".parse().unwrap(), "192.0.2.0/24".parse().unwrap()));
        lan.link_local.push("fe80::1".parse().unwrap());
        let arp = text(&lan, "192.0.2.9", None).unwrap();
        assert!(arp.starts_with("ff:ff:ff:ff:ff:ff") && arp.contains("192.0.2.1"), "{arp}");
        let nd = text(&lan, "2001:db8::1:2:3", None).unwrap();
        assert!(nd.starts_with("33:33:ff:02:00:03") && nd.contains("ff02::1:ff02:3"), "{nd}");
        let probe = text(&lan, "fe80::9", Some(MacAddr([2; 6]))).unwrap();
        assert!(probe.starts_with("02:02:02:02:02:02") && probe.contains("fe80::1"), "{probe}");
    }

    #[test]
    fn solicitations_have_a_right_checksum_and_the_tag_of_their_vlan() {
        let mut lan = Interface { vlan: Some(5), ..Interface::of_port(0, "lan") };
        lan.link_local.push("fe80::1".parse().unwrap());
        let mut pool = Memory::new(1, 2048).unwrap().pool(1).unwrap();
        let packet = solicit(&mut pool, &lan, "fe80::9".parse().unwrap(), None).unwrap();
        assert_eq!((packet.l3, &packet.data()[12..16]), (18, &b"\x81\0\0\x05"[..]));
        let ip = ipv6::Packet::new_checked(&packet.data()[18..]).unwrap();
        let message = icmpv6::Packet::new_checked(ip.payload()).unwrap();
        assert!(message.checksum_ok(&Pseudo::V6 { src: ip.src(), dst: ip.dst() }));
        assert_eq!(ip.hop_limit(), 255);
        pool.free(packet);
    }
}
