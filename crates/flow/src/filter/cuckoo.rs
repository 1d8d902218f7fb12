//! A cuckoo filter: fingerprints in a cuckoo table.

use super::{AHEAD, place, words};
use crate::table::{Full, SizeError};
use tidemill_lookup::mem::Table;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

/// Fingerprints of a bucket.
const SLOTS: usize = 4;
/// A 1 in each slot.
const ONES: u64 = 0x0001_0001_0001_0001;
/// Slots that are filled when as many keys are in as the filter was made for.
const LOAD: f64 = 0.94;
/// Buckets that an insertion looks at before it gives up.
const NODES: usize = 512;
/// Fingerprints that it moves at most.
const MOVES: u8 = 8;

/// A cuckoo filter (Fan, Andersen, Kaminsky, Mitzenmacher, CoNEXT 2014) with fingerprints of 16 bits. A bucket is one word:
///
/// ```text
/// hash     | high 32 bits -> bucket a |    ...    | low 16 bits -> fingerprint f, never 0 |
/// word a   | f or 0 | f or 0 | f or 0 | f or 0 |      the other bucket of f: b = H(f) - a, and so a = H(f) - b (mod buckets)
/// ```
///
/// A query reads two words and is wrong for at most 8 of 65,535 fingerprints: a rate of 0.012 % when full, at 17.0 bits per key. We
/// chose 16 bits because then a bucket is one word that is searched in four instructions; 12 bits would save a quarter and give 0.2 %.
///
/// Departures from the paper: the other bucket comes from a difference instead of an exclusive or, so any number of buckets will do; and an
/// insertion looks for the shortest way to a free slot before it moves anything (breadth first), so **no fingerprint is ever lost**:
/// an insertion that fails leaves the filter as it was. It looks at most at 512 words and writes at most 9; where one of the
/// first two buckets has a free slot, it reads at most two and writes one.
///
/// It counts: a key that is put in twice is to be taken out twice. There is room for 8 of one fingerprint in its two buckets, so the 9th
/// time fails with [`Full`]; who does not count asks [`contains`](Self::contains) first, and then never removes.
/// Taking out a key that is not in takes out another one whose fingerprint and bucket are the same, if there is one (which happens at the
/// false-positive rate), and that one is then missed. Take out only what you have put in.
#[derive(Debug)]
pub struct CuckooFilter {
    words: Table<u64>,
    len: usize,
}

/// A bucket that may make room, and how it was reached: by moving what is in `slot` of the bucket of node `parent`.
#[derive(Clone, Copy, Default)]
struct Node {
    bucket: u32,
    parent: u16,
    slot: u8,
    /// Moves from a bucket of the new key to here.
    depth: u8,
}

impl CuckooFilter {
    /// An empty filter for `items` keys, 94 % of its slots. Keys that spread evenly all find room (tested, not proven); more may.
    ///
    /// # Errors
    /// [`SizeError`].
    pub fn new(items: usize) -> Result<Self, SizeError> {
        // A small filter is a matter of luck: two buckets more.
        let buckets = (items as f64 / (SLOTS as f64 * LOAD)).ceil() + 2.0;
        if buckets > f64::from(u32::MAX) {
            let most = (f64::from(u32::MAX) * SLOTS as f64 * LOAD) as usize;
            return Err(SizeError::TooMany { asked: items, most });
        }
        Ok(CuckooFilter { words: words(buckets as usize)?, len: 0 })
    }

    #[inline(always)]
    fn fingerprint(hash: u64) -> u64 {
        (hash & 0xffff).max(1)
    }

    /// The bucket where a fingerprint goes that is not in this one.
    #[inline(always)]
    fn other(&self, bucket: usize, fingerprint: u64) -> usize {
        let n = self.words.len();
        let sum = place(fingerprint.wrapping_mul(0x9e37_79b9_7f4a_7c15), n);
        if sum >= bucket { sum - bucket } else { sum + n - bucket }
    }

    #[inline(always)]
    fn buckets(&self, hash: u64) -> (usize, usize, u64) {
        let fingerprint = Self::fingerprint(hash);
        let first = place(hash, self.words.len());
        (first, self.other(first, fingerprint), fingerprint)
    }

