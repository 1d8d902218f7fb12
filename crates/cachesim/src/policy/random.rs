//! Random: any goes.

use super::nodes::NONE;
use super::{Cache, check};
use crate::Key;
use crate::random::Random as Source;
use tidemill_lookup::prefetch::prefetch_read;

/// A fully associative cache that evicts at random. The same seed gives the same evictions.
#[derive(Debug)]
pub struct Random {
    kept: Vec<Key>,
    /// By key: where it lies in `kept`; [`NONE`]: nowhere.
    places: Vec<u32>,
    capacity: usize,
    source: Source,
}

impl Random {
    /// For keys below `keys`, with room for `capacity` of them, at least 1.
    pub fn new(keys: usize, capacity: usize, seed: u64) -> Self {
        let capacity = check(capacity);
        Random {
            // More than there are keys is never needed.
            kept: Vec::with_capacity(capacity.min(keys)),
            places: vec![NONE; keys],
            capacity,
            source: Source::new(seed),
        }
    }
}

impl Cache for Random {
    #[inline]
    fn prefetch(&self, key: Key) {
        prefetch_read(self.places.as_ptr().wrapping_add(key as usize));
    }

    #[inline]
    fn get(&mut self, key: Key) -> bool {
        self.contains(key)
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.places[key as usize] != NONE
    }

    #[inline]
    fn insert(&mut self, key: Key) -> Option<Key> {
        if self.kept.len() < self.capacity {
            self.places[key as usize] = self.kept.len() as u32;
            self.kept.push(key);
            return None;
        }
        let place = self.source.below(self.kept.len() as u64) as usize;
        let evicted = std::mem::replace(&mut self.kept[place], key);
        self.places[evicted as usize] = NONE;
        self.places[key as usize] = place as u32;
        Some(evicted)
    }

    fn remove(&mut self, key: Key) -> bool {
        let place = std::mem::replace(&mut self.places[key as usize], NONE);
        if place == NONE {
            return false;
        }
        self.kept.swap_remove(place as usize);
        if let Some(&moved) = self.kept.get(place as usize) {
            self.places[moved as usize] = place;
        }
        true
    }

    fn len(&self) -> usize {
        self.kept.len()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}
