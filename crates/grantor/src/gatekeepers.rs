//! What is known of Gatekeepers by their probes: who is heard, whose probes do not count and why, who knew a later start of ours. Nodes report it ([`Reports`]), the control side
//! keeps it and says what is wrong ([`Gatekeepers`]).
//!
//! Whoever can send with a Gatekeeper's address can have its probes refused, as often as it likes: at most [`NAMED`] lines of that are said in [`QUIET_NS`], each reason once of each
//! Gatekeeper, and of what nodes report nothing waits beyond its queue's room. What is under a right tag nobody else can have sent: it has as many lines of its own, and the others' place in
//! the queue.

use crossbeam_queue::ArrayQueue;
use std::collections::BTreeMap;
use std::mem::discriminant;
use std::net::IpAddr;

/// Gatekeepers that are known to be heard.
const HEARD: usize = 4096;
/// Refusals that wait for the control side.
const REFUSALS: usize = 64;
/// Later starts that wait for it. Only who has the key can report one.
const LATER: usize = 8;
/// What is said of a Gatekeeper is said again after so long.
const QUIET_NS: u64 = 10_000_000_000;
/// Lines in that time, and as many of what is under a right tag.
const NAMED: usize = 16;
/// Rounds of probes that a Gatekeeper may miss and still be heard, and the shortest and the longest that one is taken for.
const ROUNDS: u64 = 3;
const SHORTEST_NS: u64 = 1_000_000_000;
const LONGEST_NS: u64 = 60_000_000_000;

/// Why a probe under a Gatekeeper's address does not count, or what it says does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no key of this number.
    UnknownKey(u16),
    /// The tag of this key is wrong.
    Forged(u16),
    /// Its tag is right, its time is not.
    Clock {
        /// How far the sender's clock is behind ours; negative: ahead.
        behind_ns: i64,
    },
    /// What it knows of us leaves no room behind it.
    Beyond,
}

impl Refused {
    /// Whether its tag is right.
    fn is_signed(self) -> bool {
        match self {
            Refused::UnknownKey(_) | Refused::Forged(_) => false,
            Refused::Clock { .. } | Refused::Beyond => true,
        }
    }

    /// For an operator.
    fn line(self, gatekeeper: IpAddr) -> String {
        let refused = format!("warning: probes of gatekeeper {gatekeeper} are refused");
        match self {
            Refused::UnknownKey(key) => {
                format!("{refused}: they have key {key}, which is none of ours: give both the same keys")
            }
            Refused::Forged(key) => format!(
                "{refused}: their tag is wrong: its secret of key {key} is another one, or somebody else sends under its address: give both the same keys"
            ),
            Refused::Clock { behind_ns } => {
                let side = if behind_ns < 0 { "ahead of" } else { "behind" };
                let s = behind_ns.unsigned_abs() as f64 / 1e9;
                format!(
                    "{refused}: its clock is {s:.1} s {side} ours, or they were held up: set both clocks right and start again what had the wrong one; where they were held up raise grantor.clock_s"
                )
            }
            Refused::Beyond => format!(
                "warning: gatekeeper {gatekeeper} knows of a start of ours, or of a version of our policy, that is too late to go on behind it: it does not take what we say: \
                 start that gatekeeper again"
            ),
        }
    }
}

/// What nodes report. What there is no room for is reported with the next probe.
#[derive(Debug)]
pub(crate) struct Reports {
    heard: ArrayQueue<IpAddr>,
    refused: ArrayQueue<(IpAddr, Refused)>,
    later: ArrayQueue<(IpAddr, u32)>,
}

impl Default for Reports {
    fn default() -> Self {
        Reports {
            heard: ArrayQueue::new(HEARD),
            refused: ArrayQueue::new(REFUSALS),
            later: ArrayQueue::new(LATER),
        }
    }
}

impl Reports {
    /// A probe of its counts.
    pub(crate) fn heard(&self, gatekeeper: IpAddr) {
        let _ = self.heard.push(gatekeeper);
    }

    /// A probe under its address does not.
    pub(crate) fn refused(&self, gatekeeper: IpAddr, why: Refused) {
        if why.is_signed() {
            self.refused.force_push((gatekeeper, why));
        } else {
            let _ = self.refused.push((gatekeeper, why));
        }
    }

    /// It knew a later start of ours, which has decided by versions below this one.
    pub(crate) fn later(&self, gatekeeper: IpAddr, below: u32) {
        self.later.force_push((gatekeeper, below));
    }
}

/// When a Gatekeeper was heard, by the control side's clock, and how long after the time before.
#[derive(Debug, Clone, Copy)]
struct Pulse {
    last_ns: u64,
    gap_ns: u64,
}

