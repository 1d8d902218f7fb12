//! One 128-bit hash of a region, from which filters and tables take all their places. It has a key: whoever announces routes cannot
//! know which of them share places.

use std::hash::{BuildHasher, RandomState};

/// Multiplies to 128 bits and folds the halves: every bit of both reaches every bit of the result.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The key of the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hasher([u64; 4]);

impl Hasher {
    /// For figures and tests, which are the same on every machine. Digits of pi.
    pub(super) const FIXED: Self =
        Hasher([0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1, 0x082e_fa98_ec4e_6c89]);

    /// One that nobody knows: the standard library's maps have their keys from there, too. No answer depends on it.
    pub(super) fn random() -> Self {
        let from = RandomState::new();
        Hasher(std::array::from_fn(|i| from.hash_one(i)))
    }

    /// Hashes the first `len` bits of `region`, whose other bits are zero.
    #[inline(always)]
    pub(super) fn hash(self, region: u128, len: u8) -> Hash {
        let [a, b, c, d] = self.0;
        let network = fold((region >> 64) as u64 ^ a, b ^ u64::from(len) << 56);
        let start = fold(network ^ region as u64 ^ c, d);
        Hash { start, step: fold(start ^ d, a) | 1 }
    }

    /// The same for a region of 64 bits or less, given by the first half of the address.
    #[inline(always)]
    pub(super) fn hash_network(self, region: u64, len: u8) -> Hash {
        self.hash(u128::from(region) << 64, len)
    }
}

/// A hash, as the start and the step of a walk round a circle of 2^64 (Kirsch and Mitzenmacher 2006: as good as that many
/// hashes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hash {
    start: u64,
    step: u64,
}

impl Hash {
    /// Place `i` of the walk, of `n` places.
    #[inline(always)]
    pub(super) fn place(self, i: u64, n: usize) -> usize {
        let at = self.start.wrapping_add(i.wrapping_mul(self.step));
        ((u128::from(at) * n as u128) >> 64) as usize
    }

    /// The place of `n` where a table puts it; not one of the filter's.
    #[inline(always)]
    pub(super) fn bucket(self, n: usize) -> usize {
        ((u128::from(self.step.rotate_left(32)) * n as u128) >> 64) as usize
    }
}
