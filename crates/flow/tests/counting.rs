//! Cardinality and heavy hitters against exact counts.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tidemill_flow::cardinality::{HyperLogLog, HyperLogLogError, LinearCounter, Mismatch};
use tidemill_flow::hash::mix;
use tidemill_flow::heavy::{CountMin, HeavyHitters};
use tidemill_flow::key::Key;

/// Different good hashes for every seed.
fn hashes(seed: u64, n: usize) -> Vec<u64> {
    (0..n as u64).map(|i| mix(mix(seed) ^ i)).collect()
}

/// The mean and the root of the mean square of the relative errors.
fn errors(estimates: &[f64], exact: usize) -> (f64, f64) {
    let relative = estimates.iter().map(|e| e / exact as f64 - 1.0);
    let n = estimates.len() as f64;
    (relative.clone().sum::<f64>() / n, (relative.map(|e| e * e).sum::<f64>() / n).sqrt())
}

#[test]
fn hyperloglog_errs_as_it_says_at_every_size() {
    for (precision, seeds) in [(4, 400), (8, 200), (12, 60), (16, 4u32)] {
        for items in [1, 10, 100, 1000, 10_000, 60_000] {
            let estimates: Vec<f64> = (0..seeds)
                .map(|seed| {
                    let mut counter = HyperLogLog::new(precision).unwrap();
                    counter.add_batch(&hashes(u64::from(seed), items));
                    counter.estimate()
                })
                .collect();
            let (bias, error) = errors(&estimates, items);
            let stated = HyperLogLog::new(precision).unwrap().standard_error();
            // The error is never above the stated one by half; the bias within 1.1 / registers and what the mean of so many may have.
            assert!(error < 1.5 * stated, "p {precision}, {items}: error {error}, stated {stated}");
            let most = 1.1 / f64::from(1 << precision) + 5.0 * stated / f64::from(seeds).sqrt();
            assert!(bias.abs() < most, "p {precision}, {items}: bias {bias}, {most} allowed");
        }
    }
}

#[test]
fn hyperloglog_counts_a_key_once_and_merges_without_loss() {
    let (left, right) = (hashes(1, 30_000), hashes(2, 20_000));
    let mut counters = [(); 3].map(|()| HyperLogLog::new(12).unwrap());
    let [a, b, both] = &mut counters;
    a.add_batch(&left);
    a.add_batch(&left);
    b.add_batch(&right);
    b.add_batch(&left[..10_000]);
    both.add_batch(&left);
    both.add_batch(&right);
    a.merge(b).unwrap();
    assert_eq!(a.estimate(), both.estimate());
    assert_eq!(a.merge(&HyperLogLog::new(13).unwrap()), Err(Mismatch));
    a.clear();
    assert_eq!(a.estimate(), 0.0);
}

#[test]
fn hyperloglog_bears_any_hash() {
    for precision in [4, 11, 18] {
        let mut counter = HyperLogLog::new(precision).unwrap();
        for hash in [0, u64::MAX, 1, 1 << 63] {
            counter.add(hash);
            counter.add(hash);
        }
        assert!((1.0..10.0).contains(&counter.estimate()) || precision == 4, "{}", counter.estimate());
        // The rarest run in every register: made up by who knows the hash.
        for register in 0..1u64 << precision {
            counter.add(register << (64 - precision));
        }
        assert_eq!(counter.estimate(), 2f64.powi(64));
    }
    for bad in [0, 3, 19, u32::MAX] {
        assert!(matches!(HyperLogLog::new(bad), Err(HyperLogLogError::Precision(_))));
    }
}

#[test]
fn hyperloglog_counts_to_the_end() {
    // Half of 16 registers at the end of their range, as after ln 2 * 2^64 keys: 1 - e^-x = 1/2.
    let mut counter = HyperLogLog::new(4).unwrap();
    let runs = [61, 61, 61, 61, 61, 61, 61, 61, 60, 60, 60, 60, 59, 59, 59, 58];
    for (register, run) in (0u64..).zip(runs) {
        counter.add(register << 60 | if run > 60 { 0 } else { 1 << (60 - run) });
    }
    let share = counter.estimate() / 2f64.powi(64);
    assert!((share / 2f64.ln() - 1.0).abs() < 0.05, "{share}");
}

