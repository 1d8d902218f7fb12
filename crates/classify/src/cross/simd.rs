//! Conditions and blocks by AVX-512: eight conditions of a key at once, eight rules of a list at once.
//!
//! What is found is what the scalar form finds ([`Cross::find_scalar`]), which is the specification. Tables of classes are read one by one in either form:
//! a gather is no faster than as many loads where it is made of them.
//!
//! This module is one of the named homes of `unsafe`: vectors are loaded from arrays of their length.

use super::block::{Block, LANES, NO_RULE};
use super::condition::Conditions;
use super::{Cross, ports};
use crate::cpu::Avx512;
use crate::key::{Key, WORDS};
use crate::turned::GROUP;
use std::arch::x86_64::*;
use tidemill_lookup::mem::OnLines;

impl Avx512 {
    /// As [`Cross::find_scalar`].
    #[inline(always)]
    pub(super) fn find(self, cross: &Cross, keys: &[Key], out: &mut [u32; GROUP]) {
        // SAFETY: `self` is there, so the CPU has these features.
        unsafe { find(cross, keys, out) }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn find(cross: &Cross, keys: &[Key], out: &mut [u32; GROUP]) {
    let mut heads = OnLines([0; GROUP]);
    cross.heads(keys, &mut heads);
    for ((key, &head), out) in keys.iter().zip(&*heads).zip(out) {
        let ports = _mm256_set1_epi32(ports(key) as i32);
        let met = _mm512_set1_epi64(met(&cross.conditions, key) as i64);
        *out = walk(cross, head, NO_RULE, ports, met);
        if let Some(everywhere) = cross.everywhere {
            *out = walk(cross, everywhere, *out, ports, met);
        }
    }
}

/// As [`Cross::walk`].
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn walk(cross: &Cross, head: u32, best: u32, ports: __m256i, met: __m512i) -> u32 {
    let mut at = head as usize;
    loop {
        let block = cross.blocks.block(at);
        if block.number[0] >= best {
            return best;
        }
        let matching = matching(block, ports, met);
        if matching != 0 {
            return block.number[matching.trailing_zeros() as usize % LANES].min(best);
        }
        if block.is_last() {
            return best;
        }
        at += 1;
    }
}

/// Which rules of a block match.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn matching(block: &Block, ports: __m256i, met: __m512i) -> u8 {
    // Of both ports at once: how far behind the first of the range, and how far behind its last.
    let behind_first = _mm256_sub_epi16(ports, load8(&block.first));
    let behind_last = _mm256_subs_epu16(behind_first, load8(&block.span));
    let inside = _mm256_testn_epi32_mask(behind_last, behind_last);
    // A shift by 64 and more leaves nothing.
    let number = _mm_cvtsi64_si128(i64::from_le_bytes(block.condition));
    let condition = _mm512_srlv_epi64(met, _mm512_cvtepu8_epi64(number));
    _mm512_mask_test_epi64_mask(inside, condition, _mm512_set1_epi64(1))
}

/// As [`Conditions::met`]; bits beyond the conditions are 0 or 1.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn met(conditions: &Conditions, key: &Key) -> u64 {
    let (mut met, vectors) = (u64::MAX, conditions.len.div_ceil(LANES));
    for asked in &conditions.asked {
        let (word, mut bits) = (_mm512_set1_epi64(key.0[asked.word % WORDS] as i64), 0);
        let [values, masks] = [&asked.values, &asked.masks].map(|words| words.as_chunks::<LANES>().0);
        for (i, (values, masks)) in values.iter().zip(masks).take(vectors).enumerate() {
            let equal = _mm512_cmpeq_epi64_mask(_mm512_and_si512(word, load(masks)), load(values));
            bits |= u64::from(equal) << (i * LANES);
        }
        met &= bits;
    }
    met
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn load8(words: &[u32; LANES]) -> __m256i {
    // SAFETY: the array is as long as the vector.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[u64; LANES]) -> __m512i {
    // SAFETY: the array is as long as the vector.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}
