//! Files that may be compressed.
//!
//! Routing tables, update files and captures come plain or as gzip, xz or zstd. [`open`] tells by the first bytes,
//! never by the name, and gives a [`BufRead`] of what is inside. Concatenated members (gzip, RFC 1952 2.2), streams
//! (xz) and frames (zstd, RFC 8878 3) read as one; truncated or corrupt data is an error that names the file and
//! the offset in the uncompressed data up to which everything was right. [`create`] is the way back.
//!
//! [`read_whole`] reads what a configuration or a command line names, as it is: to a bound, and never for ever. No device is read by either.

#![forbid(unsafe_code)]

mod input;
mod output;
mod whole;

pub use input::{Format, decode, open};
pub use output::{Output, create};
pub use whole::read_whole;
