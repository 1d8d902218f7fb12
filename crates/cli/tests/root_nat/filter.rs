//! The packet filter in the NAT's place: real programs get through where its rules let them, and nobody else does.

use crate::lab::{ALICE, BOB, FAR, Lab};
use crate::{answered, asked, at, bytes, exchange, go_on, pairs, talk, trace, turn, warm_up};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

/// Alice and Bob reach everybody outside, but who is bad; everybody outside reaches Bob's web server, and nothing else.
pub(crate) const RULES: &str = "table <bad> persist
block log all
pass in on { lan, dmz }
pass out on wan
pass in on wan proto tcp to any port 80
pass out on dmz proto tcp to any port 80
block return in quick on lan to <bad>
";

#[test]
fn real_programs_through_a_filter() {
    let Some(_turn) = turn("real_programs_through_a_filter") else { return };
    let lab = Lab::filter(2, RULES, "");
    let patience = Some(Duration::from_secs(5));
    for v6 in [0, 1] {
        warm_up(&lab, v6);
        // In fragments; and who is on the way says so, about connections that are known.
        lab.alice.run(&format!("ping -c 2 -i 0.2 -W 2 -s 4000 {}", FAR[v6]));
        trace(&lab, v6);

        // TCP both ways at once, intact; nothing of it is changed.
        let listener = lab.far.listen(at(FAR[v6], 8000));
        let client = lab.alice.connect(at(FAR[v6], 8000));
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), ALICE[v6].parse::<IpAddr>().unwrap());
        exchange(client, server, 1_000_000);

        // UDP: who was asked may answer, and nobody else; large ones in fragments; a port where nobody listens.
        let (client, remote) = (lab.alice.udp(at(ALICE[v6], 5000)), lab.far.udp(at(FAR[v6], 53)));
        let stranger = lab.far.udp(at(FAR[v6], 54));
        let mut buffer = vec![0; 10_000];
        let question = bytes(3, 6000);
        for socket in [&client, &remote] {
            socket.set_read_timeout(patience).unwrap();
        }
        client.send_to(&question, at(FAR[v6], 53)).unwrap();
        let (len, from) = remote.recv_from(&mut buffer).unwrap();
        assert!(buffer[..len] == question && from == at(ALICE[v6], 5000), "{len} bytes came from {from}");
        stranger.send_to(b"nobody has asked", at(ALICE[v6], 5000)).unwrap();
        remote.send_to(&question, from).unwrap();
        let (len, from) = client.recv_from(&mut buffer).unwrap();
        assert!(buffer[..len] == question && from == at(FAR[v6], 53), "{len} bytes came from {from}");
        let closed = lab.alice.udp(at(ALICE[v6], 0));
        closed.connect(at(FAR[v6], 9)).unwrap();
        closed.send(b"anybody?").unwrap();
        closed.set_read_timeout(patience).unwrap();
        let refused = closed.recv(&mut buffer).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "port unreachable finds its way");

        // From outside to Bob's server, and to no other: a packet has to pass on both of its ways.
        let [bobs, alices] =
            [(&lab.bob, BOB[v6]), (&lab.alice, ALICE[v6])].map(|(ns, own)| ns.listen(at(own, 80)));
        exchange(lab.far.connect(at(BOB[v6], 80)), bobs.accept().unwrap().0, 100_000);
        let short = Duration::from_millis(300);
        assert!(lab.far.enter(|| TcpStream::connect_timeout(&at(ALICE[v6], 80), short)).is_err());
        drop(alices);

        // Who becomes bad is so at once, also in connections that are known, and stays so; who sends to him is told.
        client.connect(at(FAR[v6], 53)).unwrap();
        lab.ask(&["filter", "add-to-set", "bad", FAR[v6]]);
        lab.ask(&["reload"]);
        client.send(b"still there?").unwrap();
        let told = client.recv(&mut buffer).unwrap_err();
        let prohibited = [Errno::HOSTUNREACH, Errno::ACCESS][v6];
        assert_eq!(told.raw_os_error(), Some(prohibited.raw_os_error()), "{told}");
        lab.ask(&["filter", "delete-from-set", "bad", FAR[v6]]);
        client.send(b"and now?").unwrap();
        let (len, _) = remote.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"and now?");
    }

    // What an operator sees.
    let states = lab.ask(&["filter", "states", "--protocol", "udp", "--address", ALICE[0]]);
    assert!(states.contains("10.1.0.2:5000") && states.contains("198.51.100.2:53"), "{states}");
    let log = lab.ask(&["filter", "log"]);
    assert!(log.contains("198.51.100.2:54") && log.contains("10.1.0.2:80"), "{log}");
    let counters = lab.counters();
    for name in [
        "passed",
        "by-state",
        "by-rules",
        "blocked",
        "errors-passed",
        "fragments",
        "logged",
        "states4",
        "states6",
        "states-revoked",
    ] {
        assert!(counters[name] > 0, "{name}: {counters:?}");
    }
    assert!(counters["handed-over"] > 0, "{counters:?}");

    // Another file is taken over whole, or nothing of it.
    lab.put("filter.rules", "block all\npas in on lan\n");
    let (ok, said) = lab.run(&["filter", "load"]);
    assert!(!ok && said.contains("filter.rules") && said.contains("line 2"), "{said}");
    lab.alice.run(&format!("ping -c 1 -W 2 {}", FAR[0]));
    lab.put("filter.rules", "block all\n");
    lab.ask(&["reload"]);
    assert!(!lab.alice.attempt(&format!("ping -c 1 -W 1 {}", FAR[0])).0);

    let said = lab.end();
    let number = |name: &str| said[name].as_u64().unwrap();
    let dropped: u64 = said["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(number("in") + number("made"), number("out") + number("consumed") + number("held") + dropped);
    assert!(said["dropped"]["filter-blocked"].as_u64() > Some(0), "{said}");
    assert!(said["filter"]["passed"].as_u64() > Some(0), "{said}");
}

