//! Packets to the router itself: what is answered and how.

#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{HOST, Run, US, frame, run, run_one, settings, tagged};
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::ipv6_ext::{self, FragmentRepr};
use tidemill_wire::tcp::{self, Flags};
use tidemill_wire::{EtherType, MacAddr, OptionBytes, Protocol, icmpv4, icmpv6, ipv4, ipv6, udp};

const SECOND_NS: u64 = 1_000_000_000;

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn pseudo4() -> Pseudo {
    Pseudo::V4 { src: v4("10.9.0.9"), dst: v4("10.1.0.1") }
}

fn pseudo6() -> Pseudo {
    Pseudo::V6 { src: v6("fd09::9"), dst: v6("fd01::1") }
}

fn ip4(protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    let mut repr = ipv4::Repr::new(v4("10.9.0.9"), v4("10.1.0.1"), protocol, payload.len());
    (repr.dscp, repr.ident) = (46, 77);
    repr.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

fn ip6(src: &str, dst: &str, next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let mut repr = ipv6::Repr::new(v6(src), v6(dst), next_header, payload.len());
    repr.dscp = 46;
    repr.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

fn data(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 13 + i / 251) as u8).collect()
}

fn echo4(n: usize) -> Vec<u8> {
    let mut message = [vec![0; 8], data(n)].concat();
    icmpv4::Repr::EchoRequest { ident: 5, seq: 6 }.emit(&mut message).unwrap();
    message
}

fn echo6(n: usize, pseudo: &Pseudo) -> Vec<u8> {
    let mut message = [vec![0; 8], data(n)].concat();
    icmpv6::Repr::EchoRequest { ident: 5, seq: 6 }.emit(&mut message, pseudo).unwrap();
    message
}

fn frame4(packet: &[u8]) -> Vec<u8> {
    frame(US, EtherType::IPV4, packet)
}

fn frame6(packet: &[u8]) -> Vec<u8> {
    frame(US, EtherType::IPV6, packet)
}

/// The IPv4 packet of a frame to be looked up.
fn read4(frame: &[u8]) -> ipv4::Packet<&[u8]> {
    assert_eq!(frame[..14], [0; 14]);
    let packet = ipv4::Packet::new_checked(&frame[14..]).unwrap();
    assert!(packet.checksum_ok() && packet.ttl() == 64);
    assert_eq!((packet.src(), packet.dst()), (v4("10.1.0.1"), v4("10.9.0.9")));
    assert_eq!(usize::from(packet.total_len()), frame.len() - 14, "no padding goes out again");
    packet
}

fn read6(frame: &[u8]) -> ipv6::Packet<&[u8]> {
    assert_eq!(frame[..14], [0; 14]);
    let packet = ipv6::Packet::new_checked(&frame[14..]).unwrap();
    assert_eq!((packet.src(), packet.dst(), packet.hop_limit()), (v6("fd01::1"), v6("fd09::9"), 64));
    assert_eq!(40 + packet.payload().len(), frame.len() - 14);
    packet
}

fn check_reply4(message: &[u8], n: usize) {
    let view = icmpv4::Packet::new_checked(message).unwrap();
    assert!(view.checksum_ok());
    assert_eq!(icmpv4::Repr::parse(&view), Ok(icmpv4::Repr::EchoReply { ident: 5, seq: 6 }));
    assert!(view.payload() == data(n));
}

fn check_reply6(message: &[u8], n: usize, pseudo: &Pseudo) {
    let view = icmpv6::Packet::new_checked(message).unwrap();
    assert!(view.checksum_ok(pseudo));
    assert_eq!(icmpv6::Repr::parse(&view), Ok(icmpv6::Repr::EchoReply { ident: 5, seq: 6 }));
    assert!(view.payload() == data(n));
}

