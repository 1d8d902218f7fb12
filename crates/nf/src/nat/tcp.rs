//! What a NAT knows of a TCP connection (RFC 5382, section 5; RFC 6146, section 3.5.2.2): who has opened it, who has closed it, and so how
//! long it may be silent. Sequence numbers are not followed.
//!
//! ```text
//! SYN from one side --> opening --SYN from the other--> open --FIN from one--> open --FIN from the other--> closing
//!                         transitory                  established                                         transitory
//! RST from either side --> reset: transitory; any other segment takes that back (of a dynamic mapping: one from inside), so a forged RST costs nothing
//! ```
//!
//! One that is opened from outside is established when a segment comes that acknowledges, and is no SYN: a SYN with a forged source, and the answer to it, do
//! not; and after its handshake every segment of a real caller does (RFC 9293, section 3.4).
//!
//! A connection that was there before us (we have been started again) is picked up by a segment from inside, and counts as open once the other
//! side has answered.

use crate::nat::settings::Times;

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

/// What has been seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tcp(pub(crate) u8);

const SYN_OUT: u8 = 1;
const SYN_IN: u8 = 2;
const FIN_OUT: u8 = 4;
const FIN_IN: u8 = 8;
const RESET: u8 = 16;
const PICKED_UP: u8 = 32;
/// Opened from outside, by somebody of whom only SYNs have come: his address may be forged.
const UNPROVEN: u8 = 64;

impl Tcp {
    /// Whether a segment may begin a session from inside.
    pub(crate) fn may_begin_inside(flags: u8) -> bool {
        flags & (flag::RST | flag::FIN) == 0 && (flags & flag::SYN == 0 || flags & flag::ACK == 0)
    }

    /// Whether it may from outside.
    pub(crate) fn may_begin_outside(flags: u8) -> bool {
        flags & (flag::SYN | flag::ACK | flag::RST | flag::FIN) == flag::SYN
    }

    pub(crate) fn is_closed(self) -> bool {
        self.is_finished() || self.0 & RESET != 0
    }

    /// Whether both sides have closed it. A reset is none: the next segment may take that back.
    pub(crate) fn is_finished(self) -> bool {
        self.0 & (FIN_OUT | FIN_IN) == FIN_OUT | FIN_IN
    }

    /// Whether segments from outside keep it: somebody inside has opened it, or has answered, and it is not closed.
    pub(crate) fn is_answered(self) -> bool {
        self.0 & SYN_OUT != 0 && !self.is_closed()
    }

    /// Of one that was begun from outside: whether somebody inside has opened it too, and who has begun it has got that.
    pub(crate) fn is_proven(self) -> bool {
        self.is_answered() && self.0 & UNPROVEN == 0
    }

    /// Whether a segment opens the same ports again.
    pub(crate) fn is_anew(flags: u8) -> bool {
        flags & (flag::SYN | flag::ACK | flag::RST) == flag::SYN
    }

    /// Whether both have opened it, and not both closed it; and who has from outside has got the answer.
    pub(crate) fn is_open(self) -> bool {
        self.0 & (SYN_OUT | SYN_IN | UNPROVEN) == SYN_OUT | SYN_IN && !self.is_closed()
    }

    /// After a segment from inside (`out`) or outside.
    #[must_use]
    pub(crate) fn after(self, flags: u8, out: bool) -> Self {
        let (syn, fin) = if out { (SYN_OUT, FIN_OUT) } else { (SYN_IN, FIN_IN) };
        if flags & flag::RST != 0 {
            return Tcp(self.0 | RESET);
        }
        // The same ports again.
        let anew = flags & (flag::SYN | flag::ACK) == flag::SYN && self.is_closed();
        let mut state = if anew { 0 } else { self.0 & !RESET };
        if state == 0 && flags & flag::SYN == 0 {
            state = PICKED_UP;
        }
        if !out {
            if flags & (flag::SYN | flag::ACK) == flag::ACK {
                state &= !UNPROVEN;
            } else if flags & flag::SYN != 0 && state == 0 {
                state = UNPROVEN;
            }
        }
        if flags & flag::SYN != 0 || state & PICKED_UP != 0 {
            state |= syn;
        }
        if flags & flag::FIN != 0 {
            state |= fin;
        }
        Tcp(state)
    }

