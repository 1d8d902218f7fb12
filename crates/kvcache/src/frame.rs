//! What of a frame concerns a memcached, and how its answer is framed. Nothing is judged here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, Protocol, ipv4, ipv6, ipv6_ext, tcp, udp};

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing that memcached reads.
    Other,
    /// It may bring anything to memcached: a fragment, extension headers that cannot be followed, a frame that is not whole.
    Anything,
    /// A UDP datagram.
    Datagram(Parts),
    /// A TCP segment.
    Segment(Parts),
}

/// Where things are in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    /// Its VLAN; 0 without a tag, or with one that gives a priority only.
    pub(crate) vlan: u16,
    l3: usize,
    l4: usize,
    /// Behind the transport's last byte.
    end: usize,
    /// No IP options, no extension headers.
    pub(crate) is_plain: bool,
}

/// Looks at a frame; `is_whole`: nothing of it was cut off when it was captured.
#[inline]
pub(crate) fn find(frame: &[u8], is_whole: bool) -> Found {
    let Ok(l2) = L2::parse(frame) else { return Found::Other };
    let packet = frame.get(l2.l3_offset..).unwrap_or_default();
    let mut found = match l2.ethertype {
        EtherType::IPV4 => find4(packet, l2.l3_offset),
        EtherType::IPV6 => find6(packet, l2.l3_offset),
        _ => return Found::Other,
    };
    if let Found::Datagram(parts) | Found::Segment(parts) = &mut found {
        parts.vlan = match l2.depth() {
            0 => 0,
            1 => l2.tags().next().map_or(NO_VLAN, |tag| tag.tci.id()),
            _ => NO_VLAN,
        };
    }
    if is_whole || found == Found::Other { found } else { Found::Anything }
}

/// Whether it is to a group's MAC address, or from one. An answer would come from there, which switches and hosts drop, or go to all of the group.
pub(crate) fn is_of_group(frame: &[u8]) -> bool {
    [0_usize, 6].iter().any(|&mac| frame.get(mac).is_some_and(|byte| byte & 1 == 1))
}

/// Of a frame with more than one tag: it is in nobody's VLAN.
const NO_VLAN: u16 = u16::MAX;

fn find4(packet: &[u8], l3: usize) -> Found {
    if ipv4::check_header(packet).is_err() {
        return Found::Other;
    }
    let (protocol, header) = (ipv4::protocol(packet), ipv4::header_len(packet));
    if protocol != Protocol::UDP && protocol != Protocol::TCP {
        return Found::Other;
    }
    let total = usize::from(ipv4::total_len(packet));
    if ipv4::is_fragment(packet) || total > packet.len() {
        // Too short for its own header: memcached's kernel drops it, unless the rest of it is where we cannot see it.
        return Found::Anything;
    }
    let (src, dst) =
        (Ipv4Addr::from(ipv4::src_u32(packet)).into(), Ipv4Addr::from(ipv4::dst_u32(packet)).into());
    transport(packet, (src, dst), protocol, (l3, header, total), header == ipv4::HEADER_LEN)
}

fn find6(packet: &[u8], l3: usize) -> Found {
    if ipv6::check_header(packet).is_err() {
        return Found::Other;
    }
    let Ok(walk) = ipv6_ext::walk(packet) else { return Found::Anything };
    if walk.is_fragment() || walk.routing_offset.is_some() {
        return Found::Anything;
    }
    if walk.upper != Protocol::UDP && walk.upper != Protocol::TCP {
        return Found::Other;
    }
    let total = ipv6::HEADER_LEN + usize::from(ipv6::payload_len(packet));
    let (src, dst) = (Ipv6Addr::from(ipv6::src_u128(packet)), Ipv6Addr::from(ipv6::dst_u128(packet)));
    if total > packet.len() {
        return Found::Anything;
    }
    // Nobody has such a source: the kernel drops it. Here it would be one of IPv4.
    if src.to_ipv4_mapped().is_some() {
        return Found::Other;
    }
    let is_plain = walk.upper_offset == ipv6::HEADER_LEN;
    transport(packet, (src.into(), dst.into()), walk.upper, (l3, walk.upper_offset, total), is_plain)
}

