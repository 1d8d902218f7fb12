//! IPv6 extension headers (RFC 8200, section 4; authentication header RFC 4302).
//!
//! [`walk`] follows the chain to the upper layer. The views read single headers: [`Packet`] those counted in units of
//! eight bytes (hop-by-hop and destination options, routing), [`FragmentPacket`] the fragment header.
//!
//! ```text
//! 0        40          48         56
//! | IPv6  | hop-by-hop | fragment | UDP ...
//!   next=0  next=44      next=17    Walk { upper: UDP, upper_offset: 56, next_header_offset: 48, .. }
//! ```

use crate::bytes::{need, part, put, put_u8, put_u16, put_u32, room, u8_at, u16_at, u32_at, view};
use crate::{Error, Protocol, ipv6};

mod field {
    pub(super) const NEXT_HEADER: usize = 0;
    pub(super) const LEN: usize = 1;
    pub(super) const BODY: usize = 2;
    pub(super) const ROUTING_TYPE: usize = 2;
    pub(super) const SEGMENTS_LEFT: usize = 3;
    pub(super) const FRAGMENT_OFFSET: usize = 2;
    pub(super) const FRAGMENT_IDENT: usize = 4;
}

/// Most extension headers that [`walk`] follows: more than twice what the recommended order has.
pub const MAX_HEADERS: usize = 16;
/// Bytes in a fragment header.
pub const FRAGMENT_LEN: usize = 8;

/// Bytes in an authentication header without its check value (RFC 4302, section 2).
const AH_MIN_LEN: usize = 12;

fn units_len(data: &[u8]) -> usize {
    (usize::from(u8_at(data, field::LEN)) + 1) * 8
}

/// The check behind [`Packet::new_checked`]: a header of 8 to 2,048 bytes that `data` holds.
pub fn check(data: &[u8]) -> Result<(), Error> {
    need("ipv6-ext", "header", data, 8)?;
    let (value, present) = (units_len(data), data.len());
    if value > present {
        let (field, offset) = ("header length", field::LEN);
        return Err(Error::Exceeds { protocol: "ipv6-ext", field, offset, value, present });
    }
    Ok(())
}

view! {
    /// A hop-by-hop, destination options or routing header, and what follows it.
    Packet, check
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// What follows.
    #[inline]
    pub fn next_header(&self) -> Protocol {
        Protocol(u8_at(self.bytes(), field::NEXT_HEADER))
    }

    /// Bytes in the header; a multiple of eight.
    #[inline]
    pub fn header_len(&self) -> usize {
        units_len(self.bytes())
    }

    /// The header without its first two bytes.
    #[inline]
    pub fn body(&self) -> &[u8] {
        part(self.bytes(), field::BODY, self.header_len())
    }

    /// The options of a hop-by-hop or destination options header.
    #[inline]
    pub fn options(&self) -> Options<'_> {
        Options { data: self.body(), at: 0 }
    }

    /// Type of a routing header.
    #[inline]
    pub fn routing_type(&self) -> u8 {
        u8_at(self.bytes(), field::ROUTING_TYPE)
    }

    /// Addresses that a routing header has still to visit.
    #[inline]
    pub fn segments_left(&self) -> u8 {
        u8_at(self.bytes(), field::SEGMENTS_LEFT)
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        part(self.bytes(), self.header_len(), usize::MAX)
    }
}

/// A hop-by-hop, destination options or routing header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr<'a> {
    /// What follows.
    pub next_header: Protocol,
    /// The header without its first two bytes: 6, 14, ... 2,046 bytes.
    pub body: &'a [u8],
}

impl<'a> Repr<'a> {
    /// Reads a header; its body is not interpreted.
    pub fn parse<T: AsRef<[u8]>>(packet: &'a Packet<T>) -> Result<Self, Error> {
        check(packet.bytes())?;
        Ok(Repr { next_header: packet.next_header(), body: packet.body() })
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn buffer_len(&self) -> usize {
        field::BODY + self.body.len()
    }

    /// Writes the header to the front of `buf`; returns its length. Fails when it does not fit or its length is not a
    /// multiple of eight up to 2,048.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, Error> {
        let len = self.buffer_len();
        room("ipv6-ext", buf, len)?;
        if !len.is_multiple_of(8) || len > 2048 {
            let (field, offset, value) = ("header length", field::LEN, len as u64);
            let wanted = "a multiple of 8 up to 2048";
            return Err(Error::Invalid { protocol: "ipv6-ext", field, offset, value, wanted });
        }
        put_u8(buf, field::NEXT_HEADER, self.next_header.0);
        put_u8(buf, field::LEN, (len / 8 - 1) as u8);
        for (to, from) in buf.iter_mut().skip(field::BODY).zip(self.body) {
            *to = *from;
        }
        Ok(len)
    }
}

