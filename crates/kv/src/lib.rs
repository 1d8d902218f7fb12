//! A cache in front of an unchanged memcached.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod codec;
pub mod golden;
pub mod table;
#[cfg(target_os = "linux")]
pub mod kernel;
