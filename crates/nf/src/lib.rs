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

pub use tidemill_ip::plain;

/// Packets that a node looks up together before it goes through them: what that brings into the cache is still in its first level when their turn comes. Of a whole burst
/// (256) some of it is not: NAT of 100,000 flows is a tenth slower then, and known connections of the filter a fifth (Zen 4).
const AT_ONCE: usize = 32;
