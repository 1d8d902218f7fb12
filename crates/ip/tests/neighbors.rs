//! ARP and neighbor discovery: what is answered, what is learnt, what is invalid.

#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{HOST, Run, US, frame, run, run_one, settings, tagged};
use std::net::Ipv6Addr;
use tidemill_ip::neighbor::{Event, How, Key};
use tidemill_ip::{Owner, Settings};
use tidemill_wire::arp::{self, Operation};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::ndisc::{self, Message, NdOption};
use tidemill_wire::{EtherType, MacAddr, Protocol, icmpv6, ipv6};

fn heard(interface: u16, address: &str, mac: Option<MacAddr>, how: How) -> Event {
    Event::Heard { key: Key { interface, address: address.parse().unwrap() }, mac, how }
}

fn kernels() -> Settings {
    let mut settings = settings();
    let list = settings.interfaces.iter().cloned().map(|mut interface| {
        interface.owner = Owner::Kernel;
        interface
    });
    settings.interfaces = tidemill_ip::Interfaces::new(list.collect(), 2);
    settings
}

fn arp(operation: Operation, sender: (MacAddr, &str), target: (MacAddr, &str)) -> Vec<u8> {
    let repr = arp::Repr {
        operation,
        sender_mac: sender.0,
        sender_ip: sender.1.parse().unwrap(),
        target_mac: target.0,
        target_ip: target.1.parse().unwrap(),
    };
    let mut bytes = vec![0; 28];
    repr.emit(&mut bytes).unwrap();
    bytes
}

fn broadcast(message: &[u8]) -> Vec<u8> {
    frame(MacAddr::BROADCAST, EtherType::ARP, message)
}

const NOBODY: MacAddr = MacAddr::ZERO;

#[test]
fn arp_requests_are_answered_in_place_with_their_tags() {
    let request = arp(Operation::Request, (HOST, "10.1.0.9"), (NOBODY, "10.1.0.1"));
    let reply = arp(Operation::Reply, (US, "10.1.0.1"), (HOST, "10.1.0.9"));
    let run = run_one(broadcast(&request));
    assert_eq!(run.back[0][..42], [&HOST.0[..], &US.0, &[8, 6], &reply].concat()[..]);
    assert_eq!(run.events, [heard(0, "10.1.0.9", Some(HOST), How::Request)]);
    let run = run_one(tagged(MacAddr::BROADCAST, EtherType::ARP, &request));
    assert_eq!(run.only()[..46], [&HOST.0[..], &US.0, &[0x81, 0, 0xa0, 7, 8, 6], &reply].concat()[..]);
    assert_eq!(run.events, [heard(2, "10.1.0.9", Some(HOST), How::Request)]);
    // A probe is answered, so that its sender looks for another address; it has none yet that could be learnt.
    let run = run_one(broadcast(&arp(Operation::Request, (HOST, "0.0.0.0"), (NOBODY, "10.1.0.1"))));
    assert_eq!((run.back.len(), run.events.len(), run.drops()), (1, 0, String::new()));
}

#[test]
fn the_kernel_answers_for_its_own_addresses_and_we_learn() {
    let request = broadcast(&arp(Operation::Request, (HOST, "10.1.0.9"), (NOBODY, "10.1.0.1")));
    let solicitation = solicit("fd01::9", "fd01::1", Some(HOST));
    let run = run(kernels(), vec![(1, request), (2, solicitation)]);
    assert_eq!((run.back.len(), run.drops()), (0, String::new()));
    let learnt = ["10.1.0.9", "fd01::9"].map(|address| heard(0, address, Some(HOST), How::Request));
    assert_eq!(run.events, learnt);
}

#[test]
fn arp_that_is_not_for_us_is_consumed_and_announcements_are_heard() {
    let reply = How::Reply { solicited: true, overrides: true };
    let cases = [
        (arp(Operation::Request, (HOST, "10.1.0.9"), (NOBODY, "10.1.0.8")), None),
        (arp(Operation::Reply, (HOST, "10.1.0.9"), (MacAddr([2; 6]), "10.1.0.8")), None),
        (arp(Operation::Request, (HOST, "0.0.0.0"), (NOBODY, "10.1.0.8")), None),
        (arp(Operation::Request, (HOST, "10.1.0.9"), (NOBODY, "10.1.0.9")), Some(How::Gratuitous)),
        (arp(Operation::Reply, (HOST, "10.1.0.9"), (HOST, "10.1.0.9")), Some(How::Gratuitous)),
        (arp(Operation::Reply, (HOST, "10.1.0.9"), (US, "10.1.0.1")), Some(reply)),
        (arp(Operation::Reply, (HOST, "10.1.0.9"), (US, "0.0.0.0")), Some(reply)),
    ];
    for (message, how) in cases {
        let run = run_one(broadcast(&message));
        let expected: Vec<_> = how.map(|how| heard(0, "10.1.0.9", Some(HOST), how)).into_iter().collect();
        assert_eq!((run.back.len(), run.drops(), run.events), (0, String::new(), expected), "{message:?}");
    }
}

