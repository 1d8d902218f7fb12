//! What a flow specification counts, and the rates that it holds packets to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidemill_bgp::Actions;
use tidemill_bgp::flows::Rate;
use tidemill_burst::DropReason;

/// How much of a rate may pass at once.
const BURST_NS: u64 = 100_000_000;
/// A clock that is further back than this was set.
const SET_BACK_NS: u64 = 1_000_000_000;

/// What a flow specification has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that it meant.
    pub packets: u64,
    /// Bytes of these, from the IP header on.
    pub bytes: u64,
    /// Packets that were dropped for it.
    pub dropped: u64,
    /// Bytes of these.
    pub dropped_bytes: u64,
}

/// One worker's counts, on lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct Cell([AtomicU64; 4]);

/// A rate, by the time at which what has passed would have passed at that rate.
struct Bucket {
    ns_each: f64,
    until_ns: AtomicU64,
    seen_ns: AtomicU64,
}

impl Bucket {
    fn new(rate: Rate) -> Self {
        let ns_each = 1e9 / f64::from(rate.per_s());
        Bucket { ns_each, until_ns: AtomicU64::new(0), seen_ns: AtomicU64::new(0) }
    }

    /// Whether so many may pass now.
    fn take(&self, now_ns: u64, count: u32) -> bool {
        if now_ns.saturating_add(SET_BACK_NS) < self.seen_ns.swap(now_ns, Relaxed) {
            self.until_ns.store(now_ns, Relaxed);
        }
        let cost = (f64::from(count) * self.ns_each) as u64;
        let next = |until: u64| {
            let passes = until <= now_ns.saturating_add(BURST_NS);
            passes.then(|| until.max(now_ns).saturating_add(cost))
        };
        self.until_ns.fetch_update(Relaxed, Relaxed, next).is_ok()
    }

    /// As if these had not been taken.
    fn give_back(&self, count: u32) {
        let cost = (f64::from(count) * self.ns_each) as u64;
        let before = |until: u64| Some(until.saturating_sub(cost));
        self.until_ns.fetch_update(Relaxed, Relaxed, before).ok();
    }
}

/// What becomes of the packets of one flow specification, shared by all workers.
pub(crate) struct Meter {
    drops: bool,
    packets: Option<Bucket>,
    bytes: Option<Bucket>,
    cells: Box<[Cell]>,
}

impl Meter {
    pub(crate) fn new(actions: &Actions, workers: usize) -> Self {
        Meter {
            drops: actions.drops(),
            packets: actions.packets.map(Bucket::new),
            bytes: actions.bytes.map(Bucket::new),
            cells: (0..workers.max(1)).map(|_| Cell::default()).collect(),
        }
    }

    /// Counts a packet. Returns why it is to be dropped, if it is.
    pub(crate) fn take(&self, now_ns: u64, worker: usize, bytes: u32) -> Option<DropReason> {
        let within = |bucket: &Option<Bucket>, count| bucket.as_ref().is_none_or(|of| of.take(now_ns, count));
        let reason = if self.drops {
            Some(DropReason::FlowspecDrop)
        } else if !within(&self.packets, 1) {
            Some(DropReason::FlowspecRate)
        } else if !within(&self.bytes, bytes) {
            // What does not pass takes nothing of what packets may.
            if let Some(packets) = &self.packets {
                packets.give_back(1);
            }
            Some(DropReason::FlowspecRate)
        } else {
            None
        };
        if let Some(Cell([packets, all, dropped, all_dropped])) = self.cells.get(worker % self.cells.len()) {
            packets.fetch_add(1, Relaxed);
            all.fetch_add(bytes.into(), Relaxed);
            if reason.is_some() {
                dropped.fetch_add(1, Relaxed);
                all_dropped.fetch_add(bytes.into(), Relaxed);
            }
        }
        reason
    }

    pub(crate) fn counts(&self) -> Counts {
        let sum = |place: usize| -> u64 {
            self.cells.iter().map(|Cell(numbers)| numbers[place].load(Relaxed)).sum()
        };
        Counts { packets: sum(0), bytes: sum(1), dropped: sum(2), dropped_bytes: sum(3) }
    }
}
