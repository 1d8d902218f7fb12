//! HALO's near-cache accelerator, simulated: real tables, a machine of our own, small enough to read.
//!
//! * [`machine`]: cores, caches, slices on a mesh, DRAM, locks; all numbers in [`machine::config`].
//! * [`tape`]: what a real table's lookup touches, through the access probe; [`log`]: the same as text.
//! * [`program`]: what a core runs, with the instructions of [`mix`]. [`workload`]: tables and keys. [`study`]: the figures.
//! * [`halo`]: the accelerators, the flow register, TCAM, energy, the race that locks prevent.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod halo;
pub mod log;
pub mod machine;
pub mod mix;
pub mod program;
pub mod study;
pub mod tape;
pub mod workload;
