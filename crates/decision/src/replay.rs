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
//! **A sender that starts again with an earlier clock** would have an earlier epoch, or the same one, and nothing of it would be taken. The window stays as it is; the sender is
//! told instead: who receives says the highest stamp that it has taken ([`Window::newest`]), and a sender that has not given that one goes on in the epoch behind it
//! ([`Stamps::raise`]). What is told cannot be made up, for it comes under the key; somebody who kept it and says it again says what was once taken, which a sender that has heard it
//! is past already, and one that has started since would be told anyway. So it raises no more than there is reason for, and never lowers.
//!
//! **After our own restart** windows are empty, and what was sent shortly before may be sent to us again by somebody who kept it: the datagram's
//! time ([`Keyring::open`](crate::keys::Keyring::open)) is what bounds that, to the seconds by which clocks may differ.
//!
//! Costs: 8 KiB, and two atomic steps for each datagram whose tag is right. Forged ones never get here.

use std::sync::atomic::{AtomicU64, Ordering};

/// By how many others a datagram may be overtaken and still count, with one to spare.
pub const WINDOW: usize = 1024;

/// The last number of an epoch, or of a policy's version, behind which a sender goes on: it needs room to count up from there.
pub const LAST: u32 = u32::MAX - 0xffff;

/// Somebody knows a number of ours behind which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("beyond {LAST}: there is no room to count up from there")]
pub struct Beyond;

/// The number behind this one.
///
/// # Errors
/// [`Beyond`]: it is later than [`LAST`].
pub fn behind(number: u32) -> Result<u32, Beyond> {
    if number > LAST { Err(Beyond) } else { Ok(number + 1) }
}

/// When and as what a datagram was sent: no sender gives the same twice. The default stands for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
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

    fn of(number: u64) -> Self {
        Stamp { epoch_s: (number >> 32) as u32, sequence: number as u32 }
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
        Some(Stamp::of(self.next.fetch_add(1, Ordering::Relaxed)))
    }

    /// Somebody has taken this stamp as ours. If we have not given it, a start of ours with a later clock has, or one in the same second: then all workers go on in the epoch
    /// behind it. Returns whether they do.
    ///
    /// # Errors
    /// [`Beyond`]: there is no epoch behind it; nothing has changed.
    pub fn raise(&self, known: Stamp) -> Result<bool, Beyond> {
        if known == Stamp::default() || known.number() < self.next.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let number = Stamp { epoch_s: behind(known.epoch_s)?, sequence: 0 }.number();
        // Only up: two who hear of it at once raise once.
        Ok(self.next.fetch_max(number, Ordering::Relaxed) < number)
    }
}

/// See the [module](self).
pub struct Window {
    /// The highest stamp that has come; its epoch is the one that is known.
    newest: AtomicU64,
    slots: Box<[AtomicU64]>,
}

/// The slots are not shown.
impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window").field("newest", &self.newest()).finish_non_exhaustive()
    }
}

impl Default for Window {
    fn default() -> Self {
        let slots = (0..WINDOW).map(|_| AtomicU64::new(0)).collect();
        Window { newest: AtomicU64::new(0), slots }
    }
}

impl Window {
    /// Whether the sender's start is the one that we know: only a sender that has started again, or a stranger, has another.
    pub fn knows(&self, stamp: Stamp) -> bool {
        self.newest().epoch_s == stamp.epoch_s
    }

    /// The highest stamp that was taken; the default: none yet.
    pub fn newest(&self) -> Stamp {
        Stamp::of(self.newest.load(Ordering::Relaxed))
    }