/// One option of a hop-by-hop or destination options header (RFC 8200, section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipv6Option<'a> {
    /// This many bytes of padding, at least one.
    Pad(usize),
    /// Router alert (RFC 2711).
    RouterAlert(u16),
    /// Any other, its data uninterpreted.
    Other {
        /// Type. Its top two bits say what a node does that does not know it: skip (0), discard (1), discard and tell
        /// (2), the same unless the destination was a group (3).
        kind: u8,
        /// What follows the length byte.
        data: &'a [u8],
    },
}

/// Iterates over options; the first malformed one is an error and ends the iteration. Offsets in errors count from
/// the start of the extension header.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<Ipv6Option<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let kind = *self.data.get(at)?;
        if kind == 0 {
            self.at += 1;
            return Some(Ok(Ipv6Option::Pad(1)));
        }
        let present = self.data.len().saturating_sub(at + 2);
        let len = match self.data.get(at + 1) {
            Some(len) if usize::from(*len) <= present => usize::from(*len),
            wrong => {
                self.at = self.data.len();
                return Some(Err(Error::Exceeds {
                    protocol: "ipv6-ext",
                    field: "option length",
                    offset: field::BODY + at + 1,
                    value: wrong.copied().unwrap_or(0).into(),
                    present,
                }));
            }
        };
        self.at += 2 + len;
        let data = part(self.data, at + 2, at + 2 + len);
        Some(Ok(match (kind, len) {
            (1, _) => Ipv6Option::Pad(2 + len),
            (5, 2) => Ipv6Option::RouterAlert(u16_at(data, 0)),
            _ => Ipv6Option::Other { kind, data },
        }))
    }
}

/// The check behind [`FragmentPacket::new_checked`].
pub fn check_fragment(data: &[u8]) -> Result<(), Error> {
    need("ipv6-ext", "fragment header", data, FRAGMENT_LEN)
}

view! {
    /// A fragment header and what follows it.
    FragmentPacket, check_fragment
}

impl<T: AsRef<[u8]>> FragmentPacket<T> {
    /// What the original packet's fragmentable part starts with.
    #[inline]
    pub fn next_header(&self) -> Protocol {
        Protocol(u8_at(self.bytes(), field::NEXT_HEADER))
    }

    /// Where the payload stood in the fragmentable part; bytes, a multiple of 8.
    #[inline]
    pub fn offset(&self) -> u16 {
        u16_at(self.bytes(), field::FRAGMENT_OFFSET) & 0xfff8
    }

    /// Whether more fragments follow.
    #[inline]
    pub fn more(&self) -> bool {
        u16_at(self.bytes(), field::FRAGMENT_OFFSET) & 1 != 0
    }

    /// Shared by the fragments of a packet.
    #[inline]
    pub fn ident(&self) -> u32 {
        u32_at(self.bytes(), field::FRAGMENT_IDENT)
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        part(self.bytes(), FRAGMENT_LEN, usize::MAX)
    }
}

/// A fragment header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FragmentRepr {
    /// What the original packet's fragmentable part starts with.
    pub next_header: Protocol,
    /// Where the payload stood in the fragmentable part; bytes, a multiple of 8.
    pub offset: u16,
    /// Whether more fragments follow.
    pub more: bool,
    /// Shared by the fragments of a packet.
    pub ident: u32,
}

impl FragmentRepr {
    /// Reads a header.
    pub fn parse<T: AsRef<[u8]>>(packet: &FragmentPacket<T>) -> Result<Self, Error> {
        check_fragment(packet.bytes())?;
        let (next_header, offset) = (packet.next_header(), packet.offset());
        Ok(FragmentRepr { next_header, offset, more: packet.more(), ident: packet.ident() })
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn buffer_len(&self) -> usize {
        FRAGMENT_LEN
    }

    /// Writes the header to the front of `buf`; returns its length. Fails when it does not fit or the offset is no
    /// multiple of 8.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, Error> {
        room("ipv6-ext", buf, FRAGMENT_LEN)?;
        if !self.offset.is_multiple_of(8) {
            let (field, offset, value) = ("fragment offset", field::FRAGMENT_OFFSET, self.offset.into());
            let wanted = "a multiple of 8";
            return Err(Error::Invalid { protocol: "ipv6-ext", field, offset, value, wanted });
        }
        put(buf, field::NEXT_HEADER, [self.next_header.0, 0]);
        put_u16(buf, field::FRAGMENT_OFFSET, self.offset | u16::from(self.more));
        put_u32(buf, field::FRAGMENT_IDENT, self.ident);
        Ok(FRAGMENT_LEN)
    }
}

