//! Whether what a configuration asks for fits into this machine's memory: tables are taken page by page as they fill, and one that is too large ends the process by
//! the kernel's hand, long after the start.

use crate::usage;
use anyhow::Result;
use std::fs;

/// Bytes that can be had without anything else being pushed out (`MemAvailable`). `None`: the system does not say it.
fn available() -> Option<u64> {
    kib_of(&fs::read_to_string("/proc/meminfo").ok()?).map(|kib| kib.saturating_mul(1024))
}

fn kib_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// What is wrong with a key whose tables take so many bytes in the end, if they are too many.
fn wrong(name: &str, key: &str, bytes: f64, available: Option<u64>) -> Option<String> {
    let available = available.filter(|available| bytes > *available as f64)?;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    Some(format!(
        "{name}: {key}: its tables take {:.0} MiB when they are full, and this machine has {:.0} MiB left: lower it, or the kernel ends the process some time",
        mib(bytes),
        mib(available as f64)
    ))
}

/// Refuses what would not fit.
pub(super) fn refuse(name: &str, key: &str, bytes: f64) -> Result<()> {
    wrong(name, key, bytes, available()).map_or(Ok(()), |what| Err(usage(what)))
}

/// Says so where a configuration is only checked: it may be for another machine.
pub(super) fn warn(name: &str, key: &str, bytes: f64) {
    if let Some(what) = wrong(name, key, bytes, available()) {
        eprintln!("tidemill: warning: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_said() {
        assert_eq!(kib_of("MemTotal:  9 kB\nMemAvailable:    2048 kB\n"), Some(2048));
        assert_eq!((kib_of("MemTotal: 9 kB\n"), kib_of("MemAvailable: many kB\n")), (None, None));
        assert_eq!(wrong("a.toml", "mitigator.entries", 100.0, Some(100)), None);
        assert_eq!(wrong("a.toml", "mitigator.entries", 1e18, None), None);
        let said = wrong("a.toml", "mitigator.entries", 3.0 * 1048576.0, Some(1 << 20)).unwrap_or_default();
        assert!(said.starts_with("a.toml: mitigator.entries: its tables take 3 MiB when they are full, and this machine has 1 MiB left"), "{said}");
        assert!(refuse("a.toml", "x", 1.0).is_ok());
        if available().is_some() {
            assert!(refuse("a.toml", "x", 1e18).is_err());
        }
    }
}
