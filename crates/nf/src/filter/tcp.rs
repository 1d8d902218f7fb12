//! What is known of a TCP connection: who has opened it, who has closed it, and in which window its segments must lie.
//!
//! The window is that of van Rooij, "Real stateful TCP packet filtering in IP Filter" (2001), as packet filters have it since: a segment may
//! begin no later than the other side has allowed, end no earlier than one window before the latest data, acknowledge nothing that was not sent,
//! and nothing older than a window.
//!
//! ```text
//!       end - window of the other side            end            allowed
//!  -----------|------------------------------------|----------------|-------> sequence numbers of one side
//!             '-- a segment ends behind this --                     '-- and begins before this
//! ```
//!
//! ```text
//! SYN --> opening --SYN and ACK--> opening --ACK of who began--> established --FIN--> closing --FIN of the other--> closed
//!                     half-open until here                          RST at the very next sequence number --> closed
//! ```
//!
//! A SYN of a side that has opened it already does not fit, wherever its number lies, unless it is the same again.
//!
//! A connection that was there before us ([`Tcp::picked_up`]) has scales of windows that we do not know: its windows count as the largest there can be. What it has sent before
//! is not known either: its first segment may be one that is sent again, and the answer acknowledges what came behind that. So there, and where nobody has looked for a while
//! ([`Tcp::resumed`]), a side may acknowledge more than was seen of the other, as far as that was allowed. How far that is, the first acknowledgement says that is seen:
//! nobody takes back what was allowed. Until then it is as far as it can be, and who guesses fits more easily.

/// Flags of a segment, as in its header.
pub mod flag {
    /// No more data.
    pub const FIN: u8 = 0x01;
    /// Opens.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Acknowledges.
    pub const ACK: u8 = 0x10;
}
use flag::{ACK, FIN, RST, SYN};

/// Words that a connection is kept in.
pub(crate) const WORDS: usize = 4;

/// A segment, as far as it is looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the first byte, or of the SYN.
    pub seq: u32,
    /// Acknowledgement; means something with ACK only.
    pub ack: u32,
    /// As in the header, not shifted.
    pub window: u16,
    /// See [`flag`].
    pub flags: u8,
    /// Bytes of data.
    pub len: u32,
    /// The option of a SYN.
    pub scale: Option<u8>,
}

impl Segment {
    /// Whether it opens a connection.
    pub fn opens(&self) -> bool {
        opens(self.flags)
    }

    fn end(&self) -> u32 {
        let more = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        self.seq.wrapping_add(self.len).wrapping_add(more)
    }
}

/// Whether a segment with these flags opens a connection: pf's `S/SA`, and neither FIN nor RST, which make no sense beside SYN.
pub fn opens(flags: u8) -> bool {
    flags & (SYN | ACK | RST | FIN) == SYN
}

/// What one side has sent, and may send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Side {
    /// Behind the last byte sent.
    end: u32,
    /// Behind the last byte that the other side has allowed.
    allowed: u32,
    /// The largest window that it has told, shifted.
    window: u32,
    scale: u8,
    /// Bits of [`side`].
    bits: u8,
}

mod side {
    pub(super) const SEEN: u8 = 1;
    pub(super) const SCALES: u8 = 2;
    pub(super) const FIN: u8 = 4;
    /// What it may send is not known: the next acknowledgement of the other side says it.
    pub(super) const LOOSE: u8 = 8;
}

/// The largest scale (RFC 7323, section 2.3).
const MOST_SCALE: u8 = 14;
/// The largest window that there can be.
const MOST_WINDOW: u32 = 0xffff << MOST_SCALE;
/// Data that a SYN may carry (fast open): it need not be acknowledged with it.
const SYN_DATA: u32 = 1500;

/// A connection. Side 0 has begun it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tcp {
    sides: [Side; 2],
    bits: u8,
}

const PICKED_UP: u8 = 1;
const ANSWERED: u8 = 2;
const RESET: u8 = 4;
/// More may have been sent than was seen.
const MISSED: u8 = 8;

/// A segment that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfit;

