//! The hash of a prefix: the CRC-32 and the CRC-32C of its address and length, of all lengths of a key from one walk over its bytes.
//!
//! A CRC is linear: that of a message is the exclusive or of what each byte adds at its place. So the hash of a key cut at any
//! length is a sum over its whole bytes, which all lengths share, and what the cut byte and the length add:
//! ```text
//! sums[i]     what the key's first i bytes add          TABLE[d][b]   what byte b adds, d bytes before the end
//!
//! message     a0 a1 ... a15 len                         hash(key, 20) = sums[2] ^ TABLE[14][a2 & 0xf0] ^ TABLE[0][20]
//! ```
//! Two loads of 8 bytes for a length, whichever polynomial, on any CPU, over the whole address.
//!
//! # Limits: chosen prefixes
//! The hash is the papers' and has no key, and being linear it would not help to mix one into the address: which prefixes collide stays
//! the same. Who may announce routes can find any number of long prefixes with one hash by solving linear equations. Such prefixes fill
//! bucket after bucket of the [table](super::HashTable): answers stay right, but each lookup that comes to their run of full buckets
//! walks to its end (20,000 host routes of one hash: a hundredth of the rate and less); so does each change of one of them. The [cuckoo
//! filter](crate::cuvpp::CuckooFilter) counts those of one hash and is no slower; but prefixes of several hashes, chosen so that they share a few
//! of its buckets, are in its stash, through which every question walks. The structures that hash so are yardsticks, to be compared with; `auto`
//! never takes one. Where routes come from others take one that does not hash, or `sail-hybrid`, whose hash has a random key.

use crate::prefix::{Address, Prefix};
use tidemill_lookup::probe::Probe;

/// Bytes of the longest message: an IPv6 address and a length.
const BYTES: usize = 17;

/// The generator of CRC-32 (IEEE 802.3), bits reversed.
const CRC32: u32 = 0xedb8_8320;
/// The generator of CRC-32C (Castagnoli), bits reversed.
const CRC32C: u32 = 0x82f6_3b78;

/// The remainder after eight more bits of zero.
const fn step(mut crc: u32, generator: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        crc = if crc & 1 == 1 { crc >> 1 ^ generator } else { crc >> 1 };
        bit += 1;
    }
    crc
}

/// One byte more: CRC-32 in the low half, CRC-32C in the high one.
const fn both(crcs: u64) -> u64 {
    (step((crcs >> 32) as u32, CRC32C) as u64) << 32 | step(crcs as u32, CRC32) as u64
}

const fn table() -> [[u64; 256]; BYTES] {
    let mut table = [[0; 256]; BYTES];
    let mut byte = 0;
    while byte < 256 {
        let mut crcs = both((byte as u64) << 32 | byte as u64);
        let mut d = 0;
        while d < BYTES {
            table[d][byte] = crcs;
            crcs = both(crcs);
            d += 1;
        }
        byte += 1;
    }
    table
}

static TABLE: [[u64; 256]; BYTES] = table();

/// Of a byte in two halves: what the first one, two, three and all four bits of each half add, the rest of the byte being zero.
const fn halves() -> [[[[u64; 4]; 16]; 2]; BYTES] {
    let mut halves = [[[[0; 4]; 16]; 2]; BYTES];
    let mut i = 0;
    while i < BYTES * 2 * 16 * 4 {
        let (d, half, value, bits) = (i / 128, i / 64 % 2, i / 4 % 16, i % 4);
        let kept = value & (0xf0 >> (bits + 1)) & 0xf;
        halves[d][half][value][bits] = TABLE[d][if half == 0 { kept << 4 } else { kept }];
        i += 1;
    }
    halves
}

/// For kernels that hash eight lengths of a key at once: 1 KB for each byte of an address.
static HALVES: [[[[u64; 4]; 16]; 2]; BYTES] = halves();

/// Bytes that hashing eight lengths at once can load from, beside [`table_bytes`].
pub const fn halves_bytes<A: Address>() -> usize {
    (width::<A>() + 1) * 128 * size_of::<u64>()
}

/// What the CRCs' first and last inversion of all bits add to a message of so many bytes.
const fn ends(bytes: usize) -> u64 {
    let (mut crcs, mut i) = (u64::MAX, 0);
    while i < bytes {
        crcs = both(crcs);
        i += 1;
    }
    crcs ^ u64::MAX
}

/// Bytes of an address.
const fn width<A: Address>() -> usize {
    A::BITS as usize / 8
}

/// Bytes that hashing can load from.
pub const fn table_bytes<A: Address>() -> usize {
    (width::<A>() + 1) * 256 * size_of::<u64>()
}

/// A length as hashing wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Cut {
    /// What the length itself adds.
    tag: u64,
    /// The prefix length.
    pub len: u8,
    /// Its whole bytes.
    whole: u8,
    /// The bits of the next byte that count.
    mask: u8,
}

impl Cut {
    /// For a length of at most the family's width.
    pub fn new(len: u8) -> Self {
        let mask = !(0xff_u16 >> (len % 8)) as u8;
        Cut { tag: TABLE[0][usize::from(len)], len, whole: len / 8, mask }
    }

    /// Bytes of the key that [`Sums`] must have.
    pub fn bytes(self) -> usize {
        usize::from(self.len.div_ceil(8))
    }

    /// Tells a load of this.
    #[inline(always)]
    pub fn tell<P: Probe + ?Sized>(&self, dependent: bool, probe: &P) {
        probe.read((&raw const *self).addr(), size_of::<Self>(), dependent);
    }
}

