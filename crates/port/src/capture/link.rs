//! Link types, and how each becomes Ethernet, which is what the graph knows.

/// Destination address of the Ethernet header made up for packets that were captured without one.
pub const SYNTHETIC_DST: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
/// Source address of the Ethernet header made up for packets that were captured without one.
pub const SYNTHETIC_SRC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
/// For packets whose link header is too short to say: no protocol has this number, so the graph drops it by name.
const ETHERTYPE_NONE: u16 = 0xFFFF;

/// A link type that we can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// Ethernet (1): as it is.
    Ethernet,
    /// BSD loopback (0: the capturing host's byte order; 108: network order): 4 bytes of address family.
    Null,
    /// Bare IPv4 or IPv6 (12, 14, 101).
    Raw,
    /// Bare IPv4 (228).
    Ipv4,
    /// Bare IPv6 (229).
    Ipv6,
    /// Linux "cooked" (113): 16 bytes, the EtherType last.
    LinuxSll,
    /// Linux "cooked", version 2 (276): 20 bytes, the EtherType first.
    LinuxSll2,
}

/// How to turn a captured packet into an Ethernet frame: cut `skip` bytes, then put `header` (if any) in front.
pub(crate) struct Conversion {
    pub(crate) skip: usize,
    pub(crate) header: Option<[u8; 14]>,
}

impl LinkType {
    /// The link type with this number in a capture, or what to tell the user about it.
    pub fn from_number(number: u16) -> Result<Self, String> {
        Ok(match number {
            0 | 108 => LinkType::Null,
            1 => LinkType::Ethernet,
            12 | 14 | 101 => LinkType::Raw,
            113 => LinkType::LinuxSll,
            228 => LinkType::Ipv4,
            229 => LinkType::Ipv6,
            276 => LinkType::LinuxSll2,
            _ => {
                let name = NAMES.iter().find(|(n, _)| *n == number).map_or("unknown", |(_, name)| name);
                return Err(format!(
                    "link type {number} ({name}) is not supported; Ethernet, raw IP, Linux cooked and BSD loopback are"
                ));
            }
        })
    }

    pub(crate) fn conversion(self, data: &[u8]) -> Conversion {
        let made_up = |skip: usize, ethertype: u16| {
            let (skip, ethertype) =
                if data.len() < skip { (data.len(), ETHERTYPE_NONE) } else { (skip, ethertype) };
            let mut header = [0; 14];
            header[..6].copy_from_slice(&SYNTHETIC_DST);
            header[6..12].copy_from_slice(&SYNTHETIC_SRC);
            header[12..].copy_from_slice(&ethertype.to_be_bytes());
            Conversion { skip, header: Some(header) }
        };
        let u16_at = |at: usize| match data.get(at..at + 2) {
            Some(bytes) => u16::from_be_bytes([bytes[0], bytes[1]]),
            None => ETHERTYPE_NONE,
        };
        match self {
            LinkType::Ethernet => Conversion { skip: 0, header: None },
            LinkType::Ipv4 => made_up(0, ETHERTYPE_IPV4),
            LinkType::Ipv6 => made_up(0, ETHERTYPE_IPV6),
            // What is neither version goes in as IPv4, where it is counted as malformed.
            LinkType::Raw => match data.first().map(|b| b >> 4) {
                Some(6) => made_up(0, ETHERTYPE_IPV6),
                Some(_) => made_up(0, ETHERTYPE_IPV4),
                None => made_up(0, ETHERTYPE_NONE),
            },
            LinkType::LinuxSll => made_up(16, u16_at(14)),
            LinkType::LinuxSll2 => made_up(20, u16_at(0)),
            LinkType::Null => {
                let family = match data.get(..4) {
                    // Families are small numbers: whichever byte order gives one is right.
                    Some(b) => u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
                    None => u32::MAX,
                };
                let family = if family > 0xFFFF { family.swap_bytes() } else { family };
                match family {
                    2 => made_up(4, ETHERTYPE_IPV4),
                    // Linux, NetBSD, FreeBSD, Darwin.
                    10 | 24 | 28 | 30 => made_up(4, ETHERTYPE_IPV6),
                    _ => made_up(4, ETHERTYPE_NONE),
                }
            }
        }
    }
}

/// The link types that a user is most likely to meet, for the error message.
const NAMES: &[(u16, &str)] = &[
    (6, "IEEE 802.5 token ring"),
    (8, "SLIP"),
    (9, "PPP"),
    (10, "FDDI"),
    (50, "PPP with HDLC framing"),
    (51, "PPP over Ethernet"),
    (100, "ATM, LLC-encapsulated"),
    (104, "Cisco HDLC"),
    (105, "IEEE 802.11"),
    (107, "frame relay"),
    (109, "OpenBSD IPsec"),
    (117, "OpenBSD pflog"),
    (119, "Prism and 802.11"),
    (127, "radiotap and 802.11"),
    (147, "USER0"),
    (187, "Bluetooth HCI"),
    (189, "Linux USB"),
    (192, "PPI"),
    (195, "IEEE 802.15.4"),
    (220, "Linux USB, padded"),
    (227, "CAN"),
    (239, "NFLOG"),
    (253, "Linux netlink"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(number: u16, data: &[u8]) -> (u16, Vec<u8>) {
        let c = LinkType::from_number(number).unwrap().conversion(data);
        let header = c.header.unwrap();
        (u16::from_be_bytes([header[12], header[13]]), data[c.skip..].to_vec())
    }

    #[test]
    fn bare_packets_get_the_right_ethertype() {
        for raw in [12, 14, 101] {
            assert_eq!(ethernet(raw, &[0x45, 1]), (0x0800, vec![0x45, 1]));
            assert_eq!(ethernet(raw, &[0x60, 1]), (0x86DD, vec![0x60, 1]));
            assert_eq!(ethernet(raw, &[]).0, 0xFFFF);
        }
        assert_eq!(ethernet(228, &[0x60]).0, 0x0800);
        assert_eq!(ethernet(229, &[0x60]).0, 0x86DD);
        for family in [[2, 0, 0, 0], [0, 0, 0, 2]] {
            assert_eq!(ethernet(0, &[&family[..], &[0x45]].concat()), (0x0800, vec![0x45]));
        }
        assert_eq!(ethernet(108, &[0, 0, 0, 30, 0x60]), (0x86DD, vec![0x60]));
        assert_eq!(ethernet(0, &[2, 0]), (0xFFFF, vec![]));
        let mut sll = [0; 18];
        sll[14..].copy_from_slice(&[0x86, 0xDD, 0x60, 9]);
        assert_eq!(ethernet(113, &sll), (0x86DD, vec![0x60, 9]));
        assert_eq!(ethernet(113, &sll[..15]), (0xFFFF, vec![]));
        let mut sll2 = [0; 21];
        sll2[..2].copy_from_slice(&[8, 0]);
        assert_eq!(ethernet(276, &sll2), (0x0800, vec![0]));
    }

    #[test]
    fn an_unknown_link_type_is_named() {
        assert!(LinkType::from_number(105).unwrap_err().contains("105 (IEEE 802.11)"));
        assert!(LinkType::from_number(9999).unwrap_err().contains("9999 (unknown)"));
    }
}
