//! One frame in, one outcome: the rules of RFC 1812, RFC 8200 and the ICMP RFCs, one line each.

use crate::common::*;
use tidemill_burst::DropReason;
use tidemill_graph::Fate;
use tidemill_port::memory::Frame;
use tidemill_wire::{EtherType, MacAddr, Protocol, icmpv4, icmpv6, ipv4, ipv6, verify_checksums};

/// Ports and next hops: label 7 to wan, 8 to wan by a MAC of its own, 9 unreachable, 10 blackhole, 11 prohibited, 12
/// local, 13 to lan; the rest unknown.
const CONFIG: &str = "
[[interface]]
port = 'lan'
addresses = ['10.0.0.1/24', '2001:470::1/64']
[[interface]]
port = 'wan'
addresses = ['10.0.1.1/24']
mtu = 1280
[[next_hop]]
label = 7
port = 'wan'
[[next_hop]]
label = 8
port = 'wan'
mac = '02:bb:00:00:00:08'
[[next_hop]]
label = 9
kind = 'unreachable'
[[next_hop]]
label = 10
kind = 'blackhole'
[[next_hop]]
label = 11
kind = 'prohibited'
[[next_hop]]
label = 12
kind = 'local'
[[next_hop]]
label = 13
port = 'lan'
";

fn router() -> Router {
    let v4 = [
        ("20.0.0.0/8", 7),
        ("20.8.0.0/16", 8),
        ("20.9.0.0/16", 9),
        ("20.10.0.0/16", 10),
        ("20.11.0.0/16", 11),
        ("20.12.0.0/16", 12),
        ("20.99.0.0/16", 99),
        ("30.0.0.0/8", 13),
    ];
    let v6 = [
        ("2001:20::/32", 7),
        ("2001:20:9::/48", 9),
        ("2001:20:a::/48", 10),
        ("2001:20:b::/48", 11),
        ("2001:20:63::/48", 99),
        ("2001:30::/32", 13),
    ];
    Router::new(CONFIG, routes(&v4), routes(&v6))
}

const A: &str = "30.0.0.5";
const B: &str = "20.1.2.3";
const A6: &str = "2001:30::5";
const B6: &str = "2001:20::9";

/// What became of one frame: `drop REASON`, or the port that it left by.
fn outcome(frame: Vec<u8>) -> String {
    describe(&router().run(vec![input(frame)]))
}

