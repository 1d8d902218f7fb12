//! Detection of assets: what frames tell, what the table keeps, and that packets are left alone.

#![allow(clippy::unwrap_used)] // a test may

#[path = "../../../lookup/tests/common/allocations.rs"]
mod allocations;
mod captures;
mod frames;
mod node;
mod steady;
mod table;
mod watch;