fn transport(
    packet: &[u8],
    (src, dst): (IpAddr, IpAddr),
    protocol: Protocol,
    (l3, header, total): (usize, usize, usize),
    is_plain: bool,
) -> Found {
    let bytes = packet.get(header..total).unwrap_or_default();
    let &[a, b, c, d, e, f, ..] = bytes else { return Found::Other };
    let mut parts = Parts {
        src,
        dst,
        source_port: u16::from_be_bytes([a, b]),
        destination_port: u16::from_be_bytes([c, d]),
        vlan: 0,
        l3,
        l4: l3 + header,
        end: l3 + total,
        is_plain,
    };
    if protocol == Protocol::TCP {
        return if bytes.len() < tcp::HEADER_LEN { Found::Other } else { Found::Segment(parts) };
    }
    let length = usize::from(u16::from_be_bytes([e, f]));
    if length == 0 && src.is_ipv6() {
        // To the end of the packet.
        parts.is_plain = false;
    } else if length < udp::HEADER_LEN || length > bytes.len() {
        return Found::Other;
    } else {
        parts.end = parts.l4 + length;
    }
    Found::Datagram(parts)
}

impl Parts {
    /// UDP's or TCP's header and what is behind it.
    pub(crate) fn transport<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.l4..self.end).unwrap_or_default()
    }

    /// What a datagram carries.
    pub(crate) fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.l4 + udp::HEADER_LEN..self.end).unwrap_or_default()
    }

    /// Whether an answer with so many bytes behind the UDP header comes through, whatever way it takes.
    pub(crate) fn comes_through(&self, payload: usize) -> bool {
        self.src.is_ipv4() || ipv6::HEADER_LEN + udp::HEADER_LEN + payload <= SURE_MTU_V6
    }

    fn pseudo(&self) -> Option<Pseudo> {
        pseudo(self.src, self.dst)
    }

    /// Whether a host takes the checksums for right. What a local sender has left to its card is completed by the ports that see such frames (`af_packet`, `xdp`
    /// on virtual links), so here it is wrong, as it is on a cable.
    pub(crate) fn adds_up(&self, frame: &[u8], protocol: Protocol) -> bool {
        let packet = frame.get(self.l3..).unwrap_or_default();
        if self.src.is_ipv4() && !ipv4::checksum_ok(packet) {
            return false;
        }
        let (bytes, Some(pseudo)) = (self.transport(frame), self.pseudo()) else { return false };
        let at = if protocol == Protocol::UDP { 6 } else { 16 };
        let Some(&[high, low]) = bytes.get(at..at + 2) else { return false };
        let check = u16::from_be_bytes([high, low]);
        if protocol == Protocol::UDP && check == 0 {
            return self.src.is_ipv4();
        }
        pseudo.is_valid(protocol, bytes)
    }

    /// Of a segment that does not add up: whether its checksum is what a sender leaves to its card, the pseudo header's sum. On a cable memcached's kernel drops it;
    /// where a port has given it as it was, it does not.
    pub(crate) fn is_half_summed(&self, frame: &[u8]) -> bool {
        let bytes = self.transport(frame);
        let check = bytes.get(16..18).map(|field| u16::from_be_bytes([field[0], field[1]]));
        check.is_some() && check == self.pseudo().map(|pseudo| pseudo.sum(Protocol::TCP, bytes.len()))
    }
}

fn pseudo(src: IpAddr, dst: IpAddr) -> Option<Pseudo> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Pseudo::V4 { src, dst }),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Pseudo::V6 { src, dst }),
        _ => None,
    }
}

/// Which way a datagram goes that is made after another's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The same.
    On,
    /// From its destination to its source.
    Back,
}

/// A packet of IPv6 that every way takes; of a longer one the pieces would be memcached's to make.
const SURE_MTU_V6: usize = 1280;
/// The same of IPv4: a longer one may be cut on its way, and has a number that its pieces are known by.
const SURE_MTU_V4: usize = 576;

