//! The router between ports in memory. One binary for all of it: each links, and makes code of, the whole data plane.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../lab/mod.rs"]
mod lab;

mod any_bytes;
mod bgp;
mod coalesce;
mod control;
mod ecmp;
mod fragments;
mod kernel;
mod neighbors;
mod oracle;
mod queues;
mod reload;
mod resume;
mod rules;
mod vrfs;
