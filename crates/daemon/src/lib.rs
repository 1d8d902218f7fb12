//! What makes a process a service: what the service manager hears, privileges that are given up, threads that are confined.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod confine;
pub mod notify;
pub mod privileges;
