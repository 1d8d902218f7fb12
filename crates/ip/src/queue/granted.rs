//! Packets that their destinations want: queues by destination, each with RED, served in turn by bytes.
//!
//! ```text
//! destination --hash, with a seed--> queue --RED--> | . . . |  } deficit round robin (Shreedhar, Varghese 1995): each in
//!                                    queue --RED--> | . |      } turn sends what a longest packet's length allows, and keeps
//!                                     ...                      } what it did not use for its next turn
//! ```
//!
//! Who shares a queue with a flooded destination suffers with it. So the seed changes every now and then, and there are two
//! sets of queues: from the change on, packets go into the other set, which is served when the first is empty. So no packet
//! overtakes an earlier one of its destination, not even across the change; the cost is that for the time that the first set
//! takes to drain (its packets at the link's rate: at most `capacity` of them) destinations are served by two rounds in a row
//! rather than by one. RED's averages begin anew with the seed. A change waits for the first set to be empty.
//!
//! Slots are shared by all queues; when none is free the arrival is dropped, whosever they are: RED keeps one queue from
//! having them all. All work is bounded: a push and a pop touch one queue.

use super::red::{Red, RedParameters};
use super::stats::ClassStats;
use tidemill_burst::DropReason;
use tidemill_port::rng::{Rng, mix};

/// What the queues are like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrantedOptions {
    /// Packets that may wait in all.
    pub capacity: usize,
    /// Queues; at least one.
    pub queues: usize,
    /// RED's constants, the same for each.
    pub red: RedParameters,
    /// How often the seed changes, in ns; 0 never.
    pub reseed_ns: u64,
}

const NONE: u32 = u32::MAX;

struct Slot<T> {
    item: Option<T>,
    since_ns: u64,
    bytes: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct Queue {
    oldest: u32,
    newest: u32,
    len: u32,
    /// The next one whose turn it is.
    next: u32,
    deficit: u64,
    red: Red,
}

const EMPTY: Queue = Queue { oldest: NONE, newest: NONE, len: 0, next: NONE, deficit: 0, red: Red::EMPTY };

/// A round: who has something to send.
#[derive(Clone, Copy)]
struct Round {
    first: u32,
    last: u32,
}

/// The queues, with their counters. Nothing is allocated after [`new`](Self::new).
pub struct Granted<T> {
    options: GrantedOptions,
    slots: Box<[Slot<T>]>,
    free: u32,
    /// Two sets of `options.queues`.
    queues: Box<[Queue]>,
    rounds: [Round; 2],
    /// The set that packets go into; the other one is served first.
    current: usize,
    seed: u64,
    reseed_at_ns: u64,
    random: Rng,
    /// What a queue may send in its turn: as much as the longest packet.
    quantum: u64,
    stats: ClassStats,
}

impl<T> Granted<T> {
    /// Empty queues; `seed` begins all that is random.
    pub fn new(options: GrantedOptions, seed: u64) -> Self {
        let capacity = options.capacity.min(NONE as usize - 1);
        let next = |at: usize| if at + 1 < capacity { at as u32 + 1 } else { NONE };
        let slot = |at| Slot { item: None, since_ns: 0, bytes: 0, next: next(at) };
        let options = GrantedOptions { queues: options.queues.clamp(1, 1 << 24), ..options };
        let mut random = Rng::new(seed);
        Granted {
            slots: (0..capacity).map(slot).collect(),
            free: if capacity > 0 { 0 } else { NONE },
            queues: vec![EMPTY; 2 * options.queues].into(),
            rounds: [Round { first: NONE, last: NONE }; 2],
            current: 0,
            seed: random.bits(),
            reseed_at_ns: 0,
            random,
            quantum: super::wire_bytes(1514),
            stats: ClassStats::default(),
            options,
        }
    }

    /// The queue of a destination, until the next [`reseed`](Self::reseed).
    #[inline]
    pub fn queue(&self, destination: u128) -> u32 {
        let folded = mix(destination as u64 ^ self.seed) ^ (destination >> 64) as u64;
        let spread = u128::from(mix(folded.wrapping_add(self.seed)));
        let at = (spread * self.options.queues as u128) >> 64;
        (self.current * self.options.queues) as u32 + at as u32
    }

    /// Changes the seed if it is time to, and if nothing waits that was queued before the last change.
    pub fn reseed(&mut self, now_ns: u64) {
        if self.options.reseed_ns == 0 || now_ns < self.reseed_at_ns {
            return;
        }
        // The first time only sets the clock.
        if self.reseed_at_ns > 0 {
            let other = 1 - self.current;
            if self.rounds[other].first != NONE {
                return;
            }
            self.seed = self.random.bits();
            self.current = other;
            let first = other * self.options.queues;
            self.queues[first..first + self.options.queues].fill(EMPTY);
        }
        self.reseed_at_ns = now_ns.saturating_add(self.options.reseed_ns);
    }

