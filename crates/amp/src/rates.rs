//! How many flows one inside address may have filtered per second, in fixed memory.

use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;

/// Budgets. Addresses that share one by their hash share it.
const PLACES: usize = 8192;
const SECOND_NS: u64 = 1_000_000_000;

/// A budget for every address: the generic cell rate algorithm, one word each. A place holds the time at which all that
/// was let through would have been spent evenly.
pub(crate) struct Rates {
    places: Box<[u64]>,
    hash: Keyed<2>,
}

impl Rates {
    pub(crate) fn new(secret: u128) -> Self {
        Rates { places: vec![0; PLACES].into(), hash: Keyed::new(secret) }
    }

    /// Whether this address may have one more: `rate` per second, and so many at once. 0 is no limit.
    pub(crate) fn admit(&mut self, address: u128, now_ns: u64, rate: u32) -> bool {
        if rate == 0 {
            return true;
        }
        let hash = self.hash.hash(&Key([(address >> 64) as u64, address as u64]));
        let place = &mut self.places[(hash >> 32) as usize % PLACES];
        // A clock that went back leaves nobody out for longer than a second.
        let spent = if *place > now_ns.saturating_add(2 * SECOND_NS) { now_ns } else { (*place).max(now_ns) };
        let next = spent + SECOND_NS / u64::from(rate);
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
        let mut rates = Rates::new(3);
        let mut passed =
            |address, now_ns, tries| (0..tries).filter(|_| rates.admit(address, now_ns, 100)).count();
        assert_eq!(passed(1, 0, 1000), 100);
        assert_eq!((passed(1, SECOND_NS / 2, 1000), passed(2, SECOND_NS / 2, 1000)), (50, 100));
        assert_eq!(passed(1, 10 * SECOND_NS, 1000), 100);
        assert_eq!(passed(1, 0, 1000), 100, "a clock that went back");
        let tens: usize = (20..30).map(|i| passed(1, i * SECOND_NS / 10 + 30 * SECOND_NS, 1000)).sum();
        assert!((190..=200).contains(&tens), "a second's burst, and a second's rate: {tens}");
        assert!((0..1000).all(|_| rates.admit(9, 5, 0)));
    }
}
