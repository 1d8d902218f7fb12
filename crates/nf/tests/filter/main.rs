//! The packet filter held to a model, to lawful TCP connections, and to bytes that are no packets.

#![allow(clippy::unwrap_used)] // a test may

#[path = "../../../lookup/tests/common/allocations.rs"]
mod allocations;
mod cases;
mod files;
mod floods;
mod model;
mod nodes;
mod packets;
mod steady;
mod tcp;
