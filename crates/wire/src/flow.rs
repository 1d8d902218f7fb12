//! The flow that a packet belongs to: addresses, protocol, ports.

use crate::bytes::{part, u16_at};
use crate::{Protocol, ipv4, ipv6, ipv6_ext};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Source and destination address as numbers, most significant byte first on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Source.
        src: u32,
        /// Destination.
        dst: u32,
    },
    /// IPv6.
    V6 {
        /// Source.
        src: u128,
        /// Destination.
        dst: u128,
    },
}

/// A 5-tuple, or without ports what can be told of every fragment of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Source and destination address.
    pub addresses: Addresses,
    /// Upper-layer protocol, behind IPv6 extension headers. The first fragment of an IPv6 packet tells what is behind those that were cut with it,
    /// later ones do not: who has to keep fragments together leaves it out where there are no ports.
    pub protocol: Protocol,
    /// Source and destination port of TCP, UDP and SCTP. `None` in every fragment, the first too, so that none is
    /// parted from the others by them; and where the packet ends before them.
    pub ports: Option<(u16, u16)>,
}

/// Reads the key of `frame`, whose network header starts at `l3_offset` (see [`crate::vlan::L2`]).
///
/// `None` when that is no IPv4 or IPv6 header or an IPv6 extension header is malformed. A packet cut short behind
/// its headers has a key.
#[inline]
pub fn flow_key(frame: &[u8], l3_offset: usize) -> Option<FlowKey> {
    let packet = frame.get(l3_offset..)?;
    let (addresses, protocol, upper, end) = match ipv4::version(packet) {
        4 => {
            ipv4::check_header(packet).ok()?;
            let addresses = Addresses::V4 { src: ipv4::src_u32(packet), dst: ipv4::dst_u32(packet) };
            let upper = (!ipv4::is_fragment(packet)).then(|| ipv4::header_len(packet));
            (addresses, ipv4::protocol(packet), upper, ipv4::total_len(packet).into())
        }
        6 => {
            let walk = ipv6_ext::walk(packet).ok()?;
            let addresses = Addresses::V6 { src: ipv6::src_u128(packet), dst: ipv6::dst_u128(packet) };
            let end = ipv6::HEADER_LEN + usize::from(ipv6::payload_len(packet));
            (addresses, walk.upper, (!walk.is_fragment()).then_some(walk.upper_offset), end)
        }
        _ => return None,
    };
    let ports = upper.filter(|_| protocol.has_ports()).and_then(|at| {
        let header = part(packet, at, end);
        (header.len() >= 4).then(|| (u16_at(header, 0), u16_at(header, 2)))
    });
    Some(FlowKey { addresses, protocol, ports })
}

impl FlowKey {
    /// The key of the packets that go the other way.
    pub fn reversed(self) -> Self {
        let addresses = match self.addresses {
            Addresses::V4 { src, dst } => Addresses::V4 { src: dst, dst: src },
            Addresses::V6 { src, dst } => Addresses::V6 { src: dst, dst: src },
        };
        FlowKey { addresses, ports: self.ports.map(|(src, dst)| (dst, src)), ..self }
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.addresses {
            Addresses::V4 { src, dst } => {
                write!(f, "{} > {} {}", Ipv4Addr::from(src), Ipv4Addr::from(dst), self.protocol)?;
            }
            Addresses::V6 { src, dst } => {
                write!(f, "{} > {} {}", Ipv6Addr::from(src), Ipv6Addr::from(dst), self.protocol)?;
            }
        }
        match self.ports {
            Some((src, dst)) => write!(f, " {src}>{dst}"),
            None => Ok(()),
        }
    }
}
