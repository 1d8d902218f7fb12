//! What is counted of chunks.

use super::*;
use crate::dxr::{Entries, Spread};

#[test]
fn equal_chunks_are_stored_once_and_counted_where_they_are() {
    // Two equal short chunks, and a long one: each of three entries, two steps.
    let list = list(&[("10.0.0.0/8", 1), ("10.1.2.0/24", 2), ("10.2.2.0/24", 2), ("10.3.4.128/25", 3)]);
    let three = 3.0 / 65_536.0;
    for name in ["dxr-d16r", "dxr-d12x4r"] {
        let writer = build(&list, &DxrConfig::new(Layout::parse(name).unwrap()));
        let Spread { entries, unshared, steps } = writer.dxr().spread();
        assert_eq!(entries, Entries { short: 3, long: 3 }, "{name}");
        assert_eq!(unshared, Entries { short: 6, long: 3 }, "{name}");
        assert_eq!((steps[0], steps[1], steps[2]), (1.0 - three, 0.0, three), "{name}");
        assert_eq!(steps[0], writer.dxr().stats().resolved);
        let details: BTreeMap<_, _> = writer.dxr().details().into_iter().collect();
        assert_eq!(
            (details["short_ranges"], details["short_ranges_unshared"], details["steps_2_share"]),
            (3.0, 6.0, three)
        );
        assert!(!details.contains_key("steps_1_share"));
    }
}

#[test]
fn the_steps_are_those_that_lookups_take() {
    let mut rng = StdRng::seed_from_u64(22);
    let count = if cfg!(miri) { 20 } else { 2000 };
    let list: List = (0..count).map(|_| (random_prefix(&mut rng), random_label(&mut rng, 16))).collect();
    for name in ["dxr-d16r", "dxr-d12x5r"] {
        let layout = Layout::parse(name).unwrap();
        let dxr = build(&list, &DxrConfig::new(layout)).dxr().clone();
        let mut taken = [0_u64; 17];
        for chunk in 0..layout.chunks() as u64 {
            let recorder = Recorder::new();
            dxr.lookup_probed((chunk << layout.rest()) as u32, &recorder);
            taken[recorder.counts().steps as usize] += 1;
        }
        assert!(taken[3..].iter().any(|&chunks| chunks > 0) || cfg!(miri), "{taken:?}");
        assert_eq!(dxr.spread().steps, taken.map(|chunks| chunks as f64 / layout.chunks() as f64));
    }
}
