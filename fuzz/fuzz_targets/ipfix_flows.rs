//! Any frames through flow export: nothing panics, and every packet is in one record or counted as left out; messages are as long as they say.
//!
//! Input: records: tenths of seconds that pass (its lowest bit: whether records are taken), a length of two bytes, the frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;
use tidemill_nf::ipfix::{Exporter, Meter, Record, Times};

fuzz_target!(|data: &[u8]| {
    let times = Times { idle_ms: 5000, active_ms: 20_000 };
    let mut meter = Meter::new(31, times, 1).expect("a small table");
    let mut exporter = Exporter::new(512, 1, 10_000);
    let send = |message: &[u8]| {
        assert!(message.len() <= 512 && message[2..4] == (message.len() as u16).to_be_bytes());
        Ok(())
    };
    let (mut rest, mut now_ms, mut frames) = (data, 1_000_000_u64, 0_u64);
    let mut records: VecDeque<Record> = VecDeque::new();
    while let Some((&[tenths, high, low], bytes)) = rest.split_first_chunk() {
        let (frame, next) = bytes.split_at((usize::from(high) << 8 | usize::from(low)).min(bytes.len()));
        rest = next;
        now_ms += u64::from(tenths) * 100;
        frames += 1;
        meter.count(now_ms, std::iter::once((frame, u16::from(tenths))));
        meter.sweep(now_ms, 1, |record| {
            if tenths & 1 == 0 {
                records.push_back(record);
            }
            tenths & 1 == 0
        });
        exporter.run(now_ms, (0, 0), || records.pop_front(), send);
    }
    meter.drain(|record| records.push_back(record));
    for record in &records {
        assert!(record.packets > 0 && record.first_ms <= record.last_ms);
    }
    exporter.run(now_ms, (0, 0), || records.pop_front(), send);
    let (told, outside) = (exporter.sent().packets, meter.outsiders());
    assert_eq!(told + outside.not_ip + outside.malformed + outside.full, frames);
});
