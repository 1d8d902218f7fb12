//! Heavy hitters: which keys have sent the most packets or bytes, and within which bounds.
//!
//! * [`HeavyHitters`]: the keys themselves, for "the biggest are ..." and "is this one big?". A packet costs two or three cache lines.
//! * [`CountMin`]: a count for every key, also one that is not big, and no keys: for "how often was this one here lately?", admission to
//!   a cache, a counter per source. A packet costs one cache line.
//!
//! Both take the caller's 64-bit hash ([`crate::hash`]): a keyed one where an attacker picks the keys, and the same one in all summaries
//! that shall be merged. Each worker has its own; the control side gets it by a move at a burst boundary, merges what it has got, and gives
//! cleared ones back. Where packets of one key go to one worker only, list the workers' results side by side instead: that keeps
//! the bounds as narrow as they are.
//!
//! They are our own because a packet may cost a few cache lines and no more, whatever the stream: Space-Saving in its usual form keeps a hash map with a
//! heap or a list of counters, which move. Ours is cut into sets of one line of counts, and a burst asks for all its lines first. It has been measured
//! beside no crate.

mod count_min;
mod hitters;

pub use crate::filter::Mismatch;
pub use count_min::CountMin;
pub use hitters::{HeavyHitters, Hitter, Top};
