//! Holds the crate to an independent parser, etherparse: which bytes are accepted, and what they mean.

use etherparse as ep;
use tidemill_wire::checksum::{self, Pseudo};
use tidemill_wire::*;

/// Compares both readings of an Ethernet frame, layer by layer.
pub(crate) fn agree(frame: &[u8]) {
    let theirs = ep::Ethernet2HeaderSlice::from_slice(frame);
    let ours = ethernet::Packet::new_checked(frame);
    assert_eq!(ours.is_ok(), theirs.is_ok());
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return };
    assert_eq!(ours.dst().0, theirs.destination());
    assert_eq!(ours.src().0, theirs.source());
    assert_eq!(ours.ethertype().0, theirs.ether_type().0);
    tags(frame, theirs.ether_type().0);
    if let Ok(l2) = vlan::L2::parse(frame) {
        network(&frame[l2.l3_offset..]);
    }
}

fn tags(frame: &[u8], mut ethertype: u16) {
    let mut rest = &frame[14..];
    let mut theirs = vec![];
    while [0x8100, 0x88a8, 0x9100].contains(&ethertype) {
        let Ok(tag) = ep::SingleVlanSlice::from_slice(rest) else {
            assert!(vlan::L2::parse(frame).is_err());
            return;
        };
        let tci = vlan::Tci::new(
            tag.priority_code_point().value(),
            tag.drop_eligible_indicator(),
            tag.vlan_identifier().value(),
        );
        theirs.push(vlan::Tag { tpid: EtherType(ethertype), tci });
        ethertype = tag.ether_type().0;
        rest = tag.payload_slice();
    }
    match vlan::L2::parse(frame) {
        Ok(l2) => {
            assert_eq!((l2.tags().collect::<Vec<_>>(), l2.ethertype.0), (theirs, ethertype));
            assert_eq!(l2.l3_offset, frame.len() - rest.len());
        }
        Err(error) => assert!(theirs.len() > vlan::MAX_TAGS, "{error}"),
    }
}

/// Compares both readings of `data` as each network layer.
pub(crate) fn network(data: &[u8]) {
    v4(data);
    v6(data);
    arp(data);
}

fn arp(data: &[u8]) {
    let theirs = ep::ArpPacketSlice::from_slice(data).ok();
    let theirs = theirs.and_then(|arp| ep::ArpEthIpv4Packet::try_from(arp.to_packet()).ok());
    let ours = arp::Packet::new_checked(data).and_then(|packet| arp::Repr::parse(&packet)).ok();
    assert_eq!(ours.is_some(), theirs.is_some());
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        assert_eq!(u16::from(ours.operation), theirs.operation.0);
        assert_eq!((ours.sender_mac.0, ours.sender_ip.octets()), (theirs.sender_mac, theirs.sender_ipv4));
        assert_eq!((ours.target_mac.0, ours.target_ip.octets()), (theirs.target_mac, theirs.target_ipv4));
    }
}

