//! Exact match: hash tables, the production flow table, and the summaries that fit where a table would not.
//!
//! * [`key`]: keys as words: 8, 16, 36, 40 bytes.
//! * [`hash`]: keyed hashing, the caller's own (a NIC's RSS hash) spread over 64 bits.
//! * [`table`]: the trait that the yardsticks and the flow table share; [`suite`]: what holds them to it.
//! * [`linear`]: yardsticks with open addressing.
//! * [`filter`]: Bloom, counting Bloom, cuckoo.

#![forbid(unsafe_code)]

pub mod filter;
pub mod hash;
pub mod key;
pub mod linear;
mod open;
pub mod suite;
pub mod table;
mod words;
