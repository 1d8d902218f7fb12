//! The hash table of one prefix length: open addressing, ten buckets per entry, so that the first is nearly always the right one.

use super::hash::{Hash, Hasher};
use tidemill_lookup::mem::collapse;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

/// Buckets per entry: a load of 0.1.
pub(super) const SPREAD: usize = 10;

/// What a node is; two bits, of which 0 means an empty bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A prefix; at a pivot level: without longer ones inside.
    Leaf = 1,
    /// A prefix of a pivot level with longer ones inside.
    Internal = 2,
    /// No prefix, but longer ones inside: it has the label of the longest prefix over it.
    Pivot = 3,
}

/// A node's kind and label, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(u32);

impl Entry {
    /// Bits of a label.
    pub(super) const WIDTH: u8 = 30;

    /// The label has 30 bits.
    pub(super) fn new(kind: Kind, label: u32) -> Self {
        Entry((kind as u32) << Self::WIDTH | label)
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        match self.0 >> Self::WIDTH {
            1 => Kind::Leaf,
            2 => Kind::Internal,
            _ => Kind::Pivot,
        }
    }

    #[inline(always)]
    pub(super) fn label(self) -> u32 {
        self.0 & ((1 << Self::WIDTH) - 1)
    }

    /// Whether a prefix ends here.
    pub(super) fn is_prefix(self) -> bool {
        self.kind() != Kind::Pivot
    }
}

/// The first `32 W` bits of an address, the kind and the label.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bucket<const W: usize> {
    key: [u32; W],
    /// 0: empty.
    value: u32,
}

impl<const W: usize> Bucket<W> {
    const EMPTY: Self = Bucket { key: [0; W], value: 0 };

    #[inline(always)]
    fn key(region: u128) -> [u32; W] {
        std::array::from_fn(|i| (region >> (96 - 32 * i)) as u32)
    }

    fn region(&self) -> u128 {
        self.key.iter().zip(0..).fold(0, |region, (&word, i)| region | u128::from(word) << (96 - 32 * i))
    }
}

/// The table of the regions of one length that `W` words can say.
#[derive(Debug, Clone, Default)]
pub(super) struct Table<const W: usize> {
    buckets: Vec<Bucket<W>>,
    entries: usize,
    pivots: usize,
}

impl<const W: usize> Table<W> {
    /// See [`Whole::collapse`](crate::copies::Whole::collapse).
    pub(super) fn collapse(&self) {
        collapse(&self.buckets);
    }

    /// Bytes of a bucket.
    pub(super) const BUCKET: usize = size_of::<Bucket<W>>();

    /// An empty table with room for so many.
    pub(super) fn new(entries: usize) -> Self {
        Table { buckets: vec![Bucket::EMPTY; entries * SPREAD], entries: 0, pivots: 0 }
    }

