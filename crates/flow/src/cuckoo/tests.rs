use super::{Buckets, Cuckoo, Queue, Store};
use crate::hash::mix;
use crate::key::Key;
use crate::table::{Full, HashTable};
use tidemill_lookup::probe::{Access, Recorder};

#[test]
fn buckets_are_whole_lines() {
    fn shape<const W: usize>() -> (usize, usize, usize) {
        (8 * Store::<W>::BUCKET, Store::<W>::SLOTS, Store::<W>::BITS)
    }
    assert_eq!((shape::<1>(), shape::<2>(), shape::<5>()), ((128, 7, 9), (128, 5, 12), (256, 5, 12)));
}

/// Every tag in every slot, among all others: found, and the first empty slot is right.
#[test]
fn tags_are_found() {
    for tag in 1..=Store::<1>::TAG {
        for at in 0..Store::<1>::SLOTS {
            let others = (0..Store::<1>::SLOTS).map(|i| mix(tag << 3 | i as u64) & Store::<1>::TAG);
            let tags = others.enumerate().fold(0, |tags, (i, other)| {
                tags | if i == at { tag } else { other } << (i * Store::<1>::BITS)
            });
            assert!(Store::<1>::candidates(tags, tag).any(|i| i == at));
            let gap = tags & !(Store::<1>::TAG << (at * Store::<1>::BITS));
            let first = (0..).find(|i| gap >> (i * Store::<1>::BITS) & Store::<1>::TAG == 0);
            assert_eq!(Store::<1>::candidates(gap, 0).next(), first);
        }
    }
}

/// Fills tables until the first failure: no insertion looks at more buckets than it may, or moves more than four
/// entries; the failing one changes no word.
#[test]
fn insertions_are_bounded_and_fail_without_a_trace() {
    let mut table = Cuckoo::<2>::new(20_000).unwrap();
    let slots = Store::<2>::SLOTS as u64;
    let most = (Queue::MOST as u64 - 1) / slots;
    let mut moved = 0;
    for i in 0.. {
        let (hash, key) = (mix(i), Key([i, !i]));
        let mut probe = Recorder::with_log();
        let before = table.store.words.to_vec();
        let inserted = table.insert_probed(hash, &key, i, &probe);
        let steps = probe.counts().steps;
        let writes = probe.take().iter().filter(|access| matches!(access, Access::Write { .. })).count();
        // Two looks for the key, two for an empty slot, two searches.
        assert!(steps <= 4 + 2 * most, "{steps} buckets");
        if inserted == Err(Full) {
            assert_eq!((steps, writes), (4 + 2 * most, 0));
            assert_eq!(before, *table.store.words);
            break;
        }
        // A slot and its tags; a move empties tags too.
        let moves = (writes - 2) / 3;
        assert!(moves <= 4 && writes == 2 + 3 * moves, "{writes} stores");
        moved = moved.max(moves);
    }
    assert!(moved >= 2 && table.len() * 100 > table.capacity() * 95, "{moved}, {}", table.len());
    for i in 0..table.len() as u64 {
        assert_eq!(table.get(mix(i), &Key([i, !i])), Some(i));
    }
}

#[test]
fn a_removed_key_does_not_come_back() {
    // Tags 1 and 2 side by side: the second may pass for a 1 too; so may an empty slot beside it.
    let mut table = Cuckoo::<1>::new(7).unwrap();
    for i in 0..7 {
        table.insert(i % 2 + 1, &Key([i]), i).unwrap();
    }
    for i in 0..7 {
        assert_eq!(table.remove(i % 2 + 1, &Key([i])), Some(i));
        for j in 0..7 {
            assert_eq!(table.get(j % 2 + 1, &Key([j])), (j > i).then_some(j));
        }
    }
    assert!(table.is_empty());
}
