//! Recorded traffic: our own capture, whose hosts are known (`examples/router/capture.md`), and captures that are collections of what goes wrong.

use crate::watch::Lab;
use std::path::Path;
use tidemill_nf::assets::AssetsSection;
use tidemill_port::capture::Reader;

#[test]
fn our_own_capture_shows_who_was_there() {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/router/capture.pcapng.zst");
    let mut lab = Lab::new(&AssetsSection::default());
    let (mut reader, mut buffer) = (Reader::open(&capture).unwrap(), Vec::new());
    while let Some(record) = reader.next().unwrap() {
        let frame = record.frame(&mut buffer);
        lab.look((record.timestamp_ns / 1_000_000_000) as u32, frame);
    }
    let mut systems: Vec<String> = Vec::new();
    let mut banners: Vec<String> = Vec::new();
    for asset in lab.table.after(None) {
        for system in &asset.systems {
            systems.push(lab.settings.fingerprints.system(&system.signature).unwrap_or("unknown").into());
        }
        banners.extend(asset.services.values().map(|service| service.text.to_string()));
    }
    systems.sort();
    systems.dedup();
    assert_eq!(systems, ["Linux 5 or 6", "traceroute over TCP"]);
    assert!(banners.iter().any(|banner| banner == "SimpleHTTP/0.6 Python/3.11.7"), "{banners:?}");
    assert_eq!(lab.watch.malformed(), 0);
}
