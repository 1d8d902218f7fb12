//! The tags of the golden bytes were computed with Python's `hmac`, apart from this crate.

use super::*;
use crate::replay::Window;
use crate::{Pair, Verdict};
use proptest::prelude::*;

const NOW: u64 = 1_700_000_100_123_456_789;
const TOLERANCE: u64 = 10_000_000_000;

fn secret() -> [u8; 32] {
    std::array::from_fn(|i| i as u8)
}

fn keys() -> Keyring {
    Keyring::single(7, &secret())
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ends() -> Ends {
    Ends { source: (address("192.0.2.7"), 41120), destination: (address("192.0.2.1"), 45232) }
}

fn header() -> Header {
    let stamp = Stamp { epoch_s: 1_700_000_000, sequence: 5 };
    Header { direction: Direction::ToGatekeeper, key: 7, stamp, policy_version: 42, time_ns: NOW }
}

fn a_probe() -> Message {
    let stamp = Stamp { epoch_s: 1_700_000_000, sequence: 9 };
    Message::Probe { nonce: 0x0102_0304_0506_0708, known: Known { stamp, version: 1_700_000_002 } }
}

fn golden() -> (Vec<u8>, Vec<Message>) {
    let bytes = [
        &[2, 1, 0, 7, 0x65, 0x53, 0xf1, 0, 0, 0, 0, 5, 0, 0, 0, 42][..],
        &[0x17, 0x97, 0x9d, 0x15, 0x85, 0xfc, 0xb5, 0x15],
        // IPv4 granted directly: 203.0.113.9 > 10.0.0.1, 2048 KiB/s, 60 s, renewed first after 45,000 ms, then every 5,000.
        &[2, 1, 0, 0, 203, 0, 113, 9, 10, 0, 0, 1],
        &[0, 0, 0x08, 0, 0, 0, 0, 0x3c, 0, 0, 0xaf, 0xc8, 0, 0, 0x13, 0x88],
        // Below version 42 for 10.1.2.0/24; below 43 for all of IPv6.
        &[8, 24, 0, 0, 0, 0, 0, 42, 10, 1, 2, 0],
        &[9, 0, 0, 0, 0, 0, 0, 43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        // Known: stamp 1,700,000,000 and 9, version 1,700,000,002.
        &[16, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x65, 0x53, 0xf1, 0, 0, 0, 0, 9, 0x65, 0x53, 0xf1, 2],
        &[17, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1],
        &[0x84, 0xea, 0x3e, 0x14, 0x14, 0x50, 0x19, 0x99, 0x37, 0x30, 0x6a, 0x8d, 0x7b, 0xa9, 0x21, 0xd3],
    ];
    let granted =
        Verdict::Granted { rate_kib_s: 2048, expire_s: 60, renew_ms: 45_000, step_ms: 5_000, direct: true };
    let flow = Pair::V4 { src: 0xcb00_7109, dst: 0x0a00_0001 };
    let messages = vec![
        Message::Decision(Decision { flow, verdict: granted }),
        Message::Revoke { to: Range::new(address("10.1.2.0"), 24).unwrap(), below: 42 },
        Message::Revoke { to: Range::new(address("::"), 0).unwrap(), below: 43 },
        a_probe(),
        Message::Answer { nonce: 0x0807_0605_0403_0201 },
    ];
    (bytes.concat(), messages)
}

fn open<'a>(keys: &Keyring, datagram: &'a [u8], ends: &Ends, now_ns: u64) -> Result<Opened<'a>, Refusal> {
    let header = Header::read(datagram, Direction::ToGatekeeper)?;
    keys.open(&header, datagram, ends, (now_ns, TOLERANCE))
}

fn sealed(messages: &[Message], header: &Header, keys: &Keyring, ends: &Ends) -> Vec<u8> {
    let mut buffer = [0xee; 2000];
    let mut writer = Writer::new(&mut buffer).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    let len = writer.len();
    let sealed = writer.seal(keys, header, ends);
    assert_eq!(sealed.len(), len);
    sealed.to_vec()
}

#[test]
fn golden_bytes_are_read() {
    let (bytes, wanted) = golden();
    assert_eq!(Header::read(&bytes, Direction::ToGatekeeper), Ok(header()));
    let opened = open(&keys(), &bytes, &ends(), NOW).unwrap();
    assert_eq!(opened.collect::<Result<Vec<_>, _>>().unwrap(), wanted);
}

#[test]
fn golden_bytes_are_written() {
    let (bytes, messages) = golden();
    // The key's number is the ring's.
    assert_eq!(sealed(&messages, &Header { key: 99, ..header() }, &keys(), &ends()), bytes);
}

