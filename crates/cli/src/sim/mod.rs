//! `tidemill sim`: studies without packets on a wire: the tables and decisions of a role, fed by patterns, by captures, by a
//! model of those around it.

mod amp;

pub(crate) use amp::port_unreachable;
use anyhow::Result;
use clap::Subcommand;

/// The verbs of `tidemill sim`.
#[derive(Subcommand)]
pub(crate) enum SimCommand {
    /// The amplification mitigator: tables, tuples, ICMP messages, time until an attack is over
    Amp(amp::Amp),
}

/// Makes a figure.
pub(crate) fn sim(command: SimCommand) -> Result<bool> {
    match command {
        SimCommand::Amp(args) => amp::run(&args),
    }
}
