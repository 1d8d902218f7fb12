//! The kernels of this CPU against their specification, on the same table.

use super::key;
use crate::flowtable::group::{GROUP, Group};
use crate::flowtable::store::Store;
use crate::flowtable::tags::LANES;
use crate::flowtable::{FlowTable, Outcome, Slot, State};
use crate::hash::{KeyHash, mix};
use crate::key::Key;
use crate::suite::flows::Masked;
use std::array::from_fn;

fn agree<const W: usize, S: State>(hash: Masked<W>, slots: usize, flows: u64) {
    let mut table = FlowTable::<W, S, _>::new(slots, hash).unwrap();
    for i in 0..flows {
        table.find_or_insert(0, hash.hash(&key(i)), &key::<W>(i));
    }
    let store = &table.store;
    let (mut found, mut missed, mut unsure) = (0, 0, 0);
    for round in 0..flows * 2 / 32 + 10 {
        // There or not; neighbours, once more, from all over. Some have a hash that is there and another key.
        let number = |i: u64| mix(round * 32 + i / 2) % (flows * 5 / 3 + 1);
        let keys: [Key<W>; GROUP] = from_fn(|i| key(number(i as u64)));
        let mut hashes: [u64; GROUP] = keys.map(|key| hash.hash(&key));
        hashes[7] = hash.hash(&key(number(9)));
        let mut scalar = Group::new();
        for insert in [false, true] {
            let groups = if insert {
                store.look_scalar::<true, ()>(&mut scalar, &hashes, &keys, &());
                check_new(store, &scalar, &hashes, &keys);
                by_every_kernel::<true, W, S>(store, &hashes, &keys)
            } else {
                store.look_scalar::<false, ()>(&mut scalar, &hashes, &keys, &());
                by_every_kernel::<false, W, S>(store, &hashes, &keys)
            };
            assert!(!groups.is_empty());
            for vectors in &groups {
                if insert {
                    assert_eq!((vectors.hopeless, vectors.welcome), (scalar.hopeless, scalar.welcome));
                }
                assert_eq!(
                    (vectors.found, vectors.unsure()),
                    (scalar.found, scalar.unsure()),
                    "{W} words, {insert}"
                );
                for i in 0..GROUP {
                    assert_eq!(vectors.place(i), store.place(hashes[i]));
                    assert_eq!(scalar.place(i), store.place(hashes[i]));
                    assert_eq!(store.late_slot(vectors, i), store.late_slot(&scalar, i));
                    let (is, may) = (vectors.found >> i & 1 != 0, vectors.unsure() >> i & 1 != 0);
                    let there = store.find(store.place(hashes[i]), &keys[i], &());
                    if is || may {
                        assert_eq!(vectors.slots[i], scalar.slots[i]);
                    }
                    if is {
                        assert_eq!(there, Some(vectors.slots[i] as usize));
                    } else {
                        assert!(there.is_none() || may, "{W} words: key {i} is not seen");
                    }
                    found += u32::from(is);
                    missed += u32::from(!is);
                    unsure += u32::from(may);
                }
            }
        }
    }
    assert!(found > 20 && missed > 20, "{found} {missed} {unsure}");
    let few = hash.clear != 0;
    assert!(!few || unsure > 20, "{found} {missed} {unsure}");
}

/// What each kernel of this CPU says of a group, and the one that is chosen.
fn by_every_kernel<const INSERT: bool, const W: usize, S: State>(
    store: &Store<W, S>,
    hashes: &[u64; GROUP],
    keys: &[Key<W>; GROUP],
) -> Vec<Group> {
    let mut groups = Vec::new();
    #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
    for kernel in crate::flowtable::group::kernel::Kernel::all::<W>() {
        let mut take = |group: &Group, _: usize| groups.push(group.clone());
        store.look_by::<INSERT>(kernel, &[*hashes], &[*keys], &mut take);
    }
    store.look::<INSERT>(hashes, keys, |group, _| groups.push(group.clone()));
    groups
}

