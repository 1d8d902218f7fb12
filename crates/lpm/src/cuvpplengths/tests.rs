//! Beside the suite: the way of a search, what is stored, that a wrong filter does no harm, and that withdrawals leave nothing behind.

use super::*;
use crate::copies::Whole;
use crate::hashlengths::hash::hash;
use crate::keys::Random;
use crate::prefix::Prefix;
use std::collections::BTreeMap;
use tidemill_lookup::probe::Recorder;

fn rib<A: Address>(prefixes: &[(&str, u32)]) -> Rib<A> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

/// Panics where an invariant of the page is broken.
fn check<A: Address>(fib: &CuVppLengths<A>, rib: &Rib<A>) {
    let mut users = BTreeMap::new();
    for (prefix, _) in rib.iter().filter(|(prefix, _)| prefix.len() > 0) {
        *users.entry(prefix).or_insert(0) += 1;
        for &len in fib.tree.markers(prefix.len()).unwrap() {
            *users.entry(Prefix::new(prefix.first(), len).unwrap()).or_insert(0) += 2;
        }
    }
    assert_eq!(fib.users.iter().collect::<BTreeMap<_, _>>(), users);
    let entries: BTreeMap<_, _> = fib.table.iter().collect();
    assert!(entries.keys().eq(users.keys()));
    for (entry, word) in entries {
        let best = rib.covering(entry).filter(|(prefix, _)| prefix.len() > 0);
        assert_eq!(word, best.map_or(DEFAULT, |(_, label)| label.0), "{entry}");
        assert!(fib.filter.contains(hash(entry), &()), "{entry}");
    }
    assert_eq!(fib.filter.len(), fib.table.len());
    assert_eq!(fib.default, rib.get(Prefix::DEFAULT).unwrap_or(Label::NONE));
}

#[test]
fn the_picture_on_the_page() {
    let rib = rib::<u128>(&[
        ("::/0", 9),
        ("2001:db8::/32", 1),
        ("2001:db8:1::/48", 2),
        ("2001:db8:2::/48", 3),
        ("2001:db8:3::/48", 4),
    ]);
    let fib = CuVppLengths::build(&rib).unwrap();
    check(&fib, &rib);
    // A marker is not needed: the search comes to /32 when nothing is there at /48.
    assert_eq!((fib.entries(), fib.depth()), (4, 2));
    for (text, label, questions) in
        [("2001:db8:1::5", 2, [1, 1]), ("2001:db8:7::5", 1, [2, 1]), ("2001:db9::", 9, [2, 0])]
    {
        let (trace, probe, key) = (Trace::default(), Recorder::new(), u128::parse(text).unwrap());
        assert_eq!(fib.lookup_traced(key, &trace), Label(label), "{text}");
        assert_eq!([trace.filter_probes(), trace.fib_probes()], questions, "{text}");
        assert_eq!(fib.find(key, &probe, &()), Label(label));
        // A step is a node.
        assert_eq!(probe.counts().steps, questions[0]);
    }
}

#[test]
fn trees_have_every_length_and_are_never_deep() {
    let mut random = Random::new(1);
    for round in 0..200 {
        let mut counts = [0; 129];
        for count in &mut counts {
            if random.below(3) < 1 + round % 3 {
                // From 1 to some millions.
                *count = 1 << random.below(22);
            }
        }
        let tree = Tree::new(&counts);
        let lens: Vec<u8> = (1..=128).filter(|&len| counts[usize::from(len)] > 0).collect();
        assert_eq!(tree.nodes.len(), lens.len());
        assert!(tree.depth <= 11, "{} nodes on one way", tree.depth);
        for &len in &lens {
            // The search for a key of which nothing is there but this length's prefix and its markers.
            let (mut at, mut found, markers) = (tree.root, None, tree.markers(len).unwrap());
            while at != END {
                let node = tree.nodes[usize::from(at)];
                let there = node.cut.len == len || markers.contains(&node.cut.len);
                found = if there { Some(node.cut.len) } else { found };
                at = if there { node.longer } else { node.shorter };
            }
            assert_eq!(found, Some(len));
            assert!(markers.is_sorted() && markers.iter().all(|&marker| marker < len));
        }
        assert!((0..=128).all(|len| tree.markers(len).is_some() == lens.contains(&len)));
    }
}

fn random_prefix<A: Address>(random: &mut Random) -> Prefix<A> {
    // Crowded below a few points.
    let base = A::from_u128((random.below(4) as u128) << (A::BITS - 8));
    let addr = base | (random.address::<A>() >> 6_usize);
    let keep = A::mask(random.below(usize::from(A::BITS) + 1) as u8);
    Prefix::new((addr & keep) | (base & !keep), random.below(usize::from(A::BITS) + 1) as u8).unwrap()
}

