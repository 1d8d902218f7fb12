//! Which commands of a connection have surely been executed: the commands in order, and the replies as they come.
//!
//! memcached executes a connection's commands one after another and answers in that order, so a reply says that its command and all before it have
//! been executed. What is hard is whose reply it is, when commands in between may be silent:
//!
//! ```text
//!  ms a q    may answer          HD    of a? no: a's HD is silent, but EX, NS and errors are not;
//!  ms b      answers                   told by the family alone, it is taken for a's: b is released later
//!  mn        answers MN          MN    only mn answers so: a, b and mn are released
//! ```
//!
//! The rule: a reply is taken for that of the **oldest** command that could have sent it. Its true command is that one or a later one, so what is
//! released has been executed; it may be released late (at the latest when the connection ends), never early.

use super::event::{Answer, Command, Family};
use super::replies::Reply;
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
                self.late = late.saturating_add(u32::from(command.answer == Answer::Maybe));
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

    /// The connection has ended, memcached has closed it: what is left will not be executed, or has been.
    pub fn end(&mut self, release: impl FnMut(T)) {
        self.commands.drain(..).map(|(_, tag)| tag).for_each(release);
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
        (Family::Meta, Reply::Meta | Reply::Error) => true,
        (Family::MetaNoOp, Reply::MetaNoOp) => true,
        _ => false,
    }
}
