//! The burst for AVX2 and AVX-512: the same walk, but a line's ten starts are compared at once.
//!
//! This module is one of the named homes of `unsafe`.

use super::lookup::{finish, lock_step};
use super::{CELL, Entry, LINE_BITS, LINE_HEAD, RangeTrie, STARTS};
use crate::fib::Label;
use crate::prefix::Address;
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;
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

/// Keys in flight together with AVX-512.
const BURST: usize = 256;
const LANES: usize = 16;

/// As the portable queue, one array per field; a group of 16 may be stored at any length, so there is a tail.
struct Queue {
    window: [u64; BURST + LANES],
    at: [u32; BURST + LANES],
    answer: [u32; BURST + LANES],
    len: usize,
}

impl Queue {
    const EMPTY: Queue =
        Queue { window: [0; BURST + LANES], at: [0; BURST + LANES], answer: [0; BURST + LANES], len: 0 };
}

/// Up to 16 keys on their way, in registers.
#[derive(Clone, Copy)]
struct Group {
    window: [__m512i; 2],
    at: __m512i,
    answer: __m512i,
}

impl Queue {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn group(&self, from: usize) -> Group {
        let (window, at) = (&self.window[from..from + LANES], &self.at[from..from + LANES]);
        let answer = &self.answer[from..from + LANES];
        // SAFETY: each slice has 16 elements: 128 bytes of windows, 64 bytes of the others.
        unsafe {
            Group {
                window: [
                    _mm512_loadu_si512(window.as_ptr().cast()),
                    _mm512_loadu_si512(window[8..].as_ptr().cast()),
                ],
                at: _mm512_loadu_si512(at.as_ptr().cast()),
                answer: _mm512_loadu_si512(answer.as_ptr().cast()),
            }
        }
    }

    /// Appends the keys in `belongs`.
    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    fn push(&mut self, group: Group, belongs: u16) {
        let (low, high) = (belongs as u8, (belongs >> 8) as u8);
        let (len, middle) = (self.len, self.len + low.count_ones() as usize);
        let window_low = &mut self.window[len..len + 8];
        // SAFETY: 8 windows of 8 bytes.
        unsafe {
            let packed = _mm512_maskz_compress_epi64(low, group.window[0]);
            _mm512_storeu_si512(window_low.as_mut_ptr().cast(), packed);
        }
        let window_high = &mut self.window[middle..middle + 8];
        // SAFETY: 8 windows of 8 bytes.
        unsafe {
            let packed = _mm512_maskz_compress_epi64(high, group.window[1]);
            _mm512_storeu_si512(window_high.as_mut_ptr().cast(), packed);
        }
        let (at, answer) = (&mut self.at[len..len + LANES], &mut self.answer[len..len + LANES]);
        // SAFETY: 16 numbers of 4 bytes each.
        unsafe {
            let packed = _mm512_maskz_compress_epi32(belongs, group.at);
            _mm512_storeu_si512(at.as_mut_ptr().cast(), packed);
            let packed = _mm512_maskz_compress_epi32(belongs, group.answer);
            _mm512_storeu_si512(answer.as_mut_ptr().cast(), packed);
        }
        self.len = len + belongs.count_ones() as usize;
    }
}

/// Reads `words[at]` for the lanes in `lanes`.
#[inline]
#[target_feature(enable = "avx512f")]
fn gather(words: &[AtomicU32], at: __m512i, lanes: u16) -> __m512i {
    let words_len = u32::try_from(words.len()).unwrap_or(u32::MAX);
    let inside = _mm512_mask_cmplt_epu32_mask(lanes, at, _mm512_set1_epi32(words_len as i32));
    assert!(inside == lanes, "every pointer leads inside");
    let mut entries = _mm512_setzero_si512();
    // SAFETY: every active lane reads an aligned word inside `words` (checked above; fewer than 2^31 words, so that the
    // signed index is right). Block entries may be stored to meanwhile: as assembly this is 16 single aligned loads of 4 bytes, each
    // of them atomic on x86 and, like every x86 load, an acquire.
    unsafe {
        std::arch::asm!(
            "kmovw k1, {lanes:e}",
            "vpgatherdd {entries}{{k1}}, [{words} + 4*{at}]",
            lanes = in(reg) u32::from(lanes),
            words = in(reg) words.as_ptr(),
            at = in(zmm_reg) at,
            entries = inout(zmm_reg) entries,
            out("k1") _,
            options(nostack, readonly, preserves_flags),
        );
    }
    entries
}

