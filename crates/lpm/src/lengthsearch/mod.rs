//! Binary search on prefix lengths: a hash table tells whether to go on with longer or with shorter lengths. IPv4 and IPv6, to
//! the last bit.
//!
//! Source: M. Waldvogel, G. Varghese, J. Turner, B. Plattner, "Scalable high speed IP routing lookups", SIGCOMM 1997: the basic
//! scheme, with markers that know their best match.
//!
//! # Memory
//! The levels are the lengths that prefixes have. A search for a length visits some that are shorter; there each prefix of that
//! length leaves a marker, its own first bits, so that lookups take the same way.
//! ```text
//! levels   the lengths, shortest first; the search begins in the middle       8, 16, 24: first 16, then 8 or 24
//! table    (first bits, length) -> word                                       see `hashlengths/table.rs`
//! word     bits 0 to 29   the label of the best match of these bits
//!          bit 30         there is none but the default route
//!          bit 31         a marker: go on with longer lengths
//! default  the label of the default route, which is no level
//!
//! 10.0.0.0/8 -> 1, 10.1.0.0/16 -> 2, 10.1.2.0/24 -> 3, 10.2.3.0/24 -> 4, 20.5.6.0/24 -> 5:
//!      /8: 10.0.0.0 -> 1     /16: 10.1.0.0 -> 2, marker     /24: 10.1.2.0 -> 3
//!                                 10.2.0.0 -> 1, marker          10.2.3.0 -> 4
//!                                 20.5.0.0 -> none, marker       20.5.6.0 -> 5
//! ```
//! So 10.2.9.9 is found at /16, not found at /24, and has its answer, 1, without going back: from the marker.
//!
//! # Cost
//! A lookup asks for `log2(levels + 1)` lengths at most, rounded up: 5 on the tables of 2026, which have 17 lengths of IPv4 and 31 of
//! IPv6, whatever the number of prefixes (0.6 markers for each for IPv4, 1.1 for IPv6). Each
//! is 16 bytes of `levels`, 8 bytes of the hash's tables, and a bucket of 64 bytes (as a rule the one), whose address
//! depends on the answer before; hashing the key is 8 bytes of loads before that for each of its bytes.
//! Bursts go in lock step: every key's next bucket is asked for before the first is looked at, which made
//! them 1.8 to 4.7 times as quick as key by key on those tables (on a busy machine).
//!
//! A change of a prefix stores its entry, sets or removes as many markers as its length has levels on its way (one less than above), and gives
//! a new label to the markers of which it is (or was) the best match. To find them it goes through all prefixes inside, in the RIB, and looks at
//! the markers of those: nothing for most changes, all of the table for a short prefix over much of it. A new length
//! changes every prefix's way: everything is built anew (at most once for each length, for levels stay).
//!
//! # Limits
//! Prefixes that are chosen to have one hash make lookups slow, not wrong: see [`hash`](crate::hashlengths::hash), whose hash is the paper's and has no key.
//!
//! # Invariants
//! 1. The table holds the prefixes and their markers, and nothing else; each word has the label of the longest prefix that covers
//!    its bits, bit 30 if that is the default route or there is none, and bit 31 if it is a marker (also where it is a prefix too).
//! 2. `markers` counts, for each marker, the prefixes that need it, and says whether it is a prefix itself.
//! 3. Every prefix's length is a level. A level may have no prefixes left.
//!
//! Where we depart from the source: one table for all lengths, with the length in the key, for one table per length; the search is
//! balanced over the lengths and not weighted by what they hold, and does not change on its way (their "mutating" search); and we patch:
//! they leave updates to a rebuild, for which one must only know what we count.

#[cfg(test)]
mod tests;
mod update;

use crate::copies;
use crate::fib::{BuildError, Built, Fib, Label, check_labels};
use crate::hashlengths::HashTable;
use crate::hashlengths::hash::{Cut, Sums, table_bytes};
use crate::prefix::Address;
use crate::rib::Rib;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// In a word: go on with longer lengths.
const MARKER: u32 = 1 << 31;
/// In a word: no match but the default route.
const NONE: u32 = 1 << 30;
/// Bits of a label.
const LABEL_BITS: u8 = 30;
/// Keys of a burst that go in lock step.
const GROUP: usize = 32;

/// A table of prefixes and markers, searched by length.
#[derive(Debug, Clone)]
pub struct LengthSearch<A> {
    levels: Vec<Cut>,
    /// Bytes of a key that the longest level takes.
    key_bytes: usize,
    table: HashTable<A>,
    default: Label,
    /// For the control side: twice the prefixes that need a marker, and 1 more if it is a prefix itself.
    markers: HashTable<A>,
}

/// Builds a [`LengthSearch`] of `rib`, and its writer.
///
/// # Errors
/// A label of more than 30 bits.
pub fn writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(LengthSearch::build(rib)?)
}