#[test]
fn linear_counting_errs_as_it_says() {
    for (items, wanted) in [(10, 0.1), (1000, 0.05), (1000, 0.01), (30_000, 0.01)] {
        let bits = LinearCounter::bits_for(items, wanted);
        let stated = LinearCounter::new(bits).unwrap().standard_error(items);
        assert!(stated <= wanted * 1.0001, "{items} {wanted}: {bits} bits give {stated}");
        let seeds = 100;
        let estimates: Vec<f64> = (0..seeds)
            .map(|seed| {
                let mut counter = LinearCounter::new(bits).unwrap();
                counter.add_batch(&hashes(seed, items));
                counter.add_batch(&hashes(seed, items));
                counter.estimate().unwrap()
            })
            .collect();
        let (bias, error) = errors(&estimates, items);
        assert!(error < 1.5 * stated && bias.abs() < 0.5 * stated, "{items} {wanted}: {error}, bias {bias}");
    }
    // A register of 32 bits, as in hardware: good for a few, and honest beyond.
    let mut register = LinearCounter::new(32).unwrap();
    register.add_batch(&hashes(1, 16));
    assert!((8.0..32.0).contains(&register.estimate().unwrap()));
    register.add_batch(&hashes(1, 1000));
    let saturated = register.estimate().unwrap_err();
    assert_eq!(saturated.to_string(), "all 32 bits are set: probably more than 111 keys");
    register.clear();
    assert_eq!(register.estimate(), Ok(0.0));
}

#[test]
fn linear_counters_merge_and_bear_any_size() {
    let (left, right) = (hashes(1, 3000), hashes(2, 2000));
    let mut counters = [(); 3].map(|()| LinearCounter::new(10_007).unwrap());
    let [a, b, both] = &mut counters;
    a.add_batch(&left);
    b.add_batch(&right);
    both.add_batch(&left);
    both.add_batch(&right);
    a.merge(b).unwrap();
    assert_eq!(a.estimate(), both.estimate());
    assert_eq!(a.merge(&LinearCounter::new(10_008).unwrap()), Err(Mismatch));
    let mut one = LinearCounter::new(0).unwrap();
    assert_eq!((one.bits(), one.estimate()), (1, Ok(0.0)));
    assert!(one.add(u64::MAX) && !one.add(0) && one.estimate().is_err());
    assert!(LinearCounter::new(usize::MAX).is_err());
    assert!(LinearCounter::bits_for(0, 0.0) > 0 && LinearCounter::bits_for(1000, f64::NAN) > 1000);
    // More keys than a float can tell apart; more error than the whole.
    assert!(LinearCounter::bits_for(usize::MAX, 0.01) > 1 << 53);
    assert_eq!(LinearCounter::bits_for(1_000_000, f64::INFINITY), LinearCounter::bits_for(1_000_000, 1.0));
}

/// Packets of a skewed stream: key i with a weight of about 1/(i+1), shuffled by the hash.
fn skewed(seed: u64, keys: u64, packets: usize) -> Vec<u64> {
    hashes(seed, packets)
        .into_iter()
        .map(|h| {
            let unit = (h >> 11) as f64 / (1u64 << 53) as f64;
            ((keys as f64).powf(unit) - 1.0) as u64
        })
        .collect()
}

fn counted(stream: &[u64]) -> BTreeMap<u64, u64> {
    let mut exact = BTreeMap::new();
    stream.iter().for_each(|key| *exact.entry(*key).or_insert(0) += 1);
    exact
}

