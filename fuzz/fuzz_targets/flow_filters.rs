//! Any sequence of operations on the summaries of `tidemill-flow`, against exact counts: the filters never miss what is in, a
//! cuckoo filter that is full has lost nothing, and what the heavy hitters and the sketch say of a key holds.
//!
//! Input: a byte for the sizes, one for how keys become hashes (well, badly, worst), then records of three bytes: what to do, the
//! key, and a weight.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use tidemill_flow::cardinality::{HyperLogLog, LinearCounter};
use tidemill_flow::filter::{Bloom, CountingBloom, CuckooFilter};
use tidemill_flow::hash::mix;
use tidemill_flow::heavy::{CountMin, HeavyHitters};
use tidemill_flow::key::Key;

/// A key's hash: always the same one, but not always a good one.
fn hash(kind: u8, key: u8) -> u64 {
    let key = u64::from(key);
    match kind % 6 {
        0 => mix(key),
        1 => key,
        2 => key << 56,
        3 => (key & 0xf0) << 40 | key & 0x0f,
        4 => 0,
        _ => u64::MAX,
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[size, kind], records)) = data.split_first_chunk::<2>() else { return };
    let items = usize::from(size % 64);
    let rate = [0.5, 0.1, 0.01, 1e-6][usize::from(size >> 6)];
    let (Ok(mut bloom), Ok(mut counting), Ok(mut cuckoo)) =
        (Bloom::new(items, rate), CountingBloom::new(items, rate), CuckooFilter::new(items))
    else {
        return;
    };
    let (Ok(mut heavy), Ok(mut sketch)) = (HeavyHitters::<2>::new(items), CountMin::new(items)) else {
        return;
    };
    let (Ok(mut log), Ok(mut linear)) =
        (HyperLogLog::new(4 + u32::from(size % 9)), LinearCounter::new(items * 8))
    else {
        return;
    };
    let (mut seen, mut counts, mut inside) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut weights: BTreeMap<u8, u64> = BTreeMap::new();
    let records = records.as_chunks::<3>().0;
    for (i, record) in records.iter().take(400).enumerate() {
        let [what, key, weight] = record;
        let (h, weight) = (hash(kind, *key), u64::from(*weight) << (what >> 3));
        match what % 8 {
            0..=3 => {
                assert_eq!(bloom.contains(h), bloom.insert(h));
                counting.insert(h);
                let len = cuckoo.len();
                let put = cuckoo.insert(h).is_ok();
                assert_eq!(cuckoo.len(), len + usize::from(put));
                *inside.entry(h).or_insert(0u32) += u32::from(put);
                *counts.entry(h).or_insert(0u32) += 1;
                seen.insert(h, ());
            }
            4 => {
                if let Some(n) = counts.get_mut(&h).filter(|n| **n > 0) {
                    assert!(counting.remove(h));
                    *n -= 1;
                }
                if let Some(n) = inside.get_mut(&h).filter(|n| **n > 0) {
                    assert!(cuckoo.remove(h));
                    *n -= 1;
                }
            }
            5 if !counting.contains(h) => assert!(!counting.remove(h)),
            6 if !cuckoo.contains(h) => assert!(!cuckoo.remove(h)),
            _ => {
                heavy.add(h, &Key([u64::from(*key), 0]), weight);
                let count = sketch.add(h, weight.min(u32::MAX.into()) as u32);
                assert_eq!(count, sketch.get(h));
                *weights.entry(*key).or_insert(0) += weight;
                log.add(h);
                linear.add(h);
            }
        }
        if i % 16 == 0 || i + 1 == records.len() {
            assert!(seen.keys().all(|&h| bloom.contains(h)), "the Bloom filter misses a key");
            assert!(counts.iter().all(|(&h, &n)| n == 0 || counting.contains(h)), "the counting filter does");
            assert!(inside.iter().all(|(&h, &n)| n == 0 || cuckoo.contains(h)), "the cuckoo filter does");
        }
    }
    let top = heavy.top(8);
    for (&key, &truth) in &weights {
        let words = Key([u64::from(key), 0]);
        let found = heavy.get(hash(kind, key), &words);
        assert!((found.at_least..=found.at_most).contains(&truth), "{found:?}, but {truth}");
        if top.hitters.iter().all(|hitter| hitter.key != words) {
            assert!(truth <= top.others_at_most, "{key} has {truth}: {top:?}");
        }
        assert!(u64::from(sketch.get(hash(kind, key))) >= truth.min(u64::from(u32::MAX)));
    }
    assert_eq!(heavy.total(), weights.values().sum::<u64>());
    let estimate = log.estimate();
    assert!(estimate >= 0.0 && (estimate > 0.0) != weights.is_empty());
    assert!(linear.estimate().is_ok_and(|n| (n > 0.0) != weights.is_empty()) || !weights.is_empty());
});
