//! The default route above the structure: what a change of it costs, what it answers, and what workers see who have not moved on.

use super::*;
use crate::keys::Random;
use crate::oracle::Oracle;
use crate::suite::{edges, random_case};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidemill_lookup::probe::Recorder;

/// Those that the router uses, and two that are patched as copies. Under Miri not those that take seconds to build.
fn names<A: Family>() -> &'static [&'static str] {
    match (A::FAMILY, cfg!(miri)) {
        (4, false) => &["popdir-d16x3", "popdir-d19", "dxr-d16x4r", "rangetrie-d16", "binary-trie"],
        (4, true) => &["binary-trie"],
        (_, false) => &["lulea", "rangetrie-d16", "poptrie-d16", "patricia"],
        (_, true) => &["lulea", "patricia"],
    }
}

/// /24s (IPv6: /48s) with gaps between them, of 100 labels.
fn gappy<A: Family>(count: u32) -> Rib<A> {
    let (base, len): (u128, u8) = if A::FAMILY == 4 { (10 << 24, 24) } else { (0x2001_0db8 << 96, 48) };
    let step = 3_u128 << (A::BITS - len);
    (0..count)
        .map(|i| {
            let first = A::from_u128(base + u128::from(i) * step);
            (Prefix::new(first, len).unwrap(), Label(1 + i % 100))
        })
        .collect()
}

/// A table that counts how often its structure is built.
fn counted<A: Family>(name: &str, rib: Rib<A>, domain: &Domain) -> (Table<A>, Arc<AtomicUsize>) {
    let algorithm = Algorithm::parse::<A>(name).unwrap();
    let builds = Arc::new(AtomicUsize::new(0));
    let count = builds.clone();
    let table = Table::with(domain, rib, move |rib, domain| {
        count.fetch_add(1, Ordering::Relaxed);
        algorithm.writer(rib, domain)
    });
    (table.unwrap(), builds)
}

fn a_change_is_one_store<A: Family>() {
    let default = Prefix::<A>::DEFAULT;
    for name in names::<A>() {
        let rib = gappy::<A>(if cfg!(miri) { 40 } else { 3000 });
        let (mut table, builds) = counted(name, rib.clone(), &Domain::new());
        let (bytes, shown) = (table.fib().bytes(), table.fib().name());
        let (routed, beside) = rib.iter().map(|(prefix, label)| (prefix.first(), label)).next().unwrap();
        let nothing = A::MAX;
        let announce = |label| Change::Announce(default, Label(label));
        for (change, expected, stores) in [
            (announce(5), 5, 1),
            (announce(u32::MAX), u32::MAX, 1),
            (announce(5), 5, 1),
            (announce(0), 0, 0),
            (announce(7), 7, 1),
            (Change::Withdraw(default), 0, 0),
        ] {
            let probe = Recorder::new();
            let applied = table.apply_probed(&[change], &probe).unwrap();
            assert_eq!((applied.changed, applied.how), (1, How::Patched), "{name}");
            assert_eq!(probe.counts().writes, stores, "{name}, default route {expected}");
            let fib = table.fib();
            assert_eq!((fib.lookup(nothing), fib.lookup(routed)), (Label(expected), beside), "{name}");
            assert_eq!((fib.bytes(), fib.name()), (bytes, shown.clone()));
            let probe = Recorder::new();
            assert_eq!(fib.lookup_probed(nothing, &probe), Label(expected), "{name}");
        }
        assert_eq!(builds.load(Ordering::Relaxed), 1, "{name}");
        assert_eq!(table.rib().len(), rib.len());
    }
}

#[test]
fn a_change_of_the_default_route_is_one_store() {
    a_change_is_one_store::<u32>();
    a_change_is_one_store::<u128>();
}

/// Random cases with a change of the default route in every other batch; `label` narrows theirs.
fn among_others<A: Family>(label: impl Fn(u32) -> u32) {
    for name in names::<A>() {
        for seed in 0..if cfg!(miri) { 1 } else { 12 } {
            let case = random_case::<A>(seed);
            let mut random = Random::new(seed);
            let mut truth: BTreeMap<Prefix<A>, Label> =
                case.table.iter().map(|&(prefix, old)| (prefix, Label(label(old.0)))).collect();
            let domain = Domain::new();
            let rib: Rib<A> = truth.iter().map(|(&prefix, &label)| (prefix, label)).collect();
            let mut table = Table::new(&domain, rib, &Algorithm::parse::<A>(name).unwrap()).unwrap();
            for (i, batch) in case.batches.iter().enumerate() {
                let mut changes: Vec<Change<A>> = Vec::new();
                for change in batch {
                    changes.push(match *change {
                        Change::Announce(prefix, old) => Change::Announce(prefix, Label(label(old.0))),
                        withdraw => withdraw,
                    });
                }
                if i % 2 == 0 {
                    let default = match random.below(4) {
                        0 => Change::Withdraw(Prefix::DEFAULT),
                        _ => Change::Announce(Prefix::DEFAULT, Label(label(random.below(1000) as u32))),
                    };
                    changes.insert(random.below(changes.len() + 1), default);
                }
                table.apply(&changes).unwrap();
                for change in &changes {
                    match *change {
                        Change::Announce(prefix, label) => truth.insert(prefix, label),
                        Change::Withdraw(prefix) => truth.remove(&prefix),
                    };
                }
                let list: Vec<(Prefix<A>, Label)> = truth.iter().map(|(&p, &l)| (p, l)).collect();
                assert!(table.rib().iter().eq(list.iter().copied()), "{name}, seed {seed}, batch {i}");
                let oracle = Oracle::new(&list);
                let mut keys: Vec<A> = case.prefixes().flat_map(edges).collect();
                keys.extend((0..64).map(|_| random.address::<A>()));
                let expected: Vec<Label> = keys.iter().map(|&key| oracle.lookup(key)).collect();
                for (&key, &label) in keys.iter().zip(&expected) {
                    assert_eq!(table.fib().lookup(key), label, "{name}, seed {seed}, batch {i}: {key:?}");
                }
                table.fib().lookup_batch_each(&keys, &mut |kernel, found| {
                    assert_eq!(found, expected, "{name} ({kernel}), seed {seed}, batch {i}");
                });
                let mut found = vec![Label(u32::MAX); keys.len()];
                table.fib().lookup_batch(&keys, &mut found);
                assert_eq!(found, expected, "{name}, seed {seed}, batch {i}");
            }
        }
    }
}

