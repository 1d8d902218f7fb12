//! The fields of a packet as eight words, one cache line, and masks over them.
//!
//! ```text
//! word   63 ........ 48 47 ........ 32 31 ........ 16 15 ......... 0
//!   0    IPv4 source                 | IPv4 destination                  or the upper half of an IPv6 source
//!   1    lower half of an IPv6 source
//!   2    upper half of an IPv6 destination
//!   3    lower half of an IPv6 destination
//!   4    source port   | dest. port   | ethertype    | protocol | TOS
//!   5    in-port       | VLAN         | TCP flags    | fragment | 14 bits 0: caches number masks here
//!   6    metadata 31..16 | MAC destination
//!   7    metadata 15..0  | MAC source
//! ```
//!
//! An IPv4 5-tuple is in words 0 and 4, so that a classifier of such rules touches two words of a key. IPv4, IPv6 and ARP addresses share
//! word 0: whoever asks for an address also asks for its ethertype ([`Match`](crate::Match) sees to that), so the one is never taken for
//! the other. A field that a packet does not have is zero. How packets become keys is in [`crate::packet`].
//!
//! Departures from OpenFlow: metadata has 32 bits of its 64, an in-port 16 of 32.

use std::fmt;

/// Words of a key.
pub const WORDS: usize = 8;

/// Ethertype of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Ethertype of ARP.
pub const ARP: u16 = 0x0806;

/// Of [`Field::Vlan`]: there is a tag.
pub const VLAN_PRESENT: u16 = 0x1000;
/// Of [`Field::Fragment`]: a fragment, the first too.
pub const FRAGMENT_ANY: u8 = 1;
/// Of [`Field::Fragment`]: a fragment that is not the first.
pub const FRAGMENT_LATER: u8 = 2;

/// A field of a packet's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// IPv4 source address, 32 bits.
    Ipv4Source,
    /// IPv4 destination address, 32 bits.
    Ipv4Destination,
    /// ARP's sender address (`arp_spa`), 32 bits.
    ArpSource,
    /// ARP's target address (`arp_tpa`), 32 bits.
    ArpTarget,
    /// IPv6 source address, 128 bits.
    Ipv6Source,
    /// IPv6 destination address, 128 bits.
    Ipv6Destination,
    /// Source port of TCP, UDP, SCTP; ICMP type.
    SourcePort,
    /// Destination port; ICMP code.
    DestinationPort,
    /// Ethertype behind VLAN tags, 16 bits.
    EtherType,
    /// IP protocol, behind IPv6 extension headers; ARP's operation. 8 bits.
    Protocol,
    /// TOS or traffic class, 8 bits.
    Tos,
    /// The port of ours that the packet came in by, 16 bits.
    InPort,
    /// The outer VLAN tag, 16 bits: 0 if there is none, otherwise bit 12 is set (as Open vSwitch has it), 3 bits priority, 12 bits VLAN.
    Vlan,
    /// TCP flags with the data offset's reserved bits, as in ClassBench: 16 bits.
    TcpFlags,
    /// Whether the packet is a fragment, and whether it is not the first of its packet, 2 bits: [`FRAGMENT_ANY`], [`FRAGMENT_LATER`].
    Fragment,
    /// MAC destination, 48 bits.
    MacDestination,
    /// MAC source, 48 bits.
    MacSource,
    /// 32 bits that tables hand on to each other.
    Metadata,
}

/// Some bits of a field: where they lie.
#[derive(Clone, Copy)]
struct Part {
    word: usize,
    shift: u32,
    bits: u32,
}

const fn part(word: usize, shift: u32, bits: u32) -> Part {
    Part { word, shift, bits }
}

impl Field {
    /// All fields.
    pub const ALL: [Field; 18] = [
        Field::Ipv4Source,
        Field::Ipv4Destination,
        Field::ArpSource,
        Field::ArpTarget,
        Field::Ipv6Source,
        Field::Ipv6Destination,
        Field::SourcePort,
        Field::DestinationPort,
        Field::EtherType,
        Field::Protocol,
        Field::Tos,
        Field::InPort,
        Field::Vlan,
        Field::TcpFlags,
        Field::Fragment,
        Field::MacDestination,
        Field::MacSource,
        Field::Metadata,
    ];

