//! What NAT needs to know of an address family: how its addresses become keys and words, and where they lie in a header.

use crate::header::InHeader;
use std::fmt::Debug;
use std::hash::Hash;
use std::net::IpAddr;
use tidemill_flow::key::Key;
use tidemill_wire::{ipv4, ipv6};

/// The protocols whose packets have something that tells sessions of two hosts apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Proto {
    /// TCP: ports.
    Tcp = 0,
    /// UDP: ports.
    Udp = 1,
    /// ICMP queries: the identifier stands for both ports.
    Icmp = 2,
}

impl Proto {
    /// All of them, by number.
    pub const ALL: [Proto; 3] = [Proto::Tcp, Proto::Udp, Proto::Icmp];

    /// As in configurations and answers.
    pub fn name(self) -> &'static str {
        ["tcp", "udp", "icmp"][self as usize]
    }

    pub(crate) fn of(number: u64) -> Proto {
        Proto::ALL[(number as usize).min(2)]
    }
}

/// An address and a port; of ICMP queries the identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint<A> {
    /// The address.
    pub address: A,
    /// The port.
    pub port: u16,
}

/// An address family, with the words of: an endpoint's key (`E`), a session's key (`S`), a session's state (`T`).
pub trait Family<const E: usize, const S: usize, const T: usize>:
    InHeader + Eq + Ord + Hash + Debug + Default + Send + Sync + 'static
{
    /// An endpoint's key.
    fn endpoint(proto: Proto, endpoint: Endpoint<Self>) -> Key<E>;
    /// The endpoint of a key.
    fn of_endpoint(key: &Key<E>) -> (Proto, Endpoint<Self>);
    /// A session's key: what its packets from inside show.
    fn session(proto: Proto, inside: Endpoint<Self>, remote: Endpoint<Self>) -> Key<S>;
    /// What a session's key was made of.
    fn of_session(key: &Key<S>) -> (Proto, Endpoint<Self>, Endpoint<Self>);
    /// A session's state: two words that change, then its mapping: the number, and what that looks like outside.
    fn state(head: [u64; 2], mapping: u32, outside: Endpoint<Self>) -> [u64; T];
    /// Of a session's state the mapping: the number, and what that looks like outside.
    fn of_state(state: &[u64; T]) -> (u32, Endpoint<Self>);
    /// Writes an address in network order.
    fn write(self, bytes: &mut [u8]);
    /// What a checksum's sum grows by where this address is replaced by `new` in what it covers ([`fold`](tidemill_wire::checksum::fold)).
    fn difference(self, new: Self) -> u64;
    /// As people write it.
    fn ip(self) -> IpAddr;
    /// From that.
    fn of_ip(ip: IpAddr) -> Option<Self>;
    /// As a number.
    fn bits(self) -> u128;
    /// From a number.
    fn of_bits(bits: u128) -> Self;
    /// What a session is about, by its key and its state.
    fn about(key: &Key<S>, state: &[u64; T]) -> About<Self> {
        let ((proto, inside, _), (_, outside)) = (Self::of_session(key), Self::of_state(state));
        About { proto, inside, outside }
    }
}

/// What a session is about, besides its remote endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About<A> {
    /// The protocol.
    pub proto: Proto,
    /// The inside endpoint.
    pub inside: Endpoint<A>,
    /// What it looks like outside.
    pub outside: Endpoint<A>,
}

/// The ports of a session's key, above the protocol.
#[inline(always)]
fn ports(inside: u16, remote: u16) -> u64 {
    u64::from(inside) << 32 | u64::from(remote) << 16
}

#[inline(always)]
fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

