//! TCP connections that never were: both programs run (`BPF_PROG_TEST_RUN`) on segments cut anywhere, sent again and broken, and on the answers that a memcached gave to
//! the same bytes. What the codec finds in them is void before it can be executed, and what is pending is so for as long at least as the codec has it.

use super::{Beside, Rng, frame, requests};
use crate::lab::{Lab, ready};
use crate::net;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;
use tidemill_bpf::Pins;
use tidemill_kv::codec::event::{Answer, Event};
use tidemill_kv::codec::outstanding::Outstanding;
use tidemill_kv::codec::replies::Replies;
use tidemill_kv::codec::stream::Requests;
use tidemill_kv::kernel::Look;

pub(super) const SYN_ACK: u8 = 0x12;
pub(super) const PUSH: u8 = 0x18;
/// Where the connections' bytes begin.
pub(super) const CLIENT: u32 = 0xffff_ff00;
pub(super) const SERVER: u32 = 9;
pub(super) const EGRESS: &str = "tidemill_kv_out";

/// A segment to memcached's port, or from it.
pub(super) fn segment(
    v6: bool,
    port: u16,
    is_to: bool,
    (sequence, acknowledged): (u32, u32),
    flags: u8,
    bytes: &[u8],
) -> Vec<u8> {
    let mut ports = [port, 11211];
    if !is_to {
        ports.reverse();
    }
    let mut data: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    data.extend(sequence.to_be_bytes());
    data.extend(acknowledged.to_be_bytes());
    data.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    data.extend(bytes);
    let mut frame = frame(0, v6, 6, &data);
    if !is_to {
        // Sums stay the same.
        let (at, length) = if v6 { (22, 16) } else { (26, 4) };
        let (from, to) = frame[at..at + 2 * length].split_at_mut(length);
        from.swap_with_slice(to);
    }
    frame
}

/// What memcached answers to these bytes.
fn answers(bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect("127.0.0.1:11213").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut said = Vec::new();
    // It may close the connection before it has read all.
    if stream.write_all(bytes).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut room = [0; 4096];
    while let Ok(length) = stream.read(&mut room) {
        if length == 0 {
            break;
        }
        said.extend(&room[..length]);
    }
    said
}

/// Cuts into pieces of 1 to 60 bytes, or in two.
fn pieces<'a>(rng: &mut Rng, bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let longest = [1, 3, 60, bytes.len().max(1)][rng.below(4)];
    let (mut rest, mut pieces) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at((1 + rng.below(longest)).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// Commands of right forms, one behind the other: silent ones, such as are silent unless they fail, and such as fail.
fn pipeline(rng: &mut Rng) -> Vec<u8> {
    const COMMANDS: [&str; 26] = [
        "set @ 0 0 1\r\nx\r\n",
        "set @ 0 0 1\r\n1\r\n",
        "set @ 0 0 1 noreply\r\nx\r\n",
        "add @ 0 0 1\r\nx\r\n",
        "add @ 0 0 1 noreply\r\nx\r\n",
        "cas @ 0 0 1 99\r\nx\r\n",
        "delete @\r\n",
        "delete @ noreply\r\n",
        "incr @ 1\r\n",
        "incr @ x\r\n",
        "incr @ x noreply\r\n",
        "touch @ 0\r\n",
        "gat 0 @\r\n",
        "get @ a\r\n",
        "ms @ 1\r\nx\r\n",
        "ms @ 1 q\r\nx\r\n",
        "ms @ 1 q ME\r\nx\r\n",
        "ms @ 1 q MR\r\nx\r\n",
        "md @\r\n",
        "md @ q\r\n",
        "ma @\r\n",
        "ma @ q\r\n",
        "mg @ v\r\n",
        "mg @ v q\r\n",
        "mn\r\n",
        "flush_all\r\n",
    ];
    let count = 2 + rng.below(14);
    let text: String =
        (0..count).map(|_| rng.one(&COMMANDS).replace('@', rng.one(&["a", "b", "n"]))).collect();
    text.into_bytes()
}

/// What a mutation may change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum What {
    Key(Vec<u8>),
    All,
}

/// What the codec finds in a stream.
struct Known {
    outstanding: Outstanding<Vec<What>>,
    changes: HashMap<What, u64>,
    is_lost: bool,
    /// Each command gets its answer.
    answers_all: bool,
}

