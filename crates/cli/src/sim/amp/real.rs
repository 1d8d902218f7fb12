//! The mitigator itself, as a table of rules: every packet and every message is a frame that it decides on.

use super::answer::port_unreachable;
use anyhow::Result;
use std::net::Ipv4Addr;
use tidemill_amp::yardstick::{RuleTable, Seen, Tuple4};
use tidemill_amp::{Counter, Mitigator, MitigatorSection, Settings, Side};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, ipv4, udp};

/// Any secret will do.
const SECRET: u128 = 0x7469_6465;
/// An Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of a made-up answer.
const ANSWER: usize = 12;

/// A mitigator with what it comes configured with.
pub(super) struct Real {
    mitigator: Mitigator,
    settings: Settings,
    slots: usize,
}

impl Real {
    /// With empty tables; with the limit of messages from one address that it comes with, or none.
    ///
    /// # Errors
    /// The tables cannot be made.
    pub(super) fn new(limited: bool) -> Result<Self> {
        let mut section = MitigatorSection::default();
        if !limited {
            section.icmp_rate = 0;
        }
        let mitigator = Mitigator::new(section.entries, SECRET)?;
        Ok(Real { mitigator, settings: Settings::new(&section)?, slots: section.entries })
    }

    /// Whether a frame is dropped.
    fn drops(&mut self, now_s: u32, side: Side, frame: &[u8]) -> bool {
        // Not the first second of all clocks.
        let now_ns = (1000 + u64::from(now_s)) * 1_000_000_000;
        let mut dropped = false;
        self.mitigator.decide(&self.settings, now_ns, &[frame], |frame| (side, frame), |_| dropped = true);
        self.mitigator.tick(&self.settings, now_ns);
        dropped
    }
}

/// The answer that a tuple stands for.
fn answer(tuple: &Tuple4) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET + ipv4::HEADER_LEN + udp::HEADER_LEN + ANSWER];
    frame[12] = 0x08;
    let (src, dst) = (Ipv4Addr::from(tuple.source), Ipv4Addr::from(tuple.destination));
    let header = ipv4::Repr::new(src, dst, Protocol::UDP, udp::HEADER_LEN + ANSWER);
    // Both fit: the frame was made for them.
    let _ = header.emit(&mut frame[ETHERNET..]);
    let header =
        udp::Repr { src_port: tuple.source_port, dst_port: tuple.destination_port, payload_len: ANSWER };
    let _ = header.emit(&mut frame[ETHERNET + ipv4::HEADER_LEN..], &Pseudo::V4 { src, dst });
    frame
}

impl RuleTable for Real {
    fn slots(&self) -> usize {
        self.slots
    }

    fn packet(&mut self, tuple: &Tuple4, now_s: u32) -> Seen {
        let untracked = self.mitigator.counters().get(Counter::Untracked);
        if self.drops(now_s, Side::Outside, &answer(tuple)) {
            Seen::Filtered
        } else if self.mitigator.counters().get(Counter::Untracked) > untracked {
            Seen::NoRoom
        } else {
            Seen::Suspected
        }
    }

    fn confirm(&mut self, tuple: &Tuple4, now_s: u32) -> bool {
        let rules = self.mitigator.counters().get(Counter::RulesMade);
        if let Some(message) = port_unreachable(&answer(tuple)[ETHERNET..]) {
            self.drops(now_s, Side::Inside, &message);
        }
        self.mitigator.counters().get(Counter::RulesMade) > rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lives_as_the_tables_do() {
        let mut real = Real::new(true).unwrap();
        let tuple = |i: u32| Tuple4 {
            source: 0x0a00_0000 + i,
            destination: 0xc000_0201,
            source_port: 53,
            destination_port: 40_000,
        };
        assert!(!real.confirm(&tuple(1), 0), "nobody has seen it");
        assert_eq!(real.packet(&tuple(1), 0), Seen::Suspected);
        assert_eq!(real.packet(&tuple(1), 1), Seen::Suspected);
        assert!(real.confirm(&tuple(1), 1) && !real.confirm(&tuple(1), 1));
        assert_eq!((real.packet(&tuple(1), 2), real.packet(&tuple(2), 2)), (Seen::Filtered, Seen::Suspected));
        assert_eq!(real.packet(&tuple(1), 2 + 7830), Seen::Suspected, "its time is over");
    }
}
