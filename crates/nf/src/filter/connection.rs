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
//! In and out are those of its first packet; packets of the other side come in where those go out. Most packets change two of these words and TCP's, and are judged on the words
//! themselves (`judge/straight.rs`): a structure of so many small parts is written in pieces and copied in others, and each such copy waits until the pieces are there.

use crate::filter::half::NONE;
use crate::filter::settings::Times;
use crate::filter::tcp::{Tcp, WORDS};

/// A connection's words.
pub(crate) type Words = [u64; 5 + WORDS];

/// Words by their numbers: until when, and bits ([`Head`]).
pub(crate) const HEAD: usize = 0;
/// The version of the rules, and interfaces.
pub(crate) const VERSION: usize = 1;
/// By which rules.
pub(crate) const RULES: usize = 2;
/// How many packets.
pub(crate) const PACKETS: usize = 3;
/// The first of TCP's.
pub(crate) const TCP: usize = 4;
/// The word with its place among those that wait.
pub(crate) const HALF: usize = TCP + WORDS;

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

/// The first or the second number of a word that has two.
#[inline(always)]
pub(crate) fn of_two(word: u64, which: usize) -> u32 {
    (word >> (32 - 32 * (which & 1))) as u32
}

/// The word with one more in its first or its second number, unless that is at its top.
#[inline(always)]
pub(crate) fn one_more(word: u64, which: usize) -> u64 {
    word + (u64::from(of_two(word, which) != u32::MAX) << (32 - 32 * (which & 1)))
}

/// The rule of such a number.
#[inline(always)]
pub(crate) fn rule_of(number: u32) -> Option<u32> {
    (number != NO_RULE).then_some(number)
}

/// The word [`HEAD`] on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head(pub(crate) u64);

impl Head {
    #[inline(always)]
    pub(crate) fn until_ms(self) -> u64 {
        self.0 >> 16
    }

    #[inline(always)]
    pub(crate) fn is_origin_low(self) -> bool {
        self.0 & ORIGIN_LOW != 0
    }

    #[inline(always)]
    pub(crate) fn is_answered(self) -> bool {
        self.0 & ANSWERED != 0
    }

    /// Whether it covers this way of its first packet: 0 in, 1 out.
    #[inline(always)]
    pub(crate) fn keeps(self, of_first: usize) -> bool {
        self.0 & (KEPT_IN << (of_first & 1)) != 0
    }

    /// The same until another time.
    #[inline(always)]
    pub(crate) fn until(self, ms: u64) -> Self {
        Head(ms << 16 | (self.0 & 0xffff))
    }
}

/// How long a connection may be silent.
#[inline]
pub(crate) fn timeout_ms(kind: Kind, tcp: &Tcp, is_answered: bool, times: &Times) -> u64 {
    match kind {
        Kind::Tcp if tcp.is_over() => times.tcp_closed_ms,
        Kind::Tcp if !tcp.is_established() => times.tcp_opening_ms,
        Kind::Tcp if tcp.is_closing() => times.tcp_closing_ms,
        Kind::Tcp => times.tcp_established_ms,
        Kind::Udp if is_answered => times.udp_ms,
        Kind::Udp => times.udp_first_ms,
        Kind::Icmp => times.icmp_ms,
        Kind::Other => times.other_ms,
    }
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
        timeout_ms(kind, &self.tcp, self.answered, times)
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
            let words = connection.pack();
            assert_eq!(Connection::unpack(&words), connection);
            // What is asked of words says the same.
            let head = Head(words[HEAD]);
            assert_eq!(head.until_ms(), connection.until_ms);
            assert_eq!([head.keeps(0), head.keeps(1)], connection.kept);
            assert_eq!(head.is_origin_low(), connection.origin_low);
            assert_eq!(head.is_answered(), connection.answered);
            assert_eq!(head.until(5).0, Connection { until_ms: 5, ..connection }.pack()[HEAD]);
            assert_eq!(of_two(words[VERSION], 0), connection.version);
            assert_eq!([of_two(words[RULES], 0), of_two(words[RULES], 1)], connection.rules);
            let more = [0, 1].map(|which| one_more(words[PACKETS], which));
            assert_eq!(more, [two(8, u32::MAX), two(7, u32::MAX)]);
            assert_eq!((words[TCP], words[HALF] as u32), (connection.tcp.pack()[0], connection.half));
        }
    }
}
