//! IPv4 (RFC 791; fields as RFC 2474, RFC 3168 and RFC 6864 left them).
//!
//! The free functions are for the data path: they take a slice that starts at the header, check nothing and never
//! panic. Given a `[u8; 20]` (from `first_chunk`) no bounds check is left in them. Call [`check`] first, once.

use crate::bytes::{array, need, part, part_mut, put, put_u8, put_u16, room, u8_at, u16_at, u32_at, view};
use crate::{Error, OptionBytes, Protocol, checksum};
use std::net::Ipv4Addr;

mod field {
    pub(super) const VERSION_IHL: usize = 0;
    pub(super) const DSCP_ECN: usize = 1;
    pub(super) const TOTAL_LEN: usize = 2;
    pub(super) const IDENT: usize = 4;
    pub(super) const FLAGS_FRAGMENT: usize = 6;
    pub(super) const TTL: usize = 8;
    pub(super) const PROTOCOL: usize = 9;
    pub(super) const CHECKSUM: usize = 10;
    pub(super) const SRC: usize = 12;
    pub(super) const DST: usize = 16;
    pub(super) const OPTIONS: usize = 20;
}

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Bytes in a header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes in the longest header.
pub const MAX_HEADER_LEN: usize = 60;

/// Version 4, a header length of at least 20 that fits, and a total length that is no shorter than the header and
/// no longer than `data`. Not the checksum. (RFC 1812, section 5.2.2, steps 1, 3, 4 and 5.)
#[inline]
pub fn check(data: &[u8]) -> Result<(), Error> {
    check_header(data)?;
    let total = usize::from(total_len(data));
    if total > data.len() {
        return Err(Error::Exceeds {
            protocol: "ipv4",
            field: "total length",
            offset: field::TOTAL_LEN,
            value: total,
            present: data.len(),
        });
    }
    Ok(())
}

/// [`check`] for a packet that may have been cut short after its header, by an ICMP error or a capture's snap
/// length: the total length may exceed `data`.
#[inline]
pub fn check_header(data: &[u8]) -> Result<(), Error> {
    need("ipv4", "header", data, HEADER_LEN)?;
    if version(data) != 4 {
        return Err(Error::Invalid {
            protocol: "ipv4",
            field: "version",
            offset: field::VERSION_IHL,
            value: version(data).into(),
            wanted: "4",
        });
    }
    let header = header_len(data);
    if header < HEADER_LEN {
        return Err(Error::Below {
            protocol: "ipv4",
            field: "header length",
            offset: field::VERSION_IHL,
            value: header,
            minimum: HEADER_LEN,
        });
    }
    if header > data.len() {
        return Err(Error::Exceeds {
            protocol: "ipv4",
            field: "header length",
            offset: field::VERSION_IHL,
            value: header,
            present: data.len(),
        });
    }
    let total = usize::from(total_len(data));
    if total < header {
        return Err(Error::Below {
            protocol: "ipv4",
            field: "total length",
            offset: field::TOTAL_LEN,
            value: total,
            minimum: header,
        });
    }
    Ok(())
}

/// IP version; the same nibble in IPv4 and IPv6.
#[inline(always)]
pub fn version(header: &[u8]) -> u8 {
    u8_at(header, field::VERSION_IHL) >> 4
}

/// Bytes in the header, options included: 0..=60, at least 20 in a checked one.
#[inline(always)]
pub fn header_len(header: &[u8]) -> usize {
    usize::from(u8_at(header, field::VERSION_IHL) & 15) * 4
}

/// Bytes in header and payload.
#[inline(always)]
pub fn total_len(header: &[u8]) -> u16 {
    u16_at(header, field::TOTAL_LEN)
}

/// Time to live.
#[inline(always)]
pub fn ttl(header: &[u8]) -> u8 {
    u8_at(header, field::TTL)
}

/// What the payload is.
#[inline(always)]
pub fn protocol(header: &[u8]) -> Protocol {
    Protocol(u8_at(header, field::PROTOCOL))
}

/// Source address as a number, most significant byte first on the wire.
#[inline(always)]
pub fn src_u32(header: &[u8]) -> u32 {
    u32_at(header, field::SRC)
}

/// Destination address as a number.
#[inline(always)]
pub fn dst_u32(header: &[u8]) -> u32 {
    u32_at(header, field::DST)
}

/// Whether routers must not fragment the packet.
#[inline(always)]
pub fn dont_fragment(header: &[u8]) -> bool {
    u16_at(header, field::FLAGS_FRAGMENT) & DONT_FRAGMENT != 0
}

