//! UDP (RFC 768; checksum over IPv6 RFC 8200, section 8.1).

use crate::bytes::{need, part, part_mut, put_u16, room, u16_at, view};
use crate::checksum::{self, Pseudo};
use crate::{Error, Protocol};

mod field {
    pub(super) const SRC_PORT: usize = 0;
    pub(super) const DST_PORT: usize = 2;
    pub(super) const LEN: usize = 4;
    pub(super) const CHECKSUM: usize = 6;
}

/// Bytes in the header.
pub const HEADER_LEN: usize = 8;

/// The check behind [`Packet::new_checked`]: a length of at least 8 that `data`, the IP payload, holds.
pub fn check(data: &[u8]) -> Result<(), Error> {
    need("udp", "header", data, HEADER_LEN)?;
    let len = usize::from(u16_at(data, field::LEN));
    let (field, offset) = ("length", field::LEN);
    if len < HEADER_LEN {
        return Err(Error::Below { protocol: "udp", field, offset, value: len, minimum: HEADER_LEN });
    }
    if len > data.len() {
        return Err(Error::Exceeds { protocol: "udp", field, offset, value: len, present: data.len() });
    }
    Ok(())
}

view! {
    /// A datagram. Bytes after its length are in the buffer and in nothing else.
    Packet, check
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        u16_at(self.bytes(), field::SRC_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        u16_at(self.bytes(), field::DST_PORT)
    }

    /// Bytes in header and payload.
    #[inline]
    pub fn len(&self) -> u16 {
        u16_at(self.bytes(), field::LEN)
    }

    /// Whether the payload is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.payload().is_empty()
    }

    /// Checksum as it stands; 0 means that the sender computed none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// Whether the datagram adds up below the pseudo header. "None" is right over IPv4 and wrong over IPv6.
    pub fn checksum_ok(&self, pseudo: &Pseudo) -> bool {
        if self.checksum() == 0 {
            return matches!(pseudo, Pseudo::V4 { .. });
        }
        pseudo.is_valid(Protocol::UDP, part(self.bytes(), 0, self.len().into()))
    }

    /// The payload, bounded by the length.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        part(self.bytes(), HEADER_LEN, self.len().into())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the source port.
    pub fn set_src_port(&mut self, port: u16) {
        put_u16(self.bytes_mut(), field::SRC_PORT, port);
    }

    /// Sets the destination port.
    pub fn set_dst_port(&mut self, port: u16) {
        put_u16(self.bytes_mut(), field::DST_PORT, port);
    }

    /// Sets the bytes in header and payload.
    pub fn set_len(&mut self, len: u16) {
        put_u16(self.bytes_mut(), field::LEN, len);
    }

    /// Sets the checksum field.
    pub fn set_checksum(&mut self, check: u16) {
        put_u16(self.bytes_mut(), field::CHECKSUM, check);
    }

    /// Computes the checksum over header and payload below the pseudo header and writes it.
    pub fn fill_checksum(&mut self, pseudo: &Pseudo) {
        self.set_checksum(0);
        let check = pseudo.checksum(Protocol::UDP, part(self.bytes(), 0, self.len().into()));
        self.set_checksum(checksum::for_udp(u16::MAX, check));
    }

    /// The payload, bounded by the length.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let to = self.len().into();
        part_mut(self.bytes_mut(), HEADER_LEN, to)
    }
}

/// A header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes in the payload.
    pub payload_len: usize,
}

impl Repr {
    /// Reads a header, not its checksum ([`Packet::checksum_ok`]).
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        check(packet.bytes())?;
        let payload_len = packet.payload().len();
        Ok(Repr { src_port: packet.src_port(), dst_port: packet.dst_port(), payload_len })
    }

    /// Bytes that [`emit`](Self::emit) writes: the header.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the front of `datagram`, whose payload is in place behind it, and the checksum of both;
    /// returns 8.
    ///
    /// Fails when header and payload do not fit, or would be longer than 65,535 bytes.
    pub fn emit(&self, datagram: &mut [u8], pseudo: &Pseudo) -> Result<usize, Error> {
        let len = HEADER_LEN.saturating_add(self.payload_len);
        room("udp", datagram, len)?;
        let Ok(field_len) = u16::try_from(len) else {
            return Err(Error::Invalid {
                protocol: "udp",
                field: "payload length",
                offset: field::LEN,
                value: self.payload_len as u64,
                wanted: "below 65528",
            });
        };
        let mut packet = Packet::new_unchecked(part_mut(datagram, 0, len));
        packet.set_src_port(self.src_port);
        packet.set_dst_port(self.dst_port);
        packet.set_len(field_len);
        packet.fill_checksum(pseudo);
        Ok(HEADER_LEN)
    }
}
