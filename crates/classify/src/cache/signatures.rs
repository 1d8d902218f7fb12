//! The signature cache: of more keys than there is room for as exact matches, which mask's megaflow had them last.
//!
//! ```text
//! hash    | 63 ... 32: bucket | 31 ... 16: signature | 15 ... 0: the exact match's tag |
//! bucket  | signature, mask | ... | ... | ... |                                     4 ways of 4 bytes; 4 buckets a line
//! ```
//!
//! Open vSwitch's (`smc`, since 2.10) has 16 bits of a key's hash and a megaflow's number. Here it is the number of the megaflow's mask, and the
//! megaflow is then asked for as ever: whatever stands here is a hint where to begin, and can be neither stale nor wrong. What it saves are
//! the masks before the right one, so it is not asked while filters tell which that is (`near.rs`).

use std::io;
use tidemill_lookup::mem::Table;
use tidemill_lookup::prefetch::prefetch_read;

/// Ways of a bucket.
const WAYS: usize = 4;

/// The cache.
pub(super) struct Signatures {
    /// Signature, and mask's number + 1; 0 where there is nothing.
    ways: Table<u32>,
    buckets: u64,
}

impl Signatures {
    /// Room for so many keys, rounded up to whole buckets.
    pub(super) fn new(keys: usize) -> io::Result<Self> {
        let buckets = keys.div_ceil(WAYS).max(1);
        Ok(Signatures { ways: Table::new(buckets * WAYS)?, buckets: buckets as u64 })
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.ways)
    }

    #[inline(always)]
    fn start(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets) >> 32) as usize * WAYS
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch_read(&raw const self.ways[self.start(hash)]);
    }

    /// The mask of the key with this hash, perhaps.
    #[inline(always)]
    pub(super) fn get(&self, hash: u64) -> Option<u16> {
        let (start, signature) = (self.start(hash), (hash >> 16) as u16);
        let ways = &self.ways[start..start + WAYS];
        let way = ways.iter().find(|&&way| (way >> 16) as u16 == signature && way as u16 != 0)?;
        Some(*way as u16 - 1)
    }

    /// A megaflow of this mask has the key with this hash.
    #[inline(always)]
    pub(super) fn put(&mut self, hash: u64, mask: u16) {
        let (start, signature) = (self.start(hash), (hash >> 16) as u16);
        let ways = &mut self.ways[start..start + WAYS];
        let same = ways.iter().position(|&way| (way >> 16) as u16 == signature || way as u16 == 0);
        // None free: whoever lies where the hash's last bits say.
        let at = same.unwrap_or(hash as usize % WAYS);
        ways[at] = u32::from(signature) << 16 | u32::from(mask + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_until_a_bucket_has_too_many() {
        let mut signatures = Signatures::new(100).unwrap();
        let hash = |bucket: u64, signature: u64, low: u64| {
            (bucket << 32).div_ceil(signatures.buckets) << 32 | signature << 16 | low
        };
        let hashes: Vec<u64> = (0..5).map(|i| hash(7, i, 2)).collect();
        let (other, of_zero) = (hash(8, 3, 1), hash(9, 0, 0));
        assert_eq!(signatures.bytes(), 400);
        assert_eq!(signatures.get(of_zero), None, "nothing is there, and no signature of zero");
        for (number, &hash) in (0..).zip(&hashes[..4]) {
            signatures.put(hash, number);
        }
        signatures.put(other, 9);
        signatures.put(hashes[1], 0x3ffe);
        let all = [hashes[0], hashes[1], hashes[2], hashes[3], other].map(|hash| signatures.get(hash));
        assert_eq!(all, [Some(0), Some(0x3ffe), Some(2), Some(3), Some(9)]);
        signatures.put(hashes[4], 4);
        assert_eq!([hashes[2], hashes[4], hashes[3]].map(|h| signatures.get(h)), [None, Some(4), Some(3)]);
    }
}
