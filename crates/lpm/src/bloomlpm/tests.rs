//! Beside the suite: how often the filter is wrong, and that what is taken out leaves nothing behind.

use super::*;
use crate::copies::Whole;
use crate::fib::{Fib, Label};
use crate::hashlengths::{Trace, hash::hash};
use crate::keys::Random;
use crate::prefix::Prefix;

fn prefixes(count: usize, seed: u64) -> Vec<Prefix<u128>> {
    let mut random = Random::new(seed);
    (0..count).map(|i| Prefix::new(random.address(), 32 + (i % 90) as u8).unwrap()).collect()
}

/// (1 - e^(-k n / m))^k. So many questions that some 1,600 are answered wrongly: a deviation of a tenth is four standard deviations.
#[test]
fn false_positives_come_at_the_rate_of_theory() {
    const EXPECTED: f64 = 1_600.0;
    for (k, bits) in [(1, 20), (2, 20), (4, 20), (2, 8), (8, 8)] {
        let mut filter = BloomFilter::new(20_000 * bits, k);
        let there = prefixes(20_000, 1);
        there.iter().for_each(|&prefix| filter.insert(hash(prefix), &()));
        assert!(there.iter().all(|&prefix| filter.contains(hash(prefix), &())));
        let p = 1.0 - (-f64::from(k) / bits as f64).exp();
        let questions = (EXPECTED / p.powi(k as i32)) as usize;
        let wrong = prefixes(questions, 2).iter().filter(|&&p| filter.contains(hash(p), &())).count();
        let ratio = wrong as f64 / EXPECTED;
        println!("k = {k}, {bits} bits: {wrong} of {questions}, {ratio:.3} of what theory says");
        assert!((0.9..1.1).contains(&ratio), "k = {k}, {bits} bits: {wrong} of {questions}");
        assert!((0.98..1.02).contains(&(filter.fill() / p)), "k = {k}: {} for {p}", filter.fill());
    }
}

#[test]
fn what_is_taken_out_leaves_nothing_behind() {
    let mut filter = BloomFilter::new(4_000, 4);
    let there = prefixes(1_000, 3);
    // Each twice, as if two prefixes had one hash.
    there.iter().chain(&there).for_each(|&prefix| filter.insert(hash(prefix), &()));
    for &prefix in &there[..500] {
        filter.remove(hash(prefix), &());
    }
    assert!(there.iter().all(|&prefix| filter.contains(hash(prefix), &())));
    for &prefix in &there[..500] {
        filter.remove(hash(prefix), &());
    }
    assert!(there[500..].iter().all(|&prefix| filter.contains(hash(prefix), &())));
    there[500..].iter().chain(&there[500..]).for_each(|&prefix| filter.remove(hash(prefix), &()));
    assert!(filter.is_empty() && filter.bits.words().iter().all(|&word| word == 0));
}

/// A count that has come to its end keeps its bit: a "maybe" too many, never a "no".
#[test]
fn a_count_at_its_end_sticks() {
    let mut filter = BloomFilter::new(64, 1);
    (0..300).for_each(|_| filter.insert(5, &()));
    (0..300).for_each(|_| filter.remove(5, &()));
    assert!(filter.contains(5, &()) && filter.is_empty());
}

#[test]
fn it_grows_with_the_table() {
    let mut rib = Rib::<u128>::new();
    let mut fib = BloomLpm::build(&rib, BloomFilter::new(0, K));
    for (i, prefix) in prefixes(2_000, 4).into_iter().enumerate() {
        rib.insert(prefix, Label(i as u32));
        fib.change(&rib, prefix, &()).unwrap();
        assert!(fib.screen().bits() >= BITS[1] * rib.len());
    }
    let trace = Trace::default();
    for (prefix, _) in rib.iter() {
        let label = rib.lookup(prefix.first()).unwrap().1;
        assert_eq!((fib.lookup(prefix.first()), fib.lookup_traced(prefix.first(), &trace)), (label, label));
    }
    // 0.1 to 0.6 % of 90,000 questions.
    assert_eq!(trace.fib_probes(), 2_000 + trace.false_positives());
    assert!((20..1_000).contains(&trace.false_positives()), "{trace:?}");
    for (prefix, _) in rib.clone().iter() {
        rib.remove(prefix);
        fib.change(&rib, prefix, &()).unwrap();
    }
    assert!(fib.screen().is_empty() && fib.screen().fill() == 0.0 && fib.lengths() == 0);
}
