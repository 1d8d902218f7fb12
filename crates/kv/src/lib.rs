//! A cache in front of an unchanged memcached.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod codec;
pub mod golden;
#[cfg(target_os = "linux")]
pub mod kernel;
pub mod resp;
pub mod table;