/// Everything that a summary promises that was halved so often, for keys that are their own numbers.
fn check_hitters(
    summary: &HeavyHitters<1>,
    exact: &BTreeMap<u64, u64>,
    halvings: u32,
    hash: impl Fn(u64) -> u64,
) {
    let top = summary.top(usize::MAX);
    let mut listed = BTreeMap::new();
    for hitter in &top.hitters {
        let truth = exact.get(&hitter.key.0[0]).copied().unwrap_or(0);
        assert!(
            (hitter.at_least << halvings..=hitter.at_most << halvings).contains(&truth),
            "{hitter:?}, but {truth}"
        );
        assert!(listed.insert(hitter.key.0[0], hitter).is_none(), "listed twice: {hitter:?}");
    }
    assert!(top.hitters.is_sorted_by(|a, b| a.at_most >= b.at_most));
    for (&key, &truth) in exact {
        let found = summary.get(hash(key), &Key([key]));
        assert!(
            (found.at_least << halvings..=found.at_most << halvings).contains(&truth),
            "{found:?}, but {truth}"
        );
        match listed.get(&key) {
            Some(hitter) => assert_eq!(found, **hitter),
            None => assert!(truth <= top.others_at_most << halvings && found.at_least == 0, "{key}: {truth}"),
        }
    }
    for k in [0, 1, 5, 20] {
        let few = summary.top(k);
        assert_eq!(few.hitters, top.hitters[..k.min(top.hitters.len())]);
        let shown: Vec<u64> = few.hitters.iter().map(|h| h.key.0[0]).collect();
        for (key, truth) in exact.iter().filter(|(key, _)| !shown.contains(key)) {
            assert!(*truth <= few.others_at_most << halvings, "top {k}: {key} has {truth}");
        }
    }
}

#[test]
fn one_set_is_metwallys_space_saving() {
    // Eight counters: every key above N/8 is listed, and no count is too large by more than N/8.
    for seed in 0..20 {
        let stream = skewed(seed, 40, 5000);
        let mut summary = HeavyHitters::<1>::new(8).unwrap();
        stream.iter().for_each(|&key| summary.add(mix(key), &Key([key]), 1));
        let exact = counted(&stream);
        check_hitters(&summary, &exact, 0, mix);
        let bound = stream.len() as u64 / 8;
        let top = summary.top(8);
        assert!(top.hitters.iter().all(|h| h.at_most - h.at_least <= bound) && top.others_at_most <= bound);
        let heavy = exact.iter().filter(|(_, n)| **n > bound).map(|(key, _)| *key);
        for key in heavy {
            assert!(top.hitters.iter().any(|h| h.key == Key([key])), "{key} is above N/8 and not listed");
        }
        // Space-Saving's counts add up to N.
        assert_eq!(top.hitters.iter().map(|h| h.at_most).sum::<u64>(), summary.total());
    }
}

#[test]
fn sets_find_the_heaviest_of_many() {
    let stream = skewed(3, 100_000, 300_000);
    let exact = counted(&stream);
    let mut summary = HeavyHitters::<1>::new(1024).unwrap();
    let keys: Vec<Key<1>> = stream.iter().map(|&key| Key([key])).collect();
    let hashes: Vec<u64> = stream.iter().map(|&key| mix(key)).collect();
    summary.add_batch(&hashes, &keys, &vec![1; stream.len()]);
    check_hitters(&summary, &exact, 0, mix);
    assert_eq!((summary.total(), summary.capacity()), (300_000, 1024));
    // 11.5 nats of equal weight: the 20 heaviest have more than 1/12/20 of the packets each, the list is the true one.
    let mut truth: Vec<(u64, u64)> = exact.iter().map(|(key, n)| (*n, *key)).collect();
    truth.sort_unstable_by_key(|&(n, key)| (std::cmp::Reverse(n), key));
    let top = summary.top(20);
    let found =
        top.hitters.iter().filter(|h| truth[..20].iter().any(|(_, key)| h.key == Key([*key]))).count();
    assert!(found >= 18, "{found} of the 20 heaviest");
    assert!(top.others_at_most < 5 * truth[20].0, "{} {}", top.others_at_most, truth[20].0);
    summary.clear();
    assert_eq!((summary.total(), summary.top(5).hitters.len()), (0, 0));
}

#[test]
fn weights_saturate_and_nothing_panics() {
    let mut summary = HeavyHitters::<5>::new(0).unwrap();
    assert_eq!(summary.capacity(), 8);
    let key = Key([0, 0, 0, 0, 0]);
    // The key that looks like an empty entry.
    summary.add(0, &key, 0);
    assert_eq!(summary.get(0, &key).at_most, 0);
    summary.add(0, &key, 7);
    assert_eq!((summary.get(0, &key).at_least, summary.get(0, &key).at_most), (7, 7));
    for i in 0..20 {
        summary.add(u64::MAX, &Key([i + 1; 5]), u64::MAX);
        summary.add(0, &key, u64::MAX);
    }
    assert_eq!((summary.total(), summary.get(0, &key).at_most), (u64::MAX, (1 << 56) - 1));
    let mut other = HeavyHitters::<5>::new(8).unwrap();
    other.merge(&summary).unwrap();
    other.merge(&summary).unwrap();
    other.halve();
    assert!(other.top(9).hitters.len() == 8);
    assert_eq!(other.merge(&HeavyHitters::new(9).unwrap()), Err(Mismatch));
    assert!(HeavyHitters::<1>::new(usize::MAX).is_err() && CountMin::new(usize::MAX).is_err());
}

