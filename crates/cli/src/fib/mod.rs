//! `tidemill fib`: look at, verify, convert and compare routing tables.

mod convert;
mod diff;
mod lookup;
mod stats;
mod verify;

use crate::tables::{Chosen, TableArgs};
use anyhow::Result;
use clap::Subcommand;
use tidemill_feed::LoadedTable;
pub(crate) use verify::{OfFamily, read_changes};

/// The verbs of `tidemill fib`.
#[derive(Subcommand)]
pub(crate) enum FibCommand {
    /// What a table looks like, and what each structure makes of it
    Stats(stats::Stats),
    /// Longest match of addresses
    Lookup(lookup::Lookup),
    /// Compare a structure's answers with the linear oracle's
    Verify(verify::Verify),
    /// Write a table as text or CSV
    Convert(convert::Convert),
    /// What is different between two tables
    Diff(diff::Diff),
}

/// Runs a command; false if it found something wrong.
pub(crate) fn fib(command: FibCommand) -> Result<bool> {
    match command {
        FibCommand::Stats(args) => stats::run(&args),
        FibCommand::Lookup(args) => lookup::run(&args),
        FibCommand::Verify(args) => verify::run(&args),
        FibCommand::Convert(args) => convert::run(&args),
        FibCommand::Diff(args) => diff::run(&args),
    }
}

/// Says which routes of a table nothing is asked about, since every structure that was named is for the other family.
pub(crate) fn say_what_is_left_out(files: &TableArgs, table: &LoadedTable, chosen: &Chosen) {
    let families = [(4, chosen.v4.is_empty(), table.v4.len()), (6, chosen.v6.is_empty(), table.v6.len())];
    for (family, none, prefixes) in families {
        if none && prefixes > 0 {
            crate::usage::complain(format_args!(
                "tidemill: {}: left out its {prefixes} IPv{family} prefixes: no structure that --algorithm names is for IPv{family}",
                files.name()
            ));
        }
    }
}