#[test]
fn pings_are_answered_in_their_own_frame() {
    for n in [0, 1, 56, 1472] {
        let run = run_one(frame4(&ip4(Protocol::ICMP, &echo4(n))));
        let reply = read4(run.only());
        assert_eq!((reply.protocol(), reply.dscp(), reply.dont_fragment()), (Protocol::ICMP, 46, false));
        check_reply4(reply.payload(), n);
        let run = run_one(frame6(&ip6("fd09::9", "fd01::1", Protocol::ICMPV6, &echo6(n, &pseudo6()))));
        let reply = read6(run.only());
        assert_eq!((reply.next_header(), reply.dscp()), (Protocol::ICMPV6, 46));
        check_reply6(reply.payload(), n, &pseudo6());
    }
}

#[test]
fn options_and_extension_headers_stay_behind() {
    let mut bytes = vec![0; 24];
    let message = echo4(56);
    let mut repr = ipv4::Repr::new(v4("10.9.0.9"), v4("10.1.0.1"), Protocol::ICMP, message.len());
    repr.options = OptionBytes::new(&[1, 1, 1, 0]).unwrap();
    repr.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(&message);
    let run = run_one(frame4(&bytes));
    let reply = read4(run.only());
    assert_eq!(reply.header_len(), 20);
    check_reply4(reply.payload(), 56);

    let options = [Protocol::ICMPV6.0, 0, 1, 4, 0, 0, 0, 0];
    let payload = [&options[..], &echo6(56, &pseudo6())].concat();
    let run = run_one(frame6(&ip6("fd09::9", "fd01::1", Protocol::DEST_OPTIONS, &payload)));
    let reply = read6(run.only());
    assert_eq!(reply.next_header(), Protocol::ICMPV6);
    check_reply6(reply.payload(), 56, &pseudo6());

    // An atomic fragment (RFC 6946) is answered as if it were none.
    let mut header = [0; 8];
    let atomic = FragmentRepr { next_header: Protocol::ICMPV6, offset: 0, more: false, ident: 1 };
    atomic.emit(&mut header).unwrap();
    let payload = [&header[..], &echo6(56, &pseudo6())].concat();
    let run = run_one(frame6(&ip6("fd09::9", "fd01::1", Protocol::FRAGMENT, &payload)));
    check_reply6(read6(run.only()).payload(), 56, &pseudo6());
}

fn fragments4(protocol: Protocol, message: &[u8], step: usize) -> Vec<Vec<u8>> {
    let pieces = message.chunks(step).enumerate().map(|(n, piece)| {
        let mut packet = ip4(protocol, piece);
        let mut view = ipv4::Packet::new_unchecked(&mut packet[..]);
        view.set_fragment(false, n * step + piece.len() < message.len(), (n * step) as u16);
        view.fill_checksum();
        frame4(&packet)
    });
    pieces.collect()
}

fn fragments6(src: &str, dst: &str, upper: Protocol, message: &[u8], step: usize) -> Vec<Vec<u8>> {
    let pieces = message.chunks(step).enumerate().map(|(n, piece)| {
        let more = n * step + piece.len() < message.len();
        let repr = FragmentRepr { next_header: upper, offset: (n * step) as u16, more, ident: 9 };
        let mut header = [0; 8];
        repr.emit(&mut header).unwrap();
        ip6(src, dst, Protocol::FRAGMENT, &[&header[..], piece].concat())
    });
    pieces.collect()
}

/// Puts the message of some fragments together: offset, more, bytes.
fn joined(mut pieces: Vec<(usize, bool, Vec<u8>)>) -> Vec<u8> {
    pieces.sort();
    let mut whole = Vec::new();
    let last = pieces.len() - 1;
    for (n, (offset, more, bytes)) in pieces.into_iter().enumerate() {
        assert_eq!((offset, more), (whole.len(), n < last));
        whole.extend(bytes);
    }
    whole
}

fn timed(frames: Vec<Vec<u8>>) -> Vec<(u64, Vec<u8>)> {
    frames.into_iter().enumerate().map(|(n, frame)| (1 + n as u64, frame)).collect()
}

