//! The burst for AVX2, which takes 8 keys one node further at once: that for AVX-512, with small tables for what AVX2 has no instruction for
//! (packing lanes, counting bits).
//!
//! This module is one of the named homes of `unsafe`.

use super::{BURST, LINES, VISITS, ahead, answer};
use crate::fib::Label;
use crate::lulea::{Entry, Lulea, SMALL_HEAD};
use std::arch::x86_64::*;
use std::cell::RefCell;
use std::sync::atomic::AtomicU32;

const LANES: usize = 8;
const GROUPS: usize = BURST / LANES;
/// Lines of keys prefetched beside each group of the first visit, in all the first half of them.
const LINES_AHEAD: usize = LINES / 2 / GROUPS;

/// For each set of lanes, as eight bytes: its lanes in their order.
static PACK: [u64; 1 << LANES] = {
    let mut all = [0; 1 << LANES];
    let mut set = 0;
    while set < all.len() {
        let (mut lane, mut count) = (0, 0_u32);
        while lane < LANES {
            if (set >> lane) & 1 == 1 {
                all[set] |= (lane as u64) << (8 * count);
                count += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    all
};

/// The other way: for each lane, how many lanes of the set are before it.
static SPREAD: [u64; 1 << LANES] = {
    let mut all = [0; 1 << LANES];
    let mut set = 0;
    while set < all.len() {
        let (mut lane, mut count) = (0, 0_u64);
        while lane < LANES {
            all[set] |= count << (8 * lane);
            count += ((set >> lane) & 1) as u64;
            lane += 1;
        }
        set += 1;
    }
    all
};

/// Keys that make the same visit, in their order: the entries that they have come to, and the bits not yet used,
/// left-aligned. A group of 8 may be stored at any length, so there is a tail.
struct Level {
    entries: [u32; BURST + LANES],
    windows: [u32; BURST + LANES],
    /// Of each group the keys that go on to the next level.
    on: [u8; GROUPS],
    len: usize,
}

impl Level {
    const EMPTY: Level =
        Level { entries: [0; BURST + LANES], windows: [0; BURST + LANES], on: [0; GROUPS], len: 0 };

    fn groups(&self) -> usize {
        self.len.div_ceil(LANES)
    }

    /// Stores what a group has come to.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn set(&mut self, group: usize, entries: __m256i) {
        let left = self.len - group * LANES;
        let there = if left >= LANES { u8::MAX } else { (1 << left) - 1 };
        let pointers = _mm256_movemask_ps(_mm256_castsi256_ps(entries)) as u8;
        self.on[group] = pointers & there;
        store(&mut self.entries[group * LANES..], entries);
    }

    /// All keys that go on one node further.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn visit(&mut self, words: &[AtomicU32], mut before: impl FnMut(usize)) {
        let nowhere = each(Entry::POINTER | Entry::NOWHERE);
        for group in 0..self.groups() {
            before(group);
            let (from, on) = (group * LANES, lanes(self.on[group]));
            let entries = load(&self.entries[from..]);
            let pointers = _mm256_blendv_epi8(nowhere, entries, on);
            let at = locate(words, pointers, load(&self.windows[from..]));
            self.set(group, _mm256_blendv_epi8(entries, gather(words, at), on));
        }
    }

    /// Takes over the keys that go on; a loop of its own, as with AVX-512.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn take(&mut self, from: &Level) {
        self.len = 0;
        for group in 0..from.groups() {
            let on = from.on[group];
            let order = spread_bytes(PACK[usize::from(on)]);
            let entries = load(&from.entries[group * LANES..]);
            let windows = _mm256_slli_epi32::<8>(load(&from.windows[group * LANES..]));
            store(&mut self.entries[self.len..], _mm256_permutevar8x32_epi32(entries, order));
            store(&mut self.windows[self.len..], _mm256_permutevar8x32_epi32(windows, order));
            self.len += on.count_ones() as usize;
        }
        self.on.fill(u8::MAX);
        if !self.len.is_multiple_of(LANES) {
            self.on[self.len / LANES] = (1 << (self.len % LANES)) - 1;
        }
    }

    /// The other way: what those that went on have come to replaces what they went on from.
    #[inline]
    #[target_feature(enable = "avx2,popcnt")]
    fn give_back(&self, to: &mut Level) {
        let mut given = 0;
        for group in 0..to.groups() {
            let (from, on) = (group * LANES, to.on[group]);
            let order = spread_bytes(SPREAD[usize::from(on)]);
            let came = _mm256_permutevar8x32_epi32(load(&self.entries[given..]), order);
            let entries = load(&to.entries[from..]);
            store(&mut to.entries[from..], _mm256_blendv_epi8(entries, came, lanes(on)));
            given += on.count_ones() as usize;
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(from: &[u32]) -> __m256i {
    let from = &from[..LANES];
    // SAFETY: 8 numbers of 4 bytes.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(to: &mut [u32], lanes: __m256i) {
    let to = &mut to[..LANES];
    // SAFETY: room for 8 numbers of 4 bytes.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), lanes) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn each(value: u32) -> __m256i {
    _mm256_set1_epi32(value as i32)
}

/// All ones in the lanes of a set.
#[inline]
#[target_feature(enable = "avx2")]
fn lanes(set: u8) -> __m256i {
    let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    _mm256_cmpeq_epi32(_mm256_and_si256(each(set.into()), bits), bits)
}

/// A byte to each lane.
#[inline]
#[target_feature(enable = "avx2")]
fn spread_bytes(bytes: u64) -> __m256i {
    _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes as i64))
}

/// Whether all lanes are below `len`.
#[inline]
#[target_feature(enable = "avx2")]
fn are_below(at: __m256i, len: usize) -> bool {
    let len = each(u32::try_from(len).unwrap_or(u32::MAX));
    let not_below = _mm256_cmpeq_epi32(_mm256_max_epu32(at, len), at);
    _mm256_testz_si256(not_below, not_below) == 1
}

/// Reads `words[at]`.
#[inline]
#[target_feature(enable = "avx2")]
fn gather(words: &[AtomicU32], at: __m256i) -> __m256i {
    assert!(are_below(at, words.len()), "every pointer leads inside");
    // SAFETY: every lane reads an aligned word inside `words` (checked above; fewer than 2^31 words, so that the
    // signed index is right). Entries may be stored to meanwhile: as assembly this is 8 single aligned loads of 4 bytes, each
    // of them atomic on x86 and, like every x86 load, an acquire.
    unsafe { _mm256_i32gather_epi32::<4>(words.as_ptr().cast(), at) }
}

/// Reads the pairs of words `pair`: the first words, the second words.
#[inline]
#[target_feature(enable = "avx2")]
fn gather_pairs(words: &[AtomicU32], pair: __m256i) -> (__m256i, __m256i) {
    assert!(are_below(pair, words.len() / 2), "every pointer leads inside");
    // 0 1 4 5 and 2 3 6 7: putting the halves' first and second words together has them in order.
    let halves = _mm256_permute4x64_epi64::<0b11_01_10_00>(pair);
    let base = words.as_ptr().cast();
    // SAFETY: every lane reads 8 bytes inside `words` (checked above; fewer than 2^30 pairs), from an even word, so that
    // they are aligned. Not a race: the head of a node was written before the entry that led here was stored (release,
    // which we acquired), and is not written again while a reader may hold it (invariants 2 and 3).
    let (a, b) = unsafe {
        (
            _mm256_i32gather_epi64::<8>(base, _mm256_castsi256_si128(halves)),
            _mm256_i32gather_epi64::<8>(base, _mm256_extracti128_si256::<1>(halves)),
        )
    };
    words_of(a, b)
}

/// Of each half of `a` and then of `b` the first words, and the second words.
#[inline]
#[target_feature(enable = "avx2")]
fn words_of(a: __m256i, b: __m256i) -> (__m256i, __m256i) {
    let (a, b) = (_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
    let (even, odd) = (_mm256_shuffle_ps::<0b10_00_10_00>(a, b), _mm256_shuffle_ps::<0b11_01_11_01>(a, b));
    (_mm256_castps_si256(even), _mm256_castps_si256(odd))
}

/// The bits 0..32 and 24..56 of 8 keys.
#[inline]
#[target_feature(enable = "avx2")]
fn head_bits(keys: &[u128; LANES]) -> (__m256i, __m256i) {
    let from: *const __m256i = keys.as_ptr().cast();
    // SAFETY: 8 keys are 128 bytes; unaligned loads.
    let pairs = unsafe {
        [
            _mm256_loadu_si256(from),
            _mm256_loadu_si256(from.add(1)),
            _mm256_loadu_si256(from.add(2)),
            _mm256_loadu_si256(from.add(3)),
        ]
    };
    // The upper halves of the keys 0 2 1 3 and 4 6 5 7; x86 is little-endian.
    let (first, second) =
        (_mm256_unpackhi_epi64(pairs[0], pairs[1]), _mm256_unpackhi_epi64(pairs[2], pairs[3]));
    let (_, top) = words_of(first, second);
    let (window, _) = words_of(_mm256_srli_epi64::<8>(first), _mm256_srli_epi64::<8>(second));
    // Now they are 0 2 4 6 1 3 5 7.
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    (_mm256_permutevar8x32_epi32(top, order), _mm256_permutevar8x32_epi32(window, order))
}

/// Root and block: the entries of 8 keys, and their windows.
#[inline]
#[target_feature(enable = "avx2")]
fn start(root: &[AtomicU32], words: &[AtomicU32], keys: &[u128; LANES]) -> (__m256i, __m256i) {
    let (top, window) = head_bits(keys);
    let slot = _mm256_and_si256(_mm256_srli_epi32::<8>(top), each(0xff));
    let entry = gather(root, _mm256_srli_epi32::<16>(top));
    let on = _mm256_srai_epi32::<31>(entry);
    // Shifting out the pointer bit; a block's pointer has no other. An answer reads where it is harmless.
    let block = _mm256_and_si256(_mm256_slli_epi32::<1>(entry), on);
    let next = gather(words, _mm256_add_epi32(block, slot));
    (_mm256_blendv_epi8(entry, next, on), window)
}

/// The words of the entries one node further than `entry`, all of them pointers.
#[inline]
#[target_feature(enable = "avx2")]
fn locate(words: &[AtomicU32], entry: __m256i, window: __m256i) -> __m256i {
    // The bit that says so becomes the sign, and the sign the whole lane.
    let large = _mm256_srai_epi32::<31>(_mm256_slli_epi32::<1>(entry));
    let place = _mm256_and_si256(entry, each(Entry::PLACE));
    let aside = _mm256_and_si256(_mm256_srli_epi32::<29>(window), large);
    let (low, high) = gather_pairs(words, _mm256_add_epi32(place, aside));
    // Large: the bits at or below x % 32, by a table of those of half a byte.
    let bit = _mm256_srli_epi32::<24>(window);
    let shifted = _mm256_sllv_epi32(low, _mm256_andnot_si256(bit, each(31)));
    let counts = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    let count = |half| _mm256_shuffle_epi8(counts, _mm256_and_si256(half, each(0x0f0f_0f0f)));
    let in_large = _mm256_add_epi8(count(shifted), count(_mm256_srli_epi16::<4>(shifted)));
    // Small: x in all four bytes; a byte of `x - end`, saturating, is not 0 where the end is below.
    let four = _mm_setr_epi32(0x0303_0303, 0x0707_0707, 0x0b0b_0b0b, 0x0f0f_0f0f);
    let x = _mm256_shuffle_epi8(window, _mm256_broadcastsi128_si256(four));
    let one = _mm256_set1_epi8(1);
    let below = |ends| _mm256_min_epu8(_mm256_subs_epu8(x, ends), one);
    let in_small = _mm256_add_epi8(below(low), below(high));
    // Both are four bytes to be added up, behind where the entries begin.
    let bytes = _mm256_blendv_epi8(in_small, in_large, large);
    let behind = _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, one), _mm256_set1_epi16(1));
    let first = _mm256_add_epi32(_mm256_add_epi32(place, place), each(SMALL_HEAD as u32));
    _mm256_add_epi32(_mm256_blendv_epi8(first, high, large), behind)
}

