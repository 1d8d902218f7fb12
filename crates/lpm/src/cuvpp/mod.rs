//! CuVPP: a cuckoo filter says which prefix lengths of a key are worth asking for. IPv4 and IPv6, to the last bit.
//!
//! Source: M. Kwon, K. P. Neupane, J. Marshall and M. M. Rafique, "CuVPP: filter-based longest prefix matching in software data
//! planes". The filter: see `filter.rs`; what is behind it: [`crate::hashlengths`].
//!
//! # Memory
//! ```text
//! filter   buckets of 4 fingerprints of 16 bits, over (prefix, length)        2.7 bytes for a prefix when made, three quarters full
//! table    (prefix, length) -> label, as in `hashlengths`                     asked where the filter says "maybe"
//!
//! key 2001:db8:1:2::1, lengths 64, 48, 32:
//!   /64 -> fingerprint 5d1c in buckets 17, 4: no
//!   /48 -> fingerprint 90b3 in buckets 3, 60: bucket 60 has it --> table: label 2
//! ```
//! # Cost
//! For each length down to the answer's one or two buckets of 8 bytes, whose addresses are known beforehand; then a bucket of the
//! table of 64 bytes. At a load of 3/4 a length without a prefix goes to the table with a probability of 6 / 2^16: with 31
//! lengths one lookup in 350 asks once for nothing, if no prefix ends it before. A change stores one entry of the table and one
//! fingerprint of 2 bytes, and another one for every cuckoo move.
//!
//! [`CuVppSimd`] (`cuvpp-simd`) is the same structure with a kernel for bursts that asks for eight lengths of a key at once: all eight
//! are hashed from three loads, and their sixteen buckets are compared at once. See `burst.rs`, and [`crate::cuvpplengths`] for the other way
//! to ask for less.
//!
//! # Limits
//! Prefixes that are chosen to have one hash make lookups slow, not wrong: see [`hash`](crate::hashlengths::hash), whose hash is the paper's and has no key.
//!
//! # Invariants
//! 1. The filter has one fingerprint for every prefix in the table, in one of its two buckets or beside them.
//! 2. More than 8 prefixes of one fingerprint and the same buckets are counted and cost a lookup nothing; the stash, which every
//!    question asks, has those that fit nowhere and have no equal in the buckets.
//! 3. A filter is loaded to 9/10 at most: then one that is half again as large is made.
//!
//! Where we depart from the source: the published code drops a fingerprint when it runs out of moves, and answers wrongly from then
//! on; here nothing is lost. The filter has the size of the table ([`PAPER_SLOTS`] is the paper's, for [`CuVpp::build`]), and any
//! number of buckets: the other bucket is a difference, not an exclusive or, which wants a power of two, and 3 M is none. The
//! whole address is hashed, not its first 64 bits. Bucket and fingerprint are of two CRCs: one of 32 bits names a bucket of 750,000 and has
//! 12 bits left to tell 2^16 fingerprints apart. Only lengths that exist are asked for, and the search ends at the first one that the table
//! confirms. The paper's 16,987,150 questions for 500,000 lookups, 33.97 each, are what keys at random ask of 34 lengths, most of which
//! have no prefix: we count 16,976,000 to 16,993,000 (and 5.2 million for keys inside the prefixes). Its 148,800 false positives
//! are not sound: with its 6 MB we count 93 (500,000 prefixes) and 432 (2 M) for such keys.

mod burst;
mod filter;
#[cfg(target_arch = "x86_64")]
mod simd;
#[cfg(test)]
mod tests;

pub use burst::{CuVppSimd, Kernel, simd_writer};
pub use filter::{CuckooFilter, Fingerprint, Full, Item, KICKS};

use crate::copies;
use crate::fib::{Built, Label};
use crate::hashlengths::hash::hash;
use crate::hashlengths::{PerLength, Screen};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// Slots of the paper's filter: 6 MB.
pub const PAPER_SLOTS: usize = 3_000_000;

/// How full a filter is when it is made, and when a larger one is made.
const LOADS: [f64; 2] = [0.75, 0.9];

/// A hash table of prefixes behind a cuckoo filter.
///
/// ```
/// use tidemill_lpm::cuvpp::{CuVpp, CuckooFilter, Fingerprint, PAPER_SLOTS};
/// use tidemill_lpm::hashlengths::Trace;
/// use tidemill_lpm::{Label, Rib};
///
/// let mut rib = Rib::<u128>::new();
/// rib.insert("2001:db8::/32".parse().unwrap(), Label(1));
/// rib.insert("2001:db8:1::/48".parse().unwrap(), Label(2));
/// let filter = CuckooFilter::new(PAPER_SLOTS / 4, Fingerprint::Crc32c);
/// let (fib, trace) = (CuVpp::build(&rib, filter), Trace::default());
/// assert_eq!(fib.lookup_traced(0x2001_0db8_u128 << 96, &trace), Label(1));
/// assert_eq!((trace.filter_probes(), trace.fib_probes()), (2, 1));
/// ```
pub type CuVpp<A> = PerLength<A, CuckooFilter<4>>;

/// Builds a [`CuVpp`] of `rib` with a filter that has its size, and its writer.
///
/// # Errors
/// None.
pub fn writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(sized(rib))
}

/// With a filter that has the table's size.
fn sized<A: Address>(rib: &Rib<A>) -> CuVpp<A> {
    CuVpp::build(rib, CuckooFilter::for_items(rib.len(), LOADS[0], Fingerprint::default()))
}

impl<A: Address> CuVpp<A> {
    /// The label of the default route.
    #[cfg(target_arch = "x86_64")]
    fn lookup_default(&self) -> Label {
        let default = Prefix::<A>::DEFAULT;
        Label(self.table.get(hash(default), default.first(), 0, &()).unwrap_or(0))
    }
}

impl<const SLOTS: usize> Screen for CuckooFilter<SLOTS> {
    const NAME: &'static str = "cuvpp";

    #[inline(always)]
    fn may_contain<P: Probe + ?Sized>(&self, hash: u64, probe: &P) -> bool {
        self.contains(hash, probe)
    }

    fn insert<P: Probe + ?Sized>(&mut self, hash: u64, probe: &P) {
        self.insert_always(hash, probe);
    }

    fn remove<P: Probe + ?Sized>(&mut self, hash: u64, probe: &P) {
        CuckooFilter::remove(self, hash, probe);
    }

    fn larger(&self, prefixes: usize) -> Option<Self> {
        let crowded = prefixes as f64 > LOADS[1] * self.slots() as f64;
        // At 9/10 of one, 6/10 of the next.
        crowded.then(|| Self::for_items(prefixes + 4, LOADS[1] / 1.5, self.fingerprint()))
    }

    fn collapse(&self) {
        CuckooFilter::collapse(self);
    }

    fn bytes(&self) -> usize {
        CuckooFilter::bytes(self)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("filter_bytes", self.bytes() as f64),
            ("filter_load", self.load()),
            ("cuckoo_moves", self.moves() as f64),
            ("stashed", self.stashed() as f64),
            ("stash_entries", self.stash_entries() as f64),
        ]
    }
}
