use super::*;
use crate::flowspec::read_all;
use crate::path::AsPath;
use std::net::IpAddr;
use tidemill_feed::bgp::{Cursor, Family};

fn rate(sub: u8, per_s: f32) -> [u8; 8] {
    let [a, b, c, d] = per_s.to_be_bytes();
    [0x80, sub, 0, 0, a, b, c, d]
}

/// RFC 8955, 7.
#[test]
fn extended_communities_say_what_becomes_of_packets() {
    let cases: &[(&[[u8; 8]], &str)] = &[
        (&[], "pass"),
        (&[rate(6, 0.0)], "drop"),
        (&[rate(6, -1.0)], "drop"),
        (&[rate(0x0c, 0.0)], "drop"),
        (&[rate(6, 1000.0), rate(6, 2000.0)], "1000 bytes/s"),
        (&[rate(6, 2000.0), rate(6, 1000.0), rate(0x0c, 10.0)], "1000 bytes/s, 10 packets/s"),
        (&[[0x80, 9, 0, 0, 0, 0, 0, 0xc8]], "DSCP 8"),
        (&[[0x80, 7, 0, 0, 0, 0, 0, 1], rate(6, 5.0)], "5 bytes/s, go on"),
        (&[[0x80, 7, 0, 0, 0, 0, 0, 2]], "sample"),
        (&[[0x80, 8, 0xfb, 0xf0, 0, 0, 0, 1]], "redirect"),
        (&[[0x82, 8, 0, 0, 0xfb, 0xf0, 0, 1]], "redirect"),
        // A route target is none of them.
        (&[[0, 2, 0xfb, 0xf0, 0, 0, 0, 1]], "pass"),
    ];
    for (communities, text) in cases {
        assert_eq!(Actions::read(communities, false).to_string(), *text, "{communities:02x?}");
    }
    assert_eq!(Actions::read(&[], true).to_string(), "redirect");
    let none = Actions::read(&[rate(6, f32::NAN)], false);
    assert!(!none.drops() && none.bytes.is_some_and(|rate| rate.per_s().is_nan()));
}

#[test]
fn each_peer_has_its_own_until_it_goes() {
    let (specs, _) = read_all(Cursor::new(&[3, 1, 8, 10, 3, 1, 8, 20]), Family::V4).unwrap();
    let attributes = Arc::new(Attributes::new(IpAddr::from([10, 0, 0, 1]), AsPath::default()));
    let given = || Given { attributes: attributes.clone(), actions: Actions::default() };
    let mut flows = Flows::default();
    flows.announce(1, specs[0].clone(), given());
    flows.announce(1, specs[0].clone(), given());
    flows.announce(1, specs[1].clone(), given());
    flows.announce(2, specs[0].clone(), given());
    assert_eq!((flows.count(1), flows.count(2), flows.iter().count()), (2, 1, 2));
    let before = flows.revision();
    flows.withdraw(2, &specs[1]);
    flows.withdraw_all(3);
    assert_eq!(flows.revision(), before, "nothing has changed");
    flows.withdraw_all(1);
    assert_ne!(flows.revision(), before);
    assert_eq!((flows.count(1), flows.count(2), flows.iter().count()), (0, 1, 1));
    flows.withdraw(2, &specs[0]);
    assert_eq!((flows.count(2), flows.iter().count()), (0, 0));
}
