//! Small values that must not be mixed up: MAC addresses, EtherTypes, IP protocol numbers.

use std::fmt;
use std::str::FromStr;

/// A text that is not the value asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct ParseError {
    text: String,
    wanted: &'static str,
}

impl ParseError {
    fn new(text: &str, wanted: &'static str) -> Self {
        // A whole file passed by mistake should still make a one-line error.
        ParseError { text: text.chars().take(40).collect(), wanted }
    }
}

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// `00:00:00:00:00:00`, which no station has.
    pub const ZERO: MacAddr = MacAddr([0; 6]);

    /// Whether this is the broadcast address.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Whether the group bit is set; true of the broadcast address as well.
    #[inline]
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether this can be one station's address: neither a group nor zero.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Self::ZERO
    }

    /// Whether the address was assigned locally and not by a manufacturer.
    #[inline]
    pub fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }

    /// The group address of an IPv4 multicast destination (RFC 1112, section 6.4).
    pub fn from_multicast_v4(group: std::net::Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group address of an IPv6 multicast destination (RFC 2464, section 7).
    pub fn from_multicast_v6(group: std::net::Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        MacAddr([0x33, 0x33, a, b, c, d])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = ParseError;

    /// Six pairs of hexadecimal digits between colons or, throughout, hyphens.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::new(text, "a MAC address such as 02:00:00:00:00:01");
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts.next().ok_or_else(wrong)?;
            *octet = hex(part, 2).ok_or_else(wrong)? as u8;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(MacAddr(octets))
    }
}

/// Exactly `digits` hexadecimal digits; `from_str_radix` alone would take a sign.
fn hex(text: &str, digits: usize) -> Option<u16> {
    if text.len() != digits || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u16::from_str_radix(text, 16).ok()
}

/// What an Ethernet frame carries, or below 0x0600 its length (IEEE 802.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// Internet Protocol version 4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// Address Resolution Protocol.
    pub const ARP: EtherType = EtherType(0x0806);
    /// IEEE 802.1Q customer tag.
    pub const VLAN: EtherType = EtherType(0x8100);
    /// Internet Protocol version 6.
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// IEEE 802.1ad service tag.
    pub const QINQ: EtherType = EtherType(0x88a8);
    /// The service tag that switches used before 802.1ad.
    pub const QINQ_LEGACY: EtherType = EtherType(0x9100);

    const NAMES: [(EtherType, &'static str); 6] = [
        (Self::IPV4, "ipv4"),
        (Self::ARP, "arp"),
        (Self::VLAN, "vlan"),
        (Self::IPV6, "ipv6"),
        (Self::QINQ, "qinq"),
        (Self::QINQ_LEGACY, "qinq-legacy"),
    ];

    /// Whether a VLAN tag follows.
    #[inline]
    pub fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::QINQ | Self::QINQ_LEGACY)
    }

    /// Whether this is the length of an IEEE 802.3 frame and not a type.
    #[inline]
    pub fn is_length(self) -> bool {
        self.0 < 0x0600
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(value, _)| value == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "0x{:04x}", self.0),
        }
    }
}

impl FromStr for EtherType {
    type Err = ParseError;

    /// A name as displayed, or `0x` and four hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some((value, _)) = Self::NAMES.iter().find(|(_, name)| *name == text) {
            return Ok(*value);
        }
        text.strip_prefix("0x")
            .and_then(|digits| hex(digits, 4))
            .map(EtherType)
            .ok_or_else(|| ParseError::new(text, "an EtherType such as ipv4 or 0x0800"))
    }
}

