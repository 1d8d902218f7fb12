//! The burst for AVX2 and AVX-512: the same walk, but a line's ten starts are compared at once.
//!
//! This module is one of the named homes of `unsafe`.

use super::lookup::lock_step;
use super::{RangeTrie, STARTS};
use crate::fib::Label;
use crate::prefix::Address;
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::{
    __m256i, _mm256_cmpeq_epi16, _mm256_cmple_epu16_mask, _mm256_loadu_si256, _mm256_movemask_epi8,
    _mm256_set1_epi16, _mm256_setzero_si256, _mm256_subs_epu16,
};
use std::sync::atomic::AtomicU32;

pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

pub(super) fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

pub(super) fn burst_avx2<A: Address>(trie: &RangeTrie<A>, keys: &[A], out: &mut [Label]) {
    assert!(has_avx2());
    // SAFETY: the CPU has the features.
    unsafe { avx2(trie, keys, out) }
}

pub(super) fn burst_avx512<A: Address>(trie: &RangeTrie<A>, keys: &[A], out: &mut [Label]) {
    assert!(has_avx512());
    // SAFETY: the CPU has the features.
    unsafe { avx512(trie, keys, out) }
}

/// The first half of a cell: the ten starts, and six more halfwords to be ignored.
#[inline]
#[target_feature(enable = "avx2")]
fn head(words: &[AtomicU32], line: usize) -> __m256i {
    let half: &[AtomicU32; 8] = match words[line..].first_chunk() {
        Some(half) => half,
        None => return _mm256_setzero_si256(), // a line is 16 words
    };
    // SAFETY: 32 readable bytes; the instruction needs no alignment. Not a race: a line that an entry led us to was
    // written before that entry was stored (release, which we acquired), and is not written again while a reader
    // may hold it (invariants 3 and 4).
    unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn avx2<A: Address>(trie: &RangeTrie<A>, keys: &[A], out: &mut [Label]) {
    lock_step(trie, keys, out, |words, line, x| {
        let above = _mm256_subs_epu16(head(words, line), _mm256_set1_epi16(x as i16));
        let bytes = _mm256_movemask_epi8(_mm256_cmpeq_epi16(above, _mm256_setzero_si256()));
        (bytes as u32 & ((1 << (2 * STARTS)) - 1)).count_ones() as usize / 2
    });
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,avx512f,avx512bw,avx512vl")]
fn avx512<A: Address>(trie: &RangeTrie<A>, keys: &[A], out: &mut [Label]) {
    lock_step(trie, keys, out, |words, line, x| {
        let mask = _mm256_cmple_epu16_mask(head(words, line), _mm256_set1_epi16(x as i16));
        (u32::from(mask) & ((1 << STARTS) - 1)).count_ones() as usize
    });
}
