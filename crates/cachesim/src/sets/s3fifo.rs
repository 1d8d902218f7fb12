//! S3-FIFO in a set: what it needs beside the order of the set's places, which is the owner's.
//!
//! ```text
//! places   | k7 | k2 | k9 | k1 |     small: the first so many, here 1; main: the others. Both newest first
//! ghosts   k4 k3                     what small gave up, oldest first
//! ```
//!
//! The same as [`crate::policy::S3Fifo`] with as many entries as the set has ways. A tenth of at most 16 ways is one place: so main gives a key up only where small is empty. Small's oldest
//! lies where main begins; it moves there by being counted to main.

use super::WAYS_MAX;

/// How often a key of small must have been used to be moved to main.
const MOVES_FROM: u32 = 2;
/// A counter's bits.
const BITS: usize = 2;
/// The counter of the place 0; it counts to this.
const COUNTER: u32 = (1 << BITS) - 1;
/// Nine tenths of the ways.
const GHOSTS_MAX: usize = ghosts(WAYS_MAX);

const _: () = assert!(size_of::<Queues>() == 64, "a cache line by set");

/// How many keys are remembered that small gave up.
const fn ghosts(ways: usize) -> usize {
    ways * 9 / 10
}

/// Of one set. Places are below its ways; those in use come first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Queues {
    /// Tags, oldest first.
    ghosts: [u32; GHOSTS_MAX],
    /// By place. Of places that are free: 0.
    uses: u32,
    ghost_count: u8,
    /// So many places.
    small: u8,
    has_evicted: bool,
}

impl Queues {
    fn uses(&self, place: usize) -> u32 {
        self.uses >> (BITS * place) & COUNTER
    }

    /// The counters before this place.
    fn before(place: usize) -> u32 {
        (1_u32 << (BITS * place)) - 1
    }

    /// The key at this place was used.
    #[inline]
    pub fn used(&mut self, place: usize) {
        if self.uses(place) < COUNTER {
            self.uses += 1 << (BITS * place);
        }
    }

    /// The place whose key has to go, of a set with all its `ways` in use. `again`: the key at the last place comes to the first, and all others move back by one.
    pub fn victim(&mut self, ways: usize, mut again: impl FnMut()) -> usize {
        self.has_evicted = true;
        while self.small > 0 {
            let oldest = usize::from(self.small) - 1;
            if self.uses(oldest) < MOVES_FROM {
                return oldest;
            }
            self.uses &= !(COUNTER << (BITS * oldest));
            self.small -= 1;
        }
        // All is main's.
        let last = ways - 1;
        while self.uses(last) > 0 {
            let left = self.uses(last) - 1;
            self.uses = (self.uses & Self::before(last)) << BITS | left;
            again();
        }
        last
    }

    /// The key at this place had to go, and is remembered by its tag if it was small's.
    pub fn evicted(&mut self, place: usize, tag: u32, ways: usize) {
        let (was_small, room) = (place < usize::from(self.small), ghosts(ways));
        self.removed(place);
        if !was_small || room == 0 {
            return;
        }
        let mut count = usize::from(self.ghost_count);
        if count == room {
            self.ghosts.copy_within(1..count, 0);
            count -= 1;
        }
        self.ghosts[count] = tag;
        self.ghost_count = count as u8 + 1;
    }

    /// The key at this place is gone, and not remembered.
    pub fn removed(&mut self, place: usize) {
        let before = Self::before(place);
        self.uses = self.uses & before | self.uses >> BITS & !before;
        if place < usize::from(self.small) {
            self.small -= 1;
        }
    }

    /// Whether a key is remembered; it no longer is.
    pub fn recall(&mut self, tag: u32) -> bool {
        let count = usize::from(self.ghost_count);
        let Some(at) = self.ghosts[..count].iter().position(|ghost| *ghost == tag) else { return false };
        self.ghosts.copy_within(at + 1..count, at);
        self.ghost_count -= 1;
        true
    }

    /// The place that a key comes to, where one is free; those from there on move back by one. `known`: it was recalled.
    pub fn admit(&mut self, known: bool) -> usize {
        let to_main = known || !self.has_evicted && self.small > 0;
        let place = if to_main { usize::from(self.small) } else { 0 };
        let before = Self::before(place);
        self.uses = self.uses & before | (self.uses & !before) << BITS;
        self.small += u8::from(!to_main);
        place
    }
}
