//! What is tested of the kernel's tier alone: it stands on memcached's own machine, and is held to memcached's words about what is no plain question.

use super::mutations::{To, all};
use super::reads;
use crate::contract::cache::{Cache, options};
use crate::contract::lab::{INTERFACES, Lab, turn};
use crate::contract::pair::{PATIENCE, Pair};
use crate::contract::segments::{ACK, PSH, Padded, RST, Segments};
use crate::contract::wire::{self, Ask, Mode, SPEECHES, Said, Speech};
use crate::net::wait_until;
use std::time::{Duration, Instant};
use tidemill_kv::kernel;

#[test]
fn every_command_behind_the_cable_voids_what_is_cached() {
    let Some(_turn) = turn("every_command_behind_the_cable_voids_what_is_cached") else { return };
    let lab = Lab::cached();
    for to in [To::LoopbackTcp, To::LoopbackUdp] {
        let count: usize = SPEECHES.iter().map(|speech| all(&lab, to, *speech)).sum();
        assert_eq!(count, 84);
    }
}

/// As on a container's cable where nobody says anything: behind the driver, and no program at the clients' end.
#[test]
fn behind_the_driver_it_is_the_same() {
    let Some(_turn) = turn("behind_the_driver_it_is_the_same") else { return };
    let mut lab = Lab::plain();
    lab.cached.passing = None;
    let mut options = options(INTERFACES);
    options.mode = kernel::Mode::Auto;
    lab.cache = Some(Cache::with(&lab.cached, &options));
    reads::READS.iter().for_each(|read| read(&lab));
    let count: usize =
        [To::Tcp, To::Udp].iter().flat_map(|to| SPEECHES.map(|speech| all(&lab, *to, speech))).sum();
    assert_eq!(count, 168);
}

/// Where a frame has room for it a long answer is the cache's too, on a cable, to the byte and in a frame of its length: longer than the question, and shorter than the frame.
#[test]
fn long_answers_where_a_frame_has_room() {
    let Some(_turn) = turn("long_answers_where_a_frame_has_room") else { return };
    let lab = Lab::cached();
    let cache = lab.cache.as_ref().unwrap();
    let mut tcp = lab.tcp(&lab.cached);
    let mut clients = [(40_100, false), (40_101, true)].map(|(port, is_v6)| Padded::new(&lab, port, is_v6));
    let mut put = |key: &str, length: usize| {
        let data: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let value = [format!("VALUE {key} 5 {length}\r\n").as_bytes(), &data[..], b"\r\n"].concat();
        let put = Ask::Put { mode: Mode::Set, data, flags: 5, expiry: 0 };
        assert_eq!(tcp.ask(Speech::Ascii, &put, key.as_bytes()), Said::Done);
        value
    };
    // Whether the cache has answered, and with what.
    let asked = |client: &mut Padded, request: &str| {
        let hits = cache.count("get-hit");
        let said = client.ask(request.as_bytes());
        (cache.count("get-hit") > hits, said)
    };
    for length in [66, 127, 128, 255, 256, 500, 511, 512, 1000, 1023, 1024, 1025] {
        let (key, request) = (format!("long:{length}"), format!("get long:{length}\r\n"));
        let wanted = [&put(&key, length)[..], b"END\r\n"].concat();
        for client in &mut clients {
            let mut times = 0;
            wait_until(&format!("an answer with {length} bytes"), Duration::from_secs(10), || {
                times += 1;
                let (hit, said) = asked(client, &request);
                assert!(said.as_ref().is_none_or(|said| *said == wanted), "{length}: {said:?}");
                assert!(!hit || (said.is_some() && length <= 1024), "{length}: {said:?}");
                hit || (length > 1024 && times > 20)
            });
        }
    }
    // Several values in one datagram: the most that IPv6 and IPv4 take.
    for (client, length) in clients.iter_mut().rev().zip([50, 60]) {
        let keys: Vec<String> = (0..16).map(|n| format!("m{length}:{n:02}")).collect();
        let mut wanted: Vec<u8> = keys.iter().flat_map(|key| put(key, length)).collect();
        wanted.extend(b"END\r\n");
        keys.iter().for_each(|key| lab.warm(key.as_bytes()));
        let request = format!("get {}\r\n", keys.join(" "));
        wait_until("all of them", Duration::from_secs(10), || {
            let (hit, said) = asked(client, &request);
            assert!(!hit || said.as_ref() == Some(&wanted), "{said:?}");
            hit
        });
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
    let mut lab = Lab::with_threads(1);
    lab.attach();
    reads::odd(&lab);
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
