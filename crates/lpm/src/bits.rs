//! Bits that several owners set, with their numbers beside them: what the Bloom filters are made of.

use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::probe::Probe;

/// Lookups read the bits; the counts are the writer's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CountedBits {
    words: Array<u64>,
    /// How many owners each bit has. One that has reached 255 stays there, with its bit.
    counts: Vec<u8>,
}

impl CountedBits {
    /// So many words of 64 bits, none set.
    pub(crate) fn new(words: usize) -> Self {
        CountedBits { words: Array::zeroed(words), counts: vec![0; 64 * words] }
    }

    /// Bits there are.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// What lookups read.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    #[cfg(test)]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// See [`Whole::collapse`](crate::copies::Whole::collapse).
    pub(crate) fn collapse(&self) {
        collapse(&self.words);
    }

    /// The bit, 0 or 1. `dependent` as in [`Probe::read`].
    #[inline(always)]
    pub(crate) fn get<P: Probe + ?Sized>(&self, bit: usize, dependent: bool, probe: &P) -> u64 {
        let word = &self.words[bit / 64];
        probe.read((&raw const *word).addr(), 8, dependent);
        word >> (bit % 64) & 1
    }

    /// One owner more.
    pub(crate) fn set<P: Probe + ?Sized>(&mut self, bit: usize, probe: &P) {
        if self.counts[bit] == 0 {
            self.words[bit / 64] |= 1 << (bit % 64);
            probe.write((&raw const self.words[bit / 64]).addr(), 8);
        }
        self.counts[bit] = self.counts[bit].saturating_add(1);
    }

    /// One owner less, of a bit that has some.
    pub(crate) fn clear<P: Probe + ?Sized>(&mut self, bit: usize, probe: &P) {
        let count = &mut self.counts[bit];
        if matches!(*count, 0 | u8::MAX) {
            return;
        }
        *count -= 1;
        if *count == 0 {
            self.words[bit / 64] &= !(1 << (bit % 64));
            probe.write((&raw const self.words[bit / 64]).addr(), 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_goes_with_its_last_owner_and_one_of_too_many_stays() {
        let mut bits = CountedBits::new(2);
        let is_set = |bits: &CountedBits, bit| bits.get(bit, false, &()) == 1;
        bits.set(70, &());
        bits.set(70, &());
        bits.clear(70, &());
        assert!(is_set(&bits, 70) && !is_set(&bits, 71) && !is_set(&bits, 6));
        bits.clear(70, &());
        assert!(!is_set(&bits, 70));
        (0..300).for_each(|_| bits.set(3, &()));
        (0..300).for_each(|_| bits.clear(3, &()));
        assert!(is_set(&bits, 3), "how many owners it has left nobody knows");
        assert_eq!(bits.words(), [1 << 3, 0]);
    }
}
