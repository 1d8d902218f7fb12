//! Thousands of granted flows, all of which a revocation has ask again at once.

use crate::lab::{Lab, Plan};
use crate::net::wait_until;
use crate::{at, turn};
use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SOURCES: usize = 256;
const SERVERS: usize = 8;
const FLOWS: usize = SOURCES * SERVERS;
/// In which each flow sends a packet: as long as the grace.
const ROUND: Duration = Duration::from_millis(100);

/// Each flow sends a packet in each round, until it is told to stop: the flow's number, and the round's.
fn send(from: &[UdpSocket], to: &[SocketAddr], round: &AtomicU32, done: &AtomicBool) {
    let (begun, mut sent) = (Instant::now(), 0);
    while !done.load(Relaxed) {
        let due = (begun.elapsed().as_secs_f64() / ROUND.as_secs_f64() * FLOWS as f64) as usize;
        while sent < due {
            let (flow, number) = (sent % FLOWS, (sent / FLOWS) as u32);
            round.store(number, Relaxed);
            let datagram = [(flow as u32).to_be_bytes(), number.to_be_bytes()].concat();
            from[flow % SOURCES].send_to(&datagram, to[flow / SOURCES]).unwrap();
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What has come, until all of it has.
fn receive(socket: &UdpSocket, came: &Mutex<HashSet<(u32, u32)>>, done: &AtomicBool) {
    let mut buffer = [0; 8];
    loop {
        let is_over = done.load(Relaxed);
        match socket.recv(&mut buffer) {
            Ok(_) => {
                let [a, b, c, d, e, f, g, h] = buffer;
                let datagram = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
                came.lock().unwrap().insert(datagram);
            }
            Err(_) if is_over => return,
            Err(_) => {}
        }
    }
}

#[test]
#[ignore = "2,048 flows at once, for a release build: cargo xtask held 9"]
fn thousands_of_flows_are_revoked_at_once_and_lose_nothing() {
    let Some(_turn) = turn("thousands_of_flows_are_revoked_at_once_and_lose_nothing") else { return };
    // Who finds no room in the rush of the beginning goes on asking.
    let policy = "file = \"policy.lua\"\nfail_safe = { action = \"nothing\" }";
    let mut lab = Lab::planned(&Plan { policy, ..Plan::default() });
    lab.first.client.sysctl(&["net.ipv4.ip_nonlocal_bind=1", "net.ipv6.ip_nonlocal_bind=1"]);
    for v6 in [0, 1] {
        let (family, net, source) =
            [("-4", "10.77.0.0/16", "10.77.0."), ("-6", "fd00:77::/64", "fd00:77::")][v6];
        lab.first.client.run(&format!("ip {family} route add local {net} dev lo"));
        let from = |n: usize| lab.first.client.udp(at(&format!("{source}{n}"), 0));
        let sources: Vec<UdpSocket> = (0..SOURCES).map(from).collect();
        let server = |n: usize| {
            let address = format!("{}{}", ["10.9.0.", "fd00:9::"][v6], 40 + n);
            lab.server.add_address(&format!("{address}/{}", [24, 64][v6]), "eth0");
            at(&address, 9000)
        };
        let servers: Vec<SocketAddr> = (0..SERVERS).map(server).collect();
        let to = lab.server.udp(at(["0.0.0.0", "::"][v6], 9000));
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&to, 8 << 20).unwrap();
        to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();

        let counted = |name: &str| lab.first.gate.counters()[name];
        let [requests, revoked] = ["requests", "flows-revoked"].map(counted);
        let (round, done) = (AtomicU32::new(0), AtomicBool::new(false));
        let came = Mutex::new(HashSet::<(u32, u32)>::new());
        let act = || {
            wait_until("all are granted: nobody asks for a second", Duration::from_secs(60), || {
                let before = counted("requests");
                std::thread::sleep(Duration::from_secs(1));
                before >= requests + FLOWS as u64 && counted("requests") == before
            });
            // Without a revocation, to see what this machine loses by itself; and with one.
            [false, true].map(|revokes| {
                let first = round.load(Relaxed) + 1;
                std::thread::sleep(Duration::from_millis(500));
                if revokes {
                    lab.grantor.ask(&["grantor", "revoke"]);
                }
                std::thread::sleep(Duration::from_millis(1500));
                let last = round.load(Relaxed);
                // What is on its way arrives.
                std::thread::sleep(Duration::from_secs(1));
                let came = came.lock().unwrap();
                let sent = (first..last).flat_map(|round| (0..FLOWS as u32).map(move |flow| (flow, round)));
                sent.filter(|datagram| !came.contains(datagram)).count()
            })
        };
        let lost = std::thread::scope(|scope| {
            scope.spawn(|| send(&sources, &servers, &round, &done));
            scope.spawn(|| receive(&to, &came, &done));
            // They end whatever happens here.
            let went = catch_unwind(AssertUnwindSafe(act));
            done.store(true, Relaxed);
            went.unwrap_or_else(|panic| resume_unwind(panic))
        });
        println!("of {FLOWS} flows {} packets were lost without a revocation, {} with one", lost[0], lost[1]);
        assert_eq!(lost, [0, 0]);
        assert!(counted("flows-revoked") >= revoked + FLOWS as u64);
    }
    lab.first.gate.end();
    lab.grantor.end();
}
