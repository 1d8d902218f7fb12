//! How many keys the masks are asked for.
//!
//! A key that no megaflow has costs a probe for each mask. Without a flood that is paid once: the key then gets a megaflow. In a flood of keys that never
//! come again it is paid for each of them, and in vain, and with a hundred masks it is most of what such a packet costs. Nor is a megaflow worth it that
//! is found behind a hundred masks, where the rules are a few tables. So the last [`WINDOW`] keys that were asked for tell:
//!
//! * while there is [little room](super::door), whether fewer than half of them had a megaflow;
//! * always, whether those that had one had it behind more masks than the rules touch lines, and [`BESIDES`].
//!
//! Then only the keys of one group in [`SAMPLED`] are asked for, and with many masks so few that it is [`PROBES`] a key, and the rules, which answer many keys at once, decide
//! on the others. A whole group, for its probes of one mask wait for memory together. The sample sees when megaflows are worth it again; and behind how many masks they are
//! is found out anew at each [look](super::Cache::maintain), for masks come in another order then.
//!
//! Who is used is found all the same: by the exact matches, and by the signatures, each of which is one probe. Where megaflows are [near](super::near) neither is asked:
//! there all keys are asked for that may have a megaflow that a packet has [found](super::filter::Standing) before, and what is here is about the others alone.

/// Keys that are looked back at.
const WINDOW: u32 = 256;

/// While it is in vain, the keys of one group in so many are asked for, or fewer.
const SAMPLED: usize = 16;

/// While it is in vain, probes for each key at most, beyond [`SAMPLED`].
const PROBES: usize = 2;

/// With fewer masks it costs no more than the rules.
pub(super) const FEWEST_MASKS: usize = 4;

/// What a decision by the rules costs besides the lines that the lookup touches, in probes.
const BESIDES: u64 = 16;

/// So many filters count as a probe here: the rules, many keys at once, are cheaper than that.
pub(super) const FILTERS: usize = 4;

/// Parts of a line that prices are kept in: each new one counts for one part.
const PARTS: u64 = 8;

/// What asking has come to lately.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sparing {
    /// Whether there was room.
    room: bool,
    asked: u32,
    found: u32,
    /// Masks that those that were found were asked behind, their own included.
    depth: u64,
    in_vain: bool,
    deep: bool,
    /// Lines of the rules for a key, in [`PARTS`]; 0 before any was looked at.
    price: u64,
    /// Keys that came, less those that groups which were asked for stand for.
    turn: usize,
}

impl Sparing {
    /// What was while there was room, or was none, says nothing now.
    #[inline(always)]
    pub(super) fn begin(&mut self, room: bool) {
        if self.room != room {
            (self.room, self.in_vain) = (room, false);
            (self.asked, self.found, self.depth) = (0, 0, 0);
        }
    }

    /// Masks are in another order: how deep keys lay in the old one says nothing now.
    pub(super) fn look(&mut self) {
        if std::mem::take(&mut self.deep) {
            (self.asked, self.found, self.depth) = (0, 0, 0);
        }
    }

    /// Whether megaflows are found behind too many masks.
    #[inline(always)]
    pub(super) fn is_deep(&self) -> bool {
        self.deep
    }

    /// Whether to ask so many masks for the next group, of so many keys.
    #[inline(always)]
    pub(super) fn asks(&mut self, masks: usize, keys: usize) -> bool {
        if !self.in_vain && !self.deep {
            return true;
        }
        self.turn += keys;
        let left = self.turn.checked_sub(keys * SAMPLED.max(masks / PROBES));
        self.turn = left.unwrap_or(self.turn);
        left.is_some()
    }

    /// Of so many keys that were asked for so many had a megaflow, behind so many masks together. `lines` tells what the rules touch for one of the keys.
    #[inline(always)]
    pub(super) fn came_to(&mut self, asked: usize, found: usize, depth: u64, lines: impl FnOnce() -> usize) {
        (self.asked, self.found) = (self.asked + asked as u32, self.found + found as u32);
        self.depth += depth;
        if self.asked >= WINDOW {
            self.judge(lines);
        }
    }

