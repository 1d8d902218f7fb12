//! A Gatekeeper between the kernels of a client and of a server: requests, grants, refusals, renewal, path MTU, time exceeded, fragments, decisions
//! from the wrong side, two workers, reloads under traffic. Needs root.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

mod lab;
#[path = "../root_wire/needs.rs"]
mod needs;
#[path = "../root_wire/net.rs"]
#[allow(dead_code)] // shared with another test
mod net;
#[cfg(feature = "xdp")]
mod offload;
#[path = "../root_wire/raw.rs"]
#[allow(dead_code)] // shared with another test
mod raw;
mod reload;
#[cfg(feature = "xdp")]
mod replay;
mod strangers;
mod vlan;
mod workers;

use lab::{Answer, Lab, SERVER};
use net::{cable, wait_until};
use raw::Raw;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::MutexGuard;
use std::time::Duration;

/// Waits for the machine. None if the test has to be skipped, which it never is in CI.
fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    needs::alone(test, &["ip", "sysctl", "unshare", "ethtool", "ping"])
}

/// The code points of what has come to the Grantor since the last time.
fn code_points(lab: &Lab) -> Vec<u8> {
    std::mem::take(&mut *lab.grantor.came.lock().unwrap()).iter().map(|came| came.dscp).collect()
}

/// How many packets have come to the Grantor since the last time; none is longer than that without its outer header.
fn lengths(lab: &Lab, longest: usize) -> usize {
    let came = std::mem::take(&mut *lab.grantor.came.lock().unwrap());
    let lengths: Vec<usize> = came.iter().map(|came| came.inner.len()).collect();
    assert!(lengths.iter().all(|length| *length <= longest), "{lengths:?}");
    lengths.len()
}

#[test]
fn who_asks_is_granted_declined_and_asks_again() {
    let Some(_turn) = turn("who_asks_is_granted_declined_and_asks_again") else { return };
    let lab = Lab::start("");
    for v6 in [0, 1] {
        *lab.grantor.answer.lock().unwrap() = Answer::Nothing;
        // Nobody has decided: every packet is a request, the first of the first level.
        assert!((0..20).any(|_| lab.pings(v6)), "no ping comes back");
        let asked = code_points(&lab);
        assert!(asked.first() == Some(&41) && asked.iter().all(|dscp| *dscp >= 3), "{asked:?}");
        let flow = lab.flow(v6);
        assert_eq!((flow.action.as_str(), flow.flows[0].state.as_str()), ("grantor", "request"));

        // Granted, and soon to be renewed.
        *lab.grantor.answer.lock().unwrap() =
            Answer::Granted { rate_kib_s: 100, expire_s: 60, renew_ms: 1000, step_ms: 60_000 };
        let granted = lab.counters()["decisions-applied"] + 1;
        assert!(lab.pings(v6));
        lab.reaches("decisions-applied", granted);
        code_points(&lab);
        assert!(lab.pings(v6));
        assert_eq!(code_points(&lab), [1]);
        let flow = lab.flow(v6).flows.remove(0);
        assert_eq!((flow.state.as_str(), flow.rate_kib_s, flow.direct), ("granted", Some(100), Some(false)));
        std::thread::sleep(Duration::from_millis(1100));
        assert!(lab.pings(v6));
        assert_eq!(code_points(&lab), [2], "it is time to renew");
        lab.reaches("decisions-applied", granted + 1);
        assert!(lab.pings(v6));
        assert_eq!(code_points(&lab), [1], "renewed");

        // An operator declines it for two seconds; then it asks again.
        let [client, server] = [lab::CLIENT[v6], SERVER[v6]];
        *lab.grantor.answer.lock().unwrap() = Answer::Nothing;
        lab.ask(&["gate", "decline", client, server, "--for", "2"]);
        lab.reaches("decisions-applied", granted + 2);
        let declined = lab.counters()["declined"];
        assert!(!lab.pings(v6));
        lab.reaches("declined", declined + 1);
        assert!(code_points(&lab).is_empty());
        std::thread::sleep(Duration::from_millis(2100));
        assert!(lab.pings(v6));
        assert_eq!(code_points(&lab), [41], "as new");

        // A Grantor declines it, too.
        *lab.grantor.answer.lock().unwrap() = Answer::Declined { expire_s: 60 };
        assert!(lab.pings(v6), "the request itself is passed on");
        lab.reaches("decisions-applied", granted + 3);
        assert!(!lab.pings(v6));
        // Directly, past the Grantor.
        lab.ask(&["gate", "grant", client, server, "--rate", "100", "--direct"]);
        lab.reaches("decisions-applied", granted + 4);
        code_points(&lab);
        assert!(lab.pings(v6));
        assert!(code_points(&lab).is_empty(), "not in an outer packet");
    }
    // What would lead to nothing is said, and does nothing.
    let decided = lab.counters()["decisions-applied"];
    for (verb, destination, why) in [
        ("grant", "10.55.0.1", "the default says route for 10.55.0.1: flows to there are not decided about"),
        ("decline", "10.56.0.1", "the policy for 10.56.0.0/24 says drop for 10.56.0.1"),
    ] {
        lab.ask(&["gate", "fib", "--add", "10.56.0.0/24", "--action", "drop"]);
        let rate: &[&str] = if verb == "grant" { &["--rate", "100"] } else { &[] };
        let (ok, said) = lab.run(&[&["gate", verb, lab::CLIENT[0], destination], rate].concat());
        assert!(!ok && said.contains(why), "{said}");
    }
    for (ends, why) in [
        (["224.0.0.1", SERVER[0]], "224.0.0.1 is a multicast address, which is nobody's"),
        ([lab::CLIENT[1], "::"], ":: is the unspecified address, which is nobody's"),
    ] {
        let (ok, said) = lab.run(&["gate", "decline", ends[0], ends[1]]);
        assert!(!ok && said.contains(why), "{said}");
    }
    assert_eq!(lab.counters()["decisions-applied"], decided);
    let (ok, said) = lab.run(&["amp", "rules"]);
    assert!(
        !ok && said.contains("this is tidemill gatekeeper, and that is a verb of the role mitigator"),
        "{said}"
    );
    assert!(lab.ask(&["gate", "flows", "--state", "granted"]).contains("100 KiB/s"));
    assert!(lab.ask(&["gate", "solicitor"]).contains("41"));
    let said = lab.end();
    assert!(said["dropped"]["flow-declined"].as_u64().unwrap() >= 4, "{said}");
}

