//! IP inside IP: protocol 4 carries IPv4 (RFC 2003), 41 carries IPv6 (RFC 4213 in IPv4, RFC 2473 in IPv6).
//!
//! ```text
//! | outer IPv4 or IPv6 | inner IPv4 or IPv6 ... |
//! ```
//! [`decapsulate`] finds the inner packet; [`Repr::v4`] and [`Repr::v6`] make the outer header for one.

use crate::bytes::part;
use crate::{Error, Protocol, ipv4, ipv6, ipv6_ext};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The version of an inner packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inner {
    /// Protocol 4.
    V4,
    /// Protocol 41.
    V6,
}

/// What a protocol number carries, if it carries IP.
#[inline]
pub fn classify(protocol: Protocol) -> Option<Inner> {
    match protocol {
        Protocol::IPV4 => Some(Inner::V4),
        Protocol::IPV6 => Some(Inner::V6),
        _ => None,
    }
}

/// An inner packet, still in its outer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnelled<'a> {
    /// Which header it starts with.
    pub inner: Inner,
    /// Bytes from the start of the outer header to the inner one.
    pub offset: usize,
    /// The inner packet, ended by its own length.
    pub packet: &'a [u8],
}

/// Looks into `outer`, which starts with an IPv4 or IPv6 header. `None` when it carries something else than IP, or
/// is a fragment (reassemble first). Fails when either header is malformed.
pub fn decapsulate(outer: &[u8]) -> Result<Option<Tunnelled<'_>>, Error> {
    let (protocol, offset, end) = if ipv4::version(outer) == 6 {
        ipv6::check(outer)?;
        let walk = ipv6_ext::walk(outer)?;
        if walk.is_fragment() {
            return Ok(None);
        }
        (walk.upper, walk.upper_offset, ipv6::HEADER_LEN + usize::from(ipv6::payload_len(outer)))
    } else {
        ipv4::check(outer)?;
        if ipv4::is_fragment(outer) {
            return Ok(None);
        }
        (ipv4::protocol(outer), ipv4::header_len(outer), ipv4::total_len(outer).into())
    };
    let Some(inner) = classify(protocol) else { return Ok(None) };
    let packet = part(outer, offset, end);
    let len = total_len(inner, packet).map_err(|error| error.shifted(offset))?;
    Ok(Some(Tunnelled { inner, offset, packet: part(packet, 0, len) }))
}

/// Bytes in a checked packet, padding left out.
fn total_len(inner: Inner, packet: &[u8]) -> Result<usize, Error> {
    match inner {
        Inner::V4 => ipv4::check(packet).map(|()| ipv4::total_len(packet).into()),
        Inner::V6 => ipv6::check(packet).map(|()| ipv6::HEADER_LEN + usize::from(ipv6::payload_len(packet))),
    }
}

