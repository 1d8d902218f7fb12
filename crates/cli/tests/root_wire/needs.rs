//! What tests between namespaces need: root, some programs, and most of them no other test of their binary beside them. `cargo xtask test` may run another binary there
//! (xtask/src/test/lanes.rs says which it does not).

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

static MACHINE: Mutex<()> = Mutex::new(());

/// Whether a test can run. Says so if it has to be skipped, which it never is in CI.
pub(crate) fn met(test: &str, programs: &[&str]) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let why = match programs.iter().find(|program| !installed(program)) {
        _ if !status.contains("Uid:\t0\t0") => "needs root".into(),
        Some(program) => format!("{program} is not installed"),
        None => return true,
    };
    assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped in CI: {why}");
    println!("skipped: {test} ({why})");
    false
}

/// Waits until no other test of this binary has the machine. None if the test has to be skipped.
pub(crate) fn alone(test: &str, programs: &[&str]) -> Option<MutexGuard<'static, ()>> {
    met(test, programs).then(|| MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn installed(program: &str) -> bool {
    ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(program).exists())
}
