//! Who sends from the front what only we may send; and what an operator has added while a new configuration is refused.

use crate::lab::{CLIENT, Lab, SERVER};
use crate::raw::Raw;
use crate::turn;
use etherparse::PacketBuilder;
use std::time::Duration;
use tidemill_wire::verify_checksums;

type Mac = [u8; 6];

/// A packet of UDP to a port, with this traffic class, behind an Ethernet header.
pub(crate) fn udp(link: [Mac; 2], ends: [&str; 2], ports: [u16; 2], class: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let link = PacketBuilder::ethernet2(link[0], link[1]);
    if ends[0].contains(':') {
        let [from, to] = ends.map(|end| end.parse::<std::net::Ipv6Addr>().unwrap().octets());
        link.ipv6(from, to, 64).udp(ports[0], ports[1]).write(&mut frame, payload).unwrap();
        frame[14] |= class >> 4;
        frame[15] |= class << 4;
    } else {
        let [from, to] = ends.map(|end| end.parse::<std::net::Ipv4Addr>().unwrap().octets());
        link.ipv4(from, to, 64).udp(ports[0], ports[1]).write(&mut frame, payload).unwrap();
        frame[15] = class;
        seal(&mut frame[14..34]);
    }
    frame
}

/// Puts the right checksum into an IPv4 header.
pub(crate) fn seal(header: &mut [u8]) {
    header[10..12].fill(0);
    let check = tidemill_wire::checksum::checksum(header);
    header[10..12].copy_from_slice(&check.to_be_bytes());
}

/// This frame's packet in an outer one, of code point 1: granted.
fn dressed(frame: &[u8], from: &str, to: &str) -> Vec<u8> {
    let inner = &frame[14..];
    let mut outer = frame[..14].to_vec();
    if from.contains(':') {
        outer.extend([0x60, 0x40, 0, 0]);
        outer.extend((inner.len() as u16).to_be_bytes());
        outer.extend([41, 255]);
        for end in [from, to] {
            outer.extend(end.parse::<std::net::Ipv6Addr>().unwrap().octets());
        }
    } else {
        outer.extend([0x45, 4]);
        outer.extend((inner.len() as u16 + 20).to_be_bytes());
        outer.extend([0, 0, 0x40, 0, 64, 4, 0, 0]);
        for end in [from, to] {
            outer.extend(end.parse::<std::net::Ipv4Addr>().unwrap().octets());
        }
        seal(&mut outer[14..34]);
    }
    outer.extend(inner);
    outer
}

/// A Grantor believes an outer packet of a Gatekeeper's address. From the front none reaches it; and what is routed to where nobody asks has no code point of ours.
#[test]
fn strangers_do_not_pass_for_a_gatekeeper() {
    let Some(_turn) = turn("strangers_do_not_pass_for_a_gatekeeper") else { return };
    let lab = Lab::start("");
    let client = Raw::open(&lab.client, "eth0");
    let behind = Raw::open(&lab.behind, "eth0");
    let macs = lab.macs();
    for v6 in [0, 1] {
        // Addresses are found out.
        assert!((0..20).any(|_| lab.pings(v6)), "no ping comes back");
        let grantor = ["10.8.0.2", "fd00:8::2"][v6];
        assert!((0..20).any(|_| lab.client.attempt(&format!("ping -c 1 -W 1 {grantor}")).0));
        lab.grantor.came.lock().unwrap().clear();
        let inner = udp(macs, [CLIENT[v6], SERVER[v6]], [9, 9], 0, b"let me in");
        // From where another Gatekeeper could be.
        let forged = dressed(&inner, ["10.8.0.77", "fd00:8::77"][v6], grantor);
        verify_checksums(&forged).unwrap();
        let dropped = 2 * v6 as u64;
        client.send(&forged);
        client.send(&udp(macs, [CLIENT[v6], grantor], [41120, 41120], 0, b"are you there?"));
        lab.reaches("tunnel-forged", dropped + 2);
        assert!(lab.grantor.came.lock().unwrap().is_empty(), "it came to the Grantor");

        // In the gate's own name, to where no policy knows a Grantor.
        client.send(&dressed(&inner, ["10.8.0.1", "fd00:8::1"][v6], ["10.8.0.77", "fd00:8::77"][v6]));
        lab.reaches("source-ours", v6 as u64 + 1);

        // The class of requests, and a congestion mark: only the mark is left.
        let class = 41 << 2 | 1;
        client.send(&udp(macs, [CLIENT[v6], grantor], [9, 7777], class, b"urgent"));
        let arrived = std::iter::from_fn(|| behind.receive(Duration::from_secs(2)))
            .find(|frame| frame.bytes.ends_with(b"urgent"))
            .expect("it is routed");
        verify_checksums(&arrived.bytes).unwrap();
        let class = [arrived.bytes[15], arrived.bytes[14] << 4 | arrived.bytes[15] >> 4][v6];
        assert_eq!(class, 1, "{v6}");
    }
    let said = lab.end();
    assert_eq!(said["dropped"]["tunnel-forged"], 4, "{said}");
    assert_eq!(said["gate"]["source-ours"], 2, "{said}");
}

/// The router refuses what it would have to be restarted for. What was added through the API is there afterwards, and works.
#[test]
fn a_refused_reload_keeps_what_was_added() {
    let Some(_turn) = turn("a_refused_reload_keeps_what_was_added") else { return };
    let lab = Lab::start("");
    for (prefix, grantor) in [("10.57.0.0/24", "10.8.0.2"), ("fd00:57::/64", "fd00:8::2")] {
        lab.ask(&["gate", "fib", "--add", prefix, "--grantor", grantor]);
    }
    lab.ask(&["gate", "grant", CLIENT[0], "10.57.0.7", "--rate", "100"]);
    let before = lab.ask(&["gate", "fib"]);
    let good = lab.config();
    for wrong in
        ["[[queue]]\nport = \"lan\"\nbandwidth = \"1 Gbps\"\n", "[neighbors]\nlimit = 4096\n", "[[route]]\n"]
    {
        lab.configure(&format!("{good}{wrong}").replace("10.9.0.0/24\"\naction", "10.9.0.0/25\"\naction"));
        let (ok, said) = lab.run(&["reload"]);
        assert!(!ok, "{said}");
        assert_eq!(lab.ask(&["gate", "fib"]), before, "{said}");
    }
    let flow = lab.ask(&["gate", "flow", CLIENT[0], "10.57.0.7"]);
    assert!(flow.contains("100 KiB/s"), "{flow}");
    // One that is taken takes it away.
    lab.configure(&good.replace("10.9.0.0/24\"\naction", "10.9.0.0/25\"\naction"));
    lab.ask(&["reload"]);
    let after = lab.ask(&["gate", "fib"]);
    assert!(after.contains("10.9.0.0/25") && !after.contains("10.57.0.0/24"), "{after}");
    // An interface and the gate's use of it come together.
    let more = "[[interface]]\nport = \"lan\"\nvlan = 9\naddresses = [\"10.11.0.1/24\"]\n";
    lab.configure(&format!("{good}{more}").replace("front = [\"wan\"]", "front = [\"wan\", \"lan.9\"]"));
    lab.ask(&["reload"]);
    lab.end();
}