/// A line that was said, and when.
#[derive(Debug)]
struct Said {
    gatekeeper: IpAddr,
    why: Refused,
    at_ns: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Gatekeepers {
    pulses: BTreeMap<IpAddr, Pulse>,
    said: Vec<Said>,
    later_said_ns: Option<u64>,
}

impl Gatekeepers {
    /// Takes what was reported, and says what is wrong. Returns the version below which a later start of ours can have decided, if one was heard of.
    pub(crate) fn collect(&mut self, reports: &Reports, now_ns: u64, log: &dyn Fn(&str)) -> Option<u32> {
        for _ in 0..HEARD {
            let Some(gatekeeper) = reports.heard.pop() else { break };
            let before = self.pulses.get(&gatekeeper);
            if before.is_some() || self.pulses.len() < HEARD {
                let gap_ns = before.map_or(0, |pulse| now_ns.abs_diff(pulse.last_ns).min(LONGEST_NS));
                self.pulses.insert(gatekeeper, Pulse { last_ns: now_ns, gap_ns });
            }
        }
        // Clocks may go back.
        self.said.retain(|said| now_ns.abs_diff(said.at_ns) < QUIET_NS);
        for _ in 0..REFUSALS {
            let Some((gatekeeper, why)) = reports.refused.pop() else { break };
            let is_same =
                |said: &Said| said.gatekeeper == gatekeeper && discriminant(&said.why) == discriminant(&why);
            let alike = self.said.iter().filter(|said| said.why.is_signed() == why.is_signed()).count();
            if alike < NAMED && !self.said.iter().any(is_same) {
                self.said.push(Said { gatekeeper, why, at_ns: now_ns });
                log(&why.line(gatekeeper));
            }
        }
        let mut later = None;
        for _ in 0..LATER {
            let Some((gatekeeper, below)) = reports.later.pop() else { break };
            later = later.max(Some(below));
            if self.later_said_ns.is_none_or(|at_ns| now_ns.abs_diff(at_ns) >= QUIET_NS) {
                self.later_said_ns = Some(now_ns);
                log(&format!(
                    "warning: gatekeeper {gatekeeper} knows a later start of ours: our clock had gone back; stamps and the policy's version go on from there"
                ));
            }
        }
        later
    }

    /// When a probe of its counted last.
    pub(crate) fn last_ns(&self, gatekeeper: IpAddr) -> Option<u64> {
        self.pulses.get(&gatekeeper).map(|pulse| pulse.last_ns)
    }

