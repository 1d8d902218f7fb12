//! `coalesce_tcp`: nobody behind the router can tell whether it is on.

use crate::common::*;
use std::collections::BTreeMap;
use tidemill_port::memory::{Frame, capture};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, Protocol, flow_key, icmpv4, ipv4, ipv6, verify_checksums};

const A: &str = "30.0.0.5";
const B: &str = "20.1.2.3";
const A6: &str = "2001:30::5";
const B6: &str = "2001:20::3";
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// A frame of a flow over IPv4 that is told by its port.
fn segment4(dst: &str, port: u16, seq: u32, len: usize, ident: u16, dont_fragment: bool, flags: u8) -> Frame {
    let pseudo = Pseudo::V4 { src: A.parse().unwrap(), dst: dst.parse().unwrap() };
    let tcp = tcp(pseudo, port, seq, flags, &vec![seq as u8; len]);
    let edit = |ip: &mut ipv4::Packet<&mut Vec<u8>>| {
        ip.set_ident(ident);
        ip.set_fragment(dont_fragment, false, 0);
    };
    input(frame(LAN, EtherType::IPV4, &ip4(A, dst, Protocol::TCP, &tcp, edit)))
}

fn segment6(port: u16, seq: u32, len: usize, flags: u8, hops: u8) -> Frame {
    let pseudo = Pseudo::V6 { src: A6.parse().unwrap(), dst: B6.parse().unwrap() };
    let tcp = tcp(pseudo, port, seq, flags, &vec![seq as u8; len]);
    let edit = |ip: &mut ipv6::Packet<&mut Vec<u8>>| ip.set_hop_limit(hops);
    input(frame(LAN, EtherType::IPV6, &ip6(A6, B6, Protocol::TCP, &tcp, edit)))
}

/// Four segments of a flow to `dst`.
fn run4(dst: &str, port: u16, len: usize, dont_fragment: bool) -> Vec<Frame> {
    let segment = |n: u16| {
        let (seq, flags) = (u32::from(n) * len as u32, if n == 3 { ACK | PSH } else { ACK });
        segment4(dst, port, seq, len, 500 + n, dont_fragment, flags)
    };
    (0..4).map(segment).collect()
}

/// Frames sent, by port and flow: in order in each flow. The router's own packets are a flow, without the numbers that it
/// gives them.
fn by_flow(run: &Run) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut flows = BTreeMap::<String, Vec<Vec<u8>>>::new();
    for (port, frames) in run.sent.iter().enumerate() {
        for frame in frames {
            verify_checksums(frame).ok();
            let l2 = L2::parse(frame).unwrap();
            let mut frame = frame.clone();
            let ip = &mut frame[l2.l3_offset..];
            if ipv4::version(ip) == 4 && ipv4::protocol(ip) == Protocol::ICMP {
                ip[4..6].fill(0);
                ip[10..12].fill(0);
            }
            let key = format!("{port} {:?}", flow_key(&frame, l2.l3_offset));
            flows.entry(key).or_default().push(frame);
        }
    }
    flows
}

/// Runs frames through a router with and without, and compares. Returns the one with, and how many segments were merged away.
fn both(config: &str, frames: &[Frame]) -> (Run, u64) {
    let run = |on: bool| {
        let v4 = routes(&[("20.0.0.0/8", 2), ("30.0.0.0/8", 1)]);
        let v6 = routes(&[("2001:20::/32", 2), ("2001:30::/32", 1)]);
        let rates = "router.icmp_rate_per_s = 1000000\nrouter.icmp_rate_per_prefix_per_s = 1000000\n";
        let config = format!("router.coalesce_tcp = {on}\n{rates}{config}");
        Router::new(&config, v4, v6).run_with(frames.to_vec(), 2048, |_| {})
    };
    let (off, on) = (run(false), run(true));
    assert_eq!(on.drops(), off.drops());
    let (before, after) = (off.snapshot.ledger(), on.snapshot.ledger());
    assert_eq!((after.received, after.out), (before.received, before.out));
    assert_eq!(after.consumed - before.consumed, after.made - before.made, "what was merged was cut again");
    assert!(by_flow(&on) == by_flow(&off), "every flow left as it would have");
    let merged = after.consumed - before.consumed;
    (on, merged)
}

fn config(mtu: usize) -> String {
    format!(
        "next_hops.ports = ['wan', 'lan']\n[[interface]]\nport = 'lan'\naddresses = ['10.0.0.1/24', '2001:470::1/64']\n\
         mtu = 9000\n[[interface]]\nport = 'wan'\nmtu = {mtu}\n"
    )
}

#[test]
fn segments_leave_as_they_came() {
    let mut frames = Vec::new();
    for n in 0..4 {
        for port in 1..5 {
            let flags = if n == 3 { ACK | PSH } else { ACK };
            frames.push(segment4(B, port, n * 1000, 1000, 7 + n as u16, true, flags));
            frames.push(segment6(port, n * 1000, 1000, flags, 64));
        }
    }
    // Behind long packets of their flows: an acknowledgement, and another run.
    for port in 1..5 {
        frames.push(segment4(B, port, 4000, 0, 11, true, ACK));
        frames.extend((4..6).map(|n| segment4(B, port, n * 1000, 1000, 8 + n as u16, true, ACK)));
        frames.push(input(udp4(A, B, b"x", |_| {})));
    }
    let (run, merged) = both(&config(1500), &frames);
    assert_eq!(merged, 8 * 3 + 4);
    assert_eq!(run.sent[1].len(), frames.len());
    assert!(run.sent[1].iter().all(|frame| verify_checksums(frame).is_ok()));
}