#[test]
fn long_pings_are_answered_in_fragments() {
    for (n, step) in [(3000, 1480), (3000, 552), (65_507, 1480)] {
        let mut frames = fragments4(Protocol::ICMP, &echo4(n), step);
        let count = frames.len() as u64;
        frames.reverse();
        let run = run(settings(), timed(frames));
        let pieces: Vec<_> = run.looked_up.iter().map(|frame| read4(frame)).collect();
        assert!(pieces.iter().all(|p| p.total_len() <= 1500 && p.ident() == pieces[0].ident()));
        let parts = pieces
            .iter()
            .map(|piece| (piece.fragment_offset().into(), piece.more_fragments(), piece.payload().to_vec()));
        check_reply4(&joined(parts.collect()), n);
        let ledger = run.snapshot.ledger();
        assert_eq!((run.drops(), ledger.consumed), (String::new(), count));
    }
    for (n, step) in [(3000, 1448), (65_519, 1448)] {
        let message = echo6(n, &pseudo6());
        let frames = fragments6("fd09::9", "fd01::1", Protocol::ICMPV6, &message, step);
        let run = run(settings(), timed(frames.iter().map(|packet| frame6(packet)).collect()));
        let parts = run.looked_up.iter().map(|frame| {
            let packet = read6(frame);
            assert!(frame.len() - 14 <= 1280 && packet.next_header() == Protocol::FRAGMENT);
            let view = ipv6_ext::FragmentPacket::new_checked(packet.payload()).unwrap();
            assert_eq!(view.next_header(), Protocol::ICMPV6);
            (view.offset().into(), view.more(), view.payload().to_vec())
        });
        check_reply6(&joined(parts.collect()), n, &pseudo6());
    }
    // What fits into a packet goes out as one.
    let run = run(settings(), timed(fragments4(Protocol::ICMP, &echo4(500), 256)));
    check_reply4(read4(run.only()).payload(), 500);
}

/// A packet in a packet that came in fragments, of either family: it is looked up as if it had come whole, once.
#[test]
fn outer_packets_in_fragments_are_looked_up_whole() {
    for (inner, step) in [(1280, 1224), (1280, 64), (57, 56), (1700, 1448)] {
        let body = data(inner);
        for protocol in [Protocol::IPV4, Protocol::IPV6] {
            let mut frames = fragments4(protocol, &body, step);
            let count = frames.len() as u64;
            frames.reverse();
            let once = run(settings(), timed(frames));
            let ledger = once.snapshot.ledger();
            assert_eq!((once.drops(), ledger.consumed), (String::new(), count - 1));
            let whole = once.only().to_vec();
            // The first fragment's own header, lengths and checksum right, no fragment.
            let mut plain = ip4(protocol, &body);
            let mut view = ipv4::Packet::new_unchecked(&mut plain[..]);
            view.set_fragment(false, false, 0);
            view.fill_checksum();
            assert_eq!(whole, frame4(&plain), "{inner} {step}");
            // Where nobody takes it out, it comes again, and is answered as any other.
            let again = run_one(whole);
            let (kind, code, _, quoted) = error_of(&again);
            assert_eq!((kind, code, again.drops()), (3, 2, "protocol-unknown=1".into()));
            assert_eq!(quoted, plain[..quoted.len()]);

            let packets = fragments6("fd09::9", "fd01::1", protocol, &body, step);
            let frames: Vec<_> = packets.iter().map(|packet| frame6(packet)).collect();
            let count = frames.len() as u64;
            let once = run(settings(), timed(frames));
            let ledger = once.snapshot.ledger();
            assert_eq!((once.drops(), ledger.consumed), (String::new(), count - 1));
            let whole = once.only().to_vec();
            assert_eq!(whole, frame6(&ip6("fd09::9", "fd01::1", protocol, &body)), "{inner} {step}");
            let again = run_one(whole);
            assert_eq!((error_of(&again).0, again.drops()), (4, "protocol-unknown=1".into()));
        }
    }
    // What no frame would hold is answered where it is, as is what no route leads back from.
    let run1 = run(settings(), timed(fragments4(Protocol::IPV4, &data(3000), 1480)));
    assert_eq!((error_of(&run1).0, run1.drops()), (3, "protocol-unknown=1".into()));
    let near = fragments6("fe80::9", "fe80::1", Protocol::IPV6, &data(1280), 640);
    let run1 = run(settings(), timed(near.iter().map(|packet| frame6(packet)).collect()));
    assert_eq!((run1.looked_up.len(), run1.drops()), (0, "protocol-unknown=2".into()));
    // Two fragment headers: none is taken for a whole.
    let mut header = [0; 8];
    let inner = FragmentRepr { next_header: Protocol::IPV6, offset: 0, more: true, ident: 3 };
    inner.emit(&mut header).unwrap();
    let body = [&header[..], &data(1200)].concat();
    let twice = fragments6("fd09::9", "fd01::1", Protocol::FRAGMENT, &body, 640);
    let run1 = run(settings(), timed(twice.iter().map(|packet| frame6(packet)).collect()));
    assert_eq!((run1.looked_up.len(), run1.drops()), (0, "local-unhandled=2".into()));
}

