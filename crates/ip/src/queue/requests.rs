//! Requests that wait by priority, as the solicitor and the path's queue keep them.
//!
//! A worker decides on a whole burst before any packet of it is queued, and packets that are queued only to be thrown out
//! again cost ten times what it costs to refuse them. Who is refused depends only on how many wait at each level: so an
//! arrival is judged by these numbers as they will be when those admitted before it have been queued
//! ([`admits`](Requests::admits)). In a flood that costs a comparison and a counter for each packet; its bytes are not
//! touched.

use super::priority::{LEVELS, PriorityQueue, Pushed};
use super::stats::{ClassStats, Sum};
use tidemill_burst::DropReason;

struct Entry<T> {
    item: T,
    since_ns: u64,
    bytes: u32,
}

/// The queue, with its counters. Nothing is allocated after [`new`](Self::new).
pub struct Requests<T> {
    queue: PriorityQueue<Entry<T>>,
    /// How many will wait at each level when all that are admitted are queued.
    counts: Box<[u32; LEVELS]>,
    /// Bit n: level n's is not 0.
    used: u64,
    /// Their sum.
    count: usize,
    waiting_bytes: u64,
    levels: Levels,
}

impl<T> Requests<T> {
    /// An empty queue with room for so many.
    pub fn new(capacity: usize) -> Self {
        Requests {
            queue: PriorityQueue::new(capacity),
            counts: Box::new([0; LEVELS]),
            used: 0,
            count: 0,
            waiting_bytes: 0,
            levels: Levels::default(),
        }
    }

    /// A request of `level` (0 to 63, higher ones are 63) arrives. If this says yes it is to be [`push`](Self::push)ed,
    /// behind those admitted before it and before anything is [`pop`](Self::pop)ped; else it is to be dropped.
    #[inline]
    pub fn admits(&mut self, level: u8) -> bool {
        let level = level.min(LEVELS as u8 - 1);
        let stats = &mut self.levels.0[usize::from(level)];
        stats.arrived += 1;
        if self.count < self.queue.capacity() {
            self.count += 1;
        } else {
            // 64 if there is room for none at all.
            let lowest = self.used.trailing_zeros() as u8;
            if level <= lowest {
                stats.refused += 1;
                return false;
            }
            self.leave(lowest);
        }
        self.counts[usize::from(level)] += 1;
        self.used |= 1 << level;
        true
    }

    /// One less will wait at a level.
    #[inline]
    fn leave(&mut self, level: u8) {
        let count = &mut self.counts[usize::from(level)];
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.used &= !(1 << level);
        }
    }

    /// Queues a request that was admitted, of `bytes` on the wire. Returns who has to go instead, if anybody, and why.
    pub fn push(&mut self, now_ns: u64, level: u8, bytes: u64, item: T) -> Option<(DropReason, T)> {
        let level = level.min(LEVELS as u8 - 1);
        self.waiting_bytes += bytes;
        self.levels.0[usize::from(level)].note_waiting(bytes);
        match self.queue.push(level, Entry { item, since_ns: now_ns, bytes: bytes as u32 }) {
            Pushed::Kept => None,
            Pushed::Evicted(lowest, entry) => {
                self.forget(lowest, &entry).evicted += 1;
                Some((DropReason::RequestEvicted, entry.item))
            }
            Pushed::Refused(entry) => {
                // Not admitted: nobody else's place was taken for it.
                self.forget(level, &entry).refused += 1;
                Some((DropReason::RequestQueueFull, entry.item))
            }
        }
    }

    /// Takes the request that goes next: level, bytes on the wire, and itself.
    pub fn pop(&mut self, now_ns: u64) -> Option<(u8, u64, T)> {
        let (level, entry) = self.queue.pop()?;
        self.leave(level);
        self.count -= 1;
        let waited_ns = now_ns.saturating_sub(entry.since_ns);
        self.forget(level, &entry).note_sent(entry.bytes.into(), waited_ns);
        Some((level, entry.bytes.into(), entry.item))
    }

    /// Gives up all that wait, without counting them as anything else than waiting.
    pub fn surrender(&mut self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.queue.pop().map(|(_, entry)| entry.item))
    }

    fn forget(&mut self, level: u8, entry: &Entry<T>) -> &mut ClassStats {
        self.waiting_bytes -= u64::from(entry.bytes);
        let stats = &mut self.levels.0[usize::from(level)];
        stats.note_unwaiting(entry.bytes.into());
        stats
    }

    /// Requests that wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Their bytes on the wire.
    #[inline]
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// The counters.
    pub fn levels(&self) -> &Levels {
        &self.levels
    }
}