    /// How long it may be silent.
    pub(crate) fn timeout_ms(self, times: &Times) -> u64 {
        if self.is_open() { times.established_ms } else { times.transitory_ms }
    }

    /// For operators.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tcp(state) if state & RESET != 0 => "reset",
            tcp if tcp.is_open() => "open",
            tcp if tcp.is_closed() => "closed",
            _ => "opening",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::flag::{ACK, FIN, RST, SYN};
    use super::*;

    fn walk(steps: &[(bool, u8)]) -> Tcp {
        steps.iter().fold(Tcp::default(), |tcp, (out, flags)| tcp.after(*flags, *out))
    }

    #[test]
    fn a_connection_opens_and_closes() {
        let open = [(true, SYN), (false, SYN | ACK)];
        assert_eq!(walk(&open[..1]).name(), "opening");
        assert_eq!(walk(&open).name(), "open");
        let half = [&open[..], &[(true, FIN | ACK), (false, ACK)]].concat();
        assert_eq!(walk(&half).name(), "open", "the other side may go on sending for hours");
        let closed = [&half[..], &[(false, FIN | ACK)]].concat();
        assert_eq!(walk(&closed).name(), "closed");
        let last = [&closed[..], &[(true, ACK)]].concat();
        assert_eq!(walk(&last).name(), "closed");
        let again = [&last[..], &[(true, SYN)]].concat();
        assert_eq!(walk(&again).name(), "opening");
    }

    #[test]
    fn a_reset_is_taken_back_by_any_other_segment() {
        let reset = walk(&[(true, SYN), (false, SYN | ACK), (false, RST)]);
        assert_eq!((reset.name(), reset.after(ACK, false).name()), ("reset", "open"));
    }

    #[test]
    fn both_may_open_at_once_and_what_was_there_is_picked_up() {
        assert!(walk(&[(true, SYN), (false, SYN)]).is_open());
        assert!(!walk(&[(true, ACK), (true, ACK)]).is_open());
        assert!(walk(&[(true, ACK), (false, ACK)]).is_open());
    }

    #[test]
    fn a_forged_syn_and_its_answer_open_nothing() {
        let answered = [(false, SYN), (true, SYN | ACK), (false, SYN), (true, ACK)];
        assert_eq!(walk(&answered).name(), "opening");
        assert!(!walk(&answered).is_proven() && !walk(&[(false, SYN), (false, ACK)]).is_proven());
        for forged in [0, FIN, FIN | 8, 0x20] {
            let walked = walk(&[&answered[..], &[(false, forged)]].concat());
            assert!(!walked.is_proven() && !walked.is_open(), "{forged:#x} acknowledges nothing");
        }
        let proven = walk(&[&answered[..], &[(false, ACK)]].concat());
        assert_eq!((proven.name(), proven.is_proven()), ("open", true));
        assert!(!walk(&[(false, SYN), (true, RST | ACK), (false, ACK)]).is_proven(), "a no is no answer");
        let reset = [&answered[..], &[(false, RST), (true, SYN | ACK)]].concat();
        assert_eq!(walk(&reset).name(), "opening", "the owner of a forged source says no");
        assert!(walk(&[(true, SYN), (false, SYN)]).is_open(), "who was asked is there");
    }

    #[test]
    fn what_may_begin() {
        assert!(Tcp::may_begin_inside(SYN) && Tcp::may_begin_inside(ACK) && Tcp::may_begin_outside(SYN));
        for flags in [RST, RST | ACK, FIN | ACK, SYN | ACK, SYN | FIN] {
            assert!(!Tcp::may_begin_inside(flags), "{flags:#x}");
            assert!(!Tcp::may_begin_outside(flags), "{flags:#x}");
        }
        assert!(!Tcp::may_begin_outside(ACK));
    }
}
