//! LRU: the least recently used goes. A hit makes the key the newest.

use super::nodes::{Nodes, Queue};
use super::{Cache, check};
use crate::Key;

/// A fully associative LRU cache.
#[derive(Debug)]
pub struct Lru {
    nodes: Nodes,
    queue: Queue,
    capacity: usize,
}

impl Lru {
    /// For keys below `keys`, with room for `capacity` of them, at least 1.
    pub fn new(keys: usize, capacity: usize) -> Self {
        Lru { nodes: Nodes::new(keys), queue: Queue::new(1), capacity: check(capacity) }
    }
}

impl Cache for Lru {
    #[inline]
    fn prefetch(&self, key: Key) {
        self.nodes.prefetch(key);
    }

    #[inline]
    fn get(&mut self, key: Key) -> bool {
        let found = self.contains(key);
        if found && self.queue.newest() != key {
            self.nodes.unlink(&mut self.queue, key);
            self.nodes.push(&mut self.queue, key);
        }
        found
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.nodes.is_in(&self.queue, key)
    }

    #[inline]
    fn insert(&mut self, key: Key) -> Option<Key> {
        let evicted = if self.queue.len() == self.capacity { self.nodes.pop(&mut self.queue) } else { None };
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