fn v4(data: &[u8]) {
    let theirs = ep::Ipv4HeaderSlice::from_slice(data);
    let ours = ipv4::Packet::new_header_checked(data);
    let Ok(theirs) = theirs else {
        assert!(ours.is_err());
        return;
    };
    // They check the total length when the payload is asked for, we check it at once.
    assert_eq!(ours.is_ok(), theirs.payload_len().is_ok());
    let Ok(ours) = ours else { return };
    assert_eq!(ours.version(), theirs.version());
    assert_eq!(ours.header_len(), theirs.slice().len());
    assert_eq!((ours.dscp(), ours.ecn()), (theirs.dcp().value(), theirs.ecn().value()));
    assert_eq!((ours.total_len(), ours.ident()), (theirs.total_len(), theirs.identification()));
    assert_eq!(ours.dont_fragment(), theirs.dont_fragment());
    assert_eq!(ours.more_fragments(), theirs.more_fragments());
    assert_eq!(ours.fragment_offset() / 8, theirs.fragments_offset().value());
    assert_eq!(ours.is_fragment(), theirs.is_fragmenting_payload());
    assert_eq!((ours.ttl(), ours.protocol().0), (theirs.ttl(), theirs.protocol().0));
    assert_eq!((ours.src(), ours.dst()), (theirs.source_addr(), theirs.destination_addr()));
    assert_eq!((ipv4::src_u32(data), ipv4::dst_u32(data)), (ours.src().to_bits(), ours.dst().to_bits()));
    assert_eq!(ours.option_bytes(), theirs.options());
    // Their header has no room for the reserved flag bit, so their sum leaves it out.
    if data[6] & 0x80 == 0 {
        let right = theirs.to_header().calc_header_checksum();
        assert_eq!(ours.checksum_ok(), ours.checksum() == right || (right == 0 && ours.checksum() == 0xffff));
        let mut copy = data.to_vec();
        ipv4::fill_checksum(&mut copy);
        assert_eq!(ipv4::Packet::new_unchecked(&copy).checksum(), right);
    }
    let whole = ipv4::Packet::new_checked(data);
    assert_eq!(whole.is_ok(), usize::from(theirs.total_len()) <= data.len());
    if whole.is_ok() && !ours.is_fragment() {
        let pseudo = Pseudo::V4 { src: ours.src(), dst: ours.dst() };
        upper(ours.protocol(), ours.payload(), &pseudo);
    }
    let key = flow_key(data, 0).expect("every IPv4 header has a key");
    assert_eq!(key.protocol.0, theirs.protocol().0);
    assert!(!ours.is_fragment() || key.ports.is_none());
}

fn v6(data: &[u8]) {
    let theirs = ep::Ipv6HeaderSlice::from_slice(data);
    let ours = ipv6::Packet::new_header_checked(data);
    assert_eq!(ours.is_ok(), theirs.is_ok());
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return };
    assert_eq!(ours.version(), theirs.version());
    assert_eq!((ours.dscp(), ours.ecn()), (theirs.dscp().value(), theirs.ecn().value()));
    assert_eq!(ours.flow_label(), theirs.flow_label().value());
    assert_eq!(ours.payload_len(), theirs.payload_length());
    assert_eq!((ours.next_header().0, ours.hop_limit()), (theirs.next_header().0, theirs.hop_limit()));
    assert_eq!((ours.src(), ours.dst()), (theirs.source_addr(), theirs.destination_addr()));
    assert_eq!((ipv6::src_u128(data), ipv6::dst_u128(data)), (ours.src().to_bits(), ours.dst().to_bits()));
    let theirs = ep::Ipv6ExtensionsSlice::from_slice(theirs.next_header(), ours.payload());
    match (ipv6_ext::walk(data), theirs) {
        (Ok(walk), Ok((extensions, upper_protocol, rest))) => {
            assert_eq!(walk.is_fragment(), extensions.is_fragmenting_payload());
            // They read on in the middle of a packet; we do not.
            if !walk.is_fragment() {
                assert_eq!(walk.upper.0, upper_protocol.0);
                assert_eq!(walk.upper_offset, 40 + ours.payload().len() - rest.len());
                let whole = ipv6::Packet::new_checked(data).is_ok();
                if whole && walk.routing_offset.is_none() {
                    upper(walk.upper, rest, &Pseudo::V6 { src: ours.src(), dst: ours.dst() });
                }
            }
        }
        (Err(error), Ok(_)) => assert!(error.to_string().contains("number of extension headers"), "{error}"),
        // Having read on, they stumbled.
        (Ok(walk), Err(error)) => assert!(walk.is_fragment(), "{error}"),
        (Err(_), Err(_)) => {}
    }
}

/// Compares both readings of what a whole packet carries.
fn upper(protocol: Protocol, data: &[u8], pseudo: &Pseudo) {
    match protocol {
        Protocol::UDP => udp(data, pseudo),
        Protocol::TCP => tcp(data, pseudo),
        Protocol::ICMP => icmpv4(data),
        Protocol::ICMPV6 => icmpv6(data, pseudo),
        _ => {}
    }
}

/// Their "right" and our verdict: 0 and 0xffff are one number.
fn same_verdict(ok: bool, found: u16, right: u16) {
    let zero = |check| check == 0 || check == 0xffff;
    assert_eq!(ok, found == right || (zero(found) && zero(right)));
}