#[test]
fn impossible_arp_is_invalid() {
    let good = arp(Operation::Request, (HOST, "10.1.0.9"), (NOBODY, "10.1.0.1"));
    let edited = |at: usize, bytes: &[u8]| {
        let mut message = good.clone();
        message[at..at + bytes.len()].copy_from_slice(bytes);
        message
    };
    let cases = [
        edited(0, &[0, 6]),
        edited(2, &[0x86, 0xdd]),
        edited(4, &[8]),
        edited(5, &[16]),
        edited(8, &[0xff; 6]),
        edited(8, &[0; 6]),
        edited(8, &[1, 0, 0x5e, 0, 0, 1]),
        edited(14, &[224, 0, 0, 1]),
        edited(14, &[255; 4]),
        edited(14, &[127, 0, 0, 1]),
        edited(14, &[10, 1, 0, 1]), // our own address
        edited(8, &US.0),           // with somebody else's
        edited(14, &[10, 1, 0, 0]), // the link's
        edited(14, &[10, 1, 0, 255]),
        arp(Operation::Request, (HOST, "10.1.0.255"), (NOBODY, "10.1.0.255")),
        arp(Operation::Reply, (US, "10.1.0.9"), (US, "10.1.0.1")),
        arp(Operation::Request, (US, "0.0.0.0"), (NOBODY, "10.1.0.1")),
        arp(Operation::Reply, (HOST, "0.0.0.0"), (US, "10.1.0.1")),
    ];
    for message in cases {
        let run = run_one(broadcast(&message));
        assert_eq!(
            (run.drops(), run.events.len(), run.back.len()),
            ("arp-invalid=1".into(), 0, 0),
            "{message:?}"
        );
    }
    let mut short = broadcast(&good);
    short.truncate(14 + 27);
    assert_eq!(run_one(short).drops(), "arp-invalid=1");
    assert_eq!(run_one(broadcast(&edited(6, &[0, 3]))).drops(), "arp-ignored=1");
    let mut deaf = settings();
    let list = deaf.interfaces.iter().cloned().map(|mut interface| {
        interface.resolves = false;
        interface
    });
    deaf.interfaces = tidemill_ip::Interfaces::new(list.collect(), 2);
    assert_eq!(run(deaf, vec![(1, broadcast(&good))]).drops(), "arp-ignored=1");
}

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// An IPv6 packet with this message of neighbor discovery.
fn nd(src: &str, dst: &str, message: Message, option: Option<NdOption<'_>>) -> Vec<u8> {
    let mut options = [0; 8];
    let options = option.map_or(&[][..], |option| {
        option.emit(&mut options).unwrap();
        &options
    });
    let repr = ndisc::Repr { message, options };
    let mut bytes = vec![0; 40 + repr.buffer_len()];
    let mut header = ipv6::Repr::new(ip(src), ip(dst), Protocol::ICMPV6, repr.buffer_len());
    header.hop_limit = 255;
    header.emit(&mut bytes).unwrap();
    repr.emit(&mut bytes[40..], &Pseudo::V6 { src: ip(src), dst: ip(dst) }).unwrap();
    bytes
}

fn to_group(packet: &[u8]) -> Vec<u8> {
    let dst = ipv6::Packet::new_checked(packet).unwrap().dst();
    frame(MacAddr::from_multicast_v6(dst), EtherType::IPV6, packet)
}

fn solicitation(src: &str, target: &str, mac: Option<MacAddr>) -> Vec<u8> {
    let message = Message::NeighborSolicit { target: ip(target) };
    nd(src, "ff02::1:ff00:1", message, mac.map(NdOption::SourceLinkLayer))
}

fn solicit(src: &str, target: &str, mac: Option<MacAddr>) -> Vec<u8> {
    to_group(&solicitation(src, target, mac))
}