/// Whether the packet is a fragment: the first, the last or one between.
#[inline(always)]
pub fn is_fragment(header: &[u8]) -> bool {
    u16_at(header, field::FLAGS_FRAGMENT) & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
}

/// Where the payload stood in the original packet, in bytes; a multiple of 8.
#[inline(always)]
pub fn fragment_offset(header: &[u8]) -> u16 {
    (u16_at(header, field::FLAGS_FRAGMENT) & FRAGMENT_OFFSET) * 8
}

/// Whether the header, options included, adds up (RFC 1812, section 5.2.2, step 2).
#[inline]
pub fn checksum_ok(header: &[u8]) -> bool {
    let len = header_len(header);
    match header.first_chunk::<HEADER_LEN>() {
        // The common length has a loop of known count.
        Some(fixed) if len == HEADER_LEN => checksum::is_valid(fixed),
        _ => checksum::is_valid(part(header, 0, len)),
    }
}

/// Computes the header checksum afresh and writes it.
#[inline]
pub fn fill_checksum(header: &mut [u8]) {
    put_u16(header, field::CHECKSUM, 0);
    let check = checksum::checksum(part(header, 0, header_len(header)));
    put_u16(header, field::CHECKSUM, check);
}

/// Takes one from the time to live, keeps the checksum right (RFC 1624), and returns what is left. Zero stays zero.
///
/// The TTL is the high byte of its word, so the word loses 0x100: in equation 3, `~m + m'` is `0xffff - 0x100`.
#[inline]
pub fn decrement_ttl(header: &mut [u8]) -> u8 {
    let Some(left) = ttl(header).checked_sub(1) else { return 0 };
    let check = u16_at(header, field::CHECKSUM);
    put_u8(header, field::TTL, left);
    put_u16(header, field::CHECKSUM, !checksum::fold(u64::from(!check) + 0xfeff));
    left
}

view! {
    /// A packet. Bytes after its total length (Ethernet padding) are in the buffer and in nothing else.
    Packet, check
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Wraps a packet that may have been cut short after its header, see [`check_header`].
    pub fn new_header_checked(buffer: T) -> Result<Self, Error> {
        check_header(buffer.as_ref())?;
        Ok(Self::new_unchecked(buffer))
    }

    /// IP version.
    #[inline]
    pub fn version(&self) -> u8 {
        version(self.bytes())
    }

    /// Bytes in the header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        header_len(self.bytes())
    }

    /// Differentiated services code point, 6 bits.
    #[inline]
    pub fn dscp(&self) -> u8 {
        u8_at(self.bytes(), field::DSCP_ECN) >> 2
    }

    /// Explicit congestion notification, 2 bits.
    #[inline]
    pub fn ecn(&self) -> u8 {
        u8_at(self.bytes(), field::DSCP_ECN) & 3
    }

    /// Bytes in header and payload.
    #[inline]
    pub fn total_len(&self) -> u16 {
        total_len(self.bytes())
    }

    /// Identification, shared by the fragments of a packet.
    #[inline]
    pub fn ident(&self) -> u16 {
        u16_at(self.bytes(), field::IDENT)
    }

    /// Whether routers must not fragment the packet.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        dont_fragment(self.bytes())
    }

    /// Whether more fragments follow.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        u16_at(self.bytes(), field::FLAGS_FRAGMENT) & MORE_FRAGMENTS != 0
    }

    /// Where the payload stood in the original packet, in bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        fragment_offset(self.bytes())
    }

    /// Whether the packet is a fragment.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        is_fragment(self.bytes())
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        ttl(self.bytes())
    }

    /// What the payload is.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        protocol(self.bytes())
    }

    /// Header checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes(), field::CHECKSUM)
    }

    /// Whether the header adds up.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        checksum_ok(self.bytes())
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(array(self.bytes(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(array(self.bytes(), field::DST))
    }

    /// Options as they stand.
    #[inline]
    pub fn option_bytes(&self) -> &[u8] {
        part(self.bytes(), field::OPTIONS, self.header_len())
    }

    /// Options one by one, checked on the way.
    #[inline]
    pub fn options(&self) -> Options<'_> {
        Options { data: self.option_bytes(), at: 0 }
    }

    /// The payload, bounded by the total length.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        part(self.bytes(), self.header_len(), self.total_len().into())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes version 4 and a header of `len` bytes, rounded down to a multiple of four.
    pub fn set_version_and_header_len(&mut self, len: usize) {
        put_u8(self.bytes_mut(), field::VERSION_IHL, 0x40 | (len / 4).min(15) as u8);
    }

    /// Sets code point (6 bits) and congestion notification (2 bits).
    pub fn set_dscp_ecn(&mut self, dscp: u8, ecn: u8) {
        put_u8(self.bytes_mut(), field::DSCP_ECN, dscp << 2 | ecn & 3);
    }

    /// Sets the bytes in header and payload.
    pub fn set_total_len(&mut self, len: u16) {
        put_u16(self.bytes_mut(), field::TOTAL_LEN, len);
    }

    /// Sets the identification.
    pub fn set_ident(&mut self, ident: u16) {
        put_u16(self.bytes_mut(), field::IDENT, ident);
    }

    /// Sets both flags and the fragment offset, in bytes, rounded down to a multiple of 8.
    pub fn set_fragment(&mut self, dont_fragment: bool, more_fragments: bool, offset: u16) {
        let flags = if dont_fragment { DONT_FRAGMENT } else { 0 }
            | if more_fragments { MORE_FRAGMENTS } else { 0 }
            | (offset / 8);
        put_u16(self.bytes_mut(), field::FLAGS_FRAGMENT, flags);
    }

    /// Sets the time to live.
    pub fn set_ttl(&mut self, ttl: u8) {
        put_u8(self.bytes_mut(), field::TTL, ttl);
    }

    /// Sets what the payload is.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        put_u8(self.bytes_mut(), field::PROTOCOL, protocol.0);
    }

    /// Sets the checksum field.
    pub fn set_checksum(&mut self, check: u16) {
        put_u16(self.bytes_mut(), field::CHECKSUM, check);
    }

    /// Computes the header checksum and writes it.
    pub fn fill_checksum(&mut self) {
        fill_checksum(self.bytes_mut());
    }

    /// Sets the source address.
    pub fn set_src(&mut self, src: Ipv4Addr) {
        put(self.bytes_mut(), field::SRC, src.octets());
    }

    /// Sets the destination address.
    pub fn set_dst(&mut self, dst: Ipv4Addr) {
        put(self.bytes_mut(), field::DST, dst.octets());
    }

    /// The payload, bounded by the total length.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.header_len(), self.total_len().into());
        part_mut(self.bytes_mut(), from, to)
    }
}

