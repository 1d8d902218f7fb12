//! A Bloom filter in blocks of one cache line.

use super::blocked::{Places, Shape, WORDS};
use super::{AHEAD, FilterError, Mismatch, place, words};
use tidemill_lookup::mem::Table;
use tidemill_lookup::prefetch::prefetch_read;

/// Cells of a block: bits.
const CELLS: u32 = 512;

/// A blocked Bloom filter: one cache line per query (see [the picture](super)). Never a false negative.
#[derive(Debug)]
pub struct Bloom {
    words: Table<u64>,
    shape: Shape,
}

impl Bloom {
    /// An empty filter that gives a false-positive rate of at most `rate` (0.000001 to 0.5) once `items` different keys are in it.
    /// More may be inserted: [`expected_rate`](Self::expected_rate) says what that costs.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn new(items: usize, rate: f64) -> Result<Self, FilterError> {
        let shape = Shape::for_rate(items, rate, CELLS)?;
        Ok(Bloom { words: words(shape.blocks * WORDS)?, shape })
    }

    /// Puts a key in. Whether it was there, perhaps, before.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> bool {
        let block = place(hash, self.shape.blocks);
        let block = &mut self.words.as_chunks_mut::<WORDS>().0[block];
        let (mut places, mut there) = (Places::<6>::of(hash), 1);
        for _ in 0..self.shape.places {
            let (word, bit) = places.next();
            there &= block[word] >> bit;
            block[word] |= 1 << bit;
        }
        there & 1 == 1
    }

    /// Puts many keys in, with their blocks fetched ahead.
    pub fn insert_batch(&mut self, hashes: &[u64]) {
        for hashes in hashes.chunks(AHEAD) {
            hashes.iter().for_each(|&hash| self.prefetch(hash));
            for &hash in hashes {
                self.insert(hash);
            }
        }
    }

    /// Whether a key is in the filter: `false` is certain.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        let block = &self.words.as_chunks::<WORDS>().0[place(hash, self.shape.blocks)];
        let (mut places, mut there) = (Places::<6>::of(hash), true);
        // All places are looked at: a branch for each would often be mispredicted.
        for _ in 0..self.shape.places {
            let (word, cell) = places.next();
            there &= block[word] & (1 << cell) != 0;
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

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        prefetch_read(&self.words[place(hash, self.shape.blocks) * WORDS]);
    }

    /// Everything out.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Puts in what is in the other, which was made with the same arguments and fed with the same hash.
    ///
    /// # Errors
    /// [`Mismatch`]: nothing has changed.
    pub fn union(&mut self, other: &Self) -> Result<(), Mismatch> {
        if self.shape != other.shape {
            return Err(Mismatch);
        }
        self.words.iter_mut().zip(&*other.words).for_each(|(ours, theirs)| *ours |= theirs);
        Ok(())
    }

    /// The false-positive rate to expect with that many different keys.
    pub fn expected_rate(&self, items: usize) -> f64 {
        self.shape.rate(items, CELLS)
    }

    /// Bits set, of all: about a half once it holds what it was made for. It costs a pass over the filter.
    pub fn fill(&self) -> f64 {
        let set: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        set as f64 / (self.words.len() as f64 * 64.0)
    }

    /// Bytes that the filter occupies.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}
