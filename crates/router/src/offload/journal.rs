//! Which prefixes have other routes than when somebody last asked.

// Nobody asks where there is no fast path.
#![cfg_attr(not(all(feature = "xdp", target_os = "linux")), allow(dead_code))]

use tidemill_lpm::{Address, Prefix};

/// From so many changes on, all is as good as changed.
const MOST: usize = 65_536;

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Journal<A: Address> {
    prefixes: Vec<Prefix<A>>,
    /// Too many to name.
    pub(crate) all: bool,
}

impl<A: Address> Default for Journal<A> {
    fn default() -> Self {
        Journal { prefixes: Vec::new(), all: false }
    }
}

impl<A: Address> Journal<A> {
    pub(crate) fn note(&mut self, prefixes: impl ExactSizeIterator<Item = Prefix<A>>) {
        if self.all || self.prefixes.len() + prefixes.len() > MOST {
            *self = Journal { prefixes: Vec::new(), all: true };
        } else {
            self.prefixes.extend(prefixes);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.prefixes.is_empty()
    }

    /// Adds what another has.
    pub(crate) fn extend(&mut self, other: &Journal<A>) {
        if other.all {
            *self = other.clone();
        } else {
            self.note(other.prefixes.iter().copied());
        }
    }

    /// Each prefix once, in order.
    pub(crate) fn sorted(&mut self) -> &[Prefix<A>] {
        self.prefixes.sort_unstable();
        self.prefixes.dedup();
        &self.prefixes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_are_all() {
        let prefix = |n: u32| Prefix::new(n << 8, 24).unwrap();
        let mut journal = Journal::default();
        assert!(journal.is_empty());
        journal.note([prefix(2), prefix(1), prefix(2)].into_iter());
        assert_eq!(journal.sorted(), [prefix(1), prefix(2)]);
        let mut other = Journal::default();
        other.note((0..MOST as u32 - 2).map(prefix).collect::<Vec<_>>().into_iter());
        let before = journal.clone();
        journal.extend(&other);
        assert!(!journal.all && !journal.is_empty());
        journal.note([prefix(7)].into_iter());
        assert!(journal.all && journal.sorted().is_empty() && !journal.is_empty());
        other.extend(&journal);
        assert!(other.all);
        other.extend(&before);
        assert!(other.all);
    }
}
