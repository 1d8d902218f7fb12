//! How many answers a source may have, in fixed memory.

use foldhash::quality::FixedState;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};

/// Budgets. Sources that share one by their hash share it.
const PLACES: usize = 8192;
const SECOND_NS: u64 = 1_000_000_000;

/// Who has had as much as he may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The source.
    Source,
    /// All together.
    All,
}

/// A budget for every source, and one for all: the generic cell rate algorithm, one word each. A place holds the time at which all that was let through would have been
/// spent evenly.
#[derive(Debug)]
pub(crate) struct Rates {
    places: Box<[u64]>,
    all: u64,
    hash: FixedState,
}

impl Rates {
    pub(crate) fn new(hash: FixedState) -> Self {
        Rates { places: vec![0; PLACES].into(), all: 0, hash }
    }

    /// Takes one more from the budgets of this source and of all: `rate` and `total` per second, and so many at once; 0 is no limit. If one has none left, from neither.
    #[inline]
    pub(crate) fn admit(&mut self, source: IpAddr, now_ns: u64, rate: u32, total: u32) -> Result<(), Limit> {
        if rate == 0 && total == 0 {
            return Ok(());
        }
        let place = &mut self.places[self.hash.hash_one(network(source)) as usize & (PLACES - 1)];
        let next = one_more(*place, now_ns, rate).ok_or(Limit::Source)?;
        self.all = one_more(self.all, now_ns, total).ok_or(Limit::All)?;
        *place = next;
        Ok(())
    }
}

fn one_more(place: u64, now_ns: u64, rate: u32) -> Option<u64> {
    if rate == 0 {
        return Some(place);
    }
    let next = place.max(now_ns) + SECOND_NS / u64::from(rate);
    (next <= now_ns.saturating_add(SECOND_NS)).then_some(next)
}

/// Whose budget a source has. Of IPv6 its /64: a host may take any address in there.
fn network(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => source,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_and_everybody_has_his_own() {
        let mut rates = Rates::new(FixedState::with_seed(3));
        let [one, two, beside] = ["10.0.0.1", "fd00::1", "fd00::2"].map(|text| text.parse().unwrap());
        let mut passed =
            |source, now_ns| (0..1000).filter(|_| rates.admit(source, now_ns, 100, 0).is_ok()).count();
        assert_eq!((passed(one, SECOND_NS), passed(two, SECOND_NS)), (100, 100));
        assert_eq!(passed(beside, SECOND_NS), 0, "it may be the same host");
        assert_eq!((passed(one, 3 * SECOND_NS / 2), passed(one, 10 * SECOND_NS)), (50, 100));
        assert!((0..1000).all(|_| rates.admit(one, 5, 0, 0).is_ok()));
    }

    #[test]
    fn all_together_have_no_more_than_all_may_have() {
        let mut rates = Rates::new(FixedState::with_seed(3));
        let source = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mut passed = |n| (0..40).filter(|_| rates.admit(source(n), SECOND_NS, 100, 100).is_ok()).count();
        assert_eq!([1, 2, 3, 4].map(&mut passed), [40, 40, 20, 0]);
        assert_eq!(rates.admit(source(1), SECOND_NS, 100, 100), Err(Limit::All));
        // What all together were refused is not taken from the source's own.
        assert_eq!((0..100).filter(|_| rates.admit(source(4), SECOND_NS, 100, 0).is_ok()).count(), 100);
        assert_eq!(rates.admit(source(4), SECOND_NS, 100, 0), Err(Limit::Source));
    }
}
