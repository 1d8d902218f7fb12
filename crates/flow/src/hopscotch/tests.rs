use super::*;
use crate::suite::Random;
use tidemill_lookup::probe::Recorder;

#[test]
fn thirty_two_keys_of_one_place_fit() {
    let mut table = Hopscotch::<1>::new(1000).unwrap();
    (0..32).for_each(|i| assert_eq!(table.insert(u64::MAX, &Key([i]), i), Ok(None)));
    assert_eq!(table.insert(u64::MAX, &Key([32]), 32), Err(Full));
    assert_eq!(table.remove(u64::MAX, &Key([7])), Some(7));
    assert_eq!(table.insert(u64::MAX, &Key([32]), 32), Ok(None));
    assert_eq!(table.get(u64::MAX, &Key([32])), Some(32));
}

#[test]
fn keys_hop_to_make_room() {
    let mut table = Hopscotch::<1>::new(320).unwrap();
    let at = |place: u64| (place << 32).div_ceil(320) << 32;
    // One key in each of 40 places: the second one of the first finds slot 40 free, and somebody must hop.
    (0..40).for_each(|i| assert_eq!(table.insert(at(i), &Key([i]), i), Ok(None)));
    assert_eq!(table.insert(at(0), &Key([99]), 99), Ok(None));
    let moved = (0..40).filter(|&i| table.slots.key_value(i as usize).1 != i).count();
    assert!((1..=2).contains(&moved), "{moved}");
    (0..40).for_each(|i| assert_eq!(table.get(at(i), &Key([i])), Some(i)));
    assert_eq!(table.get(at(0), &Key([99])), Some(99));
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn the_work_of_an_insertion_is_bounded_also_when_it_is_refused() {
    // The lookup: 1 + 32 slots. The free slot: RANGE. A hop brings it nearer by one at least and looks at 31 maps and 2 slots.
    // Two notes at the end. Typically far less, see below.
    const MOST: u64 = (1 + NEAR + RANGE + (RANGE - NEAR) * (NEAR - 1 + 2) + 2) as u64;
    let mut table = Hopscotch::<2>::new(1 << 14).unwrap();
    let mut random = Random(1);
    let (mut refused, mut most) = (0, 0);
    for _ in 0..1 << 15 {
        let recorder = Recorder::new();
        let (hash, key) = (random.bits(), Key([random.bits(), 1]));
        refused += usize::from(table.insert_probed(hash, &key, 1, &recorder).is_err());
        most = most.max(recorder.counts().steps);
    }
    assert!(most <= MOST, "{most} steps, of {MOST}");
    assert!(most <= 3 * RANGE as u64, "{most} steps");
    assert!(refused > 1000 && table.len() > 15_000, "{refused} refused, {} keys", table.len());
}
