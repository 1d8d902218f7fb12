//! Any payload of decisions, in both formats: what is read is what other code finds there by the messages' lengths, up to the first fault; written again it
//! is the same bytes; a fault lies where the bytes are no longer right. Of the authenticated format: sealed, it opens again and says the same; what nobody
//! sealed does not open, nor what was changed behind the seal.
//!
//! Input: two bytes, the length that is written again at most and which bit is changed; the payload.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::IpAddr;
use std::ops::Range;
use tidemill_decision::Decision;
use tidemill_decision::authenticated::{self, Header, Message};
use tidemill_decision::interoperable::{Decisions, Writer};
use tidemill_decision::keys::{Direction, Ends, Keyring};
use tidemill_decision::replay::{Stamp, Window};
use tidemill_wire::Error;

/// Where the messages lie that are right, and whether all of the payload is.
fn lengths(payload: &[u8], start: usize, is_authenticated: bool) -> (Vec<Range<usize>>, bool) {
    let mut found = Vec::new();
    let mut at = start;
    while at < payload.len() {
        let rest = &payload[at..];
        let mut zeros = &[1, 2, 3][..];
        let len = match rest[0] {
            0 => 16,
            1 => 40,
            kind @ (2 | 3) => {
                if is_authenticated {
                    zeros = &[2, 3];
                    if rest.len() < 2 || rest[1] > 1 {
                        return (found, false);
                    }
                }
                if kind == 2 { 28 } else { 52 }
            }
            kind @ (4 | 5) => {
                let fixed = if kind == 4 { 20 } else { 44 };
                if rest.len() < fixed || rest[fixed - 3..fixed - 1] != [0, 0] || rest[fixed - 1] > 16 {
                    return (found, false);
                }
                fixed + 4 * usize::from(rest[fixed - 1])
            }
            16 if is_authenticated => 24,
            17 if is_authenticated => 12,
            kind @ (8 | 9) if is_authenticated => {
                zeros = &[2, 3];
                let len = if kind == 8 { 12 } else { 24 };
                // Bit by bit: as long as said, and nothing behind it.
                let bits = 8 * (len - 8);
                if rest.len() < len || usize::from(rest[1]) > bits {
                    return (found, false);
                }
                if (rest[1].into()..bits).any(|bit: usize| rest[8 + bit / 8] >> (7 - bit % 8) & 1 != 0) {
                    return (found, false);
                }
                len
            }
            _ => return (found, false),
        };
        if rest.len() < len || zeros.iter().any(|at| rest[*at] != 0) {
            return (found, false);
        }
        found.push(at..at + len);
        at += len;
    }
    (found, true)
}

/// The messages up to the first fault, and that.
fn read<T>(mut items: impl Iterator<Item = Result<T, Error>>) -> (Vec<T>, Option<Error>) {
    let mut read = Vec::new();
    let fault = loop {
        match items.next() {
            Some(Ok(item)) => read.push(item),
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    assert!(items.next().is_none());
    (read, fault)
}

fn check(fault: Option<Error>, payload: &[u8], from: usize) {
    let Some(fault) = fault else { return };
    assert!((from..=payload.len()).contains(&fault.offset()), "{fault:?}");
    match fault {
        Error::Truncated { needed, present, .. } => assert!(needed > present && present == payload.len()),
        Error::Invalid { offset, value, .. } => assert_eq!(u64::from(payload[offset]), value),
        _ => panic!("{fault:?}"),
    }
}

fn interoperable(payload: &[u8], room: usize) {
    let header = payload.starts_with(&[1, 0, 0, 0]);
    let (wanted, right) = if header { lengths(payload, 4, false) } else { (Vec::new(), false) };
    let (decisions, fault): (Vec<Decision>, _) = read(Decisions::new(payload));
    assert_eq!((decisions.len(), fault.is_none()), (wanted.len(), right), "{fault:?}");
    // In what comes after the last decision, or in the header.
    check(fault, payload, wanted.last().map_or(if header { 4 } else { 0 }, |last| last.end));

    // Again, as far as it fits.
    let mut buffer = vec![0; room];
    let Ok(mut writer) = Writer::new(&mut buffer) else {
        assert!(room < 4);
        return;
    };
    let mut written = vec![1, 0, 0, 0];
    for (decision, bytes) in decisions.iter().zip(wanted) {
        let bytes = &payload[bytes];
        let fits = written.len() + bytes.len() <= room;
        assert_eq!(writer.push(decision).is_ok(), fits);
        if fits {
            written.extend_from_slice(bytes);
        }
    }
    assert_eq!(writer.payload(), written);
}

fn authenticated(payload: &[u8], room: usize, bit: usize) {
    let keys = Keyring::single(1, &[7; 32]);
    let end = |last, port| (IpAddr::from([10, 0, 0, last]), port);
    let ends = Ends { source: end(2, 41120), destination: end(1, 45232) };
    let open = |datagram: &[u8]| {
        let header = Header::read(datagram, Direction::ToGatekeeper).ok()?;
        let opened = keys.open(&header, datagram, &ends, (5, u64::MAX)).ok()?;
        Some((header, read(opened)))
    };
    // Nobody has sealed that.
    assert!(open(payload).is_none());

    let (wanted, right) = lengths(payload, 0, true);
    let (messages, fault): (Vec<Message>, _) = read(authenticated::messages(payload));
    assert_eq!((messages.len(), fault.is_none()), (wanted.len(), right), "{fault:?}");
    check(fault, payload, wanted.last().map_or(0, |last| last.end));

    let mut buffer = vec![0; room];
    let Ok(mut writer) = authenticated::Writer::new(&mut buffer) else {
        assert!(room < 40);
        return;
    };
    let (mut written, mut said) = (Vec::new(), Vec::new());
    for (message, bytes) in messages.iter().zip(wanted) {
        let bytes = &payload[bytes];
        let fits = 40 + written.len() + bytes.len() <= room;
        assert_eq!(writer.push(message).is_ok(), fits);
        if fits {
            written.extend_from_slice(bytes);
            said.push(*message);
        }
    }
    let stamp = Stamp { epoch_s: 9, sequence: bit as u32 };
    let header = Header { direction: Direction::ToGatekeeper, key: 1, stamp, policy_version: 3, time_ns: 4 };
    let sealed = writer.seal(&keys, &header, &ends).to_vec();
    assert_eq!(&sealed[24..sealed.len() - 16], written);
    assert_eq!(open(&sealed), Some((header, (said, None))));
    let window = Window::default();
    assert!(window.take(header.stamp) && !window.take(header.stamp));
    let mut changed = sealed;
    let bit = bit % (changed.len() * 8);
    changed[bit / 8] ^= 1 << (bit % 8);
    assert!(open(&changed).is_none());
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, payload)) = data.split_first_chunk() else { return };
    let size = usize::from(u16::from_be_bytes(size));
    interoperable(payload, size);
    authenticated(payload, size, size);
});
