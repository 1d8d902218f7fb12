//! Quadratic probing (Fu 4.5.6; Knuth, The Art of Computer Programming, volume 3, section 6.4, exercise 20): the slots that a
//! key tries lie ever further apart.
//!
//! ```text
//!  h   h+1   h+3   h+6   h+10   h+15 ...      modulo a power of two: triangular numbers visit every slot once
//! ```
//!
//! Neighbouring places do not grow into one cluster as with linear probing, and the first two or three slots are close
//! together; but keys with one place have one path. The table itself, and how it removes, is [`crate::open`].
//!
//! - The number of slots is rounded up to a power of two; all of them can be filled. [`Full`](crate::table::Full) means that
//!   every slot is taken.

use crate::open::{Open, Sequence};

/// A table with quadratic probing; see the [module](self).
pub type Quadratic<const W: usize> = Open<W, Triangular>;

/// Steps of 1, 2, 3, ...
#[derive(Debug)]
pub struct Triangular;

impl Sequence for Triangular {
    const NAME: &'static str = "quadratic";

    #[inline(always)]
    fn step(tries: usize, _: usize) -> usize {
        tries + 1
    }
}
