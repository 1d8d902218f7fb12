//! A bounded priority queue of 64 levels, O(1).
//!
//! ```text
//! used:   | 0 .. 1 .. 1 .. 0 |  bit n: level n has something        highest first: leading_zeros, lowest: trailing_zeros
//! ends:   level -> (oldest, newest)                                 first come, first served within a level
//! slots:  [ item | older | newer ] x capacity                       allocated once; free ones are linked too
//! ```
//!
//! When it is full, whoever came last among those of the lowest level gives way: that is the arrival itself, if its level
//! is not above the lowest. So within a level nobody who waits is displaced by one who came later, and what is thrown
//! away has waited the least of all that could be.

/// Levels, from 0 (lowest) to 63.
pub const LEVELS: usize = 64;

const NONE: u32 = u32::MAX;

struct Slot<T> {
    item: Option<T>,
    older: u32,
    /// Of a free slot: the next free one.
    newer: u32,
}

#[derive(Clone, Copy)]
struct Ends {
    oldest: u32,
    newest: u32,
}

/// The queue. Nothing is allocated after [`new`](Self::new).
pub struct PriorityQueue<T> {
    slots: Box<[Slot<T>]>,
    ends: Box<[Ends; LEVELS]>,
    used: u64,
    free: u32,
    len: usize,
}

/// What came of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed<T> {
    /// It waits.
    Kept,
    /// It waits, and this one of a lower level (given first) does not any more.
    Evicted(u8, T),
    /// The queue is full of items of its level or higher ones: here it is.
    Refused(T),
}

