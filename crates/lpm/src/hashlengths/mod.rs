//! One hash table of all prefixes, asked once for every length that there is, the longest first. IPv4 and IPv6, to the last bit.
//!
//! Source: the stock data plane that M. Kwon, K. P. Neupane, J. Marshall and M. M. Rafique, "CuVPP: filter-based longest prefix
//! matching in software data planes", compare with ("Base VPP", section V-B), which keeps its IPv6 routes in one
//! bounded-index hash table. The baseline of [`crate::cuvpp`] and [`crate::bloomlpm`], which are this with a filter before the table.
//!
//! # Memory
//! ```text
//! cuts     the lengths that have prefixes, longest first, 16 bytes each        48, 47, 46, ... 19, 16
//! table    (prefix, length) -> label, buckets of 64 bytes: see `table.rs`
//! CRCs     2 KB for each byte of an address, and 2 KB more: see `hash.rs`     the same for all structures of this kind
//!
//! key --> sums of its bytes --+--> hash at /48 --> filter: no
//!                             +--> hash at /47 --> filter: maybe --> table: no     (a false positive)
//!                             +--> hash at /46 --> filter: maybe --> table: its label
//! ```
//! Here there is no filter ([`All`]): every length goes to the table.
//!
//! # Cost
//! A lookup makes 8 bytes of loads for each byte of the longest length that there is, all in 34 KB (IPv4: 10 KB) that stay in the
//! cache; then for each length, down to that of the answer, 16 bytes, 8 bytes, and a bucket (more where a bucket is full: one in 20 at
//! most). No bucket's address depends on another's contents, so their misses overlap; but on the table of 2026 there are 31 lengths of IPv6,
//! and a key that nothing matches asks for all of them. A change writes the words of one entry.
//!
//! # Limits
//! Prefixes that are chosen to have one hash make lookups slow, not wrong: see [`hash`](crate::hashlengths::hash), whose hash is the paper's and has no key.
//!
//! # Invariants
//! 1. The table holds the RIB's prefixes with their labels, 0 too: a route to nowhere ends the search.
//! 2. `cuts` are the lengths of which the table has prefixes.
//! 3. What is in the table is in the filter.
//!
//! Where we depart from the source: the hash covers the whole address (the published code: 64 bits of it), only lengths that
//! exist are asked for, buckets are of one line and not of pages that double, and the table is patched as a [copy](crate::copies).

pub mod hash;
mod lengths;
mod table;
#[cfg(test)]
mod tests;

pub use lengths::Lengths;
pub use table::HashTable;

use crate::copies::{self, Whole};
use crate::fib::{Built, Fib, Label, Outgrown};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use hash::Sums;
use std::cell::Cell;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// A filter: says of a prefix's [hash](hash::hash) whether it may be in the table. It never says no to one that is.
pub trait Screen: Clone + Send + Sync + 'static {
    /// The structure's name with this filter.
    const NAME: &'static str;
    /// Whether it can say no at all.
    const SCREENS: bool = true;

    /// Whether a prefix of this hash may be there.
    fn may_contain<P: Probe + ?Sized>(&self, hash: u64, probe: &P) -> bool;

    /// Puts in a prefix that is not in; it is in then, however full the filter is.
    fn insert<P: Probe + ?Sized>(&mut self, hash: u64, probe: &P);

    /// Takes out a prefix that is in.
    fn remove<P: Probe + ?Sized>(&mut self, hash: u64, probe: &P);

    /// An empty filter for so many prefixes, which are more than this one is good for; `None`: it is good for them.
    fn larger(&self, prefixes: usize) -> Option<Self>;

    /// Bytes that lookups can touch.
    fn bytes(&self) -> usize;

    /// See [`Whole::collapse`].
    fn collapse(&self);

    /// Figures of its own, by name.
    fn details(&self) -> Vec<(&'static str, f64)>;
}

/// No filter: every length goes to the table.
#[derive(Debug, Clone, Copy)]
pub struct All;

impl Screen for All {
    const NAME: &'static str = "hash-per-length";
    const SCREENS: bool = false;

    #[inline(always)]
    fn may_contain<P: Probe + ?Sized>(&self, _: u64, _: &P) -> bool {
        true
    }
    fn insert<P: Probe + ?Sized>(&mut self, _: u64, _: &P) {}
    fn remove<P: Probe + ?Sized>(&mut self, _: u64, _: &P) {}
    fn larger(&self, _: usize) -> Option<Self> {
        None
    }
    fn collapse(&self) {}