#[test]
fn default_route_changes_among_others_answer_as_the_oracle_does() {
    among_others::<u32>(|label| 1 + label % 200);
    among_others::<u128>(|label| 1 + label % 200);
}

/// Now and then a route leads nowhere, and the default route goes into the structure and comes out again.
#[test]
fn beside_routes_to_nowhere_too() {
    among_others::<u32>(|label| label % 7);
    among_others::<u128>(|label| label % 7);
}

/// A route to nowhere costs one rebuild when it comes; before it came and after it has gone, changes of the default route cost none.
#[test]
fn a_route_to_nowhere_takes_the_default_route_into_the_structure() {
    let default = |label| Change::Announce(Prefix::DEFAULT, Label(label));
    let (mut table, builds) = counted::<u32>("rangetrie-d16", gappy(100), &Domain::new());
    table.apply(&[default(9)]).unwrap();
    assert_eq!(builds.load(Ordering::Relaxed), 1);
    assert_eq!(table.apply(&[announce("11.0.0.0/8", 0)]).unwrap().how, How::Rebuilt);
    assert_eq!([0x0b00_0001, 0x0c00_0001].map(|key| table.fib().lookup(key)), [Label::NONE, Label(9)]);
    table.apply(&[default(8)]).unwrap();
    assert_eq!([0x0b00_0001, 0x0c00_0001].map(|key| table.fib().lookup(key)), [Label::NONE, Label(8)]);
    table.apply(&[Change::Withdraw(prefix("11.0.0.0/8")), Change::Withdraw(Prefix::DEFAULT)]).unwrap();
    let before = builds.load(Ordering::Relaxed);
    table.apply(&[default(7)]).unwrap();
    let probe = Recorder::new();
    table.apply_probed(&[default(6)], &probe).unwrap();
    assert_eq!((probe.counts().writes, table.fib().lookup(0x0b00_0001)), (1, Label(6)));
    assert_eq!(builds.load(Ordering::Relaxed), before);
}

/// A worker in the middle of a burst, with the default route before: what it has never answers with that for a route that goes later.
#[test]
fn a_worker_that_has_not_moved_on_keeps_its_structure() {
    let default = |label| Change::Announce(Prefix::DEFAULT, Label(label));
    let domain = Domain::new();
    let (mut table, builds) = counted::<u32>("rangetrie-d16", gappy(100), &domain);
    table.apply(&[announce("11.0.0.0/8", 1), announce("12.0.0.0/8", 1), default(2)]).unwrap();
    let (view, mut worker) = (table.view(), domain.register());
    {
        let fib = view.get(&worker);
        // Together, and one after the other.
        let both = [default(3), Change::Withdraw(prefix("11.0.0.0/8")), announce("13.0.0.0/8", 4)];
        assert_eq!(table.apply(&both).unwrap().how, How::Rebuilt);
        let keys = [0x0b00_0001, 0x0c00_0001, 0x0d00_0001, 0x0e00_0001];
        assert_eq!(keys.map(|key| fib.lookup(key)), [1, 1, 4, 2].map(Label), "the old label or the new one");
        assert_eq!(keys.map(|key| table.fib().lookup(key)), [3, 1, 4, 3].map(Label));
        assert_eq!(table.apply(&[default(5)]).unwrap().how, How::Patched);
        assert_eq!(table.apply(&[Change::Withdraw(prefix("12.0.0.0/8"))]).unwrap().how, How::Rebuilt);
        assert_eq!(keys.map(|key| fib.lookup(key)), [1, 1, 4, 2].map(Label));
        assert_eq!(keys.map(|key| table.fib().lookup(key)), [5, 5, 4, 5].map(Label));
    }
    assert_eq!(builds.load(Ordering::Relaxed), 3);
    worker.quiescent();
    assert_eq!(view.get(&worker).lookup(0x0b00_0001), Label(5));
    // Now it has moved on, and is asked for nothing.
    worker.offline();
    table.apply(&[default(6), Change::Withdraw(prefix("13.0.0.0/8"))]).unwrap();
    assert_eq!((table.fib().lookup(0x0d00_0001), builds.load(Ordering::Relaxed)), (Label(6), 3));
}

