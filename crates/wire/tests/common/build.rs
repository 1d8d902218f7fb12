//! Makes whole frames out of a string of bytes (from proptest or a fuzzer), and sees on the way that every header
//! that is written reads back as it was.

use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::*;

/// Choices taken from bytes; zeros when they run out.
pub(crate) struct Source<'a>(pub(crate) &'a [u8]);

impl Source<'_> {
    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        for byte in &mut array {
            if let Some((first, rest)) = self.0.split_first() {
                (*byte, self.0) = (*first, rest);
            }
        }
        array
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_be_bytes(self.array())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// A number below `bound`, at most 256.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.u8()) % bound
    }

    pub(crate) fn flip(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.u8()).collect()
    }

    fn mac(&mut self) -> MacAddr {
        MacAddr(self.array())
    }

    fn v4(&mut self) -> Ipv4Addr {
        self.array::<4>().into()
    }

    fn v6(&mut self) -> Ipv6Addr {
        self.array::<16>().into()
    }
}

/// A frame, and whether every checksum that it has covers the whole of what it covers.
pub(crate) struct Built {
    pub(crate) frame: Vec<u8>,
    /// Where the network header starts.
    pub(crate) l3_offset: usize,
    /// Whether a changed byte behind the addresses must be noticed: no fragment, no "none" checksum, known protocol.
    pub(crate) covered: bool,
}

/// Emits with `$emit(buffer)`, in which `payload` stands behind the header, and sees that less room is an error.
fn emitted(len: usize, payload: &[u8], emit: impl Fn(&mut [u8]) -> Result<usize, Error>) -> Vec<u8> {
    // Old bytes in the buffer must not shine through.
    let mut buf = vec![0xa5; len];
    buf.extend(payload);
    assert_eq!(emit(&mut buf), Ok(len));
    let mut small = vec![0; len - 1];
    assert!(matches!(emit(&mut small), Err(Error::NoRoom { .. })));
    assert!(small.iter().all(|&b| b == 0), "wrote before it failed");
    buf
}

pub(crate) fn frame(s: &mut Source<'_>) -> Built {
    let (packet, ethertype, covered) = match s.below(8) {
        0 => (arp_message(s), EtherType::ARP, false),
        1..=4 => {
            let (packet, covered) = v4(s, 2);
            (packet, EtherType::IPV4, covered)
        }
        _ => {
            let (packet, covered) = v6(s, 2);
            (packet, EtherType::IPV6, covered)
        }
    };
    let mut frame = packet;
    let mut next = ethertype;
    let depth = s.below(vlan::MAX_TAGS + 1);
    for _ in 0..depth {
        let repr = vlan::Repr { tci: vlan::Tci(s.u16()), ethertype: next };
        frame = emitted(4, &frame, |buf| repr.emit(buf));
        assert_eq!(vlan::Repr::parse(&vlan::Packet::new_checked(&frame).unwrap()), Ok(repr));
        next = [EtherType::VLAN, EtherType::QINQ, EtherType::QINQ_LEGACY][s.below(3)];
    }
    let repr = ethernet::Repr { dst: s.mac(), src: s.mac(), ethertype: next };
    frame = emitted(14, &frame, |buf| repr.emit(buf));
    assert_eq!(ethernet::Repr::parse(&ethernet::Packet::new_checked(&frame).unwrap()), Ok(repr));
    while frame.len() < ethernet::MIN_FRAME_LEN {
        frame.push(s.u8());
    }
    let l2 = vlan::L2::parse(&frame).unwrap();
    assert_eq!((l2.ethertype, l2.l3_offset, l2.depth()), (ethertype, 14 + 4 * depth, depth));
    Built { frame, l3_offset: l2.l3_offset, covered }
}

