//! The gatekeeper role: a router with a gate, in front of the network that it protects. Who wants to send to that network
//! asks for it first; a Grantor there decides, and the gate holds every flow to what was decided.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod decision;
pub mod flow;
pub mod nodes;
pub mod tag;
pub mod tunnel;

pub use decision::{Decision, Pair, Verdict};
pub use flow::{Act, FlowState};
pub use tag::Tag;