/// The advertisement that was sent: Ethernet destination, source, destination, message, target's MAC address.
fn advertised(run: &Run, l3: usize) -> (MacAddr, String, String, Message, MacAddr) {
    let frame = run.only();
    assert_eq!(frame.len(), l3 + 40 + 32);
    assert_eq!(frame[6..12], US.0);
    let packet = ipv6::Packet::new_checked(&frame[l3..]).unwrap();
    let (src, dst) = (packet.src(), packet.dst());
    assert_eq!(packet.hop_limit(), 255);
    assert!(icmpv6::Packet::new_checked(packet.payload()).unwrap().checksum_ok(&Pseudo::V6 { src, dst }));
    let view = ndisc::Packet::new_checked(packet.payload()).unwrap();
    let Some(Ok(NdOption::TargetLinkLayer(mac))) = view.options().next() else { panic!("no option") };
    (MacAddr(*frame.first_chunk().unwrap()), src.to_string(), dst.to_string(), view.message(), mac)
}

#[test]
fn solicitations_are_answered_in_place_with_their_tags() {
    let other = MacAddr([2, 0xbb, 0, 0, 0, 1]);
    for (target, src) in [("fd01::1", "fd01::9"), ("fe80::1", "fe80::9")] {
        let message =
            Message::NeighborAdvert { target: ip(target), router: true, solicited: true, replace: true };
        let expected = |mac| (mac, target.to_owned(), src.to_owned(), message, US);
        let run = run_one(solicit(src, target, Some(other)));
        assert_eq!(advertised(&run, 14), expected(other));
        assert_eq!(run.events, [heard(0, src, Some(other), How::Request)]);
        // Without the option the frame says where to.
        let run = run_one(solicit(src, target, None));
        assert_eq!((advertised(&run, 14), run.events), (expected(HOST), vec![]));
        let run = run_one(tagged(US, EtherType::IPV6, &solicitation(src, target, Some(other))));
        assert_eq!(advertised(&run, 18), expected(other));
        assert_eq!(run.only()[12..18], [0x81, 0, 0xa0, 7, 0x86, 0xdd]);
        assert_eq!(run.events, [heard(2, src, Some(other), How::Request)]);
    }
}

#[test]
fn duplicate_address_detection_is_told_to_all_nodes() {
    let run = run_one(solicit("::", "fd01::1", None));
    let message =
        Message::NeighborAdvert { target: ip("fd01::1"), router: true, solicited: false, replace: true };
    let all = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(advertised(&run, 14), (all, "fd01::1".into(), "ff02::1".into(), message, US));
    assert!(run.events.is_empty());
}

#[test]
fn advertisements_and_router_solicitations_are_heard() {
    let advert = |dst: &str, solicited, replace, mac: Option<MacAddr>| {
        let message = Message::NeighborAdvert { target: ip("fd01::9"), router: false, solicited, replace };
        to_group(&nd("fd01::9", dst, message, mac.map(NdOption::TargetLinkLayer)))
    };
    let reply = |solicited, overrides| How::Reply { solicited, overrides };
    let router_solicit =
        nd("fe80::9", "ff02::2", Message::RouterSolicit, Some(NdOption::SourceLinkLayer(HOST)));
    let redirect = Message::Redirect { target: ip("fe80::5"), dst: ip("fd02::1") };
    let advertise =
        Message::RouterAdvert { hop_limit: 64, flags: 0, lifetime_s: 9, reachable_ms: 0, retrans_ms: 0 };
    let mac = Some(HOST);
    let cases = [
        (advert("fd01::1", true, true, mac), Some(heard(0, "fd01::9", mac, reply(true, true)))),
        (advert("fd01::1", true, false, None), Some(heard(0, "fd01::9", None, reply(true, false)))),
        (advert("ff02::1", false, true, mac), Some(heard(0, "fd01::9", mac, reply(false, true)))),
        (to_group(&router_solicit), Some(heard(0, "fe80::9", mac, How::Request))),
        (to_group(&nd("fe80::9", "fe80::1", redirect, None)), None),
        (to_group(&nd("fe80::9", "ff02::1", advertise, None)), None),
        (solicit("fd01::9", "fd01::7", mac), None),
    ];
    for (frame, event) in cases {
        let run = run_one(frame);
        assert_eq!((run.drops(), run.events), (String::new(), event.into_iter().collect()));
        assert!(run.back.is_empty());
    }
}

