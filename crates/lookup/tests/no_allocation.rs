//! The drivers allocate nothing: a counting allocator watches them.

#![allow(clippy::unwrap_used)]

#[path = "common/allocations.rs"]
mod allocations;

use allocations::allocations;
use tidemill_lookup::drive::{Adaptive, Steered, coroutine, group, prefetch};

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
    let before = allocations();
    assert!(before > 0, "the allocator counts");
    let (mut adaptive, mut steered) = (Adaptive::new(1, 64), Steered::new(1, 64));
    for width in 1..=64 {
        group(1000, width, |task| sum(&words, task), |task, answer| answers[task] += answer);
        coroutine(1000, adaptive.width(), |task| sum(&words, task), |task, answer| answers[task] -= answer);
        adaptive.ran(1000, 0, width as u64);
        steered.ran(5000, 0, width as u64);
    }
    assert_eq!(allocations(), before);
    assert!(answers.iter().all(|&answer| answer == 0));
}
