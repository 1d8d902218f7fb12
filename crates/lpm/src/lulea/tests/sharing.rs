//! Tables of many VRFs over one store.

use super::*;
use crate::lulea::shared::{Shared, SharedWriter, check_references};
use crate::suite::concurrent;
use std::collections::HashMap;
use std::sync::Mutex;
use tidemill_lookup::publish::Publisher;

/// A table with the lengths of a full one: /48 and /32 above all, and some that are longer.
fn base(random: &mut Random, count: usize) -> Rib<u128> {
    let lens = [48, 48, 48, 48, 32, 32, 40, 44, 46, 36, 29, 64, 64, 128];
    let mut rib = Rib::new();
    while rib.len() < count {
        // Some hundred /32s, in which the others crowd.
        let near = (0x2000 + random.below(4) as u128 * 0x601) << 112 | (random.below(100) as u128) << 96;
        let addr = near | u128::from(random.bits()) << 32 & u128::MAX >> 32;
        let len = lens[random.below(lens.len())];
        rib.insert(Prefix::new(addr, len).unwrap(), Label(1 + random.below(150) as u32));
    }
    rib
}

/// A VRF's own routes.
type Own = HashMap<Prefix<u128>, Option<Label>>;

fn with_own(base: &Rib<u128>, own: &Own) -> Rib<u128> {
    let mut rib = base.clone();
    for (&prefix, label) in own {
        match label {
            Some(label) => rib.insert(prefix, *label),
            None => rib.remove(prefix),
        };
    }
    rib
}

/// Some routes more, some changed, some fewer.
fn differences(random: &mut Random, base: &[Prefix<u128>], count: usize) -> Own {
    let one = |i: usize| {
        let old = base[random.below(base.len())];
        match i % 3 {
            0 => (Prefix::new(old.first() | 0x37, 128).unwrap(), Some(Label(200))),
            1 => (old, Some(Label(201))),
            _ => (old, None),
        }
    };
    (0..count).map(one).collect()
}

/// At the edges of a VRF's own routes and of some others.
fn check_vrf(writer: &SharedWriter, base: &Rib<u128>, own: &Own, sample: &[Prefix<u128>]) {
    let list: Vec<(Prefix<u128>, Label)> = with_own(base, own).iter().collect();
    let oracle = Oracle::new(&list);
    let keys: Vec<u128> = own.keys().chain(sample).flat_map(|&prefix| edges(prefix)).collect();
    let expected: Vec<Label> = keys.iter().map(|&key| oracle.lookup(key)).collect();
    writer.lulea().lookup_batch_each(&keys, &mut |kernel, labels| assert_eq!(labels, expected, "{kernel}"));
    for (&key, &label) in keys.iter().zip(&expected) {
        assert_eq!(writer.lulea().lookup_probed(key, &()), label, "{key:x}");
    }
}

#[test]
fn a_hundred_vrfs() {
    let mut random = Random::new(30);
    let (vrfs, routes) = if cfg!(miri) { (3, 30) } else { (100, 3_000) };
    let base = base(&mut random, routes);
    let prefixes: Vec<Prefix<u128>> = base.iter().map(|(p, _)| p).collect();
    let sample: Vec<Prefix<u128>> = prefixes.iter().step_by(20).copied().collect();
    let domain = Domain::new();
    let shared = Shared::new(&domain);
    let first = shared.writer(&base).unwrap();
    let (alone, before) = (first.lulea().bytes(), shared.stats().bytes);
    assert_eq!((before + first.lulea().own_bytes(), first.lulea().shared_bytes()), (alone, 0));
    assert!(alone <= Writer::new(&base, &domain).unwrap().lulea().bytes(), "equal nodes of one table, too");
    let mut all: Vec<(SharedWriter, Own)> = (1..vrfs)
        .map(|_| {
            let own = differences(&mut random, &prefixes, 10);
            (shared.writer(&with_own(&base, &own)).unwrap(), own)
        })
        .collect();
    let stats = shared.stats();
    assert_eq!(stats.tables, vrfs, "all in one store");
    assert_eq!(first.lulea().shared_bytes(), stats.bytes);
    let more = (stats.bytes - before) as f64 / (vrfs - 1) as f64;
    println!(
        "{routes} routes, 10 of them different: {alone} bytes alone; {vrfs} tables share {} bytes; each more has {} bytes of its own and \
         adds {more:.0} to what is shared",
        stats.bytes,
        first.lulea().own_bytes()
    );
    // A difference makes a node anew for each byte, most of them small ones, and its block.
    assert!(more <= 10.0 * 3.0 * 1100.0, "{more}");
    for (writer, own) in all.iter().step_by(if cfg!(miri) { 1 } else { 9 }) {
        check_vrf(writer, &base, own, &sample);
    }
    // Changes of one leave the others alone.
    let mut reader = domain.register();
    for round in 0..if cfg!(miri) { 1 } else { 20 } {
        let at = round * 7 % all.len();
        let (writer, own) = &mut all[at];
        let more = differences(&mut random, &prefixes, 5);
        let changed: Vec<_> = more.keys().copied().collect();
        own.extend(more);
        writer.patch(&with_own(&base, own), &changed).unwrap();
        reader.quiescent();
        let (neighbour, theirs) = &all[(at + 1) % all.len()];
        check_vrf(neighbour, &base, theirs, &[]);
        let (writer, own) = &all[at];
        check_vrf(writer, &base, own, &[]);
    }
    check_vrf(&first, &base, &Own::new(), &sample);
    let writers: Vec<&SharedWriter> = all.iter().map(|(writer, _)| writer).chain([&first]).collect();
    check_references(&writers);
}

