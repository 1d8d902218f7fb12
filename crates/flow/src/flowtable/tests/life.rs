//! The table beside a model: batches, states, expiry, another hash.

use super::key;
use crate::flowtable::store::IN_ALTERNATE;
use crate::flowtable::tags::{LANES, bits};
use crate::flowtable::{FlowTable, Outcome, State, Swept};
use crate::hash::{KeyHash, Keyed, mix};
use crate::key::Key;
use crate::suite::flows::{Beside, FlowOp, Masked, Totals, keys, random_life};
use crate::table::SizeError;
use crate::words::Ordering;

/// Many short lives; a state of `S` with keys of `W` words.
fn lives<const W: usize, S: State + PartialEq + std::fmt::Debug>(seeds: std::ops::Range<u64>) {
    let mut all = Totals::default();
    for seed in seeds {
        let totals = random_life::<W, S>(seed).unwrap_or_else(|failure| panic!("{failure}"));
        all.found += totals.found;
        all.new += totals.new;
        all.full += totals.full;
        all.gone += totals.gone;
        all.rekeyed += totals.rekeyed;
        all.migrated += totals.migrated;
        all.replaced += totals.replaced;
    }
    let each = [all.found, all.new, all.full, all.gone, all.rekeyed, all.migrated, all.replaced];
    assert!(each.iter().all(|&count| count > 20), "{all:?}");
}

const LIVES: u64 = if cfg!(miri) { 1 } else { 60 };

#[test]
fn random_lives_with_keys_of_one_word() {
    lives::<1, u64>(0..LIVES);
}

#[test]
fn random_lives_without_states() {
    lives::<2, ()>(1000..1000 + LIVES);
    lives::<3, ()>(1500..1500 + LIVES);
}

#[test]
fn random_lives_with_states_of_many_words() {
    lives::<2, [u64; 8]>(2000..2000 + LIVES);
    lives::<5, [u32; 6]>(3000..3000 + LIVES);
}

/// The longest key of which a vector has room for all words, and one that is longer.
#[test]
fn random_lives_with_keys_of_a_line_and_more() {
    lives::<8, u64>(4000..4000 + LIVES);
    lives::<9, u64>(5000..5000 + LIVES);
}

/// Key by key or in batches of up to six groups and a rest, each packet has the same outcome: also where tables are full, entries move, searches fail, room
/// is kept free, and flows come over from another hash. Returns moves, failed searches, and in how many rounds flows had yet to come over.
fn one_after_the_other<const W: usize, S: State>(seed: u64, first: fn(usize) -> S) -> [u64; 3] {
    let hash = Masked::<W> { clear: [0, 0xff00][seed as usize % 2], ..Masked::good(seed) };
    let table = || FlowTable::<W, S, _>::new(31 * (1 + seed as usize % 9), hash).unwrap();
    let (mut batches, mut each) = (table(), table());
    let pool = batches.slots() as u64 * 3 / 2;
    let mut unsettled = 0;
    for round in 0..60 {
        let count = 1 + mix(seed << 32 | round) % 200;
        let keys: Vec<Key<W>> = (0..count).map(|i| key(mix(seed << 40 | round << 16 | i) % pool)).collect();
        let most = match round / 8 % 4 {
            1 => batches.slots() * 4 / 5,
            2 => batches.len() + 20,
            _ => usize::MAX,
        };
        for table in [&mut batches, &mut each] {
            table.keep_free(most);
            // Where all have come over from the last.
            if round % 16 == 5 && table.old == 0 {
                table.rekey(Masked { keyed: Keyed::new(round.into()), ..hash }).unwrap();
            }
            table.migrate(1);
        }
        unsettled += u64::from(batches.old != 0);
        let hashes: Vec<u64> = keys.iter().map(|key| batches.hasher().hash(key)).collect();
        let (mut ours, mut theirs) = (vec![Outcome::Full; keys.len()], vec![Outcome::Full; keys.len()]);
        batches.find_or_insert_batch_with(round as u32, &hashes, &keys, &mut ours, first);
        each.find_or_insert_each_with(round as u32, &hashes, &keys, &mut theirs, first);
        assert_eq!(ours, theirs, "{W} words, seed {seed}, round {round}");
        assert_eq!(batches.counters(), each.counters(), "{W} words, seed {seed}, round {round}");
        if round % 8 == 7 {
            for table in [&mut batches, &mut each] {
                table.sweep(2, |_, stamp, _| if stamp % 3 == 0 { Swept::Goes } else { Swept::Stays });
            }
        }
    }
    let counters = batches.counters();
    [counters.moves, counters.failed, unsettled]
}