/// How far `a` is behind `b`.
fn behind(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// Behind the last byte that may have been allowed until `ack` and `window` were told: what is shifted leaves a part out.
fn edge(ack: u32, window: u32, scale: u8) -> u32 {
    ack.wrapping_add(window).wrapping_add(1 << scale.min(MOST_SCALE))
}

impl Tcp {
    /// A connection that this segment begins, of a side that opens it.
    pub fn begun(segment: &Segment) -> Self {
        let mut tcp = Tcp::default();
        tcp.sides[0] = Side::opened(segment);
        tcp
    }

    /// One that was there before: the first segment that we see of it.
    pub fn picked_up(segment: &Segment) -> Self {
        let (end, scale) = (segment.end(), MOST_SCALE);
        let fin = if segment.flags & FIN != 0 { side::FIN } else { 0 };
        // What it has told before may have been more than it tells now.
        let (allowed, bits) = (end.wrapping_add(MOST_WINDOW), side::SEEN | side::LOOSE | fin);
        let first = Side { end, allowed, window: MOST_WINDOW, scale, bits };
        let allowed = edge(segment.ack, u32::from(segment.window) << scale, scale);
        let other = Side { end: segment.ack, allowed, window: MOST_WINDOW, scale, bits: 0 };
        Tcp { sides: [first, other], bits: PICKED_UP | MISSED }
    }

    /// The same after a while in which nobody has looked at its segments.
    pub fn resumed(mut self) -> Self {
        for one in &mut self.sides {
            one.allowed = one.end.wrapping_add(MOST_WINDOW);
            // It may have grown meanwhile.
            one.window = 0xffff << one.scale.min(MOST_SCALE);
            one.bits |= side::LOOSE;
        }
        self.bits |= MISSED;
        self
    }

    /// The same without what [`resumed`](Self::resumed) sets anyway: what is kept says nothing of it.
    pub(crate) fn to_keep(mut self) -> Self {
        self.sides.iter_mut().for_each(|one| one.bits &= !side::LOOSE);
        self.bits &= !MISSED;
        self
    }

    /// Whether both sides have opened it, and who began it has shown that the answer reached it.
    pub fn is_established(&self) -> bool {
        self.bits & ANSWERED != 0
    }

    /// Whether it is over: both sides have closed it, or one has reset it.
    pub fn is_over(&self) -> bool {
        self.bits & RESET != 0 || self.sides.iter().all(|one| one.bits & side::FIN != 0)
    }

    /// Whether a side has closed it.
    pub fn is_closing(&self) -> bool {
        self.sides.iter().any(|one| one.bits & side::FIN != 0)
    }

    /// Whether it was picked up.
    pub fn is_picked_up(&self) -> bool {
        self.bits & PICKED_UP != 0
    }

    /// For operators.
    pub fn name(&self) -> &'static str {
        match () {
            () if self.bits & RESET != 0 => "reset",
            () if self.is_over() => "closed",
            () if !self.is_established() => "opening",
            () if self.is_closing() => "closing",
            () => "established",
        }
    }

    /// A segment of side `from` (0: who began it).
    ///
    /// # Errors
    /// It does not fit, and changes nothing.
    #[inline]
    pub fn step(&mut self, from: usize, segment: &Segment) -> Result<(), Unfit> {
        let ([first, second], is_first) = (self.sides, from & 1 == 0);
        let (mine, other) = if is_first { (first, second) } else { (second, first) };
        let mut seen = Seen { mine, other, bits: self.bits };
        seen.advance(is_first, segment)?;
        let Seen { mine, other, bits } = seen;
        *self = Tcp { sides: if is_first { [mine, other] } else { [other, mine] }, bits };
        Ok(())
    }

    /// Whether a packet of side `of`, quoted by an ICMP error, may have been one: its sequence number is among what it has sent.
    pub fn may_quote(&self, of: usize, seq: u32) -> bool {
        let (mine, other) = (&self.sides[of & 1], &self.sides[1 - (of & 1)]);
        mine.bits & side::SEEN != 0
            && behind(seq, mine.end) <= 0
            && behind(seq, mine.end.wrapping_sub(other.window.max(1 << 16))) >= 0
    }

    /// Whether it can have come about: asked of what an image says.
    pub(crate) fn is_sound(&self) -> bool {
        let known = side::SEEN | side::SCALES | side::FIN;
        self.bits & !(PICKED_UP | ANSWERED | RESET) == 0
            && self.sides.iter().all(|one| one.scale <= MOST_SCALE && one.bits & !known == 0)
    }

    #[inline]
    pub(crate) fn pack(&self) -> [u64; WORDS] {
        let word = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let [a, b] = self.sides;
        let rest =
            |one: &Side, bits: u8| u32::from(one.scale) << 16 | u32::from(bits) << 8 | u32::from(one.bits);
        [
            word(a.end, a.allowed),
            word(a.window, rest(&a, self.bits)),
            word(b.end, b.allowed),
            word(b.window, rest(&b, 0)),
        ]
    }

    #[inline]
    pub(crate) fn unpack(words: [u64; WORDS]) -> Self {
        let one = |ends: u64, rest: u64| Side {
            end: (ends >> 32) as u32,
            allowed: ends as u32,
            window: (rest >> 32) as u32,
            scale: (rest >> 16) as u8,
            bits: rest as u8,
        };
        Tcp { sides: [one(words[0], words[1]), one(words[2], words[3])], bits: (words[1] >> 8) as u8 }
    }
}

