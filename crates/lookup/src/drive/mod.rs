//! Latency hiding: a lookup with a chain of loads is written once, as an `async fn` that awaits [`prefetch`] before each
//! load that may miss the cache. A driver runs many of them side by side, so that one's misses overlap the others' work.
//!
//! ```text
//! plain        a1 a2 a3 b1 c1 c2 c3 d1        each load waits for its line, unless the CPU runs ahead by itself
//! group        a1 b1 c1 | a2 .. c2 | a3 .. c3 | d1      lock step; b is done, its place stays empty until c is
//! coroutine    a1 b1 c1 | d1 a2 c2 | a3 .. c3           b is done, d takes its place at once
//! ```
//!
//! * [`group`] is group prefetching (Fu 2020, 2.5.2 and 4.5.3), without the programmer's work of cutting the lookup into
//!   stages: best where all tasks are equally long.
//! * [`coroutine`] refills (Fu 2.5.3, 4.5.4): best where some tasks end early.
//! * [`Adaptive`] finds how many coroutines to run (Fu 4.5.4), [`Steered`] from bursts of packets. It is for whoever owns the lookups: a
//!   structure that threads share has a fixed number.
//!
//! The plain loop has no driver here: it is the structure's own lookup, which never suspends and which the CPU overlaps as
//! far as its window reaches. A driver that polls an `async` lookup to its end one by one would be slower than that.
//!
//! Fu switches between stackful coroutines by a library written for C; Rust's `async fn` is a state machine without a stack of
//! its own, so a switch is one indirect jump. That is also what asynchronous memory access chaining does by hand (AMAC,
//! Fu 2.5.1).
//!
//! Nothing is allocated: a task's state lives in an array on the driver's stack, 64 times as large as the task's future. The
//! waker does nothing: a driver asks its tasks in turn until all are done, so a future that waits for anything but
//! [`prefetch`] makes it spin.

mod adaptive;
mod slots;
#[cfg(test)]
mod tests;

pub use adaptive::{Adaptive, Steered};

use crate::prefetch::prefetch_read;
use slots::Slots;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// Most tasks side by side. A core has 10 to 50 misses under way at once, so more would not help.
pub const MAX_WIDTH: usize = 64;

/// Runs the tasks `0..tasks` in groups of `width`, in lock step: every task of a group goes from one suspension to the next
/// before any goes further, and no group begins before the whole one before it is done. `start` makes the future of a task, in the
/// order of their numbers; `done` hears of each task and its output once, group by group, those of a group in the order in
/// which they finish.
///
/// `width` is clamped to `1..=`[`MAX_WIDTH`]. If `start`, `done` or a task panics, the tasks under way are dropped.
#[inline]
pub fn group<F: Future>(
    tasks: usize,
    width: usize,
    start: impl FnMut(usize) -> F,
    done: impl FnMut(usize, F::Output),
) {
    drive::<true, F>(tasks, width, start, done);
}

/// Runs the tasks `0..tasks`, `width` of them side by side, in turn from one suspension to the next; where one has finished, the
/// next one starts at once. `start` makes the future of a task, in the order of their numbers; `done` hears of each task and
/// its output once, in the order in which they finish.
///
/// `width` is clamped to `1..=`[`MAX_WIDTH`]. If `start`, `done` or a task panics, the tasks under way are dropped.
#[inline]
pub fn coroutine<F: Future>(
    tasks: usize,
    width: usize,
    start: impl FnMut(usize) -> F,
    done: impl FnMut(usize, F::Output),
) {
    drive::<false, F>(tasks, width, start, done);
}

/// Both drivers, turn by turn: in lock step places are filled only when all are free.
///
/// In a turn come first the tasks that are new, then those of the turn before, then the older ones. A task's jump goes where
/// its last suspension was: so, one after the other, many jumps in a row go to the same place, and the CPU predicts them.
#[inline(always)]
fn drive<const LOCK_STEP: bool, F: Future>(
    tasks: usize,
    width: usize,
    mut start: impl FnMut(usize) -> F,
    mut done: impl FnMut(usize, F::Output),
) {
    let places = u64::MAX >> (MAX_WIDTH - width.clamp(1, MAX_WIDTH));
    let mut context = Context::from_waker(Waker::noop());
    let mut slots = pin!(Slots::new());
    let mut tasks = 0..tasks;
    let (mut young, mut old) = (0, 0);
    loop {
        let mut fresh = 0;
        if !LOCK_STEP || slots.live() == 0 {
            fresh = slots.as_mut().fill(places, &mut tasks, &mut start);
        }
        if slots.live() == 0 {
            return;
        }
        for turn in [fresh, young, old] {
            slots.as_mut().poll(turn, &mut context, &mut done);
        }
        old = slots.live() & !fresh;
        young = fresh;
    }
}

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
