//! Network functions.
#![forbid(unsafe_code)]
pub mod nat;
