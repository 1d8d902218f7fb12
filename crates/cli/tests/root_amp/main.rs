//! The mitigator in front of a real victim: the Linux kernel, whose ICMP port-unreachable errors teach it. Needs root.
//!
//! What the paper measures in 5.4.2 to 5.4.4 is made again here (`completion`, `mixed`); the tests run small cases, and the whole
//! series, which take minutes, are run by `cargo xtask held 7` (they are ignored by default).

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

mod completion;
#[path = "../../../amp/tests/common/conversations.rs"]
mod conversations;
mod driver;
mod lab;
mod mixed;
#[path = "../root_wire/needs.rs"]
mod needs;
#[path = "../root_wire/net.rs"]
#[allow(dead_code)] // shared with another test
mod net;
#[path = "../root_wire/raw.rs"]
#[allow(dead_code)] // shared with another test
mod raw;
mod spoofed;

use std::sync::MutexGuard;

/// Waits for the machine. None if the test has to be skipped, which it never is in CI.
pub(crate) fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    needs::alone(test, &["ip", "sysctl", "unshare", "nstat", "ethtool"])
}
