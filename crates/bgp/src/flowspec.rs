//! Flow specifications (RFC 8955; of IPv6 RFC 8956): which packets a peer wants to be treated otherwise than they are routed, and how.
//!
//! ```text
//! NLRI                 -> FlowSpec { destination 192.0.2.0/24, protocol =17, source port =53 | =123 }
//! extended communities -> Actions { bytes: 0 }: dropped
//! ```
//!
//! All of it is read, also what a data plane may not be able to do: whoever applies them refuses that by name.

use crate::message::afi;
use std::cmp::Ordering;
use std::fmt;
use tidemill_feed::AnyPrefix;
use tidemill_feed::bgp::{Cursor, Family, Fault};
use tidemill_feed::error::RecordFault;
use tidemill_lpm::Prefix;

/// The subsequent address family of flow specifications (RFC 8955, 4).
pub const SAFI: u8 = 133;

/// A number of a packet that a component looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Number {
    /// The protocol; of IPv6 the upper-layer one (type 3).
    Protocol,
    /// The source port or the destination port (4).
    Port,
    /// The destination port (5).
    DestinationPort,
    /// The source port (6).
    SourcePort,
    /// The type of ICMP (7).
    IcmpType,
    /// Its code (8).
    IcmpCode,
    /// Bytes of the packet, from the IP header on (10).
    Length,
    /// The differentiated services code point (11).
    Dscp,
    /// The flow label of IPv6 (13).
    FlowLabel,
}

impl Number {
    fn of_kind(kind: u8, v6: bool) -> Option<Self> {
        Some(match kind {
            3 => Number::Protocol,
            4 => Number::Port,
            5 => Number::DestinationPort,
            6 => Number::SourcePort,
            7 => Number::IcmpType,
            8 => Number::IcmpCode,
            10 => Number::Length,
            11 => Number::Dscp,
            13 if v6 => Number::FlowLabel,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Number::Protocol => "protocol",
            Number::Port => "port",
            Number::DestinationPort => "destination port",
            Number::SourcePort => "source port",
            Number::IcmpType => "ICMP type",
            Number::IcmpCode => "ICMP code",
            Number::Length => "length",
            Number::Dscp => "DSCP",
            Number::FlowLabel => "flow label",
        }
    }
}

/// Bits of a packet that a component looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bits {
    /// TCP flags (type 9).
    TcpFlags,
    /// Whether it is a fragment, and which (12): see [`fragment`].
    Fragment,
}

/// The bits of [`Bits::Fragment`] (RFC 8955, 4.2.2.12).
pub mod fragment {
    /// It must not be fragmented; IPv4 only.
    pub const DONT: u8 = 1;
    /// A fragment other than the first.
    pub const OTHER: u8 = 2;
    /// The first fragment, and there are more.
    pub const FIRST: u8 = 4;
    /// The last fragment.
    pub const LAST: u8 = 8;
}

/// A comparison (RFC 8955, 4.2.1.1): any of the three that are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Comparison {
    /// Together with the one before it, rather than instead of it.
    pub and: bool,
    /// Below the value.
    pub less: bool,
    /// Above it.
    pub greater: bool,
    /// The value itself.
    pub equal: bool,
    /// The value.
    pub value: u64,
}

impl Comparison {
    fn holds(&self, number: u64) -> bool {
        match number.cmp(&self.value) {
            Ordering::Less => self.less,
            Ordering::Equal => self.equal,
            Ordering::Greater => self.greater,
        }
    }
}

/// A test of bits (RFC 8955, 4.2.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BitTest {
    /// Together with the one before it, rather than instead of it.
    pub and: bool,
    /// The other way round.
    pub not: bool,
    /// All of the bits are set; else any of them is.
    pub all: bool,
    /// The bits.
    pub value: u64,
}

impl BitTest {
    fn holds(&self, bits: u64) -> bool {
        let set = bits & self.value;
        let right = if self.all { set == self.value } else { set != 0 };
        right != self.not
    }
}

/// Whether a list of comparisons is true of a number: "and" binds more than "or".
pub fn number_holds(list: &[Comparison], number: u64) -> bool {
    any_of(list.iter().map(|one| (one.and, one.holds(number))))
}

