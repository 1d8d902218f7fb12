//! Logging of chosen packets: so many lines a second at most, into a ring that nobody waits for.

use crate::filter::text::{Action, Direction};
use std::net::IpAddr;

/// A packet that a rule with `log` has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLine {
    /// When: milliseconds since the Unix epoch.
    pub ms: u64,
    /// The rule's number, from 0.
    pub rule: u32,
    /// Of which version of the rules.
    pub version: u32,
    /// What became of it.
    pub action: Action,
    /// On which way.
    pub direction: Direction,
    /// By which interface.
    pub interface: u16,
    /// Where from.
    pub source: IpAddr,
    /// Where to.
    pub destination: IpAddr,
    /// The protocol.
    pub protocol: u8,
    /// Ports; of ICMP type and code.
    pub ports: (u16, u16),
    /// Bytes, IP header included.
    pub bytes: u32,
}

/// A second's lines.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    second: u64,
    used: u32,
}

impl Budget {
    /// Whether another line fits into this second.
    pub(crate) fn take(&mut self, now_ms: u64, per_s: u32) -> bool {
        let second = now_ms / 1000;
        if second != self.second {
            *self = Budget { second, used: 0 };
        }
        let fits = self.used < per_s;
        self.used += u32::from(fits);
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_lines() {
        let mut budget = Budget::default();
        let taken = |budget: &mut Budget, ms| (0..10).filter(|_| budget.take(ms, 3)).count();
        assert_eq!(taken(&mut budget, 5000), 3);
        assert_eq!(taken(&mut budget, 5999), 0);
        assert_eq!(taken(&mut budget, 6000), 3);
        assert!(!budget.take(7000, 0));
    }
}
