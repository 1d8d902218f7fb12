//! Any bytes as requests to Redis and as its replies: cut anywhere they are the same, nothing comes behind what is broken, words are kept within their bounds. What is whole is
//! read again: a request by its words, a reply item by item to its end.
//!
//! Input: a byte for the seed of the cuts, then the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_kv::resp::item::{self, Items};
use tidemill_kv::resp::reply::{Frame, Replies};
use tidemill_kv::resp::request::{KEPT, Requests, Step, WORDS};

/// Pieces of sizes that a small generator gives.
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

/// A request: where it ends, its words, how many it has.
type Read = (usize, Vec<Vec<u8>>, usize);

fn requests(pieces: &[&[u8]]) -> (Vec<Read>, bool) {
    let (mut requests, mut all, mut place) = (Requests::new(), Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let (read, step) = requests.push(rest);
            (rest, place) = (&rest[read..], place + read);
            match step {
                Step::More => assert!(rest.is_empty()),
                Step::Whole => {
                    let words: Vec<Vec<u8>> = requests.words().map(<[u8]>::to_vec).collect();
                    assert!(words.len() <= WORDS && words.concat().len() <= KEPT);
                    assert_eq!(requests.is_cut(), words.len() < requests.count());
                    all.push((place, words, requests.count()));
                }
                Step::Broken => {
                    assert_eq!(requests.push(b"PING\r\n"), (0, Step::Broken));
                    return (all, true);
                }
            }
        }
    }
    (all, false)
}

fn replies(pieces: &[&[u8]]) -> Vec<(usize, Frame)> {
    let (mut replies, mut all, mut place) = (Replies::new(), Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let (read, frame) = replies.push(rest);
            (rest, place) = (&rest[read..], place + read);
            match frame {
                Frame::More => assert!(rest.is_empty()),
                Frame::Broken => {
                    all.push((place, frame));
                    return all;
                }
                _ => all.push((place, frame)),
            }
        }
    }
    all
}

fuzz_target!(|data: &[u8]| {
    let [seed, bytes @ ..] = data else { return };
    let cut = pieces(bytes, *seed);
    let whole = requests(&[bytes]);
    assert_eq!(requests(&cut), whole);
    for (_, words, count) in &whole.0 {
        if words.is_empty() || words.len() < *count {
            continue;
        }
        let (mut text, borrowed) = (Vec::new(), words.iter().map(Vec::as_slice).collect::<Vec<_>>());
        item::request(&mut text, &borrowed);
        assert_eq!(requests(&[&text[..]]), (vec![(text.len(), words.clone(), *count)], false));
    }
    let whole = replies(&[bytes]);
    assert_eq!(replies(&cut), whole);
    let mut from = 0;
    for (end, frame) in whole {
        if frame != Frame::Broken {
            let mut items = Items::new(&bytes[from..end]);
            assert!(items.by_ref().count() > 0 && items.is_at_end());
        }
        from = end;
    }
});
