//! The router role: nodes that route IPv4 and IPv6 by a full table, and the control side that owns routes, interfaces and
//! neighbors, and publishes what follows from them.
//!
//! [`RouterControl::new`] turns a [`RouterConfig`] and routes into tables; [`graph()`] wires the nodes; the engine runs
//! them. While it runs, [`RouterControl::apply`] changes routes, [`RouterControl::poll`] keeps the neighbors, and
//! [`RouterControl::reload`] takes another configuration.

#![forbid(unsafe_code)]

mod bgp;
pub mod config;
mod control;
mod derive;
mod fits;
mod groups;
mod kernel;
mod labels;
pub mod nodes;
pub mod offload;
mod ownership;
mod plane;
mod queues;
mod resume;
mod rules;
pub mod settings;
pub mod show;
pub mod state;
mod steer;
mod wiring;

pub use config::RouterConfig;
pub use control::{LookupStats, Prepared, Routed, RouterControl, RouterError, Routes, Way, static_name};
pub use kernel::devices as kernel_devices;
pub use labels::NextHop;
pub use plane::{Plane, Source};
pub use queues::ShownQueue;
pub use rules::derived_mac;
pub use settings::{ConfigError, Device, PortInfo};
pub use show::{RouteView, ShownHop};
pub use state::State;
pub use steer::AllWays;
pub use wiring::graph;
