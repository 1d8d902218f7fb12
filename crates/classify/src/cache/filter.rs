//! Which masks a key can have no megaflow of, told without asking for it.
//!
//! ```text
//! key     | word a, under the mask | word b, under the mask |        those two of its eight words that tell most megaflows apart
//!              * odd number        +       * odd number     --> first 9 bits: a place
//! filter  | 0 1 0 0 ... 1 |                                        512 bits, one cache line: some megaflow of the mask has that place
//! ```
//!
//! A counting Bloom filter with one hash for each mask (Fan et al., "Summary Cache", SIGCOMM 1998; in front of tuple spaces filters are old: Dharmapurikar et al.,
//! "Longest Prefix Matching Using Bloom Filters", SIGCOMM 2003). To ask a filter costs a sixteenth of a probe; so as long as masks have up to a hundred megaflows or so each,
//! a key is asked for about one mask, whichever that is in the order. With more the filters let more through, and with thousands all: then it is as without.
//!
//! The factors are secret, so nobody can send what a filter lets through but as often as chance does.

use crate::key::{Key, Mask, WORDS};
use std::cell::Cell;
use tidemill_flow::hash::mix;

/// Places of a filter.
const PLACES: usize = 512;

/// As many filters asked cost as much as a probe.
pub(super) const A_PROBE: u32 = 16;

/// What a key's fields say of it; ethertypes, protocols and the like say little.
const TELLING: [u64; WORDS] =
    [u64::MAX, u64::MAX, u64::MAX, u64::MAX, !0 << 32, !0 << 32, u64::MAX, u64::MAX];

/// One mask's filter.
#[derive(Clone)]
pub(super) struct Filter {
    words: [u8; 2],
    masks: [u64; 2],
    bits: [Cell<u64>; PLACES / 64],
}

/// The filters of all masks, by the masks' numbers.
pub(super) struct Filters {
    filters: Box<[Filter]>,
    /// Megaflows by place; one that has come to 255 stays there until the mask goes.
    counts: Box<[Cell<u8>]>,
    factors: [u64; 2],
}

impl Filters {
    pub(super) fn new(masks: usize, secret: u128) -> Self {
        let empty = Filter { words: [0; 2], masks: [0; 2], bits: Default::default() };
        Filters {
            filters: vec![empty; masks].into(),
            counts: vec![Cell::new(0); masks * PLACES].into(),
            factors: [mix(secret as u64) | 1, mix((secret >> 64) as u64 ^ 0x0f17) | 1],
        }
    }