/// Where a chain of extension headers leads. Offsets count from the start of the IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// The first header that is not an extension header: TCP, ESP, no next header, ... In a fragment that is not the
    /// first: what the original packet went on with, of which `upper_offset` is a piece.
    pub upper: Protocol,
    /// Where it starts.
    pub upper_offset: usize,
    /// The byte that names it: where an ICMPv6 parameter problem (code 1) points.
    pub next_header_offset: usize,
    /// The fragment header; of several, the first that is not atomic, or else the last.
    pub fragment: Option<FragmentRepr>,
    /// Where the last routing header starts.
    pub routing_offset: Option<usize>,
    /// Extension headers passed.
    pub headers: usize,
}

impl Walk {
    /// Whether the packet is a fragment. A packet in one "atomic" fragment (RFC 6946) is whole and is not.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.more || fragment.offset != 0)
    }
}

/// Follows the extension headers of `packet`, which starts with an IPv6 header and may be cut short behind it.
///
/// Stops at an upper-layer header, at ESP (the rest is encrypted), and at a fragment header whose offset is not zero
/// (the rest is in the middle of something). Fails when the packet ends inside an extension header, when hop-by-hop
/// options stand anywhere but first (RFC 8200, section 4.1), and after [`MAX_HEADERS`].
#[inline]
pub fn walk(packet: &[u8]) -> Result<Walk, Error> {
    ipv6::check_header(packet)?;
    let data = part(packet, 0, ipv6::HEADER_LEN + usize::from(ipv6::payload_len(packet)));
    let mut walk = Walk {
        upper: ipv6::next_header(data),
        upper_offset: ipv6::HEADER_LEN,
        next_header_offset: 6,
        fragment: None,
        routing_offset: None,
        headers: 0,
    };
    while is_extension(walk.upper) {
        if !walk.step(data)? {
            break;
        }
    }
    Ok(walk)
}

#[inline]
fn is_extension(protocol: Protocol) -> bool {
    matches!(
        protocol,
        Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::FRAGMENT | Protocol::DEST_OPTIONS | Protocol::AH
    )
}

impl Walk {
    /// Passes one extension header; false when nothing behind it can be read.
    fn step(&mut self, data: &[u8]) -> Result<bool, Error> {
        let at = self.upper_offset;
        let invalid = |field, value, wanted| {
            let offset = self.next_header_offset;
            Err(Error::Invalid { protocol: "ipv6", field, offset, value, wanted })
        };
        if self.headers == MAX_HEADERS {
            return invalid("number of extension headers", MAX_HEADERS as u64 + 1, "at most 16");
        }
        if self.upper == Protocol::HOP_BY_HOP && self.headers > 0 {
            return invalid("next header", 0, "allowed but in the fixed header");
        }
        let header = part(data, at, usize::MAX);
        need("ipv6-ext", "header", header, 8).map_err(|error| error.shifted(at))?;
        let mut readable = true;
        let len = match self.upper {
            Protocol::FRAGMENT => {
                let fragment = FragmentRepr::parse(&FragmentPacket::new_unchecked(header))?;
                readable = fragment.offset == 0;
                if !self.is_fragment() {
                    self.fragment = Some(fragment);
                }
                FRAGMENT_LEN
            }
            // The one length that counts in units of four bytes, less two.
            Protocol::AH => (usize::from(u8_at(header, field::LEN)) + 2) * 4,
            _ => units_len(header),
        };
        if len > header.len() {
            return Err(Error::Exceeds {
                protocol: "ipv6-ext",
                field: "header length",
                offset: at + field::LEN,
                value: len,
                present: header.len(),
            });
        }
        if self.upper == Protocol::AH && len < AH_MIN_LEN {
            let (field, offset) = ("header length", at + field::LEN);
            return Err(Error::Below {
                protocol: "ipv6-ext",
                field,
                offset,
                value: len,
                minimum: AH_MIN_LEN,
            });
        }
        if self.upper == Protocol::ROUTING {
            self.routing_offset = Some(at);
        }
        self.upper = Protocol(u8_at(header, field::NEXT_HEADER));
        self.next_header_offset = at + field::NEXT_HEADER;
        self.upper_offset = at + len;
        self.headers += 1;
        Ok(readable)
    }
}
