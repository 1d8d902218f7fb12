//! Futures in an array on the stack, pinned there.
//!
//! ```text
//! live   bit i: slot i is taken           0 0 .. 1 0 1 1
//! slots  | task, future | task, future | (nothing) | task, future | ..   64, as they are started
//! ```
//!
//! This module is one of the named homes of `unsafe`: the standard library can pin one future without an allocation, but has
//! no safe way from a pinned array to its elements.

use super::MAX_WIDTH;
use std::future::Future;
use std::marker::PhantomPinned;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

struct Slot<F> {
    /// The caller's number of what runs here.
    task: usize,
    /// Structurally pinned: not moved from when it is written until it is dropped, in place.
    future: F,
}

/// At most [`MAX_WIDTH`] futures, each with the number of its task.
pub(super) struct Slots<F> {
    slots: [MaybeUninit<Slot<F>>; MAX_WIDTH],
    /// Bit i: slot i holds a future that is to be polled, and dropped.
    live: u64,
    /// Futures are polled where they are: once this is pinned it must stay.
    _stays: PhantomPinned,
}

const _: () = assert!(MAX_WIDTH == u64::BITS as usize, "one bit per slot");

impl<F: Future> Slots<F> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Slots { slots: [const { MaybeUninit::uninit() }; MAX_WIDTH], live: 0, _stays: PhantomPinned }
    }

    /// Starts these tasks, at most [`MAX_WIDTH`]. Those that were there are gone (there are none, as the drivers use it).
    #[inline(always)]
    pub(super) fn fill(mut self: Pin<&mut Self>, tasks: Range<usize>, start: &mut impl FnMut(usize) -> F) {
        self.as_mut().clear();
        // SAFETY: nothing is moved out of a pinned slot below: `clear` has left none that is taken.
        let this = unsafe { self.get_unchecked_mut() };
        for ((slot, task), bit) in this.slots.iter_mut().zip(tasks).zip(0..) {
            slot.write(Slot { task, future: start(task) });
            // Only now: if `start` panics, the slot is not there.
            this.live |= 1 << bit;
        }
    }

    /// Polls every future once. One that is done goes, and `done` hears of it: if it has another task for the place, that one is
    /// polled in the same turn. False when no future is left.
    #[inline(always)]
    pub(super) fn round(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut done: impl FnMut(usize, F::Output) -> Option<(usize, F)>,
    ) -> bool {
        // SAFETY: no future is moved below: each is polled and dropped where it is.
        let this = unsafe { self.get_unchecked_mut() };
        let mut turn = this.live;
        while turn != 0 {
            let at = turn.trailing_zeros() as usize % MAX_WIDTH;
            let bit = 1 << at;
            turn &= turn - 1;
            loop {
                // SAFETY: the slot's bit is set in `live`: it was in `turn`, whose bits come from `live` and of which each
                // is taken once, and only the arm below clears it, which goes on only if it has set it again.
                let slot = unsafe { this.slots[at].assume_init_mut() };
                // SAFETY: `Slots` is pinned and the future is never moved, as `Slot` says.
                let future = unsafe { Pin::new_unchecked(&mut slot.future) };
                let Poll::Ready(output) = future.poll(context) else { break };
                let task = slot.task;
                // First of all: whatever panics from here on, the future is not dropped twice.
                this.live &= !bit;
                // SAFETY: the slot was initialised until now, and with its bit cleared nobody takes it for so any more.
                unsafe { this.slots[at].assume_init_drop() };
                let Some((task, future)) = done(task, output) else { break };
                this.slots[at].write(Slot { task, future });
                this.live |= bit;
            }
        }
        this.live != 0
    }
}

impl<F> Slots<F> {
    #[inline(always)]
    fn clear(self: Pin<&mut Self>) {
        // SAFETY: no future is moved below: each is dropped where it is.
        let this = unsafe { self.get_unchecked_mut() };
        while this.live != 0 {
            let at = this.live.trailing_zeros() as usize % MAX_WIDTH;
            this.live &= this.live - 1;
            // SAFETY: its bit was set, so the slot is initialised; the bit is cleared, so it is dropped once, also if that
            // panics.
            unsafe { this.slots[at].assume_init_drop() };
        }
    }
}

impl<F> Drop for Slots<F> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: what is being dropped is not moved any more, so pinning it holds.
        unsafe { Pin::new_unchecked(self) }.clear();
    }
}