/// Writes a datagram in the frame of another: its link-layer header with all tags, plain IP and UDP headers, a payload. `ports`: source and destination;
/// `number`: of the packet, if it may be cut on its way.
pub(crate) fn write(
    frame: &[u8],
    of: &Parts,
    way: Way,
    ports: (u16, u16),
    payload: &[&[u8]],
    number: u16,
    to: &mut Vec<u8>,
) {
    to.clear();
    to.extend_from_slice(frame.get(..of.l3).unwrap_or_default());
    let (src, dst) = match way {
        Way::On => (of.src, of.dst),
        Way::Back => {
            if let Some((destination, source)) = to.get_mut(..12).map(|macs| macs.split_at_mut(6)) {
                destination.swap_with_slice(source);
            }
            (of.dst, of.src)
        }
    };
    let length = udp::HEADER_LEN + payload.iter().map(|part| part.len()).sum::<usize>();
    let l3 = to.len();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            to.extend_from_slice(&[0x45, 0]);
            to.extend_from_slice(&((ipv4::HEADER_LEN + length) as u16).to_be_bytes());
            if ipv4::HEADER_LEN + length > SURE_MTU_V4 {
                to.extend_from_slice(&number.to_be_bytes());
                to.extend_from_slice(&[0, 0]);
            } else {
                // No fragments.
                to.extend_from_slice(&[0, 0, 0x40, 0]);
            }
            // 64 hops.
            to.extend_from_slice(&[64, Protocol::UDP.0, 0, 0]);
            to.extend_from_slice(&src.octets());
            to.extend_from_slice(&dst.octets());
            ipv4::fill_checksum(&mut to[l3..]);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            to.extend_from_slice(&[0x60, 0, 0, 0]);
            to.extend_from_slice(&(length as u16).to_be_bytes());
            to.extend_from_slice(&[Protocol::UDP.0, 64]);
            to.extend_from_slice(&src.octets());
            to.extend_from_slice(&dst.octets());
        }
        _ => {}
    }
    let l4 = to.len();
    for number in [ports.0, ports.1, length as u16, 0] {
        to.extend_from_slice(&number.to_be_bytes());
    }
    payload.iter().for_each(|part| to.extend_from_slice(part));
    if let Some(pseudo) = pseudo(src, dst) {
        let sum = pseudo.checksum(Protocol::UDP, &to[l4..]);
        let sum = if sum == 0 { 0xffff } else { sum };
        to[l4 + 6..l4 + 8].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of IPv6 a router cuts nothing: what is longer than every link takes is not ours to send.
    #[test]
    fn how_long_an_answer_may_be() {
        let mut frame = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64], &[0xfd; 32]].concat();
        frame.extend([0x0f, 0xa0, 0x2b, 0xcb, 0, 8, 0, 0]);
        let Found::Datagram(v6) = find(&frame, true) else { panic!() };
        assert!(v6.comes_through(1232) && !v6.comes_through(1233));
        let mut made = Vec::new();
        write(&frame, &v6, Way::Back, (1, 2), &[&[7; 1232]], 9, &mut made);
        assert_eq!(made.len(), 14 + 1280);
        let v4 = Parts { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), ..v6 };
        assert!(v4.comes_through(1400));
        for (payload, field) in [(548, [0, 0, 0x40, 0]), (549, [0, 9, 0, 0])] {
            write(&frame, &v4, Way::Back, (1, 2), &[&vec![7; payload]], 9, &mut made);
            assert_eq!(made[18..22], field, "{payload}");
        }
    }

    /// The pseudo header's sum alone is what a card would have completed: memcached's kernel drops it when it comes by a cable.
    #[test]
    fn half_a_checksum_is_wrong() {
        let mut frame =
            [&[2; 12][..], &[8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 9]]
                .concat();
        ipv4::fill_checksum(&mut frame[14..]);
        frame.extend([0x0f, 0xa0, 0x2b, 0xcb, 0, 12, 0, 0, 1, 2, 3, 4]);
        let Found::Datagram(parts) = find(&frame, true) else { panic!() };
        let pseudo = parts.pseudo().unwrap();
        let right = pseudo.checksum(Protocol::UDP, parts.transport(&frame));
        for (sum, adds_up) in
            [(right, true), (right ^ 1, false), (pseudo.sum(Protocol::UDP, 12), false), (0, true)]
        {
            frame[40..42].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(parts.adds_up(&frame, Protocol::UDP), adds_up, "{sum:x}");
        }
    }
}
