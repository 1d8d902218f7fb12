//! What rules ask for beside addresses and port ranges.

use super::block::Part;
use crate::key::{Key, Mask, WORDS};
use crate::rule::{Match, PortRange, Side};

/// The most different conditions of a set: which of them a key meets is one word.
pub const MOST_CONDITIONS: usize = 64;

/// One word of a key, as all conditions want it.
pub(super) struct Asked {
    pub(super) word: usize,
    pub(super) values: [u64; MOST_CONDITIONS],
    pub(super) masks: [u64; MOST_CONDITIONS],
}

/// The conditions of a set.
pub(super) struct Conditions {
    /// Words that one of them asks about.
    pub(super) asked: Vec<Asked>,
    pub(super) len: usize,
    /// Of each condition those that no key meets without meeting it, too.
    pub(super) within: Vec<u64>,
}

impl Conditions {
    /// Those of rules, and what lists have of each rule: nothing of one that matches no packet. `None`: there are too many.
    pub(super) fn of(rules: &[Match]) -> Option<(Self, Vec<Option<Part>>)> {
        let mut distinct: Vec<(Key, Mask)> = Vec::new();
        let mut parts = Vec::with_capacity(rules.len());
        for matches in rules {
            let (mut value, mut mask) = (*matches.value(), *matches.mask());
            // Addresses are what the classes are for.
            (value.0[0], mask.0[0]) = (0, 0);
            let mut ranges = [PortRange::ALL; 2];
            for (side, range) in [Side::Source, Side::Destination].into_iter().zip(&mut ranges) {
                let (span, all) = matches.span(side);
                *range = span;
                if all {
                    (value, mask) = (value.with(side.field(), 0), mask.with(side.field(), 0));
                }
            }
            if ranges.iter().any(|range| range.first > range.last) {
                parts.push(None);
                continue;
            }
            let known = distinct.iter().position(|known| *known == (value, mask));
            let number = known.unwrap_or(distinct.len());
            if known.is_none() {
                distinct.push((value, mask));
            }
            let condition = u8::try_from(number).ok().filter(|_| number < MOST_CONDITIONS)?;
            let both = |[source, destination]: [u16; 2]| u32::from(source) << 16 | u32::from(destination);
            let first = both(ranges.map(|range| range.first));
            let span = both(ranges.map(|range| range.last - range.first));
            parts.push(Some(Part { first, span, condition }));
        }
        Some((Conditions::new(&distinct), parts))
    }

    fn new(distinct: &[(Key, Mask)]) -> Self {
        let asked = (0..WORDS).filter(|&word| distinct.iter().any(|(_, mask)| mask.0[word] != 0));
        let asked = asked.map(|word| {
            let mut asked = Asked { word, values: [0; MOST_CONDITIONS], masks: [0; MOST_CONDITIONS] };
            for (i, (value, mask)) in distinct.iter().enumerate() {
                (asked.values[i], asked.masks[i]) = (value.0[word], mask.0[word]);
            }
            asked
        });
        let asked = asked.collect();
        let within = distinct.iter().map(|(value, mask)| {
            let implies = |(other, by): &(Key, Mask)| mask.within(by) && other.masked(mask) == *value;
            let all = distinct.iter().enumerate();
            all.fold(0, |bits, (i, other)| bits | u64::from(implies(other)) << i)
        });
        let within = within.collect();
        Conditions { asked, len: distinct.len(), within }
    }

    /// Which of them a key meets: bit by bit.
    #[inline(always)]
    pub(super) fn met(&self, key: &Key) -> u64 {
        let mut met = u64::MAX;
        for asked in &self.asked {
            let (word, mut bits) = (key.0[asked.word % WORDS], 0);
            for (i, (value, mask)) in asked.values.iter().zip(&asked.masks).take(self.len).enumerate() {
                bits |= u64::from(word & mask == *value) << i;
            }
            met &= bits;
        }
        met
    }
}
