//! Where the most is dropped of declined flows and of those beyond their rates: by flow, by source, by destination.
//!
//! One dropped packet in [`EVERY`] on average is counted, for as many: the gate drops at the rate of an attack, and the largest parts of
//! that are found all the same. A worker collects for [`WINDOW_NS`]; then the control side gets what it has by an exchange of boxes at
//! a burst boundary, and shows it until the next.

use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use tidemill_flow::hash::mix;
use tidemill_flow::heavy::HeavyHitters;
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;
use tidemill_port::rng::Rng;

/// Dropped packets for each that is counted.
pub(crate) const EVERY: u64 = 16;

/// How long a worker collects.
pub(crate) const WINDOW_NS: u64 = 5_000_000_000;

/// Entries of a summary.
const ENTRIES: usize = 1024;

/// What is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Source and destination.
    Flow,
    /// The source.
    Source,
    /// The destination.
    Destination,
}

impl By {
    /// All of them.
    pub const ALL: [By; 3] = [By::Flow, By::Source, By::Destination];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            By::Flow => "flow",
            By::Source => "source",
            By::Destination => "destination",
        }
    }
}

/// What was dropped in a window, in the order of [`By::ALL`]; what a key leaves out is zero.
pub(crate) struct Summary<const W: usize>(pub(crate) [HeavyHitters<W>; 3]);

impl<const W: usize> Summary<W> {
    pub(crate) fn new() -> Result<Self, SizeError> {
        let new = || HeavyHitters::new(ENTRIES);
        Ok(Summary([new()?, new()?, new()?]))
    }

    pub(crate) fn clear(&mut self) {
        self.0.iter_mut().for_each(HeavyHitters::clear);
    }
}

/// Where a worker and the control side exchange summaries.
pub(crate) struct Exchange<const W: usize> {
    /// Cleared, for the worker.
    pub(crate) empty: ArrayQueue<Box<Summary<W>>>,
    /// With the window's length in nanoseconds, for the control side.
    pub(crate) full: ArrayQueue<(Box<Summary<W>>, u64)>,
}

impl<const W: usize> Exchange<W> {
    pub(crate) fn new() -> Result<Arc<Self>, SizeError> {
        let exchange = Exchange { empty: ArrayQueue::new(1), full: ArrayQueue::new(1) };
        let _ = exchange.empty.push(Box::new(Summary::new()?));
        Ok(Arc::new(exchange))
    }
}

/// One worker's half.
pub(crate) struct Heavy<const W: usize> {
    summary: Box<Summary<W>>,
    exchange: Arc<Exchange<W>>,
    since_ns: u64,
    /// Packets until the next that is counted.
    gap: u64,
    random: Rng,
}

impl<const W: usize> Heavy<W> {
    pub(crate) fn new(secret: u64) -> Result<Self, SizeError> {
        let summary = Box::new(Summary::new()?);
        Ok(Heavy { summary, exchange: Exchange::new()?, since_ns: 0, gap: EVERY, random: Rng::new(secret) })
    }

    pub(crate) fn exchange(&self) -> Arc<Exchange<W>> {
        self.exchange.clone()
    }

    /// A packet was dropped; the keys are those of its flow, its source and its destination.
    #[inline(always)]
    pub(crate) fn dropped(&mut self, keys: impl FnOnce() -> [Key<W>; 3]) {
        self.gap -= 1;
        if self.gap == 0 {
            self.count(keys());
        }
    }

    #[cold]
    fn count(&mut self, keys: [Key<W>; 3]) {
        // A regular gap would meet regular attacks always in the same place. 1 to 31: 16 on average.
        self.gap = 1 + self.random.below(2 * EVERY - 1);
        for (summary, key) in self.summary.0.iter_mut().zip(keys) {
            summary.add(key.0.iter().fold(0, |hash, word| mix(hash ^ word)), &key, EVERY);
        }
    }

    /// Between two bursts: hands over what a window has brought.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        let length = now_ns.saturating_sub(self.since_ns);
        if length < WINDOW_NS || self.exchange.full.is_full() {
            return;
        }
        if let Some(empty) = self.exchange.empty.pop() {
            let full = std::mem::replace(&mut self.summary, empty);
            // There is room: only this worker fills it.
            let _ = self.exchange.full.push((full, length));
            self.since_ns = now_ns;
        }
    }
}
