//! The kernel for AVX-512.
//!
//! This module is one of the named homes of `unsafe`: it loads tags and keys as vectors (see [`super::kernel`]).

use super::kernel::{piped, read_back};
use super::{AtHome, GROUP, Group};
use crate::flowtable::State;
use crate::flowtable::store::{Place, Store};
use crate::flowtable::tags::{ALL, Tags};
use crate::key::Key;
use std::arch::x86_64::*;

impl<const W: usize, S: State> Store<W, S> {
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn look_avx512<const INSERT: bool>(
        &self,
        hashes: &[[u64; GROUP]],
        keys: &[[Key<W>; GROUP]],
        done: &mut impl FnMut(&Group, usize),
    ) {
        piped(
            hashes,
            keys,
            |group: &mut Group, hashes: &[u64; GROUP]| self.begin_avx512(group, hashes),
            |group: &mut Group| self.tags_avx512::<INSERT>(group),
            |group: &mut Group| self.away_avx512::<INSERT>(group),
            |group: &mut Group, keys: &[Key<W>; GROUP]| self.end_avx512(group, keys),
            done,
        );
    }

    /// Homes and tags, and home's tags asked for.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn begin_avx512(&self, group: &mut Group, hashes: &[u64; GROUP]) {
        let buckets = _mm512_set1_epi64(i64::from(self.buckets));
        for at in (0..GROUP).step_by(8) {
            // SAFETY: 8 hashes from `at` on are there, and room for 8 homes and 8 tags.
            unsafe {
                let hash = _mm512_loadu_si512(hashes.as_ptr().add(at).cast());
                let place = _mm512_srli_epi64::<32>(_mm512_mul_epu32(_mm512_srli_epi64::<32>(hash), buckets));
                _mm256_storeu_si256(group.homes.as_mut_ptr().add(at).cast(), _mm512_cvtepi64_epi32(place));
                let tag = _mm_max_epu16(_mm512_cvtepi64_epi16(hash), _mm_set1_epi16(1));
                _mm_storeu_si128(group.tags.as_mut_ptr().add(at).cast(), tag);
            }
        }
        for i in 0..GROUP {
            self.prefetch_tags(read_back(&group.homes, i));
        }
    }

    /// Tags compared, entries asked for.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn tags_avx512<const INSERT: bool>(&self, group: &mut Group) {
        let mut shown = AtHome::default();
        for i in 0..GROUP {
            let place = Place { bucket: read_back(&group.homes, i), tag: read_back(&group.tags, i) };
            let tags = self.tags(place.bucket, &());
            self.ask::<INSERT, ()>(
                group,
                &mut shown,
                i,
                place,
                tags,
                |tags: Tags, tag| matches_avx512(tags, tag),
                &(),
            );
        }
        group.note(shown);
    }

    /// Other buckets looked at.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn away_avx512<const INSERT: bool>(&self, group: &mut Group) {
        self.look_away::<INSERT, ()>(group, |tags: Tags, tag| matches_avx512(tags, tag), &());
    }

    /// Entries compared.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn end_avx512(&self, group: &mut Group, keys: &[Key<W>; GROUP]) {
        let entries: *const i64 = self.entries.as_ptr().cast();
        let mut differ = [0_u8; GROUP];
        for i in 0..GROUP {
            // SAFETY: a slot is less than the number of slots, an entry has more than W words; what lies beyond is masked out.
            differ[i] = unsafe {
                let entry = entries.add(group.slots[i] as usize * Self::STRIDE);
                let key: *const i64 = keys[i].0.as_ptr().cast();
                match W {
                    2 => _mm_cmpneq_epi64_mask(_mm_loadu_si128(entry.cast()), _mm_loadu_si128(key.cast())),
                    _ => {
                        let words = ((1_u16 << W.min(8)) - 1) as u8;
                        let entry = _mm512_maskz_loadu_epi64(words, entry);
                        _mm512_cmpneq_epi64_mask(entry, _mm512_maskz_loadu_epi64(words, key))
                    }
                }
            };
        }
        // SAFETY: 32 bytes.
        let equal = unsafe {
            let differ = _mm256_loadu_si256(differ.as_ptr().cast());
            _mm256_testn_epi8_mask(differ, differ)
        };
        group.found = equal & group.seen & !group.late;
    }
}

/// [`Tags::matches`] for the owner.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn matches_avx512(tags: Tags, tag: u16) -> u32 {
    // SAFETY: a bucket's 64 bytes, aligned to as many.
    let bucket = unsafe { _mm512_load_si512(tags.0.as_ptr().cast()) };
    _mm512_cmpeq_epi16_mask(bucket, _mm512_set1_epi16(tag as i16)) & ALL
}
