//! How many answers a source may have, in fixed memory.

use foldhash::quality::FixedState;
use std::hash::BuildHasher;
use std::net::IpAddr;

/// Budgets. Sources that share one by their hash share it.
const PLACES: usize = 8192;
const SECOND_NS: u64 = 1_000_000_000;

/// A budget for every source: the generic cell rate algorithm, one word each. A place holds the time at which all that was let through would have been
/// spent evenly.
#[derive(Debug)]
pub(crate) struct Rates {
    places: Box<[u64]>,
    hash: FixedState,
}

impl Rates {
    pub(crate) fn new(hash: FixedState) -> Self {
        Rates { places: vec![0; PLACES].into(), hash }
    }

    /// Whether this source may have one more: `rate` per second, and so many at once. 0 is no limit.
    #[inline]
    pub(crate) fn admit(&mut self, source: IpAddr, now_ns: u64, rate: u32) -> bool {
        if rate == 0 {
            return true;
        }
        let place = &mut self.places[self.hash.hash_one(source) as usize & (PLACES - 1)];
        let next = (*place).max(now_ns) + SECOND_NS / u64::from(rate);
        let fits = next <= now_ns.saturating_add(SECOND_NS);
        if fits {
            *place = next;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_and_everybody_has_his_own() {
        let mut rates = Rates::new(FixedState::with_seed(3));
        let [one, two] = ["10.0.0.1", "fd00::1"].map(|text| text.parse().unwrap());
        let mut passed = |source, now_ns| (0..1000).filter(|_| rates.admit(source, now_ns, 100)).count();
        assert_eq!((passed(one, SECOND_NS), passed(two, SECOND_NS)), (100, 100));
        assert_eq!((passed(one, 3 * SECOND_NS / 2), passed(one, 10 * SECOND_NS)), (50, 100));
        assert!((0..1000).all(|_| rates.admit(one, 5, 0)));
    }
}