fn udp(data: &[u8], pseudo: &Pseudo) {
    let ours = udp::Packet::new_checked(data);
    let Ok(theirs) = ep::UdpSlice::from_slice(data) else {
        assert!(ours.is_err());
        return;
    };
    // They take a length of zero for "all the rest" (jumbograms).
    assert_eq!(ours.is_ok(), theirs.length() != 0);
    let Ok(ours) = ours else { return };
    assert_eq!((ours.src_port(), ours.dst_port()), (theirs.source_port(), theirs.destination_port()));
    assert_eq!((ours.len(), ours.checksum()), (theirs.length(), theirs.checksum()));
    assert_eq!(ours.payload(), theirs.payload());
    let header = theirs.to_header();
    let right = match pseudo {
        Pseudo::V4 { src, dst } => {
            header.calc_checksum_ipv4_raw(src.octets(), dst.octets(), theirs.payload())
        }
        Pseudo::V6 { src, dst } => {
            header.calc_checksum_ipv6_raw(src.octets(), dst.octets(), theirs.payload())
        }
    };
    let right = right.expect("short enough");
    if ours.checksum() != 0 {
        same_verdict(ours.checksum_ok(pseudo), ours.checksum(), right);
    }
    let mut filled = udp::Packet::new_unchecked(data.to_vec());
    filled.fill_checksum(pseudo);
    assert_eq!(filled.checksum(), right);
}

fn tcp(data: &[u8], pseudo: &Pseudo) {
    let theirs = ep::TcpSlice::from_slice(data);
    let ours = tcp::Packet::new_checked(data);
    assert_eq!(ours.is_ok(), theirs.is_ok());
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return };
    assert_eq!((ours.src_port(), ours.dst_port()), (theirs.source_port(), theirs.destination_port()));
    assert_eq!((ours.seq(), ours.ack()), (theirs.sequence_number(), theirs.acknowledgment_number()));
    assert_eq!(ours.header_len(), usize::from(theirs.data_offset()) * 4);
    let t = &theirs;
    let flags = [t.fin(), t.syn(), t.rst(), t.psh(), t.ack(), t.urg(), t.ece(), t.cwr(), t.ns()];
    for (bit, set) in flags.into_iter().enumerate() {
        assert_eq!(ours.flags().contains(tcp::Flags::from_bits(1 << bit)), set);
    }
    assert_eq!((ours.window(), ours.urgent()), (theirs.window_size(), theirs.urgent_pointer()));
    assert_eq!((ours.checksum(), ours.payload()), (theirs.checksum(), theirs.payload()));
    assert_eq!(ours.option_bytes(), theirs.options());
    tcp_options(&ours, theirs.options_iterator());
    // Their header has no room for the three reserved bits, so their sum leaves them out.
    if data[12] & 0x0e == 0 {
        let right = match pseudo {
            Pseudo::V4 { src, dst } => theirs.calc_checksum_ipv4(src.octets(), dst.octets()),
            Pseudo::V6 { src, dst } => theirs.calc_checksum_ipv6(src.octets(), dst.octets()),
        };
        same_verdict(ours.checksum_ok(pseudo), ours.checksum(), right.expect("short enough"));
    }
}

