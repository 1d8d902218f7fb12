//! CLOCK: the oldest goes, unless it was used since it was looked at last: then it becomes the newest (Corbató 1968).
//!
//! Written as a queue with a second chance rather than as a ring with a hand: the same order of evictions, and keys can be removed.

use super::nodes::{Nodes, Queue};
use super::{Cache, check};
use crate::Key;

/// A fully associative CLOCK cache.
#[derive(Debug)]
pub struct Clock {
    nodes: Nodes,
    queue: Queue,
    capacity: usize,
}

impl Clock {
    /// For keys below `keys`, with room for `capacity` of them, at least 1.
    pub fn new(keys: usize, capacity: usize) -> Self {
        Clock { nodes: Nodes::new(keys), queue: Queue::new(1), capacity: check(capacity) }
    }

    /// Ends: each turn takes a mark away.
    #[inline]
    fn evict(&mut self) -> Option<Key> {
        loop {
            let oldest = self.nodes.pop(&mut self.queue)?;
            if self.nodes.mark(oldest) == 0 {
                return Some(oldest);
            }
            self.nodes.push(&mut self.queue, oldest);
        }
    }
}

impl Cache for Clock {
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
            self.nodes.unlink(&mut self.queue, key);
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
