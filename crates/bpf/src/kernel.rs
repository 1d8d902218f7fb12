//! The kernel that we run on, and what it lets this process do.

use crate::sys;
use std::fmt;

/// A release of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel(
    /// Major number.
    pub u16,
    /// Minor number.
    pub u16,
);

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Kernel {
    /// The first that has links of XDP programs.
    pub const LINKS: Kernel = Kernel(5, 9);

    /// The one that runs, if its release reads like one.
    pub fn running() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?)
    }

    fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(Kernel(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    /// What to say where this kernel is older than `self`, which `what` needs.
    pub(crate) fn missing(self, what: &str) -> Option<String> {
        let running = Self::running()?;
        (running < self).then(|| format!("{what} needs Linux {self} or newer, and this is {running}"))
    }
}

/// The kernel's coarse clock, in nanoseconds: what `bpf_ktime_get_coarse_ns` reads. It stands still while the machine
/// sleeps, and steps every few milliseconds.
pub fn coarse_now_ns() -> u64 {
    sys::coarse_now_ns()
}

/// Capabilities that programs on interfaces need, by number and name.
const NEEDED: [(u32, &str); 2] = [(12, "cap_net_admin"), (39, "cap_bpf")];
/// It includes `cap_bpf`.
const SYS_ADMIN: u32 = 21;

/// Why the kernel may have refused `what` for want of rights.
pub(crate) fn lacking(what: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let missing = missing_capabilities(&status);
    if missing.is_empty() {
        return format!(
            "{what}: not permitted, though this process has cap_bpf and cap_net_admin here: in a container, they must be the machine's own"
        );
    }
    format!(
        "{what}: this process lacks {0}: run as root, or setcap cap_net_admin,cap_net_raw,cap_bpf+ep PROGRAM",
        missing.join(", ")
    )
}

fn missing_capabilities(status: &str) -> Vec<&'static str> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(held) = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()) else { return Vec::new() };
    let has = |bit: u32| held >> bit & 1 == 1;
    let lacks = |&&(bit, name): &&(u32, &str)| !(has(bit) || name == "cap_bpf" && has(SYS_ADMIN));
    NEEDED.iter().filter(lacks).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(Kernel::parse("6.18.44-fc-v669\n"), Some(Kernel(6, 18)));
        assert_eq!(Kernel::parse("5.10.0-32-amd64"), Some(Kernel(5, 10)));
        assert_eq!(Kernel::parse("6.1+"), Some(Kernel(6, 1)));
        assert_eq!(Kernel::parse("next"), None);
        assert!(Kernel(5, 9) < Kernel(5, 10) && Kernel(5, 10) < Kernel(6, 0));
        assert!(Kernel::running().is_some());
    }

    #[test]
    fn a_kernel_that_is_too_old_is_named() {
        let text = Kernel(99, 0).missing("the filter").unwrap_or_default();
        assert!(text.starts_with("the filter needs Linux 99.0 or newer, and this is "), "{text}");
        assert_eq!(Kernel(3, 0).missing("the filter"), None);
    }

    #[test]
    fn missing_capabilities_are_named() {
        let missing = |mask: u64| missing_capabilities(&format!("Name:\tx\nCapEff:\t{mask:016x}\n"));
        assert_eq!(missing(0), ["cap_net_admin", "cap_bpf"]);
        assert_eq!(missing(1 << 12), ["cap_bpf"]);
        assert_eq!(missing(1 << 39), ["cap_net_admin"]);
        assert!(missing(1 << 12 | 1 << 39).is_empty());
        assert!(missing(1 << 12 | 1 << 21).is_empty(), "cap_sys_admin may do it as well");
        assert!(missing_capabilities("nothing").is_empty());
    }
}
