//! ICMP errors that somebody made up, against a conversation with a name server: they change nothing.

use crate::lab::{Lab, Plan};
use crate::net::{Netns, wait_until};
use crate::raw::Raw;
use crate::turn;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidemill_control::schema::amp::{self, ExplainQuery, Explained};
use tidemill_wire::checksum;

const SERVER: [&str; 2] = ["10.9.0.1", "fd00:9::1"];
const CLIENT: [&str; 2] = ["10.9.0.2", "fd00:9::2"];

/// Answers every datagram with itself.
fn serve(socket: &UdpSocket, done: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut bytes = [0; 2048];
    while !done.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut bytes) {
            socket.send_to(&bytes[..length], from).unwrap();
        }
    }
}

/// Whether a question is answered.
fn asks(client: &UdpSocket) -> bool {
    let mut bytes = [0; 64];
    client.send(b"who is it?").unwrap();
    client.recv(&mut bytes).is_ok()
}

/// A frame with a port-unreachable error from the client to the server about the server's answer.
fn spoofed(v6: bool, client_port: u16) -> Vec<u8> {
    let at = usize::from(v6);
    let (client, server): (IpAddr, IpAddr) = (CLIENT[at].parse().unwrap(), SERVER[at].parse().unwrap());
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let header = |from: IpAddr, to: IpAddr, protocol: u8, length: usize| {
        let mut ip = if v6 {
            let mut ip = vec![0x60, 0, 0, 0, (length >> 8) as u8, length as u8, protocol, 64];
            ip.extend(bytes(from));
            ip
        } else {
            let length = length + 20;
            let mut ip = vec![0x45, 0, (length >> 8) as u8, length as u8, 0, 7, 0, 0, 64, protocol, 0, 0];
            ip.extend(bytes(from));
            ip
        };
        ip.extend(bytes(to));
        if !v6 {
            tidemill_wire::ipv4::fill_checksum(&mut ip);
        }
        ip
    };
    let mut inner = header(server, client, 17, 18);
    inner.extend([0, 53, (client_port >> 8) as u8, client_port as u8, 0, 18, 0, 0]);
    inner.extend(b"who is it?");
    let mut icmp = if v6 { vec![1, 4, 0, 0, 0, 0, 0, 0] } else { vec![3, 3, 0, 0, 0, 0, 0, 0] };
    icmp.extend(&inner);
    let protocol = if v6 { 58 } else { 1 };
    let mut covered = Vec::new();
    if v6 {
        covered.extend(bytes(client));
        covered.extend(bytes(server));
        covered.extend([0, 0, (icmp.len() >> 8) as u8, icmp.len() as u8, 0, 0, 0, 58]);
    }
    covered.extend(&icmp);
    let sum = !checksum::fold(u64::from(checksum::sum(&covered)));
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 9, 9]);
    frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
    frame.extend(header(client, server, protocol, icmp.len()));
    frame.extend(icmp);
    frame
}

fn explain(lab: &Lab, v6: bool, client_port: u16) -> Explained {
    let at = usize::from(v6);
    let query = ExplainQuery {
        source: SERVER[at].into(),
        source_port: 53,
        destination: CLIENT[at].into(),
        destination_port: client_port,
    };
    lab.get(amp::path::EXPLAIN, &query)
}

#[test]
fn a_conversation_survives_spoofed_errors() {
    let Some(_turn) = turn("a_conversation_survives_spoofed_errors") else { return };
    let outside = Netns::new("outside");
    let lab = Lab::between_hosts(&outside, &Plan::default());
    let done = AtomicBool::new(false);
    let servers = SERVER.map(|address| outside.udp(SocketAddr::new(address.parse().unwrap(), 53)));
    std::thread::scope(|scope| {
        servers.iter().for_each(|server| drop(scope.spawn(|| serve(server, &done))));
        let _ends = Ends(&done);
        for v6 in [false, true] {
            let at = usize::from(v6);
            let client = lab.victim.udp(SocketAddr::new(CLIENT[at].parse().unwrap(), 0));
            client.connect(SocketAddr::new(SERVER[at].parse().unwrap(), 53)).unwrap();
            client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let port = client.local_addr().unwrap().port();
            // Addresses are resolved.
            assert!((0..10).any(|_| asks(&client)), "no answer at all");
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let frame = spoofed(v6, port);
            // From outside, and from within: whoever shares the client's network can send in its name.
            for (ns, what) in [(&outside, "outside"), (&lab.victim, "inside")] {
                let before = lab.counter("rules-made");
                let raw = Raw::open(ns, "eth0");
                for _ in 0..20 {
                    raw.send(&frame);
                    assert!(asks(&client), "IPv6 {v6}: no answer any more, spoofed from {what}");
                }
                assert_eq!(lab.counter("rules-made"), before, "spoofed from {what}");
            }
            let explained = explain(&lab, v6, port);
            assert_eq!(explained.verdict, "pass", "{explained:?}");
            assert_eq!(explained.because, "solicited", "{explained:?}");
        }
        for refused in ["icmp-from-outside", "icmp-solicited"] {
            wait_until(&format!("{refused} is 40"), Duration::from_secs(10), || lab.counter(refused) >= 40);
        }
    });
    let said = lab.end(Duration::from_secs(20), true);
    assert_eq!(said["dropped"], serde_json::json!({}), "{said}");
}

/// Sets it, however the scope is left.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
