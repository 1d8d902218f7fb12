//! The common part of every batch: for up to 32 keys their buckets, their tags compared, their entries asked for and compared,
//! each step for all of them so that the misses overlap.
//!
//! This module is one of the named homes of `unsafe`: the kernel for AVX-512 loads tags and keys as vectors. The table
//! itself runs it, and whoever writes has that `&mut`: nobody writes meanwhile, so its plain loads race with nothing.

use super::State;
use super::store::{Place, Store};
use super::tags::{ALL, LANES, Tags, WORDS, bits};
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
use crate::hash::MIX;
use crate::key::Key;
use crate::words::AtomicU64;
use std::hint::select_unpredictable;
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
use std::sync::atomic::Ordering;
use tidemill_lookup::mem::OnLines;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

/// Keys that are under way at once.
pub(super) const GROUP: usize = 32;

/// What is known of the keys of a group.
#[cfg_attr(test, derive(Clone))]
#[repr(C)]
pub(super) struct Group {
    homes: OnLines<[u32; GROUP]>,
    /// Other buckets.
    others: OnLines<[u32; GROUP]>,
    /// The first slot with the key's tag, in its home or else in its other bucket, if there is one.
    pub(super) slots: OnLines<[u32; GROUP]>,
    tags: OnLines<[u16; GROUP]>,
    /// The free lane that a key goes to which is welcome, or a guest: the lowest of those that are [preferred](Store::preferred).
    lanes: [u8; GROUP],
    /// Bits of the keys for which there is a slot.
    seen: u32,
    /// Bits of those of which it is the slot.
    pub(super) found: u32,
    away: Away,
    /// Bits of the keys that are new and whose two buckets are full: known to insertions only.
    pub(super) hopeless: u32,
    /// Bits of the keys that are new, and whose home has a free lane: known to insertions only.
    pub(super) welcome: u32,
    /// Bits of those whose home is full, and whose other bucket has a free lane.
    pub(super) guests: u32,
}

/// What homes show of a group's keys, while one after the other is looked at: numbers of their own, so that they stay in registers.
#[derive(Clone, Copy, Default)]
struct AtHome {
    seen: u32,
    away: Away,
    welcome: u32,
}

