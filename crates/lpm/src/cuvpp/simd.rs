//! Eight lengths of a key at once with AVX-512.
//!
//! This module is one of the named homes of `unsafe`.

use super::CuVpp;
use super::burst::Group;
use crate::fib::{Fib, Label};
use crate::hashlengths::hash::Sums;
use crate::prefix::Address;
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;

/// Keys whose buckets of the table are on their way together.
const GROUP: usize = 32;

pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("lzcnt")
}

pub(super) fn burst<A: Address>(fib: &CuVpp<A>, groups: &[Group], keys: &[A], out: &mut [Label]) {
    assert!(has_avx512());
    // SAFETY: the CPU has the features.
    unsafe { avx512(fib, groups, keys, out) }
}

/// The longest length of which the filter says "maybe", and its hash.
#[derive(Clone, Copy)]
struct Maybe {
    len: u8,
    hash: u64,
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,lzcnt")]
fn avx512<A: Address>(fib: &CuVpp<A>, groups: &[Group], keys: &[A], out: &mut [Label]) {
    if !fib.screen.stash.is_empty() {
        // A filter that is full, or prefixes that were chosen to crowd a few buckets: until they go, or a larger filter is made. (Many
        // of one hash are not in the stash.)
        keys.iter().zip(out).for_each(|(&key, out)| *out = fib.lookup(key));
        return;
    }
    let default = fib.lengths.cuts().last().filter(|cut| cut.len == 0);
    let default = default.map_or(Label::NONE, |_| fib.lookup_default());
    let mut maybes = [None::<Maybe>; GROUP];
    for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
        for (&key, maybe) in keys.iter().zip(&mut maybes) {
            *maybe = longest(fib, groups, key);
            if let Some(maybe) = maybe {
                fib.table.prefetch(maybe.hash);
            }
        }
        for ((&key, maybe), out) in keys.iter().zip(&maybes).zip(out) {
            *out = match maybe {
                None => default,
                Some(Maybe { len, hash }) => match fib.table.get(*hash, key & A::mask(*len), *len, &()) {
                    Some(label) => Label(label),
                    // A false positive: once in some hundred keys.
                    None => fib.lookup(key),
                },
            };
        }
    }
}

/// Eight buckets, by loads: a gather takes longer on some CPUs (Zen 4), and is not much quicker on others.
///
/// # Safety
/// Every lane of `index` is below the number of buckets.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn eight(buckets: &[[u16; 4]], index: __m512i) -> __m512i {
    let mut at = [0_u64; 8];
    // SAFETY: 64 bytes, at any address.
    unsafe { _mm512_storeu_si512(at.as_mut_ptr().cast(), index) };
    let load = |i: usize| {
        // SAFETY: the bucket is there, as the caller vouches for, and has 8 bytes.
        unsafe { buckets.as_ptr().add(at[i] as usize).cast::<i64>().read_unaligned() }
    };
    _mm512_setr_epi64(load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,lzcnt")]
fn longest<A: Address>(fib: &CuVpp<A>, groups: &[Group], key: A) -> Option<Maybe> {
    let filter = &fib.screen;
    let buckets = _mm512_set1_epi64(filter.buckets.len() as i64);
    let set = |value: u64| _mm512_set1_epi64(value as i64);
    // Of each word its lowest 16 bits four times.
    let four = _mm512_set4_epi32(0x0908_0908, 0x0908_0908, 0x0100_0100, 0x0100_0100);
    let sums = Sums::new(key, fib.lengths.bytes(), &());
    for group in groups {
        let (sum, first, second) = sums.eight::<A>(group.eight.whole);
        // SAFETY: 32 bytes each, and 64, at any address.
        let (first4, second4, tags) = unsafe {
            (
                _mm256_loadu_si256(first.as_ptr().cast()),
                _mm256_loadu_si256(second.as_ptr().cast()),
                _mm512_loadu_si512(group.eight.tags.as_ptr().cast()),
            )
        };
        let second4 = _mm256_xor_si256(second4, _mm256_set1_epi64x(first[3] as i64));
        let add = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first4), second4);
        let hash = _mm512_xor_si512(_mm512_xor_si512(add, tags), set(sum));

        // As `CuckooFilter::item` and `other` do.
        let turned = _mm512_rorv_epi64(hash, set(filter.rotate.into()));
        let fingerprint = _mm512_max_epu64(_mm512_and_si512(turned, set(0xffff)), set(1));
        let spread = _mm512_srli_epi64::<32>(_mm512_mullo_epi64(turned, set(0x9e37_79b9_7f4a_7c15)));
        let bucket = _mm512_srli_epi64::<32>(_mm512_mul_epu32(spread, buckets));
        let place = _mm512_mul_epu32(fingerprint, set(0x9e37_79b1));
        let place = _mm512_srli_epi64::<32>(_mm512_mul_epu32(place, buckets));
        let other = _mm512_sub_epi64(place, bucket);
        // Where that went below zero it is greater than with a whole round more.
        let other = _mm512_min_epu64(other, _mm512_add_epi64(other, buckets));

        // SAFETY: both numbers are below the number of buckets: each is the high half of a number of 32 bits times that, or the
        // difference of two such modulo it.
        let (one, two) = unsafe { (eight(&filter.buckets, bucket), eight(&filter.buckets, other)) };
        let same = _mm512_shuffle_epi8(fingerprint, four);
        let found = _mm512_cmpeq_epi16_mask(one, same) | _mm512_cmpeq_epi16_mask(two, same);
        let found = found & group.lengths;
        if found != 0 {
            let lane = (31 - found.leading_zeros()) as usize / 4;
            let mut hashes = [0_u64; 8];
            // SAFETY: 64 bytes, at any address.
            unsafe { _mm512_storeu_si512(hashes.as_mut_ptr().cast(), hash) };
            return Some(Maybe { len: (8 * group.eight.whole + lane + 1) as u8, hash: hashes[lane] });
        }
    }
    None
}
