//! Which commands of a connection have surely been executed: the commands in order, and the replies as they come.
//!
//! memcached executes a connection's commands one after another and answers in that order, so a reply says that its command and all before it have
//! been executed. What is hard is whose reply it is, when commands in between may be silent:
//!
//! ```text
//!  ms a q    may answer          HD    of a? no: a's HD is silent: a and b are released
//!  ms b      answers
//!  ms c q    may answer          NS    c's or d's: it is taken for c's, and d is released later
//!  ms d      answers
//!  mn        answers MN          MN    only mn answers so: d and mn are released
//! ```
//!
//! The rule: a reply is taken for that of the **oldest** command that could have sent it. Its true command is that one or a later one, so what is
//! released has been executed; it may be released late (at the latest when the connection ends), never early.

use super::event::{Answer, Command, Family};
use super::replies::{Reply, Says};
use std::collections::VecDeque;

/// Commands not yet known to be executed, oldest first, each with something of the caller's.
#[derive(Debug)]
pub struct Outstanding<T> {
    commands: VecDeque<(Command, T)>,
    most: usize,
    /// Replies that were taken for one of a command that may have been silent. For each, one command that always answers may have been answered already.
    late: u32,
    watching: bool,
}

/// Commands and replies do not fit together, or the commands are too many: nothing more is known of this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("commands and replies do not fit together, or too many commands wait for their replies")]
pub struct Lost;

impl<T> Outstanding<T> {
    /// Of at most `most` commands; memory for them is taken now.
    pub fn new(most: usize) -> Self {
        Outstanding { commands: VecDeque::with_capacity(most), most, late: 0, watching: false }
    }

    /// A command has come.
    pub fn command(&mut self, command: Command, tag: T) -> Result<(), Lost> {
        if self.commands.len() == self.most {
            return Err(Lost);
        }
        self.commands.push_back((command, tag));
        Ok(())
    }

    /// A reply has come: `release` is given what has been executed, oldest first.
    pub fn reply(&mut self, reply: Reply, mut release: impl FnMut(T)) -> Result<(), Lost> {
        if self.watching {
            return Ok(());
        }
        let mut late = self.late;
        for at in 0..self.commands.len() {
            let (command, _) = self.commands[at];
            let could = could_answer(command, reply);
            if could {
                let is_sure = matches!(command.answer, Answer::Always | Answer::Never);
                self.late = late.saturating_add(u32::from(!is_sure));
                self.watching = command.family == Family::Watch && reply == Reply::Classic;
                self.commands.drain(..=at).for_each(|(_, tag)| release(tag));
                return Ok(());
            }
            if command.answer == Answer::Always {
                // Its answer was taken for an older command's, or it has sent something unknown.
                late = late.checked_sub(1).ok_or(Lost)?;
            }
        }
        Err(Lost)
    }

