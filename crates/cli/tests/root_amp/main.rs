//! The mitigator in front of a real victim: the Linux kernel, whose ICMP port-unreachable errors teach it. Needs root.
//!
//! What the paper measures in 5.4.2 to 5.4.4 is made again here (`completion`, `mixed`); the tests run small cases, and the whole
//! series, which take minutes, are run by `cargo xtask held 7` (they are ignored by default).

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

mod completion;
mod lab;
mod mixed;
#[path = "../root_wire/net.rs"]
#[allow(dead_code)] // shared with another test
mod net;
#[path = "../root_wire/raw.rs"]
#[allow(dead_code)] // shared with another test
mod raw;
mod spoofed;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

static MACHINE: Mutex<()> = Mutex::new(());

/// Waits for the machine. None if the test has to be skipped, which it never is in CI.
pub(crate) fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !status.contains("Uid:\t0\t0") {
        return skip(test, "needs root");
    }
    let programs = ["ip", "sysctl", "unshare", "nstat", "ethtool"];
    if let Some(program) = programs.iter().find(|program| !installed(program)) {
        return skip(test, &format!("{program} is not installed"));
    }
    Some(MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn skip<T>(test: &str, why: &str) -> Option<T> {
    assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped in CI: {why}");
    println!("skipped: {test} ({why})");
    None
}

fn installed(program: &str) -> bool {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(program).exists())
}