/// What a group says of new keys, by the definitions.
fn check_new<const W: usize, S: State>(
    store: &Store<W, S>,
    group: &Group,
    hashes: &[u64; GROUP],
    keys: &[Key<W>; GROUP],
) {
    for i in 0..GROUP {
        let place = store.place(hashes[i]);
        let (home, other) =
            (store.tags(place.bucket, &()), store.tags(store.alternate(place.bucket, place.tag), &()));
        let new = store.find(place, &keys[i], &()).is_none() && home.matches(place.tag) == 0;
        let (hopeless, welcome) = (group.hopeless >> i & 1 != 0, group.welcome >> i & 1 != 0);
        let full = home.free() == 0 && other.free() == 0;
        assert_eq!(hopeless, new && full && other.matches(place.tag) == 0, "key {i}");
        assert_eq!(welcome, new && home.free() != 0 && home.strays() == 0, "key {i}");
        if welcome {
            assert_eq!(group.lane(i), home.free().trailing_zeros() as usize);
        }
    }
}

#[test]
fn the_vectors_see_what_the_scalar_form_sees() {
    for (slots, flows) in [(1, 20), (1000, 300), (1000, 940), (1000, 1100), (31 * 331, 9700)] {
        agree::<1, u64>(Masked::good(1), slots, flows);
        agree::<2, u64>(Masked::good(2), slots, flows);
        agree::<2, ()>(Masked::good(3), slots, flows);
        agree::<3, [u64; 8]>(Masked::good(4), slots, flows);
        agree::<5, [u64; 2]>(Masked::good(5), slots, flows);
        agree::<8, u64>(Masked::good(6), slots, flows);
        agree::<9, u64>(Masked::good(7), slots, flows);
    }
}

#[test]
fn the_vectors_see_what_the_scalar_form_sees_with_few_tags() {
    for clear in [0xff00, 0xffc0, 0xfffe] {
        agree::<1, u64>(Masked { clear, ..Masked::good(1) }, 1000, 300);
        agree::<2, u64>(Masked { clear, ..Masked::good(2) }, 1000, 1000);
        agree::<5, [u64; 2]>(Masked { clear, ..Masked::good(5) }, 1000, 900);
    }
}

/// Tag 0 is "free": a hash that ends in zeros is found all the same, and an empty table has none.
#[test]
fn a_hash_that_ends_in_zeros() {
    let hash = Masked { clear: 0xffff, ..Masked::good(1) };
    let mut table = FlowTable::<2, u64, _>::new(31 * 16, hash).unwrap();
    let keys: [Key<2>; 32] = from_fn(|i| key(i as u64));
    let hashes = keys.map(|key| hash.hash(&key));
    let mut slots = [None; 32];
    table.lookup_batch(&hashes, &keys, &mut slots);
    assert_eq!(slots, [None; 32]);
    let mut out = [Outcome::Full; 32];
    table.find_or_insert_batch(0, &hashes, &keys, &mut out);
    table.lookup_batch(&hashes, &keys, &mut slots);
    assert!(slots.iter().zip(out).all(|(slot, out)| *slot == out.slot()));
    assert!(slots.iter().filter(|slot| slot.is_some()).count() > 16);
}

/// Several groups are under way at once, and one in thirty keys lies in its other bucket: each is found by itself all the same.
#[test]
fn long_batches_find_what_single_lookups_find() {
    let hash = Masked::<2>::good(8);
    let mut table = FlowTable::<2, u64, _>::new(31 * 331, hash).unwrap();
    for i in 0..9700 {
        table.find_or_insert(0, hash.hash(&key(i)), &key(i));
    }
    let mut strays = 0;
    for (round, groups) in (0..24).zip((0..=7).cycle()) {
        let count = groups * GROUP + 5;
        let keys: Vec<Key<2>> = (0..count as u64).map(|i| key(mix(round << 32 | i) % 10_500)).collect();
        let hashes: Vec<u64> = keys.iter().map(|key| hash.hash(key)).collect();
        let single: Vec<_> = hashes.iter().zip(&keys).map(|(&hash, key)| table.find(hash, key)).collect();
        let mut slots = vec![None; count];
        table.lookup_batch(&hashes, &keys, &mut slots);
        assert_eq!(slots, single, "{groups} groups");
        let home = |hash: u64| table.store.place(hash).bucket as usize;
        let away = |&(&hash, slot): &(&u64, &Option<Slot>)| {
            slot.is_some_and(|slot| slot.index() / LANES != home(hash))
        };
        strays += hashes.iter().zip(&single).filter(away).count();
    }
    assert!(strays > 20, "{strays} strays were asked for");
}