thread_local! {
    /// Cleared once, as with AVX-512.
    static LEVELS: RefCell<[Level; VISITS]> = const { RefCell::new([Level::EMPTY; VISITS]) };
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn burst(fib: &Lulea, keys: &[u128], out: &mut [Label]) {
    LEVELS.with_borrow_mut(|levels| {
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            one_burst(fib, keys, out, levels);
        }
    });
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn one_burst(fib: &Lulea, keys: &[u128], out: &mut [Label], levels: &mut [Level; VISITS]) {
    let (root, words) = (&*fib.root, &*fib.store.words);
    let (groups, tail) = keys.as_chunks::<LANES>();
    levels[0].len = keys.len();
    let mut last = [0; LANES];
    last[..tail.len()].copy_from_slice(tail);
    let tail = (!tail.is_empty()).then_some(&last);
    for (group, keys) in groups.iter().chain(tail).enumerate() {
        let (entries, windows) = start(root, words, keys);
        levels[0].set(group, entries);
        store(&mut levels[0].windows[group * LANES..], windows);
    }
    levels[0].visit(words, |group| ahead(keys, group * LINES_AHEAD..(group + 1) * LINES_AHEAD));
    let mut deepest = 0;
    while deepest + 1 < VISITS {
        let (above, level) = levels.split_at_mut(deepest + 1);
        level[0].take(&above[deepest]);
        if level[0].len == 0 {
            break;
        }
        level[0].visit(words, |_| {});
        deepest += 1;
    }
    for depth in (1..=deepest).rev() {
        let (above, level) = levels.split_at_mut(depth);
        level[0].give_back(&mut above[depth - 1]);
    }
    ahead(keys, LINES / 2..LINES);
    answer(fib, keys, out, &levels[0].entries);
}
