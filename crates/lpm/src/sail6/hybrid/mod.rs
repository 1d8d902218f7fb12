//! `sail-hybrid`: bitmaps for short prefixes, Bloom filters for long ones, and pivot nodes that bound the bad case. IPv6.
//!
//! Source: Fu 2020, 3.6.2 and 3.6.3, with the bitmaps of SAIL_B (3.3.1). Filters before hash tables are Dharmapurikar's (PBF, 2003).
//!
//! # Memory
//! ```text
//! on chip    bitmaps    lengths 0 to 24: bit v of length i, at 2^i + v of 2^25 bits (4 MiB): the table of that length has v
//!            filters    lengths 25 to 128: 13 bits of 18.755 per prefix of that length; none without prefixes
//! off chip   tables     lengths 0 to 128: a hash table, ten buckets per entry
//!
//! bucket     the first 64 bits of the address (128 beyond length 64), then a word: two bits of kind, 30 of label
//!            0 empty | 1 leaf | 2 internal | 3 pivot
//!
//! 2001:db8::/32 -> 1, 2001:db8:1000::/36 -> 2
//!   /24   2001:d00::   pivot, no route     bit 0x20010d of length 24 is set
//!   /32   2001:db8::   leaf 1              in the filter of 32
//!   /34   2001:db8::   pivot 1             in no filter
//!   /36   2001:db8:1000::   leaf 2         in the filter of 36
//! ```
//! Levels 24, 34, 44 and 54, and 64, 74, ... 124 behind them, are pivot levels: their tables have every node there is, not only the
//! prefixes. A node with longer prefixes inside that is a prefix itself is *internal*; one that is none is a *pivot node* and inherits
//! the label of the longest prefix over it. Pivot nodes are in no filter and so cost nothing on chip. A prefix with nothing inside is a
//! *leaf*, and so is every prefix of the other lengths, where nobody asks.
//!
//! # Cost
//! The bit of length 24 says whether there is a node at all. If not, the first set bit of the bitmaps 23 to 0 says the length; one
//! search of a table, or none. If so, every filter in use is asked (13 loads on chip if it says yes; four or little more if it says no). Then:
//!
//! - Up to 11 filters say yes: their tables are searched, the longest first, and the first hit is the answer: one search, but for a
//!   false positive of a longer length, of which there is one in 8,192 filters. If none hits, table 24 has the answer, inherited or not.
//! - More do: table 44 is searched, then 34 if there is no node (the match is shorter) or 54 if there is one (it is this or longer); a
//!   leaf is the answer. That leaves nine lengths between two pivot levels, or ten behind 54, and the label of the lower one.
//!
//! So a lookup searches **12 tables at most** (source: 12 instead of 40), where no node at /64 has longer prefixes. Below one that has,
//! 64 is searched after 54, and then three of the six levels 74 to 124: 15 at most. Of a search, 95 % end at the first bucket.
//!
//! A change writes the prefix's bucket and its bit or 13 bits, the nodes over it at pivot levels whose kind it changes, and the labels of
//! the pivot nodes that inherit from it: for a short prefix those are many. Counters beside the filters, and all of the filter's
//! keys in the tables, are the writer's: a bit goes when its last key goes. A filter or a table that is full is made anew with an eighth of
//! room; one that is three quarters empty, smaller.
//!
//! # Figures
//! `details()`: `pivots_24` to `pivots_54` are Fig 3.16; `additional_buckets` and `buckets` (of `bucket_bytes` and more: the source has 74
//! bits or so) are Fig 3.17, `additional_off_chip_bytes` and `off_chip_bytes` the same in bytes; `filter_bytes` and `on_chip_bytes` are
//! Table 3.5. The real table of 2026 (246,175 prefixes, none beyond /48) has 8,037, 18,619, 40,112 and no pivot nodes, 0.58 MB of filters and
//! 38 MB of tables, 8 MB of them for pivot nodes: a quarter as many pivot nodes as prefixes, where the source's synthetic tables have a little
//! more than one per prefix.
//!
//! # Invariants
//! 1. A table has exactly the prefixes of its length, and at a pivot level the regions of all longer prefixes.
//! 2. Bit v of length i <= 24 is set exactly if table i has v. A filter has exactly the prefixes of its length.
//! 3. Behind a pivot level without a node there is no longer prefix, and the label of a pivot node is the longest match of its
//!    region as far as no longer prefix is inside.
//!
//! # Where we depart from the source
//! It says how the worst case is searched, all filters saying yes, and not when a lookup begins to search that way: we do where the plain
//! way could take more than 12 searches. It calls internal nodes what the two kinds 2 and 3 are together. It stops at /64; the levels
//! behind go on in tens by the same rule. The hash is two multiplications with a key, random for each writer ([`SailHybrid::build`] has a fixed one, for
//! figures), of which a filter takes 13 places by double hashing. Labels have 30 bits, so that kind and label are one word.

