//! Encapsulated packets, byte for byte, through the node in a graph; by an independent parser; against the slow code of
//! `tidemill_wire::ipip`; and what becomes of packets that cannot go.

#![allow(clippy::unwrap_used)]

mod tunnel;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use tidemill_burst::{DropReason, Memory, Merged, Packet};
use tidemill_gatekeeper::nodes::encapsulate::Encapsulate;
use tidemill_gatekeeper::tunnel::{Endpoint, Endpoints, Outer, encapsulate};
use tidemill_graph::Node;
use tidemill_ip::NextHops;
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::rib::Change;
use tidemill_lpm::table::{Algorithm, Table};
use tidemill_lpm::{Label, Prefix, Rib};
use tidemill_wire::ipv6_ext::FragmentPacket;
use tidemill_wire::{OptionBytes, Protocol, icmpv4, icmpv6, ipip, ipv4, ipv6, verify_checksums};
use tunnel::frames::{self, GRANTOR4, GRANTOR6, SOURCE4, SOURCE6};
use tunnel::{ENDS, Input, Net, Setup, label, plain_link, tagged_link};

fn v4() -> Setup<u32> {
    Setup::new(SOURCE4, GRANTOR4)
}

fn v6() -> Setup<u128> {
    Setup::new(SOURCE6, GRANTOR6)
}

type Goldens = Vec<(u8, Vec<u8>, Vec<u8>)>;

/// With no VLAN tag, one, two, and so many that headers move down in the frame; by a plain link and by a tagged one.
fn go_out_as_written<A: Net>(setup: Setup<A>, goldens: &Goldens) {
    for (by, link) in [(label::PLAIN, plain_link::<A>()), (label::TAGGED, tagged_link::<A>())] {
        let setup = Setup { routes: vec![(Prefix::new(A::MIN, 0).unwrap(), by)], ..setup_of(&setup) };
        for tags in [0, 1, 2, 5, 6, 10, 11, 40] {
            let input = |(dscp, before, _): &(u8, Vec<u8>, Vec<u8>)| Input::new::<A>(before, tags, 0, *dscp);
            let run = setup.run(goldens.iter().map(input).collect());
            assert_eq!(run.forward.len(), goldens.len(), "{}", run.drops());
            for (n, (sent, (dscp, _, after))) in run.forward.iter().zip(goldens).enumerate() {
                assert_eq!(sent[..link.len()], link);
                assert_eq!(sent[link.len()..], after[..], "golden {n}, dscp {dscp}, {tags} tags");
            }
        }
    }
}

fn setup_of<A: Net>(setup: &Setup<A>) -> Setup<A> {
    Setup { endpoints: setup.endpoints.clone(), routes: setup.routes.clone(), ..*setup }
}

#[test]
fn golden_frames_go_out_as_written() {
    let (goldens4, goldens6) = frames::all();
    assert_eq!((goldens4.len(), goldens6.len()), (25, 23));
    go_out_as_written(v4(), &goldens4);
    go_out_as_written(v6(), &goldens6);
}

