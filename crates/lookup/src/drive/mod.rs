//! Latency hiding: a lookup with a chain of loads is written once, as an `async fn` that awaits [`prefetch`] before each
//! load that may miss the cache. A driver runs many of them side by side, so that one's misses overlap the others' work.

use crate::prefetch::prefetch_read;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Asks the cache for the line at `address` and lets another lookup run meanwhile: the one suspension point there is.
#[inline(always)]
pub fn prefetch<T>(address: *const T) -> Prefetch {
    prefetch_read(address);
    Prefetch { asked: false }
}

/// See [`prefetch`].
#[derive(Debug)]
#[must_use = "a prefetch suspends when it is awaited"]
pub struct Prefetch {
    asked: bool,
}

impl Future for Prefetch {
    type Output = ();
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.asked {
            return Poll::Ready(());
        }
        self.asked = true;
        Poll::Pending
    }
}
