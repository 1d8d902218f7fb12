//! Which of the rules of one table and priority comes first.
//!
//! ```text
//! Rule::priority | OpenFlow's priority, 16 bits | all ones less the place, 24 bits |     the lower place wins, of equal ones the lower number
//! ```
//!
//! Places leave gaps, so that a rule that has come or moved takes one between its neighbours', and the others keep theirs. Where a gap is too small all rules of that
//! table and priority get new ones: there are more places than rules. Another place is no other number: it takes no room, and what the rule has counted stays.

use crate::rule::MOST_RULES;
use std::ops::Range;

/// Bits of a place.
const BITS: u32 = 24;

/// The place of rules that nobody has given another: behind those of all others.
pub(super) const BEHIND: u32 = (1 << BITS) - 1;

const _: () = assert!(MOST_RULES <= BEHIND as usize);

/// The priority in the structure of a rule with this one and this place.
pub(super) fn priority(of_rule: u16, place: u32) -> u64 {
    u64::from(of_rule) << BITS | u64::from(BEHIND - place.min(BEHIND))
}

/// The place of a rule with this priority in the structure.
pub(super) fn place(priority: u64) -> u32 {
    BEHIND - (priority as u32 & BEHIND)
}

/// Rising places for rules in their order, of which some have one already: as many of these as can be stay. No more than [`MOST_RULES`].
pub(super) fn places(known: &[Option<u32>]) -> Vec<u32> {
    between(known, &rising(known)).unwrap_or_else(|| spread(0..BEHIND, known.len()).collect())
}

/// Which places are of a longest sequence that rises: by its lengths so far, and where the sequence of each that ends lowest ends.
fn rising(known: &[Option<u32>]) -> Vec<bool> {
    let (mut ends, mut before) = (Vec::<usize>::new(), vec![None; known.len()]);
    for (at, place) in known.iter().enumerate().filter(|(_, place)| place.is_some()) {
        let length = ends.partition_point(|&end| known[end] < *place);
        before[at] = length.checked_sub(1).map(|shorter| ends[shorter]);
        if length == ends.len() {
            ends.push(at);
        } else {
            ends[length] = at;
        }
    }
    let (mut stay, mut next) = (vec![false; known.len()], ends.last().copied());
    while let Some(at) = next {
        stay[at] = true;
        next = before[at];
    }
    stay
}

/// Places for those that do not stay, between those that do. `None` if there are too few.
fn between(known: &[Option<u32>], stay: &[bool]) -> Option<Vec<u32>> {
    let (mut places, mut free, mut waiting) = (Vec::with_capacity(known.len()), 0, 0);
    let staying = known.iter().zip(stay).map(|(place, &stays)| place.filter(|_| stays));
    for place in staying.chain([Some(BEHIND)]) {
        let Some(place) = place else {
            waiting += 1;
            continue;
        };
        let gap = free..place;
        if gap.len() < waiting {
            return None;
        }
        places.extend(spread(gap, waiting));
        places.push(place);
        (free, waiting) = (place + 1, 0);
    }
    // The end.
    places.pop();
    Some(places)
}

/// So many places, rising, as far from each other as from the ends of a range that has as many.
fn spread(range: Range<u32>, count: usize) -> impl Iterator<Item = u32> {
    let (width, count) = (range.len() as u64, count as u64);
    (0..count).map(move |at| range.start + ((2 * at + 1) * width / (2 * count)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(known: &[Option<u32>], places: &[u32]) -> usize {
        assert!(places.is_sorted_by(|one, other| one < other), "{known:?}: {places:?}");
        assert!(places.iter().all(|&place| place < BEHIND), "{known:?}: {places:?}");
        assert_eq!(places.len(), known.len());
        known.iter().zip(places).filter(|(known, place)| **known == Some(**place)).count()
    }

    #[test]
    fn priorities_hold_their_places() {
        for (of_rule, at) in [(0, 0), (0, BEHIND), (7, 3), (u16::MAX, BEHIND), (u16::MAX, 0)] {
            assert_eq!(place(priority(of_rule, at)), at);
            assert_eq!(priority(of_rule, at) >> BITS, u64::from(of_rule));
        }
        assert!(priority(7, 3) > priority(7, 4) && priority(7, BEHIND) > priority(6, 0));
    }

    #[test]
    fn as_few_rules_move_as_can_be() {
        let mut known: Vec<Option<u32>> = places(&[None; 1000]).into_iter().map(Some).collect();
        let again = |known: &[Option<u32>]| kept(known, &places(known));
        assert_eq!(again(&known), 1000);
        // The last one comes first, or the first one last.
        known.rotate_right(1);
        assert_eq!(again(&known), 999);
        known.rotate_left(2);
        assert_eq!(again(&known), 999);
        known.reverse();
        assert_eq!(again(&known[1..999]), 1);
        // New ones anywhere.
        for at in [0, 500, 1000] {
            let mut known: Vec<Option<u32>> = places(&[None; 1000]).into_iter().map(Some).collect();
            drop(known.splice(at..at, [None; 3]));
            assert_eq!(again(&known), 1000, "{at}");
        }
    }

    #[test]
    fn where_a_gap_is_too_small_all_get_new_places() {
        for known in [vec![Some(0), None, Some(1)], vec![None, Some(0)], vec![Some(BEHIND - 1), None]] {
            kept(&known, &places(&known));
        }
        // Always behind the first: the gap halves each time.
        let mut order = places(&[None; 2]);
        for _ in 0..200 {
            let mut known: Vec<Option<u32>> = order.iter().copied().map(Some).collect();
            known.insert(1, None);
            order = places(&known);
            kept(&known, &order);
        }
        // As many as there is room for.
        assert!(spread(5..1005, 1000).eq(5..1005));
    }
}