/// A box dies, and another one goes on with what it has written, whoever speaks first.
fn fail_over(workers: usize) {
    let mut lab = Lab::filter(workers, RULES, "handover = \"sessions\"\nhandover_s = 1\n");
    let pairs = pairs(&lab, BOB, 80);
    // What nobody has answered is not handed over.
    let datagrams = asked(&lab);
    answered(&datagrams);
    // More than the windows that are in the file.
    let said = lab.replace(|| talk(&pairs, 300_000));
    let line = said.lines().find(|line| line.contains(" connections go on, 0 do not fit this configuration"));
    assert!(line.is_some(), "{said}");
    // No rule would let in what is outside.
    go_on(pairs, true);
    answered(&datagrams);
    lab.end();
}

#[test]
fn connections_go_on_after_a_failover() {
    let Some(_turn) = turn("connections_go_on_after_a_failover") else { return };
    fail_over(1);
}

#[test]
fn connections_go_on_after_a_failover_with_two_workers() {
    let Some(_turn) = turn("connections_go_on_after_a_failover_with_two_workers") else { return };
    fail_over(2);
}

/// A box dies, and another one that knows nothing takes its place: where rules say `flags any`, connections go on with the next segment from inside.
#[test]
fn connections_are_picked_up_by_a_new_box() {
    let Some(_turn) = turn("connections_are_picked_up_by_a_new_box") else { return };
    let rules = format!(
        "{RULES}pass in on {{ lan, dmz }} proto tcp flags any\npass out on wan proto tcp flags any\n"
    );
    let mut lab = Lab::filter(1, &rules, "");
    let pairs = pairs(&lab, BOB, 80);
    lab.restart();
    go_on(pairs, false);
    let states = |counters: &BTreeMap<String, u64>| (counters["states4"], counters["states6"]);
    let counters = lab.counters_once(|counters| states(counters) == (2, 2));
    assert_eq!(states(&counters), (2, 2), "{counters:?}");
    lab.end();
}

/// `cargo test -p tidemill-cli --test root_nat -- --ignored`
#[test]
#[ignore = "some seconds: 100 MB each way, intact"]
fn a_hundred_megabytes_each_way_through_a_filter() {
    let Some(_turn) = turn("a_hundred_megabytes_each_way_through_a_filter") else { return };
    let lab = Lab::filter(1, RULES, "");
    for v6 in [0, 1] {
        warm_up(&lab, v6);
        let listener = lab.far.listen(at(FAR[v6], 8000));
        let client = lab.alice.connect(at(FAR[v6], 8000));
        let (server, _) = listener.accept().unwrap();
        exchange(client, server, 100_000_000);
    }
    lab.end();
}
