//! Double hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithm D; Fu 4.5.6): a second hash
//! says how far apart the slots lie that a key tries.
//!
//! ```text
//!  h   h+s   h+2s   h+3s ...      modulo a power of two; s is odd, so every slot is visited once
//!  s = 2 (low 16 bits of the hash) + 1
//! ```
//!
//! The fewest slots looked at of all simple sequences - (1/a) ln(1/(1-a)) for keys that are there, 2.6 at load a = 0.9 - and
//! a cache line for each. The table itself, and how it removes, is [`crate::open`].
//!
//! - The number of slots is rounded up to a power of two; all of them can be filled. [`Full`](crate::table::Full) means that
//!   every slot is taken.

use crate::open::{Open, Sequence};

/// A table with double hashing; see the [module](self).
pub type Double<const W: usize> = Open<W, Stride>;

/// Steps of one length, which the key's hash says.
#[derive(Debug)]
pub struct Stride;

impl Sequence for Stride {
    const NAME: &'static str = "double";

    #[inline(always)]
    fn step(_: usize, low: usize) -> usize {
        2 * low + 1
    }
}
