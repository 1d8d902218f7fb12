//! Which masks a key can have no megaflow of, told without asking for it.
//!
//! ```text
//! key     | word a, under the mask | word b, under the mask |        those two of its eight words that tell most megaflows apart
//!              * odd number        +       * odd number     --> first 9 bits: a place
//! filter  | 0 1 0 0 ... 1 |                                        512 bits: some megaflow of the mask has that place
//! ```
//!
//! A counting Bloom filter with one hash for each mask (Fan et al., "Summary Cache", SIGCOMM 1998; in front of tuple spaces filters are old: Dharmapurikar et al.,
//! "Longest Prefix Matching Using Bloom Filters", SIGCOMM 2003). To ask a filter costs an eighth of a probe; so as long as masks have up to a hundred megaflows or so each,
//! a key is asked for about one mask, whichever that is in the order. With more the filters let more through, and with thousands all: then it is as without.
//!
//! A flood makes thousands that no packet ever finds again. So each mask has two filters, 608 bytes each: one of the megaflows that a packet has found since they were made, and one of
//! the [others](Standing). Keys are asked of the former; those that have no megaflow there are asked of the latter, or of none where that was in vain lately (`sparing.rs`). What a
//! flood has left lies in filters that nobody asks who has a megaflow that is in use, meanwhile and afterwards. The second packet of a megaflow pays for both, once.
//!
//! The factors are secret, so nobody can send what a filter lets through but as often as chance does.

use super::group::bits_of;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::cpu::Avx512;
use crate::key::{Key, Mask, WORDS};
use crate::turned::Turned;
use tidemill_flow::hash::mix;

/// Places of a filter.
const PLACES: usize = 512;

/// As many filters asked cost as much as a probe.
pub(super) const A_PROBE: u32 = 8;

/// What a key's fields say of it; ethertypes, protocols and the like say little.
const TELLING: [u64; WORDS] =
    [u64::MAX, u64::MAX, u64::MAX, u64::MAX, !0 << 32, !0 << 32, u64::MAX, u64::MAX];

/// Which filter has a megaflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// A packet has found it since it was made.
    Proven,
    /// None has.
    New,
}

impl Standing {
    /// How many there are.
    pub(super) const ALL: usize = 2;
}

/// One mask's filter.
#[derive(Clone)]
pub(super) struct Filter {
    pub(super) words: [usize; 2],
    pub(super) masks: [u64; 2],
    pub(super) bits: [u64; PLACES / 64],
}

/// The filters of all masks, by the masks' numbers, for megaflows of one standing.
pub(super) struct Filters {
    filters: Box<[Filter]>,
    /// Megaflows by place; one that has come to 255 stays there until the mask goes.
    counts: Box<[u8]>,
    factors: [u64; 2],
}

impl Filters {
    pub(super) const BYTES_PER_MASK: usize = size_of::<Filter>() + PLACES;

    pub(super) fn new(masks: usize, secret: u128) -> Self {
        let empty = Filter { words: [0; 2], masks: [0; 2], bits: [0; PLACES / 64] };
        Filters {
            filters: vec![empty; masks].into(),
            counts: vec![0; masks * PLACES].into(),
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
        filter.words = [words[0], words[1]];
        filter.masks = [mask.0[words[0]], mask.0[words[1]]];
        filter.bits.fill(0);
        counts.fill(0);
    }

    /// Whether there may be a megaflow of this mask for a key, which may be under the mask already. Without filters: always.
    #[inline(always)]
    pub(super) fn may_have(&self, number: u16, key: &Key) -> bool {
        let Some(filter) = self.filters.get(usize::from(number)) else { return true };
        let place = self.place(filter, &key.0);
        filter.bits[place / 64] >> (place % 64) & 1 != 0
    }

    /// The same of those of a group's keys that have their bit in `of`: which may.
    #[inline(always)]
    pub(super) fn let_through(&self, number: u16, keys: &[Key], of: u32, turned: &mut Turned) -> u32 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let (Some(filter), Some(simd)) = (self.filters.get(usize::from(number)), Avx512::new()) {
            return of & simd.let_through(filter, self.factors, turned.two(filter.words, keys));
        }
        let _ = turned;
        bits_of(of).filter(|&i| self.may_have(number, &keys[i])).fold(0, |bits, i| bits | 1 << i)
    }