impl<T> PriorityQueue<T> {
    /// An empty queue with room for `capacity` items, at most 2^32 - 2.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(NONE as usize - 1);
        let next = |at: usize| if at + 1 < capacity { at as u32 + 1 } else { NONE };
        PriorityQueue {
            slots: (0..capacity).map(|at| Slot { item: None, older: NONE, newer: next(at) }).collect(),
            ends: Box::new([Ends { oldest: NONE, newest: NONE }; LEVELS]),
            used: 0,
            free: if capacity > 0 { 0 } else { NONE },
            len: 0,
        }
    }

    /// Items that wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Items that there is room for.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The lowest level of which something waits.
    #[inline]
    pub fn lowest(&self) -> Option<u8> {
        (self.used != 0).then(|| self.used.trailing_zeros() as u8)
    }

    /// The highest level of which something waits.
    #[inline]
    pub fn highest(&self) -> Option<u8> {
        (self.used != 0).then(|| 63 - self.used.leading_zeros() as u8)
    }

    /// The highest level below this one of which something waits.
    #[inline]
    pub fn highest_below(&self, level: u8) -> Option<u8> {
        let used = self.used & ((1_u64 << level.min(LEVELS as u8 - 1)) - 1);
        (used != 0).then(|| 63 - used.leading_zeros() as u8)
    }

    /// Adds an item at a level; levels above 63 are 63.
    #[inline]
    pub fn push(&mut self, level: u8, item: T) -> Pushed<T> {
        let level = level.min(LEVELS as u8 - 1);
        if self.free != NONE {
            let at = self.free;
            self.free = self.slots[at as usize].newer;
            self.len += 1;
            self.append(level, at, item);
            return Pushed::Kept;
        }
        match self.lowest() {
            Some(lowest) if level > lowest => {
                let at = self.ends[lowest as usize].newest;
                match self.unlink_newest(lowest, at) {
                    Some(evicted) => {
                        self.append(level, at, item);
                        Pushed::Evicted(lowest, evicted)
                    }
                    None => Pushed::Refused(item), // cannot be: a linked slot is full
                }
            }
            _ => Pushed::Refused(item),
        }
    }

    /// Takes the item that has waited longest at the highest level, with its level.
    #[inline]
    pub fn pop(&mut self) -> Option<(u8, T)> {
        let level = self.highest()?;
        self.take(level).map(|item| (level, item))
    }

    /// The item that [`pop`](Self::pop) would take.
    #[inline]
    pub fn peek(&self) -> Option<&T> {
        self.oldest(self.highest()?)
    }

    /// The item that has waited longest at a level.
    #[inline]
    pub fn oldest(&self, level: u8) -> Option<&T> {
        let at = self.ends.get(usize::from(level))?.oldest;
        self.slots.get(at as usize)?.item.as_ref()
    }

    /// Takes it.
    #[inline]
    pub fn take(&mut self, level: u8) -> Option<T> {
        let ends = self.ends.get_mut(usize::from(level))?;
        let at = ends.oldest;
        let slot = self.slots.get_mut(at as usize)?;
        let newer = slot.newer;
        let item = slot.item.take();
        slot.newer = self.free;
        self.free = at;
        self.len -= 1;
        ends.oldest = newer;
        if newer == NONE {
            ends.newest = NONE;
            self.used &= !(1 << level);
        } else {
            self.slots[newer as usize].older = NONE;
        }
        item
    }

    #[inline]
    fn append(&mut self, level: u8, at: u32, item: T) {
        let ends = &mut self.ends[level as usize];
        self.slots[at as usize] = Slot { item: Some(item), older: ends.newest, newer: NONE };
        match ends.newest {
            NONE => {
                ends.oldest = at;
                self.used |= 1 << level;
            }
            before => self.slots[before as usize].newer = at,
        }
        ends.newest = at;
    }

    /// Takes the newest item of a level out of slot `at`, which is then in no list.
    fn unlink_newest(&mut self, level: u8, at: u32) -> Option<T> {
        let slot = &mut self.slots[at as usize];
        let (item, older) = (slot.item.take(), slot.older);
        let ends = &mut self.ends[level as usize];
        ends.newest = older;
        if older == NONE {
            ends.oldest = NONE;
            self.used &= !(1 << level);
        } else {
            self.slots[older as usize].newer = NONE;
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The specification: a list in order of arrival.
    struct Model {
        capacity: usize,
        waiting: Vec<(u8, u32)>,
    }

    impl Model {
        fn push(&mut self, level: u8, item: u32) -> Pushed<u32> {
            if self.waiting.len() < self.capacity {
                self.waiting.push((level, item));
                return Pushed::Kept;
            }
            // The lowest level; of several the last.
            let victim = (0..self.waiting.len()).rev().min_by_key(|at| self.waiting[*at].0);
            match victim {
                Some(at) if self.waiting[at].0 < level => {
                    let (lowest, gone) = self.waiting.remove(at);
                    self.waiting.push((level, item));
                    Pushed::Evicted(lowest, gone)
                }
                _ => Pushed::Refused(item),
            }
        }

        fn pop(&mut self) -> Option<(u8, u32)> {
            let first = (0..self.waiting.len()).rev().max_by_key(|at| self.waiting[*at].0)?;
            // `max_by_key` gives the last of equals: of those seen backwards, the oldest.
            Some(self.waiting.remove(first))
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn does_what_a_sorted_list_does(
            capacity in 0usize..20,
            steps in prop::collection::vec(prop::option::weighted(0.7, (0u8..6, prop::bool::ANY)), 0..300),
        ) {
            let mut queue = PriorityQueue::new(capacity);
            let mut model = Model { capacity, waiting: Vec::new() };
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some((level, high)) => {
                        let level = if high { 63 - level } else { level };
                        prop_assert_eq!(queue.push(level, number as u32), model.push(level, number as u32));
                    }
                    None => {
                        prop_assert_eq!(queue.peek().copied(), {
                            let first = (0..model.waiting.len()).rev().max_by_key(|at| model.waiting[*at].0);
                            first.map(|at| model.waiting[at].1)
                        });
                        prop_assert_eq!(queue.pop(), model.pop());
                    }
                }
                if number % 7 == 3 {
                    let level = (number % 6) as u8;
                    let first = model.waiting.iter().position(|(at, _)| *at == level);
                    prop_assert_eq!(queue.oldest(level).copied(), first.map(|at| model.waiting[at].1));
                    prop_assert_eq!(queue.take(level), first.map(|at| model.waiting.remove(at).1));
                }
                let levels = || model.waiting.iter().map(|(level, _)| *level);
                prop_assert_eq!(queue.len(), model.waiting.len());
                prop_assert_eq!((queue.lowest(), queue.highest()), (levels().min(), levels().max()));
                for below in [0, 1, 4, 60, 63] {
                    let lower = levels().filter(|level| *level < below).max();
                    prop_assert_eq!(queue.highest_below(below), lower);
                }
            }
            while let Some(item) = queue.pop() {
                prop_assert_eq!(Some(item), model.pop());
            }
            prop_assert!(model.waiting.is_empty() && queue.is_empty());
        }
    }

    #[test]
    fn the_newest_of_the_lowest_level_gives_way() {
        let mut queue = PriorityQueue::new(3);
        for (level, item) in [(5, 'a'), (3, 'b'), (3, 'c')] {
            assert_eq!(queue.push(level, item), Pushed::Kept);
        }
        assert_eq!(queue.push(3, 'd'), Pushed::Refused('d'), "who comes last at the lowest level");
        assert_eq!(queue.push(4, 'e'), Pushed::Evicted(3, 'c'), "not b, who has waited longer");
        let all: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(all, [(5, 'a'), (4, 'e'), (3, 'b')]);
    }

    #[test]
    fn items_are_dropped_with_the_queue_and_levels_end_at_63() {
        let item = std::rc::Rc::new(());
        let mut queue = PriorityQueue::new(4);
        (0..4).for_each(|_| assert_eq!(queue.push(200, item.clone()), Pushed::Kept));
        assert_eq!((queue.highest(), queue.capacity()), (Some(63), 4));
        assert!(queue.oldest(64).is_none() && queue.take(64).is_none());
        drop(queue);
        assert_eq!(std::rc::Rc::strong_count(&item), 1);
    }
}