#[test]
fn a_links_mtu_is_for_segments() {
    let frames = [run4(B, 1, 960, true), run4(B, 2, 961, true), run4(B, 3, 2000, false)].concat();
    // 1000 bytes fit with both headers; 1001 do not, and each segment is told of; without DF each becomes fragments.
    let (run, merged) = both(&config(1000), &frames);
    assert_eq!((merged, run.drops().as_str()), (9, "too-big=4"));
    assert_eq!((run.sent[0].len(), run.sent[1].len()), (4, 4 + 4 * 3));
    for (frame, segment) in run.sent[0].iter().zip(0u32..) {
        let error = icmpv4::Packet::new_checked(&frame[34..]).unwrap();
        assert_eq!(error.kind(), icmpv4::kind::DEST_UNREACHABLE);
        let quoted = &frame[42..];
        assert_eq!(usize::from(ipv4::total_len(quoted)), 1001);
        assert_eq!(quoted[24..28], (segment * 961).to_be_bytes(), "each quotes its own segment");
    }
}

#[test]
fn errors_and_answers_are_those_of_each_segment() {
    let mut frames = [run4("99.0.0.1", 1, 100, true), run4("10.0.0.1", 2, 100, true)].concat();
    frames.extend((0..4).map(|n| segment6(3, n * 100, 100, ACK, 1)));
    frames.extend((0..4).map(|n| segment6(4, n * 100, 100, ACK, 2)));
    let (run, merged) = both(&config(1500), &frames);
    // No route, resets from ourselves, and what expires, which is not merged.
    assert_eq!((merged, run.drops().as_str()), (9, "no-route=4 ttl-expired=4"));
    assert_eq!((run.sent[0].len(), run.sent[1].len()), (12, 4));
}

#[test]
fn tags_come_and_go() {
    let config = "next_hops.ports = ['wan.7', 'lan']\n[[interface]]\nport = 'lan'\naddresses = ['10.0.0.1/24']\n\
                  [[interface]]\nport = 'lan'\nvlan = 5\naddresses = ['10.5.0.1/24']\n[[interface]]\nport = 'wan'\n\
                  [[interface]]\nport = 'wan'\nvlan = 7\n";
    let tag = |mut input: Frame| {
        input.bytes.splice(12..12, [0x81, 0, 0, 5]);
        input
    };
    let frames: Vec<_> =
        run4(B, 1, 500, true).into_iter().chain(run4(B, 2, 500, true).into_iter().map(tag)).collect();
    let (run, merged) = both(config, &frames);
    assert_eq!(merged, 6);
    assert!(run.sent[1].iter().all(|frame| frame[12..16] == [0x81, 0, 0, 7] && frame.len() == 558));
}

#[test]
fn it_is_off_unless_it_is_asked_for() {
    let merged = |more: &str| {
        let config = format!("{more}{}", config(1500));
        let v4 = routes(&[("20.0.0.0/8", 2), ("30.0.0.0/8", 1)]);
        let run = Router::new(&config, v4, routes(&[])).run_with(run4(B, 1, 100, true), 2048, |_| {});
        run.snapshot.ledger().consumed
    };
    assert_eq!((merged(""), merged("router.coalesce_tcp = true\n")), (0, 3));
}

#[test]
fn switching_it_takes_a_restart() {
    let config = config(1500);
    let mut router = Router::new(&config, routes(&[]), routes(&[]));
    let on = toml::from_str(&format!("router.coalesce_tcp = true\n{config}")).unwrap();
    let error = router.control.reload(0, &on).unwrap_err().to_string();
    assert_eq!(
        error,
        "router.coalesce_tcp: cannot change while the router runs: put it back, or restart the router"
    );
}

#[test]
fn real_captures_leave_as_without() {
    let Some(root) = std::env::var_os("TIDEMILL_DATA").map(std::path::PathBuf::from) else {
        println!("skipped: real_captures_leave_as_without (TIDEMILL_DATA is not set)");
        return;
    };
    let config = "next_hops.ports = ['wan']\nrouter.martians = 'off'\n[[interface]]\nport = 'lan'\npromiscuous = true\n\
                  [[interface]]\nport = 'wan'\n[[route]]\nprefix = '0.0.0.0/0'\nport = 'wan'\nmac = '02:00:00:00:00:77'\n\
                  [[route]]\nprefix = '::/0'\nport = 'wan'\nmac = '02:00:00:00:00:77'\n";
    for (name, merges) in [
        ("mix/pcpp-example.pcap.zst", true),
        ("mix/trex-imix.pcap.zst", false),
        ("ddos/amp.TCP.reflection.SYNACK.pcap.zst", false),
        ("ddos/pkt.TCP.synflood.spoofed.pcap.zst", false),
        ("frag/pcpp-ip-frag.pcap.zst", false),
        ("memcached/flightplan-in_short.pcap.zst", false),
        ("dns/lroot-knot-live.pcap.xz", true),
    ] {
        let mut frames = capture(&root.join("pcap").join(name)).unwrap();
        // As far as a router's frames have room for them.
        frames.retain(|input| input.bytes.len() < 16000);
        let (run, merged) = both(config, &frames);
        println!("{name}: {} in, {} out, {merged} merged away", frames.len(), run.snapshot.ledger().out);
        assert_eq!(merged > 0, merges, "{name}");
    }
}
