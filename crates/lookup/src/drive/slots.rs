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

    /// Which slots are taken, bit by bit.
    #[inline(always)]
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// Starts tasks in the free ones among `places`, as long as there are both, and returns which.
    #[inline(always)]
    pub(super) fn fill(
        self: Pin<&mut Self>,
        places: u64,
        tasks: &mut Range<usize>,
        start: &mut impl FnMut(usize) -> F,
    ) -> u64 {
        // SAFETY: no future is moved below: only slots are written to that hold none.
        let this = unsafe { self.get_unchecked_mut() };
        let before = this.live;
        let mut free = places & !before;
        while free != 0
            && let Some(task) = tasks.next()
        {
            let at = free.trailing_zeros() as usize % MAX_WIDTH;
            free &= free - 1;
            this.slots[at].write(Slot { task, future: start(task) });
            // Only now: if `start` panics, the slot is not there.
            this.live |= 1 << at;
        }
        this.live & !before
    }

    /// Polls the futures of a mask once, each that is there. One that is done goes, and `done` hears of it.
    #[inline(always)]
    pub(super) fn poll(
        self: Pin<&mut Self>,
        mask: u64,
        context: &mut Context<'_>,
        done: &mut impl FnMut(usize, F::Output),
    ) {
        // SAFETY: no future is moved below: each is polled and dropped where it is.
        let this = unsafe { self.get_unchecked_mut() };
        let mut turn = this.live & mask;
        while turn != 0 {
            let at = turn.trailing_zeros() as usize % MAX_WIDTH;
            turn &= turn - 1;
            // SAFETY: the slot's bit is set in `live`: it was in `turn`, which came from `live` and of which each bit is
            // taken once, and below only the bit that has been taken is cleared.
            let slot = unsafe { this.slots[at].assume_init_mut() };
            // SAFETY: `Slots` is pinned and the future is never moved, as `Slot` says.
            let future = unsafe { Pin::new_unchecked(&mut slot.future) };
            if let Poll::Ready(output) = future.poll(context) {
                let task = slot.task;
                // First of all: whatever panics from here on, the future is not dropped twice.
                this.live &= !(1 << at);
                // SAFETY: the slot was initialised until now, and with its bit cleared nobody takes it for so any more.
                unsafe { this.slots[at].assume_init_drop() };
                done(task, output);
            }
        }
    }
}

/// Something is left only if something panicked; one more panic here would end the program, so nothing is ever left behind.
impl<F> Drop for Slots<F> {
    fn drop(&mut self) {
        while self.live != 0 {
            let at = self.live.trailing_zeros() as usize % MAX_WIDTH;
            self.live &= self.live - 1;
            // SAFETY: its bit was set, so the slot is initialised; the bit is cleared, so it is dropped once, also if that
            // panics. It is dropped where it is, as a pinned future has to be.
            unsafe { self.slots[at].assume_init_drop() };
        }
    }
}