#[test]
fn a_rate_holds_and_a_long_packet_is_answered() {
    let Some(_turn) = turn("a_rate_holds_and_a_long_packet_is_answered") else { return };
    let lab = Lab::start("");
    assert!((0..20).any(|_| lab.pings(0) && lab.pings(1)));
    // The outer header takes 20 bytes of the 1500, or 40.
    let (ok, said) = lab.client.attempt(&format!("ping -M do -s 1472 -c 2 -W 1 {}", SERVER[0]));
    assert!(!ok && said.contains("mtu = 1480") || said.contains("mtu=1480"), "{said}");
    let (_, said) = lab.client.attempt(&format!("ping -s 1452 -c 2 -W 1 {}", SERVER[1]));
    assert!(said.contains("mtu=1460") || said.contains("mtu = 1460"), "{said}");
    // Where it may, a long packet is cut, and comes, and so is one that was cut before: for its sender, who forgets what he was told, 1500 bytes fit.
    for (size, parts) in [(1472, 2), (4000, 5)] {
        lab.client.run("ip route flush cache");
        lab.grantor.came.lock().unwrap().clear();
        lab.client.run(&format!("ping -M dont -s {size} -c 1 -W 2 {}", SERVER[0]));
        assert_eq!(lengths(&lab, 1480), parts, "of {size} bytes");
    }
    // Nobody on the way cuts IPv6; its sender does, to what he was told.
    lab.grantor.came.lock().unwrap().clear();
    lab.client.run(&format!("ping -s 4000 -c 1 -W 2 {}", SERVER[1]));
    assert_eq!(lengths(&lab, 1460), 3);
    // Who has one hop is told that it ends here, and with two he arrives: the way to the Grantor is none.
    for (v6, gate) in ["10.7.0.1", "fd00:7::1"].into_iter().enumerate() {
        let (ok, said) = lab.client.attempt(&format!("ping -t 1 -c 1 -W 2 {}", SERVER[v6]));
        assert!(!ok && said.contains(gate) && said.to_lowercase().contains("exceeded"), "{said}");
        lab.client.run(&format!("ping -t 2 -c 1 -W 2 {}", SERVER[v6]));
    }
    // 4 KiB a second: of 100 pings of a kilobyte the first seconds' worth comes through.
    lab.ask(&["gate", "grant", lab::CLIENT[0], SERVER[0], "--rate", "4"]);
    lab.reaches("decisions-applied", 1);
    let (_, said) = lab.client.attempt(&format!("ping -f -s 996 -c 100 -W 1 {}", SERVER[0]));
    // Numbers are shown every 10 ms.
    let judged = |counters: &BTreeMap<String, u64>| counters["granted"] + counters["over-rate"];
    wait_until(&format!("all are judged: {said}"), Duration::from_secs(10), || {
        judged(&lab.counters()) == 100
    });
    // Nothing more comes; where it was dropped is shown all the same, when the window ends.
    wait_until("the window ends", Duration::from_secs(20), || {
        let said = lab.ask(&["gate", "top", "--by", "flow"]);
        said.contains(lab::CLIENT[0]) && said.contains(SERVER[0]) && said.contains("ago")
    });
    wait_until("and the next", Duration::from_secs(20), || {
        lab.ask(&["gate", "top"]).contains("nothing was dropped in the last window")
    });
    // What the command line refuses is refused by the socket, too.
    for (rate_kib_s, expire_s, why) in
        [(Some(0), 9, "a rate of 0 KiB/s would let"), (None, 0, "a decision for 0 seconds")]
    {
        let said = lab.decide(rate_kib_s, expire_s).unwrap_err();
        assert!(said.starts_with(why), "{said}");
    }
    for (address, why) in [
        ("10.8.0.1", "our own address, of interface \"lan\""),
        ("10.8.0.255", "no machine's address but that of a whole link"),
        ("127.0.0.1", "a loopback address"),
        ("239.1.1.1", "a multicast address"),
    ] {
        let (ok, said) = lab.run(&["gate", "fib", "--add", "10.57.0.0/24", "--grantor", address]);
        let place = format!("gatekeeper.grantors: {address} is no address that a Grantor can have: {why}");
        assert!(!ok && said.contains(&place), "{said}");
    }
    let counters = lab.counters();
    assert!((4..50).contains(&counters["granted"]), "{}", counters["granted"]);
    let said = lab.end();
    assert_eq!(said["dropped"]["flow-over-rate"], counters["over-rate"], "{said}");
}

