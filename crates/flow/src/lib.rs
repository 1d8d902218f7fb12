//! Exact match: hash tables, the production flow table, and the summaries that fit where a table would not.
//!
//! * [`key`]: keys as words: 8, 16, 36, 40 bytes.
//! * [`hash`]: keyed hashing, the caller's own (a NIC's RSS hash) spread over 64 bits.
//! * [`table`]: the trait that the yardsticks and the flow table share.

#![forbid(unsafe_code)]

pub mod hash;
pub mod key;
pub mod table;
mod words;
