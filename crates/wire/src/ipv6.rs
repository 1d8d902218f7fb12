//! IPv6, the fixed header (RFC 8200, section 3). Extension headers: [`crate::ipv6_ext`].
//!
//! The free functions are for the data path: they take a slice that starts at the header, check nothing and never
//! panic. Call [`check`] first, once. Jumbograms (RFC 2675) are not supported: a payload length of zero means that
//! the payload is empty.

use crate::bytes::{
    array, need, part, part_mut, put, put_u8, put_u16, put_u32, room, u8_at, u16_at, u32_at, view,
};
use crate::{Error, Protocol};
use std::net::Ipv6Addr;

mod field {
    pub(super) const VERSION_CLASS_FLOW: usize = 0;
    pub(super) const PAYLOAD_LEN: usize = 4;
    pub(super) const NEXT_HEADER: usize = 6;
    pub(super) const HOP_LIMIT: usize = 7;
    pub(super) const SRC: usize = 8;
    pub(super) const DST: usize = 24;
}

/// Bytes in the header.
pub const HEADER_LEN: usize = 40;
/// The least MTU that every link has (RFC 8200, section 5).
pub const MIN_MTU: usize = 1280;

/// Version 6, a whole header and a payload length that `data` holds.
#[inline]
pub fn check(data: &[u8]) -> Result<(), Error> {
    check_header(data)?;
    let payload = usize::from(payload_len(data));
    let present = data.len() - HEADER_LEN;
    if payload > present {
        return Err(Error::Exceeds {
            protocol: "ipv6",
            field: "payload length",
            offset: field::PAYLOAD_LEN,
            value: payload,
            present,
        });
    }
    Ok(())
}

/// [`check`] for a packet that may have been cut short after its header, by an ICMP error or a capture's snap
/// length: the payload length may exceed `data`.
#[inline]
pub fn check_header(data: &[u8]) -> Result<(), Error> {
    need("ipv6", "header", data, HEADER_LEN)?;
    if version(data) != 6 {
        return Err(Error::Invalid {
            protocol: "ipv6",
            field: "version",
            offset: field::VERSION_CLASS_FLOW,
            value: version(data).into(),
            wanted: "6",
        });
    }
    Ok(())
}

/// IP version; the same nibble in IPv4 and IPv6.
#[inline(always)]
pub fn version(header: &[u8]) -> u8 {
    u8_at(header, field::VERSION_CLASS_FLOW) >> 4
}

/// Bytes after the fixed header, extension headers included.
#[inline(always)]
pub fn payload_len(header: &[u8]) -> u16 {
    u16_at(header, field::PAYLOAD_LEN)
}

/// What follows the fixed header.
#[inline(always)]
pub fn next_header(header: &[u8]) -> Protocol {
    Protocol(u8_at(header, field::NEXT_HEADER))
}

/// Hop limit.
#[inline(always)]
pub fn hop_limit(header: &[u8]) -> u8 {
    u8_at(header, field::HOP_LIMIT)
}

/// Source address as a number, most significant byte first on the wire.
#[inline(always)]
pub fn src_u128(header: &[u8]) -> u128 {
    u128::from_be_bytes(array(header, field::SRC))
}

/// Destination address as a number.
#[inline(always)]
pub fn dst_u128(header: &[u8]) -> u128 {
    u128::from_be_bytes(array(header, field::DST))
}

/// Takes one from the hop limit and returns what is left. Zero stays zero. No checksum covers it.
#[inline]
pub fn decrement_hop_limit(header: &mut [u8]) -> u8 {
    let left = hop_limit(header).saturating_sub(1);
    put_u8(header, field::HOP_LIMIT, left);
    left
}

