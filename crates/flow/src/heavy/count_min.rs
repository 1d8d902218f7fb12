//! A count-min sketch in blocks of one cache line.

use crate::filter::{Mismatch, place, words};
use crate::table::SizeError;
use tidemill_lookup::mem::Table;
use tidemill_lookup::prefetch::prefetch_read;

/// Words of a block: one cache line.
const WORDS: usize = 8;
/// Counters of a block.
const COUNTERS: usize = 2 * WORDS;
/// Counters of a key: one in each row of a block.
const ROWS: usize = 4;
/// Blocks: one is chosen by half a hash.
const MOST_BLOCKS: usize = 1 << 32;
/// Updates that are under way at once in a batch.
const AHEAD: usize = 32;

/// A count for every key, without keys: never too small, seldom much too large. Count-min (Cormode, Muthukrishnan, "An Improved Data Stream
/// Summary", 2005) with conservative update (Estan, Varghese, "New Directions in Traffic Measurement and Accounting", 2002, section 3.2), on blocks:
///
/// ```text
/// hash    | high 32 bits -> block |     all 64 bits, multiplied -> 2 bits for each of 4 rows   |
/// block   |  row 0: 4 counters  |  row 1: 4 counters  |  row 2  |  row 3  |      of 32 bits, one cache line
/// ```
///
/// A key has one counter in each row, and its count is the smallest of them. An addition raises only those that are below the new count.
///
/// What holds for every stream: [`get`](Self::get) is never less than the weight that was added for the key, up to 2^32 - 1, where counters
/// stop. If the hash is good, it exceeds that by more than e/4 = 0.68 of the weight of the *other* keys of its block
/// with a probability below e^-4 = 1.9 % (Markov's inequality in four independent rows). A classic sketch, with its counters in four lines, spreads
/// a heavy key over four blocks: the mean excess is the same, the extremes are rarer, and a packet costs four cache lines instead of one.
#[derive(Debug)]
pub struct CountMin {
    words: Table<u64>,
    blocks: usize,
}

impl CountMin {
    /// A sketch of at least this many counters, all 0. Twice as many as there are keys in a window is a good beginning.
    ///
    /// # Errors
    /// [`SizeError`].
    pub fn new(counters: usize) -> Result<Self, SizeError> {
        let blocks = counters.div_ceil(COUNTERS).max(1);
        if blocks > MOST_BLOCKS {
            return Err(SizeError::TooMany { asked: counters, most: MOST_BLOCKS.saturating_mul(COUNTERS) });
        }
        Ok(CountMin { words: words(blocks.saturating_mul(WORDS))?, blocks })
    }

    /// The word and the shift of a key's counter in each row.
    #[inline(always)]
    fn counters(hash: u64) -> [(usize, u32); ROWS] {
        let bits = hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 56;
        std::array::from_fn(|row| {
            let bits = bits as usize >> (2 * row);
            (2 * row + (bits & 1), (bits & 2) as u32 * 16)
        })
    }

    /// A packet, or `weight` units, of a key. Its count, this one included.
    #[inline]
    pub fn add(&mut self, hash: u64, weight: u32) -> u32 {
        let block = &mut self.words.as_chunks_mut::<WORDS>().0[place(hash, self.blocks)];
        let counters = Self::counters(hash);
        let before = counters.map(|(word, shift)| (block[word] >> shift) as u32);
        let count = before.into_iter().fold(u32::MAX, u32::min).saturating_add(weight);
        for ((word, shift), before) in counters.into_iter().zip(before) {
            // What is missing from the new count; no carry, for the sum is at most 2^32 - 1.
            block[word] += u64::from(count.saturating_sub(before)) << shift;
        }
        count
    }

    /// Many packets, with their blocks fetched ahead; `counts` gets what [`add`](Self::add) returns. The slices have one length: what is beyond the
    /// shortest is left out.
    pub fn add_batch(&mut self, hashes: &[u64], weights: &[u32], counts: &mut [u32]) {
        let len = hashes.len().min(weights.len()).min(counts.len());
        for start in (0..len).step_by(AHEAD) {
            let end = len.min(start + AHEAD);
            hashes[start..end].iter().for_each(|&hash| self.prefetch(hash));
            for i in start..end {
                counts[i] = self.add(hashes[i], weights[i]);
            }
        }
    }

    /// The count of a key: no less than was added for it.
    #[inline]
    pub fn get(&self, hash: u64) -> u32 {
        let block = &self.words.as_chunks::<WORDS>().0[place(hash, self.blocks)];
        let counts = Self::counters(hash).map(|(word, shift)| (block[word] >> shift) as u32);
        counts.into_iter().fold(u32::MAX, u32::min)
    }

    /// The counts of many keys, with their blocks fetched ahead. `counts` is at least as long as `hashes`.
    pub fn get_batch(&self, hashes: &[u64], counts: &mut [u32]) {
        for (hashes, counts) in hashes.chunks(AHEAD).zip(counts.chunks_mut(AHEAD)) {
            hashes.iter().for_each(|&hash| self.prefetch(hash));
            for (&hash, count) in hashes.iter().zip(counts) {
                *count = self.get(hash);
            }
        }
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        prefetch_read(&self.words[place(hash, self.blocks) * WORDS]);
    }

    /// Halves all counts, rounding down: called once per window, recent windows count more than old ones. No count is then below half of what it
    /// has to be at least, rounded down.
    pub fn halve(&mut self) {
        self.words.iter_mut().for_each(|word| *word = *word >> 1 & 0x7fff_ffff_7fff_ffff);
    }

    /// As new: a window of time is over.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds the counts of another sketch that has as many counters and was fed with the same hash.
    ///
    /// # Errors
    /// [`Mismatch`]: nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Mismatch> {
        if self.blocks != other.blocks {
            return Err(Mismatch);
        }
        for (ours, &theirs) in self.words.iter_mut().zip(&*other.words) {
            let low = (*ours as u32).saturating_add(theirs as u32);
            let high = ((*ours >> 32) as u32).saturating_add((theirs >> 32) as u32);
            *ours = u64::from(high) << 32 | u64::from(low);
        }
        Ok(())
    }

    /// Bytes that the sketch occupies.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}
