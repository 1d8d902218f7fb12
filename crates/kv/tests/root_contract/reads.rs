//! What is read with the cache is what is read without: keys, values, flags, several keys at once. The role's suite has these tests, too, and
//! again with each combination of tiers (`crates/cli/tests/root_kvcache`).

use crate::contract::lab::{Lab, turn};
use crate::contract::pair::{PATIENCE, Pair, WAYS, Way};
use crate::contract::wire::{self, Ask, Said, Speech};
use std::time::{Duration, Instant};

#[test]
fn keys_of_every_length() {
    let Some(_turn) = turn("keys_of_every_length") else { return };
    lengths_of_keys(&crate::front::cached());
}

pub(crate) fn lengths_of_keys(lab: &Lab) {
    let mut pair = Pair::new(lab);
    for length in [1, 2, 3, 4, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 200, 249, 250] {
        let key = vec![b'k'; length];
        pair.given(&key, length as u32, 0, format!("value {length}").as_bytes());
        pair.reads(&key, &format!("a key of {length} bytes"));
        // Others that begin like it are others.
        let other = [&key[..length - 1], b"x"].concat();
        pair.reads(&other, "another key of that length");
    }
    // Longer ones are refused, in memcached's words.
    for length in [251, 252, 300] {
        let key = vec![b'k'; length];
        for way in WAYS {
            pair.ask(way, &[b"get ", &key[..], b"\r\n"].concat(), "too long a key");
            pair.ask(way, &[b"get k ", &key[..], b"\r\n"].concat(), "too long a second key");
        }
        pair.tcp(&[b"set ", &key[..], b" 0 0 1\r\nx\r\n"].concat(), "too long a key");
        pair.tcp(&[b"delete ", &key[..], b"\r\n"].concat(), "too long a key");
    }
}

/// Bytes of keys that are no letters; a value of one is no other's.
#[test]
fn keys_of_any_bytes() {
    let Some(_turn) = turn("keys_of_any_bytes") else { return };
    bytes_of_keys(&crate::front::cached());
}

pub(crate) fn bytes_of_keys(lab: &Lab) {
    let mut pair = Pair::new(lab);
    for byte in [0x01, 0x07, 0x09, 0x0b, 0x21, 0x25, 0x7e, 0x7f, 0x80, 0xc3, 0xff_u8] {
        let key = [b'a', byte, b'b'];
        if (0x21..0x7f).contains(&byte) {
            pair.given(&key, u32::from(byte), 0, &[byte]);
        } else {
            // A cache may leave such keys to memcached.
            pair.tcp(&[b"set ", &key[..], b" 7 0 1\r\n", &[byte], b"\r\n"].concat(), "set");
        }
        for _ in 0..3 {
            pair.reads(&key, &format!("a key with {byte:#x}"));
        }
    }
    // Binary keys may hold what a line may not.
    for key in [&b"a b"[..], b"a\r\nb", b"\0", b" "] {
        let set = wire::packet(0x01, &[0; 8], key, b"binary", 1, 0);
        pair.tcp(&set, "a binary key");
        for _ in 0..3 {
            for way in WAYS {
                pair.ask(way, &wire::packet(0x00, b"", key, b"", 2, 0), "a binary key");
                pair.ask(way, &wire::packet(0x0c, b"", key, b"", 2, 0), "a binary key");
            }
        }
    }
}

#[test]
fn values_of_every_length() {
    let Some(_turn) = turn("values_of_every_length") else { return };
    lengths_of_values(&crate::front::cached());
}

/// Of a value, by default, with keys as short as these.
const LARGEST: usize = 1_048_500;

pub(crate) fn lengths_of_values(lab: &Lab) {
    let mut pair = Pair::new(lab);
    // One datagram holds 1,400 bytes with its header; a cache may have a smaller limit, and memcached a larger one.
    for length in [
        0, 1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 500, 1000, 1024, 1300, 1340, 1350, 1360, 1370, 1372, 1380,
        1400, 1450, 2000, 4096, 10_000, 100_000, LARGEST,
    ] {
        let key = format!("value:{length}").into_bytes();
        let data: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let head = format!("set value:{length} 5 0 {length}\r\n");
        pair.tcp(&[head.as_bytes(), &data[..], b"\r\n"].concat(), "set");
        for _ in 0..4 {
            // So large an answer may lose a datagram.
            let ways = if length > 10_000 { &WAYS[2..] } else { &WAYS[..] };
            for way in ways {
                pair.ask(*way, &wire::request(Speech::Ascii, &Ask::Get, &key, false, 0), "a value");
                pair.ask(*way, &wire::request(Speech::Binary, &Ask::Get, &key, false, 0), "a value");
            }
        }
        // What a frame has no room for passes, which on a virtual cable is what is much longer than the question.
        if length <= 65 {
            lab.warm(&key);
            pair.reads(&key, &format!("a value of {length} bytes"));
        }
    }
}

