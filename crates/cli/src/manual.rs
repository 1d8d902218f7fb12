//! `tidemill man`: the manual, a page for each command, made of what the commands say of themselves.

use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `tidemill man`.
#[derive(Args)]
#[command(after_help = "Example:\n  tidemill man /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// The folder that they are written into; it is made if it is missing
    folder: PathBuf,
}

/// Writes `tidemill.1`, `tidemill-run.1`, `tidemill-fib-stats.1` and so on.
pub(crate) fn man(args: &Man, program: clap::Command) -> Result<bool> {
    let name = || args.folder.display().to_string();
    std::fs::create_dir_all(&args.folder).with_context(name)?;
    clap_mangen::generate_to(program, &args.folder).with_context(name)?;
    Ok(true)
}
