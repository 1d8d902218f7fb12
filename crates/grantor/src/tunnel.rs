//! Outer packets: what is in one, and taking it out.
//!
//! ```text
//!  | link | outer: Gatekeeper -> us, DSCP, ECN, protocol 4 or 41 | inner: source -> destination ... |
//!  | link |                                                      inner ... |    cut: congestion carried over (RFC 6040, 4.2)
//! ```
//! The inner packet is of the outer one's family: Gatekeepers send no other, and a Grantor decides for its own family only. Its header's form is checked here,
//! as far as its lengths; everything else (checksum, martians, options) is `ip4-input`'s and `ip6-input`'s business, where it goes next, so what the tunnel's
//! end changes is taken out of the checksum by difference.

use crate::question::{Fragment, Question};
use std::net::IpAddr;
use tidemill_burst::{DropReason, Packet};
use tidemill_wire::flow::Addresses;
use tidemill_wire::{EtherType, Protocol, checksum, ethernet, ipip, ipv4, ipv6, ipv6_ext};

/// A packet in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tunnel {
    /// The outer source.
    pub(crate) gatekeeper: IpAddr,
    /// The outer destination.
    pub(crate) ours: IpAddr,
    /// The outer code point.
    pub(crate) dscp: u8,
    ecn: u8,
    /// From the outer header to the inner one.
    offset: usize,
    /// Whether there is a packet in it that can be taken out.
    pub(crate) whole: bool,
}

/// What the packet that begins with `ip` is, if it is an outer one. Its own header has been checked.
pub(crate) fn look(ip: &[u8]) -> Option<Tunnel> {
    if ipv4::version(ip.get(..1)?) == 6 {
        ip.get(..ipv6::HEADER_LEN)?;
        let walk = ipv6_ext::walk(ip).ok().filter(|walk| !walk.is_fragment())?;
        let inner = carries(walk.upper)?;
        let (packet, offset) = (ipv6::Packet::new_unchecked(ip), walk.upper_offset);
        let end = ipv6::HEADER_LEN + usize::from(ipv6::payload_len(ip));
        let (gatekeeper, ours) = (IpAddr::V6(packet.src()), IpAddr::V6(packet.dst()));
        let whole = inner == 6 && ip.get(offset..end.min(ip.len())).is_some_and(|ip| ipv6::check(ip).is_ok());
        return Some(Tunnel { gatekeeper, ours, dscp: packet.dscp(), ecn: packet.ecn(), offset, whole });
    }
    ip.get(..ipv4::HEADER_LEN)?;
    let inner = carries(ipv4::protocol(ip)).filter(|_| !ipv4::is_fragment(ip))?;
    let (packet, offset) = (ipv4::Packet::new_unchecked(ip), ipv4::header_len(ip));
    let end = usize::from(ipv4::total_len(ip)).min(ip.len());
    let (gatekeeper, ours) = (IpAddr::V4(packet.src()), IpAddr::V4(packet.dst()));
    let whole = inner == 4 && ip.get(offset..end).is_some_and(|ip| ipv4::check(ip).is_ok());
    Some(Tunnel { gatekeeper, ours, dscp: packet.dscp(), ecn: packet.ecn(), offset, whole })
}

/// The version of IP that a protocol carries.
fn carries(protocol: Protocol) -> Option<u8> {
    match protocol {
        Protocol::IPV4 => Some(4),
        Protocol::IPV6 => Some(6),
        _ => None,
    }
}

