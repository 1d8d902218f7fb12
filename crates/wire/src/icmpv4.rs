//! ICMP for IPv4 (RFC 792; next-hop MTU RFC 1191; codes RFC 1812, section 5.2.7).
//!
//! Every message starts with the same eight bytes. [`Repr`] is those eight; what follows (echo data, the packet that
//! an error is about) is payload.

use crate::bytes::{array, need, part, put, put_u8, put_u16, room, u8_at, u16_at, view};
use crate::{Error, checksum};
use std::net::Ipv4Addr;

mod field {
    pub(super) const TYPE: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(super) const CHECKSUM: usize = 2;
    pub(super) const REST: usize = 4;
}

/// Bytes before the payload.
pub const HEADER_LEN: usize = 8;

/// Types of messages.
pub mod kind {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const DEST_UNREACHABLE: u8 = 3;
    /// Source quench; obsolete (RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    /// Redirect.
    pub const REDIRECT: u8 = 5;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Router advertisement.
    pub const ROUTER_ADVERT: u8 = 9;
    /// Router solicitation.
    pub const ROUTER_SOLICIT: u8 = 10;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// Timestamp request.
    pub const TIMESTAMP: u8 = 13;
    /// Timestamp reply.
    pub const TIMESTAMP_REPLY: u8 = 14;
}

/// Codes of messages; the type is the first word of the name.
pub mod code {
    /// No route to the network.
    pub const UNREACHABLE_NET: u8 = 0;
    /// The last router cannot reach the host.
    pub const UNREACHABLE_HOST: u8 = 1;
    /// The host does not know the protocol.
    pub const UNREACHABLE_PROTOCOL: u8 = 2;
    /// Nobody listens on the port.
    pub const UNREACHABLE_PORT: u8 = 3;
    /// Too long for the next link, and must not be fragmented.
    pub const UNREACHABLE_FRAGMENTATION_NEEDED: u8 = 4;
    /// A source route could not be followed.
    pub const UNREACHABLE_SOURCE_ROUTE_FAILED: u8 = 5;
    /// Forbidden by an administrator.
    pub const UNREACHABLE_ADMIN_PROHIBITED: u8 = 13;
    /// The time to live ran out on the way.
    pub const EXCEEDED_TTL: u8 = 0;
    /// Fragments were missing for too long.
    pub const EXCEEDED_REASSEMBLY: u8 = 1;
    /// For the host.
    pub const REDIRECT_HOST: u8 = 1;
    /// The pointer tells which byte is wrong.
    pub const PROBLEM_POINTER: u8 = 0;
    /// A required option is missing.
    pub const PROBLEM_MISSING_OPTION: u8 = 1;
    /// A length is wrong.
    pub const PROBLEM_LENGTH: u8 = 2;
}

/// Whether messages of this type report an error; an error must never cause another (RFC 1122, section 3.2.2).
pub fn is_error(kind: u8) -> bool {
    matches!(
        kind,
        kind::DEST_UNREACHABLE
            | kind::SOURCE_QUENCH
            | kind::REDIRECT
            | kind::TIME_EXCEEDED
            | kind::PARAMETER_PROBLEM
    )
}

/// The check behind [`Packet::new_checked`].
pub fn check(data: &[u8]) -> Result<(), Error> {
    need("icmp", "header", data, HEADER_LEN)
}

/// Computes the checksum of `message`, the whole of it, and writes it.
pub fn fill_checksum(message: &mut [u8]) {
    put_u16(message, field::CHECKSUM, 0);
    let check = checksum::checksum(message);
    put_u16(message, field::CHECKSUM, check);
}

view! {
    /// A message: all of the IP payload.
    Packet, check
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Type, see [`kind`].
    #[inline]
    pub fn kind(&self) -> u8 {
        u8_at(self.bytes(), field::TYPE)
    }

    /// Code, see [`code`].
    #[inline]
    pub fn code(&self) -> u8 {
        u8_at(self.bytes(), field::CODE)
    }

    /// Checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// Whether the message adds up.
    pub fn checksum_ok(&self) -> bool {
        checksum::is_valid(self.bytes())
    }

    /// The four bytes whose meaning depends on the type.
    #[inline]
    pub fn rest(&self) -> [u8; 4] {
        array(self.bytes(), field::REST)
    }

    /// Whether this reports an error about the packet in the payload.
    #[inline]
    pub fn is_error(&self) -> bool {
        is_error(self.kind())
    }

    /// What follows the first eight bytes.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        part(self.bytes(), HEADER_LEN, usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the type.
    pub fn set_kind(&mut self, kind: u8) {
        put_u8(self.bytes_mut(), field::TYPE, kind);
    }

    /// Sets the code.
    pub fn set_code(&mut self, code: u8) {
        put_u8(self.bytes_mut(), field::CODE, code);
    }

    /// Sets the four bytes whose meaning depends on the type.
    pub fn set_rest(&mut self, rest: [u8; 4]) {
        put(self.bytes_mut(), field::REST, rest);
    }

    /// Computes the checksum and writes it.
    pub fn fill_checksum(&mut self) {
        fill_checksum(self.bytes_mut());
    }
}