    fn bytes(&self) -> usize {
        0
    }
    fn details(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// Receives what lookups ask for. Every method does nothing unless implemented.
pub trait Tally {
    /// The filter was asked about one length.
    #[inline(always)]
    fn filter_probe(&self) {}
    /// The table was asked for one length's prefix.
    #[inline(always)]
    fn fib_probe(&self) {}
    /// The filter had said "maybe", and the table did not have it.
    #[inline(always)]
    fn false_positive(&self) {}
}

impl Tally for () {}

/// Counts what lookups ask for.
#[derive(Debug, Default)]
pub struct Trace {
    filter: Cell<u64>,
    fib: Cell<u64>,
    false_positives: Cell<u64>,
}

impl Trace {
    /// Questions to the filter.
    pub fn filter_probes(&self) -> u64 {
        self.filter.get()
    }

    /// Questions to the table.
    pub fn fib_probes(&self) -> u64 {
        self.fib.get()
    }

    /// Questions to the table that the filter let through for nothing.
    pub fn false_positives(&self) -> u64 {
        self.false_positives.get()
    }
}

impl Tally for Trace {
    fn filter_probe(&self) {
        self.filter.set(self.filter.get() + 1);
    }
    fn fib_probe(&self) {
        self.fib.set(self.fib.get() + 1);
    }
    fn false_positive(&self) {
        self.false_positives.set(self.false_positives.get() + 1);
    }
}

/// A hash table of prefixes behind a filter.
#[derive(Debug, Clone)]
pub struct PerLength<A, S> {
    pub(crate) lengths: Lengths,
    pub(crate) screen: S,
    pub(crate) table: HashTable<A>,
}

/// The hash table alone.
///
/// ```
/// use tidemill_lpm::hashlengths::{HashPerLength, Trace};
/// use tidemill_lpm::{Label, Rib};
///
/// let mut rib = Rib::<u128>::new();
/// rib.insert("2001:db8::/32".parse().unwrap(), Label(1));
/// rib.insert("2001:db8:1::/48".parse().unwrap(), Label(2));
/// let (fib, trace) = (HashPerLength::plain(&rib), Trace::default());
/// assert_eq!(fib.lookup_traced(0x2001_0db8_u128 << 96, &trace), Label(1));
/// assert_eq!(trace.fib_probes(), 2, "/48, then /32");
/// ```
pub type HashPerLength<A> = PerLength<A, All>;

/// Builds a [`HashPerLength`] of `rib`, and its writer.
///
/// # Errors
/// None.
pub fn writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(HashPerLength::plain(rib))
}

impl<A: Address> HashPerLength<A> {
    /// Builds it of `rib`.
    pub fn plain(rib: &Rib<A>) -> Self {
        Self::build(rib, All)
    }
}

impl<A: Address, S: Screen> PerLength<A, S> {
    /// Builds it of `rib` behind an empty filter; if that proves too small, behind a larger one.
    pub fn build(rib: &Rib<A>, screen: S) -> Self {
        let mut fib = PerLength { lengths: Lengths::new(), screen, table: HashTable::with_room(rib.len()) };
        rib.iter().for_each(|(prefix, label)| fib.insert(prefix, label, &()));
        fib
    }

    /// The filter.
    pub fn screen(&self) -> &S {
        &self.screen
    }

    /// The table.
    pub fn table(&self) -> &HashTable<A> {
        &self.table
    }

    /// How many lengths have prefixes.
    pub fn lengths(&self) -> usize {
        self.lengths.cuts().len()
    }

    fn insert<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, label: Label, probe: &P) {
        if !self.table.set(prefix, label.0, probe) {
            return;
        }
        self.lengths.add(prefix.len(), probe);
        match self.screen.larger(self.table.len()) {
            None => self.screen.insert(hash::hash(prefix), probe),
            Some(larger) => {
                self.screen = larger;
                self.table.iter().for_each(|(prefix, _)| self.screen.insert(hash::hash(prefix), probe));
            }
        }
    }

    fn remove<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, probe: &P) {
        if self.table.remove(prefix, probe) {
            self.lengths.remove(prefix.len(), probe);
            self.screen.remove(hash::hash(prefix), probe);
        }
    }

    /// Longest match of one key, counting in `trace`.
    pub fn lookup_traced(&self, key: A, trace: &Trace) -> Label {
        self.find(key, &(), trace)
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized, T: Tally>(&self, key: A, probe: &P, tally: &T) -> Label {
        let sums = Sums::new(key, self.lengths.bytes(), probe);
        for cut in self.lengths.cuts() {
            probe.step();
            cut.tell(false, probe);
            let hash = sums.at::<A, P>(*cut, probe);
            if S::SCREENS {
                tally.filter_probe();
                if !self.screen.may_contain(hash, probe) {
                    continue;
                }
            }
            tally.fib_probe();
            if let Some(label) = self.table.get(hash, key & A::mask(cut.len), cut.len, probe) {
                return Label(label);
            }
            if S::SCREENS {
                tally.false_positive();
            }
        }
        Label::NONE
    }
}

impl<A: Address, S: Screen> Fib<A> for PerLength<A, S> {
    fn lookup(&self, key: A) -> Label {
        self.find(key, &(), &())
    }

    fn name(&self) -> String {
        S::NAME.into()
    }

    fn bytes(&self) -> usize {
        let cuts = size_of_val(self.lengths.cuts());
        self.table.bytes() + self.screen.bytes() + cuts + hash::table_bytes::<A>()
    }

    fn shared_bytes(&self) -> usize {
        hash::table_bytes::<A>()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        self.find(key, probe, &())
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let mut all = vec![
            ("lengths", self.lengths() as f64),
            ("table_bytes", self.table.bytes() as f64),
            ("table_load", self.table.load()),
        ];
        all.extend(self.screen.details());
        all
    }
}

impl<A: Address, S: Screen> Whole<A> for PerLength<A, S> {
    fn collapse(&self) {
        self.screen.collapse();
        self.table.collapse();
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        prefix: Prefix<A>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        match rib.get(prefix) {
            Some(label) => self.insert(prefix, label, probe),
            None => self.remove(prefix, probe),
        }
        Ok(())
    }
}
