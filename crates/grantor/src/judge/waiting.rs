//! Questions that wait for their answers, in the order of asking, and each found by its place.
//!
//! ```text
//! places: [ number, ticket, asked | before | next ] x queue      allocated once; free ones are linked by `next`
//! oldest --next--> ... --next--> newest                          an answer may come for any of them: O(1)
//! ```
//! A place is used again and again: the question's number tells whether an answer is for who has it now.

const NONE: u32 = u32::MAX;
/// The number of a free place: no question has it.
const FREE: u64 = u64::MAX;

struct Place {
    number: u64,
    ticket: u32,
    asked_ns: u64,
    before: u32,
    next: u32,
}

pub(super) struct Waiting {
    places: Box<[Place]>,
    oldest: u32,
    newest: u32,
    free: u32,
    len: usize,
}

impl Waiting {
    /// Room for so many.
    pub(super) fn new(capacity: usize) -> Waiting {
        let capacity = capacity.min(NONE as usize - 1);
        let place = |at: usize| {
            let next = if at + 1 < capacity { at as u32 + 1 } else { NONE };
            Place { number: FREE, ticket: 0, asked_ns: 0, before: NONE, next }
        };
        let free = if capacity > 0 { 0 } else { NONE };
        Waiting { places: (0..capacity).map(place).collect(), oldest: NONE, newest: NONE, free, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// When the one that has waited longest was asked.
    pub(super) fn oldest_ns(&self) -> Option<u64> {
        self.places.get(self.oldest as usize).map(|place| place.asked_ns)
    }

    /// Adds a question, asked not before those that are there; its place, if there is one.
    pub(super) fn push(&mut self, number: u64, ticket: u32, asked_ns: u64) -> Option<u32> {
        let at = self.free;
        let place = self.places.get_mut(at as usize)?;
        self.free = place.next;
        *place = Place { number, ticket, asked_ns, before: self.newest, next: NONE };
        match self.places.get_mut(self.newest as usize) {
            Some(before) => before.next = at,
            None => self.oldest = at,
        }
        self.newest = at;
        self.len += 1;
        Some(at)
    }

    /// The ticket of the one that has waited longest, which waits no more.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let at = self.oldest;
        let number = self.places.get(at as usize)?.number;
        self.take(at, number)
    }

    /// The ticket of this question, which waits no more; none if it does not wait.
    pub(super) fn take(&mut self, at: u32, number: u64) -> Option<u32> {
        let place = self.places.get_mut(at as usize).filter(|place| place.number == number)?;
        let Place { ticket, before, next, .. } = *place;
        (place.number, place.next) = (FREE, self.free);
        self.free = at;
        match self.places.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => self.oldest = next,
        }
        match self.places.get_mut(next as usize) {
            Some(next) => next.before = before,
            None => self.newest = before,
        }
        self.len -= 1;
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list: places of those that have gone, and of none, are asked for as well.
        #[test]
        fn does_what_a_list_does(
            capacity in 0_usize..10,
            steps in prop::collection::vec((0_u8..4, 0_usize..12), 0..300),
        ) {
            let mut waiting = Waiting::new(capacity);
            // Number, ticket, when, place.
            let mut model: Vec<(u64, u32, u64, u32)> = Vec::new();
            let mut gone = vec![(0, NONE), (0, 0)];
            for (number, (act, which)) in (1_u64..).zip(steps) {
                match act {
                    0 => {
                        let oldest = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(waiting.pop(), oldest.map(|(_, ticket, ..)| ticket));
                        gone.extend(oldest.map(|(number, _, _, at)| (number, at)));
                    }
                    1 if which < model.len() => {
                        let (number, ticket, _, at) = model.remove(which);
                        prop_assert_eq!(waiting.take(at, number), Some(ticket));
                        gone.push((number, at));
                    }
                    1 => {
                        let (number, at) = gone[which % gone.len()];
                        prop_assert_eq!(waiting.take(at, number), None);
                    }
                    _ => {
                        let (ticket, asked_ns) = (number as u32 * 7, number * 10);
                        let at = waiting.push(number, ticket, asked_ns);
                        prop_assert_eq!(at.is_some(), model.len() < capacity);
                        model.extend(at.map(|at| (number, ticket, asked_ns, at)));
                    }
                }
                prop_assert_eq!(waiting.len(), model.len());
                prop_assert_eq!(waiting.oldest_ns(), model.first().map(|first| first.2));
            }
        }
    }
}
