//! What the gate needs to know of an address family.

use crate::tunnel::Outer;
use std::net::IpAddr;
use tidemill_flow::key::Key;
use tidemill_lpm::table::Family;
use tidemill_wire::{ipv4, ipv6};

/// An address family that the gate knows.
pub trait Gated: Family + Outer {
    /// Source and destination of the packet that begins with this header, which is whole.
    fn pair(header: &[u8]) -> (Self, Self);
    /// An address in 64 bits, for spreading.
    fn fold(self) -> u64;
    /// For operators.
    fn address(self) -> IpAddr;
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

    fn address(self) -> IpAddr {
        IpAddr::V4(self.into())
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

    fn address(self) -> IpAddr {
        IpAddr::V6(self.into())
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
