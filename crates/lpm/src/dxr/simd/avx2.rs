//! 8 keys at a time. This module is one of the named homes of `unsafe`; see [the parent](super).
//!
//! AVX2 has masks in vectors, no unsigned comparison and no packing: words are compared with their top bit flipped, and
//! the open lanes are listed one by one.

use super::super::Dxr;
use super::ROUND;
use crate::fib::Label;
use core::arch::asm;
use core::arch::x86_64::*;

const LANES: usize = 8;

/// Defines a gather of 4-byte words: of lane `i` the word at `base + index[i] * scale`.
macro_rules! gather {
    ($name:ident, $scale:literal) => {
        /// # Safety
        /// The word of every lane is inside one allocation that `base` points into.
        #[inline]
        #[target_feature(enable = "avx2")]
        unsafe fn $name(base: *const u8, index: __m256i) -> __m256i {
            let mut words = _mm256_setzero_si256();
            let mask = _mm256_cmpeq_epi32(words, words);
            // SAFETY: loads only what the caller vouches for; writes only the two registers named. Not `pure`: another
            // thread may store between two executions.
            unsafe {
                asm!(
                    concat!("vpgatherdd {words}, [{base} + {index}*", $scale, "], {mask}"),
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
gather!(gather_words, "4");
gather!(gather_bytes, "1");

/// # Safety
/// The CPU has AVX2, and the slices have the same length.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn lookup_batch(dxr: &Dxr, keys: &[u32], out: &mut [Label]) {
    let (mut descs, mut places) = ([0_u32; ROUND], [0_u8; ROUND]);
    for (keys, out) in keys.chunks(ROUND).zip(out.chunks_mut(ROUND)) {
        let whole = keys.len() - keys.len() % LANES;
        let (keys, last_keys) = keys.split_at(whole);
        let (out, last_out) = out.split_at_mut(whole);
        // SAFETY: the feature is there; `keys` and `out` are equally long, whole vectors and at most `ROUND`.
        unsafe {
            let open = match dxr.layout.x {
                0 => resolve::<false>(dxr, keys, out, &mut descs, &mut places),
                _ => resolve::<true>(dxr, keys, out, &mut descs, &mut places),
            };
            match dxr.label_bits {
                32 => search::<true>(dxr, keys, &descs, &places[..open], out),
                _ => search::<false>(dxr, keys, &descs, &places[..open], out),
            }
        }
        dxr.lookup_batch_scalar(last_keys, last_out);
    }
}

/// Stores what descriptors resolve, keeps the descriptors and lists the places of the rest; returns their number.
///
/// # Safety
/// The CPU has AVX2; `keys` and `out` are equally long, whole vectors and at most `ROUND`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn resolve<const EXTENSION: bool>(
    dxr: &Dxr,
    keys: &[u32],
    out: &mut [Label],
    descs: &mut [u32; ROUND],
    places: &mut [u8; ROUND],
) -> usize {
    let direct = dxr.own.direct.as_ptr().cast::<u8>();
    let table = dxr.descs().as_ptr().cast::<u8>();
    let (k, d, x) = (u32::from(dxr.layout.k()), u32::from(dxr.layout.d), u32::from(dxr.layout.x));
    let count = |bits: u32| _mm_cvtsi32_si128(bits as i32);
    let (to_chunk, to_slot, to_block) = (count(32 - k), count(32 - d), count(x));
    let in_block = _mm256_set1_epi32((1 << x) - 1);
    let to_value = count(dxr.split.value_shift());
    for at in (0..keys.len()).step_by(LANES) {
        // SAFETY: `keys` has whole vectors.
        let key = unsafe { _mm256_loadu_si256(keys.as_ptr().add(at).cast()) };
        let chunk = _mm256_srl_epi32(key, to_chunk);
        let index = if EXTENSION {
            let slot = _mm256_srl_epi32(key, to_slot);
            // SAFETY: a slot is below 2^D, the even length of `direct`, so that the word of two slots is inside too.
            let pair = unsafe { gather_words(direct, _mm256_srli_epi32::<1>(slot)) };
            let half = _mm256_slli_epi32::<4>(_mm256_and_si256(slot, _mm256_set1_epi32(1)));
            let block = _mm256_and_si256(_mm256_srlv_epi32(pair, half), _mm256_set1_epi32(0xffff));
            _mm256_or_si256(_mm256_sll_epi32(block, to_block), _mm256_and_si256(chunk, in_block))
        } else {
            chunk
        };
        // SAFETY: `direct` only names blocks inside `descs`; without it, `descs` has an entry for every chunk.
        let desc = unsafe { gather_words(table, index) };
        // SAFETY: `out` and `descs` are at least as long as `keys`; an element of `out` is a `u32`.
        unsafe {
            _mm256_storeu_si256(out.as_mut_ptr().add(at).cast(), _mm256_srl_epi32(desc, to_value));
            _mm256_storeu_si256(descs.as_mut_ptr().add(at).cast(), desc);
        }
    }
    let mask = dxr.split.count_mask();
    let mut open = 0;
    for (place, desc) in descs[..keys.len()].iter().enumerate() {
        // Writing always and counting sometimes: no branch to mispredict. `open <= place < ROUND`.
        places[open & (ROUND - 1)] = place as u8;
        open += usize::from(desc & mask != 0);
    }
    open
}

/// Searches the ranges for the keys at `places`. `WIDE`: long entries have two words.
///
/// # Safety
/// The CPU has AVX2; the descriptors at `places` are chunks of `dxr`, and the places are below `keys.len()` and `out.len()`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn search<const WIDE: bool>(
    dxr: &Dxr,
    keys: &[u32],
    descs: &[u32; ROUND],
    places: &[u8],
    out: &mut [Label],
) {
    let ranges = dxr.store.ranges.as_ptr().cast::<u8>();
    let set = |value: u32| _mm256_set1_epi32(value as i32);
    let select = |mask, a, b| _mm256_blendv_epi8(b, a, mask);
    let (count_mask, long_bit) = (set(dxr.split.count_mask()), set(dxr.split.long_bit()));
    let low_mask = set(u32::MAX >> dxr.layout.k());
    let to_value = _mm_cvtsi32_si128(dxr.split.value_shift() as i32);
    let to_bytes = _mm_cvtsi32_si128(dxr.split.unit_shift as i32 + 2);
    let (one, top) = (set(1), set(1 << 31));
    for places in places.chunks(LANES) {
        let (mut lane_keys, mut lane_descs, mut labels) = ([0_u32; LANES], [0_u32; LANES], [0_u32; LANES]);
        // A short vector is filled up with its first key, whose search is valid.
        for lane in 0..LANES {
            let place = usize::from(places[if lane < places.len() { lane } else { 0 }]);
            (lane_keys[lane], lane_descs[lane]) = (keys[place], descs[place]);
        }
        // SAFETY: arrays of one vector each.
        let (key, desc) = unsafe {
            (_mm256_loadu_si256(lane_keys.as_ptr().cast()), _mm256_loadu_si256(lane_descs.as_ptr().cast()))
        };
        let long = _mm256_cmpeq_epi32(_mm256_and_si256(desc, long_bit), long_bit);
        let mut offset = _mm256_sll_epi32(_mm256_srl_epi32(desc, to_value), to_bytes);
        let entry_shift = select(long, set(if WIDE { 3 } else { 2 }), one);
        // A short entry moves to the top half of its word.
        let to_top = select(long, _mm256_setzero_si256(), set(16));
        let below = select(long, set(0xffff), set(0xff_ffff));
        let wanted = _mm256_or_si256(_mm256_slli_epi32::<16>(_mm256_and_si256(key, low_mask)), below);
        let wanted = _mm256_xor_si256(wanted, top);
        let mut count = _mm256_add_epi32(_mm256_and_si256(desc, count_mask), one);
        // SAFETY: the first entry of a chunk is inside `ranges`, which has a word behind its last chunk.
        let mut best = unsafe { _mm256_sllv_epi32(gather_bytes(ranges, offset), to_top) };
        while _mm256_movemask_epi8(_mm256_cmpgt_epi32(count, one)) != 0 {
            // A lane that is done has half = 0 and reads its entry once more.
            let half = _mm256_srli_epi32::<1>(count);
            let middle = _mm256_add_epi32(offset, _mm256_sllv_epi32(half, entry_shift));
            // SAFETY: an entry between the first and the last one of the chunk, as above.
            let entry = unsafe { _mm256_sllv_epi32(gather_bytes(ranges, middle), to_top) };
            let above = _mm256_cmpgt_epi32(_mm256_xor_si256(entry, top), wanted);
            offset = select(above, offset, middle);
            best = select(above, best, entry);
            count = _mm256_sub_epi32(count, half);
        }
        let mut label = _mm256_and_si256(_mm256_srli_epi32::<16>(best), set(0xff));
        let long_label = if WIDE {
            // Lanes with a short entry read it once more.
            let behind = _mm256_add_epi32(offset, _mm256_and_si256(long, set(4)));
            // SAFETY: the second word of a long entry in its chunk, or a short entry.
            unsafe { gather_bytes(ranges, behind) }
        } else {
            _mm256_and_si256(best, set(0xffff))
        };
        label = select(long, long_label, label);
        // SAFETY: an array of one vector.
        unsafe { _mm256_storeu_si256(labels.as_mut_ptr().cast(), label) };
        for (&place, &label) in places.iter().zip(&labels) {
            out[usize::from(place)] = Label(label);
        }
    }
}
