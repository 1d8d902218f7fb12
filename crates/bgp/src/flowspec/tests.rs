use super::*;
use crate::testing::prefix;

/// The one in these bytes, which are those of an attribute.
fn one(bytes: &[u8], family: Family) -> FlowSpec {
    let (list, malformed) = read_all(Cursor::new(bytes), family).unwrap();
    assert_eq!((list.len(), malformed), (1, 0), "{bytes:02x?}");
    let mut again = Vec::new();
    list[0].put(&mut again);
    assert_eq!(again, bytes);
    list[0].clone()
}

/// RFC 8955, 4.3.
#[test]
fn the_examples_of_ipv4_are_read() {
    let mail = one(&[0x0b, 1, 24, 192, 0, 2, 3, 0x81, 6, 4, 0x81, 25], Family::V4);
    assert_eq!(mail.to_string(), "destination 192.0.2.0/24, protocol =6, port =25");
    assert_eq!(mail.destination(), Some(prefix("192.0.2.0/24")));
    let ports = [0x12, 1, 24, 192, 0, 2, 2, 24, 203, 0, 113, 4, 0x03, 0x89, 0x45, 0x8b, 0x91, 0x1f, 0x90];
    let ports = one(&ports, Family::V4);
    let text = "destination 192.0.2.0/24, source 203.0.113.0/24, port >=137 & <=139 | =8080";
    assert_eq!(ports.to_string(), text);
    let Some(Component::Number(Number::Port, list)) = ports.components().nth(2) else { panic!("{ports:?}") };
    let held: Vec<u64> = (0..=65_535).filter(|port| number_holds(list, *port)).collect();
    assert_eq!(held, [137, 138, 139, 8080]);
    let fragments = one(&[0x09, 1, 32, 192, 0, 2, 1, 12, 0x80, 5], Family::V4);
    assert_eq!(fragments.to_string(), "destination 192.0.2.1/32, fragment any of 0x5");
    assert_eq!(fragments.operators(), 2);
}

/// RFC 8956, 3.8: an offset of 64, and one that is no whole byte.
#[test]
fn the_examples_of_ipv6_are_read() {
    let begin = [0x12, 1, 0x20, 0, 0x20, 1, 0x0d, 0xb8];
    let end = [3, 0x81, 6];
    for (offset, given) in [(64, [0x12, 0x34, 0x56, 0x78, 0x9a]), (65, [0x24, 0x68, 0xac, 0xf1, 0x34])] {
        let bytes = [&begin[..], &[2, 0x68, offset], &given, &end].concat();
        let spec = one(&bytes, Family::V6);
        let source = Component::Source(prefix("::1234:5678:9a00:0/104"), offset);
        assert_eq!(spec.components().nth(1), Some(&source));
        assert_eq!(spec.destination(), Some(prefix("2001:db8::/32")));
    }
    // A destination from a bit on is none that a route could lead to.
    let spec = one(&[4, 1, 16, 8, 0xb8], Family::V6);
    assert_eq!((spec.destination(), spec.to_string()), (None, "destination b8::/16 from bit 8".into()));
}

#[test]
fn what_is_malformed_costs_itself_alone() {
    let good = [5, 1, 24, 192, 0, 2];
    for bad in [
        // None; a type that is not known, or not of IPv4; twice; the wrong order; a prefix that is too long, or cut off.
        &[0][..],
        &[3, 14, 0x81, 6],
        &[3, 13, 0x81, 6],
        &[6, 3, 0x81, 6, 3, 0x81, 6],
        &[6, 4, 0x81, 6, 3, 0x81, 6],
        &[6, 1, 33, 192, 0, 2, 1],
        &[4, 1, 24, 192, 0],
        // No last operator; one without its value.
        &[3, 3, 0x01, 6],
        &[2, 3, 0x81],
    ] {
        let bytes = [&good[..], bad, &good].concat();
        let (list, malformed) = read_all(Cursor::new(&bytes), Family::V4).unwrap();
        assert_eq!((list.len(), malformed), (2, 1), "{bad:02x?}");
    }
    for bad in [&[3, 1, 8, 8][..], &[3, 1, 0, 1], &[3, 1, 129, 0]] {
        let (list, malformed) = read_all(Cursor::new(bad), Family::V6).unwrap();
        assert_eq!((list.len(), malformed), (0, 1), "{bad:02x?}");
    }
    // Where the next one begins is not known then.
    for bad in [&[6, 1, 24, 192, 0, 2][..], &[0xf0], &[0xf1, 0, 1]] {
        assert!(read_all(Cursor::new(bad), Family::V4).is_err(), "{bad:02x?}");
    }
}

#[test]
fn long_ones_have_two_bytes_of_length() {
    let mut bytes = vec![0xf1, 0x2d, 4];
    for port in 0..150_u8 {
        bytes.extend_from_slice(&[if port == 149 { 0x81 } else { 0x01 }, port]);
    }
    assert_eq!(bytes.len(), 2 + 0x12d);
    assert_eq!(one(&bytes, Family::V4).operators(), 150);
}

#[test]
fn and_binds_more_than_or() {
    let number = |and, less, greater, equal, value| Comparison { and, less, greater, equal, value };
    // 1, or above 5 and below 8, or above 100.
    let list = [
        number(false, false, false, true, 1),
        number(false, false, true, false, 5),
        number(true, true, false, false, 8),
        number(false, false, true, false, 100),
    ];
    let held: Vec<u64> = (0..103).filter(|number| number_holds(&list, *number)).collect();
    assert_eq!(held, [1, 6, 7, 101, 102]);
    let bits = |and, not, all, value| BitTest { and, not, all, value };
    // A SYN without an ACK.
    let list = [bits(false, false, true, 2), bits(true, true, false, 0x10)];
    let held: Vec<u64> = (0..0x20).filter(|flags| bits_hold(&list, *flags)).collect();
    assert_eq!(held, [2, 3, 6, 7, 0xa, 0xb, 0xe, 0xf]);
    let list = [bits(false, true, true, 3), bits(false, false, false, 8)];
    assert_eq!((0..16).filter(|flags| !bits_hold(&list, *flags)).collect::<Vec<_>>(), [3, 7]);
}

/// RFC 8955, 5.1: in this order, whichever way it is asked.
#[test]
fn the_order_is_that_of_the_text() {
    let list: Vec<FlowSpec> = [
        // The longer prefix before the one around it, whatever follows; the lower address; no destination last.
        &[6, 1, 32, 10, 0, 0, 1][..],
        &[8, 1, 24, 10, 0, 0, 3, 0x81, 6],
        &[5, 1, 24, 10, 0, 0],
        &[3, 1, 8, 10],
        &[3, 1, 8, 20],
        &[2, 1, 0],
        &[3, 2, 8, 10],
        // By bytes, and the longer of two that begin alike.
        &[3, 3, 0x81, 6],
        &[3, 3, 0x81, 17],
        &[6, 4, 0x81, 1, 5, 0x81, 1],
        &[3, 4, 0x81, 1],
    ]
    .into_iter()
    .map(|bytes| one(bytes, Family::V4))
    .collect();
    for (n, a) in list.iter().enumerate() {
        for (m, b) in list.iter().enumerate() {
            assert_eq!(a.precedence(b), n.cmp(&m), "{a}; {b}");
        }
    }
}
