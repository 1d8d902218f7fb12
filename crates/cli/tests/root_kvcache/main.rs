//! `role = "kvcache"` on a cable between real clients and a real memcached, held to what the kernel's tier is held to: clients that do anything at any time, over UDP
//! and TCP, IPv4 and IPv6, in all three protocols; what they saw of each key has to be what one memcached can have said. And the kernel's tier's own tests of the contract, by the same text:
//! what is read, and what voids it, with each combination of tiers. Needs root and memcached.
//!
//! `TIDEMILL_SEED=N` repeats a run's choices.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test may

mod accept;
mod combinations;
#[path = "../../../kv/tests/contract/mod.rs"]
mod contract;
#[path = "../../../kv/tests/root_contract/cuts.rs"]
mod cuts;
#[path = "../../../kv/tests/root_contract/ends.rs"]
mod ends;
mod front;
#[allow(dead_code)] // the kernel's tier sees more ways
#[path = "../../../kv/tests/root_contract/mutations.rs"]
mod mutations;
#[allow(dead_code)] // some of it is for other suites
#[path = "../root_wire/net.rs"]
mod net;
#[allow(dead_code)]
#[path = "../root_wire/raw.rs"]
mod raw;
#[path = "../../../kv/tests/root_contract/reads.rs"]
mod reads;
mod redis;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../port/src/rng.rs"]
mod rng;

use contract::lab::{Lab, MIDDLE, passing, turn};
use contract::pair::{Pair, Way};
use contract::random::run;
use net::{Netns, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use tidemill_control::Client;
use tidemill_control::schema::Done;
use tidemill_control::schema::kv::{Counters, OnDemand, Top, TopQuery, path};

/// A tidemill between two cables.
struct Bridge {
    child: Child,
    folder: tempfile::TempDir,
    client: Client,
}

impl Bridge {
    fn start(middle: &Netns, section: &str) -> Self {
        Bridge::over("kind = \"af_packet\"", middle, section)
    }

    /// `port`: what both have in common.
    fn over(port: &str, middle: &Netns, section: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [clients, servers] = MIDDLE;
        let config = format!(
            "version = 1\nrole = \"kvcache\"\n[control]\nsocket = \"kv.sock\"\n[kvcache]\naddresses = [\"10.1.0.2\", \"fd01::2\"]\n\
            allow = [\"10.1.0.0/24\", \"fd01::/64\"]\nsettle_ms = 400\nlease_ms = 400\n{section}\n\
            [[port]]\nname = \"clients\"\n{port}\ninterface = \"{clients}\"\n\
            [[port]]\nname = \"servers\"\n{port}\ninterface = \"{servers}\"\n"
        );
        std::fs::write(folder.path().join("kv.toml"), config).unwrap();
        let file = |name: &str| File::create(folder.path().join(name)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(["run", "kv.toml", "--json"]).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        let child = middle.enter(|| command.spawn()).unwrap();
        let client = Client::new(&folder.path().join("kv.sock")).unwrap();
        let bridge = Bridge { child, folder, client };
        wait_until("the cache runs", Duration::from_secs(10), || bridge.counters().is_some());
        bridge
    }

    fn counters(&self) -> Option<Counters> {
        self.client.get(path::COUNTERS, &()).ok()
    }

    fn count(&self, name: &str) -> u64 {
        self.counters().unwrap().counters[name]
    }

    /// Until all that has been counted is shown: the worker shows it, and then tells this.
    fn shown(&self) {
        let _: Top = self.client.get(path::TOP, &TopQuery { limit: Some(1) }).unwrap();
    }

    /// Ends it in good order: what it says in the end.
    fn end(&mut self) -> Value {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.said("err"));
        let out = self.said("out");
        serde_json::from_str(out.lines().last().unwrap()).unwrap()
    }

    fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("--- cache\n{:?}\n{}", self.counters(), self.said("err"));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn seed(default: u64) -> u64 {
    std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(default)
}

/// In + made = out + dropped + consumed + held, and nothing was dropped but what is to be.
fn judge(said: &Value) {
    let count = |name: &str| said[name].as_u64().unwrap();
    let dropped = said["dropped"].as_object().unwrap();
    let lost: u64 = dropped.values().filter_map(Value::as_u64).sum();
    assert_eq!(
        count("in") + count("made"),
        count("out") + lost + count("consumed") + count("held"),
        "{said}"
    );
    assert!(dropped.keys().all(|reason| reason.starts_with("kv-")), "{said}");
}

/// KiB of memory that a process has; 0 if it has ended.
fn memory_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse().unwrap())
}

