//! The mitigator role: a transparent bridge of two ports that keeps reflected UDP floods (amplification attacks) away from hosts that never asked for
//! them, and learns by itself which those are.
//!
//! [`MitigatorControl::new`] makes the tables from a [`MitigatorSection`]; [`graph()`] is the bridge; the engine runs it. The decision itself,
//! with its picture, is [`mitigator`].

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod allow;
pub mod config;
mod control;
mod counters;
mod error;
mod flows;
mod fragments;
mod look;
mod mail;
pub mod mitigator;
mod node;
pub mod offload;
mod parse;
mod rates;
pub mod settings;
mod show;
mod tuple;
mod unreachable;
pub mod yardstick;

pub use allow::{AllowEntry, IpPrefix};
pub use config::MitigatorSection;
pub use control::MitigatorControl;
pub use counters::{Counter, Counters};
pub use error::AmpError;
pub use flows::Status;
pub use look::Look;
pub use mitigator::{Mitigator, Side};
pub use node::graph;
pub use settings::Settings;
pub use show::{Because, Explained, Rule, RulesPage, TopBy, TopKey, TopLine, Wanted};
pub use tuple::{Mode, Tuple};
