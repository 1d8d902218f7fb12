//! What the writer and the readers share: tags, entries, versions; all of it words.
//!
//! ```text
//! tags      64 bytes a bucket (see tags.rs)
//! versions   8 bytes a bucket: changes when an entry leaves the bucket or its strays change
//! entries   slot = bucket * 31 + lane:   | key: W words | head: stamp, flags, changes | state: words of S |
//! ```
//!
//! # How one writer and its readers agree
//!
//! The writer puts an entry into a free slot by writing its words and then (release) its tag, and takes one out by
//! clearing the tag and then (release) raising the version of the bucket. Before it writes the words of an entry it puts a
//! release fence. A reader takes the versions of both buckets of its key (acquire), then tags (acquire), then words, then puts
//! an acquire fence and compares the versions again.
//!
//! * *What it found was whole.* If one of the words it read was of a later entry in that slot, that word was written
//!   after a release fence that came after the version of the earlier one's departure: the second look at the version
//!   sees it, and the reader begins again.
//! * *What it did not find was not there.* An entry moves by being copied first and taken out afterwards, which raises
//!   the versions of both buckets. A reader that looked into one bucket before the copy and into the other after the
//!   departure has seen the versions of before, or, if it took them after, the copy.
//!
//! * *Its state was of one moment.* The head counts the changes of the state in its upper bits: odd while words are written. A
//!   reader looks at it before and after. It lies with the state, where the bucket's version would be another line: a packet that
//!   changes its flow's state touches what finding the flow has touched. (30 bits: a reader would have to sleep through 2^29
//!   changes of one flow, to the number, between two loads.)
//!
//! On x86 all of these are plain loads and stores.

use super::State;
use super::tags::{LANES, Tags, WORDS};
use crate::hash::mix;
use crate::key::Key;
use crate::table::SizeError;
use crate::words::{AtomicU64, Ordering, Words, fence, words};
use std::hint::select_unpredictable;
use std::marker::PhantomData;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

/// Slots that a table can have: their numbers have 32 bits, and 0 is kept.
pub(super) const MOST_SLOTS: usize = u32::MAX as usize - 1;

/// The head's low half is the stamp; then:
pub(super) const IN_ALTERNATE: u64 = 1 << 32;
/// The parity of the hash's generation that the entry lies under.
pub(super) const GENERATION: u64 = 1 << 33;
/// Changes of the state, twice over: odd meanwhile.
const CHANGE: u64 = 1 << 34;

/// The memory of a table.
pub(super) struct Store<const W: usize, S> {
    pub(super) tags: Words,
    pub(super) versions: Words,
    pub(super) entries: Words,
    pub(super) buckets: u32,
    /// The alternate of bucket `b` for tag `t` is `reflections[t mod 256] - b` modulo the number of buckets: its own inverse,
    /// for any number of buckets.
    reflections: [u32; 256],
    /// Whether known flows and unknown ones came in one burst lately: a guess, for speed only.
    pub(super) mixed: std::sync::atomic::AtomicBool,
    state: PhantomData<fn() -> S>,
}

/// Where a hash leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) bucket: u32,
    pub(super) tag: u16,
}

impl<const W: usize, S: State> Store<W, S> {
    /// Words of a state.
    pub(super) const STATE: usize = size_of::<S>() / 8;
    /// Words of an entry.
    pub(super) const STRIDE: usize = W + 1 + Self::STATE;
    /// The word of an entry whose line is asked for beside that of its first one, where it can be another: its last; of an entry longer than
    /// a line the last that its key may need.
    pub(super) const SECOND: Option<usize> = match Self::STRIDE {
        stride if 64 % (stride * 8) == 0 => None,
        stride if stride <= 8 => Some(stride - 1),
        _ => Some(W),
    };

    /// The lanes whose entries lie on one line, by their bucket's number modulo 8; none where all do, or none does.
    const WHOLE: [u32; 8] = whole(Self::STRIDE);