#[test]
fn decisions_are_taken_from_grantors_only() {
    let Some(_turn) = turn("decisions_are_taken_from_grantors_only") else { return };
    let lab = Lab::start("");
    for v6 in [0, 1] {
        assert!((0..20).any(|_| lab.pings(v6)));
        let inner = lab
            .grantor
            .came
            .lock()
            .unwrap()
            .iter()
            .rev()
            .find(|came| came.inner[0] >> 4 == [4, 6][v6])
            .unwrap()
            .inner
            .clone();
        let decline = Answer::Declined { expire_s: 60 }.bytes(&inner);
        let to = |text: &str| SocketAddr::new(text.parse().unwrap(), 45232);
        let any = |text: &str| SocketAddr::new(text.parse().unwrap(), 0);
        let refused = lab.counters()["decisions-refused"];
        // From the front, as the client itself; and from the back, but from another address than a Grantor's.
        lab.client.udp(any(lab::CLIENT[v6])).send_to(&decline, to(["10.7.0.1", "fd00:7::1"][v6])).unwrap();
        lab.reaches("decisions-refused", refused + 1);
        lab.behind
            .udp(any(["10.9.0.1", "fd00:9::1"][v6]))
            .send_to(&decline, to(["10.8.0.1", "fd00:8::1"][v6]))
            .unwrap();
        lab.reaches("decisions-refused", refused + 2);
        // From a Grantor, and cut short: what is whole counts, the rest is said to be wrong.
        let grantor = &lab.deciders[v6];
        grantor.send(&decline[..decline.len() - 1]).unwrap();
        lab.reaches("decisions-malformed", v6 as u64 + 1);
        assert!(lab.pings(v6), "nothing of that counted");
        grantor.send(&decline).unwrap();
        lab.reaches("decisions-applied", v6 as u64 + 1);
        assert!(!lab.pings(v6));
    }
    let said = lab.end();
    assert_eq!(
        (said["dropped"]["decision-refused"].as_u64(), said["dropped"]["decision-malformed"].as_u64()),
        (Some(4), Some(2))
    );
}

