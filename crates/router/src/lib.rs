//! The router role: nodes that route IPv4 and IPv6 by a full table, and the control side that owns routes and next
//! hops and publishes them.
//!
//! [`RouterControl::new`] turns a [`RouterConfig`] and routes into tables; [`graph()`] wires the nodes; the engine runs
//! them. While it runs, [`RouterControl::apply`] changes routes.

#![forbid(unsafe_code)]

pub mod config;
mod control;
pub mod icmp;
mod martian;
pub mod next_hop;
pub mod nodes;
pub mod settings;
mod wiring;

pub use config::RouterConfig;
pub use control::{LookupStats, Plane, Routed, RouterControl, RouterError, Routes};
pub use icmp::IcmpStats;
pub use next_hop::{Adjacency, NextHops, derived_mac};
pub use settings::{ConfigError, PortInfo, Settings};
pub use wiring::graph;
