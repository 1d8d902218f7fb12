//! A Bloom filter of one prefix length, with counters beside it, which only the writer reads, so that prefixes can go.

use super::hash::Hash;
use crate::bits::CountedBits;
use tidemill_lookup::probe::Probe;

/// k: bits of a key.
pub(super) const HASHES: u64 = 13;
/// Bits that are looked at before the first question.
const TOGETHER: u64 = 4;
/// 1000 m/n: thousandths of a bit that the filter has per key. With k = 13 half of the bits are set.
const MILLIBITS: usize = 18_755;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    bits: CountedBits,
    keys: usize,
    capacity: usize,
}

impl Filter {
    /// See [`Whole::collapse`](crate::copies::Whole::collapse).
    pub(super) fn collapse(&self) {
        self.bits.collapse();
    }

    /// A filter without keys, of the right size for so many.
    pub(super) fn new(capacity: usize) -> Self {
        let bits = (capacity * MILLIBITS).div_ceil(1000);
        Filter { bits: CountedBits::new(bits.div_ceil(64)), keys: 0, capacity }
    }

    /// Keys in it.
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// Whether another key would make false positives more likely than they should be.
    pub(super) fn is_full(&self) -> bool {
        self.keys >= self.capacity
    }

    /// Whether it is four times as large as it need be.
    pub(super) fn is_sparse(&self) -> bool {
        self.keys * 4 < self.capacity || self.keys == 0
    }

    pub(super) fn bits(&self) -> &[u64] {
        self.bits.words()
    }

    #[cfg(test)]
    pub(super) fn bits_mut(&mut self) -> &mut [u64] {
        self.bits.words_mut()
    }

    /// Whether the key may be there; surely so if it is. The filter is not empty.
    #[inline(always)]
    pub(super) fn contains<P: Probe + ?Sized>(&self, hash: Hash, probe: &P) -> bool {
        let bit = |i: u64| self.bits.get(hash.place(i, self.bits.len()), false, probe);
        // Of the first four bits a branch says nothing that could be foreseen; of all four together it does.
        (0..TOGETHER).fold(1, |all, i| all & bit(i)) != 0 && (TOGETHER..HASHES).all(|i| bit(i) != 0)
    }

    /// Adds a key that is not there.
    pub(super) fn add<P: Probe + ?Sized>(&mut self, hash: Hash, probe: &P) {
        for i in 0..HASHES {
            self.bits.set(hash.place(i, self.bits.len()), probe);
        }
        self.keys += 1;
    }

    /// Takes a key away that is there.
    pub(super) fn remove<P: Probe + ?Sized>(&mut self, hash: Hash, probe: &P) {
        for i in 0..HASHES {
            self.bits.clear(hash.place(i, self.bits.len()), probe);
        }
        self.keys -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::Hasher;
    use super::*;
    use crate::keys::Random;

    /// What is measured against (1 - e^(-kn/m))^k = 2^-13: some 1,600 of so many, of which a tenth is four standard deviations.
    #[test]
    fn false_positives_are_as_frequent_as_theory_says() {
        const KEYS: usize = 20_000;
        const QUERIES: usize = 1_600 << 13;
        let mut random = Random::new(6);
        let mut region = |len: u8| random.address::<u128>() >> (128 - len) << (128 - len);
        for len in [48, 64, 128] {
            let mut filter = Filter::new(KEYS);
            let keys: Vec<u128> = (0..KEYS).map(|_| region(len)).collect();
            keys.iter().for_each(|&key| filter.add(Hasher::FIXED.hash(key, len), &()));
            assert!(keys.iter().all(|&key| filter.contains(Hasher::FIXED.hash(key, len), &())));
            let set: u32 = filter.bits().iter().map(|word| word.count_ones()).sum();
            let share = f64::from(set) / filter.bits.len() as f64;
            assert!((0.49..0.51).contains(&share), "{share} of the bits");
            let hits =
                (0..QUERIES).filter(|_| filter.contains(Hasher::FIXED.hash(region(len), len), &())).count();
            let rate = hits as f64 / QUERIES as f64 * 8192.0;
            println!("/{len}: {hits} of {QUERIES}, {rate:.3} times 2^-13");
            assert!((0.9..1.1).contains(&rate), "/{len}: {hits} false positives");
        }
    }

    #[test]
    fn keys_that_go_leave_no_bit() {
        let mut filter = Filter::new(100);
        let hash = |i: u64| Hasher::FIXED.hash(u128::from(i) << 64, 64);
        (0..100).for_each(|i| filter.add(hash(i), &()));
        assert!(filter.is_full() && !filter.is_sparse());
        (0..50).for_each(|i| filter.remove(hash(i), &()));
        assert!((50..100).all(|i| filter.contains(hash(i), &())));
        (50..100).for_each(|i| filter.remove(hash(i), &()));
        assert_eq!(filter, Filter::new(100));
    }

    /// A count that may have been higher is never counted down again.
    #[test]
    fn a_full_counter_keeps_its_bit() {
        let mut filter = Filter::new(1);
        let hash = Hasher::FIXED.hash(1 << 127, 25);
        (0..300).for_each(|_| filter.add(hash, &()));
        (0..299).for_each(|_| filter.remove(hash, &()));
        assert!(filter.contains(hash, &()));
    }
}