impl Tunnel {
    /// The inner packet, of what begins with the outer header.
    pub(crate) fn inner<'a>(&self, ip: &'a [u8]) -> &'a [u8] {
        ip.get(self.offset..).unwrap_or_default()
    }

    /// The inner packet's source, if it is an outer one itself.
    pub(crate) fn nested(&self, ip: &[u8]) -> Option<IpAddr> {
        let inner = self.inner(ip);
        if self.gatekeeper.is_ipv6() {
            let walk = ipv6_ext::walk(inner).ok()?;
            carries(walk.upper).map(|_| IpAddr::V6(ipv6::src_u128(inner).into()))
        } else {
            carries(ipv4::protocol(inner)).map(|_| IpAddr::V4(ipv4::src_u32(inner).into()))
        }
    }

    /// Takes the inner packet out: it begins behind a link header of its own.
    ///
    /// # Errors
    /// The reason to drop it for.
    pub(crate) fn cut(&self, packet: &mut Packet) -> Result<(), DropReason> {
        let at = usize::from(packet.l3) + self.offset;
        let v6 = self.gatekeeper.is_ipv6();
        let least = if v6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
        let data = packet.data_mut();
        let link: Option<[u8; 12]> = data.first_chunk().copied();
        let inner = data.get_mut(at..).filter(|inner| inner.len() >= least);
        let (Some(link), Some(inner)) = (link, inner) else { return Err(DropReason::TunnelMalformed) };
        let ecn = if v6 { inner[1] >> 4 & 3 } else { inner[1] & 3 };
        let Some(merged) = ipip::decapsulated_ecn(ecn, self.ecn) else {
            return Err(DropReason::TunnelCongestion);
        };
        if merged != ecn && v6 {
            inner[1] = inner[1] & !0x30 | merged << 4;
        } else if merged != ecn {
            let word = |inner: &[u8], at: usize| u16::from_be_bytes([inner[at], inner[at + 1]]);
            let before = word(inner, 0);
            inner[1] = inner[1] & !3 | merged;
            let check = checksum::update_u16(word(inner, 10), before, word(inner, 0));
            inner[10..12].copy_from_slice(&check.to_be_bytes());
        }
        if !packet.cut_front(at - ethernet::HEADER_LEN) {
            return Err(DropReason::TunnelMalformed);
        }
        let kind = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let data = packet.data_mut();
        data[..12].copy_from_slice(&link);
        data[12..14].copy_from_slice(&kind.0.to_be_bytes());
        packet.l3 = ethernet::HEADER_LEN as u8;
        // What a device has found of the header was the outer one's.
        packet.clear_checked();
        Ok(())
    }
}

/// What a policy is asked about a packet that begins with its IP header, and whose lengths have been checked.
pub fn question(ip: &[u8], dscp: u8) -> Question {
    let v6 = ipv4::version(ip) == 6;
    let (flow, protocol, fragment, upper, length) = if v6 {
        let flow = Addresses::V6 { src: ipv6::src_u128(ip), dst: ipv6::dst_u128(ip) };
        let length = ipv6::HEADER_LEN + usize::from(ipv6::payload_len(ip));
        match ipv6_ext::walk(ip) {
            Ok(walk) => {
                let later = walk.fragment.is_some_and(|fragment| fragment.offset != 0);
                (flow, walk.upper, place(walk.is_fragment(), later), walk.upper_offset, length)
            }
            // A policy sees the first extension header's number, which is no protocol with ports.
            Err(_) => (flow, ipv6::next_header(ip), Fragment::Later, ip.len(), length),
        }
    } else {
        let flow = Addresses::V4 { src: ipv4::src_u32(ip), dst: ipv4::dst_u32(ip) };
        let fragment = place(ipv4::is_fragment(ip), ipv4::fragment_offset(ip) != 0);
        (flow, ipv4::protocol(ip), fragment, ipv4::header_len(ip), ipv4::total_len(ip).into())
    };
    let upper = match fragment {
        Fragment::Later => &[],
        _ => ip.get(upper..length.min(ip.len())).unwrap_or_default(),
    };
    let port = |at: usize| match upper.get(at..at + 2) {
        Some(&[high, low]) if protocol.has_ports() => u16::from_be_bytes([high, low]),
        _ => 0,
    };
    let tcp_flags = upper.get(13).copied().filter(|_| protocol == Protocol::TCP).unwrap_or(0);
    Question {
        flow,
        dscp,
        protocol: protocol.0,
        fragment,
        tcp_flags,
        source_port: port(0),
        destination_port: port(2),
        length: length.min(usize::from(u16::MAX)) as u16,
        packets: 1,
        bytes: length as u64,
    }
}

fn place(is_fragment: bool, later: bool) -> Fragment {
    match (is_fragment, later) {
        (false, _) => Fragment::No,
        (true, false) => Fragment::First,
        (true, true) => Fragment::Later,
    }
}