#[test]
fn link_local_pings_go_straight_back() {
    let pseudo = Pseudo::V6 { src: v6("fe80::9"), dst: v6("fe80::1") };
    let request = |n| ip6("fe80::9", "fe80::1", Protocol::ICMPV6, &echo6(n, &pseudo));
    let check = |frame: &[u8], link: &[u8], n: usize| {
        assert_eq!(frame[..link.len()], *link);
        let packet = ipv6::Packet::new_checked(&frame[link.len()..]).unwrap();
        assert_eq!((packet.src(), packet.dst()), (v6("fe80::1"), v6("fe80::9")));
        check_reply6(packet.payload(), n, &pseudo);
    };
    let plain = [&HOST.0[..], &US.0, &[0x86, 0xdd]].concat();
    let run = run_one(frame6(&request(56)));
    check(&run.back[0], &plain, 56);
    let vlan = [&HOST.0[..], &US.0, &[0x81, 0, 0, 7, 0x86, 0xdd]].concat();
    let run = run_one(tagged(US, EtherType::IPV6, &request(56)));
    check(&run.back[0], &vlan, 56);
    assert_eq!(run.looked_up.len(), 0);
    // In fragments, on the VLAN.
    let frames = fragments6("fe80::9", "fe80::1", Protocol::ICMPV6, &echo6(1000, &pseudo), 512);
    let run = common::run(
        settings(),
        timed(frames.iter().map(|packet| tagged(US, EtherType::IPV6, packet)).collect()),
    );
    check(run.only(), &vlan, 1000);
    // Errors have no way there.
    let run = run_one(frame6(&ip6("fe80::9", "fe80::1", Protocol::GRE, &[0; 8])));
    assert_eq!((run.drops(), run.back.len() + run.looked_up.len()), ("protocol-unknown=1".into(), 0));
}

/// Kind, code, the four bytes after the checksum, and what is quoted.
fn error_of(run: &Run) -> (u8, u8, [u8; 4], Vec<u8>) {
    let frame = run.only();
    if ipv4::version(&frame[14..]) == 4 {
        let packet = read4(frame);
        let view = icmpv4::Packet::new_checked(packet.payload()).unwrap();
        assert!(view.checksum_ok());
        return (view.kind(), view.code(), view.rest(), view.payload().to_vec());
    }
    let packet = read6(frame);
    let view = icmpv6::Packet::new_checked(packet.payload()).unwrap();
    assert!(view.checksum_ok(&Pseudo::V6 { src: packet.src(), dst: packet.dst() }));
    (view.kind(), view.code(), view.rest(), view.payload().to_vec())
}

fn udp(pseudo: &Pseudo, n: usize) -> Vec<u8> {
    let mut datagram = [vec![0; 8], data(n)].concat();
    udp::Repr { src_port: 4000, dst_port: 53, payload_len: n }.emit(&mut datagram, pseudo).unwrap();
    datagram
}

