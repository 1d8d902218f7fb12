//! Gatekeeper and Grantor, both ours, between the kernels of a client and of a server: grants, refusals, a policy that changes under traffic, decisions
//! taken back, decisions forged, more questions than can be answered. Needs root, and a program built with the feature `lua`.

#![cfg(all(target_os = "linux", feature = "lua"))]
#![allow(clippy::unwrap_used)] // a test may

mod anycast;
mod crowd;
mod hostile;
mod lab;
#[path = "../root_wire/needs.rs"]
mod needs;
#[path = "../root_wire/net.rs"]
#[allow(dead_code)] // shared with another test
mod net;
mod overload;
mod pair;
#[path = "../root_wire/raw.rs"]
#[allow(dead_code)] // shared with another test
mod raw;
mod services;
mod trust;

use lab::{CLIENT, DENIED, Lab, SERVER, script};
use net::wait_until;
use raw::Raw;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, ipv4, ipv6, udp};

/// Waits for the machine. None if the test has to be skipped, which it never is in CI.
fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    needs::alone(test, &["ip", "sysctl", "unshare", "ethtool"])
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// Bytes that are not all alike, and that no error leaves as they are.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Sends so much over a connection, and waits until all of it has arrived as it was. Returns how long that took.
fn transfer(mut stream: TcpStream, listener: &TcpListener, count: usize) -> Duration {
    let (sent, limit) = (bytes(count), Some(Duration::from_secs(60)));
    let (mut there, _) = listener.accept().unwrap();
    there.set_read_timeout(limit).unwrap();
    stream.set_write_timeout(limit).unwrap();
    let (mut came, began) = (Vec::new(), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stream.write_all(&sent).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        });
        there.read_to_end(&mut came).unwrap();
    });
    assert!(came == sent, "{} bytes of {}", came.len(), sent.len());
    began.elapsed()
}

/// The numbers that arrive, to the end of what is sent until `done`; as many as wait for a receiver that stands still.
fn numbers(to: &UdpSocket, done: &AtomicBool) -> BTreeSet<u32> {
    rustix::net::sockopt::set_socket_recv_buffer_size_force(to, 8 << 20).unwrap();
    let (mut came, mut buffer) = (BTreeSet::new(), [0; 4]);
    loop {
        let is_over = done.load(Ordering::Relaxed);
        match to.recv(&mut buffer) {
            Ok(_) => {
                came.insert(u32::from_be_bytes(buffer));
            }
            Err(_) if is_over => return came,
            Err(_) => {}
        }
    }
}

#[test]
fn a_client_is_granted_and_its_transfer_arrives_while_another_stays_out() {
    let Some(_turn) = turn("a_client_is_granted_and_its_transfer_arrives_while_another_stays_out") else {
        return;
    };
    let mut lab = Lab::start(1);
    for v6 in [0, 1] {
        let listener = lab.server.listen(at(SERVER[v6], 8000));
        let stream = lab.first.client.connect(at(SERVER[v6], 8000));
        println!("granted after {:?}", lab.first.becomes(CLIENT[v6], v6, "granted", Some(50_000)));
        transfer(stream, &listener, 3_000_000);

        // The other one gets nothing through, its first packet neither.
        let (from, to) = (lab.first.client.udp(at(DENIED[v6], 0)), lab.server.udp(at(SERVER[v6], 9000)));
        to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let declined = lab.first.gate.counters()["declined"];
        from.send_to(b"first", at(SERVER[v6], 9000)).unwrap();
        lab.first.becomes(DENIED[v6], v6, "declined", None);
        for _ in 0..20 {
            from.send_to(b"more", at(SERVER[v6], 9000)).unwrap();
        }
        lab.first.gate.reaches("declined", declined + 20);
        assert!(to.recv(&mut [0; 16]).is_err());
        // Though the same server hears others.
        lab.first.client.udp(at(CLIENT[v6], 0)).send_to(b"mine", at(SERVER[v6], 9000)).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(to.recv(&mut buffer).map(|len| buffer[..len].to_vec()).unwrap(), b"mine");
    }
    let said = lab.grantor.ask(&["grantor", "questions", "--limit", "1000"]);
    assert!(
        said.contains("granted 50000 KiB/s") && said.contains("declined") && said.contains("fd00:7::3"),
        "{said}"
    );
    let said = lab.grantor.ask(&["grantor", "policy"]);
    assert!(said.contains("policy.lua") && said.contains("deny.txt") && said.contains("fd00:8::1"), "{said}");
    let said = lab.grantor.ask(&["grantor", "counters", "--json"]);
    assert!(said.contains("\"decisions\":") && said.contains("\"policy-asked\":"), "{said}");
    lab.first.gate.end();
    let said = lab.grantor.end();
    assert!(said["dropped"]["policy-refused"].as_u64() >= Some(2), "{said}");
    assert!(said["grantor"]["granted"].as_u64() > Some(3000), "{said}");
}

