//! The machine: [`core`]s, [`memory`] with caches, CHAs and locks, the [`mesh`], in simulated time ([`calendar`]); [`config`] has all numbers.
//!
//! There is no queue of events. Cores are run one lookup at a time, always the one that is least far in time; each access
//! is answered at once with the time of its data. What is shared is reserved in calendars, which do not mind in which order they are asked. What is lost by that:
//! the contents of caches change in the order of calls, and two cores' lookups that overlap change them one after the other.

pub mod cache;
pub mod calendar;
pub mod config;
pub mod core;
pub mod memory;
pub mod mesh;
pub mod pages;
#[cfg(test)]
mod tests;

pub use self::calendar::Time;
pub use self::config::{Config, ConfigError};
pub use self::core::{Core, Step};
pub use self::memory::Memory;
