//! TCP (RFC 9293; window scale and timestamps RFC 7323; selective acknowledgement RFC 2018; ECN flags RFC 3168).

use crate::bytes::{need, part, part_mut, put_u16, put_u32, room, u8_at, u16_at, u32_at, view};
use crate::checksum::Pseudo;
use crate::{Error, OptionBytes, Protocol};
use std::fmt;

mod field {
    pub(super) const SRC_PORT: usize = 0;
    pub(super) const DST_PORT: usize = 2;
    pub(super) const SEQ: usize = 4;
    pub(super) const ACK: usize = 8;
    pub(super) const OFFSET_FLAGS: usize = 12;
    pub(super) const WINDOW: usize = 14;
    pub(super) const CHECKSUM: usize = 16;
    pub(super) const URGENT: usize = 18;
    pub(super) const OPTIONS: usize = 20;
}

/// Bytes in a header without options.
pub const HEADER_LEN: usize = 20;

/// The check behind [`Packet::new_checked`]: a data offset of at least 20 bytes that `data`, the IP payload, holds.
pub fn check(data: &[u8]) -> Result<(), Error> {
    need("tcp", "header", data, HEADER_LEN)?;
    let len = usize::from(u8_at(data, field::OFFSET_FLAGS) >> 4) * 4;
    let (field, offset) = ("header length", field::OFFSET_FLAGS);
    if len < HEADER_LEN {
        return Err(Error::Below { protocol: "tcp", field, offset, value: len, minimum: HEADER_LEN });
    }
    if len > data.len() {
        return Err(Error::Exceeds { protocol: "tcp", field, offset, value: len, present: data.len() });
    }
    Ok(())
}

/// The control bits, with their values in the header's 16-bit word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u16);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x002);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x004);
    /// Pass data on at once.
    pub const PSH: Flags = Flags(0x008);
    /// The acknowledgement number counts.
    pub const ACK: Flags = Flags(0x010);
    /// The urgent pointer counts.
    pub const URG: Flags = Flags(0x020);
    /// ECN echo.
    pub const ECE: Flags = Flags(0x040);
    /// Congestion window reduced.
    pub const CWR: Flags = Flags(0x080);
    /// Accurate ECN, formerly the nonce sum.
    pub const AE: Flags = Flags(0x100);

    /// The low nine bits of `bits`.
    pub fn from_bits(bits: u16) -> Self {
        Flags(bits & 0x1ff)
    }

    /// The nine bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether all of `flags` are set.
    #[inline]
    pub fn contains(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl fmt::Display for Flags {
    /// One letter per flag, as packet traces have them: `SA`, `FPA`; `-` for none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("-");
        }
        "FSRPAUECN"
            .chars()
            .enumerate()
            .filter(|(bit, _)| self.0 >> bit & 1 != 0)
            .try_for_each(|(_, letter)| fmt::Write::write_char(f, letter))
    }
}

view! {
    /// A segment: all of the IP payload.
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

    /// Sequence number.
    #[inline]
    pub fn seq(&self) -> u32 {
        u32_at(self.bytes(), field::SEQ)
    }

    /// Acknowledgement number.
    #[inline]
    pub fn ack(&self) -> u32 {
        u32_at(self.bytes(), field::ACK)
    }

    /// Bytes in the header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(u8_at(self.bytes(), field::OFFSET_FLAGS) >> 4) * 4
    }

    /// Control bits.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags::from_bits(u16_at(self.bytes(), field::OFFSET_FLAGS))
    }

    /// Receive window, not scaled.
    #[inline]
    pub fn window(&self) -> u16 {
        u16_at(self.bytes(), field::WINDOW)
    }

    /// Checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// Whether the segment adds up below the pseudo header.
    pub fn checksum_ok(&self, pseudo: &Pseudo) -> bool {
        pseudo.is_valid(Protocol::TCP, self.bytes())
    }

    /// Urgent pointer.
    #[inline]
    pub fn urgent(&self) -> u16 {
        u16_at(self.bytes(), field::URGENT)
    }

    /// Options as they stand.
    #[inline]
    pub fn option_bytes(&self) -> &[u8] {
        part(self.bytes(), field::OPTIONS, self.header_len())
    }

    /// Options one by one, checked on the way.
    #[inline]
    pub fn options(&self) -> Options<'_> {
        Options::new(self.option_bytes())
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        part(self.bytes(), self.header_len(), usize::MAX)
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

    /// Sets the sequence number.
    pub fn set_seq(&mut self, seq: u32) {
        put_u32(self.bytes_mut(), field::SEQ, seq);
    }

    /// Sets the acknowledgement number.
    pub fn set_ack(&mut self, ack: u32) {
        put_u32(self.bytes_mut(), field::ACK, ack);
    }

    /// Sets the bytes in the header, rounded down to a multiple of four, and the control bits.
    pub fn set_header_len_and_flags(&mut self, len: usize, flags: Flags) {
        put_u16(self.bytes_mut(), field::OFFSET_FLAGS, ((len / 4).min(15) as u16) << 12 | flags.bits());
    }

    /// Sets the receive window.
    pub fn set_window(&mut self, window: u16) {
        put_u16(self.bytes_mut(), field::WINDOW, window);
    }

    /// Sets the checksum field.
    pub fn set_checksum(&mut self, check: u16) {
        put_u16(self.bytes_mut(), field::CHECKSUM, check);
    }

    /// Computes the checksum of the whole segment below the pseudo header and writes it.
    pub fn fill_checksum(&mut self, pseudo: &Pseudo) {
        self.set_checksum(0);
        let check = pseudo.checksum(Protocol::TCP, self.bytes());
        self.set_checksum(check);
    }

    /// Sets the urgent pointer.
    pub fn set_urgent(&mut self, urgent: u16) {
        put_u16(self.bytes_mut(), field::URGENT, urgent);
    }

    /// What follows the header.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let from = self.header_len();
        part_mut(self.bytes_mut(), from, usize::MAX)
    }
}

