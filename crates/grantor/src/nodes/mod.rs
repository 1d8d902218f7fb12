//! The Grantor's nodes; their picture is in the crate's README.

pub mod ask;
pub mod decapsulate;
pub mod probe;
#[cfg(all(test, feature = "lua"))]
#[allow(clippy::unwrap_used)] // a test may
mod tests;