/// Whether a list of tests is true of bits.
pub fn bits_hold(list: &[BitTest], bits: u64) -> bool {
    any_of(list.iter().map(|one| (one.and, one.holds(bits))))
}

fn any_of(tests: impl Iterator<Item = (bool, bool)>) -> bool {
    let (mut any, mut group) = (false, false);
    for (and, holds) in tests {
        if and {
            group &= holds;
        } else {
            any |= group;
            group = holds;
        }
    }
    any | group
}

/// What a part of a flow specification asks of a packet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    /// The destination's prefix; of IPv6 without so many bits at its beginning (RFC 8956, 3.1).
    Destination(AnyPrefix, u8),
    /// The source's.
    Source(AnyPrefix, u8),
    /// A number.
    Number(Number, Box<[Comparison]>),
    /// Bits.
    Bits(Bits, Box<[BitTest]>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Part {
    kind: u8,
    component: Component,
    /// As it was told, without its type; of a prefix without bits behind its end.
    raw: Box<[u8]>,
}

/// A flow specification: components in the order of their types, each type once. A packet is meant by all of them.
///
/// What sorts by the operators has no meaning; that by [`precedence`](Self::precedence) is the order in which they apply.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowSpec {
    family: Family,
    parts: Box<[Part]>,
}

/// The flow specifications in an attribute, behind what it begins with; and how many of them are malformed. Each has its length, so that one
/// that cannot be read costs itself alone: nothing can be done by it.
///
/// # Errors
/// One that runs over the end.
pub fn read_all(mut value: Cursor<'_>, family: Family) -> Fault<(Vec<FlowSpec>, usize)> {
    let (mut list, mut malformed) = (Vec::new(), 0);
    while !value.is_empty() {
        let first = value.u8("a flow specification's length")?;
        let length = match first {
            0xf0.. => usize::from(first & 0xf) << 8 | usize::from(value.u8("a flow specification's length")?),
            _ => usize::from(first),
        };
        match FlowSpec::read(value.part(length, "a flow specification")?, family) {
            Ok(spec) => list.push(spec),
            Err(_) => malformed += 1,
        }
    }
    Ok((list, malformed))
}

impl FlowSpec {
    /// Reads one, without its length.
    fn read(mut value: Cursor<'_>, family: Family) -> Fault<Self> {
        let (mut parts, mut last) = (Vec::new(), 0);
        while !value.is_empty() {
            let kind = value.u8("a component's type")?;
            // Each once, in order (RFC 8955, 4.2).
            if kind <= last {
                return Err(RecordFault::Segment(kind));
            }
            last = kind;
            parts.push(read_part(kind, &mut value, family)?);
        }
        match parts.is_empty() {
            true => Err(RecordFault::Segment(0)),
            false => Ok(FlowSpec { family, parts: parts.into() }),
        }
    }

    /// Whose packets.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The components, at least one.
    pub fn components(&self) -> impl Iterator<Item = &Component> {
        self.parts.iter().map(|part| &part.component)
    }

    /// How many comparisons and tests it has.
    pub fn operators(&self) -> usize {
        let count = |component: &Component| match component {
            Component::Destination(..) | Component::Source(..) => 1,
            Component::Number(_, list) => list.len(),
            Component::Bits(_, list) => list.len(),
        };
        self.components().map(count).sum()
    }

    /// The destination's prefix, if it has one without an offset.
    pub fn destination(&self) -> Option<AnyPrefix> {
        match self.components().next() {
            Some(Component::Destination(prefix, 0)) => Some(*prefix),
            _ => None,
        }
    }

    /// Which of two is looked at first (RFC 8955, 5.1; RFC 8956, 4): `Less` is this one.
    pub fn precedence(&self, other: &Self) -> Ordering {
        for (one, two) in self.parts.iter().zip(&other.parts) {
            let order = one.kind.cmp(&two.kind).then_with(|| match (&one.component, &two.component) {
                (Component::Destination(a, m), Component::Destination(b, n))
                | (Component::Source(a, m), Component::Source(b, n)) => m.cmp(n).then(longer_first(*a, *b)),
                _ => {
                    let common = one.raw.len().min(two.raw.len());
                    one.raw[..common].cmp(&two.raw[..common]).then(two.raw.len().cmp(&one.raw.len()))
                }
            });
            if order != Ordering::Equal {
                return order;
            }
        }
        other.parts.len().cmp(&self.parts.len())
    }