    /// Takes a stamp, once.
    pub fn take(&self, stamp: Stamp) -> bool {
        let number = stamp.number();
        // Whoever sees the later epoch first: a stamp of an earlier one that is being taken just now has not been taken before.
        Stamp::of(self.newest.fetch_max(number, Ordering::Relaxed)).epoch_s <= stamp.epoch_s
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
    fn what_a_sender_has_not_given_raises_its_stamps() {
        let stamps = Stamps::new(7 * SECOND);
        let now_ns = 8 * SECOND;
        // Nobody knows it yet; an earlier start; its own stamps.
        assert_eq!(stamps.raise(Stamp::default()), Ok(false));
        assert_eq!(stamps.raise(stamp(6, 9000)), Ok(false));
        assert_eq!(stamps.next(now_ns), Some(stamp(7, 0)));
        assert_eq!(stamps.raise(stamp(7, 0)), Ok(false));
        // A start in the same second has sent more; a copy of that raises nothing more.
        assert_eq!(stamps.raise(stamp(7, 1)), Ok(true));
        assert_eq!(stamps.raise(stamp(7, 1)), Ok(false));
        assert_eq!(stamps.next(now_ns), Some(stamp(8, 0)));
        // A later one; then the lower one of another receiver.
        assert_eq!(stamps.raise(stamp(90, 5)), Ok(true));
        assert_eq!(stamps.raise(stamp(80, 6)), Ok(false));
        assert_eq!(stamps.next(now_ns), Some(stamp(91, 0)));
        // At the end of all numbers.
        for epoch_s in [LAST + 1, u32::MAX] {
            assert_eq!(stamps.raise(stamp(epoch_s, 0)), Err(Beyond));
        }
        assert_eq!(stamps.next(now_ns), Some(stamp(91, 1)));
        assert_eq!(stamps.raise(stamp(LAST, u32::MAX)), Ok(true));
        assert_eq!(stamps.next(now_ns), Some(stamp(LAST + 1, 0)));
    }

    #[test]
    fn the_newest_stamp_is_the_highest_that_was_taken() {
        let window = Window::default();
        assert_eq!(window.newest(), Stamp::default());
        for (epoch_s, sequence, newest) in [(5, 7, (5, 7)), (5, 3, (5, 7)), (4, 900, (5, 7)), (6, 0, (6, 0))]
        {
            window.take(stamp(epoch_s, sequence));
            assert_eq!(window.newest(), stamp(newest.0, newest.1));
        }
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

    proptest! {
        /// Of two starts whose clocks say anything, the second is told what the first is known by: from then on all that it sends is taken, once, and it is told nothing new.
        #[test]
        fn whatever_the_clocks_of_two_starts(
            starts_s in (1_u64..9, 1_u64..9),
            sent in 0_usize..1500,
            unheard in 0_usize..1500,
            heard in 1_usize..1500,
        ) {
            let (first, second) = (Stamps::new(starts_s.0 * SECOND), Stamps::new(starts_s.1 * SECOND));
            let window = Window::default();
            let next = |stamps: &Stamps| stamps.next(9 * SECOND).unwrap();
            for _ in 0..sent {
                prop_assert!(window.take(next(&first)));
            }
            // Until it is told, what it sends is taken or not.
            for _ in 0..unheard {
                window.take(next(&second));
            }
            let raised = second.raise(window.newest()).unwrap();
            prop_assert!(!raised || starts_s.1 <= starts_s.0);
            for _ in 0..heard {
                let stamp = next(&second);
                prop_assert!(window.take(stamp) && !window.take(stamp), "{stamp:?} {raised}");
                prop_assert_eq!(window.newest(), stamp);
            }
            prop_assert_eq!(second.raise(window.newest()), Ok(false));
        }
    }

    /// Workers give stamps while one of them is told of a later start: no stamp is given twice, and all end behind it.
    #[test]
    fn all_workers_go_on_in_the_later_epoch() {
        let stamps = Stamps::new(7 * SECOND);
        let give = || (0..50_000).map(|_| stamps.next(8 * SECOND).unwrap()).collect::<Vec<Stamp>>();
        let given: Vec<Vec<Stamp>> = std::thread::scope(|scope| {
            let workers = [scope.spawn(give), scope.spawn(give)];
            assert_eq!(stamps.raise(stamp(20, 3)), Ok(true));
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        let all: HashSet<(u32, u32)> = given.iter().flatten().map(|s| (s.epoch_s, s.sequence)).collect();
        assert_eq!(all.len(), 100_000);
        assert!(given.iter().all(|stamps| stamps.is_sorted()));
        assert_eq!(stamps.next(8 * SECOND).unwrap().epoch_s, 21);
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