/// The wire facts field by field, read by etherparse.
#[test]
fn another_parser_reads_the_facts() {
    let (goldens4, goldens6) = frames::all();
    let input = |(dscp, before, _): &(u8, Vec<u8>, Vec<u8>)| Input::new::<u32>(before, 1, 0, *dscp);
    for (sent, (dscp, before, _)) in
        v4().run(goldens4.iter().map(input).collect()).forward.iter().zip(&goldens4)
    {
        let outer = SlicedPacket::from_ethernet(sent).unwrap();
        let Some(NetSlice::Ipv4(ip)) = &outer.net else { panic!("{outer:?}") };
        let header = ip.header();
        assert_eq!(u8::from(header.dcp()), *dscp);
        assert_eq!(u8::from(header.ecn()), before[1] & 3, "copied, CE too");
        assert_eq!((header.ttl(), header.identification(), header.dont_fragment()), (64, 0, true));
        assert_eq!((header.ihl(), header.more_fragments(), header.fragments_offset().value()), (5, false, 0));
        assert_eq!((header.protocol().0, usize::from(header.total_len())), (4, sent.len() - 14));
        assert_eq!(header.source_addr().to_string(), SOURCE4);
        assert_eq!(header.destination_addr().to_string(), GRANTOR4);
        assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
        let inner = SlicedPacket::from_ip(ip.payload().payload).unwrap();
        let Some(NetSlice::Ipv4(ip)) = &inner.net else { panic!("{inner:?}") };
        let header = ip.header();
        assert_eq!(header.ttl(), before[8] - 1);
        assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
        if !header.is_fragmenting_payload() {
            let Some(TransportSlice::Udp(udp)) = &inner.transport else { panic!("{inner:?}") };
            assert_eq!((udp.destination_port(), udp.payload()), (80, &b"GET!"[..]));
        }
    }
    let input = |(dscp, before, _): &(u8, Vec<u8>, Vec<u8>)| Input::new::<u128>(before, 1, 0, *dscp);
    for (sent, (dscp, before, _)) in
        v6().run(goldens6.iter().map(input).collect()).forward.iter().zip(&goldens6)
    {
        let outer = SlicedPacket::from_ethernet(sent).unwrap();
        let Some(NetSlice::Ipv6(ip)) = &outer.net else { panic!("{outer:?}") };
        let header = ip.header();
        assert_eq!(header.traffic_class() >> 2, *dscp);
        assert_eq!(header.traffic_class() & 3, before[1] >> 4 & 3, "copied, CE too");
        assert_eq!((header.hop_limit(), header.next_header().0), (255, 41));
        assert_eq!(usize::from(header.payload_length()), sent.len() - 14 - 40);
        assert_eq!(header.flow_label().value(), 0x967f8, "the flow's");
        assert_eq!(header.source_addr().to_string(), SOURCE6);
        assert_eq!(header.destination_addr().to_string(), GRANTOR6);
        let inner = SlicedPacket::from_ip(ip.payload().payload).unwrap();
        let Some(NetSlice::Ipv6(ip)) = &inner.net else { panic!("{inner:?}") };
        assert_eq!(ip.header().hop_limit(), before[7] - 1);
    }
}

/// An inner IPv4 packet of these properties.
fn inner4(flags: (bool, bool, u16), ttl: u8, len: usize) -> Vec<u8> {
    let (src, dst) = ("198.51.100.7".parse().unwrap(), "203.0.113.80".parse().unwrap());
    let (dont_fragment, more_fragments, fragment_offset) = flags;
    let repr = ipv4::Repr {
        ttl,
        ident: 0x4711,
        ecn: 2,
        dont_fragment,
        more_fragments,
        fragment_offset,
        ..ipv4::Repr::new(src, dst, Protocol::UDP, len)
    };
    let mut bytes = vec![0; 20];
    repr.emit(&mut bytes).unwrap();
    bytes.extend((0..len).map(|n| (n % 251) as u8));
    bytes
}

/// An inner IPv6 packet.
fn inner6(hop_limit: u8, len: usize) -> Vec<u8> {
    let (src, dst) = ("2001:db8:a::7".parse().unwrap(), "2001:db8:b::80".parse().unwrap());
    let repr = ipv6::Repr { hop_limit, ecn: 2, ..ipv6::Repr::new(src, dst, Protocol::UDP, len) };
    let mut bytes = vec![0; 40];
    repr.emit(&mut bytes).unwrap();
    bytes.extend((0..len).map(|n| (n % 251) as u8));
    bytes
}

/// What an ICMP error in this frame says, and what it quotes.
fn error4(frame: &[u8]) -> (icmpv4::Repr, Vec<u8>) {
    verify_checksums(frame).unwrap();
    let ip = ipv4::Packet::new_checked(&frame[14..]).unwrap();
    assert_eq!(ip.dst().to_string(), "198.51.100.7");
    let message = icmpv4::Packet::new_checked(ip.payload()).unwrap();
    (icmpv4::Repr::parse(&message).unwrap(), message.payload().to_vec())
}

