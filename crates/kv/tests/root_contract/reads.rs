//! What is read with the cache is what is read without: keys, values, flags, several keys at once. The role's suite has these tests, too, and
//! again with each combination of tiers (`crates/cli/tests/root_kvcache`).

use crate::contract::lab::{Lab, turn};
use crate::contract::pair::{Pair, WAYS, Way};
use crate::contract::wire::{self, Ask, Said, Speech};
use std::time::Duration;

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