fn arp_message(s: &mut Source<'_>) -> Vec<u8> {
    let repr = arp::Repr {
        operation: s.u16().into(),
        sender_mac: s.mac(),
        sender_ip: s.v4(),
        target_mac: s.mac(),
        target_ip: s.v4(),
    };
    let message = emitted(repr.buffer_len(), &[], |buf| repr.emit(buf));
    assert_eq!(arp::Repr::parse(&arp::Packet::new_checked(&message).unwrap()), Ok(repr));
    message
}

/// Well-formed IPv4 options, and where a source route leads in the end.
fn v4_options(s: &mut Source<'_>) -> (OptionBytes, Option<Ipv4Addr>) {
    let mut encoded = vec![];
    let mut last = None;
    for _ in 0..s.below(4) {
        match s.below(4) {
            0 => encoded.push(ipv4::option::NOP),
            1 => encoded.extend([ipv4::option::ROUTER_ALERT, 4, 0, s.u8()]),
            2 if last.is_none() => {
                let hops = s.below(3);
                let pointer = 4 + 4 * s.below(hops + 1) as u8;
                let kind = [ipv4::option::RECORD_ROUTE, ipv4::option::LOOSE_SOURCE_ROUTE][s.below(2)];
                encoded.extend([kind, 3 + 4 * hops as u8, pointer]);
                let data = s.bytes(4 * hops);
                if kind != ipv4::option::RECORD_ROUTE && usize::from(pointer) <= data.len() {
                    last = data.last_chunk::<4>().map(|last| Ipv4Addr::from(*last));
                }
                encoded.extend(data);
            }
            _ => {
                let len = s.below(5);
                encoded.extend([0x5e, 2 + len as u8]);
                encoded.extend(s.bytes(len));
            }
        }
    }
    (OptionBytes::new(&encoded).unwrap(), last)
}

fn v4(s: &mut Source<'_>, depth: usize) -> (Vec<u8>, bool) {
    let (options, last) = v4_options(s);
    let (src, dst) = (s.v4(), s.v4());
    let pseudo = Pseudo::V4 { src, dst: last.unwrap_or(dst) };
    let (protocol, payload, mut covered) = upper(s, &pseudo, depth);
    let fragment = s.below(4) == 0;
    covered &= !fragment;
    let repr = ipv4::Repr {
        src,
        dst,
        protocol,
        dscp: s.below(64) as u8,
        ecn: s.below(4) as u8,
        ident: s.u16(),
        dont_fragment: s.flip(),
        more_fragments: fragment,
        fragment_offset: if fragment { s.u16() & 0xfff8 } else { 0 },
        ttl: s.u8(),
        options,
        payload_len: payload.len(),
    };
    let packet = emitted(repr.buffer_len(), &payload, |buf| repr.emit(buf));
    let view = ipv4::Packet::new_checked(&packet).unwrap();
    assert!(view.checksum_ok());
    assert_eq!(view.payload(), payload);
    assert_eq!(ipv4::Repr::parse(&view), Ok(repr));
    let too_long = ipv4::Repr { payload_len: 0x10000 - repr.buffer_len(), ..repr };
    assert!(matches!(too_long.emit(&mut packet.clone()), Err(Error::Invalid { .. })));
    (packet, covered)
}

