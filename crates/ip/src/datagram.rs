//! UDP datagrams of our own services: read from a packet to us, and made to be routed like any packet.

use std::net::IpAddr;
use tidemill_burst::Packet;
use tidemill_graph::Context;
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, ethernet, ipv4, ipv6, ipv6_ext, udp};

/// Code point of what networks say to each other: internetwork control (RFC 4594).
const DSCP: u8 = 48;

/// A whole UDP datagram to us. Its UDP checksum has not been looked at.
pub struct Datagram<'a> {
    pseudo: Pseudo,
    udp: udp::Packet<&'a [u8]>,
    /// What it carries.
    pub payload: &'a [u8],
}

/// Where an unfragmented packet of UDP carries its UDP header, and between which addresses.
fn place(ip: &[u8]) -> Option<(Pseudo, usize)> {
    let (pseudo, at, protocol) = if ipv4::version(ip.get(..1)?) == 6 {
        ipv6::check(ip).ok()?;
        let walk = ipv6_ext::walk(ip).ok().filter(|walk| !walk.is_fragment())?;
        let packet = ipv6::Packet::new_unchecked(ip);
        (Pseudo::V6 { src: packet.src(), dst: packet.dst() }, walk.upper_offset, walk.upper)
    } else {
        ipv4::check(ip).ok().filter(|()| !ipv4::is_fragment(ip))?;
        let packet = ipv4::Packet::new_unchecked(ip);
        (Pseudo::V4 { src: packet.src(), dst: packet.dst() }, ipv4::header_len(ip), ipv4::protocol(ip))
    };
    (protocol == Protocol::UDP).then_some((pseudo, at))
}

/// Where a packet of UDP that begins with its IP header comes from and where it goes to, whatever its UDP length says: what is meant for a service and makes no
/// [`Datagram`] is that service's to refuse.
pub fn ends(ip: &[u8]) -> Option<[(IpAddr, u16); 2]> {
    let (pseudo, at) = place(ip)?;
    let [a, b, c, d] = *ip.get(at..)?.first_chunk()?;
    Some([(pseudo.src(), u16::from_be_bytes([a, b])), (pseudo.dst(), u16::from_be_bytes([c, d]))])
}

impl<'a> Datagram<'a> {
    /// Of a packet that begins with its IP header; none if it carries anything else, or a part of one only.
    pub fn read(ip: &'a [u8]) -> Option<Self> {
        let (pseudo, at) = place(ip)?;
        let datagram = ip.get(at..)?;
        let udp = udp::Packet::new_checked(datagram).ok()?;
        let payload = datagram.get(udp::HEADER_LEN..usize::from(udp.len()))?;
        Some(Datagram { pseudo, udp, payload })
    }

    /// Address and port that it comes from.
    pub fn source(&self) -> (IpAddr, u16) {
        (self.pseudo.src(), self.udp.src_port())
    }

    /// Address and port that it goes to.
    pub fn destination(&self) -> (IpAddr, u16) {
        (self.pseudo.dst(), self.udp.dst_port())
    }

    /// Whether its checksum is there and right.
    pub fn is_sound(&self) -> bool {
        self.udp.checksum() != 0 && self.udp.checksum_ok(&self.pseudo)
    }
}

/// A datagram of ours, to be looked up in the VRF of this interface; its link header is for `ip4-forward` or `ip6-forward` to write. None where there is no frame, or the addresses
/// are of two families.
pub fn datagram(
    cx: &mut Context<'_>,
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    interface: u16,
    payload: &[u8],
) -> Option<Packet> {
    let len = udp::HEADER_LEN + payload.len();
    let mut made = cx.pool.take()?;
    let header = if from.0.is_ipv6() { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
    if ethernet::HEADER_LEN + header + len > made.tailroom() {
        cx.pool.free(made);
        return None;
    }
    made.set_len(ethernet::HEADER_LEN + header + len);
    let (link, rest) = made.data_mut().split_at_mut(ethernet::HEADER_LEN);
    link.fill(0);
    let (ip, datagram) = rest.split_at_mut(header);
    let pseudo = match (from.0, to.0) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut repr = ipv4::Repr::new(src, dst, Protocol::UDP, len);
            repr.dscp = DSCP;
            repr.emit(ip).is_ok().then_some(Pseudo::V4 { src, dst })
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut repr = ipv6::Repr::new(src, dst, Protocol::UDP, len);
            repr.dscp = DSCP;
            repr.emit(ip).is_ok().then_some(Pseudo::V6 { src, dst })
        }
        _ => None,
    };
    datagram[udp::HEADER_LEN..].copy_from_slice(payload);
    let repr = udp::Repr { src_port: from.1, dst_port: to.1, payload_len: payload.len() };
    if pseudo.is_none_or(|pseudo| repr.emit(datagram, &pseudo).is_err()) {
        cx.pool.free(made);
        return None;
    }
    (made.l3, made.port) = (ethernet::HEADER_LEN as u8, interface);
    made.set_own();
    made.set_timestamp_ns(cx.now_ns);
    Some(made)
}
