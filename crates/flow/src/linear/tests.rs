use super::*;
use crate::suite::Random;
use tidemill_lookup::probe::Recorder;

/// A hash whose place among eight slots is this one.
fn at(place: u64) -> u64 {
    place << 61
}

#[test]
fn a_removal_moves_back_what_lies_behind_it_round_the_end() {
    let mut table = Linear::<1>::new(8).unwrap();
    // Slots 6, 7, 0, 1 hold keys of places 6, 6, 7, 1; 1 stays where it is.
    for (key, place) in [(1, 6), (2, 6), (3, 7), (4, 1)] {
        assert_eq!(table.insert(at(place), &Key([key]), key), Ok(None));
    }
    assert_eq!(table.remove(at(6), &Key([1])), Some(1));
    let value = |i| if table.slots.note(i, &(), false) == 0 { 0 } else { table.slots.key_value(i).1 };
    let keys: Vec<u64> = (0..8).map(value).collect();
    assert_eq!(keys, [0, 4, 0, 0, 0, 0, 2, 3]);
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn lookups_look_at_as_many_slots_as_knuth_says() {
    let mut table = Linear::<2>::new(20_000).unwrap();
    let mut random = Random(1);
    let mut key = || (random.bits(), Key([random.bits(), 0]));
    let keys: Vec<_> = (0..16_000).map(|_| key()).collect();
    keys.iter().for_each(|(hash, key)| assert_eq!(table.insert(*hash, key, 1), Ok(None)));
    // 3 for keys that are there, 13 for others, at load 0.8.
    let (hits, misses) = (Recorder::new(), Recorder::new());
    keys.iter().for_each(|(hash, key)| assert_eq!(table.get_probed(*hash, key, &hits), Some(1)));
    (0..16_000).map(|_| key()).for_each(|(h, k)| assert_eq!(table.get_probed(h, &k, &misses), None));
    let [hits, misses] = [hits, misses].map(|recorder| recorder.counts().steps as f64 / 16_000.0);
    assert!((2.5..3.6).contains(&hits), "{hits}");
    assert!((9.0..18.0).contains(&misses), "{misses}");
}
