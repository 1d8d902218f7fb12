//! Packets that are too long for the next link: cut up, or reported.

use crate::common::*;
use tidemill_wire::{EtherType, Protocol, icmpv4, icmpv6, ipv4, ipv6, verify_checksums};

fn router(mtu: usize) -> Router {
    let config = format!(
        "next_hops.ports = ['wan', 'lan']\n[[interface]]\nport = 'lan'\naddresses = ['10.0.0.1/24', '2001:470::1/64']\n\
         mtu = 9000\n[[interface]]\nport = 'wan'\nmtu = {mtu}\n"
    );
    // Label 2 goes to wan, 1 to lan.
    let v4 = routes(&[("20.0.0.0/8", 2), ("30.0.0.0/8", 1)]);
    Router::new(&config, v4, routes(&[("2001:20::/32", 2), ("2001:30::/32", 1)]))
}

const A: &str = "30.0.0.5";
const B: &str = "20.1.2.3";

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// Puts options behind the fixed header.
fn with_options(mut ip: Vec<u8>, options: &[u8]) -> Vec<u8> {
    ip.splice(20..20, options.iter().copied());
    let total = ip.len() as u16;
    let mut packet = ipv4::Packet::new_unchecked(&mut ip);
    packet.set_version_and_header_len(20 + options.len());
    packet.set_total_len(total);
    packet.fill_checksum();
    ip
}

/// Runs one packet through a router with this MTU; checks every fragment, and returns the payload put together again
/// from `base` on, with the "more fragments" of the last one.
fn reassemble(ip: Vec<u8>, mtu: usize) -> (Vec<u8>, bool, usize) {
    let run = router(mtu).run(vec![input(frame(LAN, EtherType::IPV4, &ip))]);
    let ledger = run.snapshot.ledger();
    assert_eq!((ledger.consumed, ledger.made as usize, run.drops().as_str()), (1, run.sent[1].len(), ""));
    let original = ipv4::Packet::new_checked(&ip[..]).unwrap();
    let (mut bytes, mut more) = (Vec::new(), true);
    let mut at = usize::from(original.fragment_offset());
    for (n, sent) in run.sent[1].iter().enumerate() {
        assert_eq!(sent[..14], *b"\x02\x54\x00\x00\x00\x02\x02\x49\x00\x00\x00\x01\x08\x00");
        verify_checksums(sent).unwrap();
        assert!(sent.len() <= 14 + mtu, "{} bytes for an MTU of {mtu}", sent.len() - 14);
        let fragment = ipv4::Packet::new_checked(&sent[14..]).unwrap();
        let last = n + 1 == run.sent[1].len();
        assert_eq!(usize::from(fragment.fragment_offset()), at, "no gap, no overlap");
        assert!(last || fragment.payload().len() % 8 == 0);
        assert!(last || sent.len() + 8 > 14 + mtu, "as much as fits");
        assert!(more, "only the last one says that it is");
        assert_eq!(
            (fragment.ident(), fragment.ttl(), fragment.protocol(), fragment.src(), fragment.dst()),
            (original.ident(), original.ttl() - 1, original.protocol(), original.src(), original.dst())
        );
        at += fragment.payload().len();
        more = fragment.more_fragments();
        bytes.extend_from_slice(fragment.payload());
    }
    (bytes, more, run.sent[1].len())
}

#[test]
fn fragments_add_up_to_the_packet() {
    for (len, mtu, fragments) in
        [(481, 500, 2), (1000, 500, 3), (1480, 576, 3), (8000, 68, 167), (8972, 1500, 7), (49, 68, 2)]
    {
        let data = payload(len);
        let ip = ip4(A, B, Protocol::UDP, &data, |ip| ip.set_ident(0x1234));
        assert_eq!(reassemble(ip, mtu), (data, false, fragments), "{len} bytes over {mtu}");
    }
}

#[test]
fn fragments_are_fragmented_again() {
    let data = payload(1000);
    for more in [true, false] {
        let ip = ip4(A, B, Protocol::UDP, &data, |ip| ip.set_fragment(false, more, 4000));
        assert_eq!(reassemble(ip, 576), (data.clone(), more, 2));
    }
}

