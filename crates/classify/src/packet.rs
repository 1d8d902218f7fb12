//! Packets to keys: what Open vSwitch's `flow_extract` does, and as it does it.
//!
//! ```text
//! | MACs | tag, if there is one | ethertype | IPv4, IPv6 or ARP | TCP, UDP, SCTP or ICMP |
//!                '- the outer one only: behind it the ethertype may be that of another tag, and the rest is not looked at
//! ```
//!
//! Any bytes have a key, but for those that end inside the MAC header or the tag. What is cut off, malformed or unknown is zero from there
//! on: a packet with a broken IP header is one of its ethertype without addresses, a TCP segment that ends in its header one without ports.
//! So a rule that asks for an address or a port never matches what does not have one (but for the value 0).
//!
//! **IPv6 packets whose headers cannot be followed** (more than 16 extension headers, one that runs over the end) have their addresses, and nothing of what
//! lies above: no rule about it holds for them, neither one that lets pass nor one that does not. A receiver may read on where we do not, so
//! whoever decides by such rules must not pass them on: [`unfollowed`] tells.
//!
//! **Fragments.** The first one of a packet has its ports, the later ones have none: [`Field::Fragment`](crate::Field::Fragment) tells
//! them apart. An IPv6 packet in a single fragment (RFC 6946) is none. A first one that ends in its transport header has no ports
//! either, and hides them from rules: [`cut_first`] tells.
//!
//! **Frames with a length** (802.3) have the ethertype of their SNAP header if it is none of a tag, else [`NO_ETHERTYPE`].

use crate::key::{ARP, FRAGMENT_ANY, FRAGMENT_LATER, IPV4, IPV6, Key, VLAN_PRESENT};
use tidemill_wire::{EtherType, Protocol, arp, ipv4, ipv6, ipv6_ext};

/// The ethertype of frames that have none: OpenFlow's `OFP_DL_TYPE_NOT_ETH_TYPE`.
pub const NO_ETHERTYPE: u16 = 0x05ff;

/// Bytes before the ethertype of a frame without a tag.
const MACS: usize = 12;

/// Where headers begin, as far as they are whole. Both count from the start of the frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layers {
    /// The IPv4, IPv6 or ARP header.
    pub network: Option<usize>,
    /// The header of TCP, UDP, SCTP, ICMP or ICMPv6.
    pub transport: Option<usize>,
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}

/// The key of a frame that came in by a port; `None` if it ends inside its MAC header or its tag.
#[inline]
pub fn key(frame: &[u8], in_port: u16) -> Option<Key> {
    parse(frame, in_port).map(|(key, _)| key)
}

/// The key, and where headers begin.
#[inline]
pub fn parse(frame: &[u8], in_port: u16) -> Option<(Key, Layers)> {
    let mut key = Key::default();
    parse_into(frame, in_port, &mut key).map(|layers| (key, layers))
}

/// The same, the key written where it will lie: word by word, so whoever copied it just then would wait for that. Without a key there is anything.
#[inline]
pub fn parse_into(frame: &[u8], in_port: u16, key: &mut Key) -> Option<Layers> {
    let header: &[u8; MACS + 2] = frame.first_chunk()?;
    let mac = |at: usize| u64::from(be16(header, at)) << 32 | u64::from(be32(header, at + 2));
    let (mut ethertype, mut vlan, mut at) = (be16(header, MACS), 0, MACS + 2);
    if EtherType(ethertype).is_vlan() {
        let tag: &[u8; 4] = frame.get(at..)?.first_chunk()?;
        (vlan, ethertype, at) = (be16(tag, 0) | VLAN_PRESENT, be16(tag, 2), at + 4);
    }
    if EtherType(ethertype).is_length() {
        (ethertype, at) = snap(frame, at);
    }
    key.0[..4].fill(0);
    key.0[4] = u64::from(ethertype) << 16;
    key.0[5] = u64::from(in_port) << 48 | u64::from(vlan) << 32;
    key.0[6] = mac(0);
    key.0[7] = mac(6);
    let mut layers = Layers::default();
    let packet = frame.get(at..).unwrap_or_default();
    let upper = match ethertype {
        IPV4 => ipv4_words(packet, key),
        IPV6 => ipv6_words(packet, key),
        ARP => arp_words(packet, key),
        _ => None,
    };
    if let Some(Upper { protocol, place }) = upper {
        layers.network = Some(at);
        if let Some((from, end)) = place
            && transport(packet.get(from..end).unwrap_or_default(), protocol, ethertype, key)
        {
            layers.transport = Some(at + from);
        }
    }
    Some(layers)
}