fn error6(frame: &[u8]) -> (icmpv6::Repr, Vec<u8>) {
    verify_checksums(frame).unwrap();
    let ip = ipv6::Packet::new_checked(&frame[14..]).unwrap();
    assert_eq!(ip.dst().to_string(), "2001:db8:a::7");
    let message = icmpv6::Packet::new_checked(ip.payload()).unwrap();
    (icmpv6::Repr::parse(&message).unwrap(), message.payload().to_vec())
}

#[test]
fn who_has_no_hop_left_is_told_so() {
    for (ttl, len) in [(0, 30), (1, 30), (1, 1480)] {
        let ip = inner4((true, false, 0), ttl, len);
        let run = v4().run(vec![Input::new::<u32>(&ip, 1, 0, 41)]);
        assert_eq!((run.drops().as_str(), run.forward.len()), ("ttl-expired=1", 0));
        let (said, quoted) = error4(&run.error[0]);
        assert!(matches!(said, icmpv4::Repr::TimeExceeded { .. }), "{said:?}, also of one that is too long");
        assert_eq!(quoted, ip[..ip.len().min(548)], "as it came");
        let ip = inner6(ttl, len);
        let run = v6().run(vec![Input::new::<u128>(&ip, 1, 0, 41)]);
        assert_eq!((run.drops().as_str(), run.forward.len()), ("ttl-expired=1", 0));
        let (said, quoted) = error6(&run.error[0]);
        assert!(matches!(said, icmpv6::Repr::TimeExceeded { .. }), "{said:?}");
        assert_eq!(quoted, ip[..ip.len().min(1232)]);
    }
}

#[test]
fn the_mtu_counts_the_outer_header() {
    for (len, passes) in [(1460, true), (1461, false)] {
        let ip = inner4((true, false, 0), 64, len);
        let run = v4().run(vec![Input::new::<u32>(&ip, 2, 0, 1)]);
        assert_eq!(run.forward.len(), usize::from(passes));
        if !passes {
            assert_eq!(run.drops(), "too-big=1");
            let (said, quoted) = error4(&run.error[0]);
            assert_eq!(said, icmpv4::Repr::FragmentationNeeded { next_hop_mtu: 1480 });
            assert_eq!(quoted, ip[..548], "as it came");
        }
    }
    // No source is told to go below 1280.
    for (mtu, len, told) in
        [(1500, 1420, None), (1500, 1421, Some(1460)), (1300, 1241, Some(1280)), (1280, 1400, Some(1280))]
    {
        let ip = inner6(64, len);
        let run = Setup { mtu, ..v6() }.run(vec![Input::new::<u128>(&ip, 2, 0, 1)]);
        assert_eq!(run.forward.len(), usize::from(told.is_none()));
        if let Some(mtu) = told {
            assert_eq!(run.drops(), "too-big=1");
            let (said, quoted) = error6(&run.error[0]);
            assert_eq!(said, icmpv6::Repr::PacketTooBig { mtu });
            assert_eq!(quoted, ip[..1232]);
        }
    }
}

/// Each part in an outer packet of its own; the parts add up to the inner packet.
#[test]
fn ipv4_that_may_be_cut_is_cut_inside() {
    let cases = [
        (1500, 1461, (false, 0), 2),
        (1500, 8000, (false, 0), 6),
        (576, 1000, (false, 4000), 2),
        (576, 1000, (true, 4000), 2),
        (100, 200, (false, 0), 4),
    ];
    for (mtu, len, (more, offset), parts) in cases {
        let ip = inner4((false, more, offset), 64, len);
        let run = Setup { mtu, ..v4() }.run(vec![Input::new::<u32>(&ip, 1, 0, 41)]);
        let ledger = run.snapshot.ledger();
        assert_eq!((ledger.consumed, ledger.made as usize, run.drops().as_str()), (1, parts, ""));
        let mut payload = Vec::new();
        for (n, sent) in run.forward.iter().enumerate() {
            assert!(sent.len() <= 14 + usize::from(mtu));
            let outer = ipv4::Packet::new_checked(&sent[14..]).unwrap();
            assert!(outer.checksum_ok() && outer.dont_fragment() && !outer.is_fragment());
            assert_eq!((outer.dscp(), outer.ecn(), outer.ttl(), outer.ident()), (41, 2, 64, 0));
            let inner = ipip::decapsulate(&sent[14..]).unwrap().unwrap();
            assert_eq!(
                (inner.inner, inner.offset, inner.packet.len()),
                (ipip::Inner::V4, 20, sent.len() - 34)
            );
            let inner = ipv4::Packet::new_checked(inner.packet).unwrap();
            assert!(inner.checksum_ok());
            assert_eq!(
                (inner.ttl(), inner.ident(), inner.src().to_string().as_str()),
                (63, 0x4711, "198.51.100.7")
            );
            assert_eq!(usize::from(inner.fragment_offset()), usize::from(offset) + payload.len());
            assert_eq!(inner.more_fragments(), more || n + 1 < parts);
            payload.extend_from_slice(inner.payload());
        }
        assert_eq!(payload, ip[20..]);
    }
}