    pub(super) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Entries, of them pivot nodes.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.entries, self.pivots)
    }

    /// Every region, with its entry.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u128, Entry)> + '_ {
        self.buckets.iter().filter(|b| b.value != 0).map(|b| (b.region(), Entry(b.value)))
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, hash: Hash) {
        prefetch_read(self.buckets.as_ptr().wrapping_add(hash.bucket(self.buckets.len())));
    }

    #[inline(always)]
    pub(super) fn get<P: Probe + ?Sized>(&self, region: u128, hash: Hash, probe: &P) -> Option<Entry> {
        if self.buckets.is_empty() {
            return None;
        }
        let (key, mut at) = (Bucket::key(region), hash.bucket(self.buckets.len()));
        loop {
            let bucket = &self.buckets[at];
            probe.read((&raw const *bucket).addr(), Self::BUCKET, true);
            if bucket.value == 0 {
                return None;
            }
            if bucket.key == key {
                return Some(Entry(bucket.value));
            }
            at = self.after(at);
        }
    }

    #[inline(always)]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.buckets.len() { 0 } else { at + 1 }
    }

    fn store<P: Probe + ?Sized>(&mut self, at: usize, bucket: Bucket<W>, probe: &P) {
        let count = |value: u32| {
            (usize::from(value != 0), usize::from(value != 0 && Entry(value).kind() == Kind::Pivot))
        };
        let (old, new) = (count(self.buckets[at].value), count(bucket.value));
        self.entries = self.entries + new.0 - old.0;
        self.pivots = self.pivots + new.1 - old.1;
        self.buckets[at] = bucket;
        probe.write((&raw const self.buckets[at]).addr(), Self::BUCKET);
    }

    /// The bucket that has this key, or the empty one where it belongs. There are buckets.
    fn find(&self, key: [u32; W], hash: Hash) -> usize {
        let mut at = hash.bucket(self.buckets.len());
        while self.buckets[at].value != 0 && self.buckets[at].key != key {
            at = self.after(at);
        }
        at
    }

    /// Inserts or replaces an entry; `len` is the table's length of prefixes.
    pub(super) fn insert<P: Probe + ?Sized>(
        &mut self,
        hasher: Hasher,
        len: u8,
        region: u128,
        entry: Entry,
        probe: &P,
    ) {
        let (key, hash) = (Bucket::key(region), hasher.hash(region, len));
        if !self.buckets.is_empty() {
            let at = self.find(key, hash);
            if self.buckets[at].value != 0 || (self.entries + 1) * SPREAD <= self.buckets.len() {
                self.store(at, Bucket { key, value: entry.0 }, probe);
                return;
            }
        }
        self.resize(hasher, len, self.entries + 1 + self.entries / 8, probe);
        self.store(self.find(key, hash), Bucket { key, value: entry.0 }, probe);
    }

    /// Removes an entry, if it is there.
    pub(super) fn remove<P: Probe + ?Sized>(&mut self, hasher: Hasher, len: u8, region: u128, probe: &P) {
        if self.buckets.is_empty() {
            return;
        }
        let n = self.buckets.len();
        let mut hole = self.find(Bucket::key(region), hasher.hash(region, len));
        if self.buckets[hole].value == 0 {
            return;
        }
        // What stands behind the hole without a break, and would be found from there, moves up.
        let mut at = self.after(hole);
        while self.buckets[at].value != 0 {
            let home = hasher.hash(self.buckets[at].region(), len).bucket(n);
            let distance = |from: usize| (at + n - from) % n;
            if distance(home) >= distance(hole) {
                self.store(hole, self.buckets[at], probe);
                hole = at;
            }
            at = self.after(at);
        }
        self.store(hole, Bucket::EMPTY, probe);
        if self.entries == 0 || self.entries * SPREAD * 4 < n {
            self.resize(hasher, len, self.entries, probe);
        }
    }

    /// Room for another number of entries.
    fn resize<P: Probe + ?Sized>(&mut self, hasher: Hasher, len: u8, entries: usize, probe: &P) {
        let old = std::mem::replace(self, Self::new(entries));
        for bucket in old.buckets.into_iter().filter(|bucket| bucket.value != 0) {
            let at = self.find(bucket.key, hasher.hash(bucket.region(), len));
            self.store(at, bucket, probe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Random;
    use std::collections::HashMap;

    /// Against a map; a table that is nearly full, so that runs of buckets form and break.
    #[test]
    fn a_table_holds_what_a_map_holds() {
        let (hasher, len) = (Hasher::FIXED, 64);
        let (mut table, mut map, mut random) = (Table::<2>::new(60), HashMap::new(), Random::new(3));
        table.buckets.truncate(70);
        for round in 0..20_000 {
            let region = (random.below(60) as u128) << 64;
            // What `insert` would do if there was no limit of a tenth.
            if random.below(2) == 0 {
                let kind = [Kind::Leaf, Kind::Internal, Kind::Pivot][random.below(3)];
                let entry = Entry::new(kind, round);
                let at = table.find(Bucket::key(region), hasher.hash(region, len));
                table.store(at, Bucket { key: Bucket::key(region), value: entry.0 }, &());
                map.insert(region, entry);
            } else if map.len() > 8 {
                table.remove(hasher, len, region, &());
                map.remove(&region);
            }
            let pivots = map.values().filter(|entry| !entry.is_prefix()).count();
            assert_eq!((table.len(), table.buckets()), ((map.len(), pivots), 70));
            for region in (0..60).map(|i| i << 64) {
                assert_eq!(table.get(region, hasher.hash(region, len), &()), map.get(&region).copied());
            }
        }
        assert_eq!(table.iter().collect::<HashMap<_, _>>(), map);
    }

    #[test]
    fn a_table_grows_and_shrinks() {
        let (hasher, mut table) = (Hasher::FIXED, Table::<4>::default());
        let entry = |i: u32| Entry::new(Kind::Leaf, i);
        for i in 0..1000 {
            table.insert(hasher, 128, i.into(), entry(i), &());
            assert!(table.buckets() >= SPREAD * (i as usize + 1));
        }
        assert!(table.buckets() <= SPREAD * 1200);
        assert!((0..1000).all(|i| table.get(i.into(), hasher.hash(i.into(), 128), &()) == Some(entry(i))));
        (0..1000).for_each(|i| table.remove(hasher, 128, i, &()));
        assert_eq!((table.buckets(), table.len()), (0, (0, 0)));
        assert_eq!(table.get(1, hasher.hash(1, 128), &()), None);
    }
}
