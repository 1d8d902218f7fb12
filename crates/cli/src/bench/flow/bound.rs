//! What memory allows: tables that are told where a key lies, and touch what any table of that many lines a lookup has to touch.
//!
//! ```text
//! 1 line     given: slot ---------------------------------> entry: key | head | value
//! 2 lines    given: bucket, lane --> a line for 31 slots --> entry, whose place is known when that line is there
//! ```
//!
//! They are as large as the flow table is, on the same pages, and are asked in the same batches for the same keys; they answer rightly, for the
//! keys are compared. Neither hashes, nor searches, nor knows what a wrong match is: so a table that touches two lines one after the other is
//! slower than the second, and one that could do with a single line is slower than the first.

use super::stores::{MOST, Store};
use anyhow::{Context, Result};
use tidemill_flow::key::Key;
use tidemill_lookup::mem::Table;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lpm::keys::Random;

/// As the flow table's bucket: slots, and words of its line.
const LANES: u64 = 31;
const WORDS: usize = 8;

/// A table whose callers know where everything is.
pub(super) struct Bound<const W: usize, const LINES: usize> {
    /// Where key `i` lies.
    places: Vec<u32>,
    /// Of each bucket a line whose words all say where its slots begin.
    tags: Table<u64>,
    entries: Table<u64>,
}

impl<const W: usize, const LINES: usize> Bound<W, LINES> {
    /// Words of an entry: those of the key, a stamp, the value.
    const STRIDE: usize = W + 2;

    /// The word of a bucket's line that a lane looks at.
    #[inline(always)]
    fn word(given: u64) -> usize {
        (given >> 8) as usize * WORDS + (given as usize & (WORDS - 1))
    }

    /// Asks for a bucket's line.
    #[inline(always)]
    fn ask(&self, given: u64) {
        if LINES == 2 {
            prefetch_read(self.tags.as_ptr().wrapping_add(Self::word(given)));
        }
    }

    #[inline(always)]
    fn slot(&self, given: u64) -> usize {
        if LINES == 2 { (self.tags[Self::word(given)] + (given & 0xff)) as usize } else { given as usize }
    }

    /// The slots of a batch, which are asked for.
    #[inline(always)]
    fn slots(&self, given: &[u64]) -> [usize; MOST] {
        given.iter().for_each(|&given| self.ask(given));
        let mut slots = [0; MOST];
        for (slot, &given) in slots.iter_mut().zip(given) {
            *slot = self.slot(given);
            prefetch_read(self.entries.as_ptr().wrapping_add(*slot * Self::STRIDE));
        }
        slots
    }

    #[inline(always)]
    fn value(&self, slot: usize, key: &Key<W>) -> u64 {
        let entry = &self.entries[slot * Self::STRIDE..][..Self::STRIDE];
        let differ = entry.iter().zip(key.0).fold(0, |differ, (word, key)| differ | (word ^ key));
        if differ == 0 { entry[W + 1] } else { 0 }
    }

    /// Writes the line of the bucket, and the entry.
    #[inline(always)]
    fn put(&mut self, given: u64, slot: usize, key: &Key<W>, value: u64) {
        if LINES == 2 {
            self.tags[Self::word(given)] = slot as u64 - (given & 0xff);
        }
        let entry = &mut self.entries[slot * Self::STRIDE..][..Self::STRIDE];
        entry[..W].copy_from_slice(&key.0);
        entry[W + 1] = value;
    }
}

impl<const W: usize, const LINES: usize> Store<W> for Bound<W, LINES> {
    fn new(slots: usize) -> Result<Self> {
        let buckets = if LINES == 2 { slots.div_ceil(LANES as usize) } else { 0 };
        let table = |words: usize| Table::<u64>::new(words).context("no memory for a bound");
        let (mut tags, entries) = (table(buckets * WORDS)?, table(slots * Self::STRIDE)?);
        for (word, at) in tags.iter_mut().zip(0_u64..) {
            *word = at / WORDS as u64 * LANES;
        }
        // Keys come in order where tables are filled, and would be neighbours.
        let mut places: Vec<u32> = (0..slots as u32).collect();
        let mut random = Random::new(1);
        for last in (1..slots).rev() {
            places.swap(last, random.below(last + 1));
        }
        Ok(Bound { places, tags, entries })
    }

    fn capacity(&self) -> usize {
        self.places.len()
    }

    fn bytes(&self) -> usize {
        (self.tags.len() + self.entries.len()) * size_of::<u64>()
    }

    /// Not from the key: see [`given`](Store::given).
    fn hash(&self, _: &Key<W>) -> u64 {
        0
    }

    fn hash_batch(&self, _: &[Key<W>], _: &mut [u64]) {}

    fn given(&self, number: usize, _: &Key<W>) -> u64 {
        let slot = u64::from(self.places[number % self.places.len()]);
        if LINES == 2 { ((slot / LANES) << 8) | (slot % LANES) } else { slot }
    }

    fn insert(&mut self, given: u64, key: &Key<W>, value: u64) -> bool {
        self.put(given, self.slot(given), key, value);
        true
    }

    #[inline]
    fn find_or_insert(&mut self, given: &[u64], keys: &[Key<W>], first: u64) {
        let slots = self.slots(given);
        for (((&given, key), slot), value) in given.iter().zip(keys).zip(slots).zip(first..) {
            self.put(given, slot, key, value);
        }
    }

    #[inline]
    fn lookup_batch(&self, given: &[u64], keys: &[Key<W>], out: &mut [u64]) {
        let slots = self.slots(given);
        for ((key, slot), out) in keys.iter().zip(slots).zip(out) {
            *out = self.value(slot, key);
        }
    }

    #[inline]
    fn lookup(&self, given: u64, key: &Key<W>) -> u64 {
        self.value(self.slot(given), key)
    }
}
