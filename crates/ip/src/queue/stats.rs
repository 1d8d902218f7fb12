//! What an operator sees of a queue: sums, and how long packets waited.
//!
//! A worker counts in a plain struct of its own and copies it out now and then, if nobody is reading just then; the control
//! side adds the workers' up.

use std::sync::{Arc, Mutex, PoisonError};

/// Classes of waiting times: class 0 is none at all, class n from 2^(n-1) ns to below 2^n, the last everything longer.
pub const WAITS: usize = 40;

/// How often counters are copied out.
const SHOW_NS: u64 = 10_000_000;

/// One class of packets: `arrived = sent + refused + early + evicted + waiting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassStats {
    /// Packets that came.
    pub arrived: u64,
    /// Packets that left.
    pub sent: u64,
    /// Bytes of them on the wire.
    pub sent_bytes: u64,
    /// Packets turned away by a full queue.
    pub refused: u64,
    /// Packets dropped by RED.
    pub early: u64,
    /// Packets that waited, and gave way to ones of higher priority.
    pub evicted: u64,
    /// Packets that wait now.
    pub waiting: u64,
    /// Bytes of them on the wire.
    pub waiting_bytes: u64,
    /// Time in ns that those that left had waited, in all.
    pub waited_ns: u64,
    /// The longest of these waits.
    pub longest_ns: u64,
    /// Packets that left, by [class of waiting time](WAITS).
    pub waits: [u64; WAITS],
}

impl Default for ClassStats {
    fn default() -> Self {
        ClassStats {
            arrived: 0,
            sent: 0,
            sent_bytes: 0,
            refused: 0,
            early: 0,
            evicted: 0,
            waiting: 0,
            waiting_bytes: 0,
            waited_ns: 0,
            longest_ns: 0,
            waits: [0; WAITS],
        }
    }
}

impl ClassStats {
    /// A packet waits.
    #[inline]
    pub fn note_waiting(&mut self, bytes: u64) {
        self.waiting += 1;
        self.waiting_bytes += bytes;
    }

    /// One that waited does not any more: it left, or gave way.
    #[inline]
    pub fn note_unwaiting(&mut self, bytes: u64) {
        self.waiting -= 1;
        self.waiting_bytes -= bytes;
    }

    /// A packet left.
    #[inline]
    pub fn note_sent(&mut self, bytes: u64, waited_ns: u64) {
        self.sent += 1;
        self.sent_bytes += bytes;
        self.waited_ns += waited_ns;
        self.longest_ns = self.longest_ns.max(waited_ns);
        self.waits[(64 - waited_ns.leading_zeros() as usize).min(WAITS - 1)] += 1;
    }

    /// Whether every packet is somewhere.
    pub fn balances(&self) -> bool {
        self.arrived == self.sent + self.refused + self.early + self.evicted + self.waiting
            && self.waits.iter().sum::<u64>() == self.sent
    }

    /// What those that left had waited on average, in ns; `None` if nothing left.
    pub fn mean_wait_ns(&self) -> Option<u64> {
        self.waited_ns.checked_div(self.sent)
    }

    /// A wait in ns that `part` (0 to 1) of those that left did not exceed, from the classes: at most twice too long.
    /// `None` if nothing left.
    pub fn wait_ns(&self, part: f64) -> Option<u64> {
        let wanted = (part * self.sent as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let class = self.waits.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(((1u64 << class) - 1).min(self.longest_ns))
    }
}

/// What workers' counters are added up by.
pub trait Sum: Clone + Default {
    /// Adds another's.
    fn add(&mut self, other: &Self);
}

impl Sum for ClassStats {
    fn add(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.refused += other.refused;
        self.early += other.early;
        self.evicted += other.evicted;
        self.waiting += other.waiting;
        self.waiting_bytes += other.waiting_bytes;
        self.waited_ns += other.waited_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.waits.iter_mut().zip(&other.waits).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// Where workers show their counters.
#[derive(Debug)]
pub struct Board<T>(Mutex<Vec<Arc<Mutex<T>>>>);

impl<T> Default for Board<T> {
    fn default() -> Self {
        Board(Mutex::new(Vec::new()))
    }
}

impl<T: Sum> Board<T> {
    /// A place for one worker's.
    pub fn register(&self) -> Shown<T> {
        let place = Arc::new(Mutex::new(T::default()));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(place.clone());
        Shown { place, shown_ns: 0 }
    }

    /// All of them together, as of some milliseconds ago.
    pub fn sum(&self) -> T {
        let mut sum = T::default();
        for place in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            sum.add(&place.lock().unwrap_or_else(PoisonError::into_inner));
        }
        sum
    }
}

/// Where one worker shows its counters.
#[derive(Debug)]
pub struct Shown<T> {
    place: Arc<Mutex<T>>,
    shown_ns: u64,
}

impl<T: Clone> Shown<T> {
    /// Whether it is time to show them again.
    #[inline]
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.shown_ns.saturating_add(SHOW_NS)
    }

    /// Shows them; never waits for a reader.
    pub fn show(&mut self, now_ns: u64, stats: &T) {
        self.shown_ns = now_ns;
        if let Ok(mut place) = self.place.try_lock() {
            place.clone_from(stats);
        }
    }

    /// Shows them for the last time.
    pub fn end(&mut self, stats: &T) {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone_from(stats);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fall_into_classes_by_their_highest_bit() {
        let mut stats = ClassStats { arrived: 8, ..ClassStats::default() };
        for wait in [0, 1, 2, 3, 4, 1_000, 1 << 38, u64::MAX >> 8] {
            stats.note_sent(84, wait);
        }
        assert!(stats.balances());
        assert_eq!(stats.waits[..4], [1, 1, 2, 1]);
        assert_eq!((stats.waits[10], stats.waits[39]), (1, 2));
        assert_eq!((stats.wait_ns(0.5), stats.wait_ns(0.7)), (Some(3), Some(1023)));
        assert_eq!((ClassStats::default().wait_ns(0.5), ClassStats::default().mean_wait_ns()), (None, None));
        assert_eq!(stats.longest_ns, u64::MAX >> 8);
    }

    #[test]
    fn boards_add_workers_up() {
        let board = Board::<ClassStats>::default();
        let (mut a, mut b) = (board.register(), board.register());
        let mut stats = ClassStats { arrived: 1, ..ClassStats::default() };
        stats.note_sent(100, 7);
        assert!(a.is_due(SHOW_NS) && !a.is_due(SHOW_NS - 1));
        a.show(SHOW_NS, &stats);
        assert!(!a.is_due(SHOW_NS + 1));
        b.end(&stats);
        let sum = board.sum();
        assert_eq!((sum.sent, sum.sent_bytes, sum.waits[3], sum.longest_ns), (2, 200, 2, 7));
        assert!(sum.balances());
    }
}