fn v6(s: &mut Source<'_>, depth: usize) -> (Vec<u8>, bool) {
    let (src, dst) = (s.v6(), s.v6());
    let kinds = [Protocol::DEST_OPTIONS, Protocol::FRAGMENT, Protocol::ROUTING, Protocol::AH];
    let mut chain: Vec<Protocol> = (0..s.below(4)).map(|_| kinds[s.below(4)]).collect();
    if s.below(4) == 0 {
        chain.insert(0, Protocol::HOP_BY_HOP);
    }
    // Only the routing header nearest to the upper layer counts for the pseudo header.
    let route: Vec<Ipv6Addr> = (0..s.below(3)).map(|_| s.v6()).collect();
    let left = if route.is_empty() { 0 } else { s.below(3) as u8 };
    let routed = chain.contains(&Protocol::ROUTING) && left > 0;
    let pseudo = Pseudo::V6 { src, dst: if routed { route[0] } else { dst } };
    let (mut next, mut payload, mut covered) = upper(s, &pseudo, depth);
    let upper = (next, payload.len());
    let mut fragment = None;
    for kind in chain.iter().rev() {
        payload = match *kind {
            Protocol::FRAGMENT => {
                let more = s.below(4) == 0;
                let repr = ipv6_ext::FragmentRepr { next_header: next, offset: 0, more, ident: s.u32() };
                covered &= !more;
                fragment = fragment.filter(|_| !more).or(Some(repr));
                let header = emitted(8, &payload, |buf| repr.emit(buf));
                let view = ipv6_ext::FragmentPacket::new_checked(&header).unwrap();
                assert_eq!(ipv6_ext::FragmentRepr::parse(&view), Ok(repr));
                header
            }
            Protocol::AH => {
                let words = 1 + s.below(5);
                let mut header = vec![next.0, words as u8, 0, 0];
                header.extend(s.bytes(4 + 4 * words));
                header.extend(&payload);
                header
            }
            kind => {
                let body = match kind {
                    // Segment routing: type 4, segments in reverse order.
                    Protocol::ROUTING => {
                        let mut body = vec![4, left, 0, 0, 0, 0];
                        route.iter().for_each(|address| body.extend(address.octets()));
                        body
                    }
                    _ => {
                        let len = 6 + 8 * s.below(3);
                        let mut body = vec![0x3e, len as u8 - 2];
                        body.extend(s.bytes(len - 2));
                        body
                    }
                };
                let repr = ipv6_ext::Repr { next_header: next, body: &body };
                let header = emitted(repr.buffer_len(), &payload, |buf| repr.emit(buf));
                let view = ipv6_ext::Packet::new_checked(&header).unwrap();
                assert_eq!(ipv6_ext::Repr::parse(&view), Ok(repr));
                assert_eq!(view.payload(), payload);
                header
            }
        };
        next = *kind;
    }
    let repr = ipv6::Repr {
        src,
        dst,
        next_header: next,
        dscp: s.below(64) as u8,
        ecn: s.below(4) as u8,
        flow_label: s.u32() & 0xf_ffff,
        hop_limit: s.u8(),
        payload_len: payload.len(),
    };
    let packet = emitted(40, &payload, |buf| repr.emit(buf));
    let view = ipv6::Packet::new_checked(&packet).unwrap();
    assert_eq!(view.payload(), payload);
    assert_eq!(ipv6::Repr::parse(&view), Ok(repr));
    let walk = ipv6_ext::walk(&packet).unwrap();
    assert_eq!((walk.upper, packet.len() - walk.upper_offset), upper);
    assert_eq!((walk.headers, walk.fragment), (chain.len(), fragment));
    assert_eq!(packet[walk.next_header_offset], upper.0.0);
    (packet, covered)
}