#[test]
fn values_with_line_ends_and_commands_in_them() {
    let Some(_turn) = turn("values_with_line_ends_and_commands_in_them") else { return };
    lines_in_values(&crate::front::cached());
}

pub(crate) fn lines_in_values(lab: &Lab) {
    let mut pair = Pair::new(lab);
    pair.given(b"other", 0, 0, b"untouched");
    let values: [&[u8]; 12] = [
        b"\n",
        b"\r\n",
        b"a\nb",
        b"a\r\nb\r\n",
        b"END\r\n",
        b"VALUE other 0 9\r\nuntouched\r\nEND\r\n",
        b"x\r\nset other 0 0 3\r\nbad\r\n",
        b"delete other\r\n",
        b"flush_all\r\n",
        b"\x80\x04\x00\x05\x00\x00\x00\x00",
        b"\0\0\0\0",
        b"mg other v\r\nmd other\r\n",
    ];
    for (number, data) in values.into_iter().enumerate() {
        let key = format!("lines:{number}").into_bytes();
        pair.given(&key, 1, 0, data);
        pair.reads(&key, "a value with lines in it");
        pair.reads(b"other", "a value that is named in another");
    }
}

#[test]
fn flags_are_kept() {
    let Some(_turn) = turn("flags_are_kept") else { return };
    flags(&crate::front::cached());
}

pub(crate) fn flags(lab: &Lab) {
    let mut pair = Pair::new(lab);
    for flags in [0, 1, 9, 10, 99, 100, 65_535, 65_536, 99_999, 1_000_000_000, 4_294_967_295] {
        let key = format!("flags:{flags}").into_bytes();
        pair.given(&key, flags, 0, b"data");
        pair.reads(&key, &format!("flags {flags}"));
    }
}

#[test]
fn several_keys_at_once_all_some_and_none_cached() {
    let Some(_turn) = turn("several_keys_at_once_all_some_and_none_cached") else { return };
    several_keys(&crate::front::cached());
}

pub(crate) fn several_keys(lab: &Lab) {
    let mut pair = Pair::new(lab);
    for (number, key) in [&b"one"[..], b"two", b"three"].into_iter().enumerate() {
        pair.given(key, number as u32, 0, key);
    }
    // There, but never read by itself.
    for number in 0..6 {
        pair.tcp(format!("set fresh:{number} 7 0 5\r\nfresh\r\n").as_bytes(), "set");
    }
    let many = (0..50).map(|number| format!("many:{number}")).collect::<Vec<_>>();
    for key in &many {
        pair.given(key.as_bytes(), 0, 0, b"some value");
    }
    let lines = [
        "get one two three",
        "get three one two",
        "get one one",
        "get one fresh:0",
        "get fresh:1 one",
        "get one none two",
        "get none",
        "get none other",
        "get fresh:2 fresh:3",
        "get one  two",
        "get  one",
        "get one ",
        "get one two ",
        " get one",
        "get one two fresh:4 three none fresh:5 one",
        &format!("get {}", many.join(" ")),
        &format!("get {} none", many[..20].join(" ")),
    ];
    for line in lines {
        for _ in 0..2 {
            for way in WAYS {
                pair.ask(way, format!("{line}\r\n").as_bytes(), line);
            }
        }
    }
    // A line may end without a carriage return.
    pair.ask(Way::Udp, b"get one\n", "a bare line feed");
    pair.ask(Way::Udp, b"get one two\n", "a bare line feed");
}

#[test]
fn counts_that_wrap_grow_and_shrink() {
    let Some(_turn) = turn("counts_that_wrap_grow_and_shrink") else { return };
    counts(&crate::front::cached());
}