#[test]
fn batches_do_what_one_after_the_other_does() {
    let mut all = [0; 3];
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let each = [
            one_after_the_other::<1, u64>(seed, |i| i as u64),
            one_after_the_other::<2, u64>(seed, |i| i as u64),
            one_after_the_other::<2, [u64; 8]>(seed, |i| [i as u64; 8]),
            one_after_the_other::<5, [u64; 2]>(seed, |i| [i as u64, 1]),
            one_after_the_other::<9, u64>(seed, |i| i as u64),
        ];
        each.iter().for_each(|each| all.iter_mut().zip(each).for_each(|(sum, one)| *sum += one));
    }
    assert!(
        cfg!(miri) || all.iter().all(|&count| count > 100),
        "moves, failed searches, unsettled rounds: {all:?}"
    );
}

/// Who says what states begin with may panic: what was made before is there and counted.
#[test]
fn a_panic_in_the_middle_of_a_batch_loses_no_flow() {
    for at in [0, 3, 31, 40] {
        let hash = Masked::<2>::good(1);
        let mut table = FlowTable::<2, u64, _>::new(31 * 40, hash).unwrap();
        let keys: Vec<Key<2>> = (0..64).map(key).collect();
        let hashes: Vec<u64> = keys.iter().map(|key| hash.hash(key)).collect();
        let mut out = vec![Outcome::Full; keys.len()];
        let first = |i: usize| if i == at { panic!("as planned") } else { i as u64 };
        let batch = || table.find_or_insert_batch_with(1, &hashes, &keys, &mut out, first);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(batch)).is_err());
        let there = |table: &FlowTable<2, u64, Masked<2>>| {
            keys.iter().filter(|key| table.find(table.hasher().hash(key), key).is_some()).count()
        };
        assert_eq!((table.len(), table.counters().inserted), (at, at as u64));
        assert_eq!(there(&table), at);
        table.rekey(Masked::good(7)).unwrap();
        while table.migrate(8) > 0 {}
        assert_eq!((table.len(), there(&table)), (at, at));
        let hashes: Vec<u64> = keys.iter().map(|key| table.hasher().hash(key)).collect();
        table.find_or_insert_batch(2, &hashes, &keys, &mut out);
        assert_eq!((table.len(), there(&table)), (64, 64));
    }
}

/// In the first slot too, which is read where there is no flow.
#[test]
fn a_word_of_a_flow_or_of_none() {
    let mut table = FlowTable::<2, [u64; 2], _>::new(31, Masked::good(1)).unwrap();
    for i in 0..31 {
        let slot = table.find_or_insert(0, table.hasher().hash(&key(i)), &key(i)).slot().unwrap();
        table.set_state(slot, [i + 1, !i]);
        assert_eq!((table.word_or(Some(slot), 0, 7), table.word_or(Some(slot), 1, 7)), (i + 1, !i));
        assert_eq!((table.word_or(None, 0, 7), table.word_or(None, 1, 0)), (7, 0));
    }
}

/// Keys that differ in one word only, in all forms of lookup.
#[test]
fn every_word_of_a_key_counts() {
    fn differ<const W: usize>() {
        // One hash for all, so that only the comparison of keys tells them apart.
        let hash = Masked { clear: u64::MAX, ..Masked::good(0) };
        let mut pool = vec![key::<W>(0)];
        for word in 0..W {
            let mut other = pool[0];
            other.0[word] ^= 1;
            pool.push(other);
        }
        // At most so many of one tag, in its two buckets.
        pool.truncate(8);
        let count = pool.len();
        let mut table = FlowTable::<W, u64, _>::new(1000, hash).unwrap();
        let hashes = vec![0; 32];
        let all: Vec<_> = pool.iter().cycle().take(32).copied().collect();
        let mut out = vec![Outcome::Full; 32];
        table.find_or_insert_batch(0, &hashes, &all[..], &mut out);
        assert!(out[..count].iter().all(|outcome| matches!(outcome, Outcome::New(_))), "{out:?}");
        let mut slots = vec![None; 32];
        table.lookup_batch(&hashes, &all, &mut slots);
        for i in 0..32 {
            assert_eq!(slots[i], out[i % count].slot(), "{W} words, key {i}");
            assert_eq!(table.find(0, &all[i]), slots[i]);
        }
    }
    differ::<1>();
    differ::<2>();
    differ::<3>();
    differ::<5>();
    differ::<7>();
    differ::<8>();
    differ::<9>();
}

