//! 16 keys at a time. This module is one of the named homes of `unsafe`; see [the parent](super).

use super::super::{ASIDE, Popdir, REST, RUNS};
use crate::fib::Label;
use core::arch::asm;
use core::arch::x86_64::*;

const LANES: usize = 16;
/// Vectors of a round. 8 beat 4 and 16 by 7 to 30 % (Xeon of family 6 model 207, November 2026, 2026 tables, RND and REP).
const VECTORS: usize = 8;
/// Keys are fetched so far ahead: bursts often lie one behind the other, and the CPU's own prefetching ends with each page.
/// It pays where callers walk a long array of keys, as benchmarks do (2^22 keys: RND and REP went up by some 10 %, in separate runs); keys
/// that are in the first-level cache already do not mind. Past the second-level cache (`prefetchnta`) RND loses a quarter.
const AHEAD: usize = 1024;

crate::gather::avx512!(gather_bytes, "1");
crate::gather::avx512!(gather_halves, "2");
crate::gather::avx512!(gather_words, "4");

/// The 8-byte words at `base + index[i] * 8` of the lanes in `mask`, 0 in the others.
///
/// # Safety
/// The word of every lane in `mask` is inside one allocation that `base` points into.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn gather_descs(base: *const u8, index: __m256i, mask: __mmask8) -> __m512i {
    let mut words = _mm512_setzero_si512();
    // SAFETY: as above.
    unsafe {
        asm!(
            "vpgatherdq {words}{{{mask}}}, [{base} + {index}*8]",
            words = inout(zmm_reg) words,
            mask = inout(kreg) mask => _,
            index = in(ymm_reg) index,
            base = in(reg) base,
            options(nostack, preserves_flags, readonly),
        );
    }
    words
}

/// # Safety
/// The CPU has AVX-512 F and VPOPCNTDQ, and the slices have the same length.
#[target_feature(enable = "avx512f,avx512vpopcntdq")]
pub(super) unsafe fn lookup_batch(popdir: &Popdir, keys: &[u32], out: &mut [Label]) {
    // SAFETY: the features are there, and the lengths are equal.
    unsafe {
        match (popdir.layout.x() > 0, popdir.label_width()) {
            (true, 1) => rounds::<true, 1>(popdir, keys, out),
            (true, 2) => rounds::<true, 2>(popdir, keys, out),
            (true, _) => rounds::<true, 4>(popdir, keys, out),
            (false, 1) => rounds::<false, 1>(popdir, keys, out),
            (false, 2) => rounds::<false, 2>(popdir, keys, out),
            (false, _) => rounds::<false, 4>(popdir, keys, out),
        }
    }
}

/// # Safety
/// The CPU has the features; the slices have the same length; `BLOCKS` and `WIDTH` are those of `popdir`.
#[inline]
#[target_feature(enable = "avx512f,avx512vpopcntdq")]
unsafe fn rounds<const BLOCKS: bool, const WIDTH: u8>(popdir: &Popdir, keys: &[u32], out: &mut [Label]) {
    let (mut key_rounds, mut out_rounds) =
        (keys.chunks_exact(LANES * VECTORS), out.chunks_exact_mut(LANES * VECTORS));
    for (keys, out) in (&mut key_rounds).zip(&mut out_rounds) {
        // SAFETY: as for us, and a round is so many whole vectors.
        unsafe { round::<BLOCKS, WIDTH, VECTORS>(popdir, keys, out, u16::MAX) };
    }
    let (keys, out) = (key_rounds.remainder(), out_rounds.into_remainder());
    for (keys, out) in keys.chunks(LANES).zip(out.chunks_mut(LANES)) {
        // SAFETY: as for us; `keys` has 1 to 16 elements.
        unsafe { round::<BLOCKS, WIDTH, 1>(popdir, keys, out, u16::MAX >> (LANES - keys.len())) };
    }
}

