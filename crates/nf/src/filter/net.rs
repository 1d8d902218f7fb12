//! What a filter needs to know of an address family: how a connection becomes a key.

use crate::filter::sets::{Index, Sets};
use crate::header::InHeader;
use tidemill_classify::key::Key as RuleKey;
use tidemill_flow::key::Key;
use tidemill_lpm::{Address, Family};

/// An address family, whose connections have keys of `W` words.
pub trait Net<const W: usize>: InHeader + Address + Family + Into<u128> + Default {
    /// The key of a connection: its lower end, its upper end, and what else tells it apart.
    fn key(ends: &Ends<Self>) -> Key<W>;
    /// What a key was made of.
    fn of_key(key: &Key<W>) -> Ends<Self>;
    /// The key that rules look at, without interface, flags and sets.
    fn rule_key(source: Self, destination: Self, ports: (u16, u16), protocol: u8) -> RuleKey;
    /// Its part of the sets.
    fn index(sets: &Sets) -> &Index<Self>;
}

/// Both ends of a connection in order of address and port, so that packets of both directions have one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ends<A> {
    /// The lower end: address, and port, or the identifier of an ICMP echo.
    pub low: (A, u16),
    /// The upper end; of an ICMP echo the port is 1 if this end asks.
    pub high: (A, u16),
    /// The protocol.
    pub protocol: u8,
    /// The VRF that its packets come in by: those of two say nothing of each other.
    pub vrf: u16,
}

/// The protocol of a connection's key.
#[inline(always)]
pub(crate) fn protocol_of<const W: usize>(key: &Key<W>) -> u8 {
    key.0.last().map_or(0, |rest| *rest as u8)
}

impl Net<2> for u32 {
    #[inline(always)]
    fn key(ends: &Ends<u32>) -> Key<2> {
        Key([u64::from(ends.low.0) << 32 | u64::from(ends.high.0), rest(ends)])
    }

    fn of_key(key: &Key<2>) -> Ends<u32> {
        let (low, high) = ((key.0[0] >> 32) as u32, key.0[0] as u32);
        of_rest(low, high, key.0[1])
    }

    fn rule_key(source: u32, destination: u32, (from, to): (u16, u16), protocol: u8) -> RuleKey {
        RuleKey::ipv4(source, destination, from, to, protocol)
    }

    fn index(sets: &Sets) -> &Index<u32> {
        &sets.v4
    }
}

impl Net<5> for u128 {
    #[inline(always)]
    fn key(ends: &Ends<u128>) -> Key<5> {
        let (low, high) = (ends.low.0, ends.high.0);
        Key([(low >> 64) as u64, low as u64, (high >> 64) as u64, high as u64, rest(ends)])
    }

    fn of_key(key: &Key<5>) -> Ends<u128> {
        let address = |at: usize| u128::from(key.0[at]) << 64 | u128::from(key.0[at + 1]);
        of_rest(address(0), address(2), key.0[4])
    }

    fn rule_key(source: u128, destination: u128, (from, to): (u16, u16), protocol: u8) -> RuleKey {
        RuleKey::ipv6(source, destination, from, to, protocol)
    }

    fn index(sets: &Sets) -> &Index<u128> {
        &sets.v6
    }
}

#[inline(always)]
fn rest<A>(ends: &Ends<A>) -> u64 {
    let (low, high) = (u64::from(ends.low.1), u64::from(ends.high.1));
    u64::from(ends.vrf) << 48 | low << 32 | high << 16 | u64::from(ends.protocol)
}

fn of_rest<A>(low: A, high: A, word: u64) -> Ends<A> {
    let (low, high) = ((low, (word >> 32) as u16), (high, (word >> 16) as u16));
    Ends { low, high, protocol: word as u8, vrf: (word >> 48) as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round<A: Net<W>, const W: usize>(low: A, high: A) {
        let ends = Ends { low: (low, 0xabcd), high: (high, 0xffff), protocol: 58, vrf: 0x1234 };
        assert_eq!(A::of_key(&A::key(&ends)), ends);
        assert_eq!(protocol_of(&A::key(&ends)), 58);
    }

    #[test]
    fn what_goes_into_words_comes_out_of_them() {
        round::<u32, 2>(0xc000_0201, 0xffff_ffff);
        round::<u128, 5>(0x2001_0db8_u128 << 96 | 7, u128::MAX);
    }
}