/// What lies beyond the shortest slice is not looked at.
#[test]
fn slices_of_different_lengths() {
    let hash = Keyed::<2>::new(1);
    let mut table = FlowTable::<2>::new(1000, hash).unwrap();
    let keys: Vec<_> = (0..100).map(key).collect();
    let hashes: Vec<u64> = keys.iter().map(|key| hash.hash(key)).collect();
    let mut out = vec![Outcome::Full; 100];
    table.find_or_insert_batch(0, &hashes, &keys, &mut out[..35]);
    table.find_or_insert_batch(0, &hashes[..36], &keys, &mut out);
    table.find_or_insert_batch(0, &hashes, &keys[..37], &mut out);
    assert_eq!((table.len(), out.iter().filter(|out| out.slot().is_some()).count()), (37, 37));
    table.find_or_insert_batch(0, &hashes, &keys, &mut out);
    for unmigrated in [false, true] {
        if unmigrated {
            table.rekey(Keyed::new(2)).unwrap();
        }
        let hashes: Vec<u64> = keys.iter().map(|key| table.hasher().hash(key)).collect();
        for (h, k, o) in
            [(100, 100, 64), (33, 64, 64), (64, 33, 64), (64, 64, 33), (0, 100, 100), (5, 1, 9), (40, 50, 60)]
        {
            let mut found = vec![None; o];
            table.lookup_batch(&hashes[..h], &keys[..k], &mut found);
            let count = h.min(k).min(o);
            assert!(found[..count].iter().all(Option::is_some), "{h} {k} {o}");
            assert!(found[count..].iter().all(Option::is_none), "{h} {k} {o}");
        }
    }
}

fn all<const W: usize>(beside: &mut Beside<W, u64>, ops: &[FlowOp]) {
    for &op in ops {
        beside.apply(op).unwrap_or_else(|what| panic!("{op:?}: {what}"));
    }
}

/// The count of strays of each bucket is that of the flows which belong there and lie in their other bucket; each flow lies in one of its two.
fn counts_are_right<const W: usize>(table: &FlowTable<W, u64, Masked<W>>) {
    let store = &table.store;
    let mut strays = vec![0; store.buckets as usize];
    for bucket in 0..store.buckets {
        let tags = store.tags(bucket, &());
        for lane in bits(tags.used()) {
            let slot = bucket as usize * LANES + lane;
            let alternate = store.alternate(bucket, tags.tag(lane));
            let away = store.head(slot).load(Ordering::Relaxed) & IN_ALTERNATE != 0;
            strays[alternate as usize] += u16::from(away);
            let place = store.place(table.hasher().hash(&store.key(slot)));
            let home = if away { alternate } else { bucket };
            assert!(table.left_to_migrate() > 0 || (place.bucket, place.tag) == (home, tags.tag(lane)));
        }
    }
    let counted: Vec<u16> = (0..store.buckets).map(|bucket| store.tags(bucket, &()).strays()).collect();
    assert_eq!(counted, strays);
}

#[test]
fn strays_are_counted_up_and_down() {
    let mut beside = Beside::<1, u64>::new(3100, keys(6000, 1), Masked::good(1)).unwrap();
    for round in 0..6 {
        all(&mut beside, &[FlowOp::Tick, FlowOp::Batch(500 * round, 3200, 1)]);
        assert!(beside.table.counters().moves > 0);
        counts_are_right(&beside.table);
        all(&mut beside, &[FlowOp::Expire(60, 1)]);
        for at in 0..200 {
            all(&mut beside, &[FlowOp::Remove(500 * round + 3 * at)]);
        }
        counts_are_right(&beside.table);
        all(&mut beside, &[FlowOp::Rekey(round as u64), FlowOp::Migrate(30)]);
        counts_are_right(&beside.table);
        all(&mut beside, &[FlowOp::Migrate(1000), FlowOp::Migrate(1000), FlowOp::Check]);
        counts_are_right(&beside.table);
    }
    all(&mut beside, &[FlowOp::Tick, FlowOp::Expire(1000, 0)]);
    counts_are_right(&beside.table);
    assert!(beside.table.is_empty());
}