    #[cold]
    fn judge(&mut self, lines: impl FnOnce() -> usize) {
        let found = u64::from(self.found);
        self.in_vain = !self.room && 2 * self.found < self.asked;
        // Whatever the rules touch: it is not asked for where it does not matter.
        self.deep = self.depth > BESIDES * found;
        if self.deep {
            let lines = lines() as u64;
            let before = if self.price == 0 { PARTS * lines } else { self.price };
            self.price = before - before / PARTS + lines;
            self.deep = PARTS * self.depth > (PARTS * BESIDES + self.price) * found;
        }
        (self.asked, self.found, self.depth) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many keys are asked for, where this many of ten are found, each behind `depth` of `masks` masks, and the rules touch 20 lines.
    fn asked(sparing: &mut Sparing, keys: usize, found: usize, depth: u64, masks: usize) -> usize {
        let mut asked = 0;
        for _ in 0..keys {
            if sparing.asks(masks, 1) {
                asked += 1;
                let found = usize::from(asked % 10 < found);
                sparing.came_to(1, found, found as u64 * depth, || 20);
            }
        }
        asked
    }

    #[test]
    fn what_is_in_vain_is_tried_seldom_until_it_is_not() {
        let mut sparing = Sparing::default();
        let mut run = |keys: usize, found: usize| asked(&mut sparing, keys, found, 1, 32);
        assert_eq!(run(1000, 10), 1000);
        // At most two windows until it is seen.
        let asked = run(100_000, 0);
        assert!((6200..6200 + 2 * 256).contains(&asked), "{asked}");
        let asked = run(100_000, 10);
        assert!(asked > 100_000 - 17 * 256 && asked < 100_000, "{asked}");
        // With room who is not found gets a megaflow.
        sparing.begin(true);
        assert_eq!([0, 10].map(|found| self::asked(&mut sparing, 1000, found, 1, 32)), [1000; 2]);
    }

    #[test]
    fn of_groups_of_any_size_as_many_keys_are_asked_for_as_one_by_one() {
        for group in [1, 7, 32] {
            let mut sparing = Sparing::default();
            sparing.came_to(256, 0, 0, || 20);
            let asked = (0..3200).filter(|_| sparing.asks(4, group)).count();
            assert_eq!(asked, 200, "of 3,200 groups of {group}");
            let asked = (0..12_800).filter(|_| sparing.asks(256, group)).count();
            assert_eq!(asked, 100, "of 12,800 groups of {group}");
        }
        let mut sparing = Sparing::default();
        sparing.came_to(256, 0, 0, || 20);
        let groups = [32, 1, 30, 2, 1];
        let asked: usize = groups.repeat(1600).into_iter().filter(|&group| sparing.asks(4, group)).sum();
        assert!(asked.abs_diff(66 * 100) <= 32, "{asked} of 105,600 keys");
    }

    #[test]
    fn what_is_behind_more_masks_than_the_rules_cost_is_tried_seldom_until_the_next_look() {
        let mut sparing = Sparing::default();
        sparing.begin(true);
        // Twenty lines and what else a decision costs.
        assert_eq!(asked(&mut sparing, 10_000, 8, 36, 256), 10_000);
        let few = asked(&mut sparing, 128_000, 8, 37, 256);
        assert!((1000..1000 + 2 * 256).contains(&few), "{few}");
        assert!(sparing.is_deep());
        // And up to 128 keys left over from the many masks.
        let fewer = asked(&mut sparing, 16_000, 8, 37, 16);
        assert!((1000..=1000 + 128 / SAMPLED).contains(&fewer), "{fewer}");
        sparing.look();
        assert_eq!(asked(&mut sparing, 10_000, 8, 36, 256), 10_000);
    }
}
