//! A mask's filter asked for 32 keys at once by AVX-512; [`Filters::may_have`](super::filter::Filters::may_have) is the specification.
//!
//! This module is one of the named homes of `unsafe`: functions for CPUs that have been asked what they have, and loads.

use super::filter::Filter;
use crate::cpu::Avx512;
use crate::turned::GROUP;
use std::arch::x86_64::*;

const LANES: usize = 8;

impl Avx512 {
    /// Which of 32 keys a filter lets through, by the two words of them that it is about.
    #[inline(always)]
    pub(super) fn let_through(self, filter: &Filter, factors: [u64; 2], words: [&[u64; GROUP]; 2]) -> u32 {
        // SAFETY: `self` is there, so the CPU has these features.
        unsafe { let_through(filter, factors, words) }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn let_through(filter: &Filter, factors: [u64; 2], [first, second]: [&[u64; GROUP]; 2]) -> u32 {
    // Written out: arrays of vectors would be mapped by calls.
    let (mask0, mask1) =
        (_mm512_set1_epi64(filter.masks[0] as i64), _mm512_set1_epi64(filter.masks[1] as i64));
    let (factor0, factor1) = (_mm512_set1_epi64(factors[0] as i64), _mm512_set1_epi64(factors[1] as i64));
    let (bits, low) = (load(&filter.bits), _mm512_set1_epi64(63));
    let (first, second) = (first.as_chunks::<LANES>().0, second.as_chunks::<LANES>().0);
    let mut through = 0;
    for at in 0..GROUP / LANES {
        let a = _mm512_mullo_epi64(_mm512_and_si512(load(&first[at]), mask0), factor0);
        let b = _mm512_mullo_epi64(_mm512_and_si512(load(&second[at]), mask1), factor1);
        let place = _mm512_srli_epi64::<55>(_mm512_add_epi64(a, b));
        let word = _mm512_permutexvar_epi64(_mm512_srli_epi64::<6>(place), bits);
        let bit = _mm512_srlv_epi64(word, _mm512_and_si512(place, low));
        through |= u32::from(_mm512_test_epi64_mask(bit, _mm512_set1_epi64(1))) << (LANES * at);
    }
    through
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[u64; LANES]) -> __m512i {
    // SAFETY: 64 bytes are there.
    unsafe { _mm512_loadu_epi64(words.as_ptr().cast()) }
}