mod bloom;
mod hash;
mod table;
#[cfg(test)]
mod tests;
mod update;

use crate::copies;
use crate::fib::{Built, Fib, Label};
use crate::prefix::Address;
use crate::rib::Rib;
use bloom::Filter;
use hash::{Hash, Hasher};
use table::{Entry, Kind, SPREAD, Table};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// The longest length with a bitmap, which is the first pivot level.
const BITMAPS: u8 = 24;
/// The source's other pivot levels, and those behind 64 bits.
const PIVOTS: [u8; 3] = [34, 44, 54];
const HOST_PIVOT: [u8; 1] = [64];
const HOST_PIVOTS: [u8; 6] = [74, 84, 94, 104, 114, 124];
/// So many tables are searched at most in the part of the address that the source has.
const SEARCHES: u32 = 12;
/// In place of a length: there is no match.
const NONE: u8 = u8::MAX;
/// Keys that are in flight together.
const BURST: usize = 16;

/// The table and the filter of one length.
#[derive(Debug, Clone, Default)]
struct Length<const W: usize> {
    table: Table<W>,
    /// Empty up to length 24.
    filter: Filter,
}

/// The table. Made and patched by its [`writer`].
#[derive(Debug, Clone)]
pub struct SailHybrid {
    bitmaps: Vec<u64>,
    /// Lengths 0 to 64.
    short: Vec<Length<2>>,
    /// Lengths 65 to 128.
    long: Vec<Length<4>>,
    /// Bit i - 1: the filter of length i has keys.
    filtered: u128,
    hasher: Hasher,
}

/// What the memory on chip says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    /// Bit i - 1: the filter of length i says yes.
    lengths: u128,
    /// Where the answer is if all of them were wrong: 24 or less, or none.
    base: u8,
}

/// Builds the structure, with a key of its own for the hash, and its writer.
///
/// # Errors
/// A label of more than 30 bits.
pub fn writer(rib: &Rib<u128>, _: &Domain) -> Built<u128> {
    copies::writer(SailHybrid::with_hasher(rib, Hasher::random())?)
}

/// The `n` lowest bits, of 128.
#[inline(always)]
fn low(n: u8) -> u128 {
    if n >= 128 { u128::MAX } else { (1 << n) - 1 }
}

/// The longest of the lengths in a set; 0 if it is empty.
#[inline(always)]
fn longest(lengths: u128) -> u8 {
    128 - lengths.leading_zeros() as u8
}

/// The lengths of a set, the longest first.
#[inline(always)]
fn lengths(mut set: u128) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let len = longest(set);
        (len > 0).then(|| {
            set &= low(len - 1);
            len
        })
    })
}

impl SailHybrid {
    /// Pivot nodes at a level: nodes that are no prefixes, but have longer ones inside.
    pub fn pivots(&self, level: u8) -> usize {
        match level {
            0..=64 => self.short[usize::from(level)].table.len().1,
            65..=128 => self.long[usize::from(level) - 65].table.len().1,
            _ => 0,
        }
    }

    /// Whether the source has what is at this address of the table's memory in on-chip memory.
    pub fn on_chip(&self, address: usize) -> bool {
        let filters = self.filters().map(Filter::bits);
        std::iter::once(&self.bitmaps[..]).chain(filters).any(|words| {
            let range = words.as_ptr_range();
            (range.start.addr()..range.end.addr()).contains(&address)
        })
    }

    fn filters(&self) -> impl Iterator<Item = &Filter> {
        let short = self.short.iter().map(|length| &length.filter);
        short.chain(self.long.iter().map(|length| &length.filter))
    }

    #[inline(always)]
    fn hash(&self, key: u128, len: u8) -> Hash {
        self.hasher.hash(key & u128::mask(len), len)
    }

    /// Word and bit of a region in the bitmaps.
    #[inline(always)]
    fn place(key: u128, len: u8) -> (usize, u32) {
        let bit = 1 << len | (key >> 104) as usize >> (BITMAPS - len);
        (bit / 64, bit as u32 % 64)
    }

