//! The mitigator role: a transparent bridge of two ports that keeps reflected UDP floods (amplification attacks) away from hosts that never asked for
//! them, and learns by itself which those are.

#![forbid(unsafe_code)]

pub mod offload;
mod tuple;

pub use tuple::Tuple;