/// Another hash at several loads, up to beyond full, with packets, removals and expiry between the steps.
#[test]
fn a_table_that_hashes_anew_loses_nothing_at_any_load() {
    for (share, seed) in [(10, 1), (50, 2), (90, 3), (97, 4), (130, 5)] {
        let slots = 3100;
        let flows = slots * share / 100;
        let mut beside = Beside::<2, u64>::new(slots, keys(flows + 200, seed), Masked::good(seed)).unwrap();
        all(&mut beside, &[FlowOp::Batch(0, flows, 1), FlowOp::SetState(3, 7), FlowOp::Check]);
        let len = beside.table.len();
        assert!(len == flows || share > 96, "{len} of {flows}");
        let mut step = 0;
        for round in 0..3 {
            all(&mut beside, &[FlowOp::Rekey(100 + round), FlowOp::Rekey(7), FlowOp::Check]);
            assert_eq!(beside.totals.rekeyed, round + 1);
            // A flood at the same time as everything else, and room for what has no room.
            let mut rounds = 0;
            while beside.table.left_to_migrate() != 0 {
                rounds += 1;
                assert!(rounds < 3000, "{} are left at {share} %", beside.table.left_to_migrate());
                step += 1;
                all(
                    &mut beside,
                    &[
                        FlowOp::Migrate(1 + rounds % 4),
                        FlowOp::Batch(step * 40, 40, 1),
                        FlowOp::Tick,
                        FlowOp::SetState(step * 17, step as u64),
                        FlowOp::Remove(step * 13),
                        FlowOp::Lookup(step * 31, 33),
                        FlowOp::Expire(1, 60),
                    ],
                );
            }
            all(&mut beside, &[FlowOp::Check]);
        }
    }
}

/// Migration alone, nothing else happening: it ends in three rounds of the table where tables are used, in five at the limit.
#[test]
fn migration_ends_without_help() {
    for (share, rounds) in [(85, 3), (90, 3), (97, 5), (100, 8)] {
        for seed in 0..3 {
            let buckets = 200;
            let flows = 31 * buckets * share / 100;
            let mut beside =
                Beside::<1, u64>::new(31 * buckets, keys(flows, seed), Masked::good(seed)).unwrap();
            all(&mut beside, &[FlowOp::Batch(0, flows, 1), FlowOp::Rekey(77)]);
            assert_eq!(beside.table.left_to_migrate(), beside.table.len());
            for _ in 0..rounds * buckets {
                all(&mut beside, &[FlowOp::Migrate(1)]);
            }
            assert_eq!(beside.table.left_to_migrate(), 0, "{share} %");
            all(&mut beside, &[FlowOp::Check, FlowOp::Rekey(78), FlowOp::Migrate(usize::MAX), FlowOp::Check]);
        }
    }
}

/// A full table takes every new flow that somebody gives way to, and none that nobody does; strays are counted.
#[test]
fn who_may_go_gives_way() {
    for (slots, seed) in [(31, 1), (62, 2), (3100, 3)] {
        let mut beside = Beside::<1, u64>::new(slots, keys(3 * slots, seed), Masked::good(seed)).unwrap();
        all(&mut beside, &[FlowOp::Batch(0, slots + slots / 2, 1), FlowOp::Tick]);
        let full = beside.table.len();
        for at in 0..slots {
            all(&mut beside, &[FlowOp::Replace(2 * slots + at, 2)]);
        }
        let (len, replaced) = (beside.table.len(), beside.totals.replaced);
        assert!(replaced == 0 && len < full + slots / 10, "nobody is that old: {len} after {full}");
        for at in 0..slots / 2 {
            all(&mut beside, &[FlowOp::Replace(2 * slots + at, 1)]);
        }
        assert!(beside.totals.replaced as usize > slots / 3);
        counts_are_right(&beside.table);
        all(&mut beside, &[FlowOp::Check, FlowOp::Rekey(7)]);
        for at in 0..slots / 2 {
            all(&mut beside, &[FlowOp::Replace(slots + at, 0), FlowOp::Migrate(1)]);
        }
        counts_are_right(&beside.table);
        all(&mut beside, &[FlowOp::Check]);
    }
}