impl Group {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Group {
            homes: OnLines([0; GROUP]),
            others: OnLines([0; GROUP]),
            slots: OnLines([0; GROUP]),
            tags: OnLines([0; GROUP]),
            seen: 0,
            found: 0,
            away: Away { strays: 0, crowded: 0 },
            hopeless: 0,
            welcome: 0,
            guests: 0,
            lanes: [0; GROUP],
        }
    }

    /// The lane that key `i` goes to which is [welcome](Self::welcome) or a guest.
    #[inline(always)]
    pub(super) fn lane(&self, i: usize) -> usize {
        self.lanes[i].into()
    }

    #[inline(always)]
    pub(super) fn place(&self, i: usize) -> Place {
        Place { bucket: self.homes[i], tag: self.tags[i] }
    }

    #[inline(always)]
    pub(super) fn other(&self, i: usize) -> u32 {
        self.others[i]
    }

    /// What is known of new keys.
    #[cfg(all(test, not(loom)))]
    pub(super) fn new_keys(&self) -> [u32; 3] {
        [self.hopeless, self.welcome, self.guests]
    }

    /// Takes over what homes have shown.
    #[inline(always)]
    fn note(&mut self, shown: AtHome) {
        (self.seen, self.away, self.welcome) = (shown.seen, shown.away, shown.welcome);
        (self.guests, self.hopeless) = (0, 0);
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
    /// compared. With `INSERT` also asks for the free slots that new keys would go to, and where there are none and somebody may `search` for
    /// room, for where that begins. So what a group says of tags was so before
    /// `done` had the group before.
    #[inline(always)]
    pub(super) fn look<const INSERT: bool>(
        &self,
        hashes: &[u64],
        keys: &[Key<W>],
        search: bool,
        mut done: impl FnMut(&Group, usize),
    ) {
        let mut start = 0;
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
        if W <= 8 && crate::simd::has_avx512() {
            let (hashes, keys) = (hashes.as_chunks().0, keys.as_chunks().0);
            // SAFETY: this CPU has just said that it has AVX-512 and what else the kernel wants.
            unsafe {
                if INSERT || self.mixed.load(Ordering::Relaxed) {
                    self.look_avx512::<INSERT, false>(hashes, keys, search, &mut done);
                } else {
                    self.look_avx512::<INSERT, true>(hashes, keys, search, &mut done);
                }
            }
            start = hashes.len().min(keys.len()) * GROUP;
        }
        // Most bursts are whole groups.
        if start < hashes.len().min(keys.len()) {
            self.look_probed::<INSERT, ()>(&hashes[start..], &keys[start..], search, &(), |group, first| {
                done(group, start + first);
            });
        }
    }

    /// As [`look`](Self::look), by its specification, one group after the other, telling a probe every line that is asked for.
    #[inline(always)]
    pub(super) fn look_probed<const INSERT: bool, P: Probe>(
        &self,
        hashes: &[u64],
        keys: &[Key<W>],
        search: bool,
        probe: &P,
        mut done: impl FnMut(&Group, usize),
    ) {
        let mut group = Group::new();
        for (i, (hashes, keys)) in hashes.chunks(GROUP).zip(keys.chunks(GROUP)).enumerate() {
            self.look_scalar::<INSERT, P>(&mut group, hashes, keys, search, probe);
            done(&group, i * GROUP);
        }
    }

    /// The specification of [`look`](Self::look), for one group.
    #[inline(always)]
    pub(super) fn look_scalar<const INSERT: bool, P: Probe>(
        &self,
        group: &mut Group,
        hashes: &[u64],
        keys: &[Key<W>],
        search: bool,
        probe: &P,
    ) {
        let n = hashes.len().min(keys.len()).min(GROUP);
        for (i, &hash) in hashes[..n].iter().enumerate() {
            let Place { bucket, tag } = self.place(hash);
            (group.homes[i], group.tags[i]) = (bucket, tag);
            group.others[i] = self.alternate(bucket, tag);
            self.prefetch_tags(bucket);
        }
        let mut shown = AtHome::default();
        for i in 0..n {
            let (place, other) = (group.place(i), group.others[i]);
            let tags = self.tags(place.bucket, probe);
            let answer = tags.answer(place.tag);
            let (seen, calm) = (answer & ALL != 0, answer >> LANES != 0);
            let lane = if INSERT {
                let lane =
                    self.ask(place.bucket, other, answer, Self::preferred(place.bucket, tags.free()), probe);
                let here = lane != LANES as u32;
                group.lanes[i] = lane as u8;
                shown.away.crowded |= u32::from(!here) << i;
                shown.welcome |= u32::from(!seen & here & calm) << i;
                lane
            } else {
                self.ask_found(place.bucket, other, answer, probe)
            };
            // Slot 0 is compared in vain.
            group.slots[i] = select_unpredictable(seen, place.bucket * LANES as u32 + lane, 0);
            shown.seen |= u32::from(seen) << i;
            shown.away.strays |= u32::from(!seen & !calm) << i;
        }
        group.note(shown);
        self.look_away::<INSERT, P>(group, search, |tags: Tags, tag| tags.matches(tag), probe);
        group.found = 0;
        for i in bits(group.seen) {
            let equal = self.key_is(group.slots[i] as usize, &keys[i], probe);
            group.found |= u32::from(equal) << i;
        }
    }

    /// Asks for what an insertion needs next, by what home [answers](Tags::answer) and which of its [preferred](Self::preferred) lanes are free. Returns
    /// the lane of the entry or of the free slot; [`LANES`] if there is neither.
    ///
    /// It is the entry with the key's tag; else the free slot that it would go to; else the other bucket, which tells whether it
    /// is there. No jump depends on which of them: of a flood in the same bursts as flows that are there nobody can guess it, and a wrong
    /// guess costs as much as a lookup in the cache.
    #[inline(always)]
    fn ask<P: Probe>(&self, home: u32, other: u32, answer: u32, free: u32, probe: &P) -> u32 {
        let matches = answer & ALL;
        let wanted = select_unpredictable(matches != 0, matches, free);
        let here = wanted != 0;
        // Where there is none: the first slot behind the bucket, which is not asked for.
        let lane = (wanted | 1 << LANES).trailing_zeros();
        let entry = self.entry_of(home, lane);
        let other = self.tags.as_ptr().wrapping_add(other as usize * WORDS);
        ask_line(select_unpredictable(here, entry, other), probe);
        if let Some(word) = Self::SECOND {
            ask_line(select_unpredictable(here, entry.wrapping_add(word), other), probe);
        }
        // Some have gone elsewhere, and there is room again: seldom, and never in a flood.
        if answer == 0 && here {
            ask_line(other, probe);
        }
        lane
    }

    /// The same of a lookup: the entry with the key's tag, whose lane it returns; else the other bucket, where home has strays; else home, which is
    /// here. At a load of 0.8 nine homes in ten have none, and the other bucket would be a line of memory in vain. No jump depends on which of
    /// the three it is: where known flows and unknown ones come in one burst nobody can guess it.
    #[inline(always)]
    fn ask_found<P: Probe>(&self, home: u32, other: u32, answer: u32, probe: &P) -> u32 {
        let (seen, away) = (answer & ALL != 0, answer == 0);
        // Where there is none: of a slot behind the bucket, which is not asked for.
        let lane = answer.trailing_zeros();
        let entry = self.entry_of(home, lane);
        let next = select_unpredictable(away, other, home) as usize;
        let next = self.tags.as_ptr().wrapping_add(next * WORDS);
        ask_line(select_unpredictable(seen, entry, next), probe);
        if let Some(word) = Self::SECOND {
            ask_line(select_unpredictable(seen, entry.wrapping_add(word), next), probe);
        }
        lane
    }

    /// Where the entry of a lane is, or would be.
    #[inline(always)]
    fn entry_of(&self, bucket: u32, lane: u32) -> *const AtomicU64 {
        let slot = bucket * LANES as u32 + lane;
        self.entries.as_ptr().wrapping_add(slot as usize * Self::STRIDE)
    }

    /// Looks into the other buckets, and asks for the entries there.
    #[inline(always)]
    fn look_away<const INSERT: bool, P: Probe>(
        &self,
        group: &mut Group,
        search: bool,
        matches_of: impl Fn(Tags, u16) -> u32,
        probe: &P,
    ) {
        let away = group.away;
        for i in bits(away.strays | away.crowded) {
            let alternate = group.others[i];
            let tags = self.tags(alternate, probe);
            let matches = matches_of(tags, group.tags[i]);
            let to_go = matches == 0 && away.crowded >> i & 1 != 0;
            let wanted = if to_go { Self::preferred(alternate, matches_of(tags, 0)) } else { matches };
            if wanted != 0 {
                group.slots[i] = alternate * LANES as u32 + wanted.trailing_zeros();
                self.ask_entry(group.slots[i] as usize, probe);
            }
            group.seen |= u32::from(matches != 0) << i;
            if INSERT {
                group.hopeless |= u32::from(to_go && wanted == 0) << i;
                group.guests |= u32::from(to_go && wanted != 0) << i;
                group.welcome |= u32::from(matches == 0 && !to_go) << i;
                if to_go {
                    group.lanes[i] = wanted.trailing_zeros() as u8;
                }
                if to_go && wanted == 0 && search {
                    self.ask_search(group.homes[i], probe);
                }
            }
        }
    }

    /// Asks for the line with the beginning of an entry, and for that of [`SECOND`](Self::SECOND).
    #[inline(always)]
    pub(super) fn ask_entry<P: Probe>(&self, slot: usize, probe: &P) {
        let entry = self.entries.as_ptr().wrapping_add(slot * Self::STRIDE);
        ask_line(entry, probe);
        if let Some(word) = Self::SECOND {
            ask_line(entry.wrapping_add(word), probe);
        }
    }

    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn look_avx512<const INSERT: bool, const GUESS: bool>(
        &self,
        hashes: &[[u64; GROUP]],
        keys: &[[Key<W>; GROUP]],
        search: bool,
        done: &mut impl FnMut(&Group, usize),
    ) {
        let n = hashes.len().min(keys.len());
        if n < 2 {
            // Nothing else is under way: one group to clear, not three.
            for (hashes, keys) in hashes.iter().zip(keys) {
                let mut group = Group::new();
                self.begin_avx512::<GUESS>(&mut group, hashes);
                self.middle_avx512::<INSERT, GUESS>(&mut group);
                self.look_away::<INSERT, ()>(
                    &mut group,
                    search,
                    |tags: Tags, tag| matches_avx512(tags, tag),
                    &(),
                );
                self.end_avx512(&mut group, keys);
                self.note_mixed::<INSERT>(&group);
                done(&group, 0);
            }
            return;
        }
        let mut groups = [const { Group::new() }; 3];
        for (group, hashes) in groups.iter_mut().zip(&hashes[..n]).take(2) {
            self.begin_avx512::<GUESS>(group, hashes);
        }
        self.middle_avx512::<INSERT, GUESS>(&mut groups[0]);
        for k in 0..n {
            // First: what lies in other buckets comes while the groups behind are looked after.
            self.look_away::<INSERT, ()>(
                &mut groups[k % 3],
                search,
                |tags: Tags, tag| matches_avx512(tags, tag),
                &(),
            );
            if k + 2 < n {
                self.begin_avx512::<GUESS>(&mut groups[(k + 2) % 3], &hashes[k + 2]);
            }
            if k + 1 < n {
                self.middle_avx512::<INSERT, GUESS>(&mut groups[(k + 1) % 3]);
            }
            let group = &mut groups[k % 3];
            self.end_avx512(group, &keys[k]);
            if k + 1 == n {
                self.note_mixed::<INSERT>(group);
            }
            done(group, k * GROUP);
        }
    }

    /// Whether known flows and unknown ones come in one burst, for the next one.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[inline(always)]
    fn note_mixed<const INSERT: bool>(&self, group: &Group) {
        if !INSERT {
            let mixed = (3..=GROUP as u32 - 3).contains(&group.seen.count_ones());
            // Seldom: its line is the readers' too.
            if self.mixed.load(Ordering::Relaxed) != mixed {
                self.mixed.store(mixed, Ordering::Relaxed);
            }
        }
    }

    /// Homes, other buckets and tags, and home's tags asked for.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn begin_avx512<const GUESS: bool>(&self, group: &mut Group, hashes: &[u64; GROUP]) {
        use std::arch::x86_64::*;
        let set = |number: u64| _mm512_set1_epi64(number as i64);
        let (buckets, one) = (set(self.buckets.into()), set(1));
        // The high half of a hash, scaled to the number of buckets.
        let bucket_of =
            |hash| _mm512_srli_epi64::<32>(_mm512_mul_epu32(_mm512_srli_epi64::<32>(hash), buckets));
        for at in (0..GROUP).step_by(8) {
            // SAFETY: 8 hashes from `at` on are there, and room for 8 homes, 8 other buckets and 8 tags.
            unsafe {
                let hash = _mm512_loadu_si512(hashes.as_ptr().add(at).cast());
                let home = bucket_of(hash);
                _mm256_storeu_si256(group.homes.as_mut_ptr().add(at).cast(), _mm512_cvtepi64_epi32(home));
                let tag = _mm512_max_epu64(_mm512_and_si512(hash, set(0xffff)), one);
                _mm_storeu_si128(group.tags.as_mut_ptr().add(at).cast(), _mm512_cvtepi64_epi16(tag));
                if GUESS {
                    continue;
                }
                // `alternate`, with what its table holds computed: a number that is small is mixed without the first of the shifts.
                let mixed = _mm512_add_epi64(_mm512_and_si512(tag, set(0xff)), one);
                let mixed = _mm512_mullo_epi64(mixed, set(MIX[0]));
                let mixed = _mm512_xor_si512(mixed, _mm512_srli_epi64::<27>(mixed));
                let mixed = _mm512_mullo_epi64(mixed, set(MIX[1]));
                let mixed = _mm512_xor_si512(mixed, _mm512_srli_epi64::<31>(mixed));
                let other = _mm512_sub_epi64(bucket_of(mixed), home);
                // Below zero is far beyond all buckets.
                let other = _mm512_min_epu64(other, _mm512_add_epi64(other, buckets));
                _mm256_storeu_si256(group.others.as_mut_ptr().add(at).cast(), _mm512_cvtepi64_epi32(other));
            }
        }
        for i in 0..GROUP {
            self.prefetch_tags(read_back(&group.homes, i));
        }
    }

    /// The tags of a bucket, without a look at whether there is one.
    ///
    /// # Safety
    /// It is a home, the product of the number of buckets and a part of a hash over 2^32: less than that number.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[inline(always)]
    unsafe fn tags_of(&self, bucket: u32) -> Tags<'_> {
        debug_assert!(bucket < self.buckets);
        // SAFETY: each bucket has so many words.
        Tags(unsafe { &*self.tags.as_ptr().add(bucket as usize * WORDS).cast::<[AtomicU64; WORDS]>() })
    }

    /// The same of lookups, with a jump for each key: where lately all were known, or none, it is guessed, and what is asked for waits for no tags. With known
    /// flows and unknown ones in one burst a wrong guess costs more than all that.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn middle_guessed(&self, group: &mut Group) {
        let mut shown = AtHome::default();
        for i in 0..GROUP {
            let home = read_back(&group.homes, i);
            // SAFETY: `begin_avx512` has computed it.
            let tags = unsafe { self.tags_of(home) };
            let answer = answer_avx512(tags, read_back(&group.tags, i));
            if answer & ALL != 0 {
                shown.seen |= 1 << i;
                group.slots[i] = home * LANES as u32 + answer.trailing_zeros();
                self.ask_entry(group.slots[i] as usize, &());
            } else {
                group.slots[i] = 0;
                shown.away.strays |= u32::from(answer == 0) << i;
                group.others[i] = self.alternate(home, group.tags[i]);
                let next = select_unpredictable(answer == 0, group.others[i], home);
                self.prefetch_tags(next);
            }
        }
        group.note(shown);
    }

    /// Tags compared, entries asked for. What follows from homes' answers beside what is asked for is found of sixteen keys at once.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn middle_avx512<const INSERT: bool, const GUESS: bool>(&self, group: &mut Group) {
        use std::arch::x86_64::*;
        if GUESS {
            return self.middle_guessed(group);
        }
        let (mut answers, mut frees) = (OnLines([0_u32; GROUP]), OnLines([0_u32; GROUP]));
        for i in 0..GROUP {
            let (home, other) = (read_back(&group.homes, i), read_back(&group.others, i));
            // SAFETY: `begin_avx512` has computed it.
            let tags = unsafe { self.tags_of(home) };
            let answer = answer_avx512(tags, read_back(&group.tags, i));
            let lane = if INSERT {
                let free = Self::preferred(home, matches_avx512(tags, 0));
                let lane = self.ask(home, other, answer, free, &());
                (frees[i], group.lanes[i]) = (free, lane as u8);
                lane
            } else {
                self.ask_found(home, other, answer, &())
            };
            (answers[i], group.slots[i]) = (answer, home * LANES as u32 + lane);
        }
        let mut shown = AtHome::default();
        for at in (0..GROUP).step_by(16) {
            // SAFETY: there are 16 answers, of insertions 16 masks of free lanes, and 16 slots from `at` on.
            unsafe {
                let answer = _mm512_loadu_si512(answers.as_ptr().add(at).cast());
                let seen = _mm512_test_epi32_mask(answer, _mm512_set1_epi32(ALL as i32));
                let away = _mm512_testn_epi32_mask(answer, answer);
                shown.seen |= u32::from(seen) << at;
                shown.away.strays |= u32::from(away) << at;
                if INSERT {
                    let free = _mm512_loadu_si512(frees.as_ptr().add(at).cast());
                    let here = seen | _mm512_test_epi32_mask(free, free);
                    // Their sign says that there are no strays.
                    let calm = _mm512_movepi32_mask(answer);
                    shown.away.crowded |= u32::from(!here) << at;
                    shown.welcome |= u32::from(!seen & here & calm) << at;
                }
                // Of keys that are not seen slot 0 is compared, in vain.
                let slots = group.slots.as_mut_ptr().add(at).cast::<i32>();
                _mm512_storeu_epi32(slots, _mm512_maskz_loadu_epi32(seen, slots));
            }
        }
        group.note(shown);
    }

    /// Entries compared.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn end_avx512(&self, group: &mut Group, keys: &[Key<W>; GROUP]) {
        if group.seen == 0 {
            group.found = 0;
            return;
        }
        let equal = if W == 2 { self.equal_pairs(group, keys) } else { self.equal(group, keys) };
        group.found = equal & group.seen;
    }

    /// Bits of the keys, of one to eight words, that their slots have.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn equal(&self, group: &Group, keys: &[Key<W>; GROUP]) -> u32 {
        use std::arch::x86_64::*;
        let entries: *const i64 = self.entries.as_ptr().cast();
        let words = ((1_u16 << W.min(8)) - 1) as u8;
        let mut differ = [0_u8; GROUP];
        for i in 0..GROUP {
            // SAFETY: a slot is less than the number of slots, an entry has more than W words; what lies beyond is masked out.
            differ[i] = unsafe {
                let entry = entries.add(group.slots[i] as usize * Self::STRIDE);
                let entry = _mm512_maskz_loadu_epi64(words, entry);
                _mm512_cmpneq_epi64_mask(entry, _mm512_maskz_loadu_epi64(words, keys[i].0.as_ptr().cast()))
            };
        }
        // SAFETY: 32 bytes.
        unsafe {
            let differ = _mm256_loadu_si256(differ.as_ptr().cast());
            _mm256_testn_epi8_mask(differ, differ)
        }
    }

    /// The same of keys of two words: four to a vector. What comes of it stays in registers: bytes that are written one by one and read together
    /// are waited for until they are in the cache.
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    fn equal_pairs(&self, group: &Group, keys: &[Key<W>; GROUP]) -> u32 {
        use std::arch::x86_64::*;
        assert_eq!(W, 2);
        let entries: *const i64 = self.entries.as_ptr().cast();
        let mut differ = 0_u64;
        for at in (0..GROUP).step_by(4) {
            let entry = |i: usize| {
                let slot = read_back(&group.slots, at + i) as usize;
                entries.wrapping_add(slot * Self::STRIDE).cast::<__m128i>()
            };
            // SAFETY: a slot is less than the number of slots, an entry has more than two words; there are four keys from `at` on.
            let words = unsafe {
                let mut four = _mm512_castsi128_si512(_mm_loadu_si128(entry(0)));
                four = _mm512_inserti64x2::<1>(four, _mm_loadu_si128(entry(1)));
                four = _mm512_inserti64x2::<2>(four, _mm_loadu_si128(entry(2)));
                four = _mm512_inserti64x2::<3>(four, _mm_loadu_si128(entry(3)));
                _mm512_cmpneq_epi64_mask(four, _mm512_loadu_si512(keys.as_ptr().add(at).cast()))
            };
            differ |= u64::from(words) << (2 * at);
        }
        // Two bits for each key.
        !(_pext_u64(differ | differ >> 1, 0x5555_5555_5555_5555) as u32)
    }
}

/// Asks the cache for the line of a word, and tells a probe, for that line comes whether it is looked at or not.
#[inline(always)]
pub(super) fn ask_line<P: Probe>(word: *const AtomicU64, probe: &P) {
    prefetch_read(word);
    probe.read(word.addr(), 8, true);
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
    _mm512_cmpeq_epi16_mask(bucket, _mm512_set1_epi16(tag as i16)) & ALL
}

/// [`Tags::answer`] for the owner: in the last lane it is no tag that is wanted, but that there are no strays.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn answer_avx512(tags: Tags, tag: u16) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: a bucket's 64 bytes, aligned to as many.
    let bucket = unsafe { _mm512_load_si512(tags.0.as_ptr().cast()) };
    // Two comparisons: a vector of the tag in all lanes but one is put together lane by lane.
    let matches = _mm512_cmpeq_epi16_mask(bucket, _mm512_set1_epi16(tag as i16));
    (matches & ALL) | (_mm512_testn_epi16_mask(bucket, bucket) & !ALL)
}
