//! Matches, priorities, and the order in which rules win.

use crate::key::{Field, IPV6, Key, Mask, WORDS, ones};
use std::ops::RangeInclusive;

/// Bits of a rank that are the rule's number.
const ID_BITS: u32 = 24;

/// The most rules of a set: their numbers are less, and so [`Rank::NONE`] is no rule's.
pub const MOST_RULES: usize = (1 << ID_BITS) - 1;

/// A rule's number, less than [`MOST_RULES`]: stable while the rule is there, and used again after it has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// The order of rules, the least first: by falling priority, and among equal priorities by rising number (OpenFlow leaves that open).
/// [`Rank::NONE`] is behind all rules: no match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u64);

impl Rank {
    /// No rule.
    pub const NONE: Rank = Rank(u64::MAX);

    /// The rank of a rule.
    #[inline(always)]
    pub fn new(priority: u64, id: RuleId) -> Self {
        debug_assert!(priority >> (u64::BITS - ID_BITS) == 0 && (id.0 as usize) < MOST_RULES);
        Rank(!priority << ID_BITS | u64::from(id.0))
    }

    /// The priority of the rule that has it.
    pub fn priority(self) -> u64 {
        !self.0 >> ID_BITS
    }

    /// The rule that has it.
    #[inline(always)]
    pub fn rule(self) -> Option<RuleId> {
        (self != Rank::NONE).then_some(RuleId(self.0 as u32 & MOST_RULES as u32))
    }
}

/// Which of a packet's two ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The source port.
    Source,
    /// The destination port.
    Destination,
}

impl Side {
    /// The field.
    pub fn field(self) -> Field {
        match self {
            Side::Source => Field::SourcePort,
            Side::Destination => Field::DestinationPort,
        }
    }
}

/// Ports from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last, not less than the first.
    pub last: u16,
}

impl PortRange {
    /// Every port.
    pub const ALL: PortRange = PortRange { first: 0, last: u16::MAX };

    /// Whether a port is in it.
    #[inline(always)]
    pub fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// What lies above an IP header.
const ABOVE: [Field; 5] =
    [Field::Protocol, Field::SourcePort, Field::DestinationPort, Field::TcpFlags, Field::Fragment];

/// What packets a rule is about: bits that must have a value, and a range for each port.
///
/// One match has one form: values have no bits outside their mask, a range of one port is a mask, and a mask over an address comes
/// with the ethertype that it needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Match {
    value: Key,
    mask: Mask,
    ports: [PortRange; 2],
}

impl Default for Match {
    fn default() -> Self {
        Match::any()
    }
}

impl Match {
    /// Every packet.
    pub fn any() -> Self {
        Match { value: Key::default(), mask: Mask::NONE, ports: [PortRange::ALL; 2] }
    }

    /// Also the bits of `mask` in `field` must be those of `value`.
    #[must_use]
    pub fn masked(mut self, field: Field, value: u128, mask: u128) -> Self {
        let mask = mask & ones(field.bits());
        if let Some(ethertype) = field.needs().filter(|_| mask != 0) {
            self = self.exact(Field::EtherType, ethertype.into());
        }
        self.mask = self.mask.with(field, mask);
        self.value = self.value.with(field, value & mask);
        self
    }

    /// Also `field` must have this value.
    #[must_use]
    pub fn exact(self, field: Field, value: u128) -> Self {
        self.masked(field, value, u128::MAX)
    }

    /// Also the first `length` bits of `field` must be those of `value`.
    #[must_use]
    pub fn prefix(self, field: Field, value: u128, length: u32) -> Self {
        self.masked(field, value, Mask::prefix(field, length).get(field))
    }

    /// Also a port must be in a range. An empty one is a match of nothing, and is not made: its ends change places.
    #[must_use]
    pub fn port_range(mut self, side: Side, range: RangeInclusive<u16>) -> Self {
        let (first, last) = (*range.start().min(range.end()), *range.start().max(range.end()));
        if first == last {
            self.ports[side as usize] = PortRange::ALL;
            return self.exact(side.field(), first.into());
        }
        self.ports[side as usize] = PortRange { first, last };
        self
    }

    /// The least range with all ports that it asks for, and whether it asks for all ports of that. A mask of leading bits is a range, too; where there is a range besides,
    /// it is what both have.
    pub(crate) fn span(&self, side: Side) -> (PortRange, bool) {
        let [value, mask] =
            [self.value.get(side.field()), self.mask.get(side.field())].map(|bits| bits as u16);
        let rest = u16::MAX.checked_shr(mask.leading_ones()).unwrap_or(0);
        let (block, range) = (value & !rest, self.ports[side as usize]);
        let span = PortRange { first: block.max(range.first), last: (block | rest).min(range.last) };
        (span, mask == !rest)
    }

    /// From what the others say of one.
    pub(crate) fn from_parts(value: Key, mask: Mask, ports: [PortRange; 2]) -> Self {
        Match { value, mask, ports }
    }

    /// The values of the bits that count.
    pub fn value(&self) -> &Key {
        &self.value
    }

    /// The bits that count.
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Source and destination ports beside the mask.
    pub fn ports(&self) -> [PortRange; 2] {
        self.ports
    }

