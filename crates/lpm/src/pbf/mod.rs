//! Parallel Bloom filters: one for each prefix length, before a hash table. IPv4 and IPv6, to the last bit.
//!
//! Source: S. Dharmapurikar, P. Krishnamurthy, D. E. Taylor, "Longest prefix matching using Bloom filters", SIGCOMM 2003. It is made for
//! hardware, which asks all filters at once, on the chip; a processor asks one after the other (Fu 2020, section 3.5.2, leaves
//! it out of the comparison for that). [`crate::bloomlpm`] is the same with one filter for all lengths.
//!
//! # Memory
//! ```text
//! direct    2^D labels of 32 bits: the best match among the prefixes of up to D bits     D = 20 (IPv4, as in the paper), 16 (IPv6)
//! filters   for each longer length that there is, the longest first: one as in `bloomlpm`, 12 bits for a prefix when made, 6 of them set
//! table     (prefix, length) -> label, for those lengths                                  as in `hashlengths/table.rs`
//!
//! 10.0.0.0/8 -> 1, 10.1.2.0/24 -> 2, 10.1.2.3/32 -> 3:
//!     key --> filter of /32: no --> filter of /24: maybe --> table: 2
//!                                                        or: no (a false positive) --> direct: 1
//! ```
//! # Cost
//! A filter with a part p of its bits set says "maybe" to what it does not have with probability f = p^6, p = 1 - e^(-6 n / m)
//! for n prefixes in m bits: 0.37 % with 12 bits for each, 2.2 % with 8. A lookup asks the table once if a prefix longer than D
//! matches, and for nothing once in `1 / f` filters of longer lengths:
//! ```text
//! expected questions to the table = (1 if one matches) + the sum of f over the lengths that are longer than the match
//! ```
//! (0.01 to 0.05 more than one for 11 lengths of IPv4, some 0.1 for 30 of IPv6), each a bucket of 64 bytes as a rule. A filter's "no" takes 1 / (1 - p)
//! loads of 8 bytes, 1.6 to 2, its "maybe" 6; a length is 16 bytes more, and 8 of the hash's tables. Where no longer prefix matches the direct
//! table is read, 4 bytes.
//!
//! A change of a longer prefix stores one entry and 6 words of a filter at most. That of a prefix of up to D bits fills its part of the direct
//! table anew: 2^(D - length) labels at most, going through the prefixes inside in the RIB. A filter that has less than 8 bits for a
//! prefix is made anew, half again as large, from a walk over the table.
//!
//! # Limits
//! Prefixes that are chosen to have one hash make lookups slow, not wrong: see [`hash`](crate::hashlengths::hash), whose hash is the paper's and has no key.
//!
//! # Invariants
//! 1. The table holds the RIB's prefixes of more than D bits with their labels, 0 too.
//! 2. There is a filter for each length that the table has, and no other; it holds what the table has of that length.
//!
//! Where we depart from the source: filters are sized for the prefixes that their lengths have (its "asymmetric" case), with k fixed
//! near the best for 8 bits, and grow; lengths are not brought down to a few by expanding prefixes (there 24 and 32 beside the direct
//! array, for a worst case of two questions and an array access), since an update would then touch many; one hash table for all
//! lengths; the filters' counts, which the source keeps apart too, are bytes.

#[cfg(test)]
mod tests;

use crate::bloomlpm::BloomFilter;
use crate::copies::{self, Whole};
use crate::fib::{Built, Fib, Label, Outgrown};
use crate::hashlengths::hash::{Cut, Sums, hash, table_bytes};
use crate::hashlengths::{HashTable, Screen, Tally, Trace};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use tidemill_lookup::mem::collapse;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// Bits that a prefix sets in its filter.
const K: u32 = 6;
/// Bits for a prefix when a filter is made.
const BITS: usize = 12;
/// Bits for a prefix below which a larger filter is made.
const BITS_MIN: usize = 8;
/// Prefixes for which a filter has room at least.
const ROOM_MIN: usize = 32;
/// Keys of a burst that go in lock step.
const GROUP: usize = 32;

/// A length and its filter.
#[derive(Debug, Clone)]
struct Level {
    cut: Cut,
    filter: BloomFilter,
}

impl Level {
    fn new(len: u8, prefixes: usize) -> Self {
        Level { cut: Cut::new(len), filter: BloomFilter::new(BITS * prefixes.max(ROOM_MIN), K) }
    }

