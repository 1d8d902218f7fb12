//! Packets as NAT reads and rewrites them: addresses, what stands for ports, and the packet that an ICMP error quotes.
//!
//! Checksums are updated by what has changed (RFC 1624), never computed anew, so that a packet that was damaged stays so. An ICMP error is
//! the exception: its checksum is looked at first (RFC 5508, REQ-3), and covers the quoted headers that are rewritten.

use crate::header::{Header, InHeader, u16_at};
use crate::nat::ip::{Endpoint, Family, Proto};
use crate::nat::state::Piece;
use std::net::Ipv6Addr;
use tidemill_burst::DropReason;
use tidemill_wire::checksum::{self, Pseudo, fold, for_udp, update_u16};
use tidemill_wire::{Protocol, icmpv4, icmpv6, ipv4};

const TCP_HEADER: usize = 20;
const TCP_FLAGS: usize = 13;
/// Of UDP, and what an ICMP error quotes at least behind the IP header.
const EIGHT: usize = 8;

/// Which end of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// What is behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Upper {
    /// A segment, a datagram, a query: the ports of both ends, or the identifier twice.
    Piece(Piece, u16, u16),
    /// An ICMP error.
    Error,
    /// A protocol that has no ports that we know.
    Other,
}

/// The packet that an ICMP error is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quote<A> {
    /// Where it begins.
    at: usize,
    header: Header<A>,
    /// Whether it has no ports: then only whole addresses are translated, and `proto` means nothing.
    pub(crate) is_plain: bool,
    pub(crate) proto: Proto,
    pub(crate) source: Endpoint<A>,
    pub(crate) destination: Endpoint<A>,
}

#[inline(always)]
fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(two) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *two = value.to_be_bytes();
    }
}

/// Reads the header of a packet, or of the beginning of one; it ends where there are no more bytes. `None` if that is none, or one that cannot be
/// translated.
#[inline]
pub(crate) fn header<A: InHeader>(ip: &[u8]) -> Option<Header<A>> {
    let header = crate::header::header::<A>(ip).ok()?;
    // With a routing header the checksum is over an address further on.
    header.routing.is_none().then(|| Header { end: header.end.min(ip.len()), ..header })
}

/// Reads what is behind the header of a packet that is whole, or of a first fragment.
#[inline]
pub(crate) fn upper<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    ip: &[u8],
    header: &Header<A>,
) -> Result<Upper, DropReason> {
    let bytes = ip.get(header.upper..header.end).unwrap_or_default();
    let icmp = if A::V6 { Protocol::ICMPV6 } else { Protocol::ICMP };
    let needed = match header.protocol {
        Protocol::TCP => TCP_HEADER,
        Protocol::UDP => EIGHT,
        protocol if protocol == icmp => EIGHT,
        _ => return Ok(Upper::Other),
    };
    if bytes.len() < needed {
        return Err(DropReason::NatMalformed);
    }
    if header.protocol == icmp {
        return icmp_upper::<A, E, S, T>(bytes, header.fragment.is_some());
    }
    let ports = (u16_at(bytes, 0).unwrap_or(0), u16_at(bytes, 2).unwrap_or(0));
    if ports.0 == 0 || ports.1 == 0 {
        return Err(DropReason::NatMalformed);
    }
    let piece = match header.protocol {
        Protocol::TCP => Piece::Tcp(bytes[TCP_FLAGS]),
        _ => Piece::Udp,
    };
    Ok(Upper::Piece(piece, ports.0, ports.1))
}

fn icmp_upper<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    message: &[u8],
    is_fragment: bool,
) -> Result<Upper, DropReason> {
    use icmpv4::kind as k4;
    use icmpv6::kind as k6;
    let ident = u16_at(message, 4).unwrap_or(0);
    let query = |piece| Ok(Upper::Piece(piece, ident, ident));
    match (A::V6, message[0]) {
        (false, k4::ECHO_REQUEST | k4::TIMESTAMP) | (true, k6::ECHO_REQUEST) => query(Piece::Request),
        (false, k4::ECHO_REPLY | k4::TIMESTAMP_REPLY) | (true, k6::ECHO_REPLY) => query(Piece::Reply),
        (false, k4::DEST_UNREACHABLE | k4::TIME_EXCEEDED | k4::PARAMETER_PROBLEM)
        | (true, k6::DEST_UNREACHABLE | k6::PACKET_TOO_BIG | k6::TIME_EXCEEDED | k6::PARAMETER_PROBLEM) => {
            if is_fragment {
                return Err(DropReason::NatMalformed);
            }
            Ok(Upper::Error)
        }
        // Redirects, source quench, ...: nothing that means something on the other side (RFC 5508, REQ-10, REQ-11).
        _ => Err(DropReason::NatProtocol),
    }
}

