//! A cuckoo filter: fingerprints of 16 bits in buckets of a few, each in one of two buckets.
//!
//! Source: B. Fan, D. G. Andersen, M. Kaminsky, M. D. Mitzenmacher, "Cuckoo filter: practically better than Bloom", CoNEXT 2014.
//!
//! ```text
//! hash         | CRC-32C | CRC-32 |       or the other way round: see `Fingerprint`
//! fingerprint  16 bits of the one; 0, which is an empty slot, becomes 1
//! bucket       of both by a multiplication; the other bucket of a fingerprint in bucket i is (m(fingerprint) - i) mod n
//! ```
//! What is in a full bucket is moved to its other bucket (a cuckoo move), which may be full too, up to [`KICKS`] times; then
//! all moves are taken back, and [`insert`](CuckooFilter::insert) says that the filter is full. Nothing is ever lost.
//! [`insert_always`](CuckooFilter::insert_always) keeps what does not fit beside the buckets.
//!
//! Every item has a fingerprint of its own, also where several items have the same one and the same buckets: taking one item out
//! takes one of them away. So no more than twice the slots of such items fit, whatever the load. More are only counted: their
//! fingerprint is in the buckets, where it stays as long as one of them is left, so that no question needs to look further.
//! An item that fits nowhere and has no equal in the buckets is in a list that every question asks too, the stash; equal
//! ones are one entry of it. Items of many kinds can be chosen so that their buckets are the same few: those fill the stash (the
//! hash has no key, see [`hash`](crate::hashlengths::hash)).

use crate::hashlengths::hash::below;
use crate::keys::Random;
use std::collections::BTreeMap;
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

/// Cuckoo moves that are tried for one insertion.
pub const KICKS: u32 = 500;

/// Which CRC the fingerprint is of; the other one then has more of a say in the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fingerprint {
    /// CRC-32 of IEEE 802.3.
    #[default]
    Crc32,
    /// CRC-32C of Castagnoli.
    Crc32c,
}

/// An item as the filter sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Not 0.
    pub fingerprint: u16,
    /// One of its two buckets.
    pub bucket: u32,
}

/// All places that an item could come to are taken. It is not in the filter; what was in it still is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cuckoo filter is full")]
pub struct Full;

/// A cuckoo filter with `SLOTS` fingerprints in a bucket.
///
/// ```
/// use tidemill_lpm::cuvpp::{CuckooFilter, Fingerprint};
/// use tidemill_lpm::keys::Random;
///
/// // Insert until full: how many moves each insertion takes, and how far it goes.
/// let (mut filter, mut random) = (CuckooFilter::<4>::new(1_000, Fingerprint::Crc32), Random::new(1));
/// let mut moves = Vec::new();
/// while let Ok(more) = filter.insert(random.bits(), &()) {
///     moves.push(more);
/// }
/// assert!(filter.load() > 0.9 && moves[..1_000].iter().all(|&moves| moves == 0));
/// ```
#[derive(Debug, Clone)]
pub struct CuckooFilter<const SLOTS: usize = 4> {
    pub(super) buckets: Array<[u16; SLOTS]>,
    /// What is asked beside the buckets, and how many there are of each.
    pub(super) stash: Vec<(Item, u32)>,
    /// How many items there are, beside those in the buckets, of a fingerprint that its buckets have: of the lower one.
    repeated: BTreeMap<(u16, u32), u32>,
    /// Items in both.
    beside: usize,
    pub(super) rotate: u32,
    /// In the buckets.
    len: usize,
    moves: u64,
    /// Which of a full bucket's fingerprints has to go.
    random: Random,
}

impl<const SLOTS: usize> CuckooFilter<SLOTS> {
    /// See [`Whole::collapse`](crate::copies::Whole::collapse).
    pub(crate) fn collapse(&self) {
        collapse(&self.buckets);
    }

    /// An empty filter; `buckets` is any number from 1 to 2^32 - 1 (others are taken for the nearest).
    pub fn new(buckets: usize, fingerprint: Fingerprint) -> Self {
        CuckooFilter {
            buckets: Array::filled(buckets.clamp(1, u32::MAX as usize), [0; SLOTS]),
            stash: Vec::new(),
            repeated: BTreeMap::new(),
            beside: 0,
            rotate: if fingerprint == Fingerprint::Crc32 { 0 } else { 32 },
            len: 0,
            moves: 0,
            random: Random::new(0),
        }
    }

    /// An empty filter that so many items load to `load`, a part of 1.
    pub fn for_items(items: usize, load: f64, fingerprint: Fingerprint) -> Self {
        Self::new((items as f64 / load / SLOTS as f64).ceil() as usize, fingerprint)
    }