/// Counters of each level.
#[derive(Debug, PartialEq, Eq)]
pub struct Levels(pub Box<[ClassStats; LEVELS]>);

impl Levels {
    /// All levels together.
    pub fn total(&self) -> ClassStats {
        let mut total = ClassStats::default();
        self.0.iter().for_each(|level| total.add(level));
        total
    }
}

impl Default for Levels {
    fn default() -> Self {
        Levels(Box::new([ClassStats::default(); LEVELS]))
    }
}

impl Clone for Levels {
    fn clone(&self) -> Self {
        Levels(self.0.clone())
    }

    // Copied on the packet path: nothing must be allocated.
    fn clone_from(&mut self, source: &Self) {
        self.0.copy_from_slice(&source.0[..]);
    }
}

impl Sum for Levels {
    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0.iter()).for_each(|(mine, theirs)| mine.add(theirs));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        /// Bursts with the early refusal end as the same arrivals do one by one without it, and whom it refuses is exactly
        /// who would have been refused.
        #[test]
        fn the_early_refusal_changes_nothing(
            capacity in 0usize..12,
            bursts in prop::collection::vec((prop::collection::vec(0u8..8, 0..20), 0usize..8), 1..30),
        ) {
            let (mut early, mut plain) = (Requests::new(capacity), PriorityQueue::new(capacity));
            let mut number = 0u32;
            for (burst, pops) in bursts {
                let first = number;
                let admitted: Vec<bool> = burst.iter().map(|level| early.admits(*level)).collect();
                for (level, admitted) in burst.iter().zip(admitted) {
                    let gone = match plain.push(*level, number) {
                        Pushed::Kept => None,
                        Pushed::Evicted(_, gone) => Some((DropReason::RequestEvicted, gone)),
                        Pushed::Refused(_) => {
                            prop_assert!(!admitted, "{} of {} was admitted for nothing", number, first);
                            number += 1;
                            continue;
                        }
                    };
                    prop_assert!(admitted);
                    prop_assert_eq!(early.push(0, *level, 100, number), gone);
                    number += 1;
                }
                for _ in 0..pops {
                    let popped = early.pop(7).map(|(level, _, item)| (level, item));
                    prop_assert_eq!(popped, plain.pop());
                }
                prop_assert!(early.levels().0.iter().all(ClassStats::balances));
                let total = early.levels().total();
                prop_assert_eq!((total.arrived, total.waiting), (u64::from(number), early.len() as u64));
                prop_assert_eq!(total.waiting_bytes, early.waiting_bytes());
            }
        }
    }

    #[test]
    fn counters_say_who_and_how_long() {
        let mut requests = Requests::new(1);
        assert!(requests.admits(10));
        assert_eq!(requests.push(1_000, 10, 84, 'a'), None);
        assert!(!requests.admits(10));
        assert!(requests.admits(11));
        assert!(!requests.admits(11), "the place is promised already");
        assert_eq!(requests.push(2_000, 11, 100, 'b'), Some((DropReason::RequestEvicted, 'a')));
        assert_eq!(requests.pop(2_512), Some((11, 100, 'b')));
        let [ten, eleven] = [10, 11].map(|level| requests.levels().0[level]);
        assert_eq!((ten.arrived, ten.evicted, ten.refused, ten.sent), (2, 1, 1, 0));
        assert_eq!((eleven.arrived, eleven.sent, eleven.longest_ns, eleven.sent_bytes), (2, 1, 512, 100));
    }
}
