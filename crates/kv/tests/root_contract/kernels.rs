//! What is tested of the kernel's tier alone: it stands on memcached's own machine, and is held to memcached's words about what is no plain question.

use super::mutations::{To, all};
use crate::contract::lab::{Lab, turn};
use crate::contract::pair::{PATIENCE, Pair};
use crate::contract::segments::{ACK, PSH, RST, Segments};
use crate::contract::wire::{self, Ask, Mode, SPEECHES, Said, Speech};
use std::time::{Duration, Instant};

#[test]
fn every_command_behind_the_cable_voids_what_is_cached() {
    let Some(_turn) = turn("every_command_behind_the_cable_voids_what_is_cached") else { return };
    let lab = Lab::cached();
    for to in [To::LoopbackTcp, To::LoopbackUdp] {
        let count: usize = SPEECHES.iter().map(|speech| all(&lab, to, *speech)).sum();
        assert_eq!(count, 84);
    }
}

/// Why a datagram that ends within a value is dropped: memcached takes another client's for the rest of it, and changes a key that this one does not name.
#[test]
fn half_a_value_is_not_ended_by_another_client() {
    let Some(_turn) = turn("half_a_value_is_not_ended_by_another_client") else { return };
    // The next datagram is the next that its one thread reads.
    let mut lab = Lab::with_threads(1);
    lab.attach();
    let whole = b"set v 0 0 1\r\nb\r\n";
    // The frame's header counts, and the end of the line does not.
    let half = format!("set k 0 0 {}\r\n", 8 + whole.len() - 2);
    let put = Ask::Put { mode: Mode::Set, data: b"old".to_vec(), flags: 0, expiry: 0 };
    let said = lab.sides().map(|server| {
        let (mut tcp, mut one, mut other) = (lab.tcp(server), lab.udp(server), lab.udp(server));
        // Who is to hear nothing waits less.
        one.wait = Duration::from_millis(200);
        let is_cached = std::ptr::eq(server, lab.sides()[0]);
        other.wait = if is_cached { Duration::from_secs(5) } else { Duration::from_millis(200) };
        assert_eq!(tcp.ask(Speech::Ascii, &put, b"k"), Said::Done);
        let request = one.send(half.as_bytes());
        assert_eq!(one.receive(request), None, "nothing is said to it");
        let mut value = |key: &[u8]| match tcp.ask(Speech::Ascii, &Ask::Get, key) {
            Said::Value { data, .. } => Some(data),
            _ => None,
        };
        assert_eq!(value(b"k"), Some(b"old".to_vec()), "a cache would keep it");
        let request = other.send(whole);
        let answer = other.receive(request);
        // Without a word it may take its time.
        let start = Instant::now();
        while !is_cached && value(b"k") == Some(b"old".to_vec()) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        (answer, value(b"v"), value(b"k"))
    });
    assert_eq!(said[0], (Some(b"STORED\r\n".to_vec()), Some(b"b".to_vec()), Some(b"old".to_vec())));
    assert_eq!(lab.cache.as_ref().unwrap().count("udp-half"), 1);
    let (answer, v, k) = &said[1];
    assert_eq!((answer, v), (&None, &None), "memcached by itself");
    assert!(k.as_ref().is_some_and(|k| k.ends_with(b"set v 0 0 1\r\nb")), "{k:?}");
}

/// A segment in fragments of IP is not read: it voids what it writes, its connection is not followed from then on, and what comes behind it comes through.
#[test]
#[allow(clippy::single_range_in_vec_init)] // an order of one part is an order
fn segments_in_fragments() {
    let Some(_turn) = turn("segments_in_fragments") else { return };
    let lab = Lab::cached();
    let mut pair = Pair::new(&lab);
    for (port, later_first) in [(40_006, false), (40_007, true)] {
        pair.given(b"parts", 0, 0, b"before");
        let blind = |lab: &Lab| lab.cache.as_ref().unwrap().count("tcp-blind");
        let before = blind(&lab);
        let mut tcp = Segments::connect(&lab, port, 1_000);
        let mut at = 1;
        for (number, value) in ["first", "again", "third"].into_iter().enumerate() {
            let stream = format!("set parts 0 0 5\r\n{value}\r\n");
            tcp.said.clear();
            if number == 0 {
                tcp.in_fragments(at, ACK | PSH, stream.as_bytes(), later_first);
            } else {
                tcp.deliver(at, stream.as_bytes(), &[0..stream.len()]);
            }
            tcp.until(b"STORED\r\n");
            at += stream.len() as u32;
            let _ = pair.plain.tcp(stream.as_bytes());
            pair.reads(b"parts", &format!("{value}, the later one first {later_first}"));
        }
        assert_eq!((blind(&lab) - before, lab.cache.as_ref().unwrap().count("tcp-out-of-order")), (1, 0));
        tcp.segment(at, RST | ACK, b"");
    }
    lab.warm(b"parts");
}

