//! The switch role: a learning bridge with VLANs, and rules as OpenFlow has them.
//!
//! [`SwitchControl::new`] reads the rules that a [`SwitchSection`] names; [`graph()`] is the switch; the engine runs it. Rules, caches and the text of rules are
//! in `tidemill-classify`.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod config;
mod control;
mod counters;
mod edit;
mod file;
pub mod macs;
mod node;
mod send;
pub mod vlan;
mod would;

pub use config::{SwitchError, SwitchSection};
pub use control::{CrossProduct, MOST_SIGNATURES, ShownFlow, SwitchControl, Traced, TracedStep};
pub use counters::{Counter, Counters};
pub use file::RulesText;
pub use node::{IDLE_S, SWEPT, graph, graph_timed};
