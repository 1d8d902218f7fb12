//! Properties held against an independent parser and against recomputation.

// Helpers are no `#[test]` functions, but their failures are the tests' failures.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::agree::{agree, network};
use common::build::{self, Source};
use common::touch::touch;
use proptest::prelude::*;
use tidemill_wire::checksum::{self, Pseudo};
use tidemill_wire::{EtherType, Protocol, Summary, flow_key, ipv4, ipv6, rss, udp, verify_checksums};

/// Changes that a mutation makes: where (as a share of the frame), to what.
type Changes = Vec<(u16, u8)>;

fn mutate(frame: &mut Vec<u8>, changes: &Changes, cut: Option<u16>) {
    for (at, value) in changes {
        let len = frame.len();
        frame[usize::from(*at) % len] = *value;
    }
    if let Some(cut) = cut {
        frame.truncate(usize::from(cut) % (frame.len() + 1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_reads_back_and_adds_up(choices in prop::collection::vec(any::<u8>(), 0..400)) {
        let built = build::frame(&mut Source(&choices));
        prop_assert_eq!(verify_checksums(&built.frame), Ok(()));
        agree(&built.frame);
        touch(&built.frame);
        let line = Summary(&built.frame).to_string();
        // What an ICMP error quotes is random here; all else is well-formed.
        prop_assert!(!line.contains('[') || line.contains("icmp"), "{}", line);
        prop_assert!(!line.contains('\n'));
    }

    #[test]
    fn a_flipped_bit_behind_the_header_is_noticed(
        choices in prop::collection::vec(any::<u8>(), 0..400),
        bit in any::<u16>(),
    ) {
        let mut built = build::frame(&mut Source(&choices));
        if !built.covered {
            return Ok(());
        }
        // The last byte of the packet is under the innermost checksum: payload, option or header field.
        let packet = &built.frame[built.l3_offset..];
        let len = match packet[0] >> 4 {
            4 => usize::from(ipv4::total_len(packet)),
            _ => ipv6::HEADER_LEN + usize::from(ipv6::payload_len(packet)),
        };
        let last = built.l3_offset + len - 1;
        built.frame[last] ^= 1 << (bit % 8);
        // An empty UDP datagram ends in its checksum, which may just have become "none".
        if built.frame[last - 1..=last] != [0, 0] {
            prop_assert!(verify_checksums(&built.frame).is_err(), "{}", Summary(&built.frame));
        }
    }

    #[test]
    fn mutated_frames_mean_the_same_to_both_parsers(
        choices in prop::collection::vec(any::<u8>(), 0..400),
        changes in prop::collection::vec((0..80u16, any::<u8>()), 1..6),
        cut in prop::option::of(any::<u16>()),
    ) {
        let mut built = build::frame(&mut Source(&choices));
        mutate(&mut built.frame, &changes, cut);
        agree(&built.frame);
        touch(&built.frame);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        first in prop::sample::select(vec![0x45u8, 0x46, 0x4f, 0x60, 0x00, 0x33, 0x86, 0x88]),
        ethertype in prop::sample::select(vec![0x0800u16, 0x86dd, 0x0806, 0x8100]),
    ) {
        touch(&bytes);
        network(&bytes);
        if bytes.len() > 14 {
            bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
            bytes[14] = first;
            touch(&bytes);
            agree(&bytes);
            network(&bytes[14..]);
        }
    }

    #[test]
    fn the_fast_sum_is_the_sum_by_words(bytes in prop::collection::vec(any::<u8>(), 0..300), from in 0..9usize) {
        let part = &bytes[from.min(bytes.len())..];
        prop_assert_eq!(checksum::sum(part), checksum::sum_by_words(part));
    }

    #[test]
    fn a_pseudo_header_sums_as_its_bytes_do(src: u128, dst: u128, protocol: u8, len in 0..0x20000usize) {
        let v6 = Pseudo::V6 { src: src.into(), dst: dst.into() };
        let mut bytes = [src.to_be_bytes(), dst.to_be_bytes()].concat();
        bytes.extend((len as u32).to_be_bytes());
        bytes.extend([0, 0, 0, protocol]);
        prop_assert_eq!(v6.sum(Protocol(protocol), len), checksum::sum_by_words(&bytes));
        let v4 = Pseudo::V4 { src: (src as u32).into(), dst: (dst as u32).into() };
        let mut bytes = [(src as u32).to_be_bytes(), (dst as u32).to_be_bytes()].concat();
        bytes.extend([0, protocol]);
        bytes.extend((len as u16).to_be_bytes());
        prop_assert_eq!(v4.sum(Protocol(protocol), len & 0xffff), checksum::sum_by_words(&bytes));
    }

    #[test]
    fn an_updated_checksum_is_the_recomputed_one(
        mut bytes in prop::collection::vec(prop::sample::select(vec![0u8, 0, 0xff, 0xff, 1, 0x45, 0xfe]), 20..60),
        new in prop::collection::vec(prop::sample::select(vec![0u8, 0, 0xff, 0xff, 1, 0x80]), 16),
        at in 0..100usize,
    ) {
        // As in a packet, a word that no update touches is not zero.
        bytes.splice(0..0, [0x45, 0]);
        let before = checksum::checksum(&bytes);
        let take = |bytes: &[u8], at: usize, n: usize| bytes[at..at + n].iter().fold(0u128, |v, b| v << 8 | u128::from(*b));
        for n in [2usize, 4, 16] {
            let at = 2 + at % (bytes.len() - n - 1) / 2 * 2;
            let mut changed = bytes.clone();
            changed[at..at + n].copy_from_slice(&new[..n]);
            let (old, new) = (take(&bytes, at, n), take(&new, 0, n));
            let updated = match n {
                2 => checksum::update_u16(before, old as u16, new as u16),
                4 => checksum::update_u32(before, old as u32, new as u32),
                _ => checksum::update_u128(before, old, new),
            };
            prop_assert_eq!(updated, checksum::checksum(&changed), "{} bytes at {}", n, at);
        }
    }

    #[test]
    fn the_fast_toeplitz_hash_is_the_bitwise_one(key: [u8; 32], more: [u8; 8], input in prop::collection::vec(any::<u8>(), 0..37)) {
        let mut whole = [0; rss::KEY_LEN];
        whole[..32].copy_from_slice(&key);
        whole[32..].copy_from_slice(&more);
        prop_assert_eq!(rss::Toeplitz::new(&whole).hash(&input), rss::bitwise(&whole, &input));
    }
}

#[test]
fn single_word_updates_are_exact_for_every_checksum_and_value() {
    // Every checksum that a header can have, with the words that corner cases are made of.
    let corners = [0u16, 1, 0x7fff, 0x8000, 0xfffe, 0xffff];
    for rest in 0..=u16::MAX {
        for old in corners {
            for new in corners {
                let bytes =
                    |word: u16| [0x45, 0, (rest >> 8) as u8, rest as u8, (word >> 8) as u8, word as u8];
                let updated = checksum::update_u16(checksum::checksum(&bytes(old)), old, new);
                assert_eq!(updated, checksum::checksum(&bytes(new)), "{rest:#x} {old:#x} {new:#x}");
            }
        }
    }
}

#[test]
fn a_ttl_is_decremented_as_if_recomputed() {
    let repr = ipv4::Repr::new([10, 1, 2, 3].into(), [192, 0, 2, 9].into(), Protocol::UDP, 0);
    for ident in (0..=u16::MAX).step_by(7) {
        for ttl in [1, 2, 64, 128, 255] {
            let mut header = [0; 20];
            ipv4::Repr { ident, ttl, ..repr }.emit(&mut header).unwrap();
            let mut right = [0; 20];
            ipv4::Repr { ident, ttl: ttl - 1, ..repr }.emit(&mut right).unwrap();
            assert_eq!(ipv4::decrement_ttl(&mut header), ttl - 1);
            assert_eq!(header, right, "ident {ident}, ttl {ttl}");
        }
    }
    let mut header = [0; 20];
    ipv4::Repr { ttl: 0, ..repr }.emit(&mut header).unwrap();
    let before = header;
    assert_eq!((ipv4::decrement_ttl(&mut header), header), (0, before));
}

#[test]
fn udp_keeps_none_and_never_sends_zero() {
    let pseudo = Pseudo::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    // Payloads of two bytes run through every checksum, zero too.
    let (mut zeros, repr) = (0, udp::Repr { src_port: 1, dst_port: 2, payload_len: 2 });
    for word in 0..=u16::MAX {
        let mut datagram = [0; 10];
        datagram[8..].copy_from_slice(&word.to_be_bytes());
        repr.emit(&mut datagram, &pseudo).unwrap();
        let packet = udp::Packet::new_checked(&datagram[..]).unwrap();
        assert!(packet.checksum() != 0 && packet.checksum_ok(&pseudo));
        zeros += usize::from(packet.checksum() == 0xffff);
        // Now as a translator does it: another destination, by update.
        let moved = Pseudo::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 255, 253].into() };
        let updated = checksum::update_u32(packet.checksum(), 0x0a00_0002, 0x0a00_fffd);
        let updated = checksum::for_udp(packet.checksum(), updated);
        repr.emit(&mut datagram, &moved).unwrap();
        assert_eq!(updated, udp::Packet::new_checked(&datagram[..]).unwrap().checksum());
    }
    assert_eq!(zeros, 1, "one payload of 65,536 has the checksum that is sent as 0xffff");
    assert_eq!(checksum::for_udp(0, 0x1234), 0);
}

#[test]
fn errors_name_protocol_field_and_byte() {
    let mut data = [0u8; 14];
    data[0] = 0x45;
    assert_eq!(
        ipv4::check(&data).unwrap_err().to_string(),
        "ipv4: header at byte 0 needs 20 bytes, 14 present"
    );
    let mut header = [0; 20];
    ipv4::Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Protocol::UDP, 80).emit(&mut header).unwrap();
    let error = ipv4::check(&header).unwrap_err();
    assert_eq!(error.to_string(), "ipv4: total length 100 at byte 2 exceeds the 20 bytes present");
    assert_eq!((error.protocol(), error.offset()), ("ipv4", 2));
}

