//! `keystore` under the model checker: every interleaving (up to a few preemptions) of a reader and the writer, and every
//! value that the memory model lets a load return.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p tidemill-flow --test loom`, or `cargo xtask test --tier model`.
#![cfg(loom)]

use loom::thread;
use tidemill_flow::key::Key;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::table::HashTable;
use tidemill_lookup::probe::Recorder;

type Table = Keystore<2>;

/// Checks a model with up to this many preemptions.
fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(f);
}

/// Entries per bucket.
const ENTRIES: u64 = 8;

/// The other bucket of an entry: what `keystore` computes.
fn other(bucket: u64, signature: u64, buckets: u64) -> u64 {
    let sum = ((signature.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * buckets) >> 32;
    (sum + buckets - bucket) % buckets
}

/// Makes hashes for two given buckets, each with a signature of its own.
struct Hashes {
    buckets: u64,
    signature: u64,
}

impl Hashes {
    fn next(&mut self, first: u64, second: u64) -> u64 {
        loop {
            self.signature += 1;
            if other(first, self.signature, self.buckets) == second {
                return ((first << 32).div_ceil(self.buckets) << 32) | self.signature;
            }
        }
    }
}

/// A key that is `i`, twice, and its value.
fn pair(i: u64) -> (Key<2>, u64) {
    (Key([i, i]), 100 + i)
}

fn insert(table: &mut Table, hash: u64, i: u64) {
    let (key, value) = pair(i);
    table.insert(hash, &key, value).unwrap();
}

/// Inserts key `i`, for which this many entries must move.
fn insert_moving(table: &mut Table, hash: u64, i: u64, moves: u64) {
    let (key, value) = pair(i);
    let writes = Recorder::new();
    table.insert_probed(hash, &key, value, &writes).unwrap();
    // Slot, signature, index; for a move: signature, index, version, index, version.
    assert_eq!(writes.counts().writes, 3 + 5 * moves);
}

#[test]
fn an_insertion_is_seen_whole_or_not() {
    model(3, || {
        let mut table = Table::new(8).unwrap();
        let reader = table.reader();
        let hash = 5;
        let (key, value) = pair(1);
        let looker = thread::spawn(move || {
            let first = reader.get(hash, &key);
            assert!(first.is_none_or(|found| found == value), "{first:?}");
            let second = reader.get(hash, &key);
            assert!(
                second == Some(value) || second.is_none() && first.is_none(),
                "{first:?}, then {second:?}"
            );
        });
        insert(&mut table, hash, 1);
        looker.join().unwrap();
    });
}

#[test]
fn a_value_is_one_that_was_set_and_never_an_older_one() {
    model(3, || {
        let mut table = Table::new(8).unwrap();
        let reader = table.reader();
        let (key, hash) = (pair(1).0, 5);
        table.insert(hash, &key, 10).unwrap();
        let looker = thread::spawn(move || {
            let values = [reader.get(hash, &key), reader.get(hash, &key)];
            assert!(values[0] <= values[1], "{values:?}");
            assert!(values.iter().all(|value| matches!(value, Some(10..=12))), "{values:?}");
        });
        for value in 11..=12 {
            table.insert(hash, &key, value).unwrap();
        }
        looker.join().unwrap();
    });
}

/// The slot of a removed key is used again at once, by a key with the same signature.
fn slot_used_again(wanted: Key<2>, allowed: fn(Option<u64>) -> bool) {
    model(3, move || {
        let mut table = Table::new(8).unwrap();
        let reader = table.reader();
        let hash = 5;
        table.insert(hash, &Key([1, 2]), 12).unwrap();
        let looker = thread::spawn(move || {
            let found = reader.get(hash, &wanted);
            assert!(allowed(found), "{wanted:?}: {found:?}");
        });
        table.remove(hash, &Key([1, 2])).unwrap();
        table.insert(hash, &Key([3, 4]), 34).unwrap();
        looker.join().unwrap();
    });
}

#[test]
fn a_slot_used_again_does_not_give_the_old_key_the_new_value() {
    slot_used_again(Key([1, 2]), |found| matches!(found, None | Some(12)));
}

#[test]
fn a_slot_used_again_does_not_give_the_new_key_the_old_value() {
    slot_used_again(Key([3, 4]), |found| matches!(found, None | Some(34)));
}

#[test]
fn a_slot_used_again_never_shows_a_mixture() {
    slot_used_again(Key([3, 2]), |found| found.is_none());
    slot_used_again(Key([1, 4]), |found| found.is_none());
}

/// A key goes and comes back with another value, its slot having held another key meanwhile. One preemption will do: all
/// this while a reader is between two loads.
#[test]
fn a_key_that_comes_back_has_its_own_values_only() {
    model(1, || {
        let mut table = Keystore::<1>::new(8).unwrap();
        let reader = table.reader();
        let hash = 5;
        let (key, between) = (Key([1]), Key([3]));
        table.insert(hash, &key, 12).unwrap();
        let looker = thread::spawn(move || {
            let found = reader.get(hash, &key);
            assert!(matches!(found, None | Some(12 | 13)), "{found:?}");
        });
        table.remove(hash, &key).unwrap();
        table.insert(hash, &between, 34).unwrap();
        table.remove(hash, &between).unwrap();
        table.insert(hash, &key, 13).unwrap();
        looker.join().unwrap();
    });
}

/// From its first bucket to its second.
#[test]
fn a_key_that_moves_away_is_found() {
    model(2, || {
        let mut table = Table::new(16).unwrap();
        let mut hashes = Hashes { buckets: 2, signature: 0 };
        let hash = hashes.next(0, 1);
        insert(&mut table, hash, 1);
        for i in 2..=ENTRIES {
            insert(&mut table, hashes.next(0, 0), i);
        }
        let reader = table.reader();
        let looker = thread::spawn(move || assert_eq!(reader.get(hash, &pair(1).0), Some(pair(1).1)));
        insert_moving(&mut table, hashes.next(0, 0), 50, 1);
        looker.join().unwrap();
    });
}

/// Key 1 is in its second bucket, 0, and moves to its first, 1, where a reader may have looked already (HALO, figure 7).
fn in_its_second_bucket() -> (Table, Hashes, u64) {
    let mut table = Table::new(16).unwrap();
    let mut hashes = Hashes { buckets: 2, signature: 0 };
    let last = hashes.next(1, 1);
    insert(&mut table, last, 49);
    for i in 0..ENTRIES - 1 {
        insert(&mut table, hashes.next(1, 1), 40 + i);
    }
    let hash = hashes.next(1, 0);
    insert(&mut table, hash, 1);
    for i in 2..=ENTRIES {
        insert(&mut table, hashes.next(0, 0), i);
    }
    table.remove(last, &pair(49).0).unwrap();
    (table, hashes, hash)
}

#[test]
fn a_key_that_moves_to_where_the_reader_was_is_found() {
    model(2, || {
        let (mut table, mut hashes, hash) = in_its_second_bucket();
        let reader = table.reader();
        let looker = thread::spawn(move || assert_eq!(reader.get(hash, &pair(1).0), Some(pair(1).1)));
        insert_moving(&mut table, hashes.next(0, 0), 50, 1);
        looker.join().unwrap();
    });
}

/// The moved key is removed and its slot used again, while a reader may still hold its number from the old bucket.
#[test]
fn a_slot_used_again_after_a_move_is_noticed_in_the_old_bucket() {
    model(2, || {
        let (mut table, mut hashes, hash) = in_its_second_bucket();
        let reader = table.reader();
        let looker = thread::spawn(move || {
            let found = reader.get(hash, &pair(1).0);
            assert!(matches!(found, None | Some(101)), "{found:?}");
        });
        insert_moving(&mut table, hashes.next(0, 0), 50, 1);
        table.remove(hash, &pair(1).0).unwrap();
        table.insert(hash, &Key([1, 7]), 17).unwrap();
        looker.join().unwrap();
    });
}

/// Two moves: key 1 from bucket 1 to bucket 2, then another key into the very entry that it left. `(first, second)`: its
/// buckets.
fn path_of_two(first: u64, second: u64) {
    model(2, move || {
        let mut table = Table::new(24).unwrap();
        let mut hashes = Hashes { buckets: 3, signature: 0 };
        if first == 2 {
            for i in 0..ENTRIES {
                insert(&mut table, hashes.next(2, 2), 40 + i);
            }
        }
        let hash = hashes.next(first, second);
        insert(&mut table, hash, 1);
        for i in 2..=ENTRIES {
            insert(&mut table, hashes.next(1, 1), i);
        }
        insert(&mut table, hashes.next(0, 1), 20);
        for i in 1..ENTRIES {
            insert(&mut table, hashes.next(0, 0), 20 + i);
        }
        if first == 2 {
            // The first of bucket 2 makes room.
            let signature = Hashes { buckets: 3, signature: 0 }.next(2, 2);
            table.remove(signature, &pair(40).0).unwrap();
        }
        let reader = table.reader();
        let looker = thread::spawn(move || assert_eq!(reader.get(hash, &pair(1).0), Some(pair(1).1)));
        insert_moving(&mut table, hashes.next(0, 0), 50, 2);
        looker.join().unwrap();
    });
}

#[test]
fn a_key_that_moves_away_and_is_replaced_by_a_moving_one_is_found() {
    path_of_two(1, 2);
}

#[test]
fn a_key_that_moves_back_and_is_replaced_by_a_moving_one_is_found() {
    path_of_two(2, 1);
}
