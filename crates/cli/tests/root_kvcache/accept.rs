//! Connections that memcached has not accepted.

use super::contract::lab::{Lab, Memcached, THREADS, turn};
use super::net::{Netns, wait_until};
use super::{Bridge, judge};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Whether it is answered.
fn is_answered(stream: &mut TcpStream, line: &[u8]) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    stream.write_all(line).unwrap();
    stream.read(&mut [0; 64]).is_ok_and(|read| read > 0)
}

/// memcached has as many as it takes: what another one has brought is executed when one of them ends, though it was reset long before. Nothing that was kept is given
/// until then, nor afterwards.
#[test]
fn what_memcached_has_not_accepted_is_executed_later() {
    let Some(_turn) = turn("what_memcached_has_not_accepted_is_executed_later") else { return };
    let middle = Netns::new("middle");
    let mut lab = Lab::behind(&middle);
    lab.cached.memcached.kill();
    let few = ["-c", "80", "-o", "no_maxconns_fast"];
    lab.cached.memcached = Memcached::start_with(&lab.cached.net, THREADS, &few);
    let mut bridge = Bridge::start(&middle, "misses = 1");
    let hits = || {
        bridge.shown();
        bridge.count("hit-l0") + bridge.count("hit-l1")
    };
    let get = b"get v\r\n";
    let [old, new] = ["a", "b"].map(|value| format!("VALUE v 0 1\r\n{value}\r\nEND\r\n").into_bytes());
    let mut accepted = vec![lab.client.connect(lab.cached.v4)];
    assert!(is_answered(&mut accepted[0], b"set v 0 0 1\r\na\r\n"));
    let mut udp = lab.udp(&lab.cached);
    wait_until("it is kept", Duration::from_secs(10), || {
        udp.ask(get);
        hits() > 0
    });
    let mut waiting = loop {
        assert!(accepted.len() < 200, "memcached accepts them all");
        let mut one = lab.client.connect(lab.cached.v4);
        if !is_answered(&mut one, b"version\r\n") {
            break one;
        }
        accepted.push(one);
    };
    waiting.write_all(b"set v 0 0 1\r\nb\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    rustix::net::sockopt::set_socket_linger(&waiting, Some(Duration::ZERO)).unwrap();
    drop(waiting);
    // For longer than what has no proof is waited for.
    std::thread::sleep(Duration::from_millis(1500));
    let before = hits();
    for _ in 0..50 {
        assert_eq!(udp.ask(get).as_ref(), Some(&old));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(hits(), before, "what may yet be changed is given");
    assert!(bridge.count("checks-behind") > 0);
    drop(accepted.pop());
    wait_until("it is executed", Duration::from_secs(10), || udp.ask(get).as_ref() == Some(&new));
    wait_until("it is kept again", Duration::from_secs(10), || {
        assert_eq!(udp.ask(get).as_ref(), Some(&new));
        hits() > before
    });
    drop(accepted);
    judge(&bridge.end());
}
