//! Made-up rule sets and packets: shapes like those of ClassBench's seeds, OpenFlow-like ones, and the worst that we could think of.

use crate::key::{ARP, Field, IPV6, Key, Mask, WORDS};
use crate::rule::{Match, Rule, Side};
use tidemill_flow::hash::mix;

/// Numbers from a seed.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Always the same numbers for one seed.
    pub fn new(seed: u64) -> Self {
        Rng(mix(seed ^ 0x5eed))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.number()) * n as u128) >> 64) as usize
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn wide(&mut self) -> u128 {
        u128::from(self.number()) << 64 | u128::from(self.number())
    }
}

/// A kind of rule set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Hosts and networks to hosts, destination ports, one protocol: access lists.
    Acl,
    /// From anywhere to hosts and back, ranges on both ports: firewalls.
    Firewall,
    /// All lengths on both sides: IP chains.
    Chains,
    /// The same over IPv6.
    Ipv6,
    /// Any fields, any bits.
    OpenFlow,
    /// Both families and rules about neither.
    Mixed,
    /// All rules overlap: nested prefixes of one address.
    Nested,
    /// All of one priority, from few matches, many of them twice.
    Duplicates,
    /// Nothing but ranges, such that each would be dozens of prefixes.
    Ranges,
    /// Every packet, by every rule.
    Wildcards,
    /// Every rule its own mask.
    Masks,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Shape; 11] = [
        Shape::Acl,
        Shape::Firewall,
        Shape::Chains,
        Shape::Ipv6,
        Shape::OpenFlow,
        Shape::Mixed,
        Shape::Nested,
        Shape::Duplicates,
        Shape::Ranges,
        Shape::Wildcards,
        Shape::Masks,
    ];

    /// A rule of this kind.
    pub fn rule(self, rng: &mut Rng) -> Rule {
        let matches = match self {
            Shape::Acl => {
                let lengths = [[32, 32], [31, 32], [32, 24], [23, 32], [24, 16], [8, 0]][rng.below(6)];
                let side = if rng.once_in(3) { Side::Source } else { Side::Destination };
                protocol(ports(ipv4(rng, lengths), side, rng), rng)
            }
            Shape::Firewall => {
                let lengths = [[0, 32], [0, 32], [32, 0], [28, 30], [1, 31], [0, 0]][rng.below(6)];
                let matches = ports(ipv4(rng, lengths), Side::Source, rng);
                protocol(ports(matches, Side::Destination, rng), rng)
            }
            Shape::Chains => {
                let lengths = [rng.below(33) as u32, rng.below(33) as u32];
                protocol(ports(ipv4(rng, lengths), Side::Destination, rng), rng)
            }
            Shape::Ipv6 => {
                let lengths = [rng.below(129) as u32, [0, 32, 48, 64, 128][rng.below(5)]];
                protocol(ports(ipv6(rng, lengths), Side::Destination, rng), rng)
            }
            Shape::OpenFlow => openflow(rng),
            Shape::Mixed => return Shape::ALL[rng.below(5)].rule(rng),
            Shape::Nested => {
                let length = rng.below(33) as u32;
                Match::any().prefix(Field::Ipv4Source, 0xc0a8_0101, length)
            }
            Shape::Duplicates => {
                let mut few = Rng::new(rng.below(6) as u64);
                return Rule { priority: 7, ..Shape::Acl.rule(&mut few) };
            }
            Shape::Ranges => {
                let matches = range(Match::any(), Side::Source, rng);
                range(matches, Side::Destination, rng)
            }
            Shape::Wildcards => Match::any(),
            Shape::Masks => {
                let mut matches = Match::any();
                for field in [Field::MacSource, Field::Metadata, Field::Ipv4Source] {
                    matches = matches.masked(
                        field,
                        u128::MAX * u128::from(rng.once_in(2)),
                        rng.wide() & rng.wide(),
                    );
                }
                matches
            }
        };
        // Few priorities: many are equal.
        Rule { matches, priority: rng.below(50) as u64 }
    }
}

/// Addresses out of few networks, so that rules nest and meet.
fn address(rng: &mut Rng) -> u128 {
    let network = [0x0a00_0000, 0x0a01_0000, 0xc0a8_0000, 0xc0a8_8000][rng.below(4)];
    let host = if rng.once_in(4) { rng.below(1 << 16) } else { rng.below(8) * 33 };
    network | host as u128
}

