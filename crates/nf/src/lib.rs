//! Network functions that stand in a router's way: NAT, a packet filter, flow specifications of BGP peers; and two that look on in any role: detection of assets, and flow export.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod assets;
pub mod filter;
pub mod flowspec;
pub mod header;
pub mod ipfix;
mod lanes;
pub mod nat;
mod tap;
