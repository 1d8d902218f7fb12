//! What is wrong with flow programs, said once in a while: of packets and decisions there are counters only.

use tidemill_gatekeeper::{Counter, Counters};

/// It is looked so often, and something said so often at most.
const LOOK_NS: u64 = 1_000_000_000;
const SAY_NS: u64 = 10_000_000_000;

const WRONG: [(Counter, &str); 4] = [
    (
        Counter::ProgramFaults,
        "packets dropped about which a flow program said nothing that is known: mend the program",
    ),
    (
        Counter::DecisionsUnsupported,
        "decisions name a flow program that there is none of: give [[gatekeeper.program]], or another index",
    ),
    (
        Counter::CookiesNotTaken,
        "decisions bring a cookie that their flow program does not take: mend the Grantor's policy",
    ),
    (
        Counter::ProgramsFull,
        "decisions bring a flow program for which there is no room: raise gatekeeper.program_flows",
    ),
];

/// How much of each has been counted.
pub(super) type Counts = [u64; WRONG.len()];

/// These counters.
pub(super) fn counts(of: &Counters) -> Counts {
    WRONG.map(|(counter, _)| of.get(counter))
}

/// What has been said.
#[derive(Debug, Default)]
pub(super) struct Wrongs {
    said: Counts,
    last_ns: u64,
    wait_ns: u64,
}

impl Wrongs {
    /// A line for each of which there is more now.
    pub(super) fn lines(&mut self, now_ns: u64, counts: impl FnOnce() -> Counts) -> Vec<String> {
        // Clocks may go back.
        if now_ns.abs_diff(self.last_ns) < self.wait_ns {
            return Vec::new();
        }
        let counts = counts();
        let more = counts.iter().zip(&self.said).map(|(now, before)| now.saturating_sub(*before));
        let lines: Vec<String> = more
            .zip(WRONG)
            .filter(|(more, _)| *more > 0)
            .map(|(more, (_, what))| format!("warning: {more} {what}"))
            .collect();
        self.said = counts;
        (self.last_ns, self.wait_ns) = (now_ns, if lines.is_empty() { LOOK_NS } else { SAY_NS });
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_once_in_an_interval() {
        let mut wrongs = Wrongs::default();
        let mut at = |ms: u64, counts: Counts| wrongs.lines(ms * 1_000_000, || counts);
        assert!(at(0, [0; 4]).is_empty());
        assert!(at(999, [3, 0, 0, 0]).is_empty(), "not looked at");
        let lines = at(1000, [3, 0, 0, 0]);
        assert!(lines.len() == 1 && lines[0].starts_with("warning: 3 packets dropped"), "{lines:?}");
        assert!(at(10_999, [4, 0, 1, 0]).is_empty(), "too soon");
        let lines = at(11_000, [5, 0, 1, 0]);
        assert!(lines.len() == 2 && lines[0].starts_with("warning: 2 packets"), "{lines:?}");
        assert!(lines[1].starts_with("warning: 1 decisions bring a cookie"), "{lines:?}");
        assert!(at(21_000, [5, 0, 1, 0]).is_empty(), "nothing more");
        // A clock that is set back keeps nothing from being said for long.
        assert_eq!(at(5000, [5, 0, 1, 7]).len(), 1);
    }
}
