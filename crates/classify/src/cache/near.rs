//! Whether megaflows are near, so that nothing needs to be asked before them.
//!
//! With one mask, or with filters that tell which of many masks a key is to be asked for, a megaflow is about one probe away: as near as an exact match, by lines that are as
//! warm as each other. Then whoever had no exact match would have paid for two, and the hash of the whole key besides. Only where the last [`WINDOW`] keys took
//! more than [`FAR`] probes each, filters counted in, exact matches and signatures are asked for first. What a key costs that is asked for [new](super::filter::Standing::New) megaflows
//! besides does not count: they are found once, and those of a flood never.

use super::filter::A_PROBE;

/// Keys that are looked back at.
const WINDOW: u32 = 1024;

/// What an exact match, a signature and one probe cost together, in probes.
const FAR: u64 = 3;

/// What keys came to lately.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Near {
    keys: u32,
    cost: u64,
    far: bool,
}

impl Near {
    #[inline(always)]
    pub(super) fn is(&self) -> bool {
        !self.far
    }

    /// So many keys took so many probes and filters together.
    #[inline(always)]
    pub(super) fn came_to(&mut self, keys: usize, probes: usize, filters: usize) {
        self.keys += keys as u32;
        self.cost += (probes * A_PROBE as usize + filters) as u64;
        if self.keys >= WINDOW {
            self.judge();
        }
    }

    #[cold]
    fn judge(&mut self) {
        let far = self.cost > u64::from(A_PROBE) * FAR * u64::from(self.keys);
        (self.far, self.keys, self.cost) = (far, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_more_than_three_probes_is_far_until_it_takes_less() {
        let mut near = Near::default();
        let mut after = |keys: u32, probes: usize, filters: usize| {
            (0..keys / 32).for_each(|_| near.came_to(32, probes, filters));
            near.is()
        };
        assert!(after(WINDOW, 32, 32 * 16));
        assert!(after(WINDOW - 32, 32, 17 * 32), "not yet a window");
        assert!(!after(WINDOW, 32, 17 * 32));
        assert!(!after(WINDOW, 3 * 32, 32));
        assert!(after(2 * WINDOW, 2 * 32, 32));
    }
}