/// What L0 and L1 have answered.
fn hits_of(bridge: &Bridge) -> u64 {
    let counters = bridge.counters().unwrap().counters;
    counters["hit-l0"] + counters["hit-l1"]
}

/// Returns how much memory the cache had meanwhile, five times a second.
fn commands(section: &str, seed: u64, commands: u64) -> Vec<u64> {
    commands_over("kind = \"af_packet\"", section, seed, commands, &["hit-l0"])
}

/// The same over ports of any kind. `least`: what is counted once at least.
fn commands_over(port: &str, section: &str, seed: u64, commands: u64, least: &[&str]) -> Vec<u64> {
    let middle = Netns::new("middle");
    let mut lab = Lab::behind(&middle);
    let mut bridge = Bridge::over(port, &middle, section);
    let pid = bridge.child.id();
    let (ran, looks) = std::thread::scope(|scope| {
        let (running, ended) = channel::<()>();
        let looks = scope.spawn(move || {
            let mut looks = Vec::new();
            while ended.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
                looks.push(memory_kib(pid));
            }
            looks
        });
        let ran = run(&mut lab, seed, commands, &|| hits_of(&bridge));
        drop(running);
        (ran, looks.join().unwrap())
    });
    let ran = ran.unwrap_or_else(|fault| panic!("{}", fault.text));
    println!("{ran:?}\n{:?}", bridge.counters().unwrap().counters);
    // Were all of them lost, nothing would have been looked at; nor if the cache had never answered.
    assert!(ran.asked > commands / 10 && ran.lost < ran.asked / 20, "{ran:?}");
    // Of the little that is not being written: a fifth of what there is where it was measured, and on to the end.
    assert!(ran.hits > commands / 200 && ran.is_answered_throughout(), "{ran:?}");
    assert!(bridge.count("fill-kept") > commands / 5000);
    for name in least.iter().chain(&["tcp-mutation", "tcp-released"]) {
        assert!(bridge.count(name) > 0, "{name}");
    }
    judge(&bridge.end());
    looks
}

#[test]
fn commands_of_any_kind() {
    let Some(_turn) = turn("commands_of_any_kind") else { return };
    commands("misses = 1", seed(1), 60_000);
}

#[test]
#[ignore = "ten million commands: an hour"]
fn ten_million_commands() {
    let Some(_turn) = turn("ten_million_commands") else { return };
    let looks = commands("misses = 1", seed(7), 10_000_000);
    // Warm after a quarter, it grows no more: as much as a life of `cargo xtask soak` may.
    let warm = looks[..looks.len() / 4].iter().copied().max().unwrap();
    let most = looks.iter().copied().max().unwrap();
    println!("{warm} KiB of memory when it was warm, at most {most}");
    assert!(most <= warm + 16_384, "{warm} KiB, then {most}");
}

/// The ports that the role is measured with.
#[test]
#[ignore = "clients that do anything, over AF_XDP"]
fn commands_of_any_kind_over_af_xdp() {
    let Some(_turn) = turn("commands_of_any_kind_over_af_xdp") else { return };
    commands_over("kind = \"af_xdp\"\npromiscuous = true", "misses = 1", seed(5), 60_000, &["hit-l0"]);
}

#[test]
fn commands_of_any_kind_write_back() {
    let Some(_turn) = turn("commands_of_any_kind_write_back") else { return };
    let small = "misses = 1\nhash = \"crc32\"\ninclusion = \"non-inclusive\"\nwrite = \"back\"\n\
        [kvcache.l0]\nentries = 2\nchunk = 512\npolicy = \"sieve\"\n\
        [kvcache.l1]\nentries = 4\nways = 4\nmemory_mib = 1\npolicy = \"s3fifo\"";
    // Both tiers: L1 has what L0 has let go of.
    commands_over("kind = \"af_packet\"", small, seed(2), 30_000, &["hit-l0", "hit-l1"]);
}

