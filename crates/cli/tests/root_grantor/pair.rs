//! One Grantor with two Gatekeepers: each is told what its own clients may, and both what is taken back. Two Grantors with one Gatekeeper: one dies. And the interoperable
//! format from our Grantor to our Gatekeeper.

use crate::lab::{CLIENT, CLIENT2, DENIED, DENIED2, GRANTORS, Lab, Plan, SERVER, Side, script, servers};
use crate::net::wait_until;
use crate::{at, bytes, numbers, transfer, turn};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Has a client send until its flow has this rate.
fn granted(lab: &Lab, side: &Side, client: &str, v6: usize, rate: u32) {
    let socket = side.client.udp(at(client, 0));
    let what = format!("{client} is granted {rate} KiB/s");
    wait_until(&what, Duration::from_secs(20), || {
        socket.send_to(b"more", at(SERVER[v6], 9000)).unwrap();
        side.flow(client, v6) == Some(("granted".into(), Some(rate)))
    });
    lab.grantor.reaches("decisions", 1);
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
        wait_until("it is renewed", Duration::from_secs(20), || {
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

/// A connection that stays.
struct Talk {
    client: TcpStream,
    server: TcpStream,
}

impl Talk {
    fn begin(lab: &Lab, v6: usize, server: &str) -> Talk {
        let listener = lab.server.listen(at(server, 8000));
        let client = lab.first.client.connect(at(server, 8000));
        let (server, _) = listener.accept().unwrap();
        let limit = Some(Duration::from_secs(20));
        client.set_write_timeout(limit).unwrap();
        server.set_read_timeout(limit).unwrap();
        let local = client.local_addr().unwrap().ip().to_string();
        assert_eq!(local, CLIENT[v6]);
        Talk { client, server }
    }

    /// What is said arrives, sooner or later.
    fn goes_on(&mut self) {
        let (sent, mut came) = (bytes(50_000), vec![0; 50_000]);
        self.client.write_all(&sent).unwrap();
        self.server.read_exact(&mut came).unwrap();
        assert!(came == sent);
    }
}

/// Sends numbers from the one socket of each pair to the other while something goes on; returns those that did not arrive.
pub(crate) fn lost_meanwhile(pairs: &[(UdpSocket, UdpSocket)], act: impl FnOnce()) -> Vec<Vec<u32>> {
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let send = |from: &UdpSocket| {
            let mut number = 0_u32;
            while !done.load(Ordering::Relaxed) {
                from.send(&number.to_be_bytes()).unwrap();
                number += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            number
        };
        let all = pairs
            .iter()
            .map(|(from, to)| (scope.spawn(move || send(from)), scope.spawn(move || numbers(to, done))));
        let all: Vec<_> = all.collect();
        // They end whatever happens here.
        let went = catch_unwind(AssertUnwindSafe(act));
        done.store(true, Ordering::Relaxed);
        let lost = all.into_iter().map(|(sender, receiver)| {
            let (sent, came) = (sender.join().unwrap(), receiver.join().unwrap());
            (0..sent).filter(|number| !came.contains(number)).collect::<Vec<u32>>()
        });
        let lost = lost.collect();
        went.unwrap_or_else(|panic| resume_unwind(panic));
        lost
    })
}

/// Which Grantor decides about the client's flow to each of the servers.
fn deciders(lab: &Lab, v6: usize) -> Vec<Option<String>> {
    servers(v6).iter().map(|server| lab.first.about(CLIENT[v6], server).grantor).collect()
}

/// The servers that are this Grantor's.
fn servers_of(homes: &[Option<String>], v6: usize, grantor: usize) -> Vec<String> {
    let all = servers(v6).into_iter().zip(homes);
    all.filter(|(_, home)| home.as_deref() == Some(GRANTORS[grantor][v6])).map(|(server, _)| server).collect()
}

/// A Grantor is killed: its flows go to its twin, and go on; the twin's do not notice. It comes back, and has its flows again.
#[test]
fn a_grantor_that_dies_loses_its_own_flows_only_and_has_them_back() {
    let Some(_turn) = turn("a_grantor_that_dies_loses_its_own_flows_only_and_has_them_back") else {
        return;
    };
    let mut lab = Lab::planned(&Plan { twin: true, ..Plan::default() });
    let homes = [0, 1].map(|v6| deciders(&lab, v6));
    let [mine, twins] = [0, 1].map(|grantor| [0, 1].map(|v6| servers_of(&homes[v6], v6, grantor)));
    for v6 in [0, 1] {
        // Of 24 flows some are each Grantor's: three are needed of the first, two of the other.
        assert_eq!(mine[v6].len() + twins[v6].len(), servers(v6).len(), "{:?}", homes[v6]);
        assert!(mine[v6].len() >= 3 && twins[v6].len() >= 2, "{:?}", homes[v6]);
    }
    let mut talks: Vec<Talk> = Vec::new();
    let mut pairs = Vec::new();
    for v6 in [0, 1] {
        talks.push(Talk::begin(&lab, v6, &mine[v6][0]));
        talks.push(Talk::begin(&lab, v6, &twins[v6][0]));
        let (from, to) = (lab.first.client.udp(at(CLIENT[v6], 0)), lab.server.udp(at(&twins[v6][1], 9000)));
        from.connect(at(&twins[v6][1], 9000)).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        wait_until("the twin's client is granted", Duration::from_secs(20), || {
            from.send(&u32::MAX.to_be_bytes()).unwrap();
            let flows = lab.first.about(CLIENT[v6], &twins[v6][1]).flows;
            flows.iter().any(|flow| flow.state == "granted")
        });
        pairs.push((from, to));
    }
    talks.iter_mut().for_each(Talk::goes_on);
    lab.grantor.reaches("granted", 1);
    lab.twin.as_ref().unwrap().grantor.reaches("granted", 1);

    let lost = lost_meanwhile(&pairs, || {
        lab.grantor.kill();
        // What was granted goes on by the twin, which has never heard of it.
        talks.iter_mut().for_each(Talk::goes_on);
        for v6 in [0, 1] {
            let twin = Some(GRANTORS[1][v6].to_owned());
            wait_until("all flows are the twin's", Duration::from_secs(20), || {
                deciders(&lab, v6).iter().all(|grantor| *grantor == twin)
            });
            // Who would have asked the dead one asks the other.
            Talk::begin(&lab, v6, &mine[v6][1]).goes_on();
        }
        lab.grantor.again(&lab.behind);
        for (v6, homes) in homes.iter().enumerate() {
            wait_until("each has its flows", Duration::from_secs(20), || deciders(&lab, v6) == *homes);
            Talk::begin(&lab, v6, &mine[v6][2]).goes_on();
        }
        talks.iter_mut().for_each(Talk::goes_on);
    });
    assert!(lost.iter().all(Vec::is_empty), "of the twin's flows nothing is lost: {lost:?}");
    // It is used again: it has decided about both newcomers, and what was granted before it died goes by it.
    lab.grantor.reaches("decisions", 2);
    lab.grantor.reaches("granted", 2 * 50_000 / 1500);
    let said = lab.first.gate.end();
    let log = lab.first.gate.read("log");
    for grantor in GRANTORS[0] {
        for said in ["does not answer: its flows go", "answers again: it has its flows back"] {
            assert!(log.contains(&format!("grantor {grantor} {said}")), "{log}");
        }
    }
    for name in ["decisions-forged", "decisions-malformed", "decisions-unknown"] {
        assert_eq!(said["gate"][name], 0, "{name}: {said}");
    }
    lab.grantor.end();
    lab.twin.as_mut().unwrap().grantor.end();
}
