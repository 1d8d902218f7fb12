//! What is known of a connection, and how it lies in the words of a flow table.
//!
//! ```text
//! word 0   until when, milliseconds << 16 | bits
//!      1   version of the rules << 32 | interface in << 16 | interface out
//!      2   rule in << 32 | rule out
//!      3   packets of who began it << 32 | packets of the other
//!      4   four words of TCP
//!      8   its place among those that wait for an answer
//! ```
//!
//! In and out are those of its first packet; packets of the other side come in where those go out.

use crate::filter::half::NONE;
use crate::filter::settings::Times;
use crate::filter::tcp::{Tcp, WORDS};

/// A connection's words.
pub(crate) type Words = [u64; 5 + WORDS];

/// The word with its place among those that wait.
pub(crate) const HALF: usize = 4 + WORDS;

/// Not decided by a rule.
pub(crate) const NO_RULE: u32 = u32::MAX;

/// What a connection is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP echoes.
    Icmp,
    /// Another protocol.
    Other,
}

impl Kind {
    pub(crate) fn of(protocol: u8) -> Kind {
        match protocol {
            6 => Kind::Tcp,
            17 => Kind::Udp,
            1 | 58 => Kind::Icmp,
            _ => Kind::Other,
        }
    }
}

/// See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) until_ms: u64,
    /// Whether the lower end of its key began it.
    pub(crate) origin_low: bool,
    /// Which ways of its first packet it covers: in, out.
    pub(crate) kept: [bool; 2],
    /// Whether a packet of the other side has been let through on that way, so that it is covered.
    pub(crate) turned: [bool; 2],
    /// Whether the other side has sent something.
    pub(crate) answered: bool,
    /// Of the rules that it was held to.
    pub(crate) version: u32,
    pub(crate) interfaces: [u16; 2],
    pub(crate) rules: [u32; 2],
    pub(crate) packets: [u32; 2],
    pub(crate) tcp: Tcp,
    pub(crate) half: u32,
}

const ORIGIN_LOW: u64 = 1;
const KEPT_IN: u64 = 2;
const KEPT_OUT: u64 = 4;
const ANSWERED: u64 = 8;
const TURNED_IN: u64 = 16;
const TURNED_OUT: u64 = 32;

fn two(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl Connection {
    pub(crate) fn pack(&self) -> Words {
        let bit = |is: bool, bit: u64| if is { bit } else { 0 };
        let bits = bit(self.origin_low, ORIGIN_LOW)
            | bit(self.kept[0], KEPT_IN)
            | bit(self.kept[1], KEPT_OUT)
            | bit(self.answered, ANSWERED)
            | bit(self.turned[0], TURNED_IN)
            | bit(self.turned[1], TURNED_OUT);
        let interfaces = u32::from(self.interfaces[0]) << 16 | u32::from(self.interfaces[1]);
        let [a, b, c, d] = self.tcp.pack();
        [
            self.until_ms << 16 | bits,
            two(self.version, interfaces),
            two(self.rules[0], self.rules[1]),
            two(self.packets[0], self.packets[1]),
            a,
            b,
            c,
            d,
            self.half.into(),
        ]
    }

    pub(crate) fn unpack(words: &Words) -> Self {
        let bits = words[0];
        Connection {
            until_ms: words[0] >> 16,
            origin_low: bits & ORIGIN_LOW != 0,
            kept: [bits & KEPT_IN != 0, bits & KEPT_OUT != 0],
            answered: bits & ANSWERED != 0,
            turned: [bits & TURNED_IN != 0, bits & TURNED_OUT != 0],
            version: (words[1] >> 32) as u32,
            interfaces: [(words[1] >> 16) as u16, words[1] as u16],
            rules: [(words[2] >> 32) as u32, words[2] as u32],
            packets: [(words[3] >> 32) as u32, words[3] as u32],
            tcp: Tcp::unpack([words[4], words[5], words[6], words[7]]),
            half: words[8] as u32,
        }
    }

    /// How long it may be silent.
    pub(crate) fn timeout_ms(&self, kind: Kind, times: &Times) -> u64 {
        match kind {
            Kind::Tcp if self.tcp.is_over() => times.tcp_closed_ms,
            Kind::Tcp if !self.tcp.is_established() => times.tcp_opening_ms,
            Kind::Tcp if self.tcp.is_closing() => times.tcp_closing_ms,
            Kind::Tcp => times.tcp_established_ms,
            Kind::Udp if self.answered => times.udp_ms,
            Kind::Udp => times.udp_first_ms,
            Kind::Icmp => times.icmp_ms,
            Kind::Other => times.other_ms,
        }
    }

    /// Whether it is among those that wait for an answer.
    pub(crate) fn waits(&self) -> bool {
        self.half != NONE
    }

    /// For operators.
    pub(crate) fn name(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::Tcp => self.tcp.name(),
            _ if self.answered => "answered",
            _ => "unanswered",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::tcp::{Segment, flag};

    #[test]
    fn what_goes_into_words_comes_out_of_them() {
        let segment = Segment { seq: 9, window: 77, flags: flag::SYN, scale: Some(3), ..Segment::default() };
        for n in 0..64 {
            let bit = |bit: u32| n >> bit & 1 != 0;
            let connection = Connection {
                until_ms: (1 << 48) - 1,
                origin_low: bit(0),
                kept: [bit(1), bit(2)],
                answered: bit(3),
                turned: [bit(4), bit(5)],
                version: u32::MAX - n,
                interfaces: [0xffff, 3],
                rules: [NO_RULE, 5],
                packets: [7, u32::MAX],
                tcp: Tcp::begun(&segment),
                half: NONE - n,
            };
            assert_eq!(Connection::unpack(&connection.pack()), connection);
        }
    }
}
