//! Exact match: hash tables, the production flow table, and the summaries that fit where a table would not.
//!
//! * [`key`]: keys as words: 8, 16, 36, 40 bytes.
//! * [`hash`]: keyed hashing, the caller's own (a NIC's RSS hash) spread over 64 bits.
//! * [`flowtable`]: the production table: [`flowtable::FlowTable`].
//! * [`sharded`]: one flow table for each worker, read from anywhere.
//! * [`table`]: the trait that the yardsticks and the flow table share; [`suite`]: what holds them to it.
//! * [`chaining`], [`cuckoo`]: yardsticks with linked entries; with two buckets for every key.
//! * [`keystore`]: the yardstick that the paper used, DPDK's: two buckets, keys elsewhere, lock-free readers.
//! * [`linear`], [`quadratic`], [`double`], [`hopscotch`]: yardsticks with open addressing, on [`open`].
//! * [`filter`]: Bloom, counting Bloom, cuckoo.
//! * [`heavy`]: the heaviest keys, counts of all keys.
//! * [`cardinality`]: linear counting, HyperLogLog.

#![deny(unsafe_code)]

pub mod cardinality;
pub mod chaining;
pub mod cuckoo;
pub mod double;
pub mod filter;
pub mod flowtable;
pub mod hash;
pub mod heavy;
pub mod hopscotch;
pub mod key;
pub mod keystore;
pub mod linear;
pub mod open;
pub mod quadratic;
pub mod sharded;
#[allow(unsafe_code)]
mod simd;
pub mod suite;
pub mod table;
mod words;
