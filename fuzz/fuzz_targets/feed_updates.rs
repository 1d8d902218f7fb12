//! Update files, text and MRT: any bytes give updates and at most one error, which ends them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use tidemill_feed::{LabelBy, Labels, Pace, Pacer, UpdateOptions, Updates};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let label_by = [LabelBy::NextHop, LabelBy::NeighbourAs, LabelBy::OriginAs][usize::from(choice % 3)];
    let options = UpdateOptions { label_by, skip_wrong: choice & 0x80 != 0, ..UpdateOptions::default() };
    let open = || Updates::read(Box::new(Cursor::new(bytes.to_vec())), "f", Labels::new(), options);
    let Ok(mut updates) = open() else { return };
    let (mut good, mut wrong) = (0, 0);
    for update in updates.by_ref() {
        match update {
            Ok(_) => good += 1,
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "{error}");
                wrong += 1;
            }
        }
    }
    assert!(wrong <= 1 && good <= bytes.len());
    assert_eq!(updates.counts().routes, good as u64);
    // The same ones, paced.
    let Ok(updates) = open() else { return };
    let (mut pacer, mut batch) = (Pacer::new(updates, Pace::Timed(2.0)), Vec::new());
    for _ in 0..8 {
        if pacer.due(u64::MAX / 2, 1000, &mut batch).is_err() {
            break;
        }
    }
    assert!(batch.len() <= good);
});
