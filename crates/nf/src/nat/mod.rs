//! NAT.
pub mod config;
mod control;
mod counters;
pub mod error;
mod fragments;
pub mod ip;
mod nodes;
mod packet;
mod ports;
pub mod settings;
pub mod state;
pub mod tcp;
mod translate;
mod wiring;

pub use config::NatSection;
pub use control::{End, Line, NatControl, Role, Wanted};
pub use counters::{Counter, Counters};
pub use error::NatError;
pub use fragments::Token;
pub use ip::{Endpoint, Proto};
pub use settings::Rules;
pub use state::{Piece, Share};
pub use translate::{Fate, Handover, Nat, Nat4, Nat6, Now, Way};
pub use wiring::{Hops, Host, splice};
