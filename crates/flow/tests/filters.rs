//! The filters against exact models: never a false negative, the rate that was promised, nothing lost.

use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use tidemill_flow::filter::{Bloom, CountingBloom, CuckooFilter, FilterError, Mismatch};
use tidemill_flow::hash::mix;
use tidemill_flow::table::SizeError;

/// Different good hashes for every seed.
fn hashes(seed: u64, n: usize) -> impl Iterator<Item = u64> {
    (0..n as u64).map(move |i| mix(mix(seed) ^ i))
}

/// How many of these are wrongly found.
fn wrong(n: usize, batch: impl Fn(&[u64], &mut [bool])) -> usize {
    let strangers: Vec<u64> = hashes(0xabcd, n).collect();
    let mut out = vec![true; n];
    batch(&strangers, &mut out);
    out.into_iter().filter(|&yes| yes).count()
}

#[test]
fn bloom_filters_keep_their_rate_and_miss_nothing() {
    for (items, rate) in [(1, 0.01), (100, 0.1), (5000, 0.01), (40_000, 0.001), (100_000, 0.5)] {
        let mut bloom = Bloom::new(items, rate).unwrap();
        let mut counting = CountingBloom::new(items, rate).unwrap();
        let keys: Vec<u64> = hashes(1, items).collect();
        bloom.insert_batch(&keys);
        counting.insert_batch(&keys);
        assert!(keys.iter().all(|&key| bloom.contains(key) && counting.contains(key)));
        // 200,000 strangers: the promise, give or take a third and twenty.
        let tries = 200_000;
        for (name, n) in [
            ("bloom", wrong(tries, |h, o| bloom.contains_batch(h, o))),
            ("counting", wrong(tries, |h, o| counting.contains_batch(h, o))),
        ] {
            let most = tries as f64 * rate;
            assert!(n as f64 <= most * 1.33 + 20.0, "{name} {items} {rate}: {n} of {tries}");
            assert!(items < 1000 || n as f64 >= most / 1.5 - 20.0, "{name} {items} {rate}: only {n}");
        }
        // Twice as many keys as planned: the rate is what it says then.
        bloom.insert_batch(&hashes(2, items).collect::<Vec<_>>());
        let n = wrong(tries, |h, o| bloom.contains_batch(h, o)) as f64 / tries as f64;
        let expected = bloom.expected_rate(2 * items);
        assert!(
            items < 1000 || (expected / 1.3..expected * 1.3).contains(&n),
            "{items} {rate}: {n} {expected}"
        );
        assert!(bloom.fill() > 0.0 && bloom.fill() < 1.0);
        bloom.clear();
        assert_eq!(wrong(1000, |h, o| bloom.contains_batch(h, o)), 0);
    }
}

#[test]
fn unions_hold_what_both_held() {
    let (left, right): (Vec<u64>, Vec<u64>) = (hashes(1, 3000).collect(), hashes(2, 3000).collect());
    let make = || (Bloom::new(6000, 0.01).unwrap(), CountingBloom::new(6000, 0.01).unwrap());
    let ((mut a, mut x), (mut b, mut y)) = (make(), make());
    a.insert_batch(&left);
    b.insert_batch(&right);
    x.insert_batch(&left);
    y.insert_batch(&right);
    a.union(&b).unwrap();
    x.union(&y).unwrap();
    assert!(left.iter().chain(&right).all(|&key| a.contains(key) && x.contains(key)));
    // Counts were added: one half goes, the other stays.
    assert!(left.iter().all(|&key| x.remove(key)) && right.iter().all(|&key| x.contains(key)));
    let still = left.iter().filter(|&&key| x.contains(key)).count();
    assert!(still < 100, "{still} of 3000 are still there");
    assert_eq!(a.union(&Bloom::new(1, 0.01).unwrap()), Err(Mismatch));
    assert_eq!(x.union(&CountingBloom::new(6000, 0.5).unwrap()), Err(Mismatch));
}

#[test]
fn counters_that_overflow_stick_and_hide_nobody() {
    let mut filter = CountingBloom::new(64, 0.01).unwrap();
    let (flood, others) = (mix(7), hashes(3, 64).collect::<Vec<_>>());
    filter.insert_batch(&others);
    for _ in 0..1000 {
        filter.insert(flood);
    }
    assert!(filter.stuck() > 0);
    for _ in 0..1000 {
        assert!(filter.remove(flood), "its counters are stuck: it stays");
    }
    assert!(others.iter().all(|&key| filter.contains(key)));
    filter.clear();
    assert!(filter.stuck() == 0 && !filter.contains(flood));
}

#[test]
fn removing_a_stranger_changes_nothing() {
    let mut filter = CountingBloom::new(1000, 0.01).unwrap();
    let keys: Vec<u64> = hashes(1, 1000).collect();
    filter.insert_batch(&keys);
    let strangers: Vec<u64> = hashes(9, 10_000).filter(|&h| !filter.contains(h)).collect();
    assert!(strangers.len() > 9000);
    assert!(strangers.iter().all(|&h| !filter.remove(h)));
    assert!(keys.iter().all(|&key| filter.contains(key)));
    // Everything out again: empty, with no counter below 0.
    assert!(keys.iter().all(|&key| filter.remove(key)));
    assert_eq!(wrong(10_000, |h, o| filter.contains_batch(h, o)), 0);
}