/// Where the address of an end lies in the header.
#[inline(always)]
fn address_at<A: InHeader>(side: Side) -> usize {
    match side {
        Side::Source => A::SOURCE,
        Side::Destination => A::SOURCE + A::BYTES,
    }
}

/// Where the port of an end and the checksum lie behind the IP header.
#[inline(always)]
fn port_and_check(proto: Proto, side: Side) -> (usize, usize) {
    match (proto, side) {
        (Proto::Tcp, Side::Source) => (0, 16),
        (Proto::Tcp, Side::Destination) => (2, 16),
        (Proto::Udp, Side::Source) => (0, 6),
        (Proto::Udp, Side::Destination) => (2, 6),
        (Proto::Icmp, _) => (4, 2),
    }
}

/// A checksum after the sum of what it covers grew by this much.
#[inline(always)]
fn updated(check: u16, difference: u64) -> u16 {
    !fold(u64::from(!check) + difference)
}

/// Gives one end of a packet another endpoint, as [`rewrite`] does; of a packet that was read, and has all that is to be changed: `old` is what
/// that end is now.
#[inline]
pub(crate) fn replace<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    ip: &mut [u8],
    upper: usize,
    proto: Proto,
    side: Side,
    old: Endpoint<A>,
    new: Endpoint<A>,
) {
    let (port_at, check_at) = port_and_check(proto, side);
    let Some((header, rest)) = ip.split_at_mut_checked(upper) else { return };
    let header = header.get_mut(..A::SOURCE + 2 * A::BYTES);
    let (Some(header), Some(rest)) = (header, rest.get_mut(..port_at.max(check_at) + 2)) else { return };
    let difference = old.address.difference(new.address);
    new.address.write(&mut header[address_at::<A>(side)..]);
    if !A::V6 {
        put_u16(header, 10, updated(u16_at(header, 10).unwrap_or(0), difference));
    }
    put_u16(rest, port_at, new.port);
    // ICMP for IPv4 does not cover the addresses.
    let covered = if proto != Proto::Icmp || A::V6 { difference } else { 0 };
    let before = u16_at(rest, check_at).unwrap_or(0);
    let check = updated(before, covered + u64::from(!old.port) + u64::from(new.port));
    put_u16(rest, check_at, if proto == Proto::Udp { for_udp(before, check) } else { check });
}

/// Gives one end of a packet another address; with `proto` also another port, and puts the checksums right. Without: of a later
/// fragment, or where there are no ports.
#[inline]
pub(crate) fn rewrite<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    ip: &mut [u8],
    upper: usize,
    proto: Option<Proto>,
    side: Side,
    new: Endpoint<A>,
) {
    let Some(place) = ip.get_mut(address_at::<A>(side)..) else { return };
    let difference = A::read(place).difference(new.address);
    new.address.write(place);
    if !A::V6
        && let Some(check) = u16_at(ip, 10)
    {
        put_u16(ip, 10, updated(check, difference));
    }
    let Some(proto) = proto else { return };
    let Some(bytes) = ip.get_mut(upper..) else { return };
    let (port_at, check_at) = port_and_check(proto, side);
    let Some(port) = u16_at(bytes, port_at) else { return };
    put_u16(bytes, port_at, new.port);
    // A quote may end before it.
    let Some(before) = u16_at(bytes, check_at) else { return };
    let mut check = update_u16(before, port, new.port);
    // ICMP for IPv4 does not cover the addresses.
    if proto != Proto::Icmp || A::V6 {
        check = updated(check, difference);
    }
    put_u16(bytes, check_at, if proto == Proto::Udp { for_udp(before, check) } else { check });
}

