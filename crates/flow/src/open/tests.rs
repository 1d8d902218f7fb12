//! What the suite cannot see: that removals leave nothing behind, and counts that stop.

use super::*;
use crate::double::{Double, Stride};
use crate::quadratic::{Quadratic, Triangular};
use crate::suite::Random;
use tidemill_lookup::probe::Recorder;

#[test]
fn sequences_visit_every_slot() {
    fn visits<S: Sequence>(slots: usize, low: usize) {
        let mut seen = vec![false; slots];
        let mut at = 0;
        for tries in 0..slots {
            assert!(!std::mem::replace(&mut seen[at], true), "{}: {slots} slots, {low}", S::NAME);
            at = (at + S::step(tries, low)) % slots;
        }
    }
    for slots in [1, 2, 4, 64, 1 << 12] {
        for low in [0, 1, 77, 0x7fff, 0xffff] {
            visits::<Triangular>(slots, low);
            visits::<Stride>(slots, low);
        }
    }
}

fn leaves_nothing<S: Sequence>() {
    let slots = if cfg!(miri) { 64 } else { 1024 };
    let mut table = Open::<2, S>::new(slots).unwrap();
    let mut random = Random(1);
    let mut keys = Vec::new();
    for _ in 0..slots * 20 {
        // Between 90 and 100 % full.
        if table.len() < slots * 9 / 10 || (table.len() < slots && random.below(2) == 0) {
            let (hash, key) = (random.bits(), Key([random.bits(), 0]));
            assert_eq!(table.insert(hash, &key, 7), Ok(None));
            keys.push((hash, key));
        } else {
            let (hash, key) = keys.swap_remove(random.below(keys.len()));
            assert_eq!(table.remove(hash, &key), Some(7));
        }
    }
    for (hash, key) in keys {
        assert_eq!(table.remove(hash, &key), Some(7));
    }
    assert!((0..slots).all(|at| table.slots.note(at, &(), false) == 0), "{}", S::NAME);
}

#[test]
fn removals_leave_nothing_behind() {
    leaves_nothing::<Triangular>();
    leaves_nothing::<Stride>();
}

#[test]
fn a_count_that_has_stopped_stays() {
    let mut table = Double::<1>::new(8).unwrap();
    table.slots.set_note(0, PASSED - PASSED_ONCE, &());
    let key = |i| Key([i]);
    // One path; all but the first pass slot 0.
    (0..4).for_each(|i| assert_eq!(table.insert(0, &key(i), i), Ok(None)));
    assert_eq!(table.slots.note(0, &(), false), PASSED | TAKEN);
    (1..4).for_each(|i| assert_eq!(table.remove(0, &key(i)), Some(i)));
    assert_eq!((table.get(0, &key(0)), table.get(0, &key(1))), (Some(0), None));
    assert_eq!(table.remove(0, &key(0)), Some(0));
    assert_eq!(table.slots.note(0, &(), false), PASSED);
    (0..8).for_each(|i| assert_eq!(table.insert(0, &key(i), i), Ok(None)));
    (0..8).for_each(|i| assert_eq!(table.get(0, &key(i)), Some(i)));
    assert_eq!(table.insert(0, &key(8), 8), Err(Full));
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn lookups_look_at_as_many_slots_as_the_books_say() {
    // At load 0.9: (1/a) ln(1/(1-a)) = 2.56 for double hashing; quadratic probing has a little more for keys with one place.
    fn mean<S: Sequence>(table: &mut Open<2, S>) -> f64 {
        let mut random = Random(2);
        let keys: Vec<(u64, Key<2>)> =
            (0..table.capacity() * 9 / 10).map(|_| (random.bits(), Key([random.bits(), 1]))).collect();
        keys.iter().for_each(|(hash, key)| assert_eq!(table.insert(*hash, key, 1), Ok(None)));
        let recorder = Recorder::new();
        keys.iter().for_each(|(hash, key)| assert_eq!(table.get_probed(*hash, key, &recorder), Some(1)));
        recorder.counts().steps as f64 / keys.len() as f64
    }
    let double = mean(&mut Double::<2>::new(1 << 14).unwrap());
    let quadratic = mean(&mut Quadratic::<2>::new(1 << 14).unwrap());
    assert!((2.3..2.8).contains(&double), "{double}");
    assert!((2.5..3.3).contains(&quadratic), "{quadratic}");
}
