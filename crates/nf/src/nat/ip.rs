//! What NAT needs to know of an address family: how its addresses become keys and words, and where they lie in a header.

use crate::header::InHeader;
use std::fmt::Debug;
use std::hash::Hash;
use std::net::IpAddr;
use tidemill_flow::key::Key;
use tidemill_wire::checksum::{update_u32, update_u128};
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
    /// The key of a mapping's session with a remote endpoint.
    fn session(mapping: u32, remote: Endpoint<Self>) -> Key<S>;
    /// What a session's key was made of.
    fn of_session(key: &Key<S>) -> (u32, Endpoint<Self>);
    /// A session's state: two words that change, then what it is about.
    fn state(head: [u64; 2], about: &About<Self>) -> [u64; T];
    /// What a session is about.
    fn about(state: &[u64; T]) -> About<Self>;
    /// Writes an address in network order.
    fn write(self, bytes: &mut [u8]);
    /// A checksum after this address was replaced by `new` in what it covers.
    fn updated(self, new: Self, check: u16) -> u16;
    /// As people write it.
    fn ip(self) -> IpAddr;
    /// From that.
    fn of_ip(ip: IpAddr) -> Option<Self>;
    /// As a number.
    fn bits(self) -> u128;
    /// From a number.
    fn of_bits(bits: u128) -> Self;
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
    fn session(mapping: u32, remote: Endpoint<u32>) -> Key<2> {
        Key([u64::from(mapping) << 32 | u64::from(remote.address), u64::from(remote.port)])
    }

    fn of_session(key: &Key<2>) -> (u32, Endpoint<u32>) {
        ((key.0[0] >> 32) as u32, Endpoint { address: key.0[0] as u32, port: key.0[1] as u16 })
    }

    fn state([first, second]: [u64; 2], about: &About<u32>) -> [u64; 4] {
        let ports = u64::from(about.inside.port) << 32 | u64::from(about.outside.port) << 16;
        let addresses = u64::from(about.inside.address) << 32 | u64::from(about.outside.address);
        [first, second, addresses, ports | about.proto as u64]
    }

    fn about(state: &[u64; 4]) -> About<u32> {
        let (addresses, ports) = (state[2], state[3]);
        About {
            proto: Proto::of(ports & 0xff),
            inside: Endpoint { address: (addresses >> 32) as u32, port: (ports >> 32) as u16 },
            outside: Endpoint { address: addresses as u32, port: (ports >> 16) as u16 },
        }
    }

    #[inline(always)]
    fn write(self, bytes: &mut [u8]) {
        if let Some(four) = bytes.first_chunk_mut() {
            *four = self.to_be_bytes();
        }
    }

    #[inline(always)]
    fn updated(self, new: u32, check: u16) -> u16 {
        update_u32(check, self, new)
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

impl Family<3, 3, 7> for u128 {
    #[inline(always)]
    fn endpoint(proto: Proto, Endpoint { address, port }: Endpoint<u128>) -> Key<3> {
        Key([(address >> 64) as u64, address as u64, u64::from(port) << 8 | proto as u64])
    }

    fn of_endpoint(key: &Key<3>) -> (Proto, Endpoint<u128>) {
        let [high, low, rest] = key.0;
        let address = u128::from(high) << 64 | u128::from(low);
        (Proto::of(rest & 0xff), Endpoint { address, port: (rest >> 8) as u16 })
    }

    #[inline(always)]
    fn session(mapping: u32, Endpoint { address, port }: Endpoint<u128>) -> Key<3> {
        Key([(address >> 64) as u64, address as u64, u64::from(mapping) << 32 | u64::from(port)])
    }

    fn of_session(key: &Key<3>) -> (u32, Endpoint<u128>) {
        let [high, low, rest] = key.0;
        let address = u128::from(high) << 64 | u128::from(low);
        ((rest >> 32) as u32, Endpoint { address, port: rest as u16 })
    }

    fn state([first, second]: [u64; 2], about: &About<u128>) -> [u64; 7] {
        let (inside, outside) = (about.inside.address, about.outside.address);
        let ports = u64::from(about.inside.port) << 32 | u64::from(about.outside.port) << 16;
        [
            first,
            second,
            (inside >> 64) as u64,
            inside as u64,
            (outside >> 64) as u64,
            outside as u64,
            ports | about.proto as u64,
        ]
    }

    fn about(state: &[u64; 7]) -> About<u128> {
        let address = |at: usize| u128::from(state[at]) << 64 | u128::from(state[at + 1]);
        let ports = state[6];
        About {
            proto: Proto::of(ports & 0xff),
            inside: Endpoint { address: address(2), port: (ports >> 32) as u16 },
            outside: Endpoint { address: address(4), port: (ports >> 16) as u16 },
        }
    }

    #[inline(always)]
    fn write(self, bytes: &mut [u8]) {
        if let Some(all) = bytes.first_chunk_mut() {
            *all = self.to_be_bytes();
        }
    }

    #[inline(always)]
    fn updated(self, new: u128, check: u16) -> u16 {
        update_u128(check, self, new)
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
            assert_eq!(A::of_session(&A::session(0x8765_4321, remote)), (0x8765_4321, remote));
            let about = About { proto, inside, outside };
            let state = A::state([1 << 63 | 1, 2], &about);
            assert_eq!((A::about(&state), &state[..2]), (about, &[1 << 63 | 1, 2][..]));
            let mut bytes = [0; 16];
            a.write(&mut bytes);
            assert_eq!((A::read(&bytes), A::of_ip(a.ip()), A::of_bits(a.bits())), (a, Some(a), a));
        }
    }

    #[test]
    fn what_goes_into_words_comes_out_of_them() {
        round(0xc000_0201_u32, 0xffff_ffff, 1);
        round(0x2001_0db8_u128 << 96 | 7, u128::MAX, 1 << 127);
    }
}
