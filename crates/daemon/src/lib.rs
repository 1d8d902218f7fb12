//! What makes a process a service: what the service manager and the journal hear, privileges that are given up, threads that are confined.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod confine;
pub mod journal;
pub mod notify;
pub mod privileges;
