//! The same packets through a Gatekeeper that does all in user space, and through one with its program: what arrives, byte for byte, what is dropped and what becomes of flows is the same; and
//! what the program forwards ends with the policy that lets it pass.

use crate::lab::{CLIENT, Lab, SERVER};
use crate::net::wait_until;
use crate::raw::Raw;
use crate::strangers::{seal, udp};
use crate::turn;
use std::time::{Duration, Instant};
use tidemill_control::schema::{self, gate};

const LIMIT: Duration = Duration::from_secs(10);
/// Times that all packets are sent.
const ROUNDS: usize = 5;
/// Packets of all rounds that are declined.
const DECLINED: u64 = 90 * ROUNDS as u64;
/// Where the policy says route, and drop: what an address there begins with.
const ROUTED: [&str; 2] = ["10.66.0.", "fd00:66::"];
const DROPPED: [&str; 2] = ["10.67.0.", "fd00:67::"];
/// Sources in front; by their last byte they are declined and granted.
const SOURCES: [&str; 2] = ["10.7.0.", "fd00:7::"];
const DECIDED: [(&str, &str); 2] = [("100", "decline"), ("101", "grant")];

const CONFIG: &str = "[[gatekeeper.policy]]\nprefix = \"10.67.0.0/16\"\naction = \"drop\"\n\
    [[gatekeeper.policy]]\nprefix = \"fd00:67::/48\"\naction = \"drop\"\n\
    [[route]]\nprefix = \"10.66.0.0/16\"\nvia = \"10.8.0.2\"\n\
    [[route]]\nprefix = \"fd00:66::/48\"\nvia = \"fd00:8::2\"\n";

/// What has come of a replay.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// Packets that arrived on either side, in order of their bytes.
    behind: Vec<Vec<u8>>,
    front: Vec<Vec<u8>>,
    /// Those that the Grantor got in outer packets, by their code points.
    granted: Vec<(u8, Vec<u8>)>,
    /// Of flows that were decided about.
    states: Vec<(String, Option<u32>)>,
    /// Packets that were declined, by decisions and policies.
    declined: u64,
}

/// The IP packet of a frame, as long as it says, if it is UDP. User space cuts off what it was padded with.
fn packet(frame: &[u8]) -> Option<Vec<u8>> {
    let (kind, ip) = (frame.get(12..14)?, frame.get(14..)?);
    let long = |at: usize| Some(usize::from(u16::from_be_bytes([*ip.get(at)?, *ip.get(at + 1)?])));
    let long = match kind {
        [8, 0] if ip.get(9) == Some(&17) => long(2)?,
        [0x86, 0xdd] if ip.get(6) == Some(&17) => 40 + long(4)?,
        _ => return None,
    };
    ip.get(..long).map(<[u8]>::to_vec)
}

/// What has arrived when nothing more does, in order of its bytes; all of it to the first of these addresses, from the second.
fn arrived(raw: &Raw, link: [[u8; 6]; 2]) -> Vec<Vec<u8>> {
    let end = Instant::now() + Duration::from_secs(3);
    let mut packets = Vec::new();
    while let Some(frame) = raw.receive(Duration::from_millis(150)) {
        if let Some(packet) = packet(&frame.bytes) {
            assert_eq!(frame.bytes[..12], link.concat());
            packets.push(packet);
        }
        if Instant::now() > end {
            break;
        }
    }
    packets.sort();
    packets
}

/// A frame with something about it that a program has to leave to user space, or nobody forwards; or with nothing.
fn twisted(mut frame: Vec<u8>, twist: usize) -> Vec<u8> {
    let v4 = frame[12] == 8;
    match twist {
        1 => frame[if v4 { 22 } else { 21 }] = 1,
        2 if v4 => {
            drop(frame.splice(34..34, [1; 4]));
            frame[14] = 0x46;
            frame[17] += 4;
            seal(&mut frame[14..38]);
            return frame;
        }
        // A fragment, the first of several.
        3 if v4 => frame[20] |= 0x20,
        4 => frame.extend([0; 7]),
        _ => {}
    }
    if v4 {
        seal(&mut frame[14..34]);
        if twist == 5 {
            frame[24] ^= 0x55;
        }
    }
    frame
}