/// Kinds of TCP options.
pub mod option {
    /// End of options.
    pub const END: u8 = 0;
    /// No operation.
    pub const NOP: u8 = 1;
    /// Maximum segment size.
    pub const MSS: u8 = 2;
    /// Window scale.
    pub const WINDOW_SCALE: u8 = 3;
    /// Selective acknowledgement permitted.
    pub const SACK_PERMITTED: u8 = 4;
    /// Selective acknowledgement.
    pub const SACK: u8 = 5;
    /// Timestamps.
    pub const TIMESTAMPS: u8 = 8;
}

/// One option. End of options ends the iteration and is not an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// One byte of padding.
    Nop,
    /// Maximum segment size that the sender takes.
    Mss(u16),
    /// Shift of the sender's windows.
    WindowScale(u8),
    /// Selective acknowledgement may be used.
    SackPermitted,
    /// Blocks received: first and one-past-last sequence number, four bytes each.
    Sack(&'a [u8]),
    /// Sender's clock, and the peer's echoed.
    Timestamps {
        /// Sender's clock.
        value: u32,
        /// Echo of the peer's.
        echo: u32,
    },
    /// Any other, its data uninterpreted.
    Other {
        /// Kind of the option.
        kind: u8,
        /// What follows the length byte.
        data: &'a [u8],
    },
}

/// Iterates over options; the first malformed one is an error and ends the iteration.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Options<'a> {
    /// Over the options of a header, without the 20 bytes before them.
    pub fn new(data: &'a [u8]) -> Self {
        Options { data, at: 0 }
    }

    fn read(&mut self, kind: u8) -> Result<TcpOption<'a>, Error> {
        if kind == option::NOP {
            self.at += 1;
            return Ok(TcpOption::Nop);
        }
        let at = self.at;
        // A length byte that is missing reads as zero, which is below two.
        let len = usize::from(u8_at(self.data, at + 1));
        let (field, offset) = ("option length", field::OPTIONS + at + 1);
        if len < 2 {
            return Err(Error::Below { protocol: "tcp", field, offset, value: len, minimum: 2 });
        }
        let present = self.data.len() - at;
        if len > present {
            return Err(Error::Exceeds { protocol: "tcp", field, offset, value: len, present });
        }
        self.at += len;
        let data = part(self.data, at + 2, at + len);
        let wrong =
            |wanted| Err(Error::Invalid { protocol: "tcp", field, offset, value: len as u64, wanted });
        match (kind, len) {
            (option::MSS, 4) => Ok(TcpOption::Mss(u16_at(data, 0))),
            (option::MSS, _) => wrong("4, as a maximum segment size has"),
            (option::WINDOW_SCALE, 3) => Ok(TcpOption::WindowScale(u8_at(data, 0))),
            (option::WINDOW_SCALE, _) => wrong("3, as a window scale has"),
            (option::SACK_PERMITTED, 2) => Ok(TcpOption::SackPermitted),
            (option::SACK_PERMITTED, _) => wrong("2, as a SACK permission has"),
            (option::SACK, 10 | 18 | 26 | 34) => Ok(TcpOption::Sack(data)),
            (option::SACK, _) => wrong("10, 18, 26 or 34, as SACK blocks have"),
            (option::TIMESTAMPS, 10) => {
                Ok(TcpOption::Timestamps { value: u32_at(data, 0), echo: u32_at(data, 4) })
            }
            (option::TIMESTAMPS, _) => wrong("10, as timestamps have"),
            _ => Ok(TcpOption::Other { kind, data }),
        }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<TcpOption<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let kind = *self.data.get(self.at)?;
        if kind == option::END {
            self.at = self.data.len();
            return None;
        }
        let item = self.read(kind);
        if item.is_err() {
            self.at = self.data.len();
        }
        Some(item)
    }
}

/// A header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
    /// Receive window, not scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options; well-formed when parsed.
    pub options: OptionBytes,
}

impl Repr {
    /// Reads a header and checks its options, not its checksum ([`Packet::checksum_ok`]).
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        check(packet.bytes())?;
        packet.options().try_for_each(|option| option.map(drop))?;
        Ok(Repr {
            src_port: packet.src_port(),
            dst_port: packet.dst_port(),
            seq: packet.seq(),
            ack: packet.ack(),
            flags: packet.flags(),
            window: packet.window(),
            urgent: packet.urgent(),
            options: OptionBytes::new(packet.option_bytes()).unwrap_or_default(),
        })
    }

    /// Bytes that [`emit`](Self::emit) writes: the header with its options.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes the header to the front of `segment`, whose payload is in place behind it, and the checksum of the
    /// whole of `segment`; returns the header's length.
    pub fn emit(&self, segment: &mut [u8], pseudo: &Pseudo) -> Result<usize, Error> {
        let len = self.buffer_len();
        room("tcp", segment, len)?;
        let mut packet = Packet::new_unchecked(segment);
        packet.set_src_port(self.src_port);
        packet.set_dst_port(self.dst_port);
        packet.set_seq(self.seq);
        packet.set_ack(self.ack);
        packet.set_header_len_and_flags(len, self.flags);
        packet.set_window(self.window);
        packet.set_urgent(self.urgent);
        part_mut(packet.bytes_mut(), field::OPTIONS, len).copy_from_slice(self.options.as_slice());
        packet.fill_checksum(pseudo);
        Ok(len)
    }
}