#[test]
fn cuckoo_filters_take_what_they_were_made_for() {
    for items in [0, 1, 2, 7, 50, 333, 1000, 4096, 50_000] {
        for seed in 0..if items < 5000 { 50 } else { 2 } {
            let mut filter = CuckooFilter::new(items).unwrap();
            let keys: Vec<u64> = hashes(seed, items).collect();
            assert_eq!(filter.insert_batch(&keys), items, "{items} keys, seed {seed}");
            assert!(keys.iter().all(|&key| filter.contains(key)));
            assert_eq!(filter.len(), items);
            assert!(keys.iter().all(|&key| filter.remove(key)));
            assert!(filter.is_empty() && !keys.iter().any(|&key| filter.contains(key)));
        }
    }
    // 16.8 bits per key, and 0.012 % when full.
    let filter = CuckooFilter::new(1_000_000).unwrap();
    assert!(filter.bytes() * 8 < 17_100_000);
}

#[test]
fn a_full_cuckoo_filter_fails_without_loss() {
    let mut filter = CuckooFilter::new(20_000).unwrap();
    let (mut inside, mut failed) = (Vec::new(), Vec::new());
    for hash in hashes(5, 25_000) {
        if filter.insert(hash).is_ok() { inside.push(hash) } else { failed.push(hash) }
    }
    let load = inside.len() as f64 / filter.capacity() as f64;
    assert!(!failed.is_empty() && load > 0.96, "{load}");
    assert!(inside.iter().all(|&key| filter.contains(key)));
    let n = wrong(1_000_000, |h, o| filter.contains_batch(h, o));
    let expected = filter.expected_rate() * 1e6;
    assert!((expected / 1.6..expected * 1.6).contains(&(n as f64)), "{n} of a million, expected {expected}");
    assert_eq!(filter.insert_batch(&failed), 0);
    assert!(inside.iter().all(|&key| filter.remove(key)) && filter.is_empty());
    filter.clear();
    assert_eq!(filter.insert_batch(&failed), failed.len());
}

#[test]
fn one_key_again_and_again_is_bounded() {
    for hash in [0, 1, u64::MAX, 0xffff_ffff, 0x8000_0000_0000_0000, mix(3)] {
        for items in [0, 1000] {
            let mut filter = CuckooFilter::new(items).unwrap();
            let times = (0..100).take_while(|_| filter.insert(hash).is_ok()).count();
            // Two buckets, or twice the same one.
            assert!(times == 8 || times == 4, "{hash:#x}: {times} times");
            assert!((0..times).all(|_| filter.contains(hash) && filter.remove(hash)));
            assert!(!filter.contains(hash) && !filter.remove(hash) && filter.is_empty());
        }
    }
}

#[test]
fn what_cannot_be_made_is_an_error() {
    assert!(matches!(Bloom::new(10, f64::NAN), Err(FilterError::Rate(_))));
    assert_eq!(
        CountingBloom::new(10, 1.5).unwrap_err().to_string(),
        "a false-positive rate of 1.5: give one from 0.000001 to 0.5"
    );
    assert!(matches!(CuckooFilter::new(usize::MAX), Err(SizeError::TooMany { .. })));
    assert!(matches!(Bloom::new(usize::MAX, 0.01), Err(FilterError::Size(SizeError::TooMany { .. }))));
}

/// Few different hashes, among them the worst, so that they meet.
fn any_hash() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..40u64).prop_map(mix),
        // One bucket, many fingerprints; one fingerprint, many buckets.
        (0..40u64),
        (0..40u64).prop_map(|i| i << 58),
        Just(u64::MAX),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// What is in, by an exact count, is found, whatever was done before; what fails changes nothing.
    #[test]
    fn nothing_is_lost(items in 1..60usize, operations in prop::collection::vec((any_hash(), 0..5u8), 0..400)) {
        let mut cuckoo = CuckooFilter::new(items).unwrap();
        let mut counting = CountingBloom::new(items, 0.1).unwrap();
        let mut bloom = Bloom::new(items, 0.1).unwrap();
        let (mut model, mut counts, mut seen) = (BTreeMap::new(), BTreeMap::new(), HashSet::new());
        for (hash, what) in operations {
            if what < 3 {
                if cuckoo.insert(hash).is_ok() {
                    *model.entry(hash).or_insert(0) += 1;
                }
                counting.insert(hash);
                *counts.entry(hash).or_insert(0) += 1;
                prop_assert_eq!(bloom.contains(hash), bloom.insert(hash));
                seen.insert(hash);
            } else {
                // Only what was put in is taken out.
                if let Some(n) = model.get_mut(&hash).filter(|n| **n > 0) {
                    prop_assert!(cuckoo.remove(hash));
                    *n -= 1;
                }
                if let Some(n) = counts.get_mut(&hash).filter(|n| **n > 0) {
                    prop_assert!(counting.remove(hash));
                    *n -= 1;
                }
            }
            prop_assert_eq!(cuckoo.len(), model.values().sum::<usize>());
            for (&hash, _) in model.iter().filter(|(_, n)| **n > 0) {
                prop_assert!(cuckoo.contains(hash), "the cuckoo filter lost {:#x}", hash);
            }
            for (&hash, _) in counts.iter().filter(|(_, n)| **n > 0) {
                prop_assert!(counting.contains(hash), "the counting filter lost {:#x}", hash);
            }
            prop_assert!(seen.iter().all(|&hash| bloom.contains(hash)));
        }
    }
}