    #[inline(always)]
    fn bit<P: Probe + ?Sized>(&self, key: u128, len: u8, probe: &P) -> bool {
        let (word, bit) = Self::place(key, len);
        probe.read((&raw const self.bitmaps[word]).addr(), 8, false);
        self.bitmaps[word] >> bit & 1 != 0
    }

    /// Asks bitmaps and filters.
    #[inline(always)]
    fn plan<P: Probe + ?Sized>(&self, key: u128, probe: &P) -> Plan {
        if !self.bit(key, BITMAPS, probe) {
            let base = (0..BITMAPS).rev().find(|&len| self.bit(key, len, probe));
            return Plan { lengths: 0, base: base.unwrap_or(NONE) };
        }
        let mut lengths = 0;
        // Length 64 and below by themselves: 64-bit arithmetic, of which most lookups need no more.
        let mut short = self.filtered as u64;
        while short != 0 {
            let len = 64 - short.leading_zeros() as u8;
            let bit = 1 << (len - 1);
            short ^= bit;
            let hash = self.hasher.hash_network((key >> 64) as u64 & u64::MAX << (64 - len), len);
            let yes = self.short[usize::from(len)].filter.contains(hash, probe);
            lengths |= if yes { u128::from(bit) } else { 0 };
        }
        for len in self::lengths(self.filtered & !low(64)) {
            let yes = self.long[usize::from(len) - 65].filter.contains(self.hash(key, len), probe);
            lengths |= if yes { 1 << (len - 1) } else { 0 };
        }
        Plan { lengths, base: BITMAPS }
    }

    /// One search of a table.
    #[inline(always)]
    fn search<P: Probe + ?Sized>(&self, key: u128, len: u8, probe: &P) -> Option<Entry> {
        probe.step();
        let (region, hash) = (key & u128::mask(len), self.hash(key, len));
        match len {
            65.. => self.long[usize::from(len) - 65].table.get(region, hash, probe),
            _ => self.short[usize::from(len)].table.get(region, hash, probe),
        }
    }

    /// Searches the tables as planned. Whatever is found at the longest length is the answer, a pivot node too: nothing longer
    /// matched.
    #[inline(always)]
    fn answer<P: Probe + ?Sized>(&self, key: u128, plan: Plan, probe: &P) -> Label {
        if plan.lengths.count_ones() >= SEARCHES {
            return self.by_pivots(key, plan.lengths, probe);
        }
        let hit = lengths(plan.lengths).find_map(|len| self.search(key, len, probe));
        let base = || if plan.base == NONE { None } else { self.search(key, plan.base, probe) };
        hit.or_else(base).map_or(Label::NONE, |entry| Label(entry.label()))
    }

    /// The answer of a key with a node at length 24, by the pivot levels first.
    fn by_pivots<P: Probe + ?Sized>(&self, key: u128, candidates: u128, probe: &P) -> Label {
        let mut at = Narrowed { floor: BITMAPS, node: None, ceiling: 129 };
        self.narrow(key, &PIVOTS, &mut at, probe);
        // Not if it was a leaf.
        let may_be_longer = |at: &Narrowed, level| at.floor == level && at.ceiling > level;
        if may_be_longer(&at, PIVOTS[2]) && longest(self.filtered) > HOST_PIVOT[0] {
            self.narrow(key, &HOST_PIVOT, &mut at, probe);
        }
        if may_be_longer(&at, HOST_PIVOT[0]) {
            self.narrow(key, &HOST_PIVOTS, &mut at, probe);
        }
        let between = candidates & low(at.ceiling - 1) & !low(at.floor);
        let hit = lengths(between).find_map(|len| self.search(key, len, probe));
        let node = || at.node.or_else(|| self.search(key, BITMAPS, probe));
        hit.or_else(node).map_or(Label::NONE, |entry| Label(entry.label()))
    }

