//! Flow export: every packet is in one record, and what is sent is IPFIX, by a collector of our own that knows templates only from the wire.

#![allow(clippy::unwrap_used)] // a test may

mod collector;
mod exporter;
mod meter;
mod run;