#[inline(always)]
fn whole(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

impl Family<1, 2, 4> for u32 {
    #[inline(always)]
    fn endpoint(proto: Proto, Endpoint { address, port }: Endpoint<u32>) -> Key<1> {
        Key([u64::from(address) << 32 | u64::from(port) << 8 | proto as u64])
    }

    fn of_endpoint(key: &Key<1>) -> (Proto, Endpoint<u32>) {
        let word = key.0[0];
        (Proto::of(word & 0xff), Endpoint { address: (word >> 32) as u32, port: (word >> 8) as u16 })
    }

    #[inline(always)]
    fn session(proto: Proto, inside: Endpoint<u32>, remote: Endpoint<u32>) -> Key<2> {
        let addresses = u64::from(inside.address) << 32 | u64::from(remote.address);
        Key([addresses, ports(inside.port, remote.port) | proto as u64])
    }

    #[inline(always)]
    fn of_session(key: &Key<2>) -> (Proto, Endpoint<u32>, Endpoint<u32>) {
        let [addresses, ports] = key.0;
        let inside = Endpoint { address: (addresses >> 32) as u32, port: (ports >> 32) as u16 };
        (Proto::of(ports & 0xff), inside, Endpoint { address: addresses as u32, port: (ports >> 16) as u16 })
    }

    fn state([first, second]: [u64; 2], mapping: u32, outside: Endpoint<u32>) -> [u64; 4] {
        [first, second, u64::from(outside.address) << 32 | u64::from(mapping), outside.port.into()]
    }

    #[inline(always)]
    fn of_state(state: &[u64; 4]) -> (u32, Endpoint<u32>) {
        (state[2] as u32, Endpoint { address: (state[2] >> 32) as u32, port: state[3] as u16 })
    }

    #[inline(always)]
    fn write(self, bytes: &mut [u8]) {
        if let Some(four) = bytes.first_chunk_mut() {
            *four = self.to_be_bytes();
        }
    }

    #[inline(always)]
    fn difference(self, new: u32) -> u64 {
        u64::from(!self) + u64::from(new)
    }

    fn ip(self) -> IpAddr {
        IpAddr::V4(self.into())
    }

    fn of_ip(ip: IpAddr) -> Option<u32> {
        match ip {
            IpAddr::V4(ip) => Some(ip.into()),
            IpAddr::V6(_) => None,
        }
    }

    fn bits(self) -> u128 {
        self.into()
    }

    fn of_bits(bits: u128) -> u32 {
        bits as u32
    }
}

impl Family<3, 5, 5> for u128 {
    #[inline(always)]
    fn endpoint(proto: Proto, Endpoint { address, port }: Endpoint<u128>) -> Key<3> {
        let [high, low] = halves(address);
        Key([high, low, u64::from(port) << 8 | proto as u64])
    }

    fn of_endpoint(key: &Key<3>) -> (Proto, Endpoint<u128>) {
        let [high, low, rest] = key.0;
        (Proto::of(rest & 0xff), Endpoint { address: whole(high, low), port: (rest >> 8) as u16 })
    }

    #[inline(always)]
    fn session(proto: Proto, inside: Endpoint<u128>, remote: Endpoint<u128>) -> Key<5> {
        let ([a, b], [c, d]) = (halves(inside.address), halves(remote.address));
        Key([a, b, c, d, ports(inside.port, remote.port) | proto as u64])
    }

    #[inline(always)]
    fn of_session(key: &Key<5>) -> (Proto, Endpoint<u128>, Endpoint<u128>) {
        let [a, b, c, d, ports] = key.0;
        let inside = Endpoint { address: whole(a, b), port: (ports >> 32) as u16 };
        (Proto::of(ports & 0xff), inside, Endpoint { address: whole(c, d), port: (ports >> 16) as u16 })
    }

    fn state([first, second]: [u64; 2], mapping: u32, outside: Endpoint<u128>) -> [u64; 5] {
        let [high, low] = halves(outside.address);
        [first, second, high, low, u64::from(mapping) << 32 | u64::from(outside.port)]
    }

    #[inline(always)]
    fn of_state(state: &[u64; 5]) -> (u32, Endpoint<u128>) {
        let [_, _, high, low, rest] = *state;
        ((rest >> 32) as u32, Endpoint { address: whole(high, low), port: rest as u16 })
    }

    #[inline(always)]
    fn write(self, bytes: &mut [u8]) {
        if let Some(all) = bytes.first_chunk_mut() {
            *all = self.to_be_bytes();
        }
    }

    #[inline(always)]
    fn difference(self, new: u128) -> u64 {
        let sum = |v: u128| [0, 32, 64, 96].map(|shift| u64::from((v >> shift) as u32)).iter().sum::<u64>();
        sum(!self) + sum(new)
    }

    fn ip(self) -> IpAddr {
        IpAddr::V6(self.into())
    }

    fn of_ip(ip: IpAddr) -> Option<u128> {
        match ip {
            IpAddr::V4(_) => None,
            IpAddr::V6(ip) => Some(ip.into()),
        }
    }

    fn bits(self) -> u128 {
        self
    }

    fn of_bits(bits: u128) -> u128 {
        bits
    }
}

// Addresses are the last of a header.
const _: () = assert!(ipv4::HEADER_LEN == 12 + 2 * 4 && ipv6::HEADER_LEN == 8 + 2 * 16);

#[cfg(test)]
mod tests {
    use super::*;

    fn round<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(a: A, b: A, c: A) {
        for proto in Proto::ALL {
            let [inside, outside, remote] =
                [(a, 0xabcd), (b, 0x1234), (c, 0xffff)].map(|(address, port)| Endpoint { address, port });
            assert_eq!(A::of_endpoint(&A::endpoint(proto, inside)), (proto, inside));
            let key = A::session(proto, inside, remote);
            assert_eq!(A::of_session(&key), (proto, inside, remote));
            let state = A::state([1 << 63 | 1, 2], 0x8765_4321, outside);
            assert_eq!((A::of_state(&state), &state[..2]), ((0x8765_4321, outside), &[1 << 63 | 1, 2][..]));
            assert_eq!(A::about(&key, &state), About { proto, inside, outside });
            let mut bytes = [0; 16];
            a.write(&mut bytes);
            assert_eq!((A::read(&bytes), A::of_ip(a.ip()), A::of_bits(a.bits())), (a, Some(a), a));
        }
    }

    #[test]
    fn an_address_replaced_is_a_checksum_updated() {
        use tidemill_wire::checksum::{fold, update_u32, update_u128};
        let (mut before, mut new) = (1_u128, u128::MAX / 7);
        for check in (0..=u16::MAX).step_by(997) {
            (before, new) =
                (new.rotate_left(29) ^ u128::from(check), before.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let updated = |difference: u64| !fold(u64::from(!check) + difference);
            assert_eq!(updated(before.difference(new)), update_u128(check, before, new));
            let (before, new) = (before as u32, new as u32);
            assert_eq!(updated(before.difference(new)), update_u32(check, before, new));
        }
    }

    #[test]
    fn what_goes_into_words_comes_out_of_them() {
        round(0xc000_0201_u32, 0xffff_ffff, 1);
        round(0x2001_0db8_u128 << 96 | 7, u128::MAX, 1 << 127);
    }
}