/// Random tables and changes, each of two tables of one store in turn; what one has is kept when the other changes.
#[test]
fn two_tables_of_one_store_answer_as_the_oracle_does() {
    for seed in 0..if cfg!(miri) { 2 } else { 60 } {
        let case = random_case::<u128>(seed);
        let narrowed = case.table.iter().map(|&(prefix, label)| (prefix, Label(label.0 % 300)));
        let mut ribs: [Rib<u128>; 2] = [narrowed.clone().collect(), narrowed.step_by(2).collect()];
        let domain = Domain::new();
        let mut reader = domain.register();
        let shared = Shared::new(&domain);
        let mut writers = ribs.each_ref().map(|rib| shared.writer(rib).unwrap());
        for (i, batch) in case.batches.iter().enumerate() {
            let (rib, writer) = (&mut ribs[i % 2], &mut writers[i % 2]);
            batch.iter().for_each(|change| _ = rib.apply(&narrow(change)));
            let changed: Vec<Prefix<u128>> = batch.iter().map(|change| change.prefix()).collect();
            if writer.patch(rib, &changed).is_err() {
                assert_eq!(writer.after_failure(), AfterFailure::Untouched);
                *writer = shared.writer(rib).unwrap();
            }
            for (rib, writer) in ribs.iter().zip(&writers) {
                check(writer.lulea(), rib, seed);
            }
            if i % 3 == 0 {
                reader.quiescent();
            }
        }
        if Arc::ptr_eq(&writers[0].lulea().store, &writers[1].lulea().store) {
            check_references(&[&writers[0], &writers[1]]);
        }
    }
}

/// All 256 slots of a node lead to equal nodes, which are one: it is a node all the same, of one run.
#[test]
fn slots_that_lead_to_the_same_node() {
    let in_each = |len: u8, label: u32| -> Vec<(Prefix<u128>, Label)> {
        let at = |i: u128| 0x2001_0d00 << 96 | i << 96 | 1 << 80;
        (0..256).map(|i| (Prefix::new(at(i), len).unwrap(), Label(label))).collect()
    };
    let mut rib: Rib<u128> = in_each(48, 7).into_iter().collect();
    let domain = Domain::new();
    let shared = Shared::new(&domain);
    let mut writer = shared.writer(&rib).unwrap();
    check(writer.lulea(), &rib, 1);
    let bytes = shared.stats().bytes;
    assert!(bytes < NOWHERE * 4 + SLOTS * 4 + 200, "{bytes}: a block, and three nodes");
    for (prefix, label) in [("2001:d80:1::/48", 8), ("2001:d80:1::/48", 7), ("2001:d80::/32", 9)] {
        let prefix = prefix.parse().unwrap();
        rib.insert(prefix, Label(label));
        writer.patch(&rib, &[prefix]).unwrap();
        check(writer.lulea(), &rib, 1);
        check_references(&[&writer]);
    }
    let (mut changed, all) = (Vec::new(), in_each(48, 0));
    for (prefix, _) in all.into_iter().chain([("2001:d80::/32".parse().unwrap(), Label(0))]) {
        rib.remove(prefix);
        changed.push(prefix);
    }
    writer.patch(&rib, &changed).unwrap();
    check_references(&[&writer]);
    assert_eq!(shared.stats().bytes, NOWHERE * 4, "nothing is left");
}

#[test]
fn what_a_dropped_table_had_alone_is_used_again_after_the_grace_period() {
    let mut random = Random::new(31);
    let base = base(&mut random, if cfg!(miri) { 10 } else { 500 });
    let prefixes: Vec<Prefix<u128>> = base.iter().map(|(p, _)| p).collect();
    let (own, other) = (differences(&mut random, &prefixes, 30), differences(&mut random, &prefixes, 30));
    let domain = Domain::new();
    let mut reader = domain.register();
    let shared = Shared::new(&domain);
    let first = shared.writer(&base).unwrap();
    let second = shared.writer(&with_own(&base, &own)).unwrap();
    // Somebody may still look into it: the writer is gone, the structure is not.
    let fib = second.fib();
    drop(second);
    let used = shared.stats();
    assert_eq!(used.tables, 2);
    for (key, rib) in own.keys().flat_map(|&prefix| edges(prefix)).map(|key| (key, with_own(&base, &own))) {
        assert_eq!(Some(fib.lookup(key)), Some(rib.lookup(key).map_or(Label::NONE, |(_, label)| label)));
    }
    drop(fib);
    check_references(&[&first]);
    // Until the reader reports, nothing is used again; then everything.
    let third = shared.writer(&with_own(&base, &other)).unwrap();
    assert!(shared.stats().bytes > used.bytes);
    drop(third);
    reader.quiescent();
    for _ in 0..4 {
        let again = shared.writer(&with_own(&base, &other)).unwrap();
        check_vrf(&again, &base, &other, &[]);
        check_references(&[&first, &again]);
        assert!(shared.stats().bytes <= used.bytes + 30 * 2 * 4 * 300, "{:?} after {used:?}", shared.stats());
        drop(again);
        reader.quiescent();
    }
    check_vrf(&first, &base, &Own::new(), &prefixes);
}

