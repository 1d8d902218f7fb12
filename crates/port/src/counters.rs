//! What a port has counted, on both sides, so that nothing can go missing unnoticed.

use tidemill_burst::DropCounts;

/// One direction of a port's queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Direction {
    /// Packets that crossed the port's outer edge: received from outside, or sent outside.
    pub packets: u64,
    /// Their bytes, as they were in memory (without preamble and frame check sequence).
    pub bytes: u64,
    /// Packets that the port itself made (duplicates of the fault injector).
    pub made: u64,
    /// Packets that the port itself dropped, by reason.
    pub dropped: DropCounts,
    /// Packets that the port holds now (delayed by the fault injector, waiting in a transmit ring).
    pub held: u64,
}

impl Direction {
    /// Counts one packet at the outer edge.
    #[inline]
    pub fn count(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    /// Adds another queue's counters.
    pub fn add(&mut self, other: &Direction) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.made += other.made;
        self.held += other.held;
        self.dropped.add(&other.dropped);
    }
}

/// Everything that one queue pair has counted since it was opened.
///
/// Two equations hold at every moment between calls, for every port and every stack of wrappers:
///
/// ```text
/// rx.packets + rx.made = handed to the worker + rx.dropped + rx.held
/// taken from the worker + tx.made = tx.packets + tx.dropped + tx.held
/// ```
///
/// A packet that is dropped inside the port on its way in (too long for a frame, injected loss) therefore counts as
/// received *and* as dropped. Summed over all ports, with the graph's own figures, this is
/// `in + made = out + dropped + consumed + held`, where `in` is the sum of `rx.packets` and `out` of `tx.packets`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// From outside to the worker.
    pub rx: Direction,
    /// From the worker to outside.
    pub tx: Direction,
    /// Times that the device went away (removed, or renamed) under this queue. Until it is found again nothing is
    /// received, and what is to be sent is dropped as [`TxFailed`](tidemill_burst::DropReason::TxFailed).
    pub lost: u64,
    /// Times that it came back and was opened anew.
    pub found: u64,
    /// Tries to open this queue that found it taken by somebody else's socket (EBUSY; `af_xdp` only). A queue that is taken at the start is
    /// tried again for two seconds; one on a device that came back, at every look at it.
    pub taken_by_others: u64,
    /// Frames that the driver has asked for in vain (`dpdk` only): asks, not packets, so no part of the books. What is lost for want of
    /// them is [`RxRingFull`](tidemill_burst::DropReason::RxRingFull), by devices that keep packets until there is a frame, or
    /// [`NoFrames`](tidemill_burst::DropReason::NoFrames).
    pub asked_in_vain: u64,
}

impl PortCounters {
    /// Packets that the worker must have been handed.
    pub fn delivered(&self) -> u64 {
        (self.rx.packets + self.rx.made).saturating_sub(self.rx.dropped.total() + self.rx.held)
    }

    /// Packets that the port must have taken from the worker.
    pub fn taken(&self) -> u64 {
        (self.tx.packets + self.tx.dropped.total() + self.tx.held).saturating_sub(self.tx.made)
    }

    /// Adds another queue's counters.
    pub fn add(&mut self, other: &PortCounters) {
        self.rx.add(&other.rx);
        self.tx.add(&other.tx);
        self.lost += other.lost;
        self.found += other.found;
        self.taken_by_others += other.taken_by_others;
        self.asked_in_vain += other.asked_in_vain;
    }

    /// Queues whose device is away.
    pub fn away(&self) -> u64 {
        self.lost.saturating_sub(self.found)
    }
}
