//! What caches would do: request logs and workload models, run through models of caches and of tiers of them.
//!
//! * [`log`]: request logs, read from files or made by [`model`].
//! * [`policy`]: fully associative caches: FIFO, LRU, CLOCK, SIEVE, S3-FIFO, random. [`sets`]: set-associative ones.
//! * [`run`]: one cache and a log: [`run::Run`] names both, [`run::pass`] is the loop.
//! * [`tiers`]: L0, L1 and L2 of Tokusashi's thesis (2019, chapters 3 and 4), what is written when, and what goes between them.
//! * [`lake`]: LaKe, the cache in a NIC, in time: elements, memories, host, watts.
//! * [`slab`]: a cache whose values lie in chunks of a few sizes. [`throughput`]: its section's sums of rates.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod error;
pub mod lake;
pub mod log;
pub mod model;
pub mod policy;
pub mod random;
pub mod run;
pub mod sets;
pub mod slab;
pub mod throughput;
pub mod tiers;

pub use error::LogError;
pub use log::{Log, Op, Request};
pub use policy::{Cache, Policy};

/// A key's number in its log, from 0.
pub type Key = u32;