/// A link whose MTU leaves less than 1,280 bytes for what is in an outer packet: the Gatekeeper cuts the outer ones of IPv6, and the Grantor puts them together, those that ask as those
/// that were granted. The sender need not know of it.
#[test]
fn the_least_mtu_of_ipv6_is_enough() {
    let Some(_turn) = turn("the_least_mtu_of_ipv6_is_enough") else { return };
    let mut lab = Lab::start(1);
    lab.first.middle.run("ip link set tm-lan mtu 1280");
    lab.behind.run("ip link set tm-up mtu 1280");
    let wire = Raw::open(&lab.behind, "tm-up");
    // 1,280 bytes with both headers. Longer than the link takes it is sent until the new MTU is known, and does not arrive.
    let ping = |count| format!("ping -M do -s 1232 -c {count} -i 0.2 -W 2 {}", SERVER[1]);
    assert!((0..10).any(|_| lab.first.client.attempt(&ping(1)).0), "no ping comes back");
    lab.first.becomes(CLIENT[1], 1, "granted", Some(50_000));
    let (_, said) = lab.first.client.attempt(&ping(5));
    assert!(said.contains(" 0% packet loss"), "{said}");
    let frames = std::iter::from_fn(|| wire.receive(Duration::from_millis(20)));
    let is_part = |bytes: &[u8]| {
        let ip = bytes.get(14..).unwrap_or_default();
        bytes.get(12..14) == Some(&[0x86, 0xdd][..]) && (ip.get(6), ip.get(40)) == (Some(&44), Some(&41))
    };
    let parts = frames.take(1000).filter(|frame| is_part(&frame.bytes)).count();
    assert!(parts >= 12, "{parts} parts of 6 outer packets");
    lab.first.gate.end();
    let said = lab.grantor.end();
    assert_eq!(said["dropped"]["protocol-unknown"].as_u64().unwrap_or(0), 0, "{said}");
    assert!(said["grantor"]["granted"].as_u64() >= Some(5), "{said}");
}

/// The policy changes, breaks, changes again, and what it has decided is taken back, while packets flow: none of the granted client's is lost.
#[test]
fn policies_change_under_traffic_and_nothing_is_lost() {
    let Some(_turn) = turn("policies_change_under_traffic_and_nothing_is_lost") else { return };
    let mut lab = Lab::start(2);
    // Half a million prefixes: a reload that takes its time.
    let prefix = |n: u32| format!("{}/28 1\n", Ipv4Addr::from(0x0b00_0000 + 16 * n));
    lab.file("large.txt", &(0..500_000).map(prefix).collect::<String>());
    let large = "local large = lpm(\"large.txt\")\nassert(large:prefixes() == 500000)\n";
    for (v6, mut rate) in [(0, 50_000), (1, 51_500)] {
        let (from, to) = (lab.first.client.udp(at(CLIENT[v6], 0)), lab.server.udp(at(SERVER[v6], 9000)));
        to.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let done = AtomicBool::new(false);
        let (sent, came) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut number = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    from.send_to(&number.to_be_bytes(), at(SERVER[v6], 9000)).unwrap();
                    number += 1;
                    std::thread::sleep(Duration::from_millis(2));
                }
                number
            });
            let receiver = scope.spawn(|| numbers(&to, &done));
            let change = || {
                lab.first.becomes(CLIENT[v6], v6, "granted", Some(rate));
                // A reload holds for what is asked from now on: nobody asks.
                rate += 500;
                lab.policy(&script(rate));
                lab.grantor.ask(&["grantor", "reload"]);
                assert_ne!(lab.first.flow(CLIENT[v6], v6).unwrap().1, Some(rate));
                // A broken script is told with its place, and changes nothing.
                lab.policy("\n\nfunction decide(q) retrun 1 end");
                let (ok, said) = lab.grantor.run(&["grantor", "reload"]);
                assert!(!ok && said.contains("policy.lua:3"), "{said}");
                // What was decided is taken back: flows ask, and the policy that holds answers.
                lab.grantor.ask(&["grantor", "revoke", ["10.9.0.0/24", "fd00:9::/64"][v6]]);
                lab.first.becomes(CLIENT[v6], v6, "granted", Some(rate));
                // By the signal, too, and for all destinations.
                rate += 500;
                lab.policy(&script(rate));
                let reloads = |log: &str| log.matches("reloaded (number").count();
                let before = reloads(&lab.grantor.read("log"));
                lab.grantor.hangup();
                wait_until("it has reloaded", Duration::from_secs(20), || {
                    reloads(&lab.grantor.read("log")) > before
                });
                lab.grantor.ask(&["grantor", "revoke"]);
                lab.first.becomes(CLIENT[v6], v6, "granted", Some(rate));
                rate += 500;
                lab.policy(&(script(rate) + large));
                lab.grantor.ask(&["grantor", "reload"]);
                lab.grantor.ask(&["grantor", "revoke"]);
                lab.first.becomes(CLIENT[v6], v6, "granted", Some(rate));
            };
            // The sender ends whatever happens here.
            let went = std::panic::catch_unwind(std::panic::AssertUnwindSafe(change));
            done.store(true, Ordering::Relaxed);
            let (sent, came) = (sender.join().unwrap(), receiver.join().unwrap());
            went.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (sent, came)
        });
        let lost: Vec<u32> = (0..sent).filter(|number| !came.contains(number)).collect();
        assert!(lost.is_empty(), "{} of {sent}: {lost:?}", lost.len());
    }
    lab.first.gate.end();
    let said = lab.grantor.end();
    assert!(said["grantor"]["revocations"].as_u64() >= Some(6), "{said}");
    assert_eq!(said["grantor"]["fail-safe"].as_u64(), Some(0), "{said}");
}

