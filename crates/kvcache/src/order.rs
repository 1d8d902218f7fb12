//! The order of a set's ways, newest first, and which way has to go: as `tidemill-cachesim` has it (`src/sets.rs`), on ways instead of keys. A test
//! holds the two together. What S3-FIFO needs besides is the simulator's own (`tidemill_cachesim::sets::s3fifo`), in [`crate::tier`].
//!
//! ```text
//! ways 2 0 3 1   len 3   marks 0b010   hand 2       way 2 is the newest, 3 the oldest and under SIEVE's hand, 0 was used, 1 is free
//! ```

use tidemill_cachesim::policy::Policy;
use tidemill_cachesim::random::Random;
use tidemill_cachesim::sets::WAYS_MAX;

/// One set's order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    /// Those in use first.
    ways: [u8; WAYS_MAX],
    count: u8,
    len: u8,
    /// Bit by place: used since it came or since the hand went by.
    marks: u16,
    /// The place that SIEVE's hand rests on; `count`: at the oldest.
    hand: u8,
}

impl Order {
    pub(crate) fn new(count: usize) -> Self {
        let mut ways = [0; WAYS_MAX];
        for (at, way) in ways.iter_mut().enumerate() {
            *way = at as u8;
        }
        Order { ways, count: count as u8, len: 0, marks: 0, hand: count as u8 }
    }

    /// The ways in use, newest first.
    #[inline]
    pub(crate) fn ways(&self) -> &[u8] {
        &self.ways[..self.len.into()]
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == self.count
    }

    /// The way at this place was used.
    #[inline]
    pub(crate) fn used(&mut self, place: usize, policy: Policy) {
        match policy {
            Policy::Lru => self.ways[..=place].rotate_right(1),
            Policy::Clock | Policy::Sieve => self.marks |= 1 << place,
            _ => {}
        }
    }

    /// The oldest becomes the newest. With S3-FIFO, which has neither marks nor a hand here.
    pub(crate) fn again(&mut self) {
        let len = usize::from(self.len);
        self.ways[..len].rotate_right(1);
    }

    /// The place whose way has to go, of a full set; S3-FIFO's queues say it themselves.
    pub(crate) fn victim(&mut self, policy: Policy, source: &mut Random) -> usize {
        let count = usize::from(self.count);
        let last = count - 1;
        match policy {
            Policy::Fifo | Policy::Lru | Policy::S3Fifo => last,
            Policy::Random => source.below(count as u64) as usize,
            Policy::Clock => {
                while self.marks >> last & 1 == 1 {
                    self.ways[..count].rotate_right(1);
                    let all = ((1_u32 << count) - 1) as u16;
                    self.marks = (u32::from(self.marks) << 1) as u16 & all & !1;
                }
                last
            }
            Policy::Sieve => {
                let mut at = usize::from(self.hand).min(last);
                while self.marks >> at & 1 == 1 {
                    self.marks &= !(1 << at);
                    at = if at == 0 { last } else { at - 1 };
                }
                self.hand = if at == 0 { self.count } else { at as u8 };
                at
            }
        }
    }

    /// A free way becomes the newest; which. The set is not full.
    pub(crate) fn insert(&mut self) -> usize {
        let place = usize::from(self.len);
        self.ways[..=place].rotate_right(1);
        if self.hand < self.count {
            self.hand += 1;
        }
        self.marks = (u32::from(self.marks) << 1) as u16;
        self.len += 1;
        self.ways[0].into()
    }

    /// A free way comes to lie at this place; which. With S3-FIFO. The set is not full.
    pub(crate) fn insert_at(&mut self, place: usize) -> usize {
        let len = usize::from(self.len);
        self.ways[place..=len].rotate_right(1);
        self.len += 1;
        self.ways[place].into()
    }

    /// The way at this place becomes free.
    pub(crate) fn remove(&mut self, place: usize) {
        let len = usize::from(self.len);
        self.ways[place..len].rotate_left(1);
        let (marks, newer) = (u32::from(self.marks), (1_u32 << place) - 1);
        self.marks = (marks & newer | marks >> 1 & !newer) as u16;
        let hand = usize::from(self.hand);
        if hand == place {
            self.hand = if place == 0 { self.count } else { place as u8 - 1 };
        } else if hand > place && self.hand < self.count {
            self.hand -= 1;
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_cachesim::policy::Cache;
    use tidemill_cachesim::sets::Sets;

    /// One set of so many ways, beside the simulator's: the same hits, the same evictions.
    #[test]
    fn as_the_simulator_has_it() {
        for policy in [Policy::Fifo, Policy::Lru, Policy::Clock, Policy::Sieve, Policy::Random] {
            for ways in [1, 2, 4, 8, 16] {
                let keys = 3 * ways;
                let mut simulated = Sets::new(&vec![0; keys], ways, ways, policy, 5).unwrap();
                let (mut order, mut kept, mut source) =
                    (Order::new(ways), vec![u32::MAX; ways], Random::new(5));
                let mut draw = Random::new(9 + ways as u64);
                for _ in 0..5000 {
                    let (key, removes) = (draw.below(keys as u64) as u32, draw.below(10) == 0);
                    let place = order.ways().iter().position(|&way| kept[usize::from(way)] == key);
                    if removes {
                        assert_eq!(simulated.remove(key), place.is_some());
                        place.into_iter().for_each(|place| order.remove(place));
                        continue;
                    }
                    assert_eq!(simulated.get(key), place.is_some(), "{policy:?} {ways}");
                    if let Some(place) = place {
                        order.used(place, policy);
                        continue;
                    }
                    let mut evicted = None;
                    if order.is_full() {
                        let victim = order.victim(policy, &mut source);
                        evicted = Some(kept[usize::from(order.ways()[victim])]);
                        order.remove(victim);
                    }
                    kept[order.insert()] = key;
                    assert_eq!(simulated.insert(key), evicted, "{policy:?} {ways}");
                }
            }
        }
    }
}
