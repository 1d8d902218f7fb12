//! What a frame is to the mitigator: nothing is changed, nothing is judged that is not its own.
//!
//! A plain frame (Ethernet, IPv4 without options, UDP) is read in a straight line; what has VLAN tags, options, extension headers or is
//! a fragment goes the long way. A packet cut short behind its UDP ports (a capture's snap length) is read like a whole one.

use crate::tuple::Tuple;
use tidemill_wire::flow::Addresses;
use tidemill_wire::{EtherType, Protocol, ethernet, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext, udp, vlan};

/// The ports of a plain frame, and where from and to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
}

const LINK: usize = ethernet::HEADER_LEN;
const PLAIN_LEN: usize = LINK + ipv4::HEADER_LEN + udp::HEADER_LEN;

/// Reads a plain frame; `None` is for [`parse`] to look at.
#[inline(always)]
pub(crate) fn plain(frame: &[u8]) -> Option<Plain> {
    let head: &[u8; PLAIN_LEN] = frame.first_chunk()?;
    let (link, rest) = head.split_first_chunk::<LINK>()?;
    let (ip, datagram) = rest.split_first_chunk::<{ ipv4::HEADER_LEN }>()?;
    let ipv4_plain = [link[12], link[13], ip[0], ip[9]] == [0x08, 0x00, 0x45, Protocol::UDP.0];
    let whole = !ipv4::is_fragment(ip) && usize::from(ipv4::total_len(ip)) >= PLAIN_LEN - LINK;
    (ipv4_plain & whole).then(|| Plain {
        src: ipv4::src_u32(ip),
        dst: ipv4::dst_u32(ip),
        source_port: u16::from_be_bytes([datagram[0], datagram[1]]),
        destination_port: u16::from_be_bytes([datagram[2], datagram[3]]),
    })
}

/// What tells the fragments of one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FragmentKey {
    pub(crate) addresses: Addresses,
    pub(crate) ident: u32,
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// Nothing that the mitigator looks at.
    Other,
    /// Headers that lie about themselves; passed on all the same.
    Malformed,
    /// A UDP datagram, or its first fragment.
    Udp { tuple: Tuple, fragment: Option<FragmentKey> },
    /// A later fragment of a datagram.
    Later(FragmentKey),
    /// An ICMP port unreachable (type 3 code 3; ICMPv6 type 1 code 4), whose IP header is here in the frame.
    Unreachable { at: usize },
}

/// Reads any frame.
#[inline(never)]
pub(crate) fn parse(frame: &[u8]) -> Parsed {
    let Ok(l2) = vlan::L2::parse(frame) else { return Parsed::Malformed };
    let packet = frame.get(l2.l3_offset..).unwrap_or_default();
    match l2.ethertype {
        EtherType::IPV4 => parse4(packet, l2.l3_offset),
        EtherType::IPV6 => parse6(packet, l2.l3_offset),
        _ => Parsed::Other,
    }
}

fn parse4(packet: &[u8], at: usize) -> Parsed {
    if ipv4::check_header(packet).is_err() {
        return Parsed::Malformed;
    }
    let addresses = Addresses::V4 { src: ipv4::src_u32(packet), dst: ipv4::dst_u32(packet) };
    let end = usize::from(ipv4::total_len(packet)).min(packet.len());
    let upper = packet.get(ipv4::header_len(packet)..end).unwrap_or_default();
    let ident = u32::from(ipv4::Packet::new_unchecked(packet).ident());
    let key = FragmentKey { addresses, ident };
    match ipv4::protocol(packet) {
        Protocol::UDP if ipv4::fragment_offset(packet) > 0 => Parsed::Later(key),
        Protocol::UDP => datagram(addresses, upper, ipv4::is_fragment(packet).then_some(key)),
        Protocol::ICMP if ipv4::fragment_offset(packet) == 0 => {
            let kind = (icmpv4::kind::DEST_UNREACHABLE, icmpv4::code::UNREACHABLE_PORT);
            unreachable(upper, kind, at)
        }
        _ => Parsed::Other,
    }
}

fn parse6(packet: &[u8], at: usize) -> Parsed {
    let Ok(walk) = ipv6_ext::walk(packet) else { return Parsed::Malformed };
    let addresses = Addresses::V6 { src: ipv6::src_u128(packet), dst: ipv6::dst_u128(packet) };
    let end = (ipv6::HEADER_LEN + usize::from(ipv6::payload_len(packet))).min(packet.len());
    let upper = packet.get(walk.upper_offset..end).unwrap_or_default();
    let key = walk.fragment.filter(|_| walk.is_fragment());
    let key = key.map(|fragment| (fragment.offset, FragmentKey { addresses, ident: fragment.ident }));
    match (walk.upper, key) {
        (_, Some((1.., key))) => Parsed::Later(key),
        (Protocol::UDP, key) => datagram(addresses, upper, key.map(|(_, key)| key)),
        (Protocol::ICMPV6, _) => {
            let kind = (icmpv6::kind::DEST_UNREACHABLE, icmpv6::code::UNREACHABLE_PORT);
            unreachable(upper, kind, at)
        }
        _ => Parsed::Other,
    }
}

fn datagram(addresses: Addresses, upper: &[u8], fragment: Option<FragmentKey>) -> Parsed {
    let Some(&[a, b, c, d, ..]) = upper.first_chunk::<{ udp::HEADER_LEN }>() else {
        return Parsed::Malformed;
    };
    let tuple = Tuple {
        addresses,
        source_port: u16::from_be_bytes([a, b]),
        destination_port: u16::from_be_bytes([c, d]),
    };
    Parsed::Udp { tuple, fragment }
}

fn unreachable(upper: &[u8], kind: (u8, u8), at: usize) -> Parsed {
    match upper {
        [a, b, ..] if (*a, *b) == kind => Parsed::Unreachable { at },
        _ => Parsed::Other,
    }
}