fn tcp_options(ours: &tcp::Packet<&[u8]>, theirs: ep::TcpOptionsIterator<'_>) {
    let mut theirs = theirs;
    for ours in ours.options() {
        let theirs = theirs.next();
        match (ours, theirs) {
            // They know five kinds and stop at any other.
            (Ok(tcp::TcpOption::Other { .. }), Some(Err(_))) => return,
            (Err(_), Some(Err(_))) => return,
            (Ok(ours), Some(Ok(theirs))) => match (ours, theirs) {
                (tcp::TcpOption::Nop, ep::TcpOptionElement::Noop) => {}
                (tcp::TcpOption::Mss(a), ep::TcpOptionElement::MaximumSegmentSize(b)) => assert_eq!(a, b),
                (tcp::TcpOption::WindowScale(a), ep::TcpOptionElement::WindowScale(b)) => assert_eq!(a, b),
                (tcp::TcpOption::SackPermitted, ep::TcpOptionElement::SelectiveAcknowledgementPermitted) => {}
                (tcp::TcpOption::Sack(a), ep::TcpOptionElement::SelectiveAcknowledgement(first, more)) => {
                    let blocks = std::iter::once(first).chain(more.into_iter().flatten());
                    let bytes: Vec<u8> =
                        blocks.flat_map(|(l, r)| [l.to_be_bytes(), r.to_be_bytes()].concat()).collect();
                    assert_eq!(a, bytes);
                }
                (tcp::TcpOption::Timestamps { value, echo }, ep::TcpOptionElement::Timestamp(v, e)) => {
                    assert_eq!((value, echo), (v, e));
                }
                (ours, theirs) => panic!("{ours:?} against {theirs:?}"),
            },
            (ours, theirs) => panic!("{ours:?} against {theirs:?}"),
        }
    }
    assert!(theirs.next().is_none());
}

fn icmpv4(data: &[u8]) {
    let ours = icmpv4::Packet::new_checked(data);
    let Ok(theirs) = ep::Icmpv4Slice::from_slice(data) else {
        // They ask for 20 bytes of timestamp messages, we read the first 8 of any.
        assert!(ours.is_err() || matches!(data[0], icmpv4::kind::TIMESTAMP | icmpv4::kind::TIMESTAMP_REPLY));
        return;
    };
    let ours = ours.expect("accepted by etherparse");
    assert_eq!(
        (ours.kind(), ours.code(), ours.checksum()),
        (theirs.type_u8(), theirs.code_u8(), theirs.checksum())
    );
    assert_eq!(ours.rest(), theirs.bytes5to8());
    assert_eq!(ours.checksum_ok(), checksum::sum_by_words(data) == 0xffff);
    let repr = icmpv4::Repr::parse(&ours);
    match (theirs.icmp_type(), repr) {
        (ep::Icmpv4Type::EchoRequest(echo), Ok(icmpv4::Repr::EchoRequest { ident, seq }))
        | (ep::Icmpv4Type::EchoReply(echo), Ok(icmpv4::Repr::EchoReply { ident, seq })) => {
            assert_eq!((ident, seq), (echo.id, echo.seq));
        }
        (ep::Icmpv4Type::EchoRequest(_) | ep::Icmpv4Type::EchoReply(_), repr) => panic!("{repr:?}"),
        _ => {}
    }
}

fn icmpv6(data: &[u8], pseudo: &Pseudo) {
    let theirs = ep::Icmpv6Slice::from_slice(data);
    let ours = icmpv6::Packet::new_checked(data);
    assert_eq!(ours.is_ok(), theirs.is_ok());
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return };
    assert_eq!(
        (ours.kind(), ours.code(), ours.checksum()),
        (theirs.type_u8(), theirs.code_u8(), theirs.checksum())
    );
    assert_eq!((ours.rest(), ours.payload()), (theirs.bytes5to8(), theirs.payload()));
    if let Pseudo::V6 { src, dst } = pseudo {
        // They compute what is right and compare; 0xffff for a right 0x0000 is one number to us.
        let theirs = theirs.is_checksum_valid(src.octets(), dst.octets());
        assert!(ours.checksum_ok(pseudo) == theirs || ours.checksum() == 0xffff);
    }
    match (theirs.icmp_type(), icmpv6::Repr::parse(&ours)) {
        (ep::Icmpv6Type::PacketTooBig { mtu: theirs }, Ok(icmpv6::Repr::PacketTooBig { mtu })) => {
            assert_eq!(mtu, theirs);
        }
        (ep::Icmpv6Type::EchoRequest(echo), Ok(icmpv6::Repr::EchoRequest { ident, seq }))
        | (ep::Icmpv6Type::EchoReply(echo), Ok(icmpv6::Repr::EchoReply { ident, seq })) => {
            assert_eq!((ident, seq), (echo.id, echo.seq));
        }
        (ep::Icmpv6Type::EchoRequest(_) | ep::Icmpv6Type::EchoReply(_), repr) => panic!("{repr:?}"),
        _ => {}
    }
}
