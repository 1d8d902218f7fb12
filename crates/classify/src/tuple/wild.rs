//! Lookups that say which bits of the key they have looked at: the mask of a megaflow. Any key with the same values of those bits gets
//! the same rule, as long as the rules are what they are.
//!
//! Bits are looked at as late and as few as the structure allows:
//!
//! * A table is passed over without a look at its mask if all its rules agree in a bit that the packet has otherwise (its protocol, mostly:
//!   that bit), no rule in it is of the packet's family (by the ethertype), or none has a prefix that the packet's address or port has
//!   (by as many bits as the [trie](super::trie) needs to tell).
//! * A table that is asked costs the bits of its mask, by which the chain is found.
//! * A rule of the chain that does not match costs one bit in which it differs, none if such a bit is known already; where it is a
//!   port outside a range, as many of the port's leading bits as tell that.
//! * The rule that matches costs its mask, and the leading bits of ports that tell that they are inside its ranges.
//!
//! By induction over the tables asked, a key with the same bits goes the same way.

use super::TupleSpace;
use super::table::{FAMILIES, PREFIXED, Table, family};
use super::trie::Path;
use crate::key::{Field, Key, Mask, WORDS};
use crate::rule::{Match, PortRange, Rank, Side};

impl TupleSpace {
    /// The first match, and all bits that this was found by.
    pub fn lookup_wild(&self, key: &Key) -> (Rank, Mask) {
        let (mut best, mut seen) = (Rank::NONE, Mask::NONE);
        let family = family(key, &Mask::ALL);
        let paths = family.map(|family| self.paths(family, key));
        for &(bound, number) in &self.order {
            if bound >= best {
                break;
            }
            let table = &self.tables[number as usize];
            let (agreed, value) = table.agreed();
            if differs(value, agreed, key, &mut seen) {
                continue;
            }
            if let Some((family, paths)) = family.zip(paths)
                && pass_over(table, family, &paths, &mut seen)
            {
                continue;
            }
            seen = seen.or(table.mask());
            best = best.min(search(table, key, best, &mut seen));
        }
        (best, seen)
    }

    fn paths(&self, family: usize, key: &Key) -> [Path; PREFIXED] {
        std::array::from_fn(|i| {
            let field = FAMILIES[family].1[i];
            self.tries[family][i].walk(key.get(field) << (128 - field.bits()), field.bits())
        })
    }
}

/// Whether no rule of the table can match a packet of this family with these paths, and by which bits that is known.
fn pass_over(table: &Table, family: usize, paths: &[Path; PREFIXED], seen: &mut Mask) -> bool {
    // Every rule in the table then asks for one ethertype.
    let ethertype = Mask::NONE.with(Field::EtherType, 0xffff);
    if !ethertype.within(table.mask()) {
        return false;
    }
    let rules = table.family(family);
    if rules.rules == 0 {
        *seen = seen.or(&ethertype);
        return true;
    }
    let cheapest = rules
        .lengths
        .iter()
        .zip(paths)
        .zip(FAMILIES[family].1)
        .filter_map(|((lengths, path), field)| {
            let mut longest = 0;
            for length in lengths.all()? {
                if path.has(length) {
                    return None;
                }
                longest = length;
            }
            let known = seen.or(&ethertype).or(&Mask::prefix(field, longest.min(path.depth + 1)));
            Some(known)
        })
        .min_by_key(Mask::count);
    match cheapest {
        Some(known) => {
            *seen = known;
            true
        }
        None => false,
    }
}

/// The first rule of a table that matches and precedes `best`. The table's mask has been seen.
fn search(table: &Table, key: &Key, best: Rank, seen: &mut Mask) -> Rank {
    for (rank, matches) in table.chain(table.hash(key)) {
        if rank >= best {
            break;
        }
        if see_match(&matches, key, seen) {
            return rank;
        }
    }
    Rank::NONE
}

/// Whether a key has other values of these bits: that is known by one of them, none more if such a one has been seen.
fn differs(value: &Key, mask: &Mask, key: &Key, seen: &mut Mask) -> bool {
    let differ: [u64; WORDS] = std::array::from_fn(|i| (key.0[i] ^ value.0[i]) & mask.0[i]);
    let Some(word) = (0..WORDS).find(|&i| differ[i] != 0) else { return false };
    if (0..WORDS).all(|i| differ[i] & seen.0[i] == 0) {
        seen.0[word] |= 1 << differ[word].ilog2();
    }
    true
}