/// Takes the first `lanes` of a group one entry further: into the queue of the next node, or to its answer.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
fn step(words: &[AtomicU32], group: Group, lanes: u16, queues: &mut [Queue; 2], out: &mut [Label]) {
    let constant = |value: u32| _mm512_set1_epi32(value as i32);
    let entry = gather(words, group.at, lanes);
    let kind = _mm512_srli_epi32::<{ Entry::KIND_SHIFT }>(entry);
    let line_kind = Entry::POINTER >> Entry::KIND_SHIFT;
    let line = _mm512_mask_cmpeq_epi32_mask(lanes, kind, constant(line_kind));
    let above = _mm512_sub_epi32(kind, constant(line_kind + 1));
    let block = _mm512_mask_cmplt_epu32_mask(lanes, above, constant(2));
    // 0 for a line, whose address does not depend on the key.
    let width = _mm512_slli_epi32::<2>(_mm512_and_si512(kind, constant(3)));
    let widths = [
        _mm512_cvtepu32_epi64(_mm512_castsi512_si256(width)),
        _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(width)),
    ];
    let slot = |half: usize| {
        let shift = _mm512_sub_epi64(_mm512_set1_epi64(64), widths[half]);
        _mm512_cvtepi64_epi32(_mm512_srlv_epi64(group.window[half], shift))
    };
    let slots = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(slot(0)), slot(1));
    let cells =
        _mm512_slli_epi32::<{ CELL.trailing_zeros() }>(_mm512_and_si512(entry, constant(Entry::CELL_MASK)));
    let next = Group {
        window: [
            _mm512_sllv_epi64(group.window[0], widths[0]),
            _mm512_sllv_epi64(group.window[1], widths[1]),
        ],
        at: _mm512_add_epi32(cells, slots),
        answer: group.answer,
    };
    queues[0].push(next, block);
    queues[1].push(next, line);
    let done = lanes & !(block | line);
    let out_len = u32::try_from(out.len()).unwrap_or(u32::MAX);
    let inside = _mm512_mask_cmplt_epu32_mask(done, group.answer, constant(out_len));
    // SAFETY: a label is four bytes; every active lane writes inside `out`.
    unsafe { _mm512_mask_i32scatter_epi32::<4>(out.as_mut_ptr().cast(), inside, group.answer, entry) };
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,avx512f,avx512bw,avx512vl")]
fn avx512<A: Address>(trie: &RangeTrie<A>, keys: &[A], out: &mut [Label]) {
    let words = &*trie.cells;
    let mut queues = [Queue::EMPTY; 2];
    for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
        let [blocks, _] = &mut queues;
        for (i, &key) in keys.iter().enumerate() {
            let window = ((key.to_u128() << (128 - usize::from(A::BITS))) >> 64) as u64;
            blocks.at[i] = (window >> (64 - trie.root_bits)) as u32;
            blocks.window[i] = window << trie.root_bits;
            blocks.answer[i] = i as u32;
        }
        blocks.len = keys.len();
        loop {
            // Blocks until there are none, then all lines, which may lead to blocks again.
            let turn = usize::from(queues[0].len == 0);
            let waiting = std::mem::take(&mut queues[turn].len);
            if waiting == 0 {
                break;
            }
            if turn == 1 {
                let lines = &mut queues[1];
                for i in 0..waiting {
                    let (line, window) = (lines.at[i] as usize, lines.window[i]);
                    let x = _mm256_set1_epi16((window >> 48) as i16);
                    let mask = _mm256_cmple_epu16_mask(head(words, line), x);
                    let at = (u32::from(mask) & ((1 << STARTS) - 1)).count_ones() as usize;
                    lines.at[i] = (line + LINE_HEAD + at) as u32;
                    lines.window[i] = window << LINE_BITS;
                }
            }
            for from in (0..waiting).step_by(LANES) {
                let lanes = if waiting - from >= LANES { u16::MAX } else { (1 << (waiting - from)) - 1 };
                // What is pushed lands before the next group: a queue holds at most what has been taken.
                let group = queues[turn].group(from);
                step(words, group, lanes, &mut queues, out);
            }
        }
        finish(trie, keys, out);
    }
}
