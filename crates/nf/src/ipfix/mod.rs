//! Flow export by IPFIX: which flows ports have received, told to a collector over UDP.
//!
//! Sources: RFC 7011 (the protocol), RFC 7012 and IANA's registry (information elements), RFC 5101's advice on UDP as RFC 7011 has it in section 10.3.
//!
//! ```text
//! packet --key, bytes, flags--> Meter: a flow table per worker and family --ended, or long enough--> Record
//!                                                        bounded queue --> Exporter: messages, templates, UDP
//! ```
//!
//! A flow is one direction: addresses, ports (of ICMP type and code), protocol, type of service, and the port of ours that received it. It is exported when it was
//! silent for `idle_s`, when it has lasted `active_s` (what comes afterwards is counted in the next record), a second after a FIN or a RST, and at the end of the run.
//!
//! **Every packet is counted once**: in one record, or as `not-ip`, `malformed` or `flows-full`. A queue or a socket that is full makes records wait in
//! the table; what the system refuses to send is counted by records, packets and bytes. Both reach the collector as options records (RFC 7011, section 4).
//!
//! | step | cost |
//! |---|---|
//! | a packet | headers read in place, a lookup with those of its burst under way, four words written |
//! | a sweep | a hundredth of the buckets every 10 ms |
//!
//! Invariants, held by `tests/ipfix`: the sum of records and of what was left out is what came in; messages are as long as they say; sequence numbers count records.

mod config;
mod control;
mod counters;
mod exporter;
pub mod message;
mod meter;
mod node;
mod packet;
mod record;

pub use config::IpfixSection;
pub use control::{IpfixControl, IpfixError};
pub use counters::{Counter, Counters};
pub use exporter::{Exporter, Left};
pub use meter::{Meter, Times};
pub use node::{NAME, splice};
pub use record::{Ended, Record};
