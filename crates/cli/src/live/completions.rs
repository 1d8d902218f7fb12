//! `tidemill completions`: scripts that let a shell complete the command line.

use anyhow::Result;
use clap::{Args, ValueEnum};
use clap_complete::shells;
use std::io::Write;

/// Arguments of `tidemill completions`.
#[derive(Args)]
#[command(after_help = "Examples:\n  source <(tidemill completions bash)\n  \
    tidemill completions bash > /etc/bash_completion.d/tidemill\n  \
    tidemill completions zsh > \"${fpath[1]}/_tidemill\"\n  \
    tidemill completions fish > ~/.config/fish/completions/tidemill.fish")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// The shells that we write scripts for.
#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(super) fn run(args: &Completions, command: &mut clap::Command) -> Result<bool> {
    // The generator panics when it cannot write; a vector can always be written.
    let mut script = Vec::new();
    match args.shell {
        Shell::Bash => clap_complete::generate(shells::Bash, command, "tidemill", &mut script),
        Shell::Zsh => clap_complete::generate(shells::Zsh, command, "tidemill", &mut script),
        Shell::Fish => clap_complete::generate(shells::Fish, command, "tidemill", &mut script),
    }
    crate::usage::out().write_all(&script)?;
    Ok(true)
}
