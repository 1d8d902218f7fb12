//! Classification: rules with priorities over packet headers, and structures that find the first match.
//!
//! * [`key`]: the fields of a packet as eight words; masks over them.
//! * [`rule`]: matches (masks, prefixes, port ranges), priorities, and the order in which rules win.
//! * [`packet`]: packets to keys.
//! * [`rules`]: the rules themselves: the owner of truth.
//! * [`text`]: ClassBench rule sets and header traces.
//! * [`flows`]: rules, groups and meters as text, as `ovs-ofctl` has them.
//! * [`oracle`]: the first match by looking at every rule.
//! * [`tuple`]: tuple space search and its merged form; which masks a decision has looked at.
//! * [`cross`]: cross-products of addresses with short lists, for sets that change seldom.
//! * [`live`]: rules that change while workers look up.
//! * [`pipeline`]: several tables, actions, groups, meters; the owner of a switch's rules.
//! * [`decider`], [`cache`]: exact matches and megaflows in front of the rules, one per worker.
//! * [`laps`]: where a packet's time goes, layer by layer.
//! * [`yardstick`]: HALO's software baseline of the caches.
//! * [`suite`]: what holds every structure to the oracle.

#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod cache;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod cpu;
pub mod cross;
pub mod decider;
pub mod flows;
pub mod key;
pub mod laps;
pub mod live;
pub mod oracle;
pub mod packet;
pub mod pipeline;
pub mod rule;
pub mod rules;
pub mod suite;
pub mod text;
pub mod tuple;
mod turned;
pub mod yardstick;

pub use cross::{Crossed, NotCrossed};
pub use key::{Field, Key, Mask};
pub use rule::{MOST_RULES, Match, PortRange, Rank, Rule, RuleId, Side};
pub use rules::RuleSet;
pub use tuple::{Grouping, TupleSpace};
