//! Any bytes as a stream of requests and as one of replies, cut anywhere: the same events as whole, keys of 1 to 250 bytes, nothing behind `Lost`.
//! Replies that match the commands in any way release each command once, in order.
//!
//! Input: a byte for the seed of the cuts, a byte that says how many of the bytes behind are requests (of 256 parts); the others are replies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_kv::codec::event::{Event, Owned};
use tidemill_kv::codec::outstanding::Outstanding;
use tidemill_kv::codec::replies::{Replies, Reply};
use tidemill_kv::codec::stream::Requests;

/// Pieces of sizes that a small generator gives, some empty.
fn pieces(bytes: &[u8], seed: u8) -> Vec<&[u8]> {
    let (mut rest, mut state, mut pieces) = (bytes, u32::from(seed) | 1, Vec::new());
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (piece, behind) = rest.split_at(((state >> 24) as usize % 23).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

fuzz_target!(|data: &[u8]| {
    let [seed, part, bytes @ ..] = data else { return };
    let (sent, answered) = bytes.split_at(bytes.len() * usize::from(*part) / 256);
    let events = |pieces: &[&[u8]]| {
        let (mut requests, mut events) = (Requests::new(), Vec::new());
        for piece in pieces {
            requests.push(piece, &mut |event: Event<'_>| events.push(event.to_owned()));
        }
        (events, requests.place())
    };
    let whole = events(&[sent]);
    assert_eq!(events(&pieces(sent, *seed)), whole);
    let replies = |pieces: &[&[u8]]| {
        let (mut replies, mut complete) = (Replies::new(), Vec::new());
        for piece in pieces {
            replies.push(piece, |reply| complete.push(reply));
        }
        complete
    };
    let complete = replies(&[answered]);
    assert_eq!(replies(&pieces(answered, *seed)), complete);

    let mut outstanding = Outstanding::new(64);
    let (mut commands, mut lost) = (0_usize, false);
    for event in &whole.0 {
        assert!(!lost, "behind Lost");
        match event {
            Owned::Reads(key) | Owned::Mutates(key) => assert!((1..=250).contains(&key.len())),
            Owned::All => {}
            Owned::Command(command) => {
                if outstanding.command(*command, commands).is_ok() {
                    commands += 1;
                }
            }
            Owned::Lost(_) => lost = true,
        }
    }
    let mut next = 0;
    for reply in complete {
        let known = outstanding.reply(reply, |tag| {
            assert_eq!(tag, next, "out of order");
            next += 1;
        });
        if known.is_err() || reply == Reply::Lost {
            break;
        }
    }
    outstanding.end(|tag| {
        assert_eq!(tag, next, "out of order");
        next += 1;
    });
    assert_eq!(next, commands, "each command is released once");
});