    /// Puts a key in, once more if it is there already.
    ///
    /// # Errors
    /// [`Full`]: nothing has changed.
    #[inline]
    pub fn insert(&mut self, hash: u64) -> Result<(), Full> {
        let (first, second, fingerprint) = self.buckets(hash);
        let (bucket, slot) = if let Some(slot) = find(self.words[first], 0) {
            (first, slot)
        } else if let Some(slot) = find(self.words[second], 0) {
            (second, slot)
        } else {
            self.make_room(first, second).ok_or(Full)?
        };
        self.words[bucket] |= fingerprint << (16 * slot);
        self.len += 1;
        Ok(())
    }

    /// Frees a slot in one of two full buckets by moving fingerprints to their other buckets; says which.
    #[cold]
    fn make_room(&mut self, first: usize, second: usize) -> Option<(usize, usize)> {
        let mut nodes = [Node::default(); NODES];
        nodes[0].bucket = first as u32;
        nodes[1].bucket = second as u32;
        let (mut next, mut len) = (0, 2);
        while next < len {
            let Node { bucket, depth, .. } = nodes[next];
            let word = self.words[bucket as usize];
            if let Some(free) = find(word, 0) {
                return Some(self.shift(&nodes, next, free));
            }
            for slot in 0..SLOTS {
                let to = self.other(bucket as usize, get(word, slot));
                if len < NODES && depth < MOVES {
                    prefetch_read(&self.words[to]);
                    nodes[len] =
                        Node { bucket: to as u32, parent: next as u16, slot: slot as u8, depth: depth + 1 };
                    len += 1;
                }
            }
            next += 1;
        }
        None
    }

    /// Moves one fingerprint along each step of the way to a node that has a free slot, from the far end. No bucket is twice on the
    /// way: where it was met first, the same four buckets were put into the queue before, so a shorter way was found before. So
    /// each bucket holds what it held when the way was found.
    fn shift(&mut self, nodes: &[Node; NODES], end: usize, free: usize) -> (usize, usize) {
        let (mut at, mut free) = (end, free);
        while at >= 2 {
            let node = nodes[at];
            let (from, slot) = (nodes[usize::from(node.parent)].bucket as usize, usize::from(node.slot));
            let moved = get(self.words[from], slot);
            self.words[node.bucket as usize] |= moved << (16 * free);
            self.words[from] &= !(0xffff << (16 * slot));
            (at, free) = (usize::from(node.parent), slot);
        }
        (nodes[at].bucket as usize, free)
    }

    /// Takes a key out once; `false`, and nothing has changed, if it is certain that it is not there.
    #[inline]
    pub fn remove(&mut self, hash: u64) -> bool {
        let (first, second, fingerprint) = self.buckets(hash);
        for bucket in [first, second] {
            if let Some(slot) = find(self.words[bucket], fingerprint) {
                self.words[bucket] &= !(0xffff << (16 * slot));
                self.len -= 1;
                return true;
            }
        }
        false
    }

    /// Whether a key is in the filter: `false` is certain.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        self.contains_probed(hash, &())
    }

    /// The same, telling a probe both words. A filter has no step that depends on another.
    #[inline]
    pub fn contains_probed<P: Probe>(&self, hash: u64, probe: &P) -> bool {
        let (first, second, fingerprint) = self.buckets(hash);
        [first, second].into_iter().fold(0, |found, bucket| {
            probe.step();
            probe.read(std::ptr::from_ref(&self.words[bucket]) as usize, 8, false);
            found | matches(self.words[bucket], fingerprint)
        }) != 0
    }

    /// [`contains`](Self::contains) of many keys, with their buckets fetched ahead. `out` is at least as long as `hashes`.
    pub fn contains_batch(&self, hashes: &[u64], out: &mut [bool]) {
        for (hashes, out) in hashes.chunks(AHEAD).zip(out.chunks_mut(AHEAD)) {
            hashes.iter().for_each(|&hash| self.prefetch(hash));
            for (&hash, out) in hashes.iter().zip(out) {
                *out = self.contains(hash);
            }
        }
    }

    /// Puts many keys in, with their buckets fetched ahead. How many went in: when that is less than `hashes.len()`, the filter is
    /// full, and the one at that place and all after it are not in.
    pub fn insert_batch(&mut self, hashes: &[u64]) -> usize {
        let mut done = 0;
        for hashes in hashes.chunks(AHEAD) {
            hashes.iter().for_each(|&hash| self.prefetch(hash));
            for &hash in hashes {
                if self.insert(hash).is_err() {
                    return done;
                }
                done += 1;
            }
        }
        done
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        let (first, second, _) = self.buckets(hash);
        prefetch_read(&self.words[first]);
        prefetch_read(&self.words[second]);
    }

    /// Everything out.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.len = 0;
    }

    /// Keys in the filter, each as often as it was put in.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Slots: [`len`](Self::len) cannot get beyond.
    pub fn capacity(&self) -> usize {
        self.words.len() * SLOTS
    }

    /// The false-positive rate to expect with what is in it now: one chance in 65,535 for each filled slot that is looked at.
    pub fn expected_rate(&self) -> f64 {
        let load = self.len as f64 / self.capacity() as f64;
        1.0 - (1.0 - 1.0 / 65_535.0f64).powf(2.0 * SLOTS as f64 * load)
    }

    /// Bytes that the filter occupies.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// The fingerprint in a slot.
