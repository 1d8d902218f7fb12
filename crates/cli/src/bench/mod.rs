//! `tidemill bench`: measure lookup structures and ports.

mod bound;
mod lpm;
mod pass;
mod port;
mod report;
mod runner;
pub(crate) mod statistics;
mod updates;

use anyhow::Result;
use clap::Subcommand;

/// The verbs of `tidemill bench`.
#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// Lookup structures on a routing table: rates, build time, updates, bytes
    Lpm(Box<lpm::Lpm>),
    /// The engine without a network: null ports, with and without a route lookup between them
    Port(port::PortBench),
}

/// Runs a benchmark; false if an answer was wrong.
pub(crate) fn bench(command: BenchCommand) -> Result<bool> {
    match command {
        BenchCommand::Lpm(args) if args.is_runner() => runner::run(&args),
        BenchCommand::Lpm(args) => lpm::run(&args),
        BenchCommand::Port(args) => port::run(&args),
    }
}
