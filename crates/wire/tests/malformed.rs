//! Malformed headers, one fault each: the error names protocol, field and byte.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use tidemill_wire::*;

/// An IPv6 packet of `next`, then these bytes.
fn v6(next: Protocol, payload: &[u8]) -> Vec<u8> {
    let repr = ipv6::Repr::new(1.into(), 2.into(), next, payload.len());
    let mut packet = vec![0; 40];
    repr.emit(&mut packet).unwrap();
    packet.extend(payload);
    packet
}

/// The text of the one error that an iterator ends with, and how many items came before it.
fn last<T, I: Iterator<Item = Result<T, Error>>>(mut items: I) -> (usize, String) {
    let mut count = 0;
    for item in items.by_ref() {
        if let Err(error) = item {
            assert!(items.next().is_none(), "went on after {error}");
            return (count, error.to_string());
        }
        count += 1;
    }
    (count, "none".into())
}

#[test]
fn ipv4_headers() {
    let repr = ipv4::Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Protocol::UDP, 4);
    let mut good = [0; 24];
    repr.emit(&mut good).unwrap();
    let cases = [
        (0, 0x65, "ipv4: version 6 at byte 0 is not 4"),
        (0, 0x44, "ipv4: header length 16 at byte 0 is below 20"),
        (0, 0x47, "ipv4: header length 28 at byte 0 exceeds the 24 bytes present"),
        (3, 19, "ipv4: total length 19 at byte 2 is below 20"),
        (3, 25, "ipv4: total length 25 at byte 2 exceeds the 24 bytes present"),
    ];
    for (at, value, text) in cases {
        let mut bad = good;
        bad[at] = value;
        assert_eq!(ipv4::check(&bad).unwrap_err().to_string(), text);
    }
    assert_eq!(ipv4::check(&good), Ok(()));
}

#[test]
fn ipv4_options() {
    let cases: [(&[u8], usize, &str); 9] = [
        (&[1, 1, 0, 0xff], 2, "none"),
        (&[1, 148, 4, 0, 0, 0], 2, "none"),
        (&[1, 148], 1, "ipv4: option length 0 at byte 22 is below 4"),
        (&[0x5e, 1, 0, 0], 0, "ipv4: option length 1 at byte 21 is below 2"),
        (&[0x5e, 5, 0, 0], 0, "ipv4: option length 5 at byte 21 exceeds the 4 bytes present"),
        (&[148, 5, 0, 0, 0], 0, "ipv4: router alert length 5 at byte 21 is not 4"),
        (&[7, 7, 5, 0, 0, 0, 0], 0, "ipv4: route pointer 5 at byte 22 is not 4, 8, 12, ..."),
        (&[7, 6, 4, 0, 0, 0], 0, "ipv4: route option length 6 at byte 21 is not 3 and whole addresses"),
        (&[131, 2, 0, 0], 0, "ipv4: option length 2 at byte 21 is below 3"),
    ];
    for (bytes, good, text) in cases {
        assert_eq!(last(ipv4::Options::new(bytes)), (good, text.to_owned()), "{bytes:?}");
    }
    let route = [131, 11, 8, 10, 0, 0, 1, 10, 0, 0, 2];
    let option = ipv4::Options::new(&route).next().unwrap().unwrap();
    assert_eq!(option, ipv4::Ipv4Option::Route { kind: 131, pointer: 8, data: &route[3..] });
}

#[test]
fn tcp_options() {
    let cases: [(&[u8], usize, &str); 6] = [
        (&[2, 4, 5, 0xb4, 1, 3, 3, 7, 0, 9], 3, "none"),
        (&[1, 2, 3, 0], 1, "tcp: option length 3 at byte 22 is not 4, as a maximum segment size has"),
        (&[254], 0, "tcp: option length 0 at byte 21 is below 2"),
        (&[8, 10, 0, 0], 0, "tcp: option length 10 at byte 21 exceeds the 4 bytes present"),
        (&[5, 4, 0, 0], 0, "tcp: option length 4 at byte 21 is not 10, 18, 26 or 34, as SACK blocks have"),
        (&[4, 2, 4, 3, 0], 1, "tcp: option length 3 at byte 23 is not 2, as a SACK permission has"),
    ];
    for (bytes, good, text) in cases {
        assert_eq!(last(tcp::Options::new(bytes)), (good, text.to_owned()), "{bytes:?}");
    }
}