    pub(super) fn new(slots: usize) -> Result<Self, SizeError> {
        const { assert!(size_of::<S>().is_multiple_of(8), "a state is a whole number of words") };
        if slots > super::MOST_SLOTS {
            return Err(SizeError::TooMany { asked: slots, most: super::MOST_SLOTS });
        }
        let buckets = slots.div_ceil(LANES).max(1);
        let reflection = |tag: usize| place(mix(tag as u64 + 1), buckets as u32);
        Ok(Store {
            mixed: false.into(),
            tags: words(buckets * WORDS)?,
            versions: words(buckets)?,
            entries: words(buckets * LANES * Self::STRIDE)?,
            buckets: buckets as u32,
            reflections: std::array::from_fn(reflection),
            state: PhantomData,
        })
    }

    #[inline(always)]
    pub(super) fn place(&self, hash: u64) -> Place {
        // Tag 0 is "free": its keys join those of tag 1.
        Place { bucket: place(hash, self.buckets), tag: (hash as u16).max(1) }
    }

    #[inline(always)]
    pub(super) fn alternate(&self, bucket: u32, tag: u16) -> u32 {
        let r = self.reflections[usize::from(tag as u8)];
        // Which of the two is less is anybody's guess.
        r.wrapping_sub(bucket).wrapping_add(select_unpredictable(r < bucket, self.buckets, 0))
    }

