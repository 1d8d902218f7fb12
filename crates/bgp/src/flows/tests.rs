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
        (&[[0x80, 8, 0xfb, 0xf0, 0, 1, 0, 1]], "redirect to VRF 64496:65537"),
        (&[[0x82, 8, 0, 0, 0xfb, 0xf0, 0, 1]], "redirect to VRF 64496:1"),
        (&[[0x81, 8, 192, 0, 2, 1, 0, 7]], "redirect to VRF 192.0.2.1:7"),
        (&[[0x80, 8, 0xfb, 0xf0, 0, 0, 0, 1], [0x82, 8, 0, 0, 0xfb, 0xf0, 0, 1]], "redirect to VRF 64496:1"),
        (&[[0x80, 8, 0xfb, 0xf0, 0, 0, 0, 1], [0x80, 8, 0xfb, 0xf0, 0, 0, 0, 2]], "redirect in several ways"),
        (&[[1, 0x0c, 192, 0, 2, 9, 0, 0], rate(6, 5.0)], "5 bytes/s, redirect to 192.0.2.9"),
        (&[[1, 0x0c, 192, 0, 2, 9, 0, 1]], "redirect copies"),
        (&[[8, 0, 0, 0, 0, 0, 0, 0]], "redirect to 198.51.100.1"),
        (&[[8, 0, 0, 0, 0, 0, 0, 1]], "redirect copies"),
        // A route target is none of them.
        (&[[0, 2, 0xfb, 0xf0, 0, 0, 0, 1]], "pass"),
    ];
    let hop = Some(IpAddr::from([198, 51, 100, 1]));
    for (communities, text) in cases {
        assert_eq!(Actions::read(communities, &[], hop).to_string(), *text, "{communities:02x?}");
    }
    assert_eq!(Actions::read(&[[8, 0, 0, 0, 0, 0, 0, 0]], &[], None).redirect, Some(Redirect::Nowhere));
    let six = |sub: u8, low: u8| {
        let mut one = [0; 20];
        (one[1], one[2], one[3], one[17], one[19]) = (sub, 0xfd, 0, 9, low);
        one
    };
    for (communities, text) in [
        (vec![six(0x0c, 0)], "redirect to fd00::9"),
        (vec![six(0x0c, 1)], "redirect copies"),
        (vec![six(0x0d, 5)], "redirect to VRF [fd00::9]:5"),
        (vec![six(0x0d, 5), six(0x0d, 6)], "redirect in several ways"),
        (vec![six(2, 5)], "pass"),
    ] {
        assert_eq!(Actions::read(&[], &communities, None).to_string(), text);
    }
    let none = Actions::read(&[rate(6, f32::NAN)], &[], None);
    assert!(!none.drops() && none.bytes.is_some_and(|rate| rate.per_s().is_nan()));
}

#[test]
fn route_targets_are_read_as_they_are_shown() {
    for text in ["65000:4294967295", "65536:65535", "192.0.2.1:7", "[2001:db8::1]:7", "0:0"] {
        assert_eq!(text.parse::<RouteTarget>().unwrap().to_string(), text);
    }
    for text in
        ["", "65000", "65536:65536", "192.0.2.1:65536", "2001:db8::1:7", "4294967296:1", "a:1", "1:-1"]
    {
        assert!(text.parse::<RouteTarget>().unwrap_err().contains("is no route target"), "{text}");
    }
}

/// RFC 4724, 4.2, of flow specifications: what a peer that is back has not given again goes.
#[test]
fn those_from_before_a_restart_go_by_family() {
    let (mut four, _) = read_all(Cursor::new(&[3, 1, 8, 10, 3, 1, 8, 20]), Family::V4).unwrap();
    let (six, _) = read_all(Cursor::new(&[5, 1, 16, 0, 0x20, 1]), Family::V6).unwrap();
    four.extend(six);
    let attributes = Arc::new(Attributes::new(IpAddr::from([10, 0, 0, 1]), AsPath::default()));
    let given = || Given { attributes: attributes.clone(), actions: Actions::default(), stale: false };
    let mut flows = Flows::default();
    for spec in &four {
        flows.announce(1, spec.clone(), given());
        flows.announce(2, spec.clone(), given());
    }
    flows.mark_stale(1, Family::V4);
    flows.announce(1, four[0].clone(), given());
    let before = flows.revision();
    flows.withdraw_family(1, Family::V6, true);
    assert_eq!((flows.revision(), flows.count(1)), (before, 3), "none of those is stale");
    flows.withdraw_family(1, Family::V4, true);
    assert_ne!(flows.revision(), before);
    let of_one = |flows: &Flows| -> Vec<String> {
        let its = flows.iter().filter(|(_, of_peers)| of_peers.contains_key(&1));
        its.map(|(spec, _)| spec.to_string()).collect()
    };
    assert_eq!(of_one(&flows), ["destination 10.0.0.0/8", "destination 2001::/16"]);
    flows.withdraw_family(1, Family::V6, false);
    assert_eq!((flows.count(1), flows.count(2), of_one(&flows).len()), (1, 3, 1));
}

#[test]
fn each_peer_has_its_own_until_it_goes() {
    let (specs, _) = read_all(Cursor::new(&[3, 1, 8, 10, 3, 1, 8, 20]), Family::V4).unwrap();
    let attributes = Arc::new(Attributes::new(IpAddr::from([10, 0, 0, 1]), AsPath::default()));
    let given = || Given { attributes: attributes.clone(), actions: Actions::default(), stale: false };
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