/// A table that the store has no room for gets a larger one; those of the old one stay.
#[test]
fn a_full_store_is_left() {
    let mut random = Random::new(33);
    let domain = Domain::new();
    let shared = Shared::with_room(&domain, 8192);
    let small = base(&mut random, 10);
    let mut first = shared.writer(&small).unwrap();
    let old = shared.stats().reserved_bytes;
    let mut rib = small.clone();
    // Patches until there is no room: nothing has changed then.
    let mut refused = false;
    while !refused {
        let before = rib.clone();
        let mut changed = Vec::new();
        for _ in 0..500 {
            let addr = 0x2001 << 112 | u128::from(random.bits()) << 48;
            let prefix = Prefix::new(addr, 64).unwrap();
            rib.insert(prefix, Label(1 + random.below(300) as u32));
            changed.push(prefix);
        }
        refused = first.patch(&rib, &changed).is_err();
        if refused {
            check(first.lulea(), &before, 1);
        }
    }
    let second = shared.writer(&rib).unwrap();
    assert!(shared.stats().reserved_bytes > old && shared.stats().tables == 1);
    assert!(!Arc::ptr_eq(&first.lulea().store, &second.lulea().store));
    check(second.lulea(), &rib, 1);
    let third = shared.writer(&small).unwrap();
    check_references(&[&second, &third]);
    drop(first);
    check(second.lulea(), &rib, 1);
}

/// Readers of one table while another one of the store is changed, dropped and built again; and of one that is changed itself.
#[test]
fn readers_see_the_old_or_the_new_label() {
    let rounds = if cfg!(miri) { 3 } else { 120 };
    // What a rebuild makes joins what is there.
    let stores: Mutex<Vec<(Domain, Shared, SharedWriter)>> = Mutex::default();
    concurrent::<u128>(2, rounds, move |rib: &Rib<u128>, domain: &Domain| -> crate::Built<u128> {
        let mut stores = stores.lock().unwrap();
        if !stores.iter().any(|(of, ..)| of.same(domain)) {
            let shared = Shared::new(domain);
            let beside = shared.writer(rib)?;
            stores.push((domain.clone(), shared, beside));
        }
        let (_, shared, _) = stores.iter().find(|(of, ..)| of.same(domain)).unwrap();
        Ok(Box::new(shared.writer(rib)?))
    });
    let mut random = Random::new(32);
    let base = base(&mut random, if cfg!(miri) { 10 } else { 300 });
    let prefixes: Vec<Prefix<u128>> = base.iter().map(|(p, _)| p).collect();
    let keys: Vec<u128> = prefixes.iter().flat_map(|&prefix| edges(prefix)).collect();
    let expected: Vec<Label> =
        keys.iter().map(|&key| base.lookup(key).map_or(Label::NONE, |(_, label)| label)).collect();
    let domain = Domain::new();
    let shared = Shared::new(&domain);
    let red = shared.writer(&base).unwrap();
    let publisher = Publisher::new(&domain, red.lulea().clone());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (view, mut reader, stop) = (publisher.view(), domain.register(), &stop);
        let (keys, expected) = (&keys, &expected);
        let looks = scope.spawn(move || {
            let mut out = vec![Label::NONE; keys.len()];
            let mut looked = 0;
            while !stop.load(Ordering::Relaxed) || looked == 0 {
                view.get(&reader).lookup_batch(keys, &mut out);
                reader.quiescent();
                assert_eq!(&out, expected);
                looked += 1;
            }
        });
        for _ in 0..if cfg!(miri) { 1 } else { 10 } {
            let mut own = differences(&mut random, &prefixes, 20);
            let mut blue = shared.writer(&with_own(&base, &own)).unwrap();
            for _ in 0..3 {
                let more = differences(&mut random, &prefixes, 20);
                let changed: Vec<_> = more.keys().copied().collect();
                own.extend(more);
                if blue.patch(&with_own(&base, &own), &changed).is_err() {
                    break;
                }
                check_vrf(&blue, &base, &own, &[]);
            }
        }
        stop.store(true, Ordering::Relaxed);
        looks.join().unwrap();
    });
}