    /// Appends it with its length, as it stands in an attribute.
    pub fn put(&self, out: &mut Vec<u8>) {
        let length: usize = self.parts.iter().map(|part| 1 + part.raw.len()).sum();
        match length {
            0..0xf0 => out.push(length as u8),
            _ => out.extend_from_slice(&(0xf000 | (length as u16 & 0x0fff)).to_be_bytes()),
        }
        for part in &self.parts {
            out.push(part.kind);
            out.extend_from_slice(&part.raw);
        }
    }
}

fn longer_first(a: AnyPrefix, b: AnyPrefix) -> Ordering {
    let covers = covers(a, b) || covers(b, a);
    if covers { length(b).cmp(&length(a)) } else { a.cmp(&b) }
}

pub(crate) fn length(prefix: AnyPrefix) -> u8 {
    match prefix {
        AnyPrefix::V4(prefix) => prefix.len(),
        AnyPrefix::V6(prefix) => prefix.len(),
    }
}

pub(crate) fn covers(one: AnyPrefix, other: AnyPrefix) -> bool {
    match (one, other) {
        (AnyPrefix::V4(one), AnyPrefix::V4(other)) => one.covers(other),
        (AnyPrefix::V6(one), AnyPrefix::V6(other)) => one.covers(other),
        _ => false,
    }
}

fn read_part(kind: u8, value: &mut Cursor<'_>, family: Family) -> Fault<Part> {
    let mut raw = Vec::new();
    let component = match kind {
        1 | 2 => {
            let (prefix, offset) = read_prefix(value, family)?;
            put_prefix(&mut raw, prefix, offset);
            match kind {
                1 => Component::Destination(prefix, offset),
                _ => Component::Source(prefix, offset),
            }
        }
        9 | 12 => {
            let bits = if kind == 9 { Bits::TcpFlags } else { Bits::Fragment };
            Component::Bits(bits, read_bits(value, &mut raw)?)
        }
        _ => {
            let number = Number::of_kind(kind, family == Family::V6).ok_or(RecordFault::Segment(kind))?;
            Component::Number(number, read_numbers(value, &mut raw)?)
        }
    };
    Ok(Part { kind, component, raw: raw.into() })
}

/// A prefix, and at which bit what is given of it begins.
fn read_prefix(value: &mut Cursor<'_>, family: Family) -> Fault<(AnyPrefix, u8)> {
    if family == Family::V4 {
        let mut masked = 0;
        return Ok((value.prefix(family, &mut masked)?, 0));
    }
    // RFC 8956, 3.1: the length counts from the address's first bit on, what is given begins at the offset.
    let length = value.u8("a prefix's length")?;
    let offset = value.u8("a prefix's offset")?;
    let wrong = RecordFault::PrefixLength { len: length, family: 6 };
    if length > 128 || offset > length || (offset == length && length > 0) {
        return Err(wrong);
    }
    let bits = u32::from(length - offset);
    let bytes = value.bytes(bits.div_ceil(8) as usize, "a prefix")?;
    let given =
        bytes.iter().enumerate().fold(0_u128, |sum, (at, byte)| sum | (u128::from(*byte) << (120 - 8 * at)));
    // What is behind the last bit means nothing.
    let given = given & u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    let prefix = Prefix::new(given.checked_shr(offset.into()).unwrap_or(0), length).ok_or(wrong)?;
    Ok((AnyPrefix::V6(prefix), offset))
}