fn describe(run: &Run) -> String {
    let (graph, ports) = (tidemill_router::graph(&run.control).build().unwrap(), ["lan", "wan"]);
    let texts = run.fates.iter().map(|fate| match *fate {
        Fate::Sent { port } => format!("sent {}", ports[port]),
        Fate::Dropped { node, reason } => format!("{}: {}", graph.node_names[node], reason.name()),
        Fate::Consumed { node } => format!("{}: consumed", graph.node_names[node]),
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn cut(mut frame: Vec<u8>, len: usize) -> Vec<u8> {
    frame.truncate(len);
    frame
}

#[test]
fn the_link_layer_is_checked() {
    let good = || udp4(A, B, b"x", |_| {});
    let with = |f: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good();
        f(&mut frame);
        frame
    };
    let tagged = |tci: [u8; 2]| with(&|f| drop(f.splice(12..12, [0x81, 0x00, tci[0], tci[1]])));
    for (what, frame, expected) in [
        ("a good frame", good(), "sent wan"),
        ("13 bytes", cut(good(), 13), "ethernet-input: ethernet-too-short"),
        ("nothing", Vec::new(), "ethernet-input: ethernet-too-short"),
        ("from a group", with(&|f| f[6] |= 1), "ethernet-input: ethernet-bad-source"),
        (
            "a tagged one from a group",
            {
                let mut frame = tagged([0, 0]);
                frame[6..12].fill(0xff);
                frame
            },
            "ethernet-input: ethernet-bad-source",
        ),
        ("another station's", with(&|f| f[5] ^= 1), "ethernet-input: not-for-us"),
        ("ARP", frame(MacAddr::BROADCAST, EtherType::ARP, &[0; 28]), "ethernet-input: arp-ignored"),
        ("LLDP", frame(LAN, EtherType(0x88cc), &[0; 28]), "ethernet-input: ethertype-unknown"),
        ("IEEE 802.3 length", frame(LAN, EtherType(46), &[0; 46]), "ethernet-input: ethertype-unknown"),
        ("VLAN 5", tagged([0, 5]), "ethernet-input: vlan-unknown"),
        ("a priority tag", tagged([0xe0, 0]), "sent wan"),
        ("a cut tag", cut(tagged([0, 5]), 16), "ethernet-input: ethernet-too-short"),
        ("a broadcast frame", with(&|f| f[..6].fill(0xff)), "ip4-input: broadcast"),
        ("a multicast frame", with(&|f| f[0] |= 1), "ip4-input: multicast"),
    ] {
        assert_eq!(outcome(frame), expected, "{what}");
    }
}

#[test]
fn a_promiscuous_interface_takes_every_frame() {
    let config = format!("{}{}", CONFIG.replacen("port = 'lan'", "port = 'lan'\npromiscuous = true", 1), "");
    let mut frame = udp4(A, B, b"x", |_| {});
    frame[5] ^= 1;
    let run = Router::new(&config, routes(&[("20.0.0.0/8", 7)]), routes(&[])).run(vec![input(frame)]);
    assert_eq!(run.sent[1].len(), 1);
}

#[test]
fn ipv4_headers_are_validated() {
    let frame = |edit: &dyn Fn(&mut [u8])| {
        let mut frame = udp4(A, B, &[7; 40], |_| {});
        edit(&mut frame[14..]);
        frame
    };
    // As above, with the checksum put right again.
    let fixed = |edit: &dyn Fn(&mut [u8])| {
        frame(&|ip| {
            edit(ip);
            ipv4::fill_checksum(ip);
        })
    };
    for (what, frame, expected) in [
        ("19 bytes", cut(frame(&|_| {}), 33), "ip4-input: ipv4-too-short"),
        ("version 5", fixed(&|ip| ip[0] = 0x55), "ip4-input: ipv4-bad-version"),
        ("IHL 4", fixed(&|ip| ip[0] = 0x44), "ip4-input: ipv4-bad-header-length"),
        ("IHL beyond the data", cut(fixed(&|ip| ip[0] = 0x4f), 50), "ip4-input: ipv4-bad-header-length"),
        ("total length 19", fixed(&|ip| ip[2..4].copy_from_slice(&[0, 19])), "ip4-input: ipv4-bad-length"),
        (
            "total length below the header",
            fixed(&|ip| (ip[0], ip[3]) = (0x46, 23)),
            "ip4-input: ipv4-bad-length",
        ),
        ("total length beyond the data", fixed(&|ip| ip[3] += 1), "ip4-input: ipv4-bad-length"),
        ("checksum", frame(&|ip| ip[10] ^= 1), "ip4-input: ipv4-bad-checksum"),
        ("checksum with options", frame(&|ip| ip[0] = 0x46), "ip4-input: ipv4-bad-checksum"),
    ] {
        assert_eq!(outcome(frame), expected, "{what}");
    }
}

#[test]
fn ipv4_options_are_checked() {
    for (what, options, expected) in [
        ("no-ops", [1, 1, 1, 0], "sent wan"),
        ("router alert", [148, 4, 0, 0], "sent wan"),
        ("a length of 0", [148, 0, 0, 0], "ip4-input: ipv4-bad-option"),
        ("over the end", [148, 8, 0, 0], "ip4-input: ipv4-bad-option"),
        ("loose source route", [131, 3, 4, 0], "ip4-input: ipv4-source-route"),
        ("strict source route", [137, 3, 4, 0], "ip4-input: ipv4-source-route"),
    ] {
        let mut ip = ip4(A, B, Protocol::UDP, &[0; 20], |_| {});
        ip.splice(20..20, options);
        ip[0] = 0x46;
        ip[3] += 4;
        ipv4::fill_checksum(&mut ip);
        assert_eq!(outcome(frame(LAN, EtherType::IPV4, &ip)), expected, "{what}");
    }
}

#[test]
fn captures_that_were_cut_short_are_told_from_wrong_lengths() {
    for (len, expected) in [
        (10, "ethernet-input: capture-truncated"),
        (20, "ip4-input: capture-truncated"),
        (60, "ip4-input: capture-truncated"),
        (114, "sent wan"),
    ] {
        let whole = udp4(A, B, &[7; 72], |_| {});
        assert_eq!(whole.len(), 114);
        let frame = Frame { bytes: cut(whole, len), wire_len: 118, time_ns: 0 };
        assert_eq!(describe(&router().run(vec![frame])), expected, "{len} bytes");
        let frame = Frame { bytes: cut(udp6(A6, B6, &[7; 52], |_| {}), len), wire_len: 118, time_ns: 0 };
        assert_eq!(describe(&router().run(vec![frame])), expected.replace("ip4", "ip6"), "{len} bytes");
    }
}

#[test]
fn impossible_addresses_are_dropped() {
    for (src, dst, expected) in [
        ("127.0.0.1", B, "ip4-input: martian-source"),
        (A, "127.0.0.1", "ip4-input: martian-destination"),
        (A, "169.254.0.1", "ip4-input: link-local"),
        (A, "255.255.255.255", "ip4-input: broadcast"),
        (A, "224.0.0.5", "ip4-input: multicast"),
        (A, "10.0.1.255", "ip4-lookup: broadcast"),
    ] {
        assert_eq!(outcome(udp4(src, dst, b"", |_| {})), expected, "{src} -> {dst}");
    }
    for (src, dst, expected) in [
        ("::", B6, "ip6-input: martian-source"),
        ("ff02::1", B6, "ip6-input: martian-source"),
        (A6, "::1", "ip6-input: martian-destination"),
        (A6, "::ffff:10.0.0.1", "ip6-input: martian-destination"),
        (A6, "fe80::1", "ip6-input: link-local"),
        (A6, "ff02::1", "ip6-input: multicast"),
    ] {
        assert_eq!(outcome(udp6(src, dst, b"", |_| {})), expected, "{src} -> {dst}");
    }
}

#[test]
fn ipv6_headers_are_validated() {
    let frame = |edit: &dyn Fn(&mut [u8])| {
        let mut frame = udp6(A6, B6, &[7; 40], |_| {});
        edit(&mut frame[14..]);
        frame
    };
    for (what, frame, expected) in [
        ("good", frame(&|_| {}), "sent wan"),
        ("39 bytes", cut(frame(&|_| {}), 53), "ip6-input: ipv6-too-short"),
        ("version 4", frame(&|ip| ip[0] = 0x40), "ip6-input: ipv6-bad-version"),
        ("length beyond the data", frame(&|ip| ip[5] += 1), "ip6-input: ipv6-bad-length"),
        (
            "a multicast frame",
            {
                let mut f = frame(&|_| {});
                f[0] |= 1;
                f
            },
            "ip6-input: multicast",
        ),
    ] {
        assert_eq!(outcome(frame), expected, "{what}");
    }
}

/// The captures that most ports of these tests are like: nobody asks there, and what others asked is not forwarded.
#[test]
fn neighbor_discovery_on_a_link_where_nobody_resolves_is_no_exception() {
    let solicitation = |src: &str, dst: &str, group: u8| {
        let message = [&[135, 0, 0, 0][..], &[0; 20]].concat();
        let packet = ip6(src, dst, Protocol::ICMPV6, &message, |ip| ip.set_hop_limit(255));
        let mut frame = frame(LAN, EtherType::IPV6, &packet);
        frame[0] |= group;
        frame
    };
    for (what, frame, expected) in [
        ("to a group", solicitation(A6, "ff02::1:ff00:1", 1), "ip6-input: multicast"),
        ("to a group of stations only", solicitation(A6, B6, 1), "ip6-input: multicast"),
        ("without a source", solicitation("::", B6, 0), "ip6-input: martian-source"),
        ("to a link-local address", solicitation(A6, "fe80::7", 0), "ip6-input: link-local"),
        ("to an address far away", solicitation(A6, B6, 0), "sent wan"),
    ] {
        assert_eq!(outcome(frame), expected, "{what}");
    }
}

#[test]
fn a_forwarded_packet_differs_in_ttl_checksum_and_link_layer_only() {
    let data = [1, 2, 3];
    let run = router().run(vec![input(udp4(A, B, &data, |ip| ip.set_ttl(2)))]);
    let mut expected = udp4(A, B, &data, |ip| ip.set_ttl(1))[14..14 + 31].to_vec();
    let head = b"\x02\x54\x00\x00\x00\x07\x02\x49\x00\x00\x00\x01\x08\x00";
    expected.splice(0..0, *head);
    assert_eq!(run.sent[1], [expected], "Ethernet's padding is gone");

    let run = router().run(vec![input(udp6(A6, B6, &data, |ip| ip.set_hop_limit(255)))]);
    let mut expected = udp6(A6, B6, &data, |ip| ip.set_hop_limit(254))[14..14 + 51].to_vec();
    expected.splice(0..0, *b"\x02\x54\x00\x00\x00\x07\x02\x49\x00\x00\x00\x01\x86\xdd");
    assert_eq!(run.sent[1], [expected]);

    // A priority tag goes, and a next hop may have a MAC address of its own.
    let mut frame = udp4(A, "20.8.0.1", &data, |_| {});
    frame.splice(12..12, [0x81, 0x00, 0x60, 0x00]);
    let run = router().run(vec![input(frame)]);
    assert_eq!(run.sent[1][0][..14], *b"\x02\xbb\x00\x00\x00\x08\x02\x49\x00\x00\x00\x01\x08\x00");
    assert_eq!(run.sent[1][0].len(), 14 + 31);
}

#[test]
fn routes_that_lead_nowhere_say_so() {
    use icmpv4::Repr::DestUnreachable;
    for (dst, reason, answer) in [
        ("40.0.0.1", DropReason::NoRoute, Some(0)),
        ("20.9.0.1", DropReason::Unreachable, Some(1)),
        ("20.10.0.1", DropReason::Blackhole, None),
        ("20.11.0.1", DropReason::Prohibited, Some(13)),
        ("20.99.0.1", DropReason::NextHopUnknown, Some(1)),
        ("10.0.1.77", DropReason::NeighborUnresolved, Some(1)),
    ] {
        let run = router().run(vec![input(udp4(A, dst, b"data", |_| {}))]);
        assert_eq!(run.drops(), format!("{}=1", reason.name()), "{dst}");
        let sent = run.sent[0].first().map(|frame| error4(frame));
        assert_eq!(sent, answer.map(|code| DestUnreachable { code }), "{dst}");
        assert_eq!(run.control.icmp_stats().sent, u64::from(answer.is_some()));
    }
    use icmpv6::Repr::DestUnreachable as Unreachable6;
    for (dst, reason, answer) in [
        ("2001:40::1", DropReason::NoRoute, Some(0)),
        ("2001:20:9::1", DropReason::Unreachable, Some(3)),
        ("2001:20:a::1", DropReason::Blackhole, None),
        ("2001:20:b::1", DropReason::Prohibited, Some(1)),
        ("2001:20:63::1", DropReason::NextHopUnknown, Some(3)),
        ("2001:470::77", DropReason::NeighborUnresolved, Some(3)),
    ] {
        let run = router().run(vec![input(udp6(A6, dst, b"data", |_| {}))]);
        assert_eq!(run.drops(), format!("{}=1", reason.name()), "{dst}");
        let sent = run.sent[0].first().map(|frame| error6(frame));
        assert_eq!(sent, answer.map(|code| Unreachable6 { code }), "{dst}");
    }
}

/// The ICMP message of a frame, which must be an error from our address to [`A`] with right checksums.
fn error4(frame: &[u8]) -> icmpv4::Repr {
    verify_checksums(frame).unwrap();
    let ip = ipv4::Packet::new_checked(&frame[14..]).unwrap();
    assert_eq!((ip.src().to_string().as_str(), ip.dst().to_string().as_str()), ("10.0.0.1", A));
    assert_eq!((ip.ttl(), ip.dscp()), (64, 48), "our own TTL, precedence 6");
    assert_eq!(frame[..6], [2, 0x54, 0, 0, 0, 13], "routed like any packet");
    icmpv4::Repr::parse(&icmpv4::Packet::new_checked(ip.payload()).unwrap()).unwrap()
}

fn error6(frame: &[u8]) -> icmpv6::Repr {
    verify_checksums(frame).unwrap();
    let ip = ipv6::Packet::new_checked(&frame[14..]).unwrap();
    assert_eq!((ip.src().to_string().as_str(), ip.dst().to_string().as_str()), ("2001:470::1", A6));
    icmpv6::Repr::parse(&icmpv6::Packet::new_checked(ip.payload()).unwrap()).unwrap()
}

#[test]
fn time_exceeded_quotes_the_packet_as_it_came() {
    for ttl in [0, 1] {
        let original = udp4(A, B, &[9; 1000], |ip| ip.set_ttl(ttl));
        let run = router().run(vec![input(original.clone())]);
        assert_eq!(run.drops(), "ttl-expired=1");
        assert_eq!(error4(&run.sent[0][0]), icmpv4::Repr::TimeExceeded { code: 0 });
        assert_eq!(run.sent[0][0].len(), 14 + 576);
        assert_eq!(run.sent[0][0][42..], original[14..14 + 548]);
    }
    let original = udp6(A6, B6, &[9; 1400], |ip| ip.set_hop_limit(1));
    let run = router().run(vec![input(original.clone())]);
    assert_eq!(run.drops(), "ttl-expired=1");
    assert_eq!(error6(&run.sent[0][0]), icmpv6::Repr::TimeExceeded { code: 0 });
    assert_eq!(run.sent[0][0].len(), 14 + 1280);
    assert_eq!(run.sent[0][0][62..], original[14..14 + 1232]);
}

#[test]
fn packets_to_us_need_no_ttl_and_echo_requests_are_answered() {
    let echo = icmp4(icmpv4::Repr::EchoRequest { ident: 5, seq: 6 }, b"payload");
    let frame4 = |dst: &str, payload: &[u8], edit: &dyn Fn(&mut ipv4::Packet<&mut Vec<u8>>)| {
        frame(LAN, EtherType::IPV4, &ip4(A, dst, Protocol::ICMP, payload, |ip| edit(ip)))
    };
    for dst in ["10.0.0.1", "10.0.1.1", "20.12.3.4"] {
        let run = router().run(vec![input(frame4(dst, &echo, &|ip| ip.set_ttl(1)))]);
        let answer = &run.sent[0][0];
        verify_checksums(answer).unwrap();
        let ip = ipv4::Packet::new_checked(&answer[14..]).unwrap();
        assert_eq!((ip.src().to_string().as_str(), ip.dst().to_string().as_str(), ip.ttl()), (dst, A, 64));
        assert_eq!(ip.payload(), icmp4(icmpv4::Repr::EchoReply { ident: 5, seq: 6 }, b"payload"));
        assert_eq!(run.snapshot.ledger().made, 0, "it turned around in place");
    }
    let wrong = [&echo[..9], &[0xff; 6]].concat();
    for (what, frame, expected) in [
        ("wrong checksum", frame4("10.0.0.1", &wrong, &|_| {}), "local: local-bad-checksum"),
        (
            "a first fragment of odd length",
            frame4("10.0.0.1", &echo, &|ip| ip.set_fragment(false, true, 0)),
            "local: reassembly-failed",
        ),
        (
            "an echo reply",
            frame4("10.0.0.1", &icmp4(icmpv4::Repr::EchoReply { ident: 1, seq: 1 }, b""), &|_| {}),
            "local: local-unhandled",
        ),
        ("too short", frame4("10.0.0.1", &[8, 0, 0], &|_| {}), "local: local-unhandled"),
        ("UDP", udp4(A, "10.0.0.1", b"", |_| {}), "icmp4-error: no-listener, sent lan"),
        ("IPv6 UDP", udp6(A6, "2001:470::1", b"", |_| {}), "icmp6-error: no-listener, sent lan"),
    ] {
        assert_eq!(outcome(frame), expected, "{what}");
    }
    let (dst, echo6) = ("2001:470::1", icmpv6::Repr::EchoRequest { ident: 5, seq: 6 });
    let ip = ip6(A6, dst, Protocol::ICMPV6, &icmp6(A6, dst, echo6, b"abc"), |ip| ip.set_hop_limit(1));
    let run = router().run(vec![input(frame(LAN, EtherType::IPV6, &ip))]);
    let ip = ipv6::Packet::new_checked(&run.sent[0][0][14..]).unwrap();
    verify_checksums(&run.sent[0][0]).unwrap();
    assert_eq!((ip.hop_limit(), ip.src().to_string().as_str()), (64, dst));
    assert_eq!(ip.payload(), icmp6(A6, dst, icmpv6::Repr::EchoReply { ident: 5, seq: 6 }, b"abc"));
}

#[test]
fn an_answer_of_ours_that_cannot_go_causes_no_error() {
    let echo = icmp4(icmpv4::Repr::EchoRequest { ident: 5, seq: 6 }, b"");
    let frame = frame(LAN, EtherType::IPV4, &ip4("99.0.0.1", "10.0.0.1", Protocol::ICMP, &echo, |_| {}));
    assert_eq!(outcome(frame), "ip4-lookup: no-route");
    let run = router().run(vec![input(udp4("99.0.0.1", "98.0.0.1", b"", |_| {}))]);
    assert_eq!(
        (run.drops().as_str(), run.snapshot.ledger().made),
        ("no-route=2", 1),
        "the error has no way back"
    );
}

#[test]
fn no_error_is_sent_about_these() {
    let inner = icmp4(icmpv4::Repr::DestUnreachable { code: 1 }, &[0; 28]);
    let icmp =
        |payload: &[u8]| frame(LAN, EtherType::IPV4, &ip4(A, "40.0.0.1", Protocol::ICMP, payload, |_| {}));
    let far = "2001:40::1";
    let icmp6_frame = |repr| {
        frame(LAN, EtherType::IPV6, &ip6(A6, far, Protocol::ICMPV6, &icmp6(A6, far, repr, &[0; 40]), |_| {}))
    };
    for (what, frame) in [
        ("an ICMP error", icmp(&inner)),
        ("ICMP without a type", icmp(&[])),
        ("a later fragment", udp4(A, "40.0.0.1", &[0; 64], |ip| ip.set_fragment(false, true, 64))),
        ("an ICMPv6 error", icmp6_frame(icmpv6::Repr::TimeExceeded { code: 0 })),
        ("an ICMPv6 redirect", icmp6_frame(icmpv6::Repr::Other { kind: 137, code: 0, rest: [0; 4] })),
    ] {
        let run = router().run(vec![input(frame)]);
        assert_eq!(run.drops(), "no-route=1", "{what}");
        let stats = run.control.icmp_stats();
        assert_eq!((stats.sent, stats.suppressed), (0, 1), "{what}");
    }
    for frame in [
        icmp(&icmp4(icmpv4::Repr::EchoRequest { ident: 1, seq: 1 }, b"")),
        udp4(A, "40.0.0.1", &[0; 64], |ip| ip.set_fragment(false, true, 0)),
        icmp6_frame(icmpv6::Repr::EchoReply { ident: 1, seq: 1 }),
    ] {
        assert_eq!(router().run(vec![input(frame)]).control.icmp_stats().sent, 1);
    }
}

#[test]
fn errors_are_rate_limited_on_the_packets_own_clock() {
    let config = format!("{CONFIG}[router]\nicmp_rate_per_s = 30\nicmp_rate_per_prefix_per_s = 20\n");
    let frames: Vec<Frame> = (0..100u64)
        .map(|i| Frame {
            bytes: udp4(A, "40.0.0.1", b"", |_| {}),
            time_ns: 1_000_000_000 + i * 20_000_000, // two seconds' worth
            wire_len: 0,
        })
        .collect();
    let run = Router::new(&config, routes(&[("30.0.0.0/8", 13)]), routes(&[])).run(frames);
    // All in one burst, but each at its own time: 20 at once, then 20 for each of 1.98 s.
    let stats = run.control.icmp_stats();
    assert_eq!((stats.sent, stats.rate_limited, run.drops().as_str()), (59, 41, "no-route=100"));
}