#[test]
fn closed_ports_and_unknown_protocols_are_told() {
    let packet = ip4(Protocol::UDP, &udp(&pseudo4(), 20));
    let run = run_one(frame4(&packet));
    assert_eq!((error_of(&run), run.drops()), ((3, 3, [0; 4], packet), "no-listener=1".into()));
    let packet = ip6("fd09::9", "fd01::1", Protocol::UDP, &udp(&pseudo6(), 20));
    let run = run_one(frame6(&packet));
    assert_eq!((error_of(&run), run.drops()), ((1, 4, [0; 4], packet), "no-listener=1".into()));
    let packet = ip4(Protocol::GRE, &[0; 30]);
    let run = run_one(frame4(&packet));
    assert_eq!((error_of(&run), run.drops()), ((3, 2, [0; 4], packet), "protocol-unknown=1".into()));
    let packet = ip6("fd09::9", "fd01::1", Protocol::SCTP, &[0; 30]);
    let run = run_one(frame6(&packet));
    assert_eq!((error_of(&run), run.drops()), ((4, 1, [0, 0, 0, 6], packet), "protocol-unknown=1".into()));
}

/// An echo request behind these extension headers, each with its number and its bytes from the third on.
fn behind(headers: &[(Protocol, &[u8])], dst: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    for (n, (_, body)) in headers.iter().enumerate() {
        let next = headers.get(n + 1).map_or(Protocol::ICMPV6, |(next, _)| *next);
        payload.extend([&[next.0, ((body.len() + 2) / 8 - 1) as u8], *body].concat());
    }
    payload.extend(echo6(8, &Pseudo::V6 { src: v6("fd09::9"), dst: v6(dst) }));
    ip6("fd09::9", dst, headers[0].0, &payload)
}

#[test]
fn extension_headers_that_must_not_be_skipped() {
    const HOPS: Protocol = Protocol::HOP_BY_HOP;
    const OPTIONS: Protocol = Protocol::DEST_OPTIONS;
    const ROUTING: Protocol = Protocol::ROUTING;
    let pad: &[u8] = &[1, 4, 0, 0, 0, 0];
    let via = [&[0, 1, 0, 0, 0, 0][..], &[0xfd; 16]].concat();
    let passed = via[..1].iter().chain(&[0]).chain(&via[2..]).copied().collect::<Vec<u8>>();
    let here = "fd01::1";
    type Told = Option<(u8, u8)>; // code, pointer
    let cases: [(&str, Vec<u8>, &str, Told); 13] = [
        ("RH0", behind(&[(ROUTING, &via)], here), "ipv6-routing-header=1", Some((0, 42))),
        ("unknown", behind(&[(ROUTING, &[99, 1, 0, 0, 0, 0])], here), "ipv6-routing-header=1", Some((0, 42))),
        ("second", behind(&[(HOPS, pad), (ROUTING, &via)], here), "ipv6-routing-header=1", Some((0, 50))),
        ("none left", behind(&[(ROUTING, &passed)], here), "", None),
        ("00", behind(&[(OPTIONS, &[0x1e, 4, 0, 0, 0, 0])], here), "", None),
        ("01", behind(&[(OPTIONS, &[0x5e, 4, 0, 0, 0, 0])], here), "ipv6-option-unknown=1", None),
        ("10", behind(&[(OPTIONS, &[0x9e, 4, 0, 0, 0, 0])], here), "ipv6-option-unknown=1", Some((2, 42))),
        ("11", behind(&[(OPTIONS, &[0xde, 4, 0, 0, 0, 0])], here), "ipv6-option-unknown=1", Some((2, 42))),
        ("hops", behind(&[(HOPS, &[0, 0, 5, 2, 0, 0])], here), "", None),
        (
            "behind others",
            behind(&[(HOPS, &[0, 1, 1, 0, 0x1e, 0]), (OPTIONS, &[1, 1, 0, 0x9e, 1, 0])], here),
            "ipv6-option-unknown=1",
            Some((2, 53)),
        ),
        (
            "to a group",
            behind(&[(OPTIONS, &[0xde, 4, 0, 0, 0, 0])], "ff02::1"),
            "ipv6-option-unknown=1",
            None,
        ),
        ("too long", behind(&[(OPTIONS, &[0x9e, 5, 0, 0, 0, 0])], here), "local-unhandled=1", None),
        (
            "the first counts",
            behind(&[(OPTIONS, &[0x5e, 4, 0, 0, 0, 0]), (ROUTING, &via)], here),
            "ipv6-option-unknown=1",
            None,
        ),
    ];
    for (name, packet, drops, told) in cases {
        let run = run_one(frame6(&packet));
        assert_eq!(run.drops(), drops, "{name}");
        match told {
            Some((code, at)) => assert_eq!(error_of(&run), (4, code, [0, 0, 0, at], packet), "{name}"),
            None if drops.is_empty() => check_reply6(read6(run.only()).payload(), 8, &pseudo6()),
            None => assert_eq!(run.back.len() + run.looked_up.len(), 0, "{name}"),
        }
    }
    // To a group, where even then the sender wants to know.
    let run = run_one(frame6(&behind(&[(OPTIONS, &[0x9e, 4, 0, 0, 0, 0])], "ff02::1")));
    assert_eq!((error_of(&run).0, run.drops()), (4, "ipv6-option-unknown=1".into()));

    // In fragments: the pointer is into the first one, where the fragment header stands in front.
    let mut whole = vec![Protocol::ICMPV6.0, 0, 0x9e, 4, 0, 0, 0, 0];
    whole.extend(echo6(100, &pseudo6()));
    let frames = fragments6("fd09::9", here, OPTIONS, &whole, 64);
    let run = common::run(settings(), timed(frames.iter().map(|packet| frame6(packet)).collect()));
    let (kind, code, pointer, quoted) = error_of(&run);
    assert_eq!((kind, code, pointer, quoted), (4, 2, [0, 0, 0, 50], frames[0].clone()));
    // As it is for a protocol that nobody speaks.
    let frames = fragments6("fd09::9", here, Protocol::SCTP, &[0; 200], 64);
    let run = common::run(settings(), timed(frames.iter().map(|packet| frame6(packet)).collect()));
    assert_eq!((error_of(&run).0, error_of(&run).2), (4, [0, 0, 0, 40]));
}