/// What is announced waits for no worker, and builds nothing: one that goes by the default route before sees the old label or the new one.
#[test]
fn announcements_do_not_wait_for_workers() {
    let default = |label| Change::Announce(Prefix::DEFAULT, Label(label));
    let domain = Domain::new();
    let (mut table, builds) = counted::<u32>("rangetrie-d16", gappy(100), &domain);
    table.apply(&[announce("11.0.0.0/8", 1), default(2)]).unwrap();
    let (view, worker) = (table.view(), domain.register());
    let fib = view.get(&worker);
    table.apply(&[default(3)]).unwrap();
    let keys = [0x0b00_0001, 0x0c00_0001, 0x0d00_0001];
    for (label, how) in [(4, How::Patched), (5, How::Patched), (5, How::Unchanged)] {
        let both = [announce("11.0.0.0/8", label), announce("12.0.0.0/8", label)];
        assert_eq!(table.apply(&both).unwrap().how, how);
        assert_eq!(keys.map(|key| fib.lookup(key)), [label, label, 2].map(Label));
        assert_eq!(keys.map(|key| table.fib().lookup(key)), [label, label, 3].map(Label));
    }
    table.apply(&[Change::Withdraw(Prefix::DEFAULT)]).unwrap();
    assert_eq!(builds.load(Ordering::Relaxed), 1);
    // A route that leads nowhere from now on is not one that comes: the worker would go where the default route led.
    assert_eq!(table.apply(&[announce("11.0.0.0/8", 0)]).unwrap().how, How::Rebuilt);
    assert_eq!(keys.map(|key| fib.lookup(key)), [5, 5, 2].map(Label), "the old label");
    assert_eq!(keys.map(|key| table.fib().lookup(key)), [0, 5, 0].map(Label));
}

/// What was refused is taken back, and with it the default route that came in the same batch.
#[test]
fn a_refused_batch_leaves_the_default_route_as_it_was() {
    let (mut table, _) = counted::<u32>("rangetrie-d16", gappy(100), &Domain::new());
    table.apply(&[Change::Announce(Prefix::DEFAULT, Label(2))]).unwrap();
    let refused = [
        Change::Announce(Prefix::DEFAULT, Label(3)),
        announce("11.0.0.0/8", u32::MAX),
        Change::Withdraw(prefix("10.0.0.0/24")),
    ];
    assert!(table.apply(&refused).is_err());
    assert_eq!(table.rib().get(Prefix::DEFAULT), Some(Label(2)));
    assert_eq!([0x0b00_0001, 0x0a00_0001].map(|key| table.fib().lookup(key)), [2, 1].map(Label));
    table.apply(&[refused[0], refused[2]]).unwrap();
    assert_eq!([0x0b00_0001, 0x0a00_0001].map(|key| table.fib().lookup(key)), [3, 3].map(Label));
}

/// What is announced does not fit beside what is withdrawn, but all of the batch does.
#[test]
fn a_batch_that_fits_as_a_whole_is_taken() {
    // Hosts of as many /16s: seven nodes each, so that there is no room for 600 more beside 500.
    let host = |i: u32| Prefix::new(u128::from(i) << 112 | 1, 128).unwrap();
    let default = |label| Change::Announce(Prefix::<u128>::DEFAULT, Label(label));
    let algorithm = Algorithm::parse::<u128>("rangetrie-d16").unwrap();
    let rib: Rib<u128> = (0..500).map(|i| (host(i), Label(1))).collect();
    let mut table = Table::with(&Domain::new(), rib, move |rib, domain| {
        if rib.len() > 1000 {
            let (structure, what, advice) = ("one".into(), "told to".into(), "wait".into());
            return Err(BuildError::TooLarge { structure, what, advice });
        }
        algorithm.writer(rib, domain)
    })
    .unwrap();
    table.apply(&[default(2)]).unwrap();
    let keys = [0, 450, 700, 2000].map(|i| host(i).first());
    let mut batch: Vec<Change<u128>> = (500..1100).map(|i| Change::Announce(host(i), Label(3))).collect();
    batch.extend([default(4), Change::Withdraw(host(0))]);
    assert!(table.apply(&batch).is_err(), "99 too many");
    assert_eq!((table.rib().len(), table.rib().get(Prefix::DEFAULT)), (501, Some(Label(2))));
    assert_eq!(keys.map(|key| table.fib().lookup(key)), [1, 1, 2, 2].map(Label));
    batch.extend((1..400).map(|i| Change::Withdraw(host(i))));
    let applied = table.apply(&batch).unwrap();
    assert_eq!((applied.changed, applied.how, table.is_broken()), (1001, How::Rebuilt, false));
    assert_eq!(keys.map(|key| table.fib().lookup(key)), [4, 1, 3, 4].map(Label));
}
