//! The lookups for CPUs that count bits: by the POPCNT instruction, and eight nodes at a time with AVX-512.
//!
//! This module is one of the named homes of `unsafe`.

use super::lookup::lock_step;
use super::{NODE, NODE_WORDS, Poptrie, STRIDE};
use crate::fib::Label;
use crate::prefix::Address;
use std::arch::asm;
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;
use tidemill_lookup::prefetch::prefetch_read;

pub(super) fn has_popcnt() -> bool {
    is_x86_feature_detected!("popcnt") && is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2")
}

pub(super) fn has_avx512() -> bool {
    has_popcnt()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vpopcntdq")
}

/// One key. The trie's kernel is one that needs the instruction too, so it is there.
#[inline]
pub(super) fn lookup_popcnt<A: Address>(trie: &Poptrie<A>, key: A) -> Label {
    debug_assert!(has_popcnt());
    // SAFETY: `Kernel::best` has found the features when the trie was made.
    unsafe { one(trie, key) }
}

#[target_feature(enable = "popcnt,bmi1,bmi2")]
fn one<A: Address>(trie: &Poptrie<A>, key: A) -> Label {
    trie.lookup_probed(key, &())
}

pub(super) fn burst_popcnt<A: Address>(trie: &Poptrie<A>, keys: &[A], out: &mut [Label]) {
    assert!(has_popcnt());
    // SAFETY: the CPU has the features.
    unsafe { popcnt(trie, keys, out) }
}

#[target_feature(enable = "popcnt,bmi1,bmi2")]
fn popcnt<A: Address>(trie: &Poptrie<A>, keys: &[A], out: &mut [Label]) {
    lock_step(trie, keys, out);
}

pub(super) fn burst_avx512<A: Address>(trie: &Poptrie<A>, keys: &[A], out: &mut [Label]) {
    assert!(has_avx512());
    // SAFETY: the CPU has the features.
    unsafe { avx512(trie, keys, out) }
}

/// Keys in flight together with AVX-512.
const BURST: usize = 256;
/// Words of 32 bits in a vector.
const LANES: usize = 16;
/// Words of 64 bits in a vector: nodes that are read together.
const HALF: usize = 8;

/// Defines a gather: of lane `i`, if its bit in the mask is set, the word at `base + index[i] * scale + offset`; 0 if not.
macro_rules! gather {
    ($name:ident, $instruction:literal, $scale:literal) => {
        /// # Safety
        /// The word of every lane in `mask` is inside one allocation that `base` points into.
        #[inline]
        #[target_feature(enable = "avx512f")]
        unsafe fn $name<const OFFSET: usize>(base: *const u8, index: __m512i, mask: u16) -> __m512i {
            let mut words = _mm512_setzero_si512();
            // SAFETY: loads only what the caller vouches for, and writes only the registers named. As assembly these are single
            // aligned loads, each of them atomic on x86 and, like every x86 load, an acquire: another thread may store meanwhile.
            unsafe {
                asm!(
                    concat!($instruction, " {words}{{{mask}}}, [{base} + {index}*", $scale, " + {offset}]"),
                    words = inout(zmm_reg) words,
                    mask = inout(kreg) mask => _,
                    index = in(zmm_reg) index,
                    base = in(reg) base,
                    offset = const OFFSET,
                    options(nostack, preserves_flags, readonly),
                );
            }
            words
        }
    };
}
gather!(gather_u32, "vpgatherdd", "4");
gather!(gather_u64, "vpgatherqq", "8");

/// Keys that wait for a node, or for a leaf; as many may be stored behind the last one as a vector holds.
struct Queue {
    /// The bits of the key that were not used yet, from the highest bit on.
    window: [u64; BURST + LANES],
    number: [u32; BURST + LANES],
    answer: [u32; BURST + LANES],
    len: usize,
}

