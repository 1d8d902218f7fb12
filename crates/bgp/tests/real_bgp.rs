//! The full table of 2026 from BIRD. Needs root, BIRD and TIDEMILL_DATA; minutes of a debug build, so only on demand:
//! `TIDEMILL_DATA=... cargo test --release -p tidemill-bgp --test real_bgp -- --ignored --nocapture`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod lab;

use lab::{Daemon, Namespace, Ours, has, may_run};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Instant;
use tidemill_bgp::PeerConfig;
use tidemill_feed::{AnyPrefix, LoadOptions, load_all};

#[test]
#[ignore = "a million routes twice: see the head of the file"]
fn real_bird_feeds_the_full_table() {
    let test = "real_bird_feeds_the_full_table";
    let Some(data) = std::env::var_os("TIDEMILL_DATA").map(PathBuf::from) else {
        println!("skipped: {test} (TIDEMILL_DATA is not set)");
        return;
    };
    if !may_run(test) || !has(test, "bird") {
        return;
    }
    let files = ["v4", "v6"].map(|family| data.join(format!("rib/ris-as3333-20260511.{family}.nh148.zst")));
    let table = load_all(&[&files[0], &files[1]], &LoadOptions::default()).unwrap();
    // The label travels as MULTI_EXIT_DISC.
    let mut routes = [String::new(), String::new()];
    for (prefix, label) in table.v4.iter() {
        writeln!(routes[0], "route {prefix} unreachable {{ bgp_med = {}; }};", label.0).unwrap();
    }
    for (prefix, label) in table.v6.iter() {
        writeln!(routes[1], "route {prefix} unreachable {{ bgp_med = {}; }};", label.0).unwrap();
    }
    let configuration = format!(
        "router id 10.0.0.1;\nprotocol device {{}}\n\
         protocol static four {{ ipv4;\n{}}}\nprotocol static six {{ ipv6;\n{}}}\n\
         protocol bgp ours {{ local 10.0.0.1 as 64496; neighbor 10.0.0.200 port 1790 as 65000; multihop; disabled yes;\n\
         connect delay time 1; ipv4 {{ import all; export all; next hop self; }};\n\
         ipv6 {{ import all; export all; next hop self; next hop address fd00::1; }}; }}\n",
        routes[0], routes[1]
    );
    let ns = Namespace::new();
    let mut ours = Ours::open(&ns, vec![PeerConfig::new("bird", IpAddr::from([10, 0, 0, 1]), 64_496)]);
    let daemon = Daemon::bird(&ns, &configuration);
    let wanted = table.v4.len() + table.v6.len();
    // It reads its file first.
    let ctl = daemon.folder.path().join("bird.ctl");
    ours.until("BIRD", |_| ctl.exists());
    for round in 0..2 {
        daemon.birdc("enable ours");
        ours.until("the session", |ours| ours.peer("bird").state.is_some());
        let start = Instant::now();
        ours.until("the whole table", |ours| ours.peer("bird").synchronized == [true; 2]);
        let elapsed = start.elapsed();
        println!("round {round}: {} of {wanted} routes after {elapsed:.2?}", ours.told.len());
        assert_eq!(ours.told.len(), wanted);
        let rib = ours.runner.speaker().rib();
        let mut read = 0;
        for (prefix, paths) in rib.after(None) {
            let label = match prefix {
                AnyPrefix::V4(prefix) => table.v4.get(prefix),
                AnyPrefix::V6(prefix) => table.v6.get(prefix),
            };
            assert_eq!(paths[0].attributes.med, label.map(|label| label.0), "{prefix}");
            read += 1;
        }
        assert_eq!(read, wanted);
        daemon.birdc("disable ours");
        let start = Instant::now();
        ours.until("nothing", |ours| ours.told.is_empty());
        println!("round {round}: all withdrawn after {:.2?}", start.elapsed());
    }
}
