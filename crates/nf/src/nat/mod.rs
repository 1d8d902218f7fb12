//! NAT44 and NAT66: hosts inside share the addresses of a pool.
//!
//! Sources: RFC 4787 and RFC 7857 (UDP, and in general), RFC 5382 (TCP), RFC 5508 (ICMP), RFC 7422 (ports by computation), RFC 1624
//! (checksums by what has changed). Where we choose among what they allow, or depart, the crate's README says so.
//!
//! ```text
//! 10.0.0.5:4000 > 198.51.100.1:53   leaves as   192.0.2.1:61002 > 198.51.100.1:53
//!       inside          remote                      outside             remote
//! ```
//!
//! | step | cost |
//! |---|---|
//! | a packet of a session, from inside | one lookup, two words written |
//! | the same from outside | two lookups (mapping, session), one record, two words written |
//! | a new session | three lookups (session, mapping, session once more), one record, and an insertion; from outside one or two lookups more; with address-dependent filtering two insertions |
//! | a new mapping | three insertions more, and a search for a port: 1,025 words at most |
//!
//! Invariants, held by `tests/nat`: an outside endpoint is one inside endpoint's; a mapping has a session, or is static; counts of sessions,
//! of a host's mappings, and of taken ports are what there is; nothing is allocated after the start.

pub mod config;
mod control;
mod counters;
pub mod error;
pub(crate) mod fragments;
pub mod image;
pub mod ip;
pub(crate) mod nodes;
mod packet;
mod ports;
pub mod settings;
pub mod state;
pub mod tcp;
mod translate;
pub(crate) mod waiting;
mod wiring;

pub use config::NatSection;
pub use control::{End, Exporter, Line, NatControl, Prepared, Role, Taken, Wanted};
pub use counters::{Counter, Counters};
pub use error::NatError;
pub use fragments::Token;
pub use ip::{Endpoint, Proto};
pub use settings::Rules;
pub use state::{Piece, Saved, Share};
pub use translate::{Fate, Handover, Nat, Nat4, Nat6, Now, Way};
pub use wiring::{Hops, Host, splice};