/// The congestion bits of an inner packet that leaves a tunnel, from its own and the outer header's (RFC 6040,
/// section 4.2). `None` when it must be dropped: congestion was met, and the inner packet cannot say so.
pub fn decapsulated_ecn(inner: u8, outer: u8) -> Option<u8> {
    const NOT_ECT: u8 = 0;
    const ECT_1: u8 = 1;
    const ECT_0: u8 = 2;
    const CE: u8 = 3;
    match (inner & 3, outer & 3) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (_, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

/// An outer header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repr {
    /// IPv4 outside.
    V4(ipv4::Repr),
    /// IPv6 outside.
    V6(ipv6::Repr),
}

/// What of an inner packet the outer header depends on.
struct Seen {
    protocol: Protocol,
    dscp: u8,
    ecn: u8,
    dont_fragment: bool,
    len: usize,
}

fn look(packet: &[u8]) -> Result<Seen, Error> {
    let inner = if ipv4::version(packet) == 6 { Inner::V6 } else { Inner::V4 };
    let len = total_len(inner, packet)?;
    Ok(match inner {
        Inner::V4 => {
            let packet = ipv4::Packet::new_unchecked(packet);
            let (dscp, ecn, dont_fragment) = (packet.dscp(), packet.ecn(), packet.dont_fragment());
            Seen { protocol: Protocol::IPV4, dscp, ecn, dont_fragment, len }
        }
        Inner::V6 => {
            let packet = ipv6::Packet::new_unchecked(packet);
            let (dscp, ecn) = (packet.dscp(), packet.ecn());
            Seen { protocol: Protocol::IPV6, dscp, ecn, dont_fragment: false, len }
        }
    })
}

impl Repr {
    /// An outer IPv4 header for `inner`, a whole IP packet. Code point and congestion bits are copied (RFC 2003,
    /// section 3.1; RFC 6040, section 4.1), and don't-fragment from an inner IPv4; identification is zero.
    pub fn v4(src: Ipv4Addr, dst: Ipv4Addr, ttl: u8, inner: &[u8]) -> Result<Self, Error> {
        let seen = look(inner)?;
        Ok(Repr::V4(ipv4::Repr {
            dscp: seen.dscp,
            ecn: seen.ecn,
            dont_fragment: seen.dont_fragment,
            ttl,
            ..ipv4::Repr::new(src, dst, seen.protocol, seen.len)
        }))
    }

    /// An outer IPv6 header for `inner`, a whole IP packet. Traffic class is copied (RFC 2473, section 6.4).
    pub fn v6(src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8, inner: &[u8]) -> Result<Self, Error> {
        let seen = look(inner)?;
        Ok(Repr::V6(ipv6::Repr {
            dscp: seen.dscp,
            ecn: seen.ecn,
            hop_limit,
            ..ipv6::Repr::new(src, dst, seen.protocol, seen.len)
        }))
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn buffer_len(&self) -> usize {
        match self {
            Repr::V4(repr) => repr.buffer_len(),
            Repr::V6(repr) => repr.buffer_len(),
        }
    }

    /// Writes the outer header to the front of `buf`; returns its length, where the inner packet goes. Fails as the
    /// headers' own `emit` does.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, Error> {
        match self {
            Repr::V4(repr) => repr.emit(buf),
            Repr::V6(repr) => repr.emit(buf),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_packet_comes_back_from_both_tunnels() {
        let mut inner = vec![0; 28];
        let addresses = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let header =
            ipv4::Repr { dscp: 46, ecn: 2, ..ipv4::Repr::new(addresses.0, addresses.1, Protocol::UDP, 8) };
        header.emit(&mut inner).unwrap();
        let v4 = Repr::v4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2), 9, &inner).unwrap();
        let v6 = Repr::v6("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap(), 9, &inner).unwrap();
        for (repr, len) in [(v4, 20), (v6, 40)] {
            let mut outer = vec![0; len];
            assert_eq!(repr.emit(&mut outer), Ok(len));
            outer.extend(&inner);
            outer.extend([0xee; 7]);
            let tunnelled = decapsulate(&outer).unwrap().unwrap();
            assert_eq!(tunnelled, Tunnelled { inner: Inner::V4, offset: len, packet: &inner });
            let error = decapsulate(&outer[..len + 20]).unwrap_err();
            assert!(error.to_string().contains("exceeds"), "{error}");
        }
        let Repr::V4(outer) = v4 else { panic!("made for IPv4") };
        assert_eq!((outer.dscp, outer.ecn, outer.ttl, outer.dont_fragment), (46, 2, 9, true));
        assert_eq!(decapsulate(&inner), Ok(None));
    }

    #[test]
    fn congestion_leaves_a_tunnel_as_the_rfc_says() {
        let rows = [
            (0, [Some(0), Some(0), Some(0), None]),
            (2, [Some(2), Some(1), Some(2), Some(3)]),
            (1, [Some(1), Some(1), Some(1), Some(3)]),
            (3, [Some(3), Some(3), Some(3), Some(3)]),
        ];
        for (inner, row) in rows {
            for (outer, left) in row.into_iter().enumerate() {
                assert_eq!(decapsulated_ecn(inner, outer as u8), left, "inner {inner}, outer {outer}");
            }
        }
    }
}