/// The Grantor is behind a router whose other link takes 1400 bytes; that router, its ICMP errors and the client's path MTU discovery are the
/// kernel's.
#[test]
fn a_narrow_link_beyond_the_next_hop_is_told_to_the_sender() {
    let Some(_turn) = turn("a_narrow_link_beyond_the_next_hop_is_told_to_the_sender") else { return };
    let lab = Lab::start(
        "[[route]]\nprefix = \"10.99.0.2/32\"\nvia = \"10.8.0.2\"\n\
        [[route]]\nprefix = \"fd00:99::2/128\"\nvia = \"fd00:8::2\"\n\
        [[gatekeeper.policy]]\nprefix = \"10.91.0.0/24\"\naction = \"grantor\"\ngrantors = [\"10.99.0.2\"]\n\
        [[gatekeeper.policy]]\nprefix = \"fd00:91::/64\"\naction = \"grantor\"\ngrantors = [\"fd00:99::2\"]\n",
    );
    cable(&lab.behind, "eth2", &lab.server, "eth1", 1400);
    for (ns, interface, last) in [(&lab.behind, "eth2", 1), (&lab.server, "eth1", 2)] {
        ns.add_address(&format!("10.10.0.{last}/24"), interface);
        ns.add_address(&format!("fd00:10::{last}/64"), interface);
    }
    lab.behind.run("ip route add 10.99.0.2/32 via 10.10.0.2");
    lab.behind.run("ip -6 route add fd00:99::2/128 via fd00:10::2");
    let far = Raw::open(&lab.server, "eth1");
    // What comes to the Grantor in an outer packet of this length, if anything does.
    let comes = |v6: usize, length: usize| {
        (0..200).filter_map(|_| far.receive(Duration::from_millis(10))).any(|frame| {
            let to: &[u8] = [&[10, 99, 0, 2][..], &[0xfd, 0, 0, 0x99]][v6];
            frame.bytes.len() == 14 + length
                && frame.bytes[14..].get([16, 24][v6]..).is_some_and(|a| a.starts_with(to))
        })
    };
    for (v6, [long, fits], told, destination) in
        [(0, [1452, 1352], 1380, "10.91.0.7"), (1, [1412, 1312], 1360, "fd00:91::7")]
    {
        // Nobody answers behind the tunnel; addresses are found out meanwhile.
        let found = (0..20).any(|_| {
            lab.client.attempt(&format!("ping -c 1 -W 1 {destination}"));
            comes(v6, [104, 144][v6])
        });
        assert!(found, "no short packet comes through");
        // It fits the next link with its outer header, and not the one after that. The router tells us.
        lab.client.attempt(&format!("ping -M do -s {long} -c 1 -W 1 {destination}"));
        lab.reaches("path-mtu-lowered", v6 as u64 + 1);
        // We tell the sender, about its next packet.
        let (_, said) = lab.client.attempt(&format!("ping -M do -s {long} -c 2 -W 1 {destination}"));
        assert!(said.contains(&format!("mtu = {told}")) || said.contains(&format!("mtu={told}")), "{said}");
        // As long as it was told: that comes through.
        while far.receive(Duration::from_millis(10)).is_some() {}
        lab.client.attempt(&format!("ping -M do -s {fits} -c 1 -W 1 {destination}"));
        assert!(comes(v6, 1400), "a packet of {told} bytes");
    }
    // Where it may be, a long packet is cut, each part to the way's measure.
    lab.client.run("ip route flush cache");
    while far.receive(Duration::from_millis(10)).is_some() {}
    lab.client.attempt("ping -M dont -s 1452 -c 1 -W 1 10.91.0.7");
    assert!(comes(0, 1400), "20 of outer header, 20 of inner, 1360 of the packet: a multiple of 8");
    let counters = lab.counters();
    assert_eq!((counters["path-mtu-lowered"], counters["path-mtu-refused"]), (2, 0), "{counters:?}");
    lab.end();
}