    /// Where the field lies, its highest bits first.
    const fn parts(self) -> &'static [Part] {
        match self {
            Field::Ipv4Source | Field::ArpSource => const { &[part(0, 32, 32)] },
            Field::Ipv4Destination | Field::ArpTarget => const { &[part(0, 0, 32)] },
            Field::Ipv6Source => const { &[part(0, 0, 64), part(1, 0, 64)] },
            Field::Ipv6Destination => const { &[part(2, 0, 64), part(3, 0, 64)] },
            Field::SourcePort => const { &[part(4, 48, 16)] },
            Field::DestinationPort => const { &[part(4, 32, 16)] },
            Field::EtherType => const { &[part(4, 16, 16)] },
            Field::Protocol => const { &[part(4, 8, 8)] },
            Field::Tos => const { &[part(4, 0, 8)] },
            Field::InPort => const { &[part(5, 48, 16)] },
            Field::Vlan => const { &[part(5, 32, 16)] },
            Field::TcpFlags => const { &[part(5, 16, 16)] },
            Field::Fragment => const { &[part(5, 14, 2)] },
            Field::MacDestination => const { &[part(6, 0, 48)] },
            Field::MacSource => const { &[part(7, 0, 48)] },
            Field::Metadata => const { &[part(6, 48, 16), part(7, 48, 16)] },
        }
    }

    /// Bits of the field.
    pub fn bits(self) -> u32 {
        self.parts().iter().map(|part| part.bits).sum()
    }

    /// The ethertype that a packet must have for the field to mean anything.
    pub fn needs(self) -> Option<u16> {
        match self {
            Field::Ipv4Source | Field::Ipv4Destination => Some(IPV4),
            Field::Ipv6Source | Field::Ipv6Destination => Some(IPV6),
            Field::ArpSource | Field::ArpTarget => Some(ARP),
            _ => None,
        }
    }

    fn read(self, words: &[u64; WORDS]) -> u128 {
        self.parts().iter().fold(0, |value, part| {
            let bits = u128::from(words[part.word] >> part.shift) & ones(part.bits);
            value << part.bits | bits
        })
    }

    fn write(self, words: &mut [u64; WORDS], value: u128) {
        let mut left = value & ones(self.bits());
        for part in self.parts().iter().rev() {
            let mask = (ones(part.bits) as u64) << part.shift;
            let bits = ((left & ones(part.bits)) as u64) << part.shift;
            words[part.word] = words[part.word] & !mask | bits;
            left = left.checked_shr(part.bits).unwrap_or(0);
        }
    }
}

/// So many ones.
pub(crate) fn ones(bits: u32) -> u128 {
    u128::MAX.checked_shr(128 - bits.min(128)).unwrap_or(0)
}

/// The fields of a packet. See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Key(pub [u64; WORDS]);

impl Key {
    /// The key of an IPv4 packet with addresses, ports and protocol; all else zero.
    pub fn ipv4(
        source: u32,
        destination: u32,
        source_port: u16,
        destination_port: u16,
        protocol: u8,
    ) -> Self {
        let ports = u64::from(source_port) << 48 | u64::from(destination_port) << 32;
        let mut key = Key::default();
        key.0[0] = u64::from(source) << 32 | u64::from(destination);
        key.0[4] = ports | u64::from(IPV4) << 16 | u64::from(protocol) << 8;
        key
    }

    /// The key of an IPv6 packet with addresses, ports and protocol; all else zero.
    pub fn ipv6(
        source: u128,
        destination: u128,
        source_port: u16,
        destination_port: u16,
        protocol: u8,
    ) -> Self {
        Key::ipv4(0, 0, source_port, destination_port, protocol)
            .with(Field::EtherType, IPV6.into())
            .with(Field::Ipv6Source, source)
            .with(Field::Ipv6Destination, destination)
    }

    /// The value of a field.
    pub fn get(&self, field: Field) -> u128 {
        field.read(&self.0)
    }

    /// The same key with another value of a field; bits that the field does not have are cut off.
    #[must_use]
    pub fn with(mut self, field: Field, value: u128) -> Self {
        field.write(&mut self.0, value);
        self
    }

