//! Packets on the wire: views that read them in place, values that write them, checksums and the RSS hash.
//!
//! Every protocol module has the same three parts: `field` offsets, a `Packet` view over any byte buffer, and a
//! `Repr`, the header as plain values with `parse`, `buffer_len` and `emit`. **After the one length check in
//! `Packet::new_checked` no accessor panics**, whatever the bytes are; length fields bound the payload, so what an
//! Ethernet frame is padded with is in no payload. [`Error`] tells protocol, field and byte.

#![forbid(unsafe_code)]

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;

pub mod arp;
mod bytes;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod flow;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipip;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_ext;
pub mod martian;
pub mod ndisc;
mod options;
pub mod rss;
pub mod segment;
pub mod summary;
pub mod tcp;
pub mod types;
pub mod udp;
pub mod validate;
pub mod vlan;

pub use error::Error;
pub use flow::{FlowKey, flow_key};
pub use options::OptionBytes;
pub use summary::{IpSummary, Summary};
pub use types::{EtherType, MacAddr, Protocol};
pub use validate::{ChecksumFault, verify_checksums};
