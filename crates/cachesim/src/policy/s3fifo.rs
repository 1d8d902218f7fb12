//! S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi, SOSP 2023): two queues of kept keys and one of keys that were kept.
//!
//! ```text
//! new key ------------------> small (1/10)  --used twice or more--> main (the rest)  --used--> main again, one use less
//! new key, known to ghost ---------------------------------------->   |
//!                               | else                                | else
//!                               v                                     v
//!                             ghost (9/10 of the capacity)          gone
//! ```
//!
//! Uses are counted up to 3 once a key is in main. The parameters are those of libCacheSim (version 0.3.5 of its Python package,
//! `small_size_ratio` 0.1, `ghost_size_ratio` 0.9, `move_to_main_threshold` 2), and so is what the paper leaves open: while nothing has been
//! evicted yet, new keys that small has no room for go to main; afterwards small may grow beyond its tenth, and main
//! gives a key up only when it is beyond its own part, or small is empty.
//!
//! Departure: small has room for one key at least. libCacheSim keeps nothing at all where a tenth of the capacity is one key or less.

use super::nodes::{Nodes, Queue};
use super::{Cache, check};
use crate::Key;

/// How often a key of small must have been used to be moved to main.
const MOVES_FROM: u8 = 2;
/// Main's counter has two bits.
const COUNTS_TO: u8 = 3;

/// A fully associative S3-FIFO cache.
#[derive(Debug)]
pub struct S3Fifo {
    nodes: Nodes,
    small: Queue,
    main: Queue,
    ghost: Queue,
    capacity: usize,
    small_room: usize,
    ghost_room: usize,
    has_evicted: bool,
}

impl S3Fifo {
    /// For keys below `keys`, with room for `capacity` of them, at least 1.
    pub fn new(keys: usize, capacity: usize) -> Self {
        let capacity = check(capacity);
        S3Fifo {
            nodes: Nodes::new(keys),
            small: Queue::new(1),
            main: Queue::new(2),
            ghost: Queue::new(3),
            capacity,
            small_room: ((capacity as f64 * 0.1) as usize).max(1),
            ghost_room: (capacity as f64 * 0.9) as usize,
            has_evicted: false,
        }
    }

    fn evict(&mut self) -> Option<Key> {
        self.has_evicted = true;
        while self.len() > 0 {
            let main_room = self.capacity - self.small_room;
            let evicted = if self.main.len() > main_room || self.small.len() == 0 {
                self.evict_main()
            } else {
                self.evict_small()
            };
            if evicted.is_some() {
                return evicted;
            }
        }
        None
    }

    /// Nothing: all of small has moved to main.
    fn evict_small(&mut self) -> Option<Key> {
        while let Some(oldest) = self.nodes.pop(&mut self.small) {
            if self.nodes.mark(oldest) >= MOVES_FROM {
                self.nodes.push(&mut self.main, oldest);
                continue;
            }
            if self.ghost_room > 0 {
                if self.ghost.len() == self.ghost_room {
                    self.nodes.pop(&mut self.ghost);
                }
                self.nodes.push(&mut self.ghost, oldest);
            }
            return Some(oldest);
        }
        None
    }

    fn evict_main(&mut self) -> Option<Key> {
        loop {
            let oldest = self.nodes.pop(&mut self.main)?;
            let uses = self.nodes.mark(oldest).min(COUNTS_TO);
            if uses == 0 {
                return Some(oldest);
            }
            self.nodes.push(&mut self.main, oldest);
            self.nodes.set_mark(oldest, uses - 1);
        }
    }
}

impl Cache for S3Fifo {
    #[inline]
    fn prefetch(&self, key: Key) {
        self.nodes.prefetch(key);
    }

    #[inline]
    fn get(&mut self, key: Key) -> bool {
        let found = self.contains(key);
        if found {
            self.nodes.set_mark(key, self.nodes.mark(key).saturating_add(1));
        }
        found
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        let queue = self.nodes.queue(key);
        queue == self.small.id() || queue == self.main.id()
    }

    #[inline]
    fn insert(&mut self, key: Key) -> Option<Key> {
        let known = self.nodes.is_in(&self.ghost, key);
        if known {
            self.nodes.unlink(&mut self.ghost, key);
        }
        let evicted = if self.len() == self.capacity { self.evict() } else { None };
        if known || (!self.has_evicted && self.small.len() >= self.small_room) {
            self.nodes.push(&mut self.main, key);
        } else {
            self.nodes.push(&mut self.small, key);
        }
        evicted
    }

    /// Also from what was kept: a key that was deleted is new.
    fn remove(&mut self, key: Key) -> bool {
        let found = self.contains(key);
        match self.nodes.queue(key) {
            id if id == self.small.id() => self.nodes.unlink(&mut self.small, key),
            id if id == self.main.id() => self.nodes.unlink(&mut self.main, key),
            id if id == self.ghost.id() => self.nodes.unlink(&mut self.ghost, key),
            _ => {}
        }
        found
    }

    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}