/// RFC 2473 7.1 b: the outer packet is cut; the parts add up to it.
#[test]
fn ipv6_of_the_least_mtu_is_cut_outside() {
    for (mtu, len, parts) in
        [(1319, 1280, 2), (1280, 1280, 2), (1280, 1241, 2), (1280, 1240, 1), (700, 1280, 2)]
    {
        let ip = inner6(64, len - 40);
        let input = Input::new::<u128>(&ip, 1, 0, 3);
        let setup = Setup { mtu, worker: 3, ..v6() };
        let run = setup.run(vec![input.clone(), input]);
        let ledger = run.snapshot.ledger();
        assert_eq!((run.forward.len(), run.drops().as_str()), (2 * parts, ""), "mtu {mtu}, {len} bytes");
        if parts == 1 {
            continue;
        }
        assert_eq!((ledger.consumed, ledger.made as usize), (2, 2 * parts));
        let mut idents = HashSet::new();
        for sent in run.forward.chunks(parts) {
            let mut whole = Vec::new();
            for (n, frame) in sent.iter().enumerate() {
                assert!(frame.len() <= 14 + usize::from(mtu));
                let outer = ipv6::Packet::new_checked(&frame[14..]).unwrap();
                assert_eq!((outer.dscp(), outer.ecn(), outer.flow_label()), (3, 2, 0x967f8));
                assert_eq!((outer.next_header(), outer.hop_limit()), (Protocol::FRAGMENT, 255));
                assert_eq!(
                    (outer.src().to_string(), outer.dst().to_string()),
                    (SOURCE6.into(), GRANTOR6.into())
                );
                assert_eq!(outer.payload().len(), frame.len() - 54, "the payload's length");
                let fragment = FragmentPacket::new_checked(outer.payload()).unwrap();
                assert_eq!((fragment.next_header(), fragment.more()), (Protocol::IPV6, n + 1 < parts));
                assert_eq!(usize::from(fragment.offset()), whole.len());
                idents.insert(fragment.ident());
                whole.extend_from_slice(&outer.payload()[8..]);
            }
            let mut expected = ip.clone();
            expected[7] -= 1;
            assert_eq!(whole, expected);
        }
        assert_eq!(idents.len(), 2, "one for each packet");
        assert!(!idents.contains(&0), "another worker's");
    }
}

#[test]
fn without_frames_for_all_parts_none_is_sent() {
    let input = Input::new::<u32>(&inner4((false, false, 0), 64, 8000), 0, 0, 41);
    let run = Setup { mtu: 500, frames: 12, ..v4() }.run(vec![input.clone()]);
    assert_eq!((run.drops().as_str(), run.forward.len(), run.error.len()), ("fragment-failed=1", 0, 0));
    let run = Setup { mtu: 40, ..v4() }.run(vec![input]);
    assert_eq!((run.drops().as_str(), run.error.len()), ("fragment-failed=1", 0), "no eight bytes fit");
    let input = Input::new::<u128>(&inner6(64, 1200), 0, 0, 41);
    let run = Setup { mtu: 1270, frames: 2, ..v6() }.run(vec![input.clone()]);
    assert_eq!((run.drops().as_str(), run.forward.len(), run.error.len()), ("fragment-failed=1", 0, 0));
    for mtu in [0, 47, 55] {
        let run = Setup { mtu, ..v6() }.run(vec![input.clone()]);
        assert_eq!((run.drops().as_str(), run.error.len()), ("fragment-failed=1", 0));
    }
}

