//! Checksums that a local sender left to its network card, which is none: completed.
//!
//! What a host sends over a virtual link (veth, tun) carries in its TCP or UDP checksum field only the sum of the pseudo
//! header; a real card would complete it. An AF_PACKET socket is told so by a virtio-net header, an XDP program is not.
//! But it shows: the field *is* that sum.
//!
//! ```text
//! finished: sum(pseudo) + sum(segment)          = 0xffff
//! partial:  field = sum(pseudo)                 -> field := ~sum(segment, field included)
//! ```
//! A finished packet whose field happens to equal that sum comes out as it went in: completing it gives the same field.
//! So only a packet that was damaged on its way and hits the sum by chance (1 in 65,536) passes for a good one, and on a
//! virtual link there is no wire to damage it.
//!
//! Not completed: what lies in tunnels, what a source route takes elsewhere first (its sum is of another destination), and SCTP (its field
//! holds nothing to tell it by). `ethtool -K PEER tx off` makes the sender do it.

use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_wire::checksum::{self, Pseudo};
use tidemill_wire::{Protocol, ipv6_ext};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Completes the checksum of a frame's TCP segment or UDP datagram if it was left to do. Returns whether it was.
#[inline]
pub fn complete(frame: &mut [u8]) -> bool {
    let Some((start, end, protocol, pseudo)) = segment(frame) else { return false };
    let offset = if protocol == TCP { 16 } else { 6 };
    let Some(segment) = frame.get_mut(start..end) else { return false };
    let Some(field) = segment.get(offset..).and_then(|tail| tail.first_chunk::<2>()) else { return false };
    if u16::from_be_bytes(*field) != pseudo {
        return false;
    }
    let check = match checksum::checksum(segment) {
        // Zero says that there is none (RFC 768), and is as good as its complement in TCP.
        0 => 0xffff,
        check => check,
    };
    segment[offset..offset + 2].copy_from_slice(&check.to_be_bytes());
    true
}

/// Where the segment lies, its protocol, and the sum of its pseudo header; `None` of what is not TCP or UDP in one piece.
#[inline]
fn segment(frame: &[u8]) -> Option<(usize, usize, u8, u16)> {
    let mut at = 12;
    let mut kind = read(frame, at)?;
    for _ in 0..2 {
        if kind == 0x8100 || kind == 0x88A8 {
            at += 4;
            kind = read(frame, at)?;
        }
    }
    at += 2;
    let ip = frame.get(at..)?;
    let (header, len, protocol, pseudo) = match kind {
        0x0800 => {
            let head: &[u8; 20] = ip.first_chunk()?;
            let header = usize::from(head[0] & 0xf) * 4;
            // A fragment: the kernel finishes before it cuts.
            if head[0] >> 4 != 4 || header < 20 || u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0 {
                return None;
            }
            let pseudo = Pseudo::V4 { src: v4(head, 12), dst: v4(head, 16) };
            (header, usize::from(u16::from_be_bytes([head[2], head[3]])), head[9], pseudo)
        }
        0x86DD => {
            let head: &[u8; 40] = ip.first_chunk()?;
            let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
            let (header, protocol) = if matches!(head[6], TCP | UDP) { (40, head[6]) } else { behind(ip)? };
            (header, 40 + len, protocol, Pseudo::V6 { src: v6(head, 8), dst: v6(head, 24) })
        }
        _ => return None,
    };
    if !matches!(protocol, TCP | UDP) || len < header {
        return None;
    }
    Some((at + header, at + len, protocol, pseudo.sum(Protocol(protocol), len - header)))
}

/// Where what lies behind IPv6 extension headers begins, and its protocol.
#[cold]
fn behind(ip: &[u8]) -> Option<(usize, u8)> {
    let walk = ipv6_ext::walk(ip).ok()?;
    (!walk.is_fragment()).then_some((walk.upper_offset, walk.upper.0))
}

#[inline]
fn read(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

#[inline]
fn v4(head: &[u8; 20], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3])
}

#[inline]
fn v6(head: &[u8; 40], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&head[at..at + 16]);
    Ipv6Addr::from(octets)
}

#[cfg(test)]
mod tests {
    use super::complete;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;
    use tidemill_wire::verify_checksums;