    /// The bucket's tags.
    #[inline(always)]
    pub(super) fn tags<P: Probe>(&self, bucket: u32, probe: &P) -> Tags<'_> {
        let tags = &self.tags.as_chunks::<WORDS>().0[bucket as usize];
        probe.read(tags.as_ptr().addr(), 64, false);
        probe.step();
        Tags(tags)
    }

    /// Puts a tag into a slot. Release: the words of the entry that it shows are written before.
    #[inline(always)]
    pub(super) fn set_tag<P: Probe>(&self, bucket: u32, lane: usize, tag: u16, probe: &P) {
        let tags = self.tags(bucket, &());
        probe.write(std::ptr::from_ref(&tags.0[lane / 4]).addr(), 8);
        tags.set(lane, tag);
    }

    /// Counts a stray of the bucket.
    pub(super) fn one_more_stray<P: Probe>(&self, bucket: u32, probe: &P) {
        let strays = self.tags(bucket, probe).strays();
        if strays != u16::MAX {
            self.set_tag(bucket, LANES, strays + 1, probe);
        }
    }

    /// Counts a stray less. At the top the count is not known any more, and stays.
    pub(super) fn one_less_stray<P: Probe>(&self, bucket: u32, probe: &P) {
        let strays = self.tags(bucket, probe).strays();
        if !matches!(strays, 0 | u16::MAX) {
            self.set_tag(bucket, LANES, strays - 1, probe);
        }
    }

    #[inline(always)]
    pub(super) fn version(&self, bucket: u32) -> u64 {
        self.versions[bucket as usize].load(Ordering::Acquire)
    }

    /// Says that something left the bucket.
    #[inline(always)]
    pub(super) fn raise_version<P: Probe>(&self, bucket: u32, probe: &P) {
        let version = &self.versions[bucket as usize];
        probe.write(std::ptr::from_ref(version).addr(), 8);
        version.store(version.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Of a bucket's free lanes those that a new entry should go to: where its entry lies on one line, or else all. The lowest of these is taken, by everybody.
    #[inline(always)]
    pub(super) fn preferred(bucket: u32, free: u32) -> u32 {
        if Self::WHOLE[0] == 0 {
            return free;
        }
        let whole = free & Self::WHOLE[bucket as usize % 8];
        select_unpredictable(whole != 0, whole, free)
    }

    #[inline(always)]
    pub(super) fn prefetch_tags(&self, bucket: u32) {
        prefetch_read(self.tags.as_ptr().wrapping_add(bucket as usize * WORDS));
    }

    /// Asks for the lines of an entry that looking for its key has not asked for.
    #[inline(always)]
    pub(super) fn prefetch_state(&self, slot: usize) {
        // A shorter one has been asked for whole: `SECOND`.
        if Self::STRIDE > 8 {
            let entry = self.entry(slot);
            entry[W..].iter().step_by(8).chain(entry.last()).for_each(|word| prefetch_read(word));
        }
    }

    /// Asks for all lines of an entry.
    #[inline(always)]
    pub(super) fn prefetch_entry(&self, slot: usize) {
        let entry = self.entry(slot);
        entry.iter().step_by(8).chain(entry.last()).for_each(|word| prefetch_read(word));
    }

    /// Asks for the version of a slot's bucket: what leaves the slot changes it.
    #[inline(always)]
    pub(super) fn prefetch_version(&self, slot: usize) {
        prefetch_read(&self.versions[slot / LANES]);
    }

    #[inline(always)]
    pub(super) fn entry(&self, slot: usize) -> &[AtomicU64] {
        let start = slot * Self::STRIDE;
        &self.entries[start..start + Self::STRIDE]
    }

    #[inline(always)]
    pub(super) fn key_is<P: Probe>(&self, slot: usize, key: &Key<W>, probe: &P) -> bool {
        let start = slot * Self::STRIDE;
        let words = &self.entries[start..start + W];
        probe.read(words.as_ptr().addr(), W * 8, true);
        // Without a branch for each word.
        let mut difference = 0;
        for (word, key) in words.iter().zip(key.0) {
            difference |= word.load(Ordering::Relaxed) ^ key;
        }
        difference == 0
    }

    #[inline(always)]
    pub(super) fn key(&self, slot: usize) -> Key<W> {
        let entry = self.entry(slot);
        Key(std::array::from_fn(|i| entry[i].load(Ordering::Relaxed)))
    }

    #[inline(always)]
    pub(super) fn head(&self, slot: usize) -> &AtomicU64 {
        &self.entry(slot)[W]
    }

    /// Puts the stamp into the head, unless it is there.
    #[inline(always)]
    pub(super) fn stamp<P: Probe>(&self, slot: usize, now: u32, probe: &P) {
        let head = self.head(slot);
        probe.read(std::ptr::from_ref(head).addr(), 8, true);
        let before = head.load(Ordering::Relaxed);
        if before as u32 != now {
            probe.write(std::ptr::from_ref(head).addr(), 8);
            head.store(before >> 32 << 32 | u64::from(now), Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(super) fn state(&self, slot: usize) -> S {
        let mut state = S::new_zeroed();
        for (bytes, word) in state.as_mut_bytes().chunks_exact_mut(8).zip(&self.entry(slot)[W + 1..]) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        state
    }

    #[inline(always)]
    pub(super) fn set_state(&self, slot: usize, state: &S) {
        for (bytes, word) in state.as_bytes().chunks_exact(8).zip(&self.entry(slot)[W + 1..]) {
            let mut whole = [0; 8];
            whole.copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
    }

    /// Changes a state so that readers see all of it or nothing.
    #[inline(always)]
    pub(super) fn change_state(&self, slot: usize, state: &S) {
        let head = self.head(slot);
        let before = head.load(Ordering::Relaxed);
        head.store(before.wrapping_add(CHANGE), Ordering::Relaxed);
        fence(Ordering::Release);
        self.set_state(slot, state);
        head.store(before.wrapping_add(2 * CHANGE), Ordering::Release);
    }

    /// One attempt at reading stamp and state beside the writer. Loads that follow come after it.
    #[inline(always)]
    pub(super) fn read_state(&self, slot: usize) -> Option<(u32, S)> {
        let head = self.head(slot);
        let before = head.load(Ordering::Acquire);
        let state = self.state(slot);
        fence(Ordering::Acquire);
        let after = head.load(Ordering::Relaxed);
        (before & CHANGE == 0 && (before ^ after) < CHANGE).then_some((after as u32, state))
    }

    /// Writes an entry into a free slot. Nobody sees it before its tag.
    #[inline(always)]
    pub(super) fn write_entry<P: Probe>(&self, slot: usize, key: &Key<W>, head: u64, state: &S, probe: &P) {
        // See above: after the versions of what was here before.
        fence(Ordering::Release);
        let entry = self.entry(slot);
        probe.write(entry.as_ptr().addr(), Self::STRIDE * 8);
        for (word, key) in entry.iter().zip(key.0) {
            word.store(key, Ordering::Relaxed);
        }
        entry[W].store(head, Ordering::Relaxed);
        self.set_state(slot, state);
    }

    /// Copies an entry into a free slot, with another head.
    pub(super) fn copy_entry<P: Probe>(&self, from: usize, to: usize, head: u64, probe: &P) {
        fence(Ordering::Release);
        let (from, to) = (self.entry(from), self.entry(to));
        probe.read(from.as_ptr().addr(), Self::STRIDE * 8, true);
        probe.write(to.as_ptr().addr(), Self::STRIDE * 8);
        for (from, to) in from.iter().zip(to) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        to[W].store(head, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> usize {
        (self.tags.len() + self.versions.len() + self.entries.len()) * 8
    }

    pub(super) fn slots(&self) -> usize {
        self.buckets as usize * LANES
    }
}

/// The lanes whose entries of so many words lie on one line, by their bucket's number modulo 8. None where there is no choice.
const fn whole(stride: usize) -> [u32; 8] {
    let mut lanes = [0; 8];
    if stride > 8 || 8 % stride == 0 {
        return lanes;
    }
    let mut slot = 0;
    while slot < 8 * LANES {
        if slot * stride % 8 + stride <= 8 {
            lanes[slot / LANES] |= 1 << (slot % LANES);
        }
        slot += 1;
    }
    lanes
}

/// The high half of the hash scaled to the number of buckets (Lemire's multiply-shift reduction).
#[inline(always)]
fn place(hash: u64, buckets: u32) -> u32 {
    (((hash >> 32) * u64::from(buckets)) >> 32) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn strays_stick_at_the_top_and_end_at_zero() {
        let store = Store::<1, u64>::new(1).unwrap();
        let strays = || store.tags(0, &()).strays();
        store.one_less_stray(0, &());
        assert_eq!(strays(), 0);
        for i in 1..=u16::MAX {
            store.one_more_stray(0, &());
            assert_eq!(strays(), i);
            if i == 1000 {
                store.one_less_stray(0, &());
                assert_eq!(strays(), 999);
                store.one_more_stray(0, &());
            }
        }
        store.one_more_stray(0, &());
        store.one_less_stray(0, &());
        assert_eq!((strays(), store.tags(0, &()).used()), (u16::MAX, 0));
    }

    /// Numbers of a table of 10^8 flows, and of the largest that there can be, without its memory.
    #[test]
    fn a_hundred_million_flows_and_more_have_places_of_their_own() {
        for slots in [105_263_157, 1 << 30, MOST_SLOTS / LANES * LANES] {
            let buckets = slots.div_ceil(LANES) as u32;
            let small = Store::<2, u64>::new(1).unwrap();
            let reflections = std::array::from_fn(|tag| place(mix(tag as u64 + 1), buckets));
            let store = Store { buckets, reflections, ..small };
            assert!(store.slots() >= slots && store.slots() <= MOST_SLOTS);
            // All buckets in the order of the hash, from the first to the last.
            let at = |hash: u64| store.place(hash).bucket;
            assert_eq!((at(0), at(u64::MAX)), (0, buckets - 1));
            let step = (1_u64 << 32).div_ceil(u64::from(buckets));
            let mut before = 0;
            for i in 0..10_000 {
                let hash = (u64::from(u32::MAX) - step * i) << 32 | i;
                let Place { bucket, tag } = store.place(hash);
                assert!(i == 0 || (1..=2).contains(&(before - bucket)), "{before}, {bucket}");
                before = bucket;
                let alternate = store.alternate(bucket, tag);
                assert!(alternate < buckets && store.alternate(alternate, tag) == bucket);
                let slot = alternate as usize * LANES + LANES - 1;
                assert!(slot < store.slots() && crate::flowtable::Slot::new(slot).index() == slot);
            }
        }
        // 16-byte keys, 8 bytes of state, load 0.95.
        let bytes = crate::flowtable::FlowTable::<2>::BYTES_PER_SLOT / 0.95;
        assert!(bytes < 36.2, "{bytes} bytes a flow");
    }

    #[test]
    fn the_alternate_of_the_alternate_is_the_bucket() {
        for slots in [1, 31, 32, 93, 1000, 100_003] {
            let store = Store::<1, u64>::new(slots).unwrap();
            assert!(store.slots() >= slots && store.slots() < slots + LANES);
            for bucket in (0..store.buckets).step_by(7) {
                for tag in (1..=u16::MAX).step_by(97) {
                    let alternate = store.alternate(bucket, tag);
                    assert!(alternate < store.buckets);
                    assert_eq!(store.alternate(alternate, tag), bucket);
                }
            }
        }
        assert!(matches!(Store::<1, u64>::new(usize::MAX), Err(SizeError::TooMany { .. })));
    }
}