/// The other direction, by IPv6.
#[test]
fn a_golden_probe() {
    let ends = Ends { source: (address("2001:db8::1"), 45232), destination: (address("2001:db8::7"), 41120) };
    let header = Header { direction: Direction::ToGrantor, ..header() };
    let probe = sealed(&[a_probe()], &header, &keys(), &ends);
    assert_eq!(probe.len(), HEADER_LEN + PROBE_LEN + TAG_LEN);
    assert_eq!(probe[..2], [2, 2]);
    let tag = [0x90, 0x3d, 0x5e, 0x30, 0x18, 0xd2, 12, 0x1d, 0x1b, 0x12, 0x9c, 0x1a, 0xb9, 0x80, 0xf9, 0xfd];
    assert_eq!(probe[48..], tag);
}

/// Every bit of the datagram, and every part of its ends, is under the tag.
#[test]
fn whatever_is_changed_is_forged() {
    let (bytes, _) = golden();
    for bit in 0..bytes.len() * 8 {
        let mut other = bytes.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        let refusal = open(&keys(), &other, &ends(), NOW).unwrap_err();
        let wanted = match bit / 8 {
            0 => Refusal::Version(other[0]),
            1 => Refusal::Malformed,
            2 | 3 => Refusal::UnknownKey,
            _ => Refusal::Forged,
        };
        assert_eq!(refusal, wanted, "bit {bit}");
    }
    for len in 0..bytes.len() {
        let refusal = open(&keys(), &bytes[..len], &ends(), NOW).unwrap_err();
        let wanted = if len < HEADER_LEN + TAG_LEN { Refusal::Malformed } else { Refusal::Forged };
        assert_eq!(refusal, wanted, "{len} bytes");
    }
    let Ends { source, destination } = ends();
    for other in [
        Ends { source: (address("192.0.2.8"), 41120), destination },
        Ends { source: (source.0, 41121), destination },
        Ends { source, destination: (address("192.0.2.2"), 45232) },
        Ends { source, destination: (destination.0, 1) },
        Ends { source: destination, destination: source },
    ] {
        assert_eq!(open(&keys(), &bytes, &other, NOW).unwrap_err(), Refusal::Forged, "{other:?}");
    }
    let same_number = Keyring::single(7, &[9; 32]);
    assert_eq!(open(&same_number, &bytes, &ends(), NOW).unwrap_err(), Refusal::Forged);
}

/// What we have sent comes back with the ends, and even with the direction, turned round.
#[test]
fn a_reflected_datagram_never_verifies() {
    let (bytes, messages) = golden();
    let Ends { source, destination } = ends();
    let back = Ends { source: destination, destination: source };
    let sent = sealed(&messages, &Header { direction: Direction::ToGrantor, ..header() }, &keys(), &back);
    assert_eq!(open(&keys(), &sent, &ends(), NOW).unwrap_err(), Refusal::Malformed);
    let mut turned = sent.clone();
    turned[1] = 1;
    for ends in [ends(), back] {
        assert_eq!(open(&keys(), &turned, &ends, NOW).unwrap_err(), Refusal::Forged);
    }
    assert!(open(&keys(), &bytes, &ends(), NOW).is_ok());
}

#[test]
fn the_time_is_ours_within_seconds() {
    let (bytes, _) = golden();
    for (now_ns, behind) in [
        (NOW, None),
        (NOW + TOLERANCE, None),
        (NOW - TOLERANCE, None),
        (NOW + TOLERANCE + 1, Some(10_000_000_001)),
        (NOW - TOLERANCE - 1, Some(-10_000_000_001)),
    ] {
        let refusal = open(&keys(), &bytes, &ends(), now_ns).err();
        assert_eq!(refusal, behind.map(|behind_ns| Refusal::Stale { behind_ns }));
    }
}

/// A key is replaced in three steps; what is on its way in the step before is still opened.
#[test]
fn keys_change_without_loss() {
    let line = |id: u16| format!("{id} {}\n", format!("{id:02x}").repeat(32));
    let ring = |ids: &[u16]| Keyring::parse(&ids.iter().map(|id| line(*id)).collect::<String>()).unwrap();
    let steps = [ring(&[1]), ring(&[1, 2]), ring(&[2, 1]), ring(&[2])];
    for pair in steps.windows(2) {
        for (sender, receiver) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            let sent = sealed(&golden().1, &header(), sender, &ends());
            assert!(open(receiver, &sent, &ends(), NOW).is_ok(), "{sender:?} {receiver:?}");
        }
    }
    let sent = sealed(&golden().1, &header(), &steps[0], &ends());
    assert_eq!(open(&steps[3], &sent, &ends(), NOW).unwrap_err(), Refusal::UnknownKey);
}

