//! The gatekeeper role: a router with a gate, in front of the network that it protects. Who wants to send to that network
//! asks for it first; a Grantor there decides, and the gate holds every flow to what was decided.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod addresses;
pub mod config;
mod control;
mod counters;
mod error;
mod family;
pub mod flow;
pub mod gate;
mod mail;
pub mod nodes;
pub mod offload;
mod ours;
pub mod policy;
pub mod programs;
mod seat;
pub mod settings;
mod show;
pub mod tag;
mod top;
mod trust;
pub mod tunnel;
mod unplaced;
mod wiring;
pub mod yardstick;

pub use config::GatekeeperSection;
pub use control::{GatekeeperControl, Prepared};
pub use counters::{Counter, Counters};
pub use error::GateError;
pub use family::{Gated, Paired};
pub use flow::{Act, FlowState, Shown};
pub use settings::Settings;
pub use show::{FlowLine, FlowsPage, PolicyLine, TopLine, Wanted};
pub use tag::Tag;
pub use tidemill_decision::{Cookie, Decision, Pair, Verdict};
pub use top::{By, WINDOW_NS as TOP_WINDOW_NS};
pub use trust::{Notice, Unheard};
pub use wiring::{Host, Ways, splice};

use tidemill_decision as decision;
