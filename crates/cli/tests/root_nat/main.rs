//! A NAT between the kernels of two inside hosts and of the Internet, with real programs: TCP, UDP, DNS, ping, traceroute, hairpins, fragments, a
//! server inside, floods, one worker and two; a packet filter in its place; and a box that is both. Needs root.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

mod both;
mod dns;
mod filter;
mod floods;
mod lab;
#[path = "../root_wire/needs.rs"]
mod needs;
#[path = "../root_wire/net.rs"]
#[allow(dead_code)] // shared with another test
mod net;
#[path = "../root_wire/raw.rs"]
#[allow(dead_code)] // shared with another test
mod raw;

use lab::{ALICE, BOB, FAR, ISP, Lab, POOL};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::MutexGuard;
use std::time::Duration;

/// Waits for the machine. None if the test has to be skipped, which it never is in CI.
fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    needs::alone(test, &["ip", "sysctl", "unshare", "ethtool", "ping", "traceroute"])
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// Who is on the way to the one who is far away says so: the box, the next router, the end.
fn trace(lab: &Lab, v6: usize) {
    let path = lab.alice.run(&format!("traceroute -n -q 1 -m 4 -w 2 {}", FAR[v6]));
    for hop in [lab::GATE[v6], ISP[v6], FAR[v6]] {
        assert!(path.lines().skip(1).any(|line| line.contains(hop)), "{hop}: {path}");
    }
}

/// So many bytes that follow from a seed.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Sends one way and back what was sent, on both ends of a connection at once; both must get it whole.
fn exchange(mut client: TcpStream, mut server: TcpStream, len: usize) {
    let (up, down) = (bytes(1, len), bytes(2, len));
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    }
    let (mut to_server, mut to_client) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| to_server.write_all(&up).unwrap());
        scope.spawn(|| to_client.write_all(&down).unwrap());
        let server_got = scope.spawn(|| {
            let mut got = vec![0; len];
            server.read_exact(&mut got).map(|()| got)
        });
        let mut got = vec![0; len];
        client.read_exact(&mut got).unwrap();
        assert!(got == down, "what came down is not what was sent");
        assert!(server_got.join().unwrap().unwrap() == up, "what came up is not what was sent");
    });
}