#[test]
fn a_datagram_in_fragments_to_a_closed_port_is_told_of_by_its_first() {
    let frames = fragments4(Protocol::UDP, &udp(&pseudo4(), 2000), 1024);
    let first = frames[0][14..].to_vec();
    let run = common::run(settings(), timed(frames));
    let (kind, code, _, quoted) = error_of(&run);
    assert_eq!((kind, code, run.drops()), (3, 3, "no-listener=1".into()));
    assert_eq!(quoted, first[..quoted.len()]);
    assert_eq!(run.snapshot.ledger().consumed, 1);
}

#[test]
fn what_wants_no_answer_gets_none() {
    let mut echo_reply = [vec![0; 8], data(8)].concat();
    icmpv4::Repr::EchoReply { ident: 5, seq: 6 }.emit(&mut echo_reply).unwrap();
    let mut unreachable = [vec![0; 8], data(28)].concat();
    icmpv4::Repr::DestUnreachable { code: 1 }.emit(&mut unreachable).unwrap();
    let mut broadcast = ip4(Protocol::ICMP, &echo4(8));
    let mut view = ipv4::Packet::new_unchecked(&mut broadcast[..]);
    view.set_src(v4("255.255.255.255"));
    view.fill_checksum();
    let frames = vec![
        frame4(&ip4(Protocol::ICMP, &echo_reply)),
        frame4(&ip4(Protocol::ICMP, &echo4(0)[..7])),
        frame4(&ip4(Protocol::ICMP, &unreachable)),
        frame4(&ip4(Protocol::TCP, &segment(&pseudo4(), 1, 2, Flags::RST, 0))),
        frame4(&broadcast),
        frame6(&ip6("fd09::9", "fd01::1", Protocol::NO_NEXT, &[0; 8])),
        frame6(&ip6("::", "fd01::1", Protocol::ICMPV6, &echo6(8, &pseudo6()))),
    ];
    let count = frames.len();
    let run = run(settings(), timed(frames));
    assert_eq!(run.drops(), format!("local-unhandled={count}"));
    assert_eq!(run.back.len() + run.looked_up.len(), 0);
}

