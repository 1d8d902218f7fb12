//! From keys to the 64 bits that tables are addressed by.
//!
//! Every table takes the hash from its caller, who computes it ([`Keyed`]) or has it from the NIC ([`spread`]). All 64
//! bits must be good: tables take the place from the high half, tags from the low end, shards from the bits between.

use crate::key::Key;
use crate::simd::on_this_cpu;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// Hashes keys of `W` words.
pub trait KeyHash<const W: usize> {
    /// The hash of one key.
    fn hash(&self, key: &Key<W>) -> u64;

    /// The hashes of many. `out` is at least as long as `keys`.
    #[inline]
    fn hash_batch(&self, keys: &[Key<W>], out: &mut [u64]) {
        for (key, out) in keys.iter().zip(out) {
            *out = self.hash(key);
        }
    }
}

/// A strongly universal hash with a secret, for tables whose keys an attacker chooses: whatever two keys he picks, they
/// collide in all 64 bits with probability 2^-64 over the secret, and every pair of hash values is equally likely.
///
/// Two independent functions of 32 bits, each pair-multiply-shift for vectors (Thorup, "High Speed Hashing for Integers and
/// Strings", 2015, section 3) over the words' halves modulo 2^64: `h(x) = (sum (a[2i] + x[2i+1]) (a[2i+1] + x[2i]) + b) >> 32`. A
/// bijection on 64 bits follows; that keeps the probabilities and breaks up the arithmetic progressions that multiplication
/// leaves. An attacker who can time our answers learns about the secret in the end: change it from time to time.
#[derive(Clone, Copy)]
pub struct Keyed<const W: usize> {
    /// For each word of the key: factors of its low and its high half, for both functions.
    factors: [[[u64; 2]; 2]; W],
    offsets: [u64; 2],
}

/// The secret is not shown.
impl<const W: usize> std::fmt::Debug for Keyed<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyed").finish_non_exhaustive()
    }
}

impl<const W: usize> Keyed<W> {
    /// A hash with this secret, which SipHash-2-4 stretches to the parameters.
    pub fn new(secret: u128) -> Self {
        let mut drawn = 0_u64;
        let mut draw = || {
            let mut sip = SipHasher24::new_with_keys(secret as u64, (secret >> 64) as u64);
            sip.write_u64(drawn);
            drawn += 1;
            sip.finish()
        };
        let mut pair = || [draw(), draw()];
        let offsets = pair();
        Keyed { factors: std::array::from_fn(|_| [pair(), pair()]), offsets }
    }

    /// The hashes of keys that are 0 but in some words: bit `i` of `words` is set where word `i` of one of them may be something else (so `W` is 32 at most). They are those of
    /// [`hash`](KeyHash::hash), at the cost of these words alone. `out` is at least as long as `keys`.
    pub fn hash_sparse(&self, keys: &[Key<W>], words: u32, out: &mut [u64]) {
        on_this_cpu(
            #[inline(always)]
            || self.hash_words(keys, words, out),
        );
    }

    #[inline(always)]
    fn hash_words(&self, keys: &[Key<W>], words: u32, out: &mut [u64]) {
        const LANES: usize = 8;
        const { assert!(W <= u32::BITS as usize, "a bit for each word") };
        let mut still = self.offsets;
        for (word, factors) in self.factors.iter().enumerate() {
            for (sum, [a, b]) in still.iter_mut().zip(factors) {
                let zero = if words >> word & 1 == 0 { a.wrapping_mul(*b) } else { 0 };
                *sum = sum.wrapping_add(zero);
            }
        }
        let (whole, rest) = keys.as_chunks::<LANES>();
        let (of_whole, of_rest) = out.split_at_mut(whole.len() * LANES);
        for (keys, out) in whole.iter().zip(of_whole.as_chunks_mut::<LANES>().0) {
            *out = self.hash_lanes(keys, words, still);
        }
        if !rest.is_empty() {
            let mut keys = [Key([0; W]); LANES];
            keys[..rest.len()].copy_from_slice(rest);
            let ends = self.hash_lanes(&keys, words, still);
            of_rest[..rest.len()].copy_from_slice(&ends[..rest.len()]);
        }
    }

    /// The words of eight keys are gathered in registers: what is written word by word and read as a vector is waited for until it is in the cache.
    #[inline(always)]
    fn hash_lanes<const LANES: usize>(
        &self,
        keys: &[Key<W>; LANES],
        words: u32,
        still: [u64; 2],
    ) -> [u64; LANES] {
        let mut sums = still.map(|sum| [sum; LANES]);
        let mut rest = words;
        while rest != 0 {
            let word = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let Some([[a0, b0], [a1, b1]]) = self.factors.get(word) else { break };
            let column: [u64; LANES] = std::array::from_fn(|i| keys[i].0[word]);
            for i in 0..LANES {
                let (low, high) = (column[i] & u64::from(u32::MAX), column[i] >> 32);
                let of = |a: &u64, b: &u64| a.wrapping_add(high).wrapping_mul(b.wrapping_add(low));
                sums[0][i] = sums[0][i].wrapping_add(of(a0, b0));
                sums[1][i] = sums[1][i].wrapping_add(of(a1, b1));
            }
        }
        std::array::from_fn(|i| end([sums[0][i], sums[1][i]]))
    }
}

