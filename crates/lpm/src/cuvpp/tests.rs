//! Beside the suite: that nothing is lost at any load, how often the filter is wrong, and what is counted.

use super::*;
use crate::copies::Whole;
use crate::fib::{Fib, Label};
use crate::hashlengths::{Trace, hash::hash};
use crate::keys::Random;
use crate::prefix::Prefix;
use std::collections::VecDeque;
use tidemill_lookup::probe::Recorder;

fn has<const S: usize>(filter: &CuckooFilter<S>, hash: u64) -> bool {
    filter.contains(hash, &())
}

/// Fills a filter until it says that it is full; each of its items is there, then and after every kind of refusal.
fn filled<const S: usize>(
    buckets: usize,
    fingerprint: Fingerprint,
    least: f64,
) -> (CuckooFilter<S>, Vec<u64>) {
    let (mut filter, mut random) = (CuckooFilter::<S>::new(buckets, fingerprint), Random::new(7));
    let mut items = Vec::new();
    let mut checked = 0.5;
    loop {
        let hash = random.bits();
        if filter.insert(hash, &()).is_err() {
            break;
        }
        items.push(hash);
        if filter.load() > checked {
            assert!(items.iter().all(|&hash| has(&filter, hash)), "at a load of {checked}");
            checked += 0.05;
        }
    }
    assert!(filter.load() > least, "full at {}", filter.load());
    (filter, items)
}

#[test]
fn a_full_filter_has_lost_nothing() {
    for fingerprint in [Fingerprint::Crc32, Fingerprint::Crc32c] {
        let (mut filter, mut items) = filled::<4>(5_003, fingerprint, 0.95);
        let mut random = Random::new(8);
        // Refused ones leave it as it is.
        let refused = (0..2_000).map(|_| random.bits()).filter(|&hash| match filter.insert(hash, &()) {
            Ok(_) => {
                items.push(hash);
                false
            }
            Err(Full) => true,
        });
        assert!(refused.count() > 200);
        assert!(items.iter().all(|&hash| has(&filter, hash)));
        // What is put in in spite of that is there too.
        let more: Vec<u64> = (0..2_000).map(|_| random.bits()).collect();
        for &hash in &more {
            filter.insert_always(hash, &());
        }
        assert!(filter.stashed() > 200);
        items.extend(more);
        assert!(items.iter().all(|&hash| has(&filter, hash)));
        assert_eq!(filter.len(), items.len());
        // And goes again, one by one, in whatever order.
        for i in 0..items.len() {
            assert!(filter.remove(items[i], &()));
            assert_eq!(filter.len(), items.len() - i - 1);
            if i % 1_000 == 0 {
                assert!(items[i + 1..].iter().all(|&hash| has(&filter, hash)));
            }
        }
        assert!(filter.is_empty() && filter.stashed() == 0);
        assert!(filter.buckets.iter().flatten().all(|&slot| slot == 0));
    }
}

#[test]
fn other_sizes_of_buckets() {
    filled::<1>(5_000, Fingerprint::Crc32, 0.4);
    filled::<2>(5_000, Fingerprint::Crc32, 0.8);
    filled::<8>(2_500, Fingerprint::Crc32, 0.97);
    // A filter of one bucket is a list.
    filled::<4>(1, Fingerprint::Crc32, 0.99);
}

/// The paper's Fig 12: no moves to speak of until the load is high.
#[test]
fn moves_come_late() {
    let (mut filter, mut random) =
        (CuckooFilter::<4>::for_items(20_000, 1.0, Fingerprint::Crc32), Random::new(9));
    let mut moves_until = |load: f64| {
        let (before, items) = (filter.moves(), filter.len());
        while filter.load() < load {
            filter.insert(random.bits(), &()).unwrap();
        }
        (filter.moves() - before) as f64 / (filter.len() - items) as f64
    };
    let (low, middle, high) = (moves_until(0.5), moves_until(0.8), moves_until(0.95));
    assert!(low < 0.05 && middle < 0.5 && (1.0..30.0).contains(&high), "{low} {middle} {high}");
}