/// The frames from the front and those from the back, with these addresses of theirs and of the Gatekeeper.
fn frames(front: [[u8; 6]; 2], back: [[u8; 6]; 2]) -> [Vec<Vec<u8>>; 2] {
    let at = |net: [&str; 2], v6: usize, last: &str| format!("{}{last}", net[v6]);
    let number = |n: usize| (1 + n % 50).to_string();
    let payload = |n: usize| format!("{n:04} {}", "x".repeat(n % 31));
    let from_the_front = |n: usize| {
        let (v6, class, payload) = (n % 2, (n * 37) as u8, payload(n));
        let (from, to) = match (n / 2 % 4, n / 8 % 2) {
            (0 | 1, _) => (CLIENT[v6].to_owned(), at(ROUTED, v6, &number(n))),
            (2, _) => (at(SOURCES, v6, DECIDED[0].0), SERVER[v6].to_owned()),
            (_, 0) => (at(SOURCES, v6, DECIDED[1].0), SERVER[v6].to_owned()),
            _ => (CLIENT[v6].to_owned(), at(DROPPED, v6, "9")),
        };
        let is_routed = n / 2 % 4 < 2;
        let frame = udp(front, [&from, &to], [9, 9], class, payload.as_bytes());
        twisted(frame, if is_routed { n / 8 % 6 } else { 0 })
    };
    let from_the_back = |n: usize| {
        let (v6, class, payload) = (n % 2, (n * 37) as u8, payload(n));
        let from = at(ROUTED, v6, &number(n));
        twisted(udp(back, [&from, CLIENT[v6]], [9, 9], class, payload.as_bytes()), n / 2 % 6)
    };
    [(0..240).map(from_the_front).collect(), (0..120).map(from_the_back).collect()]
}

/// What has been declined so far, wherever.
fn declined(lab: &Lab) -> u64 {
    let counters = lab.counters();
    ["declined", "policy-dropped", "offload-dropped"].map(|name| counters[name]).iter().sum()
}