/// Whoever can send with the Grantor's address, and even sees the key's number, changes nothing without the secret.
#[test]
fn a_forged_decision_changes_nothing() {
    let Some(_turn) = turn("a_forged_decision_changes_nothing") else { return };
    let mut lab = Lab::start(1);
    let raw = Raw::open(&lab.behind, "tm-up");
    let mac = |ns: &net::Netns, interface: &str| {
        let text = ns.run(&format!("ip -o link show {interface}"));
        let text = text.split("link/ether ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect::<Vec<u8>>()
    };
    let link = [mac(&lab.first.middle, "tm-lan"), mac(&lab.behind, "tm-up")].concat();
    for v6 in [0, 1] {
        lab.first.client.udp(at(CLIENT[v6], 0)).send_to(b"ask", at(SERVER[v6], 9000)).unwrap();
        lab.first.becomes(CLIENT[v6], v6, "granted", Some(50_000));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        // Version 2, to a Gatekeeper, key 7; a start, a number, a policy version, the time; then "declined for 60 seconds", and a tag.
        let mut payload = vec![2, 1, 0, 7];
        payload.extend([now.as_secs() as u32, 1, u32::MAX].map(u32::to_be_bytes).concat());
        payload.extend((now.as_nanos() as u64).to_be_bytes());
        payload.extend([v6 as u8, 0, 0, 0]);
        for address in [CLIENT[v6], SERVER[v6]] {
            match address.parse().unwrap() {
                std::net::IpAddr::V4(address) => payload.extend(address.octets()),
                std::net::IpAddr::V6(address) => payload.extend(address.octets()),
            }
        }
        payload.extend(60_u32.to_be_bytes());
        payload.extend([0xa5; 16]);
        let mut datagram = [&[0; 8], &payload[..]].concat();
        let repr = udp::Repr { src_port: 41120, dst_port: 45232, payload_len: payload.len() };
        let frame = if v6 == 0 {
            let (src, dst) = ("10.8.0.2".parse().unwrap(), "10.8.0.1".parse().unwrap());
            repr.emit(&mut datagram, &Pseudo::V4 { src, dst }).unwrap();
            let mut head = vec![0; 20];
            ipv4::Repr::new(src, dst, Protocol::UDP, datagram.len()).emit(&mut head).unwrap();
            [&link[..], &[8, 0], &head, &datagram].concat()
        } else {
            let (src, dst) = ("fd00:8::2".parse().unwrap(), "fd00:8::1".parse().unwrap());
            repr.emit(&mut datagram, &Pseudo::V6 { src, dst }).unwrap();
            let mut head = vec![0; 40];
            ipv6::Repr::new(src, dst, Protocol::UDP, datagram.len()).emit(&mut head).unwrap();
            [&link[..], &[0x86, 0xdd], &head, &datagram].concat()
        };
        let forged = lab.first.gate.counters()["decisions-forged"];
        raw.send(&frame);
        lab.first.gate.reaches("decisions-forged", forged + 1);
        assert_eq!(lab.first.flow(CLIENT[v6], v6), Some(("granted".into(), Some(50_000))));
    }
    let said = lab.first.gate.end();
    assert_eq!(said["dropped"]["decision-forged"].as_u64(), Some(2), "{said}");
    lab.grantor.end();
}
