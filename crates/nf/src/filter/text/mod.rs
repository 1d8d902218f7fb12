//! Rule files in pf's syntax: a part of it, and what is not supported is refused by name. The grammar is in the crate's README.

mod cisco;
mod lex;
mod load;
mod names;
mod parse;
mod set_file;
#[cfg(test)]
mod tests;

pub use cisco::{AclLine, read_acl};
pub(super) use lex::{short, shown};
pub use load::{Format, Load};
pub use names::{protocol_name, protocol_number};
pub use parse::read_rules;
pub use set_file::{read_network, read_set};

use std::ops::RangeInclusive;
use tidemill_classify::Match;
use tidemill_lpm::{Address, Prefix};

/// Bytes that a rule file may have.
pub const MOST_BYTES: usize = 16 << 20;
/// Rules that it may have.
pub const MOST_RULES: usize = 1 << 17;

/// Why a rule file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct RuleError {
    /// From 1.
    pub line: u32,
    /// Byte of the line, from 1.
    pub column: u32,
    /// What is wrong, and what to do.
    pub what: String,
}

impl RuleError {
    pub(crate) fn new(line: u32, column: u32, what: impl Into<String>) -> Self {
        RuleError { line, column, what: what.into() }
    }
}

/// A place in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: u32,
    /// Byte of the line, from 1.
    pub column: u32,
}

impl Place {
    pub(crate) fn error(self, what: impl Into<String>) -> RuleError {
        RuleError::new(self.line, self.column, what)
    }
}

/// A prefix of either family; an address is one, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    /// IPv4.
    V4(Prefix<u32>),
    /// IPv6.
    V6(Prefix<u128>),
}

impl Network {
    /// Whether it is IPv6.
    pub fn is_v6(self) -> bool {
        matches!(self, Network::V6(_))
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Network::V4(prefix) if prefix.len() == 32 => write!(f, "{}", prefix.first().to_ip()),
            Network::V6(prefix) if prefix.len() == 128 => write!(f, "{}", prefix.first().to_ip()),
            Network::V4(prefix) => write!(f, "{prefix}"),
            Network::V6(prefix) => write!(f, "{prefix}"),
        }
    }
}

/// What becomes of packets that a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// They pass.
    Pass,
    /// They are dropped.
    Drop,
    /// They are dropped, and their senders are told.
    Tell,
}

/// On which of its two ways a packet is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// As it comes in.
    In,
    /// As it goes out.
    Out,
}

/// One side of `from ... to`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ends {
    /// Any of these; none: any host.
    pub hosts: Vec<Host>,
    /// Any of these; none: any port.
    pub ports: Vec<RangeInclusive<u16>>,
}

/// Who is at one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An address of this prefix.
    In(Network),
    /// An address of its family that is not of this prefix.
    NotIn(Network),
    /// An address of the set of this number, or (`true`) one that is not.
    Set(usize, bool),
}

/// Which TCP segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Flags {
    /// None was said: of rules that keep state those that open a connection, of others all.
    #[default]
    Default,
    /// `flags any`.
    Any,
    /// `flags SET/OF`: of the flags `of` those of `set` are set.
    Masked {
        /// Those that are set.
        set: u8,
        /// Those that are looked at.
        of: u8,
    },
}

/// A rule as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Where it is.
    pub place: Place,
    /// Its text, on one line.
    pub text: String,
    /// What it says.
    pub action: Action,
    /// On which way; none: on both.
    pub direction: Option<Direction>,
    /// Whether packets that it decides are logged; of a connection the first.
    pub log: bool,
    /// Whether rules behind it do not count for its packets.
    pub quick: bool,
    /// By which interfaces; none: by any.
    pub interfaces: Vec<(String, Place)>,
    /// Whether it is about IPv6 only, or IPv4 only.
    pub is_v6: Option<bool>,
    /// Of which protocols; none: of all.
    pub protocols: Vec<u8>,
    /// Source.
    pub from: Ends,
    /// Destination.
    pub to: Ends,
    /// TCP flags.
    pub flags: Flags,
    /// ICMP types, each perhaps with a code; none: all.
    pub icmp: Vec<(u8, Option<u8>)>,
    /// Whether connections are remembered.
    pub keep_state: bool,
    /// Its name, for counters.
    pub label: Option<String>,
    /// Of a line of a loaded access list: what it is about; the fields above say nothing of addresses, ports and protocols then.
    pub matches: Option<Match>,
}

/// A set as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Whether it may not be changed but by the file.
    pub is_const: bool,
    /// Files to read it from.
    pub files: Vec<(String, Place)>,
    /// Whether the rule file has a list of it, be it empty.
    pub has_list: bool,
    /// What that list says.
    pub networks: Vec<Network>,
}

impl Set {
    /// Whether commands alone say what is in it, so that it stays when rules are loaded, as in pf.
    pub(crate) fn is_open(&self) -> bool {
        self.files.is_empty() && !self.has_list && !self.is_const
    }
}

/// A rule file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// Its sets, in order.
    pub sets: Vec<Set>,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
    /// Interfaces on which nothing is judged.
    pub skip: Vec<(String, Place)>,
    /// Access lists to load. Their rules are [put in](Ruleset::put_in) when their files have been read.
    pub loads: Vec<Load>,
}
