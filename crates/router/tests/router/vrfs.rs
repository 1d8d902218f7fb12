//! VRFs: tables of their own behind one port, its VLANs mixed in one burst.

use crate::lab::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_lpm::Prefix;

/// `lan` is in the VRF without a name, its VLANs 1 and 2 in `blue` and `red`; all have the same addresses.
fn links() -> String {
    let mut text = "[[interface]]\nport='wan'\n".to_string();
    for (more, name) in [("", "lan"), ("vlan=1\nvrf='blue'", "lan.1"), ("vlan=2\nvrf='red'", "lan.2")] {
        text += &format!(
            "[[interface]]\nport='lan'\nresolve=true\naddresses=['10.1.0.1/24','fd01::1/64']\n{more}\n"
        );
        for address in ["10.1.0.9", "fd01::9"] {
            let mac = mac(name.as_bytes()[name.len() - 1]);
            text += &format!("[[neighbors.fixed]]\ninterface='{name}'\naddress='{address}'\nmac='{mac}'\n");
        }
    }
    text
}

const VRFS: [&str; 3] = ["", "blue", "red"];

fn on(vrf: usize, frame: Vec<u8>) -> Vec<u8> {
    if vrf == 0 { frame } else { tag(&frame, vrf as u16) }
}

#[test]
fn every_packet_of_a_mixed_burst_follows_its_own_table() {
    for v6 in [false, true] {
        let mut rng = StdRng::seed_from_u64(7);
        let mut text = links();
        let mut oracle: Vec<HashMap<Prefix<u128>, (u8, u8)>> = vec![HashMap::new(); 3];
        // Addresses of either family are 20.x.y.z or 2000:..., told apart by few bits, so that prefixes overlap.
        let address = |rng: &mut StdRng| -> u128 {
            let bits = u128::from(rng.random::<u32>() & 0x0f0f_0f0f);
            if v6 { 0x2001 << 112 | bits << 64 } else { 0x14 << 24 | (bits & 0xff_ffff) }
        };
        let show = |address: u128| match v6 {
            true => Ipv6Addr::from(address).to_string(),
            false => Ipv4Addr::from(address as u32).to_string(),
        };
        let wide = |address: u128, len: u8| match v6 {
            true => Prefix::<u128>::new(address, len).unwrap(),
            false => Prefix::<u128>::new(address << 96, len).unwrap(),
        };
        for n in 0..120u8 {
            let vrf = usize::from(n % 3);
            let len = if v6 { rng.random_range(37..=64) } else { rng.random_range(13..=32) };
            let prefix = wide(address(&mut rng), len);
            if oracle[vrf].contains_key(&prefix) {
                continue;
            }
            oracle[vrf].insert(prefix, (vrf as u8, n));
            let to = if v6 { prefix.first() } else { prefix.first() >> 96 };
            let vrf = if vrf == 0 { String::new() } else { format!("vrf='{}'\n", VRFS[vrf]) };
            text += &format!(
                "[[route]]\nprefix='{}/{len}'\nport='wan'\nmac='02:cc:00:00:{:02x}:{n:02x}'\n{vrf}",
                show(to),
                n % 3
            );
        }
        let mut lab = Lab::new(&text);
        let src = if v6 { "fd01::9" } else { "10.1.0.9" };
        let mut expected = HashMap::new();
        for id in 1..=2000u16 {
            let (vrf, dst) = (rng.random_range(0..3), address(&mut rng));
            lab.receive(LAN, on(vrf, datagram(0, src, &show(dst), (id, 9))));
            let key = if v6 { dst } else { dst << 96 };
            let best =
                oracle[vrf].iter().filter(|(prefix, _)| prefix.contains(key)).max_by_key(|(p, _)| p.len());
            expected.extend(best.map(|(_, mac)| (id, *mac)));
        }
        for _ in 0..10 {
            lab.turn();
        }
        let l4 = if v6 { 54 } else { 34 };
        let sent = lab.sent(WAN);
        let found: HashMap<u16, (u8, u8)> = sent
            .iter()
            .map(|frame| (u16::from_be_bytes([frame[l4], frame[l4 + 1]]), (frame[4], frame[5])))
            .collect();
        assert_eq!(found, expected, "IPv6: {v6}");
        assert!(expected.len() > 300 && expected.len() < 2000, "{}", expected.len());
        assert_eq!(sent.len(), expected.len());
        lab.end();
    }
}

#[test]
fn errors_and_answers_stay_in_the_vrf() {
    let red = "[[interface]]\nport='dmz'\nresolve=true\nvrf='red'\naddresses=['10.3.0.1/24']\n\
               [[route]]\nprefix='20.0.0.0/8'\nvrf='blue'\nkind='unreachable'\n";
    let mut lab = Lab::new(&format!("{}{red}", links()));
    lab.settle();
    for (vrf, who) in [(0, b'n'), (1, b'1'), (2, b'2')] {
        // Unreachable in blue, no route elsewhere: told by the same address in each, to a host with the same one.
        lab.play(LAN, on(vrf, datagram(0, "10.1.0.9", "20.0.0.1", (1, 2))));
        let sent = lab.sent(LAN);
        assert_eq!(sent.len(), 1, "VRF {vrf}");
        assert_eq!((sent[0][5], sent[0][12..14] == [0x81, 0]), (who, vrf != 0));
        let l3 = if vrf == 0 { 14 } else { 18 };
        assert_eq!(sent[0][l3 + 12..l3 + 16], [10, 1, 0, 1]);
        assert_eq!(sent[0][l3 + 20..l3 + 22], [3, u8::from(vrf == 1)], "host or network unreachable");
    }
    // Red's other address is ours in red only.
    for vrf in 0..3 {
        lab.play(LAN, on(vrf, datagram(0, "10.1.0.9", "10.3.0.1", (1, 2))));
        let line = lab.lines(LAN).concat();
        assert!(line.contains("10.3.0.1"), "{line}");
        let local = lab.route(VRFS[vrf], "10.3.0.1");
        assert_eq!(local.starts_with("own 10.3.0.1/32"), vrf == 2, "{local}");
    }
    assert_eq!(lab.drops(), "no-listener=1 no-route=4 unreachable=1");
    lab.end();
}