    /// Binary search for the last of these levels that has a node over the key. A leaf ends it: it leaves no length.
    fn narrow<P: Probe + ?Sized>(&self, key: u128, mut levels: &[u8], at: &mut Narrowed, probe: &P) {
        while !levels.is_empty() {
            let middle = levels.len() / 2;
            match self.search(key, levels[middle], probe) {
                None => {
                    at.ceiling = levels[middle];
                    levels = &levels[..middle];
                }
                Some(entry) => {
                    (at.floor, at.node) = (levels[middle], Some(entry));
                    if entry.kind() == Kind::Leaf {
                        at.ceiling = at.floor;
                        return;
                    }
                    levels = &levels[middle + 1..];
                }
            }
        }
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized>(&self, key: u128, probe: &P) -> Label {
        self.answer(key, self.plan(key, probe), probe)
    }

    /// The plans of all keys, then the tables, whose lines are on their way meanwhile.
    fn burst(&self, keys: &[u128], out: &mut [Label]) {
        let mut plans = [Plan { lengths: 0, base: NONE }; BURST];
        for &key in keys {
            prefetch_read(&self.bitmaps[Self::place(key, BITMAPS).0]);
        }
        for (plan, &key) in plans.iter_mut().zip(keys) {
            *plan = self.plan(key, &());
            let first = match plan.lengths {
                0 if plan.base == NONE => continue,
                0 => plan.base,
                lengths if lengths.count_ones() >= SEARCHES => PIVOTS[1],
                lengths => longest(lengths),
            };
            let hash = self.hash(key, first);
            match first {
                65.. => self.long[usize::from(first) - 65].table.prefetch(hash),
                _ => self.short[usize::from(first)].table.prefetch(hash),
            }
        }
        for ((&plan, &key), out) in plans.iter().zip(keys).zip(out) {
            *out = self.answer(key, plan, &());
        }
    }
}

/// What a search of pivot levels has left.
#[derive(Debug)]
struct Narrowed {
    /// The longest level known to have a node over the key, which is this; `None`: level 24's, not looked at yet.
    floor: u8,
    node: Option<Entry>,
    /// The match is shorter than this, or at the floor.
    ceiling: u8,
}

impl Fib<u128> for SailHybrid {
    fn lookup(&self, key: u128) -> Label {
        self.find(key, &())
    }

    fn lookup_batch(&self, keys: &[u128], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            self.burst(keys, out);
        }
    }

    fn name(&self) -> String {
        "sail-hybrid".into()
    }

    fn bytes(&self) -> usize {
        let figures = self.figures();
        figures.on_chip() + figures.off_chip
    }

    fn lookup_probed(&self, key: u128, probe: &dyn Probe) -> Label {
        self.find(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let figures = self.figures();
        let pivots = |level: u8| self.pivots(level) as f64;
        vec![
            ("prefixes", figures.prefixes as f64),
            ("filtered_prefixes", figures.filtered as f64),
            ("pivots_24", pivots(24)),
            ("pivots_34", pivots(34)),
            ("pivots_44", pivots(44)),
            ("pivots_54", pivots(54)),
            ("pivots_64_to_124", HOST_PIVOT.iter().chain(&HOST_PIVOTS).map(|&level| pivots(level)).sum()),
            ("bitmap_bytes", self.bitmaps.len() as f64 * 8.0),
            ("filter_bytes", figures.filters as f64),
            ("on_chip_bytes", figures.on_chip() as f64),
            ("bucket_bytes", Table::<2>::BUCKET as f64),
            ("buckets", figures.buckets as f64),
            ("additional_buckets", figures.additional_buckets as f64),
            ("off_chip_bytes", figures.off_chip as f64),
            ("additional_off_chip_bytes", figures.additional_off_chip as f64),
        ]
    }
}

/// How large the parts are: counts, and bytes.
#[derive(Debug, Default)]
struct Figures {
    prefixes: usize,
    filtered: usize,
    bitmaps: usize,
    filters: usize,
    buckets: usize,
    off_chip: usize,
    /// Those for pivot nodes.
    additional_buckets: usize,
    additional_off_chip: usize,
}

impl Figures {
    fn on_chip(&self) -> usize {
        self.bitmaps + self.filters
    }

    fn add<const W: usize>(&mut self, length: &Length<W>) {
        let (entries, pivots) = length.table.len();
        self.prefixes += entries - pivots;
        self.filtered += length.filter.keys();
        self.filters += length.filter.bits().len() * 8;
        self.buckets += length.table.buckets();
        self.off_chip += length.table.buckets() * Table::<W>::BUCKET;
        self.additional_buckets += pivots * SPREAD;
        self.additional_off_chip += pivots * SPREAD * Table::<W>::BUCKET;
    }
}

impl SailHybrid {
    fn figures(&self) -> Figures {
        let mut figures = Figures { bitmaps: self.bitmaps.len() * 8, ..Figures::default() };
        self.short.iter().for_each(|length| figures.add(length));
        self.long.iter().for_each(|length| figures.add(length));
        figures
    }
}
