//! 16 keys at a time. This module is one of the named homes of `unsafe`; see [the parent](super).

use super::super::Dxr;
use super::ROUND;
use crate::fib::Label;
use core::arch::x86_64::*;

const LANES: usize = 16;
/// Vectors that are searched in step. 3 beat 1, 2 and 4 on average (Xeon of family 6 model 207, November 2026, 2026 tables,
/// RND, D16X4R and D18R), by 5 to 15 % over 1.
const GROUPS: usize = 3;
/// Room in the lists: a round, and what is stored and loaded behind its end.
const ROOM: usize = ROUND + LANES * GROUPS;

crate::gather::avx512!(gather_words, "4");
crate::gather::avx512!(gather_bytes, "1");

/// The unresolved keys of a round.
struct Rest {
    keys: [u32; ROOM],
    descs: [u32; ROOM],
    places: [u32; ROOM],
    len: usize,
}

/// # Safety
/// The CPU has AVX-512 F, and the slices have the same length.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn lookup_batch(dxr: &Dxr, keys: &[u32], out: &mut [Label]) {
    let mut rest = Rest { keys: [0; ROOM], descs: [0; ROOM], places: [0; ROOM], len: 0 };
    for (keys, out) in keys.chunks(ROUND).zip(out.chunks_mut(ROUND)) {
        // SAFETY: the feature is there; `keys` and `out` are equally long and at most `ROUND`.
        unsafe {
            match dxr.layout.x {
                0 => resolve::<false>(dxr, keys, out, &mut rest),
                _ => resolve::<true>(dxr, keys, out, &mut rest),
            }
            match dxr.label_bits {
                32 => search::<true>(dxr, &rest, out),
                _ => search::<false>(dxr, &rest, out),
            }
        }
    }
}

/// Stores what descriptors resolve, and lists the rest.
///
/// # Safety
/// The CPU has AVX-512 F; `keys` and `out` are equally long and at most `ROUND`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn resolve<const EXTENSION: bool>(dxr: &Dxr, keys: &[u32], out: &mut [Label], rest: &mut Rest) {
    let direct = dxr.own.direct.as_ptr().cast::<u8>();
    let descs = dxr.descs().as_ptr().cast::<u8>();
    let (k, d, x) = (u32::from(dxr.layout.k()), u32::from(dxr.layout.d), u32::from(dxr.layout.x));
    let count = |bits: u32| _mm_cvtsi32_si128(bits as i32);
    let (to_chunk, to_slot, to_block) = (count(32 - k), count(32 - d), count(x));
    let in_block = _mm512_set1_epi32((1 << x) - 1);
    let count_mask = _mm512_set1_epi32(dxr.split.count_mask() as i32);
    let to_value = count(dxr.split.value_shift());
    let zero = _mm512_setzero_si512();
    let mut place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut len = 0;
    let mut at = 0;
    while at < keys.len() {
        let lanes = u16::MAX >> (LANES - (keys.len() - at).min(LANES));
        // SAFETY: the lanes in the mask are inside `keys`.
        let key = unsafe { _mm512_maskz_loadu_epi32(lanes, keys.as_ptr().add(at).cast()) };
        let chunk = _mm512_srl_epi32(key, to_chunk);
        let index = if EXTENSION {
            let slot = _mm512_srl_epi32(key, to_slot);
            // SAFETY: a slot is below 2^D, the even length of `direct`, so that the word of two slots is inside too.
            let pair = unsafe { gather_words(direct, _mm512_srli_epi32::<1>(slot), lanes, zero) };
            let half = _mm512_slli_epi32::<4>(_mm512_and_si512(slot, _mm512_set1_epi32(1)));
            let block = _mm512_and_si512(_mm512_srlv_epi32(pair, half), _mm512_set1_epi32(0xffff));
            _mm512_or_si512(_mm512_sll_epi32(block, to_block), _mm512_and_si512(chunk, in_block))
        } else {
            chunk
        };
        // SAFETY: `direct` only names blocks inside `descs`; without it, `descs` has an entry for every chunk.
        let desc = unsafe { gather_words(descs, index, lanes, zero) };
        // SAFETY: the lanes in the mask are inside `out`, whose elements are a `u32` each.
        unsafe {
            _mm512_mask_storeu_epi32(
                out.as_mut_ptr().add(at).cast(),
                lanes,
                _mm512_srl_epi32(desc, to_value),
            );
        }
        let open = _mm512_test_epi32_mask(desc, count_mask);
        // SAFETY: `len` is at most `at`, below `ROUND`, and there is room for a whole vector behind that. Packing in a
        // register and storing all of it is quicker than a packing store, which some CPUs do in microcode.
        unsafe {
            let pack = |v| _mm512_maskz_compress_epi32(open, v);
            _mm512_storeu_epi32(rest.keys.as_mut_ptr().add(len).cast(), pack(key));
            _mm512_storeu_epi32(rest.descs.as_mut_ptr().add(len).cast(), pack(desc));
            _mm512_storeu_epi32(rest.places.as_mut_ptr().add(len).cast(), pack(place));
        }
        len += open.count_ones() as usize;
        place = _mm512_add_epi32(place, _mm512_set1_epi32(LANES as i32));
        at += LANES;
    }
    rest.len = len;
}

