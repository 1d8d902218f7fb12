//! What the tests of `streams` do. The role's suite does it, too, with each combination of tiers (`crates/cli/tests/root_kvcache/combinations.rs`).

#![allow(clippy::single_range_in_vec_init)] // orders of one part are orders

use crate::contract::lab::Lab;
use crate::contract::pair::{Pair, Way};
use crate::contract::segments::{ACK, PSH, RST, SYN, Segments};
use crate::contract::wire::{self, Ask, Mode, Speech};
use crate::net::wait_until;
use std::time::Duration;

/// Commands that change the value of `KEY`, in all protocols.
fn commands(key: &[u8]) -> Vec<(Vec<u8>, bool)> {
    let set = |mode| Ask::Put { mode, data: b"a\r\nb".to_vec(), flags: 1, expiry: 0 };
    let mut all: Vec<(Vec<u8>, bool)> = Vec::new();
    for (speech, ask, quiet) in [
        (Speech::Ascii, set(Mode::Set), false),
        (Speech::Ascii, set(Mode::Append), true),
        (Speech::Ascii, Ask::Delete, false),
        (Speech::Ascii, Ask::Touch(-1), true),
        (Speech::Ascii, Ask::Gat(-1), false),
        (Speech::Ascii, Ask::Flush(0), false),
        (Speech::Meta, set(Mode::Set), true),
        (Speech::Meta, Ask::Delete, false),
        (Speech::Meta, Ask::Gat(-1), false),
        (Speech::Binary, set(Mode::Set), true),
        (Speech::Binary, set(Mode::Prepend), false),
        (Speech::Binary, Ask::Delete, true),
        (Speech::Binary, Ask::Flush(0), true),
    ] {
        all.push((wire::request(speech, &ask, key, quiet, 3), speech == Speech::Binary));
    }
    all
}

fn get(key: &[u8]) -> Vec<u8> {
    [b"get ", key, b"\r\n"].concat()
}

pub(crate) fn cut_anywhere(lab: &Lab) {
    let mut pair = Pair::new(lab);
    let mut cuts = 0;
    for (number, (bytes, binary)) in commands(b"cut:key").into_iter().enumerate() {
        for at in 1..bytes.len() {
            pair.given(b"cut:key", 2, 0, b"before");
            let what = format!("command {number} cut at {at}");
            let said = [&mut pair.cached, &mut pair.plain].map(|side| {
                let tcp = if binary { &mut side.binary } else { &mut side.text };
                tcp.send(&bytes[..at]);
                // What comes first is seen by itself: the rest goes when an answer to it, had there been one, would be here.
                let _ = side.udp.ask(&get(b"cut:key"));
                tcp.send(&bytes[at..]);
                crate::contract::pair::plain_binary(tcp.until_noop(binary))
            });
            assert_eq!(said[0], said[1], "{what}");
            for _ in 0..2 {
                pair.ask(Way::Udp, &get(b"cut:key"), &what);
            }
            cuts += 1;
        }
    }
    assert!(cuts > 300, "{cuts}");
}

pub(crate) fn byte_by_byte(lab: &Lab) {
    let mut pair = Pair::new(lab);
    for (number, (bytes, binary)) in commands(b"byte:key").into_iter().enumerate() {
        pair.given(b"byte:key", 2, 0, b"before");
        let cuts: Vec<usize> = (1..bytes.len()).collect();
        let said = [&mut pair.cached, &mut pair.plain].map(|side| {
            let tcp = if binary { &mut side.binary } else { &mut side.text };
            tcp.send_cut(&bytes, &cuts);
            crate::contract::pair::plain_binary(tcp.until_noop(binary))
        });
        assert_eq!(said[0], said[1], "command {number}");
        pair.reads(b"byte:key", &format!("command {number} in bytes"));
    }
}