fn known(bytes: &[u8]) -> Known {
    let mut known = Known {
        outstanding: Outstanding::new(4096),
        changes: HashMap::new(),
        is_lost: false,
        answers_all: true,
    };
    let mut now = Vec::new();
    Requests::new().push(bytes, &mut |event: Event<'_>| match event {
        Event::Reads(_) => {}
        Event::Mutates(key) => now.push(What::Key(key.to_vec())),
        Event::All => now.push(What::All),
        Event::Command(command) => {
            for what in &now {
                *known.changes.entry(what.clone()).or_default() += 1;
            }
            known.answers_all &= command.answer == Answer::Always;
            known.outstanding.command(command, std::mem::take(&mut now)).unwrap();
        }
        Event::Lost(_) => known.is_lost = true,
    });
    known
}

fn connections(count: usize, seed: u64) {
    let lab = Lab::new(&["server"]);
    let here =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).unwrap();
    let interface = rustix::net::netdevice::name_to_index(here, "server").unwrap();
    let look = Look::open(Path::new(Pins::ROOT), "kv").unwrap();
    let held = || look.state().iter().find(|(name, ..)| *name == "held").unwrap().1;
    let _beside = Beside::start();
    let mut rng = Rng(seed);
    let (mut followed, mut blind, mut released) = (0, 0, 0);
    for number in 0..count {
        let (v6, port) = (rng.below(3) == 0, 10_000 + (number % 50_000) as u16);
        // Of one protocol, most of them.
        let mut some = || {
            let mut bytes = requests(&mut rng);
            // Not all of them beyond what can be followed.
            for _ in 0..if rng.below(4) > 0 { 8 } else { 0 } {
                if known(&bytes).is_lost {
                    bytes = requests(&mut rng);
                }
            }
            bytes
        };
        let mut bytes = some();
        if rng.below(2) == 0 {
            bytes = pipeline(&mut rng);
        } else {
            let mut more = requests(&mut rng);
            if (more[0] >= 0x80) == (bytes[0] >= 0x80) || rng.below(10) == 0 {
                bytes.append(&mut more);
            }
        }
        let mut known = known(&bytes);
        let what =
            format!("connection {number} of seed {seed}: {}: {:?}", bytes.escape_ascii(), known.changes);
        let keys: Vec<&What> = known.changes.keys().collect();
        let slot = |what: &What| match what {
            What::Key(key) => lab.cache.slot(key),
            What::All => (0, 0),
        };
        let slots: Vec<(u64, u64)> = keys.iter().map(|what| slot(what)).collect();
        let (held_before, blind_before) = (held(), lab.cache.count("tcp-blind"));
        let (flushes, deaf) = (lab.cache.count("flush"), lab.cache.count("tcp-deaf"));

        let comes = |sequence, bytes: &[u8], is_right: bool| {
            let mut frame = segment(v6, port, true, (sequence, SERVER), PUSH, bytes);
            let at = if v6 { 14 + 40 } else { 14 + 20 } + 16;
            frame[at] ^= u8::from(!is_right);
            lab.cache.object().run_once(&frame, interface).unwrap().0.action
        };
        let leaves = |numbers, flags, bytes: &[u8]| {
            let frame = segment(v6, port, false, numbers, flags, bytes);
            let said = lab.cache.object().run_egress(EGRESS, &frame).unwrap();
            assert_eq!(said as i32, -1, "goes on: {what}");
        };
        leaves((SERVER - 1, CLIENT), SYN_ACK, &[]);
        let mut at = 0;
        for piece in pieces(&mut rng, &bytes) {
            let sequence = CLIENT.wrapping_add(at as u32);
            match rng.below(12) {
                // Nobody takes these bytes.
                0 => drop(comes(sequence, b"delete a\r\nflush_all\r\n", false)),
                // One before is missing: not for one that is not followed any more.
                1 => {
                    let action = comes(sequence.wrapping_add(5), piece, true);
                    assert_eq!(action == super::DROP, lab.cache.count("tcp-blind") == blind_before, "{what}");
                }
                _ => {}
            }
            // Sent again, and more with it.
            let again = if rng.below(4) == 0 { rng.below(at + 1).min(100) } else { 0 };
            comes(sequence.wrapping_sub(again as u32), &bytes[at - again..at + piece.len()], true);
            at += piece.len();
        }
        let is_blind = lab.cache.count("tcp-blind") > blind_before;
        assert!(is_blind || !known.is_lost, "not followed by the codec, and served: {what}");
        let flushes = lab.cache.count("flush") - flushes;
        if is_blind {
            blind += 1;
            continue;
        }
        followed += 1;
        for (what_changes, before) in keys.iter().zip(&slots) {
            let wanted = known.changes[*what_changes];
            let seen = slot(what_changes).0 - before.0;
            assert!(seen + flushes >= wanted, "{what_changes:?}: {seen} of {wanted}: {what}");
        }

        // memcached's answers, cut in other places.
        let said = answers(&bytes);
        let (mut replies, mut sequence) = (Replies::new(), SERVER);
        let mut left = known.changes.clone();
        let (mut fits, mut at, mut read) = (true, 0, 0);
        for piece in pieces(&mut rng, &said) {
            leaves((sequence, CLIENT), PUSH, piece);
            if rng.below(4) == 0 {
                leaves((sequence, CLIENT), PUSH, piece);
            }
            sequence = sequence.wrapping_add(piece.len() as u32);
            at += piece.len();
            // An answer that has begun (a binary one's header, the line before a value) shows as much as one that is whole.
            let mut is_whole = false;
            while read < at || (!is_whole && read < said.len()) {
                is_whole = false;
                replies.push(&said[read..=read], |reply| {
                    let gone =
                        |whats: Vec<What>| whats.iter().for_each(|what| *left.get_mut(what).unwrap() -= 1);
                    fits &= known.outstanding.reply(reply, gone).is_ok();
                    is_whole = true;
                });
                read += 1;
            }
            if !fits {
                break;
            }
            for (what_changes, before) in keys.iter().zip(&slots) {
                let pending = slot(what_changes).1.saturating_sub(before.1) + held() - held_before;
                assert!(
                    pending >= left[*what_changes],
                    "{what_changes:?}: {pending} of {} pending, after {}: {what}",
                    left[*what_changes],
                    piece.escape_ascii()
                );
            }
        }
        let is_deaf = lab.cache.count("tcp-deaf") > deaf;
        if fits && !is_deaf && known.answers_all && known.outstanding.is_empty() {
            released += 1;
            for (what_changes, before) in keys.iter().zip(&slots) {
                assert_eq!(
                    slot(what_changes).1,
                    before.1,
                    "{what_changes:?} is left: {what}: {}",
                    said.escape_ascii()
                );
            }
            assert_eq!(held(), held_before, "something is left: {what}: {}", said.escape_ascii());
        }
    }
    println!("{count} connections: {followed} followed, {blind} blind, {released} released to the last");
    assert!(followed > count / 8 && blind > count / 20 && released > count / 20, "all kinds come");
}

