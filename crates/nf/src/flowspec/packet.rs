//! What of a packet flow specifications ask for.

use crate::header::{InHeader, header, u16_at};
use tidemill_bgp::flowspec::fragment;
use tidemill_wire::Protocol;

/// What lies above IP, as far as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// Nothing that is asked for.
    None,
    /// Source and destination port, and the flags of TCP.
    Ports(u16, u16, Option<u16>),
    /// Type and code.
    Icmp(u8, u8),
}

/// A packet as flow specifications see it. Addresses of IPv4 are in the lower bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) source: u128,
    pub(crate) destination: u128,
    /// None where headers cannot be followed to it.
    pub(crate) protocol: Option<u8>,
    /// Bytes from the IP header on.
    pub(crate) length: u32,
    pub(crate) dscp: u8,
    pub(crate) flow_label: u32,
    /// Bits of [`fragment`].
    pub(crate) fragment: u8,
    pub(crate) load: Load,
}

/// Reads a packet from its IP header on. The header was found right before.
pub(crate) fn seen<A: InHeader + Into<u128>>(ip: &[u8]) -> Seen {
    let address = |at: usize| -> u128 { A::read(ip.get(at..).unwrap_or_default()).into() };
    let word = |at: usize| u16_at(ip, at).unwrap_or(0);
    let mut seen = Seen {
        source: address(A::SOURCE),
        destination: address(A::SOURCE + A::BYTES),
        protocol: None,
        length: if A::V6 { 40 + u32::from(word(4)) } else { u32::from(word(2)) },
        dscp: ((word(0) >> if A::V6 { 6 } else { 2 }) & 0x3f) as u8,
        flow_label: if A::V6 { (u32::from(word(0) & 0xf) << 16) | u32::from(word(2)) } else { 0 },
        fragment: if !A::V6 && word(6) & 0x4000 != 0 { fragment::DONT } else { 0 },
        load: Load::None,
    };
    let Ok(read) = header::<A>(ip) else { return seen };
    seen.protocol = Some(read.protocol.0);
    if let Some(piece) = read.fragment {
        seen.fragment |= match (piece.offset, piece.more) {
            (0, _) => fragment::FIRST,
            (_, true) => fragment::OTHER,
            (_, false) => fragment::OTHER | fragment::LAST,
        };
        if piece.offset > 0 {
            return seen;
        }
    }
    let end = read.end.min(ip.len());
    seen.load = load::<A>(read.protocol, ip.get(read.upper..end).unwrap_or_default());
    seen
}

fn load<A: InHeader>(protocol: Protocol, upper: &[u8]) -> Load {
    const ICMP: Protocol = Protocol(1);
    const ICMP6: Protocol = Protocol(58);
    let icmp = if A::V6 { ICMP6 } else { ICMP };
    let ports = || u16_at(upper, 0).zip(u16_at(upper, 2));
    match protocol {
        // Without the data offset beside them (RFC 8955, 4.2.2.9).
        Protocol::TCP => ports().map_or(Load::None, |(source, destination)| {
            Load::Ports(source, destination, u16_at(upper, 12).map(|word| word & 0x0fff))
        }),
        Protocol::UDP => {
            ports().map_or(Load::None, |(source, destination)| Load::Ports(source, destination, None))
        }
        other if other == icmp => match upper {
            [kind, code, ..] => Load::Icmp(*kind, *code),
            _ => Load::None,
        },
        _ => Load::None,
    }
}