    /// The probability that the filter says "maybe" to what it does not have.
    fn false_positives(&self) -> f64 {
        let set = -f64::from(K) * self.filter.len() as f64 / self.filter.bits() as f64;
        (1.0 - set.exp()).powi(K as i32)
    }
}

/// A filter for each length, and a hash table.
#[derive(Debug, Clone)]
pub struct Pbf<A> {
    direct: Vec<u32>,
    /// Longest first.
    levels: Vec<Level>,
    /// Bytes of a key that the longest level takes.
    key_bytes: usize,
    table: HashTable<A>,
}

/// Builds a [`Pbf`] of `rib`, and its writer.
///
/// # Errors
/// None.
pub fn writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(Pbf::build(rib))
}

impl<A: Address> Pbf<A> {
    /// D: bits that index the direct table.
    pub const DIRECT_BITS: u8 = if A::BITS == 32 { 20 } else { 16 };

    /// Builds it of `rib`.
    pub fn build(rib: &Rib<A>) -> Self {
        let mut counts = [0; 129];
        rib.iter().for_each(|(prefix, _)| counts[usize::from(prefix.len())] += 1);
        let lens = (Self::DIRECT_BITS + 1..=A::BITS).rev().map(|len| (len, counts[usize::from(len)]));
        let levels: Vec<Level> =
            lens.filter(|&(_, count)| count > 0).map(|(len, count)| Level::new(len, count)).collect();
        let longer = levels.iter().map(|level| counts[usize::from(level.cut.len)]).sum();
        let direct = vec![0; 1 << Self::DIRECT_BITS];
        let mut pbf = Pbf { direct, levels, key_bytes: 0, table: HashTable::with_room(longer) };
        pbf.set_key_bytes();
        pbf.fill(rib, Prefix::DEFAULT, &());
        for (prefix, label) in rib.iter().filter(|(prefix, _)| prefix.len() > Self::DIRECT_BITS) {
            pbf.insert(prefix, label, &());
        }
        pbf
    }

    /// How often a lookup asks the table, by theory: for a key whose longest match has `len` bits, more than D; `None`: for one
    /// that has no such match.
    pub fn expected_probes(&self, len: Option<u8>) -> f64 {
        let longer = self.levels.iter().take_while(|level| len.is_none_or(|len| level.cut.len > len));
        f64::from(u8::from(len.is_some())) + longer.map(Level::false_positives).sum::<f64>()
    }

    /// Longest match of one key, counting in `trace`.
    pub fn lookup_traced(&self, key: A, trace: &Trace) -> Label {
        self.find(key, &(), trace)
    }

    fn set_key_bytes(&mut self) {
        self.key_bytes = self.levels.first().map_or(0, |level| level.cut.bytes());
    }

    /// The entry of the direct table for a key.
    #[inline(always)]
    fn place(key: A) -> usize {
        (key >> usize::from(A::BITS - Self::DIRECT_BITS)).to_u128() as usize
    }

    /// Makes the direct table right for what a prefix of up to D bits covers.
    fn fill<P: Probe + ?Sized>(&mut self, rib: &Rib<A>, prefix: Prefix<A>, probe: &P) {
        let best = rib.covering(prefix).map_or(Label::NONE, |(_, label)| label);
        // Parents come before their children, so what is written last is the longest.
        let inside = rib.inside(prefix).filter(|(inner, _)| inner.len() <= Self::DIRECT_BITS);
        for (prefix, label) in [(prefix, best)].into_iter().chain(inside) {
            for entry in &mut self.direct[Self::place(prefix.first())..=Self::place(prefix.last())] {
                if *entry != label.0 {
                    *entry = label.0;
                    probe.write((&raw const *entry).addr(), 4);
                }
            }
        }
    }