/// An IP protocol number or IPv6 next header (one registry, IANA "Protocol Numbers").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: Protocol = Protocol(0);
    /// Internet Control Message Protocol.
    pub const ICMP: Protocol = Protocol(1);
    /// Internet Group Management Protocol.
    pub const IGMP: Protocol = Protocol(2);
    /// IPv4 inside IP.
    pub const IPV4: Protocol = Protocol(4);
    /// Transmission Control Protocol.
    pub const TCP: Protocol = Protocol(6);
    /// User Datagram Protocol.
    pub const UDP: Protocol = Protocol(17);
    /// IPv6 inside IP.
    pub const IPV6: Protocol = Protocol(41);
    /// IPv6 routing header.
    pub const ROUTING: Protocol = Protocol(43);
    /// IPv6 fragment header.
    pub const FRAGMENT: Protocol = Protocol(44);
    /// Generic Routing Encapsulation.
    pub const GRE: Protocol = Protocol(47);
    /// Encapsulating Security Payload.
    pub const ESP: Protocol = Protocol(50);
    /// Authentication Header.
    pub const AH: Protocol = Protocol(51);
    /// ICMP for IPv6.
    pub const ICMPV6: Protocol = Protocol(58);
    /// Nothing follows (IPv6).
    pub const NO_NEXT: Protocol = Protocol(59);
    /// IPv6 destination options.
    pub const DEST_OPTIONS: Protocol = Protocol(60);
    /// Open Shortest Path First.
    pub const OSPF: Protocol = Protocol(89);
    /// Stream Control Transmission Protocol.
    pub const SCTP: Protocol = Protocol(132);

    const NAMES: [(Protocol, &'static str); 17] = [
        (Self::HOP_BY_HOP, "hop-by-hop"),
        (Self::ICMP, "icmp"),
        (Self::IGMP, "igmp"),
        (Self::IPV4, "ipv4"),
        (Self::TCP, "tcp"),
        (Self::UDP, "udp"),
        (Self::IPV6, "ipv6"),
        (Self::ROUTING, "routing"),
        (Self::FRAGMENT, "fragment"),
        (Self::GRE, "gre"),
        (Self::ESP, "esp"),
        (Self::AH, "ah"),
        (Self::ICMPV6, "icmpv6"),
        (Self::NO_NEXT, "no-next-header"),
        (Self::DEST_OPTIONS, "dest-options"),
        (Self::OSPF, "ospf"),
        (Self::SCTP, "sctp"),
    ];

    /// Whether a header of this protocol starts with a source and a destination port.
    #[inline]
    pub fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::SCTP)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(value, _)| value == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Protocol {
    type Err = ParseError;

    /// A name as displayed, or a decimal number.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some((value, _)) = Self::NAMES.iter().find(|(_, name)| *name == text) {
            return Ok(*value);
        }
        if text.bytes().all(|b| b.is_ascii_digit())
            && let Ok(value) = text.parse()
        {
            return Ok(Protocol(value));
        }
        Err(ParseError::new(text, "an IP protocol such as udp or 17"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_round_trip() {
        for value in 0..=u16::MAX {
            let ethertype = EtherType(value);
            assert_eq!(ethertype.to_string().parse(), Ok(ethertype));
        }
        for value in 0..=u8::MAX {
            let protocol = Protocol(value);
            assert_eq!(protocol.to_string().parse(), Ok(protocol));
        }
        let mac = MacAddr([0x02, 0xab, 0, 0xff, 9, 0x10]);
        assert_eq!(mac.to_string(), "02:ab:00:ff:09:10");
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!("02-AB-00-ff-09-10".parse(), Ok(mac));
    }

    #[test]
    fn wrong_texts_are_refused() {
        for text in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "+2:00:00:00:00:01",
            "2:0:0:0:0:1",
            "02-00:00-00-00-01",
        ] {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
        for text in ["", "ip", "800", "0x800", "0x+800", "2048"] {
            assert!(text.parse::<EtherType>().is_err(), "{text}");
        }
        for text in ["", "256", "+6", "-1", "tcpp"] {
            assert!(text.parse::<Protocol>().is_err(), "{text}");
        }
        let error = "x".parse::<Protocol>().unwrap_err();
        assert_eq!(error.to_string(), "\"x\" is not an IP protocol such as udp or 17");
    }

    #[test]
    fn kinds_of_mac_addresses() {
        assert!(MacAddr::BROADCAST.is_multicast() && MacAddr::BROADCAST.is_broadcast());
        assert!(!MacAddr::ZERO.is_unicast());
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_unicast() && MacAddr([2, 0, 0, 0, 0, 1]).is_local());
        let group = MacAddr::from_multicast_v4(std::net::Ipv4Addr::new(239, 129, 2, 3));
        assert_eq!(group.to_string(), "01:00:5e:01:02:03");
        let group = MacAddr::from_multicast_v6("ff02::1:ff00:1234".parse().unwrap());
        assert_eq!(group.to_string(), "33:33:ff:00:12:34");
    }
}
