//! How many keys the masks are asked for while there is little room.
//!
//! A key that no megaflow has costs a probe for each mask. Without a flood that is paid once: the key then gets a megaflow. In a flood of keys that never
//! come again it is paid for each of them, and in vain, and with a hundred masks it is most of what such a packet costs. So while there is
//! [little room](super::door), the last [`WINDOW`] keys that were asked for tell: if fewer than half of them had a megaflow, only one key in [`SAMPLED`] is
//! asked for, and the rules, which answer many keys at once, decide on the others. The sample sees when megaflows are worth it again.
//!
//! Who is used is found all the same: by the exact matches, and by the signatures, each of which is one probe.

/// Keys that are looked back at.
const WINDOW: u32 = 256;

/// While it is in vain, one key in so many is asked for.
pub(super) const SAMPLED: u32 = 16;

/// With fewer masks it costs no more than the rules.
pub(super) const FEWEST_MASKS: usize = 4;

/// What asking has come to lately.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sparing {
    asked: u32,
    found: u32,
    in_vain: bool,
    /// Of those that are not asked for.
    turn: u32,
}

impl Sparing {
    /// Whether to ask for the next key.
    #[inline(always)]
    pub(super) fn asks(&mut self) -> bool {
        if !self.in_vain {
            return true;
        }
        self.turn += 1;
        let asks = self.turn >= SAMPLED;
        if asks {
            self.turn = 0;
        }
        asks
    }

    /// Of so many keys that were asked for so many had a megaflow.
    #[inline(always)]
    pub(super) fn came_to(&mut self, asked: usize, found: usize) {
        (self.asked, self.found) = (self.asked + asked as u32, self.found + found as u32);
        if self.asked >= WINDOW {
            self.in_vain = 2 * self.found < self.asked;
            (self.asked, self.found) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_vain_is_tried_seldom_until_it_is_not() {
        let mut sparing = Sparing::default();
        let mut run = |keys: usize, found: bool| {
            let asked = (0..keys).filter(|_| {
                let asks = sparing.asks();
                if asks {
                    sparing.came_to(1, usize::from(found));
                }
                asks
            });
            asked.count()
        };
        assert_eq!(run(1000, true), 1000);
        // At most two windows until it is seen.
        let asked = run(100_000, false);
        assert!((6200..6200 + 2 * 256).contains(&asked), "{asked}");
        let asked = run(100_000, true);
        assert!(asked > 100_000 - 17 * 256 && asked < 100_000, "{asked}");
    }
}
