//! The lookups for CPUs that count bits by instructions.
//!
//! This module is one of the named homes of `unsafe`.

use super::{Bitmap, TreeBitmap};
use crate::fib::Label;
use crate::prefix::Address;
use std::arch::is_x86_feature_detected;

pub(super) fn has_popcnt() -> bool {
    is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
}

#[inline]
pub(super) fn one<A: Address, B: Bitmap>(tree: &TreeBitmap<B>, key: A) -> Label {
    #[target_feature(enable = "popcnt,lzcnt,bmi1,bmi2")]
    fn one<A: Address, B: Bitmap>(tree: &TreeBitmap<B>, key: A) -> Label {
        tree.find(key, &())
    }
    debug_assert!(has_popcnt());
    // SAFETY: called only for a tree whose `popcnt` is set, which is so where the features have been found.
    unsafe { one(tree, key) }
}

pub(super) fn burst<A: Address, B: Bitmap>(tree: &TreeBitmap<B>, keys: &[A], out: &mut [Label]) {
    #[target_feature(enable = "popcnt,lzcnt,bmi1,bmi2")]
    fn burst<A: Address, B: Bitmap>(tree: &TreeBitmap<B>, keys: &[A], out: &mut [Label]) {
        tree.lock_step(keys, out);
    }
    assert!(has_popcnt());
    // SAFETY: the CPU has the features.
    unsafe { burst(tree, keys, out) }
}
