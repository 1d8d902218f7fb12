//! Neighbors in the order in which they give way when there are too many.

use crate::neighbor::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A set of neighbors, each with a stamp. The one with the lowest stamp is the first to go, of one interface or of the
/// interface that has the most: a flood on one link costs no other link anything. All operations O(log n).
#[derive(Debug, Default)]
pub(super) struct Shelf {
    order: BTreeSet<(u16, u64, IpAddr)>,
    counts: BTreeMap<u16, usize>,
    sizes: BTreeSet<(usize, u16)>,
}

impl Shelf {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// How many are of this interface.
    pub(super) fn count(&self, interface: u16) -> usize {
        self.counts.get(&interface).copied().unwrap_or(0)
    }

    pub(super) fn insert(&mut self, key: Key, stamp: u64) {
        if self.order.insert((key.interface, stamp, key.address)) {
            self.resize(key.interface, self.count(key.interface) + 1);
        }
    }

    pub(super) fn remove(&mut self, key: Key, stamp: u64) {
        if self.order.remove(&(key.interface, stamp, key.address)) {
            self.resize(key.interface, self.count(key.interface) - 1);
        }
    }

    fn resize(&mut self, interface: u16, count: usize) {
        self.sizes.remove(&(self.count(interface), interface));
        if count == 0 {
            self.counts.remove(&interface);
        } else {
            self.counts.insert(interface, count);
            self.sizes.insert((count, interface));
        }
    }

    /// The first to go of this interface.
    pub(super) fn first_of(&self, interface: u16) -> Option<Key> {
        let lowest = (interface, 0, IpAddr::from([0, 0, 0, 0]));
        let first = self.order.range(lowest..).next().filter(|(found, ..)| *found == interface);
        first.map(|&(interface, _, address)| Key { interface, address })
    }

    /// The first to go of the interface that has the most.
    pub(super) fn first(&self) -> Option<Key> {
        self.first_of(self.sizes.last()?.1)
    }
}
