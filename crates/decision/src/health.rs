//! Which Grantors are there: probes in rounds, and what follows from the answers. Pure: rounds and answers are handed in, no clock.
//!
//! ```text
//!            `fall` rounds in a row without an answer
//!        Up ------------------------------------------> Down
//!           <------------------------------------------
//!            `rise` rounds in a row with one
//! ```
//!
//! Each Grantor is probed once a round, and an answer counts for the round that it was asked in: the interval must be longer than the way there
//! and back. A Grantor is up before anything is known of it: a Gatekeeper that has just started asks at once. With an
//! interval of 200 ms and `fall` = 3 a Grantor that dies is out of the choice 600 to 800 ms later.

/// How rounds are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Rounds in a row without an answer that take a Grantor down; at least 1.
    pub fall: u16,
    /// Rounds in a row with an answer that bring it back; at least 1.
    pub rise: u16,
}

/// What a round has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It does not answer any more.
    Down,
    /// It answers again.
    Up,
}

/// What is known of one Grantor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    down: bool,
    /// Rounds in a row that speak against what it is held for.
    against: u16,
    /// The round that is under way; 0: none yet.
    round: u64,
    answered: bool,
}

impl Health {
    /// Whether it is held for up.
    pub fn is_up(&self) -> bool {
        !self.down
    }

    /// Rounds in a row that speak against what it is held for.
    pub fn against(&self) -> u16 {
        self.against
    }

    /// An answer to the probe of this round has come, or of a later one that is not begun here yet; false if that round is over, or has been answered already.
    pub fn answer(&mut self, round: u64) -> bool {
        let counts = self.round != 0 && round >= self.round && !self.answered;
        self.answered |= counts;
        counts
    }

    /// The next round begins, and the one under way is judged. Rounds have rising numbers, from 1.
    pub fn begin(&mut self, rule: Rule, round: u64) -> Option<Change> {
        let judged = (self.round != 0).then_some(self.answered);
        (self.round, self.answered) = (round, false);
        if judged? != self.down {
            self.against = 0;
            return None;
        }
        self.against += 1;
        if self.against < if self.down { rule.rise } else { rule.fall } {
            return None;
        }
        (self.against, self.down) = (0, !self.down);
        Some(if self.down { Change::Down } else { Change::Up })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULE: Rule = Rule { fall: 3, rise: 2 };

    /// Rounds that are answered or not; what changes in each.
    fn run(answers: &[bool]) -> (Health, Vec<Option<Change>>) {
        let mut health = Health::default();
        let mut changes = vec![health.begin(RULE, 1)];
        for (round, answered) in (1..).zip(answers) {
            assert!(!answered || health.answer(round));
            changes.push(health.begin(RULE, round + 1));
        }
        (health, changes)
    }

    #[test]
    fn it_falls_and_rises() {
        let (t, f) = (true, false);
        let (health, changes) = run(&[f, f, t, f, f, f, f, t, f, t, t, f]);
        let (down, up) = (Some(Change::Down), Some(Change::Up));
        assert_eq!(changes, [None, None, None, None, None, None, down, None, None, None, None, up, None]);
        assert_eq!((health.is_up(), health.against()), (true, 1));
    }

    #[test]
    fn an_answer_counts_for_its_round_once() {
        let mut health = Health::default();
        assert!(!health.answer(0) && !health.answer(1));
        health.begin(RULE, 1);
        assert!(health.answer(1) && !health.answer(1) && !health.answer(2));
        health.begin(RULE, 2);
        assert!(!health.answer(1), "too late");
        assert!(health.answer(3), "who answers the next is there");
        assert!(health.is_up());
    }

    proptest! {
        /// A Grantor is down exactly if, since it was last up, `fall` rounds in a row went by in silence, and no `rise` in a row with answers since then.
        #[test]
        fn as_the_last_rounds_say(answers in proptest::collection::vec(any::<bool>(), 0..60)) {
            let mut up = true;
            let mut since = 0;
            for end in 1..=answers.len() {
                let (needed, against) = if up { (3, false) } else { (2, true) };
                if end - since >= needed && answers[end - needed..end].iter().all(|answer| *answer == against) {
                    (up, since) = (!up, end);
                }
                prop_assert_eq!(run(&answers[..end]).0.is_up(), up);
            }
        }
    }
}
