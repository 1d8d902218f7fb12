//! Sixteen keys at once, with AVX-512.
//!
//! This module is one of the named homes of `unsafe`.

use super::{Cell, Dir24};
use crate::fib::Label;
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;

const LANES: usize = 16;

pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
}

pub(super) fn burst<C: Cell>(dir: &Dir24<C>, keys: &[u32], out: &mut [Label]) {
    assert!(has_avx512());
    // SAFETY: the CPU has the feature.
    unsafe { avx512(dir, keys, out) }
}

#[target_feature(enable = "avx512f")]
fn avx512<C: Cell>(dir: &Dir24<C>, keys: &[u32], out: &mut [Label]) {
    let (groups, rest) = keys.as_chunks::<LANES>();
    let (outs, rest_out) = out.as_chunks_mut::<LANES>();
    for (keys, out) in groups.iter().zip(outs) {
        // SAFETY: 16 keys are 64 bytes.
        let keys = unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) };
        let first = gather(&dir.first, _mm512_srli_epi32::<8>(keys), u16::MAX, keys);
        let divided = _mm512_test_epi32_mask(first, _mm512_set1_epi32(Dir24::<C>::DIVIDED as i32));
        let mut labels = first;
        if divided != 0 {
            let block = _mm512_andnot_si512(_mm512_set1_epi32(Dir24::<C>::DIVIDED as i32), first);
            let cell = _mm512_and_si512(keys, _mm512_set1_epi32(0xff));
            let at = _mm512_or_si512(_mm512_slli_epi32::<8>(block), cell);
            labels = gather(&dir.second, at, divided, first);
        }
        // SAFETY: 16 labels, each of which is a number of 4 bytes.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), labels) };
    }
    for (&key, out) in rest.iter().zip(rest_out) {
        *out = dir.find(key, &());
    }
}

/// The cells `at` of the lanes in `on`; of the others what is in `other`.
#[inline]
#[target_feature(enable = "avx512f")]
fn gather<C: Cell>(cells: &[C], at: __m512i, on: __mmask16, other: __m512i) -> __m512i {
    // Cells of 16 bits are read in pairs: there is an even number of them.
    let per_word = size_of::<u32>() / size_of::<C>();
    let words = u32::try_from(cells.len() / per_word).unwrap_or(u32::MAX);
    assert!(words <= i32::MAX as u32, "the index is a signed one");
    let word = if per_word == 2 { _mm512_srli_epi32::<1>(at) } else { at };
    let outside = _mm512_mask_cmpge_epu32_mask(on, word, _mm512_set1_epi32(words as i32));
    assert!(outside == 0, "every cell is there");
    // SAFETY: every lane in `on` reads 4 bytes inside `cells` (checked above; fewer than 2^31 words, so that the signed index is
    // right), which nobody stores to while it is borrowed.
    let found = unsafe { _mm512_mask_i32gather_epi32::<4>(other, on, word, cells.as_ptr().cast()) };
    if per_word == 1 {
        return found;
    }
    let shift = _mm512_slli_epi32::<4>(_mm512_and_si512(at, _mm512_set1_epi32(1)));
    let cell = _mm512_and_si512(_mm512_srlv_epi32(found, shift), _mm512_set1_epi32(0xffff));
    _mm512_mask_mov_epi32(other, on, cell)
}
