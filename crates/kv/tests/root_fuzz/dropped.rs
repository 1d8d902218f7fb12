//! What is dropped, all of it: KERNEL.md has this list, each with why it cannot pass. Whatever else is malformed goes to memcached as it came. And what is not
//! followed, or not believed, of what passes.

use super::streams::{CLIENT, EGRESS, PUSH, SERVER, SYN_ACK, segment};
use super::{DROP, PASS, TX, admit, frame, udp};
use crate::lab::{Lab, ready};
use std::path::Path;
use std::time::Duration;
use tidemill_bpf::Pins;
use tidemill_kv::kernel::Look;

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

/// A segment in parts comes to memcached without being read: its connection is not followed from then on, unless its number cannot be the connection's own.
#[test]
fn root_fuzz_segments_in_parts_are_not_followed() {
    if !ready("dropped::root_fuzz_segments_in_parts_are_not_followed") {
        return;
    }
    let lab = Lab::new(&["server"]);
    // `field`: of the IPv4 header, whether more comes, and where this is.
    let is_followed = |known: &Known<'_>, ahead: u32, field: u16| {
        let numbers = (CLIENT.wrapping_add(ahead), SERVER);
        let mut part = segment(false, known.port, true, numbers, PUSH, SET);
        part[20..22].copy_from_slice(&field.to_be_bytes());
        assert_eq!(lab.cache.object().run_once(&part, known.interface).unwrap().0.action, PASS);
        known.is_followed()
    };
    let one = Known::new(&lab, 10_004);
    for ahead in [1 << 30 | 1, 1 << 31, 3 << 30] {
        assert!(is_followed(&one, ahead, 0x2000), "{ahead}");
    }
    assert!(is_followed(&one, 0, 0x2005), "whose a later one is nobody can say");
    assert!(!is_followed(&one, 0, 0x2000));
    let two = Known::new(&lab, 10_005);
    assert!(!is_followed(&two, 0_u32.wrapping_sub(10), 0x2000), "it may end behind what was read");
    // Behind a header of IPv6 that is not read.
    let opening = segment(true, 10_006, false, (SERVER - 1, CLIENT), SYN_ACK, &[]);
    assert_eq!(lab.cache.object().run_egress(EGRESS, &opening).unwrap() as i32, -1);
    let mut behind = segment(true, 10_006, true, (CLIENT, SERVER), PUSH, SET);
    let length = (8 + 20 + SET.len() as u16).to_be_bytes();
    behind[18..20].copy_from_slice(&length);
    behind[20] = 60;
    drop(behind.splice(54..54, [6, 0, 1, 4, 0, 0, 0, 0]));
    let before = lab.cache.count("tcp-blind");
    assert_eq!(lab.cache.object().run_once(&behind, interface()).unwrap().0.action, PASS);
    assert_eq!(lab.cache.count("tcp-blind"), before + 1);
}

/// Multipath TCP: a value may begin on one connection and end on another, and what looks like it there is the next command.
#[test]
fn root_fuzz_a_stream_of_several_connections_is_not_followed() {
    if !ready("dropped::root_fuzz_a_stream_of_several_connections_is_not_followed") {
        return;
    }
    let lab = Lab::new(&["server"]);
    let look = Look::open(Path::new(Pins::ROOT), "kv").unwrap();
    let opens = |v6: bool, port: u16, options: &[u8]| {
        let mut opening = segment(v6, port, false, (SERVER - 1, CLIENT), SYN_ACK, options);
        // The header is longer by these.
        opening[if v6 { 54 } else { 34 } + 12] += 4 * options.len() as u8;
        lab.cache.object().run_egress(EGRESS, &opening).unwrap() as i32
    };
    let usual: [u8; 20] = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let capable: [u8; 12] = [30, 12, 1, 1, 0, 0, 0, 0, 0, 0, 0, 9];
    let cases: [(Vec<u8>, u64); 8] = [
        (usual.to_vec(), 0),
        (vec![1; 40], 0),
        // Behind the last one.
        (vec![0, 30, 12, 1], 0),
        (capable.to_vec(), 1),
        ([&usual[..], &capable].concat(), 1),
        ([&[1_u8; 28][..], &capable].concat(), 1),
        // Such as cannot be read.
        (vec![2, 9, 0, 0], 1),
        (vec![5, 0, 0, 0], 1),
    ];
    for (at, (options, blind)) in (0..).zip(&cases) {
        for v6 in [false, true] {
            let (port, before) = (10_100 + 2 * at + u16::from(v6), lab.cache.count("tcp-blind"));
            assert_eq!(opens(v6, port, options), -1);
            assert_eq!(lab.cache.count("tcp-blind"), before, "nobody blinds by a SYN alone");
            let first = segment(v6, port, true, (CLIENT, SERVER), PUSH, SET);
            assert_eq!(lab.cache.object().run_once(&first, interface()).unwrap().0.action, PASS);
            assert_eq!(lab.cache.count("tcp-blind") - before, *blind, "{options:?}");
        }
    }
    let told = look.blind().unwrap();
    assert!(told.len() == 10 && told.iter().all(|one| one.why.contains("Multipath TCP")), "{told:?}");
}

