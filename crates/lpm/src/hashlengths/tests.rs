//! Beside the suite: what is stored, what a lookup asks for, and that withdrawals leave nothing behind.

use super::*;
use crate::keys::Random;
use tidemill_lookup::probe::Recorder;

fn rib<A: Address>(prefixes: &[(&str, u32)]) -> Rib<A> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

#[test]
fn a_lookup_asks_once_for_every_length_down_to_its_own() {
    let rib =
        rib::<u128>(&[("::/0", 1), ("2001:db8::/32", 2), ("2001:db8:1::/48", 3), ("2001:db8::1/128", 4)]);
    let fib = HashPerLength::plain(&rib);
    assert_eq!(fib.lengths(), 4);
    let mut probes = Vec::new();
    for text in ["2001:db8::1", "2001:db8:1::7", "2001:db8:2::7", "2001:db9::"] {
        let key = u128::parse(text).unwrap();
        let (trace, probe) = (Trace::default(), Recorder::new());
        let label = fib.lookup_traced(key, &trace);
        assert_eq!((label, fib.find(key, &probe, &())), (rib.lookup(key).unwrap().1, label));
        assert_eq!((trace.filter_probes(), trace.false_positives()), (0, 0));
        // 16 bytes of the key, then for each length its cut, its byte, and a bucket.
        assert_eq!(probe.counts().reads, 16 + 3 * trace.fib_probes());
        assert_eq!(probe.counts().dependent_reads, trace.fib_probes());
        probes.push(trace.fib_probes());
    }
    assert_eq!(probes, [1, 2, 3, 4]);
}

#[test]
fn a_length_without_prefixes_is_not_asked_for() {
    let mut rib = rib::<u32>(&[("10.0.0.0/8", 1), ("10.1.0.0/16", 2)]);
    let mut fib = HashPerLength::plain(&rib);
    let before = fib.bytes();
    for text in ["10.1.2.3/32", "10.0.0.0/15", "0.0.0.0/0", "11.0.0.0/8"] {
        let prefix = text.parse().unwrap();
        for _ in 0..2 {
            rib.insert(prefix, Label(7));
            fib.change(&rib, prefix, &()).unwrap();
        }
        assert_eq!(fib.lookup(prefix.last()), rib.lookup(prefix.last()).unwrap().1);
        for _ in 0..2 {
            rib.remove(prefix);
            fib.change(&rib, prefix, &()).unwrap();
        }
        assert_eq!((fib.lengths(), fib.table().len(), fib.bytes()), (2, 2, before), "{text}");
    }
}

/// A table at every load, with many deletions, against a map.
fn agrees_with_a_map<A: Address>(seed: u64) {
    let mut random = Random::new(seed);
    let mut map = std::collections::BTreeMap::new();
    let mut table = HashTable::<A>::with_room(0);
    for round in 0..6_000_u32 {
        // Mostly the same thousand, so that prefixes come and go.
        let addr = A::from_u128(u128::from(random.bits() % 500) << (random.below(2) * 16));
        let prefix = Prefix::new(addr, A::BITS - random.below(3) as u8).unwrap();
        if random.below(5) < 3 {
            assert_eq!(table.set(prefix, round, &()), map.insert(prefix, round).is_none());
        } else {
            assert_eq!(table.remove(prefix, &()), map.remove(&prefix).is_some());
        }
        if round % 100 == 0 {
            table.check();
            for (&prefix, &label) in &map {
                assert_eq!(table.get(hash::hash(prefix), prefix.first(), prefix.len(), &()), Some(label));
            }
        }
        assert_eq!(table.len(), map.len());
        assert!(table.load() <= 0.75);
    }
    assert!(map.len() > 300, "{} prefixes", map.len());
    assert_eq!(table.iter().collect::<std::collections::BTreeMap<_, _>>(), map);
    for &prefix in map.keys() {
        assert!(table.remove(prefix, &()));
    }
    table.check();
    assert!(table.is_empty() && table.iter().next().is_none());
}

#[test]
fn the_table_is_a_map() {
    agrees_with_a_map::<u32>(1);
    agrees_with_a_map::<u128>(2);
}

/// Searches of what is not there: the second bucket is rare, also after many changes, which is what tombstones would spoil.
#[test]
fn searches_stay_short_however_much_comes_and_goes() {
    let mut random = Random::new(3);
    let mut prefix = || Prefix::<u128>::new(random.address(), 48).unwrap();
    let mut table = HashTable::with_room(3_000);
    let mut there: std::collections::VecDeque<_> = (0..3_000).map(|_| prefix()).collect();
    there.iter().for_each(|&prefix| assert!(table.set(prefix, 1, &())));
    let buckets = |table: &HashTable<u128>, prefix: Prefix<u128>| {
        let probe = Recorder::new();
        assert_eq!(table.get(hash::hash(prefix), prefix.first(), prefix.len(), &probe), None);
        probe.counts().reads
    };
    for _ in 0..60_000 {
        let (old, new) = (there.pop_front().unwrap(), prefix());
        assert!(table.remove(old, &()) && table.set(new, 2, &()));
        there.push_back(new);
    }
    let asked: u64 = (0..20_000).map(|_| buckets(&table, prefix())).sum();
    assert!((20_000..24_000).contains(&asked), "{asked} buckets for 20,000 searches");
    table.check();
}
