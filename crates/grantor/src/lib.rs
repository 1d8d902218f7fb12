//! The grantor role, first half: who may send how much, decided by policies in Lua.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Without Lua nobody asks, but the types are there.
#![cfg_attr(not(feature = "lua"), allow(dead_code))]

pub mod answer;
pub mod config;
mod counters;
mod error;
pub mod judge;
pub mod policy;
pub mod question;

pub use answer::{Answer, Cookie, Decision, FailSafe, Failure};
pub use config::{FailSafeConfig, Parameter, PolicySection};
pub use counters::{Counts, Shown};
pub use error::PolicyError;
pub use judge::{Handle, Judge};
pub use policy::{Engine, Policy, Surroundings};
pub use question::{Fragment, Question};
