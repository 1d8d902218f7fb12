//! Filters: is this key perhaps in a set that is too large to keep? "No" is always true; "yes" is wrong at a known rate.
//!
//! | filter | lines per query | bits per key at 1 % | takes keys out | made for |
//! |---|---|---|---|---|
//! | [`Bloom`] | 1 | 10.0 | no | bypass lists, "seen in this window": cleared or swapped, never picked from |
//! | [`CountingBloom`] | 1 | 43.9 | yes | sets that change and whose size may exceed the plan: it degrades, it is never full |
//! | [`CuckooFilter`] | 2 | 17.0 (and then 0.012 %) | yes | sets that change and whose size is known |
//!
//! All take the caller's 64-bit hash ([`crate::hash`]) and never see keys. They are for one thread: each worker has its own, and
//! the control side gets it whole (by a move, at a burst boundary) and [`union`](Bloom::union)s what it has got.
//!
//! The words of both Bloom filters lie in blocks of one cache line, and a key has all its places in one block:
//!
//! ```text
//! hash    | high 32 bits -> block |       all 64 bits, multiplied -> first word, then a place in each of k words   |
//! block   | word 0 | word 1 | word 2 | word 3 | word 4 | word 5 | word 6 | word 7 |      512 bits, one cache line
//!              ^        ^        ^                                   ^        ^   k = 5, first word 6
//! ```
//!
//! Source: Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (WEA 2007), section 3. We depart from it: the
//! k places are in k different words, so no two are the same, a counting filter never counts a key twice in one place, and k is
//! at most 8.
//!
//! # Beside the crates there are
//!
//! Medians of the ratios of 11 rounds in which all took turns (Intel Xeon, family 6 model 207, two busy cores, November 2026; bursts of 256, filters
//! for 1 %, queries half hits: `mixed` of `cargo run --release -p tidemill-flow --example summaries -- --filters`):
//!
//! | ours, batch | to | 2^16 keys | 2^24 keys |
//! |---|---|---|---|
//! | `Bloom` | fastbloom 0.17, unblocked, 9.6 bits per key | 1.8 (1.2 to 2.8) | 4.7 (3.4 to 6.5) |
//! | `CuckooFilter` | the same | 3.6 (2.0 to 7.5) | 2.5 (2.0 to 3.2) |
//! | `Bloom` | xorf 0.13, binary fuse, 9.0 bits per key, 0.4 % | 0.44 (0.26 to 0.85) | 2.2 (1.6 to 3.5) |
//! | `CuckooFilter` | the same | 0.97 (0.57 to 1.8) | 1.5 (0.74 to 2.1) |
//!
//! So ours are kept: a classic filter reads up to seven lines and has no batches. A binary fuse filter is better where a set is small and never changes (it is made
//! of all keys at once, at an eighth of the rate); no user of ours has such a set. `cargo xtask held 3` measures all of it anew and fails where one of ours is
//! slower than fastbloom; the ratios to xorf, and those of hits and of misses alone, it prints. Cardinality counters and heavy hitters have been compared with no crate; their pages say why they are ours.

mod blocked;
mod bloom;
mod counting;
mod cuckoo;

pub use bloom::Bloom;
pub use counting::CountingBloom;
pub use cuckoo::CuckooFilter;

use crate::table::SizeError;
use tidemill_lookup::mem::Table;

/// Why a filter cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// A rate that no filter here is made for.
    #[error("a false-positive rate of {0}: give one from 0.000001 to 0.5")]
    Rate(f64),
    /// Too many keys, or no memory.
    #[error(transparent)]
    Size(#[from] SizeError),
}

/// Two summaries that are to become one were not made with the same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("two summaries of different sizes cannot become one")]
pub struct Mismatch;

/// Queries that are under way at once in a batch.
pub(crate) const AHEAD: usize = 32;

/// A place from 0 to `n - 1`, by the high half of the hash. `n` is at most 2^32.
#[inline(always)]
pub(crate) fn place(hash: u64, n: usize) -> usize {
    (((hash >> 32) * n as u64) >> 32) as usize
}

/// `len` words, all zero.
pub(crate) fn words(len: usize) -> Result<Table<u64>, SizeError> {
    Table::new(len).map_err(|source| SizeError::Memory { bytes: len.saturating_mul(8), source })
}