fn put_prefix(out: &mut Vec<u8>, prefix: AnyPrefix, offset: u8) {
    let bytes = |bits: u8| usize::from(bits).div_ceil(8);
    match prefix {
        AnyPrefix::V4(prefix) => {
            out.push(prefix.len());
            out.extend(prefix.first().to_be_bytes().iter().take(bytes(prefix.len())));
        }
        AnyPrefix::V6(prefix) => {
            out.extend_from_slice(&[prefix.len(), offset]);
            let given = prefix.first().checked_shl(offset.into()).unwrap_or(0);
            out.extend(given.to_be_bytes().iter().take(bytes(prefix.len().saturating_sub(offset))));
        }
    }
}

/// Operators with their values, up to the one that is marked as the last.
fn read_list(value: &mut Cursor<'_>, raw: &mut Vec<u8>, mut take: impl FnMut(u8, u64)) -> Fault<()> {
    loop {
        let operator = value.u8("an operator")?;
        let bytes = value.bytes(1 << ((operator >> 4) & 3), "an operator's value")?;
        raw.push(operator);
        raw.extend_from_slice(bytes);
        take(operator, bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
        if operator & 0x80 != 0 {
            return Ok(());
        }
    }
}

fn read_numbers(value: &mut Cursor<'_>, raw: &mut Vec<u8>) -> Fault<Box<[Comparison]>> {
    let mut list: Vec<Comparison> = Vec::new();
    read_list(value, raw, |operator, value| {
        list.push(Comparison {
            // Of the first one it means nothing (RFC 8955, 4.2.1.1).
            and: operator & 0x40 != 0 && !list.is_empty(),
            less: operator & 4 != 0,
            greater: operator & 2 != 0,
            equal: operator & 1 != 0,
            value,
        });
    })?;
    Ok(list.into())
}

fn read_bits(value: &mut Cursor<'_>, raw: &mut Vec<u8>) -> Fault<Box<[BitTest]>> {
    let mut list: Vec<BitTest> = Vec::new();
    read_list(value, raw, |operator, value| {
        list.push(BitTest {
            and: operator & 0x40 != 0 && !list.is_empty(),
            not: operator & 2 != 0,
            all: operator & 1 != 0,
            value,
        });
    })?;
    Ok(list.into())
}

/// A capability's value: flow specifications of this family.
pub(crate) fn capability(family: Family) -> [u8; 4] {
    let [high, low] = afi(family).to_be_bytes();
    [high, low, 0, SAFI]
}

impl fmt::Display for FlowSpec {
    /// `destination 192.0.2.0/24, protocol =17, source port =53 | =123`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, component) in self.components().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            match component {
                Component::Destination(prefix, offset) => show_prefix(f, "destination", *prefix, *offset)?,
                Component::Source(prefix, offset) => show_prefix(f, "source", *prefix, *offset)?,
                Component::Number(number, list) => {
                    f.write_str(number.name())?;
                    for (at, one) in list.iter().enumerate() {
                        let sign = match (one.less, one.greater, one.equal) {
                            (false, false, false) => "never ",
                            (true, true, true) => "any ",
                            (true, true, false) => "!=",
                            (true, false, true) => "<=",
                            (false, true, true) => ">=",
                            (true, false, false) => "<",
                            (false, true, false) => ">",
                            (false, false, true) => "=",
                        };
                        write!(f, "{}{sign}{}", joined(at, one.and), one.value)?;
                    }
                }
                Component::Bits(bits, list) => {
                    f.write_str(if *bits == Bits::TcpFlags { "TCP flags" } else { "fragment" })?;
                    for (at, one) in list.iter().enumerate() {
                        let not = if one.not { "not " } else { "" };
                        let of = if one.all { "all" } else { "any" };
                        write!(f, "{}{not}{of} of {:#x}", joined(at, one.and), one.value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn show_prefix(f: &mut fmt::Formatter<'_>, name: &str, prefix: AnyPrefix, offset: u8) -> fmt::Result {
    match offset {
        0 => write!(f, "{name} {prefix}"),
        offset => write!(f, "{name} {prefix} from bit {offset}"),
    }
}

fn joined(at: usize, and: bool) -> &'static str {
    match (at, and) {
        (0, _) => " ",
        (_, true) => " & ",
        (_, false) => " | ",
    }
}

#[cfg(test)]
mod tests;
