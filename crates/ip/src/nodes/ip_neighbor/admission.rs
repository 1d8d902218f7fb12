//! Which unknown neighbors may be asked for: so many per second, with a reserve for those who ask again.
//!
//! A flood from random sources, each of which stays below its own share, uses up what may be asked for in all. What it
//! rarely does is ask twice: a source that was refused a neighbor and wants the same one again is most likely a host that
//! tries again (ping, a SYN's retransmission). Such questions have a reserve that first ones cannot touch.
//!
//! ```text
//! refused: slot = hash(neighbor, source) % 2^18  ->  | 32 other bits of the hash |   the last one refused there
//! ```

use crate::icmp::RateLimit;
use crate::neighbor::Key;
use std::hash::{BuildHasher, RandomState};

/// Refused questions that are remembered, each until another one falls upon its slot: 1 MiB, a second of 200,000 new ones
/// per second leaves half of those before.
const REFUSED: usize = 1 << 18;

/// The first ones' share, the repeated ones' reserve, and who has been refused.
pub(super) struct Admission {
    first: RateLimit,
    again: RateLimit,
    /// Hashes with a key of our own: nobody outside can aim at a slot. 0: free. Empty until the first refusal.
    refused: Vec<u32>,
    hasher: RandomState,
}

/// Of `all_per_s`, what those who ask again may have besides: a fifth, but 100 where that is no more than the whole.
fn reserve(all_per_s: u32) -> u32 {
    (all_per_s / 5).max(all_per_s.min(100))
}

impl Admission {
    /// Nothing may be asked for until [`set`](Self::set) says so.
    pub(super) fn new() -> Self {
        let none = || RateLimit::new(0, 0);
        Admission { first: none(), again: none(), refused: Vec::new(), hasher: RandomState::new() }
    }

    /// So many per second in all, and on behalf of each source.
    pub(super) fn set(&mut self, all_per_s: u32, each_per_s: u32) {
        self.first.set(all_per_s, each_per_s);
        self.again.set(reserve(all_per_s), each_per_s);
    }

    /// Whether `source` may have `key` asked for now; if so, it is charged for.
    pub(super) fn allow(&mut self, now_ns: u64, key: &Key, source: u64) -> bool {
        if self.first.allow(now_ns, source) {
            return true;
        }
        if self.refused.is_empty() {
            self.refused = vec![0; REFUSED];
        }
        let hash = self.hasher.hash_one((key, source));
        let slot = &mut self.refused[hash as usize % REFUSED];
        let mark = (hash >> 32) as u32 | 1;
        std::mem::replace(slot, mark) == mark && self.again.allow(now_ns, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    const SECOND_NS: u64 = 1_000_000_000;

    fn key(address: u32) -> Key {
        Key { interface: 1, address: std::net::Ipv4Addr::from(address).into() }
    }

    /// A flood of 200,000 first questions per second from `source()` for `destination()`, in the midst of which a host
    /// begins to want 200 neighbors, each every 0.2 s. Returns at which of its packets each was asked for, and how many
    /// of the flood's questions were, per second, after the first second.
    fn flood(
        source: impl Fn(&mut StdRng) -> u64,
        destination: impl Fn(&mut StdRng) -> u32,
    ) -> (Vec<u32>, u64) {
        let mut rng = StdRng::seed_from_u64(7);
        let mut admission = Admission::new();
        admission.set(10_000, 100);
        let (mut asked, mut passed) = (Vec::new(), 0);
        for n in 0..600_000u64 {
            let now_ns = SECOND_NS + n * 5_000;
            let (source, destination) = (source(&mut rng), destination(&mut rng));
            let allowed = admission.allow(now_ns, &key(destination), source);
            passed += u64::from(allowed && n >= 200_000);
            // One every 10 ms; the first question of each after a second.
            if n >= 200_000 && n % 2_000 == 0 {
                let turn = (n - 200_000) / 2_000;
                for wanted in (turn % 20..=turn).step_by(20) {
                    let try_no = (turn - wanted) / 20 + 1;
                    let done = asked.iter().any(|(done, _)| *done == wanted);
                    if !done
                        && admission.allow(now_ns, &key(0x0a09_0000 + wanted as u32), 0xaaaa + wanted % 9)
                    {
                        asked.push((wanted, try_no as u32));
                    }
                }
            }
        }
        (asked.into_iter().filter(|(wanted, _)| *wanted < 100).map(|(_, tries)| tries).collect(), passed / 2)
    }

    #[test]
    fn who_asks_again_is_served_in_the_midst_of_a_flood() {
        // The second: of a link of 65,536 addresses, where the flood comes back to each three times a second.
        for width in [u32::MAX, 0xffff] {
            let (tries, passed) = flood(|rng| rng.random(), |rng| rng.random::<u32>() & width);
            // The fingerprints' key is another one in each run: some are overwritten before their neighbor is asked for
            // again.
            let within = |packets: u32| tries.iter().filter(|tries| **tries <= packets).count();
            assert!(within(2) >= 55 && within(3) >= 75 && within(6) >= 95, "{tries:?}");
            assert!((9_500..=10_001).contains(&passed), "the flood does not touch the reserve: {passed}");
        }
    }

    #[test]
    fn the_reserve_is_bounded_in_all_and_for_each_source() {
        let mut admission = Admission::new();
        let count = |admission: &mut Admission, now_ns, sources: u64| {
            let ask = |n: u64| admission.allow(now_ns, &key(n as u32 % 5_000), n % 5_000 % sources);
            (0..20_000).map(ask).filter(|allowed| *allowed).count()
        };
        admission.set(1_000, 1_000);
        assert!(admission.refused.is_empty());
        assert_eq!(
            count(&mut admission, SECOND_NS, 1_000),
            1_200,
            "all, and a fifth for those who ask again"
        );
        assert_eq!(admission.refused.len(), REFUSED);
        admission.set(1_000, 10);
        assert_eq!(count(&mut admission, 2 * SECOND_NS, 2), 2 * (10 + 10), "each its share of both");
        admission.set(7, 100);
        assert_eq!(count(&mut admission, 3 * SECOND_NS, 50), 14);
        admission.set(0, 100);
        assert_eq!(count(&mut admission, 4 * SECOND_NS, 50), 0);
        assert_eq!([reserve(10_000), reserve(300), reserve(7)], [2_000, 100, 7]);
    }
}
