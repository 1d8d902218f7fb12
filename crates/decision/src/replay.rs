//! What keeps a datagram from counting twice: one [`Window`] for each sender and key, shared by all workers.
//!
//! ```text
//!  stamp of a datagram     epoch: the second in which its sender started | sequence: 0, 1, 2 ...       64 bits, always rising
//!
//!  slots   0        1        2        ...   1023          slot = sequence modulo 1024
//!          stamp    stamp    stamp          stamp         the highest stamp taken in this slot
//! ```
//!
//! A datagram is taken if its stamp is higher than the one in its slot, which it then replaces, in one atomic step: so none is ever taken twice,
//! whichever workers it comes to, and one that was overtaken by fewer than [`WINDOW`] others is still taken. Nothing of an earlier epoch is taken
//! once a later one is known: a sender that has started again counts, what was kept of the one before does not.
//!
//! **After our own restart** windows are empty, and what was sent shortly before may be sent to us again by somebody who kept it: the datagram's
//! time ([`Keyring::open`](crate::keys::Keyring::open)) is what bounds that, to the seconds by which clocks may differ.
//!
//! Costs: 8 KiB, and two atomic steps for each datagram whose tag is right. Forged ones never get here.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// By how many others a datagram may be overtaken and still count, with one to spare.
pub const WINDOW: usize = 1024;

/// When and as what a datagram was sent: no sender gives the same twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The second, since 1970, in which the sender started.
    pub epoch_s: u32,
    /// Its datagrams, counted.
    pub sequence: u32,
}

impl Stamp {
    fn number(self) -> u64 {
        u64::from(self.epoch_s) << 32 | u64::from(self.sequence)
    }
}

/// A sender's stamps, for all its workers.
#[derive(Debug)]
pub struct Stamps {
    next: AtomicU64,
    started_s: u64,
}

impl Stamps {
    /// Of a sender that starts at this time (nanoseconds since 1970).
    pub fn new(now_ns: u64) -> Self {
        let started_s = now_ns / 1_000_000_000;
        Stamps { next: AtomicU64::new(started_s << 32), started_s }
    }

    /// The next one. `None` in the second of the start, so that a sender that is started twice in one second has not used that second's stamps
    /// before, and while the clock stands before the start. After 2^32 datagrams the epoch goes up by one.
    pub fn next(&self, now_ns: u64) -> Option<Stamp> {
        if now_ns / 1_000_000_000 <= self.started_s {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Some(Stamp { epoch_s: (number >> 32) as u32, sequence: number as u32 })
    }
}

/// See the [module](self).
pub struct Window {
    epoch_s: AtomicU32,
    slots: Box<[AtomicU64]>,
}

/// The slots are not shown.
impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window").field("epoch_s", &self.epoch_s).finish_non_exhaustive()
    }
}

impl Default for Window {
    fn default() -> Self {
        let slots = (0..WINDOW).map(|_| AtomicU64::new(0)).collect();
        Window { epoch_s: AtomicU32::new(0), slots }
    }
}

impl Window {
    /// Whether the sender's start is the one that we know: only a sender that has started again, or a stranger, has another.
    pub fn knows(&self, stamp: Stamp) -> bool {
        self.epoch_s.load(Ordering::Relaxed) == stamp.epoch_s
    }

    /// Takes a stamp, once.
    pub fn take(&self, stamp: Stamp) -> bool {
        let number = stamp.number();
        // Whoever sees the later epoch first: a stamp of an earlier one that is being taken just now has not been taken before.
        self.epoch_s.fetch_max(stamp.epoch_s, Ordering::Relaxed) <= stamp.epoch_s
            && self.slots[stamp.sequence as usize % WINDOW].fetch_max(number, Ordering::Relaxed) < number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const SECOND: u64 = 1_000_000_000;

    fn stamp(epoch_s: u32, sequence: u32) -> Stamp {
        Stamp { epoch_s, sequence }
    }

    #[test]
    fn a_sender_never_gives_a_stamp_twice() {
        let stamps = Stamps::new(7 * SECOND + 5);
        assert_eq!(stamps.next(0), None);
        assert_eq!(stamps.next(8 * SECOND - 1), None);
        assert_eq!(stamps.next(8 * SECOND), Some(stamp(7, 0)));
        assert_eq!(stamps.next(8 * SECOND), Some(stamp(7, 1)));
        stamps.next.store(8 << 32 | u64::from(u32::MAX), Ordering::Relaxed);
        assert_eq!(stamps.next(9 * SECOND), Some(stamp(8, u32::MAX)));
        assert_eq!(stamps.next(9 * SECOND), Some(stamp(9, 0)));
    }

    #[test]
    fn late_comers_are_taken_and_copies_are_not() {
        let window = Window::default();
        let taken = |sequence| window.take(stamp(5, sequence));
        assert!(!window.knows(stamp(5, 0)));
        assert!(taken(0) && !taken(0));
        assert!(window.knows(stamp(5, 9)));
        let last = WINDOW as u32 - 1;
        assert!(taken(last) && taken(1) && !taken(1) && !taken(last));
        // Overtaken by as many as there are slots.
        assert!(taken(WINDOW as u32 + 2) && !taken(2));
        // A new start.
        assert!(window.take(stamp(6, 0)));
        assert!(!taken(3) && !window.take(stamp(4, 900)), "of an earlier start");
        assert!(window.take(stamp(6, 3)));
    }

    proptest! {
        /// Whatever comes: nothing is taken twice, nothing of an earlier epoch, and everything that is not late.
        #[test]
        fn as_a_set(stamps in proptest::collection::vec((1_u32..4, 0_u32..3000), 0..2000)) {
            let (window, mut taken) = (Window::default(), HashSet::new());
            let mut newest = 0;
            for (epoch, sequence) in stamps {
                let took = window.take(stamp(epoch, sequence));
                let fresh = !taken.contains(&(epoch, sequence));
                prop_assert!(!took || (fresh && epoch >= newest));
                newest = newest.max(epoch);
                let latest = taken.iter().filter(|(e, _)| *e == epoch).map(|(_, s)| *s).max().unwrap_or(0);
                if fresh && epoch == newest && sequence + WINDOW as u32 > latest {
                    prop_assert!(took, "{epoch} {sequence} {latest}");
                }
                if took {
                    taken.insert((epoch, sequence));
                }
            }
        }
    }

    /// Two workers get the same datagrams: each counts once.
    #[test]
    fn two_threads_take_each_once() {
        let window = Window::default();
        let count = |window: &Window| (0..100_000).filter(|&n| window.take(stamp(1, n))).count();
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| count(&window));
            (count(&window), other.join().unwrap())
        });
        assert!(one + other <= 100_000 && one.max(other) > 0, "{one} {other}");
    }
}
