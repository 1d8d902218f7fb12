//! HyperLogLog with Ertl's estimator.

use crate::filter::Mismatch;
use crate::table::SizeError;
use std::ops::RangeInclusive;
use tidemill_lookup::mem::Table;

/// Precisions that there are: 16 to 262,144 registers.
pub const PRECISIONS: RangeInclusive<u32> = 4..=18;

/// Why a counter cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum HyperLogLogError {
    /// Outside [`PRECISIONS`].
    #[error("a precision of {0}: give one from 4 to 18")]
    Precision(u32),
    /// No memory.
    #[error(transparent)]
    Size(#[from] SizeError),
}

/// Counts different keys by the longest run of zeros that a register has seen (Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog", 2007).
///
/// ```text
/// hash       | high p bits -> register |  64 - p bits: zeros before the first 1, plus 1 (at most 65 - p) |
/// registers  2^p bytes, each the most that it has seen; 0: nothing yet
/// ```
///
/// The estimate is Ertl's ("New cardinality estimation algorithms for HyperLogLog sketches", 2017, section 4, the improved raw estimator): it is
/// right from 0 to 2^64 without tables and without switching formulas. It is too large by 1.1 / 2^p on average, which only matters for the
/// smallest p (7 % for 16 registers, whose standard error is 26 %). Registers take 8 bits instead of 6: a third more memory, and an addition is a
/// comparison of two bytes in one cache line.
#[derive(Debug)]
pub struct HyperLogLog {
    registers: Table<u8>,
    precision: u32,
}

impl HyperLogLog {
    /// A counter with 2^precision registers: see [`PRECISIONS`].
    ///
    /// # Errors
    /// [`HyperLogLogError`].
    pub fn new(precision: u32) -> Result<Self, HyperLogLogError> {
        if !PRECISIONS.contains(&precision) {
            return Err(HyperLogLogError::Precision(precision));
        }
        let bytes = 1 << precision;
        let registers = Table::new(bytes).map_err(|source| SizeError::Memory { bytes, source })?;
        Ok(HyperLogLog { registers, precision })
    }

    /// A key has passed.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        let p = self.precision;
        // The bit below the run ends it, whatever the hash.
        let run = (hash << p | 1 << (p - 1)).leading_zeros() + 1;
        let register = &mut self.registers[(hash >> (64 - p)) as usize];
        if *register < run as u8 {
            *register = run as u8;
        }
    }

    /// Many keys have passed.
    pub fn add_batch(&mut self, hashes: &[u64]) {
        // No address depends on a load, so the processor runs ahead by itself.
        for &hash in hashes {
            self.add(hash);
        }
    }

    /// How many different keys have passed, give or take [`standard_error`](Self::standard_error). It costs a pass over the registers.
    pub fn estimate(&self) -> f64 {
        let most = 64 - self.precision as usize;
        let mut counts = [0u32; 66];
        for &register in &*self.registers {
            counts[usize::from(register)] += 1;
        }
        let m = self.registers.len() as f64;
        let mut z = m * tau(1.0 - f64::from(counts[most + 1]) / m);
        for &count in counts[1..=most].iter().rev() {
            z = 0.5 * (z + f64::from(count));
        }
        z += m * sigma(f64::from(counts[0]) / m);
        // No more than there are hashes, also where all of them were made up to be the rarest.
        (m * m / (2.0 * std::f64::consts::LN_2 * z)).min(2f64.powi(64))
    }

    /// The standard error to expect, as a fraction: 1.04 / sqrt(registers).
    pub fn standard_error(&self) -> f64 {
        1.04 / (self.registers.len() as f64).sqrt()
    }

    /// Adds what another has seen that has the same precision and was fed with the same hash.
    ///
    /// # Errors
    /// [`Mismatch`]: nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Mismatch> {
        if self.precision != other.precision {
            return Err(Mismatch);
        }
        self.registers
            .iter_mut()
            .zip(&*other.registers)
            .for_each(|(ours, &theirs)| *ours = theirs.max(*ours));
        Ok(())
    }

    /// As new.
    pub fn clear(&mut self) {
        self.registers.fill(0);
    }

    /// Bytes that the counter occupies.
    pub fn bytes(&self) -> usize {
        self.registers.len()
    }
}

/// x + sum over k >= 1 of x^(2^k) 2^(k-1): what the registers that have seen nothing stand for (Ertl, section 4.3).
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut weight, mut sum) = (1.0, x);
    loop {
        x *= x;
        let last = sum;
        sum += x * weight;
        weight += weight;
        if sum == last {
            return sum;
        }
    }
}

/// (1 - x - sum over k >= 1 of (1 - x^(2^-k))^2 2^-k) / 3: what the registers at the end of their range stand for (Ertl, section 4.3).
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut weight, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let last = sum;
        weight *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if sum == last {
            return sum / 3.0;
        }
    }
}
