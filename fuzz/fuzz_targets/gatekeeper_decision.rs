//! Any payload of decisions: what is read is what other code finds there by the decisions' lengths, up to the first fault; written again it is the
//! same bytes; a fault lies where the bytes are no longer right.
//!
//! Input: two bytes, the length that is written again at most; the payload.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ops::Range;
use tidemill_gatekeeper::decision::{Decisions, Verdict, Writer};
use tidemill_wire::Error;

/// Where the decisions lie that are right, and whether all of the payload is.
fn lengths(payload: &[u8]) -> (Vec<Range<usize>>, bool) {
    let mut found = Vec::new();
    if !payload.starts_with(&[1, 0, 0, 0]) {
        return (found, false);
    }
    let mut at = 4;
    while at < payload.len() {
        let rest = &payload[at..];
        let len = match rest[0] {
            0 => 16,
            1 => 40,
            2 => 28,
            3 => 52,
            kind @ (4 | 5) => {
                let fixed = if kind == 4 { 20 } else { 44 };
                if rest.len() < fixed || rest[fixed - 3..fixed - 1] != [0, 0] {
                    return (found, false);
                }
                fixed + 4 * usize::from(rest[fixed - 1])
            }
            _ => return (found, false),
        };
        if rest.len() < len || rest[1..4] != [0, 0, 0] {
            return (found, false);
        }
        found.push(at..at + len);
        at += len;
    }
    (found, true)
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, payload)) = data.split_first_chunk() else { return };
    let (wanted, right) = lengths(payload);
    let mut items = Decisions::new(payload);
    let mut decisions = Vec::new();
    let fault = loop {
        match items.next() {
            Some(Ok(decision)) => decisions.push(decision),
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    assert_eq!(items.next(), None);
    assert_eq!((decisions.len(), fault.is_none()), (wanted.len(), right), "{fault:?}");
    if let Some(fault) = fault {
        // In what comes after the last decision, or in the header.
        let header = if payload.starts_with(&[1, 0, 0, 0]) { 4 } else { 0 };
        let from = wanted.last().map_or(header, |last| last.end);
        assert!((from..=payload.len()).contains(&fault.offset()), "{fault:?}");
        match fault {
            Error::Truncated { needed, present, .. } => assert!(needed > present && present == payload.len()),
            Error::Invalid { offset, value, .. } => assert_eq!(u64::from(payload[offset]), value),
            _ => panic!("{fault:?}"),
        }
    }

    // Again, as far as it fits: programs cannot be written.
    let mut buffer = vec![0; usize::from(u16::from_be_bytes(size))];
    let room = buffer.len();
    let Ok(mut writer) = Writer::new(&mut buffer) else {
        assert!(room < 4);
        return;
    };
    let mut written = vec![1, 0, 0, 0];
    for (decision, bytes) in decisions.iter().zip(wanted) {
        let bytes = &payload[bytes];
        let bpf = matches!(decision.verdict, Verdict::Bpf { .. });
        assert_eq!(bpf, bytes[0] >= 4);
        let fits = !bpf && written.len() + bytes.len() <= room;
        assert_eq!(writer.push(decision).is_ok(), fits);
        if fits {
            written.extend_from_slice(bytes);
        }
    }
    assert_eq!(writer.payload(), written);
});
