//! The kernel for AVX-512 against its specification, on the same table.

use super::key;
use crate::flowtable::group::{GROUP, Group};
use crate::flowtable::store::Store;
use crate::flowtable::tags::bits;
use crate::flowtable::{FlowTable, Outcome, State};
use crate::hash::{KeyHash, mix};
use crate::key::Key;
use crate::suite::flows::Masked;
use std::array::from_fn;
use std::sync::atomic::Ordering::Relaxed;

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
        let (mut vectors, mut scalar) = (Group::new(), Group::new());
        for (insert, mixed) in [(false, false), (false, true), (true, true)] {
            store.mixed.store(mixed, Relaxed);
            if insert {
                store.look::<true>(&hashes, &keys, round % 2 == 0, |group, _| vectors = group.clone());
                store.look_scalar::<true, ()>(&mut scalar, &hashes, &keys, false, &());
                assert_eq!(vectors.new_keys(), scalar.new_keys());
                check_new(store, &scalar, &hashes, &keys);
            } else {
                store.look::<false>(&hashes, &keys, false, |group, _| vectors = group.clone());
                store.look_scalar::<false, ()>(&mut scalar, &hashes, &keys, false, &());
            }
            assert_eq!(
                (vectors.found, vectors.unsure()),
                (scalar.found, scalar.unsure()),
                "{W} words, {insert}, {mixed}"
            );
            for i in 0..GROUP {
                assert_eq!(vectors.place(i), store.place(hashes[i]));
                assert_eq!(scalar.place(i), store.place(hashes[i]));
                assert!(!mixed || vectors.other(i) == scalar.other(i));
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
    assert!(found > 20 && missed > 20, "{found} {missed} {unsure}");
    let few = hash.clear != 0;
    assert!(!few || unsure > 20, "{found} {missed} {unsure}");
    for mixed in [false, true] {
        store.mixed.store(mixed, Relaxed);
        several_groups::<W, S, false>(store, hash, flows);
    }
    several_groups::<W, S, true>(store, hash, flows);
}

/// Groups that are under way together, and a rest that is none, see what each sees alone.
fn several_groups<const W: usize, S: State, const INSERT: bool>(
    store: &Store<W, S>,
    hash: Masked<W>,
    flows: u64,
) {
    for count in [1, 2, 3, 4, 7] {
        let number = |i: u64| mix(count << 32 | i) % (flows * 5 / 3 + 1);
        let keys: Vec<Key<W>> = (0..count * GROUP as u64 + 5).map(|i| key(number(i))).collect();
        let hashes: Vec<u64> = keys.iter().map(|key| hash.hash(key)).collect();
        let mut together = Vec::new();
        store.look::<INSERT>(&hashes, &keys, count % 2 == 0, |group, first| {
            assert_eq!(first, together.len() * GROUP);
            together.push(group.clone());
        });
        assert_eq!(together.len() as u64, count + 1);
        store.look_probed::<INSERT, ()>(&hashes, &keys, false, &(), |alone, first| {
            let group = &together[first / GROUP];
            assert_eq!((group.found, group.unsure()), (alone.found, alone.unsure()), "{W} words, {first}");
            assert!(!INSERT || group.new_keys() == alone.new_keys());
            for i in bits(alone.found) {
                assert_eq!(group.slots[i], alone.slots[i]);
            }
        });
    }
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
        let [hopeless, welcome, guest] = group.new_keys().map(|bits| bits >> i & 1 != 0);
        let (crowded, alike) = (home.free() == 0, other.matches(place.tag) != 0);
        assert_eq!(hopeless, new && crowded && !alike && other.free() == 0, "key {i}");
        assert_eq!(welcome, new && !crowded && (home.strays() == 0 || !alike), "key {i}");
        assert_eq!(guest, new && crowded && !alike && other.free() != 0, "key {i}");
        if welcome || guest {
            let (bucket, tags) = if guest { (group.other(i), other) } else { (place.bucket, home) };
            let lanes = Store::<W, S>::preferred(bucket, tags.free());
            assert_eq!(group.lane(i), lanes.trailing_zeros() as usize);
        }
    }
}

#[test]
fn the_vectors_see_what_the_scalar_form_sees() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
    println!("with the kernel for AVX-512: {}", crate::simd::has_avx512());
    for (slots, flows) in [(1, 20), (1000, 300), (1000, 940), (1000, 1100), (31 * 331, 9700)] {
        agree::<1, u64>(Masked::good(1), slots, flows);
        agree::<2, u64>(Masked::good(2), slots, flows);
        agree::<2, ()>(Masked::good(3), slots, flows);
        agree::<3, [u64; 8]>(Masked::good(4), slots, flows);
        agree::<5, [u64; 2]>(Masked::good(5), slots, flows);
        agree::<1, [u64; 3]>(Masked::good(8), slots, flows);
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
