//! MRT tables: any bytes load or are refused with a message of one line; with wrong records skipped, only what cannot be
//! framed or is no table ends the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use tidemill_feed::{LabelBy, LoadOptions, Peer, load_from};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let label_by = [LabelBy::NextHop, LabelBy::NeighbourAs, LabelBy::OriginAs][usize::from(choice % 3)];
    let peer = [Peer::Any, Peer::Index(0), Peer::As(64_500)][usize::from(choice / 3 % 3)];
    for skip_wrong in [false, true] {
        let options = LoadOptions { label_by, peer, skip_wrong, ..LoadOptions::default() };
        match load_from(Box::new(Cursor::new(bytes.to_vec())), "f", &options) {
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            Ok(table) => {
                let counts = table.counts;
                assert!(table.v4.len() + table.v6.len() <= bytes.len());
                assert!(skip_wrong || counts.wrong == 0);
                assert_eq!(counts.routes, (table.v4.len() + table.v6.len()) as u64 + counts.duplicates);
            }
        }
    }
});