/// Whether a rule matches, and by which bits that is known.
fn see_match(matches: &Match, key: &Key, seen: &mut Mask) -> bool {
    if differs(matches.value(), matches.mask(), key, seen) {
        return false;
    }
    let sides = [Side::Source, Side::Destination];
    let ranges = matches.ports();
    for ((side, range), port) in sides.into_iter().zip(ranges).zip(key.ports()) {
        if !range.contains(port) {
            see_port(side, bits_outside(range, port), seen);
            return false;
        }
    }
    for ((side, range), port) in sides.into_iter().zip(ranges).zip(key.ports()) {
        see_port(side, bits_inside(range, port), seen);
    }
    *seen = seen.or(matches.mask());
    true
}

fn see_port(side: Side, bits: u32, seen: &mut Mask) {
    *seen = seen.or(&Mask::prefix(side.field(), bits));
}

/// The first and the last port with the same leading bits.
fn block(port: u16, bits: u32) -> (u16, u16) {
    let rest = u16::MAX.checked_shr(bits).unwrap_or(0);
    (port & !rest, port | rest)
}

/// How many leading bits of a port tell that it is in a range.
fn bits_inside(range: PortRange, port: u16) -> u32 {
    let inside = |&bits: &u32| {
        let (first, last) = block(port, bits);
        range.contains(first) && range.contains(last)
    };
    (0..16).find(inside).unwrap_or(16)
}

/// How many leading bits of a port tell that it is not in a range.
fn bits_outside(range: PortRange, port: u16) -> u32 {
    let outside = |&bits: &u32| {
        let (first, last) = block(port, bits);
        last < range.first || first > range.last
    };
    (0..16).find(outside).unwrap_or(16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Rule;
    use crate::rules::RuleSet;
    use crate::tuple::Grouping;
    use std::collections::HashSet;

    /// One rule about a port of one protocol: what it tells of all other packets is few bits.
    #[test]
    fn a_rule_about_a_port_makes_few_megaflows() {
        let ssh = Match::any()
            .exact(Field::EtherType, crate::key::IPV4.into())
            .exact(Field::Protocol, 6)
            .exact(Field::DestinationPort, 22);
        let rules = [Rule { matches: ssh, priority: 9 }, Rule { matches: Match::any(), priority: 1 }];
        let set = RuleSet::from_list(&rules);
        for grouping in Grouping::ALL {
            let space = TupleSpace::build(&set, grouping);
            let megaflows = |protocol: u8| {
                let ports = 0..=if cfg!(miri) { 300 } else { u16::MAX };
                let keys = ports.map(|port| Key::ipv4(0x0a00_0001, 0x0a00_0002, 1000, port, protocol));
                let found: HashSet<(Mask, Key)> = keys
                    .map(|key| {
                        let (rank, mask) = space.lookup_wild(&key);
                        assert_eq!(rank, space.lookup(&key));
                        (mask, key.masked(&mask))
                    })
                    .collect();
                found.len()
            };
            // UDP differs in a bit of the protocol. TCP: one for each leading bit in which a port may differ from 22, and that one.
            assert_eq!(megaflows(17), 1, "{grouping:?}");
            if !cfg!(miri) {
                assert_eq!(megaflows(6), 17, "{grouping:?}");
            }
        }
    }

    #[test]
    fn leading_bits_of_ports_tell_enough_and_no_more() {
        let range = |first, last| PortRange { first, last };
        for (range, port, bits) in [
            (range(0, u16::MAX), 7, 0),
            (range(1024, 65_535), 80, 6),
            (range(1024, 65_535), 1024, 6),
            (range(1024, 65_535), 40_000, 1),
            (range(1, 65_534), 65_535, 16),
            (range(5, 6), 5, 16),
            (range(4, 7), 5, 14),
        ] {
            let found =
                if range.contains(port) { bits_inside(range, port) } else { bits_outside(range, port) };
            assert_eq!(found, bits, "{range:?} {port}");
            let (first, last) = block(port, found);
            assert!((first..=last).all(|other| range.contains(other) == range.contains(port)));
        }
    }
}