#[test]
fn root_fuzz_connections_are_read_as_the_codec_does() {
    if ready("streams::root_fuzz_connections_are_read_as_the_codec_does") {
        connections(700, 5);
    }
}

#[test]
#[ignore = "minutes"]
fn root_fuzz_fifteen_thousand_connections_are_read_as_the_codec_does() {
    if ready("streams::root_fuzz_fifteen_thousand_connections_are_read_as_the_codec_does") {
        connections(15_000, 6);
    }
}

/// The classifier and any frame: it goes on, or waits for a connection's other reader, and never does anything else.
#[test]
fn root_fuzz_any_frame_that_leaves() {
    if !ready("streams::root_fuzz_any_frame_that_leaves") {
        return;
    }
    let lab = Lab::new(&["server"]);
    let mut rng = Rng(7);
    let keys = ["k", "absent"];
    for number in 0..5_000 {
        let good = if rng.below(2) == 0 {
            let flags = [SYN_ACK, PUSH, 0x10, 0x19, rng.next() as u8][rng.below(5)];
            let numbers = (rng.below(200) as u32, rng.next() as u32);
            segment(
                rng.below(2) == 0,
                5_000 + rng.below(4) as u16,
                false,
                numbers,
                flags,
                &requests(&mut rng),
            )
        } else {
            super::whole(&mut rng, &keys)
        };
        let frame = super::damaged(&mut rng, good);
        // Shorter ones no test run takes.
        let Ok(said) = lab.cache.object().run_egress(EGRESS, &frame) else { continue };
        assert!([-1, 2].contains(&(said as i32)), "frame {number}: {said}: {frame:02x?}");
    }
    net::run("ip link show server");
}
