//! One Grantor with two Gatekeepers: each is told what its own clients may, and both what is taken back. And the interoperable format from our Grantor to our Gatekeeper.

use crate::lab::{CLIENT, CLIENT2, DENIED, DENIED2, Lab, Plan, SERVER, Side, script};
use crate::{at, transfer, turn};
use std::time::Duration;

/// Has a client send until its flow has this rate.
fn granted(lab: &Lab, side: &Side, client: &str, v6: usize, rate: u32) {
    let socket = side.client.udp(at(client, 0));
    let what = format!("{client} is granted {rate} KiB/s");
    crate::net::wait_until(&what, Duration::from_secs(20), || {
        socket.send_to(b"more", at(SERVER[v6], 9000)).unwrap();
        side.flow(client, v6) == Some(("granted".into(), Some(rate)))
    });
    assert!(lab.grantor.counters()["decisions"] > 0);
}

/// Nothing of a client's arrives, its first packet neither.
fn stays_out(lab: &Lab, side: &Side, client: &str, v6: usize) {
    let (from, to) = (side.client.udp(at(client, 0)), lab.server.udp(at(SERVER[v6], 9001)));
    to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let declined = side.gate.counters()["declined"];
    from.send_to(b"first", at(SERVER[v6], 9001)).unwrap();
    side.becomes(client, v6, "declined", None);
    (0..20).for_each(|_| assert_eq!(from.send_to(b"more", at(SERVER[v6], 9001)).unwrap(), 4));
    side.gate.reaches("declined", declined + 20);
    assert!(to.recv(&mut [0; 16]).is_err());
}

#[test]
fn two_gatekeepers_are_told_each_its_own_and_both_what_is_taken_back() {
    let Some(_turn) = turn("two_gatekeepers_are_told_each_its_own_and_both_what_is_taken_back") else {
        return;
    };
    let mut lab = Lab::planned(&Plan { workers: 2, second: true, ..Plan::default() });
    let mut rate = 50_000;
    for v6 in [0, 1] {
        let second = lab.second.as_ref().unwrap();
        let sides = [(&lab.first, CLIENT[v6], DENIED[v6]), (second, CLIENT2[v6], DENIED2[v6])];
        // Both at once, by ways of their own.
        std::thread::scope(|scope| {
            for (at_port, (side, client, _)) in (8000..).zip(sides) {
                let lab = &lab;
                scope.spawn(move || {
                    let listener = lab.server.listen(at(SERVER[v6], at_port));
                    let stream = side.client.connect(at(SERVER[v6], at_port));
                    side.becomes(client, v6, "granted", Some(rate));
                    transfer(stream, &listener, 1_000_000);
                });
            }
        });
        for (side, _, denied) in sides {
            stays_out(&lab, side, denied, v6);
        }
        // Neither knows of the other's flows, nor was it told of any.
        for (side, foreign) in [(&lab.first, CLIENT2[v6]), (second, CLIENT[v6])] {
            assert_eq!(side.flow(foreign, v6), None);
        }
        // What is taken back is taken back at both, and both ask anew.
        rate += 500;
        lab.policy(&script(rate));
        lab.grantor.ask(&["grantor", "reload"]);
        lab.grantor.ask(&["grantor", "revoke", ["10.9.0.0/24", "fd00:9::/64"][v6]]);
        for (side, client, _) in sides {
            granted(&lab, side, client, v6, rate);
        }
        let said = lab.grantor.ask(&["grantor", "policy"]);
        for gate in [["10.8.0.1", "10.18.0.1"], ["fd00:8::1", "fd00:18::1"]][v6] {
            assert!(said.contains(gate), "{said}");
        }
    }
    // One ends; the other's client is not touched.
    let mut second = lab.second.take().unwrap();
    let said = second.gate.end();
    for name in ["decisions-refused", "decisions-forged", "decisions-malformed", "decisions-unknown"] {
        assert_eq!(said["gate"][name], 0, "{name}: {said}");
    }
    assert!(said["gate"]["flows-revoked"].as_u64() >= Some(2), "{said}");
    for v6 in [0, 1] {
        let listener = lab.server.listen(at(SERVER[v6], 8100));
        transfer(lab.first.client.connect(at(SERVER[v6], 8100)), &listener, 500_000);
    }
    let said = lab.first.gate.end();
    for name in ["decisions-refused", "decisions-forged", "decisions-malformed", "decisions-unknown"] {
        assert_eq!(said["gate"][name], 0, "{name}: {said}");
    }
    assert!(said["gate"]["flows-revoked"].as_u64() >= Some(2), "{said}");
    let said = lab.grantor.end();
    assert_eq!(said["grantor"]["fail-safe"], 0, "{said}");
}

/// The format of the public system, from end to end: grants, refusals, renewal. It has no probes, and nothing is taken back.
#[test]
fn the_interoperable_format_from_end_to_end() {
    let Some(_turn) = turn("the_interoperable_format_from_end_to_end") else { return };
    let mut lab = Lab::planned(&Plan { decisions: "interoperable", ..Plan::default() });
    // Renewed after a second, and then each second.
    lab.policy(
        "signature('source', 'destination')\nfield('denied', lpm('deny.txt'), 'source')\nfunction decide(q)\n\
         if q.denied then return declined { expire = 600 } end\n\
         return granted { rate = 40000, expire = 60, renew = 1000, step = 1000 }\nend\n",
    );
    lab.grantor.ask(&["grantor", "reload"]);
    for v6 in [0, 1] {
        granted(&lab, &lab.first, CLIENT[v6], v6, 40_000);
        let listener = lab.server.listen(at(SERVER[v6], 8000));
        transfer(lab.first.client.connect(at(SERVER[v6], 8000)), &listener, 1_000_000);
        stays_out(&lab, &lab.first, DENIED[v6], v6);
        let renewals = lab.grantor.counters()["renewals"];
        let socket = lab.first.client.udp(at(CLIENT[v6], 0));
        crate::net::wait_until("it is renewed", Duration::from_secs(20), || {
            socket.send_to(b"more", at(SERVER[v6], 9000)).unwrap();
            lab.grantor.counters()["renewals"] > renewals
        });
    }
    let (ok, said) = lab.grantor.run(&["grantor", "revoke"]);
    assert!(!ok && said.contains("\"interoperable\" has no revocations"), "{said}");
    let said = lab.first.gate.end();
    let count = |name: &str| said["gate"][name].as_u64().unwrap();
    assert!(count("decisions-applied") >= 6, "{said}");
    for name in ["probes", "decisions-refused", "decisions-malformed", "decisions-wrong-version"] {
        assert_eq!(count(name), 0, "{name}: {said}");
    }
    lab.grantor.end();
}
