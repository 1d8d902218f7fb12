//! Access logs: what lookups touched, as text, so that any structure's lookups - ours, another program's - can be run on the simulated machine.
//!
//! ```text
//! # a lookup of table 1, which looks at a bucket and at an entry
//! lookup 1
//! step
//! read 0x7f0000001000 64
//! read 0x7f0000402340 24 dependent
//! ```
//!
//! `read ADDRESS BYTES [dependent]`, `write ADDRESS BYTES`, `step` belong to the `lookup TABLE` before them. Addresses are the program's own, wherever
//! it has its memory: simulated ones are given out in their order ([`crate::machine::pages`]). `#` begins a comment.
//! Writes are carried out by software only: accelerators and TCAM answer and write nothing into a table, so they pass over them.

use crate::tape::Touch;
use std::fmt::Write;
use std::io::{BufRead, ErrorKind, Read};

/// Lines that a log may have.
const MOST: usize = 50_000_000;
/// Bytes of the longest.
const LONGEST_LINE: u64 = 1 << 16;
/// Bytes of one access.
const MOST_BYTES: u64 = 4096;

/// A log: lookups, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// Of each lookup its table, and where its touches begin.
    lookups: Vec<(u64, usize)>,
    touches: Vec<Touch>,
}

/// What is wrong with a line of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct LogError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub fault: Fault,
}

/// See [`LogError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No such word.
    #[error("\"{0}\": use lookup, step, read or write")]
    Word(String),
    /// A number is missing or none.
    #[error("{0}: give a number, such as 4096 or 0x1000")]
    Number(&'static str),
    /// An access of nothing, or of too much.
    #[error("{0} bytes: give 1 to {MOST_BYTES}")]
    Bytes(u64),
    /// The access goes beyond the last address.
    #[error("address {0:#x}: the access goes beyond the last address")]
    Beyond(u64),
    /// More on a line than belongs there.
    #[error("\"{0}\": nothing more belongs on this line")]
    More(String),
    /// A touch of no lookup.
    #[error("no lookup yet: begin with a line `lookup TABLE`")]
    Nobody,
    /// Too many lines.
    #[error("more than {MOST} lines: split the log")]
    Long,
    /// One that is too long.
    #[error("longer than {LONGEST_LINE} bytes: give an access log, as crates/sim/src/log.rs has it")]
    Line,
    /// No text.
    #[error("no UTF-8: give an access log as text")]
    Text,
    /// What the operating system says.
    #[error("cannot be read: {0}")]
    Read(ErrorKind),
    /// Nothing in it.
    #[error("no lookups: give at least one line `lookup TABLE`")]
    Empty,
}

fn shown(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    short.escape_debug().to_string()
}

fn number(word: Option<&str>, what: &'static str) -> Result<u64, Fault> {
    let word = word.ok_or(Fault::Number(what))?;
    let parsed = match word.strip_prefix("0x") {
        // A sign is no part of a number here.
        Some(hex) if !hex.starts_with('+') => u64::from_str_radix(hex, 16).ok(),
        None if !word.starts_with('+') => word.parse().ok(),
        _ => None,
    };
    parsed.ok_or(Fault::Number(what))
}

impl Log {
    /// Reads a log.
    ///
    /// # Errors
    /// [`LogError`], for the first line that is wrong.
    pub fn parse(text: &str) -> Result<Log, LogError> {
        Log::read(text.as_bytes())
    }

