//! What an ICMP port unreachable is about: the datagram that it carries, and why it may not count.
//!
//! ```text
//! IPv4 header | ICMP 3/3 header, 8 bytes | the first bytes of the datagram: IPv4 header, options, UDP header (28 bytes at least) ...
//! IPv6 header ... | ICMPv6 1/4 header, 8 bytes | the datagram: IPv6 header, extension headers, UDP header ...
//! ```
//!
//! RFC 792 has a host send back the IP header and eight bytes of what was in it, RFC 1812 as much as fits 576 bytes, RFC 4443 as much as fits
//! 1280: UDP's ports are always there (paper, 5.4.1).

use crate::counters::Counter;
use crate::tuple::Tuple;
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::flow::Addresses;
use tidemill_wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext, udp};

/// The flow that a port unreachable is about, all parts of it; `packet` begins with its IP header, and is one that [`parse`](crate::parse::parse) has
/// seen to be one.
///
/// # Errors
/// The counter of the reason why it does not count.
pub(crate) fn about(packet: &[u8]) -> Result<Tuple, Counter> {
    if ipv4::version(packet) == 4 { about4(packet) } else { about6(packet) }
}

fn about4(packet: &[u8]) -> Result<Tuple, Counter> {
    ipv4::check_header(packet).map_err(|_| Counter::IcmpMalformed)?;
    if ipv4::is_fragment(packet) {
        return Err(Counter::IcmpFragmented);
    }
    let message = packet.get(ipv4::header_len(packet)..usize::from(ipv4::total_len(packet)));
    let message = message.ok_or(Counter::IcmpTruncated)?;
    let message = icmpv4::Packet::new_checked(message).map_err(|_| Counter::IcmpTruncated)?;
    if !message.checksum_ok() {
        return Err(Counter::IcmpChecksum);
    }
    let inner = message.payload();
    if inner.len() < ipv4::HEADER_LEN + udp::HEADER_LEN {
        return Err(Counter::IcmpTruncated);
    }
    // The rest of the datagram is not there, but its header must be true to itself.
    ipv4::check_header(inner).map_err(|_| Counter::IcmpMalformed)?;
    let (header, total) = (ipv4::header_len(inner), usize::from(ipv4::total_len(inner)));
    if ipv4::protocol(inner) != Protocol::UDP {
        return Err(Counter::IcmpOtherProtocol);
    }
    if ipv4::fragment_offset(inner) > 0 {
        return Err(Counter::IcmpFragmented);
    }
    let whole = (!ipv4::is_fragment(inner)).then_some(total - header);
    let (src, dst) = (ipv4::src_u32(inner), ipv4::dst_u32(inner));
    // Whoever could not be reached says so, to whoever wanted to reach him.
    if (ipv4::src_u32(packet), ipv4::dst_u32(packet)) != (dst, src) {
        return Err(Counter::IcmpNotVictims);
    }
    datagram(Addresses::V4 { src, dst }, inner.get(header..).unwrap_or_default(), total - header, whole)
}

fn about6(packet: &[u8]) -> Result<Tuple, Counter> {
    let walk = ipv6_ext::walk(packet).map_err(|_| Counter::IcmpMalformed)?;
    if walk.is_fragment() {
        return Err(Counter::IcmpFragmented);
    }
    let (outer_src, outer_dst) = (ipv6::src_u128(packet), ipv6::dst_u128(packet));
    let end = ipv6::HEADER_LEN + usize::from(ipv6::payload_len(packet));
    let message = packet.get(walk.upper_offset..end).ok_or(Counter::IcmpTruncated)?;
    let message = icmpv6::Packet::new_checked(message).map_err(|_| Counter::IcmpTruncated)?;
    let pseudo = Pseudo::V6 { src: Ipv6Addr::from(outer_src), dst: Ipv6Addr::from(outer_dst) };
    if !message.checksum_ok(&pseudo) {
        return Err(Counter::IcmpChecksum);
    }
    let inner = message.payload();
    if inner.len() < ipv6::HEADER_LEN + udp::HEADER_LEN {
        return Err(Counter::IcmpTruncated);
    }
    let walk = ipv6_ext::walk(inner).map_err(|_| Counter::IcmpMalformed)?;
    if walk.fragment.is_some_and(|fragment| fragment.offset > 0) {
        return Err(Counter::IcmpFragmented);
    }
    if walk.upper != Protocol::UDP {
        return Err(Counter::IcmpOtherProtocol);
    }
    let (src, dst) = (ipv6::src_u128(inner), ipv6::dst_u128(inner));
    if (outer_src, outer_dst) != (dst, src) {
        return Err(Counter::IcmpNotVictims);
    }
    let total = ipv6::HEADER_LEN + usize::from(ipv6::payload_len(inner));
    let room = total.saturating_sub(walk.upper_offset);
    let whole = (!walk.is_fragment()).then_some(room);
    datagram(Addresses::V6 { src, dst }, inner.get(walk.upper_offset..).unwrap_or_default(), room, whole)
}

/// The ports of a datagram whose IP header says that it has `room` bytes; if it is no fragment, `whole` is the same, and its length must fit.
fn datagram(addresses: Addresses, bytes: &[u8], room: usize, whole: Option<usize>) -> Result<Tuple, Counter> {
    let header: &[u8; udp::HEADER_LEN] = bytes.first_chunk().ok_or(Counter::IcmpTruncated)?;
    let header = udp::Packet::new_unchecked(header);
    let len = usize::from(header.len());
    // A host that found such lengths would have dropped the datagram, and sent nothing.
    if room < udp::HEADER_LEN || len < udp::HEADER_LEN || whole.is_some_and(|whole| len > whole) {
        return Err(Counter::IcmpMalformed);
    }
    Ok(Tuple { addresses, source_port: header.src_port(), destination_port: header.dst_port() })
}

/// The address that may have so many flows filtered per second.
pub(crate) fn victim(addresses: Addresses) -> u128 {
    match addresses {
        Addresses::V4 { dst, .. } => Ipv4Addr::from(dst).to_ipv6_mapped().to_bits(),
        Addresses::V6 { dst, .. } => dst,
    }
}
