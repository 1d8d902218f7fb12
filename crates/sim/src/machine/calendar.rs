//! When something that serves one request at a time is free: a port of a slice, a DRAM channel, a hash unit, a core's front end.
//!
//! Time is cut into slots, one request each. A request takes the first free slot from its time on, so what it is given does not
//! depend on whether requests that come later in time were asked before it: requests may be put in any order, as they are where an out-of-order core asks for memory.
//!
//! ```text
//! slot     | 0 | 1 | 2 | 3 | 4 |        a request at 2 takes slot 3 and waits one slot
//! taken          x   x       x
//! ```

/// Picoseconds since the beginning of the simulation.
pub type Time = u64;

/// Slots that are remembered. A request this much behind the latest may find a slot free that was taken.
const SLOTS: usize = 1 << 12;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Calendar {
    slot_ps: u64,
    /// Of slot `s` at `s % SLOTS`: `s + 1` if it is taken.
    taken: Vec<u64>,
    served: u64,
    waited_ps: u64,
}

impl Calendar {
    /// One request in so many picoseconds (at least one).
    pub fn new(slot_ps: u64) -> Self {
        Calendar { slot_ps: slot_ps.max(1), taken: vec![0; SLOTS], served: 0, waited_ps: 0 }
    }

    /// Takes a slot for a request at a time; when its service begins.
    #[inline]
    pub fn reserve(&mut self, at: Time) -> Time {
        let mut slot = at / self.slot_ps;
        while self.taken[slot as usize % SLOTS] == slot + 1 {
            slot += 1;
        }
        self.taken[slot as usize % SLOTS] = slot + 1;
        self.served += 1;
        let start = at.max(slot * self.slot_ps);
        self.waited_ps += start - at;
        start
    }

    /// Requests served.
    pub fn served(&self) -> u64 {
        self.served
    }

    /// What all requests have waited.
    pub fn waited_ps(&self) -> u64 {
        self.waited_ps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_cachesim::random::Random;

    #[test]
    fn one_request_a_slot_and_none_waits_without_need() {
        let mut calendar = Calendar::new(10);
        assert_eq!([3, 3, 3, 41].map(|at| calendar.reserve(at)), [3, 10, 20, 41]);
        assert_eq!((calendar.served(), calendar.waited_ps()), (4, 24));
    }

    #[test]
    fn the_order_of_asking_makes_no_difference_to_what_is_served_when() {
        let mut random = Random::new(1);
        for _ in 0..200 {
            let mut at: Vec<Time> = (0..50).map(|_| random.below(600) * 10).collect();
            let served = |at: &[Time]| {
                let mut calendar = Calendar::new(10);
                let mut starts: Vec<Time> = at.iter().map(|&at| calendar.reserve(at)).collect();
                starts.sort_unstable();
                starts
            };
            let shuffled = served(&at);
            at.sort_unstable();
            assert_eq!(shuffled, served(&at));
        }
    }
}
