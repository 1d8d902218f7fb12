//! The probe: what lookups and updates tell about their memory accesses, to whoever asks.
//!
//! A lookup is written once, generic over [`Probe`]. The data plane passes `&()`, whose methods are empty and inlined
//! away; experiments pass a [`Recorder`] (counts and, on request, the access log) or a
//! [`Hierarchy`](crate::cache::Hierarchy) in a `RefCell` (hits and misses). SIMD kernels are not probed: their scalar
//! form, which computes the same, is.

use std::cell::{Cell, RefCell};

/// Receives the accesses of a lookup or an update. Every method does nothing unless implemented.
pub trait Probe {
    /// A load of `size` bytes at `address`. `dependent`: the address was computed from the result of an earlier load
    /// of the same operation, so the load cannot start before that one ends.
    #[inline(always)]
    fn read(&self, address: usize, size: usize, dependent: bool) {
        let _ = (address, size, dependent);
    }

    /// A store of `size` bytes at `address`.
    #[inline(always)]
    fn write(&self, address: usize, size: usize) {
        let _ = (address, size);
    }

    /// One step of the algorithm: one comparison of a search, one level of a trie, one bucket.
    #[inline(always)]
    fn step(&self) {}
}

impl Probe for () {}

impl<P: Probe + ?Sized> Probe for &P {
    #[inline(always)]
    fn read(&self, address: usize, size: usize, dependent: bool) {
        (**self).read(address, size, dependent);
    }
    #[inline(always)]
    fn write(&self, address: usize, size: usize) {
        (**self).write(address, size);
    }
    #[inline(always)]
    fn step(&self) {
        (**self).step();
    }
}

/// Two probes at once.
impl<P: Probe, Q: Probe> Probe for (P, Q) {
    #[inline(always)]
    fn read(&self, address: usize, size: usize, dependent: bool) {
        self.0.read(address, size, dependent);
        self.1.read(address, size, dependent);
    }
    #[inline(always)]
    fn write(&self, address: usize, size: usize) {
        self.0.write(address, size);
        self.1.write(address, size);
    }
    #[inline(always)]
    fn step(&self) {
        self.0.step();
        self.1.step();
    }
}

/// One memory access, as an access log keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read {
        /// First byte.
        address: usize,
        /// Bytes.
        size: usize,
        /// See [`Probe::read`].
        dependent: bool,
    },
    /// A store.
    Write {
        /// First byte.
        address: usize,
        /// Bytes.
        size: usize,
    },
}

/// Totals over everything that a [`Recorder`] saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads.
    pub reads: u64,
    /// Loads whose address came from an earlier load.
    pub dependent_reads: u64,
    /// Bytes loaded.
    pub read_bytes: u64,
    /// Stores.
    pub writes: u64,
    /// Bytes stored.
    pub written_bytes: u64,
    /// Steps.
    pub steps: u64,
}

/// A probe that counts, and keeps the access log if asked to.
#[derive(Debug, Default)]
pub struct Recorder {
    counts: Cell<Counts>,
    log: Option<RefCell<Vec<Access>>>,
}

impl Recorder {
    /// Counts only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts and keeps every access. Addresses are the process's own: they differ from run to run.
    pub fn with_log() -> Self {
        Recorder { log: Some(RefCell::default()), ..Self::default() }
    }

    /// The totals so far.
    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    /// Takes the log out (empty without [`with_log`](Self::with_log)) and sets the totals to zero.
    pub fn take(&mut self) -> Vec<Access> {
        self.counts.set(Counts::default());
        self.log.as_mut().map(|log| std::mem::take(log.get_mut())).unwrap_or_default()
    }

    fn push(&self, access: Access) {
        if let Some(log) = &self.log {
            log.borrow_mut().push(access);
        }
    }
}

impl Probe for Recorder {
    fn read(&self, address: usize, size: usize, dependent: bool) {
        let mut counts = self.counts.get();
        counts.reads += 1;
        counts.dependent_reads += u64::from(dependent);
        counts.read_bytes += size as u64;
        self.counts.set(counts);
        self.push(Access::Read { address, size, dependent });
    }

    fn write(&self, address: usize, size: usize) {
        let mut counts = self.counts.get();
        counts.writes += 1;
        counts.written_bytes += size as u64;
        self.counts.set(counts);
        self.push(Access::Write { address, size });
    }

    fn step(&self) {
        let mut counts = self.counts.get();
        counts.steps += 1;
        self.counts.set(counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(probe: &impl Probe) {
        probe.read(100, 2, false);
        probe.read(200, 4, true);
        probe.step();
        probe.write(300, 8);
    }

    #[test]
    fn a_recorder_counts_and_logs() {
        let (mut logging, counting) = (Recorder::with_log(), Recorder::new());
        operation(&());
        operation(&(&logging, &counting));
        let expected =
            Counts { reads: 2, dependent_reads: 1, read_bytes: 6, writes: 1, written_bytes: 8, steps: 1 };
        assert_eq!((logging.counts(), counting.counts()), (expected, expected));
        let log = logging.take();
        assert_eq!(log[0], Access::Read { address: 100, size: 2, dependent: false });
        assert_eq!(log[1], Access::Read { address: 200, size: 4, dependent: true });
        assert_eq!(log[2], Access::Write { address: 300, size: 8 });
        assert_eq!((log.len(), logging.counts()), (3, Counts::default()));
    }
}
