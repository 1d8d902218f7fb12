//! Network functions that stand in a router's way: NAT.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod nat;
