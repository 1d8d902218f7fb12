//! Equal-cost next hops of a running router: which flows go where, and which move.

use crate::common::{LAN as LAN_MAC, frame, ip4};
use crate::lab::*;
use std::collections::BTreeMap;
use tidemill_router::RouterConfig;
use tidemill_wire::{EtherType, Protocol};

const GATEWAYS: [(&str, &str, u8); 3] =
    [("wan", "10.2.0.9", 1), ("dmz", "10.3.0.9", 2), ("wan.7", "10.7.0.9", 3)];

/// Weights 1, 3 and 4; the gateways in `alive` are known.
fn config(alive: [bool; 3]) -> String {
    let mut text = format!("{LINKS}{}", fixed_host());
    for ((interface, address, n), _) in GATEWAYS.iter().zip(alive).filter(|(_, alive)| *alive) {
        let mac = mac(*n);
        text += &format!("[[neighbors.fixed]]\ninterface='{interface}'\naddress='{address}'\nmac='{mac}'\n");
    }
    text + "[[route]]\nprefix='20.0.0.0/8'\nvia=['10.2.0.9','10.3.0.9@3','10.7.0.9@4']\n"
}

fn reload(lab: &mut Lab, alive: [bool; 3]) {
    let config: RouterConfig = toml::from_str(&config(alive)).unwrap();
    let now_ns = lab.now_ns();
    lab.control.reload(now_ns, &config).unwrap();
    lab.settle();
    (0..3).for_each(|port| drop(lab.sent(port)));
}

const FLOWS: u16 = 4000;

/// The gateway that each of many flows goes by; what was asked for meanwhile does not count.
fn spread(lab: &mut Lab) -> BTreeMap<u16, u8> {
    let mut found = BTreeMap::new();
    for some in (0..FLOWS).collect::<Vec<_>>().chunks(500) {
        some.iter().for_each(|n| lab.receive(LAN, datagram(0, "10.1.0.9", "20.1.2.3", (*n, 53))));
        lab.settle();
        for frame in [lab.sent(WAN), lab.sent(DMZ)].concat() {
            let l3 = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
            if frame[l3 - 2..l3] == [8, 0] {
                let port = u16::from_be_bytes([frame[l3 + 20], frame[l3 + 21]]);
                assert_eq!(found.insert(port, frame[5]), None, "sent twice");
            }
        }
    }
    found
}

fn counts(flows: &BTreeMap<u16, u8>) -> [usize; 3] {
    [1, 2, 3].map(|n| flows.values().filter(|gateway| **gateway == n).count())
}

#[test]
fn flows_stick_and_only_those_of_a_dead_gateway_move() {
    let mut lab = Lab::new(&config([true; 3]));
    lab.settle();
    let first = spread(&mut lab);
    let [a, b, c] = counts(&first);
    assert!(a.abs_diff(500) < 80 && b.abs_diff(1500) < 120 && c.abs_diff(2000) < 120, "{a} {b} {c}");
    assert_eq!(spread(&mut lab), first, "flows stick");

    reload(&mut lab, [true, false, true]);
    let without = spread(&mut lab);
    assert_eq!(without.len(), usize::from(FLOWS));
    for (flow, gateway) in &first {
        assert!(without[flow] == *gateway || *gateway == 2, "flow {flow} moved");
        assert_ne!(without[flow], 2);
    }
    let [a, _, c] = counts(&without);
    assert!(a.abs_diff(800) < 120 && c.abs_diff(3200) < 120, "by weight: {a} {c}");

    reload(&mut lab, [true; 3]);
    let again = spread(&mut lab);
    let [a, b, c] = counts(&again);
    assert!(a.abs_diff(500) < 80 && b.abs_diff(1500) < 120 && c.abs_diff(2000) < 120, "{a} {b} {c}");
    assert!(
        again.iter().all(|(flow, gateway)| *gateway == 2 || without[flow] == *gateway),
        "no others moved"
    );
    assert_eq!(lab.drops(), "");
    lab.end();
}

#[test]
fn fragments_of_one_packet_stay_together() {
    let mut lab = Lab::new(&config([true; 3]));
    lab.settle();
    let mut used = [0; 4];
    for n in 0..40 {
        let dst = format!("20.1.2.{n}");
        for (more, offset) in [(true, 0), (true, 64), (false, 128)] {
            // Behind the first one there are no ports, but something in their place.
            let payload = [[n, 7, offset as u8, more as u8].repeat(16)].concat();
            let ip =
                ip4("10.1.0.9", &dst, Protocol::UDP, &payload, |ip| ip.set_fragment(false, more, offset));
            lab.receive(LAN, frame(LAN_MAC, EtherType::IPV4, &ip));
        }
        lab.turn();
        let sent = [lab.sent(WAN), lab.sent(DMZ)].concat();
        let gateways: Vec<_> = sent.iter().map(|frame| frame[5]).collect();
        assert_eq!(gateways, [gateways[0]; 3]);
        used[usize::from(gateways[0])] += 1;
    }
    assert!(used[2] > 3 && used[3] > 3, "spread all the same: {used:?}");
    lab.end();
}

#[test]
fn with_no_gateway_known_packets_wait_and_then_go_by_whoever_answers() {
    let mut lab = Lab::new(&config([false; 3]));
    lab.settle();
    assert_eq!((lab.sent(WAN).len(), lab.sent(DMZ).len()), (2, 1), "all are asked for");
    lab.play(LAN, datagram(0, "10.1.0.9", "20.1.2.3", (1, 53)));
    assert_eq!((lab.sent(WAN).len(), lab.sent(DMZ).len(), lab.drops()), (0, 0, String::new()));
    lab.play(DMZ, answer(2, (mac(2), "10.3.0.9"), "10.3.0.1"));
    lab.sent(DMZ);
    let all = spread(&mut lab);
    assert_eq!(counts(&all), [0, usize::from(FLOWS), 0]);
    lab.play(WAN, answer(1, (mac(1), "10.2.0.9"), "10.2.0.1"));
    lab.play(WAN, tag(&answer(1, (mac(3), "10.7.0.9"), "10.7.0.1"), 7));
    (0..3).for_each(|port| drop(lab.sent(port)));
    let [a, b, c] = counts(&spread(&mut lab));
    assert!(a.abs_diff(500) < 80 && b.abs_diff(1500) < 120 && c.abs_diff(2000) < 120, "{a} {b} {c}");
    // Nobody is there any more: the senders know.
    lab.wait(80.0);
    lab.sent(LAN);
    lab.play(LAN, datagram(0, "10.1.0.9", "20.1.2.3", (1, 53)));
    lab.wait(4.0);
    assert!(lab.lines(LAN).concat().contains("unreachable"));
    lab.end();
}