/// Values over many segments, with what looks like commands in them, and commands behind them in the same segment.
pub(crate) fn crowds(lab: &Lab) {
    let mut pair = Pair::new(lab);
    for length in [10, 1000, 1447, 1448, 1449, 5000, 100_000, 900_000] {
        pair.given(b"victim", 0, 0, b"before");
        pair.given(b"bystander", 0, 0, b"stays");
        let data: Vec<u8> = b"\r\ndelete bystander\r\nset bystander 0 0 1\r\nx\r\n"
            .iter()
            .copied()
            .cycle()
            .take(length)
            .collect();
        let head = format!("set big 0 0 {length}\r\n");
        let bytes = [head.as_bytes(), &data, b"\r\nset victim 0 0 5\r\nafter\r\nget bystander\r\n"].concat();
        pair.tcp(&bytes, &format!("a value of {length} bytes, then a command"));
        pair.reads(b"victim", &format!("behind {length} bytes"));
        pair.reads(b"bystander", &format!("named within {length} bytes"));
    }
    // Too large for memcached: it swallows the value, and forgets what was there.
    let mut pair = Pair::new(lab);
    pair.given(b"victim", 0, 0, b"before");
    let data = vec![b'x'; 1_500_000];
    let bytes = [b"set victim 0 0 1500000\r\n", &data[..], b"\r\nset other 0 0 1\r\no\r\n"].concat();
    pair.tcp(&bytes, "too large a value");
    pair.reads(b"victim", "too large a value");
    // A value that is longer than was said.
    for line in [
        "set victim 0 0 3\r\nabcdef\r\n",
        "set victim 0 0 -1\r\n",
        "set victim 0 0 3 4 5 6 7\r\nabc\r\n",
        "set victim\r\n",
        "set victim x 0 3\r\nabc\r\n",
        "incr victim x\r\n",
        "delete victim 5\r\n",
        "delete victim 0\r\n",
        "touch victim\r\n",
        "ms victim S3\r\nabc\r\n",
        "ms victim 3 b\r\nabc\r\n",
        "md victim qq\r\n",
        "flush_all x\r\n",
        "flush_all -1\r\n",
        "flush_all 0\r\n",
    ] {
        // A cache may give up a connection on which such a thing was said: another one for each.
        let mut pair = Pair::new(lab);
        pair.given(b"victim", 0, 0, b"before");
        pair.tcp(line.as_bytes(), line);
        pair.reads(b"victim", line);
    }
    // Hundreds of commands at once, so that replies come in other segments than they were asked for.
    for round in 0..5 {
        let mut bytes = Vec::new();
        for number in 0..400 {
            bytes.extend(
                match number % 5 {
                    0 => format!("set crowd:{} 0 0 3\r\n{:03}\r\n", number % 40, number),
                    1 => format!("get crowd:{}\r\n", number % 40),
                    2 => format!("append crowd:{} 0 0 1 noreply\r\nx\r\n", number % 40),
                    3 => format!("mg crowd:{} v q\r\n", number % 40),
                    _ => format!("delete crowd:{} noreply\r\n", number % 37),
                }
                .bytes(),
            );
        }
        pair.tcp(&bytes, "a crowd");
        for number in 0..40 {
            let key = format!("crowd:{number}").into_bytes();
            for _ in 0..3 {
                pair.ask(Way::Udp, &get(&key), &format!("after crowd {round}"));
            }
        }
    }
}

/// The last thing on a connection, and nobody waits for it.
pub(crate) fn last_words(lab: &Lab) {
    let mut pair = Pair::new(lab);
    for (number, speech) in [Speech::Ascii, Speech::Meta, Speech::Binary].into_iter().enumerate() {
        for close in [false, true] {
            let key = format!("last:{number}:{close}").into_bytes();
            pair.given(&key, 0, 0, b"before");
            let ask = Ask::Put { mode: Mode::Set, data: b"after".to_vec(), flags: 0, expiry: 0 };
            let bytes = wire::request(speech, &ask, &key, true, 4);
            let mut kept = Vec::new();
            for server in lab.sides() {
                let mut tcp = lab.tcp(server);
                tcp.send(&bytes);
                kept.extend((!close).then_some(tcp));
            }
            for side in [&mut pair.cached, &mut pair.plain] {
                wait_until("it is done", Duration::from_secs(5), || {
                    side.tcp(&get(&key)).windows(5).any(|part| part == b"after")
                });
            }
            for _ in 0..3 {
                pair.reads(&key, &format!("{speech:?}, close {close}"));
            }
            drop(kept);
            // The connection is over, or will be: it is cached again some day.
            lab.warm(&key);
            pair.reads(&key, "afterwards");
        }
    }
}

