//! NAT held to the RFCs, to a model, and to bytes that are no packets.

#![allow(clippy::unwrap_used)] // a test may

#[path = "../../../lookup/tests/common/allocations.rs"]
mod allocations;
mod malformed;
mod model;
mod one_family;
mod packets;
mod requirements;
mod steady;
mod workers;
