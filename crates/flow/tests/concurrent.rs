//! Tables with concurrent readers, on real threads; `cargo xtask test --tier model` also runs this under ThreadSanitizer.
//! What can go wrong only in rare interleavings is in `loom.rs`.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_flow::hash::{KeyHash, Keyed, mix};
use tidemill_flow::key::Key;
use tidemill_flow::keystore::{Keystore, Reader};
use tidemill_flow::table::HashTable;
use tidemill_lookup::probe::Recorder;

const WORDS: usize = 5;
const READERS: usize = 2;
/// Keys that are there all the time, and keys that come and go: together almost all of the 512 slots.
const STAYING: u64 = 310;
const CHANGING: u64 = 200;
const OPERATIONS: u64 = 200_000;

/// Every word tells the key, so that two keys have no word in common.
fn key(i: u64) -> Key<WORDS> {
    Key(std::array::from_fn(|word| i << 8 | word as u64))
}

/// Looks at every key again and again. A key has only values of its own, `round << 16 | key`, whose rounds do not go back;
/// a key that stays is there; a mixture of two keys is not.
fn look(reader: &Reader<WORDS>, hash: Keyed<WORDS>, done: &AtomicBool) -> u64 {
    let keys: Vec<_> = (0..STAYING + CHANGING).map(key).collect();
    let hashes: Vec<_> = keys.iter().map(|key| hash.hash(key)).collect();
    let mut out = vec![None; keys.len()];
    let mut newest = vec![0; keys.len()];
    let mut rounds = 0;
    loop {
        // The last round begins after the last change.
        let last = done.load(Ordering::Acquire);
        if rounds % 2 == 0 {
            reader.get_batch(&hashes, &keys, &mut out);
        } else {
            for i in 0..keys.len() {
                out[i] = reader.get(hashes[i], &keys[i]);
            }
        }
        for (i, (found, newest)) in out.iter().zip(&mut newest).enumerate() {
            assert!(found.is_some() || i as u64 >= STAYING, "key {i} is missed");
            let Some(value) = found else { continue };
            assert_eq!(value & 0xffff, i as u64, "a value of another key");
            assert!(value >> 16 >= *newest, "key {i} goes back to {} from {newest}", value >> 16);
            *newest = value >> 16;
        }
        for i in 1..keys.len() {
            let mut mixture = keys[i];
            mixture.0[WORDS - 1] = keys[i - 1].0[WORDS - 1];
            assert_eq!(reader.get(hashes[i], &mixture), None, "half of key {i}");
        }
        rounds += 1;
        if last {
            return rounds;
        }
    }
}

#[test]
fn keystore_readers_see_whole_entries_while_keys_move() {
    let hash = Keyed::<WORDS>::new(1);
    let mut table = Keystore::<WORDS>::new(512).unwrap();
    for i in 0..STAYING {
        table.insert(hash.hash(&key(i)), &key(i), i).unwrap();
    }
    let done = AtomicBool::new(false);
    let writes = Recorder::new();
    let (mut inserted, mut removed) = (0, 0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let (reader, done) = (table.reader(), &done);
                scope.spawn(move || look(&reader, hash, done))
            })
            .collect();
        for operation in 1..OPERATIONS {
            let i = STAYING * u64::from(operation % 4 != 0);
            let i = i + mix(operation) % (STAYING + CHANGING - i);
            let (key, here) = (key(i), table.get(hash.hash(&key(i)), &key(i)).is_some());
            let hash = hash.hash(&key);
            // Of the keys that change, most are there.
            if i >= STAYING && here && operation % 5 == 0 {
                assert!(table.remove(hash, &key).is_some());
                removed += 1;
            } else if here {
                table.insert(hash, &key, operation << 16 | i).unwrap();
            } else if table.insert_probed(hash, &key, operation << 16 | i, &writes).is_ok() {
                inserted += 1;
            }
        }
        done.store(true, Ordering::Release);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    // Three stores for an insertion, five for a move.
    let moves = (writes.counts().writes - 3 * inserted) / 5;
    assert!(moves > 1000 && removed > 10_000, "{moves} moves, {removed} removals");
}
