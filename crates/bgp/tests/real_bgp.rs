//! The full table of 2026 from BIRD, from FRR and from GoBGP (which have it from BIRD): how long it takes until all of it is there, and
//! whether it is the table; that a million withdrawals and announcements, and sessions that flap, lose nothing. Needs root, the daemons
//! and TIDEMILL_DATA; minutes of a debug build, so only on demand:
//! `TIDEMILL_DATA=... cargo test --release -p tidemill-bgp --test real_bgp -- --ignored --nocapture --test-threads 1`.
//!
//! With `TIDEMILL_BGP_ROUTES=N` it is the first N routes of each family, to try the tests themselves.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod lab;

use lab::{Daemon, FRR, Namespace, Ours, has, may_run};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tidemill_bgp::PeerConfig;
use tidemill_feed::{AnyPrefix, LoadOptions, LoadedTable, load_all};

/// What the full table has to be there in: the bound of the project's plan, with one daemon's own pace in it. GoBGP, which works for it on more than one processor by itself, may be
/// slower than that: then it is the bound ([`converges_at`]).
const BOUND: Duration = Duration::from_secs(20);

/// The table; `None`, with a word, where it cannot be had.
fn table(test: &str) -> Option<(Vec<(AnyPrefix, u32)>, bool)> {
    let Some(data) = std::env::var_os("TIDEMILL_DATA").map(PathBuf::from) else {
        println!("skipped: {test} (TIDEMILL_DATA is not set)");
        return None;
    };
    let files = ["v4", "v6"].map(|family| data.join(format!("rib/ris-as3333-20260511.{family}.nh148.zst")));
    let LoadedTable { v4, v6, .. } = load_all(&[&files[0], &files[1]], &LoadOptions::default()).unwrap();
    let most = std::env::var("TIDEMILL_BGP_ROUTES").ok().map(|text| text.parse::<usize>().unwrap());
    let v4 = v4.iter().map(|(prefix, label)| (AnyPrefix::V4(prefix), label.0));
    let v6 = v6.iter().map(|(prefix, label)| (AnyPrefix::V6(prefix), label.0));
    let first = most.unwrap_or(usize::MAX);
    Some((v4.take(first).chain(v6.take(first)).collect(), most.is_none()))
}

/// BIRD's configuration: the table, with each label as a community, which other daemons pass on; sessions.
fn bird(table: &[(AnyPrefix, u32)], sessions: &str) -> String {
    let mut routes = [String::new(), String::new()];
    for (prefix, label) in table {
        let list = &mut routes[usize::from(matches!(prefix, AnyPrefix::V6(_)))];
        writeln!(list, "route {prefix} unreachable {{ bgp_community.add((64496, {label})); }};").unwrap();
    }
    format!(
        "router id 10.0.0.1;\nprotocol device {{}}\n\
         protocol static four {{ ipv4;\n{}}}\nprotocol static six {{ ipv6;\n{}}}\n{sessions}",
        routes[0], routes[1]
    )
}

fn session(name: &str, neighbor: &str, more: &str) -> String {
    format!(
        "protocol bgp {name} {{ local 10.0.0.1 as 64496; neighbor {neighbor}; multihop; {more}\n\
         connect delay time 1; connect retry time 1; error wait time 1, 2; error forget time 1;\n\
         ipv4 {{ import none; export all; next hop self; }};\n\
         ipv6 {{ import none; export all; next hop self; next hop address fd00::1; }}; }}\n"
    )
}