#[test]
fn ipv6_options() {
    let header = [17, 1, 0, 1, 1, 0, 5, 2, 0, 7, 0xc2, 3, 1, 2, 3, 0];
    let view = ipv6_ext::Packet::new_checked(&header).unwrap();
    let options: Vec<_> = view.options().map(Result::unwrap).collect();
    let expected = [
        ipv6_ext::Ipv6Option::Pad(1),
        ipv6_ext::Ipv6Option::Pad(3),
        ipv6_ext::Ipv6Option::RouterAlert(7),
        ipv6_ext::Ipv6Option::Other { kind: 0xc2, data: &[1, 2, 3] },
        ipv6_ext::Ipv6Option::Pad(1),
    ];
    assert_eq!(options, expected);
    let view = ipv6_ext::Packet::new_checked([17, 0, 0, 1, 3, 0, 0, 0]).unwrap();
    let text = "ipv6-ext: option length 3 at byte 4 exceeds the 3 bytes present";
    assert_eq!(last(view.options()), (2, "none".into()));
    let view = ipv6_ext::Packet::new_checked([17, 0, 0, 1, 4, 0, 0, 0]).unwrap();
    assert_eq!(last(view.options()), (1, text.replace("length 3", "length 4")));
    let view = ipv6_ext::Packet::new_checked([17, 0, 0, 0, 0, 0, 0, 9]).unwrap();
    assert_eq!(last(view.options()).0, 5);
}

#[test]
fn extension_header_chains() {
    let options = |next: Protocol| [next.0, 0, 1, 4, 0, 0, 0, 0];
    let walk = |packet: &[u8]| ipv6_ext::walk(packet).map_err(|error| error.to_string());
    // As many as are followed, and one more.
    let mut chain: Vec<u8> = [options(Protocol::DEST_OPTIONS); 15].concat();
    chain.extend(options(Protocol::UDP));
    let whole = walk(&v6(Protocol::DEST_OPTIONS, &chain)).unwrap();
    assert_eq!((whole.upper, whole.upper_offset, whole.headers), (Protocol::UDP, 40 + 128, 16));
    let longer = [&options(Protocol::DEST_OPTIONS)[..], &chain].concat();
    let text = "ipv6: number of extension headers 17 at byte 160 is not at most 16";
    assert_eq!(walk(&v6(Protocol::DEST_OPTIONS, &longer)), Err(text.into()));
    // Hop-by-hop options stand first or nowhere.
    let late = [options(Protocol::HOP_BY_HOP), options(Protocol::UDP)].concat();
    let text = "ipv6: next header 0 at byte 40 is not allowed but in the fixed header";
    assert_eq!(walk(&v6(Protocol::DEST_OPTIONS, &late)), Err(text.into()));
    // Cut short, and a length that points outside.
    let text = "ipv6-ext: header at byte 40 needs 48 bytes, 47 present";
    assert_eq!(walk(&v6(Protocol::ROUTING, &[17; 7])), Err(text.into()));
    let text = "ipv6-ext: header length 24 at byte 41 exceeds the 8 bytes present";
    assert_eq!(walk(&v6(Protocol::ROUTING, &[17, 2, 0, 0, 0, 0, 0, 0])), Err(text.into()));
    let text = "ipv6-ext: header length 8 at byte 41 is below 12";
    assert_eq!(walk(&v6(Protocol::AH, &[0; 8])), Err(text.into()));
    // A payload length that ends before the header does, though the frame goes on.
    let mut padded = v6(Protocol::FRAGMENT, &[17, 0, 0, 0, 0, 0, 0]);
    padded.extend([0; 20]);
    assert!(walk(&padded).is_err());
}