/// A search under way: the levels that are left, and the best match so far.
#[derive(Debug, Clone, Copy)]
struct Search {
    low: usize,
    high: usize,
    best: Label,
}

impl Search {
    const EMPTY: Search = Search { low: 0, high: 0, best: Label::NONE };

    /// The next level to ask for; `None`: the search is over.
    #[inline(always)]
    fn middle(self) -> Option<usize> {
        (self.low < self.high).then(|| self.low.midpoint(self.high))
    }

    /// Goes on with what the table has for the level `middle`.
    #[inline(always)]
    fn step(&mut self, middle: usize, word: Option<u32>) {
        match word {
            None => self.high = middle,
            Some(word) => {
                if word & NONE == 0 {
                    self.best = Label(word & (NONE - 1));
                }
                if word & MARKER == 0 {
                    self.high = 0; // nothing longer goes on from here
                }
                self.low = middle + 1;
            }
        }
    }
}

impl<A: Address> LengthSearch<A> {
    /// The lengths that are searched, shortest first.
    pub fn levels(&self) -> impl Iterator<Item = u8> + '_ {
        self.levels.iter().map(|level| level.len)
    }

    /// Markers that are no prefixes, and those that are.
    pub fn markers(&self) -> (usize, usize) {
        let both = self.markers.iter().filter(|(_, marker)| marker & update::IS_PREFIX != 0).count();
        (self.markers.len() - both, both)
    }

    fn start<P: Probe + ?Sized>(&self, probe: &P) -> Search {
        probe.read((&raw const self.default).addr(), size_of::<Label>(), false);
        Search { low: 0, high: self.levels.len(), best: self.default }
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized>(&self, key: A, probe: &P) -> Label {
        let sums = Sums::new(key, self.key_bytes, probe);
        let mut search = self.start(probe);
        while let Some(middle) = search.middle() {
            probe.step();
            let level = &self.levels[middle];
            // The first one is always the same.
            level.tell(search.high - search.low < self.levels.len(), probe);
            let hash = sums.at::<A, P>(*level, probe);
            search.step(middle, self.table.get(hash, key & A::mask(level.len), level.len, probe));
        }
        search.best
    }
}

impl<A: Address> Fib<A> for LengthSearch<A> {
    fn lookup(&self, key: A) -> Label {
        self.find(key, &())
    }

    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        let mut sums = [Sums::EMPTY; GROUP];
        let mut searches = [Search::EMPTY; GROUP];
        // What each search asks for next: a level and a hash.
        let mut next = [(0, 0); GROUP];
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            for ((&key, sums), search) in keys.iter().zip(&mut sums).zip(&mut searches) {
                *sums = Sums::new(key, self.key_bytes, &());
                *search = self.start(&());
            }
            loop {
                let mut any = false;
                for ((search, sums), next) in searches[..keys.len()].iter().zip(&sums).zip(&mut next) {
                    let Some(middle) = search.middle() else { continue };
                    any = true;
                    *next = (middle, sums.at::<A, ()>(self.levels[middle], &()));
                    self.table.prefetch(next.1);
                }
                if !any {
                    break;
                }
                for ((&key, search), &(middle, hash)) in keys.iter().zip(&mut searches).zip(&next) {
                    if search.middle().is_some() {
                        let len = self.levels[middle].len;
                        search.step(middle, self.table.get(hash, key & A::mask(len), len, &()));
                    }
                }
            }
            for (out, search) in out.iter_mut().zip(&searches) {
                *out = search.best;
            }
        }
    }

    fn name(&self) -> String {
        "length-search".into()
    }

    fn bytes(&self) -> usize {
        self.table.bytes() + size_of_val(&self.levels[..]) + table_bytes::<A>()
    }

    fn shared_bytes(&self) -> usize {
        table_bytes::<A>()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        self.find(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let (only_markers, both) = self.markers();
        vec![
            ("levels", self.levels.len() as f64),
            ("worst_probes", f64::from(self.worst_probes())),
            ("prefixes", (self.table.len() - only_markers) as f64),
            ("markers", only_markers as f64),
            ("prefixes_as_markers", both as f64),
            ("table_load", self.table.load()),
        ]
    }
}

impl<A: Address> LengthSearch<A> {
    /// The most lengths that a lookup asks for.
    pub fn worst_probes(&self) -> u32 {
        (self.levels.len() + 1).next_power_of_two().trailing_zeros()
    }

    /// Builds it of `rib`.
    ///
    /// # Errors
    /// A label of more than 30 bits.
    pub fn build(rib: &Rib<A>) -> Result<Self, BuildError> {
        check_labels(rib, LABEL_BITS)?;
        Ok(Self::over(rib, &[], &()))
    }
}