#[inline(always)]
fn get(word: u64, slot: usize) -> u64 {
    word >> (16 * slot) & 0xffff
}

/// Not 0 if a slot holds this; the lowest bit that is set is then the top one of the first such slot (higher ones may be wrong).
#[inline(always)]
fn matches(word: u64, fingerprint: u64) -> u64 {
    let differences = word ^ (fingerprint * ONES);
    differences.wrapping_sub(ONES) & !differences & (ONES << 15)
}

/// The first slot that holds this; 0 finds a free one.
#[inline(always)]
fn find(word: u64, fingerprint: u64) -> Option<usize> {
    match matches(word, fingerprint) {
        0 => None,
        bits => Some((bits.trailing_zeros() / 16) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_lookup::probe::Recorder;

    #[test]
    fn the_other_bucket_of_the_other_bucket_is_the_first() {
        for items in [0, 1, 5, 100, 4096, 99_999] {
            let filter = CuckooFilter::new(items).unwrap();
            for i in 0..2000u64 {
                let (first, second, fingerprint) = filter.buckets(crate::hash::mix(i));
                assert!(first < filter.words.len() && second < filter.words.len());
                assert_eq!(filter.other(second, fingerprint), first);
            }
        }
    }

    #[test]
    fn a_query_is_two_words() {
        let mut filter = CuckooFilter::new(1000).unwrap();
        (0..500).for_each(|i| filter.insert(crate::hash::mix(i)).unwrap());
        let recorder = Recorder::new();
        let found = (0..1000).filter(|&i| filter.contains_probed(crate::hash::mix(i), &recorder)).count();
        let counts = recorder.counts();
        assert_eq!((counts.reads, counts.dependent_reads, counts.read_bytes), (2000, 0, 16_000));
        assert_eq!(found, (0..1000).filter(|&i| filter.contains(crate::hash::mix(i))).count());
        assert!((500..510).contains(&found), "{found}");
    }

    #[test]
    fn a_slot_is_found_exactly() {
        for word in [0, 1, 0x8000_0001_0000_ffff, 0x0001_0000_0001_0000, u64::MAX, 0x0100_0001_0001_0000] {
            for wanted in [0, 1, 2, 0x8000, 0xffff, 0x0100] {
                let slow = (0..4).find(|&slot| get(word, slot) == wanted);
                assert_eq!(find(word, wanted), slow, "{word:#x} {wanted:#x}");
            }
        }
    }

    #[test]
    fn insertions_write_a_bounded_number_of_words() {
        let mut filter = CuckooFilter::new(10_000).unwrap();
        let (mut worst, mut i) = (0, 0);
        loop {
            i += 1;
            let before: Vec<u64> = filter.words.to_vec();
            let failed = filter.insert(crate::hash::mix(i)).is_err();
            if i < 9000 {
                continue;
            }
            let changed = before.iter().zip(&*filter.words).filter(|(a, b)| a != b).count();
            worst = worst.max(changed);
            if failed {
                assert_eq!(changed, 0);
                break;
            }
        }
        assert!((3..=9).contains(&worst), "{worst} words written");
        assert!(filter.len() >= 9_900, "{} of {}", filter.len(), filter.capacity());
    }
}
