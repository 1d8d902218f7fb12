//! What a [cache](crate::cache) stands in front of.

use crate::key::{Key, Mask};
use crate::live::Snapshot;
use crate::rule::Rank;
use std::sync::Arc;

/// Rules of one version that decide on keys. A cache keeps decisions as numbers, and tells how many it has of each.
pub trait Decider {
    /// What is decided.
    type Decision: Copy + Into<u64> + From<u64>;

    /// The version of the rules: another one if a decision may have changed.
    fn version(&self) -> u64;

    /// Keys come: decisions that no cache holds may go, but for those that are made from now on.
    fn begin(&mut self) {}

    /// The decision on a key, and all bits that it was found by.
    fn decide(&mut self, key: &Key) -> (Self::Decision, Mask);

    /// The decisions on some keys, without the bits: those that [`decide`](Self::decide) gives. `out` is as long as `keys`.
    fn decide_batch(&mut self, keys: &[Key], out: &mut [Self::Decision]) {
        keys.iter().zip(out).for_each(|(key, out)| *out = self.decide(key).0);
    }

    /// Cache lines that a decision on a key touches, about.
    fn lines(&self, key: &Key) -> usize;

    /// Whether a decision of version `since` on all packets with these bits is one of this version too. A no may be wrong.
    fn still_holds(&self, decision: u64, since: u64, key: &Key, mask: &Mask) -> bool;

    /// Whether a decision may be kept at all.
    fn keeps(&self, _decision: u64) -> bool {
        true
    }

    /// A cache keeps a decision in one place more.
    fn hold(&mut self, _decision: u64) {}

    /// A cache keeps a decision in one place less.
    fn release(&mut self, _decision: u64) {}
}

impl From<Rank> for u64 {
    fn from(rank: Rank) -> Self {
        rank.0
    }
}

impl From<u64> for Rank {
    fn from(number: u64) -> Self {
        Rank(number)
    }
}

/// The first match in the first table.
impl Decider for &Snapshot {
    type Decision = Rank;

    #[inline(always)]
    fn version(&self) -> u64 {
        Snapshot::version(self)
    }

    fn decide(&mut self, key: &Key) -> (Rank, Mask) {
        self.space().lookup_wild(key)
    }

    fn decide_batch(&mut self, keys: &[Key], out: &mut [Rank]) {
        self.lookup_batch(keys, out);
    }

    fn lines(&self, key: &Key) -> usize {
        Snapshot::lines(self, 0, key)
    }

    fn still_holds(&self, _decision: u64, since: u64, key: &Key, mask: &Mask) -> bool {
        Snapshot::still_holds(self, since, key, mask)
    }
}

/// As views give it.
impl Decider for &Arc<Snapshot> {
    type Decision = Rank;

    #[inline(always)]
    fn version(&self) -> u64 {
        Snapshot::version(self)
    }

    fn decide(&mut self, key: &Key) -> (Rank, Mask) {
        self.space().lookup_wild(key)
    }

    fn decide_batch(&mut self, keys: &[Key], out: &mut [Rank]) {
        self.lookup_batch(keys, out);
    }

    fn lines(&self, key: &Key) -> usize {
        Snapshot::lines(self, 0, key)
    }

    fn still_holds(&self, _decision: u64, since: u64, key: &Key, mask: &Mask) -> bool {
        Snapshot::still_holds(self, since, key, mask)
    }
}