/// Under the router's names, and nobody is told.
#[test]
fn without_a_way_to_the_grantor_packets_are_dropped() {
    let (ip, ip6) = (inner4((true, false, 0), 64, 30), inner6(64, 30));
    for (n, (kind, name)) in ENDS.into_iter().enumerate() {
        let label = label::ENDS + n as u32;
        let run = v4().by(label).run(vec![Input::new::<u32>(&ip, 0, 0, 41)]);
        assert_eq!(run.drops(), format!("{name}=1"), "{kind:?}");
        assert_eq!((run.forward.len(), run.error.len(), run.neighbor.len()), (0, 0, 0));
        let run = v6().by(label).run(vec![Input::new::<u128>(&ip6, 0, 0, 41)]);
        assert_eq!((run.drops(), run.error.len()), (format!("{name}=1"), 0), "{kind:?}");
    }
    let none = Setup { routes: Vec::new(), ..v4() }.run(vec![Input::new::<u32>(&ip, 0, 0, 41)]);
    assert_eq!((none.drops().as_str(), none.error.len()), ("no-route=1", 0));
    let other = v4().run(vec![Input::new::<u32>(&ip, 0, 1, 41), Input::new::<u32>(&ip, 0, u16::MAX, 41)]);
    assert_eq!((other.drops().as_str(), other.error.len()), ("next-hop-unknown=2", 0), "no such Grantor");
}

#[test]
fn who_has_no_mac_address_is_asked_for() {
    let (dscp, before, after) = &frames::all().0[0];
    for label in [label::GLEAN, label::UNRESOLVED] {
        let run = v4().by(label).run(vec![Input::new::<u32>(before, 1, 0, *dscp)]);
        assert_eq!((run.neighbor.len(), run.forward.len(), run.error.len()), (1, 0, 0));
        assert_eq!(
            run.neighbor[0][14..],
            after[..],
            "the outer packet waits: its destination is the one to ask for"
        );
        let long = inner4((true, false, 0), 64, 1480);
        let run = v4().by(label).run(vec![Input::new::<u32>(&long, 0, 0, 1)]);
        assert_eq!((run.drops().as_str(), run.error.len(), run.neighbor.len()), ("too-big=1", 1, 0));
    }
}

#[test]
fn no_room_and_no_packet_are_errors() {
    let ip = inner4((true, false, 0), 64, 30);
    let at_the_front = |packet: &mut Packet| {
        let bytes = packet.data().to_vec();
        assert!(packet.grow_front(packet.headroom()));
        packet.set_len(bytes.len());
        packet.data_mut().copy_from_slice(&bytes);
    };
    let input = Input { edit: at_the_front, ..Input::new::<u32>(&ip, 0, 0, 1) };
    let run = v4().run(vec![input]);
    assert_eq!((run.drops().as_str(), run.error.len()), ("frame-too-small=1", 0));
    let input = Input { edit: at_the_front, ..Input::new::<u32>(&ip, 5, 0, 1) };
    assert_eq!(v4().run(vec![input]).forward.len(), 1, "the tags' room is enough");
    let input = Input { edit: at_the_front, ..Input::new::<u128>(&inner6(64, 30), 2, 0, 1) };
    assert_eq!(v6().run(vec![input]).drops(), "frame-too-small=1");
    let cut = Input::new::<u32>(&ip[..19], 0, 0, 1);
    let beyond = Input { l3: 200, ..Input::new::<u32>(&ip, 0, 0, 1) };
    assert_eq!(v4().run(vec![cut, beyond]).drops(), "ipv4-too-short=2");
    let cut = Input::new::<u128>(&inner6(64, 0)[..39], 0, 0, 1);
    let beyond = Input { l3: 200, ..Input::new::<u128>(&inner6(64, 30), 0, 0, 1) };
    assert_eq!(v6().run(vec![cut, beyond]).drops(), "ipv6-too-short=2");
    let merged = |packet: &mut Packet| packet.set_merged(Merged { size: 10, fixed_ident: false });
    let input = Input { edit: merged, ..Input::new::<u32>(&ip, 0, 0, 1) };
    let run = v4().run(vec![input]);
    assert_eq!((run.drops().as_str(), run.error.len()), ("offload-invalid=1", 0));
}

