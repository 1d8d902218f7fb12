//! BGP sessions and BMP: routes from any daemon, live.
//!
//! ```text
//! bytes, time --> Session (one connection) --events--> Speaker (peers) --paths--> Rib --changes--> the router
//!                                     bytes --> Station (BMP) --paths-----^
//! Runner: the sockets of all that
//! ```
//!
//! A [`Session`] is a state machine that is fed with bytes and the time and gives bytes and events. A [`Speaker`] has the peers,
//! restarts and limits; its [`Rib`] holds every path of every peer and tells a [`Change`] when the best one leads elsewhere. A
//! [`bmp::Station`] fills the same RIB from what another router tells of its peers. [`Runner`] has the sockets, and no thread.
//! Flow specifications ([`flowspec`]) are kept beside the RIB, which says whose they are to give ([`Speaker::flows`]).
//!
//! Messages and path attributes are read by `tidemill-feed`'s cursor, as in MRT files; what is malformed ends the session or
//! costs its routes, as RFC 7606 says ([`attributes`]).

#![deny(unsafe_code)]

pub mod attributes;
pub mod best;
pub mod bmp;
#[cfg(target_os = "linux")]
pub mod config;
pub mod flows;
pub mod flowspec;
mod martian;
pub mod message;
pub mod notice;
pub mod path;
pub mod rib;
#[cfg(target_os = "linux")]
mod runner;
pub mod session;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod signature;
pub mod speaker;
#[cfg(test)]
mod testing;
pub mod update;

pub use attributes::{Attributes, Origin, Problem, Reading};
pub use flows::{Actions, FlowTrust, Redirect, RouteTarget, ShownFlow};
pub use flowspec::FlowSpec;
pub use notice::Notice;
pub use path::AsPath;
pub use rib::{Change, PeerId, Rib, ShownPath};
#[cfg(target_os = "linux")]
pub use runner::{BmpConfig, Progress, Runner, RunnerConfig, RunnerError, ShownExporter};
pub use session::{End, Event, Export, Session, SessionConfig, SessionStats, State};
#[cfg(target_os = "linux")]
pub use signature::{AoAlgorithm, AoKey, Signature};
pub use speaker::{PeerConfig, Refusal, ShownPeer, Speaker, SpeakerConfig};
pub use update::{Nlri, Update};
