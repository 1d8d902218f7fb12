use super::*;
use crate::{Cookie, Pair, Verdict};

/// Written by hand from the facts: the bytes, and what they say.
fn golden() -> (Vec<u8>, Vec<Decision>) {
    let bytes = [
        // Version 1.
        &[1, 0, 0, 0][..],
        // IPv4 declined: 192.0.2.1 > 10.1.2.3, 600 s.
        &[0, 0, 0, 0, 192, 0, 2, 1, 10, 1, 2, 3, 0, 0, 0x02, 0x58],
        // IPv6 declined: 2001:db8::1 > fd00::2, 2^32 - 1 s.
        &[1, 0, 0, 0, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff],
        // IPv4 granted: 203.0.113.9 > 10.0.0.1, 2048 KiB/s, 60 s, renewed first after 45,000 ms, then every 5,000.
        &[2, 0, 0, 0, 203, 0, 113, 9, 10, 0, 0, 1],
        &[0, 0, 0x08, 0, 0, 0, 0, 0x3c, 0, 0, 0xaf, 0xc8, 0, 0, 0x13, 0x88],
        // IPv6 granted: 2001:db8::a:b > fd00::3, 1 KiB/s, 300 s, 240,000 ms, 16,909,060 ms.
        &[3, 0, 0, 0, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0, 0x0b],
        &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3],
        &[0, 0, 0, 1, 0, 0, 0x01, 0x2c, 0, 0x03, 0xa9, 0x80, 1, 2, 3, 4],
    ];
    let decisions = vec![
        Decision {
            flow: Pair::V4 { src: 0xc000_0201, dst: 0x0a01_0203 },
            verdict: Verdict::Declined { expire_s: 600 },
        },
        Decision {
            flow: Pair::V6 { src: 0x2001_0db8 << 96 | 1, dst: 0xfd00 << 112 | 2 },
            verdict: Verdict::Declined { expire_s: u32::MAX },
        },
        Decision {
            flow: Pair::V4 { src: 0xcb00_7109, dst: 0x0a00_0001 },
            verdict: Verdict::Granted {
                rate_kib_s: 2048,
                expire_s: 60,
                renew_ms: 45_000,
                step_ms: 5_000,
                direct: false,
            },
        },
        Decision {
            flow: Pair::V6 { src: 0x2001_0db8 << 96 | 0x000a_000b, dst: 0xfd00 << 112 | 3 },
            verdict: Verdict::Granted {
                rate_kib_s: 1,
                expire_s: 300,
                renew_ms: 240_000,
                step_ms: 16_909_060,
                direct: false,
            },
        },
    ];
    (bytes.concat(), decisions)
}

/// Where each decision of the golden bytes ends.
const ENDS: [usize; 4] = [20, 60, 88, 140];

