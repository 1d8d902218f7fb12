//! Space-Saving, set by set.

use crate::filter::{Mismatch, place, words};
use crate::key::Key;
use crate::table::SizeError;
use std::cmp::Reverse;
use tidemill_lookup::mem::Table;
use tidemill_lookup::prefetch::prefetch_read;

/// Keys of a set: their heads are one cache line.
const WAYS: usize = 8;
/// A head is the count above the tag.
const TAG_BITS: u32 = 8;
const TAG: u64 = 0xff;
/// Where counts end: 2^56 - 1, 72 petabytes.
const MOST: u64 = u64::MAX >> TAG_BITS;
/// Sets: a set is chosen by half a hash.
const MOST_SETS: usize = 1 << 32;
/// Updates that are under way at once in a batch.
const AHEAD: usize = 16;

/// The heaviest keys of a stream, by Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data
/// Streams", ICDT 2005), on sets of eight keys, like a cache:
///
/// ```text
/// hash    | high 32 bits -> set |   ...   | low 8 bits -> tag |
/// set     | head 0 | head 1 | ... | head 7 |      one line; a head: | count, 56 bits | tag, 8 bits |
///         | key 0, W words | key 1 | ...          W lines
///         | error 0 | error 1 | ... | error 7 |   one line
/// ```
///
/// A key that is listed gets the weight added: its head's line and its key's. Any other takes the place of the lightest of its set, and
/// gets that one's count as its error: three lines. So an update is bounded, whatever the stream, and there are no lists, heaps or
/// moves. An entry takes 16 + 8 W bytes.
///
/// What holds for every stream and every hash, where a set's traffic is the weight of all keys whose hashes choose it:
/// * a listed key's weight is at least `count - error` and at most `count`;
/// * a key that is not listed weighs at most the lightest count of its set, which is at most 1/8 of the set's traffic: so any key
///   with more than that is listed. With one set this is Metwally's theorem (a key above N/m is listed, m = 8); with s sets and a good hash a set's
///   traffic is about N/s, plus its heavy keys, and those hold their places and leave seven or fewer to the rest;
/// * [`top`](Self::top) says what every key that it does not show weighs at most. That is the figure to look at: where it is below
///   the last one shown, the list is certainly the true one.
///
/// Counts end at 2^56 - 1; beyond that the upper bounds no longer hold.
#[derive(Debug)]
pub struct HeavyHitters<const W: usize> {
    words: Table<u64>,
    sets: usize,
    total: u64,
}

/// One heavy key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hitter<const W: usize> {
    /// The key.
    pub key: Key<W>,
    /// It weighs no less.
    pub at_least: u64,
    /// It weighs no more.
    pub at_most: u64,
}

/// The heaviest keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Top<const W: usize> {
    /// By upper bound, the largest first.
    pub hitters: Vec<Hitter<W>>,
    /// No other key weighs more than this.
    pub others_at_most: u64,
}

/// A set, cut out of the table.
struct Set<'a, const W: usize> {
    heads: &'a mut [u64; WAYS],
    keys: &'a mut [u64],
    errors: &'a mut [u64],
}

impl<const W: usize> HeavyHitters<W> {
    const SET_WORDS: usize = WAYS * (W + 2);

    /// A summary of at least `entries` keys. Forty times as many as you want to see is a good beginning: 4,096 list all of the 100 heaviest of
    /// a million flows that follow Zipf's law, 1,024 list 76 of them (`examples/summaries.rs`).
    ///
    /// # Errors
    /// [`SizeError`].
    pub fn new(entries: usize) -> Result<Self, SizeError> {
        let sets = entries.div_ceil(WAYS).max(1);
        if sets > MOST_SETS {
            return Err(SizeError::TooMany { asked: entries, most: MOST_SETS.saturating_mul(WAYS) });
        }
        Ok(HeavyHitters { words: words(sets.saturating_mul(Self::SET_WORDS))?, sets, total: 0 })
    }

