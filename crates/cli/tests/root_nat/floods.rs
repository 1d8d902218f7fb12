//! A flood of SYNs by forged senders, on a wire: what is open goes on meanwhile, and callers get through when it is over.

use crate::filter::RULES;
use crate::lab::{BOB, Lab, POOL};
use crate::raw::Raw;
use crate::{at, exchange, turn, warm_up};
use etherparse::PacketBuilder;
use std::net::{Ipv6Addr, SocketAddr};

/// Segments of the flood.
const SYNS: u32 = 3000;

/// The box's MAC address, as the provider's router knows it.
fn mac(lab: &Lab, v6: usize) -> [u8; 6] {
    let said = lab.isp.run(&format!("ip neigh show {} dev eth0", POOL[v6]));
    let text = said.split_whitespace().skip_while(|word| *word != "lladdr").nth(1);
    let mut mac = [0; 6];
    for (byte, text) in mac.iter_mut().zip(text.unwrap_or_else(|| panic!("{said}")).split(':')) {
        *byte = u8::from_str_radix(text, 16).unwrap();
    }
    mac
}

/// One from sender number `n`; of IPv6 each has a link of its own.
fn syn(n: u32, mac: [u8; 6], to: SocketAddr) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2; 6], mac);
    let step = match to {
        SocketAddr::V4(to) => link.ipv4((0x0b00_0001 + n).to_be_bytes(), to.ip().octets(), 60),
        SocketAddr::V6(to) => {
            let source = Ipv6Addr::from(0x2001_0db8_0bad_u128 << 80 | u128::from(n) << 64 | 1);
            link.ipv6(source.octets(), to.ip().octets(), 60)
        }
    };
    let mut frame = Vec::new();
    step.tcp(1024 + (n % 60_000) as u16, to.port(), n, 1000).syn().write(&mut frame, &[]).unwrap();
    frame
}

/// Bob's server is called at `to`; `evicted` counts those that have given way.
fn flood(lab: Lab, to: [&str; 2], port: u16, evicted: &str) {
    for v6 in [0, 1] {
        warm_up(&lab, v6);
        let (listener, to) = (lab.bob.listen(at(BOB[v6], 80)), at(to[v6], port));
        let client = lab.far.connect(to);
        let (server, _) = listener.accept().unwrap();
        let (before, mac, raw) = (lab.counters()[evicted], mac(&lab, v6), Raw::open(&lab.isp, "eth0"));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..SYNS).for_each(|n| raw.send(&syn(n, mac, to))));
            exchange(client.try_clone().unwrap(), server.try_clone().unwrap(), 1_000_000);
        });
        let counters = lab.counters_once(|counters| counters[evicted] > before);
        assert!(counters[evicted] > before, "{counters:?}");
        exchange(client, server, 100_000);
        let client = lab.far.connect(to);
        exchange(client, listener.accept().unwrap().0, 100_000);
    }
    lab.end();
}

#[test]
fn a_flood_of_syns_to_a_static_mapping() {
    let Some(_turn) = turn("a_flood_of_syns_to_a_static_mapping") else { return };
    // An eighth of the sessions may wait for an answer.
    flood(Lab::start(1, "mappings = 400\nsessions = 800\n"), POOL, 8080, "sessions-evicted");
}

#[test]
fn a_flood_of_syns_through_a_filter() {
    let Some(_turn) = turn("a_flood_of_syns_through_a_filter") else { return };
    flood(Lab::filter(1, RULES, "half_open = 100\n"), BOB, 80, "half-open-evicted");
}