/// A flow keeps its way, flows use all ways, and a way that has no MAC address yet is asked for.
#[test]
fn flows_are_spread_over_equal_ways() {
    let packet = |n: u8, ident: u8| {
        let mut ip = inner4((true, false, 0), 64, 30);
        (ip[5], ip[14], ip[15]) = (ident, n, n.wrapping_mul(7));
        ipv4::fill_checksum(&mut ip);
        Input::new::<u32>(&ip, 0, 0, 41)
    };
    let run = v4().by(label::GROUP).run((0..250).map(|n| packet(n / 2, n % 2)).collect());
    assert_eq!(run.drops(), "");
    let mut ways: HashMap<&[u8], HashSet<&[u8]>> = HashMap::new();
    let mut counts: HashMap<&[u8], usize> = HashMap::new();
    for sent in run.forward.iter().chain(&run.neighbor) {
        let at = sent.len() - 70;
        ways.entry(&sent[at + 32..at + 40]).or_default().insert(&sent[..at]);
        *counts.entry(&sent[..at]).or_default() += 1;
    }
    assert!(ways.len() == 125 && ways.values().all(|ways| ways.len() == 1));
    // Two of four buckets, one, one.
    let (plain, tagged) = (counts[&plain_link::<u32>()[..]], counts[&tagged_link::<u32>()[..]]);
    assert!((90..160).contains(&plain) && (30..95).contains(&tagged), "{plain}, {tagged}");
    assert_eq!(plain + tagged + run.neighbor.len(), 250);

    let packet = |n: u8| {
        let mut ip = inner6(64, 30);
        ip[23] = n;
        Input::new::<u128>(&ip, 0, 0, 41)
    };
    let run = v6().by(label::GROUP).run((0..200).map(packet).collect());
    assert!(run.forward.len() > 120 && run.neighbor.len() > 20, "{}", run.drops());
    let label = |sent: &Vec<u8>| ipv6::Packet::new_checked(&sent[sent.len() - 110..]).unwrap().flow_label();
    let labels: HashSet<u32> = run.forward.iter().chain(&run.neighbor).map(label).collect();
    assert_eq!(labels.len(), 200, "a label for every flow");
}

/// Grantors that share a place in the node's memory are told apart, and a way that changes is found with the next burst.
#[test]
fn ways_are_those_of_the_burst() {
    let (plain, tagged) = (plain_link::<u32>(), tagged_link::<u32>());
    let endpoints: Endpoints<u32> = (0..200).map(|n| Endpoint::new(0xc000_0201, 0x0a00_0000 + n)).collect();
    // Every third Grantor by the tagged link: neighbors in a place by different ones.
    let way = |n: u32| {
        (Prefix::new(0x0a00_0000 + n, 32).unwrap(), if n % 3 == 1 { label::TAGGED } else { label::PLAIN })
    };
    let setup = Setup { endpoints, routes: (0..200).map(way).collect(), ..v4() };
    let ip = inner4((true, false, 0), 64, 30);
    let numbers = [3, 66, 67, 3, 130, 131, 67, 66, 199, 2];
    let burst: Vec<Input> = numbers.iter().map(|n| Input::new::<u32>(&ip, 0, *n, 41)).collect();
    let run = setup.run_bursts(vec![burst.clone(), burst], |given, table| {
        if given == 1 {
            let change =
                |n: u32| Change::Announce(Prefix::new(0x0a00_0000 + n, 32).unwrap(), Label(label::PLAIN));
            table.apply(&(0..200).map(change).collect::<Vec<_>>()).unwrap();
        }
    });
    assert_eq!(run.forward.len(), 20);
    for (sent, n) in run.forward.iter().zip(numbers.iter().chain(&numbers)) {
        assert_eq!(sent[sent.len() - 70..][16..20], (0x0a00_0000 + u32::from(*n)).to_be_bytes());
    }
    for (sent, n) in run.forward.iter().zip(numbers) {
        let link = if n % 3 == 1 { &tagged } else { &plain };
        assert_eq!(sent[..link.len()], link[..], "Grantor {n}");
    }
    assert!(run.forward[10..].iter().all(|sent| sent[..14] == plain[..]));
}

