//! Clients that do anything at any time, against memcached with the cache in front of it: what they saw of each key has to be
//! what one memcached can have said, which is killed now and then, as the cache's daemon is, and the cache taken away. Needs root and memcached.
//!
//! `TIDEMILL_SEED=N` repeats a run's choices. The long form: `cargo test -p tidemill-kv --release --test root_random -- --ignored`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test may

mod contract;
#[allow(dead_code)] // some of it is for other suites
#[path = "../../cli/tests/root_wire/net.rs"]
mod net;
#[allow(dead_code)]
#[path = "../../cli/tests/root_wire/raw.rs"]
mod raw;
#[allow(dead_code, unreachable_pub)]
#[path = "../../port/src/rng.rs"]
mod rng;

use contract::lab::{Lab, PORT, turn};
use contract::proxy::Proxy;
use contract::random::{Ran, run};
use std::net::SocketAddr;

fn seed(default: u64) -> u64 {
    std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(default)
}

/// `hits`: the cache answers so many at least, about a quarter of what it does on an idle machine.
fn right(lab: &mut Lab, seed: u64, commands: u64, hits: u64) -> Ran {
    let ran = run(lab, seed, commands, &|| 0).unwrap_or_else(|fault| panic!("{}", fault.text));
    println!("{ran:?}");
    assert!(ran.turns > 0, "memcached was never killed: {ran:?}");
    // Were all of them lost, nothing would have been looked at.
    assert!(ran.asked > commands / 10 && ran.lost < ran.asked / 20, "{ran:?}");
    if let Some(cache) = &lab.cache {
        // Nor if the cache had never answered.
        println!("{}", cache.describe());
        assert!(ran.hits > hits && ran.is_answered_throughout(), "{ran:?} {}", cache.describe());
    }
    ran
}

#[test]
fn a_hundred_thousand_commands() {
    let Some(_turn) = turn("a_hundred_thousand_commands") else { return };
    let ran = right(&mut Lab::cached(), seed(1), 100_000, 550);
    assert!(ran.turns > 2, "memcached is killed, the daemon replaced, the cache detached: {ran:?}");
}

#[test]
#[ignore = "ten million commands: an hour"]
fn ten_million_commands() {
    let Some(_turn) = turn("ten_million_commands") else { return };
    right(&mut Lab::cached(), seed(7), 10_000_000, 60_000);
}

/// memcached alone passes: what the checker finds is not of its own making.
#[test]
fn memcached_by_itself_is_right() {
    let Some(_turn) = turn("memcached_by_itself_is_right") else { return };
    right(&mut Lab::plain(), seed(2), 20_000, 0);
}

/// A cache that does not know of all that changes a value is found out, and a short history says how.
#[test]
fn a_stale_cache_is_found() {
    let Some(_turn) = turn("a_stale_cache_is_found") else { return };
    let mut lab = Lab::plain();
    let front = lab.cached.net.udp(([10, 1, 0, 2], 0).into());
    let back = lab.cached.net.udp(([127, 0, 0, 1], 0).into());
    back.connect(SocketAddr::from(([127, 0, 0, 1], PORT))).unwrap();
    let proxy = Proxy::start(front, back);
    lab.cached.udp = proxy.address;
    for seed in 0..3 {
        let fault = run(&mut lab, seed, 5_000, &|| 0).expect_err("a stale answer was not found");
        println!("{}", fault.text);
        assert!(
            fault.text.contains("no order explains") && (2..40).contains(&fault.events),
            "{}",
            fault.text
        );
    }
}
