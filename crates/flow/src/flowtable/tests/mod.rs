//! Tests of the flow table beyond the family's suite.
#![cfg(test)]

mod bounds;
mod flood;
mod kernel;
mod life;

use crate::hash::mix;
use crate::key::Key;
use std::cell::{Cell, RefCell};
use tidemill_lookup::probe::Probe;

/// Counts the different lines of 64 bytes that an operation touches, and its stores.
#[derive(Default)]
struct Lines {
    seen: RefCell<Vec<usize>>,
    writes: Cell<usize>,
}

impl Lines {
    fn touch(&self, address: usize, size: usize) {
        let mut seen = self.seen.borrow_mut();
        for line in address / 64..=(address + size - 1) / 64 {
            if !seen.contains(&line) {
                seen.push(line);
            }
        }
    }

    /// Lines and stores since the last time.
    fn take(&self) -> (usize, usize) {
        let lines = self.seen.borrow().len();
        self.seen.borrow_mut().clear();
        (lines, self.writes.take())
    }
}

impl Probe for Lines {
    fn read(&self, address: usize, size: usize, _dependent: bool) {
        self.touch(address, size);
    }

    fn write(&self, address: usize, size: usize) {
        self.touch(address, size);
        self.writes.set(self.writes.get() + 1);
    }
}

/// Key `i`, all words different.
fn key<const W: usize>(i: u64) -> Key<W> {
    Key(std::array::from_fn(|word| mix(i) << 8 | word as u64))
}
