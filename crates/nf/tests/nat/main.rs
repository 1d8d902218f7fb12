//! NAT held to the RFCs, to a model, and to bytes that are no packets.

#![allow(clippy::unwrap_used)] // a test may

#[path = "../../../lookup/tests/common/allocations.rs"]
mod allocations;
#[macro_use]
mod packets;
mod ahead;
mod floods;
mod malformed;
mod model;
mod node;
mod one_family;
mod requirements;
mod statics;
mod steady;
mod workers;
