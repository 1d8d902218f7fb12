//! What was done to one key, by whom, between which times, with what outcome.

use super::wire::{Mode, Said};
use std::fmt;

/// Never: of a reply that has not come.
pub(crate) const OPEN: u64 = u64::MAX;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// What was asked about one key. Data are whole values: no two commands of a history bring the same ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    /// `gat`.
    ReadTouch(Expiry),
    Touch(Expiry),
    Put {
        mode: Mode,
        data: Vec<u8>,
        flags: u32,
        expiry: Expiry,
    },
    /// If the value is still this one, which came with the number that was sent.
    Cas {
        wanted: Vec<u8>,
        data: Vec<u8>,
        flags: u32,
        expiry: Expiry,
    },
    /// `incr`, or `decr` if less than 0.
    Count(i64),
    Delete,
    /// `flush_all`: this key, too.
    Flush,
    /// memcached is killed: another one has nothing.
    Death,
    /// The same, in so many seconds; `firm` until another flush may take its place.
    FlushLater {
        seconds: u32,
        firm: bool,
    },
    /// Reads, and where nothing is there makes an empty value.
    Vivify(Expiry),
    /// Makes it stale: it is read as before.
    Stale,
    /// Like `cas`, but an old number makes what is stored stale, and does not refuse it: that keeps the time to live of what was there. With the number of what is
    /// there it lives for ever.
    CasStale {
        data: Vec<u8>,
        flags: u32,
    },
}

impl Action {
    /// Whether it is there to change something, and may do so without a reply.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self, Action::Read | Action::ReadTouch(_) | Action::Vivify(_))
    }

    /// Whether it is about all keys.
    pub(crate) fn is_of_all(&self) -> bool {
        matches!(self, Action::Flush | Action::Death | Action::FlushLater { .. })
    }
}

/// What was asked for as a value's time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    /// At once.
    Past,
    /// Seconds.
    In(u32),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No reply came, or none was asked for.
    Unknown,
    Hit {
        data: Vec<u8>,
        flags: u32,
    },
    /// No such key.
    Miss,
    Done,
    /// `add`, `replace`, `append`, `prepend`: not so.
    NotStored,
    /// `cas`: another value is there.
    Exists,
    Number(u64),
}

impl Outcome {
    /// What a reply means; none if no reply to this should be like that.
    pub(crate) fn of(said: Said) -> Option<Self> {
        Some(match said {
            Said::Value { data, flags, .. } => Outcome::Hit { data: trimmed(data), flags },
            Said::Absent => Outcome::Miss,
            Said::Done => Outcome::Done,
            Said::NotStored => Outcome::NotStored,
            Said::Exists => Outcome::Exists,
            Said::Number(number) => Outcome::Number(number),
            Said::Other(_) => return None,
        })
    }
}

/// A number that `decr` has made shorter keeps its length: blanks follow.
pub(crate) fn trimmed(mut data: Vec<u8>) -> Vec<u8> {
    let digits = data.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 && data[digits..].iter().all(|byte| *byte == b' ') {
        data.truncate(digits);
    }
    data
}

/// One command, as far as it is about one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// When it was sent, nanoseconds; when the reply had come, or [`OPEN`].
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) action: Action,
    pub(crate) outcome: Outcome,
    /// Whether it may never have happened: a datagram may be lost.
    pub(crate) optional: bool,
    /// Which client, and how it asked.
    pub(crate) client: usize,
    pub(crate) how: &'static str,
}

fn shown(data: &[u8]) -> String {
    let text: String = data.iter().take(24).map(|byte| char::from(*byte)).collect();
    format!(
        "{:?}{}",
        text,
        if data.len() > 24 { format!("... ({} bytes)", data.len()) } else { String::new() }
    )
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| if ns == OPEN { "...".to_owned() } else { format!("{:.1}", ns as f64 / 1e3) };
        write!(
            f,
            "{:>12} to {:>12} us  client {:<2} {:<14} ",
            us(self.from_ns),
            us(self.to_ns),
            self.client,
            self.how
        )?;
        match &self.action {
            Action::Read => write!(f, "get")?,
            Action::ReadTouch(expiry) => write!(f, "gat {expiry:?}")?,
            Action::Touch(expiry) => write!(f, "touch {expiry:?}")?,
            Action::Put { mode, data, expiry, flags } => {
                write!(f, "{mode:?} {} flags {flags} {expiry:?}", shown(data))?;
            }
            Action::Cas { wanted, data, expiry, .. } => {
                write!(f, "cas {} -> {} {expiry:?}", shown(wanted), shown(data))?;
            }
            Action::Count(by) => write!(f, "count {by:+}")?,
            Action::Delete => write!(f, "delete")?,
            Action::Flush => write!(f, "flush_all")?,
            Action::Death => write!(f, "memcached is killed")?,
            Action::FlushLater { seconds, .. } => write!(f, "flush_all {seconds}")?,
            Action::Vivify(expiry) => write!(f, "mg N {expiry:?}")?,
            Action::Stale => write!(f, "md I")?,
            Action::CasStale { data, flags } => write!(f, "ms C I {} flags {flags}", shown(data))?,
        }
        match &self.outcome {
            Outcome::Unknown => write!(f, ": ?")?,
            Outcome::Hit { data, flags } => write!(f, ": {} flags {flags}", shown(data))?,
            other => write!(f, ": {other:?}")?,
        }
        if self.optional { write!(f, " (may be lost)") } else { Ok(()) }
    }
}
