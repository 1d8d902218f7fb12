//! ICMP for IPv6 (RFC 4443). Neighbor discovery has a file of its own: [`crate::ndisc`].
//!
//! Every message starts with the same eight bytes. [`Repr`] is those eight; what follows (echo data, the packet that
//! an error is about, a neighbor discovery body) is payload.

use crate::bytes::{array, need, part, put, put_u8, put_u16, room, u8_at, u16_at, view};
use crate::checksum::Pseudo;
use crate::{Error, Protocol};

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
    /// Destination unreachable.
    pub const DEST_UNREACHABLE: u8 = 1;
    /// Packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Router solicitation (RFC 4861).
    pub const ROUTER_SOLICIT: u8 = 133;
    /// Router advertisement.
    pub const ROUTER_ADVERT: u8 = 134;
    /// Neighbor solicitation.
    pub const NEIGHBOR_SOLICIT: u8 = 135;
    /// Neighbor advertisement.
    pub const NEIGHBOR_ADVERT: u8 = 136;
    /// Redirect.
    pub const REDIRECT: u8 = 137;
}

/// Codes of messages; the type is the first word of the name.
pub mod code {
    /// No route to the destination.
    pub const UNREACHABLE_NO_ROUTE: u8 = 0;
    /// Forbidden by an administrator.
    pub const UNREACHABLE_ADMIN_PROHIBITED: u8 = 1;
    /// The destination is beyond the scope of the source address.
    pub const UNREACHABLE_BEYOND_SCOPE: u8 = 2;
    /// The last router cannot reach the address.
    pub const UNREACHABLE_ADDRESS: u8 = 3;
    /// Nobody listens on the port.
    pub const UNREACHABLE_PORT: u8 = 4;
    /// The hop limit ran out on the way.
    pub const EXCEEDED_HOP_LIMIT: u8 = 0;
    /// Fragments were missing for too long.
    pub const EXCEEDED_REASSEMBLY: u8 = 1;
    /// A header field is wrong.
    pub const PROBLEM_FIELD: u8 = 0;
    /// A next header is unknown.
    pub const PROBLEM_NEXT_HEADER: u8 = 1;
    /// An option is unknown.
    pub const PROBLEM_OPTION: u8 = 2;
}

/// Whether messages of this type report an error (types below 128); an error must never cause another.
pub fn is_error(kind: u8) -> bool {
    kind < 128
}

/// The check behind [`Packet::new_checked`].
pub fn check(data: &[u8]) -> Result<(), Error> {
    need("icmpv6", "header", data, HEADER_LEN)
}

/// Computes the checksum of `message`, the whole of it, below the pseudo header and writes it.
pub fn fill_checksum(message: &mut [u8], pseudo: &Pseudo) {
    put_u16(message, field::CHECKSUM, 0);
    let check = pseudo.checksum(Protocol::ICMPV6, message);
    put_u16(message, field::CHECKSUM, check);
}

view! {
    /// A message: all that follows the last extension header.
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

    /// Whether the message adds up below the pseudo header.
    pub fn checksum_ok(&self, pseudo: &Pseudo) -> bool {
        pseudo.is_valid(Protocol::ICMPV6, self.bytes())
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

    /// Computes the checksum below the pseudo header and writes it.
    pub fn fill_checksum(&mut self, pseudo: &Pseudo) {
        fill_checksum(self.bytes_mut(), pseudo);
    }
}

/// The first eight bytes of a message as values, without the checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repr {
    /// Destination unreachable.
    DestUnreachable {
        /// Why.
        code: u8,
    },
    /// Packet too big.
    PacketTooBig {
        /// MTU of the link that the packet is too long for.
        mtu: u32,
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
        /// The byte of the packet at fault.
        pointer: u32,
    },
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
        let (ident, seq) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let word = u32::from_be_bytes(rest);
        Ok(match (kind, code, word) {
            (kind::DEST_UNREACHABLE, code, 0) => Repr::DestUnreachable { code },
            (kind::PACKET_TOO_BIG, 0, mtu) => Repr::PacketTooBig { mtu },
            (kind::TIME_EXCEEDED, code, 0) => Repr::TimeExceeded { code },
            (kind::PARAMETER_PROBLEM, code, pointer) => Repr::ParameterProblem { code, pointer },
            (kind::ECHO_REQUEST, 0, _) => Repr::EchoRequest { ident, seq },
            (kind::ECHO_REPLY, 0, _) => Repr::EchoReply { ident, seq },
            (kind, code, _) => Repr::Other { kind, code, rest },
        })
    }

    /// Type, code and the four bytes after the checksum.
    fn fields(&self) -> (u8, u8, [u8; 4]) {
        let pair = |high: u16, low: u16| (u32::from(high) << 16 | u32::from(low)).to_be_bytes();
        match *self {
            Repr::DestUnreachable { code } => (kind::DEST_UNREACHABLE, code, [0; 4]),
            Repr::PacketTooBig { mtu } => (kind::PACKET_TOO_BIG, 0, mtu.to_be_bytes()),
            Repr::TimeExceeded { code } => (kind::TIME_EXCEEDED, code, [0; 4]),
            Repr::ParameterProblem { code, pointer } => {
                (kind::PARAMETER_PROBLEM, code, pointer.to_be_bytes())
            }
            Repr::EchoRequest { ident, seq } => (kind::ECHO_REQUEST, 0, pair(ident, seq)),
            Repr::EchoReply { ident, seq } => (kind::ECHO_REPLY, 0, pair(ident, seq)),
            Repr::Other { kind, code, rest } => (kind, code, rest),
        }
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the first eight bytes to the front of `message`, whose payload is in place behind them, and the
    /// checksum of the whole of `message` below the pseudo header; returns 8.
    pub fn emit(&self, message: &mut [u8], pseudo: &Pseudo) -> Result<usize, Error> {
        room("icmpv6", message, HEADER_LEN)?;
        let (kind, code, rest) = self.fields();
        let mut packet = Packet::new_unchecked(message);
        packet.set_kind(kind);
        packet.set_code(code);
        packet.set_rest(rest);
        packet.fill_checksum(pseudo);
        Ok(HEADER_LEN)
    }
}