/// Gets in a tenth of a second that the cache could answer, in the median, while clients do anything.
fn gets_a_tenth() -> u64 {
    let middle = Netns::new("middle");
    let mut lab = Lab::behind(&middle);
    let mut bridge = Bridge::start(&middle, "misses = 1");
    let gets = || {
        let counters = bridge.counters().unwrap().counters;
        ["hit-l0", "hit-l1", "get-miss", "get-parked"].iter().map(|name| counters[*name]).sum::<u64>()
    };
    let looks = std::thread::scope(|scope| {
        let (running, ended) = channel::<()>();
        let gets = &gets;
        let looks = scope.spawn(move || {
            let mut looks = vec![gets()];
            while ended.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                looks.push(gets());
            }
            looks
        });
        let ran = run(&mut lab, seed(4), 12_000, &|| 0);
        drop(running);
        if let Err(fault) = ran {
            panic!("{}", fault.text);
        }
        looks.join().unwrap()
    });
    judge(&bridge.end());
    let mut tenths: Vec<u64> = looks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    tenths.sort_unstable();
    tenths[tenths.len() / 2]
}

/// Who answers goes back and forth while clients do anything: the limits lie where what is asked for is as often above as below.
#[test]
fn commands_of_any_kind_while_it_shifts() {
    let Some(_turn) = turn("commands_of_any_kind_while_it_shifts") else { return };
    let up = (10 * gets_a_tenth()).max(20);
    let down = up * 9 / 10;
    let middle = Netns::new("middle");
    let mut lab = Lab::behind(&middle);
    let limits = format!("on_demand = {{ up = {up}, up_ms = 100, down = {down}, down_ms = 100 }}");
    let mut bridge = Bridge::start(&middle, &format!("misses = 1\n{limits}"));
    let ran =
        run(&mut lab, seed(4), 60_000, &|| hits_of(&bridge)).unwrap_or_else(|fault| panic!("{}", fault.text));
    println!("{limits}\n{ran:?}\n{:?}", bridge.counters().unwrap().counters);
    assert!(ran.asked > 3_000 && ran.lost < ran.asked / 20, "{ran:?}");
    assert!(bridge.count("shifts") > 3 && bridge.count("get-resting") > 100);
    assert!(bridge.count("hit-l0") + bridge.count("hit-l1") > 0);
    judge(&bridge.end());
}

/// Until the role's tiers have answered, and the kernel's behind them.
fn both_answer(lab: &Lab, bridge: &Bridge) {
    let mut pair = Pair::new(lab);
    for n in 0..40 {
        pair.tcp(format!("set key:{n} 7 0 3\r\nabc\r\n").as_bytes(), "set");
    }
    let hits = || bridge.count("hit-l0") + bridge.count("hit-l1");
    let below = || lab.cache.as_ref().unwrap().count("get-hit");
    wait_until("both tiers answer", Duration::from_secs(20), || {
        for n in 0..40 {
            let get = format!("get key:{n}\r\n");
            (0..3).for_each(|_| drop(pair.ask(Way::Udp, get.as_bytes(), "get")));
        }
        hits() > 0 && below() > 0
    });
}

/// All tiers at once: L0 and L1 on the cable, the kernel's programs in front of memcached. Both answer, and clients see what one memcached can have said.
#[test]
fn commands_of_any_kind_with_the_kernels_tier() {
    let Some(_turn) = turn("commands_of_any_kind_with_the_kernels_tier") else { return };
    let middle = Netns::new("middle");
    let mut lab = Lab::behind(&middle);
    // Or what the programs send back does not arrive there.
    let _passing = passing(&middle, MIDDLE[1]);
    lab.attach();
    // Fewer entries than keys: some gets are left to the tier below.
    let small = "misses = 1\n[kvcache.l0]\nentries = 2\n[kvcache.l1]\nentries = 4\nways = 4\nmemory_mib = 1";
    let mut bridge = Bridge::start(&middle, small);
    both_answer(&lab, &bridge);
    let below = |lab: &Lab| lab.cache.as_ref().unwrap().count("get-hit");
    let (before, before_below) = (hits_of(&bridge), below(&lab));
    let ran =
        run(&mut lab, seed(3), 10_000, &|| hits_of(&bridge)).unwrap_or_else(|fault| panic!("{}", fault.text));
    println!("{ran:?}\n{:?}", bridge.counters().unwrap().counters);
    assert!(ran.asked > 1_000 && ran.lost < ran.asked / 20, "{ran:?}");
    let (hits, hits_below) = (hits_of(&bridge) - before, below(&lab) - before_below);
    assert!(hits > 0 && hits_below > 0, "while clients did anything: {hits}, below {hits_below}");
    judge(&bridge.end());
}