fn read(payload: &[u8]) -> (Vec<Decision>, Option<Error>) {
    let mut decisions = Decisions::new(payload);
    let mut read = Vec::new();
    let fault = loop {
        match decisions.next() {
            Some(Ok(decision)) => read.push(decision),
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    assert_eq!(decisions.next(), None, "after the end");
    (read, fault)
}

#[test]
fn golden_bytes_are_read() {
    let (bytes, decisions) = golden();
    assert_eq!(read(&bytes), (decisions, None));
    assert_eq!(read(&[1, 0, 0, 0]), (vec![], None));
}

#[test]
fn golden_bytes_are_written() {
    let (bytes, decisions) = golden();
    let mut buffer = [0xee; 141];
    let mut writer = Writer::new(&mut buffer).unwrap();
    assert!(writer.is_empty());
    for (decision, end) in decisions.iter().zip(ENDS) {
        writer.push(decision).unwrap();
        assert_eq!(writer.len(), end);
    }
    assert!(!writer.is_empty());
    assert_eq!(writer.payload(), bytes);
    assert_eq!(buffer[140], 0xee);
}

#[test]
fn a_payload_takes_what_fits_whole() {
    let (bytes, decisions) = golden();
    for size in 0..=140 {
        let mut buffer = vec![0xee; size];
        let Ok(mut writer) = Writer::new(&mut buffer) else {
            assert!(size < HEADER_LEN);
            continue;
        };
        let fit = decisions.iter().take_while(|decision| writer.push(decision).is_ok()).count();
        assert_eq!(fit, ENDS.iter().filter(|&&end| end <= size).count(), "{size}");
        let end = writer.len();
        assert_eq!(writer.payload(), &bytes[..end]);
        assert!(buffer[end..].iter().all(|&byte| byte == 0xee), "{size}: nothing half written");
    }
}

#[test]
fn what_cannot_be_said_is_not_written() {
    let flow = Pair::V4 { src: 1, dst: 2 };
    let mut buffer = [0; 100];
    let mut writer = Writer::new(&mut buffer).unwrap();
    let granted = |direct| Verdict::Granted { rate_kib_s: 1, expire_s: 2, renew_ms: 3, step_ms: 4, direct };
    writer.push(&Decision { flow, verdict: granted(true) }).unwrap();
    assert_eq!(read(writer.payload()).0, [Decision { flow, verdict: granted(false) }]);
    assert_eq!(Cookie::new(&[0; 3]), None);
    assert_eq!(Cookie::new(&[0; 68]), None);
}

/// Cut anywhere: all that is whole is read, and the fault lies in what is not.
#[test]
fn a_payload_cut_short_is_read_up_to_there() {
    let (bytes, decisions) = golden();
    for len in 0..bytes.len() {
        let whole = ENDS.iter().filter(|&&end| end <= len).count();
        let start = if whole == 0 { HEADER_LEN } else { ENDS[whole - 1] };
        let (read, fault) = read(&bytes[..len]);
        assert_eq!(read, decisions[..whole], "{len}");
        if len == start {
            assert_eq!(fault, None);
            continue;
        }
        let Some(Error::Truncated { offset, needed, present, .. }) = fault else {
            panic!("{len}: {fault:?}")
        };
        let from = if len < HEADER_LEN { 0 } else { start };
        assert!((from..=len).contains(&offset) && needed > len && present == len, "{len}: {fault:?}");
    }
}

#[test]
fn faults_tell_their_byte() {
    let (bytes, decisions) = golden();
    // (byte, what it is there, decisions read before it)
    let cases = [
        (0, 2, 0),
        (0, 0, 0),
        (1, 1, 0),
        (3, 1, 0),
        (4, 6, 0),
        (4, 255, 0),
        (5, 1, 0),
        (60, 7, 2),
        (63, 9, 2),
    ];
    for (at, value, before) in cases {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let (read, fault) = read(&bytes);
        assert_eq!(read, decisions[..before]);
        let Some(Error::Invalid { offset, value: found, .. }) = fault else { panic!("{at}: {fault:?}") };
        assert_eq!((offset, found), (at, u64::from(value)));
    }
    let text = read(&[&bytes[..60], &[9]].concat()).1.unwrap().to_string();
    assert_eq!(text, "ggu: type 9 at byte 60 is not 0 to 5");
}

#[test]
fn programs_come_with_their_cookies() {
    let declined = golden().1[0];
    let bytes = [
        &[1, 0, 0, 0][..],
        // IPv4: program 7 for 258 s, a cookie of two words.
        &[4, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1, 2, 7, 0, 0, 2, 1, 1, 1, 1, 2, 2, 2, 2],
        // IPv6: program 255 for 1 s, no cookie.
        &[5, 0, 0, 0],
        &[0xaa; 32],
        &[0, 0, 0, 1, 255, 0, 0, 0],
        // IPv4 declined, as above.
        &[0, 0, 0, 0, 192, 0, 2, 1, 10, 1, 2, 3, 0, 0, 0x02, 0x58],
    ]
    .concat();
    let (src, dst) = (0x0102_0304, 0x0506_0708);
    let aa = u128::MAX / 255 * 0xaa;
    let (two, none) = (Cookie::new(&[1, 1, 1, 1, 2, 2, 2, 2]).unwrap(), Cookie::new(&[]).unwrap());
    let program = |expire_s, program, cookie| Verdict::Bpf { expire_s, program, cookie };
    let wanted = [
        Decision { flow: Pair::V4 { src, dst }, verdict: program(258, 7, two) },
        Decision { flow: Pair::V6 { src: aa, dst: aa }, verdict: program(1, 255, none) },
        declined,
    ];
    assert_eq!(read(&bytes), (wanted.to_vec(), None));
    let mut buffer = [0xee; 200];
    let mut writer = Writer::new(&mut buffer).unwrap();
    wanted.iter().for_each(|decision| writer.push(decision).unwrap());
    assert_eq!(writer.payload(), bytes);
    // The two bytes that are zero, a cookie that is not all there.
    let mut strange = bytes.clone();
    strange[22] = 1;
    assert!(matches!(read(&strange).1, Some(Error::Invalid { offset: 22, .. })));
    assert!(matches!(read(&bytes[..31]).1, Some(Error::Truncated { offset: 24, needed: 32, .. })));
    // The longest cookie, and one that is longer.
    let mut long = bytes[..24].to_vec();
    long[23] = 16;
    long.resize(24 + 64, 7);
    let longest = Cookie::new(&[7; 64]).unwrap();
    assert_eq!(read(&long).0, [Decision { flow: wanted[0].flow, verdict: program(258, 7, longest) }]);
    long[23] = 17;
    long.resize(24 + 68, 7);
    assert!(matches!(read(&long).1, Some(Error::Invalid { offset: 23, value: 17, .. })));
}
