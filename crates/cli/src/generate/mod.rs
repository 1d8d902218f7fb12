//! `tidemill gen`: make tables and traffic, the same ones for the same seed.

mod table;
mod traffic;

use anyhow::Result;
use clap::Subcommand;

/// The verbs of `tidemill gen`.
#[derive(Subcommand)]
pub(crate) enum GenCommand {
    /// A routing table like the Internet's of 2026
    Table(table::GenTable),
    /// A capture of made-up traffic, or one whose destinations a table routes
    Traffic(Box<traffic::GenTraffic>),
}

/// Runs a command.
pub(crate) fn generate(command: GenCommand) -> Result<bool> {
    match command {
        GenCommand::Table(args) => table::run(&args),
        GenCommand::Traffic(args) => traffic::run(&args),
    }
}