    /// A packet arrives that does not have to wait.
    #[inline]
    pub fn pass(&mut self, bytes: u64) {
        self.stats.arrived += 1;
        self.stats.note_sent(bytes, 0);
    }

    /// A packet of `bytes` on the wire arrives at a [`queue`](Self::queue). Comes back if it is to be dropped, and why.
    pub fn push(&mut self, now_ns: u64, queue: u32, bytes: u64, item: T) -> Option<(DropReason, T)> {
        self.stats.arrived += 1;
        let Some(place) = self.queues.get_mut(queue as usize) else {
            self.stats.refused += 1;
            return Some((DropReason::GrantedQueueFull, item));
        };
        if place.red.drops(&self.options.red, place.len as usize, now_ns, self.random.unit()) {
            self.stats.early += 1;
            return Some((DropReason::RedDrop, item));
        }
        let at = self.free;
        if at == NONE {
            self.stats.refused += 1;
            return Some((DropReason::GrantedQueueFull, item));
        }
        let slot = &mut self.slots[at as usize];
        self.free = slot.next;
        *slot = Slot { item: Some(item), since_ns: now_ns, bytes: bytes as u32, next: NONE };
        place.len += 1;
        let before = std::mem::replace(&mut place.newest, at);
        self.quantum = self.quantum.max(bytes);
        self.stats.note_waiting(bytes);
        if before == NONE {
            place.oldest = at;
            self.line_up(queue);
        } else {
            self.slots[before as usize].next = at;
        }
        None
    }

    /// Takes the packet that goes next: bytes on the wire, and itself.
    pub fn pop(&mut self, now_ns: u64) -> Option<(u64, T)> {
        let other = 1 - self.current;
        let set = if self.rounds[other].first != NONE { other } else { self.current };
        let number = self.rounds[set].first;
        let queue = self.queues.get_mut(number as usize)?;
        let at = queue.oldest;
        let slot = &mut self.slots[at as usize];
        let (item, bytes, waited_ns) =
            (slot.item.take()?, u64::from(slot.bytes), now_ns.saturating_sub(slot.since_ns));
        if queue.deficit < bytes {
            queue.deficit += self.quantum;
        }
        queue.deficit -= bytes;
        queue.oldest = std::mem::replace(&mut slot.next, self.free);
        queue.len -= 1;
        self.free = at;
        if queue.oldest == NONE {
            queue.newest = NONE;
            queue.deficit = 0;
            queue.red.emptied(now_ns);
            self.step_out(set);
        } else if queue.deficit < u64::from(self.slots[queue.oldest as usize].bytes) {
            self.step_out(set);
            self.line_up(number);
        }
        self.stats.note_unwaiting(bytes);
        self.stats.note_sent(bytes, waited_ns);
        Some((bytes, item))
    }

    /// Gives up all that wait, without counting them as anything else than waiting.
    pub fn surrender(&mut self) -> impl Iterator<Item = T> {
        self.slots.iter_mut().filter_map(|slot| slot.item.take())
    }

    /// Puts a queue at its set's round's end.
    fn line_up(&mut self, number: u32) {
        let set = usize::from(number as usize >= self.options.queues);
        let round = &mut self.rounds[set];
        self.queues[number as usize].next = NONE;
        match std::mem::replace(&mut round.last, number) {
            NONE => round.first = number,
            before => self.queues[before as usize].next = number,
        }
    }

    /// Takes the first queue out of its set's round.
    fn step_out(&mut self, set: usize) {
        let round = &mut self.rounds[set];
        round.first = self.queues[round.first as usize].next;
        if round.first == NONE {
            round.last = NONE;
        }
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.stats.waiting == 0
    }

    /// Bytes on the wire of those that wait.
    #[inline]
    pub fn waiting_bytes(&self) -> u64 {
        self.stats.waiting_bytes
    }

    /// The counters.
    pub fn stats(&self) -> &ClassStats {
        &self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap};

    const NO_RED: RedParameters =
        RedParameters { min: 1e9, max: 2e9, max_p: 0.1, weight: 0.002, packet_ns: 1000.0 };

