//! What one lookup or update of a real table touches: a [`Probe`] that writes it down, in simulated addresses afterwards.

use crate::machine::memory::Memory;
use std::cell::RefCell;
use tidemill_lookup::probe::Probe;

/// A probe's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// A step of the algorithm: a bucket, a level.
    Step,
    /// A load.
    Read {
        /// First byte.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// Whether its address came from an earlier load of the same lookup.
        dependent: bool,
    },
    /// A store.
    Write {
        /// First byte.
        address: u64,
        /// Bytes.
        bytes: u64,
    },
}

/// The probe.
#[derive(Debug, Default)]
pub struct Tape(RefCell<Vec<Touch>>);

impl Tape {
    /// Takes what was written down since the last call, with the process's own addresses.
    pub fn take_raw(&self) -> Vec<Touch> {
        std::mem::take(&mut *self.0.borrow_mut())
    }

    /// Takes what was written down since the last call, with addresses of the simulated machine, into `touches`.
    pub fn take(&self, memory: &mut Memory, touches: &mut Vec<Touch>) {
        touches.clear();
        touches.extend(self.0.borrow_mut().drain(..).map(|touch| translated(memory, touch)));
    }
}

/// A touch of the process's memory, in the simulated machine's.
pub fn translated(memory: &mut Memory, touch: Touch) -> Touch {
    let mut to = |address: u64| memory.pages.translate(address as usize);
    match touch {
        Touch::Step => Touch::Step,
        Touch::Read { address, bytes, dependent } => Touch::Read { address: to(address), bytes, dependent },
        Touch::Write { address, bytes } => Touch::Write { address: to(address), bytes },
    }
}

impl Probe for Tape {
    fn read(&self, address: usize, size: usize, dependent: bool) {
        self.0.borrow_mut().push(Touch::Read { address: address as u64, bytes: size as u64, dependent });
    }

    fn write(&self, address: usize, size: usize) {
        self.0.borrow_mut().push(Touch::Write { address: address as u64, bytes: size as u64 });
    }

    fn step(&self) {
        self.0.borrow_mut().push(Touch::Step);
    }
}
