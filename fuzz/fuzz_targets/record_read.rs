//! A record file of any bytes gives events or one clear error, and ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_graph::record::RecordReader;

fuzz_target!(|data: &[u8]| {
    let mut reader = RecordReader::from_bytes(data.to_vec());
    let mut events = 0;
    while let Ok(Some(_)) = reader.next_event() {
        events += 1;
        assert!(events <= data.len(), "more events than bytes");
    }
});
