//! Random loads by gather instructions: what the machine can do at best, to hold structures against.
//!
//! This module is one of the named homes of `unsafe`.

/// The gather instructions of this CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gather(Level);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Gather {
    /// The widest that there is; `None` if there is none.
    pub fn new() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            if is_x86_feature_detected!("avx512f") {
                return Some(Gather(Level::Avx512));
            }
            if is_x86_feature_detected!("avx2") {
                return Some(Gather(Level::Avx2));
            }
        }
        None
    }

    /// Loads `out[i] = words[keys[i] * words.len() / 2^32]`.
    ///
    /// # Panics
    /// If `keys` and `out` differ in length, or `words` is empty or has more than 2^31 elements.
    pub fn run(self, words: &[u32], keys: &[u32], out: &mut [u32]) {
        assert_eq!(keys.len(), out.len(), "as many results as keys");
        assert!(!words.is_empty() && words.len() <= 1 << 31, "indices have 31 bits");
        match self.0 {
            // SAFETY: `new` found the feature; `words` is not empty and its indices fit into 31 bits, as just checked.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { x86::avx2(words, keys, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { x86::avx512(words, keys, out) },
        }
    }
}

/// The rest behind the last whole vector.
#[cfg(target_arch = "x86_64")]
fn scalar(words: &[u32], keys: &[u32], out: &mut [u32]) {
    for (&key, out) in keys.iter().zip(out) {
        *out = words[((u64::from(key) * words.len() as u64) >> 32) as usize];
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// # Safety
    /// The CPU has AVX2; `words` has 1 to 2^31 elements; `keys` and `out` are equally long.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2(words: &[u32], keys: &[u32], out: &mut [u32]) {
        let len = _mm256_set1_epi64x(words.len() as i64);
        let (mut key_lanes, mut out_lanes) = (keys.chunks_exact(8), out.chunks_exact_mut(8));
        for (keys, out) in (&mut key_lanes).zip(&mut out_lanes) {
            // SAFETY: a chunk has 8 keys, which is 32 bytes.
            let key = unsafe { _mm256_loadu_si256(keys.as_ptr().cast()) };
            // The high halves of key * len, for the even and for the odd lanes.
            let even = _mm256_srli_epi64::<32>(_mm256_mul_epu32(key, len));
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(key), len);
            let index = _mm256_blend_epi32::<0b1010_1010>(even, odd);
            // SAFETY: key < 2^32, so each index is below words.len(), which is at most 2^31: no sign bit.
            let found = unsafe { _mm256_i32gather_epi32::<4>(words.as_ptr().cast(), index) };
            // SAFETY: a chunk has room for 8 results.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), found) };
        }
        super::scalar(words, key_lanes.remainder(), out_lanes.into_remainder());
    }

    /// # Safety
    /// The CPU has AVX-512F; `words` has 1 to 2^31 elements; `keys` and `out` are equally long.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn avx512(words: &[u32], keys: &[u32], out: &mut [u32]) {
        let len = _mm512_set1_epi64(words.len() as i64);
        let (mut key_lanes, mut out_lanes) = (keys.chunks_exact(16), out.chunks_exact_mut(16));
        for (keys, out) in (&mut key_lanes).zip(&mut out_lanes) {
            // SAFETY: a chunk has 16 keys, which is 64 bytes.
            let key = unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) };
            // As above.
            let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(key, len));
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(key), len);
            let index = _mm512_mask_blend_epi32(0xaaaa, even, odd);
            // SAFETY: as above.
            let found = unsafe { _mm512_i32gather_epi32::<4>(index, words.as_ptr().cast()) };
            // SAFETY: a chunk has room for 16 results.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), found) };
        }
        super::scalar(words, key_lanes.remainder(), out_lanes.into_remainder());
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn gathers_load_what_scalar_loads_do() {
        let all = [
            is_x86_feature_detected!("avx2").then_some(Gather(Level::Avx2)),
            is_x86_feature_detected!("avx512f").then_some(Gather(Level::Avx512)),
        ];
        for gather in all.into_iter().flatten() {
            for len in [1_usize, 7, 1000, 65_536] {
                let words: Vec<u32> = (0..len as u32).map(|i| i ^ 0x8000_0001).collect();
                let keys: Vec<u32> =
                    (0..101_u32).map(|i| i.wrapping_mul(0x9e37_79b9)).chain([0, u32::MAX]).collect();
                let (mut wanted, mut got) = (vec![0; keys.len()], vec![1; keys.len()]);
                scalar(&words, &keys, &mut wanted);
                gather.run(&words, &keys, &mut got);
                assert_eq!(got, wanted, "{gather:?}, {len}");
            }
        }
    }
}
