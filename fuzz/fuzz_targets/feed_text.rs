//! Tables as text: any bytes load or are refused with a message of one line, and what loads is written and loads again as
//! the same table.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use tidemill_feed::{LabelBy, LoadOptions, LoadedTable, SaveFormat, load_from, write};

fn text(table: &LoadedTable, format: SaveFormat) -> Vec<u8> {
    let mut text = Vec::new();
    write(&mut text, &table.v4, &table.v6, &table.labels, format).expect("a vector takes everything");
    text
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let label_by = [LabelBy::NextHop, LabelBy::NeighbourAs, LabelBy::OriginAs][usize::from(choice % 3)];
    let skip = choice & 0x80 != 0;
    let options = LoadOptions { label_by, skip_wrong: skip, mask_host_bits: skip, ..LoadOptions::default() };
    match load_from(Box::new(Cursor::new(bytes.to_vec())), "f", &options) {
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        Ok(table) => {
            assert!(table.v4.len() + table.v6.len() <= bytes.len());
            let format = if choice & 0x40 != 0 { SaveFormat::Csv } else { SaveFormat::Text };
            let once = text(&table, format);
            if !once.is_empty() {
                let again = load_from(Box::new(Cursor::new(once.clone())), "g", &LoadOptions::default());
                let again = again.unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(String::from_utf8_lossy(&text(&again, format)), String::from_utf8_lossy(&once));
            }
        }
    }
});