/// One option (RFC 791, section 3.1; router alert RFC 2113). End of options ends the iteration and is not an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipv4Option<'a> {
    /// One byte of padding.
    Nop,
    /// Loose (131) or strict (137) source route, or recorded route (7).
    Route {
        /// Type of the option, copied flag included.
        kind: u8,
        /// Next slot to use, counted from 1 at the type byte: 4, 8, ...; past the data when full.
        pointer: u8,
        /// Addresses, four bytes each.
        data: &'a [u8],
    },
    /// Router alert.
    RouterAlert(u16),
    /// Any other, its data uninterpreted.
    Other {
        /// Type of the option, copied flag included.
        kind: u8,
        /// What follows the length byte.
        data: &'a [u8],
    },
}

/// Types of IPv4 options, copied flag included.
pub mod option {
    /// End of options.
    pub const END: u8 = 0;
    /// No operation.
    pub const NOP: u8 = 1;
    /// Record route.
    pub const RECORD_ROUTE: u8 = 7;
    /// Internet timestamp.
    pub const TIMESTAMP: u8 = 68;
    /// Loose source and record route.
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    /// Strict source and record route.
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
    /// Router alert.
    pub const ROUTER_ALERT: u8 = 148;
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

    fn read(&mut self, kind: u8) -> Result<Ipv4Option<'a>, Error> {
        if kind == option::NOP {
            self.at += 1;
            return Ok(Ipv4Option::Nop);
        }
        let at = self.at;
        // A length byte that is missing reads as zero, which is below two.
        let len = usize::from(u8_at(self.data, at + 1));
        let offset = field::OPTIONS + at + 1;
        let minimum = match kind {
            option::RECORD_ROUTE | option::LOOSE_SOURCE_ROUTE | option::STRICT_SOURCE_ROUTE => 3,
            option::ROUTER_ALERT | option::TIMESTAMP => 4,
            _ => 2,
        };
        if len < minimum {
            return Err(Error::Below {
                protocol: "ipv4",
                field: "option length",
                offset,
                value: len,
                minimum,
            });
        }
        let present = self.data.len() - at;
        if len > present {
            return Err(Error::Exceeds {
                protocol: "ipv4",
                field: "option length",
                offset,
                value: len,
                present,
            });
        }
        self.at += len;
        let data = part(self.data, at + 2, at + len);
        match kind {
            option::RECORD_ROUTE | option::LOOSE_SOURCE_ROUTE | option::STRICT_SOURCE_ROUTE => {
                let pointer = u8_at(data, 0);
                if pointer < 4 || !pointer.is_multiple_of(4) {
                    return Err(Error::Invalid {
                        protocol: "ipv4",
                        field: "route pointer",
                        offset: offset + 1,
                        value: pointer.into(),
                        wanted: "4, 8, 12, ...",
                    });
                }
                if len % 4 != 3 {
                    return Err(Error::Invalid {
                        protocol: "ipv4",
                        field: "route option length",
                        offset,
                        value: len as u64,
                        wanted: "3 and whole addresses",
                    });
                }
                Ok(Ipv4Option::Route { kind, pointer, data: part(data, 1, usize::MAX) })
            }
            option::ROUTER_ALERT if len != 4 => Err(Error::Invalid {
                protocol: "ipv4",
                field: "router alert length",
                offset,
                value: len as u64,
                wanted: "4",
            }),
            option::ROUTER_ALERT => Ok(Ipv4Option::RouterAlert(u16_at(data, 0))),
            _ => Ok(Ipv4Option::Other { kind, data }),
        }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<Ipv4Option<'a>, Error>;

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
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// What the payload is.
    pub protocol: Protocol,
    /// Differentiated services code point, below 64.
    pub dscp: u8,
    /// Explicit congestion notification, below 4.
    pub ecn: u8,
    /// Identification.
    pub ident: u16,
    /// Whether routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Whether more fragments follow.
    pub more_fragments: bool,
    /// Where the payload stood in the original packet: bytes, a multiple of 8.
    pub fragment_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// Options; well-formed when parsed.
    pub options: OptionBytes,
    /// Bytes in the payload.
    pub payload_len: usize,
}

