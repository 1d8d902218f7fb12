//! A Bloom filter from which keys can be taken out.

use super::blocked::{Places, Shape, WORDS};
use super::{AHEAD, FilterError, Mismatch, place, words};
use tidemill_lookup::mem::Table;
use tidemill_lookup::prefetch::prefetch_read;

/// Cells of a block: counters of 4 bits, 16 in each word.
const CELLS: u32 = 128;
/// A counter that has got here stays: how many it has missed, nobody knows.
const STUCK: u64 = 15;

/// A counting Bloom filter (Fan, Cao, Almeida, Broder, "Summary Cache", 2000, section 5.2) in blocks of one cache line.
///
/// ```text
/// block   8 words (see the picture of the module), each    | 4 bits | 4 bits | ... 16 counters |
/// ```
///
/// What is guaranteed, whatever the hashes:
/// * A key that went in more often than it came out is found, provided that nothing else was ever taken out more often than
///   it had been put in.
/// * Counters that overflow are stuck at 15 until [`clear`](Self::clear): that costs false positives, never a false negative.
/// * Taking out a key that the filter does not know changes nothing. One that was never put in and that the filter takes for one
///   of its own (which happens at the false-positive rate) takes 1 from each of its k counters: keys that relied on one of
///   those are then missed. No filter of this kind can tell; take out only what you have put in.
#[derive(Debug)]
pub struct CountingBloom {
    words: Table<u64>,
    shape: Shape,
}

impl CountingBloom {
    /// An empty filter that gives a false-positive rate of at most `rate` (0.000001 to 0.5) while `items` different keys are in it.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn new(items: usize, rate: f64) -> Result<Self, FilterError> {
        let shape = Shape::for_rate(items, rate, CELLS)?;
        Ok(CountingBloom { words: words(shape.blocks * WORDS)?, shape })
    }

    #[inline(always)]
    fn block(&mut self, hash: u64) -> &mut [u64; WORDS] {
        let block = place(hash, self.shape.blocks);
        &mut self.words.as_chunks_mut::<WORDS>().0[block]
    }

    /// Puts a key in, once more if it is there already.
    #[inline]
    pub fn insert(&mut self, hash: u64) {
        let k = self.shape.places;
        let (mut places, block) = (Places::<4>::of(hash), self.block(hash));
        for _ in 0..k {
            let (word, cell) = places.next();
            let count = block[word] >> (4 * cell) & STUCK;
            block[word] += u64::from(count != STUCK) << (4 * cell);
        }
    }

    /// Takes a key out once. `false`, and nothing has changed, if it is certain that it is not there.
    #[inline]
    pub fn remove(&mut self, hash: u64) -> bool {
        if !self.contains(hash) {
            return false;
        }
        let k = self.shape.places;
        let (mut places, block) = (Places::<4>::of(hash), self.block(hash));
        for _ in 0..k {
            // The k counters are in different words and none is 0.
            let (word, cell) = places.next();
            let count = block[word] >> (4 * cell) & STUCK;
            block[word] -= u64::from(count != STUCK) << (4 * cell);
        }
        true
    }

    /// Whether a key is in the filter: `false` is certain (see above for what that relies on).
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        let block = &self.words.as_chunks::<WORDS>().0[place(hash, self.shape.blocks)];
        let (mut places, mut there) = (Places::<4>::of(hash), true);
        // All places are looked at: a branch for each would often be mispredicted.
        for _ in 0..self.shape.places {
            let (word, cell) = places.next();
            there &= block[word] & (STUCK << (4 * cell)) != 0;
        }
        there
    }

    /// [`contains`](Self::contains) of many keys, with their blocks fetched ahead. `out` is at least as long as `hashes`.
    pub fn contains_batch(&self, hashes: &[u64], out: &mut [bool]) {
        for (hashes, out) in hashes.chunks(AHEAD).zip(out.chunks_mut(AHEAD)) {
            hashes.iter().for_each(|&hash| self.prefetch(hash));
            for (&hash, out) in hashes.iter().zip(out) {
                *out = self.contains(hash);
            }
        }
    }

    /// Puts many keys in, with their blocks fetched ahead.
    pub fn insert_batch(&mut self, hashes: &[u64]) {
        for hashes in hashes.chunks(AHEAD) {
            hashes.iter().for_each(|&hash| self.prefetch(hash));
            hashes.iter().for_each(|&hash| self.insert(hash));
        }
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        prefetch_read(&self.words[place(hash, self.shape.blocks) * WORDS]);
    }

    /// Everything out, and no counter is stuck any more.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Puts in what is in the other, as often as it is there; the other was made with the same arguments and fed with the same hash.
    ///
    /// # Errors
    /// [`Mismatch`]: nothing has changed.
    pub fn union(&mut self, other: &Self) -> Result<(), Mismatch> {
        if self.shape != other.shape {
            return Err(Mismatch);
        }
        for (ours, &theirs) in self.words.iter_mut().zip(&*other.words) {
            *ours = (0..64).step_by(4).fold(0, |word, cell| {
                let sum = (*ours >> cell & STUCK) + (theirs >> cell & STUCK);
                word | sum.min(STUCK) << cell
            });
        }
        Ok(())
    }

    /// The false-positive rate to expect with that many different keys in it.
    pub fn expected_rate(&self, items: usize) -> f64 {
        self.shape.rate(items, CELLS)
    }

    /// Counters that are stuck at 15. It costs a pass over the filter.
    pub fn stuck(&self) -> usize {
        self.words
            .iter()
            .map(|word| (0..64).step_by(4).filter(|cell| word >> cell & STUCK == STUCK).count())
            .sum()
    }

    /// Bytes that the filter occupies.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}
