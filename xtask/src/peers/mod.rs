//! `peers`: measurements against programs that others wrote. Runners are processes; bench/README.md has their protocol.

mod keys;
pub(crate) mod lpm;
mod pages;
mod reference;
mod runner;
mod stats;
mod table;

use crate::{env, proc};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command as Process;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Longest-prefix match: DPDK's rte_fib, rte_lpm, rte_fib6, rte_lpm6
    Lpm(lpm::Options),
}

/// Whether everything agreed.
pub(crate) fn run(command: &Command) -> Result<bool> {
    match command {
        Command::Lpm(options) => lpm::run(options),
    }
}

/// What is missing to build the C runners, if anything is.
pub(crate) fn missing() -> Option<String> {
    if !env::has_program("gcc") || !env::has_program("pkg-config") {
        return Some("gcc or pkg-config is not installed".to_owned());
    }
    let found = proc::output(Process::new("pkg-config").args(["--modversion", "libdpdk"]));
    found.is_err().then(|| "libdpdk-dev is not installed".to_owned())
}

/// Compiles the C files of a folder below bench/peers with DPDK; returns the program.
fn build_c(folder: &Path) -> Result<PathBuf> {
    let flags = |what: &str| -> Result<Vec<String>> {
        let text = proc::output(Process::new("pkg-config").args([what, "libdpdk"]));
        let text = text.context("DPDK is needed: cargo xtask setup")?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    };
    let mut sources: Vec<PathBuf> = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    sources.retain(|path| path.extension().is_some_and(|ending| ending == "c"));
    sources.sort();
    let program = env::scratch("peers")?.join("lpm-runner");
    let mut compiler = Process::new("gcc");
    compiler.args(["-O3", "-std=gnu11", "-Wall", "-Wextra"]).args(flags("--cflags")?).arg("-o").arg(&program);
    compiler.args(sources).args(flags("--libs")?);
    proc::output(&mut compiler)?;
    Ok(program)
}