/// A command in one datagram that is more than a packet, and so comes in fragments.
pub(crate) fn fragments(lab: &Lab) {
    let mut pair = Pair::new(lab);
    for (number, length) in [1500, 3000, 20_000].into_iter().enumerate() {
        let key = format!("fragments:{number}");
        pair.given(key.as_bytes(), 0, 0, b"before");
        let head = format!("set {key} 0 0 {length}\r\n");
        pair.udp_once(&[head.as_bytes(), &vec![b'f'; length], b"\r\n"].concat(), "fragments");
        for _ in 0..3 {
            pair.ask(Way::Udp, &get(key.as_bytes()), "after fragments");
            pair.ask(Way::Tcp, &get(key.as_bytes()), "after fragments");
        }
    }
}

/// What a raw connection has done is done at the plain side too; then both are read.
fn follow(pair: &mut Pair<'_>, bytes: &[u8], key: &[u8], what: &str) {
    let _ = pair.plain.tcp(bytes);
    // Both, so that the same has happened to what comes next.
    for _ in 0..3 {
        pair.reads(key, what);
    }
}

pub(crate) fn out_of_order(lab: &Lab) {
    let mut pair = Pair::new(lab);
    let plans: [&[std::ops::Range<usize>]; 11] = [
        &[0..30],
        &[10..20, 0..10, 20..30],
        &[20..30, 10..20, 0..10],
        &[20..30, 0..10, 10..20],
        &[0..10, 0..10, 10..20, 10..20, 20..30],
        &[0..15, 10..25, 20..30],
        &[0..10, 20..30, 10..20, 20..30, 0..30],
        &[0..30, 0..30, 5..30],
        &[15..30, 0..20],
        &[29..30, 28..29, 0..28],
        &[1..30],
    ];
    let mut at = 1;
    // Near the end of what sequence numbers can say.
    let mut tcp = Segments::connect(lab, 40_001, u32::MAX - 100);
    for round in 0..3 {
        for plan in plans {
            pair.given(b"order", 0, 0, b"before");
            let stream = format!("set order 0 0 9\r\nafter {:03}\r\nx", at % 1000);
            let stream = &stream.as_bytes()[..28];
            let cut: Vec<_> = plan
                .iter()
                .map(|part| part.start.min(28)..part.end.min(28))
                .filter(|part| !part.is_empty())
                .collect();
            tcp.said.clear();
            tcp.deliver(at, stream, &cut);
            tcp.until(b"STORED\r\n");
            at += stream.len() as u32;
            follow(&mut pair, stream, b"order", &format!("round {round}, {plan:?}"));
        }
    }
}

/// Segments that memcached's kernel throws away are no part of the stream.
pub(crate) fn strangers(lab: &Lab) {
    let mut pair = Pair::new(lab);
    let mut tcp = Segments::connect(lab, 40_002, 1000);
    let mut at = 1u32;
    type Nonsense = fn(&mut Segments, u32);
    let nonsense: [(&str, Nonsense); 9] = [
        ("old data, as a keep-alive", |tcp, at| tcp.segment(at - 1, ACK, b"X")),
        ("nothing, before the window", |tcp, at| tcp.segment(at - 1, ACK, b"")),
        ("far ahead", |tcp, at| tcp.segment(at + 50_000_000, ACK | PSH, b"set other 0 0 100\r\n")),
        ("a reset far ahead", |tcp, at| tcp.segment(at + 50_000_000, RST, b"")),
        ("a SYN in the middle", |tcp, at| tcp.segment(at + 700_000, SYN, b"")),
        ("old data that was something else", |tcp, at| {
            tcp.segment(at.saturating_sub(5).max(1), ACK | PSH, b"set o")
        }),
        ("no flags", |tcp, at| tcp.segment(at, 0, b"set other 0 0 100\r\n")),
        ("a wrong acknowledgment", |tcp, at| {
            tcp.with_a_wrong_acknowledgment(at, ACK | PSH, b"set other 0 0 100\r\n");
        }),
        ("a wrong IP header", |tcp, at| tcp.with_a_wrong_header(at, ACK | PSH, b"set other 0 0 100\r\n")),
    ];
    for (what, send) in nonsense {
        for middle in [false, true] {
            pair.given(b"alien", 0, 0, b"before");
            let stream = format!("set alien 0 0 8\r\nafter{:03}\r\n", at % 1000).into_bytes();
            tcp.said.clear();
            let head = if middle { 19 } else { 0 };
            tcp.deliver(at, &stream[..head], &[0..head]);
            send(&mut tcp, at + head as u32);
            tcp.deliver(at + head as u32, &stream[head..], &[0..stream.len() - head]);
            tcp.until(b"STORED\r\n");
            at += stream.len() as u32;
            follow(&mut pair, &stream, b"alien", &format!("{what}, middle {middle}"));
        }
    }
    // The last: what comes behind it on this connection is not followed, and nothing is cached.
    pair.given(b"alien", 0, 0, b"before");
    let stream = b"set alien 0 0 8\r\nafterall\r\n";
    tcp.said.clear();
    tcp.with_a_wrong_option(at, ACK | PSH, b"set other 0 0 100\r\n");
    tcp.deliver(at, stream, &[0..stream.len()]);
    tcp.until(b"STORED\r\n");
    follow(&mut pair, stream, b"alien", "a wrong IP option");
}