    #[inline(always)]
    fn place(&self, filter: &Filter, key: &[u64; WORDS]) -> usize {
        let of = |i: usize| (key[filter.words[i] % WORDS] & filter.masks[i]).wrapping_mul(self.factors[i]);
        (of(0).wrapping_add(of(1)) >> (64 - PLACES.ilog2())) as usize
    }

    /// There is one more megaflow of this key.
    pub(super) fn add(&mut self, number: u16, key: &[u64; WORDS]) {
        let Some(filter) = self.filters.get(usize::from(number)) else { return };
        let place = self.place(filter, key);
        let count = &mut self.counts[usize::from(number) * PLACES + place];
        *count = count.saturating_add(1);
        self.filters[usize::from(number)].bits[place / 64] |= 1 << (place % 64);
    }

    /// One has gone.
    pub(super) fn take(&mut self, number: u16, key: &[u64; WORDS]) {
        let Some(filter) = self.filters.get(usize::from(number)) else { return };
        let place = self.place(filter, key);
        let count = &mut self.counts[usize::from(number) * PLACES + place];
        // At the most nobody knows how many there are.
        if *count < u8::MAX {
            *count = count.saturating_sub(1);
        }
        if *count == 0 {
            self.filters[usize::from(number)].bits[place / 64] &= !(1 << (place % 64));
        }
    }

    /// How many megaflows of a mask it has counted; `None` where it does not know, or there is none.
    pub(super) fn counted(&self, number: u16) -> Option<u32> {
        let number = usize::from(number);
        let counts = self.counts.get(number * PLACES..(number + 1) * PLACES)?;
        counts.iter().try_fold(0, |sum, &count| (count < u8::MAX).then(|| sum + u32::from(count)))
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

    /// Of a group as of each key, also where there are fewer keys than places.
    #[test]
    fn of_many_keys_as_of_each() {
        let mut random = Rng::new(6);
        let masks = [
            Mask::prefix(Field::Ipv4Destination, 24),
            Mask::prefix(Field::MacSource, 48).or(&Mask::prefix(Field::DestinationPort, 16)),
            Mask::NONE,
            Mask::ALL,
        ];
        let mut filters = Filters::new(masks.len(), 3 << 80 | 5);
        for (number, mask) in (0..).zip(&masks) {
            filters.begin(number, mask);
            (0..300).for_each(|_| filters.add(number, &key(&mut random, 100).masked(mask).0));
        }
        let mut passed = 0;
        for keys in [1, 7, 8, 31, 32].repeat(50) {
            let keys: Vec<Key> = (0..keys).map(|_| key(&mut random, 100)).collect();
            let of = random.number() as u32 & (u32::MAX >> (32 - keys.len()));
            let mut turned = Turned::new();
            for number in 0..masks.len() as u16 {
                let each = bits_of(of).filter(|&i| filters.may_have(number, &keys[i]));
                let each = each.fold(0_u32, |bits, i| bits | 1 << i);
                assert_eq!(filters.let_through(number, &keys, of, &mut turned), each);
                passed += each.count_ones();
            }
        }
        assert!(passed > 1000, "{passed}");
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
            let crowded = matches!(number, 2 | 3);
            assert_eq!(filters.counted(number), (!crowded).then_some(there.len() as u32));
            there.iter().for_each(|key| filters.take(number, &key.0));
            let left = (0..1000).filter(|_| filters.may_have(number, &key(&mut random, 40))).count();
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
