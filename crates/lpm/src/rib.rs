//! The RIB: the control side's prefixes with their labels, and the only owner of truth. FIBs are built from it.

use crate::fib::Label;
use crate::prefix::{Address, Prefix};
use prefix_trie::PrefixMap;

/// One change to a RIB, in the order in which a routing protocol would say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<A: Address> {
    /// Announce: insert, or replace the label of, a prefix.
    Announce(Prefix<A>, Label),
    /// Withdraw: remove a prefix; without effect if it is not there.
    Withdraw(Prefix<A>),
}

impl<A: Address> Change<A> {
    /// The prefix that changes.
    pub fn prefix(&self) -> Prefix<A> {
        match *self {
            Change::Announce(prefix, _) | Change::Withdraw(prefix) => prefix,
        }
    }
}

/// Each prefix once, in order, with the place of its last change: of several changes applied together only that one counts.
pub fn last_of_each<A: Address>(prefixes: impl Iterator<Item = Prefix<A>>) -> Vec<(Prefix<A>, usize)> {
    let mut last: Vec<(Prefix<A>, usize)> = prefixes.zip(0..).collect();
    // The last one to the front of its prefix's.
    last.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    last.dedup_by_key(|(prefix, _)| *prefix);
    last
}

/// Prefixes with their labels, in a trie.
///
/// ```
/// use tidemill_lpm::{Label, Prefix, Rib};
///
/// let list = [("2001:db8::/32", 1), ("2001:db8:1::/48", 2)];
/// let rib: Rib<u128> = list.map(|(p, label)| (p.parse().unwrap(), Label(label))).into_iter().collect();
/// let host: Prefix<u128> = "2001:db8:1::7/128".parse().unwrap();
/// assert_eq!(rib.covering(host), Some(("2001:db8:1::/48".parse().unwrap(), Label(2))));
/// assert_eq!(rib.lookup(host.first()).map(|(prefix, _)| prefix.len()), Some(48));
/// ```
#[derive(Clone)]
pub struct Rib<A: Address> {
    map: PrefixMap<Prefix<A>, Label>,
}

impl<A: Address> Default for Rib<A> {
    fn default() -> Self {
        Rib { map: PrefixMap::new() }
    }
}

impl<A: Address> Rib<A> {
    /// An empty RIB.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is no prefix.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Inserts or replaces; returns the label that was there.
    pub fn insert(&mut self, prefix: Prefix<A>, label: Label) -> Option<Label> {
        self.map.insert(prefix, label)
    }

    /// Removes; returns the label that was there.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<Label> {
        self.map.remove(&prefix)
    }

    /// Applies one change; true if it changed anything.
    pub fn apply(&mut self, change: &Change<A>) -> bool {
        self.exchange(change).is_some()
    }

    /// Applies one change; if it changed anything, the label that was there before, if there was one.
    pub fn exchange(&mut self, change: &Change<A>) -> Option<Option<Label>> {
        match *change {
            Change::Announce(prefix, label) => {
                Some(self.insert(prefix, label)).filter(|before| *before != Some(label))
            }
            Change::Withdraw(prefix) => self.remove(prefix).map(Some),
        }
    }

    /// The label of exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<Label> {
        self.map.get(&prefix).copied()
    }

    /// The longest prefix that covers the whole of `prefix` (itself included), with its label.
    pub fn covering(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, Label)> {
        self.map.get_lpm(&prefix).map(|(p, l)| (p, *l))
    }

    /// Longest match of one address. For the control side and for checks; workers use a FIB.
    pub fn lookup(&self, addr: A) -> Option<(Prefix<A>, Label)> {
        Prefix::new(addr, A::BITS).and_then(|host| self.covering(host))
    }

    /// All prefixes, by address and then length: a parent comes before its children.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<A>, Label)> + '_ {
        self.map.iter().map(|(p, l)| (p, *l))
    }

    /// Does `work` as if there were no default route.
    pub(crate) fn without_default<T>(&mut self, work: impl FnOnce(&Self) -> T) -> T {
        let default = self.remove(Prefix::DEFAULT);
        let done = work(self);
        if let Some(label) = default {
            self.insert(Prefix::DEFAULT, label);
        }
        done
    }

    /// The prefixes inside `prefix` (itself included), in the order of [`iter`](Self::iter).
    pub fn inside(&self, prefix: Prefix<A>) -> impl Iterator<Item = (Prefix<A>, Label)> + '_ {
        self.map.children(&prefix).map(|(p, l)| (p, *l))
    }
}

impl<A: Address> FromIterator<(Prefix<A>, Label)> for Rib<A> {
    fn from_iter<I: IntoIterator<Item = (Prefix<A>, Label)>>(iter: I) -> Self {
        let mut rib = Rib::new();
        iter.into_iter().for_each(|(prefix, label)| {
            rib.insert(prefix, label);
        });
        rib
    }
}