    /// The connection has ended, memcached has closed it: what is left will not be executed, or has been. It is as new then.
    pub fn end(&mut self, release: impl FnMut(T)) {
        self.commands.drain(..).map(|(_, tag)| tag).for_each(release);
        (self.late, self.watching) = (0, false);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

fn could_answer(command: Command, reply: Reply) -> bool {
    if command.answer == Answer::Never {
        return false;
    }
    match (command.family, reply) {
        (Family::Binary { opcode, opaque }, Reply::Binary { opcode: of, opaque: to }) => {
            (opcode, opaque) == (of, to)
        }
        (Family::Classic | Family::Watch, Reply::Classic | Reply::Error) => true,
        (Family::Meta, Reply::Meta(says)) => match command.answer {
            Answer::Found => says == Says::Done,
            Answer::Failed => says == Says::Failed,
            _ => true,
        },
        (Family::Meta, Reply::Error) => true,
        (Family::MetaNoOp, Reply::MetaNoOp) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn command(answer: Answer, family: Family) -> Command {
        Command { answer, family }
    }

    fn released(outstanding: &mut Outstanding<usize>, reply: Reply) -> Result<Vec<usize>, Lost> {
        let mut tags = Vec::new();
        outstanding.reply(reply, |tag| tags.push(tag)).map(|()| tags)
    }

    fn of(commands: &[Command]) -> Outstanding<usize> {
        let mut outstanding = Outstanding::new(16);
        for (tag, &command) in commands.iter().enumerate() {
            outstanding.command(command, tag).unwrap();
        }
        outstanding
    }

    #[test]
    fn a_reply_releases_its_command_and_the_silent_ones_before() {
        let (set, quiet) =
            (command(Answer::Always, Family::Classic), command(Answer::Never, Family::Classic));
        let mut outstanding = of(&[quiet, set, quiet, quiet, set, quiet]);
        assert_eq!(released(&mut outstanding, Reply::Classic), Ok(vec![0, 1]));
        assert_eq!(released(&mut outstanding, Reply::Error), Ok(vec![2, 3, 4]));
        assert_eq!(released(&mut outstanding, Reply::Classic), Err(Lost), "nothing that is left answers");
        let mut left = Vec::new();
        outstanding.end(|tag| left.push(tag));
        assert_eq!((left, outstanding.is_empty()), (vec![5], true));
    }

    #[test]
    fn late_never_early_and_in_time_again() {
        let quiet = command(Answer::Failed, Family::Meta);
        let always = command(Answer::Always, Family::Meta);
        let mn = command(Answer::Always, Family::MetaNoOp);
        let (done, failed) = (Reply::Meta(Says::Done), Reply::Meta(Says::Failed));
        let mut outstanding = of(&[quiet, always, mn, always]);
        // Of the first or of the second: the first it is.
        assert_eq!(released(&mut outstanding, failed), Ok(vec![0]));
        assert_eq!(released(&mut outstanding, Reply::MetaNoOp), Ok(vec![1, 2]));
        assert_eq!(released(&mut outstanding, done), Ok(vec![3]));
        // What the first never says is the second's.
        assert_eq!(released(&mut of(&[quiet, always, mn]), done), Ok(vec![0, 1]));
        let found = command(Answer::Found, Family::Meta);
        assert_eq!(released(&mut of(&[found, always, mn]), done), Ok(vec![0]));
        assert_eq!(released(&mut of(&[found, quiet, always]), failed), Ok(vec![0, 1]));
        assert_eq!(released(&mut of(&[found, quiet, always]), Reply::Meta(Says::Missed)), Ok(vec![0, 1, 2]));
        // Without doubt before it, an answer that does not fit is one that nobody knows.
        let mut outstanding = of(&[always, mn]);
        assert_eq!(released(&mut outstanding, Reply::MetaNoOp), Err(Lost));
    }

    #[test]
    fn watch_is_deaf_unless_it_is_refused() {
        let (watch, set) = (command(Answer::Always, Family::Watch), command(Answer::Always, Family::Classic));
        let mut outstanding = of(&[watch, set]);
        assert_eq!(released(&mut outstanding, Reply::Error), Ok(vec![0]));
        assert_eq!(released(&mut outstanding, Reply::Classic), Ok(vec![1]));
        let mut outstanding = of(&[watch, set]);
        assert_eq!(released(&mut outstanding, Reply::Classic), Ok(vec![0]));
        assert_eq!(released(&mut outstanding, Reply::Classic), Ok(vec![]));
        assert_eq!(outstanding.len(), 1);
    }

    #[test]
    fn bounded() {
        let mut outstanding = Outstanding::new(1);
        assert_eq!(outstanding.command(command(Answer::Never, Family::Classic), 0), Ok(()));
        assert_eq!(outstanding.command(command(Answer::Never, Family::Classic), 1), Err(Lost));
    }

    fn any_command() -> impl Strategy<Value = (Command, bool, bool)> {
        let answer = prop_oneof![Just(Answer::Always), Just(Answer::Never), Just(Answer::Maybe)];
        let quiet = prop_oneof![Just(Answer::Found), Just(Answer::Failed)];
        let text = prop_oneof![Just(Family::Classic), Just(Family::Meta), Just(Family::MetaNoOp)];
        let command = prop_oneof![
            3 => (answer, text).prop_map(|(answer, family)| command(answer, family)),
            2 => quiet.prop_map(|answer| command(answer, Family::Meta)),
        ];
        (command, any::<bool>(), any::<bool>())
    }

    fn any_binary() -> impl Strategy<Value = (Command, bool, bool)> {
        let answer = prop_oneof![Just(Answer::Always), Just(Answer::Maybe)];
        (answer, 0_u8..2, 0_u32..2, any::<bool>()).prop_map(|(answer, opcode, opaque, speaks)| {
            (command(answer, Family::Binary { opcode, opaque }), speaks, false)
        })
    }

    /// What a memcached would send.
    fn reply((command, speaks, error): (Command, bool, bool)) -> Option<Reply> {
        let silent = match command.answer {
            Answer::Never => true,
            Answer::Always => false,
            Answer::Maybe | Answer::Found | Answer::Failed => !speaks,
        };
        (!silent).then_some(match command.family {
            Family::MetaNoOp => Reply::MetaNoOp,
            Family::Binary { opcode, opaque } => Reply::Binary { opcode, opaque },
            _ if error => Reply::Error,
            Family::Meta => Reply::Meta(match command.answer {
                Answer::Found => Says::Done,
                Answer::Failed => Says::Failed,
                _ if speaks => Says::Done,
                _ => Says::Failed,
            }),
            _ => Reply::Classic,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever a memcached keeps silent about, nothing is released before it has been executed, nothing twice or out of order, and no reply of it is
        /// taken for a contradiction.
        #[test]
        fn never_early(
            commands in prop_oneof![proptest::collection::vec(any_command(), 1..16), proptest::collection::vec(any_binary(), 1..16)],
            ahead in 1_usize..16,
        ) {
            let mut outstanding = Outstanding::new(16);
            let (mut sent, mut next) = (0, 0);
            for (executed, &command) in commands.iter().enumerate() {
                // So many commands are on their way when one is executed.
                while sent < commands.len().min(executed + ahead) {
                    outstanding.command(commands[sent].0, sent).unwrap();
                    sent += 1;
                }
                let Some(reply) = reply(command) else { continue };
                let tags = released(&mut outstanding, reply);
                prop_assert!(tags.is_ok(), "{:?} {}", commands, executed);
                for tag in tags.unwrap_or_default() {
                    prop_assert_eq!(tag, next);
                    prop_assert!(tag <= executed, "{} was released when {} was executed: {:?}", tag, executed, commands);
                    next += 1;
                }
                let sure = |answer| matches!(answer, Answer::Always | Answer::Never);
                let doubt = commands[..=executed].iter().any(|(command, ..)| !sure(command.answer));
                prop_assert!(doubt || next == executed + 1, "late without a doubt");
            }
        }
    }
}
