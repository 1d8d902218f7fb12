//! Hashes of keys.
//!
//! ```text
//! bits 63..32: the set, in L0 and in L1        31..0: the slot of what may change the key, and what S3-FIFO remembers
//! ```
//! The lower half has a secret always: who shares a slot with whom cannot be chosen from outside. The upper half has one too, unless one of the paper's functions is asked for (Tokusashi 2019).

use foldhash::quality::FixedState;
use std::hash::BuildHasher;
use tidemill_cachesim::run::HashName;

/// Makes them.
pub(crate) struct KeyHash {
    keyed: FixedState,
    /// What names sets instead.
    sets: Option<HashName>,
}

impl KeyHash {
    pub(crate) fn new(keyed: FixedState, sets: Option<HashName>) -> Self {
        KeyHash { keyed, sets }
    }

    #[inline]
    pub(crate) fn of(&self, key: &[u8]) -> u64 {
        let keyed = self.keyed.hash_one(key);
        match self.sets {
            None => keyed,
            Some(name) => u64::from(name.of_text(key)) << 32 | u64::from(keyed as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_half_is_what_is_asked_for() {
        let of = |seed: u64, sets| KeyHash::new(FixedState::with_seed(seed), sets).of(b"123456789");
        assert_eq!(of(1, Some(HashName::Crc32)) >> 32, 0xcbf4_3926, "whatever the secret");
        assert_eq!(of(2, Some(HashName::Crc32)) >> 32, 0xcbf4_3926);
        assert_ne!(of(1, Some(HashName::Lookup3)) >> 32, 0xcbf4_3926);
        assert_ne!(of(1, None) >> 32, of(2, None) >> 32);
        for sets in [None, Some(HashName::Crc32), Some(HashName::Lookup3)] {
            assert_eq!(of(1, sets) as u32, of(1, None) as u32);
            assert_ne!(of(1, sets) as u32, of(2, sets) as u32, "nobody can choose who shares a slot");
        }
    }
}
