//! Checks every checksum that a frame carries: what tests hold output captures to.

use crate::bytes::part;
use crate::checksum::{self, Pseudo};
use crate::vlan::L2;
use crate::{EtherType, Protocol, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext, tcp, udp};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A checksum that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{protocol}: checksum {found:#06x} at byte {offset} of the frame, {right:#06x} is right")]
pub struct ChecksumFault {
    /// Whose checksum, lower case.
    pub protocol: &'static str,
    /// Where it is, from the start of the frame.
    pub offset: usize,
    /// What it is.
    pub found: u16,
    /// What it should be.
    pub right: u16,
}

/// Tunnels within tunnels that are looked into.
const MAX_DEPTH: usize = 4;

/// Verifies IPv4 header, ICMP, ICMPv6, UDP and TCP checksums of an Ethernet frame, in tunnelled packets (IP in IP) too.
///
/// Passed over, as nothing can be said of them: upper layers of fragments and of packets cut short, UDP over IPv4
/// with checksum 0 ("none"; over IPv6 that is a fault), what an ICMP error quotes, and all that is malformed.
pub fn verify_checksums(frame: &[u8]) -> Result<(), ChecksumFault> {
    let Ok(l2) = L2::parse(frame) else { return Ok(()) };
    match l2.ethertype {
        EtherType::IPV4 => v4(frame, l2.l3_offset, frame.len(), MAX_DEPTH),
        EtherType::IPV6 => v6(frame, l2.l3_offset, frame.len(), MAX_DEPTH),
        _ => Ok(()),
    }
}

/// `frame[at..end]` is an IPv4 packet.
fn v4(frame: &[u8], at: usize, end: usize, depth: usize) -> Result<(), ChecksumFault> {
    let data = part(frame, at, end);
    let Ok(packet) = ipv4::Packet::new_header_checked(data) else { return Ok(()) };
    if !packet.checksum_ok() {
        let right = without(part(data, 0, packet.header_len()), 10, 0);
        return Err(ChecksumFault { protocol: "ipv4", offset: at + 10, found: packet.checksum(), right });
    }
    if packet.is_fragment() || usize::from(packet.total_len()) > data.len() {
        return Ok(());
    }
    let pseudo = Pseudo::V4 { src: packet.src(), dst: final_v4(&packet) };
    let span = (at + packet.header_len(), at + usize::from(packet.total_len()));
    upper(frame, span, packet.protocol(), &pseudo, depth)
}

/// The last address of a source route that is still being followed (RFC 791: the pseudo header has the final one).
fn final_v4<T: AsRef<[u8]>>(packet: &ipv4::Packet<T>) -> Ipv4Addr {
    for option in packet.options().map_while(Result::ok) {
        if let ipv4::Ipv4Option::Route { kind, pointer, data } = option
            && kind != ipv4::option::RECORD_ROUTE
            && usize::from(pointer) <= data.len()
            && let Some(last) = data.last_chunk::<4>()
        {
            return Ipv4Addr::from(*last);
        }
    }
    packet.dst()
}

/// `frame[at..end]` is an IPv6 packet.
fn v6(frame: &[u8], at: usize, end: usize, depth: usize) -> Result<(), ChecksumFault> {
    let data = part(frame, at, end);
    let Ok(packet) = ipv6::Packet::new_checked(data) else { return Ok(()) };
    let Ok(walk) = ipv6_ext::walk(data) else { return Ok(()) };
    if walk.is_fragment() {
        return Ok(());
    }
    let dst = match walk.routing_offset {
        Some(offset) => final_v6(part(data, offset, walk.upper_offset), packet.dst()),
        None => Some(packet.dst()),
    };
    let Some(dst) = dst else { return Ok(()) };
    let pseudo = Pseudo::V6 { src: packet.src(), dst };
    let span = (at + walk.upper_offset, at + ipv6::HEADER_LEN + usize::from(packet.payload_len()));
    upper(frame, span, walk.upper, &pseudo, depth)
}

/// The last address that a routing header leads to; `None` when its type is unknown or its length wrong.
fn final_v6(routing: &[u8], dst: Ipv6Addr) -> Option<Ipv6Addr> {
    let header = ipv6_ext::Packet::new_checked(routing).ok()?;
    if header.segments_left() == 0 {
        return Some(dst);
    }
    // Addresses start at byte 8 of the header, 6 of the body.
    let (addresses, _) = header.body().get(6..)?.as_chunks::<16>();
    let last = match header.routing_type() {
        // Source route (RFC 5095 deprecates it): in order of travel.
        0 => addresses.last()?,
        // Mobility home address (RFC 6275): one. Segment routing (RFC 8754): in reverse order of travel.
        2 | 4 => addresses.first()?,
        _ => return None,
    };
    Some(Ipv6Addr::from(*last))
}

/// `frame[from..to]` is what an IP packet carries.
fn upper(
    frame: &[u8],
    (from, to): (usize, usize),
    protocol: Protocol,
    pseudo: &Pseudo,
    depth: usize,
) -> Result<(), ChecksumFault> {
    let data = part(frame, from, to);
    let fault = |protocol, offset: usize, data: &[u8], found, sum| {
        let right = without(data, offset, sum);
        Err(ChecksumFault { protocol, offset: from + offset, found, right })
    };
    match (protocol, pseudo) {
        (Protocol::ICMP, Pseudo::V4 { .. }) => match icmpv4::Packet::new_checked(data) {
            Ok(icmp) if !icmp.checksum_ok() => fault("icmp", 2, data, icmp.checksum(), 0),
            _ => Ok(()),
        },
        (Protocol::ICMPV6, Pseudo::V6 { .. }) => match icmpv6::Packet::new_checked(data) {
            Ok(icmp) if !icmp.checksum_ok(pseudo) => {
                fault("icmpv6", 2, data, icmp.checksum(), pseudo.sum(protocol, data.len()))
            }
            _ => Ok(()),
        },
        (Protocol::UDP, _) => match udp::Packet::new_checked(data) {
            Ok(udp) if !udp.checksum_ok(pseudo) => {
                let data = part(data, 0, udp.len().into());
                match fault("udp", 6, data, udp.checksum(), pseudo.sum(protocol, data.len())) {
                    Err(fault) => Err(ChecksumFault { right: checksum::for_udp(1, fault.right), ..fault }),
                    ok => ok,
                }
            }
            _ => Ok(()),
        },
        (Protocol::TCP, _) => match tcp::Packet::new_checked(data) {
            Ok(tcp) if !tcp.checksum_ok(pseudo) => {
                fault("tcp", 16, data, tcp.checksum(), pseudo.sum(protocol, data.len()))
            }
            _ => Ok(()),
        },
        (Protocol::IPV4, _) if depth > 0 => v4(frame, from, to, depth - 1),
        (Protocol::IPV6, _) if depth > 0 => v6(frame, from, to, depth - 1),
        _ => Ok(()),
    }
}

/// The checksum of `data` and `sum`, the two bytes at `offset` (even) taken as zero.
fn without(data: &[u8], offset: usize, sum: u16) -> u16 {
    let before = checksum::sum(part(data, 0, offset));
    let after = checksum::sum(part(data, offset + 2, usize::MAX));
    !checksum::add(sum, checksum::add(before, after))
}
