//! A Bloom filter says which prefix lengths of a key are worth asking for. IPv4 and IPv6, to the last bit.
//!
//! Source: S. Dharmapurikar, P. Krishnamurthy and D. E. Taylor, "Longest prefix matching using Bloom filters", SIGCOMM 2003, in the form
//! that the paper of [`crate::cuvpp`] compares with ("VPP with Bloom filters"): one filter over (prefix, length) before
//! the table of [`crate::hashlengths`].
//!
//! # Memory
//! ```text
//! bits     one array of words of 64 bits; a prefix sets k bits       20 bits for a prefix when made (6 MB and 2 M prefixes: 24)
//! counts   of each bit, how many prefixes have set it                a byte each; for the control side only
//! table    (prefix, length) -> label, as in `hashlengths`
//!
//! bit i of a prefix:   (a + i b) mod bits   of its hash's halves a, b        (Kirsch, Mitzenmacher 2006)
//! ```
//! # Cost
//! For each length down to the answer's the words of its bits, up to the first that is not set: with p = 1 - e^(-k n / m) of all bits set,
//! 1 / (1 - p) words for a length without a prefix, of which p^k go to the table for nothing. With 20 bits for a prefix:
//! ```text
//! k     2        4        8        14 (the least false positives)
//!       0.91 %   0.11 %   0.014 %  0.0068 %       false positives
//!       1.11     1.22     1.49     2.0            words for a "no"
//! ```
//! A change stores k words of 8 bytes and one entry of the table.
//!
//! # Limits
//! Prefixes that are chosen to have one hash make lookups slow, not wrong: see [`hash`](crate::hashlengths::hash), whose hash is the paper's and has no key.
//!
//! # Invariants
//! 1. A bit is set if its count is not 0, and the count is that of the prefixes that set it. (At 255 it sticks until the next
//!    filter: that costs questions, never an answer.)
//! 2. No more prefixes than one for every 13 bits: then a filter that is half again as large is made.
//!
//! Where we depart from the source: it has a filter for each length and asks them all at once, in hardware. k is a parameter
//! (1 to 16): CuVPP's published code takes 2, its paper says more than two; [`K`] is 4, from where on the table is asked for nothing
//! less than once in 25 lookups of 33 lengths. Prefixes can be withdrawn.

#[cfg(test)]
mod tests;

use crate::bits::CountedBits;
use crate::copies;
use crate::fib::Built;
use crate::hashlengths::{PerLength, Screen};
use crate::prefix::Address;
use crate::rib::Rib;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// Bits that a prefix sets, unless said otherwise.
pub const K: u32 = 4;

/// Bits of the paper's filter: 6 MB.
pub const PAPER_BITS: usize = 6_000_000 * 8;

/// Bits for a prefix when a filter is made, and when a larger one is made.
const BITS: [usize; 2] = [20, 13];

/// A Bloom filter from which items can be taken out.
#[derive(Debug, Clone)]
pub struct BloomFilter {
    bits: CountedBits,
    k: u32,
    len: usize,
}

/// A hash table of prefixes behind a Bloom filter.
///
/// ```
/// use tidemill_lpm::bloomlpm::{BloomFilter, BloomLpm, PAPER_BITS};
/// use tidemill_lpm::hashlengths::Trace;
/// use tidemill_lpm::{Label, Rib};
///
/// let mut rib = Rib::<u128>::new();
/// rib.insert("2001:db8::/32".parse().unwrap(), Label(1));
/// rib.insert("2001:db8:1::/48".parse().unwrap(), Label(2));
/// let (fib, trace) = (BloomLpm::build(&rib, BloomFilter::new(PAPER_BITS, 2)), Trace::default());
/// assert_eq!(fib.lookup_traced(0x2001_0db8_u128 << 96, &trace), Label(1));
/// assert_eq!((trace.filter_probes(), trace.fib_probes()), (2, 1));
/// ```
pub type BloomLpm<A> = PerLength<A, BloomFilter>;

/// Builds a [`BloomLpm`] of `rib` with a filter that has its size, and its writer.
///
/// # Errors
/// None.
pub fn writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(BloomLpm::build(rib, BloomFilter::new(BITS[0] * rib.len(), K)))
}

impl BloomFilter {
    /// See [`Whole::collapse`](crate::copies::Whole::collapse).
    pub(crate) fn collapse(&self) {
        self.bits.collapse();
    }

    /// An empty filter of so many bits, up to the next word, of which every item sets `k` (1 to 16; others are taken for the nearest).
    pub fn new(bits: usize, k: u32) -> Self {
        let words = bits.div_ceil(64).clamp(1, u32::MAX as usize / 64);
        BloomFilter { bits: CountedBits::new(words), k: k.clamp(1, 16), len: 0 }
    }

    /// Bits.
    pub fn bits(&self) -> usize {
        self.bits.len()
    }

    /// Items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bits that are set, as a part of all.
    pub fn fill(&self) -> f64 {
        self.bits.words().iter().map(|word| f64::from(word.count_ones())).sum::<f64>() / self.bits() as f64
    }

    /// Bit `i` of an item.
    #[inline(always)]
    fn bit(&self, hash: u64, i: u32) -> usize {
        let hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (a, b) = ((hash >> 32) as u32, hash as u32 | 1);
        let spread = a.wrapping_add(i.wrapping_mul(b));
        crate::hashlengths::hash::below(spread, self.bits() as u32) as usize
    }

    /// Whether an item of this hash may be in the filter.
    #[inline(always)]
    pub fn contains<P: Probe + ?Sized>(&self, hash: u64, probe: &P) -> bool {
        (0..self.k).all(|i| self.bits.get(self.bit(hash, i), true, probe) == 1)
    }

    /// Puts an item in.
    pub fn insert<P: Probe + ?Sized>(&mut self, hash: u64, probe: &P) {
        self.len += 1;
        for i in 0..self.k {
            self.bits.set(self.bit(hash, i), probe);
        }
    }

    /// Takes out an item that is in.
    pub fn remove<P: Probe + ?Sized>(&mut self, hash: u64, probe: &P) {
        self.len = self.len.saturating_sub(1);
        for i in 0..self.k {
            self.bits.clear(self.bit(hash, i), probe);
        }
    }
}

impl Screen for BloomFilter {
    const NAME: &'static str = "bloom-lpm";

    #[inline(always)]
    fn may_contain<P: Probe + ?Sized>(&self, hash: u64, probe: &P) -> bool {
        self.contains(hash, probe)
    }

    fn insert<P: Probe + ?Sized>(&mut self, hash: u64, probe: &P) {
        BloomFilter::insert(self, hash, probe);
    }

    fn remove<P: Probe + ?Sized>(&mut self, hash: u64, probe: &P) {
        BloomFilter::remove(self, hash, probe);
    }

    fn larger(&self, prefixes: usize) -> Option<Self> {
        (prefixes * BITS[1] > self.bits()).then(|| Self::new((prefixes + 4) * BITS[0], self.k))
    }

    fn collapse(&self) {
        BloomFilter::collapse(self);
    }

    fn bytes(&self) -> usize {
        size_of_val(self.bits.words())
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("filter_bytes", Screen::bytes(self) as f64),
            ("filter_fill", self.fill()),
            ("filter_k", f64::from(self.k)),
        ]
    }
}
