//! The state against plain words; errors bit by bit.

use super::super::Endpoint;
use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

/// A way as one would write it down.
#[derive(Default)]
struct Plain {
    /// What it takes, and since when.
    mtu: Option<(u64, u16)>,
    sent: Vec<(u64, u16)>,
}

impl Plain {
    fn mtu(&self, now_ns: u64) -> u16 {
        self.mtu
            .filter(|(since, _)| now_ns - since <= LIFETIME_NS >> TICK << TICK)
            .map_or(u16::MAX, |(_, mtu)| mtu)
    }

    /// Whether a packet at least that long was sent in the last so many nanoseconds.
    fn sent(&self, now_ns: u64, length: u16, within_ns: u64) -> bool {
        self.sent.iter().any(|(at, sent)| now_ns - at <= within_ns && *sent >= length)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Send(u16),
    Hear { length: u16, mtu: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let length = || prop_oneof![1 => 0_u16..=u16::MAX, 3 => 500_u16..1600, 3 => Just(1500_u16)];
    prop_oneof![
        3 => prop_oneof![0_u64..2000, 8_000_u64..12_000, 590_000_u64..610_000].prop_map(Step::Wait),
        3 => length().prop_map(Step::Send),
        4 => (length(), length()).prop_map(|(length, mtu)| Step::Hear { length, mtu }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    /// What is told holds for its time and is never below the floor; nothing is believed of packets that were not sent; what was sent lately is.
    #[test]
    fn the_state_is_as_plain_words_say(v6: bool, steps in prop::collection::vec(step(), 1..200)) {
        let least = if v6 { u128::LEAST_MTU } else { u32::LEAST_MTU };
        let (path, mut plain, mut now) = (Path::default(), Plain::default(), (1000 * SECOND) >> TICK << TICK);
        for step in steps {
            match step {
                // In whole units, so that no time is rounded.
                Step::Wait(ms) => now += ms << TICK,
                Step::Send(length) => {
                    if length > path.bar(now) {
                        path.note(now, length);
                    }
                    plain.sent.push((now, length));
                }
                Step::Hear { length, mtu } => {
                    let before = plain.mtu(now);
                    let heard = path.hear(now, length, mtu, least);
                    let to = if mtu == 0 { usual(length) } else { mtu }.max(least);
                    let senseless = to >= length;
                    if senseless || !plain.sent(now, length, SENT_NS) {
                        prop_assert_eq!(heard, Heard::Refused);
                    } else if plain.sent(now, length, 8 * SECOND)
                        && !plain.sent.iter().any(|(at, sent)| now - at <= 21 * SECOND && *sent > length)
                    {
                        // The longest of all for long enough: nothing else stood in its way.
                        prop_assert_ne!(heard, Heard::Refused);
                    }
                    if heard != Heard::Refused {
                        prop_assert_eq!(heard == Heard::Lowered, to < before);
                        if to <= before {
                            plain.mtu = Some((now, to));
                        }
                    }
                }
            }
            prop_assert_eq!(path.mtu(now), plain.mtu(now));
            prop_assert!(path.mtu(now) >= least);
        }
    }

    /// Whatever comes: no panic, and nothing but such an error is read as one.
    #[test]
    fn any_bytes_can_be_read(mut bytes in prop::collection::vec(any::<u8>(), 0..120), v6: bool) {
        if let Some(first) = bytes.first_mut() {
            *first = if v6 { 0x60 } else { 0x45 };
        }
        prop_assert_eq!((read4(&bytes), read6(&bytes)), (None, None), "its checksums are right by chance");
    }
}

const US4: u32 = 0xc000_0201;
const GRANTOR4: u32 = 0x0a14_1e28;
const US6: u128 = 0x2001_0db8_0001_0000_0000_0000_0000_0001;
const GRANTOR6: u128 = 0xfd00_0020_0000_0000_0000_0000_0000_0040;

/// The sum of 16-bit words, by hand.
fn check(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// An error of RFC 1191 from 10.0.0.9, about an outer packet of this length, quoting its header and 8 bytes.
pub(crate) fn error4(length: u16, mtu: u16) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 56, 0, 1, 0, 0, 60, 1, 0, 0, 10, 0, 0, 9];
    ip.extend(US4.to_be_bytes());
    let sum = check(&ip);
    ip[10..12].copy_from_slice(&sum);
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    icmp.extend([0x45, 0xa4]);
    icmp.extend(length.to_be_bytes());
    icmp.extend([0, 0, 0x40, 0, 61, 4, 0, 0]);
    icmp.extend(US4.to_be_bytes());
    icmp.extend(GRANTOR4.to_be_bytes());
    icmp.extend([0x45, 0, 5, 0xc8, 0, 0, 0x40, 0]);
    let sum = check(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    ip.extend(icmp);
    ip
}

/// The same of RFC 4443, from fd00::9, quoting the header only.
pub(crate) fn error6(length: u16, mtu: u32) -> Vec<u8> {
    let from = 0xfd00_0000_0000_0000_0000_0000_0000_0009_u128;
    let mut icmp = vec![2, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    icmp.extend([0x6a, 0x41, 2, 3]);
    icmp.extend((length - 40).to_be_bytes());
    icmp.extend([41, 250]);
    icmp.extend(US6.to_be_bytes());
    icmp.extend(GRANTOR6.to_be_bytes());
    let mut pseudo = [from.to_be_bytes(), US6.to_be_bytes()].concat();
    pseudo.extend([0, 0, 0, icmp.len() as u8, 0, 0, 0, 58]);
    pseudo.extend(&icmp);
    let sum = check(&pseudo);
    icmp[2..4].copy_from_slice(&sum);
    let mut ip = vec![0x60, 0, 0, 0, 0, icmp.len() as u8, 58, 60];
    ip.extend(from.to_be_bytes());
    ip.extend(US6.to_be_bytes());
    ip.extend(icmp);
    ip
}

#[test]
fn errors_are_read_and_no_other_bits() {
    let told4 = TooBig { source: US4, destination: GRANTOR4, length: 1500, mtu: 1400 };
    let told6 = TooBig { source: US6, destination: GRANTOR6, length: 1500, mtu: 1400 };
    let (four, six) = (error4(1500, 1400), error6(1500, 1400));
    assert_eq!((read4(&four), read6(&six)), (Some(told4), Some(told6)));
    assert_eq!(read6(&error6(1500, 1 << 20)).map(|told| told.mtu), Some(u16::MAX));
    assert_eq!((read4(&six), read6(&four)), (None, None));
    // A bit that is wrong: the checksums of the message see all of it, that of the header is the input node's to look at.
    for bit in 20 * 8..four.len() * 8 {
        let mut bad = four.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(read4(&bad), None, "bit {bit}");
    }
    for bit in 40 * 8..six.len() * 8 {
        let mut bad = six.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(read6(&bad), None, "bit {bit}");
    }
    for cut in 0..four.len() {
        assert_eq!(read4(&four[..cut]), None);
    }
    for cut in 0..six.len() {
        assert_eq!(read6(&six[..cut]), None);
    }
}

#[test]
fn only_what_we_sent_to_a_grantor_of_ours_counts() {
    let now = 1000 * SECOND;
    let ends = [Endpoint::new(US4, GRANTOR4 + 1), Endpoint::new(US4, GRANTOR4)];
    let told = TooBig { source: US4, destination: GRANTOR4, length: 1500, mtu: 1400 };
    assert_eq!(hear(now, &ends, &told), Some(Heard::Refused), "nothing was sent");
    ends[0].path().note(now, 1500);
    assert_eq!(hear(now, &ends, &told), Some(Heard::Refused), "to another");
    ends[1].path().note(now, 1500);
    for (source, destination) in [(US4 + 1, GRANTOR4), (US4, GRANTOR4 + 2), (GRANTOR4, US4)] {
        assert_eq!(hear(now, &ends, &TooBig { source, destination, ..told }), None);
    }
    for (length, mtu) in [(1501, 1400), (1500, 1500), (1500, u16::MAX), (576, 100)] {
        assert_eq!(hear(now, &ends, &TooBig { length, mtu, ..told }), Some(Heard::Refused), "{length} {mtu}");
    }
    assert_eq!(ends[1].path().mtu(now), u16::MAX, "nothing of that counted");
    // The floor, a router that names no MTU, and what we know already.
    assert_eq!(hear(now, &ends, &TooBig { mtu: 0, ..told }), Some(Heard::Lowered));
    assert_eq!(ends[1].path().mtu(now), 1492);
    assert_eq!(hear(now, &ends, &told), Some(Heard::Lowered));
    assert_eq!(hear(now + SECOND, &ends, &TooBig { mtu: 1450, ..told }), Some(Heard::Known));
    assert_eq!(hear(now + SECOND, &ends, &told), Some(Heard::Known));
    assert_eq!(hear(now, &ends, &TooBig { mtu: 1, ..told }), Some(Heard::Lowered));
    assert_eq!(ends[1].path().mtu(now), u32::LEAST_MTU);
    assert_eq!(ends[0].path().mtu(now), u16::MAX);
    assert_eq!(ends[1].path().mtu(now + LIFETIME_NS + SECOND), u16::MAX, "its time is over");
}
