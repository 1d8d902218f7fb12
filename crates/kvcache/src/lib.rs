//! The kvcache role: a bridge of two ports in front of an unchanged memcached, that answers gets over UDP from two tiers of memory, and never with a value that has
//! been written since.
//!
//! [`KvcacheControl::new`] makes the cache from a [`KvcacheSection`]; [`graph()`] is the bridge; the engine runs it. The decision itself, with its
//! picture, is [`cache`].

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod cache;
pub mod config;
mod control;
mod counters;
mod error;
mod fills;
mod frame;
mod gate;
mod host;
mod hot;
mod keyhash;
mod node;
mod order;
mod rates;
pub mod redis;
mod server;
pub mod settings;
mod shift;
mod slab;
mod tcp;
mod tier;
mod tiers;

pub use cache::{Cache, Fate, Side};
pub use config::{KvcacheSection, OnDemandHostSection, OnDemandSection};
pub use control::KvcacheControl;
pub use counters::{Counter, Counters};
pub use error::KvcacheError;
pub use hot::HotKey;
pub use node::graph;
pub use settings::{Settings, table_bytes};