impl Queue {
    const EMPTY: Queue =
        Queue { window: [0; BURST + LANES], number: [0; BURST + LANES], answer: [0; BURST + LANES], len: 0 };
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_u64(from: &[u64; HALF]) -> __m512i {
    // SAFETY: 64 bytes, at any address.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_u64(to: &mut [u64], words: __m512i) {
    let to = &mut to[..HALF];
    // SAFETY: 64 bytes, at any address.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_u32(from: &[u32]) -> __m512i {
    let from = &from[..LANES];
    // SAFETY: 64 bytes, at any address.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn load_half(from: &[u32]) -> __m256i {
    let from = &from[..HALF];
    // SAFETY: 32 bytes, at any address.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn store_half(to: &mut [u32], words: __m256i) {
    let to = &mut to[..HALF];
    // SAFETY: 32 bytes, at any address.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), words) }
}

/// The 64 bits of a key behind the first `depth`.
#[inline(always)]
fn window<A: Address>(key: A, depth: u8) -> u64 {
    (((key << usize::from(depth)).to_u128() << (128 - usize::from(A::BITS))) >> 64) as u64
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,avx512f,avx512vl,avx512vpopcntdq")]
fn avx512<A: Address>(trie: &Poptrie<A>, keys: &[A], out: &mut [Label]) {
    let (mut nodes, mut leaves) = (Queue::EMPTY, Queue::EMPTY);
    for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
        start(trie, keys, out, &mut nodes);
        leaves.len = 0;
        // How far the keys have come, and how many bits the windows have left.
        let (mut depth, mut left) = (trie.root_bits, 64 - trie.root_bits);
        while nodes.len > 0 {
            if left < STRIDE {
                for i in 0..nodes.len {
                    nodes.window[i] = window(keys[nodes.answer[i] as usize], depth);
                }
                left = 64;
            }
            // So the misses of a burst overlap; those of one gather hardly do with the next one's.
            nodes.number[..nodes.len].iter().for_each(|&number| prefetch_read(trie.node_at(number)));
            round(trie, &mut nodes, &mut leaves);
            (depth, left) = (depth + STRIDE, left - STRIDE);
        }
        leaves.number[..leaves.len].iter().for_each(|&leaf| prefetch_read(trie.leaf_at(leaf)));
        finish(trie, &leaves, out);
    }
}

/// Reads the entries of the root, stores the labels among them, and lists the keys that have to go on.
#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,avx512f,avx512vl")]
fn start<A: Address>(trie: &Poptrie<A>, keys: &[A], out: &mut [Label], nodes: &mut Queue) {
    let root_bits = u32::from(trie.root_bits);
    let (to_slot, used) = (_mm_cvtsi32_si128(64 - root_bits as i32), _mm_cvtsi32_si128(root_bits as i32));
    let mut place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut windows = [[0; HALF]; 2];
    let mut len = 0;
    for at in (0..keys.len()).step_by(LANES) {
        let count = (keys.len() - at).min(LANES);
        if let Some(keys) = keys[at..].first_chunk::<LANES>() {
            for i in 0..LANES {
                windows[i / HALF][i % HALF] = window(keys[i], 0);
            }
        } else {
            for i in 0..count {
                windows[i / HALF][i % HALF] = window(keys[at + i], 0);
            }
        }
        let lanes = u16::MAX >> (LANES - count);
        let (low, high) = (load_u64(&windows[0]), load_u64(&windows[1]));
        let slot = |half| _mm512_cvtepi64_epi32(_mm512_srl_epi64(half, to_slot));
        let slots = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(slot(low)), slot(high));
        // SAFETY: a slot has `root_bits` bits, and the root has an entry for each.
        let entry = unsafe { gather_u32::<0>(trie.root.as_ptr().cast(), slots, lanes) };
        let to = &mut out[at..at + count];
        // SAFETY: `to` has room for as many labels, a word each, as there are lanes.
        unsafe { _mm512_mask_storeu_epi32(to.as_mut_ptr().cast(), lanes, entry) };
        let open = _mm512_mask_cmplt_epi32_mask(lanes, entry, _mm512_setzero_si512());
        let number = _mm512_and_si512(entry, _mm512_set1_epi32(!NODE as i32));
        let halves = [(low, open as u8, number, place), {
            let upper = |v| _mm512_castsi256_si512(_mm512_extracti64x4_epi64::<1>(v));
            (high, (open >> HALF) as u8, upper(number), upper(place))
        }];
        for (key, open, number, place) in halves {
            let pack = |v| _mm256_maskz_compress_epi32(open, _mm512_castsi512_si256(v));
            store_u64(
                &mut nodes.window[len..],
                _mm512_maskz_compress_epi64(open, _mm512_sll_epi64(key, used)),
            );
            store_half(&mut nodes.number[len..], pack(number));
            store_half(&mut nodes.answer[len..], pack(place));
            len += open.count_ones() as usize;
        }
        place = _mm512_add_epi32(place, _mm512_set1_epi32(LANES as i32));
    }
    nodes.len = len;
}

