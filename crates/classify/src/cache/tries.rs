//! How often a full table is asked for room.
//!
//! Who finds no room has looked at all that lies in two buckets: more than the rest of a packet's lookup costs. In a table that is full of
//! what was used just now, every packet of a new flow would pay that. So after a try that has failed some are left out: 1, 2, 4, ... up to
//! [`LONGEST`], until one succeeds.

/// The most tries in a row that are left out.
const LONGEST: u32 = 64;

/// What one table's tries have come to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tries {
    /// To be left out.
    rest: u32,
    /// To be left out after the next failure.
    next: u32,
}

impl Tries {
    /// Whether to try now.
    #[inline(always)]
    pub(super) fn now(&mut self) -> bool {
        let now = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        now
    }

    /// What the try came to.
    #[inline(always)]
    pub(super) fn came_to(&mut self, room: bool) {
        if room {
            *self = Tries::default();
        } else {
            self.next = (2 * self.next).clamp(1, LONGEST);
            self.rest = self.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_make_tries_rare_and_one_success_makes_them_all_again() {
        let mut tries = Tries::default();
        let mut made: Vec<usize> = Vec::new();
        for turn in 0..400 {
            if tries.now() {
                made.push(turn);
                tries.came_to(false);
            }
        }
        assert_eq!(made, [0, 2, 5, 10, 19, 36, 69, 134, 199, 264, 329, 394]);
        while !tries.now() {}
        tries.came_to(true);
        assert!(tries.now() && tries.now());
    }
}