    fn insert<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, label: Label, probe: &P) {
        if !self.table.set(prefix, label.0, probe) {
            return;
        }
        let at = self.levels.partition_point(|level| level.cut.len > prefix.len());
        if self.levels.get(at).is_none_or(|level| level.cut.len != prefix.len()) {
            self.levels.insert(at, Level::new(prefix.len(), 0));
            self.set_key_bytes();
        }
        let filter = &mut self.levels[at].filter;
        if (filter.len() + 1) * BITS_MIN <= filter.bits() {
            return filter.insert(hash(prefix), probe);
        }
        let mut larger = Level::new(prefix.len(), filter.len() + 1);
        for (other, _) in self.table.iter().filter(|(other, _)| other.len() == prefix.len()) {
            larger.filter.insert(hash(other), probe);
        }
        self.levels[at] = larger;
    }

    fn remove<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, probe: &P) {
        if !self.table.remove(prefix, probe) {
            return;
        }
        let Some(at) = self.levels.iter().position(|level| level.cut.len == prefix.len()) else { return };
        self.levels[at].filter.remove(hash(prefix), probe);
        if self.levels[at].filter.is_empty() {
            self.levels.remove(at);
            self.set_key_bytes();
        }
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized, T: Tally>(&self, key: A, probe: &P, tally: &T) -> Label {
        let sums = Sums::new(key, self.key_bytes, probe);
        for level in &self.levels {
            probe.step();
            tally.filter_probe();
            level.cut.tell(false, probe);
            let hash = sums.at::<A, P>(level.cut, probe);
            if !level.filter.contains(hash, probe) {
                continue;
            }
            tally.fib_probe();
            let len = level.cut.len;
            if let Some(label) = self.table.get(hash, key & A::mask(len), len, probe) {
                return Label(label);
            }
            tally.false_positive();
        }
        let entry = &self.direct[Self::place(key)];
        probe.read((&raw const *entry).addr(), 4, false);
        Label(*entry)
    }
}

impl<A: Address> Fib<A> for Pbf<A> {
    fn lookup(&self, key: A) -> Label {
        self.find(key, &(), &())
    }

    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        let mut sums = [Sums::EMPTY; GROUP];
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            // The keys that have no answer yet, and those of them to which a filter has said "maybe".
            let mut open: [u8; GROUP] = std::array::from_fn(|i| i as u8);
            let mut maybe = [(0, 0); GROUP];
            let mut left = keys.len();
            for (&key, sums) in keys.iter().zip(&mut sums) {
                *sums = Sums::new(key, self.key_bytes, &());
                prefetch_read(&raw const self.direct[Self::place(key)]);
            }
            for level in &self.levels {
                let len = level.cut.len;
                let mut count = 0;
                for (at, &i) in open[..left].iter().enumerate() {
                    let hash = sums[usize::from(i)].at::<A, ()>(level.cut, &());
                    if level.filter.contains(hash, &()) {
                        self.table.prefetch(hash);
                        maybe[count] = (at, hash);
                        count += 1;
                    }
                }
                // From the last one on, so that the last of the open keys can take the place of one that is answered.
                for &(at, hash) in maybe[..count].iter().rev() {
                    let i = usize::from(open[at]);
                    if let Some(label) = self.table.get(hash, keys[i] & A::mask(len), len, &()) {
                        out[i] = Label(label);
                        left -= 1;
                        open[at] = open[left];
                    }
                }
                if left == 0 {
                    break;
                }
            }
            for &i in &open[..left] {
                let i = usize::from(i);
                out[i] = Label(self.direct[Self::place(keys[i])]);
            }
        }
    }

    fn name(&self) -> String {
        "pbf".into()
    }

    fn bytes(&self) -> usize {
        let levels: usize =
            self.levels.iter().map(|level| size_of::<Cut>() + Screen::bytes(&level.filter)).sum();
        size_of_val(&self.direct[..]) + levels + self.table.bytes() + table_bytes::<A>()
    }

    fn shared_bytes(&self) -> usize {
        table_bytes::<A>()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        self.find(key, probe, &())
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let filters: usize = self.levels.iter().map(|level| Screen::bytes(&level.filter)).sum();
        vec![
            ("filters", self.levels.len() as f64),
            ("filter_bytes", filters as f64),
            ("direct_bytes", size_of_val(&self.direct[..]) as f64),
            ("table_bytes", self.table.bytes() as f64),
            ("table_load", self.table.load()),
            // Of a key that matches nothing longer than D.
            ("expected_false_positives", self.expected_probes(None)),
        ]
    }
}

impl<A: Address> Whole<A> for Pbf<A> {
    fn collapse(&self) {
        collapse(&self.direct);
        self.levels.iter().for_each(|level| level.filter.collapse());
        self.table.collapse();
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        prefix: Prefix<A>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        match rib.get(prefix) {
            _ if prefix.len() <= Self::DIRECT_BITS => self.fill(rib, prefix, probe),
            Some(label) => self.insert(prefix, label, probe),
            None => self.remove(prefix, probe),
        }
        Ok(())
    }
}
