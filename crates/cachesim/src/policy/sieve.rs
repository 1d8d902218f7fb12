//! SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi, NSDI 2024): a queue that keeps its order, and a hand that goes from the oldest
//! to the newest key, takes the marks of used ones away, and evicts the first without.
//!
//! ```text
//! newest                       oldest
//!   F    E    D*   C    B*   A          * used
//!                  ^hand               C goes; the hand rests on D. From the newest it goes on at the oldest.
//! ```

use super::nodes::{NONE, Nodes, Queue};
use super::{Cache, check};
use crate::Key;

/// A fully associative SIEVE cache.
#[derive(Debug)]
pub struct Sieve {
    nodes: Nodes,
    queue: Queue,
    /// Where the hand rests; [`NONE`]: at the oldest.
    hand: Key,
    capacity: usize,
}

impl Sieve {
    /// For keys below `keys`, with room for `capacity` of them, at least 1.
    pub fn new(keys: usize, capacity: usize) -> Self {
        Sieve { nodes: Nodes::new(keys), queue: Queue::new(1), hand: NONE, capacity: check(capacity) }
    }

    /// Ends: each turn takes a mark away.
    #[inline]
    fn evict(&mut self) -> Option<Key> {
        let oldest = self.queue.oldest();
        let mut at = if self.hand == NONE { oldest } else { self.hand };
        if at == NONE {
            return None;
        }
        while self.nodes.mark(at) != 0 {
            self.nodes.set_mark(at, 0);
            let newer = self.nodes.newer(at);
            at = if newer == NONE { oldest } else { newer };
        }
        self.hand = at;
        self.take(at);
        Some(at)
    }

    /// Takes a key out; the hand does not stay on it.
    fn take(&mut self, key: Key) {
        if self.hand == key {
            self.hand = self.nodes.newer(key);
        }
        self.nodes.unlink(&mut self.queue, key);
    }
}

impl Cache for Sieve {
    #[inline]
    fn prefetch(&self, key: Key) {
        self.nodes.prefetch(key);
    }

    #[inline]
    fn get(&mut self, key: Key) -> bool {
        let found = self.contains(key);
        if found {
            self.nodes.set_mark(key, 1);
        }
        found
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.nodes.is_in(&self.queue, key)
    }

    #[inline]
    fn insert(&mut self, key: Key) -> Option<Key> {
        let evicted = if self.queue.len() == self.capacity { self.evict() } else { None };
        self.nodes.push(&mut self.queue, key);
        evicted
    }

    fn remove(&mut self, key: Key) -> bool {
        let found = self.contains(key);
        if found {
            self.take(key);
        }
        found
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}