/// What shrinks has spaces behind it, in a value as long as before; what is no number stays.
pub(crate) fn counts(lab: &Lab) {
    let mut pair = Pair::new(lab);
    let cases: [(&[u8], Ask); 6] = [
        (b"18446744073709551615", Ask::Incr(2)),
        (b"18446744073709551616", Ask::Incr(1)),
        (b"9", Ask::Incr(1)),
        (b"10", Ask::Decr(1)),
        (b"5", Ask::Decr(9)),
        (b"no number", Ask::Incr(1)),
    ];
    for (number, (data, ask)) in cases.into_iter().enumerate() {
        for (at, speech) in wire::SPEECHES.into_iter().enumerate() {
            let key = format!("count:{number}:{speech:?}").into_bytes();
            let what = format!("{ask:?} of {}", data.escape_ascii());
            pair.given(&key, 3, 0, data);
            // Who has answered may hold the value for a moment longer; memcached makes another one then, without the spaces.
            std::thread::sleep(Duration::from_millis(20));
            let bytes = wire::request(speech, &ask, &key, false, 5);
            // Each case by both ways, each protocol too.
            if (number + at).is_multiple_of(2) {
                pair.tcp(&bytes, &what);
            } else {
                pair.udp_once(&bytes, &what);
            }
            pair.reads(&key, &what);
        }
    }
}

/// `gets` gives a number with which `cas` succeeds, with or without a cached value, and `get` never gives one.
#[test]
fn gets_and_cas_pass() {
    let Some(_turn) = turn("gets_and_cas_pass") else { return };
    cas(&crate::front::cached());
}

pub(crate) fn cas(lab: &Lab) {
    for speech in [Speech::Ascii, Speech::Binary, Speech::Meta] {
        let mut udp = lab.udp(&lab.cached);
        udp.wait = Duration::from_secs(5);
        let mut tcp = lab.tcp(&lab.cached);
        let key = format!("cas:{speech:?}").into_bytes();
        let set = Ask::Put { mode: wire::Mode::Set, data: b"first".to_vec(), flags: 4, expiry: 0 };
        assert_eq!(tcp.ask(speech, &set, &key), Said::Done);
        lab.warm(&key);
        for round in 0..5 {
            let bytes = udp.ask(&wire::request(speech, &Ask::Gets, &key, false, 9)).unwrap();
            let Said::Value { data, flags: 4, cas: Some(token) } =
                wire::reply(speech, &Ask::Gets, &bytes).unwrap().said
            else {
                panic!("{speech:?}: {bytes:?}");
            };
            let next = format!("value {round}").into_bytes();
            assert_ne!(data, next);
            let cas = |token| Ask::Cas { token, data: next.clone(), flags: 4, expiry: 0 };
            assert_eq!(tcp.ask(speech, &cas(token.wrapping_add(1)), &key), Said::Exists, "{speech:?}");
            // By both ways, in turn.
            let done = if round % 2 == 0 {
                tcp.ask(speech, &cas(token), &key)
            } else {
                let request = udp.send(&wire::request(speech, &cas(token), &key, false, 9));
                let bytes = udp.receive(request).unwrap();
                wire::reply(speech, &cas(token), &bytes).unwrap().said
            };
            assert_eq!(done, Said::Done, "{speech:?} {round}");
            assert_eq!(tcp.ask(speech, &cas(token), &key), Said::Exists, "{speech:?} {round}");
            lab.warm(&key);
            let bytes = udp.ask(&wire::request(Speech::Ascii, &Ask::Get, &key, false, 9)).unwrap();
            assert_eq!(
                bytes,
                [format!("VALUE cas:{speech:?} 4 {}\r\n", next.len()).as_bytes(), &next[..], b"\r\nEND\r\n"]
                    .concat()
            );
        }
    }
}

/// What is read, all of it; the role's suite has it with each combination of tiers.
pub(crate) const READS: [fn(&Lab); 8] =
    [lengths_of_keys, bytes_of_keys, lengths_of_values, lines_in_values, flags, several_keys, counts, cas];

/// Datagrams that are no plain question: requests of any kind, right and wrong, and odd headers. With one thread in each memcached: one that has half a command waits for the rest of it in the next
/// datagram that comes to itself, and with one that is the same on both sides.
#[allow(dead_code)] // the kernel's tier alone passes all of them: the role drops those that memcached would go on with, by name
pub(crate) fn odd(lab: &Lab) {
    let mut pair = Pair::new(lab);
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
}
