//! Linear counting: a bitmap, and how much of it is still empty.

use crate::filter::{Mismatch, place, words};
use crate::table::SizeError;
use tidemill_lookup::mem::Table;

/// Counts different keys by the bits that they set (Whang, Vander-Zanden, Taylor, "A Linear-Time Probabilistic Counting
/// Algorithm for Database Applications", TODS 1990).
///
/// ```text
/// hash | high 32 bits -> one of m bits |       m bits, z of them still 0: n = m ln(m / z)
/// ```
///
/// An addition touches one cache line. When no bit is left, it says so instead of a number.
#[derive(Debug)]
pub struct LinearCounter {
    words: Table<u64>,
    bits: usize,
    zeros: usize,
}

/// All bits are set: there were probably more keys than this.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("all {bits} bits are set: probably more than {at_least:.0} keys")]
pub struct Saturated {
    /// Bits of the bitmap.
    pub bits: usize,
    /// What one bit that was still 0 would have meant: m ln m keys.
    pub at_least: f64,
}

impl LinearCounter {
    /// A counter with this many bits: at least 1, at most 2^32.
    ///
    /// # Errors
    /// [`SizeError`].
    pub fn new(bits: usize) -> Result<Self, SizeError> {
        let most = 1 << 32;
        if bits > most {
            return Err(SizeError::TooMany { asked: bits, most });
        }
        let bits = bits.max(1);
        Ok(LinearCounter { words: words(bits.div_ceil(64))?, bits, zeros: bits })
    }

    /// The bits that keep the standard error for up to `items` keys below `error` (a fraction: 0.01; from 0.0001 to 1), and that saturate
    /// with them less than once in 100 times (Whang et al., section 5: the empty bits left are sqrt 5 of their standard deviations).
    pub fn bits_for(items: usize, error: f64) -> usize {
        let (n, error) = (items.max(1) as f64, if error > 1e-4 { error.min(1.0) } else { 1e-4 });
        let enough = |m: f64| {
            let t = n / m;
            let spread = t.exp() - t - 1.0;
            m >= spread * (5.0f64).max(1.0 / (error * t * error * t))
        };
        // More bits are always better, and n / error^2 of them are enough for any error up to 1.
        let (mut low, mut high) = (1.0, (n / (error * error)).max(32.0));
        // Beyond 2^53 two numbers lie further apart than 1.
        while high - low > (high * f64::EPSILON).max(1.0) {
            let middle = (low + high) / 2.0;
            if enough(middle) { high = middle } else { low = middle }
        }
        high.ceil() as usize
    }

    /// A key has passed. Whether it set a new bit.
    #[inline]
    pub fn add(&mut self, hash: u64) -> bool {
        let bit = place(hash, self.bits);
        let word = &mut self.words[bit / 64];
        let new = *word & (1 << (bit % 64)) == 0;
        *word |= 1 << (bit % 64);
        self.zeros -= usize::from(new);
        new
    }

    /// Many keys have passed.
    pub fn add_batch(&mut self, hashes: &[u64]) {
        // No address depends on a load, so the processor runs ahead by itself.
        for &hash in hashes {
            self.add(hash);
        }
    }

    /// How many different keys have passed.
    ///
    /// # Errors
    /// [`Saturated`]: nobody can tell.
    pub fn estimate(&self) -> Result<f64, Saturated> {
        let m = self.bits as f64;
        match self.zeros {
            0 => Err(Saturated { bits: self.bits, at_least: m * m.ln() }),
            zeros => Ok(m * (m / zeros as f64).ln()),
        }
    }

    /// The standard error to expect of that many keys, as a fraction of them (Whang et al., section 3).
    pub fn standard_error(&self, items: usize) -> f64 {
        let t = items.max(1) as f64 / self.bits as f64;
        (self.bits as f64 * (t.exp() - t - 1.0)).max(0.0).sqrt() / items.max(1) as f64
    }

    /// Adds what another has seen that has the same number of bits and was fed with the same hash.
    ///
    /// # Errors
    /// [`Mismatch`]: nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Mismatch> {
        if self.bits != other.bits {
            return Err(Mismatch);
        }
        let mut ones = 0;
        for (ours, theirs) in self.words.iter_mut().zip(&*other.words) {
            *ours |= theirs;
            ones += ours.count_ones() as usize;
        }
        self.zeros = self.bits - ones;
        Ok(())
    }

    /// As new.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.zeros = self.bits;
    }

    /// Bits of the bitmap.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// Bytes that the counter occupies.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}
