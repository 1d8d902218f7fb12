//! The grantor role: a router that takes packets out of Gatekeepers' tunnels, and decides by policies in Lua who may send how much.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Without Lua nobody asks, but the types are there.
#![cfg_attr(not(feature = "lua"), allow(dead_code))]

pub mod answer;
pub mod config;
pub mod control;
mod counters;
mod error;
mod gatekeepers;
pub mod judge;
pub mod nodes;
pub mod policy;
pub mod question;
pub mod section;
mod tally;
mod tunnel;
mod voice;
mod wiring;

pub use answer::{Answer, Decision, FailSafe, Failure};
pub use config::{FailSafeConfig, Parameter, PolicySection};
pub use control::{GrantorControl, Preparation, Prepared, Record, Revoked, Run, Swap};
pub use counters::{Counts, Shown};
pub use error::PolicyError;
pub use judge::{Handle, Judge};
pub use policy::{Engine, Policy, Surroundings};
pub use question::{Fragment, Question};
pub use section::{DecisionFormat, GrantorSection};
pub use tally::{Counter, Counters};
pub use tidemill_decision::keys::without_keys;
pub use tunnel::question as question_of;
pub use wiring::splice;