#[test]
fn wrong_checksums_have_a_name() {
    let mut messages = Vec::new();
    for (v6, pseudo) in [(false, pseudo4()), (true, pseudo6())] {
        messages.push((v6, Protocol::UDP, udp(&pseudo, 9)));
        messages.push((v6, Protocol::TCP, segment(&pseudo, 1, 2, Flags::SYN, 9)));
    }
    messages.push((false, Protocol::ICMP, echo4(9)));
    messages.push((true, Protocol::ICMPV6, echo6(9, &pseudo6())));
    for (v6, protocol, right) in messages {
        let mut wrong = right.clone();
        *wrong.last_mut().unwrap() ^= 1;
        let packet = |message: &[u8]| match v6 {
            false => frame4(&ip4(protocol, message)),
            true => frame6(&ip6("fd09::9", "fd01::1", protocol, message)),
        };
        let run = run_one(packet(&wrong));
        assert_eq!((run.drops(), run.back.len() + run.looked_up.len()), ("local-bad-checksum=1".into(), 0));
        assert_eq!(run_one(packet(&right)).looked_up.len(), 1, "{protocol:?}");
    }
    let mut wrong = echo4(3000);
    wrong[2000] ^= 1;
    let run = run(settings(), timed(fragments4(Protocol::ICMP, &wrong, 1480)));
    assert_eq!(run.drops(), "local-bad-checksum=3");
}

fn segment(pseudo: &Pseudo, seq: u32, ack: u32, flags: Flags, n: usize) -> Vec<u8> {
    let options = OptionBytes::new(&[2, 4, 5, 180]).unwrap();
    let mut bytes = [vec![0; 24], data(n)].concat();
    let repr = tcp::Repr { src_port: 4000, dst_port: 22, seq, ack, flags, window: 100, urgent: 0, options };
    repr.emit(&mut bytes, pseudo).unwrap();
    bytes
}

#[test]
fn connections_are_reset() {
    let both = |a: Flags, b: Flags| Flags::from_bits(a.bits() | b.bits());
    let cases = [
        (Flags::SYN, 0, (0, 1001, both(Flags::RST, Flags::ACK))),
        (both(Flags::SYN, Flags::FIN), 10, (0, 1012, both(Flags::RST, Flags::ACK))),
        (Flags::ACK, 10, (5000, 0, Flags::RST)),
    ];
    for (flags, n, (seq, ack, reply_flags)) in cases {
        for v6 in [false, true] {
            let pseudo = if v6 { pseudo6() } else { pseudo4() };
            let segment = segment(&pseudo, 1000, 5000, flags, n);
            let run = run_one(match v6 {
                false => frame4(&ip4(Protocol::TCP, &segment)),
                true => frame6(&ip6("fd09::9", "fd01::1", Protocol::TCP, &segment)),
            });
            let frame = run.only();
            let payload = match v6 {
                false => read4(frame).payload().to_vec(),
                true => read6(frame).payload().to_vec(),
            };
            let reset = tcp::Packet::new_checked(&payload[..]).unwrap();
            assert!(reset.checksum_ok(&pseudo) && payload.len() == 20);
            let ports = (reset.src_port(), reset.dst_port());
            assert_eq!((ports, reset.seq(), reset.ack(), reset.flags()), ((22, 4000), seq, ack, reply_flags));
        }
    }
    // As often as errors, and no more.
    let frames = vec![frame4(&ip4(Protocol::TCP, &segment(&pseudo4(), 1, 1, Flags::SYN, 0))); 150];
    let run = run(settings(), frames.into_iter().map(|frame| (1, frame)).collect());
    assert_eq!((run.looked_up.len(), run.drops()), (100, "no-listener=50".into()));
}