#[test]
fn a_frame_in_one_line() {
    let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7];
    frame.extend(EtherType::IPV4.0.to_be_bytes());
    let l3 = frame.len();
    frame.resize(l3 + 60, 0);
    ipv4::Repr::new(src, dst, Protocol::UDP, 40).emit(&mut frame[l3..]).unwrap();
    let repr = udp::Repr { src_port: 53, dst_port: 1234, payload_len: 32 };
    repr.emit(&mut frame[l3 + 20..], &Pseudo::V4 { src, dst }).unwrap();
    assert_eq!(
        Summary(&frame).to_string(),
        "eth 02:00:00:00:00:01>02:00:00:00:00:02 vlan 7 ipv4 10.0.0.1 > 10.0.0.2 udp 53>1234 len 60 ttl 64"
    );
    assert_eq!(flow_key(&frame, l3).unwrap().to_string(), "10.0.0.1 > 10.0.0.2 udp 53>1234");
    frame[l3 + 20 + 6] ^= 0x80;
    let fault = verify_checksums(&frame).unwrap_err();
    assert_eq!((fault.protocol, fault.offset, fault.found ^ fault.right), ("udp", l3 + 26, 0x8000));
    // A later fragment of the same flow has no ports, and its bytes are not taken for a UDP header.
    frame[l3 + 7] = 5;
    ipv4::fill_checksum(&mut frame[l3..]);
    assert_eq!(flow_key(&frame, l3).unwrap().to_string(), "10.0.0.1 > 10.0.0.2 udp");
    assert_eq!(verify_checksums(&frame), Ok(()));
    assert!(Summary(&frame).to_string().contains("frag 0x0000@40 udp len 60"));
}
