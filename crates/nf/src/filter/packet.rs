//! Packets as a filter reads them: whole or not at all. What cannot be read is dropped by name, so that nothing passes that somebody behind
//! us might read differently.

use crate::filter::net::{Ends, Net};
use crate::filter::tcp::Segment;
use crate::header::{Fragment, Header, InHeader, Unread};
use tidemill_burst::DropReason;
use tidemill_flow::key::Key;
use tidemill_wire::tcp::{Options, TcpOption};
use tidemill_wire::{Protocol, checksum, icmpv4, icmpv6};

const TCP_HEADER: usize = 20;
/// Of UDP and ICMP, and what an ICMP error quotes at least behind the IP header.
const EIGHT: usize = 8;

/// A fragment's place in its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) ident: u32,
    pub(crate) bytes: (u32, u32),
    pub(crate) more: bool,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Tcp(Segment),
    Udp,
    /// An ICMP echo, and whether it asks.
    Echo(bool),
    /// An ICMP error about a packet on its way; what it quotes begins there.
    Error(usize),
    /// Another message of ICMP: never of a connection.
    Message,
    /// A protocol without ports that we know.
    Other,
    /// A fragment that is not the first.
    Later,
}

impl Load {
    #[inline]
    fn is_of_connection(&self) -> bool {
        matches!(self, Load::Tcp(_) | Load::Udp | Load::Echo(_) | Load::Other)
    }
}

/// A packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read<A, const W: usize> {
    pub(crate) source: A,
    pub(crate) destination: A,
    pub(crate) protocol: u8,
    /// Of ICMP type and code.
    pub(crate) ports: (u16, u16),
    pub(crate) load: Load,
    /// The connection that it would be of; of what can be of none zeros.
    pub(crate) key: Key<W>,
    /// Whether its source is the connection's lower end.
    pub(crate) from_low: bool,
    pub(crate) fragment: Option<Piece>,
    /// As its header says.
    pub(crate) bytes: u32,
    /// By which it came.
    pub(crate) vrf: u16,
}

impl<A, const W: usize> Read<A, W> {
    /// Whether it can be of a connection.
    #[inline]
    pub(crate) fn is_of_connection(&self) -> bool {
        self.load.is_of_connection()
    }

