//! Models of the two filters as the code that the paper's authors published has them, for they explain counts of the paper that
//! sound filters do not give. Nothing is looked up with them but in these figures.
//!
//! The cuckoo filter has 2^22 slots of 16 bits (8 MB). Its hash is one CRC-32C step over 32 bits:
//! ```text
//! slots        4 from the hash of the address's first 32 bits on (buckets overlap), and 4 from that ^ the fingerprint's hash on
//! fingerprint  16 bits of the hash of (first 32 bits & next 32 bits), less the prefix length
//! ```
//! So all prefixes of /32 and shorter have the same fingerprint but for the length: of a key's /32, the eight slots that are looked at
//! hold one of those with a probability of 8 x load x the part of /32 in the table, whatever the key.
//!
//! The Bloom filter has 2^23 bits, one in each byte (8 MB), of which a prefix sets seven: one for each of the address's four words of 32
//! bits and three for pairs of them. Two words and a pair are 0 for whatever is not longer than /64, and another word and pair for
//! what is not longer than /32: there only two bits tell anything.

use tidemill_lpm::Prefix;
use tidemill_lpm::keys::Random;

/// A filter under count.
pub(super) trait Ask {
    /// Whether the prefix may be there, and how many hashes it took to say.
    fn ask(&self, prefix: Prefix<u128>) -> (bool, u64);
}

impl<F: Fn(Prefix<u128>) -> (bool, u64)> Ask for F {
    fn ask(&self, prefix: Prefix<u128>) -> (bool, u64) {
        self(prefix)
    }
}

/// One step of CRC-32C over a word, without inversions, as the instruction of x86 takes it.
fn crc(word: u32, seed: u32) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut crc, mut bit) = (byte as u32, 0);
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[byte] = crc;
            byte += 1;
        }
        table
    };
    (0..4).fold(word ^ seed, |crc, _| crc >> 8 ^ TABLE[(crc & 0xff) as usize])
}

/// The address in words, as a little-endian machine loads them.
fn words(prefix: Prefix<u128>) -> [u32; 4] {
    let bytes = prefix.first().to_be_bytes();
    [0, 4, 8, 12].map(|i| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]))
}

/// The published cuckoo filter.
pub(super) struct Cuckoo {
    slots: Vec<u16>,
    /// The clock's in the original.
    seed: u32,
    random: Random,
}

/// Slots by number.
const SLOTS: usize = 1 << 22;
/// Slots that a hash stands for.
const BUCKET: usize = 4;

impl Cuckoo {
    pub(super) fn new(prefixes: impl Iterator<Item = Prefix<u128>>, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut filter = Cuckoo { slots: vec![0; SLOTS + BUCKET - 1], seed: random.bits() as u32, random };
        prefixes.for_each(|prefix| filter.insert(prefix));
        filter
    }

    /// Fingerprint and first slot.
    fn item(&self, prefix: Prefix<u128>) -> (u16, usize) {
        let words = words(prefix);
        let fingerprint = crc(words[0] & words[1], self.seed) as u16;
        let less = if fingerprint > 128 { u16::from(prefix.len()) } else { 0 };
        (fingerprint - less, crc(words[0], self.seed) as usize % SLOTS)
    }

    fn other(&self, fingerprint: u16, slot: usize) -> usize {
        (slot ^ crc(fingerprint.into(), self.seed) as usize) % SLOTS
    }

    fn has(&self, fingerprint: u16, slot: usize) -> bool {
        self.slots[slot..slot + BUCKET].contains(&fingerprint)
    }

    fn insert(&mut self, prefix: Prefix<u128>) {
        // One like it is enough for both.
        if self.ask(prefix).0 {
            return;
        }
        let (mut fingerprint, mut first) = self.item(prefix);
        for _ in 0..=500 {
            let pair = [first, self.other(fingerprint, first)];
            let mut places = pair.into_iter().flat_map(|slot| slot..slot + BUCKET);
            if let Some(free) = places.find(|&slot| self.slots[slot] == 0) {
                self.slots[free] = fingerprint;
                return;
            }
            first = pair[self.random.below(2)];
            let slot = first + self.random.below(BUCKET);
            std::mem::swap(&mut self.slots[slot], &mut fingerprint);
        }
        // Too full: the last fingerprint is lost.
    }
}

impl Ask for Cuckoo {
    fn ask(&self, prefix: Prefix<u128>) -> (bool, u64) {
        let (fingerprint, slot) = self.item(prefix);
        if self.has(fingerprint, slot) {
            return (true, 1);
        }
        (self.has(fingerprint, self.other(fingerprint, slot)), 2)
    }
}

/// The published Bloom filter.
pub(super) struct Bloom {
    bits: Vec<bool>,
}

impl Bloom {
    pub(super) fn new(prefixes: impl Iterator<Item = Prefix<u128>>) -> Self {
        let mut bits = vec![false; 1 << 23];
        prefixes.for_each(|prefix| Self::places(prefix).for_each(|bit| bits[bit] = true));
        Bloom { bits }
    }

    fn places(prefix: Prefix<u128>) -> impl Iterator<Item = usize> {
        let [a, b, c, d] = words(prefix);
        // Any four numbers as seeds: another one exchanges bits.
        let hashed =
            [(a, 0x85eb_ca87), (b, 0xc2b2_ae3d), (c, 0x1656_67b1), (d, 0x27d4_eb2f), (b, d), (b, a), (d, c)];
        hashed.into_iter().map(|(word, seed)| crc(word, seed) as usize % (1 << 23))
    }
}

impl Ask for Bloom {
    fn ask(&self, prefix: Prefix<u128>) -> (bool, u64) {
        let unset = Self::places(prefix).position(|bit| !self.bits[bit]);
        unset.map_or((true, 7), |at| (false, at as u64 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::cuvpp::shape::Shape;

    #[test]
    fn the_crc_is_castagnolis() {
        // Of "1234", the first step of the check value: with the inversions that the whole has.
        assert_eq!(!crc(u32::from_le_bytes(*b"1234"), u32::MAX), 0xf63a_f4ee);
    }

    #[test]
    fn what_was_put_in_is_there_and_short_prefixes_look_alike() {
        let rib = Shape::rv_linx().table(20_000, 1);
        let (cuckoo, bloom) =
            (Cuckoo::new(rib.iter().map(|(p, _)| p), 1), Bloom::new(rib.iter().map(|(p, _)| p)));
        assert!(rib.iter().all(|(prefix, _)| cuckoo.ask(prefix).0 && bloom.ask(prefix) == (true, 7)));
        let fingerprints = |len| {
            let of = rib.iter().filter(move |(prefix, _)| prefix.len() == len);
            of.map(|(prefix, _)| cuckoo.item(prefix).0).collect::<std::collections::BTreeSet<u16>>().len()
        };
        assert_eq!((fingerprints(32), fingerprints(29)), (1, 1));
        assert!(fingerprints(48) > 1000);
    }
}