    pub(super) fn are_there(&self) -> bool {
        !self.filters.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.filters) + size_of_val(&*self.counts)
    }

    /// An empty filter for this mask.
    pub(super) fn begin(&mut self, number: u16, mask: &Mask) {
        let number = usize::from(number);
        let (Some(filter), Some(counts)) =
            (self.filters.get_mut(number), self.counts.get_mut(number * PLACES..(number + 1) * PLACES))
        else {
            return;
        };
        // Most bits first; of as many the first word.
        let worth = |word: usize| ((mask.0[word] & TELLING[word]).count_ones(), mask.0[word].count_ones());
        let mut words: [usize; WORDS] = std::array::from_fn(|word| word);
        words.sort_by_key(|&word| std::cmp::Reverse(worth(word)));
        filter.words = [words[0] as u8, words[1] as u8];
        filter.masks = [mask.0[words[0]], mask.0[words[1]]];
        filter.bits.iter().for_each(|bits| bits.set(0));
        counts.iter().for_each(|count| count.set(0));
    }

    /// Whether there may be a megaflow of this mask for a key, which may be under the mask already. Without filters: always.
    #[inline(always)]
    pub(super) fn may_have(&self, number: u16, key: &Key) -> bool {
        let Some(filter) = self.filters.get(usize::from(number)) else { return true };
        let place = self.place(filter, &key.0);
        filter.bits[place / 64].get() >> (place % 64) & 1 != 0
    }

    #[inline(always)]
    fn place(&self, filter: &Filter, key: &[u64; WORDS]) -> usize {
        let of = |i: usize| {
            (key[usize::from(filter.words[i]) % WORDS] & filter.masks[i]).wrapping_mul(self.factors[i])
        };
        (of(0).wrapping_add(of(1)) >> (64 - PLACES.ilog2())) as usize
    }

    /// There is one more megaflow of this key.
    pub(super) fn add(&self, number: u16, key: &[u64; WORDS]) {
        let Some(filter) = self.filters.get(usize::from(number)) else { return };
        let place = self.place(filter, key);
        let count = &self.counts[usize::from(number) * PLACES + place];
        count.set(count.get().saturating_add(1));
        let bits = &filter.bits[place / 64];
        bits.set(bits.get() | 1 << (place % 64));
    }

    /// One has gone.
    pub(super) fn take(&self, number: u16, key: &[u64; WORDS]) {
        let Some(filter) = self.filters.get(usize::from(number)) else { return };
        let place = self.place(filter, key);
        let count = &self.counts[usize::from(number) * PLACES + place];
        match count.get() {
            // Nobody knows how many there are.
            u8::MAX => {}
            0 | 1 => {
                count.set(0);
                let bits = &filter.bits[place / 64];
                bits.set(bits.get() & !(1 << (place % 64)));
            }
            more => count.set(more - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Field;
    use crate::suite::Rng;

    fn key(random: &mut Rng, of: usize) -> Key {
        let next = |random: &mut Rng| random.below(of) as u32;
        Key::ipv4(next(random) << 8, next(random) << 8, 7, next(random) as u16, 17)
    }

    /// Whatever comes and goes: who is there is let through, and after everybody has gone nobody is.
    #[test]
    fn who_is_there_is_let_through() {
        let mut random = Rng::new(3);
        let masks = [
            Mask::prefix(Field::Ipv4Destination, 24),
            Mask::prefix(Field::Ipv4Source, 24).or(&Mask::prefix(Field::DestinationPort, 16)),
            Mask::prefix(Field::EtherType, 16),
            Mask::NONE,
            Mask::ALL,
        ];
        let mut filters = Filters::new(masks.len(), 5 << 70 | 9);
        for (number, mask) in (0..).zip(&masks) {
            filters.begin(number, mask);
        }
        for (number, mask) in (0..).zip(&masks) {
            let mut there: Vec<Key> = Vec::new();
            for _ in 0..3000 {
                if random.once_in(3) && !there.is_empty() {
                    let gone = there.swap_remove(random.below(there.len()));
                    filters.take(number, &gone.0);
                } else {
                    there.push(key(&mut random, 40).masked(mask));
                    filters.add(number, &there[there.len() - 1].0);
                }
                assert!(there.iter().take(50).all(|key| filters.may_have(number, key)));
            }
            // Fewer than 255 at a place, unless all are at one.
            there.iter().for_each(|key| filters.take(number, &key.0));
            let left = (0..1000).filter(|_| filters.may_have(number, &key(&mut random, 40))).count();
            let crowded = matches!(number, 2 | 3);
            assert!(left == 0 || crowded, "{left} of {mask:?}");
            filters.begin(number, mask);
            assert!(!filters.may_have(number, &key(&mut random, 40)));
        }
    }

    /// Of as many as there are places at most 0.64 are let through by chance; of a tenth as many a tenth.
    #[test]
    fn others_are_let_through_by_chance_only() {
        let mut random = Rng::new(4);
        let mask = Mask::prefix(Field::Ipv4Destination, 24).or(&Mask::prefix(Field::EtherType, 16));
        for (megaflows, most) in [(51, 0.12), (512, 0.67)] {
            let mut filters = Filters::new(1, 77);
            filters.begin(0, &mask);
            for _ in 0..megaflows {
                filters.add(0, &key(&mut random, 1 << 20).masked(&mask).0);
            }
            let passed = (0..20_000).filter(|_| filters.may_have(0, &key(&mut random, 1 << 20))).count();
            assert!((passed as f64) < most * 20_000.0, "{passed} with {megaflows}");
        }
    }
}