/// Whether a key is that of an IPv6 packet of which nobody knows what lies above: its header is broken, or its extension headers cannot be followed.
#[inline(always)]
pub fn unfollowed(key: &Key) -> bool {
    // Protocol 0 is hop-by-hop options, behind which there is always more: only a later fragment may have them as the last that is known.
    key.0[4] as u32 & 0xffff_ff00 == u32::from(IPV6) << 16 && key.0[5] >> 14 & u64::from(FRAGMENT_LATER) == 0
}

/// Whether a frame is the first fragment of a packet and ends in the middle of its transport header: its key has no ports, and whoever puts the
/// packet together again finds some (RFC 1858, section 3).
#[inline(always)]
pub fn cut_first(key: &Key, layers: &Layers) -> bool {
    let is_first = key.0[5] >> 14 & 0b11 == u64::from(FRAGMENT_ANY);
    let (protocol, ethertype) = (Protocol((key.0[4] >> 8) as u8), (key.0[4] >> 16) as u16);
    is_first && layers.transport.is_none() && transport_needs(protocol, ethertype).is_some()
}

/// What a frame with a length carries.
fn snap(frame: &[u8], at: usize) -> (u16, usize) {
    let Some(&[0xaa, 0xaa, 0x03, 0, 0, 0, high, low]) = frame.get(at..at + 8) else {
        return (NO_ETHERTYPE, at);
    };
    let ethertype = u16::from_be_bytes([high, low]);
    // A tag in there is none that switches see.
    if EtherType(ethertype).is_vlan() { (NO_ETHERTYPE, at) } else { (ethertype, at + 8) }
}

/// What lies above a network header.
struct Upper {
    protocol: u8,
    /// From where to where in the packet, if it is there.
    place: Option<(usize, usize)>,
}

#[inline]
fn ipv4_words(packet: &[u8], key: &mut Key) -> Option<Upper> {
    ipv4::check(packet).ok()?;
    let protocol = ipv4::protocol(packet).0;
    key.0[0] = u64::from(ipv4::src_u32(packet)) << 32 | u64::from(ipv4::dst_u32(packet));
    let tos = packet.get(1).copied().unwrap_or_default();
    key.0[4] |= u64::from(protocol) << 8 | u64::from(tos);
    let later = ipv4::fragment_offset(packet) != 0;
    note_fragment(ipv4::is_fragment(packet), later, key);
    let place = (!later).then(|| (ipv4::header_len(packet), usize::from(ipv4::total_len(packet))));
    Some(Upper { protocol, place })
}

#[inline]
fn ipv6_words(packet: &[u8], key: &mut Key) -> Option<Upper> {
    ipv6::check(packet).ok()?;
    let (source, destination) = (ipv6::src_u128(packet), ipv6::dst_u128(packet));
    key.0[0] = (source >> 64) as u64;
    key.0[1] = source as u64;
    key.0[2] = (destination >> 64) as u64;
    key.0[3] = destination as u64;
    let class = be16(packet, 0) >> 4 & 0xff;
    key.0[4] |= u64::from(class);
    // Of headers that cannot be followed only what lies above is not known: rules on addresses hold all the same.
    let Ok(walk) = ipv6_ext::walk(packet) else { return Some(Upper { protocol: 0, place: None }) };
    key.0[4] |= u64::from(walk.upper.0) << 8;
    let later = walk.fragment.is_some_and(|fragment| fragment.offset != 0);
    note_fragment(walk.is_fragment(), later, key);
    let end = ipv6::HEADER_LEN + usize::from(ipv6::payload_len(packet));
    Some(Upper { protocol: walk.upper.0, place: (!later).then_some((walk.upper_offset, end)) })
}

fn note_fragment(fragment: bool, later: bool, key: &mut Key) {
    let any = if fragment { FRAGMENT_ANY } else { 0 };
    let bits = if later { any | FRAGMENT_LATER } else { any };
    key.0[5] |= u64::from(bits) << 14;
}

