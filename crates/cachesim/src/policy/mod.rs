//! Fully associative caches by eviction policy, and what all caches here have in common. Capacities are counted in entries.
//!
//! | policy | a hit | an eviction | memory accesses per hit |
//! |---|---|---|---|
//! | [`Fifo`] | nothing | the oldest | 1 |
//! | [`Lru`] | becomes the newest | the oldest | up to 5 |
//! | [`Clock`] | is marked | the oldest without mark; marked ones become the newest, unmarked | 1 |
//! | [`Sieve`] | is marked | by a hand, in place | 1 |
//! | [`S3Fifo`] | is counted | from a small or a main queue | 1 |
//! | [`Random`] | nothing | any | 1 |
//!
//! Each is held to an obvious model of itself (a vector that is searched), and to libCacheSim: `tests/oracle.rs`, `tests/real_libcachesim.rs`.

mod clock;
mod fifo;
mod lru;
pub(crate) mod nodes;
mod random;
mod s3fifo;
mod sieve;

use crate::Key;
pub use clock::Clock;
pub use fifo::Fifo;
pub use lru::Lru;
pub use random::Random;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;
use std::fmt;
use std::str::FromStr;

/// A cache of keys below the number that it was made for.
///
/// # Panics
/// All functions may, for other keys.
pub trait Cache: Send {
    /// Asks the processor for what `get` will read.
    fn prefetch(&self, key: Key);

    /// Whether the key is kept; if it is, this is a use of it.
    fn get(&mut self, key: Key) -> bool;

    /// Whether the key is kept. No use.
    fn contains(&self, key: Key) -> bool;

    /// Keeps a key that is not kept, and gives the one that had to go for it.
    fn insert(&mut self, key: Key) -> Option<Key>;

    /// Lets go of a key; whether it was kept.
    fn remove(&mut self, key: Key) -> bool;

    /// How many keys are kept.
    fn len(&self) -> usize;

    /// How many keys there is room for.
    fn capacity(&self) -> usize;

    /// Whether nothing is kept.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Cache for Box<dyn Cache> {
    fn prefetch(&self, key: Key) {
        (**self).prefetch(key);
    }

    fn get(&mut self, key: Key) -> bool {
        (**self).get(key)
    }

    fn contains(&self, key: Key) -> bool {
        (**self).contains(key)
    }

    fn insert(&mut self, key: Key) -> Option<Key> {
        (**self).insert(key)
    }

    fn remove(&mut self, key: Key) -> bool {
        (**self).remove(key)
    }

    fn len(&self) -> usize {
        (**self).len()
    }

    fn capacity(&self) -> usize {
        (**self).capacity()
    }
}

/// No cache here is without room: that has no eviction.
fn check(capacity: usize) -> usize {
    capacity.max(1)
}

/// The policies by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// [`Fifo`].
    Fifo,
    /// [`Lru`].
    Lru,
    /// [`Clock`].
    Clock,
    /// [`Sieve`].
    Sieve,
    /// [`S3Fifo`].
    S3Fifo,
    /// [`Random`].
    Random,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 6] =
        [Policy::Fifo, Policy::Lru, Policy::Clock, Policy::Sieve, Policy::S3Fifo, Policy::Random];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::Lru => "lru",
            Policy::Clock => "clock",
            Policy::Sieve => "sieve",
            Policy::S3Fifo => "s3fifo",
            Policy::Random => "random",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Policy::ALL.into_iter().find(|policy| policy.name() == text).ok_or_else(|| {
            format!("{text}: no such policy: use {}", Policy::ALL.map(Policy::name).join(", "))
        })
    }
}