    /// Items in the filter.
    pub fn len(&self) -> usize {
        self.len + self.beside
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots for fingerprints.
    pub fn slots(&self) -> usize {
        self.buckets.len() * SLOTS
    }

    /// Items beside the buckets.
    pub fn stashed(&self) -> usize {
        self.beside
    }

    /// Entries beside the buckets that questions go through.
    pub fn stash_entries(&self) -> usize {
        self.stash.len()
    }

    /// Used slots by slots.
    pub fn load(&self) -> f64 {
        self.len as f64 / self.slots() as f64
    }

    /// Cuckoo moves of all insertions so far, without those that were taken back.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Bytes that [`contains`](Self::contains) can touch.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.buckets[..]) + size_of_val(&self.stash[..])
    }

    /// The fingerprint that items have.
    pub fn fingerprint(&self) -> Fingerprint {
        if self.rotate == 0 { Fingerprint::Crc32 } else { Fingerprint::Crc32c }
    }

    /// What the filter sees of a [hash](crate::hashlengths::hash::hash).
    #[inline(always)]
    pub fn item(&self, hash: u64) -> Item {
        let hash = hash.rotate_right(self.rotate);
        let spread = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        Item { fingerprint: (hash as u16).max(1), bucket: below(spread, self.buckets.len() as u32) }
    }

    /// The other bucket of a fingerprint. That one's other bucket is the one given.
    #[inline(always)]
    pub fn other(&self, item: Item) -> u32 {
        let n = self.buckets.len() as u32;
        let place = below(u32::from(item.fingerprint).wrapping_mul(0x9e37_79b1), n);
        if place >= item.bucket {
            place - item.bucket
        } else {
            place.wrapping_sub(item.bucket).wrapping_add(n)
        }
    }

    /// Whether an item of this hash may be in the filter. Of what was inserted it is always true; of anything else with a
    /// probability of about 2 x slots x load / 2^16.
    #[inline(always)]
    pub fn contains<P: Probe + ?Sized>(&self, hash: u64, probe: &P) -> bool {
        self.contains_item(self.item(hash), probe)
    }

    #[inline(always)]
    pub(super) fn contains_item<P: Probe + ?Sized>(&self, item: Item, probe: &P) -> bool {
        let has = |bucket: u32| {
            let bucket = &self.buckets[bucket as usize];
            probe.read((&raw const *bucket).addr(), 2 * SLOTS, true);
            // All slots, whatever the first ones hold: that is one comparison of a word.
            bucket.iter().fold(false, |found, &slot| found | (slot == item.fingerprint))
        };
        has(item.bucket) || has(self.other(item)) || (!self.stash.is_empty() && self.in_stash(item, probe))
    }

    /// The same without a jump between the buckets, for bursts: which of them has it cannot be foreseen.
    #[inline(always)]
    pub(crate) fn contains_at_once(&self, hash: u64) -> bool {
        let item = self.item(hash);
        let [one, other] = [item.bucket, self.other(item)].map(|bucket| self.buckets[bucket as usize]);
        let same = |slot: u16| slot == item.fingerprint;
        let found = one.into_iter().chain(other).fold(false, |found, slot| found | same(slot));
        found || (!self.stash.is_empty() && self.in_stash(item, &()))
    }

