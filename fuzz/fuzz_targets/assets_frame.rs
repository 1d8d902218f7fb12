//! Any frames through detection of assets: nothing panics, the table keeps its bounds and its lists agree, and what was reported lately is not reported again.
//!
//! Input: records: seconds that pass, a length of two bytes, the frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_nf::assets::{AssetsSection, Settings};

fuzz_target!(|data: &[u8]| {
    let section = AssetsSection { hosts: 16, idle_s: 64, ..AssetsSection::default() };
    let settings = Settings::new(&section).expect("ours");
    let (mut watch, mut table) = (settings.watch(3), settings.table());
    let (mut rest, mut now_s) = (data, 1_000_000_u32);
    while let Some((&[seconds, high, low], bytes)) = rest.split_first_chunk() {
        let (frame, next) = bytes.split_at((usize::from(high) << 8 | usize::from(low)).min(bytes.len()));
        (rest, now_s) = (next, now_s + u32::from(seconds));
        let now_ms = u64::from(now_s) * 1000;
        watch.look(now_s, frame, |observation| {
            table.observe(now_ms, observation);
            true
        });
        // Sixteen hosts with four reports each have room for those of one frame.
        let mut again = 0;
        watch.look(now_s, frame, |_| {
            again += 1;
            true
        });
        assert!(again == 0 || again < 8, "{again} reports of a frame that was just looked at");
        table.expire(now_ms);
        assert!(table.is_consistent());
    }
    for asset in table.after(None) {
        for system in &asset.systems {
            let _ = (settings.fingerprints.system(&system.signature), system.signature.to_string());
        }
    }
});