/// One bucket, every slot taken: no flow can move until one goes. Nothing is lost meanwhile.
#[test]
fn a_full_bucket_waits_for_room_to_migrate() {
    let mut beside = Beside::<1, u64>::new(31, keys(60, 1), Masked::good(1)).unwrap();
    all(&mut beside, &[FlowOp::Batch(0, 40, 1), FlowOp::Rekey(5), FlowOp::Migrate(100), FlowOp::Check]);
    assert_eq!((beside.table.len(), beside.table.left_to_migrate()), (31, 31));
    all(&mut beside, &[FlowOp::Rekey(6), FlowOp::Batch(0, 60, 1), FlowOp::One(3), FlowOp::Check]);
    assert_eq!(beside.table.left_to_migrate(), 31);
    all(&mut beside, &[FlowOp::Remove(7), FlowOp::Migrate(100), FlowOp::Check]);
    assert_eq!((beside.table.len(), beside.table.left_to_migrate()), (30, 0));
    all(&mut beside, &[FlowOp::Rekey(6), FlowOp::Migrate(100), FlowOp::Check]);
}

#[test]
fn hashing_anew_with_nothing_in_it_or_with_the_same_hash() {
    let mut beside = Beside::<5, [u64; 2]>::new(500, keys(300, 1), Masked::good(9)).unwrap();
    for op in [
        FlowOp::Rekey(1),
        FlowOp::Rekey(2),
        FlowOp::Migrate(0),
        FlowOp::Batch(0, 300, 1),
        FlowOp::Rekey(2),
        FlowOp::Batch(100, 64, 1),
        FlowOp::Migrate(3),
        FlowOp::Check,
        FlowOp::Migrate(1000),
        FlowOp::Check,
        FlowOp::Rekey(3),
    ] {
        beside.apply(op).unwrap();
    }
    assert_eq!((beside.totals.rekeyed, beside.table.left_to_migrate()), (4, 300));
    // All that are left leave by other ways.
    for at in 0..150 {
        beside.apply(FlowOp::Remove(at)).unwrap();
    }
    for op in [FlowOp::Tick, FlowOp::Expire(1000, 1), FlowOp::Check, FlowOp::Rekey(4), FlowOp::Check] {
        beside.apply(op).unwrap();
    }
    assert_eq!(beside.totals.rekeyed, 5);
}

/// A batch finds flows that lie under the old hash, brings them over and gives their new slots, also for a key that comes twice.
#[test]
fn a_batch_brings_flows_over() {
    let mut beside = Beside::<2, u64>::new(1000, keys(900, 3), Masked::good(9)).unwrap();
    for op in [FlowOp::Batch(0, 900, 1), FlowOp::Rekey(1), FlowOp::Batch(0, 128, 0), FlowOp::Batch(0, 600, 1)]
    {
        beside.apply(op).unwrap();
    }
    let left = beside.table.left_to_migrate();
    assert!((300..400).contains(&left), "{left} are left");
    for op in [FlowOp::Batch(0, 900, 7), FlowOp::Check] {
        beside.apply(op).unwrap();
    }
}