/// ARP for IPv4 over Ethernet; an operation of more than eight bits is none.
fn arp_words(packet: &[u8], key: &mut Key) -> Option<Upper> {
    arp::check(packet).ok()?;
    let operation = be16(packet, 6);
    key.0[0] = u64::from(be32(packet, 14)) << 32 | u64::from(be32(packet, 24));
    key.0[4] |= u64::from(u8::try_from(operation).unwrap_or(0)) << 8;
    Some(Upper { protocol: 0, place: None })
}

/// Bytes of a transport header that are read, and whether it has ports; `None` of protocols that have none that we know.
#[inline]
fn transport_needs(protocol: Protocol, ethertype: u16) -> Option<(usize, bool)> {
    Some(match protocol {
        Protocol::TCP => (20, true),
        Protocol::UDP => (8, true),
        Protocol::SCTP => (12, true),
        Protocol::ICMP if ethertype == IPV4 => (8, false),
        Protocol::ICMPV6 if ethertype == IPV6 => (4, false),
        _ => return None,
    })
}

/// Ports and flags, or type and code; whether the header is whole.
#[inline]
fn transport(header: &[u8], protocol: u8, ethertype: u16, key: &mut Key) -> bool {
    let Some((needed, ports)) = transport_needs(Protocol(protocol), ethertype) else { return false };
    if header.len() < needed {
        return false;
    }
    if ports {
        key.0[4] |= u64::from(be32(header, 0)) << 32;
    } else {
        let both = be16(header, 0);
        key.0[4] |= u64::from(both >> 8) << 48 | u64::from(both & 0xff) << 32;
    }
    if Protocol(protocol) == Protocol::TCP {
        key.0[5] |= u64::from(be16(header, 12) & 0xfff) << 16;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Field;

    /// Hexadecimal digits, blanks between them.
    fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    const MACS: &str = "02 00 00 00 00 01 02 00 00 00 00 02";

    fn fields(frame: &[u8]) -> Vec<(Field, u128)> {
        let key = key(frame, 7).unwrap();
        let (from, to) = (0x0200_0000_0002, 0x0200_0000_0001);
        assert_eq!((key.get(Field::MacSource), key.get(Field::MacDestination)), (from, to));
        assert_eq!(key.get(Field::InPort), 7);
        let family = key.get(Field::EtherType);
        let shown = |field: &Field| {
            let links = [Field::MacSource, Field::MacDestination, Field::InPort];
            let other = field.needs().is_some_and(|needs| u128::from(needs) != family);
            !links.contains(field) && !other && key.get(*field) != 0
        };
        Field::ALL.into_iter().filter(shown).map(|field| (field, key.get(field))).collect()
    }

    fn ipv4_frame(protocol: &str, fragment: &str, rest: &str) -> Vec<u8> {
        let rest = bytes(rest);
        let text = format!(
            "{MACS} 0800 45b8 {:04x} 0001 {fragment} 40 {protocol} 0000 c0000201 c6336407",
            20 + rest.len()
        );
        [bytes(&text), rest].concat()
    }

    const TCP: &str = "0016 c350 00000001 00000002 5112 0400 0000 0000";

    fn ipv4_fields(protocol: u128) -> Vec<(Field, u128)> {
        vec![
            (Field::Ipv4Source, 0xc000_0201),
            (Field::Ipv4Destination, 0xc633_6407),
            (Field::EtherType, 0x0800),
            (Field::Protocol, protocol),
            (Field::Tos, 0xb8),
        ]
    }

    fn sorted(mut list: Vec<(Field, u128)>) -> Vec<(Field, u128)> {
        list.sort_by_key(|(field, _)| Field::ALL.iter().position(|other| other == field));
        list
    }

    #[test]
    fn ipv4_with_tcp_and_its_fragments() {
        let ports = [(Field::SourcePort, 22), (Field::DestinationPort, 50_000), (Field::TcpFlags, 0x112)];
        let whole = sorted([ipv4_fields(6), ports.to_vec()].concat());
        let frame = ipv4_frame("06", "4000", TCP);
        assert_eq!(fields(&frame), whole);
        // Padding behind the packet is not looked at; a frame that ends before its packet does has a broken one.
        assert_eq!(fields(&[&frame[..], &[0; 6]].concat()), whole);
        assert_eq!(fields(&frame[..frame.len() - 1]), [(Field::EtherType, 0x0800)]);
        let first = sorted([ipv4_fields(6), ports.to_vec(), vec![(Field::Fragment, 1)]].concat());
        assert_eq!(fields(&ipv4_frame("06", "2000", TCP)), first);
        let later = sorted([ipv4_fields(6), vec![(Field::Fragment, 3)]].concat());
        assert_eq!(fields(&ipv4_frame("06", "2001", TCP)), later);
        assert_eq!(fields(&ipv4_frame("06", "0001", TCP)), later);
        // A TCP header cut short has no ports; neither has a protocol that knows none.
        assert_eq!(fields(&ipv4_frame("06", "0000", &TCP[..40])), ipv4_fields(6));
        assert_eq!(fields(&ipv4_frame("2f", "0000", TCP)), ipv4_fields(0x2f));
        let (_, layers) = parse(&frame, 0).unwrap();
        assert_eq!(layers, Layers { network: Some(14), transport: Some(34) });
    }

    #[test]
    fn a_first_fragment_that_hides_its_ports_is_told() {
        let told = |frame: &[u8]| {
            let (key, layers) = parse(frame, 0).unwrap();
            cut_first(&key, &layers)
        };
        for (protocol, whole, cut) in [
            ("06", TCP, &TCP[..40]),
            ("11", "0035 0fa0 0008 0000", "0035 0fa0"),
            ("01", "0803 0000 0001 0001", "08"),
        ] {
            let of = |fragment, rest| told(&ipv4_frame(protocol, fragment, rest));
            assert!(of("2000", cut) && !of("2000", whole), "{protocol}");
            assert!(!of("2001", cut) && !of("0000", cut), "{protocol}: a later one; none at all");
        }
        assert!(!told(&ipv4_frame("2f", "2000", "00")), "no ports are known of it");
    }

    #[test]
    fn icmp_has_type_and_code_as_ports() {
        let echo =
            sorted([ipv4_fields(1), vec![(Field::SourcePort, 8), (Field::DestinationPort, 3)]].concat());
        assert_eq!(fields(&ipv4_frame("01", "0000", "0803 0000 0001 0001")), echo);
        assert_eq!(fields(&ipv4_frame("01", "0000", "0803 0000 0001")), ipv4_fields(1));
        // Of the other family's ICMP no type is known.
        assert_eq!(fields(&ipv4_frame("3a", "0000", "8000 0000 0001 0001")), ipv4_fields(0x3a));
    }

    #[test]
    fn ipv6_behind_its_extension_headers() {
        let addresses = "20010db8 00000000 00000000 00000001 20010db8 00000000 00000000 00000002";
        let frame = |next: &str, rest: &str| {
            let rest = bytes(rest);
            let text = format!("{MACS} 86dd 6 12 34567 {:04x} {next} 40 {addresses}", rest.len());
            [bytes(&text), rest].concat()
        };
        let with = |more: &[(Field, u128)]| {
            let base = [
                (Field::Ipv6Source, 0x2001_0db8_u128 << 96 | 1),
                (Field::Ipv6Destination, 0x2001_0db8_u128 << 96 | 2),
                (Field::EtherType, 0x86dd),
                (Field::Tos, 0x12),
            ];
            sorted([&base, more].concat())
        };
        let udp = [(Field::Protocol, 17), (Field::SourcePort, 53), (Field::DestinationPort, 4000)];
        assert_eq!(fields(&frame("11", "0035 0fa0 0008 0000")), with(&udp));
        let options = "11 00 01 04 00000000";
        assert_eq!(fields(&frame("3c", &format!("{options} 0035 0fa0 0008 0000"))), with(&udp));
        let first = [&udp[..], &[(Field::Fragment, 1)]].concat();
        assert_eq!(fields(&frame("2c", "11 00 0001 00000007 0035 0fa0 0008 0000")), with(&first));
        let later = [(Field::Protocol, 17), (Field::Fragment, 3)];
        assert_eq!(fields(&frame("2c", "11 00 0009 00000007 0035 0fa0 0008 0000")), with(&later));
        // In a single fragment: whole.
        assert_eq!(fields(&frame("2c", "11 00 0000 00000007 0035 0fa0 0008 0000")), with(&udp));
        let ping = [(Field::Protocol, 58), (Field::SourcePort, 128)];
        assert_eq!(fields(&frame("3a", "8000 0000 0001 0001")), with(&ping));
        // Where headers cannot be followed - one runs over the end, there are more than are read - addresses are as they are, and what lies above is 0.
        assert_eq!(fields(&frame("3c", "11 09 01 04 00000000")), with(&[]));
        let many = "3c 00 01 04 00000000 ".repeat(17);
        assert_eq!(fields(&frame("3c", &format!("{many}{TCP}"))), with(&[]));
        assert_eq!(parse(&frame("3c", &many), 0).unwrap().1, Layers { network: Some(14), transport: None });
        // Which is told of them, and of nothing that can be followed; a later fragment may begin anywhere.
        let told = |next: &str, rest: &str| unfollowed(&key(&frame(next, rest), 7).unwrap());
        assert!(told("3c", "11 09 01 04 00000000") && told("3c", &format!("{many}{TCP}")));
        assert!(told("2c", "3c 00 0001 00000007 11 09 01 04 00000000"), "the first fragment of them, too");
        let mut broken = frame("11", "0035 0fa0 0008 0000");
        broken[14] = 0x45;
        assert!(unfollowed(&key(&broken, 7).unwrap()));
        assert!(
            !told("11", "0035 0fa0 0008 0000")
                && !told("3b", "")
                && !told("3c", &format!("{options} 0035 0fa0 0008 0000"))
        );
        assert!(
            !told("2c", "00 00 0009 00000007 0035 0fa0 0008 0000") && !told("2c", "11 00 0009 00000007 00")
        );
    }

    #[test]
    fn arp_has_addresses_and_operation() {
        let body = "0001 0800 06 04 0002 020000000002 c0000201 020000000001 c0000207";
        let frame = bytes(&format!("{MACS} 0806 {body}"));
        let expected = [
            (Field::ArpSource, 0xc000_0201),
            (Field::ArpTarget, 0xc000_0207),
            (Field::EtherType, 0x0806),
            (Field::Protocol, 2),
        ];
        assert_eq!(fields(&frame), expected);
        assert_eq!(fields(&frame[..frame.len() - 1]), [(Field::EtherType, 0x0806)]);
    }

    #[test]
    fn one_tag_is_a_field_and_another_an_ethertype() {
        let frame = ipv4_frame("06", "0000", TCP);
        let tagged = |tags: &str| [&frame[..12], &bytes(tags), &frame[12..]].concat();
        for tpid in ["8100", "88a8", "9100"] {
            let with = sorted([fields(&frame), vec![(Field::Vlan, 0x7064)]].concat());
            assert_eq!(fields(&tagged(&format!("{tpid} 6064"))), with);
        }
        let stacked = [(Field::EtherType, 0x8100), (Field::Vlan, 0x1064)];
        assert_eq!(fields(&tagged("88a8 0064 8100 0007")), stacked);
        // VLAN 0 is a tag, too.
        assert!(fields(&tagged("8100 0000")).contains(&(Field::Vlan, 0x1000)));
        let cut = tagged("8100 0064");
        assert!((0..18).all(|end| key(&cut[..end], 7).is_none()));
        assert!(key(&cut[..18], 7).is_some());
        assert!(key(&frame[..13], 7).is_none() && key(&frame[..14], 7).is_some());
    }

    #[test]
    fn frames_with_a_length() {
        assert_eq!(fields(&bytes(&format!("{MACS} 0026 4242 03"))), [(Field::EtherType, 0x05ff)]);
        let frame = ipv4_frame("06", "0000", TCP);
        let snapped = [&frame[..12], &bytes("0040 aaaa03 000000"), &frame[12..]].concat();
        assert_eq!(fields(&snapped), fields(&frame));
        // The ethertype of a tag behind a length: nothing that pushing or popping tags could meet.
        for tag in ["8100", "88a8"] {
            let hidden = bytes(&format!("{MACS} 0026 aaaa03 000000 {tag} 0064 0800"));
            assert_eq!(fields(&hidden), [(Field::EtherType, 0x05ff)], "{tag}");
        }
    }
}
