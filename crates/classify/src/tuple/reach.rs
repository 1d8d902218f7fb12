//! Which tables have rules for an address, by its first bits: for rules that stay as they are, and are looked up for many keys at once.
//!
//! ```text
//! first 16 bits of an IPv4 address, 32 of an IPv6 one --hash--> slot: a bit for each table that has a rule with such an address
//! a key: slot of its source & slot of its destination           tables without a bit are passed over
//! ```
//!
//! It is two slots of 8 bytes a key, of twice [`SLOTS`]. A bit too many costs a look into a table; tables from number 63 on share one.

use super::table::{FAMILIES, Table, family};
use crate::key::{IPV4, IPV6, Key};
use crate::rule::Match;

const SLOT_BITS: u32 = 12;
/// Slots of each side.
const SLOTS: usize = 1 << SLOT_BITS;
/// The first bits of an address of each family.
const FIRST: [u32; 2] = [16, 32];
/// With fewer tables there is little to pass over.
pub(super) const FEWEST_TABLES: usize = 8;

#[derive(Clone)]
pub(super) struct Reach {
    /// Of source and destination.
    slots: [Box<[u64]>; 2],
    /// Bits that all slots of a side have.
    everywhere: [u64; 2],
}

/// A table's bit.
#[inline(always)]
pub(super) fn bit(number: u32) -> u64 {
    1 << number.min(63)
}

fn slot(first: u32) -> usize {
    (first.wrapping_mul(0x9e37_79b1) >> (u32::BITS - SLOT_BITS)) as usize
}

impl Reach {
    /// Of tables by their numbers.
    pub(super) fn of(tables: &[Table]) -> Self {
        let slots = || vec![0; SLOTS].into_boxed_slice();
        let mut reach = Reach { slots: [slots(), slots()], everywhere: [0; 2] };
        for (table, number) in tables.iter().zip(0..) {
            table.all().for_each(|(_, matches)| reach.note(bit(number), &matches));
        }
        reach
    }

    pub(super) fn bytes(&self) -> usize {
        2 * SLOTS * 8
    }

    fn note(&mut self, bit: u64, matches: &Match) {
        let (value, mask) = (matches.value(), matches.mask());
        for (side, slots) in self.slots.iter_mut().enumerate() {
            if self.everywhere[side] & bit != 0 {
                continue;
            }
            // The first bits, and how many of their last the rule leaves open.
            let asked = family(value, mask).map(|family| {
                let (field, first) = (FAMILIES[family].1[side], FIRST[family]);
                let known = (mask.get(field) << (128 - field.bits())).leading_ones().min(first);
                ((value.get(field) >> (field.bits() - first)) as u32, first - known)
            });
            match asked {
                Some((first, open)) if open < SLOT_BITS => {
                    let (from, rest) = (first >> open << open, (1 << open) - 1);
                    (from..=(from | rest)).for_each(|first| slots[slot(first)] |= bit);
                }
                _ => {
                    slots.iter_mut().for_each(|slot| *slot |= bit);
                    self.everywhere[side] |= bit;
                }
            }
        }
    }

    /// The tables that may have a rule for a key.
    #[inline(always)]
    pub(super) fn tables(&self, key: &Key) -> u64 {
        // As `Field` has them: ethertype; both addresses of IPv4, the source of IPv6; its destination.
        let (ethertype, word, other) = ((key.0[4] >> 16) as u16, key.0[0], key.0[2]);
        let [source, destination] = match ethertype {
            IPV4 => [(word >> 48) as u32, (word >> 16) as u32 & 0xffff],
            IPV6 => [(word >> 32) as u32, (other >> 32) as u32],
            _ => return u64::MAX,
        };
        self.slots[0][slot(source)] & self.slots[1][slot(destination)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Field;
    use crate::rule::{Rank, Rule};
    use crate::rules::RuleSet;
    use crate::suite::Rng;
    use crate::tuple::{Grouping, TupleSpace};

    /// Few values of the first bits, so that rules and keys meet.
    fn address(random: &mut Rng) -> u32 {
        let first = [0x0a00_u32, 0x0a01, 0x0a80, 0xc0a8, 0xc612, 0xc613][random.below(6)];
        first << 16 | (random.below(4) as u32) << 8 | random.below(4) as u32
    }

    fn rule(random: &mut Rng) -> Match {
        let mut one = Match::any();
        let sides =
            [(Field::Ipv4Source, Field::Ipv6Source), (Field::Ipv4Destination, Field::Ipv6Destination)];
        let (is_v6, is_wild) = (random.below(10) < 3, random.once_in(10));
        for (v4, v6) in sides {
            let bits = address(random);
            if random.once_in(5) {
                continue;
            }
            one = if is_v6 {
                let length = [16, 30, 32, 48, 64][random.below(5)];
                one.prefix(v6, u128::from(bits) << 96, length)
            } else if is_wild {
                one.masked(v4, bits.into(), 0xff00_ff00 | (random.below(4) as u128) << 16)
            } else {
                let length = [3, 7, 8, 12, 16, 20, 24, 32][random.below(8)];
                one.prefix(v4, bits.into(), length)
            };
        }
        if random.below(10) < 3 { one.exact(Field::Protocol, 6) } else { one }
    }

    fn key(random: &mut Rng) -> Key {
        let (source, destination, protocol) = (address(random), address(random), 6);
        match random.below(8) {
            0 => Key::default().with(Field::EtherType, 0x0806),
            1..3 => {
                let [source, destination] = [source, destination].map(|bits| u128::from(bits) << 96);
                Key::ipv6(source, destination, 5, 6, protocol)
            }
            _ => Key::ipv4(source, destination, 5, 6, protocol),
        }
    }

    #[test]
    fn nothing_that_could_match_is_passed_over() {
        let mut random = Rng::new(3);
        let (mut asked, mut all) = (0, 0);
        let rounds = if cfg!(miri) { 2 } else { 60 };
        for round in 0..rounds {
            let list: Vec<Rule> = (0..10 + random.below(290))
                .map(|_| Rule { matches: rule(&mut random), priority: random.below(9) as u64 })
                .collect();
            let set = RuleSet::from_list(&list);
            let plain = TupleSpace::build(&set, Grouping::ALL[usize::from(round % 2 == 0)]);
            let mut space = plain.clone().settled();
            // Also fewer than are worth vectors.
            for count in [1, 7, 40, 64] {
                let keys: Vec<Key> = (0..count).map(|_| key(&mut random)).collect();
                let expected: Vec<Rank> = keys.iter().map(|key| plain.lookup(key)).collect();
                let mut found = vec![Rank::NONE; count];
                space.lookup_batch(&keys, &mut found);
                assert_eq!(found, expected, "round {round}: {list:?}");
                space.lookup_batch_scalar(&keys, &mut found);
                assert_eq!(found, expected, "round {round}, without vectors: {list:?}");
                if let Some(reach) = &space.reach {
                    let tables = space.tables().min(64) as u32;
                    let bits = keys.iter().map(|key| reach.tables(key).count_ones().min(tables));
                    (asked, all) = (asked + bits.sum::<u32>(), all + tables * count as u32);
                }
            }
            // A change ends it.
            let (id, last) = set.iter().last().unwrap();
            assert!(space.remove(id, last) && space.reach.is_none());
        }
        assert!(asked > 0 && asked < all / 5 * 4, "{asked} of {all}");
    }
}
