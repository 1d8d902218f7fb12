use super::{ENTRIES, Keystore, Queue};
use crate::hash::mix;
use crate::key::Key;
use crate::table::{Full, HashTable};
use tidemill_lookup::probe::{Access, Recorder};

/// Fills a table until the first failure: no insertion looks at more buckets than it may, or moves more than three entries;
/// the failing one stores nothing. Readers find everything, singly and in batches.
#[test]
fn insertions_are_bounded_and_fail_without_a_trace() {
    let mut table = Keystore::<2>::new(20_000).unwrap();
    let most = (Queue::MOST - 1) / ENTRIES;
    assert_eq!(most, 124);
    let (key, hash) = (|i: u64| Key([i, !i]), mix);
    let mut moved = 0;
    for i in 0.. {
        let mut probe = Recorder::with_log();
        let inserted = table.insert_probed(hash(i), &key(i), i, &probe);
        let steps = probe.counts().steps as usize;
        let writes = probe.take().iter().filter(|access| matches!(access, Access::Write { .. })).count();
        // Two looks for the key, two for an empty entry, two searches.
        assert!(steps <= 4 + 2 * most, "{steps} buckets");
        if inserted == Err(Full) {
            assert_eq!((steps, writes), (4 + 2 * most, 0));
            break;
        }
        // Slot, signature, index; a move: signature, index, version, index, version.
        let moves = (writes - 3) / 5;
        assert!(moves <= 3 && writes == 3 + 5 * moves, "{writes} stores");
        moved = moved.max(moves);
    }
    let n = table.len() as u64;
    assert!(moved >= 2 && n as usize * 100 > table.capacity() * 95, "{moved} moves, {n} keys");

    let (reader, second) = (table.reader(), table.reader().clone());
    let (keys, hashes): (Vec<_>, Vec<_>) = (0..2 * n).map(|i| (key(i), hash(i))).unzip();
    let mut out = vec![None; keys.len()];
    reader.get_batch(&hashes, &keys, &mut out);
    for (i, &found) in (0..).zip(&out) {
        assert_eq!(found, (i < n).then_some(i));
        assert_eq!(second.get(hash(i), &key(i)), found);
    }
    // A reader keeps the table's memory.
    drop(table);
    assert_eq!(reader.get(hash(7), &key(7)), Some(7));
}

#[test]
fn keys_of_one_hash_fill_two_buckets() {
    let mut table = Keystore::<1>::new(800).unwrap();
    let results: Vec<_> = (0..20).map(|i| table.insert(0x1234_5678_9abc_def0, &Key([i]), i)).collect();
    assert!(results[..16].iter().all(Result::is_ok) && results[16..].iter().all(|&r| r == Err(Full)));
}

/// A slot lies on one line, and a hit in the first bucket touches two lines.
#[test]
fn a_hit_is_a_bucket_and_a_slot() {
    fn lines<const W: usize>() {
        let mut table = Keystore::<W>::new(64).unwrap();
        for i in 0..40_u64 {
            table.insert(mix(i), &Key([i; W]), i).unwrap();
        }
        let mut one = 0;
        for i in 0..40_u64 {
            let mut probe = Recorder::with_log();
            assert_eq!(table.get_probed(mix(i), &Key([i; W]), &probe), Some(i));
            let steps = probe.counts().steps;
            let mut lines = Vec::new();
            for access in probe.take() {
                let Access::Read { address, size, .. } = access else { panic!("a lookup stored") };
                assert_eq!(address / 64, (address + size - 1) / 64, "{size} bytes cross a line");
                lines.push(address / 64);
            }
            lines.sort_unstable();
            lines.dedup();
            one += u64::from(steps == 1 && lines.len() == 2);
        }
        assert!(one > 20, "{one} in the first bucket");
    }
    lines::<1>();
    lines::<2>();
    lines::<5>();
}
