//! A BMP exporter's bytes: any are taken or end the connection; where they are cut does not matter, and nothing stays behind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::Ipv4Addr;
use tidemill_bgp::Rib;
use tidemill_bgp::bmp::{Own, Station, View};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let view = [View::PrePolicy, View::PostPolicy, View::LocRib][usize::from(choice % 3)];
    let own = Own { asn: 65_000, id: Ipv4Addr::new(10, 0, 0, 2) };
    let run = |step: usize| {
        let (mut station, mut rib, mut changes) = (Station::new(view, 1000, own), Rib::default(), Vec::new());
        let result = data.chunks(step).try_for_each(|part| station.receive(part, &mut rib, &mut changes));
        while rib.sweep(100, &mut changes) {}
        rib.check();
        let peers: Vec<_> = station.peers().collect();
        let (stats, best) = (station.stats(), rib.best().collect::<Vec<_>>());
        station.lost(&mut rib);
        while rib.sweep(100, &mut changes) {}
        rib.check();
        assert!(rib.is_empty());
        (result, peers, stats, best)
    };
    assert_eq!(run(usize::from(choice >> 3) + 1), run(data.len().max(1)));
});