view! {
    /// A packet. Bytes after its payload length (Ethernet padding) are in the buffer and in nothing else.
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

    /// Differentiated services code point, 6 bits.
    #[inline]
    pub fn dscp(&self) -> u8 {
        (u16_at(self.bytes(), field::VERSION_CLASS_FLOW) >> 6 & 0x3f) as u8
    }

    /// Explicit congestion notification, 2 bits.
    #[inline]
    pub fn ecn(&self) -> u8 {
        (u16_at(self.bytes(), field::VERSION_CLASS_FLOW) >> 4 & 3) as u8
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        u32_at(self.bytes(), field::VERSION_CLASS_FLOW) & 0xf_ffff
    }

    /// Bytes after the fixed header, extension headers included.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        payload_len(self.bytes())
    }

    /// What follows the fixed header.
    #[inline]
    pub fn next_header(&self) -> Protocol {
        next_header(self.bytes())
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        hop_limit(self.bytes())
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16>(self.bytes(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16>(self.bytes(), field::DST))
    }

    /// The payload, extension headers included, bounded by the payload length.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        part(self.bytes(), HEADER_LEN, HEADER_LEN + usize::from(self.payload_len()))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes version 6, code point (6 bits), congestion notification (2 bits) and flow label (20 bits).
    pub fn set_version_class_flow(&mut self, dscp: u8, ecn: u8, flow_label: u32) {
        let class = u32::from(dscp << 2 | ecn & 3);
        put_u32(self.bytes_mut(), field::VERSION_CLASS_FLOW, 6 << 28 | class << 20 | flow_label & 0xf_ffff);
    }

    /// Sets the bytes after the fixed header.
    pub fn set_payload_len(&mut self, len: u16) {
        put_u16(self.bytes_mut(), field::PAYLOAD_LEN, len);
    }

    /// Sets what follows the fixed header.
    pub fn set_next_header(&mut self, next: Protocol) {
        put_u8(self.bytes_mut(), field::NEXT_HEADER, next.0);
    }

    /// Sets the hop limit.
    pub fn set_hop_limit(&mut self, hops: u8) {
        put_u8(self.bytes_mut(), field::HOP_LIMIT, hops);
    }

    /// Sets the source address.
    pub fn set_src(&mut self, src: Ipv6Addr) {
        put(self.bytes_mut(), field::SRC, src.octets());
    }

    /// Sets the destination address.
    pub fn set_dst(&mut self, dst: Ipv6Addr) {
        put(self.bytes_mut(), field::DST, dst.octets());
    }

    /// The payload, bounded by the payload length.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let to = HEADER_LEN + usize::from(self.payload_len());
        part_mut(self.bytes_mut(), HEADER_LEN, to)
    }
}

/// A header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// What follows.
    pub next_header: Protocol,
    /// Differentiated services code point, below 64.
    pub dscp: u8,
    /// Explicit congestion notification, below 4.
    pub ecn: u8,
    /// Flow label, below 2^20.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Bytes in the payload, extension headers included.
    pub payload_len: usize,
}

impl Repr {
    /// A packet with hop limit 64 and no flow label.
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: Protocol, payload_len: usize) -> Self {
        Repr { src, dst, next_header, dscp: 0, ecn: 0, flow_label: 0, hop_limit: 64, payload_len }
    }

    /// Reads a header.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        check_header(packet.bytes())?;
        Ok(Repr {
            src: packet.src(),
            dst: packet.dst(),
            next_header: packet.next_header(),
            dscp: packet.dscp(),
            ecn: packet.ecn(),
            flow_label: packet.flow_label(),
            hop_limit: packet.hop_limit(),
            payload_len: packet.payload_len().into(),
        })
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the front of `buf`; returns its length.
    ///
    /// Fails when it does not fit, or when a value is larger than its field.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, Error> {
        room("ipv6", buf, HEADER_LEN)?;
        let invalid = |field, offset, value, wanted| {
            Err(Error::Invalid { protocol: "ipv6", field, offset, value, wanted })
        };
        let Ok(payload_len) = u16::try_from(self.payload_len) else {
            return invalid("payload length", field::PAYLOAD_LEN, self.payload_len as u64, "below 65536");
        };
        if self.dscp > 63 {
            return invalid("dscp", 0, self.dscp.into(), "below 64");
        }
        if self.ecn > 3 {
            return invalid("ecn", 1, self.ecn.into(), "below 4");
        }
        if self.flow_label > 0xf_ffff {
            return invalid("flow label", 1, self.flow_label.into(), "below 1048576");
        }
        let mut packet = Packet::new_unchecked(buf);
        packet.set_version_class_flow(self.dscp, self.ecn, self.flow_label);
        packet.set_payload_len(payload_len);
        packet.set_next_header(self.next_header);
        packet.set_hop_limit(self.hop_limit);
        packet.set_src(self.src);
        packet.set_dst(self.dst);
        Ok(HEADER_LEN)
    }
}
