//! The single lookup compiled for newer CPUs, and the bursts that take 8 keys (AVX2) or 16 (AVX-512) one node further at once.
//!
//! This module is one of the named homes of `unsafe`.

mod avx2;

use super::lookup::Look;
use super::{Entry, Lulea, SMALL_HEAD};
use crate::fib::Label;
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use tidemill_lookup::prefetch::prefetch_read;

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
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512vpopcntdq")
}

/// Both words in one load, and in a vector.
#[inline]
fn both(pair: &[AtomicU32; 2]) -> (u64, __m128i) {
    let from = pair.as_ptr();
    // SAFETY: 8 readable bytes, no alignment wanted. Not a race: they are a node's head, see `gather_pairs`, or the zeros that begin a
    // store, to which nobody stores.
    unsafe { (from.cast::<u64>().read_unaligned(), _mm_loadl_epi64(from.cast())) }
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn look_avx2(pair: &[AtomicU32; 2], x: u8) -> Look {
    let (words, ends) = both(pair);
    // Saturating: 0 where x is not above the end.
    let not_below = _mm_cmpeq_epi8(_mm_subs_epu8(_mm_set1_epi8(x as i8), ends), _mm_setzero_si128());
    let below = (!_mm_movemask_epi8(not_below) as u8).count_ones();
    Look { low: words as u32, high: (words >> 32) as u32, below }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
fn look_avx512(pair: &[AtomicU32; 2], x: u8) -> Look {
    let (words, ends) = both(pair);
    let below = (_mm_cmplt_epu8_mask(ends, _mm_set1_epi8(x as i8)) as u8).count_ones();
    Look { low: words as u32, high: (words >> 32) as u32, below }
}

#[inline]
pub(super) fn quick_avx2(fib: &Lulea, key: u128) -> Label {
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn quick(fib: &Lulea, key: u128) -> Label {
        fib.quick(key, |pair, x| look_avx2(pair, x))
    }
    debug_assert!(has_avx2());
    // SAFETY: called only where the kernel was chosen, for which `Kernel::all` found the features.
    unsafe { quick(fib, key) }
}

#[inline]
pub(super) fn quick_avx512(fib: &Lulea, key: u128) -> Label {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt")]
    fn quick(fib: &Lulea, key: u128) -> Label {
        fib.quick(key, |pair, x| look_avx512(pair, x))
    }
    debug_assert!(has_avx512());
    // SAFETY: as above.
    unsafe { quick(fib, key) }
}

pub(super) fn burst_avx2(fib: &Lulea, keys: &[u128], out: &mut [Label]) {
    assert!(has_avx2());
    // SAFETY: the CPU has the features.
    unsafe { avx2::burst(fib, keys, out) }
}

pub(super) fn burst_avx512(fib: &Lulea, keys: &[u128], out: &mut [Label]) {
    assert!(has_avx512());
    // SAFETY: the CPU has the features.
    unsafe { avx512(fib, keys, out) }
}

const LANES: usize = 16;
/// Keys in flight together.
const BURST: usize = 256;
/// Keys of a cache line.
const KEYS_PER_LINE: usize = 4;
/// Nodes that a burst visits: the window holds the bits 24..56 of a key.
const VISITS: usize = 4;

const _: () = assert!(Entry::NOWHERE == 0, "a lane that is left out gets a zero for its node");

/// Keys that make the same visit, in their order: the entries that they have come to, and the bits not yet used,
/// left-aligned. A group of 16 may be stored at any length, so there is a tail.
struct Level {
    entries: [u32; BURST + LANES],
    windows: [u32; BURST + LANES],
    /// Of each group the keys that go on to the next level.
    on: [u16; BURST / LANES],
    len: usize,
}

impl Level {
    const EMPTY: Level =
        Level { entries: [0; BURST + LANES], windows: [0; BURST + LANES], on: [0; BURST / LANES], len: 0 };

    fn groups(&self) -> usize {
        self.len.div_ceil(LANES)
    }

    /// Stores what a group has come to.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn set(&mut self, group: usize, entries: __m512i) {
        let left = self.len - group * LANES;
        let there = if left >= LANES { u16::MAX } else { (1 << left) - 1 };
        self.on[group] = pointers(entries) & there;
        store(&mut self.entries[group * LANES..], entries);
    }

    /// All keys that go on one node further.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vpopcntdq")]
    fn visit(&mut self, words: &[AtomicU32], mut before: impl FnMut(usize)) {
        for group in 0..self.groups() {
            before(group);
            let (from, on) = (group * LANES, self.on[group]);
            let entries = load(&self.entries[from..]);
            let at = locate(words, on, entries, load(&self.windows[from..]));
            let next = gather_on(words, on, at, entries);
            self.on[group] = pointers(next) & on;
            store(&mut self.entries[from..], next);
        }
    }

    /// Takes over the keys that go on. This is a loop of its own: where it stores depends on what has been loaded, and no gather
    /// starts before the CPU knows the address of every store before it.
    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    fn take(&mut self, from: &Level) {
        self.len = 0;
        for group in 0..from.groups() {
            let on = from.on[group];
            let entries = _mm512_maskz_compress_epi32(on, load(&from.entries[group * LANES..]));
            let windows = _mm512_slli_epi32::<8>(load(&from.windows[group * LANES..]));
            store(&mut self.entries[self.len..], entries);
            store(&mut self.windows[self.len..], _mm512_maskz_compress_epi32(on, windows));
            self.len += on.count_ones() as usize;
        }
        self.on.fill(u16::MAX);
        if !self.len.is_multiple_of(LANES) {
            self.on[self.len / LANES] = (1 << (self.len % LANES)) - 1;
        }
    }

    /// The other way: what those that went on have come to replaces what they went on from.
    #[inline]
    #[target_feature(enable = "avx512f,popcnt")]
    fn give_back(&self, to: &mut Level) {
        let mut given = 0;
        for group in 0..to.groups() {
            let (from, on) = (group * LANES, to.on[group]);
            let entries = load(&to.entries[from..]);
            store(
                &mut to.entries[from..],
                _mm512_mask_expand_epi32(entries, on, load(&self.entries[given..])),
            );
            given += on.count_ones() as usize;
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(from: &[u32]) -> __m512i {
    let from = &from[..LANES];
    // SAFETY: 16 numbers of 4 bytes.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [u32], lanes: __m512i) {
    let to = &mut to[..LANES];
    // SAFETY: room for 16 numbers of 4 bytes.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), lanes) }
}

/// Reads `words[at]`.
#[inline]
#[target_feature(enable = "avx512f")]
fn gather(words: &[AtomicU32], at: __m512i) -> __m512i {
    gather_on(words, u16::MAX, at, _mm512_setzero_si512())
}

/// Reads `words[at]` in the lanes in `on`; in the others it is `other`.
#[inline]
#[target_feature(enable = "avx512f")]
fn gather_on(words: &[AtomicU32], on: u16, at: __m512i, other: __m512i) -> __m512i {
    let len = u32::try_from(words.len()).unwrap_or(u32::MAX);
    let outside = _mm512_cmpge_epu32_mask(at, _mm512_set1_epi32(len as i32));
    assert!(outside == 0, "every pointer leads inside");
    // SAFETY: every lane reads, if it reads, an aligned word inside `words` (checked above; fewer than 2^31 words, so that the
    // signed index is right). Entries may be stored to meanwhile: as assembly this is up to 16 single aligned loads of 4 bytes, each
    // of them atomic on x86 and, like every x86 load, an acquire.
    unsafe { _mm512_mask_i32gather_epi32::<4>(other, on, at, words.as_ptr().cast()) }
}

/// Reads the pairs of words `pair`: the first words, the second words.
#[inline]
#[target_feature(enable = "avx512f")]
fn gather_pairs(words: &[AtomicU32], pair: __m512i) -> (__m512i, __m512i) {
    let len = u32::try_from(words.len() / 2).unwrap_or(u32::MAX);
    let outside = _mm512_cmpge_epu32_mask(pair, _mm512_set1_epi32(len as i32));
    assert!(outside == 0, "every pointer leads inside");
    let base = words.as_ptr();
    // SAFETY: every lane reads 8 bytes inside `words` (checked above; fewer than 2^30 pairs), from an even word, so that
    // they are aligned. Not a race: the head of a node was written before the entry that led here was stored (release,
    // which we acquired), and is not written again while a reader may hold it (invariants 2 and 3).
    let (low, high) = unsafe {
        (
            _mm512_i32gather_epi64::<8>(_mm512_castsi512_si256(pair), base.cast()),
            _mm512_i32gather_epi64::<8>(_mm512_extracti64x4_epi64::<1>(pair), base.cast()),
        )
    };
    let even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
    (_mm512_permutex2var_epi32(low, even, high), _mm512_permutex2var_epi32(low, odd, high))
}

/// The bits 0..32 and 24..56 of 16 keys.
#[inline]
#[target_feature(enable = "avx512f")]
fn head_bits(keys: &[u128; LANES]) -> (__m512i, __m512i) {
    let from: *const __m512i = keys.as_ptr().cast();
    // SAFETY: 16 keys are 256 bytes; unaligned loads.
    let quads = unsafe {
        [
            _mm512_loadu_si512(from),
            _mm512_loadu_si512(from.add(1)),
            _mm512_loadu_si512(from.add(2)),
            _mm512_loadu_si512(from.add(3)),
        ]
    };
    let upper = _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1); // x86 is little-endian
    let first = _mm512_permutex2var_epi64(quads[0], upper, quads[1]);
    let second = _mm512_permutex2var_epi64(quads[2], upper, quads[3]);
    let even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
    let top = _mm512_permutex2var_epi32(first, odd, second);
    let (first, second) = (_mm512_srli_epi64::<8>(first), _mm512_srli_epi64::<8>(second));
    (top, _mm512_permutex2var_epi32(first, even, second))
}

/// Root and block: the entries of 16 keys, and their windows.
#[inline]
#[target_feature(enable = "avx512f")]
fn start(root: &[AtomicU32], words: &[AtomicU32], keys: &[u128; LANES]) -> (__m512i, __m512i) {
    let (top, window) = head_bits(keys);
    let slot = _mm512_and_si512(_mm512_srli_epi32::<8>(top), _mm512_set1_epi32(0xff));
    let entry = gather(root, _mm512_srli_epi32::<16>(top));
    let on = pointers(entry);
    // Shifting out the pointer bit; a block's pointer has no other. An answer reads where it is harmless.
    let at = _mm512_mask_add_epi32(slot, on, _mm512_slli_epi32::<1>(entry), slot);
    (gather_on(words, on, at, entry), window)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn pointers(entries: __m512i) -> u16 {
    _mm512_cmplt_epi32_mask(entries, _mm512_setzero_si512())
}

/// The words of the entries one node further than `entry`, which is a pointer in the lanes in `on`; in the others, words among the zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vpopcntdq")]
fn locate(words: &[AtomicU32], on: u16, entry: __m512i, window: __m512i) -> __m512i {
    let large = _mm512_mask_test_epi32_mask(on, entry, _mm512_set1_epi32(Entry::LARGE as i32));
    let place = _mm512_maskz_and_epi32(on, entry, _mm512_set1_epi32(Entry::PLACE as i32));
    let pair = _mm512_mask_add_epi32(place, large, place, _mm512_srli_epi32::<29>(window));
    let (low, high) = gather_pairs(words, pair);
    // Large: the bits at or below x % 32. To be shifted out are as many as its complement, of five bits, says.
    let above = _mm512_andnot_si512(_mm512_srli_epi32::<24>(window), _mm512_set1_epi32(31));
    let up_to = _mm512_popcnt_epi32(_mm512_sllv_epi32(low, above));
    // Small: x in all four bytes; a byte of `x - end`, saturating, is not 0 where the end is below.
    let spread = _mm512_set4_epi32(0x0f0f_0f0f, 0x0b0b_0b0b, 0x0707_0707, 0x0303_0303);
    let x = _mm512_shuffle_epi8(window, spread);
    let one = _mm512_set1_epi8(1);
    let below_low = _mm512_min_epu8(_mm512_subs_epu8(x, low), one);
    let below_high = _mm512_min_epu8(_mm512_subs_epu8(x, high), one);
    let first = _mm512_add_epi32(_mm512_add_epi32(place, place), _mm512_set1_epi32(SMALL_HEAD as i32));
    let in_small = _mm512_dpbusd_epi32(first, _mm512_add_epi8(below_low, below_high), one);
    _mm512_mask_add_epi32(in_small, large, high, up_to)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vpopcntdq,bmi1,bmi2,popcnt")]
fn avx512(fib: &Lulea, keys: &[u128], out: &mut [Label]) {
    LEVELS.with_borrow_mut(|levels| {
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            one_burst(fib, keys, out, levels);
        }
    });
}

/// Cache lines that a burst's keys take.
const LINES: usize = BURST / KEYS_PER_LINE;
/// Lines prefetched beside each group of the first visit, in all the first half of them.
const LINES_AHEAD: usize = LINES / 2 / (BURST / LANES);

/// Prefetches lines of the keys behind the burst: callers mostly hand over a long array piece by piece, and where there are no more
/// keys, nothing is lost but the hint. 16 bytes a key are so much that waiting for them takes as long as the lookups.
/// Half of the lines beside a visit and half where nothing else is loaded did best.
///
/// A line is named by the last of its keys: large allocations begin 16 bytes behind a page's beginning, so that the last key of a burst lies on the
/// next page, where the CPU's own prefetching does not go. By their first keys the lines would leave that one out.
#[inline(always)]
fn ahead(keys: &[u128], lines: Range<usize>) {
    for line in lines {
        prefetch_read(keys.as_ptr().wrapping_add(BURST + line * KEYS_PER_LINE + KEYS_PER_LINE - 1));
    }
}

thread_local! {
    /// Cleared once: clearing them for every burst costs more than its last visits.
    static LEVELS: RefCell<[Level; VISITS]> = const { RefCell::new([Level::EMPTY; VISITS]) };
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vpopcntdq,bmi1,bmi2,popcnt")]
fn one_burst(fib: &Lulea, keys: &[u128], out: &mut [Label], levels: &mut [Level; VISITS]) {
    let (root, words) = (&*fib.root, &*fib.store.words);
    let (groups, tail) = keys.as_chunks();
    levels[0].len = keys.len();
    for (group, keys) in groups.iter().enumerate() {
        let (entries, windows) = start(root, words, keys);
        levels[0].set(group, entries);
        store(&mut levels[0].windows[group * LANES..], windows);
    }
    if !tail.is_empty() {
        let mut last = [0; LANES];
        last[..tail.len()].copy_from_slice(tail);
        let (entries, windows) = start(root, words, &last);
        levels[0].set(groups.len(), entries);
        store(&mut levels[0].windows[groups.len() * LANES..], windows);
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

/// Hands over what the keys of a burst have come to. Those that have no answer yet go on one by one.
#[inline(always)]
fn answer(fib: &Lulea, keys: &[u128], out: &mut [Label], entries: &[u32]) {
    let mut any = 0;
    for (out, &entry) in out.iter_mut().zip(entries) {
        *out = Label(entry);
        any |= entry;
    }
    if any & Entry::POINTER != 0 {
        for (key, out) in keys.iter().zip(out) {
            *out = fib.rest(*key, out.0, 24 + 8 * VISITS as u8);
        }
    }
}