#[test]
fn sizes_from_nothing_to_more_than_there_are_numbers() {
    for (asked, slots) in [(0, 31), (1, 31), (31, 31), (32, 62), (62, 62), (1000, 1023)] {
        let mut table = FlowTable::<1>::new(asked, Keyed::new(0)).unwrap();
        assert_eq!((table.slots(), table.len(), table.is_empty()), (slots, 0, true));
        let per_slot = table.bytes() as f64 / slots as f64;
        assert!((per_slot - FlowTable::<1>::BYTES_PER_SLOT).abs() < 1e-9, "{per_slot}");
        let scanned = table.scan(0, 1000, |_, _, _| ());
        assert_eq!((scanned, table.migrate(5), table.expire(5, |_, _, _| true)), (0, 0, 0));
    }
    for asked in [u32::MAX as usize, 1 << 40, usize::MAX] {
        let error = FlowTable::<2>::new(asked, Keyed::new(0)).unwrap_err();
        assert!(
            matches!(error, SizeError::TooMany { asked: a, most } if a == asked && most < asked),
            "{error}"
        );
    }
    assert_eq!(
        (FlowTable::<2>::ENTRY_BYTES, FlowTable::<2, ()>::ENTRY_BYTES, FlowTable::<5, [u64; 8]>::ENTRY_BYTES),
        (32, 24, 112)
    );
}

/// A sweep gives states, takes out and leaves alone; what readers see is the new state, and nothing else has changed.
#[test]
fn a_sweep_changes_what_it_is_told_to() {
    let mut table = FlowTable::<1, [u64; 2]>::new(1000, Keyed::new(5)).unwrap();
    let hash = |table: &FlowTable<1, [u64; 2]>, n: u64| table.hasher().hash(&Key([n]));
    for n in 0..800 {
        let slot = table.find_or_insert(n as u32, hash(&table, n), &Key([n])).slot().unwrap();
        table.set_state(slot, [n, 1]);
    }
    let mut reader = table.reader();
    // In parts, as a worker does it; the next round begins where the last one ended.
    let (mut gone, mut seen) = (0, 0);
    while seen < 800 {
        gone += table.sweep(3, |key, stamp, state| {
            seen += 1;
            assert_eq!((key.0[0], u64::from(stamp)), (state[0], state[0]));
            match key.0[0] % 4 {
                0 => Swept::Goes,
                1 => Swept::Becomes([state[0], 2]),
                _ => Swept::Stays,
            }
        });
    }
    assert_eq!((gone, seen, table.len()), (200, 800, 600));
    for n in 0..800 {
        let state = reader.get(&Key([n])).map(|flow| flow.state);
        let found = table.find(hash(&table, n), &Key([n])).map(|slot| table.state(slot));
        let wanted = [None, Some([n, 2]), Some([n, 1]), Some([n, 1])][(n % 4) as usize];
        assert_eq!((state, found), (wanted, wanted), "flow {n}");
    }
}

/// What is asked for ahead of an insertion is where that goes; what is taken out by its slot is what was put there.
#[test]
fn a_new_flow_goes_where_it_was_said_to() {
    fn check<const W: usize, S>(state: impl Fn(u64) -> S)
    where
        S: State + PartialEq + std::fmt::Debug,
    {
        let mut table = FlowTable::<W, S>::new(310, Keyed::new(3)).unwrap();
        let (mut there, mut home, mut away) = (Vec::new(), 0, 0);
        for i in 0..if cfg!(miri) { 500 } else { 4000_u64 } {
            if there.len() >= 295 {
                let gone: u64 = there.swap_remove(mix(i) as usize % there.len());
                let slot = table.find(table.hasher().hash(&key::<W>(gone)), &key(gone)).unwrap();
                assert_eq!(table.remove_at(slot), state(gone));
                assert_eq!(table.find(table.hasher().hash(&key::<W>(gone)), &key(gone)), None);
            }
            let hash = table.hasher().hash(&key::<W>(i));
            let said = table.prefetch_insert(hash);
            match table.find_or_insert(0, hash, &key(i)) {
                Outcome::New(slot) => {
                    assert_eq!(said.unwrap_or(slot), slot, "key {i}");
                    (home, away) = if said.is_some() { (home + 1, away) } else { (home, away + 1) };
                    table.set_state(slot, state(i));
                    there.push(i);
                }
                outcome => assert_eq!((outcome, said), (Outcome::Full, None), "key {i}"),
            }
            assert_eq!(table.len(), there.len());
        }
        assert!(home > 200 && away > 10, "{home} at home, {away} elsewhere");
    }
    check::<1, u64>(|i| i);
    // Entries that lie on one line in every second lane, and entries of two lines.
    check::<2, [u64; 2]>(|i| [i, !i]);
    check::<2, [u64; 9]>(|i| [i; 9]);
}
