//! The shipped policies `web` and `tcp-services` through the gate: the Grantor gives a flow a program, and the Gatekeeper holds every packet to it.

use crate::lab::{CLIENT, DENIED, Lab, Plan, SERVER};
use crate::{at, transfer, turn};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Whether the client gets a connection to this port of the server's, with its first packet or the one that TCP sends again.
fn connects(lab: &Lab, v6: usize, port: u16) -> bool {
    let to = at(SERVER[v6], port);
    lab.first.client.enter(|| TcpStream::connect_timeout(&to, Duration::from_millis(1500))).is_ok()
}

/// Packets that the gate has dropped by what a decision said.
fn held_back(lab: &Lab) -> u64 {
    let counters = lab.first.gate.counters();
    counters["declined"] + counters["over-rate"]
}

/// Datagrams to a port of the server's arrive nowhere, and the gate has dropped them.
fn nothing_over_udp(lab: &Lab, from: &str, v6: usize, port: u16) {
    let (from, to) = (lab.first.client.udp(at(from, 0)), lab.server.udp(at(SERVER[v6], port)));
    to.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let before = held_back(lab);
    for _ in 0..20 {
        from.send_to(b"any", at(SERVER[v6], port)).unwrap();
    }
    crate::net::wait_until("the gate has dropped them", Duration::from_secs(10), || {
        held_back(lab) >= before + 20
    });
    assert!(to.recv(&mut [0; 16]).is_err());
}

/// The client gets a connection to an allowed port, by a program with this number; returns it.
fn begin(lab: &Lab, v6: usize, port: u16, program: u8) -> (TcpStream, TcpListener) {
    let listener = lab.server.listen(at(SERVER[v6], port));
    let stream = lab.first.client.connect(at(SERVER[v6], port));
    lab.first.becomes(CLIENT[v6], v6, "program", None);
    assert_eq!(lab.first.known(CLIENT[v6], v6).and_then(|flow| flow.program), Some(program));
    (stream, listener)
}

#[test]
fn web_servers_get_the_web_and_no_more() {
    let Some(_turn) = turn("web_servers_get_the_web_and_no_more") else { return };
    let policy = "name = \"web\"\nparameters = { rate = 128, secondary = 32 }";
    let mut lab = Lab::planned(&Plan { policy, ..Plan::default() });
    for v6 in [0, 1] {
        // 390 KiB at 128 KiB/s, with a second's worth at once: two seconds at least, whatever TCP makes of it.
        let (stream, listener) = begin(&lab, v6, 80, 3);
        let took = transfer(stream, &listener, 400_000);
        assert!(took > Duration::from_millis(1900), "{took:?}");
        // The same flow to other ports, and over UDP: the program drops each packet. Nobody at the server hears of it.
        let other = lab.server.listen(at(SERVER[v6], 8080));
        let before = held_back(&lab);
        assert!(!connects(&lab, v6, 8080) && held_back(&lab) > before);
        other.set_nonblocking(true).unwrap();
        assert!(other.accept().is_err());
        nothing_over_udp(&lab, CLIENT[v6], v6, 443);
        // Echo is the web's, too; and the other web port.
        let ping = format!("ping -c 3 -i 0.2 -W 2 {}", SERVER[v6]);
        assert!((0..5).any(|_| lab.first.client.attempt(&ping).0), "no ping comes back");
        let _secure = lab.server.listen(at(SERVER[v6], 443));
        assert!((0..5).any(|_| connects(&lab, v6, 443)), "no connection to port 443");
        // Who begins with something else has the program at once, and it drops that.
        lab.first.client.udp(at(DENIED[v6], 0)).send_to(b"quic", at(SERVER[v6], 443)).unwrap();
        lab.first.becomes(DENIED[v6], v6, "program", None);
        nothing_over_udp(&lab, DENIED[v6], v6, 443);
    }
    let said = lab.first.gate.end();
    assert!(said["gate"]["programs"].as_u64() > Some(500), "{said}");
    assert_eq!(
        (&said["gate"]["program-faults"], &said["gate"]["cookies-not-taken"]),
        (&0.into(), &0.into()),
        "{said}"
    );
    let said = lab.grantor.end();
    assert_eq!(said["grantor"]["fail-safe"], 0, "{said}");
}

#[test]
fn tcp_services_get_their_ports_and_no_others() {
    let Some(_turn) = turn("tcp_services_get_their_ports_and_no_others") else { return };
    let policy =
        "name = \"tcp-services\"\nparameters = { ports = [22, \"8000-8010\"], rate = 4096, secondary = 64 }";
    let mut lab = Lab::planned(&Plan { policy, ..Plan::default() });
    for v6 in [0, 1] {
        let (stream, listener) = begin(&lab, v6, 8005, 4);
        transfer(stream, &listener, 1_000_000);
        for (port, is_served) in
            [(22, true), (8000, true), (8010, true), (7999, false), (8011, false), (80, false)]
        {
            let _listener = lab.server.listen(at(SERVER[v6], port));
            let connected = (0..if is_served { 5 } else { 1 }).any(|_| connects(&lab, v6, port));
            assert_eq!(connected, is_served, "port {port}");
        }
        nothing_over_udp(&lab, CLIENT[v6], v6, 22);
        assert!(!lab.first.client.attempt(&format!("ping -c 2 -i 0.2 -W 1 {}", SERVER[v6])).0);
        lab.first.client.udp(at(DENIED[v6], 0)).send_to(b"any", at(SERVER[v6], 22)).unwrap();
        lab.first.becomes(DENIED[v6], v6, "program", None);
        nothing_over_udp(&lab, DENIED[v6], v6, 22);
    }
    let said = lab.first.gate.end();
    assert_eq!(
        (&said["gate"]["program-faults"], &said["gate"]["cookies-not-taken"]),
        (&0.into(), &0.into()),
        "{said}"
    );
    lab.grantor.end();
}
