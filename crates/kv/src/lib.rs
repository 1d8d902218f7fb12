//! A cache in front of an unchanged memcached.

#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod codec;
pub mod golden;