    /// Asks the cache for the buckets of an item.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        let item = self.item(hash);
        prefetch_read(&raw const self.buckets[item.bucket as usize]);
        prefetch_read(&raw const self.buckets[self.other(item) as usize]);
    }

    #[cold]
    fn in_stash<P: Probe + ?Sized>(&self, item: Item, probe: &P) -> bool {
        self.stash.iter().any(|(stashed, _)| {
            probe.read((&raw const *stashed).addr(), size_of::<Item>(), false);
            self.same(*stashed, item)
        })
    }

    /// Whether two items cannot be told apart.
    fn same(&self, a: Item, b: Item) -> bool {
        a.fingerprint == b.fingerprint && (a.bucket == b.bucket || a.bucket == self.other(b))
    }

    /// Puts an item in; returns the cuckoo moves that it took.
    ///
    /// # Errors
    /// [`Full`].
    pub fn insert<P: Probe + ?Sized>(&mut self, hash: u64, probe: &P) -> Result<u32, Full> {
        self.insert_item(self.item(hash), probe)
    }

    /// Puts an item in, beside the buckets if there is no place for it there. Returns the cuckoo moves that it took.
    pub fn insert_always<P: Probe + ?Sized>(&mut self, hash: u64, probe: &P) -> u32 {
        let item = self.item(hash);
        // Of its kind there are more than fit already: no moves would help.
        if !self.repeated.contains_key(&self.kind(item))
            && let Ok(moves) = self.insert_item(item, probe)
        {
            return moves;
        }
        self.put_beside(item, 1, probe);
        0
    }

    /// What items have in common that cannot be told apart.
    fn kind(&self, item: Item) -> (u16, u32) {
        (item.fingerprint, item.bucket.min(self.other(item)))
    }

    /// Whether a bucket of the item's has its fingerprint.
    fn in_buckets(&self, item: Item) -> bool {
        [item.bucket, self.other(item)]
            .iter()
            .any(|&at| self.buckets[at as usize].contains(&item.fingerprint))
    }

    /// Counts items, or stashes them if none of their kind is in the buckets.
    fn put_beside<P: Probe + ?Sized>(&mut self, item: Item, count: u32, probe: &P) {
        self.beside += count as usize;
        if self.in_buckets(item) {
            *self.repeated.entry(self.kind(item)).or_default() += count;
            return;
        }
        match self.stash.iter().position(|&(stashed, _)| self.same(stashed, item)) {
            Some(at) => self.stash[at].1 += count,
            None => {
                self.stash.push((item, count));
                let entry = self.stash.last();
                entry.inspect(|entry| probe.write((&raw const **entry).addr(), size_of::<Item>()));
            }
        }
    }

    /// Takes one item of a kind away from beside the buckets; false if there is none.
    fn take_beside<P: Probe + ?Sized>(&mut self, item: Item, probe: &P) -> bool {
        let kind = self.kind(item);
        if let Some(count) = self.repeated.get_mut(&kind) {
            *count -= 1;
            if *count == 0 {
                self.repeated.remove(&kind);
            }
        } else if let Some(at) = self.stash.iter().position(|&(stashed, _)| self.same(stashed, item)) {
            self.stash[at].1 -= 1;
            if self.stash[at].1 == 0 {
                probe.write((&raw const self.stash[at]).addr(), size_of::<Item>());
                self.stash.swap_remove(at);
            }
        } else {
            return false;
        }
        self.beside -= 1;
        true
    }

    /// There is room for one again, of the stash. (Those that are counted cost no question anything.)
    fn bring_back<P: Probe + ?Sized>(&mut self, probe: &P) {
        let Some(&(item, count)) = self.stash.last() else { return };
        let inserted = self.insert_item(item, probe).is_ok();
        if inserted || self.in_buckets(item) {
            self.stash.last().inspect(|entry| probe.write((&raw const **entry).addr(), size_of::<Item>()));
            self.stash.pop();
            self.beside -= count as usize;
            // The buckets answer for the others of its kind.
            match count - u32::from(inserted) {
                0 => {}
                left => self.put_beside(item, left, probe),
            }
        }
    }

    fn insert_item<P: Probe + ?Sized>(&mut self, item: Item, probe: &P) -> Result<u32, Full> {
        let other = Item { bucket: self.other(item), ..item };
        if self.place(item, probe) || self.place(other, probe) {
            return Ok(0);
        }
        // Where the fingerprints in hand were put, one after the other.
        let mut path: Vec<(u32, usize)> = Vec::new();
        let mut hand = if self.random.below(2) == 0 { item } else { other };
        for moves in 1..=KICKS {
            let slot = self.random.below(SLOTS);
            hand = self.swap(hand, slot, probe);
            path.push((hand.bucket, slot));
            hand.bucket = self.other(hand);
            if self.place(hand, probe) {
                self.moves += u64::from(moves);
                return Ok(moves);
            }
        }
        for (bucket, slot) in path.into_iter().rev() {
            hand = self.swap(Item { bucket, ..hand }, slot, probe);
        }
        Err(Full)
    }

    /// Puts a fingerprint into a slot of its bucket; returns the one that was there.
    fn swap<P: Probe + ?Sized>(&mut self, item: Item, slot: usize, probe: &P) -> Item {
        let at = &mut self.buckets[item.bucket as usize][slot];
        let fingerprint = std::mem::replace(at, item.fingerprint);
        probe.write((&raw const *at).addr(), 2);
        Item { fingerprint, ..item }
    }

    /// Puts a fingerprint into its bucket, if a slot is free.
    fn place<P: Probe + ?Sized>(&mut self, item: Item, probe: &P) -> bool {
        let free = self.buckets[item.bucket as usize].iter().position(|&slot| slot == 0);
        if let Some(slot) = free {
            self.swap(item, slot, probe);
            self.len += 1;
        }
        free.is_some()
    }

    /// Takes out an item that is in; false: there is none of that kind. (Taking out one that is not in may take away another
    /// that looks the same.)
    pub fn remove<P: Probe + ?Sized>(&mut self, hash: u64, probe: &P) -> bool {
        let item = self.item(hash);
        // From beside the buckets first: there is to be nothing, and what is in the buckets answers for all of its kind.
        if self.take_beside(item, probe) {
            return true;
        }
        for bucket in [item.bucket, self.other(item)] {
            let slot = self.buckets[bucket as usize].iter().position(|&slot| slot == item.fingerprint);
            let Some(slot) = slot else { continue };
            self.swap(Item { fingerprint: 0, bucket }, slot, probe);
            self.len -= 1;
            self.bring_back(probe);
            return true;
        }
        false
    }
}