/// Twice the slots of what looks the same is what the buckets take.
#[test]
fn the_same_fingerprint_many_times() {
    let mut filter = CuckooFilter::<4>::new(1_000, Fingerprint::Crc32);
    let twin = 0x1234_5678_9abc_def0;
    for i in 0..20 {
        assert_eq!(filter.insert(twin, &()).is_ok(), i < 8);
        if i >= 8 {
            filter.insert_always(twin, &());
        }
    }
    assert_eq!((filter.len(), filter.stashed()), (20, 12));
    for left in (0..20).rev() {
        assert!(has(&filter, twin) && filter.remove(twin, &()));
        assert_eq!(filter.len(), left);
    }
    assert!(!has(&filter, twin) && !filter.remove(twin, &()));
}

/// Both buckets of an item lead to one another, for every number of buckets.
#[test]
fn the_other_bucket_of_the_other_bucket() {
    let mut random = Random::new(10);
    for buckets in [1, 2, 3, 7, 1_000, 65_536, 750_000, 4_000_037] {
        let filter = CuckooFilter::<1>::new(buckets, Fingerprint::Crc32);
        for _ in 0..2_000 {
            let item = filter.item(random.bits());
            let other = Item { bucket: filter.other(item), ..item };
            assert!((item.bucket as usize) < buckets && (other.bucket as usize) < buckets);
            assert_eq!(filter.other(other), item.bucket);
        }
    }
}

/// 2 x 4 x load / 2^16: some 18 in 200,000 at 3/4, of which this wants 9 to 40.
#[test]
fn false_positives_come_at_the_rate_of_theory() {
    let mut random = Random::new(11);
    let mut prefix = |i: u32| Prefix::<u128>::new(random.address(), 32 + (i % 33) as u8).unwrap();
    let mut filter = CuckooFilter::<4>::for_items(60_000, 0.75, Fingerprint::Crc32);
    for i in 0..60_000 {
        filter.insert(hash(prefix(i)), &()).unwrap();
    }
    let wrong = (0..200_000).filter(|&i| has(&filter, hash(prefix(i)))).count();
    assert!((9..=40).contains(&wrong), "{wrong} of 200,000");
}

/// Dense prefixes, as tables have them, must not crowd: a CRC is linear, and so are they.
#[test]
fn prefixes_in_a_row_spread_as_random_ones_do() {
    for (first, len) in [(0x0a00_0000_u32, 24), (0xc0a8_0000, 30), (0x8000_0000, 16)] {
        let mut filter = CuckooFilter::<4>::for_items(60_000, 0.95, Fingerprint::Crc32);
        for i in 0..60_000_u32 {
            let prefix = Prefix::new(first.wrapping_add(i << (32 - len)), len).unwrap();
            filter.insert(hash(prefix), &()).unwrap_or_else(|e| panic!("{e} after {i}"));
        }
    }
}

fn random_rib<A: Address>(prefixes: usize, lens: std::ops::RangeInclusive<u8>, seed: u64) -> Rib<A> {
    let mut random = Random::new(seed);
    let span = usize::from(lens.end() - lens.start()) + 1;
    (0..prefixes)
        .map(|i| {
            let prefix = Prefix::new(random.address(), lens.start() + (i % span) as u8).unwrap();
            (prefix, Label(i as u32))
        })
        .collect()
}

/// The table is asked about once for a key that has a prefix, whatever the number of lengths; the whole address counts.
#[test]
fn the_filter_spares_the_table_the_other_lengths() {
    let rib = random_rib::<u128>(6_000, 65..=128, 12);
    let (fib, trace, probe) = (sized(&rib), Trace::default(), Recorder::new());
    for (prefix, label) in rib.iter() {
        assert_eq!(fib.lookup_traced(prefix.first(), &trace), label);
        assert_eq!(fib.lookup_probed(prefix.first(), &probe), label);
    }
    let keys = rib.len() as u64;
    assert_eq!(fib.lengths(), 64);
    assert!((30 * keys..35 * keys).contains(&trace.filter_probes()), "{trace:?}");
    assert_eq!(trace.fib_probes(), keys + trace.false_positives());
    assert!((1..=100).contains(&trace.false_positives()), "some 20 of 190,000: {trace:?}");
    // Loads that follow others: one or two buckets of 8 bytes for a length, then the table's.
    let [filter, fibs] = [trace.filter_probes(), trace.fib_probes()];
    assert!((2 * filter - keys..2 * filter + 2 * fibs).contains(&probe.counts().dependent_reads));
}

