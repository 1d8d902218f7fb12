//! `man`: the manual's pages, a file for each command, as clap and clap_mangen make them of the program itself.

use crate::{env, proc};
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `cargo xtask man`.
#[derive(Args)]
pub(crate) struct Options {
    /// Where they are put
    #[arg(long, value_name = "FOLDER", default_value = "target/man")]
    out: PathBuf,
    /// The program, instead of one that is built for it
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Writes them.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut program = match &options.binary {
        Some(binary) => Command::new(std::path::absolute(binary)?),
        None => {
            let mut cargo = env::cargo();
            cargo.args(["run", "--quiet", "-p", "tidemill-cli", "--"]);
            cargo
        }
    };
    let out = env::root().join(&options.out);
    let pages = write(program.current_dir(env::root()), &out)?;
    println!("man: {} pages in {}", pages.len(), out.display());
    Ok(true)
}

/// Has a program write its pages into a folder, which has no others then. Returns their files.
pub(crate) fn write(program: &mut Command, folder: &Path) -> Result<Vec<PathBuf>> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    proc::check(program.arg("man").arg(folder))?;
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        pages.push(entry?.path());
    }
    pages.sort();
    anyhow::ensure!(!pages.is_empty(), "{}: no page was written", folder.display());
    Ok(pages)
}
