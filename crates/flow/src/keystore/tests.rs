use super::Keystore;
use crate::hash::{KeyHash, Keyed};
use crate::key::Key;
use crate::table::{Full, HashTable};

#[test]
fn holds_what_it_was_given_up_to_a_high_load() {
    let mut table = Keystore::<2>::new(4000).unwrap();
    let hash = Keyed::new(3);
    let key = |i: u64| Key([i, 1]);
    let mut n = 0;
    while table.insert(hash.hash(&key(n)), &key(n), n) == Ok(None) {
        n += 1;
    }
    assert!(n >= 3800, "{n}");
    assert_eq!(table.len() as u64, n);
    for i in 0..n {
        assert_eq!(table.get(hash.hash(&key(i)), &key(i)), Some(i));
    }
    assert_eq!(table.get(hash.hash(&key(n)), &key(n)), None);
    let keys: Vec<_> = (0..2 * n).map(key).collect();
    let hashes: Vec<_> = keys.iter().map(|key| hash.hash(key)).collect();
    let mut out = vec![None; keys.len()];
    table.reader().get_batch(&hashes, &keys, &mut out);
    assert!(
        out.iter()
            .enumerate()
            .all(|(i, &out)| out == (i as u64 >= n).then_some(()).map_or(Some(i as u64), |_| None))
    );
    for i in (0..n).step_by(2) {
        assert_eq!(table.remove(hash.hash(&key(i)), &key(i)), Some(i));
    }
    assert_eq!(table.insert(hash.hash(&key(n)), &key(n), 9), Ok(None));
    assert_eq!(table.len() as u64, n / 2 + 1);
}

#[test]
fn keys_of_one_hash_fill_two_buckets() {
    let mut table = Keystore::<1>::new(800).unwrap();
    let results: Vec<_> = (0..20).map(|i| table.insert(0x1234_5678_9abc_def0, &Key([i]), i)).collect();
    assert!(results[..16].iter().all(Result::is_ok) && results[16..].iter().all(|&r| r == Err(Full)));
}