/// What everybody needs of a NAT, with so many workers.
fn services(workers: usize, transfer: usize) {
    let lab = Lab::start(workers, "filtering = \"endpoint-independent\"\n");
    for v6 in [0, 1] {
        assert!(
            (0..20).any(|_| lab.alice.attempt(&format!("ping -c 1 -W 1 {}", FAR[v6])).0),
            "no ping comes back"
        );
        lab.alice.run(&format!("ping -c 3 -i 0.2 -W 2 -s 4000 {}", FAR[v6]));
        // Who is on the way says so: the NAT, the next router, the end (as traceroute does it).
        for (ttl, who) in [(1, lab::GATE[v6]), (2, ISP[v6])] {
            let (_, said) = lab.alice.attempt(&format!("ping -c 1 -W 2 -t {ttl} {}", FAR[v6]));
            assert!(said.contains(who) && said.to_lowercase().contains("exceeded"), "{ttl}: {said}");
        }

        trace(&lab, v6);

        // TCP both ways at once, intact; the server sees an address of the pool.
        let listener = lab.far.listen(at(FAR[v6], 8000));
        let client = lab.alice.connect(at(FAR[v6], 8000));
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), POOL[v6].parse::<IpAddr>().unwrap());
        exchange(client, server, transfer);

        // UDP: one mapping for all remotes; a large one in fragments; a port where nobody listens.
        let (client, remote) = (lab.alice.udp(at(ALICE[v6], 5000)), lab.far.udp(at(FAR[v6], 53)));
        let other = lab.isp.udp(at(ISP[v6], 53));
        let mut buffer = vec![0; 10_000];
        let question = bytes(3, 6000);
        client.send_to(&question, remote.local_addr().unwrap()).unwrap();
        remote.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let (len, looks) = remote.recv_from(&mut buffer).unwrap();
        assert!(buffer[..len] == question, "{len} bytes came");
        client.send_to(b"and you?", other.local_addr().unwrap()).unwrap();
        other.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(other.recv_from(&mut buffer).unwrap().1, looks);
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        remote.send_to(&question, looks).unwrap();
        let (len, from) = client.recv_from(&mut buffer).unwrap();
        assert!(buffer[..len] == question && from == remote.local_addr().unwrap());
        let closed = lab.alice.udp(at(ALICE[v6], 0));
        closed.connect(at(FAR[v6], 9)).unwrap();
        closed.send(b"anybody?").unwrap();
        closed.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let refused = closed.recv(&mut buffer).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "port unreachable finds its way");

        // Two inside hosts meet at the outside address; Bob's server is there for everybody.
        let bob = lab.bob.udp(at(BOB[v6], 6000));
        bob.send_to(b"here I am", remote.local_addr().unwrap()).unwrap();
        let (_, bobs) = remote.recv_from(&mut buffer).unwrap();
        client.send_to(b"hello Bob", bobs).unwrap();
        bob.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let (len, alices) = bob.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], alices), (&b"hello Bob"[..], looks));
        bob.send_to(b"hello Alice", alices).unwrap();
        let (len, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from), (&b"hello Alice"[..], bobs));
        let listener = lab.bob.listen(at(BOB[v6], 80));
        for caller in [&lab.far, &lab.alice] {
            let client = caller.connect(at(POOL[v6], 8080));
            let (server, _) = listener.accept().unwrap();
            exchange(client, server, 100_000);
        }
        // Nobody gets in by the inside address, nor by a port that nothing is mapped for.
        lab.far.run(&match v6 {
            0 => format!("ip route replace 10.1.0.0/16 via {}", ISP[2]),
            _ => format!("ip -6 route replace fd01::/16 via {}", ISP[3]),
        });
        assert!(!lab.far.attempt(&format!("ping -c 1 -W 1 {}", ALICE[v6])).0);
        // But the address is the router's, too.
        lab.far.run(&format!("ping -c 1 -W 2 {}", POOL[v6]));
    }

    // What an operator sees.
    let sessions = lab.ask(&["nat", "sessions", "--protocol", "udp", "--address", ALICE[0]]);
    assert!(sessions.contains("10.1.0.2:5000") && sessions.contains("192.0.2.1:"), "{sessions}");
    let explained = lab.ask(&["nat", "explain", "192.0.2.1:8080"]);
    assert!(explained.contains("is in the pool, and an interface's"), "{explained}");
    assert!(explained.contains("10.2.0.2:80 on the other side, tcp (static)"), "{explained}");
    let (ok, said) = lab.run(&["nat", "explain", "nowhere"]);
    assert!(!ok && said.contains("give an address, or one with a port"), "{said}");
    let (ok, said) = lab.run(&["gate", "flows"]);
    assert!(
        !ok && said.contains("this is tidemill nat, and that is a verb of the role gatekeeper"),
        "{said}"
    );
    let counters = lab.counters();
    for name in ["out", "in", "hairpin", "errors-in", "fragments", "sessions4", "sessions6"] {
        assert!(counters[name] > 0, "{name}: {counters:?}");
    }
    assert_eq!(counters["handed-over"] > 0, workers > 1, "{counters:?}");

    // A reload takes other timeouts, and no other pool.
    lab.write(workers, "filtering = \"endpoint-independent\"\nudp_s = 120\n");
    lab.ask(&["reload"]);
    lab.write(workers, "filtering = \"address-dependent\"\n");
    let (ok, said) = lab.run(&["reload"]);
    assert!(!ok && said.contains("nat.filtering: cannot change while the NAT runs"), "{said}");

    let said = lab.end();
    let number = |name: &str| said[name].as_u64().unwrap();
    let dropped: u64 = said["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(number("in") + number("made"), number("out") + number("consumed") + number("held") + dropped);
    assert!(said["dropped"]["nat-untranslated"].as_u64() > Some(0), "{said}");
    assert!(said["nat"]["out"].as_u64() > Some(0), "{said}");
}

#[test]
fn real_programs_through_one_worker() {
    let Some(_turn) = turn("real_programs_through_one_worker") else { return };
    services(1, 5_000_000);
}

#[test]
fn real_programs_through_two_workers() {
    let Some(_turn) = turn("real_programs_through_two_workers") else { return };
    services(2, 1_000_000);
}

