//! A stateful packet filter: what is routed passes if rules in pf's syntax let it.
//!
//! Sources: van Rooij, "Real stateful TCP packet filtering in IP Filter" (2001), for the window of a TCP connection; RFC 5961 (resets), RFC 5722 and
//! RFC 1858 (fragments that overlap, or are too small), RFC 5095 (routing headers); pf's manual for the meaning of rules. Where we depart from
//! pf the crate's README says so.
//!
//! ```text
//! packet --read--> connection known? --yes--> TCP window --> passes
//!                        '--no--> rules, on the way in and on the way out --> both pass: a connection is remembered
//! ```
//!
//! | step | cost |
//! |---|---|
//! | a packet of a known connection | one lookup (two lines of memory, with 31 others of its burst under way), four words looked at, of TCP nine, and what has changed of them written |
//! | a new one | that lookup, one longest-prefix match for each address if there are tables, rules twice, an insertion; what that touches was asked for with the new ones among 32 packets of its burst |
//! | a SYN too many | the same, and an eviction: three lookups |
//!
//! Invariants, held by `tests/filter`: a packet passes exactly if the model that walks lists says so; connections, half-open ones and what rules count are what there is;
//! nothing is allocated after the start.

pub mod config;
mod connection;
mod control;
mod counters;
pub mod error;
mod half;
pub mod image;
mod judge;
mod log;
mod net;
mod nodes;
mod packet;
mod rules;
mod sets;
pub mod settings;
mod states;
pub mod tcp;
pub mod text;
mod wiring;

pub use config::FilterSection;
pub use connection::Kind;
pub use control::{End, FilterControl, FilterFiles, Line, Prepared, SetLine, Wanted};
pub use counters::{Counter, Counters};
pub use error::FilterError;
pub use judge::{Fate, Filter, NOWHERE, Ways};
pub use log::LogLine;
pub use net::{Ends, Net};
pub use rules::{Decision, Frame, Hits, MOST_MATCHES, Rules};
pub use sets::AddressSet;
pub use states::{MOST_STATES, States};
pub use wiring::{Hops, Host, splice};