/// The first eight bytes of a message as values, without the checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repr {
    /// Echo request.
    EchoRequest {
        /// Identifier, a process of the sender.
        ident: u16,
        /// Sequence number.
        seq: u16,
    },
    /// Echo reply.
    EchoReply {
        /// Identifier, copied.
        ident: u16,
        /// Sequence number, copied.
        seq: u16,
    },
    /// Destination unreachable, for any reason but a link's MTU.
    DestUnreachable {
        /// Why, not 4.
        code: u8,
    },
    /// Destination unreachable, code 4.
    FragmentationNeeded {
        /// MTU of the link that the packet is too long for; 0 from routers older than RFC 1191.
        next_hop_mtu: u16,
    },
    /// Redirect.
    Redirect {
        /// For network (0), host (1), with type of service (2, 3).
        code: u8,
        /// The better router.
        gateway: Ipv4Addr,
    },
    /// Time exceeded.
    TimeExceeded {
        /// In transit (0) or in reassembly (1).
        code: u8,
    },
    /// Parameter problem.
    ParameterProblem {
        /// What kind.
        code: u8,
        /// The byte of the packet at fault, for code 0.
        pointer: u8,
    },
    /// Any other message, or one of the above with bytes set that should be zero.
    Other {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// The next four bytes after the checksum.
        rest: [u8; 4],
    },
}

impl Repr {
    /// Reads a message's first eight bytes, not its checksum ([`Packet::checksum_ok`]).
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        check(packet.bytes())?;
        let (kind, code, rest) = (packet.kind(), packet.code(), packet.rest());
        let [a, b, c, d] = rest;
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Ok(match (kind, code, rest) {
            (kind::ECHO_REQUEST, 0, _) => Repr::EchoRequest { ident: high, seq: low },
            (kind::ECHO_REPLY, 0, _) => Repr::EchoReply { ident: high, seq: low },
            (kind::DEST_UNREACHABLE, code::UNREACHABLE_FRAGMENTATION_NEEDED, [0, 0, _, _]) => {
                Repr::FragmentationNeeded { next_hop_mtu: low }
            }
            (kind::DEST_UNREACHABLE, code, [0, 0, 0, 0]) => Repr::DestUnreachable { code },
            (kind::REDIRECT, code, gateway) => Repr::Redirect { code, gateway: gateway.into() },
            (kind::TIME_EXCEEDED, code, [0, 0, 0, 0]) => Repr::TimeExceeded { code },
            (kind::PARAMETER_PROBLEM, code, [pointer, 0, 0, 0]) => Repr::ParameterProblem { code, pointer },
            (kind, code, rest) => Repr::Other { kind, code, rest },
        })
    }

    /// Type, code and the four bytes after the checksum.
    fn fields(&self) -> (u8, u8, [u8; 4]) {
        let pair = |high: u16, low: u16| {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            [a, b, c, d]
        };
        match *self {
            Repr::EchoRequest { ident, seq } => (kind::ECHO_REQUEST, 0, pair(ident, seq)),
            Repr::EchoReply { ident, seq } => (kind::ECHO_REPLY, 0, pair(ident, seq)),
            Repr::DestUnreachable { code } => (kind::DEST_UNREACHABLE, code, [0; 4]),
            Repr::FragmentationNeeded { next_hop_mtu } => {
                (kind::DEST_UNREACHABLE, code::UNREACHABLE_FRAGMENTATION_NEEDED, pair(0, next_hop_mtu))
            }
            Repr::Redirect { code, gateway } => (kind::REDIRECT, code, gateway.octets()),
            Repr::TimeExceeded { code } => (kind::TIME_EXCEEDED, code, [0; 4]),
            Repr::ParameterProblem { code, pointer } => (kind::PARAMETER_PROBLEM, code, [pointer, 0, 0, 0]),
            Repr::Other { kind, code, rest } => (kind, code, rest),
        }
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the first eight bytes to the front of `message`, whose payload is in place behind them, and the
    /// checksum of the whole of `message`; returns 8.
    pub fn emit(&self, message: &mut [u8]) -> Result<usize, Error> {
        room("icmp", message, HEADER_LEN)?;
        let (kind, code, rest) = self.fields();
        let mut packet = Packet::new_unchecked(message);
        packet.set_kind(kind);
        packet.set_code(code);
        packet.set_rest(rest);
        packet.fill_checksum();
        Ok(HEADER_LEN)
    }
}
