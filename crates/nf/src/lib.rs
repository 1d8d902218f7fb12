//! Network functions that stand in a router's way: NAT, and a packet filter.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod filter;
pub mod header;
mod lanes;
pub mod nat;