/// A packet in an outer one, and what the node says about it in a trace.
#[test]
fn a_trace_says_where_a_packet_goes() {
    let domain = Domain::new();
    let table = Table::new(&domain, Rib::<u32>::new(), &Algorithm::Auto).unwrap();
    let endpoint = Endpoint::new(1_u32, 0x0a14_1e28);
    let endpoints = Publisher::new(&domain, vec![endpoint.clone()]);
    let hops = Publisher::new(&domain, NextHops::new(Vec::new()));
    let node = Encapsulate::<u32>::new(0, endpoints.view(), table.view(), hops.view());
    let mut pool = Memory::new(1, 2048).unwrap().pool(1).unwrap();
    let mut packet =
        pool.packet(&Input::new::<u32>(&inner4((true, false, 0), 64, 30), 0, 0, 41).bytes).unwrap();
    (packet.l3, packet.label) = (14, 7);
    assert_eq!(node.explain(&packet), None, "as it came");
    encapsulate(&mut packet, &endpoint, 41).unwrap();
    assert_eq!(
        node.explain(&packet).as_deref(),
        Some("in an outer packet to 10.20.30.40, dscp 41, fib label 7")
    );
    pool.free(packet);
}

/// A flow whose hash has no bit set where the label is taken from has one all the same (RFC 6437: 0 is none).
#[test]
fn no_flow_is_without_a_label() {
    let mut ip = inner6(64, 30);
    let zero = (0..u32::MAX).find(|n| {
        ip[20..24].copy_from_slice(&n.to_be_bytes());
        u128::flow_hash(&ip) & 0xf_ffff == 0
    });
    assert!(zero.is_some());
    let sent = encapsulated(14, &ip, &Endpoint::new(1_u128, 2), 41);
    assert_eq!(ipv6::Packet::new_checked(&sent[..]).unwrap().flow_label(), 1);
}

/// The bytes of `inner` behind `l3` bytes, put into an outer packet by the code under test.
fn encapsulated<A: Outer>(l3: usize, inner: &[u8], endpoint: &Endpoint<A>, dscp: u8) -> Vec<u8> {
    let mut pool = Memory::new(1, 2048).unwrap().pool(1).unwrap();
    let mut packet = pool.packet(&[&vec![0xee; l3][..], inner].concat()).unwrap();
    packet.l3 = l3 as u8;
    encapsulate(&mut packet, endpoint, dscp).unwrap();
    assert!(packet.is_own() && packet.l3 == 14);
    let bytes = packet.data()[14..].to_vec();
    pool.free(packet);
    bytes
}