/// Takes every listed key one node further: to a child, or to a leaf.
#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,avx512f,avx512vl,avx512vpopcntdq")]
fn round<A: Address>(trie: &Poptrie<A>, nodes: &mut Queue, leaves: &mut Queue) {
    let words = trie.nodes.as_ptr().cast::<u8>();
    let most = _mm512_set1_epi64((trie.nodes.len() / NODE_WORDS) as i64);
    let one = _mm512_set1_epi64(1);
    let (waiting, mut len) = (nodes.len, 0);
    for from in (0..waiting).step_by(HALF) {
        let lanes = u8::MAX >> (HALF - (waiting - from).min(HALF));
        let number = _mm512_cvtepu32_epi64(load_half(&nodes.number[from..]));
        let answer = load_half(&nodes.answer[from..]);
        let key = nodes.window[from..].first_chunk().map_or(one, |key| load_u64(key));
        let inside = _mm512_mask_cmplt_epu64_mask(lanes, number, most);
        assert!(inside == lanes, "every word leads to a node");
        let at = _mm512_add_epi64(_mm512_add_epi64(number, number), number);
        // SAFETY: a node has three words from three times its number on, and its number was just checked.
        let [vector, leafvec, bases] = unsafe {
            let mask = u16::from(lanes);
            [
                gather_u64::<0>(words, at, mask),
                gather_u64::<8>(words, at, mask),
                gather_u64::<16>(words, at, mask),
            ]
        };
        let v = _mm512_srli_epi64::<{ 64 - STRIDE as u32 }>(key);
        let bit = _mm512_sllv_epi64(one, v);
        let below = _mm512_mask_test_epi64_mask(lanes, vector, bit);
        let up_to = _mm512_or_si512(bit, _mm512_sub_epi64(bit, one));
        let counted = _mm512_and_si512(up_to, _mm512_mask_blend_epi64(below, leafvec, vector));
        let base = _mm512_mask_srli_epi64::<32>(bases, below, bases);
        let next = _mm512_sub_epi64(_mm512_add_epi64(base, _mm512_popcnt_epi64(counted)), one);
        let next = _mm512_cvtepi64_epi32(next);
        let key = _mm512_slli_epi64::<{ STRIDE as u32 }>(key);
        // What is listed lands where this group came from, or before.
        store_u64(&mut nodes.window[len..], _mm512_maskz_compress_epi64(below, key));
        store_half(&mut nodes.number[len..], _mm256_maskz_compress_epi32(below, next));
        store_half(&mut nodes.answer[len..], _mm256_maskz_compress_epi32(below, answer));
        len += below.count_ones() as usize;
        let leaf = lanes & !below;
        store_half(&mut leaves.number[leaves.len..], _mm256_maskz_compress_epi32(leaf, next));
        store_half(&mut leaves.answer[leaves.len..], _mm256_maskz_compress_epi32(leaf, answer));
        leaves.len += leaf.count_ones() as usize;
    }
    nodes.len = len;
}

/// Reads the listed leaves.
#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,avx512f,avx512vl")]
fn finish<A: Address>(trie: &Poptrie<A>, leaves: &Queue, out: &mut [Label]) {
    let set = |value: u32| _mm512_set1_epi32(value as i32);
    let (width, shift) = (trie.width, _mm_cvtsi32_si128(trie.width.shift as i32));
    let (words, places) = (trie.leaves.len() as u32, out.len() as u32);
    for from in (0..leaves.len).step_by(LANES) {
        let lanes = u16::MAX >> (LANES - (leaves.len - from).min(LANES));
        let (leaf, answer) = (load_u32(&leaves.number[from..]), load_u32(&leaves.answer[from..]));
        let at = _mm512_srl_epi32(leaf, shift);
        let inside = _mm512_mask_cmplt_epu32_mask(lanes, at, set(words));
        assert!(inside == lanes, "every node's leaves are there");
        // SAFETY: the words were just checked; there are fewer than 2^31, so no index has a sign.
        let word = unsafe { gather_u32::<0>(trie.leaves.as_ptr().cast(), at, lanes) };
        let part = _mm512_and_si512(leaf, set((1 << width.shift) - 1));
        let label = _mm512_srlv_epi32(word, _mm512_mullo_epi32(part, set(width.bits())));
        let label = _mm512_and_si512(label, set(width.mask()));
        let known = _mm512_mask_cmplt_epu32_mask(lanes, answer, set(places));
        // SAFETY: a label is four bytes, and every active lane writes inside `out`.
        unsafe { _mm512_mask_i32scatter_epi32::<4>(out.as_mut_ptr().cast(), known, answer, label) };
    }
}