/// What an IP packet carries, and whether a checksum covers all of it.
fn upper(s: &mut Source<'_>, pseudo: &Pseudo, depth: usize) -> (Protocol, Vec<u8>, bool) {
    let is_v4 = matches!(pseudo, Pseudo::V4 { .. });
    let len = s.below(64);
    let data = s.bytes(len);
    match s.below(7) {
        0 | 1 => {
            let repr = udp::Repr { src_port: s.u16(), dst_port: s.u16(), payload_len: data.len() };
            let mut datagram = emitted(8, &data, |buf| repr.emit(buf, pseudo));
            let mut view = udp::Packet::new_checked(&mut datagram[..]).unwrap();
            assert!(view.checksum() != 0 && view.checksum_ok(pseudo));
            assert_eq!((view.payload(), udp::Repr::parse(&view)), (&data[..], Ok(repr)));
            let none = is_v4 && s.below(4) == 0;
            if none {
                view.set_checksum(0);
            }
            (Protocol::UDP, datagram, !none)
        }
        2 | 3 => {
            let repr = tcp_repr(s);
            let segment = emitted(repr.buffer_len(), &data, |buf| repr.emit(buf, pseudo));
            let view = tcp::Packet::new_checked(&segment).unwrap();
            assert!(view.checksum_ok(pseudo));
            assert_eq!((view.payload(), tcp::Repr::parse(&view)), (&data[..], Ok(repr)));
            (Protocol::TCP, segment, true)
        }
        4 if is_v4 => {
            let repr = icmpv4_repr(s);
            let message = emitted(8, &data, |buf| repr.emit(buf));
            let view = icmpv4::Packet::new_checked(&message).unwrap();
            assert!(view.checksum_ok());
            assert_eq!((view.payload(), icmpv4::Repr::parse(&view)), (&data[..], Ok(repr)));
            (Protocol::ICMP, message, true)
        }
        4 if s.flip() => {
            let repr = icmpv6_repr(s);
            let message = emitted(8, &data, |buf| repr.emit(buf, pseudo));
            let view = icmpv6::Packet::new_checked(&message).unwrap();
            assert!(view.checksum_ok(pseudo));
            assert_eq!((view.payload(), icmpv6::Repr::parse(&view)), (&data[..], Ok(repr)));
            (Protocol::ICMPV6, message, true)
        }
        4 => (Protocol::ICMPV6, nd(s, pseudo), true),
        5 if depth > 0 => tunnel(s, depth - 1),
        // Numbers that no module reads as a header: experiments (253, 254).
        _ => (Protocol(253 + s.below(2) as u8), data, false),
    }
}

fn tunnel(s: &mut Source<'_>, depth: usize) -> (Protocol, Vec<u8>, bool) {
    let (inner, covered) = if s.flip() { v4(s, depth) } else { v6(s, depth) };
    let version = ipip::classify(if inner[0] >> 4 == 6 { Protocol::IPV6 } else { Protocol::IPV4 });
    let four = ipip::Repr::v4(s.v4(), s.v4(), s.u8(), &inner).unwrap();
    let six = ipip::Repr::v6(s.v6(), s.v6(), s.u8(), &inner).unwrap();
    let mut protocol = Protocol(0);
    for repr in [four, six] {
        let packet = emitted(repr.buffer_len(), &inner, |buf| repr.emit(buf));
        let tunnelled = ipip::decapsulate(&packet).unwrap().unwrap();
        assert_eq!((tunnelled.packet, Some(tunnelled.inner)), (&inner[..], version));
        protocol = match repr {
            ipip::Repr::V4(repr) => repr.protocol,
            ipip::Repr::V6(repr) => repr.next_header,
        };
    }
    (protocol, inner, covered)
}

fn tcp_repr(s: &mut Source<'_>) -> tcp::Repr {
    let mut encoded = vec![];
    for _ in 0..s.below(4) {
        match s.below(6) {
            0 => encoded.push(tcp::option::NOP),
            1 => encoded.extend([tcp::option::MSS, 4, s.u8(), s.u8()]),
            2 => encoded.extend([tcp::option::WINDOW_SCALE, 3, s.u8()]),
            3 => encoded.extend([tcp::option::SACK_PERMITTED, 2]),
            4 => {
                encoded.extend([tcp::option::TIMESTAMPS, 10]);
                encoded.extend(s.bytes(8));
            }
            _ => {
                encoded.extend([tcp::option::SACK, 10]);
                encoded.extend(s.bytes(8));
            }
        }
    }
    tcp::Repr {
        src_port: s.u16(),
        dst_port: s.u16(),
        seq: s.u32(),
        ack: s.u32(),
        flags: tcp::Flags::from_bits(s.u16()),
        window: s.u16(),
        urgent: s.u16(),
        options: OptionBytes::new(&encoded).unwrap(),
    }
}