/// Whatever a datagram holds, the answer is memcached's, and so is silence.
#[test]
fn what_is_no_plain_question_passes() {
    let Some(_turn) = turn("what_is_no_plain_question_passes") else { return };
    // A thread that has half a command waits for the rest of it in the next datagram that comes to itself: with one thread that is
    // the same on both sides.
    let mut lab = Lab::with_threads(1);
    lab.attach();
    let mut pair = Pair::new(&lab);
    pair.given(b"one", 3, 0, b"value");
    let long = [b"set ", &[b'k'; 251][..], b" 0 0 1\r\nx\r\n"].concat();
    let requests: &[&[u8]] = &[
        b"get\r\n",
        b"get \r\n",
        b"GET one\r\n",
        b"gets one\r\n"[..4].as_ref(),
        b"get one\r\nget one\r\n",
        b"get one\r\nget two\r\n",
        b"get one\r\nmn\r\n",
        b"mg one v\r\nmg one v\r\n",
        b"mg one v\r\nmn\r\n",
        b"mg\r\n",
        b"mg one v Q\r\n",
        b"mg one v v\r\n",
        b"mg one v b\r\n",
        b"mg b25l v b k\r\n",
        b"mg b25l k v b f\r\n",
        b"mg one v N30\r\n",
        b"mg none v N30 f\r\n",
        b"mg one v R30\r\n",
        b"mg one v Oabcdefghijklmnopqrstuvwxyz012345\r\n",
        b"mg one v Oabcdefghijklmnopqrstuvwxyz0123456789\r\n",
        b"mg one v k q\r\n",
        b"mg none v k q\r\n",
        b"mn\r\n",
        b"version\r\n",
        b"verbosity 1\r\n",
        b"get one noreply\r\n",
        b"nonsense\r\n",
        b"\r\n",
        b"\n",
        b"",
        b"\x81\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00one",
        // Stores that are refused, and what is behind them.
        &long,
        b"set k 0 0 -1\r\n",
        b"set k 0 0 3\r\nabcdef\r\n",
        b"set k 0 0 3\r\nabcd\r\nget one\r\n",
        b"ms k x\r\n",
        b"ms k\r\n",
        b"ms k 3 Z\r\nabc\r\nmg one v\r\n",
        b"set k\r\n",
        b"set k 0 0 3 4 5 6\r\nget one\r\n",
        b"set k x 0 3\r\nget one\r\n",
        b"set k 0 - 3\r\nget one\r\n",
        b"cas k 0 0 3\r\nget one\r\n",
        b"cas k 0 0 3 x\r\nget one\r\n",
        b"add k 0\x000 3\r\nget one\r\n",
        b"nonsense\r\nget one\r\n",
        b"get one\r\nnonsense\r\nversion\r\n",
        b"get one\r\nset k 0 0 1",
        b"version\r\n\x80",
    ];
    for bytes in requests {
        let what = format!("{:?}", bytes.escape_ascii().to_string());
        pair.datagrams(bytes, &what);
    }
    for (request, bytes) in [
        ("GETQ there", wire::packet(0x09, b"", b"one", b"", 8, 0)),
        ("GETQ none", wire::packet(0x09, b"", b"none", b"", 8, 0)),
        ("GETKQ there", wire::packet(0x0d, b"", b"one", b"", 8, 0)),
        ("GETKQ none", wire::packet(0x0d, b"", b"none", b"", 8, 0)),
        ("GETK none", wire::packet(0x0c, b"", b"none", b"", 8, 0)),
        ("GET with extras", wire::packet(0x00, b"\0\0\0\0", b"one", b"", 8, 0)),
        ("GET with a value", wire::packet(0x00, b"", b"one", b"x", 8, 0)),
        ("GET with a cas", wire::packet(0x00, b"", b"one", b"", 8, 77)),
        ("GET of nothing", wire::packet(0x00, b"", b"", b"", 8, 0)),
        ("NOOP", wire::packet(0x0a, b"", b"", b"", 8, 0)),
        ("VERSION", wire::packet(0x0b, b"", b"", b"", 8, 0)),
        ("unknown", wire::packet(0x77, b"", b"", b"", 8, 0)),
        ("TOUCH without a time", wire::packet(0x1c, b"", b"one", b"", 8, 0)),
        ("STAT with extras", wire::packet(0x10, b"\0\0\0\0", b"", b"", 8, 0)),
        (
            "two",
            [wire::packet(0x09, b"", b"one", b"", 1, 0), wire::packet(0x00, b"", b"one", b"", 2, 0)].concat(),
        ),
    ] {
        pair.datagrams(&bytes, request);
    }
    // Datagrams that are none of memcached's: its header cut off, more of them than one, another order.
    for frame in [
        &b""[..],
        b"\0\x01",
        b"\0\x01\0\0\0\x01\0",
        b"\0\x01\0\0\0\x02\0\0get one\r\n",
        b"\0\x01\0\x01\0\x02\0\0get one\r\n",
        b"\0\x01\0\0\0\0\0\0get one\r\n",
        b"\0\x01\0\x01\0\x01\0\0get one\r\n",
        b"\0\x01\0\0\0\x01\x12\x34get one\r\n",
    ] {
        let (sides, start) = ([&pair.cached.udp, &pair.plain.udp], Instant::now());
        let mut said = sides.map(|udp| {
            udp.send_frame(frame);
            Vec::new()
        });
        loop {
            for (udp, said) in sides.into_iter().zip(&mut said) {
                // What was left half said may be answered now: each by its own number.
                while let Some(frame) = udp.frame(Duration::from_millis(150)) {
                    said.push(frame[2.min(frame.len())..].to_vec());
                }
            }
            // A machine that is busy may have one of them wait for longer than that.
            if said[0] == said[1] || start.elapsed() > PATIENCE {
                break;
            }
        }
        assert_eq!(said[0], said[1], "{frame:?}");
    }
    pair.reads(b"one", "afterwards");
    drop(lab);
    // Half a command: memcached waits for the rest, which is whatever comes next; a cache may answer that instead. So each is the
    // last thing that is said.
    let unknown = wire::packet(0x77, b"", b"one", b"", 8, 0);
    for half in [
        &b"get one"[..],
        b"get one\r",
        b"\x80",
        b"\x80\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x03",
        // Of an unknown one it skips more than there is.
        &unknown,
    ] {
        let mut lab = Lab::with_threads(1);
        lab.attach();
        let mut pair = Pair::new(&lab);
        pair.given(b"one", 3, 0, b"value");
        pair.datagrams(half, &format!("{:?}", String::from_utf8_lossy(half)));
    }
}