#[test]
fn a_table_that_grows_and_goes() {
    let full = random_rib::<u32>(3_000, 8..=32, 13);
    let (mut rib, empty) = (Rib::new(), sized(&Rib::<u32>::new()));
    let mut fib = empty.clone();
    let mut queue: VecDeque<_> = full.iter().collect();
    while let Some((prefix, label)) = queue.pop_front() {
        rib.insert(prefix, label);
        fib.change(&rib, prefix, &()).unwrap();
        assert!(fib.screen().load() <= LOADS[1]);
    }
    assert!(
        full.iter()
            .all(|(prefix, label)| fib.lookup(prefix.first()) == rib.lookup(prefix.first()).unwrap().1
                && rib.get(prefix) == Some(label))
    );
    assert_eq!(fib.screen().len(), full.len());
    for (prefix, _) in full.iter() {
        rib.remove(prefix);
        fib.change(&rib, prefix, &()).unwrap();
    }
    assert!(fib.screen().is_empty() && fib.table().is_empty() && fib.lengths() == 0);
}

/// Every kernel, on tables of all lengths, with both CRCs, on keys with and without prefixes, and with a filter that is full.
fn kernels_agree<A: Address>(seed: u64) {
    let mut random = Random::new(seed);
    for (slots, lens) in
        [(8_000, 0..=A::BITS), (1, 1..=A::BITS), (6_000, 9..=24), (40_000, A::BITS - 7..=A::BITS)]
    {
        let rib = random_rib::<A>(3_000, lens, seed);
        let mut keys: Vec<A> = (0..3_000).map(|_| random.address()).collect();
        keys.extend(rib.iter().flat_map(|(prefix, _)| [prefix.first(), prefix.last()]));
        for fingerprint in [Fingerprint::Crc32, Fingerprint::Crc32c] {
            let mut filter = CuckooFilter::new(slots / 4, fingerprint);
            if slots == 40_000 {
                // Wrong ones, which lead to the table for nothing.
                for &key in &keys[..2_000] {
                    filter.insert_always(hash(Prefix::new(key, A::BITS).unwrap()), &());
                }
            }
            let fib = CuVppSimd::new(CuVpp::build(&rib, filter));
            let expected: Vec<Label> =
                keys.iter().map(|&key| rib.lookup(key).map_or(Label::NONE, |(_, label)| label)).collect();
            fib.lookup_batch_each(&keys, &mut |kernel, found| {
                assert!(found == expected, "{kernel}, {slots} slots, {fingerprint:?}");
            });
            assert!(keys.iter().zip(&expected).all(|(&key, &label)| fib.lookup(key) == label));
        }
    }
}

#[test]
fn kernels_answer_as_the_scalar_form_does() {
    kernels_agree::<u32>(14);
    kernels_agree::<u128>(15);
}

/// A stash is asked too: nine prefixes that the filter cannot tell apart are hard to find, so they are put there by hand.
#[test]
fn kernels_ask_the_stash() {
    let rib = random_rib::<u128>(500, 20..=60, 16);
    let mut fib = sized(&rib);
    let (prefix, label) = rib.iter().last().unwrap();
    fib.screen.remove(hash(prefix), &());
    let item = fib.screen.item(hash(prefix));
    fib.screen.stash.push(item);
    let fib = CuVppSimd::new(fib);
    fib.lookup_batch_each(&[prefix.first()], &mut |kernel, found| assert_eq!(found, [label], "{kernel}"));
}