/// A connection as the side sees it that sends a segment: by name, for what is looked up by a number lies in memory and not in registers.
struct Seen {
    mine: Side,
    other: Side,
    bits: u8,
}

impl Seen {
    /// A segment of my side; `is_first`: who began it. What does not fit may leave anything here.
    #[inline]
    fn advance(&mut self, is_first: bool, segment: &Segment) -> Result<(), Unfit> {
        let Segment { seq, ack, flags, .. } = *segment;
        let (syn, rst, acks) = (flags & SYN != 0, flags & RST != 0, flags & ACK != 0);
        if syn && (rst || flags & FIN != 0) || (!acks && !syn && !rst) {
            return Err(Unfit);
        }
        let (mine, other) = (&mut self.mine, &self.other);
        if mine.bits & side::SEEN == 0 && self.bits & PICKED_UP == 0 {
            return self.answer(segment);
        }
        let unanswered = other.bits & side::SEEN == 0 && self.bits & PICKED_UP == 0;
        if unanswered {
            // Who opens it says so again, or gives up; nobody has told it what it may send.
            if syn && !acks {
                *mine = Side::opened(segment);
                return Ok(());
            }
            if rst && (behind(seq, mine.end) == 0 || behind(seq, mine.end) == -1) {
                self.bits |= RESET;
                return Ok(());
            }
            return Err(Unfit);
        }
        // That of a SYN is never shifted.
        let told = u32::from(segment.window);
        let window = if syn { told } else { told << mine.scale };
        let end = segment.end();
        let missed = self.bits & MISSED != 0 && behind(other.allowed, other.end) > 0;
        let sent = if missed { other.allowed } else { other.end };
        // A side that is not seen yet is allowed as much as its partner is.
        let fits = behind(seq, mine.allowed) <= 0
            && behind(end, mine.end.wrapping_sub(other.window.max(1))) >= 0
            && if acks {
                behind(ack, sent) <= 0 && behind(ack, other.end.wrapping_sub(mine.window.max(1 << 16))) >= 0
            } else {
                rst
            };
        if !fits {
            // A SYN opens nothing a second time (RFC 5961, section 4); the same one may come again.
            return if segment.opens() && end == mine.end { Ok(()) } else { Err(Unfit) };
        }
        if rst {
            // Whoever forges one has to know the very next number (RFC 5961, section 3): the others pass, and end nothing here.
            if seq == mine.end {
                self.bits |= RESET;
            }
            return Ok(());
        }
        self.note(segment, window);
        let answered = match self.bits & PICKED_UP != 0 {
            true => self.mine.bits & self.other.bits & side::SEEN != 0,
            false => is_first && acks && !syn,
        };
        if answered {
            self.bits |= ANSWERED;
        }
        Ok(())
    }

    /// The first segment of the side that was asked.
    fn answer(&mut self, segment: &Segment) -> Result<(), Unfit> {
        let Segment { ack, flags, .. } = *segment;
        let (syn, rst, acks) = (flags & SYN != 0, flags & RST != 0, flags & ACK != 0);
        let asked = &mut self.other;
        let unacked = behind(asked.end, ack);
        if rst {
            return match acks && unacked == 0 {
                true => {
                    self.bits |= RESET;
                    Ok(())
                }
                false => Err(Unfit),
            };
        }
        // Without ACK: both open it at once.
        if !syn || (acks && !(0..=SYN_DATA as i32).contains(&unacked)) {
            return Err(Unfit);
        }
        let mut mine = Side::opened(segment);
        mine.allowed = mine.end.wrapping_add(asked.window);
        asked.allowed = if acks { ack } else { asked.end }.wrapping_add(mine.window);
        if (mine.bits & asked.bits) & side::SCALES == 0 {
            (mine.scale, asked.scale) = (0, 0);
        }
        self.mine = mine;
        Ok(())
    }

