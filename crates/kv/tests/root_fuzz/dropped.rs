//! What is dropped, all of it: KERNEL.md has this list, each with why it cannot pass. Whatever else is malformed goes to memcached as it came.

use super::streams::{CLIENT, EGRESS, PUSH, SERVER, SYN_ACK, segment};
use super::{DROP, PASS, frame, udp};
use crate::lab::{Lab, ready};
use std::time::Duration;

const ACK: u8 = 0x10;
const URGENT: u8 = 0x20;

fn interface() -> u32 {
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).unwrap();
    rustix::net::netdevice::name_to_index(socket, "server").unwrap()
}

/// A binary request with so many bytes of extras, key and value.
fn binary(opcode: u8, extras: u8, key: u8, value: u8) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode, 0, key, extras, 0, 0, 0, 0, 0, 0, extras + key + value];
    bytes.resize(24 + usize::from(extras) + usize::from(key) + usize::from(value), 0);
    bytes
}

#[test]
fn root_fuzz_what_is_dropped_of_datagrams() {
    if !ready("dropped::root_fuzz_what_is_dropped_of_datagrams") {
        return;
    }
    let lab = Lab::new(&["server"]);
    let interface = interface();
    let gives = |bytes: &[u8]| {
        let before = lab.cache.count("udp-half");
        let sent = frame(0, false, 17, &udp(7, bytes));
        let (verdict, made) = lab.cache.object().run_once(&sent, interface).unwrap();
        assert!(verdict.action == DROP || made == sent, "untouched: {}", bytes.escape_ascii());
        assert_eq!(
            lab.cache.count("udp-half") - before,
            u64::from(verdict.action == DROP),
            "by name: {}",
            bytes.escape_ascii()
        );
        verdict.action
    };
    let mut half = binary(1, 8, 1, 9);
    half.truncate(40);
    let dropped: Vec<Vec<u8>> = vec![
        // Ends within a value.
        b"set k 0 0 3\r\n".to_vec(),
        b"set k 0 0 3\r\nab".to_vec(),
        b"set k 0 0 3\r\nabc\r".to_vec(),
        b"ms k 3 Z\r\nab".to_vec(),
        b"nonsense\r\nset k 0 0 3\r\n".to_vec(),
        half,
        // A number that memcached takes or not, by its version.
        b"set k 0 0 +3\r\nabc\r\n".to_vec(),
        b"set k 0 0 3\tx\r\nabc\r\n".to_vec(),
        b"set k 4294967299 0 3\r\nabc\r\n".to_vec(),
        b"set k 0 0 4294967299\r\nabc\r\n".to_vec(),
        [b"ms k 3", &b" c".repeat(17)[..], b"\r\nabc\r\n"].concat(),
        // memcached skips what is not there, or reads a value as requests.
        binary(0x77, 0, 3, 0),
        binary(0x77, 4, 0, 0),
        binary(0x1c, 4, 1, 1),
        binary(0x10, 0, 1, 1),
    ];
    for bytes in &dropped {
        assert_eq!(gives(bytes), DROP, "{}", bytes.escape_ascii());
    }
    let long = "k".repeat(251);
    let passed: Vec<Vec<u8>> = vec![
        format!("set {long} 0 0 1\r\nx\r\n").into_bytes(),
        b"set k 0 0 -1\r\n".to_vec(),
        b"set k -1 0 1\r\n".to_vec(),
        b"set k 0 0 3x\r\n".to_vec(),
        b"set k 0 0 3\r\nabcdef\r\n".to_vec(),
        b"set k 0 0 1 2 3 4\r\n".to_vec(),
        b"ms k x\r\n".to_vec(),
        b"ms k 1 Z\r\nx\r\n".to_vec(),
        b"ms\r\n".to_vec(),
        b"set\0 k 0 0 9\r\n".to_vec(),
        b"nonsense\r\nset k 0 0 1\r\nx\r\n".to_vec(),
        // Half a line, half a header: memcached forgets it.
        b"set k 0 0 1\r\nx\r\nget k".to_vec(),
        b"set k 0 0 9".to_vec(),
        b"\x80\x01\0".to_vec(),
        binary(1, 8, 1, 0)[..30].to_vec(),
        // An error is the answer, and all of the datagram is forgotten.
        binary(0, 4, 1, 0),
        binary(1, 0, 1, 5),
        binary(0x1c, 0, 1, 0),
        binary(0x10, 4, 0, 0),
        binary(0x77, 0, 0, 3),
    ];
    for bytes in &passed {
        assert_eq!(gives(bytes), PASS, "{}", bytes.escape_ascii());
    }
}

/// A connection that both programs know, by its port.
struct Known<'a> {
    lab: &'a Lab,
    interface: u32,
    port: u16,
    blind: u64,
}