/// Answers `V` vectors, of the last one the lanes in `last`.
///
/// # Safety
/// As for [`rounds`]; `keys` and `out` have as many elements as there are lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512vpopcntdq")]
unsafe fn round<const BLOCKS: bool, const WIDTH: u8, const V: usize>(
    popdir: &Popdir,
    keys: &[u32],
    out: &mut [Label],
    last: __mmask16,
) {
    let direct = popdir.tables.direct.as_ptr().cast::<u8>();
    let descs = popdir.tables.descs.as_ptr().cast::<u8>();
    let labels = popdir.tables.labels.as_ptr();
    let set = |value: u32| _mm512_set1_epi32(value as i32);
    let count = |bits: u32| _mm_cvtsi32_si128(bits as i32);
    let (to_slot, to_block) = (count(32 - u32::from(popdir.layout.d)), count(popdir.layout.x().into()));
    let in_block = set((1 << popdir.layout.x()) - 1);
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odd = _mm512_add_epi32(even, set(1));
    let zero = _mm512_setzero_si512();
    let lanes = |v: usize| if v == V - 1 { last } else { u16::MAX };
    // SAFETY: the lanes in the mask are inside `keys`.
    let key = |v: usize| unsafe { _mm512_maskz_loadu_epi32(lanes(v), keys.as_ptr().add(v * LANES).cast()) };
    let mut found = [(zero, zero); V];
    for (v, found) in found.iter_mut().enumerate() {
        let lanes = lanes(v);
        let key = key(v);
        _mm_prefetch::<_MM_HINT_T0>(keys.as_ptr().wrapping_add(v * LANES + AHEAD).cast());
        let chunk = _mm512_srli_epi32::<REST>(key);
        let index = if BLOCKS {
            // SAFETY: a slot is below 2^D, and `direct` has one element more than that.
            let slot = unsafe { gather_halves(direct, _mm512_srl_epi32(key, to_slot), lanes, zero) };
            let block = _mm512_sll_epi32(_mm512_and_si512(slot, set(0xffff)), to_block);
            _mm512_or_si512(block, _mm512_and_si512(chunk, in_block))
        } else {
            chunk
        };
        // SAFETY: `direct` only names blocks inside `descs`; without it, `descs` has an entry for every chunk.
        *found = unsafe {
            (
                gather_descs(descs, _mm512_castsi512_si256(index), lanes as u8),
                gather_descs(descs, _mm512_extracti64x4_epi64::<1>(index), (lanes >> 8) as u8),
            )
        };
    }
    let mut maps = zero;
    for (v, &(low, high)) in found.iter().enumerate() {
        let base = _mm512_permutex2var_epi32(low, even, high);
        let map = _mm512_permutex2var_epi32(low, odd, high);
        maps = _mm512_or_si512(maps, map);
        let slash_24 = _mm512_and_si512(_mm512_srli_epi32::<8>(key(v)), set(RUNS - 1));
        // A shift by 32 leaves nothing.
        let before = _mm512_srlv_epi32(map, _mm512_sub_epi32(set(RUNS), slash_24));
        let index = _mm512_add_epi32(base, _mm512_popcnt_epi32(before));
        // One label alone is the base itself; what asides get here is replaced below.
        let several = _mm512_test_epi32_mask(map, set(!ASIDE));
        // SAFETY: a run's labels are inside the table, which has 4 elements behind the last one.
        let label = unsafe {
            match WIDTH {
                1 => gather_bytes(labels, index, several, base),
                2 => gather_halves(labels, index, several, base),
                _ => gather_words(labels, index, several, base),
            }
        };
        let label = match WIDTH {
            1 => _mm512_mask_and_epi32(label, several, label, set(0xff)),
            2 => _mm512_mask_and_epi32(label, several, label, set(0xffff)),
            _ => label,
        };
        // SAFETY: the lanes in the mask are inside `out`, whose elements are a `u32` each.
        unsafe { _mm512_mask_storeu_epi32(out.as_mut_ptr().add(v * LANES).cast(), lanes(v), label) };
    }
    if _mm512_test_epi32_mask(maps, set(ASIDE)) != 0 {
        // SAFETY: as for us.
        unsafe { asides(popdir, keys, out, &found, [even, odd]) };
    }
}

/// Answers the keys of a round whose chunks are asides.
///
/// # Safety
/// The CPU has AVX-512 F.
#[cold]
#[target_feature(enable = "avx512f")]
unsafe fn asides(
    popdir: &Popdir,
    keys: &[u32],
    out: &mut [Label],
    found: &[(__m512i, __m512i)],
    [even, odd]: [__m512i; 2],
) {
    let rounds = keys.chunks(LANES).zip(out.chunks_mut(LANES));
    for ((keys, out), &(low, high)) in rounds.zip(found) {
        let map = _mm512_permutex2var_epi32(low, odd, high);
        let open = _mm512_test_epi32_mask(map, _mm512_set1_epi32(ASIDE as i32));
        let mut bases = [0_u32; LANES];
        // SAFETY: an array of one vector.
        unsafe { _mm512_storeu_si512(bases.as_mut_ptr().cast(), _mm512_permutex2var_epi32(low, even, high)) };
        for (lane, (&key, out)) in keys.iter().zip(out).enumerate() {
            if open >> lane & 1 != 0 {
                *out = popdir.search(bases[lane], key, &());
            }
        }
    }
}