    /// Whether a packet is one of these: the definition.
    #[inline]
    pub fn matches(&self, key: &Key) -> bool {
        let [source, destination] = key.ports();
        (0..WORDS).all(|i| (key.0[i] ^ self.value.0[i]) & self.mask.0[i] == 0)
            && self.ports[0].contains(source)
            && self.ports[1].contains(destination)
    }

    /// A packet that is matched: the first ports of the ranges, all bits zero that do not count.
    pub fn first_key(&self) -> Key {
        let sides = [Side::Source, Side::Destination].into_iter().zip(self.ports);
        sides.filter(|(_, range)| *range != PortRange::ALL).fold(self.value, |key, (side, range)| {
            // A mask over the same port comes first; ranges beside masks are rare.
            if self.mask.get(side.field()) == 0 { key.with(side.field(), range.first.into()) } else { key }
        })
    }

    /// Whether it asks, of packets that may be IPv6, for what lies above the IPv6 header: protocol, ports, flags, fragments.
    pub fn asks_above_ipv6(&self) -> bool {
        let ethertype = self.mask.get(Field::EtherType);
        let may_be = (self.value.get(Field::EtherType) ^ u128::from(IPV6)) & ethertype == 0;
        let mut above = ABOVE.into_iter();
        may_be && (self.ports != [PortRange::ALL; 2] || above.any(|field| self.mask.get(field) != 0))
    }

    /// Whether it asks for what a transport header has: ports (of ICMP type and code), TCP flags.
    pub fn asks_transport(&self) -> bool {
        let mut fields = [Field::SourcePort, Field::DestinationPort, Field::TcpFlags].into_iter();
        self.ports != [PortRange::ALL; 2] || fields.any(|field| self.mask.get(field) != 0)
    }

    /// Whether some packet with these bits could be matched. Ranges are not looked at, so a yes may be wrong, a no is not.
    pub fn may_meet(&self, value: &Key, mask: &Mask) -> bool {
        (0..WORDS).all(|i| (value.0[i] ^ self.value.0[i]) & mask.0[i] & self.mask.0[i] == 0)
    }
}

/// A match with a priority: of all rules that match a packet the one of the highest priority wins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rule {
    /// What packets it is about.
    pub matches: Match,
    /// The higher one wins. It has 40 bits.
    pub priority: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::IPV4;

    #[test]
    fn one_match_has_one_form() {
        let by_range = Match::any().port_range(Side::Source, 80..=80);
        assert_eq!(by_range, Match::any().exact(Field::SourcePort, 80));
        let address = Match::any().prefix(Field::Ipv4Source, 0x0a01_0203, 8);
        assert_eq!(address.value().get(Field::Ipv4Source), 0x0a00_0000);
        assert_eq!(address.value().get(Field::EtherType), 0x0800);
        assert_eq!(Match::any().prefix(Field::Ipv6Source, 7, 0), Match::any());
        assert!(address.matches(&Key::ipv4(0x0aff_ffff, 0, 0, 0, 0)));
        assert!(!address.matches(&Key::ipv4(0x0bff_ffff, 0, 0, 0, 0)));
        // The same words, read as another family.
        assert!(!address.matches(&Key::ipv6(0x0aff_ffff << 96, 0, 0, 0, 0)));
    }

    #[test]
    fn what_lies_above_ipv6_is_asked_for_by_what_may_be_ipv6() {
        let any = Match::any();
        let [v4, v6] = [IPV4, IPV6].map(|family| any.exact(Field::EtherType, family.into()));
        for of_addresses in [any, v4, v6, v6.prefix(Field::Ipv6Source, 7, 128), v6.exact(Field::Tos, 4)] {
            assert!(!of_addresses.asks_above_ipv6(), "{of_addresses:?}");
        }
        for family in [any, v6, any.masked(Field::EtherType, 0x8000, 0x8000)] {
            for above in [
                family.exact(Field::Protocol, 6),
                family.masked(Field::TcpFlags, 2, 2),
                family.masked(Field::Fragment, 0, 1),
                family.port_range(Side::Destination, 1..=9),
                family.exact(Field::SourcePort, 53),
            ] {
                assert!(above.asks_above_ipv6(), "{above:?}");
            }
        }
        assert!(!v4.exact(Field::Protocol, 6).port_range(Side::Source, 1..=9).asks_above_ipv6());
    }

    #[test]
    fn ranks_order_rules() {
        let (most, last) = ((1 << 40) - 1, MOST_RULES as u32 - 1);
        let ranks = [(most, last), (9, 5), (9, 6), (8, 0), (0, 0), (0, last)];
        let ranks = ranks.map(|(priority, id)| Rank::new(priority, RuleId(id)));
        assert!(ranks.is_sorted());
        assert!(ranks[5] < Rank::NONE);
        assert_eq!(ranks.map(|rank| rank.rule().unwrap().0), [last, 5, 6, 0, 0, last]);
        assert_eq!(ranks.map(Rank::priority), [most, 9, 9, 8, 0, 0]);
        assert_eq!(Rank::NONE.rule(), None);
    }
}