#[test]
fn count_min_is_never_short_and_seldom_long() {
    let stream = skewed(5, 50_000, 200_000);
    let exact = counted(&stream);
    let mut sketch = CountMin::new(60_000).unwrap();
    let (mut counts, hashes) =
        (vec![0; stream.len()], stream.iter().map(|&key| mix(key)).collect::<Vec<_>>());
    sketch.add_batch(&hashes, &vec![1; stream.len()], &mut counts);
    assert_eq!(counts[stream.len() - 1], sketch.get(hashes[stream.len() - 1]));
    let keys: Vec<u64> = exact.keys().map(|&key| mix(key)).collect();
    let mut found = vec![0; keys.len()];
    sketch.get_batch(&keys, &mut found);
    let mut excess = 0;
    for ((key, &truth), found) in exact.iter().zip(found) {
        let truth = truth as u32;
        assert!(found >= truth, "{key}: {found}, but {truth}");
        excess += u64::from(found - truth);
    }
    // 0.84; raising all four counters every time gives 1.6.
    let mean = excess as f64 / exact.len() as f64;
    assert!(mean < 1.2, "{mean} too many on average");
    sketch.clear();
    assert_eq!(sketch.get(mix(0)), 0);
    // Counters stop at the end, and halve without their neighbours.
    for i in 0..8 {
        assert_eq!(sketch.add(mix(i), u32::MAX), u32::MAX);
        assert_eq!(sketch.add(mix(i), 5), u32::MAX);
    }
    sketch.halve();
    assert!((0..8).all(|i| sketch.get(mix(i)) == u32::MAX / 2));
}

/// Few keys and few hashes, among them the worst.
fn any_hash(key: u64, kind: u8) -> u64 {
    match kind {
        0 => mix(key),
        1 => 0,
        2 => u64::MAX,
        3 => key,
        _ => key << 60,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Two summaries with weights, decay and a merge stay within their bounds, whatever the hash.
    #[test]
    fn bounds_hold_through_everything(
        kind in 0..5u8,
        entries in 1..40usize,
        streams in prop::collection::vec(prop::collection::vec((0..60u64, 0..40u32), 0..300), 2..3),
        halvings in 0..3u32,
    ) {
        let (mut exact, mut halved) = (BTreeMap::new(), BTreeMap::new());
        let (mut summaries, mut sketches) = (Vec::new(), Vec::new());
        for stream in &streams {
            let mut summary = HeavyHitters::<1>::new(entries).unwrap();
            let mut sketch = CountMin::new(entries).unwrap();
            let mut weights = BTreeMap::new();
            for &(key, weight) in stream {
                let hash = any_hash(key, kind);
                summary.add(hash, &Key([key]), weight.into());
                let count = sketch.add(hash, weight);
                prop_assert_eq!(count, sketch.get(hash));
                *weights.entry(key).or_insert(0u64) += u64::from(weight);
            }
            for _ in 0..halvings {
                summary.halve();
                sketch.halve();
            }
            for (key, weight) in weights {
                *exact.entry(key).or_insert(0) += weight;
                *halved.entry(key).or_insert(0) += weight >> halvings;
            }
            summaries.push(summary);
            sketches.push(sketch);
        }
        let (mut summary, mut sketch) = (summaries.remove(0), sketches.remove(0));
        summary.merge(&summaries[0]).unwrap();
        sketch.merge(&sketches[0]).unwrap();
        check_hitters(&summary, &exact, halvings, |key| any_hash(key, kind));
        prop_assert!(summary.total() <= exact.values().sum::<u64>() >> halvings);
        for (&key, &least) in &halved {
            prop_assert!(u64::from(sketch.get(any_hash(key, kind))) >= least);
        }
    }
}
