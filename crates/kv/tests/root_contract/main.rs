//! The operator's contract: with the cache in front of memcached, a client gets what it would have got without. Every line of it is
//! a test here, on a real memcached behind a virtual cable. Needs root and memcached.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test may

#[path = "../contract/mod.rs"]
mod contract;
mod cuts;
mod ends;
mod front;
mod kernels;
mod life;
mod mutations;
#[allow(dead_code)] // some of it is for other suites
#[path = "../../../cli/tests/root_wire/net.rs"]
mod net;
#[allow(dead_code)]
#[path = "../../../cli/tests/root_wire/raw.rs"]
mod raw;
mod reads;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../port/src/rng.rs"]
mod rng;
mod streams;
mod time;
