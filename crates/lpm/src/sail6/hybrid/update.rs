//! What belongs into the tables, from the RIB, and how it gets there.

use super::table::{Entry, Kind, Table};
use super::{BITMAPS, Filter, HOST_PIVOT, HOST_PIVOTS, Hasher, Length, PIVOTS, SailHybrid};
use crate::copies::Whole;
use crate::fib::{BuildError, Label, Outgrown, check_labels};
use crate::prefix::Prefix;
use crate::rib::Rib;
use tidemill_lookup::mem::collapse;
use tidemill_lookup::probe::Probe;

/// All pivot levels.
fn levels() -> impl Iterator<Item = u8> {
    std::iter::once(BITMAPS).chain(PIVOTS).chain(HOST_PIVOT).chain(HOST_PIVOTS)
}

/// The first `len` bits of a prefix that has more.
fn cut(prefix: Prefix<u128>, len: u8) -> Prefix<u128> {
    Prefix::new(prefix.first(), len).unwrap_or(prefix)
}

/// An entry, if its label fits.
fn entry(prefix: Prefix<u128>, kind: Kind, label: Label) -> Result<Entry, Outgrown> {
    let fits = label.0 >> Entry::WIDTH == 0;
    fits.then(|| Entry::new(kind, label.0)).ok_or_else(|| Outgrown::label(prefix, label, Entry::WIDTH))
}

/// What the table of the region's length has to say of it.
fn wanted(rib: &Rib<u128>, region: Prefix<u128>) -> Result<Option<Entry>, Outgrown> {
    let own = rib.get(region);
    let inside =
        levels().any(|level| level == region.len()) && rib.inside(region).any(|(prefix, _)| prefix != region);
    let (kind, label) = match (own, inside) {
        (Some(label), false) => (Kind::Leaf, label),
        (Some(label), true) => (Kind::Internal, label),
        (None, true) => (Kind::Pivot, rib.covering(region).map_or(Label::NONE, |(_, label)| label)),
        (None, false) => return Ok(None),
    };
    entry(region, kind, label).map(Some)
}

/// Tells `each` the pivot nodes strictly inside `within`, each once, with the labels that they inherit.
fn pivot_nodes(
    rib: &Rib<u128>,
    within: Prefix<u128>,
    mut each: impl FnMut(Prefix<u128>, Label) -> Result<(), Outgrown>,
) -> Result<(), Outgrown> {
    let outer = rib.covering(within).map_or(Label::NONE, |(_, label)| label);
    // The prefixes over the present one, and the one before it.
    let mut open: Vec<(Prefix<u128>, Label)> = Vec::new();
    let mut before: Option<Prefix<u128>> = None;
    for (prefix, label) in rib.inside(within) {
        while open.last().is_some_and(|(over, _)| !over.covers(prefix)) {
            open.pop();
        }
        for level in levels().filter(|&level| within.len() < level && level < prefix.len()) {
            let region = cut(prefix, level);
            // The prefixes inside a region follow one another.
            if before.is_some_and(|before| before.len() > level && region.covers(before)) {
                continue;
            }
            match open.iter().rev().find(|(over, _)| over.len() <= level) {
                Some((over, _)) if over.len() == level => {}
                nearest => each(region, nearest.map_or(outer, |&(_, label)| label))?,
            }
        }
        open.push((prefix, label));
        before = Some(prefix);
    }
    Ok(())
}

impl<const W: usize> Length<W> {
    fn new(len: usize, (entries, prefixes): (usize, usize)) -> Self {
        let keys = if len > usize::from(BITMAPS) { prefixes } else { 0 };
        Length { table: Table::new(entries), filter: Filter::new(keys) }
    }

    /// Stores the entry of a region, or that there is none, if that is new; returns how many keys the filter has then.
    fn set<P: Probe + ?Sized>(
        &mut self,
        hasher: Hasher,
        region: Prefix<u128>,
        entry: Option<Entry>,
        probe: &P,
    ) -> usize {
        let (first, len) = (region.first(), region.len());
        let hash = hasher.hash(first, len);
        let old = self.table.get(first, hash, &());
        if old == entry {
            return self.filter.keys();
        }
        match entry {
            Some(entry) => self.table.insert(hasher, len, first, entry, probe),
            None => self.table.remove(hasher, len, first, probe),
        }
        if len > BITMAPS {
            let is_key = |entry: Option<Entry>| entry.is_some_and(Entry::is_prefix);
            match (is_key(old), is_key(entry)) {
                (false, true) if self.filter.is_full() => {
                    let keys = self.filter.keys() + 1;
                    self.refill(hasher, len, keys + keys / 8, probe);
                }
                (false, true) => self.filter.add(hash, probe),
                (true, false) => {
                    self.filter.remove(hash, probe);
                    if self.filter.is_sparse() {
                        self.refill(hasher, len, self.filter.keys(), probe);
                    }
                }
                _ => {}
            }
        }
        self.filter.keys()
    }

