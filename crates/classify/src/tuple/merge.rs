//! Merged tuples: few tables with narrow masks, each rule in one that its own mask contains.
//!
//! The idea is TupleMerge's (Daly, Bruschi, Linguaglossa, Pontarelli, Rossi, Tollet, Torng and Yourtchenko, "TupleMerge: Fast Software
//! Packet Processing for Online Packet Classification", IEEE/ACM Transactions on Networking, 2019): the first rule of a kind makes a table
//! with a mask that is narrower than its own, so that its relatives fit; a table that would have too many rules with the same
//! bits is relieved by another with a wider mask. What is ours:
//!
//! * **Relaxing**: prefixes lose the bits beyond a multiple of 8 (IPv4) or 16 (IPv6), a host's last 8 or 16; where at least
//!   16 bits of address remain, ports, protocol, TOS and TCP flags are left to the entries.
//! * **Splitting**: of the rules with the same bits those go together to a table whose mask is all that their masks have in common;
//!   where that is no more than what the table has, those with the most particular rule's mask go. At most [`LIMIT`] + 1 rules
//!   move, so an insertion's work is bounded.
//! * Masks are any bits, so OpenFlow's rules take part.

use super::TupleSpace;
use crate::key::{Field, Mask};
use crate::rule::{Match, Rank};

/// Rules of a table that may share the bits of its mask, as long as another mask can tell them apart.
pub const LIMIT: usize = 8;

/// Bits of address with which a table does without ports and the like.
const ENOUGH: u32 = 16;

const ADDRESSES: [Field; 4] =
    [Field::Ipv4Source, Field::Ipv4Destination, Field::Ipv6Source, Field::Ipv6Destination];
const LEFT_TO_ENTRIES: [Field; 5] =
    [Field::SourcePort, Field::DestinationPort, Field::Protocol, Field::Tos, Field::TcpFlags];

/// The mask of a new table for rules like one with this mask and value.
fn relaxed(matches: &Match) -> Mask {
    let (mut mask, ethertype) = (*matches.mask(), matches.value().get(Field::EtherType));
    let mut kept = 0;
    // Word 0 is what the ethertype says; a mask over it comes with one.
    for field in ADDRESSES.into_iter().filter(|field| field.needs().map(u128::from) == Some(ethertype)) {
        let bits = mask.get(field);
        let Some(length) = mask.prefix_length(field) else {
            kept += bits.count_ones();
            continue;
        };
        let step = if field.bits() == 32 { 8 } else { 16 };
        let short = length.min(field.bits() - 1) / step * step;
        mask = mask.with(field, Mask::prefix(field, short).get(field));
        kept += short;
    }
    if kept >= ENOUGH {
        LEFT_TO_ENTRIES.into_iter().fold(mask, |mask, field| mask.with(field, 0))
    } else {
        // Few bits of address: whatever else there is tells more.
        mask
    }
}

/// The bits that all of some masks have.
fn common<'a>(mut masks: impl Iterator<Item = &'a Match>) -> Option<Mask> {
    let first = *masks.next()?.mask();
    Some(masks.fold(first, |common, matches| common.and(matches.mask())))
}

impl TupleSpace {
    /// The number of the table for a new rule.
    pub(super) fn place(&mut self, new: &Match) -> u32 {
        let fitting = self.order.iter().map(|&(_, number)| number);
        let mut fitting: Vec<u32> =
            fitting.filter(|&number| self.tables[number as usize].mask().within(new.mask())).collect();
        // The most particular first; the number decides between equals, so that a list of rules always gives one structure.
        fitting.sort_unstable_by_key(|&number| {
            (std::cmp::Reverse(self.tables[number as usize].mask().count()), number)
        });
        let Some(&narrowest) = fitting.first() else {
            return self.table_of(relaxed(new));
        };
        let room = |&number: &u32| self.tables[number as usize].same(new.value()).len() < LIMIT;
        if let Some(number) = fitting.iter().copied().find(room) {
            return number;
        }
        self.relieve(narrowest, new)
    }

    /// A table has too many rules with the same bits as `new`: some move. The number of the table for `new`.
    fn relieve(&mut self, crowded: u32, new: &Match) -> u32 {
        let mask = *self.tables[crowded as usize].mask();
        let rules = self.tables[crowded as usize].same(new.value());
        let wider = || rules.iter().map(|(_, matches)| matches).chain([new]).filter(|m| *m.mask() != mask);
        let shared = common(wider()).filter(|shared| *shared != mask);
        let most = || wider().map(Match::mask).max_by_key(|mask| mask.count()).copied();
        let Some(target) = shared.or_else(most) else { return crowded };
        let moving: Vec<(Rank, Match)> =
            rules.iter().filter(|(_, matches)| target.within(matches.mask())).copied().collect();
        let number = self.table_of(target);
        for (rank, matches) in moving.into_iter().take(LIMIT + 1) {
            if self.take(crowded, rank, &matches) {
                self.put(number, rank, &matches);
            }
        }
        // The crowded table may have gone with its last rule.
        if target.within(new.mask()) { number } else { self.table_of(mask) }
    }
}
