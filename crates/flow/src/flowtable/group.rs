//! The common part of every batch: for up to 32 keys their buckets, their tags compared, their entries asked for and compared,
//! each step for all of them so that the misses overlap.
//!
//! This module is one of the named homes of `unsafe`: the kernel for AVX-512 loads tags and keys as vectors. It runs for the
//! table's owner only, on the one thread that writes, so its plain loads race with nothing.

use super::State;
use super::store::{Place, Store};
use super::tags::{LANES, Tags, bits};
use crate::key::Key;

/// Keys that are under way at once.
pub(super) const GROUP: usize = 32;

/// What is known of the keys of a group.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Group {
    homes: [u32; GROUP],
    tags: [u16; GROUP],
    /// The first slot with the key's tag, in its home or else in its other bucket, if there is one.
    pub(super) slots: [u32; GROUP],
    /// Bits of the keys for which there is one.
    seen: u32,
    /// Bits of those of which it is the slot.
    pub(super) found: u32,
    away: Away,
    /// Bits of the keys that are new and whose two buckets are full: known to insertions only.
    pub(super) hopeless: u32,
    /// Bits of the keys that are new, and whose home has a free lane and no strays: known to insertions only.
    pub(super) welcome: u32,
    /// That lane, the lowest that is free.
    lanes: [u8; GROUP],
}

impl Group {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Group {
            homes: [0; GROUP],
            tags: [0; GROUP],
            slots: [0; GROUP],
            seen: 0,
            found: 0,
            away: Away { strays: 0, crowded: 0 },
            hopeless: 0,
            welcome: 0,
            lanes: [0; GROUP],
        }
    }

    /// Where key `i` goes that is [welcome](Self::welcome).
    #[inline(always)]
    pub(super) fn lane(&self, i: usize) -> usize {
        self.lanes[i].into()
    }

    #[inline(always)]
    pub(super) fn place(&self, i: usize) -> Place {
        Place { bucket: self.homes[i], tag: self.tags[i] }
    }

    /// Bits of the keys that are in the table all the same perhaps, behind others with their tag: one in thousands.
    #[inline(always)]
    pub(super) fn unsure(&self) -> u32 {
        self.seen & !self.found
    }
}

/// Bits of the keys that are not at home.
#[derive(Clone, Copy, Default)]
struct Away {
    /// Home has strays.
    strays: u32,
    /// Home has no room for a new key.
    crowded: u32,
}

impl<const W: usize, S: State> Store<W, S> {
    /// Looks for keys, as many as there are of both, [`GROUP`] by group, and tells `done` each group with the number of its
    /// first key. Three groups are under way: the tags of one are asked for, the entries of the next, while the first is
    /// compared. With `INSERT` also asks for the free slots that new keys would go to. So what a group says of tags was so before
    /// `done` had the group before.
    #[inline(always)]
    pub(super) fn look<const INSERT: bool>(
        &self,
        hashes: &[u64],
        keys: &[Key<W>],
        mut done: impl FnMut(&Group, usize),
    ) {
        let mut start = 0;
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
        if W <= 8 && crate::simd::has_avx512() {
            let (hashes, keys) = (hashes.as_chunks().0, keys.as_chunks().0);
            // SAFETY: this CPU has just said that it has AVX-512 and what else the kernel wants.
            unsafe { self.look_avx512::<INSERT>(hashes, keys, &mut done) };
            start = hashes.len().min(keys.len()) * GROUP;
        }
        let mut group = Group::new();
        for (hashes, keys) in hashes[start..].chunks(GROUP).zip(keys[start..].chunks(GROUP)) {
            self.look_scalar::<INSERT>(&mut group, hashes, keys);
            done(&group, start);
            start += GROUP;
        }
    }

    /// The specification of [`look`](Self::look), for one group.
    #[inline(always)]
    pub(super) fn look_scalar<const INSERT: bool>(&self, group: &mut Group, hashes: &[u64], keys: &[Key<W>]) {
        let n = hashes.len().min(keys.len()).min(GROUP);
        for (i, &hash) in hashes[..n].iter().enumerate() {
            let Place { bucket, tag } = self.place(hash);
            (group.homes[i], group.tags[i]) = (bucket, tag);
            self.prefetch_tags(bucket);
        }
        (group.seen, group.found, group.hopeless, group.welcome) = (0, 0, 0, 0);
        group.away = Away::default();
        for i in 0..n {
            let matches = self.tags(group.homes[i], &()).matches(group.tags[i]);
            self.ask::<INSERT>(group, i, matches, |tags: Tags, tag| tags.matches(tag));
        }
        self.look_away(group, |tags: Tags, tag| tags.matches(tag));
        for i in bits(group.seen) {
            let equal = self.key_is(group.slots[i] as usize, &keys[i], &());
            group.found |= u32::from(equal) << i;
        }
    }