/// From the sums to the hash.
#[inline(always)]
fn end(sums: [u64; 2]) -> u64 {
    let h = (sums[0] >> 32 << 32) | (sums[1] >> 32);
    let h = (h ^ (h >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ (h >> 32)
}

impl<const W: usize> KeyHash<W> for Keyed<W> {
    #[inline(always)]
    fn hash(&self, key: &Key<W>) -> u64 {
        let mut sums = self.offsets;
        for (word, factors) in key.0.iter().zip(&self.factors) {
            let (low, high) = (word & u64::from(u32::MAX), word >> 32);
            for (sum, [a, b]) in sums.iter_mut().zip(factors) {
                *sum = sum.wrapping_add(a.wrapping_add(high).wrapping_mul(b.wrapping_add(low)));
            }
        }
        end(sums)
    }

    #[inline]
    fn hash_batch(&self, keys: &[Key<W>], out: &mut [u64]) {
        on_this_cpu(
            #[inline(always)]
            || {
                for (key, out) in keys.iter().zip(out) {
                    *out = self.hash(key);
                }
            },
        );
    }
}

/// Spreads a 32-bit hash that the caller has already, such as a NIC's RSS hash, over 64 bits. Flows that share the 32
/// bits share all 64: a 10^8-flow table sees such pairs (one flow in 43 has a twin), and tells them apart by their keys.
#[inline(always)]
pub fn spread(rss: u32) -> u64 {
    mix(u64::from(rss).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The factors of [`mix`].
pub(crate) const MIX: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];

/// A bijection that lets every bit of the input change every bit of the result (David Stafford's variant 13 of
/// MurmurHash3's finalizer).
#[inline(always)]
pub fn mix(mut h: u64) -> u64 {
    h = (h ^ (h >> 30)).wrapping_mul(MIX[0]);
    h = (h ^ (h >> 27)).wrapping_mul(MIX[1]);
    h ^ (h >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn sparse_keys_have_their_hashes() {
        let keyed = Keyed::<8>::new(7);
        for words in 0..256_u32 {
            for n in [1, 7, 8, 9, 32] {
                let mut keys = vec![Key([0; 8]); n];
                for (at, key) in keys.iter_mut().enumerate() {
                    for word in (0..8).filter(|word| words >> word & 1 != 0) {
                        key.0[word] = mix((at * 8 + word) as u64) * u64::from(at % 3 != 0);
                    }
                }
                let mut out = vec![0; n];
                keyed.hash_sparse(&keys, words, &mut out);
                let whole: Vec<u64> = keys.iter().map(|key| keyed.hash(key)).collect();
                assert_eq!(out, whole, "{words:#x}");
            }
        }
    }

    #[test]
    fn secrets_change_everything_and_every_word_counts() {
        let (a, b) = (Keyed::<5>::new(1), Keyed::<5>::new(2));
        let key = Key([1, 2, 3, 4, 5]);
        assert_ne!(a.hash(&key), b.hash(&key));
        assert_eq!(a.hash(&key), Keyed::<5>::new(1).hash(&key));
        for i in 0..5 {
            let mut other = key;
            other.0[i] ^= 1 << 63;
            let distance = (a.hash(&key) ^ a.hash(&other)).count_ones();
            assert!((10..55).contains(&distance), "word {i}: {distance} bits differ");
        }
        let swapped = Key([2, 1, 4, 3, 5]);
        assert_ne!(a.hash(&key), a.hash(&swapped));
        assert!(!format!("{a:?}").contains(char::is_numeric));
    }

    #[test]
    fn structured_keys_fill_places_evenly() {
        // Counters, strides, single bits: 4096 keys into 4096 places leave about 1 in e empty.
        let hash = Keyed::<2>::new(7);
        for stride in [1_u64, 2, 1 << 16, 1 << 32, 1 << 52, 0x1_0001] {
            let places: HashSet<u64> = (0..4096).map(|i| hash.hash(&Key([i * stride, 9])) >> 52).collect();
            assert!((2400..2800).contains(&places.len()), "stride {stride}: {} places", places.len());
        }
        let places: HashSet<u64> = (0..4096).map(|i| spread(i << 3) >> 52).collect();
        assert!((2400..2800).contains(&places.len()), "rss: {} places", places.len());
    }
}