/// What memcached's kernel acknowledges and nobody has read has come another way, such as by an interface that is not attached.
#[test]
fn root_fuzz_what_is_acknowledged_and_was_not_read() {
    if !ready("dropped::root_fuzz_what_is_acknowledged_and_was_not_read") {
        return;
    }
    const PORT: u16 = 10_008;
    const RESET: u8 = 4;
    let lab = Lab::new(&["server"]);
    let one = Known::new(&lab, PORT);
    assert_eq!(one.comes(0, SERVER, PUSH, SET, true), PASS);
    let acknowledges = |ahead: u32, flags: u8| {
        let sent = segment(false, PORT, false, (SERVER, CLIENT.wrapping_add(ahead)), flags, &[]);
        assert_eq!(lab.cache.object().run_egress(EGRESS, &sent).unwrap() as i32, -1);
        one.is_followed()
    };
    let end = SET.len() as u32;
    // Nothing, all, a FIN behind it; what resets one that was there before.
    for (ahead, flags) in [(0, ACK), (end, ACK), (end + 1, ACK), (end + 9, ACK | RESET)] {
        assert!(acknowledges(ahead, flags), "{ahead}");
    }
    assert!(!acknowledges(end + 2, ACK));
    assert_eq!(lab.cache.blind(), 1);
}

/// An answer to nothing that was seen: what it answers has come another way. Nothing that was kept before is served when its client has it.
#[test]
fn root_fuzz_an_answer_to_nothing_voids_what_is_kept() {
    if !ready("dropped::root_fuzz_an_answer_to_nothing_voids_what_is_kept") {
        return;
    }
    const PORT: u16 = 10_007;
    let mut lab = Lab::new(&["server"]);
    let interface = interface();
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    let leaves = |lab: &Lab, sequence: u32, flags: u8, bytes: &[u8]| {
        let sent = segment(false, PORT, false, (sequence, CLIENT), flags, bytes);
        assert_eq!(lab.cache.object().run_egress(EGRESS, &sent).unwrap() as i32, -1);
    };
    let get = frame(0, false, 17, &udp(1, b"get k\r\n"));
    let asked = |lab: &Lab| lab.cache.object().run_once(&get, interface).unwrap().0.action;
    admit(&mut lab, interface, "k");
    leaves(&lab, SERVER - 1, SYN_ACK, &[]);
    assert_eq!(asked(&lab), TX);
    leaves(&lab, SERVER, PUSH, b"STORED\r\n");
    assert_eq!(lab.cache.count("tcp-deaf"), 1);
    // The lease is a new one.
    lab.cache.round().unwrap();
    assert_eq!(asked(&lab), PASS);
}

/// Of a datagram with one mutation among other requests only the mutation's own answer says that it is executed.
#[test]
fn root_fuzz_answers_to_other_requests_release_nothing() {
    if !ready("dropped::root_fuzz_answers_to_other_requests_release_nothing") {
        return;
    }
    let lab = Lab::new(&["server"]);
    let waits = || lab.cache.slot(b"\0").1;
    let (get, set) = (binary(0, 0, 1, 0), binary(1, 8, 1, 1));
    let sent = frame(0, false, 17, &udp(7, &[&get[..], &set, &get].concat()));
    assert_eq!(lab.cache.object().run_once(&sent, interface()).unwrap().0.action, PASS);
    assert_eq!(waits(), 1);
    let answered = |opcode: u8| {
        let mut reply = vec![0x81, opcode];
        reply.resize(24, 0);
        let mut data = udp(7, &reply);
        // From the server; sums stay the same.
        data[..4].rotate_left(2);
        let mut sent = frame(0, false, 17, &data);
        sent[26..34].rotate_left(4);
        assert_eq!(lab.cache.object().run_egress(EGRESS, &sent).unwrap() as i32, -1);
    };
    answered(0);
    assert_eq!(waits(), 1, "the first get's");
    answered(1);
    assert_eq!(waits(), 0);
}