/// What the bytes of one key add, up to each of them.
#[derive(Debug, Clone, Copy)]
pub struct Sums {
    sums: [u64; BYTES],
    /// The key from its first byte on, and a zero behind it.
    key: [u8; BYTES],
}

impl Sums {
    /// In place of a key.
    pub const EMPTY: Sums = Sums { sums: [0; BYTES], key: [0; BYTES] };

    /// Of the key's first `bytes` bytes (at most all).
    #[inline(always)]
    pub fn new<A: Address, P: Probe + ?Sized>(key: A, bytes: usize, probe: &P) -> Self {
        let mut sums = Self::EMPTY;
        let first = key.to_u128() << (128 - u32::from(A::BITS));
        sums.key[..16].copy_from_slice(&first.to_be_bytes());
        let mut sum = const { ends(width::<u32>() + 1) };
        if A::BITS == 128 {
            sum = const { ends(width::<u128>() + 1) };
        }
        sums.sums[0] = sum;
        for i in 0..bytes.min(width::<A>()) {
            let add = &TABLE[width::<A>() - i][usize::from(sums.key[i])];
            probe.read((&raw const *add).addr(), 8, false);
            sum ^= add;
            sums.sums[i + 1] = sum;
        }
        sums
    }

    /// The hash of the key cut at a length.
    #[inline(always)]
    pub fn at<A: Address, P: Probe + ?Sized>(&self, cut: Cut, probe: &P) -> u64 {
        let whole = usize::from(cut.whole);
        // Behind the last byte the key has a zero, which adds nothing.
        let add = &TABLE[width::<A>() - whole][usize::from(self.key[whole] & cut.mask)];
        probe.read((&raw const *add).addr(), 8, false);
        self.sums[whole] ^ add ^ cut.tag
    }
}

/// Eight lengths that end in one byte of the key: those that are 1 to 8 bits longer than `8 * whole`.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Eight {
    /// What each length adds.
    pub tags: [u64; 8],
    /// The bytes before.
    pub whole: usize,
}

impl Eight {
    /// For `whole` bytes before, at most 15.
    pub fn new(whole: usize) -> Self {
        let tags = std::array::from_fn(|i| TABLE[0][8 * whole + i + 1]);
        Eight { tags, whole }
    }
}

impl Sums {
    /// For the hashes of eight lengths: what all have in common, and what the halves of the byte that they end in add (the second half
    /// to lengths 4 to 7 only, and to those all of the first half, too). The sums must have the bytes before.
    #[inline(always)]
    pub fn eight<A: Address>(&self, whole: usize) -> (u64, &'static [u64; 4], &'static [u64; 4]) {
        let byte = usize::from(self.key[whole]);
        let [first, second] = &HALVES[width::<A>() - whole];
        (self.sums[whole], &first[byte >> 4], &second[byte & 0xf])
    }
}

/// The hash of a prefix: CRC-32 of the address's bytes and the length in the low half, CRC-32C in the high one.
pub fn hash<A: Address>(prefix: Prefix<A>) -> u64 {
    let cut = Cut::new(prefix.len());
    Sums::new(prefix.first(), cut.bytes(), &()).at::<A, ()>(cut, &())
}

/// A number below `n` from 32 bits.
#[inline(always)]
pub(crate) fn below(bits: u32, n: u32) -> u32 {
    ((u64::from(bits) * u64::from(n)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Random;

    /// Bit by bit, as the standards define them.
    fn crc(message: &[u8], generator: u32) -> u32 {
        !message.iter().fold(u32::MAX, |crc, &byte| step(crc ^ u32::from(byte), generator))
    }

    #[test]
    fn hashes_are_the_standards_crcs() {
        assert_eq!(crc(b"123456789", CRC32), 0xcbf4_3926);
        assert_eq!(crc(b"123456789", CRC32C), 0xe306_9283);
        let mut random = Random::new(1);
        for _ in 0..2_000 {
            let six = Prefix::<u128>::new(random.address(), random.below(129) as u8).unwrap();
            let four = Prefix::<u32>::new(random.address(), random.below(33) as u8).unwrap();
            let messages = [
                ([&six.first().to_be_bytes()[..], &[six.len()]].concat(), hash(six)),
                ([&four.first().to_be_bytes()[..], &[four.len()]].concat(), hash(four)),
            ];
            for (message, hash) in messages {
                let expected = u64::from(crc(&message, CRC32C)) << 32 | u64::from(crc(&message, CRC32));
                assert_eq!(hash, expected);
            }
        }
    }

    #[test]
    fn eight_lengths_from_two_halves() {
        let key = 0x2001_0db8_5555_ffff_aaaa_0001_1234_5678_u128;
        let sums = Sums::new(key, 16, &());
        for whole in 0..16 {
            let (sum, first, second) = sums.eight::<u128>(whole);
            let tags = Eight::new(whole).tags;
            for i in 0..8 {
                let add = if i < 4 { first[i] } else { first[3] ^ second[i - 4] };
                let len = (8 * whole + i + 1) as u8;
                assert_eq!(sum ^ add ^ tags[i], hash(Prefix::new(key, len).unwrap()), "{len}");
            }
        }
    }

    #[test]
    fn one_walk_serves_every_length() {
        let key = 0x2001_0db8_5555_ffff_aaaa_0001_1234_5678_u128;
        let sums = Sums::new(key, 16, &());
        for len in 0..=128 {
            assert_eq!(
                sums.at::<u128, ()>(Cut::new(len), &()),
                hash(Prefix::new(key, len).unwrap()),
                "{len}"
            );
        }
    }
}