#[test]
fn fragments_hide_what_follows() {
    let walk = |bytes: &[u8]| ipv6_ext::walk(&v6(Protocol::FRAGMENT, bytes)).unwrap();
    let atomic = walk(&[17, 0, 0, 0, 0, 0, 0, 9, 0, 53, 0, 53]);
    assert!(!atomic.is_fragment() && atomic.upper_offset == 48);
    // The middle of a packet: what looks like another header is data.
    let middle = walk(&[60, 0, 0, 9, 0, 0, 0, 9, 17, 0, 0, 0, 0, 0, 0, 0]);
    assert!(middle.is_fragment());
    assert_eq!((middle.upper, middle.upper_offset), (Protocol::DEST_OPTIONS, 48));
    // An atomic fragment header in front must not hide the second, which is not.
    let second = walk(&[44, 0, 0, 0, 0, 0, 0, 9, 17, 0, 0, 9, 0, 0, 0, 7, 1, 2, 3, 4]);
    assert_eq!(second.fragment.map(|fragment| (fragment.ident, fragment.offset)), Some((7, 8)));
    let frame = v6(Protocol::FRAGMENT, &[17, 0, 0, 1, 0, 0, 0, 9, 0, 53, 0, 54]);
    assert_eq!(flow_key(&frame, 0).unwrap().ports, None, "a first fragment has the key of the later ones");
}

#[test]
fn lengths_bound_payloads() {
    // Ethernet padding behind an IP packet, and IP bytes behind a datagram, are no payload.
    let repr = ipv4::Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Protocol::UDP, 12);
    let mut packet = [0xee; 46];
    repr.emit(&mut packet).unwrap();
    packet[20..32].copy_from_slice(&[0, 1, 0, 2, 0, 10, 0, 0, 7, 8, 9, 9]);
    let view = ipv4::Packet::new_checked(&packet).unwrap();
    assert_eq!(view.payload().len(), 12);
    let udp = udp::Packet::new_checked(view.payload()).unwrap();
    assert_eq!(udp.payload(), [7, 8]);
    let mut bad = packet;
    bad[25] = 13;
    let error = udp::Packet::new_checked(ipv4::Packet::new_checked(&bad).unwrap().payload()).unwrap_err();
    assert_eq!(error.to_string(), "udp: length 13 at byte 4 exceeds the 12 bytes present");
    bad[25] = 7;
    let error = udp::Packet::new_checked(&bad[20..32]).unwrap_err();
    assert_eq!(error.to_string(), "udp: length 7 at byte 4 is below 8");
    // A packet quoted by an ICMP error is cut short and still read.
    assert!(ipv4::Packet::new_checked(&packet[..28]).is_err());
    assert_eq!(ipv4::Packet::new_header_checked(&packet[..28]).unwrap().payload().len(), 8);
    let v6 = v6(Protocol::UDP, &[1, 2, 3]);
    assert!(ipv6::Packet::new_checked(&v6[..42]).is_err());
    assert_eq!(ipv6::Packet::new_header_checked(&v6[..42]).unwrap().payload(), [1, 2]);
}

#[test]
fn neighbour_discovery() {
    let check = |data: &[u8]| ndisc::check(data).map_err(|error| error.to_string());
    assert_eq!(check(&[128, 0, 0, 0, 0, 0, 0, 0]), Err("ndisc: type 128 at byte 0 is not 133 to 137".into()));
    assert_eq!(check(&[133, 1, 0, 0, 0, 0, 0, 0]), Err("ndisc: code 1 at byte 1 is not 0".into()));
    let mut solicit = [0; 28];
    solicit[0] = 135;
    assert_eq!(check(&solicit[..23]), Err("ndisc: message at byte 0 needs 24 bytes, 23 present".into()));
    solicit[24] = 1;
    let view = ndisc::Packet::new_checked(&solicit).unwrap();
    assert_eq!(last(view.options()), (0, "ndisc: option length 0 at byte 25 is below 8".into()));
    solicit[25] = 1;
    let view = ndisc::Packet::new_checked(&solicit).unwrap();
    assert_eq!(last(view.options()).1, "ndisc: option length 8 at byte 25 exceeds the 4 bytes present");
    assert!(ndisc::Repr::parse(&view).is_err());
}