#[test]
fn fragments_that_never_become_whole_are_told_of() {
    let echo = echo4(3000);
    let later = |s: u64| (s * SECOND_NS, frame(MacAddr::BROADCAST, EtherType::ARP, &[0; 46]));
    let fragments = fragments4(Protocol::ICMP, &echo, 1480);
    let mut frames = timed(fragments[..2].to_vec());
    frames.extend([later(20), later(40)]);
    let first = fragments[0][14..].to_vec();
    let timed_out = run(settings(), frames);
    assert_eq!(timed_out.drops(), "arp-invalid=2 reassembly-timeout=2");
    let (kind, code, _, quoted) = error_of(&timed_out);
    assert_eq!((kind, code), (11, 1));
    assert_eq!(quoted, first[..quoted.len()]);

    // Without the first nobody is told.
    let frames = vec![(1, fragments[1].clone()), later(40)];
    let run1 = run(settings(), frames);
    assert_eq!((run1.drops(), run1.looked_up.len()), ("arp-invalid=1 reassembly-timeout=1".into(), 0));

    let fragments = fragments6("fd09::9", "fd01::1", Protocol::ICMPV6, &echo6(3000, &pseudo6()), 1448);
    let frames = vec![(1, frame6(&fragments[0])), later(59), later(61)];
    let timed_out = run(settings(), frames);
    assert_eq!(timed_out.drops(), "arp-invalid=2 reassembly-timeout=1");
    let (kind, code, _, quoted) = error_of(&timed_out);
    assert_eq!((kind, code), (3, 1));
    assert_eq!(quoted, fragments[0][..quoted.len()]);
}

#[test]
fn overlaps_are_dropped_by_name_and_what_waits_at_the_end_is_held() {
    let mut frames = fragments4(Protocol::ICMP, &echo4(3000), 1480);
    let mut forged = frames[0].clone();
    forged[100] ^= 1;
    frames.insert(1, forged);
    let overlapping = run(settings(), timed(frames));
    assert_eq!((overlapping.drops(), overlapping.looked_up.len()), ("reassembly-failed=4".into(), 0));
    let waiting = run(settings(), timed(fragments4(Protocol::ICMP, &echo4(3000), 1480)[1..].to_vec()));
    assert_eq!(waiting.snapshot.ledger().held, 2);
}

/// Any bytes behind the right EtherTypes: no panic, and the books balance.
#[test]
fn any_bytes_are_survived() {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    let mut rng = StdRng::seed_from_u64(5);
    let mut seeds = vec![
        frame4(&ip4(Protocol::ICMP, &echo4(30))),
        frame4(&ip4(Protocol::TCP, &segment(&pseudo4(), 1, 1, Flags::SYN, 3))),
        frame4(&ip4(Protocol::UDP, &udp(&pseudo4(), 30))),
        frame6(&ip6("fe80::9", "fd01::1", Protocol::ICMPV6, &echo6(30, &pseudo6()))),
        frame6(&ip6(
            "fd09::9",
            "fd01::1",
            Protocol::DEST_OPTIONS,
            &[&[58, 0, 1, 4, 0, 0, 0, 0][..], &[1; 40]].concat(),
        )),
    ];
    seeds.extend(fragments4(Protocol::ICMP, &echo4(200), 64));
    let pieces = fragments6("fd09::9", "fd01::1", Protocol::ICMPV6, &echo6(200, &pseudo6()), 64);
    seeds.extend(pieces.iter().map(|packet| frame6(packet)));
    let frames = (0..6000).map(|n| {
        let mut frame = seeds[n % seeds.len()].clone();
        for _ in 0..rng.random_range(0..3) {
            let at = rng.random_range(14..frame.len());
            frame[at] = rng.random();
        }
        if rng.random_bool(0.2) {
            frame.truncate(rng.random_range(15..=frame.len()));
        }
        (n as u64 * SECOND_NS / 20, frame)
    });
    let run = run(settings(), frames.collect());
    assert!(run.looked_up.len() > 300, "{}", run.looked_up.len());
}