/// On demand by the host: what the memcacheds here take of a processor makes the cache answer, and it says so.
#[test]
fn the_host_decides_who_answers() {
    let Some(_turn) = turn("the_host_decides_who_answers") else { return };
    let middle = Netns::new("middle");
    let lab = Lab::behind(&middle);
    let section = "misses = 1\n[kvcache.on_demand_host]\nprocess = \"memcached\"\nup = { cpu = 2, ms = 1000 }\n\
        down = { cpu = 1, gets = 1, ms = 600000 }";
    let mut bridge = Bridge::start(&middle, section);
    let mut pair = Pair::new(&lab);
    pair.tcp(b"set key 7 0 3\r\nabc\r\n", "set");
    wait_until("the cache answers", Duration::from_secs(20), || {
        (0..200).for_each(|_| drop(pair.ask(Way::Udp, b"get key\r\n", "get")));
        bridge.count("hit-l0") > 0
    });
    let counters = bridge.counters().unwrap().counters;
    assert_eq!((counters["answering"], counters["shifts"], counters["host-unread"]), (1, 1, 0));
    assert!(counters["get-resting"] > 0 && counters["host-read"] > 0, "{counters:?}");
    wait_until("it says why", Duration::from_secs(5), || {
        bridge.said("err").contains("kvcache: the cache answers: memcached takes ")
    });
    let on_demand: OnDemand = bridge.client.get(path::ON_DEMAND, &()).unwrap();
    assert_eq!((on_demand.cache_answers, &on_demand.decides[..]), (true, "host"));
    assert!(on_demand.read.unwrap().starts_with("memcached takes "));
    assert!(on_demand.shifted.unwrap().starts_with("the cache answers: memcached takes "));
    drop(pair);
    judge(&bridge.end());
}

/// Values are given, byte for byte as memcached gives them; who asks most is known; a memcached that is started again is another.
#[test]
fn answers_and_what_an_operator_sees() {
    let Some(_turn) = turn("answers_and_what_an_operator_sees") else { return };
    let middle = Netns::new("middle");
    let mut lab = Lab::behind(&middle);
    let mut bridge = Bridge::start(&middle, "");
    let mut pair = Pair::new(&lab);
    let hits = || bridge.count("hit-l0") + bridge.count("hit-l1");
    for length in [1, 3, 40, 300, 1000, 1024, 1025, 1300] {
        let key = format!("key:{length}").into_bytes();
        let line = format!("set key:{length} 7 0 {length}\r\n");
        pair.tcp(&[line.as_bytes(), &vec![b'v'; length], b"\r\n"].concat(), "set");
        let get = [b"get ", &key[..], b"\r\n"].concat();
        for way in [Way::Udp, Way::Udp6] {
            let before = hits();
            wait_until("it is answered", Duration::from_secs(5), || {
                (0..10).for_each(|_| drop(pair.ask(way, &get, "get")));
                hits() > before || length > 1024
            });
        }
    }
    let (key, get) = (b"key:3", b"get key:3\r\n");
    for _ in 0..400 {
        pair.ask(Way::Udp, get, "get");
    }
    let top: Top = bridge.client.get(path::TOP, &TopQuery { limit: Some(1) }).unwrap();
    assert_eq!(top.lines[0].key.as_bytes(), key);
    assert!(top.lines[0].hits > 200, "{top:?}");
    bridge.shown();
    let before = hits();
    let done: Done = bridge.client.post(path::FLUSH, &serde_json::json!({})).unwrap();
    pair.ask(Way::Udp, get, "get");
    bridge.shown();
    assert_eq!((hits(), bridge.count("flushed")), (before, 1), "{done:?}");
    drop(pair);
    // All of it is gone, and after the lease, of 0.4 s here, nothing is answered that was there.
    lab.cached.memcached.kill();
    lab.cached.memcached = contract::lab::Memcached::start(&lab.cached.net, 4);
    std::thread::sleep(Duration::from_millis(500));
    let mut udp = lab.udp(&lab.cached);
    for _ in 0..20 {
        assert_eq!(udp.ask(get).as_deref(), Some(&b"END\r\n"[..]));
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_until("the other one is known", Duration::from_secs(5), || {
        udp.ask(get);
        bridge.count("restarts") == 1
    });
    let said = bridge.end();
    judge(&said);
    assert!(said["kv"]["hit-l0"].as_u64().unwrap() > 0, "{said}");
}
