//! The drivers allocate nothing: a counting allocator watches them.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tidemill_lookup::drive::{Adaptive, coroutine, group, prefetch};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

async fn sum(words: &[u64], task: usize) -> u64 {
    let mut sum = 0;
    for word in &words[..task % words.len()] {
        prefetch(word).await;
        sum += word;
    }
    sum
}

#[test]
fn drivers_allocate_nothing() {
    let words: Vec<u64> = (0..100).collect();
    let mut answers = vec![0; 1000];
    let before = ALLOCATIONS.with(Cell::get);
    assert!(before > 0, "the allocator counts");
    let mut adaptive = Adaptive::new(1, 64);
    for width in 1..=64 {
        group(1000, width, |task| sum(&words, task), |task, answer| answers[task] += answer);
        coroutine(1000, adaptive.width(), |task| sum(&words, task), |task, answer| answers[task] -= answer);
        adaptive.ran(1000, 0, width as u64);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
    assert!(answers.iter().all(|&answer| answer == 0));
}
