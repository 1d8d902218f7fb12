//! 8 keys at a time. This module is one of the named homes of `unsafe`; see [the parent](super).
//!
//! AVX2 has masks in vectors and no bit count: the halves of each byte are looked up in a table of 16, and the bytes added.

use super::super::{ASIDE, Popdir, REST, RUNS};
use crate::fib::Label;
use core::arch::asm;
use core::arch::x86_64::*;

const LANES: usize = 8;
/// Vectors of a round.
const VECTORS: usize = 8;

/// Defines a gather: of lane `i`, if the top bit of `mask[i]` is set, the word at `base + index[i] * scale`; `other[i]` if not.
macro_rules! gather {
    ($name:ident, $instruction:literal, $index:ident: $index_register:literal, $scale:literal) => {
        /// # Safety
        /// The word of every lane in `mask` is inside one allocation that `base` points into.
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn $name(base: *const u8, index: $index, mask: __m256i, other: __m256i) -> __m256i {
            let mut words = other;
            // SAFETY: loads only what the caller vouches for; writes only the two registers named. Not `pure`: another
            // thread may store between two executions.
            unsafe {
                asm!(
                    concat!($instruction, " {words}, [{base} + ", $index_register, "*", $scale, "], {mask}"),
                    words = inout(ymm_reg) words,
                    mask = inout(ymm_reg) mask => _,
                    index = in(ymm_reg) index,
                    base = in(reg) base,
                    options(nostack, preserves_flags, readonly),
                );
            }
            words
        }
    };
}
gather!(gather_bytes, "vpgatherdd", __m256i: "{index}", "1");
gather!(gather_halves, "vpgatherdd", __m256i: "{index}", "2");
gather!(gather_words, "vpgatherdd", __m256i: "{index}", "4");
gather!(gather_descs, "vpgatherdq", __m128i: "{index:x}", "8");

/// # Safety
/// The CPU has AVX2, and the slices have the same length.
#[target_feature(enable = "avx2,popcnt")]
pub(super) unsafe fn lookup_batch(popdir: &Popdir, keys: &[u32], out: &mut [Label]) {
    let (mut key_rounds, mut out_rounds) =
        (keys.chunks_exact(LANES * VECTORS), out.chunks_exact_mut(LANES * VECTORS));
    for (keys, out) in (&mut key_rounds).zip(&mut out_rounds) {
        // SAFETY: the features are there, and a round is so many whole vectors.
        unsafe {
            match (popdir.layout.x() > 0, popdir.label_width()) {
                (true, 1) => round::<true, 1>(popdir, keys, out),
                (true, 2) => round::<true, 2>(popdir, keys, out),
                (true, _) => round::<true, 4>(popdir, keys, out),
                (false, 1) => round::<false, 1>(popdir, keys, out),
                (false, 2) => round::<false, 2>(popdir, keys, out),
                (false, _) => round::<false, 4>(popdir, keys, out),
            }
        }
    }
    popdir.lookup_batch_scalar(key_rounds.remainder(), out_rounds.into_remainder());
}