    /// Whether its probes come: it has not missed more than a few rounds of them.
    pub(crate) fn is_heard(&self, gatekeeper: IpAddr, now_ns: u64) -> bool {
        let within = |pulse: &Pulse| ROUNDS * pulse.gap_ns.max(SHORTEST_NS);
        self.pulses.get(&gatekeeper).is_some_and(|pulse| now_ns.abs_diff(pulse.last_ns) <= within(pulse))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_700_000_000 * SECOND;

    fn gate(last: u16) -> IpAddr {
        let [upper, lower] = last.to_be_bytes();
        IpAddr::from([10, 0, upper, lower])
    }

    /// What is said of these refusals at this time.
    fn said(of: &mut Gatekeepers, now_ns: u64, refused: &[(IpAddr, Refused)]) -> Vec<String> {
        let (reports, lines) = (Reports::default(), RefCell::new(Vec::new()));
        refused.iter().for_each(|(gatekeeper, why)| reports.refused(*gatekeeper, *why));
        assert_eq!(
            of.collect(&reports, now_ns, &|line: &str| lines.borrow_mut().push(line.to_owned())),
            None
        );
        lines.into_inner()
    }

    #[test]
    fn why_probes_are_refused_is_said() {
        let ahead = Refused::Clock { behind_ns: -7_200_000_000_000 };
        let behind = Refused::Clock { behind_ns: 11_500_000_000 };
        for (why, wanted) in [
            (Refused::UnknownKey(7), "are refused: they have key 7, which is none of ours"),
            (Refused::Forged(7), "are refused: their tag is wrong: its secret of key 7 is another one"),
            (ahead, "are refused: its clock is 7200.0 s ahead of ours"),
            (behind, "are refused: its clock is 11.5 s behind ours"),
            (Refused::Beyond, "start that gatekeeper again"),
        ] {
            let said = said(&mut Gatekeepers::default(), START, &[(gate(1), why)]);
            let [line] = &said[..] else { panic!("{said:?}") };
            assert!(line.starts_with("warning: ") && line.contains("gatekeeper 10.0.0.1"), "{line}");
            assert!(line.contains(wanted), "{line}");
        }
    }

    /// Once in 10 s for each, and of a flood under made-up addresses some: the room does not grow.
    #[test]
    fn a_flood_of_refusals_is_said_in_few_lines() {
        let mut gatekeepers = Gatekeepers::default();
        let [one, two] = [gate(1), gate(2)].map(|gate| (gate, Refused::UnknownKey(7)));
        assert_eq!(said(&mut gatekeepers, START, &[one, one, two]).len(), 2);
        assert_eq!(said(&mut gatekeepers, START + 9 * SECOND, &[one, two]).len(), 0);
        assert_eq!(said(&mut gatekeepers, START + 10 * SECOND, &[one, one]).len(), 1);
        // Also when the clock has gone back.
        assert_eq!(said(&mut gatekeepers, START - 100 * SECOND, &[one]).len(), 1);
        let flood: Vec<_> = (10..1000).map(|n| (gate(n), Refused::Forged(7))).collect();
        let lines: usize = flood.chunks(50).map(|part| said(&mut gatekeepers, START, part).len()).sum();
        assert_eq!((lines, gatekeepers.said.len()), (NAMED, NAMED));
        assert_eq!(said(&mut gatekeepers, START + 10 * SECOND, &[one]).len(), 1);
    }

    /// What only who has the key can have sent is said whatever others send under the same address, and under any.
    #[test]
    fn what_is_forged_hides_nothing_that_is_not() {
        let (behind, forged) = (Refused::Clock { behind_ns: 11 * SECOND as i64 }, Refused::Forged(7));
        let mut gatekeepers = Gatekeepers::default();
        let lines = said(&mut gatekeepers, START, &[(gate(1), forged), (gate(1), behind), (gate(1), forged)]);
        assert!(lines.len() == 2 && lines[1].contains("11.0 s behind"), "{lines:?}");
        // More than there are lines for, and than the queue has room for.
        let mut flood: Vec<_> = (10..10 + 2 * REFUSALS as u16).map(|n| (gate(n), forged)).collect();
        flood.push((gate(1), Refused::Beyond));
        flood.extend((1000..1100).map(|n| (gate(n), forged)));
        let lines = said(&mut gatekeepers, START + SECOND, &flood);
        assert_eq!(lines.iter().filter(|line| line.contains("start that gatekeeper again")).count(), 1);
        assert_eq!(lines.len(), NAMED, "15 of the others, for one has been said");
        assert_eq!(
            said(&mut gatekeepers, START + 2 * SECOND, &[(gate(1), behind), (gate(1), Refused::Beyond)])
                .len(),
            0
        );
    }

    #[test]
    fn a_later_start_is_said_once_and_never_lost() {
        let (reports, lines) = (Reports::default(), RefCell::new(Vec::new()));
        let mut gatekeepers = Gatekeepers::default();
        let mut collect = |now_ns| {
            gatekeepers.collect(&reports, now_ns, &|line: &str| lines.borrow_mut().push(line.to_owned()))
        };
        for below in 1..20 {
            reports.later(gate(1), below);
        }
        assert_eq!(collect(START), Some(19));
        assert_eq!(collect(START), None);
        reports.later(gate(2), 21);
        assert_eq!(collect(START + SECOND), Some(21));
        let lines = lines.into_inner();
        assert_eq!(lines.len(), 1);
        assert!(
            lines[0].contains("gatekeeper 10.0.0.1 knows a later start of ours: our clock had gone back")
        );
    }

    #[test]
    fn who_misses_rounds_is_not_heard() {
        let mut gatekeepers = Gatekeepers::default();
        let probe = |gatekeepers: &mut Gatekeepers, at_ns| {
            let reports = Reports::default();
            reports.heard(gate(1));
            gatekeepers.collect(&reports, at_ns, &|_: &str| ());
        };
        assert!(!gatekeepers.is_heard(gate(1), START) && gatekeepers.last_ns(gate(1)).is_none());
        probe(&mut gatekeepers, START);
        assert_eq!(gatekeepers.last_ns(gate(1)), Some(START));
        assert!(gatekeepers.is_heard(gate(1), START + 3 * SECOND));
        assert!(!gatekeepers.is_heard(gate(1), START + 4 * SECOND));
        // Rounds of 20 s.
        probe(&mut gatekeepers, START + 20 * SECOND);
        assert!(gatekeepers.is_heard(gate(1), START + 80 * SECOND));
        assert!(!gatekeepers.is_heard(gate(1), START + 81 * SECOND));
        // The clock has been set back.
        assert!(!gatekeepers.is_heard(gate(1), START - 3600 * SECOND));
        probe(&mut gatekeepers, START - 3600 * SECOND);
        assert!(
            gatekeepers.is_heard(gate(1), START - 3599 * SECOND) && !gatekeepers.is_heard(gate(2), START)
        );
    }
}
