//! What the two blocked Bloom filters share: the size, the rate it gives, and where a key's places are.

use super::FilterError;
use crate::table::SizeError;

/// Words of a block: one cache line.
pub(super) const WORDS: usize = 8;
/// Places that a key has at most: one in each word.
const MOST_PLACES: u32 = WORDS as u32;
/// Rates that a filter can be made for.
const RATES: std::ops::RangeInclusive<f64> = 1e-6..=0.5;

/// How many blocks, and how many places a key has in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) blocks: usize,
    pub(super) places: u32,
}

impl Shape {
    /// The fewest blocks of `cells` cells that keep the rate with that many keys, and the k that does it.
    pub(super) fn for_rate(items: usize, rate: f64, cells: u32) -> Result<Self, FilterError> {
        if !RATES.contains(&rate) {
            return Err(FilterError::Rate(rate));
        }
        let (mut load, mut places) = (0.0, 1);
        for k in 1..=MOST_PLACES {
            let most = most_load(cells, k, rate);
            if most > load {
                (load, places) = (most, k);
            }
        }
        // A load is above 0.1 for every rate that is allowed.
        let blocks = (items.max(1) as f64 / load).ceil();
        if blocks > f64::from(u32::MAX) {
            let most = (load * f64::from(u32::MAX)) as usize;
            return Err(SizeError::TooMany { asked: items, most }.into());
        }
        Ok(Shape { blocks: blocks as usize, places })
    }

    /// The rate of false positives with `items` different keys in it.
    pub(super) fn rate(&self, items: usize, cells: u32) -> f64 {
        rate(cells, self.places, items as f64 / self.blocks as f64)
    }
}

/// The most keys per block for which the rate holds: bisection, the rate only grows with the load.
fn most_load(cells: u32, k: u32, wanted: f64) -> f64 {
    let (mut low, mut high) = (0.0, f64::from(cells));
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if rate(cells, k, middle) <= wanted { low = middle } else { high = middle }
    }
    low
}

/// The expected rate of false positives with `load` keys per block on average. The keys of one block are Poisson-distributed (Putze et
/// al., section 3); each sets one cell in k of the 8 words, so j of them leave a cell empty with probability (1 - k/cells)^j.
fn rate(cells: u32, k: u32, load: f64) -> f64 {
    let empty_once = 1.0 - f64::from(k) / f64::from(cells);
    let given = |empty: f64| (1.0 - empty).powi(k as i32);
    if load > 600.0 {
        // e^-load is nearly 0 for the computer; every block is as good as full.
        return given(empty_once.powf(load));
    }
    let (mut weight, mut empty, mut sum) = ((-load).exp(), 1.0, 0.0);
    for keys in 1..(load + 12.0 * load.sqrt() + 20.0) as u32 {
        weight *= load / f64::from(keys);
        empty *= empty_once;
        sum += weight * given(empty);
    }
    sum.min(1.0)
}

/// A key's places, one after the other: the word, and `BITS` bits that say which cell of it. The bits are the top ones of the hash
/// times an odd number, so they depend on all of the hash, also where the filter has one block.
#[derive(Clone, Copy)]
pub(super) struct Places<const BITS: u32> {
    word: usize,
    bits: u64,
}

impl<const BITS: u32> Places<BITS> {
    #[inline(always)]
    pub(super) fn of(hash: u64) -> Self {
        let bits = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
        Places { word: (bits >> 61) as usize, bits: bits << 3 }
    }

    /// The next word (0 to 7) and cell (0 to 2^BITS - 1).
    #[inline(always)]
    pub(super) fn next(&mut self) -> (usize, u32) {
        let place = (self.word % WORDS, (self.bits >> (64 - BITS)) as u32);
        self.word += 1;
        self.bits <<= BITS;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_keep_the_rate_and_waste_little() {
        for cells in [128, 512] {
            for wanted in [0.5, 0.1, 0.01, 1e-3, 1e-4, 1e-6] {
                let shape = Shape::for_rate(1_000_000, wanted, cells).unwrap();
                let rate = shape.rate(1_000_000, cells);
                assert!(rate <= wanted && rate > wanted * 0.99, "{cells} {wanted}: {shape:?} gives {rate}");
                let bits = shape.blocks as f64 * f64::from(cells) / 1e6;
                let classic = -wanted.ln() / (2f64.ln() * 2f64.ln());
                let most = if wanted < 1e-4 { 4.0 } else { 1.8 };
                assert!((0.9..most).contains(&(bits / classic)), "{cells} {wanted}: {bits} bits, {classic}");
            }
        }
    }

    #[test]
    fn rates_grow_to_one() {
        let shape = Shape::for_rate(100, 0.01, 512).unwrap();
        let rates: Vec<f64> =
            [0, 1, 100, 1000, 10_000, 100_000, usize::MAX].map(|items| shape.rate(items, 512)).to_vec();
        assert!(rates.is_sorted() && rates[0] == 0.0 && rates[6] == 1.0, "{rates:?}");
    }

    #[test]
    fn a_bad_rate_or_size_is_an_error() {
        for bad in [f64::NAN, -1.0, 0.0, 1e-9, 0.6, f64::INFINITY] {
            assert!(matches!(Shape::for_rate(10, bad, 512), Err(FilterError::Rate(_))), "{bad}");
        }
        assert!(matches!(Shape::for_rate(usize::MAX, 0.01, 512), Err(FilterError::Size(_))));
        assert_eq!(Shape::for_rate(0, 0.01, 512).unwrap().blocks, 1);
    }

    #[test]
    fn places_are_in_different_words() {
        for hash in [0, 1, u64::MAX, 0x8000_0000_0000_0000, 0x1234_5678_9abc_def0] {
            let mut places = Places::<6>::of(hash);
            let drawn: Vec<_> = (0..8).map(|_| places.next()).collect();
            let words: std::collections::BTreeSet<_> = drawn.iter().map(|p| p.0).collect();
            assert_eq!(words.len(), 8);
            assert!(drawn.iter().all(|p| p.0 < 8 && p.1 < 64));
        }
    }
}
