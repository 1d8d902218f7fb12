//! How many different keys have passed: flows, sources, addresses under attack. Neither keeps keys.
//!
//! | counter | bytes | error (one standard deviation) | made for |
//! |---|---|---|---|
//! | [`LinearCounter`] | 1 bit per 1 to 8 keys | below 1 % up to what it was made for | few keys, or exact small numbers |
//! | [`HyperLogLog`] | 2^precision | 1.04 / 2^(precision / 2), at any number: 0.8 % for 16 KB | everything else |
//!
//! Both take the caller's 64-bit hash ([`crate::hash`]): the same hash wherever two counters shall be merged, and one with a secret where
//! somebody might like to be counted wrongly. Each worker has its own; the control side gets it by a move at a burst boundary and
//! [`merge`](HyperLogLog::merge)s what it has got: a key that several workers have seen counts once.
//!
//! They are our own because a packet brings its hash already, which `hyperloglogplus` 0.4, for one, computes itself, and because an addition is one
//! byte or bit of memory that is there from the start, on huge pages. They have been measured beside no crate.

mod hyperloglog;
mod linear;

pub use crate::filter::Mismatch;
pub use hyperloglog::{HyperLogLog, HyperLogLogError, PRECISIONS};
pub use linear::{LinearCounter, Saturated};
