//! Any frames on either side of the mitigator: nothing panics, what goes out is never dropped, nothing is dropped before there is a rule, and
//! there is no rule but from a port unreachable from inside that is right in every way, as read here by other code.
//!
//! Input: a byte for the configuration; then records: flags (bit 0: from inside, bit 1: ends the burst, others: seconds that pass), a length of two
//! bytes, the frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_amp::{Counter, Mitigator, MitigatorSection, Settings, Side};

/// The Internet checksum over all of it, two bytes at a time: 0xffff if right.
fn sum(parts: &[&[u8]]) -> u64 {
    let mut sum = 0_u64;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(*bytes.get(at)?) << 8 | usize::from(*bytes.get(at + 1)?))
}

/// Where an IPv6 packet's upper layer begins, and which it is; none in the middle of a datagram.
fn upper6(packet: &[u8]) -> Option<(u8, usize)> {
    let (mut next, mut at) = (*packet.get(6)?, 40);
    loop {
        let len = match next {
            0 | 43 | 60 => (usize::from(*packet.get(at + 1)?) + 1) * 8,
            51 => (usize::from(*packet.get(at + 1)?) + 2) * 4,
            44 if be16(packet, at + 2)? & 0xfff8 == 0 => 8,
            44 => return None,
            _ => return Some((next, at)),
        };
        next = *packet.get(at)?;
        at += len;
    }
}

/// Source, destination, upper protocol and upper layer of a packet that may be cut short.
fn ip(packet: &[u8]) -> Option<(&[u8], &[u8], u8, &[u8])> {
    if packet.first()? >> 4 == 4 {
        let header = usize::from(packet[0] & 15) * 4;
        let end = be16(packet, 2)?.min(packet.len());
        (be16(packet, 6)? & 0x1fff == 0).then_some(())?;
        Some((packet.get(12..16)?, packet.get(16..20)?, *packet.get(9)?, packet.get(header..end)?))
    } else {
        let end = (40 + be16(packet, 4)?).min(packet.len());
        let (protocol, at) = upper6(packet.get(..end)?)?;
        Some((packet.get(8..24)?, packet.get(24..40)?, protocol, packet.get(at..end)?))
    }
}

/// Whether a frame is what may make a rule.
fn may_confirm(frame: &[u8]) -> Option<bool> {
    let mut at = 12;
    while matches!(be16(frame, at)?, 0x8100 | 0x88a8 | 0x9100) {
        at += 4;
    }
    let packet = frame.get(at + 2..)?;
    let (src, dst, protocol, message) = ip(packet)?;
    let len = (message.len() as u32).to_be_bytes();
    let right = match (packet[0] >> 4, protocol) {
        (4, 1) => message.get(..2)? == [3, 3] && sum(&[message]) == 0xffff,
        (6, 58) => message.get(..2)? == [1, 4] && sum(&[src, dst, &len, &[0, 0, 0, 58], message]) == 0xffff,
        _ => false,
    };
    let (inner_src, inner_dst, protocol, datagram) = ip(message.get(8..)?)?;
    let port = be16(datagram, 0)?;
    Some(right && (inner_src, inner_dst, protocol) == (dst, src, 17) && [53, 123].contains(&port) && datagram.len() >= 8)
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, mut rest)) = data.split_first() else { return };
    let section = MitigatorSection {
        protocols: ["dns", "ntp"].map(|name| tidemill_amp::config::ProtocolItem::Name(name.into())).into(),
        tuple: 1 + (how & 3),
        dry_run: how & 4 != 0,
        query_s: u32::from(how >> 3 & 1) * 30,
        icmp_rate: u32::from(how >> 4 & 1),
        entries: 40,
        expiry_s: 20,
        ..MitigatorSection::default()
    };
    let (Ok(settings), Ok(mut mitigator)) = (Settings::new(&section), Mitigator::new(section.entries, 1)) else {
        panic!("{section:?}");
    };
    let (mut now_ns, mut burst) = (1_000_000_000_000_u64, Vec::new());
    while let Some((&[flags, high, low], bytes)) = rest.split_first_chunk() {
        let len = usize::from(high) << 8 | usize::from(low);
        let (frame, next) = bytes.split_at(len.min(bytes.len()));
        rest = next;
        burst.push((if flags & 1 == 0 { Side::Outside } else { Side::Inside }, frame));
        if flags & 2 == 0 && burst.len() < 256 && !rest.is_empty() {
            continue;
        }
        let count = |mitigator: &Mitigator, counter| mitigator.counters().get(counter);
        let (rules, made) = (count(&mitigator, Counter::Rules), count(&mitigator, Counter::RulesMade));
        let mut dropped = 0;
        mitigator.decide(&settings, now_ns, &burst, |(side, bytes)| (*side, *bytes), |at| {
            assert_eq!(burst[at].0, Side::Outside, "what goes out goes out");
            dropped += 1;
        });
        let fragments = count(&mitigator, Counter::DroppedFragments);
        assert!(dropped == 0 || (!section.dry_run && (rules > 0 || fragments > 0)), "{dropped} dropped by {rules} rules");
        let valid = burst.iter().filter(|(side, frame)| *side == Side::Inside && may_confirm(frame) == Some(true));
        let made = count(&mitigator, Counter::RulesMade) - made;
        assert!(made <= valid.count() as u64, "{made} rules made");
        now_ns += u64::from(flags >> 2) * 1_000_000_000;
        mitigator.tick(&settings, now_ns);
        burst.clear();
    }
});
