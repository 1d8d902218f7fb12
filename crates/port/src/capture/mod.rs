//! Capture files: pcap and pcapng, reading and writing.
//!
//! Source: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng (2024), and the link types registered at tcpdump.org.
//! The reader is our own: small, strict, and it knows the byte offset and packet number of what it refuses. Files may
//! be compressed; see `tidemill_archive`.
//!
//! ```text
//! Reader: file -> blocks -> Record { timestamp_ns, link, data, wire_len }
//! link:   Record -> Ethernet frame (a header is made up for captures of bare IP)
//! Writer: frames -> pcap (nanoseconds) or pcapng, whole records at a time
//! ```

mod link;
mod reader;
mod source;
mod writer;

pub use link::{LinkType, SYNTHETIC_DST, SYNTHETIC_SRC};
pub use reader::{Reader, Record};
pub(crate) use source::{Preloaded, Source};
pub use writer::{Sense, Writer, pcapng_header, pcapng_packet, pcapng_statistics};
