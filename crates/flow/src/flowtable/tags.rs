//! The tags of a bucket: thirty-one of 16 bits and a count, one cache line, compared all at once.
//!
//! ```text
//! 16 bits   tag 0 | tag 1 | ... | tag 30 | strays       four to a word; tag 0: the slot is free
//! ```
//! *Strays* are keys that belong here and live in their other bucket: as long as there are none, a key that is not here is
//! nowhere. The count sticks at the top; then it only costs time.

use crate::simd::equal_halves;
use crate::words::{AtomicU64, Ordering};

/// Slots of a bucket.
pub(super) const LANES: usize = 31;
/// Words of a bucket.
pub(super) const WORDS: usize = 8;
/// One bit for each slot.
pub(super) const ALL: u32 = (1 << LANES) - 1;

/// A bucket's tags, where they are.
#[derive(Clone, Copy)]
pub(super) struct Tags<'a>(pub(super) &'a [AtomicU64; WORDS]);

impl Tags<'_> {
    /// The slots with this tag, one bit each. Acquire: the words of their entries are there.
    #[inline(always)]
    pub(super) fn matches(self, tag: u16) -> u32 {
        equal_halves(self.0, tag) & ALL
    }

    /// What a lookup wants to know: the slots with this tag, and in the bit behind them whether the bucket has no strays. So 0 is "perhaps in
    /// the other bucket", and of anything else the lowest bit is that of a slot or says "nowhere".
    #[inline(always)]
    pub(super) fn answer(self, tag: u16) -> u32 {
        self.matches(tag) | u32::from(self.strays() == 0) << LANES
    }

    /// The slots that are free.
    #[inline(always)]
    pub(super) fn free(self) -> u32 {
        self.matches(0)
    }

    /// The slots that are used.
    #[inline(always)]
    pub(super) fn used(self) -> u32 {
        !self.free() & ALL
    }

    #[inline(always)]
    pub(super) fn tag(self, lane: usize) -> u16 {
        (self.0[lane / 4].load(Ordering::Acquire) >> (16 * (lane % 4))) as u16
    }

    #[inline(always)]
    pub(super) fn strays(self) -> u16 {
        self.tag(LANES)
    }

    /// Puts a tag into a slot. Release: the words of the entry that it shows are written before.
    #[inline(always)]
    pub(super) fn set(self, lane: usize, tag: u16) {
        let (word, shift) = (&self.0[lane / 4], 16 * (lane % 4));
        let rest = word.load(Ordering::Relaxed) & !(0xffff << shift);
        word.store(rest | u64::from(tag) << shift, Ordering::Release);
    }
}

/// The bits of a mask, lowest first.
#[inline(always)]
pub(super) fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        let some = mask != 0;
        mask &= mask.wrapping_sub(1);
        some.then_some(bit)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_found_and_the_strays_are_none() {
        for lane in 0..LANES {
            let words = [const { AtomicU64::new(0) }; WORDS];
            let tags = Tags(&words);
            tags.set(LANES, 5);
            tags.set(lane, 5);
            assert_eq!((tags.matches(5), tags.tag(lane), tags.strays()), (1 << lane, 5, 5));
            assert_eq!((tags.free(), tags.used()), (ALL & !(1 << lane), 1 << lane));
            assert_eq!((tags.answer(5), tags.answer(6)), (1 << lane, 0));
            tags.set(LANES, 0);
            assert_eq!((tags.answer(5), tags.answer(6)), (1 << lane | 1 << LANES, 1 << LANES));
            tags.set(lane, 0);
            assert_eq!(tags.free(), ALL);
        }
        assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
    }
}