impl<'a> Known<'a> {
    fn new(lab: &'a Lab, port: u16) -> Self {
        let opening = segment(false, port, false, (SERVER - 1, CLIENT), SYN_ACK, &[]);
        let said = lab.cache.object().run_egress(EGRESS, &opening).unwrap();
        assert_eq!(said as i32, -1);
        Known { lab, interface: interface(), port, blind: lab.cache.count("tcp-blind") }
    }

    fn comes(&self, ahead: u32, acknowledged: u32, flags: u8, bytes: &[u8], is_right: bool) -> u32 {
        let numbers = (CLIENT.wrapping_add(ahead), acknowledged);
        let mut frame = segment(false, self.port, true, numbers, flags, bytes);
        frame[14 + 20 + 16] ^= u8::from(!is_right);
        self.lab.cache.object().run_once(&frame, self.interface).unwrap().0.action
    }

    fn is_followed(&self) -> bool {
        self.lab.cache.count("tcp-blind") == self.blind
    }
}

const SET: &[u8] = b"set k 0 0 1\r\nx\r\n";

#[test]
fn root_fuzz_what_is_dropped_of_connections() {
    if !ready("dropped::root_fuzz_what_is_dropped_of_connections") {
        return;
    }
    let lab = Lab::new(&["server"]);
    let one = Known::new(&lab, 10_001);
    let end = SET.len() as u32;
    assert_eq!(one.comes(0, SERVER, PUSH, SET, true), PASS);
    // One before is missing; what was never sent is acknowledged; a wrong sum; urgent data out of its order.
    assert_eq!(one.comes(end + 5, SERVER, PUSH, SET, true), DROP);
    assert_eq!(one.comes(end, SERVER + 5, PUSH, SET, true), DROP);
    assert_eq!(one.comes(end, SERVER, PUSH, SET, false), DROP);
    assert_eq!(one.comes(0, SERVER, PUSH | URGENT, SET, true), DROP);
    assert_eq!(one.comes(end + 5, SERVER, ACK | URGENT, &[], true), DROP);
    // Everything else passes: what was seen, what has no data, what is no data of a connection.
    assert_eq!(one.comes(0, SERVER, PUSH, SET, true), PASS);
    assert_eq!(one.comes(end + 5, SERVER, ACK, &[], true), PASS);
    assert_eq!(one.comes(end, SERVER, 0, SET, true), PASS, "no flags");
    assert_eq!(one.comes(end + 9, SERVER, 4, SET, true), PASS, "RST");
    assert_eq!(one.comes(end + 9, SERVER, 2, SET, true), PASS, "SYN");
    assert!(one.is_followed());
    assert_eq!(one.comes(end, SERVER, PUSH, b"nonsense\r\n", true), PASS);
    assert!(!one.is_followed());
    // And of one that is not followed, everything.
    assert_eq!(one.comes(end + 900, SERVER, PUSH, SET, true), PASS);
    let before = lab.cache.count("tcp-busy");
    assert_eq!(before, 0, "only where two processors read one connection");
}

/// Who does not know a connection's numbers cannot end that it is followed.
#[test]
fn root_fuzz_forged_segments_blind_nobody() {
    if !ready("dropped::root_fuzz_forged_segments_blind_nobody") {
        return;
    }
    let lab = Lab::new(&["server"]);
    let one = Known::new(&lab, 10_002);
    let far = [1 << 30 | 1, 1 << 31, 3 << 30, u32::MAX - 5000];
    let send = || {
        for ahead in far {
            // Urgent data, in and out of order, and of wrong sums.
            one.comes(ahead, SERVER, PUSH | URGENT, SET, true);
            one.comes(ahead, SERVER, ACK | URGENT, &[], true);
            one.comes(ahead, SERVER, PUSH, SET, true);
            one.comes(0, SERVER.wrapping_add(ahead), PUSH, SET, false);
            one.comes(0, SERVER.wrapping_add(1 << 30 | 1), PUSH, SET, true);
            one.comes(0, SERVER, PUSH | URGENT, SET, false);
            one.comes(77, SERVER, PUSH, SET, false);
        }
    };
    send();
    std::thread::sleep(Duration::from_millis(3200));
    send();
    assert!(one.is_followed(), "{:?}", lab.cache.counts());
    assert_eq!(one.comes(0, SERVER, PUSH, SET, true), PASS);
    assert!(one.is_followed());
    // In its order it is the connection's own.
    assert_eq!(one.comes(SET.len() as u32, SERVER, ACK | URGENT, &[], true), PASS);
    assert!(!one.is_followed());
    // A hole within the window that stays is one.
    let two = Known::new(&lab, 10_003);
    let before = lab.cache.count("tcp-blind");
    assert_eq!(two.comes(9, SERVER, PUSH, SET, true), DROP);
    std::thread::sleep(Duration::from_millis(3200));
    assert_eq!(two.comes(9, SERVER, PUSH, SET, true), PASS);
    assert_eq!(lab.cache.count("tcp-blind"), before + 1);
}
