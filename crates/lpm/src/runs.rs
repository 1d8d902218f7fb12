//! Elements in runs of any length, in one array: what the tries that only their owner changes allocate from.

use crate::fib::Outgrown;
use std::ops::{Deref, DerefMut};
use tidemill_lookup::mem::Array;

/// Runs up to this length are handed out as they are, longer ones rounded up by a sixteenth at most.
const EXACT: usize = 32;

/// An array of runs. A run is named by its first element's number; whoever took it knows how long it is.
#[derive(Debug, Clone)]
pub(crate) struct Runs<T: Copy> {
    items: Array<T>,
    /// Free runs by their length's class.
    free: Vec<Vec<u32>>,
    /// Elements in use.
    used: usize,
}

/// The class of runs of `len` elements, and how long they really are.
fn class(len: usize) -> (usize, usize) {
    if len <= EXACT {
        return (len, len);
    }
    let shift = len.ilog2() - 4;
    let sixteenths = ((len - 1) >> shift) + 1; // 16 ..= 32
    (EXACT + 16 * (shift as usize - 1) + sixteenths - 16, sixteenths << shift)
}

impl<T: Copy> Runs<T> {
    /// An array without runs.
    pub(crate) fn new() -> Self {
        Runs { items: Array::new(), free: Vec::new(), used: 0 }
    }

    /// A run of as many elements, set to `fill`; of none: 0.
    pub(crate) fn take(&mut self, len: usize, fill: T) -> Result<u32, Outgrown> {
        if len == 0 {
            return Ok(0);
        }
        let (class, rounded) = class(len);
        let first = match self.free.get_mut(class).and_then(Vec::pop) {
            Some(first) => first,
            None => {
                let first = self.items.len();
                if first + rounded > u32::MAX as usize {
                    return Err(Outgrown { what: format!("{first} elements are in use") });
                }
                self.items.resize(first + rounded, fill);
                first as u32
            }
        };
        self.used += len;
        self.items[first as usize..][..len].fill(fill);
        Ok(first)
    }

    /// Takes back a run.
    pub(crate) fn give(&mut self, first: u32, len: usize) {
        if len > 0 {
            let class = class(len).0;
            if self.free.len() <= class {
                self.free.resize(class + 1, Vec::new());
            }
            self.free[class].push(first);
            self.used -= len;
        }
    }

    /// Elements in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

impl<T: Copy> Deref for Runs<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T: Copy> DerefMut for Runs<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_runs_and_waste_little() {
        let mut previous = (0, 0);
        for len in 1..100_000 {
            let (class, rounded) = class(len);
            assert!(rounded >= len && rounded <= len + len / 16, "{len}: {rounded}");
            assert!(class == previous.0 && rounded == previous.1 || class > previous.0 && previous.1 < len);
            previous = (class, rounded);
        }
    }

    #[test]
    fn runs_do_not_overlap_and_are_used_again() {
        let mut runs = Runs::new();
        let taken: Vec<(u32, usize)> =
            [3, 0, 40, 1, 41].iter().map(|&len| (runs.take(len, len).unwrap(), len)).collect();
        for &(first, len) in &taken {
            assert!(runs[first as usize..][..len].iter().all(|&item| item == len));
        }
        assert_eq!(runs.used(), 85);
        let length = runs.len();
        for &(first, len) in &taken {
            runs.give(first, len);
        }
        for len in [42, 3, 40, 1] {
            runs.take(len, 0).unwrap();
        }
        assert_eq!((runs.used(), runs.len()), (86, length), "room for all of them had been there");
    }
}