fn changes_keep_the_invariants<A: Address>(seed: u64) {
    let mut random = Random::new(seed);
    let mut rib: Rib<A> = (0..400).map(|i| (random_prefix(&mut random), Label(i % 9))).collect();
    let mut fib = CuVppLengths::build(&rib).unwrap();
    check(&fib, &rib);
    for round in 0..600 {
        let list: Vec<_> = rib.iter().map(|(prefix, _)| prefix).collect();
        // Several in the RIB before the first is named.
        let changed: Vec<_> = (0..1 + round % 5)
            .map(|i| match random.below(2) {
                0 if !list.is_empty() => {
                    let old = list[random.below(list.len())];
                    rib.remove(old);
                    old
                }
                _ => {
                    let new = random_prefix(&mut random);
                    rib.insert(new, Label(round + i));
                    new
                }
            })
            .collect();
        for &prefix in &changed {
            fib.change(&rib, prefix, &()).unwrap();
        }
        check(&fib, &rib);
    }
    for (prefix, _) in rib.clone().iter() {
        rib.remove(prefix);
        fib.change(&rib, prefix, &()).unwrap();
    }
    check(&fib, &rib);
    assert!(fib.table.is_empty() && fib.users.is_empty() && fib.filter.is_empty());
}

#[test]
fn changes_keep_the_invariants_of_the_page() {
    changes_keep_the_invariants::<u32>(2);
    changes_keep_the_invariants::<u128>(3);
}

/// Whatever the filter has beside what belongs there.
#[test]
fn a_wrong_maybe_does_no_harm() {
    let mut random = Random::new(4);
    let rib: Rib<u32> = (0..2_000).map(|i| (random_prefix(&mut random), Label(i))).collect();
    let mut fib = CuVppLengths::build(&rib).unwrap();
    let keys: Vec<u32> = (0..3_000).map(|_| random_prefix::<u32>(&mut random).last()).collect();
    for &key in &keys {
        let len = fib.tree.nodes[random.below(fib.tree.nodes.len())].cut.len;
        fib.filter.insert_always(hash(Prefix::new(key, len).unwrap()), &());
    }
    let (trace, mut burst) = (Trace::default(), vec![Label::NONE; keys.len()]);
    fib.lookup_batch(&keys, &mut burst);
    for (&key, &label) in keys.iter().zip(&burst) {
        let expected = rib.lookup(key).map_or(Label::NONE, |(_, label)| label);
        assert_eq!((fib.lookup_traced(key, &trace), label), (expected, expected));
    }
    assert!(trace.false_positives() > 200, "{trace:?}");
}

#[test]
fn the_default_route_is_one_store() {
    let mut rib = rib::<u32>(&[("10.0.0.0/8", 1), ("10.1.2.0/24", 2), ("11.1.2.0/24", 3)]);
    let mut fib = CuVppLengths::build(&rib).unwrap();
    rib.insert(Prefix::DEFAULT, Label(7));
    let probe = Recorder::new();
    fib.change(&rib, Prefix::DEFAULT, &probe).unwrap();
    assert_eq!((probe.counts().writes, fib.lookup(0x0b01_0303)), (1, Label(7)));
    check(&fib, &rib);
}

/// A length that is known changes entries; one that is not changes the tree.
#[test]
fn a_new_length_is_a_new_tree() {
    let mut rib = rib::<u32>(&[("10.0.0.0/8", 1), ("10.1.2.0/24", 2)]);
    let mut fib = CuVppLengths::build(&rib).unwrap();
    for text in ["10.1.0.0/16", "10.1.2.3/32", "10.2.0.0/16"] {
        let prefix = text.parse().unwrap();
        rib.insert(prefix, Label(9));
        fib.change(&rib, prefix, &()).unwrap();
        assert_eq!(fib.lookup(prefix.last()), Label(9));
        check(&fib, &rib);
        rib.remove(prefix);
        fib.change(&rib, prefix, &()).unwrap();
        assert_eq!(fib.lookup(prefix.last()), rib.lookup(prefix.last()).unwrap().1);
        check(&fib, &rib);
    }
    // Lengths that have gone stay known: to come again is a change like others.
    assert_eq!(fib.tree.nodes.len(), 4);
    let prefix = "10.9.9.9/32".parse().unwrap();
    rib.insert(prefix, Label(9));
    let probe = Recorder::new();
    fib.change(&rib, prefix, &probe).unwrap();
    check(&fib, &rib);
    assert!(probe.counts().writes < 40, "{:?}", probe.counts());
}
