//! Words that one writer changes while others read: atomics in prefaulted huge pages, or the model checker's own under
//! `--cfg loom`. Everything shared in this crate is made of them.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::table::SizeError;

/// A fixed number of words, all zero at first, starting on a cache line.
#[cfg(not(loom))]
pub(crate) type Words = tidemill_lookup::mem::Table<AtomicU64>;
/// A fixed number of words, all zero at first.
#[cfg(loom)]
pub(crate) type Words = Vec<AtomicU64>;

/// `len` words.
///
/// # Errors
/// [`SizeError::Memory`].
pub(crate) fn words(len: usize) -> Result<Words, SizeError> {
    #[cfg(loom)]
    return Ok((0..len).map(|_| AtomicU64::new(0)).collect());
    #[cfg(not(loom))]
    Words::new(len).map_err(|source| SizeError::Memory { bytes: len.saturating_mul(8), source })
}

/// Lets the writer go on, in a loop that waits for it.
pub(crate) fn pause() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