#[test]
fn a_datagram_takes_what_fits_whole() {
    let messages = golden().1;
    let lens = [28, 12, 24, 24, 12];
    for size in 0..160 {
        let mut buffer = vec![0xee; size];
        let Ok(mut writer) = Writer::new(&mut buffer) else {
            assert!(size < HEADER_LEN + TAG_LEN);
            continue;
        };
        assert!(writer.is_empty());
        let fit = messages.iter().take_while(|message| writer.push(message).is_ok()).count();
        let mut room = size - HEADER_LEN - TAG_LEN;
        let wanted =
            lens.iter().take_while(|len| room.checked_sub(**len).map(|left| room = left).is_some()).count();
        assert_eq!((fit, writer.is_empty()), (wanted, wanted == 0), "{size}");
        let sealed = writer.seal(&keys(), &header(), &ends()).to_vec();
        let opened = open(&keys(), &sealed, &ends(), NOW).unwrap().collect::<Result<Vec<_>, _>>();
        assert_eq!(opened.unwrap(), messages[..fit]);
    }
    for (mtu, flow, wanted) in
        [(1472, Pair::V4 { src: 1, dst: 2 }, 51), (1452, Pair::V6 { src: 1, dst: 2 }, 27)]
    {
        let mut buffer = vec![0; mtu];
        let mut writer = Writer::new(&mut buffer).unwrap();
        let verdict = Verdict::Granted { rate_kib_s: 1, expire_s: 2, renew_ms: 3, step_ms: 4, direct: false };
        let fit = (0..).take_while(|_| writer.push(&Message::Decision(Decision { flow, verdict })).is_ok());
        assert_eq!(fit.count(), wanted);
    }
}

/// A holder of the key says what is no message: what came before it counts.
#[test]
fn faults_tell_their_byte() {
    let (bytes, wanted) = golden();
    let body = &bytes[HEADER_LEN..bytes.len() - TAG_LEN];
    // (byte, what it is there, messages read before it, the fault's byte)
    for (at, value, before, byte) in [
        (0, 6, 0, 0),
        (0, 255, 0, 0),
        (1, 2, 0, 1),
        (2, 1, 0, 2),
        (28, 10, 1, 28),
        (29, 33, 1, 29),
        (29, 23, 2, 0),
        (30, 1, 1, 30),
        (39, 1, 1, 29),
        (40, 7, 2, 40),
        (64, 18, 3, 64),
        (65, 1, 3, 65),
    ] {
        let mut body = body.to_vec();
        body[at] = value;
        let mut read = messages(&body);
        let good: Vec<Message> = read.by_ref().map_while(Result::ok).collect();
        if byte == 0 && before > 0 {
            // 10.1.2.0/23 is a prefix as well.
            assert_eq!(good.len(), 5);
            continue;
        }
        assert_eq!(good, wanted[..before]);
        let Some(Err(Error::Invalid { offset, .. })) = messages(&body).nth(before) else {
            panic!("{at} {value}")
        };
        assert_eq!(offset, byte);
        assert_eq!(read.next(), None, "nothing behind a fault");
    }
    for len in 0..body.len() {
        let whole = [28, 40, 64, 88, 100].iter().filter(|end| **end <= len).count();
        let read: Vec<_> = messages(&body[..len]).collect();
        assert!(read[..whole].iter().all(Result::is_ok) && read.len() <= whole + 1, "{len}");
        assert_eq!(read.len() == whole, [0, 28, 40, 64, 88].contains(&len), "{len}");
    }
}

#[test]
fn ranges_have_no_bits_behind_their_length() {
    assert!(Range::new(address("0.0.0.0"), 0).is_some());
    assert!(Range::new(address("255.255.255.255"), 32).is_some());
    assert!(Range::new(address("10.0.0.1"), 31).is_none());
    assert!(Range::new(address("10.0.0.0"), 33).is_none());
    assert!(Range::new(address("::1"), 128).is_some());
    assert!(Range::new(address("::1"), 127).is_none());
    assert!(Range::new(address("::"), 129).is_none());
    assert!(Range::new(address("8000::"), 1).is_some());
    let ends4 = |text, bits| Range::new(address(text), bits).unwrap().v4();
    assert_eq!(ends4("10.1.2.0", 24), Some((0x0a01_0200, 0x0a01_02ff)));
    assert_eq!((ends4("0.0.0.0", 0), ends4("0.0.0.7", 32)), (Some((0, u32::MAX)), Some((7, 7))));
    let ends6 = |text, bits| Range::new(address(text), bits).unwrap().v6();
    assert_eq!((ends6("::", 0), ends6("::7", 128)), (Some((0, u128::MAX)), Some((7, 7))));
    assert_eq!((ends4("::", 0), ends6("1.2.3.4", 32)), (None, None));
}

/// What the node does with all that comes, once.
#[test]
fn the_same_datagram_counts_once() {
    let (bytes, _) = golden();
    let window = Window::default();
    let took = || {
        let header = Header::read(&bytes, Direction::ToGatekeeper).unwrap();
        keys().open(&header, &bytes, &ends(), (NOW, TOLERANCE)).is_ok() && window.take(header.stamp)
    };
    assert!(took() && !took());
}

proptest! {
    /// Bytes that nobody signed never open, and never panic.
    #[test]
    fn what_nobody_signed_is_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), shape in any::<bool>()) {
        if shape && bytes.len() >= HEADER_LEN {
            bytes[..HEADER_LEN].copy_from_slice(&golden().0[..HEADER_LEN]);
        }
        prop_assert!(open(&keys(), &bytes, &ends(), NOW).is_err());
        let read = messages(&bytes).count();
        prop_assert!(read <= bytes.len() / 12 + 1);
    }
}
