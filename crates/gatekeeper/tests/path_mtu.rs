//! What the encapsulation does where the way to a Grantor is narrower than the next link, as far as ICMP errors have told.

#![allow(clippy::unwrap_used)]

mod tunnel;

use tidemill_gatekeeper::tunnel::Outer;
use tidemill_gatekeeper::tunnel::path::Heard;
use tidemill_wire::ipv6_ext::FragmentPacket;
use tidemill_wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6, verify_checksums};
use tunnel::frames::{GRANTOR4, GRANTOR6, SOURCE4, SOURCE6};
use tunnel::{Input, Setup};

/// The time of packets in a run.
const NOW: u64 = 1_000_000_000;

/// An IPv4 packet of this length.
fn inner4(dont_fragment: bool, len: usize) -> Input {
    let (src, dst) = ("198.51.100.7".parse().unwrap(), "203.0.113.80".parse().unwrap());
    let repr = ipv4::Repr { dont_fragment, ..ipv4::Repr::new(src, dst, Protocol::UDP, len - 20) };
    let mut bytes = vec![0; len];
    repr.emit(&mut bytes).unwrap();
    Input::new::<u32>(&bytes, 0, 0, 1)
}

/// An IPv6 packet of this length.
fn inner6(len: usize) -> Input {
    let (src, dst) = ("2001:db8:a::7".parse().unwrap(), "2001:db8:b::80".parse().unwrap());
    let mut bytes = vec![0; len];
    ipv6::Repr::new(src, dst, Protocol::UDP, len - 40).emit(&mut bytes).unwrap();
    Input::new::<u128>(&bytes, 0, 0, 1)
}

/// The MTU in an ICMP error that is sound and goes to the inner sender.
fn told(frame: &[u8]) -> u32 {
    verify_checksums(frame).unwrap();
    let rest = if frame[14] >> 4 == 4 {
        let ip = ipv4::Packet::new_checked(&frame[14..]).unwrap();
        assert_eq!(ip.dst().to_string(), "198.51.100.7");
        let error = icmpv4::Packet::new_checked(ip.payload()).unwrap();
        assert_eq!((error.kind(), error.code()), (3, 4));
        error.rest()
    } else {
        let ip = ipv6::Packet::new_checked(&frame[14..]).unwrap();
        assert_eq!(ip.dst().to_string(), "2001:db8:a::7");
        let error = icmpv6::Packet::new_checked(ip.payload()).unwrap();
        assert_eq!(error.kind(), icmpv6::kind::PACKET_TOO_BIG);
        error.rest()
    };
    u32::from_be_bytes(rest)
}

#[test]
fn a_narrow_way_is_told_to_ipv4_senders_or_their_packets_are_cut() {
    let setup = Setup::<u32>::new(SOURCE4, GRANTOR4);
    let path = setup.endpoints[0].path();
    let hear = |length, mtu| path.hear(NOW, length, mtu, u32::LEAST_MTU);
    assert_eq!(hear(1500, 1400), Heard::Refused, "nothing was sent");
    let run = setup.run(vec![inner4(true, 1480), inner4(true, 1380)]);
    assert_eq!(run.forward.len(), 2, "{}", run.drops());
    // Now there was; and nothing longer.
    assert_eq!(hear(1501, 1400), Heard::Refused);
    assert_eq!(hear(1500, 1400), Heard::Lowered);
    let run =
        setup.run(vec![inner4(true, 1480), inner4(true, 1381), inner4(true, 1380), inner4(false, 1480)]);
    assert_eq!(run.drops(), "too-big=2");
    assert_eq!(run.error.iter().map(|frame| told(frame)).collect::<Vec<_>>(), [1380, 1380]);
    let lengths: Vec<usize> = run.forward.iter().map(|frame| frame.len() - 14).collect();
    // 1,360 bytes of payload and a multiple of 8; the rest with a header of its own.
    assert_eq!(lengths, [1400, 1400, 1480 - 20 - 1360 + 40]);
    // The floor.
    assert_eq!(hear(1400, 1), Heard::Lowered);
    let run = setup.run(vec![inner4(true, 1380), inner4(true, 556)]);
    assert_eq!((run.drops().as_str(), told(&run.error[0]), run.forward.len()), ("too-big=1", 556, 1));
}

#[test]
fn a_narrow_way_is_told_to_ipv6_senders_and_what_they_may_send_goes() {
    let setup = Setup::<u128>::new(SOURCE6, GRANTOR6);
    let path = setup.endpoints[0].path();
    assert_eq!(setup.run(vec![inner6(1460)]).forward.len(), 1);
    assert_eq!(path.hear(NOW, 1500, 1400, u128::LEAST_MTU), Heard::Lowered);
    let run = setup.run(vec![inner6(1460), inner6(1361), inner6(1360)]);
    assert_eq!(run.drops(), "too-big=2");
    assert_eq!(run.error.iter().map(|frame| told(frame)).collect::<Vec<_>>(), [1360, 1360]);
    assert_eq!(run.forward[0].len(), 14 + 1400);
    // A way of 1280 leaves 1240 to a sender who need not go below 1280: his packets go in parts, none longer than the way takes.
    assert_eq!(path.hear(NOW, 1400, 600, u128::LEAST_MTU), Heard::Lowered);
    let run = setup.run(vec![inner6(1281), inner6(1280), inner6(1240)]);
    assert_eq!((run.drops().as_str(), told(&run.error[0])), ("too-big=1", 1280));
    assert_eq!(run.forward.iter().map(|frame| frame.len() - 14).max(), Some(1280));
    let part = |frame: &&Vec<u8>| ipv6::next_header(&frame[14..]) == Protocol::FRAGMENT;
    let parts: Vec<_> = run.forward.iter().filter(part).collect();
    let bytes: usize = parts.iter().map(|frame| frame.len() - 14 - 48).sum();
    assert_eq!((parts.len(), bytes, run.forward.len()), (2, 1280, 3));
    assert!(FragmentPacket::new_checked(&parts[0][54..]).unwrap().more());
}

/// A Grantor's way is its own; and the time of what was told runs out.
#[test]
fn other_ways_stay_wide() {
    let mut setup = Setup::<u32>::new(SOURCE4, GRANTOR4);
    let other = tidemill_gatekeeper::tunnel::Endpoint::new(0xc000_0201_u32, 0x0a14_1e29);
    setup.endpoints.push(other);
    setup.run(vec![inner4(true, 1480)]);
    assert_eq!(setup.endpoints[0].path().hear(NOW, 1500, 1400, 576), Heard::Lowered);
    assert_eq!(setup.endpoints[1].path().hear(NOW, 1500, 1400, 576), Heard::Refused);
    // From another address of ours it is the same way.
    setup.endpoints[0] = setup.endpoints[0].from(0xc000_0202);
    let mut to_other = inner4(true, 1480);
    to_other.tag.grantor = 1;
    let run = setup.run(vec![inner4(true, 1480), to_other]);
    assert_eq!((run.drops().as_str(), run.forward.len()), ("too-big=1", 1));
}
