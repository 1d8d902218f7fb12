//! What every IP service shares: interfaces with their addresses, adjacencies, neighbors (ARP and neighbor
//! discovery), ICMP errors, fragments to us and cutting, local delivery, datagrams of our own, coalescing of TCP segments, and the addresses that cannot be.

#![forbid(unsafe_code)]

pub mod adjacency;
pub mod coalesce;
pub mod datagram;
pub mod fragment;
pub mod icmp;
pub mod interface;
pub mod martian;
pub mod neighbor;
pub mod nodes;
pub mod plain;
pub mod queue;
pub mod reassembly;

pub use adjacency::{Adjacency, Kind, NextHops};
pub use icmp::IcmpStats;
pub use interface::{Interface, Interfaces, Owner, Settings};
pub use martian::Martians;
