//! The Toeplitz hash by which network cards spread flows over queues (Microsoft, "RSS Hashing Functions").
//!
//! The input is addresses and ports as they stand on the wire, source first. Each input bit that is set XORs in the
//! 32 bits of the key that start at the bit's own position:
//!
//! ```text
//! key    6d 5a 56 da 25 ...     input  80 00 ...  -> 6d5a56da
//!        '-- bit 0 -'                  40 00 ...  -> dab4adb4   (the key from bit 1 on)
//! ```
//! So the hash is linear, and [`Toeplitz`] looks up four input bits at once: a table of 16 words per half byte,
//! 4.5 KB in all, of which an IPv4 flow touches 1.5 KB. [`bitwise`] is the definition.

use crate::bytes::{part, put, u8_at};
use crate::flow::{Addresses, FlowKey};

/// Bytes in a key: 36 of the longest input and 4 of the last window.
pub const KEY_LEN: usize = 40;
/// Bytes in the longest input: two IPv6 addresses and two ports.
pub const MAX_INPUT_LEN: usize = 36;

/// The key of Microsoft's verification suite, the default of most cards.
pub const MICROSOFT_KEY: [u8; KEY_LEN] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// 0x6d5a repeated: with a period of 16 bits, swapping source and destination does not change the hash (Woo and
/// Park, "Scalable TCP Session Monitoring with Symmetric Receive-side Scaling", 2012).
pub const SYMMETRIC_KEY: [u8; KEY_LEN] = {
    let mut key = [0x6d; KEY_LEN];
    let mut i = 1;
    while i < KEY_LEN {
        key[i] = 0x5a;
        i += 2;
    }
    key
};

/// What a key is hashed over, as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    bytes: [u8; MAX_INPUT_LEN],
    len: usize,
}

impl Input {
    /// Source and destination address, and the ports if the key has them: 8, 12, 32 or 36 bytes.
    #[inline]
    pub fn new(key: &FlowKey) -> Self {
        let mut input = Input { bytes: [0; MAX_INPUT_LEN], len: 0 };
        match key.addresses {
            Addresses::V4 { src, dst } => {
                input.push(src.to_be_bytes());
                input.push(dst.to_be_bytes());
            }
            Addresses::V6 { src, dst } => {
                input.push(src.to_be_bytes());
                input.push(dst.to_be_bytes());
            }
        }
        if let Some((src, dst)) = key.ports {
            input.push(src.to_be_bytes());
            input.push(dst.to_be_bytes());
        }
        input
    }

    #[inline]
    fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        put(&mut self.bytes, self.len, bytes);
        self.len += N;
    }

    /// The bytes, in the order in which they are hashed.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        part(&self.bytes, 0, self.len)
    }
}

/// The hash by its definition, one bit at a time. The key is taken to go on with zeros.
pub fn bitwise(key: &[u8], input: &[u8]) -> u32 {
    let mut hash = 0;
    for (at, byte) in input.iter().enumerate() {
        for bit in 0..8 {
            if byte >> (7 - bit) & 1 != 0 {
                hash ^= window(key, at * 8 + bit);
            }
        }
    }
    hash
}

/// The 32 bits of `key` from `bit` on.
fn window(key: &[u8], bit: usize) -> u32 {
    let wide = (0..5).fold(0, |wide, i| wide << 8 | u64::from(u8_at(key, bit / 8 + i)));
    (wide >> (8 - bit % 8)) as u32
}

/// A key with its tables.
#[derive(Debug, Clone)]
pub struct Toeplitz {
    key: [u8; KEY_LEN],
    /// For half byte `i` of the input (0 is the upper half of byte 0), the hash of each value that it can have.
    tables: Box<[[u32; 16]; MAX_INPUT_LEN * 2]>,
}

impl Toeplitz {
    /// Makes the tables of a key.
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        let mut tables = Box::new([[0; 16]; MAX_INPUT_LEN * 2]);
        for (half, table) in tables.iter_mut().enumerate() {
            for (value, entry) in table.iter_mut().enumerate() {
                for bit in 0..4 {
                    if value >> (3 - bit) & 1 != 0 {
                        *entry ^= window(key, half * 4 + bit);
                    }
                }
            }
        }
        Toeplitz { key: *key, tables }
    }

    /// The key.
    pub fn key(&self) -> &[u8; KEY_LEN] {
        &self.key
    }

    /// Hashes `input`, of which bytes past the 36th do not count.
    #[inline]
    pub fn hash(&self, input: &[u8]) -> u32 {
        let (tables, _) = self.tables.as_chunks::<2>();
        let mut hash = 0;
        for ([upper, lower], byte) in tables.iter().zip(input) {
            hash ^= upper[usize::from(byte >> 4)] ^ lower[usize::from(byte & 15)];
        }
        hash
    }

    /// Hashes a flow: the 4-tuple when the key has ports, otherwise the addresses alone.
    #[inline]
    pub fn hash_flow(&self, key: &FlowKey) -> u32 {
        self.hash(Input::new(key).as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;
    use std::net::IpAddr;

    fn key(src: &str, dst: &str, ports: Option<(u16, u16)>) -> FlowKey {
        let addresses = match (src.parse().unwrap(), dst.parse().unwrap()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Addresses::V4 { src: src.to_bits(), dst: dst.to_bits() },
            (IpAddr::V6(src), IpAddr::V6(dst)) => Addresses::V6 { src: src.to_bits(), dst: dst.to_bits() },
            _ => panic!("two versions"),
        };
        FlowKey { addresses, protocol: Protocol::TCP, ports }
    }

    /// Microsoft, "Verifying the RSS Hash Calculation": destination, source, hash of addresses, hash with ports.
    const PUBLISHED: [(&str, u16, &str, u16, u32, u32); 8] = [
        ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e8fc2, 0x51ccc178),
        ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718262a, 0xc626b0ea),
        ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0a5de, 0x5c2b394a),
        ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x82989176, 0xafc7327f),
        ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d1809c5, 0x10e828a2),
        ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc18cd5, 0x40207d3d),
        ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c461c, 0xdde51bbf),
        (
            "fe80::200:f8ff:fe21:67cf",
            38024,
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            0x4b61e985,
            0x02d1feef,
        ),
    ];

    #[test]
    fn the_published_vectors() {
        let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
        for (dst, dst_port, src, src_port, two, four) in PUBLISHED {
            for (ports, hash) in [(None, two), (Some((src_port, dst_port)), four)] {
                let key = key(src, dst, ports);
                assert_eq!(bitwise(&MICROSOFT_KEY, Input::new(&key).as_slice()), hash, "{key}");
                assert_eq!(toeplitz.hash_flow(&key), hash, "{key}");
            }
        }
    }

    #[test]
    fn the_symmetric_key_is_symmetric_and_the_other_is_not() {
        let (symmetric, microsoft) = (Toeplitz::new(&SYMMETRIC_KEY), Toeplitz::new(&MICROSOFT_KEY));
        for (dst, dst_port, src, src_port, ..) in PUBLISHED {
            for ports in [None, Some((src_port, dst_port))] {
                let key = key(src, dst, ports);
                assert_eq!(symmetric.hash_flow(&key), symmetric.hash_flow(&key.reversed()));
                assert_ne!(microsoft.hash_flow(&key), microsoft.hash_flow(&key.reversed()));
            }
        }
    }
}
