//! The paper's four structures, with filters of its size, and what is quicker; the keys that are asked for.

use crate::bench::figures::Setting;
use crate::bench::figures::measure::{Built, build};
use anyhow::Result;
use std::sync::Arc;
use tidemill_lpm::bloomlpm::{BloomFilter, BloomLpm, K, PAPER_BITS};
use tidemill_lpm::cuvpp::{CuVpp, CuVppSimd, CuckooFilter, Fingerprint, PAPER_SLOTS};
use tidemill_lpm::cuvpplengths::CuVppLengths;
use tidemill_lpm::keys::{Pattern, Random, keys};
use tidemill_lpm::{Fib, Rib};

/// Base VPP, VPP with a Bloom filter, VPP with a trie, CuVPP: how many of [`all`] are the paper's.
pub(super) const PAPERS: usize = 4;

/// Which keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Any address.
    Random,
    /// Every prefix with the same probability, then any address inside: the paper's "prefix-compliant".
    Inside,
}

impl Traffic {
    pub(super) fn name(self) -> &'static str {
        match self {
            Traffic::Random => "random keys",
            Traffic::Inside => "keys inside prefixes",
        }
    }

    pub(super) fn keys(self, rib: &Rib<u128>, count: usize, seed: u64) -> Vec<u128> {
        // Tables are drawn with the seed itself: the same numbers would be addresses of prefixes.
        let seed = !seed;
        match self {
            Traffic::Random => {
                let mut random = Random::new(seed);
                (0..count).map(|_| random.address()).collect()
            }
            Traffic::Inside => keys(rib, Pattern::PrefixBased, count, seed),
        }
    }
}

/// The paper's lookups.
pub(super) const LOOKUPS: usize = 500_000;

/// Lookups, as many as the paper has; fewer if the user wants fewer.
pub(super) fn lookups(setting: &Setting<'_>) -> usize {
    setting.args.lookups().min(LOOKUPS)
}

/// The paper's Bloom filter, empty: 6 MB. It does not say how many bits a prefix sets, but that there are more than two.
pub(super) fn bloom_filter() -> BloomFilter {
    BloomFilter::new(PAPER_BITS, K)
}

/// The paper's cuckoo filter, empty: 6 MB, 3 million fingerprints.
pub(super) fn cuckoo_filter() -> CuckooFilter<4> {
    CuckooFilter::new(PAPER_SLOTS / 4, Fingerprint::default())
}

fn built(name: &str, fib: impl Fib<u128> + 'static) -> Built<u128> {
    Built { name: name.to_owned(), fib: Arc::new(fib), build_ms: Vec::new() }
}

/// The paper's four in its order, then those of ours that find the length in fewer steps. All cuckoo filters are the paper's; that of
/// `cuvpp-lengths` grows where it has to hold more markers than fit.
///
/// # Errors
/// A structure that cannot hold the table.
pub(super) fn all(setting: &Setting<'_>, rib: &Rib<u128>) -> Result<Vec<Built<u128>>> {
    let names = ["hash-per-length", "two-way-trie", "length-search"].map(String::from);
    let mut all = build(setting, rib, &names, 1)?;
    all.insert(1, built("bloom-lpm", BloomLpm::build(rib, bloom_filter())));
    all.insert(3, built("cuvpp", CuVpp::build(rib, cuckoo_filter())));
    all.push(built("cuvpp-simd", CuVppSimd::new(CuVpp::build(rib, cuckoo_filter()))));
    all.push(built("cuvpp-lengths", CuVppLengths::with_filter(rib, cuckoo_filter())?));
    Ok(all)
}
