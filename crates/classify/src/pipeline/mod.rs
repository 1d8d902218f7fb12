//! Several tables: rules that change packets, send them, and pass them on to later tables.
//!
//! ```text
//! key --> table 0 --goto 1--> table 1 --goto 7--> table 7          a way: the rule of each table, and how it ends
//!            |  set VLAN         |  meter 3          |  output 2
//!            v                   v                   v
//!         actions, in the order of the way; they are found by the rules' numbers when the packet is sent
//! ```
//!
//! A cached decision is a [`Way`]. All else follows from it: actions, counters, and the key that each table has looked at, because
//! actions write constants. Groups, meters, the bridge's MAC addresses are asked when a packet is sent, so no way depends on them.
//!
//! **How narrow megaflows stay.** A table's lookup tells the bits that it has looked at. Those that an earlier action has written are the
//! same for all packets of the way, so they are no bits of the packet's: they are left out (Open vSwitch puts them in when they are written).
//!
//! **What a change concerns.** After a change in a table, a cached way still holds if it does not come by that table, or if the key as it is there
//! cannot meet the rule that came or went. Walked along the way's own rules from the first table on: until a change is met, they are the same.
//!
//! Departures from OpenFlow: actions take effect at once, there is no action set; groups cannot change what later tables see; a table that has no match
//! ends the packet's way, and what has been sent of it by then has left. A lookup behind a tag that was pushed on a tagged packet, or popped off a double-tagged one, would have to look at
//! the packet again: the way ends there ([`End::Stacked`]).

mod action;
mod book;
mod choose;
mod group;
mod load;
mod oracle;
mod order;
#[cfg(test)]
mod tests;
mod way;

pub use action::{Action, Instructions, Output, SETTABLE, Travelling};
pub(crate) use book::check_action;
pub use book::{
    BookError, Flow, FlowFilter, FlowSpec, Gone, MOST_SHARED, NOT_YET, Pipeline, PipelineSettings, Why,
};
pub use group::{Bucket, Group, GroupKind, Meter, MeterRate, MeterUnit, Shared, flow_hash};
pub use load::{LoadError, Loaded};
pub use oracle::PipelineOracle;
pub use way::{DEPTH, End, Step, Walker, Way, WayId, Ways};

/// A rule's place and instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The table that it is in.
    pub table: u8,
    /// What becomes of its packets.
    pub instructions: Instructions,
}
