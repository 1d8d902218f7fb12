//! Who gets a megaflow while there is little room for more: who was here lately.
//!
//! To keep a decision costs more than the decision: the walk that tells which bits it looked at, and an entry in either table. Packets that all
//! differ and never come again would pay that every time, and drive out what others use. So when [most of the room](FULL) is taken, or no mask is free,
//! a key that no megaflow has gets one if it was here lately, and of the others one in [`SAMPLED`]; the rest are decided by the rules alone, many at once.
//!
//! Those that were here are known by 16 bits of their hash, each in the one place that the hash names, where the next one drives it out (TinyLFU's
//! doorkeeper is a Bloom filter: Einziger, Friedman and Manes, "TinyLFU", ACM Transactions on Storage, 2017; this one needs no clearing). The sample is for
//! packets that never come twice and have one megaflow all the same: a scan of a network that one rule is about.

/// Quarters of the room for megaflows from which on there is little left.
const FULL: usize = 3;

/// One in so many of those that were not here is let in.
pub(super) const SAMPLED: u32 = 64;

/// The most keys that are remembered.
const MOST: usize = 1 << 16;

/// The keys that were here.
pub(super) struct Door {
    /// A power of two.
    seen: Box<[u16]>,
    /// Of those who were not.
    turn: u32,
}

impl Door {
    /// For a table of so many megaflows: remembers half as many keys, 2 bytes each.
    pub(super) fn new(megaflows: usize) -> Self {
        let places = (megaflows / 2).clamp(1, MOST).next_power_of_two();
        Door { seen: vec![0; places].into(), turn: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.seen)
    }

    /// Whether so many of these slots leave little room.
    #[inline(always)]
    pub(super) fn little_room(used: usize, slots: usize) -> bool {
        used * 4 >= slots * FULL
    }

    /// Whether the key with this hash gets a megaflow.
    #[inline(always)]
    pub(super) fn admits(&mut self, hash: u64) -> bool {
        // Other bits than the place of an exact match: both ends of the hash.
        let (place, signature) = ((hash >> 16) as usize & (self.seen.len() - 1), (hash >> 48) as u16);
        if std::mem::replace(&mut self.seen[place], signature) == signature {
            return true;
        }
        self.turn += 1;
        if self.turn < SAMPLED {
            return false;
        }
        self.turn = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_flow::hash::mix;

    #[test]
    fn who_was_here_is_let_in_and_of_the_others_some() {
        let mut door = Door::new(1000);
        assert_eq!(door.bytes(), 1024);
        let hashes: Vec<u64> = (1..=6400).map(mix).collect();
        let first = hashes.iter().filter(|&&hash| door.admits(hash)).count();
        assert!((100..105).contains(&first), "{first} of those that never were here");
        // The last ones are known, those before them mostly not.
        let last = hashes[6300..].iter().filter(|&&hash| door.admits(hash)).count();
        assert!(last > 80, "{last}");
        let old = hashes[..100].iter().filter(|&&hash| door.admits(hash)).count();
        assert!(old < 10, "{old}");
    }

    #[test]
    fn there_is_little_room_from_three_quarters_on() {
        assert_eq!([22, 23, 24, 31].map(|used| Door::little_room(used, 31)), [false, false, true, true]);
    }
}