    /// A good frame, and where its checksum field and its segment lie.
    fn good(v6: bool, udp: bool, vlan: bool, ports: (u16, u16), payload: &[u8]) -> (Vec<u8>, usize, usize) {
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut frame = Vec::new();
        macro_rules! finish {
            ($ip:expr) => {
                match udp {
                    true => $ip.udp(ports.0, ports.1).write(&mut frame, payload).unwrap(),
                    false => $ip.tcp(ports.0, ports.1, 7, 1000).write(&mut frame, payload).unwrap(),
                }
            };
        }
        match (vlan, v6) {
            (false, false) => finish!(ethernet.ipv4([10, 1, 2, 3], [192, 0, 2, 9], 64)),
            (false, true) => finish!(ethernet.ipv6([0x20; 16], [0xfd; 16], 64)),
            (true, v6) => {
                let tagged = ethernet.single_vlan(7.try_into().unwrap());
                match v6 {
                    false => finish!(tagged.ipv4([10, 1, 2, 3], [192, 0, 2, 9], 64)),
                    true => finish!(tagged.ipv6([0x20; 16], [0xfd; 16], 64)),
                }
            }
        }
        let start = 14 + if vlan { 4 } else { 0 } + if v6 { 40 } else { 20 };
        (frame, start, start + if udp { 6 } else { 16 })
    }

    /// As a sender leaves it to its card.
    fn partial(frame: &mut [u8], start: usize, field: usize) {
        frame[field..field + 2].fill(0);
        let rest = tidemill_wire::checksum::sum(&frame[start..]);
        let whole = tidemill_wire::checksum::add(rest, 0);
        // field(good) = ~(pseudo + rest), so pseudo = ~field(good) - rest; found by search over the definition.
        let pseudo = (0..=u16::MAX).find(|pseudo| {
            let check = !tidemill_wire::checksum::add(*pseudo, whole);
            frame[field..field + 2].copy_from_slice(&if check == 0 { 0xffff } else { check }.to_be_bytes());
            verify_checksums(frame).is_ok()
        });
        frame[field..field + 2].copy_from_slice(&pseudo.unwrap().to_be_bytes());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn partial_ones_are_completed_and_good_ones_stay(
            v6: bool, udp: bool, vlan: bool, ports: (u16, u16), padding in 0usize..6,
            payload in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let (frame, start, field) = good(v6, udp, vlan, ports, &payload);
            verify_checksums(&frame).unwrap();
            let mut left = frame.clone();
            partial(&mut left, start, field);
            // Short frames are padded, and the padding is not under the checksum.
            left.extend(std::iter::repeat_n(0xAA, padding));
            prop_assert!(complete(&mut left));
            prop_assert_eq!(&left[..frame.len()], &frame[..]);
            let mut good = frame.clone();
            complete(&mut good);
            prop_assert_eq!(good, frame);
        }

        #[test]
        fn any_bytes_are_survived(mut frame in proptest::collection::vec(any::<u8>(), 0..120), kind in 0usize..4) {
            let types = [[0x08, 0], [0x86, 0xDD], [0x81, 0], [0x88, 0xA8]];
            if let Some(place) = frame.get_mut(12..14) {
                place.copy_from_slice(&types[kind]);
            }
            complete(&mut frame);
        }
    }

    #[test]
    fn segments_behind_ipv6_extension_headers_are_completed() {
        let (frame, start, field) = good(true, false, false, (1, 2), b"abcdef");
        // Destination options: six bytes of padding.
        let with = |frame: &[u8]| {
            let (head, segment) = frame.split_at(start);
            let mut all = [head, &[head[14 + 6], 0, 1, 4, 0, 0, 0, 0], segment].concat();
            all[14 + 5] += 8;
            all[14 + 6] = 60;
            all
        };
        let (mut left, whole) = (frame.clone(), with(&frame));
        partial(&mut left, start, field);
        let mut left = with(&left);
        verify_checksums(&whole).unwrap();
        assert!(verify_checksums(&left).is_err() && complete(&mut left));
        assert_eq!(left, whole);
        // A fragment header in their place: the sender has finished it before it cut.
        let mut fragment = with(&frame);
        partial(&mut fragment, start + 8, field + 8);
        fragment[14 + 6] = 44;
        fragment[start + 3] = 1;
        let before = fragment.clone();
        assert!(!complete(&mut fragment));
        assert_eq!(fragment, before);
    }

    #[test]
    fn fragments_and_other_protocols_are_left_alone() {
        let (frame, start, field) = good(false, true, false, (1, 2), b"abcdef");
        for change in [(14 + 6, 0x20), (14 + 7, 0x01), (14 + 9, 132), (14, 0x44), (12, 0x09)] {
            let mut left = frame.clone();
            partial(&mut left, start, field);
            left[change.0] = change.1;
            let before = left.clone();
            assert!(!complete(&mut left), "{change:?}");
            assert_eq!(left, before);
        }
    }
}
