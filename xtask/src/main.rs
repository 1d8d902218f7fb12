//! Developer tasks: `cargo xtask COMMAND`. One file or folder per command.
#![forbid(unsafe_code)]

mod bpf;
mod callgrind;
mod capture;
mod deb;
mod env;
mod figures;
mod fuzz;
mod header;
mod held;
mod kernels;
mod licences;
mod man;
mod peers;
mod proc;
mod python;
mod readme;
mod record;
mod setup;
mod soak;
mod test;
mod tidy;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Set-up, tests, checks and peers of Tidemill.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what the tests need (Debian, Ubuntu; as root)
    Setup(setup::Options),
    /// Run the tests, tier by tier
    Test(test::Options),
    /// Check the house rules: arrows, homes of unsafe code, files, READMEs
    Tidy,
    /// Check every dependency's licence against the allow-list
    Licences,
    /// Fuzz the targets of fuzz/
    Fuzz(fuzz::Options),
    /// Run the lines that a part is held to
    Held(held::Options),
    /// Test the programs in the kernel under other kernels (QEMU)
    Kernels(kernels::Options),
    /// Measure against other programs
    #[command(subcommand)]
    Peers(peers::Command),
    /// Count what a lookup of the switch executes, beside HALO's Table 1 (valgrind)
    Callgrind(callgrind::Options),
    /// Measure what the README shows, for bench/results
    Record(record::Options),
    /// Write the README's numbers anew from bench/results
    Readme(readme::Options),
    /// Make the C header of crates/lpm-c anew (cbindgen)
    Header,
    /// Make the XDP program of AF_XDP ports anew, or check that it is (clang)
    Bpf(bpf::Options),
    /// Write the manual's pages
    Man(man::Options),
    /// Make the Debian package, and try it
    Deb(deb::Options),
    /// Run every role under load with reloads, churn, nonsense and kills
    Soak(soak::Options),
    /// Record an example's captures anew (root)
    RecordCapture(capture::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Setup(options) => setup::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Tidy => tidy::run(),
        Command::Licences => licences::run(),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Held(options) => held::run(&options),
        Command::Kernels(options) => kernels::run(&options),
        Command::Peers(command) => peers::run(&command),
        Command::Callgrind(options) => callgrind::run(&options),
        Command::Record(options) => record::run(&options),
        Command::Readme(options) => readme::run(&options),
        Command::Header => header::run(),
        Command::Bpf(options) => bpf::run(&options),
        Command::Man(options) => man::run(&options),
        Command::Deb(options) => deb::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::RecordCapture(options) => capture::run(&options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