/// Waits for something outside.
fn wait(what: &str, so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(300), "no {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What is said in a namespace; empty where the program fails.
fn asked(ns: &Namespace, command: &str) -> String {
    let arguments = ["netns", "exec", &ns.0].into_iter().chain(command.split(' '));
    let output = Command::new("ip").args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What has come is the table: each prefix with its label.
fn is_the_table(ours: &Ours, table: &[(AnyPrefix, u32)]) {
    assert_eq!(ours.told.len(), table.len());
    let rib = ours.runner.speaker().rib();
    for (prefix, label) in table {
        let paths = rib.get(*prefix).unwrap_or_default();
        assert_eq!(paths.len(), 1, "{prefix}");
        assert_eq!(&*paths[0].attributes.communities, [64_496 << 16 | label], "{prefix}");
    }
    ours.check();
}

/// From a session's beginning until all is there: within the bound, or `pace`, what that daemon takes to feed another one on this machine, and a quarter.
fn converges_at(
    ours: &mut Ours,
    from: &str,
    table: &[(AnyPrefix, u32)],
    whole: bool,
    pace: Option<Duration>,
) {
    ours.until("the session", |ours| ours.peer(from).state.is_some());
    let start = Instant::now();
    ours.until("the whole table", |ours| ours.told.len() == table.len());
    let took = start.elapsed();
    println!("{from}: {} routes after {took:.2?}", ours.told.len());
    is_the_table(ours, table);
    let bound = pace.map_or(BOUND, |pace| BOUND.max(pace + pace / 4));
    assert!(!whole || took < bound, "{from}: {took:?} of {bound:?}");
}

/// The same, within the bound.
fn converges(ours: &mut Ours, from: &str, table: &[(AnyPrefix, u32)], whole: bool) {
    converges_at(ours, from, table, whole, None);
}

/// How long GoBGP takes to feed so many routes to a BIRD in our place.
fn pace_of_gobgp(ns: &Namespace, routes: usize) -> Duration {
    let bird = Daemon::bird(
        ns,
        "router id 10.0.0.200;\nprotocol device {}\n\
         protocol bgp gobgp { local 10.0.0.200 port 1790 as 65000; neighbor 10.0.0.2 port 1792 as 64497; multihop; passive;\n\
         ipv4 { import all; export none; };\nipv6 { import all; export none; }; }\n",
    );
    let ctl = bird.folder.path().join("bird.ctl");
    wait("BIRD", || ctl.exists());
    wait("session of GoBGP with BIRD", || bird.birdc("show protocols gobgp").contains("Established"));
    let start = Instant::now();
    wait("table at BIRD", || {
        // `N of N routes for N networks in 2 tables`
        let said = bird.birdc("show route count");
        let total = said.lines().rfind(|line| line.contains(" routes for ")).unwrap_or_default();
        let total = total.trim_start_matches("Total: ");
        total.split(' ').next().and_then(|count| count.parse::<usize>().ok()) == Some(routes)
    });
    start.elapsed()
}

#[test]
#[ignore = "a million routes, ten times: see the head of the file"]
fn real_bird_feeds_the_full_table() {
    let test = "real_bird_feeds_the_full_table";
    if !may_run(test) || !has(test, "bird") {
        return;
    }
    let Some((table, whole)) = table(test) else { return };
    let ns = Namespace::new();
    let mut ours = Ours::open(&ns, vec![PeerConfig::new("bird", IpAddr::from([10, 0, 0, 1]), 64_496)]);
    let daemon =
        Daemon::bird(&ns, &bird(&table, &session("ours", "10.0.0.200 port 1790 as 65000", "disabled yes;")));
    // It reads its file first.
    let ctl = daemon.folder.path().join("bird.ctl");
    ours.until("BIRD", |_| ctl.exists());
    for _ in 0..3 {
        daemon.birdc("enable ours");
        converges(&mut ours, "bird", &table, whole);
        daemon.birdc("disable ours");
        let start = Instant::now();
        ours.until("nothing", |ours| ours.told.is_empty());
        println!("bird: all withdrawn after {:.2?}", start.elapsed());
        assert_eq!((ours.runner.speaker().rib().len(), ours.runner.speaker().rib().attributes()), (0, 0));
    }
}

/// A million withdrawals and as many announcements while the session stands, and once while it ends in their midst.
#[test]
#[ignore = "a million routes, ten times: see the head of the file"]
fn real_updates_and_flaps_lose_nothing() {
    let test = "real_updates_and_flaps_lose_nothing";
    if !may_run(test) || !has(test, "bird") {
        return;
    }
    let Some((table, whole)) = table(test) else { return };
    let ns = Namespace::new();
    let mut ours = Ours::open(&ns, vec![PeerConfig::new("bird", IpAddr::from([10, 0, 0, 1]), 64_496)]);
    let daemon = Daemon::bird(&ns, &bird(&table, &session("ours", "10.0.0.200 port 1790 as 65000", "")));
    converges(&mut ours, "bird", &table, whole);
    let of_v6 = table.iter().filter(|(prefix, _)| matches!(prefix, AnyPrefix::V6(_))).count();
    let changes = ours.changes;
    daemon.birdc("disable four");
    ours.until("IPv6 alone", |ours| ours.told.len() == of_v6);
    daemon.birdc("enable four");
    ours.until("all again", |ours| ours.told.len() == table.len());
    is_the_table(&ours, &table);
    for round in 2..=4 {
        daemon.birdc("disable four");
        // Somewhere in it.
        let some = ours.told.len() - (table.len() - of_v6) / 2;
        ours.until("half of it", |ours| ours.told.len() <= some);
        daemon.birdc("restart ours");
        daemon.birdc("enable four");
        ours.until("a session", |ours| {
            let peer = ours.peer("bird");
            peer.established == round && peer.synchronized == [true; 2]
        });
        ours.until("all again", |ours| ours.told.len() == table.len());
        is_the_table(&ours, &table);
    }
    let (told, sessions) = (ours.changes - changes, ours.peer("bird").established);
    println!("bird: {told} changes told, {sessions} sessions");
    assert_eq!(sessions, 4);
    let stats = ours.peer("bird").stats;
    assert_eq!((stats.treated_as_withdraw, stats.discarded), (0, 0));
}

#[test]
#[ignore = "a million routes: see the head of the file"]
fn real_gobgp_feeds_the_full_table() {
    let test = "real_gobgp_feeds_the_full_table";
    if !may_run(test) || !has(test, "bird") || !has(test, "gobgpd") {
        return;
    }
    let Some((table, whole)) = table(test) else { return };
    let ns = Namespace::new();
    let _gobgp = Daemon::gobgp(&ns, "");
    let sessions = session("gobgp", "10.0.0.2 port 1792 as 64497", "");
    let _bird = Daemon::bird(&ns, &bird(&table, &sessions));
    // First it gets all of it; then we come.
    let counted = |family: &str| -> usize {
        let said = asked(&ns, &format!("gobgp global rib summary -a {family}"));
        let count = said.split("Destination: ").nth(1).and_then(|rest| rest.split(',').next());
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    };
    wait("table at GoBGP", || counted("ipv4") + counted("ipv6") == table.len());
    let pace = pace_of_gobgp(&ns, table.len());
    println!("gobgp: {} routes after {pace:.2?} at a BIRD in our place", table.len());
    let gobgp = PeerConfig::new("gobgp", IpAddr::from([10, 0, 0, 2]), 64_497);
    converges_at(&mut Ours::open(&ns, vec![gobgp]), "gobgp", &table, whole, Some(pace));
}

#[test]
#[ignore = "a million routes: see the head of the file"]
fn real_frr_feeds_the_full_table() {
    let test = "real_frr_feeds_the_full_table";
    if !may_run(test) || !has(test, "bird") || !has(test, FRR) {
        return;
    }
    let Some((table, whole)) = table(test) else { return };
    let ns = Namespace::new();
    let daemon = Daemon::frr(&ns);
    let sockets = daemon.folder.path().display().to_string();
    let sessions = session("frr", "10.0.0.2 port 1793 as 64498", "");
    let _bird = Daemon::bird(&ns, &bird(&table, &sessions));
    // First it gets all of it; then we come.
    let counted = || -> usize {
        let show = ["--vty_socket", &sockets, "-d", "bgpd", "-c", "show bgp summary json"];
        let said = Command::new("vtysh").args(show).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let counts = said.split("\"pfxRcd\":").skip(1);
        counts.filter_map(|rest| rest.split(',').next()?.trim().parse::<usize>().ok()).sum()
    };
    wait("table at FRR", || counted() == table.len());
    let frr = PeerConfig::new("frr", IpAddr::from([10, 0, 0, 2]), 64_498);
    converges(&mut Ours::open(&ns, vec![frr]), "frr", &table, whole);
}