#[test]
fn neighbor_discovery_against_the_rules_is_invalid() {
    let good = solicitation("fd01::9", "fd01::1", Some(HOST));
    // A field changed, with a right checksum after that.
    let edited = |at: usize, bytes: &[u8]| {
        let mut packet = good.clone();
        packet[at..at + bytes.len()].copy_from_slice(bytes);
        let header = ipv6::Packet::new_checked(&good[..]).unwrap();
        let pseudo = Pseudo::V6 { src: header.src(), dst: header.dst() };
        icmpv6::fill_checksum(&mut packet[40..], &pseudo);
        packet
    };
    let advert = |src: &str, dst: &str, target: &str, solicited| {
        let message = Message::NeighborAdvert { target: ip(target), router: false, solicited, replace: true };
        nd(src, dst, message, Some(NdOption::TargetLinkLayer(HOST)))
    };
    let claim =
        Message::NeighborAdvert { target: ip("fd01::9"), router: false, solicited: true, replace: true };
    let redirect = Message::Redirect { target: ip("fe80::5"), dst: ip("fd02::1") };
    let advertise =
        Message::RouterAdvert { hop_limit: 64, flags: 0, lifetime_s: 9, reachable_ms: 0, retrans_ms: 0 };
    let link_layer = Some(NdOption::SourceLinkLayer(HOST));
    let solicits = Message::NeighborSolicit { target: ip("fd01::1") };
    let mut corrupt = good.clone();
    corrupt[60] ^= 1;
    let mut cut = good[..60].to_vec();
    cut[5] = 20;
    let cases = [
        ("hop limit", edited(7, &[254])),
        ("code", edited(41, &[1])),
        ("option of length 0", edited(65, &[0])),
        ("option beyond the end", edited(65, &[2])),
        ("group as a MAC address", edited(66, &[0x33, 0x33])),
        ("group as a target", edited(48, &[0xff, 2])),
        ("checksum", corrupt),
        ("cut short", cut),
        ("DAD with a link-layer address", nd("::", "ff02::1:ff00:1", solicits, link_layer)),
        ("DAD to one station", nd("::", "fd01::1", solicits, None)),
        ("from a group", nd("ff02::9", "ff02::1:ff00:1", solicits, link_layer)),
        ("from our own MAC address", solicitation("fd01::9", "fd01::1", Some(US))),
        (
            "our own MAC address for another",
            nd("fd01::9", "fd01::1", claim, Some(NdOption::TargetLinkLayer(US))),
        ),
        (
            "RS from our own MAC address",
            nd("fe80::9", "ff02::2", Message::RouterSolicit, Some(NdOption::SourceLinkLayer(US))),
        ),
        ("from our own address", solicitation("fd01::1", "fd01::1", Some(HOST))),
        ("solicited to a group", advert("fd01::9", "ff02::1", "fd01::9", true)),
        ("claims our address", advert("fd01::9", "ff02::1", "fd01::1", false)),
        ("router without a link-local address", nd("fd01::9", "ff02::1", advertise, None)),
        ("redirect from anywhere", nd("fd01::9", "fd01::1", redirect, None)),
        ("RS from nobody with an address", nd("::", "ff02::2", Message::RouterSolicit, link_layer)),
    ];
    for (name, packet) in cases {
        let run = run_one(frame(US, EtherType::IPV6, &packet));
        assert_eq!((run.drops(), run.events.len(), run.back.len()), ("nd-invalid=1".into(), 0, 0), "{name}");
    }
    assert_eq!(run_one(frame(US, EtherType::IPV6, &good)).back.len(), 1);
}

/// Any bytes behind the right EtherTypes: no panic, and the books balance.
#[test]
fn any_bytes_are_survived() {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    let mut rng = StdRng::seed_from_u64(5);
    let seeds = [
        broadcast(&arp(Operation::Request, (HOST, "10.1.0.9"), (NOBODY, "10.1.0.1"))),
        solicit("fd01::9", "fd01::1", Some(HOST)),
        tagged(US, EtherType::IPV6, &solicitation("fe80::9", "fe80::1", Some(HOST))),
    ];
    let frames = (0..3000).map(|n| {
        let mut frame = seeds[n % seeds.len()].clone();
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(18..frame.len());
            frame[at] = rng.random();
        }
        frame.truncate(rng.random_range(30..=frame.len()));
        (n as u64, frame)
    });
    let run = run(settings(), frames.collect());
    assert!(run.back.len() > 100 && run.events.len() > 100, "{} {}", run.back.len(), run.events.len());
}