    fn options(capacity: usize, queues: usize) -> GrantedOptions {
        GrantedOptions { capacity, queues, red: NO_RED, reseed_ns: 1_000 }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        /// Whatever comes, goes and is re-seeded: each destination's packets leave in order, and none is lost.
        #[test]
        fn order_holds_across_seeds(
            capacity in 1usize..40,
            queues in 1usize..6,
            seed in any::<u64>(),
            steps in prop::collection::vec((0u8..10, 0u128..8, 60u64..3000, 0u64..400), 0..400),
        ) {
            let mut granted = Granted::new(options(capacity, queues), seed);
            let (mut now, mut sent) = (1u64, 0u64);
            let mut waiting: HashMap<u128, Vec<(u32, u64)>> = HashMap::new();
            let mut check = |granted: &mut Granted<(u128, u32)>, waiting: &mut HashMap<u128, Vec<(u32, u64)>>, now| {
                let Some((bytes, (destination, number))) = granted.pop(now) else { return Ok(false) };
                sent += bytes;
                prop_assert_eq!((number, bytes), waiting.get_mut(&destination).unwrap().remove(0));
                Ok(true)
            };
            for (number, (what, destination, bytes, pass)) in steps.into_iter().enumerate() {
                now += pass;
                granted.reseed(now);
                if what < 6 {
                    let number = number as u32;
                    let full = granted.stats().waiting == capacity as u64;
                    let back = granted.push(now, granted.queue(destination), bytes, (destination, number));
                    prop_assert_eq!(back.is_some(), full);
                    if back.is_none() {
                        waiting.entry(destination).or_default().push((number, bytes));
                    }
                } else {
                    check(&mut granted, &mut waiting, now)?;
                }
                prop_assert!(granted.stats().balances());
                let count: usize = waiting.values().map(Vec::len).sum();
                prop_assert_eq!(granted.stats().waiting, count as u64);
            }
            while check(&mut granted, &mut waiting, now)? {}
            prop_assert!(waiting.values().all(Vec::is_empty) && granted.is_empty());
            prop_assert_eq!((granted.waiting_bytes(), granted.stats().sent_bytes), (0, sent));
        }
    }

    /// Destinations that fall into different queues.
    fn apart(granted: &Granted<u128>, count: usize) -> Vec<u128> {
        let mut by_queue = BTreeMap::new();
        (0..10_000u128).for_each(|d| {
            by_queue.entry(granted.queue(d)).or_insert(d);
        });
        by_queue.into_values().take(count).collect()
    }

    #[test]
    fn turns_are_by_bytes_not_by_packets() {
        let mut granted = Granted::new(options(6_000, 16), 1);
        let destinations = apart(&granted, 3);
        for n in 0..1000 {
            for (destination, bytes) in destinations.iter().zip([84, 1538, 600]) {
                let back = granted.push(n, granted.queue(*destination), bytes, *destination);
                assert!(back.is_none());
            }
        }
        let mut sent = HashMap::new();
        let mut all = 0;
        // As long as all three have something: the one with the shortest packets has 84,000 bytes.
        while all < 3 * 80_000 {
            let (bytes, destination) = granted.pop(2_000).unwrap();
            *sent.entry(destination).or_insert(0) += bytes;
            all += bytes;
        }
        for destination in &destinations {
            // Deficit round robin: no two apart by more than a turn and a packet.
            assert!(sent[destination].abs_diff(all / 3) <= 2 * 1538, "{sent:?}");
        }
    }

    #[test]
    fn a_flooded_destination_is_held_down_by_red_and_others_are_not() {
        let red = RedParameters { min: 16.0, max: 48.0, max_p: 0.1, weight: 0.002, packet_ns: 67.0 };
        let mut granted = Granted::new(GrantedOptions { red, ..options(2_048, 16) }, 3);
        let [flooded, modest] = apart(&granted, 2)[..] else { panic!() };
        // Ten of one and one of the other for each two that leave.
        for now in 0..20_000 {
            for _ in 0..10 {
                granted.push(now, granted.queue(flooded), 1538, flooded);
            }
            let back = granted.push(now, granted.queue(modest), 1538, modest);
            assert!(back.is_none(), "at {now}");
            assert!(granted.pop(now).is_some() | granted.pop(now).is_some());
        }
        let stats = granted.stats();
        assert!(stats.early > 170_000 && stats.refused == 0, "{stats:?}");
        assert!(stats.waiting < 500, "{}", stats.waiting);
    }

    #[test]
    fn destinations_spread_over_the_queues_and_seeds_mix_them_anew() {
        let mut granted = Granted::<u128>::new(options(1, 64), 5);
        granted.reseed(1);
        let place =
            |granted: &Granted<u128>| (0..6400u128).map(|d| granted.queue(d) % 64).collect::<Vec<_>>();
        let before = place(&granted);
        let count = |q| before.iter().filter(|at| **at == q).count();
        // 100 expected of each, standard deviation 10; the seed is fixed.
        assert!(
            (0..64).all(|q| (55..150).contains(&count(q))),
            "{:?}",
            (0..64).map(count).collect::<Vec<_>>()
        );
        granted.reseed(2_000);
        let same = before.iter().zip(place(&granted)).filter(|(a, b)| **a == *b).count();
        assert!(same < 200, "{same} of 6400 stayed where they were");
        // The high half counts too.
        let high: std::collections::HashSet<_> = (0..64u128).map(|d| granted.queue(d << 64)).collect();
        assert!(high.len() > 30, "{}", high.len());
    }
}