/// Reads the packet that an ICMP error is about.
///
/// # Errors
/// The message or the quoted header does not add up; the quote ends too early.
pub(crate) fn quote<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    ip: &[u8],
    outer: &Header<A>,
) -> Result<Quote<A>, DropReason> {
    let malformed = DropReason::NatMalformed;
    let message = ip.get(outer.upper..outer.end).unwrap_or_default();
    let whole = match pseudo(outer.source, outer.destination) {
        None => checksum::is_valid(message),
        Some(pseudo) => pseudo.is_valid(Protocol::ICMPV6, message),
    };
    let quoted = message.get(EIGHT..).filter(|_| whole).ok_or(malformed)?;
    let header = header::<A>(quoted).ok_or(malformed)?;
    if !A::V6 && !ipv4::checksum_ok(quoted) {
        return Err(malformed);
    }
    // Of a fragment that is not the first nothing is known.
    if header.fragment.is_some_and(|fragment| fragment.offset > 0) {
        return Err(DropReason::NatErrorUnmatched);
    }
    let bytes = quoted.get(header.upper..).unwrap_or_default();
    let (proto, source, destination) = match header.protocol {
        Protocol::TCP | Protocol::UDP => {
            let (Some(source), Some(destination)) = (u16_at(bytes, 0), u16_at(bytes, 2)) else {
                return Err(malformed);
            };
            let proto = if header.protocol == Protocol::TCP { Proto::Tcp } else { Proto::Udp };
            (proto, source, destination)
        }
        Protocol::ICMP | Protocol::ICMPV6 if (header.protocol == Protocol::ICMPV6) != A::V6 => {
            return Err(DropReason::NatErrorUnmatched);
        }
        Protocol::ICMP | Protocol::ICMPV6 if (header.protocol == Protocol::ICMPV6) == A::V6 => {
            let upper = icmp_upper::<A, E, S, T>(bytes.get(..EIGHT).ok_or(malformed)?, false);
            let Ok(Upper::Piece(_, ident, _)) = upper else { return Err(DropReason::NatErrorUnmatched) };
            (Proto::Icmp, ident, 0)
        }
        _ => (Proto::Udp, 0, 0),
    };
    let has_ports =
        [Protocol::TCP, Protocol::UDP, Protocol::ICMP, Protocol::ICMPV6].contains(&header.protocol);
    Ok(Quote {
        is_plain: !has_ports,
        at: outer.upper + EIGHT,
        header,
        proto,
        source: Endpoint { address: header.source, port: source },
        destination: Endpoint { address: header.destination, port: destination },
    })
}

impl<A> Quote<A> {
    /// Gives one end of the quoted packet another endpoint. [`seal`] the message afterwards.
    pub(crate) fn rewrite<const E: usize, const S: usize, const T: usize>(
        &self,
        ip: &mut [u8],
        side: Side,
        new: Endpoint<A>,
    ) where
        A: Family<E, S, T>,
    {
        let quoted = ip.get_mut(self.at..).unwrap_or_default();
        let proto = (!self.is_plain).then_some(self.proto);
        rewrite::<A, E, S, T>(quoted, self.header.upper, proto, side, new);
    }
}

/// Writes the checksum of an ICMP error that was rewritten.
pub(crate) fn seal<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    ip: &mut [u8],
    upper: usize,
    end: usize,
) {
    let address = |at: usize| A::read(ip.get(at..).unwrap_or_default());
    let pseudo = pseudo(address(A::SOURCE), address(A::SOURCE + A::BYTES));
    let Some(message) = ip.get_mut(upper..end) else { return };
    match pseudo {
        None => icmpv4::fill_checksum(message),
        Some(pseudo) => icmpv6::fill_checksum(message, &pseudo),
    }
}

/// What ICMPv6 puts under its checksum; `None` for IPv4.
fn pseudo<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    source: A,
    destination: A,
) -> Option<Pseudo> {
    let address = |a: A| Ipv6Addr::from(a.bits());
    A::V6.then(|| Pseudo::V6 { src: address(source), dst: address(destination) })
}
