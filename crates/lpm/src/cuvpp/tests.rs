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
    assert_eq!((filter.len(), filter.stashed(), filter.stash_entries()), (20, 12, 0), "counted, not asked");
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

/// A key that is not in the filter meets its fingerprint in one of 8 slots, at a load each with a probability of load / 65,535. So many
/// questions that some 1,600 are answered wrongly: a deviation of a tenth is four standard deviations.
#[test]
fn false_positives_come_at_the_rate_of_theory() {
    const EXPECTED: f64 = 1_600.0;
    for (fingerprint, seed) in [(Fingerprint::Crc32, 11), (Fingerprint::Crc32c, 12)] {
        let mut random = Random::new(seed);
        let mut prefix = |i: usize| Prefix::<u128>::new(random.address(), 32 + (i % 33) as u8).unwrap();
        let mut filter = CuckooFilter::<4>::new(5_000, fingerprint);
        for load in [0.5, 0.75, 0.95] {
            while filter.load() < load {
                filter.insert(hash(prefix(filter.len())), &()).unwrap();
            }
            let questions = (EXPECTED / (8.0 * load / 65_535.0)) as usize;
            let wrong = (0..questions).filter(|&i| has(&filter, hash(prefix(i)))).count();
            let ratio = wrong as f64 / EXPECTED;
            println!("{fingerprint:?}, {load}: {wrong} of {questions}, {ratio:.3} of what theory says");
            assert!((0.9..1.1).contains(&ratio), "{fingerprint:?}, {load}: {wrong} of {questions}");
        }
    }
}

/// Host routes of one hash: combinations of those sums of bits whose hash is that of nothing.
fn of_one_hash(count: usize) -> Vec<Prefix<u128>> {
    let host = |address: u128| Prefix::new(address, 128).unwrap();
    let zero = hash(host(0));
    // Hashes are linear: what each bit adds, and of which bits that is made; by elimination.
    let mut rows: Vec<(u64, u128)> = (0..128).map(|i| (hash(host(1 << i)) ^ zero, 1 << i)).collect();
    let mut pivots = 0;
    for bit in 0..64 {
        let Some(at) = (pivots..128).find(|&at| rows[at].0 >> bit & 1 == 1) else { continue };
        rows.swap(pivots, at);
        let (adds, bits) = rows[pivots];
        for (i, row) in rows.iter_mut().enumerate() {
            if i != pivots && row.0 >> bit & 1 == 1 {
                *row = (row.0 ^ adds, row.1 ^ bits);
            }
        }
        pivots += 1;
    }
    let nothing: Vec<u128> = rows[pivots..].iter().map(|row| row.1).collect();
    let sum = |i: usize| {
        let bits = (0..nothing.len().min(60)).filter(|bit| i >> bit & 1 == 1);
        bits.fold(0x2001_0db8 << 96, |all, bit| all ^ nothing[bit])
    };
    (0..count).map(|i| host(sum(i))).collect()
}

/// They make a long run of full buckets in the table; the filter answers as ever, and every kernel still uses it.
#[test]
fn prefixes_of_one_hash_are_no_burden_to_the_filter() {
    let chosen = of_one_hash(2_000);
    assert!(chosen.iter().all(|&prefix| hash(prefix) == hash(chosen[0])));
    let plain = random_rib::<u128>(3_000, 20..=64, 17);
    let mut rib = plain.clone();
    let mut fib = sized(&rib);
    for (i, &prefix) in chosen.iter().enumerate() {
        rib.insert(prefix, Label(i as u32));
        fib.change(&rib, prefix, &()).unwrap();
    }
    assert_eq!(rib.len(), 5_000, "all are different");
    assert!(fib.screen.stashed() >= 1_992 && fib.screen.stash_entries() == 0);
    for (prefix, label) in plain.iter() {
        let probe = Recorder::new();
        assert!(fib.screen.contains(hash(prefix), &probe) && probe.counts().reads <= 2);
        assert_eq!(fib.lookup(prefix.last()), label);
    }
    let wide = CuVppSimd::new(fib.clone());
    let keys: Vec<u128> = plain.iter().map(|(prefix, _)| prefix.last()).collect();
    let expected: Vec<Label> = plain.iter().map(|(_, label)| label).collect();
    wide.lookup_batch_each(&keys, &mut |kernel, found| assert!(found == expected, "{kernel}"));
    assert!(chosen.iter().step_by(97).all(|&prefix| fib.lookup(prefix.first()) == rib.get(prefix).unwrap()));
    for &prefix in &chosen {
        rib.remove(prefix);
        fib.change(&rib, prefix, &()).unwrap();
    }
    assert_eq!((fib.screen.len(), fib.screen.stashed()), (3_000, 0));
    assert!(plain.iter().all(|(prefix, label)| fib.lookup(prefix.last()) == label));
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
    fib.screen.stash.push((item, 1));
    let fib = CuVppSimd::new(fib);
    fib.lookup_batch_each(&[prefix.first()], &mut |kernel, found| assert_eq!(found, [label], "{kernel}"));
}