    /// Another filter, of another size, for the prefixes in the table.
    fn refill<P: Probe + ?Sized>(&mut self, hasher: Hasher, len: u8, capacity: usize, probe: &P) {
        self.filter = Filter::new(capacity);
        for (region, _) in self.table.iter().filter(|(_, entry)| entry.is_prefix()) {
            self.filter.add(hasher.hash(region, len), probe);
        }
    }
}

impl SailHybrid {
    /// Builds the structure of `rib`, the same one each time: who knows the fixed key of its hash can choose routes that share places.
    ///
    /// # Errors
    /// A label of more than 30 bits.
    pub fn build(rib: &Rib<u128>) -> Result<Self, BuildError> {
        Self::with_hasher(rib, Hasher::FIXED)
    }

    pub(super) fn with_hasher(rib: &Rib<u128>, hasher: Hasher) -> Result<Self, BuildError> {
        check_labels(rib, Entry::WIDTH)?;
        // Entries and prefixes of each length, so that every table and filter has its size from the start.
        let mut sizes = [(0, 0); 129];
        for (prefix, _) in rib.iter() {
            let size = &mut sizes[usize::from(prefix.len())];
            *size = (size.0 + 1, size.1 + 1);
        }
        let too_wide = |outgrown: Outgrown| BuildError::TooLarge {
            structure: "sail-hybrid".into(),
            what: outgrown.what,
            advice: "use sail-l".into(),
        };
        let mut pivots = Vec::new();
        pivot_nodes(rib, Prefix::DEFAULT, |region, label| {
            sizes[usize::from(region.len())].0 += 1;
            pivots.push((region, entry(region, Kind::Pivot, label)?));
            Ok(())
        })
        .map_err(too_wide)?;
        let mut sail = SailHybrid {
            bitmaps: vec![0; 1 << (BITMAPS + 1 - 6)],
            short: (0..=64).map(|len| Length::new(len, sizes[len])).collect(),
            long: (65..=128).map(|len| Length::new(len, sizes[len])).collect(),
            filtered: 0,
            hasher,
        };
        for (prefix, _) in rib.iter() {
            let wanted = wanted(rib, prefix).map_err(too_wide)?;
            sail.set(prefix, wanted, &());
        }
        pivots.into_iter().for_each(|(region, entry)| sail.set(region, Some(entry), &()));
        Ok(sail)
    }

    /// Stores the entry of a region, or that there is none, in the table, and in the bitmap or the filter.
    fn set<P: Probe + ?Sized>(&mut self, region: Prefix<u128>, entry: Option<Entry>, probe: &P) {
        let len = region.len();
        let keys = match usize::from(len) {
            short @ 0..=64 => self.short[short].set(self.hasher, region, entry, probe),
            long => self.long[long - 65].set(self.hasher, region, entry, probe),
        };
        if len > BITMAPS {
            let bit = 1 << (len - 1);
            self.filtered = if keys > 0 { self.filtered | bit } else { self.filtered & !bit };
            return;
        }
        let (word, bit) = Self::place(region.first(), len);
        if (self.bitmaps[word] >> bit & 1 != 0) != entry.is_some() {
            self.bitmaps[word] ^= 1 << bit;
            probe.write((&raw const self.bitmaps[word]).addr(), 8);
        }
    }
}

impl Whole<u128> for SailHybrid {
    fn collapse(&self) {
        collapse(&self.bitmaps);
        self.short.iter().for_each(|length| (length.table.collapse(), length.filter.collapse()).0);
        self.long.iter().for_each(|length| (length.table.collapse(), length.filter.collapse()).0);
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u128>,
        prefix: Prefix<u128>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        self.set(prefix, wanted(rib, prefix)?, probe);
        for level in levels().filter(|&level| level < prefix.len()) {
            let region = cut(prefix, level);
            self.set(region, wanted(rib, region)?, probe);
        }
        pivot_nodes(rib, prefix, |region, label| {
            self.set(region, Some(entry(region, Kind::Pivot, label)?), probe);
            Ok(())
        })
    }
}