/// A connection that ends in the middle of a value, and another one from the same port.
pub(crate) fn used_again(lab: &Lab) {
    let mut pair = Pair::new(lab);
    for (round, end) in [RST | ACK, RST].into_iter().enumerate() {
        pair.given(b"again", 0, 0, b"before");
        let first = 5_000_000 * (round as u32 + 1);
        let mut tcp = Segments::connect(lab, 40_003, first);
        let half = b"set other 0 0 1000\r\nhalf of it";
        tcp.deliver(1, half, &[0..half.len()]);
        tcp.segment(1 + half.len() as u32, end, b"");
        drop(tcp);
        let mut tcp = Segments::connect(lab, 40_003, first + 3_000_000);
        let stream = b"set again 0 0 5\r\nafter\r\n";
        tcp.deliver(1, stream, &[0..stream.len()]);
        tcp.until(b"STORED\r\n");
        follow(&mut pair, stream, b"again", &format!("round {round}"));
        tcp.segment(1 + stream.len() as u32, RST | ACK, b"");
    }
}

/// The same where memcached's kernel answers with a cookie: no SYN-ACK says what the second connection begins with.
pub(crate) fn used_again_by_cookie(lab: &Lab) {
    let mut pair = Pair::new(lab);
    for first in [1, 9_000_000] {
        pair.given(b"cookie", 0, 0, b"before");
        let mut tcp = Segments::connect(lab, 40_004, 5_000_000);
        let stream = b"set other 0 0 1\r\no\r\n";
        tcp.deliver(1, stream, &[0..stream.len()]);
        tcp.until(b"STORED\r\n");
        pair.given(b"cookie", 0, 0, b"before");
        tcp.segment(1 + stream.len() as u32, RST | ACK, b"");
        drop(tcp);
        lab.cached.net.run("sysctl -qw net.ipv4.tcp_syncookies=2");
        // Behind or before the other's numbers.
        let mut tcp = Segments::connect(lab, 40_004, first);
        lab.cached.net.run("sysctl -qw net.ipv4.tcp_syncookies=1");
        let stream = b"set cookie 0 0 5\r\nafter\r\n";
        tcp.deliver(1, stream, &[0..stream.len()]);
        tcp.until(b"STORED\r\n");
        follow(&mut pair, stream, b"cookie", &format!("from {first}"));
        tcp.segment(1 + stream.len() as u32, RST | ACK, b"");
        lab.warm(b"cookie");
    }
    // Of two SYN-ACKs the first is taken up: its cookie is as good as the second's.
    pair.given(b"cookie", 0, 0, b"before");
    lab.cached.net.run("sysctl -qw net.ipv4.tcp_syncookies=2");
    let mut tcp = Segments::begin(lab, 40_005, 1_000);
    Segments::begin(lab, 40_005, 7_000_000);
    tcp.segment(1, ACK, b"");
    lab.cached.net.run("sysctl -qw net.ipv4.tcp_syncookies=1");
    let stream = b"set cookie 0 0 5\r\nafter\r\n";
    tcp.deliver(1, stream, &[0..stream.len()]);
    tcp.until(b"STORED\r\n");
    follow(&mut pair, stream, b"cookie", "the first of two");
}