    /// Reads a log line by line: one that has no end is refused where it is too long.
    ///
    /// # Errors
    /// [`LogError`], for the first line that is wrong or cannot be read.
    pub fn read(mut input: impl BufRead) -> Result<Log, LogError> {
        let (mut log, mut line, mut at) = (Log::default(), Vec::new(), 0);
        loop {
            at += 1;
            let wrong = |fault| LogError { line: at, fault };
            line.clear();
            let read = input.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut line);
            if read.map_err(|error| wrong(Fault::Read(error.kind())))? == 0 {
                return if log.lookups.is_empty() {
                    Err(LogError { line: (at - 1).max(1), fault: Fault::Empty })
                } else {
                    Ok(log)
                };
            }
            if line.len() as u64 > LONGEST_LINE {
                return Err(wrong(Fault::Line));
            }
            if at > MOST {
                return Err(wrong(Fault::Long));
            }
            let text = std::str::from_utf8(&line).map_err(|_| wrong(Fault::Text))?;
            log.line(text.split('#').next().unwrap_or_default()).map_err(wrong)?;
        }
    }

    fn line(&mut self, line: &str) -> Result<(), Fault> {
        let mut words = line.split_whitespace();
        let Some(word) = words.next() else { return Ok(()) };
        let access = |words: &mut std::str::SplitWhitespace<'_>| -> Result<(u64, u64), Fault> {
            let (address, bytes) = (number(words.next(), "the address")?, number(words.next(), "the bytes")?);
            if !(1..=MOST_BYTES).contains(&bytes) {
                return Err(Fault::Bytes(bytes));
            }
            address.checked_add(bytes - 1).ok_or(Fault::Beyond(address))?;
            Ok((address, bytes))
        };
        let touch = match word {
            "lookup" => {
                self.lookups.push((number(words.next(), "the table")?, self.touches.len()));
                None
            }
            "step" => Some(Touch::Step),
            "read" => {
                let (address, bytes) = access(&mut words)?;
                let dependent = match words.next() {
                    None => false,
                    Some("dependent") => true,
                    Some(other) => return Err(Fault::More(shown(other))),
                };
                Some(Touch::Read { address, bytes, dependent })
            }
            "write" => {
                let (address, bytes) = access(&mut words)?;
                Some(Touch::Write { address, bytes })
            }
            other => return Err(Fault::Word(shown(other))),
        };
        if let Some(more) = words.next() {
            return Err(Fault::More(shown(more)));
        }
        if self.lookups.is_empty() {
            return Err(Fault::Nobody);
        }
        self.touches.extend(touch);
        Ok(())
    }

    /// Lookups.
    pub fn len(&self) -> usize {
        self.lookups.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lookups.is_empty()
    }

    /// Lookup `i`: its table, what it touches.
    pub fn lookup(&self, i: usize) -> Option<(u64, &[Touch])> {
        let &(table, from) = self.lookups.get(i)?;
        let to = self.lookups.get(i + 1).map_or(self.touches.len(), |&(_, from)| from);
        Some((table, &self.touches[from..to]))
    }

    /// One more lookup.
    pub fn push(&mut self, table: u64, touches: &[Touch]) {
        self.lookups.push((table, self.touches.len()));
        self.touches.extend_from_slice(touches);
    }

    /// As [`parse`](Self::parse) reads it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (table, touches) in (0..self.len()).filter_map(|i| self.lookup(i)) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "lookup {table}");
            for touch in touches {
                let _ = match *touch {
                    Touch::Step => writeln!(text, "step"),
                    Touch::Read { address, bytes, dependent } => {
                        writeln!(
                            text,
                            "read {address:#x} {bytes}{}",
                            if dependent { " dependent" } else { "" }
                        )
                    }
                    Touch::Write { address, bytes } => writeln!(text, "write {address:#x} {bytes}"),
                };
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_come_back() {
        let mut log = Log::default();
        let read = |address, dependent| Touch::Read { address, bytes: 64, dependent };
        log.push(7, &[Touch::Step, read(0x1000, false), read(0x2340, true)]);
        log.push(9, &[]);
        log.push(7, &[Touch::Write { address: u64::MAX, bytes: 1 }]);
        assert_eq!(Log::parse(&log.text()), Ok(log.clone()));
        assert_eq!(
            (log.len(), log.lookup(0).map(|(table, touches)| (table, touches.len()))),
            (3, Some((7, 3)))
        );
        let text = "# nothing\n\n lookup 0x7 # one\n step\nread 4096 64\nread 0x2340 64 dependent\nlookup 9\nlookup 7\nwrite 0xffffffffffffffff 1";
        assert_eq!(Log::parse(text), Ok(log));
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, said) in [
            ("", "line 1: no lookups"),
            ("step", "line 1: no lookup yet"),
            ("lookup 1\nreed 3 4", "line 2: \"reed\": use lookup, step, read or write"),
            ("lookup x", "line 1: the table: give a number"),
            ("lookup 1\nread 5", "line 2: the bytes: give a number"),
            ("lookup 1\nread +5 8", "line 2: the address"),
            ("lookup 1\nread 5 0", "line 2: 0 bytes: give 1 to 4096"),
            ("lookup 1\nread 5 8 late", "line 2: \"late\": nothing more"),
            ("lookup 1 2", "line 1: \"2\": nothing more"),
            ("lookup 1\nwrite 0xffffffffffffffff 2", "line 2: address 0xffffffffffffffff"),
        ] {
            let error = Log::parse(text).map(|log| log.len()).map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|error| error.starts_with(said)), "{text:?}: {error:?}");
        }
        let of = |read: Result<Log, LogError>| read.map(|log| log.len()).map_err(|error| error.to_string());
        let endless = of(Log::read(std::io::BufReader::new(std::io::repeat(0))));
        assert!(endless.as_ref().is_err_and(|error| error.starts_with("line 1: longer than")), "{endless:?}");
        let bytes = of(Log::read(&b"lookup 1\n\xff"[..]));
        assert!(bytes.as_ref().is_err_and(|error| error.starts_with("line 2: no UTF-8")), "{bytes:?}");
    }
}
