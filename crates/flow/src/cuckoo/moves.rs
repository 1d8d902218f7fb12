//! Two buckets for every key, and the search for a way to make room in one of them.
//!
//! A table whose two buckets for a new key are full may still have room: an entry of one of them may move to its other
//! bucket, if need be after an entry of that has moved to its own other bucket, and so on. The search is breadth first,
//! so the path that it finds has the fewest moves; nothing moves before a path is known, so a failed insertion
//! changes nothing.

use tidemill_lookup::probe::Probe;

/// The first bucket of a hash: its high 32 bits, scaled to any number of buckets up to 2^32.
#[inline(always)]
pub(crate) fn first(hash: u64, buckets: usize) -> usize {
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

/// The other bucket of an entry with this tag (or signature). The two are each other's: `other(other(b)) == b`. An entry
/// whose two buckets are one (1 in `buckets`) has one.
#[inline(always)]
pub(crate) fn other(bucket: usize, tag: u64, buckets: usize) -> usize {
    // The two buckets' numbers add up to a number that the tag decides, modulo the number of buckets.
    let sum = first(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15), buckets);
    if sum >= bucket { sum - bucket } else { sum + buckets - bucket }
}

/// A place for an entry: the bucket and the slot in it.
pub(crate) type Place = (usize, usize);

/// What the search needs of a table.
pub(crate) trait Buckets {
    /// Slots per bucket.
    const SLOTS: usize;

    /// An empty slot of a bucket.
    fn empty<P: Probe>(&self, bucket: usize, probe: &P) -> Option<usize>;

    /// The other bucket of the entry at a place; only asked for buckets without an empty slot.
    fn other(&self, place: Place) -> usize;

    /// Asks the cache for what `empty` and `other` will read.
    fn prefetch(&self, bucket: usize);

    /// Moves an entry to an empty slot of its other bucket.
    fn shift<P: Probe>(&mut self, from: Place, to: Place, probe: &P);
}

/// A bucket on the way, and the slot of the bucket in front of it from which an entry would come.
#[derive(Debug, Clone, Copy)]
struct Node {
    bucket: u32,
    parent: u16,
    slot: u8,
}

/// The queue of the search, allocated once.
#[derive(Debug)]
pub(crate) struct Queue {
    nodes: Vec<Node>,
}

impl Queue {
    /// Buckets that one search puts into its queue, at most: DPDK's bound (`RTE_HASH_BFS_QUEUE_MAX_LEN`), which Fu 4.5.2
    /// calls 1,000 moves. Every full bucket looked at adds one per slot, so that `999 / SLOTS` at most are looked at.
    pub(crate) const MOST: usize = 1000;

    /// An empty queue.
    pub(crate) fn new() -> Self {
        Queue { nodes: Vec::with_capacity(Self::MOST) }
    }

    /// Makes room in `root` and returns the place. `None`: no room was found within the bound, and nothing has moved.
    pub(crate) fn make_room<B: Buckets, P: Probe>(
        &mut self,
        table: &mut B,
        root: usize,
        probe: &P,
    ) -> Option<Place> {
        self.nodes.clear();
        self.nodes.push(Node { bucket: root as u32, parent: 0, slot: 0 });
        let mut next = 0;
        while next < self.nodes.len() && self.nodes.len() + B::SLOTS <= Self::MOST {
            let bucket = self.nodes[next].bucket as usize;
            if let Some(slot) = table.empty(bucket, probe) {
                return Some(self.shift_back(table, next, slot, probe));
            }
            for slot in 0..B::SLOTS {
                let other = table.other((bucket, slot));
                table.prefetch(other);
                self.nodes.push(Node { bucket: other as u32, parent: next as u16, slot: slot as u8 });
            }
            next += 1;
        }
        None
    }

    /// Moves along the path to `node`, last entry first, so that each finds an empty slot. The path passes no bucket twice:
    /// what is behind the second time is behind the first time too, and would have been found there, earlier. So each
    /// entry that moves is the one that the search saw.
    fn shift_back<B: Buckets, P: Probe>(
        &self,
        table: &mut B,
        mut node: usize,
        mut slot: usize,
        probe: &P,
    ) -> Place {
        while node != 0 {
            let Node { bucket, parent, slot: from } = self.nodes[node];
            let parent_bucket = self.nodes[parent as usize].bucket as usize;
            table.shift((parent_bucket, from as usize), (bucket as usize, slot), probe);
            (node, slot) = (parent as usize, from as usize);
        }
        (self.nodes[0].bucket as usize, slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_buckets_are_each_others() {
        for buckets in [1, 2, 3, 7, 100, 131_072, 1_000_003, 1 << 32] {
            for i in 0..1000_u64 {
                let bucket = first(crate::hash::mix(i), buckets);
                let second = other(bucket, i & 0xfff, buckets);
                assert!(bucket < buckets && second < buckets);
                assert_eq!(other(second, i & 0xfff, buckets), bucket);
            }
        }
    }
}
