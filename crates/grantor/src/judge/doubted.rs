//! Senders at whose questions the script has failed lately; the companion has such a table for renewals, and one for strangers' questions. A question at which it fails is as dear as one can be, and who has asked it may ask it again and again.
//!
//! ```text
//! sender: an IPv4 address, or an IPv6 /64 --keyed hash--> place: sender, when    512 KiB, allocated once; who comes last has the place
//! ```
//! - **By sender, not by flow**: a sender has as many flows as there are addresses behind us, and would use each of them once.
//! - Senders are compared whole: who shares a place with another one is not taken for him, and at worst has him forgotten.
//! - Who sends with somebody else's address, or shares one with him, can have him doubted. So that costs little: a part of the time among others like him, and of his renewals nothing where it was a stranger's question.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use tidemill_wire::flow::Addresses;

/// A power of two.
const PLACES: usize = 1 << 14;
/// After so long without another failure a sender is like any other.
const KEPT_NS: u64 = 60_000_000_000;

#[derive(Clone, Copy)]
struct Place {
    sender: u128,
    at_ns: u64,
}

/// No time is so near the end of all times.
const FREE: Place = Place { sender: 0, at_ns: u64::MAX };

/// See the [module](self).
pub(super) struct Doubted {
    places: Box<[Place]>,
    seed: u64,
}

/// Where IPv4's addresses lie in those of IPv6: none of these is a prefix of 64 bits.
const MAPPED: u128 = 0xffff_0000_0000;

/// No two senders have the same number.
fn sender(flow: &Addresses) -> u128 {
    match *flow {
        Addresses::V4 { src, .. } => MAPPED | u128::from(src),
        Addresses::V6 { src, .. } => src & !u128::from(u64::MAX),
    }
}

impl Doubted {
    /// Nobody. `seed` is what senders are hashed with.
    pub(super) fn new(seed: u64) -> Doubted {
        Doubted { places: vec![FREE; PLACES].into_boxed_slice(), seed }
    }

    fn at(&self, sender: u128) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.seed, 1);
        hasher.write(&sender.to_ne_bytes());
        hasher.finish() as usize & (PLACES - 1)
    }

    /// Whether the script has failed at a question of this flow's sender.
    pub(super) fn has(&self, now_ns: u64, flow: &Addresses) -> bool {
        let sender = sender(flow);
        let place = self.places[self.at(sender)];
        // Clocks may go back.
        place.sender == sender && now_ns.abs_diff(place.at_ns) < KEPT_NS
    }

    /// It has.
    pub(super) fn add(&mut self, now_ns: u64, flow: &Addresses) {
        let sender = sender(flow);
        let at = self.at(sender);
        self.places[at] = Place { sender, at_ns: now_ns };
    }

    /// There is another script.
    pub(super) fn forget(&mut self) {
        self.places.fill(FREE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: u64 = 1_700_000_000_000_000_000;

    fn v4(src: u32) -> Addresses {
        Addresses::V4 { src, dst: 1 }
    }

    #[test]
    fn all_flows_of_a_sender_are_doubted_for_a_minute() {
        let mut doubted = Doubted::new(7);
        let v6 = |prefix: u128, host: u128| Addresses::V6 { src: prefix << 64 | host, dst: 1 };
        assert!(!doubted.has(0, &v6(0, 0)) && !doubted.has(NOW_NS, &v4(5)));
        doubted.add(NOW_NS, &v4(5));
        doubted.add(NOW_NS, &v6(9, 1));
        for flow in [v4(5), Addresses::V4 { src: 5, dst: 2 }, v6(9, 1), v6(9, u128::from(u64::MAX))] {
            assert!(doubted.has(NOW_NS + KEPT_NS - 1, &flow), "{flow:?}");
            assert!(!doubted.has(NOW_NS + KEPT_NS, &flow), "{flow:?}");
        }
        let mapped = Addresses::V6 { src: MAPPED | 5, dst: 1 };
        for flow in [v4(4), Addresses::V4 { src: 1, dst: 5 }, v6(8, 1), v6(0, 5), mapped] {
            assert!(!doubted.has(NOW_NS, &flow), "{flow:?}");
        }
        doubted.forget();
        assert!(!doubted.has(NOW_NS, &v4(5)));
    }

    /// Also when all places are taken: of four times as many senders as there are places each place has its last one, and nobody else is doubted.
    #[test]
    fn nobody_is_taken_for_somebody_else() {
        let mut doubted = Doubted::new(7);
        let senders = 4 * PLACES as u32;
        (0..senders).for_each(|src| doubted.add(NOW_NS, &v4(src)));
        let known = (0..senders).filter(|src| doubted.has(NOW_NS, &v4(*src))).count();
        assert!((PLACES / 2..=PLACES).contains(&known), "{known}");
        assert!((senders..2 * senders).all(|src| !doubted.has(NOW_NS, &v4(src))));
    }
}
