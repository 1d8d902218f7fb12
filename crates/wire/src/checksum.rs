//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624, equation 3).
//!
//! The sum is over 16-bit words in ones' complement, where 0x0000 and 0xffff are both zero. What keeps the two apart
//! here, and what every function upholds: a folded sum is 0x0000 only when all that went into it was zero. Packets
//! hold a non-zero word (an IP version, a protocol number in a pseudo header), so a checksum that we compute or
//! update is never 0xffff, except in UDP, where 0 means "none" and 0xffff stands for it ([`for_udp`]).

use crate::Protocol;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Folds a sum of 16-bit words (or of wider words, since 2^16 = 1 here) to 16 bits.
#[inline]
pub fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The folded sum of `data`, an odd last byte padded with zero. Not yet complemented.
///
/// Words are added in memory order, 32 bits at a time into 64-bit lanes, which compilers turn into vector adds; the
/// order of bytes is put right once at the end (RFC 1071, section 2).
#[inline]
pub fn sum(data: &[u8]) -> u16 {
    let (words, tail) = data.as_chunks::<4>();
    let mut total = 0u64;
    for word in words {
        total += u64::from(u32::from_ne_bytes(*word));
    }
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    total += u64::from(u32::from_ne_bytes(last));
    u16::from_be_bytes(fold(total).to_ne_bytes())
}

/// [`sum`] as RFC 1071 defines it, one 16-bit word at a time: the specification of the fast one.
pub fn sum_by_words(data: &[u8]) -> u16 {
    let mut total = 0u64;
    for word in data.chunks(2) {
        total += u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0));
    }
    fold(total)
}

/// The checksum of `data`: the complement of its sum.
#[inline]
pub fn checksum(data: &[u8]) -> u16 {
    !sum(data)
}

/// Whether `data`, checksum field included, adds up. All-zero data does not.
#[inline]
pub fn is_valid(data: &[u8]) -> bool {
    sum(data) == 0xffff
}

/// Adds two folded sums, the first one over an even number of bytes.
#[inline]
pub fn add(a: u16, b: u16) -> u16 {
    fold(u64::from(a) + u64::from(b))
}

/// The addresses that TCP, UDP and ICMPv6 put under their checksum besides their own bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pseudo {
    /// RFC 793, section 3.1.
    V4 {
        /// Source address.
        src: Ipv4Addr,
        /// Destination address; with a source route, the final one.
        dst: Ipv4Addr,
    },
    /// RFC 8200, section 8.1.
    V6 {
        /// Source address.
        src: Ipv6Addr,
        /// Destination address; with a routing header, the final one.
        dst: Ipv6Addr,
    },
}

impl Pseudo {
    /// The folded sum of the pseudo header for `len` bytes of `protocol`.
    #[inline]
    pub fn sum(&self, protocol: Protocol, len: usize) -> u16 {
        let addresses = match self {
            Pseudo::V4 { src, dst } => u64::from(src.to_bits()) + u64::from(dst.to_bits()),
            Pseudo::V6 { src, dst } => u64::from(sum(&src.octets())) + u64::from(sum(&dst.octets())),
        };
        // Folding a 32-bit length to 16 bits is what summing its two words does.
        fold(addresses + u64::from(protocol.0) + u64::from(fold(len as u64)))
    }

    /// The checksum of `data`, whose checksum field is zero or skipped, below this pseudo header.
    #[inline]
    pub fn checksum(&self, protocol: Protocol, data: &[u8]) -> u16 {
        !add(self.sum(protocol, data.len()), sum(data))
    }

    /// Whether `data`, checksum field included, adds up below this pseudo header.
    #[inline]
    pub fn is_valid(&self, protocol: Protocol, data: &[u8]) -> bool {
        add(self.sum(protocol, data.len()), sum(data)) == 0xffff
    }

    /// Source address.
    pub fn src(&self) -> IpAddr {
        match *self {
            Pseudo::V4 { src, .. } => src.into(),
            Pseudo::V6 { src, .. } => src.into(),
        }
    }

    /// Destination address.
    pub fn dst(&self) -> IpAddr {
        match *self {
            Pseudo::V4 { dst, .. } => dst.into(),
            Pseudo::V6 { dst, .. } => dst.into(),
        }
    }
}

/// The checksum after a 16-bit word at an even offset changed from `old` to `new`.
///
/// RFC 1624, equation 3: `HC' = ~(~HC + ~m + m')`. Equation 4 (subtracting) can give 0xffff where 0x0000 is due.
#[inline]
pub fn update_u16(check: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!check) + u64::from(!old) + u64::from(new))
}

/// The checksum after an aligned 32-bit word (an IPv4 address, a pair of ports) changed from `old` to `new`.
#[inline]
pub fn update_u32(check: u16, old: u32, new: u32) -> u16 {
    !fold(u64::from(!check) + u64::from(!old) + u64::from(new))
}

/// The checksum after an IPv6 address changed from `old` to `new`.
#[inline]
pub fn update_u128(check: u16, old: u128, new: u128) -> u16 {
    let words = |v: u128| {
        [v as u32, (v >> 32) as u32, (v >> 64) as u32, (v >> 96) as u32].map(u64::from).iter().sum::<u64>()
    };
    !fold(u64::from(!check) + words(!old) + words(new))
}

/// The value for a UDP header, given the checksum that it had and that checksum updated: "none" stays none, and a
/// checksum that comes out as zero is sent as 0xffff (RFC 768).
///
/// For a computed and not an updated checksum, pass anything but zero as `before`.
#[inline]
pub fn for_udp(before: u16, updated: u16) -> u16 {
    match (before, updated) {
        (0, _) => 0,
        (_, 0) => 0xffff,
        (_, updated) => updated,
    }
}
