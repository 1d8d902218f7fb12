//! Tuples as the program's maps have them: `struct tuple4`, `struct tuple6` of bpf/amp.bpf.c, in words, every field in
//! network order.

use crate::tuple::Tuple;
use tidemill_wire::flow::Addresses;

/// `struct tuple4`: source, destination, ports.
pub(super) type Key4 = [u32; 3];
/// `struct tuple6`.
pub(super) type Key6 = [u32; 9];

/// A tuple of either family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    V4(Key4),
    V6(Key6),
}

fn ports(tuple: &Tuple) -> u32 {
    let ([a, b], [c, d]) = (tuple.source_port.to_be_bytes(), tuple.destination_port.to_be_bytes());
    u32::from_ne_bytes([a, b, c, d])
}

fn ports_of(word: u32) -> (u16, u16) {
    let [a, b, c, d] = word.to_ne_bytes();
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

/// The four words of an IPv6 address.
fn words(address: u128) -> [u32; 4] {
    std::array::from_fn(|i| ((address >> (96 - 32 * i)) as u32).to_be())
}

fn address(words: &[u32]) -> u128 {
    words.iter().fold(0, |address, word| address << 32 | u128::from(u32::from_be(*word)))
}

pub(super) fn key(tuple: &Tuple) -> Key {
    match tuple.addresses {
        Addresses::V4 { src, dst } => Key::V4([src.to_be(), dst.to_be(), ports(tuple)]),
        Addresses::V6 { src, dst } => {
            let (s, d) = (words(src), words(dst));
            Key::V6([s[0], s[1], s[2], s[3], d[0], d[1], d[2], d[3], ports(tuple)])
        }
    }
}

pub(super) fn tuple4(key: &Key4) -> Tuple {
    let (source_port, destination_port) = ports_of(key[2]);
    let addresses = Addresses::V4 { src: u32::from_be(key[0]), dst: u32::from_be(key[1]) };
    Tuple { addresses, source_port, destination_port }
}

pub(super) fn tuple6(key: &Key6) -> Tuple {
    let (source_port, destination_port) = ports_of(key[8]);
    let addresses = Addresses::V6 { src: address(&key[..4]), dst: address(&key[4..8]) };
    Tuple { addresses, source_port, destination_port }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_come_back() {
        let addresses = Addresses::V4 { src: 0xc000_0201, dst: 0x0a00_0002 };
        let tuple = Tuple { addresses, source_port: 53, destination_port: 40_000 };
        let Key::V4(words) = key(&tuple) else { panic!() };
        assert_eq!(words[0].to_ne_bytes(), [192, 0, 2, 1]);
        assert_eq!(words[2].to_ne_bytes(), [0, 53, 0x9c, 0x40]);
        assert_eq!(tuple4(&words), tuple);
        let addresses = Addresses::V6 { src: 0x2001_0db8 << 96 | 7, dst: 0xfd00 << 112 | 9 };
        let tuple = Tuple { addresses, source_port: 123, destination_port: 0 };
        let Key::V6(words) = key(&tuple) else { panic!() };
        assert_eq!(words[0].to_ne_bytes(), [0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(words[7].to_ne_bytes(), [0, 0, 0, 9]);
        assert_eq!(tuple6(&words), tuple);
    }
}