/// What has been declined since there were so many, once all of it is counted, or after a while.
fn declined_since(lab: &Lab, before: u64) -> u64 {
    let end = Instant::now() + LIMIT;
    loop {
        let all = declined(lab) - before;
        if all >= DECLINED || Instant::now() > end {
            return all;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends all, and gives what has come of it.
fn replay(lab: &Lab) -> Outcome {
    let [client, behind] = [(&lab.client, "eth0"), (&lab.behind, "eth0")].map(|(ns, on)| Raw::open(ns, on));
    let (front, back) = (lab.macs(), lab.macs_behind());
    let decided = lab.counters()["decisions-applied"];
    for v6 in [0, 1] {
        for (last, verb) in DECIDED {
            let source = format!("{}{last}", SOURCES[v6]);
            let rate: &[&str] = if verb == "grant" { &["--rate", "1000000"] } else { &[] };
            lab.ask(&[&["gate", verb, source.as_str(), SERVER[v6]][..], rate].concat());
        }
    }
    lab.reaches("decisions-applied", decided + 4);
    lab.grantor.came.lock().unwrap().clear();
    let before = declined(lab);
    let [from_the_front, from_the_back] = frames(front, back);
    for _ in 0..ROUNDS {
        for (front, back) in from_the_front.chunks(8).zip(from_the_back.chunks(4)) {
            assert_eq!(client.send_many(front), front.len());
            assert_eq!(behind.send_many(back), back.len());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    // Whoever stands still now has dealt with all of it when he has dealt with this: the Gatekeeper, and the Grantor.
    wait_until("pings come back", LIMIT, || lab.pings(0) && lab.pings(1));
    let (arrived_behind, arrived_front) = (arrived(&behind, back), arrived(&client, front));
    let came = std::mem::take(&mut *lab.grantor.came.lock().unwrap());
    let is_udp = |ip: &[u8]| ip[if ip[0] >> 4 == 6 { 6 } else { 9 }] == 17;
    let mut granted: Vec<_> = came.into_iter().map(|came| (came.dscp, came.inner)).collect();
    granted.retain(|(_, inner)| is_udp(inner));
    granted.sort();
    let state = |(v6, last): (usize, &str)| {
        let query =
            gate::FlowQuery { source: format!("{}{last}", SOURCES[v6]), destination: SERVER[v6].into() };
        let answer: gate::FlowAnswer = lab.control.get(gate::path::FLOW, &query).unwrap();
        (answer.flows[0].state.clone(), answer.flows[0].rate_kib_s)
    };
    let flows = [(0, DECIDED[0].0), (0, DECIDED[1].0), (1, DECIDED[0].0), (1, DECIDED[1].0)];
    Outcome {
        behind: arrived_behind,
        front: arrived_front,
        granted,
        states: flows.map(state).to_vec(),
        declined: declined_since(lab, before),
    }
}

/// A Gatekeeper between hosts that take what is redirected to them, and drop in silence what is for the routed networks.
fn start(offload: &str) -> Lab {
    let lab = Lab::start(&format!("offload = \"{offload}\"\n{CONFIG}"));
    lab.behind.run("ip route add blackhole 10.66.0.0/16");
    lab.behind.run("ip -6 route add blackhole fd00:66::/48");
    [&lab.client, &lab.behind].iter().for_each(|ns| drop(ns.run("ethtool -K eth0 gro on")));
    assert!((0..20).any(|_| lab.pings(0) && lab.pings(1)), "no ping comes back");
    lab
}

fn below(lab: &Lab) -> schema::Offload {
    lab.control.get(schema::path::OFFLOAD, &()).unwrap()
}

fn forwarded(lab: &Lab) -> u64 {
    below(lab).bypass.unwrap().forwarded
}

#[test]
fn a_replay_with_the_program_is_one_without() {
    let Some(_turn) = turn("a_replay_with_the_program_is_one_without") else { return };
    let lab = start("none");
    let without = replay(&lab);
    assert!(!below(&lab).enabled && lab.counters()["offload-forwarded"] == 0);
    lab.end();
    // All that there is to compare is there.
    assert!(without.behind.len() > 300 && without.front.len() > 300, "{without:?}");
    assert!(without.granted.len() == 30 * ROUNDS && without.declined == DECLINED, "{without:?}");
    assert!(without.granted.iter().all(|(dscp, _)| *dscp == 1), "{without:?}");

    let lab = start("xdp");
    for v6 in [0, 1] {
        wait_until("what comes from the back is forwarded below", LIMIT, || {
            let before = forwarded(&lab);
            lab.pings(v6) && forwarded(&lab) > before
        });
    }
    let before = forwarded(&lab);
    let with = replay(&lab);
    assert_eq!(with.behind, without.behind, "what arrives behind");
    assert_eq!(with.front, without.front, "what arrives in front");
    assert_eq!(with, without);
    // Much of it was dealt with below, and all of that is shown.
    let all = (with.behind.len() + with.front.len()) as u64;
    assert!(forwarded(&lab) - before > all / 3, "{:?}", below(&lab));
    let offload = below(&lab);
    let (bypass, declined) = (offload.bypass.unwrap(), offload.declined.unwrap());
    let rate = |below: u64, above: u64| Some(below as f64 / (below + above) as f64);
    assert_eq!(declined.above + declined.dropped, with.declined);
    assert!(declined.dropped > declined.above, "{declined:?}");
    assert_eq!(declined.hit_rate, rate(declined.dropped, declined.above));
    assert_eq!(bypass.hit_rate, rate(bypass.forwarded, bypass.above));
    let text = lab.ask(&["show", "offload"]);
    assert_eq!(text.matches(" % of all such, ").count(), 2, "{text}");
    let (sent, came): (u64, u64) = (
        offload.ports.iter().map(|port| port.sent).sum(),
        offload.ports.iter().map(|port| port.forwarded).sum(),
    );
    assert_eq!((sent, came), (bypass.forwarded, bypass.forwarded));

    // Neither waits for the program to hear of it: a policy that drops, and one that asks a Grantor.
    let client = Raw::open(&lab.client, "eth0");
    let behind = Raw::open(&lab.behind, "eth0");
    let to = |v6: usize| format!("{}7", ROUTED[v6]);
    let frames = [0, 1].map(|v6| udp(lab.macs(), [CLIENT[v6], &to(v6)], [9, 9], 0, b"and now?"));
    for (v6, prefix) in ["10.66.0.0/16", "fd00:66::/48"].into_iter().enumerate() {
        for policy in [["--action", "drop"], ["--grantor", ["10.8.0.2", "fd00:8::2"][v6]]] {
            let before = forwarded(&lab);
            wait_until("it is forwarded below", LIMIT, || {
                client.send(&frames[v6]);
                std::thread::sleep(Duration::from_millis(2));
                forwarded(&lab) > before
            });
            lab.ask(&[&["gate", "fib", "--add", prefix][..], &policy[..]].concat());
            arrived(&behind, lab.macs_behind());
            client.send_many(&vec![frames[v6].clone(); 8]);
            assert!(arrived(&behind, lab.macs_behind()).is_empty(), "{policy:?}");
            lab.ask(&["gate", "fib", "--delete", prefix]);
        }
    }
    let said = lab.end();
    assert!(said["gate"]["offload-forwarded"].as_u64() > Some(all / 3), "{said}");
}