#[test]
fn options_are_copied_by_their_copied_bit() {
    // No-op, record route (not copied) of 7 bytes, router alert (copied), security (130, copied) of 3 bytes, end.
    let options = [1, 7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0, 130, 3, 9, 0];
    let data = payload(1000);
    let ip = with_options(ip4(A, B, Protocol::UDP, &data, |_| {}), &options);
    let run = router(500).run(vec![input(frame(LAN, EtherType::IPV4, &ip))]);
    let fragment = |n: usize| ipv4::Packet::new_checked(&run.sent[1][n][14..]).unwrap();
    assert_eq!(fragment(0).option_bytes(), options);
    for n in 1..run.sent[1].len() {
        assert_eq!(fragment(n).option_bytes(), [148, 4, 0, 0, 130, 3, 9, 0]);
    }
    assert_eq!(reassemble(ip, 500).0, data);
}

#[test]
fn without_room_for_all_fragments_none_is_sent() {
    let ip = ip4(A, B, Protocol::UDP, &payload(8000), |_| {});
    let run = router(500).run_with(vec![input(frame(LAN, EtherType::IPV4, &ip))], 12, |_| {});
    assert_eq!((run.drops().as_str(), run.sent[1].len()), ("fragment-failed=1", 0));
    // 60 bytes of header leave 8 for each fragment; a reassembled packet may not be longer than 65535.
    let ip = with_options(ip4(A, B, Protocol::UDP, &payload(100), |_| {}), &[1; 40]);
    let run = router(68).run(vec![input(frame(LAN, EtherType::IPV4, &ip))]);
    assert_eq!(
        (run.drops().as_str(), run.sent[1].len()),
        ("", 3),
        "8 bytes, then 48 without the no-ops, then the rest"
    );
    let ip = ip4(A, B, Protocol::UDP, &payload(1000), |ip| ip.set_fragment(false, false, 65_528));
    let run = router(68).run(vec![input(frame(LAN, EtherType::IPV4, &ip))]);
    assert_eq!((run.drops().as_str(), run.sent[1].len()), ("fragment-failed=1", 0));
}

#[test]
fn what_must_not_be_fragmented_is_reported_with_the_mtu() {
    let ip = ip4(A, B, Protocol::UDP, &payload(1400), |ip| ip.set_fragment(true, false, 0));
    let run = router(1280).run(vec![input(frame(LAN, EtherType::IPV4, &ip))]);
    assert_eq!(run.drops(), "too-big=1");
    verify_checksums(&run.sent[0][0]).unwrap();
    let answer = ipv4::Packet::new_checked(&run.sent[0][0][14..]).unwrap();
    let message = icmpv4::Packet::new_checked(answer.payload()).unwrap();
    assert_eq!(
        icmpv4::Repr::parse(&message).unwrap(),
        icmpv4::Repr::FragmentationNeeded { next_hop_mtu: 1280 }
    );
    assert_eq!(message.payload(), &ip[..548], "as it came, TTL and all");

    for (mtu, told) in [(1400, 1400), (600, 1280)] {
        let frame = udp6("2001:30::5", "2001:20::9", &payload(1400), |_| {});
        let run = router(mtu).run(vec![input(frame)]);
        assert_eq!(run.drops(), "too-big=1");
        verify_checksums(&run.sent[0][0]).unwrap();
        let answer = ipv6::Packet::new_checked(&run.sent[0][0][14..]).unwrap();
        let message = icmpv6::Packet::new_checked(answer.payload()).unwrap();
        assert_eq!(icmpv6::Repr::parse(&message).unwrap(), icmpv6::Repr::PacketTooBig { mtu: told });
    }
}

#[test]
fn a_packet_of_exactly_the_mtu_goes_through() {
    for (len, sent) in [(1472, 1), (1473, 2)] {
        let run = router(1500).run(vec![input(udp4(A, B, &payload(len), |_| {}))]);
        assert_eq!(run.sent[1].len(), sent);
    }
    let run = router(1500).run(vec![input(udp6("2001:30::5", "2001:20::9", &payload(1452), |_| {}))]);
    assert_eq!(run.sent[1].len(), 1);
}