    #[inline(always)]
    fn set(&mut self, at: usize) -> Set<'_, W> {
        let words = &mut self.words[at * Self::SET_WORDS..][..Self::SET_WORDS];
        let (heads, rest) = words.as_chunks_mut::<WAYS>().0.split_at_mut(1);
        let (keys, errors) = rest.as_flattened_mut().split_at_mut(WAYS * W);
        Set { heads: &mut heads[0], keys, errors }
    }

    /// A packet, or `weight` bytes, of a key.
    #[inline]
    pub fn add(&mut self, hash: u64, key: &Key<W>, weight: u64) {
        self.total = self.total.saturating_add(weight);
        let set = self.set(place(hash, self.sets));
        let tag = hash & TAG;
        // No branch depends on the way: which one it is, nobody can predict.
        let mut same =
            (0..WAYS).fold(0u32, |same, way| same | u32::from(set.heads[way] as u8 == tag as u8) << way);
        while same != 0 {
            let way = same.trailing_zeros() as usize;
            // An empty entry is a key of weight 0, and stays right if it happens to be this one.
            if set.keys[way * W..][..W] == key.0 {
                set.heads[way] = head((set.heads[way] >> TAG_BITS).saturating_add(weight), tag);
                return;
            }
            same &= same - 1;
        }
        if weight == 0 {
            return;
        }
        let lightest = (0..WAYS).map(|way| set.heads[way] & !TAG | way as u64).fold(u64::MAX, u64::min);
        let (count, way) = (lightest >> TAG_BITS, (lightest & TAG) as usize % WAYS);
        set.heads[way] = head(count.saturating_add(weight), tag);
        set.errors[way] = count;
        set.keys[way * W..][..W].copy_from_slice(&key.0);
    }

    /// Many packets, with their sets fetched ahead. The slices have one length: what is beyond the shortest is left out.
    pub fn add_batch(&mut self, hashes: &[u64], keys: &[Key<W>], weights: &[u64]) {
        for ((hashes, keys), weights) in
            hashes.chunks(AHEAD).zip(keys.chunks(AHEAD)).zip(weights.chunks(AHEAD))
        {
            for &hash in hashes {
                let set = &self.words[place(hash, self.sets) * Self::SET_WORDS..];
                // Heads, the first keys, and the errors, which are written if the key is new.
                prefetch_read(&set[0]);
                prefetch_read(&set[WAYS]);
                prefetch_read(&set[WAYS * (W + 1)]);
            }
            for ((&hash, key), &weight) in hashes.iter().zip(keys).zip(weights) {
                self.add(hash, key, weight);
            }
        }
    }

    /// What a key weighs: `Hitter { at_least: 0, .. }` if it is not listed.
    pub fn get(&self, hash: u64, key: &Key<W>) -> Hitter<W> {
        let at = place(hash, self.sets);
        let mut lightest = MOST;
        for entry in self.entries(at) {
            if entry.key == *key && entry.at_most > 0 {
                return entry;
            }
            lightest = lightest.min(entry.at_most);
        }
        Hitter { key: *key, at_least: 0, at_most: lightest }
    }

    /// All entries of a set, also the empty ones (`at_most: 0`).
    fn entries(&self, set: usize) -> impl Iterator<Item = Hitter<W>> {
        let words = &self.words[set * Self::SET_WORDS..][..Self::SET_WORDS];
        (0..WAYS).map(move |way| {
            let at_most = words[way] >> TAG_BITS;
            let key = Key(std::array::from_fn(|word| words[WAYS + way * W + word]));
            Hitter { key, at_least: at_most - words[WAYS * (W + 1) + way], at_most }
        })
    }

    /// The `k` heaviest keys, fewer if there are not so many. It costs a pass over the summary.
    pub fn top(&self, k: usize) -> Top<W> {
        let (mut hitters, mut unlisted) = (Vec::new(), 0);
        for set in 0..self.sets {
            unlisted = unlisted.max(self.entries(set).map(|entry| entry.at_most).min().unwrap_or(0));
            hitters.extend(self.entries(set).filter(|entry| entry.at_most > 0));
        }
        hitters.sort_unstable_by_key(|hitter| (Reverse(hitter.at_most), hitter.key));
        let next = hitters.get(k).map_or(0, |hitter| hitter.at_most);
        hitters.truncate(k);
        Top { hitters, others_at_most: unlisted.max(next) }
    }

    /// The weight of everything that has passed.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Entries that there are.
    pub fn capacity(&self) -> usize {
        self.sets * WAYS
    }

    /// Bytes that the summary occupies.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// As new: a window of time is over.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.total = 0;
    }

    /// Halves all weights: called once per window, recent windows count more than old ones. The bounds then hold for the halved weights.
    pub fn halve(&mut self) {
        for at in 0..self.sets {
            let set = self.set(at);
            for (entry, error) in set.heads.iter_mut().zip(set.errors) {
                let count = *entry >> TAG_BITS;
                // The upper bound is rounded up and the lower one down.
                let (most, least) = (count.div_ceil(2), (count - *error) / 2);
                (*entry, *error) = (head(most, *entry & TAG), most - least);
            }
        }
        self.total /= 2;
    }

    /// Adds what another has seen that has as many sets and was fed with the same hash (Agarwal et al., "Mergeable Summaries", PODS 2012). A
    /// key that only one of them lists may weigh, in the other, as much as the lightest there.
    ///
    /// # Errors
    /// [`Mismatch`]: nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Mismatch> {
        if self.sets != other.sets {
            return Err(Mismatch);
        }
        for at in 0..self.sets {
            let ours = listed(self, at);
            let theirs = listed(other, at);
            let mut all: Vec<(Hitter<W>, u64)> = Vec::with_capacity(2 * WAYS);
            for (list, beside) in [(&ours, &theirs), (&theirs, &ours)] {
                for &(hitter, tag) in &list.0 {
                    let same = beside.0.iter().find(|(other, _)| other.key == hitter.key);
                    if all.iter().all(|(known, _)| known.key != hitter.key) {
                        let (least, most) = same.map_or((0, beside.1), |(h, _)| (h.at_least, h.at_most));
                        let at_most = hitter.at_most.saturating_add(most).min(MOST);
                        let at_least = hitter.at_least.saturating_add(least).min(at_most);
                        all.push((Hitter { at_least, at_most, ..hitter }, tag));
                    }
                }
            }
            // The heaviest stay, so none that goes weighs more than the lightest that stays.
            all.sort_unstable_by_key(|(hitter, _)| (Reverse(hitter.at_most), hitter.key));
            let set = self.set(at);
            for (way, (hitter, tag)) in all.into_iter().take(WAYS).enumerate() {
                set.heads[way] = head(hitter.at_most, tag);
                set.errors[way] = hitter.at_most - hitter.at_least;
                set.keys[way * W..][..W].copy_from_slice(&hitter.key.0);
            }
        }
        self.total = self.total.saturating_add(other.total);
        Ok(())
    }
}

/// The keys of a set with their tags, and the most that any other weighs.
fn listed<const W: usize>(summary: &HeavyHitters<W>, set: usize) -> (Vec<(Hitter<W>, u64)>, u64) {
    let heads = &summary.words[set * HeavyHitters::<W>::SET_WORDS..];
    let tagged = summary.entries(set).zip(heads).map(|(entry, head)| (entry, head & TAG));
    let lightest = summary.entries(set).map(|entry| entry.at_most).min().unwrap_or(0);
    (tagged.filter(|(entry, _)| entry.at_most > 0).collect(), lightest)
}

#[inline(always)]
fn head(count: u64, tag: u64) -> u64 {
    count.min(MOST) << TAG_BITS | tag
}
