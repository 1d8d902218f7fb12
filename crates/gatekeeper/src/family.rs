//! What the gate needs to know of an address family.

use crate::addresses::AddressSet;
use crate::settings::Settings;
use crate::tunnel::Outer;
use std::net::IpAddr;
use tidemill_decision::GRANTOR_PORT;
use tidemill_flow::key::Key;
use tidemill_ip::datagram::ends;
use tidemill_lpm::table::Family;
use tidemill_wire::{Protocol, checksum, ipv4, ipv6, ipv6_ext};

/// An address family that the gate knows.
pub trait Gated: Family + Outer {
    /// Source and destination of the packet that begins with this header, which is whole.
    fn pair(header: &[u8]) -> (Self, Self);
    /// An address in 64 bits, for spreading. Of IPv6 many are one, and who makes addresses chooses which.
    fn fold(self) -> u64;
    /// All of an address in 64-bit words, the upper first.
    fn words(self) -> [u64; 2];
    /// For operators.
    fn address(self) -> IpAddr;
    /// Our addresses of this family.
    fn own(settings: &Settings) -> &AddressSet<Self>;
    /// Whether a Grantor that gets this packet, which begins with its IP header, would look into it as into one of a Gatekeeper's: a packet in a packet, of either
    /// family and also in parts, or a datagram to the port of probes. What cannot be read to its end is taken for one.
    fn is_for_grantors(ip: &[u8]) -> bool;
    /// Sets the code point of the packet that begins with this header, which is whole, to 0; congestion marks stay.
    fn clear_dscp(header: &mut [u8]);
}

/// Whether a protocol is of interest to Grantors.
fn is_for_grantors(protocol: Protocol, ip: &[u8]) -> bool {
    match protocol {
        Protocol::IPV4 | Protocol::IPV6 => true,
        Protocol::UDP => ends(ip).is_some_and(|[_, (_, port)]| port == GRANTOR_PORT),
        _ => false,
    }
}

/// The same, with flows (pairs of source and destination) that are keys of `W` words.
pub trait Paired<const W: usize>: Gated {
    /// The flow's key.
    fn key(source: Self, destination: Self) -> Key<W>;
    /// Source and destination of a key.
    fn of_key(key: &Key<W>) -> (Self, Self);
}

impl Gated for u32 {
    #[inline(always)]
    fn pair(header: &[u8]) -> (u32, u32) {
        (ipv4::src_u32(header), ipv4::dst_u32(header))
    }

    fn fold(self) -> u64 {
        self.into()
    }

    #[inline(always)]
    fn words(self) -> [u64; 2] {
        [0, self.into()]
    }

    fn address(self) -> IpAddr {
        IpAddr::V4(self.into())
    }

    #[inline(always)]
    fn own(settings: &Settings) -> &AddressSet<u32> {
        &settings.own4
    }

    #[inline(always)]
    fn is_for_grantors(ip: &[u8]) -> bool {
        ip.len() < ipv4::HEADER_LEN || is_for_grantors(ipv4::protocol(ip), ip)
    }

    #[inline(always)]
    fn clear_dscp(header: &mut [u8]) {
        if header[1] & !3 != 0 {
            let word = |header: &[u8], at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
            let before = word(header, 0);
            header[1] &= 3;
            let check = checksum::update_u16(word(header, 10), before, word(header, 0));
            header[10..12].copy_from_slice(&check.to_be_bytes());
        }
    }
}

impl Gated for u128 {
    #[inline(always)]
    fn pair(header: &[u8]) -> (u128, u128) {
        (ipv6::src_u128(header), ipv6::dst_u128(header))
    }

    fn fold(self) -> u64 {
        (self >> 64) as u64 ^ self as u64
    }

    #[inline(always)]
    fn words(self) -> [u64; 2] {
        [(self >> 64) as u64, self as u64]
    }

    fn address(self) -> IpAddr {
        IpAddr::V6(self.into())
    }

    #[inline(always)]
    fn own(settings: &Settings) -> &AddressSet<u128> {
        &settings.own6
    }

    #[inline(always)]
    fn is_for_grantors(ip: &[u8]) -> bool {
        ip.len() < ipv6::HEADER_LEN || ipv6_ext::walk(ip).map_or(true, |walk| is_for_grantors(walk.upper, ip))
    }

    #[inline(always)]
    fn clear_dscp(header: &mut [u8]) {
        // version, class, label: 4, 8 and 20 bits; the class's last two are not the code point's
        header[0] &= 0xf0;
        header[1] &= 0x3f;
    }
}

impl Paired<1> for u32 {
    #[inline(always)]
    fn key(source: u32, destination: u32) -> Key<1> {
        Key([u64::from(source) << 32 | u64::from(destination)])
    }

    fn of_key(key: &Key<1>) -> (u32, u32) {
        ((key.0[0] >> 32) as u32, key.0[0] as u32)
    }
}

impl Paired<4> for u128 {
    #[inline(always)]
    fn key(source: u128, destination: u128) -> Key<4> {
        Key([(source >> 64) as u64, source as u64, (destination >> 64) as u64, destination as u64])
    }

    fn of_key(key: &Key<4>) -> (u128, u128) {
        let word = |i: usize| u128::from(key.0[i]);
        (word(0) << 64 | word(1), word(2) << 64 | word(3))
    }
}
