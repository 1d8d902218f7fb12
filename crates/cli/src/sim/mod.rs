//! `tidemill sim`: studies without packets on a wire: the tables and decisions of a role, fed by patterns, by captures, by a
//! model of those around it.

mod amp;
mod captures;
mod halo;
mod kv;
mod lake;
mod study;

pub(crate) use amp::port_unreachable;
use anyhow::Result;
use clap::Subcommand;

/// The verbs of `tidemill sim`.
#[derive(Subcommand)]
pub(crate) enum SimCommand {
    /// The amplification mitigator: tables, tuples, ICMP messages, time until an attack is over
    Amp(amp::Amp),
    /// HALO's near-cache accelerator beside software and TCAM: lookups of real tables on a simulated machine
    Halo(Box<halo::Halo>),
    /// Caches in front of a key-value store: policies, associativity, tiers, slabs, on request logs and workload models
    Kv(Box<kv::Kv>),
    /// LaKe, the cache in a NIC: elements, shared cache, DRAM, host, watts, in simulated time
    Lake(Box<lake::Lake>),
}

/// Makes a figure, or runs what is asked for.
pub(crate) fn sim(command: SimCommand) -> Result<bool> {
    match command {
        SimCommand::Amp(args) => amp::run(&args),
        SimCommand::Halo(args) => halo::run(&args),
        SimCommand::Kv(args) => kv::run(&args),
        SimCommand::Lake(args) => lake::run(&args),
    }
}
