//! What a rule is about: addresses and ports, as far as the tuple mode looks at them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidemill_flow::key::Key;
use tidemill_wire::flow::Addresses;

/// Words of an IPv4 tuple: addresses, ports.
pub(crate) const WORDS4: usize = 2;
/// Words of an IPv6 tuple: two for each address, ports.
pub(crate) const WORDS6: usize = 5;

/// A flow of answers, outside to inside. What the tuple mode leaves out is zero.
///
/// | mode | source address | destination address | source port | destination port |
/// |---|---|---|---|---|
/// | 4 | yes | yes | yes | yes |
/// | 3 | yes | yes | yes | 0 |
/// | 2 | yes | yes | 0 | 0 |
/// | 1 | yes | 0 | 0 | 0 |
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// Source (the amplifier) and destination (the victim).
    pub addresses: Addresses,
    /// The amplifier's port, host order.
    pub source_port: u16,
    /// The victim's port, host order.
    pub destination_port: u16,
}

impl Tuple {
    /// The amplifier.
    pub fn source(&self) -> IpAddr {
        match self.addresses {
            Addresses::V4 { src, .. } => Ipv4Addr::from(src).into(),
            Addresses::V6 { src, .. } => Ipv6Addr::from(src).into(),
        }
    }

    /// The victim; the unspecified address in mode 1.
    pub fn destination(&self) -> IpAddr {
        match self.addresses {
            Addresses::V4 { dst, .. } => Ipv4Addr::from(dst).into(),
            Addresses::V6 { dst, .. } => Ipv6Addr::from(dst).into(),
        }
    }

    /// The same without what `mode` leaves out.
    #[must_use]
    pub fn masked(mut self, mode: Mode) -> Self {
        if mode < Mode::Four {
            self.destination_port = 0;
        }
        if mode < Mode::Three {
            self.source_port = 0;
        }
        if mode < Mode::Two {
            match &mut self.addresses {
                Addresses::V4 { dst, .. } => *dst = 0,
                Addresses::V6 { dst, .. } => *dst = 0,
            }
        }
        self
    }
}

/// How many parts of a flow a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// The amplifier's address.
    One = 1,
    /// Both addresses.
    Two,
    /// Both addresses and the amplifier's port.
    Three,
    /// Both addresses and both ports.
    Four,
}

impl Mode {
    /// From its number, 1 to 4.
    pub fn new(parts: u8) -> Option<Self> {
        [Mode::One, Mode::Two, Mode::Three, Mode::Four].get(usize::from(parts).wrapping_sub(1)).copied()
    }

    /// What is left of an IPv4 key.
    pub(crate) fn mask4(self) -> [u64; WORDS4] {
        let addresses = if self < Mode::Two { u64::MAX << 32 } else { u64::MAX };
        [addresses, self.port_mask()]
    }

    /// What is left of an IPv6 key.
    pub(crate) fn mask6(self) -> [u64; WORDS6] {
        let destination = if self < Mode::Two { 0 } else { u64::MAX };
        [u64::MAX, u64::MAX, destination, destination, self.port_mask()]
    }

    fn port_mask(self) -> u64 {
        match self {
            Mode::One | Mode::Two => 0,
            Mode::Three => 0xffff << 16,
            Mode::Four => 0xffff_ffff,
        }
    }
}

/// A tuple as the key of a flow table.
pub(crate) trait TupleKey: Copy {
    /// The tuple that it is the key of.
    fn tuple(&self) -> Tuple;
}

/// Both ports in a word.
#[inline(always)]
pub(crate) fn ports(source: u16, destination: u16) -> u64 {
    u64::from(source) << 16 | u64::from(destination)
}

/// The key of an IPv4 tuple.
#[inline(always)]
pub(crate) fn key4(src: u32, dst: u32, ports: u64, mask: &[u64; WORDS4]) -> Key<WORDS4> {
    Key([(u64::from(src) << 32 | u64::from(dst)) & mask[0], ports & mask[1]])
}

/// The key of an IPv6 tuple.
#[inline(always)]
pub(crate) fn key6(src: u128, dst: u128, ports: u64, mask: &[u64; WORDS6]) -> Key<WORDS6> {
    let words = [(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64, ports];
    Key(std::array::from_fn(|i| words[i] & mask[i]))
}

impl TupleKey for Key<WORDS4> {
    fn tuple(&self) -> Tuple {
        let [addresses, ports] = self.0;
        Tuple {
            addresses: Addresses::V4 { src: (addresses >> 32) as u32, dst: addresses as u32 },
            source_port: (ports >> 16) as u16,
            destination_port: ports as u16,
        }
    }
}

impl TupleKey for Key<WORDS6> {
    fn tuple(&self) -> Tuple {
        let [s1, s0, d1, d0, ports] = self.0.map(u128::from);
        Tuple {
            addresses: Addresses::V6 { src: s1 << 64 | s0, dst: d1 << 64 | d0 },
            source_port: (ports >> 16) as u16,
            destination_port: ports as u16,
        }
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |f: &mut fmt::Formatter<'_>, address: IpAddr, port: u16| match (address, port) {
            (address, _) if address.is_unspecified() => f.write_str("*"),
            (address, 0) => write!(f, "{address}"),
            (IpAddr::V4(address), port) => write!(f, "{address}:{port}"),
            (IpAddr::V6(address), port) => write!(f, "[{address}]:{port}"),
        };
        side(f, self.source(), self.source_port)?;
        f.write_str(" > ")?;
        side(f, self.destination(), self.destination_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: Addresses = Addresses::V4 { src: 0x0808_0808, dst: 0x0a00_0001 };
    const V6: Addresses = Addresses::V6 { src: 0x2001_0db8 << 96 | 1, dst: u128::MAX - 5 };

    /// The masks of keys do what the masks of tuples do, in every mode and family.
    #[test]
    fn keys_are_masked_as_tuples_are() {
        for parts in 1..=4 {
            let mode = Mode::new(parts).unwrap();
            for addresses in [V4, V6] {
                let tuple = Tuple { addresses, source_port: 53, destination_port: 40_000 };
                let ports = ports(53, 40_000);
                let back = match addresses {
                    Addresses::V4 { src, dst } => key4(src, dst, ports, &mode.mask4()).tuple(),
                    Addresses::V6 { src, dst } => key6(src, dst, ports, &mode.mask6()).tuple(),
                };
                assert_eq!(back, tuple.masked(mode));
            }
        }
        assert_eq!((Mode::new(0), Mode::new(5)), (None, None));
    }

    #[test]
    fn what_is_left_out_is_not_shown() {
        let text =
            |mode| Tuple { addresses: V4, source_port: 53, destination_port: 9 }.masked(mode).to_string();
        assert_eq!(text(Mode::Four), "8.8.8.8:53 > 10.0.0.1:9");
        assert_eq!(text(Mode::Three), "8.8.8.8:53 > 10.0.0.1");
        assert_eq!(text(Mode::Two), "8.8.8.8 > 10.0.0.1");
        assert_eq!(text(Mode::One), "8.8.8.8 > *");
        let v6 = Tuple { addresses: V6, source_port: 53, destination_port: 9 };
        assert!(v6.to_string().starts_with("[2001:db8::1]:53 > ["));
    }
}