fn ipv4(rng: &mut Rng, [source, destination]: [u32; 2]) -> Match {
    Match::any().exact(Field::EtherType, 0x0800).prefix(Field::Ipv4Source, address(rng), source).prefix(
        Field::Ipv4Destination,
        address(rng),
        destination,
    )
}

fn address6(rng: &mut Rng) -> u128 {
    0x2001_0db8 << 96 | address(rng) << 64 | rng.below(4) as u128
}

fn ipv6(rng: &mut Rng, [source, destination]: [u32; 2]) -> Match {
    Match::any().exact(Field::EtherType, 0x86dd).prefix(Field::Ipv6Source, address6(rng), source).prefix(
        Field::Ipv6Destination,
        address6(rng),
        destination,
    )
}

fn ports(matches: Match, side: Side, rng: &mut Rng) -> Match {
    match rng.below(5) {
        0 => matches,
        1 => matches.port_range(side, 1024..=u16::MAX),
        2 => range(matches, side, rng),
        _ => matches.exact(side.field(), [53, 80, 443, 1521][rng.below(4)]),
    }
}

/// A range that prefixes fit badly.
fn range(matches: Match, side: Side, rng: &mut Rng) -> Match {
    let (first, last) = [(1, 65_534), (1023, 1025), (7, 40_001), (0, 65_534)][rng.below(4)];
    let moved = rng.below(5) as u16;
    matches.port_range(side, first + moved.min(last - first)..=last)
}

fn protocol(matches: Match, rng: &mut Rng) -> Match {
    match rng.below(6) {
        0 => matches,
        1 => matches.exact(Field::Protocol, 17),
        2 => {
            matches.exact(Field::Protocol, 6).masked(Field::TcpFlags, 0x0200, [0x0200, 0x1200][rng.below(2)])
        }
        _ => matches.exact(Field::Protocol, 6),
    }
}

fn openflow(rng: &mut Rng) -> Match {
    let mut matches = Match::any();
    for field in Field::ALL {
        // Addresses of one family only.
        let other = matches!(field.needs(), Some(IPV6 | ARP));
        if other || !rng.once_in(4) {
            continue;
        }
        let value = rng.below(4) as u128 * 0x0101_0101_0101;
        matches = match rng.below(3) {
            0 => matches.exact(field, value),
            1 => matches.prefix(
                field,
                value << (field.bits() / 2),
                rng.below(1 + field.bits() as usize) as u32,
            ),
            _ => matches.masked(field, value, rng.wide()),
        };
    }
    matches
}

/// A packet: mostly one that some rule matches, or nearly.
pub fn key(rules: &[Rule], rng: &mut Rng) -> Key {
    let noise = if rng.once_in(3) { Key(std::array::from_fn(|_| rng.number())) } else { Key::default() };
    let mut key = Key(std::array::from_fn(|i| noise.0[i] & Mask::ALL.0[i]));
    if rng.once_in(8) || rules.is_empty() {
        let ports = [rng.below(1 << 16) as u16, [53, 80, 1024][rng.below(3)]];
        return Key::ipv4(address(rng) as u32, address(rng) as u32, ports[0], ports[1], 6);
    }
    // What two rules say: where they overlap.
    for _ in 0..1 + rng.below(2) {
        let matches = &rules[rng.below(rules.len())].matches;
        for i in 0..WORDS {
            key.0[i] = key.0[i] & !matches.mask().0[i] | matches.value().0[i];
        }
        for (side, range) in [Side::Source, Side::Destination].into_iter().zip(matches.ports()) {
            let open = matches.mask().get(side.field()) == 0;
            if open {
                let ends = [range.first, range.last, range.first.wrapping_sub(1), range.last.wrapping_add(1)];
                key = key.with(side.field(), ends[rng.below(4)].into());
            }
        }
    }
    if rng.once_in(4) {
        key = flipped(&key, rng);
    }
    key
}

/// The same key but for one bit that a field has.
pub fn flipped(key: &Key, rng: &mut Rng) -> Key {
    let mut key = *key;
    let (word, bit) = (rng.below(WORDS), 1 << rng.below(64));
    key.0[word] ^= bit & Mask::ALL.0[word];
    key
}