    /// Asks for the entry that home shows, or for what else tells.
    #[inline(always)]
    fn ask<const INSERT: bool>(
        &self,
        group: &mut Group,
        i: usize,
        matches: u32,
        matches_of: impl Fn(Tags, u16) -> u32,
    ) {
        if matches == 0 {
            self.ask_away::<INSERT>(group, i, matches_of);
            return;
        }
        group.seen |= 1 << i;
        group.slots[i] = group.homes[i] * LANES as u32 + matches.trailing_zeros();
        self.prefetch_entry(group.slots[i] as usize);
    }

    /// A key of which home shows nothing may be in its other bucket, or new: asks for what tells, and for where it would go.
    /// A lookup asks for the other bucket in any case: whether home has strays cannot be predicted, and [`look_away`] looks
    /// only where it has.
    ///
    /// [`look_away`]: Self::look_away
    #[inline(always)]
    fn ask_away<const INSERT: bool>(
        &self,
        group: &mut Group,
        i: usize,
        matches_of: impl Fn(Tags, u16) -> u32,
    ) {
        // Slot 0 is compared in vain.
        group.slots[i] = 0;
        let tags = self.tags(group.homes[i], &());
        let strays = tags.strays() != 0;
        group.away.strays |= u32::from(strays) << i;
        if INSERT {
            let free = matches_of(tags, 0);
            if free == 0 {
                group.away.crowded |= 1 << i;
            } else {
                let lane = free.trailing_zeros();
                self.prefetch_entry(group.homes[i] as usize * LANES + lane as usize);
                if !strays {
                    group.lanes[i] = lane as u8;
                    group.welcome |= 1 << i;
                    return;
                }
            }
        }
        self.prefetch_tags(self.alternate(group.homes[i], group.tags[i]));
    }

    /// Looks into the other buckets, and asks for the entries there.
    #[inline(always)]
    fn look_away(&self, group: &mut Group, matches_of: impl Fn(Tags, u16) -> u32) {
        let away = group.away;
        for i in bits(away.strays | away.crowded) {
            let alternate = self.alternate(group.homes[i], group.tags[i]);
            let tags = self.tags(alternate, &());
            let matches = matches_of(tags, group.tags[i]);
            let to_go = matches == 0 && away.crowded >> i & 1 != 0;
            let wanted = if to_go { matches_of(tags, 0) } else { matches };
            if wanted != 0 {
                group.slots[i] = alternate * LANES as u32 + wanted.trailing_zeros();
                self.prefetch_entry(group.slots[i] as usize);
            }
            group.seen |= u32::from(matches != 0) << i;
            group.hopeless |= u32::from(to_go && wanted == 0) << i;
        }
    }

    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn look_avx512<const INSERT: bool>(
        &self,
        hashes: &[[u64; GROUP]],
        keys: &[[Key<W>; GROUP]],
        done: &mut impl FnMut(&Group, usize),
    ) {
        let mut groups = [const { Group::new() }; 3];
        let n = hashes.len().min(keys.len());
        for (group, hashes) in groups.iter_mut().zip(&hashes[..n]).take(2) {
            self.begin_avx512(group, hashes);
        }
        if n > 0 {
            self.middle_avx512::<INSERT>(&mut groups[0]);
        }
        for k in 0..n {
            if k + 2 < n {
                self.begin_avx512(&mut groups[(k + 2) % 3], &hashes[k + 2]);
            }
            if k + 1 < n {
                self.middle_avx512::<INSERT>(&mut groups[(k + 1) % 3]);
            }
            let group = &mut groups[k % 3];
            self.end_avx512(group, &keys[k]);
            done(group, k * GROUP);
        }
    }

    /// Homes and tags, and home's tags asked for.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn begin_avx512(&self, group: &mut Group, hashes: &[u64; GROUP]) {
        use std::arch::x86_64::*;
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
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn middle_avx512<const INSERT: bool>(&self, group: &mut Group) {
        (group.seen, group.hopeless, group.welcome, group.away) = (0, 0, 0, Away::default());
        for i in 0..GROUP {
            let tags = self.tags(read_back(&group.homes, i), &());
            let matches = matches_avx512(tags, read_back(&group.tags, i));
            self.ask::<INSERT>(group, i, matches, |tags: Tags, tag| matches_avx512(tags, tag));
        }
    }

    /// Other buckets looked at, entries compared.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn end_avx512(&self, group: &mut Group, keys: &[Key<W>; GROUP]) {
        use std::arch::x86_64::*;
        self.look_away(group, |tags: Tags, tag| matches_avx512(tags, tag));
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
        group.found = equal & group.seen;
    }
}

/// What vectors have written, read back one by one from memory: extracting it from registers would cost more.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
#[inline(always)]
fn read_back<T: Copy>(numbers: &[T; GROUP], i: usize) -> T {
    // SAFETY: a reference to an element.
    unsafe { std::ptr::from_ref(&numbers[i]).read_volatile() }
}

/// [`Tags::matches`] for the owner.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn matches_avx512(tags: Tags, tag: u16) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: a bucket's 64 bytes, aligned to as many.
    let bucket = unsafe { _mm512_load_si512(tags.0.as_ptr().cast()) };
    _mm512_cmpeq_epi16_mask(bucket, _mm512_set1_epi16(tag as i16)) & super::tags::ALL
}
