//! `tidemill classify`: rule sets and the structures that find the first match.

mod check;
mod verify;

use anyhow::Result;
use clap::Subcommand;
pub(crate) use verify::{Pair, collect, read};

/// The verbs of `tidemill classify`.
#[derive(Subcommand)]
pub(crate) enum ClassifyCommand {
    /// Compare every structure's answers with the linear oracle's, and the oracle's with what a trace says
    Verify(verify::Verify),
}

/// Runs a command; false if it found something wrong.
pub(crate) fn classify(command: &ClassifyCommand) -> Result<bool> {
    match command {
        ClassifyCommand::Verify(args) => verify::run(args),
    }
}
