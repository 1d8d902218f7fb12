//! BIRD feeds the full table of 2026 to a whole router: how long it takes until the lookup structures have all of it, whether each route leads where the table says, and that all
//! of it goes with the session. Needs BIRD and TIDEMILL_DATA, no root; minutes of a debug build, so only on demand:
//! `TIDEMILL_DATA=... cargo test --release -p tidemill-cli --test real_bgp_router -- --ignored --nocapture`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_control::Client;
use tidemill_control::schema::{Fibs, Routes, RoutesQuery, path};
use tidemill_feed::{AnyPrefix, LoadOptions, LoadedTable, load_all};

/// What the full table has to be there in.
const BOUND: Duration = Duration::from_secs(20);
/// What anything has to happen in.
const PATIENCE: Duration = Duration::from_secs(300);

/// A router by which nobody sends anything; each label of the table is a gateway of `wan`.
const ROUTER: &str = r#"
version = 1
role = "router"
[control]
socket = "router.sock"
[bgp]
asn = 65000
id = "10.1.0.1"
listen = ["127.0.0.1:1797"]
[[bgp.peer]]
name = "bird"
address = "127.0.0.2"
asn = 64496
max_prefixes = 2000000
[[port]]
name = "lan"
kind = "generator"
rate_pps = 1000
[[port]]
name = "wan"
kind = "null"
receive = false
[[interface]]
port = "lan"
mac = "02:00:00:00:00:01"
addresses = ["10.1.0.1/24"]
[[interface]]
port = "wan"
addresses = ["10.2.0.254/24", "2001:db8:2::ffff/64"]
"#;

/// A process that ends with its value.
struct Process(Child);

impl Process {
    fn start(command: &mut Command, folder: &Path, said: &str) -> Self {
        let said = File::create(folder.join(said)).unwrap();
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Process(command.spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The gateway of a label.
fn gateway(prefix: &AnyPrefix, label: u32) -> IpAddr {
    let last = u8::try_from(label).ok().filter(|last| (1..=253).contains(last)).unwrap();
    match prefix {
        AnyPrefix::V4(_) => Ipv4Addr::new(10, 2, 0, last).into(),
        AnyPrefix::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, last.into()).into(),
    }
}

/// Its table, and a session that is off.
fn bird(table: &[(AnyPrefix, IpAddr)]) -> String {
    let mut lists = [String::new(), String::new()];
    for (prefix, gateway) in table {
        let list = &mut lists[usize::from(gateway.is_ipv6())];
        writeln!(list, "route {prefix} unreachable {{ bgp_next_hop = {gateway}; }};").unwrap();
    }
    let [four, six] = lists;
    format!(
        "router id 127.0.0.2;\nprotocol device {{}}\n\
         protocol static four {{ ipv4;\n{four}}}\nprotocol static six {{ ipv6;\n{six}}}\n\
         protocol bgp ours {{ disabled yes; local 127.0.0.2 as 64496; neighbor 127.0.0.1 port 1797 as 65000; multihop;\n\
         connect delay time 1; connect retry time 1; error wait time 1, 2;\n\
         ipv4 {{ import none; export all; next hop keep; }};\nipv6 {{ import none; export all; next hop keep; }}; }}\n"
    )
}

/// Prefixes in the lookup structures, IPv4 and IPv6; none while the router is not there.
fn prefixes(client: &Client) -> Option<[u64; 2]> {
    let fibs: Fibs = client.get(path::FIB, &()).ok()?;
    let of = |family: u8| fibs.fibs.iter().filter(|fib| fib.family == family).map(|fib| fib.prefixes).sum();
    Some([4, 6].map(of))
}

/// How long it takes until something is so.
fn wait(what: &str, mut so: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    start.elapsed()
}

/// All routes of BGP, page by page: each is in force, and leads where the table says.
fn is_the_table(client: &Client, table: &[(AnyPrefix, IpAddr)]) {
    let mut missing: HashMap<String, IpAddr> =
        table.iter().map(|(prefix, gateway)| (prefix.to_string(), *gateway)).collect();
    let mut query = RoutesQuery::default();
    loop {
        let page: Routes = client.get(path::ROUTES, &query).unwrap();
        for route in page.routes.iter().filter(|route| route.source == "bgp") {
            let right = missing.remove(&route.prefix).unwrap_or_else(|| panic!("nobody told {route:?}"));
            let via: Vec<_> = route.next_hops.iter().filter_map(|hop| hop.via.as_deref()).collect();
            assert!(route.best && via == [right.to_string()], "{route:?}: {right}");
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert!(missing.is_empty(), "{} routes are missing", missing.len());
}

#[test]
#[ignore = "a million routes: see the head of the file"]
fn real_bird_feeds_a_whole_router() {
    let Some(data) = std::env::var_os("TIDEMILL_DATA").map(PathBuf::from) else {
        return println!("skipped: real_bird_feeds_a_whole_router (TIDEMILL_DATA is not set)");
    };
    let files = ["v4", "v6"].map(|family| data.join(format!("rib/ris-as3333-20260511.{family}.nh148.zst")));
    let LoadedTable { v4, v6, .. } = load_all(&[&files[0], &files[1]], &LoadOptions::default()).unwrap();
    let v4 = v4.iter().map(|(prefix, label)| (AnyPrefix::V4(prefix), label.0));
    let v6 = v6.iter().map(|(prefix, label)| (AnyPrefix::V6(prefix), label.0));
    let table: Vec<(AnyPrefix, IpAddr)> =
        v4.chain(v6).map(|(prefix, label)| (prefix, gateway(&prefix, label))).collect();
    let six = table.iter().filter(|(_, gateway)| gateway.is_ipv6()).count() as u64;

    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("router.toml"), ROUTER).unwrap();
    std::fs::write(folder.join("bird.conf"), bird(&table)).unwrap();
    let mut router = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    let _router = Process::start(router.args(["run", "router.toml"]), folder, "router.log");
    let mut bird = Command::new("bird");
    let bird = Process::start(bird.args(["-f", "-c", "bird.conf", "-s", "bird.ctl"]), folder, "bird.log");
    let client = Client::new(&folder.join("router.sock")).unwrap();
    wait("the router", || prefixes(&client).is_some());
    // With all that is its own: it is that twice, half a second apart.
    let mut own = [0; 2];
    wait("its own routes", || {
        let before = std::mem::replace(&mut own, prefixes(&client).unwrap());
        std::thread::sleep(Duration::from_millis(500));
        before == own && own != [0; 2]
    });
    // It reads its file first.
    wait("BIRD", || folder.join("bird.ctl").exists());
    let birdc = Command::new("birdc").args(["-s", "bird.ctl", "enable", "ours"]).current_dir(folder).output();
    assert!(birdc.unwrap().status.success());

    let all = [own[0] + table.len() as u64 - six, own[1] + six];
    let took = wait("the whole table", || prefixes(&client) == Some(all));
    println!("bird: {} routes in force after {took:.2?}", table.len());
    is_the_table(&client, &table);
    drop(bird);
    let went = wait("nothing of it", || prefixes(&client) == Some(own));
    println!("bird: killed, and all routes withdrawn after {went:.2?}");
    assert!(took < BOUND, "{took:?}");
}