    /// The bits of this key that a mask names.
    #[inline(always)]
    #[must_use]
    pub fn masked(&self, mask: &Mask) -> Key {
        Key(std::array::from_fn(|i| self.0[i] & mask.0[i]))
    }

    /// Source and destination port.
    #[inline(always)]
    pub fn ports(&self) -> [u16; 2] {
        [(self.0[4] >> 48) as u16, (self.0[4] >> 32) as u16]
    }
}

/// Which bits of a key count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Mask(pub [u64; WORDS]);

impl Mask {
    /// No bit.
    pub const NONE: Mask = Mask([0; WORDS]);

    /// Every bit that a key has.
    pub const ALL: Mask =
        Mask([u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX, !0x3fff, u64::MAX, u64::MAX]);

    /// The bits of a field that count.
    pub fn get(&self, field: Field) -> u128 {
        field.read(&self.0)
    }

    /// The same with other bits of a field.
    #[must_use]
    pub fn with(mut self, field: Field, bits: u128) -> Self {
        field.write(&mut self.0, bits);
        self
    }

    /// The first `length` bits of a field, and no other bit; a length beyond the field's is the whole field.
    pub fn prefix(field: Field, length: u32) -> Self {
        let length = length.min(field.bits());
        Mask::NONE.with(field, ones(length).checked_shl(field.bits() - length).unwrap_or(0))
    }

    /// The length of the prefix of a field that counts; `None` if the bits are no prefix.
    pub fn prefix_length(&self, field: Field) -> Option<u32> {
        let bits = self.get(field);
        let length = (bits << (128 - field.bits())).leading_ones();
        (bits.count_ones() == length).then_some(length)
    }

    /// The words that it has bits in, by bits.
    #[inline(always)]
    pub(crate) fn words(&self) -> u32 {
        (0..).zip(&self.0).fold(0, |words, (i, word)| words | u32::from(*word != 0) << i)
    }

    /// The bits of either.
    #[must_use]
    pub fn or(&self, other: &Mask) -> Mask {
        Mask(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// The bits of both.
    #[must_use]
    pub fn and(&self, other: &Mask) -> Mask {
        Mask(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Whether every bit of this one is in the other.
    pub fn within(&self, other: &Mask) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & !b == 0)
    }

    /// How many bits count.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

fn show(words: &[u64; WORDS], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut list = f.debug_map();
    for field in Field::ALL {
        // Word 0 is shown once, as what the ethertype says.
        let family = Field::EtherType.read(words);
        let other = matches!(field.needs(), Some(needs) if family != u128::from(needs));
        let value = field.read(words);
        if value != 0 && !other {
            list.entry(&field, &format_args!("{value:#x}"));
        }
    }
    list.finish()
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, f)
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask")?;
        self.0.iter().try_for_each(|word| write!(f, " {word:x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_overlap_but_where_the_ethertype_tells() {
        let mut seen = Mask::NONE;
        for field in Field::ALL {
            let all = Mask::prefix(field, 128);
            assert_eq!(all.count(), field.bits(), "{field:?}");
            if !matches!(field.needs(), Some(IPV4 | ARP)) {
                assert_eq!(seen.and(&all), Mask::NONE, "{field:?}");
                seen = seen.or(&all);
            }
        }
        assert_eq!(seen, Mask::ALL);
    }

    #[test]
    fn values_come_back() {
        for field in Field::ALL {
            let value = 0x0123_4567_89ab_cdef_0fed_cba9_8765_4321 & ones(field.bits());
            let key = Key::default().with(field, value);
            assert_eq!(key.get(field), value);
            assert_eq!(key.with(field, 0), Key::default());
            for length in 0..=field.bits() {
                assert_eq!(
                    Mask::prefix(field, length).prefix_length(field),
                    Some(length),
                    "{field:?} {length}"
                );
            }
        }
        let odd = Mask::NONE.with(Field::Ipv4Source, 0xff00_ff00);
        assert_eq!(odd.prefix_length(Field::Ipv4Source), None);
        assert_eq!(Key::ipv4(1, 2, 3, 4, 5).ports(), [3, 4]);
        assert_eq!(Key::ipv6(1, 2, 3, 4, 5).get(Field::Ipv6Destination), 2);
    }
}