proptest! {
    /// Random inner packets, against the slow code. That sets "don't fragment" and the code point as in the inner packet, the
    /// wire facts as they say: here is where the two differ.
    #[test]
    fn as_the_slow_code_has_it_v4(
        (src, dst, source, grantor) in any::<(u32, u32, u32, u32)>(),
        (tos, ident, flags, protocol) in (any::<u8>(), any::<u16>(), 0u16..8, any::<u8>()),
        (ttl, dscp, offset) in (2u8..=255, 0u8..64, 0u16..8000),
        options in proptest::collection::vec(Just(1u8), 0..=10),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        l3 in 0usize..80,
    ) {
        let options = OptionBytes::new(&options.repeat(4)).unwrap();
        let repr = ipv4::Repr {
            dscp: tos >> 2, ecn: tos & 3, ident, ttl, options,
            dont_fragment: flags & 1 != 0, more_fragments: flags & 2 != 0, fragment_offset: offset & !7,
            ..ipv4::Repr::new(src.into(), dst.into(), Protocol(protocol), payload.len())
        };
        let mut inner = vec![0; repr.buffer_len()];
        repr.emit(&mut inner).unwrap();
        inner.extend(&payload);
        let sent = encapsulated(l3, &inner, &Endpoint::new(source, grantor), dscp);

        inner[8] -= 1;
        ipv4::fill_checksum(&mut inner);
        let ipip::Repr::V4(outer) = ipip::Repr::v4(source.into(), grantor.into(), 64, &inner).unwrap() else {
            panic!("made for IPv4")
        };
        let outer = ipip::Repr::V4(ipv4::Repr { dscp, dont_fragment: true, ..outer });
        let mut expected = vec![0; 20];
        outer.emit(&mut expected).unwrap();
        expected.extend(&inner);
        prop_assert_eq!(&sent, &expected);
        prop_assert!(ipv4::checksum_ok(&sent));
        let found = ipip::decapsulate(&sent).unwrap().unwrap();
        prop_assert_eq!((found.inner, found.offset, found.packet), (ipip::Inner::V4, 20, &inner[..]));
        prop_assert_eq!(ipip::decapsulated_ecn(inner[1] & 3, sent[1] & 3), Some(inner[1] & 3));
    }

    #[test]
    fn as_the_slow_code_has_it_v6(
        (src, dst, source, grantor) in any::<(u128, u128, u128, u128)>(),
        (class, flow_label, next) in (any::<u8>(), 0u32..1 << 20, any::<u8>()),
        (hop_limit, dscp) in (2u8..=255, 0u8..64),
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        l3 in 0usize..120,
    ) {
        let repr = ipv6::Repr {
            dscp: class >> 2, ecn: class & 3, flow_label, hop_limit,
            ..ipv6::Repr::new(src.into(), dst.into(), Protocol(next), payload.len())
        };
        let mut inner = vec![0; 40];
        repr.emit(&mut inner).unwrap();
        inner.extend(&payload);
        let sent = encapsulated(l3, &inner, &Endpoint::new(source, grantor), dscp);

        inner[7] -= 1;
        let ipip::Repr::V6(outer) = ipip::Repr::v6(source.into(), grantor.into(), 255, &inner).unwrap() else {
            panic!("made for IPv6")
        };
        let flow_label = (u128::flow_hash(&inner) & 0xf_ffff).max(1);
        let outer = ipip::Repr::V6(ipv6::Repr { dscp, flow_label, ..outer });
        let mut expected = vec![0; 40];
        outer.emit(&mut expected).unwrap();
        expected.extend(&inner);
        prop_assert_eq!(&sent, &expected);
        let found = ipip::decapsulate(&sent).unwrap().unwrap();
        prop_assert_eq!((found.inner, found.offset, found.packet), (ipip::Inner::V6, 40, &inner[..]));
        let ecn = inner[1] >> 4 & 3;
        prop_assert_eq!(ipip::decapsulated_ecn(ecn, sent[1] >> 4 & 3), Some(ecn));
    }
}

/// Whatever the encapsulation drops for, a test here provokes it and names it.
#[test]
fn no_reason_is_without_a_test() {
    let sources = [
        include_str!("../src/nodes/encapsulate.rs"),
        include_str!("../src/tunnel/mod.rs"),
        include_str!("../src/tunnel/long.rs"),
    ];
    let is_named =
        |reason: &DropReason| sources.iter().any(|text| text.contains(&format!("DropReason::{reason:?}")));
    let tests = include_str!("golden.rs");
    let reasons: Vec<&DropReason> = DropReason::ALL.iter().filter(|reason| is_named(reason)).collect();
    assert!(reasons.len() > 12, "{reasons:?}");
    for reason in reasons {
        let name = reason.name();
        let here = tests.contains(&format!("\"{name}=")) || ENDS.iter().any(|(_, end)| *end == name);
        assert!(here, "{name}");
    }
}