/// A box dies, and another one goes on with what it has written: connections live, whoever speaks first, and so do mappings of datagrams.
fn fail_over(workers: usize) {
    let mut lab = Lab::start(workers, "handover = \"sessions\"\nhandover_s = 1\n");
    // Out by a mapping, and in by a static one.
    let pairs = pairs(&lab, POOL, 8080);
    let datagrams = asked(&lab);
    let said = lab.replace(|| talk(&pairs, 300_000));
    let line = said.lines().find(|line| line.contains("sessions go on, 0 do not fit this configuration"));
    let number =
        line.and_then(|line| line.split(" sessions go on").next()?.rsplit(' ').next()?.parse::<u32>().ok());
    assert!(number.is_some_and(|number| number >= 6), "{said}");
    // Without the sessions nothing that is outside would come in.
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

/// Where no port is free a host is told so (RFC 5508, REQ-8), and what has one goes on.
#[test]
fn who_gets_no_port_is_told() {
    let Some(_turn) = turn("who_gets_no_port_is_told") else { return };
    let lab = Lab::start(1, "ports = \"5000-5003\"\n");
    let patience = Some(Duration::from_secs(5));
    for v6 in [0, 1] {
        warm_up(&lab, v6);
        let remote = lab.far.udp(at(FAR[v6], 53));
        remote.set_read_timeout(patience).unwrap();
        let ask = || {
            let socket = lab.alice.udp(at(ALICE[v6], 0));
            socket.set_read_timeout(patience).unwrap();
            socket.connect(at(FAR[v6], 53)).unwrap();
            socket.send(b"who am I?").unwrap();
            socket
        };
        let mut buffer = [0; 100];
        let mut have = Vec::new();
        for _ in 0..4 {
            let socket = ask();
            let (_, looks) = remote.recv_from(&mut buffer).unwrap();
            assert!(looks.ip() == at(POOL[v6], 0).ip() && (5000..=5003).contains(&looks.port()), "{looks}");
            have.push((socket, looks));
        }
        let told = ask().recv(&mut buffer).unwrap_err();
        let prohibited = [Errno::HOSTUNREACH, Errno::ACCESS][v6];
        assert_eq!(told.raw_os_error(), Some(prohibited.raw_os_error()), "{told}");
        for (socket, looks) in &have {
            remote.send_to(b"you", looks).unwrap();
            let len = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], b"you");
        }
    }
    let said = lab.end();
    assert!(said["dropped"]["nat-ports-exhausted"].as_u64() >= Some(2), "{said}");
}

/// Of each family a socket of Alice's, one far away that it has asked, and what she looked like there.
fn asked(lab: &Lab) -> [(UdpSocket, UdpSocket, SocketAddr); 2] {
    [0, 1].map(|v6: usize| {
        let (client, remote) = (lab.alice.udp(at(ALICE[v6], 5000)), lab.far.udp(at(FAR[v6], 53)));
        for socket in [&client, &remote] {
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        client.send_to(b"question", at(FAR[v6], 53)).unwrap();
        let (_, looks) = remote.recv_from(&mut [0; 10]).unwrap();
        (client, remote, looks)
    })
}

/// Answers come.
fn answered(datagrams: &[(UdpSocket, UdpSocket, SocketAddr); 2]) {
    for (client, remote, looks) in datagrams {
        remote.send_to(b"answer", looks).unwrap();
        let mut buffer = [0; 10];
        let len = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"answer");
    }
}

/// Until neighbors know each other.
fn warm_up(lab: &Lab, v6: usize) {
    let came_back = || lab.alice.attempt(&format!("ping -c 1 -W 1 {}", FAR[v6])).0;
    assert!((0..20).any(|_| came_back()), "no ping comes back");
}

/// Connections of both families, one to the outside and one to Bob, whom the outside reaches so, over all of which something has gone both ways; the second of
/// each pair is outside.
fn pairs(lab: &Lab, bob: [&str; 2], port: u16) -> Vec<(TcpStream, TcpStream)> {
    let mut pairs = Vec::new();
    for v6 in [0, 1] {
        warm_up(lab, v6);
        let listener = lab.far.listen(at(FAR[v6], 8000));
        let client = lab.alice.connect(at(FAR[v6], 8000));
        pairs.push((client, listener.accept().unwrap().0));
        let listener = lab.bob.listen(at(BOB[v6], 80));
        let client = lab.far.connect(at(bob[v6], port));
        pairs.push((listener.accept().unwrap().0, client));
    }
    talk(&pairs, 10_000);
    pairs
}

/// So many bytes go both ways over all of them.
fn talk(pairs: &[(TcpStream, TcpStream)], len: usize) {
    for (inside, outside) in pairs {
        exchange(inside.try_clone().unwrap(), outside.try_clone().unwrap(), len);
    }
}

/// They go on: one end speaks first, and then both do.
fn go_on(pairs: Vec<(TcpStream, TcpStream)>, is_outside_first: bool) {
    for (inside, outside) in &pairs {
        let (mut from, mut to) = if is_outside_first { (outside, inside) } else { (inside, outside) };
        from.write_all(b"still there?").unwrap();
        to.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut got = [0; 12];
        to.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"still there?");
    }
    for (inside, outside) in pairs {
        exchange(inside, outside, 100_000);
    }
}

/// `cargo test -p tidemill-cli --test root_nat -- --ignored`
#[test]
#[ignore = "some seconds: 100 MB each way, intact"]
fn a_hundred_megabytes_each_way() {
    let Some(_turn) = turn("a_hundred_megabytes_each_way") else { return };
    let lab = Lab::start(1, "");
    for v6 in [0, 1] {
        warm_up(&lab, v6);
        let listener = lab.far.listen(at(FAR[v6], 8000));
        let client = lab.alice.connect(at(FAR[v6], 8000));
        let (server, _) = listener.accept().unwrap();
        exchange(client, server, 100_000_000);
    }
    lab.end();
}
