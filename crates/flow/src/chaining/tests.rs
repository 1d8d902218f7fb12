use super::Chaining;
use crate::hash::{KeyHash, Keyed};
use crate::key::Key;
use crate::table::{Full, HashTable, SizeError};
use std::collections::BTreeSet;
use tidemill_lookup::probe::Recorder;

fn filled(n: u64) -> Chaining<2> {
    let mut table = Chaining::new(n as usize).unwrap();
    let hash = Keyed::new(1);
    for i in 0..n {
        let key = Key([i, 7]);
        assert_eq!(table.insert(hash.hash(&key), &key, i), Ok(None));
    }
    table
}

#[test]
fn full_at_the_last_entry_and_not_before() {
    let mut table = filled(1000);
    let (hash, key) = (Keyed::new(1), Key([1000, 7]));
    assert_eq!(table.insert(hash.hash(&key), &key, 0), Err(Full));
    let old = Key([5, 7]);
    assert_eq!(table.insert(hash.hash(&old), &old, 50), Ok(Some(5)));
    assert_eq!(table.remove(hash.hash(&old), &old), Some(50));
    assert_eq!(table.insert(hash.hash(&key), &key, 0), Ok(None));
    assert_eq!((table.len(), table.capacity()), (1000, 1000));
    assert!(matches!(Chaining::<1>::new(usize::MAX), Err(SizeError::TooMany { .. })));
}

#[test]
fn the_newest_is_found_first_and_entries_are_one_line() {
    // All keys in one chain.
    let mut table = Chaining::<5>::new(100).unwrap();
    for i in 0..100 {
        table.insert(0, &Key([i; 5]), i).unwrap();
    }
    for (key, steps) in [(99, 1), (50, 50), (0, 100)] {
        let mut probe = Recorder::with_log();
        assert_eq!(table.get_probed(0, &Key([key; 5]), &probe), Some(key));
        assert_eq!(probe.counts().steps, steps);
        for access in probe.take() {
            let tidemill_lookup::probe::Access::Read { address, size, .. } = access else {
                panic!("a lookup stored")
            };
            assert_eq!(address / 64, (address + size - 1) / 64);
        }
    }
}

/// Expiry takes entries out of the middle, the front and the end of one chain that holds everything.
#[test]
fn expiry_is_bounded_whatever_the_hashes() {
    let mut table = Chaining::<1>::new(300).unwrap();
    for i in 0..300 {
        table.insert(0, &Key([i]), i).unwrap();
    }
    let mut cursor = 0;
    let mut rounds = 0;
    loop {
        let mut seen = 0;
        cursor = table.expire(cursor, 7, |key, value| {
            assert_eq!(key.0[0], value);
            seen += 1;
            value % 3 != 1
        });
        assert!(seen <= 7);
        rounds += 1;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!((rounds, table.len()), (43, 100));
    for i in 0..300 {
        assert_eq!(table.get(0, &Key([i])), (i % 3 == 1).then_some(i));
    }
    let mut keys = BTreeSet::new();
    assert_eq!(table.scan(0, usize::MAX, |key, _| assert!(keys.insert(key.0[0]))), 0);
    assert_eq!(keys.len(), 100);
    for i in 0..300 {
        assert_eq!(table.insert(0, &Key([i]), i).unwrap(), (i % 3 == 1).then_some(i));
    }
    assert_eq!(table.len(), 300);
}