fn icmpv4_repr(s: &mut Source<'_>) -> icmpv4::Repr {
    match s.below(8) {
        0 => icmpv4::Repr::EchoRequest { ident: s.u16(), seq: s.u16() },
        1 => icmpv4::Repr::EchoReply { ident: s.u16(), seq: s.u16() },
        2 => icmpv4::Repr::DestUnreachable { code: s.below(4) as u8 },
        3 => icmpv4::Repr::FragmentationNeeded { next_hop_mtu: s.u16() },
        4 => icmpv4::Repr::Redirect { code: s.u8(), gateway: s.v4() },
        5 => icmpv4::Repr::TimeExceeded { code: s.u8() },
        6 => icmpv4::Repr::ParameterProblem { code: s.u8(), pointer: s.u8() },
        _ => icmpv4::Repr::Other { kind: 40 + s.u8() % 200, code: s.u8(), rest: s.array() },
    }
}

fn icmpv6_repr(s: &mut Source<'_>) -> icmpv6::Repr {
    match s.below(7) {
        0 => icmpv6::Repr::DestUnreachable { code: s.u8() },
        1 => icmpv6::Repr::PacketTooBig { mtu: s.u32() },
        2 => icmpv6::Repr::TimeExceeded { code: s.u8() },
        3 => icmpv6::Repr::ParameterProblem { code: s.u8(), pointer: s.u32() },
        4 => icmpv6::Repr::EchoRequest { ident: s.u16(), seq: s.u16() },
        5 => icmpv6::Repr::EchoReply { ident: s.u16(), seq: s.u16() },
        _ => icmpv6::Repr::Other { kind: 5 + s.u8() % 120, code: s.u8(), rest: s.array() },
    }
}

fn nd(s: &mut Source<'_>, pseudo: &Pseudo) -> Vec<u8> {
    let message = match s.below(5) {
        0 => ndisc::Message::RouterSolicit,
        1 => ndisc::Message::RouterAdvert {
            hop_limit: s.u8(),
            flags: s.u8(),
            lifetime_s: s.u16(),
            reachable_ms: s.u32(),
            retrans_ms: s.u32(),
        },
        2 => ndisc::Message::NeighborSolicit { target: s.v6() },
        3 => ndisc::Message::NeighborAdvert {
            target: s.v6(),
            router: s.flip(),
            solicited: s.flip(),
            replace: s.flip(),
        },
        _ => ndisc::Message::Redirect { target: s.v6(), dst: s.v6() },
    };
    let quoted = vec![0x45; 8 * s.below(5)];
    let other = s.bytes(14);
    let mut options = vec![];
    let mut encoded = vec![];
    for _ in 0..s.below(4) {
        let option = match s.below(6) {
            0 => ndisc::NdOption::SourceLinkLayer(s.mac()),
            1 => ndisc::NdOption::TargetLinkLayer(s.mac()),
            2 => ndisc::NdOption::Prefix(ndisc::PrefixInfo {
                prefix_len: s.u8(),
                flags: s.u8(),
                valid_s: s.u32(),
                preferred_s: s.u32(),
                prefix: s.v6(),
            }),
            3 => ndisc::NdOption::Redirected(&quoted),
            4 => ndisc::NdOption::Mtu(s.u32()),
            _ => ndisc::NdOption::Other { kind: 200, data: &other },
        };
        encoded.extend(emitted(option.buffer_len(), &[], |buf| option.emit(buf)));
        options.push(option);
    }
    let repr = ndisc::Repr { message, options: &encoded };
    let message = emitted(repr.buffer_len(), &[], |buf| repr.emit(buf, pseudo));
    let view = ndisc::Packet::new_checked(&message).unwrap();
    assert_eq!(ndisc::Repr::parse(&view), Ok(repr));
    assert_eq!(view.options().collect::<Result<Vec<_>, _>>().unwrap(), options);
    assert!(icmpv6::Packet::new_checked(&message).unwrap().checksum_ok(pseudo));
    message
}