    pub(crate) fn tcp_flags(&self) -> u8 {
        match self.load {
            Load::Tcp(segment) => segment.flags,
            _ => 0,
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    crate::header::u16_at(bytes, at).unwrap_or(0)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_be_bytes(*four))
}

/// `whole`: the packet must be there as long as it says; what an ICMP error quotes need not.
#[inline]
fn header<A: InHeader>(ip: &[u8], whole: bool) -> Result<Header<A>, DropReason> {
    let header = crate::header::header::<A>(ip).map_err(|unread| match unread {
        Unread::Malformed => DropReason::FilterMalformed,
        Unread::Extensions => DropReason::FilterHeaders,
    })?;
    // Where segments are left the destination is not who gets it.
    if header.routing.and_then(|at| ip.get(at + 3)).is_some_and(|left| *left != 0) {
        return Err(DropReason::FilterHeaders);
    }
    if whole && header.end > ip.len() || header.end < header.upper {
        return Err(DropReason::FilterMalformed);
    }
    Ok(header)
}

impl Piece {
    fn of<A>(header: &Header<A>) -> Option<Piece> {
        let Fragment { ident, offset, more, at } = header.fragment?;
        let end = offset + header.end.saturating_sub(at) as u32;
        Some(Piece { ident, bytes: (offset, end), more })
    }
}

/// Of a packet that [cannot be read](read), if it is a first fragment: both addresses, protocol, and its place. What belongs to it is refused then.
#[cold]
pub(crate) fn first_piece<A: InHeader>(ip: &[u8]) -> Option<(A, A, u8, Piece)> {
    let header = crate::header::header::<A>(ip).ok()?;
    let piece = Piece::of(&header).filter(|piece| piece.bytes.0 == 0)?;
    Some((header.source, header.destination, header.protocol.0, piece))
}

/// Reads a packet from its IP header on, which came in by this VRF.
///
/// # Errors
/// Why nobody can say what it is.
#[inline(always)] // what is read is written where it stays, once
pub(crate) fn read<A: Net<W>, const W: usize>(ip: &[u8], vrf: u16) -> Result<Read<A, W>, DropReason> {
    let header = header::<A>(ip, true)?;
    let (mut ports, mut carried) = ((0, 0), Load::Later);
    let (mut key, mut from_low) = (Key([0; W]), true);
    if header.fragment.is_none_or(|fragment| fragment.offset == 0) {
        let body = ip.get(header.upper..header.end).unwrap_or_default();
        carried = load::<A, W>(&header, body, &mut ports)?;
        let (ends, echo) = match carried {
            Load::Tcp(_) | Load::Udp => (ports, None),
            Load::Echo(asks) => ((u16_at(body, 4), 0), Some(asks)),
            _ => ((0, 0), None),
        };
        if carried.is_of_connection() {
            (key, from_low) = connection(&header, vrf, ends, echo)?;
        }
    }
    Ok(Read {
        source: header.source,
        destination: header.destination,
        protocol: header.protocol.0,
        ports,
        load: carried,
        key,
        from_low,
        fragment: Piece::of(&header),
        bytes: header.end.min(ip.len()) as u32,
        vrf,
    })
}

/// The key of a connection, and whether the source is its lower end. `echo`: whether it asks.
fn connection<A: Net<W>, const W: usize>(
    header: &Header<A>,
    vrf: u16,
    ports: (u16, u16),
    echo: Option<bool>,
) -> Result<(Key<W>, bool), DropReason> {
    let Header { source, destination, protocol: Protocol(protocol), .. } = *header;
    let (from, to) = match echo {
        None => ((source, ports.0), (destination, ports.1)),
        // Both ends have the identifier; who asks is the other half of it.
        Some(_) => ((source, 0), (destination, 0)),
    };
    // From somebody to itself: only forged.
    if from == to {
        return Err(DropReason::FilterMalformed);
    }
    let from_low = from < to;
    let (mut low, mut high) = if from_low { (from, to) } else { (to, from) };
    if let Some(asks) = echo {
        low.1 = ports.0;
        high.1 = u16::from(asks != from_low);
    }
    Ok((A::key(&Ends { low, high, protocol, vrf }), from_low))
}

fn load<A: Net<W>, const W: usize>(
    header: &Header<A>,
    body: &[u8],
    ports: &mut (u16, u16),
) -> Result<Load, DropReason> {
    let malformed = DropReason::FilterMalformed;
    let icmp = if A::V6 { Protocol::ICMPV6 } else { Protocol::ICMP };
    match header.protocol {
        Protocol::TCP => {
            if body.len() < TCP_HEADER {
                return Err(malformed);
            }
            let length = usize::from(body[12] >> 4) * 4;
            if length < TCP_HEADER || length > body.len() {
                return Err(malformed);
            }
            *ports = (u16_at(body, 0), u16_at(body, 2));
            if ports.0 == 0 || ports.1 == 0 {
                return Err(malformed);
            }
            let flags = body[13];
            let scale = if flags & crate::filter::tcp::flag::SYN != 0 {
                scale(&body[TCP_HEADER..length])
            } else {
                None
            };
            Ok(Load::Tcp(Segment {
                seq: u32_at(body, 4),
                ack: u32_at(body, 8),
                window: u16_at(body, 14),
                flags,
                len: (body.len() - length) as u32,
                scale,
            }))
        }
        Protocol::UDP => {
            if body.len() < EIGHT {
                return Err(malformed);
            }
            *ports = (u16_at(body, 0), u16_at(body, 2));
            let length = usize::from(u16_at(body, 4));
            // Of a first fragment the rest is elsewhere.
            if ports.1 == 0 || length < EIGHT || (header.fragment.is_none() && length > body.len()) {
                return Err(malformed);
            }
            Ok(Load::Udp)
        }
        protocol if protocol == icmp => {
            let least = if A::V6 { 4 } else { EIGHT };
            if body.len() < least {
                return Err(malformed);
            }
            *ports = (body[0].into(), body[1].into());
            icmp_load::<A, W>(header, body)
        }
        _ => Ok(Load::Other),
    }
}

/// Whether messages of this type are about a packet on its way, wherever they come from. Redirects are for who is on the same link (RFC 1812, section 5.2.7.2; RFC 4861, section 8.1), and
/// nobody acts by source quench (RFC 6633): these and unknown ones are for the rules, even if they quote what we know.
fn is_about<A: InHeader>(kind: u8) -> bool {
    use icmpv4::kind as k4;
    use icmpv6::kind as k6;
    match A::V6 {
        false => matches!(kind, k4::DEST_UNREACHABLE | k4::TIME_EXCEEDED | k4::PARAMETER_PROBLEM),
        true => matches!(
            kind,
            k6::DEST_UNREACHABLE | k6::PACKET_TOO_BIG | k6::TIME_EXCEEDED | k6::PARAMETER_PROBLEM
        ),
    }
}

fn icmp_load<A: Net<W>, const W: usize>(header: &Header<A>, body: &[u8]) -> Result<Load, DropReason> {
    let (request, reply) = match A::V6 {
        false => (icmpv4::kind::ECHO_REQUEST, icmpv4::kind::ECHO_REPLY),
        true => (icmpv6::kind::ECHO_REQUEST, icmpv6::kind::ECHO_REPLY),
    };
    if (body[0] == request || body[0] == reply) && body.len() < EIGHT {
        return Err(DropReason::FilterMalformed);
    }
    Ok(match body[0] {
        kind if kind == request => Load::Echo(true),
        kind if kind == reply => Load::Echo(false),
        kind if is_about::<A>(kind) && header.fragment.is_none() && body.len() > EIGHT => {
            Load::Error(header.upper + EIGHT)
        }
        _ => Load::Message,
    })
}

/// The scale of a SYN's options.
fn scale(options: &[u8]) -> Option<u8> {
    Options::new(options).find_map(|option| match option {
        Ok(TcpOption::WindowScale(scale)) => Some(scale),
        _ => None,
    })
}

/// What an ICMP error is about: the connection, whether its lower end has sent what is quoted, and of TCP the sequence number. `None`: it cannot be
/// said, or the error does not go to who has sent that, or its checksum is wrong.
pub(crate) fn quoted<A: Net<W>, const W: usize>(
    ip: &[u8],
    outer: &Read<A, W>,
    at: usize,
) -> Option<(Key<W>, bool, Option<u32>)> {
    let message = ip.get(at.checked_sub(EIGHT)?..outer.bytes as usize)?;
    let is_right = match A::V6 {
        false => checksum::is_valid(message),
        true => {
            let (src, dst) = (outer.source.to_u128().into(), outer.destination.to_u128().into());
            checksum::Pseudo::V6 { src, dst }.is_valid(Protocol::ICMPV6, message)
        }
    };
    let quoted = message.get(EIGHT..).filter(|_| is_right)?;
    let header = header::<A>(quoted, false).ok()?;
    if header.source != outer.destination || header.fragment.is_some_and(|fragment| fragment.offset > 0) {
        return None;
    }
    let body = quoted.get(header.upper..).unwrap_or_default();
    let icmp = if A::V6 { Protocol::ICMPV6 } else { Protocol::ICMP };
    let (ports, echo, seq) = match header.protocol {
        Protocol::TCP if body.len() >= EIGHT => {
            ((u16_at(body, 0), u16_at(body, 2)), None, Some(u32_at(body, 4)))
        }
        Protocol::UDP if body.len() >= 4 => ((u16_at(body, 0), u16_at(body, 2)), None, None),
        Protocol::TCP | Protocol::UDP => return None,
        protocol if protocol == icmp => {
            let kind = *body.first()?;
            let (request, reply) = match A::V6 {
                false => (icmpv4::kind::ECHO_REQUEST, icmpv4::kind::ECHO_REPLY),
                true => (icmpv6::kind::ECHO_REQUEST, icmpv6::kind::ECHO_REPLY),
            };
            if body.len() < EIGHT || (kind != request && kind != reply) {
                return None;
            }
            ((u16_at(body, 4), 0), Some(kind == request), None)
        }
        _ => ((0, 0), None, None),
    };
    let (key, from_low) = connection::<A, W>(&header, outer.vrf, ports, echo).ok()?;
    Some((key, from_low, seq))
}

/// The pair of addresses that a packet belongs to, the lower first: its own, or of an ICMP error that of what it quotes.
pub(crate) fn pair<A: Net<W>, const W: usize>(ip: &[u8], read: &Read<A, W>) -> (A, A) {
    let (from, to) = match read.load {
        Load::Error(at) => {
            let address = |offset: usize| A::read(ip.get(at + offset..).unwrap_or_default());
            (address(A::SOURCE), address(A::SOURCE + A::BYTES))
        }
        _ => (read.source, read.destination),
    };
    if from < to { (from, to) } else { (to, from) }
}