    /// What a segment says that fits; `window` is shifted.
    fn note(&mut self, segment: &Segment, window: u32) {
        let end = segment.end();
        let (mine, other) = (&mut self.mine, &mut self.other);
        if behind(end, mine.end) > 0 {
            mine.end = end;
        }
        mine.bits |= side::SEEN;
        mine.window = mine.window.max(window);
        // Nothing comes behind it: one that is older was never sent.
        if segment.flags & FIN != 0 && end == mine.end {
            mine.bits |= side::FIN;
        }
        if segment.flags & ACK != 0 {
            // It was sent, and we have not seen it.
            if behind(segment.ack, other.end) > 0 {
                other.end = segment.ack;
            }
            // A closed window may be probed with a byte.
            let allowed = segment.ack.wrapping_add(window.max(1));
            let edge = edge(segment.ack, window, mine.scale);
            // One that it has passed is not the last.
            if other.bits & side::LOOSE != 0 && behind(edge, other.end) >= 0 {
                other.allowed = edge;
                other.bits &= !side::LOOSE;
            } else if behind(allowed, other.allowed) > 0 {
                other.allowed = allowed;
            }
        }
    }
}

impl Side {
    fn opened(segment: &Segment) -> Self {
        let end = segment.end();
        let scales = if segment.scale.is_some() { side::SCALES } else { 0 };
        Side {
            end,
            allowed: end,
            window: u32::from(segment.window).max(1),
            scale: segment.scale.unwrap_or(0).min(MOST_SCALE),
            bits: side::SEEN | scales,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(flags: u8, seq: u32, ack: u32, window: u16, len: u32) -> Segment {
        Segment { seq, ack, window, flags, len, scale: None }
    }

    /// Opened with these scales; the next numbers are 1001 and 5001, and both windows 1000 (before shifting).
    fn open(scales: [Option<u8>; 2]) -> Tcp {
        let mut tcp = Tcp::begun(&Segment { scale: scales[0], ..segment(SYN, 1000, 0, 1000, 0) });
        assert_eq!(tcp.name(), "opening");
        let answer = Segment { scale: scales[1], ..segment(SYN | ACK, 5000, 1001, 1000, 0) };
        tcp.step(1, &answer).unwrap();
        assert!(!tcp.is_established());
        tcp.step(0, &segment(ACK, 1001, 5001, 1000, 0)).unwrap();
        assert_eq!(tcp.name(), "established");
        assert_eq!(Tcp::unpack(tcp.pack()), tcp);
        tcp
    }

    #[test]
    fn a_connection_opens_and_closes() {
        let mut tcp = open([None, None]);
        tcp.step(0, &segment(ACK, 1001, 5001, 1000, 500)).unwrap();
        tcp.step(1, &segment(ACK | FIN, 5001, 1501, 1000, 0)).unwrap();
        assert_eq!(tcp.name(), "closing");
        tcp.step(0, &segment(ACK | FIN, 1501, 5002, 1000, 0)).unwrap();
        assert_eq!(tcp.name(), "closed");
        tcp.step(1, &segment(ACK, 5002, 1502, 1000, 0)).unwrap();
    }

    #[test]
    fn what_lies_outside_the_window_does_not_fit() {
        let tcp = open([None, None]);
        let fits = |from: usize, one: Segment| tcp.clone().step(from, &one).is_ok();
        // Allowed: up to 2001 (1001 + 1000).
        assert!(fits(0, segment(ACK, 1001, 5001, 1000, 1000)));
        assert!(fits(0, segment(ACK, 2001, 5001, 1000, 1)));
        assert!(!fits(0, segment(ACK, 2002, 5001, 1000, 1)));
        // One window back: a segment that was sent again.
        assert!(fits(0, segment(ACK, 1, 5001, 1000, 0)));
        assert!(!fits(0, segment(ACK, 0, 5001, 1000, 0)));
        // Nothing is acknowledged that was not sent.
        assert!(!fits(0, segment(ACK, 1001, 5002, 1000, 0)));
        assert!(!fits(1, segment(ACK, 5001, 1002, 1000, 0)));
        // Without ACK, or with flags that make no sense.
        assert!(!fits(0, segment(0, 1001, 0, 1000, 5)));
        assert!(!fits(0, segment(SYN | FIN | ACK, 1001, 5001, 1000, 0)));
    }

    #[test]
    fn windows_are_shifted_if_both_say_so() {
        let far = segment(ACK, 1001 + 60_000, 5001, 1000, 0);
        assert_eq!(open([Some(7), None]).step(0, &far), Err(Unfit));
        let mut tcp = open([Some(7), Some(7)]);
        // The window of the SYN and ACK was not shifted; that of the next segment is.
        assert_eq!(tcp.step(0, &far), Err(Unfit));
        tcp.step(1, &segment(ACK, 5001, 1001, 1000, 0)).unwrap();
        assert_eq!(tcp.step(0, &far), Ok(()));
    }

    #[test]
    fn a_reset_counts_at_the_very_next_number() {
        let mut tcp = open([None, None]);
        tcp.step(1, &segment(RST, 5002, 0, 0, 0)).unwrap();
        assert_eq!(tcp.name(), "established");
        assert_eq!(tcp.step(1, &segment(RST, 90_000, 0, 0, 0)), Err(Unfit));
        tcp.step(1, &segment(RST, 5001, 0, 0, 0)).unwrap();
        assert_eq!(tcp.name(), "reset");
        // In answer to a SYN it acknowledges that.
        let mut tcp = Tcp::begun(&segment(SYN, 1000, 0, 1000, 0));
        assert_eq!(tcp.step(1, &segment(RST | ACK, 0, 1000, 0, 0)), Err(Unfit));
        tcp.step(1, &segment(RST | ACK, 0, 1001, 0, 0)).unwrap();
        assert!(tcp.is_over());
    }

    #[test]
    fn a_syn_opens_nothing_a_second_time() {
        let tcp = open([None, None]);
        for (from, seq) in [(0, 1500), (0, 1001), (0, 90_000), (1, 5001), (1, 90_000)] {
            let mut after = tcp;
            assert_eq!(after.step(from, &segment(SYN, seq, 0, 1000, 0)), Err(Unfit), "{from}: {seq}");
            assert_eq!(after, tcp);
        }
        // The same again: the answer was lost behind us.
        for from in [0, 1] {
            let mut after = tcp;
            after.step(from, &segment(SYN, [1000, 5000][from], 0, 1000, 0)).unwrap();
            assert_eq!(after, tcp);
        }
    }

    #[test]
    fn who_asks_does_not_send_before_the_answer() {
        let mut tcp = Tcp::begun(&segment(SYN, 1000, 0, 1000, 0));
        assert_eq!(tcp.step(0, &segment(ACK, 1001, 5001, 1000, 10)), Err(Unfit));
        assert_eq!(tcp.step(1, &segment(ACK, 5001, 1001, 1000, 10)), Err(Unfit));
        assert_eq!(tcp.step(1, &segment(SYN | ACK, 5000, 2001, 1000, 0)), Err(Unfit));
        tcp.step(0, &segment(SYN, 7000, 0, 1000, 0)).unwrap();
        tcp.step(1, &segment(SYN | ACK, 5000, 7001, 1000, 0)).unwrap();
        assert!(!tcp.is_established());
    }

    #[test]
    fn both_may_open_it_at_once() {
        let mut tcp = Tcp::begun(&segment(SYN, 1000, 0, 1000, 0));
        tcp.step(1, &segment(SYN, 5000, 0, 1000, 0)).unwrap();
        tcp.step(0, &segment(SYN | ACK, 1000, 5001, 1000, 0)).unwrap();
        tcp.step(1, &segment(SYN | ACK, 5000, 1001, 1000, 0)).unwrap();
        assert!(!tcp.is_established());
        tcp.step(0, &segment(ACK, 1001, 5001, 1000, 0)).unwrap();
        assert!(tcp.is_established());
    }

    #[test]
    fn what_was_there_is_picked_up_loosely() {
        let mut tcp = Tcp::picked_up(&segment(ACK, 1000, 5000, 100, 50));
        assert_eq!(tcp.name(), "opening");
        tcp.step(0, &segment(ACK, 900_000, 5000, 100, 50)).unwrap();
        tcp.step(1, &segment(ACK, 5000, 1050, 100, 1000)).unwrap();
        assert_eq!((tcp.name(), Tcp::unpack(tcp.pack())), ("established", tcp));
        let never = 900_050 + MOST_WINDOW;
        assert_eq!(tcp.step(1, &segment(ACK, 5000, never, 100, 0)), Err(Unfit), "was never allowed");
    }

    /// A box has died with acknowledgements under way: what was sent is sent again from its beginning, and all of it was received long ago.
    #[test]
    fn what_is_picked_up_may_have_been_sent_before() {
        // Each side has sent 5000 bytes, which the other has: up to 6000, and up to 10,000.
        let (first, second) = (segment(ACK, 1000, 10_000, 100, 1000), segment(ACK, 5000, 6000, 100, 1000));
        let mut tcp = Tcp::picked_up(&first);
        // The answer acknowledges all of it; or the other side sends again at the same time.
        for answers in [&[segment(ACK, 10_000, 6000, 100, 0)][..], &[second, first], &[second]] {
            let mut tcp = tcp;
            for (at, answer) in answers.iter().enumerate() {
                tcp.step(1 - at % 2, answer).unwrap();
            }
            // Both go on.
            tcp.step(0, &segment(ACK, 6000, 10_000, 100, 12)).unwrap();
            tcp.step(1, &segment(ACK, 10_000, 6012, 100, 12)).unwrap();
            assert_eq!(tcp.name(), "established");
            tcp.step(1, &segment(RST, 10_012, 0, 0, 0)).unwrap();
            assert_eq!(tcp.name(), "reset", "its end is known");
        }
        // It is as strict as before about what is far away.
        assert_eq!(tcp.step(1, &segment(ACK, 0x9000_0000, 6000, 100, 0)), Err(Unfit));
    }

    #[test]
    fn what_goes_on_after_a_while_may_have_sent_something_meanwhile() {
        let later = [segment(ACK, 500_000, 900_000, 1000, 10), segment(ACK, 900_000, 500_010, 1000, 10)];
        let tcp = open([Some(2), Some(2)]);
        assert_eq!(tcp.clone().step(0, &later[0]), Err(Unfit));
        let mut tcp = tcp.resumed();
        assert!(!tcp.is_sound() && tcp.to_keep().is_sound(), "no image says that it was resumed");
        tcp.step(0, &later[0]).unwrap();
        tcp.step(1, &later[1]).unwrap();
        assert_eq!((tcp.name(), tcp.is_picked_up()), ("established", false));
        assert_eq!(tcp.step(0, &segment(ACK, 1001, 5001, 1000, 0)), Err(Unfit), "of long ago");
    }

    /// Who does not see it guesses far away, mostly.
    fn far_ahead_fits(tcp: &Tcp, from: usize, seq: u32, ack: u32) -> bool {
        let far = 1 << 28;
        let fits = |seq, ack| tcp.clone().step(from, &segment(ACK, seq, ack, 1000, 0)).is_ok();
        assert!(fits(seq, ack));
        fits(seq + far, ack) || fits(seq, ack + far)
    }

    #[test]
    fn what_goes_on_is_open_to_guesses_until_both_have_spoken() {
        let mut tcp = open([Some(2), Some(2)]).resumed();
        assert!(far_ahead_fits(&tcp, 0, 1001, 5001));
        tcp.step(0, &segment(ACK, 500_000, 900_000, 1000, 10)).unwrap();
        tcp.step(1, &segment(ACK, 900_000, 500_010, 1000, 10)).unwrap();
        assert!(!far_ahead_fits(&tcp, 0, 500_010, 900_010) && !far_ahead_fits(&tcp, 1, 900_010, 500_010));
        // 1000 << 2 were told, and up to three bytes more may have been.
        assert!(tcp.clone().step(0, &segment(ACK, 504_013, 900_010, 1000, 10)).is_ok());
        assert_eq!(tcp.step(0, &segment(ACK, 504_015, 900_010, 1000, 10)), Err(Unfit));
        // The same where it is picked up, with windows that count 16 KiB.
        let mut tcp = Tcp::picked_up(&segment(ACK, 1000, 5000, 100, 50));
        tcp.step(1, &segment(ACK, 5000, 1050, 100, 50)).unwrap();
        assert!(!far_ahead_fits(&tcp, 0, 1050, 5050) && !far_ahead_fits(&tcp, 1, 5050, 1050));
        // An answer that is old, or forged, takes nothing back of what was sent.
        let mut tcp = Tcp::picked_up(&segment(ACK, 0x2000_0000, 5000, 100, 50));
        tcp.step(1, &segment(ACK, 5000, 0x1000_0000, 100, 50)).unwrap();
        tcp.step(0, &segment(ACK, 0x2000_0032, 5050, 100, 50)).unwrap();
    }

    /// Windows have grown while nobody looked: new data comes first, is answered as what came before it is missing, and that comes again.
    #[test]
    fn a_window_may_have_grown_meanwhile() {
        let mut tcp = open([Some(7), Some(7)]).resumed();
        let has = 2_000_000;
        tcp.step(1, &segment(ACK, has + 3_000_000, 1001, 502, 1448)).unwrap();
        tcp.step(0, &segment(ACK, 1001, has, 49_152, 0)).unwrap();
        tcp.step(1, &segment(ACK, has, 1001, 502, 1448)).unwrap();
        // No further back than there are windows.
        assert_eq!(tcp.step(0, &segment(ACK, 1001, 0xff00_0000, 49_152, 0)), Err(Unfit));
    }

    #[test]
    fn what_came_past_a_closed_window_is_acknowledged() {
        // Less than a shifted window counts is left of it; what was sent before comes.
        let mut tcp = Tcp::picked_up(&segment(ACK, 1000, 5000, 0, 0));
        tcp.step(1, &segment(ACK, 5000, 1000, 502, 100)).unwrap();
        tcp.step(1, &segment(ACK, 5100, 1000, 502, 16_284)).unwrap();
        assert_eq!(tcp.clone().step(1, &segment(ACK, 21_385, 1000, 502, 1)), Err(Unfit));
        tcp.step(1, &segment(ACK, 21_384, 1000, 502, 1000)).unwrap();
        tcp.step(0, &segment(ACK, 1000, 22_384, 0, 0)).unwrap();
        tcp.step(0, &segment(ACK, 1000, 22_384, 500, 0)).unwrap();
        // A FIN at the edge.
        let mut tcp = open([None, None]).resumed();
        tcp.step(1, &segment(ACK, 5001, 1001, 1000, 1000)).unwrap();
        tcp.step(0, &segment(ACK, 1001, 6001, 0, 0)).unwrap();
        tcp.step(1, &segment(ACK | FIN, 6001, 1001, 1000, 1)).unwrap();
        tcp.step(0, &segment(ACK, 1001, 6003, 0, 0)).unwrap();
    }

    #[test]
    fn a_fin_before_what_was_sent_closes_nothing() {
        let mut tcp = open([None, None]);
        tcp.step(0, &segment(ACK, 1001, 5001, 1000, 500)).unwrap();
        tcp.step(0, &segment(ACK | FIN, 1001, 5001, 1000, 400)).unwrap();
        assert_eq!(tcp.name(), "established");
        tcp.step(0, &segment(ACK | FIN, 1401, 5001, 1000, 100)).unwrap();
        assert_eq!(tcp.name(), "closing");
        // Sent again.
        let mut again = tcp;
        again.step(0, &segment(ACK | FIN, 1501, 5001, 1000, 0)).unwrap();
        assert_eq!(again, tcp);
    }

    #[test]
    fn numbers_go_round() {
        let mut tcp = Tcp::begun(&segment(SYN, u32::MAX - 1, 0, 60_000, 0));
        tcp.step(1, &segment(SYN | ACK, u32::MAX, u32::MAX, 60_000, 0)).unwrap();
        tcp.step(0, &segment(ACK, u32::MAX, 0, 60_000, 1000)).unwrap();
        tcp.step(1, &segment(ACK, 0, 999, 60_000, 1000)).unwrap();
        tcp.step(0, &segment(ACK, 999, 1000, 60_000, 1)).unwrap();
        assert!(tcp.is_established());
        assert!(tcp.may_quote(0, u32::MAX) && tcp.may_quote(1, 10) && !tcp.may_quote(0, 2000));
    }
}
