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

/// Host routes inside 2001:db8::/32 that all have the hash of the first, by Gauss's way with linear equations: see the limits of `hash.rs`.
fn of_one_hash(count: usize) -> Vec<Prefix<u128>> {
    let base = 0x2001_0db8_u128 << 96;
    let hash = |addr: u128| hash::hash(Prefix::new(addr, 128).unwrap());
    // What each of the lower bits changes of the hash; `steps` are sums of bits that change nothing.
    let (mut rows, mut steps) = (Vec::<(u64, u128)>::new(), Vec::new());
    for bit in 0..96 {
        let (mut change, mut bits) = (hash(base) ^ hash(base | 1 << bit), 1_u128 << bit);
        for &(row, of) in &rows {
            if change ^ row < change {
                (change, bits) = (change ^ row, bits ^ of);
            }
        }
        if change == 0 {
            steps.push(bits)
        } else {
            rows.push((change, bits))
        }
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.0));
    }
    let sum = |i: usize| {
        let chosen = (0..steps.len()).filter(|&step| i >> step & 1 == 1);
        chosen.fold(base, |addr, step| addr ^ steps[step])
    };
    (0..count).map(|i| Prefix::new(sum(i), 128).unwrap()).collect()
}

/// As many as overflow every count of a bucket and every place of a fingerprint: slow, but right, while they come and when they have gone.
#[test]
fn prefixes_that_were_chosen_to_collide_are_found() {
    use crate::algorithm::Algorithm;
    let chosen = of_one_hash(400);
    let one = hash::hash(chosen[0]);
    assert!(chosen.iter().all(|&prefix| hash::hash(prefix) == one));
    assert!((1..chosen.len()).all(|i| chosen[i] != chosen[i - 1]));
    let around = "2001:db8::/32".parse().unwrap();
    for name in [
        "hash-per-length",
        "cuvpp",
        "cuvpp-simd",
        "cuvpp-lengths",
        "bloom-lpm",
        "length-search",
        "two-way-trie",
        "pbf",
    ] {
        let algorithm = Algorithm::parse::<u128>(name).unwrap();
        let mut table: Rib<u128> = [(around, Label(1))].into_iter().collect();
        let mut writer = algorithm.writer(&table, &Domain::new()).unwrap();
        let half = chosen.len() / 2;
        for (from, to, withdraw) in [(0, half, false), (half, 400, false), (0, half, true), (half, 400, true)]
        {
            for (i, &prefix) in chosen.iter().enumerate().take(to).skip(from) {
                if withdraw {
                    table.remove(prefix)
                } else {
                    table.insert(prefix, Label(2 + i as u32))
                };
            }
            if writer.patch(&table, &chosen[from..to]).is_err() {
                writer = algorithm.writer(&table, &Domain::new()).unwrap();
            }
            let keys: Vec<u128> =
                chosen.iter().flat_map(|prefix| [prefix.first(), prefix.first() ^ 1]).collect();
            let mut answers = vec![Label::NONE; keys.len()];
            let fib = writer.fib();
            fib.lookup_batch(&keys, &mut answers);
            for (&key, &answer) in keys.iter().zip(&answers) {
                let expected = table.lookup(key).unwrap().1;
                assert_eq!((answer, fib.lookup(key)), (expected, expected), "{name}: {key:x}");
            }
        }
    }
}