impl Repr {
    /// A whole packet with don't-fragment, no options and TTL 64.
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: Protocol, payload_len: usize) -> Self {
        Repr {
            src,
            dst,
            protocol,
            dscp: 0,
            ecn: 0,
            ident: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            options: OptionBytes::NONE,
            payload_len,
        }
    }

    /// Reads a header and checks its options, not its checksum ([`checksum_ok`]).
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        check_header(packet.bytes())?;
        packet.options().try_for_each(|option| option.map(drop))?;
        Ok(Repr {
            src: packet.src(),
            dst: packet.dst(),
            protocol: packet.protocol(),
            dscp: packet.dscp(),
            ecn: packet.ecn(),
            ident: packet.ident(),
            dont_fragment: packet.dont_fragment(),
            more_fragments: packet.more_fragments(),
            fragment_offset: packet.fragment_offset(),
            ttl: packet.ttl(),
            options: OptionBytes::new(packet.option_bytes()).unwrap_or_default(),
            payload_len: usize::from(packet.total_len()).saturating_sub(packet.header_len()),
        })
    }

    /// Bytes that [`emit`](Self::emit) writes: the header with its options.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes the header, checksum included, to the front of `buf`; returns its length. The payload need not be
    /// there yet.
    ///
    /// Fails when the header does not fit, or when the packet would be longer than 65,535 bytes, the code point
    /// larger than 6 bits, the congestion bits more than 2 or the fragment offset no multiple of 8.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, Error> {
        let len = self.buffer_len();
        room("ipv4", buf, len)?;
        let invalid = |field, offset, value, wanted| {
            Err(Error::Invalid { protocol: "ipv4", field, offset, value, wanted })
        };
        let Ok(total) = u16::try_from(len.saturating_add(self.payload_len)) else {
            return invalid(
                "payload length",
                field::TOTAL_LEN,
                self.payload_len as u64,
                "below 65536 with the header",
            );
        };
        if self.dscp > 63 {
            return invalid("dscp", field::DSCP_ECN, self.dscp.into(), "below 64");
        }
        if self.ecn > 3 {
            return invalid("ecn", field::DSCP_ECN, self.ecn.into(), "below 4");
        }
        if !self.fragment_offset.is_multiple_of(8) {
            let value = self.fragment_offset.into();
            return invalid("fragment offset", field::FLAGS_FRAGMENT, value, "a multiple of 8");
        }
        let mut packet = Packet::new_unchecked(part_mut(buf, 0, len));
        packet.set_version_and_header_len(len);
        packet.set_dscp_ecn(self.dscp, self.ecn);
        packet.set_total_len(total);
        packet.set_ident(self.ident);
        packet.set_fragment(self.dont_fragment, self.more_fragments, self.fragment_offset);
        packet.set_ttl(self.ttl);
        packet.set_protocol(self.protocol);
        packet.set_src(self.src);
        packet.set_dst(self.dst);
        part_mut(packet.bytes_mut(), field::OPTIONS, len).copy_from_slice(self.options.as_slice());
        packet.fill_checksum();
        Ok(len)
    }
}
