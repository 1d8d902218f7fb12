//! The kernel for AVX2: processors before Zen 4, and those that keep AVX-512 to themselves.
//!
//! This module is one of the named homes of `unsafe`: it loads hashes and tags as vectors (see [`super::kernel`]).

use super::kernel::{piped, read_back};
use super::{AtHome, GROUP, Group};
use crate::flowtable::State;
use crate::flowtable::store::{Place, Store};
use crate::flowtable::tags::{ALL, Tags, bits};
use crate::key::Key;
use std::arch::x86_64::*;

/// So few entries of a group are compared by themselves.
const FEW: u32 = 8;
/// Two vectors were joined half by half: the four quarters in their order again.
const IN_ORDER: i32 = 0b11_01_10_00;

impl<const W: usize, S: State> Store<W, S> {
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn look_avx2<const INSERT: bool>(
        &self,
        hashes: &[[u64; GROUP]],
        keys: &[[Key<W>; GROUP]],
        done: &mut impl FnMut(&Group, usize),
    ) {
        piped(
            hashes,
            keys,
            |group: &mut Group, hashes: &[u64; GROUP]| self.begin_avx2(group, hashes),
            |group: &mut Group| self.tags_avx2::<INSERT>(group),
            |group: &mut Group| self.away_avx2::<INSERT>(group),
            |group: &mut Group, keys: &[Key<W>; GROUP]| self.end_avx2(group, keys),
            done,
        );
    }

    /// Homes and tags, and home's tags asked for.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn begin_avx2(&self, group: &mut Group, hashes: &[u64; GROUP]) {
        let buckets = _mm256_set1_epi64x(i64::from(self.buckets));
        let (low, one) = (_mm256_set1_epi32(0xffff), _mm256_set1_epi16(1));
        for at in (0..GROUP).step_by(16) {
            // SAFETY: 16 hashes from `at` on are there, four to a vector.
            let (a, b, c, d) = unsafe {
                let four = hashes.as_ptr().add(at).cast::<__m256i>();
                (
                    _mm256_loadu_si256(four),
                    _mm256_loadu_si256(four.add(1)),
                    _mm256_loadu_si256(four.add(2)),
                    _mm256_loadu_si256(four.add(3)),
                )
            };
            let homes = [
                high_halves(scaled(a, buckets), scaled(b, buckets)),
                high_halves(scaled(c, buckets), scaled(d, buckets)),
            ];
            let first = _mm256_and_si256(low_halves(a, b), low);
            let second = _mm256_and_si256(low_halves(c, d), low);
            let tags = _mm256_permute4x64_epi64::<IN_ORDER>(_mm256_packus_epi32(first, second));
            // SAFETY: there is room for 16 homes and 16 tags from `at` on.
            unsafe {
                let to = group.homes.as_mut_ptr().add(at).cast::<__m256i>();
                _mm256_storeu_si256(to, homes[0]);
                _mm256_storeu_si256(to.add(1), homes[1]);
                _mm256_storeu_si256(group.tags.as_mut_ptr().add(at).cast(), _mm256_max_epu16(tags, one));
            }
        }
        for i in 0..GROUP {
            self.prefetch_tags(read_back(&group.homes, i));
        }
    }

    /// Tags compared, entries asked for.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn tags_avx2<const INSERT: bool>(&self, group: &mut Group) {
        let mut shown = AtHome::default();
        for i in 0..GROUP {
            let place = Place { bucket: read_back(&group.homes, i), tag: read_back(&group.tags, i) };
            let tags = self.tags(place.bucket, &());
            let matches_of = |tags: Tags, tag| matches_avx2(tags, tag);
            self.ask::<INSERT, ()>(group, &mut shown, i, place, tags, matches_of, &());
        }
        group.note(shown);
    }

    /// Other buckets looked at.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn away_avx2<const INSERT: bool>(&self, group: &mut Group) {
        self.look_away::<INSERT, ()>(group, |tags: Tags, tag| matches_avx2(tags, tag), &());
    }

    /// Entries compared: all of them, since which are there to be compared cannot be guessed; but where hardly any is.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn end_avx2(&self, group: &mut Group, keys: &[Key<W>; GROUP]) {
        let (wanted, mut equal) = (group.seen & !group.late, 0);
        let mut compare = |i: usize| {
            equal |= u32::from(self.key_is(group.slots[i] as usize, &keys[i], &())) << i;
        };
        if wanted.count_ones() <= FEW {
            bits(wanted).for_each(&mut compare);
        } else {
            (0..GROUP).for_each(&mut compare);
        }
        group.found = equal & wanted;
    }
}

/// The high halves of four hashes, times the number of buckets.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn scaled(hashes: __m256i, buckets: __m256i) -> __m256i {
    _mm256_mul_epu32(_mm256_srli_epi64::<32>(hashes), buckets)
}

/// The high halves of eight words.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn high_halves(first: __m256i, second: __m256i) -> __m256i {
    let picked = _mm256_shuffle_ps::<0b11_01_11_01>(_mm256_castsi256_ps(first), _mm256_castsi256_ps(second));
    _mm256_permute4x64_epi64::<IN_ORDER>(_mm256_castps_si256(picked))
}

/// The low halves of eight words.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn low_halves(first: __m256i, second: __m256i) -> __m256i {
    let picked = _mm256_shuffle_ps::<0b10_00_10_00>(_mm256_castsi256_ps(first), _mm256_castsi256_ps(second));
    _mm256_permute4x64_epi64::<IN_ORDER>(_mm256_castps_si256(picked))
}

/// [`Tags::matches`] for the owner.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn matches_avx2(tags: Tags, tag: u16) -> u32 {
    let wanted = _mm256_set1_epi16(tag as i16);
    // SAFETY: a bucket's 64 bytes, aligned to as many.
    let (first, second) = unsafe {
        let halves = tags.0.as_ptr().cast::<__m256i>();
        (_mm256_load_si256(halves), _mm256_load_si256(halves.add(1)))
    };
    let equal = _mm256_packs_epi16(_mm256_cmpeq_epi16(first, wanted), _mm256_cmpeq_epi16(second, wanted));
    _mm256_movemask_epi8(_mm256_permute4x64_epi64::<IN_ORDER>(equal)) as u32 & ALL
}
