//! Packets on the wire: views that read them in place, values that write them, checksums and the RSS hash.
//!
//! Every protocol module has the same three parts: `field` offsets, a `Packet` view over any byte buffer, and a
//! `Repr`, the header as plain values with `parse`, `buffer_len` and `emit`. **After the one length check in
//! `Packet::new_checked` no accessor panics**, whatever the bytes are; length fields bound the payload, so what an
//! Ethernet frame is padded with is in no payload. [`Error`] tells protocol, field and byte.

mod bytes;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
mod options;
pub mod types;
pub mod vlan;

pub use error::Error;
pub use options::OptionBytes;
pub use types::{EtherType, MacAddr, Protocol};