/// Searches the ranges for the listed keys. `WIDE`: long entries have two words.
///
/// # Safety
/// The CPU has AVX-512 F; `rest` is what `resolve` has made of the same round, with all places below `out.len()`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn search<const WIDE: bool>(dxr: &Dxr, rest: &Rest, out: &mut [Label]) {
    let ranges = dxr.store.ranges.as_ptr().cast::<u8>();
    let set = |value: u32| _mm512_set1_epi32(value as i32);
    let count_mask = set(dxr.split.count_mask());
    let long_bit = set(dxr.split.long_bit());
    let low_mask = set(u32::MAX >> dxr.layout.k());
    let to_value = _mm_cvtsi32_si128(dxr.split.value_shift() as i32);
    let to_bytes = _mm_cvtsi32_si128(dxr.split.unit_shift as i32 + 2);
    let one = set(1);
    let zero = _mm512_setzero_si512();
    for at in (0..rest.len).step_by(LANES * GROUPS) {
        // SAFETY: the lists have `GROUPS` whole vectors behind every listed key; lanes behind the last key are masked out.
        // The first entry of a chunk is inside `ranges`, which has a word behind its last chunk.
        let mut groups: [Group; GROUPS] = std::array::from_fn(|group| unsafe {
            let at = at + group * LANES;
            let lanes = u16::MAX.checked_shr((at + LANES).saturating_sub(rest.len) as u32).unwrap_or(0);
            let key = _mm512_maskz_loadu_epi32(lanes, rest.keys.as_ptr().add(at).cast());
            let desc = _mm512_maskz_loadu_epi32(lanes, rest.descs.as_ptr().add(at).cast());
            let long = _mm512_test_epi32_mask(desc, long_bit);
            let first = _mm512_sll_epi32(_mm512_srl_epi32(desc, to_value), to_bytes);
            // A short entry moves to the top half of its word.
            let to_top = _mm512_mask_blend_epi32(long, set(16), zero);
            let below = _mm512_mask_blend_epi32(long, set(0xff_ffff), set(0xffff));
            Group {
                lanes,
                long,
                entry_shift: _mm512_mask_blend_epi32(long, one, set(if WIDE { 3 } else { 2 })),
                to_top,
                wanted: _mm512_or_si512(_mm512_slli_epi32::<16>(_mm512_and_si512(key, low_mask)), below),
                offset: first,
                count: _mm512_add_epi32(_mm512_and_si512(desc, count_mask), one),
                best: _mm512_sllv_epi32(gather_bytes(ranges, first, lanes, zero), to_top),
            }
        });
        // All groups in step: their loads do not wait for one another.
        loop {
            let mut steps: u32 = 0;
            for g in &mut groups {
                let open = _mm512_mask_cmpgt_epu32_mask(g.lanes, g.count, one);
                let half = _mm512_srli_epi32::<1>(g.count);
                let middle = _mm512_add_epi32(g.offset, _mm512_sllv_epi32(half, g.entry_shift));
                // SAFETY: open lanes read an entry between the first and the last one of their chunk; as above.
                let entry =
                    unsafe { _mm512_sllv_epi32(gather_bytes(ranges, middle, open, g.best), g.to_top) };
                let at_most = _mm512_mask_cmple_epu32_mask(open, entry, g.wanted);
                g.offset = _mm512_mask_mov_epi32(g.offset, at_most, middle);
                g.best = _mm512_mask_mov_epi32(g.best, at_most, entry);
                g.count = _mm512_sub_epi32(g.count, half);
                steps |= u32::from(_mm512_mask_cmpgt_epu32_mask(g.lanes, g.count, one));
            }
            if steps == 0 {
                break;
            }
        }
        for (group, g) in groups.iter().enumerate() {
            let short_label = _mm512_and_si512(_mm512_srli_epi32::<16>(g.best), set(0xff));
            let long_label = if WIDE {
                let behind = _mm512_add_epi32(g.offset, set(4));
                // SAFETY: the second word of a long entry in its chunk.
                unsafe { gather_bytes(ranges, behind, g.long & g.lanes, g.best) }
            } else {
                _mm512_and_si512(g.best, set(0xffff))
            };
            let label = _mm512_mask_blend_epi32(g.long, short_label, long_label);
            // SAFETY: as above for the list; listed places are below `out.len()`, and an element is a `u32`.
            unsafe {
                let place = _mm512_loadu_si512(rest.places.as_ptr().add(at + group * LANES).cast());
                _mm512_mask_i32scatter_epi32::<4>(out.as_mut_ptr().cast(), g.lanes, place, label);
            }
        }
    }
}

/// One vector of keys in their search.
struct Group {
    lanes: __mmask16,
    long: __mmask16,
    entry_shift: __m512i,
    to_top: __m512i,
    wanted: __m512i,
    offset: __m512i,
    count: __m512i,
    best: __m512i,
}