/// Answers `VECTORS` vectors.
///
/// # Safety
/// The CPU has AVX2; `keys` and `out` have an element for every lane; `BLOCKS` and `WIDTH` are those of `popdir`.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
unsafe fn round<const BLOCKS: bool, const WIDTH: u8>(popdir: &Popdir, keys: &[u32], out: &mut [Label]) {
    let direct = popdir.tables.direct.as_ptr().cast::<u8>();
    let descs = popdir.tables.descs.as_ptr().cast::<u8>();
    let labels = popdir.tables.labels.as_ptr();
    let set = |value: u32| _mm256_set1_epi32(value as i32);
    let count = |bits: u32| _mm_cvtsi32_si128(bits as i32);
    let (to_slot, to_block) = (count(32 - u32::from(popdir.layout.d)), count(popdir.layout.x().into()));
    let in_block = set((1 << popdir.layout.x()) - 1);
    let (zero, all) = (_mm256_setzero_si256(), set(u32::MAX));
    // SAFETY: `keys` has a whole vector there.
    let key = |v: usize| unsafe { _mm256_loadu_si256(keys.as_ptr().add(v * LANES).cast()) };
    let mut found = [(zero, zero); VECTORS];
    for (v, found) in found.iter_mut().enumerate() {
        let chunk = _mm256_srli_epi32::<{ REST as i32 }>(key(v));
        let index = if BLOCKS {
            // SAFETY: a slot is below 2^D, and `direct` has one element more than that.
            let slot = unsafe { gather_halves(direct, _mm256_srl_epi32(key(v), to_slot), all, zero) };
            let block = _mm256_sll_epi32(_mm256_and_si256(slot, set(0xffff)), to_block);
            _mm256_or_si256(block, _mm256_and_si256(chunk, in_block))
        } else {
            chunk
        };
        // SAFETY: `direct` only names blocks inside `descs`; without it, `descs` has an entry for every chunk.
        let (low, high) = unsafe {
            (
                gather_descs(descs, _mm256_castsi256_si128(index), all, zero),
                gather_descs(descs, _mm256_extracti128_si256::<1>(index), all, zero),
            )
        };
        // Lower and upper halves of the descriptors, in the order of the keys.
        let (low, high) = (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
        let in_order = |halves| _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(halves));
        *found = (
            in_order(_mm256_shuffle_ps::<0b10_00_10_00>(low, high)),
            in_order(_mm256_shuffle_ps::<0b11_01_11_01>(low, high)),
        );
    }
    let mut maps = zero;
    for (v, &(base, map)) in found.iter().enumerate() {
        maps = _mm256_or_si256(maps, map);
        let slash_24 = _mm256_and_si256(_mm256_srli_epi32::<8>(key(v)), set(RUNS - 1));
        // A shift by 32 leaves nothing.
        let before = _mm256_srlv_epi32(map, _mm256_sub_epi32(set(RUNS), slash_24));
        let index = _mm256_add_epi32(base, set_bits(before));
        // One label alone is the base itself; what asides get here is replaced below.
        let one = _mm256_cmpeq_epi32(_mm256_and_si256(map, set(!ASIDE)), zero);
        let several = _mm256_xor_si256(one, all);
        // SAFETY: a run's labels are inside the table, which has 4 elements behind the last one.
        let label = unsafe {
            match WIDTH {
                1 => gather_bytes(labels, index, several, base),
                2 => gather_halves(labels, index, several, base),
                _ => gather_words(labels, index, several, base),
            }
        };
        let label = match WIDTH {
            1 => _mm256_and_si256(label, _mm256_or_si256(one, set(0xff))),
            2 => _mm256_and_si256(label, _mm256_or_si256(one, set(0xffff))),
            _ => label,
        };
        // SAFETY: `out` has a whole vector there, and its elements are a `u32` each.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(v * LANES).cast(), label) };
    }
    if _mm256_testz_si256(maps, set(ASIDE)) == 0 {
        // SAFETY: as for us.
        unsafe { asides(popdir, keys, out, &found) };
    }
}

/// Set bits of each lane.
#[inline]
#[target_feature(enable = "avx2")]
fn set_bits(words: __m256i) -> __m256i {
    let table = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    let nibble = _mm256_set1_epi8(0xf);
    let low = _mm256_shuffle_epi8(table, _mm256_and_si256(words, nibble));
    let high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi32::<4>(words), nibble));
    let bytes = _mm256_add_epi8(low, high);
    // Bytes to halves, halves to words.
    _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1)), _mm256_set1_epi16(1))
}

/// Answers the keys of a round whose chunks are asides.
///
/// # Safety
/// The CPU has AVX2.
#[cold]
#[target_feature(enable = "avx2")]
unsafe fn asides(popdir: &Popdir, keys: &[u32], out: &mut [Label], found: &[(__m256i, __m256i)]) {
    let vectors = keys.chunks(LANES).zip(out.chunks_mut(LANES));
    for ((keys, out), &(base, map)) in vectors.zip(found) {
        let (mut bases, mut maps) = ([0_u32; LANES], [0_u32; LANES]);
        // SAFETY: arrays of one vector each.
        unsafe {
            _mm256_storeu_si256(bases.as_mut_ptr().cast(), base);
            _mm256_storeu_si256(maps.as_mut_ptr().cast(), map);
        }
        for (((&key, out), &base), &map) in keys.iter().zip(out).zip(&bases).zip(&maps) {
            if map & ASIDE != 0 {
                *out = popdir.search(base, key, &());
            }
        }
    }
}
