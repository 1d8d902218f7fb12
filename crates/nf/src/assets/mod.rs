//! Passive detection of assets: which hosts there are, what runs on them, and what they are called, by packets that pass.
//!
//! Sources: RFC 9293 (TCP's options, whose order and values systems choose by themselves), RFC 826, RFC 4861, RFC 2131, RFC 6762, and the protocols of
//! [`banner`]; HALO (Yuan et al., ISCA 2019, section 6.5) runs such a detector, PRADS, as one of its network functions. Fingerprints are our own.
//!
//! ```text
//! frame --Watch::look--> new, or not reported lately? --no--> (one look into `Seen`) on it goes
//!                               '--yes--> Observation --bounded queue--> Assets: hosts, bounded, expiring
//! ```
//!
//! | step | cost |
//! |---|---|
//! | a packet that tells nothing new | headers read in place, one hash and one look at half a line of memory (`seen.rs`) |
//! | a SYN, a banner, DHCP, mDNS | that, and a hash and a look for each fact |
//! | a fact that is new | 250 bytes into a queue; the table is the control side's |
//!
//! What it says is what was sent: anybody can send anything in anybody's name. It answers nothing, asks nothing, and changes nothing.
//!
//! Invariants, held by `tests/assets`: the table is within its bounds and its lists agree; a packet leaves as it came; nothing is allocated by packets that tell nothing new; any bytes can be looked at.

pub mod banner;
mod config;
mod control;
mod counters;
pub mod dhcp;
pub mod fingerprints;
pub mod mdns;
mod node;
pub mod observation;
mod seen;
pub mod signature;
pub mod table;
pub mod text;
pub mod tls;
mod watch;

pub use config::AssetsSection;
pub use control::{AssetsControl, AssetsError, Settings, table_bytes};
pub use counters::{Counter, Counters};
pub use fingerprints::Fingerprints;
pub use node::{NAME, splice};
pub use observation::{Fact, Host, Observation};
pub use seen::Seen;
pub use table::{Asset, Assets};
pub use watch::Watch;
